# SPDX-License-Identifier: GPL-3.0-or-later
"""Where processes are placed, and how commands are filled in."""

from __future__ import annotations

import typing as t
from collections import Counter
from random import Random

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    PlatformError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    Labels,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms._options import fill
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms._placement import place
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms.process import (
    OPTIONS,
    Driver,
)

HOSTS = [f"web{number}" for number in range(1, 6)]
ADDRESSES = {host: f"10.0.0.{number}" for number, host in enumerate(HOSTS, 1)}


class Inventory:
    """The part of a transport that knows the inventory."""

    def hosts(self, pattern: str) -> list[str]:
        return HOSTS if pattern == "shop" else []

    def address(self, host: str) -> str:
        return ADDRESSES[host]

    def variable(self, host: str, name: str) -> str | None:
        return {"rack": "a" if host in HOSTS[:2] else "b"}.get(name)


def labels(host: str, port: int, slot: int, address: str = "") -> Labels:
    return Labels(
        f"i{slot}", "shop", "1", 1, host, Endpoint(address or ADDRESSES[host], port), slot
    )


def driver(**options: t.Any) -> Driver:
    given = {"hosts": "shop", "command": ["/bin/true"], "ports": "8100-8199", **options}
    return Driver(
        OPTIONS.parse(given, "rollout_platform."), DriverContext("shop", t.cast(t.Any, Inventory()))
    )


def test_a_hundred_instances_are_spread_evenly_over_five_hosts() -> None:
    places = place(HOSTS, ADDRESSES, range(8100, 8200), 100, [], 1)
    assert Counter(host for host, _endpoint, _slot in places) == dict.fromkeys(HOSTS, 20)
    assert [slot for _host, _endpoint, slot in places] == list(range(100))
    assert len({endpoint for _host, endpoint, _slot in places}) == 100
    assert [host for host, _endpoint, _slot in places[:6]] == [*HOSTS, "web1"]


def test_the_emptiest_host_is_next_and_ties_go_by_the_inventory() -> None:
    taken = [labels("web1", 8100, 0), labels("web2", 8100, 1), labels("web4", 8100, 2)]
    assert [
        host for host, _endpoint, _slot in place(HOSTS, ADDRESSES, range(8100, 8200), 3, taken, 1)
    ] == [
        "web3",
        "web5",
        "web1",
    ]


def test_zones_come_before_hosts() -> None:
    one = driver(zone="rack")
    places = one.place(10, [labels("web1", 8100, 0)], 1)
    assert Counter(host for host, _endpoint, _slot in places) == {
        "web1": 2,
        "web2": 2,
        "web3": 2,
        "web4": 2,
        "web5": 2,
    }
    assert [host for host, _endpoint, _slot in driver(zone="room").place(5, [], 1)] == HOSTS, (
        "none of them has one"
    )


def test_the_lowest_free_slots_of_the_whole_service_are_used() -> None:
    taken = [labels("web1", 8100, 0), labels("web2", 8100, 2), labels("web3", 8100, 3)]
    assert [
        slot for _host, _endpoint, slot in place(HOSTS, ADDRESSES, range(8100, 8200), 3, taken, 1)
    ] == [1, 4, 5]


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ([], [0, 1, 2]),
        ([1], [2, 3, 0]),
        ([2, 3], [0, 1]),
        ([0, 3], [1, 2]),
        ([0, 1, 2], [3]),
        ([1, 2, 3], [0]),
    ],
)
def test_a_port_just_freed_is_used_last(used: list[int], expected: list[int]) -> None:
    taken = [labels("web1", 8100 + port, slot) for slot, port in enumerate(used)]
    places = place(["web1"], ADDRESSES, range(8100, 8104), len(expected), taken, 1)
    assert [endpoint.port - 8100 for _host, endpoint, _slot in places] == expected


def test_hosts_of_one_address_share_its_ports() -> None:
    addresses = dict.fromkeys(HOSTS, "127.0.0.1")
    places = place(HOSTS, addresses, range(8100, 8110), 10, [], 1)
    assert len({endpoint for _host, endpoint, _slot in places}) == 10
    assert Counter(host for host, _endpoint, _slot in places) == dict.fromkeys(HOSTS, 2)
    with pytest.raises(PlatformError, match="1 addresses"):
        place(HOSTS, addresses, range(8100, 8110), 11, [], 1)


def test_a_full_host_is_passed_over() -> None:
    # web1 has no instance of its own, but both ports at its address are taken
    taken = [labels("web9", port, port, ADDRESSES["web1"]) for port in (8100, 8101)]
    assert [
        host
        for host, _endpoint, _slot in place(
            ["web1", "web2"], ADDRESSES, range(8100, 8102), 2, taken, 1
        )
    ] == [
        "web2",
        "web2",
    ]


def test_no_room_is_an_error_that_names_the_ports() -> None:
    with pytest.raises(PlatformError, match=r"rollout_platform.ports, 8100-8101"):
        place(["web1"], ADDRESSES, range(8100, 8102), 3, [], 1)


def test_ports_outside_the_range_do_not_matter() -> None:
    taken = [labels("web1", 9000, 0)]
    assert [
        endpoint.port
        for _host, endpoint, _slot in place(["web1"], ADDRESSES, range(8100, 8102), 2, taken, 1)
    ] == [
        8100,
        8101,
    ]


def test_capacity_and_hosts() -> None:
    assert driver().hosts() == HOSTS
    assert driver().capacity() == 500


def test_placeholders() -> None:
    known = {"revision": "2.4.1", "port": "8100"}
    assert fill("/opt/{revision}/shop:{port}", "v", known) == "/opt/2.4.1/shop:8100"
    assert fill('{{"port": {port}}}', "v", known) == '{"port": 8100}'
    assert fill("${{HOME}}", "v", known) == "${HOME}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"command": ["/bin/x", "{version}"]},
            r"rollout_platform.command: unknown placeholder '\{version\}'",
        ),
        ({"command": ["/bin/x", "{"]}, r"rollout_platform.command: unknown placeholder '\{'"),
        ({"command": "/bin/x"}, r"rollout_platform.command: expected a list, got str"),
        ({"command": []}, r"rollout_platform.command"),
        ({"command": [""]}, r"rollout_platform.command"),
        ({"env": {"A": "{what}"}}, r"rollout_platform.env.A"),
        ({"env": {"A": True}}, r"rollout_platform.env.A: .* bool; put it in quotes"),
        ({"env": {"A=B": "x"}}, r"rollout_platform.env: 'A=B'"),
        ({"ports": "8199-8100"}, r"rollout_platform.ports"),
        ({"path": "state"}, r"rollout_platform.path: .* absolute"),
        ({"cwd": "state"}, r"rollout_platform.cwd: .* absolute"),
        ({"stop_signal": "TERMINATE"}, r"rollout_platform.stop_signal"),
        ({"stop_timeout": "soon"}, r"rollout_platform.stop_timeout"),
    ],
)
def test_bad_options_are_refused_by_name(options: dict[str, t.Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        driver(**options)


def test_a_message_about_the_environment_does_not_show_its_value() -> None:
    with pytest.raises(InputError) as caught:
        driver(env={"TOKEN": "s3cret{oops}"})
    assert "s3cret" not in str(caught.value)
    assert "oops" not in str(caught.value)


def test_no_host_is_refused() -> None:
    with pytest.raises(InputError, match=r"rollout_platform.hosts: 'shpo' matches no host"):
        driver(hosts="shpo").check()


def test_a_generation_is_spread_evenly_whatever_the_others_occupy() -> None:
    """The old ones are to go: with them on web1 and web2 alone the new ones still use every host
    alike.
    """
    old = [labels("web1", 8100 + n, n) for n in range(4)] + [labels("web2", 8100, 4)]
    places = place(HOSTS, ADDRESSES, range(8100, 8200), 10, old, 2)
    assert Counter(host for host, _endpoint, _slot in places) == dict.fromkeys(HOSTS, 2)
    assert [host for host, _endpoint, _slot in places[:4]] == ["web3", "web4", "web5", "web2"]


def test_the_least_loaded_host_of_the_least_loaded_zone_is_next(dice: Random) -> None:
    """As if all hosts were compared for each instance."""
    for _case in range(200):
        hosts = [f"web{number}" for number in range(dice.randint(1, 8))]
        addresses = {host: f"10.0.0.{dice.randint(1, 6)}" for host in hosts}
        zones = {host: dice.choice("abc") for host in hosts}
        taken = [
            Labels(
                f"i{slot}",
                "shop",
                "1",
                dice.randint(1, 2),
                (host := dice.choice(hosts)),
                Endpoint(addresses[host], dice.randint(8100, 8104)),
                slot,
            )
            for slot in range(dice.randint(0, 6))
        ]
        used = {(one.endpoint.address, one.endpoint.port) for one in taken}
        room = 5 * len(set(addresses.values())) - len(used)
        placed = place(hosts, addresses, range(8100, 8105), room, taken, 2, zones=zones)
        for number, (host, endpoint, _slot) in enumerate(placed):
            on = Counter(one.host for one in taken) + Counter(at for at, *_ in placed[:number])
            alike = Counter(one.host for one in taken if one.generation == 2)
            alike += Counter(at for at, *_ in placed[:number])
            in_zone: Counter[str] = Counter()
            for name, count in alike.items():
                in_zone[zones[name]] += count
            loads = {
                name: (in_zone[zones[name]], alike[name], on[name])
                for name in hosts
                if sum(address == addresses[name] for address, _port in used) < 5
            }
            assert host == min(loads, key=loads.__getitem__)
            used.add((endpoint.address, endpoint.port))
