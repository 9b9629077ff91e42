# SPDX-License-Identifier: GPL-3.0-or-later
"""The lease of a service: the record, and the right to change it."""

from __future__ import annotations

import secrets
import threading
import typing as t
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ..base import clock
from ..base.errors import AlreadyRunning, LeaseHeld, LeaseLost, RolloutError
from ..interfaces.context import Journal, Known
from ..interfaces.store import Lease, StoreDriver
from . import identity as holder
from .commands import left_out
from .record import Record
from .store_retry import StoreRetry

RETRY_INTERVAL = 0.2  # seconds between two attempts to take a lease whose run or step is ending
# Seconds to wait for another worker of the same run: longer than a step with nothing to do takes.
COLLEAGUE = 5.0
R = t.TypeVar("R")


class Session:
    """Read and write the journal of one service under its lease."""

    def __init__(
        self,
        store: StoreDriver,
        service: str,
        identity: holder.Identity,
        ttl: float,
        store_retry: StoreRetry | None = None,
    ) -> None:
        """`store_retry`: with a store that is away; without it, none."""
        self.store = store
        self._store_retry = store_retry
        self.service = service
        self.identity = identity
        self.ttl = ttl
        self.epoch = 0  # of the lease, a fencing token; 0 without a lease
        self.record = Record(service)
        self.journal = Journal(place=store.home or store.place)
        self.changed = False  # whether the record is to be written soon
        self._ordered: list[str] = []  # hosts left out by commands not obeyed yet
        self._renewed = 0.0
        self._writing = clock.lock()
        self._closed = clock.event()  # set once the lease is not renewed any more

    def _patiently(self, work: Callable[[], R]) -> R:
        """Return what it does with the store, which may be away for a while."""
        return self._store_retry.call(work) if self._store_retry else work()

    def take_waited(self) -> float:
        """Return for how long the store was waited for since this was last asked."""
        return self._store_retry.take() if self._store_retry else 0.0

    def commands(self) -> Sequence[dict[str, t.Any]]:
        """Return operators' commands that were not obeyed yet."""
        return self._patiently(lambda: self.store.commands(self.record.obeyed))

    def timeline(self, rollout: str) -> Sequence[dict[str, t.Any]]:
        """Return the events of a rollout."""
        return self._patiently(lambda: self.store.timeline(rollout))

    def read(self) -> Record:
        """Read and return the record."""
        stored = self._patiently(self.store.load)
        self.record = Record.load(self.service, stored, self.store.place)
        if self.epoch and not self.record.journal:  # the next commit writes it
            self.record.journal = self.journal.id or secrets.token_hex(8)
        self.journal.id = self.record.journal
        return self.record

    def known(self) -> Known:
        """Return what drivers need to know of the lease and the journal, as they are now."""
        record = self.record
        stable = record.stable or (record.rollout and record.rollout.previous)
        rollout = record.open
        excluded = rollout.excluded if rollout else ()
        return Known(
            self.epoch,
            self.journal,
            record.deployed,
            record.away,
            record.settings,
            stable.generation if stable else 0,
            {*excluded, *self._ordered},
            record.adopted.servers.keys() if record.adopted else (),
        )

    def foresee_exclusions(self) -> None:
        """Let drivers ask nothing of hosts that commands leave out which no run has obeyed yet."""
        rollout = self.record.open
        self._ordered = left_out(rollout, self.commands()) if rollout else []

    def look(self) -> tuple[Lease | None, Record]:
        """Return the lease in force, and the record as it was after that; changes neither."""
        return self._patiently(self.store.lease), self.read()

    def acquire(self, check: Callable[[], None]) -> None:
        """Take the lease, or renew it; then read the record.

        Raises LeaseHeld, or AlreadyRunning if another worker of this run holds it. A step takes
        over the lease of the step before it. A killed run of this machine leaves a lease and, for a
        moment, a worker that completes its current action. That worker is waited for (`check` is
        called meanwhile); then its lease is taken over before it expires.
        """
        deadline = clock.monotonic() + COLLEAGUE
        while True:
            try:
                lease = self._take(self.identity.details)
                break
            except LeaseHeld:
                held = self._patiently(self.store.lease)
                if held is None:
                    continue
                ours = held.details.get("run") == self.identity.run
                if holder.gone(held.details) is True or (ours and holder.resting(held.details)):
                    if taken := self._take_over(held):
                        lease = taken
                        break
                elif ours and clock.monotonic() > deadline:
                    raise AlreadyRunning(self.service, held.details) from None
                elif not ours and not holder.orphaned(held.details):
                    raise
            check()
            clock.sleep(RETRY_INTERVAL)
        self.epoch = lease.epoch
        self._renewed = clock.monotonic()
        self._keep()
        self.read()

    def _take(self, details: Mapping[str, t.Any]) -> Lease:
        return self._patiently(
            lambda: self.store.acquire(self.identity.token, self.identity.holder, self.ttl, details)
        )

    def _take_over(self, held: Lease) -> Lease | None:
        me = self.identity
        try:
            return self._patiently(
                lambda: self.store.take_over(held, me.token, me.holder, self.ttl, me.details)
            )
        except LeaseHeld:  # another run was faster
            return None

    def commit(self, events: Sequence[Mapping[str, t.Any]] = ()) -> None:
        """Write the record and the events, and renew the lease; raises LeaseLost if another run has
        taken it.

        Called before every action: a successful write proves that this run may act, also after a
        time in which none succeeded.
        """
        record = self.record.dump()
        self._patiently(lambda: self._commit(record, events))
        self.changed = False

    def _commit(
        self, record: Mapping[str, t.Any] | None, events: Sequence[Mapping[str, t.Any]] = ()
    ) -> None:
        with self._writing:
            self.store.commit(self.identity.token, self.ttl, record, events)
            self._renewed = clock.monotonic()

    def _keep(self) -> None:
        """Renew the lease in the background: a host or a load balancer may take longer to answer
        than the lease lasts.
        """
        self.close()
        self._closed = clock.event()
        clock.alongside(partial(self._renew, self._closed), "rollout-lease")

    def _renew(self, closed: threading.Event) -> None:
        while not closed.wait(self.ttl / 10):
            if clock.monotonic() - self._renewed < self.ttl / 2:
                continue
            try:
                self._commit(None)
            except LeaseLost:
                return  # the next commit fails with it, too
            except RolloutError:
                continue

    @property
    def due(self) -> bool:
        """Whether the record, or at least the lease, is to be written soon."""
        return self.changed or clock.monotonic() - self._renewed > self.ttl / 3

    def rest(self) -> None:
        """Keep the lease for the next step of this run.

        Raises LeaseHeld or LeaseLost if another run has taken it meanwhile.
        """
        self.close()
        if self.epoch:
            with self._writing:
                taken = self._take(self.identity.at_rest)
            if taken.epoch != self.epoch:  # that run has ended
                self.release()
                text = f"another run has rolled {self.service} out meanwhile; check with status.yml"
                raise LeaseLost(text, "PR-503")
            self.epoch = 0

    def release(self) -> None:
        """Release the lease."""
        self.close()
        if self.epoch:
            with self._writing:
                self._patiently(lambda: self.store.release(self.identity.token))
            self.epoch = 0

    def erase(self) -> None:
        """Remove the journal and the lease."""
        self.close()
        with self._writing:
            self._patiently(lambda: self.store.erase(self.identity.token))
        self.epoch, self.record = 0, Record(self.service)

    def close(self) -> None:
        """Stop renewing the lease: the next step of this run renews it."""
        self._closed.set()
