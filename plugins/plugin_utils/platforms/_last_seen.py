# SPDX-License-Identifier: GPL-3.0-or-later
"""What was last seen on each host, for as long as it does not answer."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ..base.text import clean
from ..engine.model import Process
from ..inputs import shapes
from ..interfaces.context import DriverContext
from ..interfaces.platform import Endpoint, Labels, Report
from ..remote.agents import Answer

ALIVE = (Process.STARTING, Process.RUNNING)


class LastSeen:
    """The reports of each host, and in `away` those of hosts that do not answer."""

    def __init__(self, context: DriverContext) -> None:
        self._context = context
        self.away: dict[str, list[dict[str, t.Any]]] = {}
        self._reports: dict[str, list[Report]] = {}  # by host
        self._created: dict[str, float] = {}
        self._restarted: dict[str, float] = {}

    @property
    def hosts(self) -> Collection[str]:
        """Return the hosts of which anything is known."""
        return self._reports.keys()

    def restore(self, hosts: Collection[str]) -> None:
        """Take over what earlier runs saw on hosts that did not answer them."""
        for host, seen in self._context.known().away.items():
            if host in hosts and host not in self._reports:
                self._reports[host] = [restored(report) for report in seen]
                self.away[host] = [noted(report) for report in self._reports[host]]

    def homes(self, process: Process | None = None) -> dict[str, str]:
        """Return the host of each instance, or of each in this state, by its id."""
        return {
            report.labels.id: host
            for host, reports in self._reports.items()
            for report in reports
            if process in (None, report.process)
        }

    def update(
        self,
        host: str,
        answer: Answer | None,
        started: Sequence[Labels],
        stopped: Collection[str],
        now: float,
    ) -> None:
        """Take an answer; without one, note what the host was told to start and to stop.

        An instance that it was told to stop may end at any moment, and must not come back into
        rotation before.
        """
        self.away.pop(host, None)
        if answer and answer.value is not None:
            self._reports[host] = self.read(host, answer.value["instances"], now)
            return
        reports = self._reports[host] = [
            replace(report, process=Process.STOPPING)
            if report.labels.id in stopped and report.process in ALIVE
            else report
            for report in self._reports.get(host, ())
        ]
        seen = {report.labels.id for report in reports}
        reports += [
            Report(labels, Process.STARTING, now) for labels in started if labels.id not in seen
        ]
        if answer and answer.unreachable:
            self.away[host] = [noted(report) for report in reports]

    def take(self, host: str, reports: Sequence[Report]) -> None:
        """Take the reports of a host that answers."""
        self.away.pop(host, None)
        self._reports[host] = list(reports)

    def lose(self, host: str, started: Sequence[Labels], now: float) -> None:
        """Note that a host does not answer, with what it may have started since."""
        reports = self._reports.setdefault(host, [])
        reports += [Report(labels, Process.STARTING, now) for labels in started]
        self.away[host] = [noted(report) for report in reports]

    def reports(self, hosts: Sequence[str]) -> list[Report]:
        """Return the reports of these hosts; UNREACHABLE where a host does not answer."""
        return [
            replace(report, process=Process.UNREACHABLE) if host in self.away else report
            for host in hosts
            for report in self._reports[host]
        ]

    def read(self, host: str, items: Sequence[Mapping[str, t.Any]], now: float) -> list[Report]:
        """Return the reports in an agent's answer."""
        return [self._read(host, item, now) for item in items]

    def _read(self, host: str, item: Mapping[str, t.Any], now: float) -> Report:
        labels = Labels(
            id=clean(item["id"]),
            service=item["service"],
            revision=clean(item["revision"]),
            generation=item["generation"],
            host=host,
            endpoint=Endpoint(item["address"], item["port"]),
            slot=item["slot"],
        )
        # By the controller's clock, and the same in every iteration: the order of instances must
        # not depend on a slow answer.
        created = self._created.setdefault(labels.id, now - item["age"])
        restarted = (
            self._restarted.setdefault(labels.id, now - item["restarted"])
            if item.get("restarts")
            else None
        )
        detail = clean(item["detail"], 1000)
        process, restarts = Process(item["process"]), item.get("restarts", 0)
        return Report(labels, process, created, detail, restarts, restarted)


def noted(report: Report) -> dict[str, t.Any]:
    """Return a report as plain data, for the journal."""
    return {"labels": shapes.write(report.labels), "created": report.created}


def restored(note: Mapping[str, t.Any]) -> Report:
    """Return the report that was noted, of an instance on a host that does not answer."""
    return Report(shapes.read(Labels, note["labels"]), Process.UNREACHABLE, note["created"])
