# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells receivers of a rollout, in threads of their own, without holding the rollout up.

The timeline is the outbox: a notice follows from an event that is committed, and that it was sent
is an event as well. So a run that takes over from a killed one sends what is missing, under the
same id, and what was sent at the moment of the kill may be sent twice.
"""

from __future__ import annotations

import threading
import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue

from ...base import clock
from ...base.errors import NotifyError
from ...base.text import clean
from ...config.notify import Receiver
from ...interfaces.context import DriverContext
from ...interfaces.notifier import Notice, NotifierDriver
from ...remote.deadline import within
from ...report.notices import Notices
from ...state import events

PAUSE, LONGEST = 1.0, 30.0  # seconds before the first repetition, doubled for each; at most
BETWEEN = 2.0  # seconds that a step waits for messages under way
AT_END = 30.0  # seconds that the last step of a run does, most of them without the lease
RECENT = 86400.0  # seconds after which nobody is told of a rollout that is over
LOOK = 0.05  # seconds between two looks whether all was sent


@dataclass(frozen=True)
class Timeline:
    """The events of one rollout, as the journal has them."""

    rollout: str  # its id
    over: bool
    events: Sequence[Mapping[str, t.Any]]


class Announcer:
    """Tells all receivers what happened to the rollouts of a service."""

    def __init__(
        self, receivers: Iterable[Receiver], context: DriverContext, warn: Callable[[str], None]
    ) -> None:
        """Make the drivers; raises InputError for options that one refuses. Sends nothing.

        `warn` tells the operator of failures, never from a thread.
        """
        self._service, self._warn = context.service, warn
        self._sent: SimpleQueue[events.Notified] = clock.queue()
        self._lines = [
            _Line(receiver, receiver.make(context), self._sent.put) for receiver in receivers
        ]
        self._notices = Notices(self._service, "")

    def catch_up(self, timelines: Sequence[Timeline]) -> None:
        """Send what earlier runs were not able to send of the last rollouts, oldest first.

        Only to receivers that these runs had: one that is new is not told of the past.
        """
        delivered = {
            (event.get("notice"), event.get("to"))
            for timeline in timelines
            for event in timeline.events
            if event.get("kind") == events.Notified.kind
        }
        for timeline in timelines:
            self._notices = Notices(self._service, timeline.rollout)
            since = clock.wall() - RECENT if timeline.over else 0.0
            due: object = None  # in a timeline of an earlier version, all
            for event in timeline.events:
                due = event.get("notify", due)
                notice = self._notices.take(event)
                if notice is None or notice.at < since:
                    continue
                for line in self._lines:
                    mine = not isinstance(due, list) or line.name in due
                    if mine and (notice.id, line.name) not in delivered:
                        line.send(notice)

    def take(self, rollout: str, committed: Iterable[Mapping[str, t.Any]]) -> None:
        """Send what follows from events of this rollout, which are in the journal by now."""
        if self._notices.rollout != rollout:
            self._notices = Notices(self._service, rollout)
        for notice in filter(None, map(self._notices.take, committed)):
            self.send(notice)

    def send(self, notice: Notice) -> None:
        """Send a notice that no timeline has."""
        for line in self._lines:
            line.send(notice)

    @property
    def due(self) -> bool:
        """Whether there are events to write down."""
        return not self._sent.empty()

    def outcomes(self) -> list[events.Notified]:
        """Return what was sent, or failed in all attempts, since the last call."""
        outcomes = []
        while not self._sent.empty():
            outcome = self._sent.get()
            outcomes.append(outcome)
            if outcome.error:
                what = f"{outcome.to} could not be notified ({outcome.event}): {outcome.error}"
                then = "" if outcome.event == "rejected" else "; the rollout continues"
                self._warn(f"{self._service}: {what}{then} [PR-631]")
        return outcomes

    @property
    def busy(self) -> bool:
        """Whether a message is still under way."""
        return bool(self.awaited)

    @property
    def awaited(self) -> list[str]:
        """The receivers to which a message is still under way."""
        return [line.name for line in self._lines if line.busy]

    def wait(self, timeout: float, stopped: Callable[[], object]) -> None:
        """Wait for messages under way, not for long where something stops the run."""
        deadline = clock.monotonic() + timeout
        while self.busy and clock.monotonic() < deadline:
            if stopped():
                deadline = min(deadline, clock.monotonic() + BETWEEN)
            clock.sleep(LOOK)

    def close(self, last: bool) -> None:
        """End; in the `last` step of a run, warn of what was not sent."""
        for line in self._lines:
            if line.close() and last:
                what = f"{line.name} has not been notified of everything yet"
                self._warn(f"{self._service}: {what}; the next run tries again [PR-631]")


class _Line:
    """Sends notices to one receiver, one after the other, in a daemon thread."""

    def __init__(
        self, receiver: Receiver, driver: NotifierDriver, sent: Callable[[events.Notified], None]
    ) -> None:
        self.name = receiver.name
        self._receiver, self._driver, self._sent = receiver, driver, sent
        self._waiting: SimpleQueue[Notice] = clock.queue()
        self._left = 0  # notices that were not dealt with yet
        self._closed = clock.event()
        self._lock = clock.lock()
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """Whether a notice has not been dealt with yet."""
        return self._left > 0

    def send(self, notice: Notice) -> None:
        """Send a notice, if the receiver wants such events."""
        if notice.event not in self._receiver.on:
            return
        with self._lock:
            self._left += 1
        self._waiting.put(notice)
        if self._thread is None:
            self._thread = clock.alongside(self._run, "rollout-notify")

    def close(self) -> bool:
        """End; return whether a notice is left, which the next run sends."""
        self._closed.set()
        if self.busy:
            self._driver.cancel()
        return self.busy

    def _run(self) -> None:
        while not self._closed.is_set():
            notice = self._waiting.get()
            error = self._attempts(notice)
            if error is None:
                return
            outcome = events.Notified(
                notice=notice.id, event=notice.event, to=self.name, error=error or None
            )
            self._sent(outcome)
            with self._lock:
                self._left -= 1

    def _attempts(self, notice: Notice) -> str | None:
        """Try to send; return why it failed, "" if it did not, None if the run ended before."""
        error = ""
        for attempt in range(self._receiver.retries + 1):
            if attempt and self._closed.wait(min(LONGEST, PAUSE * 2 ** (attempt - 1))):
                return None
            failure = self._attempt(notice)
            if failure is None:
                return ""
            error = clean(failure)
            if not failure.again:
                break
            if self._closed.is_set():
                return None
        return error

    def _attempt(self, notice: Notice) -> NotifyError | None:
        """Try once, within the driver's time, whatever the driver does."""

        def send() -> None:
            template = self._receiver.template
            self._driver.send(notice, template.render(notice.facts) if template else "")

        try:
            within(self._driver.timeout, send)
        except NotifyError as exc:
            return exc
        except TimeoutError:
            self._driver.cancel()
            return NotifyError(f"no answer within {self._driver.timeout:g} s", "PR-631")
        except Exception as exc:  # not in its words: they may have a secret
            why = f"its driver failed: {type(exc).__name__}"
            return NotifyError(why, "PR-631", again=False)
        return None
