# SPDX-License-Identifier: GPL-3.0-or-later
"""What every platform promises, against the real thing. A test module derives a class `Test...`
from the contract of its kind, and gives it a `site`.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    LeaseLost,
    PlatformError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Composition,
    Health,
    Process,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    NOWHERE,
    Endpoint,
    InstanceSettings,
    Labels,
    PlatformDriver,
    Report,
    key_of,
)
from ansible_collections.progressive.rollout.tests.support.contexts import tell
from ansible_collections.progressive.rollout.tests.support.waiting import until

TICKS = 'n=0; while [ $n -lt 20 ]; do n=$((n+1)); echo "ERROR tick $n"; sleep 0.1; done; sleep 1000'
RUNNING = Process.RUNNING
STOPPED = Process.STOPPED
STOPPING = Process.STOPPING
FAILED = Process.FAILED
Work = Mapping[str, t.Any]


class Site(t.Protocol):
    """A place for instances of one service, none of which is there yet, and drivers of it."""

    told: str
    """What a report says of an instance of `ending`, a regular expression."""

    def driver(self, epoch: int = 1) -> PlatformDriver:
        """A new driver, whose instances run until they are stopped."""

    def ending(self) -> PlatformDriver:
        """Its instances print `no` and end, with an exit code that is a failure."""

    def left(self) -> list[str]:
        """What is there of the service, but for what all its instances share."""


class HostsSite(Site, t.Protocol):
    """A site whose instances the rollout names and places."""

    def neighbour(self) -> PlatformDriver:
        """A driver of another service, on the same hosts and with the same ports."""

    def stubborn(self, stop_timeout: str) -> PlatformDriver:
        """Its instances ignore the signal that asks them to stop, once they are `up`."""

    def up(self, report: Report) -> bool:
        """Whether the instance of `stubborn` ignores signals by now."""

    def logging(self) -> PlatformDriver:
        """Its instances log `ERROR tick N` for each N up to 20, 0.1 s apart, and stay."""


class ObserveContract:
    """What also platforms promise that do not start instances."""

    def test_it_has_room(self, site: Site) -> None:
        driver = site.driver()
        assert len(driver.hosts()) == len(set(driver.hosts()))
        assert driver.capacity() >= max(1, len(driver.hosts()))

    def test_what_is_needed_can_be_looked_for_again_and_again_and_nothing_is_touched(
        self, site: Site
    ) -> None:
        before, driver = site.left(), site.driver()
        for _again in range(2):
            driver.check()
            driver.prepare("1")
        assert site.left() == before


class PlatformContract(ObserveContract):
    """What all platforms promise that start instances, whoever names and places them."""

    def test_instances_from_start_to_end(self, site: Site) -> None:
        driver = site.driver()
        assert list(driver.sync()) == []
        before = time.time()
        reports = started(driver, order(driver, 3))
        service = driver.context.service  # type: ignore[attr-defined]
        labelled = {
            (one.labels.service, one.labels.revision, one.labels.generation) for one in reports
        }
        assert labelled == {(service, "1", 7)}
        assert all(before - 2 <= one.created <= time.time() + 2 for one in reports), "in whole s"
        goes, *stay = ids = [one.labels.id for one in reports]
        assert len(set(ids)) == 3
        stopped(driver, [goes])
        for work in ({"stop": [goes]}, {"forget": [goes]}, {"stop": [goes], "forget": [goes]}):
            left = living(driver.sync(**work))
            assert list(left.values()) == [RUNNING, RUNNING], (goes, left)
            assert set(left) == set(stay), (goes, left)
        stopped(driver, list(left))
        ended(driver, site, ids)

    def test_one_more_is_started_beside_those_there_are(self, site: Site) -> None:
        driver = site.driver()
        first = started(driver, order(driver, 2))
        driver.sync(start=order(driver, 1, [one.labels for one in first]))
        until(lambda: list(living(driver.sync()).values()) == [RUNNING] * 3)
        assert set(states(first)) < set(living(driver.sync()))

    def test_another_run_finds_everything(self, site: Site) -> None:
        driver = site.driver()
        reports = started(driver, order(driver, 2))
        found = site.driver(epoch=0).sync()
        seen = {one.labels: one for one in reports}
        assert {one.labels: one.process for one in found} == dict.fromkeys(seen, RUNNING)
        assert all(abs(one.created - seen[one.labels].created) < 2 for one in found)
        assert len({driver.sync()[0].created for _look in range(3)}) == 1

    def test_one_that_ends_is_told_until_it_is_forgotten(self, site: Site) -> None:
        """As failed, or as restarted, where something does that."""
        driver = site.ending()
        driver.sync(start=order(driver, 1))
        until(lambda: any(one.process is FAILED or one.restarts for one in driver.sync()))
        (report,) = site.driver().sync()
        assert re.search(site.told, report.detail), report.detail
        name = report.labels.id
        stopped(driver, [name])
        ended(driver, site, [name])

    def test_an_older_lease_does_nothing(self, site: Site) -> None:
        newer, older = site.driver(epoch=8), site.driver(epoch=7)
        (report,) = started(newer, order(newer, 1))
        for work in works(older, report.labels.id):
            with pytest.raises(
                LeaseLost, match=r": a newer lease holder has acted here \(epoch 8, ours is 7\)"
            ):
                older.sync(**work)
        with contextlib.suppress(LeaseLost):  # platforms that have nothing to conclude say nothing
            older.conclude(None)
        assert states(site.driver(epoch=0).sync()) == {report.labels.id: RUNNING}

    def test_without_a_lease_it_only_looks(self, site: Site) -> None:
        driver = site.driver(epoch=0)
        assert list(driver.sync()) == []
        for work in works(driver, "shop-1")[:-1]:
            with pytest.raises(PlatformError, match="without a lease"):
                driver.sync(**work)
        assert site.left() == []

    def test_it_is_closed_as_often_as_wanted(self, site: Site) -> None:
        driver = site.driver()
        driver.sync()
        before = threading.active_count()
        for _again in range(2):
            driver.close()
        until(lambda: threading.active_count() < before or not driver.capabilities.names_instances)


class OrchestratorContract(PlatformContract):
    """What platforms promise that name and place instances themselves."""

    def test_what_is_ordered_is_reported_at_once_by_every_run(self, site: Site) -> None:
        """Or it would be ordered again."""
        driver = site.driver()
        for count in (2, 3):
            found = driver.sync(start=order(driver, count - 2 or 2))
            assert len(living(found)) == count
            assert len(living(site.driver(epoch=0).sync())) == count
        until(lambda: list(living(driver.sync()).values()) == [RUNNING] * 3)

    def test_one_that_was_stopped_does_not_come_back(self, site: Site) -> None:
        """Also of those that were ordered and not seen yet."""
        driver = site.driver()
        gone = living(driver.sync(start=order(driver, 2)))
        stopped(driver, list(gone))
        again = started(driver, order(driver, 2))
        assert not set(gone) & set(states(again))
        assert not set(gone) & set(living(driver.sync(stop=list(gone))))
        assert len(living(driver.sync())) == 2

    def test_a_rollout_is_concluded_and_its_instances_stay(self, site: Site) -> None:
        driver = site.driver()
        before = states(started(driver, order(driver, 2)))
        stable = Composition("1", 7, 2)
        until(lambda: concluded(driver, stable))
        assert driver.conclude(stable) == "", "again"
        assert states(driver.sync()) == before
        later = site.driver(epoch=2)
        assert states(later.sync()) == before
        assert later.replicas() in (2, None)
        later.sync(start=order(later, 1))
        until(lambda: list(living(later.sync()).values()) == [RUNNING] * 3)


class HostsContract(PlatformContract):
    """What platforms promise whose instances the rollout names, and places on hosts."""

    def test_it_has_hosts(self, site: Site) -> None:
        assert site.driver().hosts()

    def test_an_instance_is_what_was_asked_for_from_start_to_end(self, site: Site) -> None:
        driver = site.driver()
        wanted = labels(driver, "shop-1", "shop-2", "shop-3")
        reports = started(driver, wanted)
        assert {report.labels for report in reports} == set(wanted)
        after = {"shop-1": RUNNING, "shop-2": STOPPED, "shop-3": RUNNING}
        becomes(driver, after, stop=["shop-2"])
        assert states(driver.sync(stop=["shop-2"])) == after, "again"
        becomes(driver, {"shop-1": RUNNING, "shop-3": RUNNING}, forget=["shop-2"])
        becomes(driver, {"shop-1": STOPPED, "shop-3": STOPPED}, stop=["shop-1", "shop-3"])
        becomes(driver, {}, forget=["shop-1", "shop-3"])
        assert list(driver.sync(forget=["shop-1", "shop-3"], stop=["shop-2"])) == [], "again"
        assert site.left() == []

    def test_places_are_apart_and_spread(self, site: Site) -> None:
        driver = site.driver()
        places = list(driver.place(4, (), 7))
        assert (
            len({endpoint for _host, endpoint, _slot in places})
            == len({(host, slot) for host, _endpoint, slot in places})
            == 4
        )
        counts = [
            sum(1 for host, _endpoint, _slot in places if host == one) for one in driver.hosts()
        ]
        assert max(counts) - min(counts) <= 1
        taken = labels(driver, "shop-1", "shop-2")
        others = driver.place(2, taken, 7)
        assert not {endpoint for _host, endpoint, _slot in others} & {one.endpoint for one in taken}

    def test_two_services_on_one_host_pass_over_the_ports_of_each_other(
        self, site: HostsSite
    ) -> None:
        """Also while an instance does not listen yet. Passing over is no failure."""
        shop, cart = site.driver(), site.neighbour()
        ours = started(shop, labels(shop, "shop-1", "shop-2"))
        found: list[Sequence[Report]] = [cart.sync(start=labels(cart, "cart-1", "cart-2"))]

        def both_run() -> bool:
            there = [report.labels for report in found[-1]]
            missing = [name for name in ("cart-3", "cart-4") if name not in states(found[-1])]
            found.append(cart.sync(start=labels(cart, *missing, taken=there)))
            return states(found[-1]) == {"cart-3": RUNNING, "cart-4": RUNNING}

        until(both_run)
        assert not found[0] and not any(FAILED in states(one).values() for one in found)
        assert not {one.labels.endpoint for one in ours} & {
            one.labels.endpoint for one in found[-1]
        }
        assert states(shop.sync()) == {"shop-1": RUNNING, "shop-2": RUNNING}
        stopped(cart, ["cart-3", "cart-4"])

    def test_the_port_of_a_crashed_instance_is_left_to_its_service(self, site: HostsSite) -> None:
        """Load balancers may send its requests there until its service forgets it."""
        shop, cart = site.ending(), site.neighbour()
        wanted = labels(shop, "shop-1")
        shop.sync(start=wanted)
        until(lambda: any(one.process is FAILED or one.restarts for one in shop.sync()))
        (place,) = wanted
        mine = [replace(place, id="cart-1", service="cart")]
        assert not cart.sync(start=mine)
        stopped(shop, ["shop-1"])
        shop.sync(forget=["shop-1"])
        assert [report.labels.id for report in site.neighbour().sync(start=mine)] == ["cart-1"]

    def test_one_that_is_there_is_not_started_again(self, site: Site) -> None:
        driver = site.driver()
        wanted = labels(driver, "shop-1")
        (first,) = started(driver, wanted)
        (again,) = started(driver, wanted)
        assert (again.labels, again.process) == (first.labels, RUNNING)
        assert abs(again.created - first.created) < 1

    def test_one_that_ignores_the_signal_is_killed_after_its_own_timeout(
        self, site: HostsSite
    ) -> None:
        patient, hasty = site.stubborn("5s"), site.stubborn("1ms")
        first, second = labels(patient, "shop-1", "shop-2")
        patient.sync(start=[first])
        hasty.sync(start=[second])
        until(lambda: states(patient.sync()) == dict.fromkeys(("shop-1", "shop-2"), RUNNING))
        until(lambda: all(site.up(report) for report in patient.sync()))
        after = {"shop-1": STOPPING, "shop-2": STOPPED}
        found = becomes(patient, after, stop=["shop-1", "shop-2"])  # whoever stops it
        details = {one.labels.id: one.detail for one in found}
        assert details["shop-2"] == "did not stop in time and was killed", details
        becomes(patient, {"shop-1": STOPPED, "shop-2": STOPPED}, stop=["shop-1"])

    def test_one_that_runs_is_not_forgotten(self, site: Site) -> None:
        driver = site.driver()
        started(driver, labels(driver, "shop-1"))
        with pytest.raises(PlatformError, match="instance shop-1 is running"):
            driver.sync(forget=["shop-1"])
        assert states(driver.sync()) == {"shop-1": RUNNING}

    def test_each_error_in_the_log_of_an_instance_is_found_once(self, site: HostsSite) -> None:
        driver = site.logging()
        (report,) = started(driver, order(driver, 1))
        name, host = report.labels.id, report.labels.host
        source, marks = dict(driver.log_source(name, host)), [None]
        transport = driver.context.transport  # type: ignore[attr-defined]

        def look() -> int:
            logs = {name: {"source": source, "mark": marks[-1]}}
            answer = transport.ask("instance_log", {host: {"logs": logs, "ignored": []}}, 60)[host]
            log = answer.value["logs"][name]
            marks.append(log["mark"])
            assert all(one["example"].startswith("ERROR tick ") for one in log["found"].values())
            return sum(one["times"] for one in log["found"].values())

        found: list[int] = []

        def all_found() -> bool:
            found.append(look())
            return sum(found) >= 20

        until(all_found)
        assert sum(found) == 20 and len([count for count in found if count]) > 1, found
        assert look() == 0
        stopped(driver, [name])

    def test_secret_settings_are_kept_on_the_hosts(self, site: Site) -> None:
        driver = site.driver()
        content = {"platform": {"env": {"TOKEN": "s3cr3t"}}, "salt": "x"}
        key = key_of(content)
        tell(driver, settings={7: InstanceSettings("any", {}, {}, {}, key)})
        driver.keep(key, content)
        later = site.driver(epoch=0)
        later.sync()
        assert later.recall(key) == content
        assert later.recall(key_of({"salt": "y"})) is None


def works(driver: PlatformDriver, name: str) -> list[Work]:
    """Every kind of work, and a look."""
    return [{"start": order(driver, 1)}, {"stop": [name]}, {"forget": [name]}, {}]


def order(driver: PlatformDriver, count: int, taken: Sequence[Labels] = ()) -> list[Labels]:
    """The next instances beside those there are, as a rollout orders them."""
    if driver.capabilities.names_instances:
        service = driver.context.service  # type: ignore[attr-defined]
        return [Labels("", service, "1", 7, "", NOWHERE, 0)] * count
    ids = [f"shop-{len(taken) + number + 1}" for number in range(count)]
    return labels(driver, *ids, taken=taken)


def labels(driver: PlatformDriver, *ids: str, taken: Sequence[Labels] = ()) -> list[Labels]:
    service = driver.context.service  # type: ignore[attr-defined]
    found: Sequence[tuple[str, Endpoint, int]] = [("", NOWHERE, 0)] * len(ids)
    if driver.capabilities.has_hosts:
        found = driver.place(len(ids), taken, 7)
    places = zip(ids, found, strict=True)
    return [
        Labels(name, service, "1", 7, host, endpoint, slot)
        for name, (host, endpoint, slot) in places
    ]


def started(driver: PlatformDriver, wanted: Sequence[Labels]) -> t.Sequence[Report]:
    """The reports, once these run. A host that takes long has not said so at first."""
    if not driver.capabilities.names_instances:
        return becomes(driver, {one.id: RUNNING for one in wanted}, start=wanted)
    driver.sync(start=wanted)  # a number: not to be asked for again
    until(lambda: [one.process for one in driver.sync()] == [RUNNING] * len(wanted))
    # Which one of several is stopped can be chosen once they are ready.
    until(lambda: {one.health for one in driver.sync()} <= {Health.NONE, Health.PASSING})
    return driver.sync()


def stopped(driver: PlatformDriver, names: Sequence[str]) -> None:
    """Ask these to stop, again and again, as in a rollout, until they have ended."""
    until(lambda: not set(names) & set(living(driver.sync(stop=names))))


def ended(driver: PlatformDriver, site: Site, names: Sequence[str]) -> None:
    """Forget these, the last ones of a rollout that leaves nothing."""
    until(lambda: not driver.sync(forget=names))
    until(lambda: concluded(driver, None))
    assert list(driver.sync(forget=names, stop=names)) == [], "again"
    assert site.left() == []


def concluded(driver: PlatformDriver, stable: Composition | None) -> bool:
    """Ask once that the rollout is concluded, as the loop does; return whether it is.

    Others may change an object at the same moment, which is then looked at again.
    """
    try:
        return driver.conclude(stable) == ""
    except PlatformError:
        return False


def living(reports: Iterable[Report]) -> dict[str, Process]:
    """By id, those that have not ended."""
    return {
        name: process
        for name, process in states(reports).items()
        if process not in (STOPPED, FAILED)
    }


def states(reports: Iterable[Report]) -> dict[str, Process]:
    return {report.labels.id: report.process for report in reports}


def becomes(
    driver: PlatformDriver, expected: Mapping[str, Process], **work: t.Any
) -> t.Sequence[Report]:
    """The reports, once they are as expected; the work is asked for again and again, as in a
    rollout.
    """
    found: list[t.Sequence[Report]] = []

    def reached() -> bool:
        found.append(driver.sync(**work))
        return states(found[-1]) == expected

    until(reached)
    return found[-1]
