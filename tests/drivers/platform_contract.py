# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every platform promises, against the real thing. A test module derives a class `Test...`
and gives it a `site`.
"""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    LeaseLost,
    PlatformError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Process
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    InstanceSettings,
    Labels,
    PlatformDriver,
    Report,
    key_of,
)

RUNNING, STOPPED, STOPPING, FAILED = (
    Process.RUNNING,
    Process.STOPPED,
    Process.STOPPING,
    Process.FAILED,
)
Work = Mapping[str, t.Any]


def started(driver: PlatformDriver, wanted: Sequence[Labels]) -> t.Sequence[Report]:
    """The reports, once these run. A host that takes long has not said so at first."""
    return becomes(driver, {one.id: RUNNING for one in wanted}, start=wanted)


class Site(t.Protocol):
    """Hosts, and drivers of one service there."""

    def driver(self, epoch: int = 1) -> PlatformDriver:
        """A new driver, whose instances run until they are stopped."""

    def ending(self) -> PlatformDriver:
        """Its instances print `no` and end, with an exit code that is a failure."""

    def stubborn(self, stop_timeout: str) -> PlatformDriver:
        """Its instances ignore the signal that asks them to stop, once they are `up`."""

    def up(self, report: Report) -> bool:
        """Whether the instance of `stubborn` ignores signals by now."""

    def left(self) -> list[str]:
        """What the hosts have of the service, but for what all its instances share."""


class ObserveContract:
    """What also platforms promise that do not start instances."""

    def test_it_has_hosts_and_room(self, site: Site) -> None:
        driver = site.driver()
        assert len(driver.hosts()) == len(set(driver.hosts())) >= 1
        assert driver.capacity() >= len(driver.hosts())

    def test_what_is_needed_can_be_looked_for_again_and_again_and_nothing_is_touched(
        self, site: Site
    ) -> None:
        before, driver = site.left(), site.driver()
        for _again in range(2):
            driver.check()
            driver.prepare("1")
        assert site.left() == before


class PlatformContract(ObserveContract):
    """What platforms promise that start instances."""

    def test_an_instance_from_start_to_end(self, site: Site) -> None:
        driver = site.driver()
        assert list(driver.sync()) == []
        wanted = labels(driver, "shop-1", "shop-2", "shop-3")
        before = time.time()
        reports = started(driver, wanted)
        assert {report.labels for report in reports} == set(wanted)
        assert all(before - 1 <= report.created <= time.time() for report in reports)
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

    def test_one_that_is_there_is_not_started_again(self, site: Site) -> None:
        driver = site.driver()
        wanted = labels(driver, "shop-1")
        (first,) = started(driver, wanted)
        (again,) = started(driver, wanted)
        assert (again.labels, again.process) == (first.labels, RUNNING)
        assert abs(again.created - first.created) < 1

    def test_another_run_finds_everything(self, site: Site) -> None:
        driver = site.driver()
        reports = started(driver, labels(driver, "shop-1", "shop-2"))
        found = site.driver(epoch=0).sync()
        assert [(one.labels, one.process) for one in found] == [
            (one.labels, one.process) for one in reports
        ]
        assert all(
            abs(new.created - old.created) < 2 for new, old in zip(found, reports, strict=True)
        )
        assert len({driver.sync()[0].created for _look in range(3)}) == 1

    def test_one_that_ends_is_told_until_it_is_forgotten(self, site: Site) -> None:
        """As failed, or as restarted, where something on the host does that."""
        driver = site.ending()
        driver.sync(start=labels(driver, "shop-1"))
        until(lambda: driver.sync()[0].process is FAILED or bool(driver.sync()[0].restarts))
        (report,) = site.driver().sync()
        assert "; last log lines: no" in report.detail
        until(lambda: driver.sync(stop=["shop-1"])[0].process in (FAILED, STOPPED))
        becomes(driver, {}, forget=["shop-1"])
        assert site.left() == []

    def test_one_that_ignores_the_signal_is_killed_after_its_own_timeout(self, site: Site) -> None:
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

    def test_an_older_lease_does_nothing(self, site: Site) -> None:
        newer, older = site.driver(epoch=8), site.driver(epoch=7)
        started(newer, labels(newer, "shop-1"))
        for work in works(older):
            with pytest.raises(
                LeaseLost, match=r": a newer lease holder has acted here \(epoch 8, ours is 7\)"
            ):
                older.sync(**work)
        assert states(site.driver(epoch=0).sync()) == {"shop-1": RUNNING}

    def test_without_a_lease_it_only_looks(self, site: Site) -> None:
        driver = site.driver(epoch=0)
        assert list(driver.sync()) == []
        for work in works(driver)[:-1]:
            with pytest.raises(PlatformError, match="without a lease"):
                driver.sync(**work)
        assert site.left() == []

    def test_secret_settings_are_kept_on_the_hosts(self, site: Site) -> None:
        driver = site.driver()
        if type(driver).host_options is None:
            pytest.skip("starts all instances with the present options")
        content = {"platform": {"env": {"TOKEN": "s3cr3t"}}, "salt": "x"}
        key = key_of(content)
        driver.context.settings = {7: InstanceSettings("any", {}, {}, {}, key)}  # type: ignore[attr-defined]
        driver.keep(key, content)
        later = site.driver(epoch=0)
        later.sync()
        assert later.recall(key) == content
        assert later.recall(key_of({"salt": "y"})) is None


def works(driver: PlatformDriver) -> list[Work]:
    """Every kind of work, and a look."""
    return [{"start": labels(driver, "shop-2")}, {"stop": ["shop-1"]}, {"forget": ["shop-1"]}, {}]


def labels(driver: PlatformDriver, *ids: str, revision: str = "1") -> list[Labels]:
    service = driver.context.service  # type: ignore[attr-defined]
    places = zip(ids, driver.place(len(ids), (), 7), strict=True)
    return [
        Labels(name, service, revision, 7, host, endpoint, slot)
        for name, (host, endpoint, slot) in places
    ]


def states(reports: Iterable[Report]) -> dict[str, Process]:
    return {report.labels.id: report.process for report in reports}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)


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
