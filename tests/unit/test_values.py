# SPDX-License-Identifier: GPL-3.0-or-later
"""What people write, as YAML reads it: taken as it was meant, or refused with the variable's
name.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import settings, strategy
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.adoption import Adoption
from ansible_collections.progressive.rollout.plugins.plugin_utils.health import spec
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.yaml_numbers import (
    refuse_odd_numbers,
)

DIGITS = "9" * 5000
Reader = Callable[[t.Any, str], object]


def replicas(value: t.Any, _variable: str) -> object:
    return settings.parse({"service": "shop", "replicas": value}, drivers=False).replicas


def lease(value: t.Any, _variable: str) -> object:
    return settings.parse({"service": "shop", "lease": value}, drivers=False).lease


def adopt(value: t.Any, _variable: str) -> object:
    return settings.parse({"service": "shop", "adopt": value}, drivers=False).adopt


def whole(value: t.Any, variable: str) -> object:
    return values.whole(value, variable, 0)


@pytest.mark.parametrize(
    ("reader", "value", "why"),
    [
        (replicas, "٣", "rollout_replicas: '٣' is not a whole number"),
        (replicas, "４", "rollout_replicas: '４' is not a whole number"),
        (replicas, "1_000", "rollout_replicas: '1_000' is not a whole number"),
        (replicas, "0x1F", "rollout_replicas: '0x1F' is not a whole number"),
        (replicas, "1:30", "rollout_replicas: '1:30' is not a whole number"),
        (replicas, 999_999_999, "rollout_replicas: 999999999 is too large; must be at most 10000"),
        (
            replicas,
            9_999_999_999,
            "rollout_replicas: 9999999999 is too large; must be at most 10000",
        ),
        (replicas, DIGITS, "rollout_replicas: '999.*\\.\\.\\. is not a whole number"),
        (lease, "99999999999d", "rollout_lease: '99999999999d' is too long; must be at most 1h"),
        (lease, "2h", "rollout_lease: '2h' is too long; must be at most 1h"),
        (lease, "4s", "rollout_lease: '4s' is too short; must be at least 5 s"),
        (values.duration, "１０s", "v: '１０s' is not a duration"),
        (values.duration, "1:30", "v: '1:30' is not a duration"),
        (values.duration, "1_0s", "v: '1_0s' is not a duration"),
        (values.duration, "99999999999d", "v: '99999999999d' is too long; must be at most 366d"),
        (values.duration, 1e300, "v: 1e\\+300 is not a duration"),
        (values.duration, float("nan"), "v: nan is not a duration"),
        (values.amount, "1_0%", "v: '1_0%' is not a percentage"),
        (values.amount, "١٠%", "v: '١٠%' is not a percentage"),
        (values.port, DIGITS, "v: '999.*\\.\\.\\. is not a port"),
        (values.port, "８０", "v: '８０' is not a port"),
        (values.ports, DIGITS, "v: .* is not a range of ports"),
        (values.ports, "８０-９０", "v: .* is not a range of ports"),
        (values.socket_address, f"127.0.0.1:{DIGITS}", "v: .* is not an address and a port"),
        (values.revision, 8, 'v: 8 is a number; quote it \\("8"\\), or 010 would become 8'),
        (
            values.revision,
            1.1,
            'v: 1.1 is a number; quote it \\("1.1"\\), or 1.10 would become 1.1',
        ),
        (values.revision, -1, "v: -1 is not a name"),
        (values.revision, "１", "v: '１' is not a name"),
        (whole, True, "v: True is not a whole number"),
        (adopt, "101", "rollout_adopt: .* key: value pairs"),
        (adopt, {"servers": ["a"]}, "rollout_adopt.revision: not given, but required"),
        (adopt, {"revision": 1.1}, "rollout_adopt.revision: 1.1 is a number; quote it"),
        (
            adopt,
            {"revision": "1", "server": "a"},
            "rollout_adopt.server: unknown option; .*servers",
        ),
        (adopt, {"revision": "1", "servers": []}, "rollout_adopt.servers: must not be empty"),
        (adopt, {"revision": "1", "servers": [""]}, "rollout_adopt.servers: must not be empty"),
        (adopt, {"revision": "1", "servers": ["a", "a"]}, "rollout_adopt.servers: a is .* twice"),
    ],
)
def test_refused(reader: Reader, value: t.Any, why: str) -> None:
    with pytest.raises(InputError, match=f"^{why}"):
        reader(value, "v")


def test_what_runs_before_the_first_rollout() -> None:
    assert adopt({}, "") is None
    assert adopt({"revision": "101"}, "") == Adoption("101", ())
    assert adopt({"revision": "101", "servers": "a"}, "") == Adoption("101", ("a",))
    assert adopt({"revision": "101", "servers": ["b", "a"]}, "") == Adoption("101", ("b", "a"))


def test_a_message_lists_the_first_known_names() -> None:
    known = [f"option{number:03}" for number in range(100)]
    with pytest.raises(InputError) as refused:
        values.refuse_unknown(["colour"], known, "rollout_")
    assert str(refused.value).startswith("rollout_colour: unknown variable; known: option000, ")
    assert str(refused.value).endswith("option029, …")


def test_a_number_that_cannot_be_shown() -> None:
    with pytest.raises(
        InputError, match=r"^v: a number of thousands of digits is not a whole number"
    ):
        values.whole(10**5000, "v", 0)


def test_probes_are_counted_in_digits_that_everybody_reads() -> None:
    for value in (DIGITS, "٣", "1_0"):
        with pytest.raises(InputError, match=r"^rollout_health.rise: .* is not a whole number"):
            spec.parse({"tcp": True, "rise": value}, "rollout_health")


@pytest.mark.parametrize("name", ["promote_delay", "hold"])
def test_a_wait_that_is_too_long_is_refused_by_the_name_of_its_variable(name: str) -> None:
    given = {"strategy": "blue_green", name: "99999999999d"}
    with pytest.raises(
        InputError, match=rf"^rollout_{name}: '99999999999d' is too long; must be at most 366d"
    ):
        strategy.parse(given)


@pytest.mark.parametrize("given", [0.00001, "0.00001", 1e-9, 90, 1.5, "366d"])
def test_a_duration_that_is_written_as_seconds_is_read_again(given: t.Any) -> None:
    seconds = values.duration(given, "v")
    assert values.duration(seconds, "v") == seconds


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "replicas: 1:30",
            (
                r"v.replicas: YAML reads 1:30 as the number 90; write 90, or put it in quotes"
                r' \("1:30"\)'
            ),
        ),
        ("replicas: 010", "v.replicas: YAML reads 010 as the number 8"),
        ("replicas: 0x1F", "v.replicas: YAML reads 0x1F as the number 31"),
        ("replicas: 0b11", "v.replicas: YAML reads 0b11 as the number 3"),
        ("replicas: 1_000  # a thousand", "v.replicas: YAML reads 1_000 as the number 1000"),
        ("replicas: +1", r"v.replicas: YAML reads \+1 as the number 1"),
        ("hold: 1:30.5", "v.hold: YAML reads 1:30.5 as the number 90.5"),
        ("freeze: [{duration: 1:30}]", r"v.freeze\[0\].duration: YAML reads 1:30 as the number 90"),
        (
            "platform: {env: {A: 010}}",
            (
                "v.platform.env.A: YAML reads this number differently than it is written; put it in"
                " quotes"
            ),
        ),
        (
            (
                "replicas: 3\nhold: 90\nshare: -1.5\nlist: [0, 10, 2.0]\ntext: '1:30'\nwhen:"
                " 2025-01-01"
            ),
            "",
        ),
        ("a: &one 7\nreplicas: *one\nhold: 90s\nflag: yes\nnothing:", ""),
    ],
)
def test_numbers_are_those_that_were_written(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "vars.yml").write_text(text + "\n")
    read = DataLoader().load_from_file(str(tmp_path / "vars.yml"))
    if not why:
        refuse_odd_numbers(read, "v")
        return
    with pytest.raises(InputError, match=f"^{why}"):
        refuse_odd_numbers(read, "v")


@pytest.mark.parametrize("number", [10**5000, -(10**5000), 10**101], ids=["+", "-", "101"])
def test_a_number_of_many_digits_is_refused_with_its_place(number: int) -> None:
    """Python itself does not write thousands of digits."""
    with pytest.raises(InputError, match=r"^rollout_steps\[0\]\.pause: the number") as caught:
        refuse_odd_numbers([{"pause": number}], "rollout_steps")
    assert caught.value.id == "PR-104" and len(str(caught.value)) < 200
    refuse_odd_numbers([{"pause": 10**100}], "rollout_steps")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ('{"max_surge": "2"}', {"max_surge": "2"}),
        (' [{"pause": {}}]\n', [{"pause": {}}]),
        ("6", "6"),
        ("25%", "25%"),
        ("", ""),
        ("[urgent] prices are wrong", "[urgent] prices are wrong"),
        ("[" * 100_000, "[" * 100_000),
        (f"[{DIGITS}]", f"[{DIGITS}]"),
        (["[1]"], ["[1]"]),
    ],
)
def test_a_mapping_or_a_list_may_be_a_text_of_json(given: t.Any, found: t.Any) -> None:
    assert values.data(given) == found
