# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one step works with, from its arguments to its result."""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import AlreadyWalked, Interrupted, RolloutError
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.settings import Settings
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import fleet as fleets
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.interrupt import Guard
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop import ReconcileLoop
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Phase
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Waypoint
from ansible_collections.progressive.rollout.plugins.plugin_utils.health.monitor import Checker
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import Context
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import PlatformDriver
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import Transport
from ansible_collections.progressive.rollout.plugins.plugin_utils.report.view import NextView, RolloutView
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import identity
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.lease import Session
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Record

Result = dict[str, t.Any]


class Run:
    """Everything one step works with, made when it begins and given back when it ends."""

    by_word = False  # whether it goes on by an operator's word, with what the rollout began with

    def __init__(
        self,
        action: t.Any,
        settings: Settings,
        given: Mapping[str, t.Any],
        own: Mapping[str, t.Any],
        task_vars: Mapping[str, t.Any],
        say: Callable[[str], None],
        outlives: bool = False,
    ) -> None:
        """`outlives`: see `interrupt.Guard`."""
        self.settings = settings
        self.given = given  # what the settings were made of
        self.own = own  # the step's own options
        self.check_mode = bool(action._task.check_mode)
        self.say = say
        self._parked = False
        self.transport = Transport.from_action(action, task_vars)
        self.transport.say = lambda line: say(f"{settings.service}: {line}")
        self.context = Context(settings.service, self.transport, settings.health, self._platform)
        self.context.counted = settings.traffic.module.driver.counts
        self.checker = Checker(settings.checks, self.transport)
        self.guard = Guard(self.checker.wake, outlives)
        # With connections of its own: the journal's host may run instances, too, and keep the others busy.
        journal = replace(self.context, transport=self.transport.apart())
        store = settings.store.make(journal)
        me = identity.identity(self.guard.parent, task_vars, action._task, [action._task.action, settings.revision, *_asks(own)])
        self.session = Session(store, settings.service, me, settings.lease)

    @cached_property
    def conductor(self) -> ReconcileLoop:
        """Made when first asked for: what only thinks needs no drivers."""
        return ReconcileLoop(self.settings, self.context, self.session, self.guard, self.checker, self.say)

    def _platform(self, transport: Transport) -> PlatformDriver:
        """The platform, over these connections."""
        return self.settings.platform.make(replace(self.context, transport=transport))

    @property
    def in_place(self) -> bool:
        """Whether the instances are deployed where they are, by the user's own tasks."""
        return self.conductor.platform.in_place

    def __enter__(self) -> Run:
        self.guard.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: object) -> None:
        """Give the lease back unless the rollout goes on in the next step; a failure tells how things stand."""
        try:
            if isinstance(exc, RolloutError) and (self.session.epoch or "conductor" in self.__dict__):
                known = self.describe(False)
                exc.facts = {"rollout": known} if known["id"] or known["fleet"] else {}
            if isinstance(exc, Interrupted) and self.session.epoch:
                self.conductor.event("interrupted", reason=str(exc))
                self.conductor.commit()
            rollout = self.record.open
            between = rollout is not None and rollout.phase != Phase.HELD and not self._parked
            # After an error only the way back follows; an operator's word must not wait for a run that is over.
            fails = exc is not None and rollout is not None and rollout.phase != Phase.ROLLING_BACK
            if not between or fails or isinstance(exc, Interrupted):
                self.session.release()
            else:
                self.session.rest()
        except RolloutError:
            pass  # the first error is the one to tell
        finally:
            if "conductor" in self.__dict__:
                self.conductor.close()
            self.checker.close()
            self.session.close()
            self.transport.close()
            self.guard.__exit__(kind, exc, trace)

    @property
    def record(self) -> Record:
        """The journal's record, as last read or written."""
        return self.session.record

    def begin(self) -> None:
        """Take or renew the lease, from where on this run may act; in check mode only read."""
        _made = self.conductor  # refuses what is wrong with the drivers' settings, before the lease is taken
        if self.check_mode:
            self.session.read()
        else:
            self.session.acquire(self.guard.check)

    def begin_once(self) -> str:
        """As `begin`, but for one host of a play only, whatever asks for the same for others; which host sees to it, "" if this one."""
        self.session.read()
        if host := self._elsewhere():
            return host
        try:
            self.begin()
        except AlreadyWalked as exc:
            if not self.session.identity.repeats(exc.details.get("request"), exc.details.get("host")):
                raise
            return str(exc.details.get("host"))
        return self._elsewhere()  # it may have been opened since it was read

    def _elsewhere(self) -> str:
        last = self.record.rollout
        return last.host if last and self.session.identity.repeats(last.request, last.host) else ""

    def left_to(self, host: str, **more: t.Any) -> Result:
        """The result where the step for another host of the play sees to it, or has done so."""
        what = f"{self.settings.service}: done once for all hosts of the play, by the tasks for {host}; nothing to do for "
        return self.report(False, msg=what + self.session.identity.host, walker=host, elsewhere=True, **more)

    def report(self, changed: bool, **more: t.Any) -> Result:
        """The result every step returns; a `msg` among `more` is said as well, since results show only with -v."""
        if "msg" in more:
            self.say(more["msg"])
        return {"changed": changed, "rollout": self.describe(changed), **more}

    def would(self, path: Sequence[Waypoint], revision: str, **more: t.Any) -> Result:
        """The result in check mode: what the step would do on its way through these waypoints, with nothing touched."""
        decision, arrived = self.conductor.foresee(path[0]), self.conductor.foresee(path[-1]).reached
        arrived = arrived and not self.conductor.left_over()
        return self.report(not arrived, next=NextView.of(decision).to_dict(), diff=self.difference(path[-1], revision), **more)

    def parked(self, why: str) -> Result:
        """The result of a step whose run ends because there is nothing to do but wait for somebody."""
        self._parked = True
        self.conductor.event("parked", reason=why)
        self.conductor.commit()
        return self.report(self.conductor.acted, msg=why, parked=True)

    def difference(self, waypoint: Waypoint, revision: str) -> dict[str, str]:
        """The fleet's composition before and after, for `--diff`."""
        fleet = self.conductor.fleet
        now = Counter(i.revision for i in fleet if i.state.counted)
        after = {revision: waypoint.new}
        return {"before": self._lines(now), "after": self._lines(now | Counter(after) if waypoint.old else after)}

    def composition(self, without: Container[str] = ()) -> str:
        """How many instances of each revision there are, for `--diff`; `without` these."""
        return self._lines(Counter(i.revision for i in self.conductor.fleet if i.state.counted and i.id not in without))

    def _lines(self, counts: Mapping[str, int]) -> str:
        return "".join(f"{self.settings.service} {revision}: {count}\n" for revision, count in sorted(counts.items()) if count)

    def describe(self, changed: bool) -> dict[str, t.Any]:
        """The `rollout` mapping of every step's result."""
        fleet = fleets.summary(self.conductor.fleet if "conductor" in self.__dict__ else ())
        return RolloutView.of(self.record, fleet, changed).to_dict()


def _asks(own: Mapping[str, t.Any]) -> list[str]:
    """What of a step's own options tells one request from another; none of it is secret."""
    return [f"{key} {own[key]}" for key in ("restart", "rebalance", "to", "command", "force") if own.get(key)]
