# SPDX-License-Identifier: GPL-3.0-or-later
"""Manages the autoscaler of a service while a rollout lasts, and puts it back.

The journal has its original before the first change (`Record.autoscaler`), until it is put back.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable
from contextlib import suppress

from ...base import clock
from ...base.errors import TRANSIENT, AutoscalerGone, InputError
from ...config.autoscaler import FOLLOW, NONE, RAISE
from ...config.settings import Settings
from ...engine import autoscaling
from ...engine.model import Phase
from ...engine.strategy import Waypoint
from ...interfaces import loader
from ...interfaces.autoscaler import AutoscalerDriver, Managed, State
from ...interfaces.context import DriverContext
from ...state import events
from ...state.lease import Session
from ...state.record import ChangedAutoscaler, Rollout
from . import timing
from .recorder import Recorder


class Autoscaling:
    """The autoscaler of one service, if it has one."""

    def __init__(
        self,
        settings: Settings,
        context: DriverContext,
        session: Session,
        recorder: Recorder,
        print_line: Callable[[str], None],
        now: Callable[[], float] = clock.now,
    ) -> None:
        self._context, self._session, self._recorder, self._now = context, session, recorder, now
        self._service, self._print = settings.service, print_line
        self._chosen = settings.autoscaler
        self._mode = self._chosen.mode if self._chosen else NONE
        self._driver = self._chosen.chosen.make(context) if self._chosen else None
        self._ensured: tuple[int, int] | None = None  # for how many instances, and replicas
        self._reported = ""
        self._next_try = self._next_wish = float("-inf")
        self._wishes: list[tuple[float, int]] = []  # when it wanted how many, not long ago
        self._wish = 0  # as last passed on to the rollout

    @property
    def managed(self) -> Managed | None:
        """The autoscaler, unless there is none or it is left alone."""
        if self._driver is None or self._mode == NONE:
            return None
        return Managed(self._driver.name, self._mode)

    # -- before anything is touched ----------------------------------------------------------------

    def check(self, replicas: int) -> None:
        """Raise InputError for an autoscaler that cannot be managed; tell of one left alone."""
        if self._driver is None:
            return
        if self._mode == NONE:
            self._show(f"{self._driver.name} is left alone (rollout_autoscaler.mode: none)")
            return
        self._driver.check()
        most = self._driver.bounds(self._driver.read())[1]
        if replicas > most:
            self._show(
                f"rollout_replicas {replicas} is more than the maximum of {self._driver.name},"
                f" {most}: it may remove the others after the rollout"
            )
        if self._mode == FOLLOW and self._driver.wanted(replicas, replicas) is None:
            raise InputError(
                f"rollout_autoscaler.mode: {self._driver.name} does not say how many instances it"
                " wants, so it cannot be followed; see its metrics, or use hold",
                "PR-261",
            )

    # -- while a rollout lasts ---------------------------------------------------------------------

    def begin(self, rollout: Rollout | None) -> None:
        """Put back what a rollout has left that is over, or that had another autoscaler."""
        held = self._session.record.autoscaler
        if held and (rollout is None or self._other(held)):
            self.put_back()

    def prepare(self, waypoint: Waypoint, rollout: Rollout) -> None:
        """Have the autoscaler leave the waypoint's instances alone, before the fleet moves there.

        Raises AutoscalerError where it cannot; a rollback does not wait for that.
        """
        chosen, key = self._chosen, (waypoint.new + waypoint.old, rollout.replicas)
        if chosen is None or self._driver is None or self._mode == NONE:
            return
        if rollout.phase.waits and self._now() - rollout.entered > chosen.limit:
            self._ensured = None
            if self._now() >= self._next_try:
                self._next_try = self._now() + timing.HEARTBEAT
                self.leave()
        elif key != self._ensured:
            try:
                self._ensure(self._driver, waypoint, rollout)
            except TRANSIENT as exc:
                if rollout.phase != Phase.ROLLING_BACK:
                    raise
                self._report(f"the rollback goes on without the autoscaler: {exc} [{exc.id}]")
            self._ensured = key

    def follow(self, rollout: Rollout, present: int) -> None:
        """Have the rollout go on to the number of instances that the autoscaler wants."""
        held, driver = self._session.record.autoscaler, self._driver
        if (
            driver is None
            or self._mode != FOLLOW
            or not present
            or self._now() < self._next_wish
            or rollout.phase not in (Phase.PROGRESSING, Phase.PAUSED, Phase.AWAITING_PROMOTION)
        ):
            return
        self._next_wish = self._now() + timing.AUTOSCALER
        try:
            wish = driver.wanted(present, rollout.replicas)
            least, most = driver.bounds({**driver.read(), **(held.original if held else {})})
        except TRANSIENT as exc:
            self._report(f"the autoscaler is not followed now: {exc} [{exc.id}]")
            return
        if wish is None:
            return
        wish = self._steady(max(1, least, min(wish, most)), rollout.replicas)
        if wish not in (rollout.replicas, self._wish):
            self._note(f"{driver.name} wants {wish} instances")
            rollout.wanted = self._wish = wish

    # -- the end -----------------------------------------------------------------------------------

    def put_back(self) -> None:
        """Put the autoscaler back, but for what somebody else has changed meanwhile.

        Raises AutoscalerError where it cannot; then the journal still has its original.
        """
        record = self._session.record
        held = record.autoscaler
        if held is None:
            return
        driver = self._driver_of(held)
        try:
            now = driver.read()
            self._yield(driver, held, now)
            after = autoscaling.put_back(now, held.original, (held.before, held.now))
            self._recorder.commit()  # only the holder of the lease goes on
            if after == now != held.now:  # a change may be under way: it is refused by its epoch
                with suppress(*TRANSIENT):
                    driver.write(now, now)
            if after != now:
                driver.write(now, after)
                self._note(f"{driver.name} put back to {_words(driver, after)}")
        except AutoscalerGone as exc:
            self._report(f"nothing to put back: {exc} [{exc.id}]")
        record.autoscaler, self._ensured = None, None
        self._recorder.commit()

    def leave(self) -> None:
        """Put the autoscaler back if that is possible now: nobody moves the rollout for a while."""
        try:
            self.put_back()
        except TRANSIENT as exc:
            self._report(f"the autoscaler could not be put back: {exc} [PR-263]")

    # -- helpers -----------------------------------------------------------------------------------

    def _ensure(self, driver: AutoscalerDriver, waypoint: Waypoint, rollout: Rollout) -> None:
        """Bring the autoscaler to the state for a waypoint; the journal has it before."""
        record = self._session.record
        try:
            now = driver.read()
        except AutoscalerGone as exc:
            self._report(f"{exc}, so the rollout goes on without it [{exc.id}]")
            record.autoscaler = None
            return
        held = record.autoscaler or self._first(now)
        self._yield(driver, held, now)
        target = self._target(driver, {**now, **held.original}, now, waypoint, rollout)
        after = {**now, **{name: target[name] for name in held.original}}
        if after == now:
            return
        held.before, held.now, record.autoscaler = dict(now), after, held
        self._note(f"{driver.name} set from {_words(driver, now)} to {_words(driver, after)}")
        self._recorder.commit()
        driver.write(now, after)

    def _target(
        self,
        driver: AutoscalerDriver,
        original: State,
        now: State,
        waypoint: Waypoint,
        rollout: Rollout,
    ) -> State:
        """Return the state of the autoscaler for a waypoint."""
        if self._mode == RAISE:
            most = driver.bounds(original)[1]
            least = autoscaling.minimum(waypoint, driver.bounds(now)[0], most)
            return driver.raised(now, least) if least != driver.bounds(now)[0] else now
        if self._mode == FOLLOW:
            return driver.followed(original)
        return driver.held(original, rollout.replicas)

    def _steady(self, wish: int, replicas: int) -> int:
        """Return the highest number wanted lately: a lower one has to last."""
        now = self._now()
        known = self._wishes or [(now, replicas)]
        since = now - timing.STEADY
        self._wishes = [*(earlier for earlier in known if earlier[0] > since), (now, wish)]
        return max(number for _at, number in self._wishes)

    def _first(self, now: State) -> ChangedAutoscaler:
        """Return the journal's entry of an autoscaler that nothing was changed of."""
        driver, options = self._identity
        return ChangedAutoscaler(driver, options, dict(now), dict(now), dict(now))

    def _yield(self, driver: AutoscalerDriver, held: ChangedAutoscaler, now: State) -> None:
        """Leave alone what somebody else has changed since the rollout did."""
        for name in autoscaling.foreign(now, held.original, (held.before, held.now)):
            self._note(
                f"somebody else has changed {name} of {driver.name}, which stays: {now.get(name)}"
                f" (before the rollout: {held.original[name]}) [PR-262]"
            )
            del held.original[name]

    def _other(self, held: ChangedAutoscaler) -> bool:
        """Return whether the journal has another autoscaler than the settings."""
        return self._mode == NONE or self._identity != (held.driver, held.options)

    @property
    def _identity(self) -> tuple[str, dict[str, t.Any]]:
        """The driver of the settings, and its options without secrets."""
        if self._chosen is None:
            return "", {}
        chosen = self._chosen.chosen
        return chosen.name, chosen.module.options.parted(chosen.options)[0]

    def _driver_of(self, held: ChangedAutoscaler) -> AutoscalerDriver:
        """Return the driver of the autoscaler that the journal has."""
        if self._driver and not self._other(held):
            return self._driver
        module = loader.load(AutoscalerDriver, held.driver, "rollout_autoscaler")
        return module.driver({**dict.fromkeys(module.options), **held.options}, self._context)

    def _note(self, message: str) -> None:
        self._recorder.event(events.AutoscalerChanged(message=message))
        self._show(message)

    def _show(self, message: str) -> None:
        self._print(f"{self._service}: {message}")

    def _report(self, message: str) -> None:
        """Tell of trouble, once for each kind of it."""
        if message != self._reported:
            self._reported = message
            self._note(message)


def _words(driver: AutoscalerDriver, state: State) -> str:
    """Return a state for people: what is not a bound only by its name."""
    least, most = driver.bounds(state)
    more = [name for name, value in state.items() if name not in ("min", "max") and value]
    return ", ".join([f"min {least}", f"max {most}", *(f"with {name}" for name in more)])
