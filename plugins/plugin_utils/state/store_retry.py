# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait for a store that is away: nothing is done that cannot be recorded."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

from ..base import clock
from ..base.errors import StoreAway, StoreGone
from ..base.text import span

PAUSE = 0.5  # seconds between two attempts
# Seconds to wait for a store that has never answered: it may be restarting, or not be there at all.
AT_FIRST = 10.0
HEARTBEAT = 60.0  # seconds between two lines on the same wait
R = t.TypeVar("R")


class StoreRetry:
    """Retries what a store cannot do now, for a while. The service stays as it is meanwhile."""

    def __init__(
        self,
        longest: float,
        report: Callable[[str], None],
        check: Callable[[], None],
        known: bool = True,
    ) -> None:
        """Make a retry without any wait yet.

        Args:
            longest: Seconds to wait.
            report: Writes a line.
            check: Is called between two attempts, and may raise.
            known: Whether the store has answered this run before.
        """
        self._longest, self._print, self._check = longest, report, check
        self._known = known
        self._over = False  # it was in vain once
        self._waited = 0.0

    def call(self, work: Callable[[], R]) -> R:
        """Return what it does; raises StoreGone if the store stays away."""
        began = clock.now()
        try:
            return self._ask(work)
        except StoreAway as exc:
            self._report(exc)
        heartbeat = HEARTBEAT
        while True:
            self._check()
            clock.sleep(PAUSE)
            try:
                done = self._ask(work)
            except StoreAway as exc:
                waited = clock.now() - began
                if waited > self._patience:
                    raise self._gone(exc) from None
                if waited >= heartbeat:
                    heartbeat += HEARTBEAT
                    since = f"still waiting for the journal, for {span(waited)}"
                    self._print(f"{since}: {exc} [{exc.id}]")
            else:
                waited = clock.now() - began
                self._waited += waited
                self._print(f"the journal is back after {span(waited)}; going on")
                return done

    def _ask(self, work: Callable[[], R]) -> R:
        """Return what it does; a store that answers anything is the right one."""
        away = False
        try:
            return work()
        except StoreAway:
            away = True
            raise
        finally:
            self._known = self._known or not away

    @property
    def _patience(self) -> float:
        """The seconds to wait."""
        return self._longest if self._known else min(self._longest, AT_FIRST)

    def take(self) -> float:
        """Return for how many seconds the store was waited for since this was last asked."""
        waited, self._waited = self._waited, 0.0
        return waited

    def _report(self, exc: StoreAway) -> None:
        if self._over:
            raise exc
        self._print(
            f"waiting for the journal, up to {span(self._patience)}; nothing is changed meanwhile:"
            f" {exc} [{exc.id}]"
        )

    def _gone(self, exc: StoreAway) -> StoreGone:
        self._over = True
        if not self._known:
            return StoreGone(
                f"the journal has not answered within {self._patience:g} s, and nothing was"
                " changed; correct rollout_store if the address is wrong, or run the playbook again"
                f" once the store answers: {exc}",
                "PR-511",
            )
        return StoreGone(
            "the journal has not been back within rollout_progress_deadline"
            f" ({self._longest:g} s); the service stays as it is, and a rollout in progress"
            f" continues when the playbook is run again: {exc}",
            "PR-511",
        )
