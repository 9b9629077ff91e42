# SPDX-License-Identifier: GPL-3.0-or-later
"""The instances that were told to stop, and when each is to be looked at again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from ...engine import looks
from ...engine.model import Process
from .observer import Observer


@dataclass
class _Order:
    """An instance was told to stop."""

    host: str
    at: float  # when it was told
    repeated: float  # when it was told last


class Stops:
    """Tells which of the instances that are to end are to be told so now."""

    def __init__(self, observer: Observer, now: Callable[[], float]) -> None:
        self.waiting: Collection[str] = ()  # instances that stop, and are not to be told again yet
        self.next_look = float("inf")  # when the first of these is
        self._observer, self._now = observer, now
        self._orders: dict[str, _Order] = {}
        self._usual = looks.SHORTLY  # how long instances take to stop

    @property
    def told_to_stop(self) -> Collection[str]:
        """The instances that were told to stop, and have not ended yet."""
        return self._orders.keys()

    def due(self, retired: Iterable[str]) -> list[str]:
        """Return the instances to tell to stop, and those to tell again, which reports their end.

        One that was not told is told at once; the answer of one that was may be on its way.
        """
        self._learn()
        stopping = {
            report.labels.id
            for report in self._observer.reports
            if report.process is Process.STOPPING
        }
        again = {
            name: self._next_look(name, name in stopping)
            for name in retired
            if name in stopping or name in self._orders
        }
        now = self._now()
        self.waiting = {name for name, at in again.items() if at > now}
        self.next_look = min((again[name] for name in self.waiting), default=float("inf"))
        return [name for name in retired if name not in self.waiting]

    def note_orders(self, names: Iterable[str], began: float) -> None:
        """Note that instances were told to stop, in a call that began then."""
        hosts = {report.labels.id: report.labels.host for report in self._observer.reports}
        for name in names:
            order = self._orders.setdefault(name, _Order(hosts.get(name, ""), began, began))
            order.repeated = began
        self._learn()
        self.due([*self.waiting, *names])

    def _next_look(self, name: str, stopping: bool) -> float:
        order = self._orders.get(name)
        if order is None:  # an earlier run told it
            return float("-inf")
        if not stopping:
            return order.repeated + looks.ON_ITS_WAY
        looked = max(order.repeated, self._observer.looked.get(order.host, order.repeated))
        next_look = looks.next_look_at_stopping(order.at, looked, self._usual)
        return min(next_look, order.repeated + looks.REPEATED)

    def _learn(self) -> None:
        """Learn from the instances that have ended how long one takes."""
        living = {labels.id for labels in self._observer.living()}
        for name in self._orders.keys() - living:
            self._usual = looks.usual_stop(self._usual, self._now() - self._orders.pop(name).at)
