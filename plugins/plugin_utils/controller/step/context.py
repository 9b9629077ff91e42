# SPDX-License-Identifier: GPL-3.0-or-later
"""What one step works with, from its arguments to its result."""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial

from ansible import context

from ...base import clock
from ...base.errors import (
    AlreadyRunning,
    Interrupted,
    LeaseHeld,
    LeaseLost,
    RolloutError,
    RolloutFailed,
)
from ...config.settings import Settings
from ...engine.model import Instance, Phase
from ...engine.strategy import Waypoint
from ...engine.unmanaged import NOTHING, Unmanaged
from ...health.monitor import HealthMonitor
from ...interfaces.context import AccessLog, DriverContext
from ...interfaces.platform import PlatformDriver
from ...interfaces.store import StoreDriver
from ...remote.transport import Transport
from ...report.view import NextView, RolloutView
from ...state import events, identity
from ...state.lease import Session
from ...state.record import Record, Rollout
from ...state.store_retry import StoreRetry
from ..loop import fleet as fleets
from ..loop.interrupt import Guard
from ..loop.reconcile_loop import ReconcileLoop

if t.TYPE_CHECKING:
    from ...engine.release import Passage
    from ...report.failure import Broken
    from ..background.announcer import Announcer
    from ..background.beside import Beside
    from .release import ReleaseLink

Result = dict[str, t.Any]

# what a failed step returns of its rollout
BRIEF = ("id", "service", "revision", "stable", "phase", "outcome")


class StepContext:
    """Everything one step works with, made when the step begins and closed when it ends."""

    # whether the settings are those that the journal kept of the rollout in progress
    restored = False
    continues = ""  # the rollout to continue after a command was sent to it; "": any
    digest = ""  # of the settings that it continues with; "": they were not restored
    follows = False  # whether the step continues what `begin` has opened or resumed
    announcing = False
    beginning = False  # whether what the step is to begin or to continue can still be refused
    warn: Callable[[str], None] | None = None  # shows a warning; `print_line` does if there is none

    def __init__(
        self,
        action: t.Any,
        settings: Settings,
        given: Mapping[str, t.Any],
        options: Mapping[str, t.Any],
        task_vars: Mapping[str, t.Any],
        print_line: Callable[[str], None],
        *,
        outlives: bool = False,
    ) -> None:
        """Make a step's context.

        Args:
            action: Ansible's action plugin.
            settings: The parsed settings, made of `given`.
            given: The arguments that every step takes.
            own: The step's own options.
            task_vars: The task's variables.
            print_line: Shows a line to the operator.
            outlives: See `interrupt.Guard`.
        """
        self.settings = settings
        self.given = given
        self.options = options
        self.check_mode = bool(action._task.check_mode)
        self.print_line = print_line
        self.facts: Result = {}  # what a failed step returns beside its message
        self._parked = False
        self.transport = Transport.from_action(action, task_vars)
        self.transport.print_line = lambda line: print_line(f"{settings.service}: {line}")
        self.checker = HealthMonitor(settings.checks, self.transport)
        self.transport.wake = self.checker.wake
        made = driver_context(settings, self.transport, self._platform, self.checker.wake)
        self.context = replace(made, release=self._ask_release)
        self.guard = Guard(self.checker.wake, outlives)
        # With its own connections: the journal's host may run instances, too, and keep the others
        # busy.
        journal = replace(self.context, transport=self.transport.apart())
        store = settings.store.make(journal)
        asks = [action._task.action, settings.revision, *_request(options)]
        me = identity.identity(self.guard.parent, task_vars, action._task, asks)
        me = replace(me, known=partial(self._already_known, action, task_vars))
        deadline = settings.rules.progress_deadline
        self.store_retry = StoreRetry(
            deadline, self.transport.print_line, self.guard.check, known=not action.opens
        )
        patience = self.store_retry if action.waits else None
        self.session = Session(store, settings.service, me, settings.lease, patience)

    @cached_property
    def loop(self) -> ReconcileLoop:
        """The reconcile loop, created lazily so that planning needs no drivers."""
        return ReconcileLoop(
            self.settings, self.context, self.session, self.guard, self.checker, self.print_line
        )

    @cached_property
    def release(self) -> ReleaseLink:
        """The link to the release of the step's rollout."""
        from .release import ReleaseLink  # few rollouts are members of any

        return ReleaseLink(self)

    def _ask_release(self, point: str, step: str) -> Passage:
        """Return whether the release lets the rollout pass."""
        return self.release.ask(point, step)

    def notify_release(self) -> None:
        """Tell the release of the rollout, if it has one, where the rollout is."""
        rollout = self.record.rollout
        if rollout and rollout.release:
            self.release.report()

    def _already_known(self, action: t.Any, task_vars: Mapping[str, t.Any]) -> frozenset[str]:
        """Return the variables that a command for this service need not repeat."""
        from .inventory_variables import FINDING, already_known  # only where commands are printed

        return already_known(FINDING, self.given, task_vars, action._loader, context.CLIARGS)

    def _platform(self, transport: Transport) -> PlatformDriver:
        """Return the platform over these connections."""
        return self.settings.platform.make(replace(self.loop.context, transport=transport))

    @property
    def in_place(self) -> bool:
        """Whether the user's own tasks deploy the instances in place."""
        return not self.loop.platform.capabilities.starts_instances

    @property
    def record(self) -> Record:
        """The journal's record, as last read or written."""
        return self.session.record

    # -- begin and end -----------------------------------------------------------------------------

    def __enter__(self) -> t.Self:
        self.guard.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: object
    ) -> None:
        """Close everything, and release the lease unless the rollout continues in the next step."""
        try:  # the first error is the one to tell
            with suppress(RolloutError):
                if isinstance(exc, RolloutError):
                    self._note_failure(exc)
            with suppress(RolloutError):
                self._note_notices(exc)
            try:
                self._leave(exc)
            finally:
                with suppress(RolloutError):
                    self._end_notices(exc)
                    self._send_rejection(exc)
        finally:
            for connection in self.live:
                connection.close()
            if "loop" in self.__dict__:
                self.loop.close()
            self.checker.close()
            self.session.close()
            self.transport.close()
            self.guard.__exit__(kind, exc, trace)

    def _leave(self, exc: BaseException | None) -> None:
        """Keep the lease for the next step, or release it; raises LeaseHeld or LeaseLost if another
        run has it: the user's tasks may follow on this step.
        """
        try:
            if self._keeps_lease(exc):
                self.session.rest()
            else:
                self._leave_autoscaler()
                self.session.release()
        except RolloutError as lost:
            if exc is None and isinstance(lost, LeaseHeld | LeaseLost):
                raise

    def _leave_autoscaler(self) -> None:
        """Put the autoscaler back where the run ends before the rollout does."""
        if self.session.epoch and "loop" in self.__dict__ and self.loop.has_autoscaler:
            with suppress(RolloutError):
                self.loop.autoscaling.leave()

    def _note_failure(self, exc: RolloutError) -> None:
        if self.session.epoch or "loop" in self.__dict__:
            known = self.describe()  # in short: Ansible prints all that a failed task returns
            names = (*BRIEF, "reason") if known["phase"] == Phase.FINISHED else BRIEF
            self.facts = {"rollout": {name: known[name] for name in names}} if known["id"] else {}
            self.facts |= {"changed": "loop" in self.__dict__ and self.loop.changed}
        if isinstance(exc, Interrupted) and self.session.epoch:
            self.loop.event(events.RunInterrupted(reason=str(exc)))
            self.loop.commit()

    def _keeps_lease(self, exc: BaseException | None) -> bool:
        """Return whether the lease is kept for the next step of this run.

        After an error only the rollback follows; an operator's command must not wait for a run that
        is over.
        """
        rollout = self.record.open
        if (
            rollout is None
            or rollout.phase == Phase.HELD
            or self._parked
            or isinstance(exc, Interrupted)
        ):
            return False
        return exc is None or rollout.phase == Phase.ROLLING_BACK

    # -- for people ----------------------------------------------------------------------------

    def command(self, name: str, **more: str) -> str:
        """Return how a person runs a playbook of the collection for this service, with `more`
        variables.
        """
        known = {**more, **self.settings.to_find}
        return self.session.identity.command(name, self.settings.service, known)

    @property
    def fleet(self) -> Sequence[Instance]:
        """The fleet as last observed; empty if this step does not observe it."""
        return self.loop.fleet if "loop" in self.__dict__ else ()

    @property
    def unmanaged(self) -> Unmanaged:
        """What gets requests beside the fleet, as last observed."""
        return self.loop.unmanaged if "loop" in self.__dict__ else NOTHING

    @property
    def balanced(self) -> bool:
        """Whether load balancers divide the traffic."""
        return "loop" in self.__dict__ and self.loop.balanced

    def log_of(self, failed: Broken) -> str:
        """Return where a person finds the whole log of an instance; empty: not known."""
        if "loop" not in self.__dict__:
            return ""
        return self.loop.platform.log_of(failed.id, failed.host)

    def begin(self) -> None:
        """Take or renew the lease, from which on this run may act; in check mode only read."""
        # refuse wrong settings before the lease is taken
        _made = self.loop, self.settings.notify and self.announcer
        if self.check_mode:
            self.session.read()
            self._check_continued()
        else:
            self.session.acquire(self.guard.check)
            self._check_continued()
            self._keep_up_to_date()
            self._announce()

    def _check_continued(self) -> None:
        """Refuse to continue another rollout than the one that this run began, or that its command
        was sent to: it has other settings.

        In check mode no run has begun one; where it would have superseded the one in progress,
        there is nothing to refuse.
        """
        rollout, asked = self.record.open, self.settings.revision
        if rollout is None:
            return
        if self.continues and rollout.id != self.continues:
            self._refuse(
                "the rollout that the command was sent to has ended, and that of"
                f" {rollout.revision} is in progress; nothing was done. If the command is meant"
                " for that one, send it again",
                "PR-700",
            )
        if self.digest and self.digest != self._digest_of(rollout):
            self._refuse(
                f"another run has continued the rollout of {rollout.revision} with other settings"
                " since this command read them; nothing was done. Send the command again",
                "PR-700",
            )
        would_supersede = self.check_mode and self.settings.supersede
        if self.follows and not would_supersede and asked not in (None, rollout.revision):
            self._refuse(
                f"cannot continue {asked}: rollout of {self.settings.service} {rollout.revision}"
                f" is in progress; nothing was done. Rerun {asked} when that one has ended, or set"
                " rollout_supersede: true",
                "PR-601",
            )

    def _digest_of(self, rollout: Rollout) -> str:
        from ...config import remembered  # of runs that obey a command

        return remembered.digest(rollout)

    def _refuse(self, why: str, id: str) -> t.NoReturn:
        self.session.release()
        raise RolloutFailed(f"{self.settings.service}: {why}", id)

    def _keep_up_to_date(self) -> None:
        """Keep the report and the metrics up to date until the step ends, if they are wanted."""
        path, metrics, service = self.settings.report, self.settings.metrics, self.settings.service
        if self.live:
            return
        if path:
            from ..background.reports import LiveReport  # with all pages

            self.live.append(LiveReport(service, path, self._another_store(), self.print_line))
        if metrics:
            from ..background.live_metrics import LiveMetrics  # few services have any

            self.live.append(LiveMetrics(service, metrics, self._another_store(), self.print_line))

    def _another_store(self) -> StoreDriver:
        """Return the store over connections of its own, for a thread."""
        apart = self.transport.apart()
        return self.settings.store.make(replace(self.context, transport=apart))

    @cached_property
    def live(self) -> list[Beside]:
        """What is kept up to date beside the rollout."""
        return []

    @cached_property
    def announcer(self) -> Announcer:
        """Tells the receivers of `rollout_notify`."""
        from ..background.announcer import Announcer  # few services notify anybody

        return Announcer(self.settings.notify, self.context, self.warn or self.print_line)

    def _announce(self) -> None:
        """Tell receivers of the rollout until the step ends, first of what was not sent yet."""
        if not self.settings.notify or self.announcing:
            return
        self.announcing = True
        record = self.record
        over = {entry["id"]: True for entry in record.history[-1:]}
        if record.rollout:
            over[record.rollout.id] = record.rollout.over
        from ..background.announcer import Timeline  # as above

        timelines = [Timeline(id, ended, self.session.timeline(id)) for id, ended in over.items()]
        self.announcer.catch_up(timelines)
        self.loop.recorder.announcer = self.announcer

    def _note_notices(self, exc: BaseException | None) -> None:
        """Wait a little for notices under way, and write down which were sent.

        Not where the run leaves a rollout as it is: an operator who is told so may send a command
        at once, which this run would not read, and no other could while this one has the lease.
        """
        if self.announcing:
            from ..background import announcer  # as above

            leaves = self.record.open and not self._keeps_lease(exc)
            if not leaves or isinstance(exc, Interrupted):
                self.announcer.wait(announcer.BETWEEN, lambda: self.guard.stopped)
            if self.session.epoch and self.announcer.due:
                self.loop.commit()

    def _end_notices(self, exc: BaseException | None) -> None:
        """In the last step of a run, wait longer for pending notices; then end the announcer.

        The lease is released before, so that no other run has to wait for them.
        """
        if not self.announcing:
            return
        from ..background import announcer  # as above

        last = not (self._keeps_lease(exc) or isinstance(exc, Interrupted))
        try:
            if last and self.announcer.busy:
                self.announcer.wait(announcer.BETWEEN, lambda: self.guard.stopped)
                if (awaited := self.announcer.awaited) and not self.guard.stopped:
                    names, most = " and ".join(awaited), announcer.AT_END
                    line = f"waiting for {names} to be notified, at most {most:g} s"
                    self.print_line(f"{self.settings.service}: {line}")
                self.announcer.wait(announcer.AT_END, lambda: self.guard.stopped)
                self._note_late_notices()
        finally:
            self.announcer.close(last)

    def _send_rejection(self, exc: BaseException | None) -> None:
        """Tell receivers of what was refused before it began."""
        if not (self.beginning and self.settings.notify and exc) or self.check_mode:
            return
        from ..background import rejection  # few rollouts are refused

        if not isinstance(exc, RolloutError) or not rejection.concerns(exc):
            return
        from ...report import notices

        settings, stable = self.settings, self.record.stable
        rejected = notices.rejected(
            settings.service,
            str(settings.revision or ""),
            clock.now(),
            rejection.reason(exc),
            self.session.identity.holder,
            previous=stable.revision if stable else "",
            strategy=settings.asked.strategy,
            replicas=settings.replicas if isinstance(settings.replicas, int) else 0,
            why=str(self.options.get("why") or ""),
        )
        warn = self.warn or self.print_line
        rejection.send(settings.notify, self.context, rejected, warn, lambda: self.guard.stopped)

    def _note_late_notices(self) -> None:
        """Write down which notices were sent, unless another run is at work: it sends them again,
        under the same ids.
        """
        if self.announcer.due and not self.session.store.lease():
            rollout = self.record.rollout
            self.session.acquire(self.guard.check)
            try:
                if rollout and self.record.rollout and self.record.rollout.id == rollout.id:
                    self.loop.commit()
            finally:
                self.session.release()

    def begin_once(self) -> str:
        """As `begin`, but only for the first of several hosts of a play with the same request.

        Returns the host that does it instead, "" if this one does.
        """
        self.session.read()
        if host := self._done_by():
            return host
        try:
            self.begin()
        except AlreadyRunning as exc:
            if not self.session.identity.repeats(
                exc.details.get("request"), exc.details.get("host")
            ):
                raise
            return str(exc.details.get("host"))
        return self._done_by()  # it may have been opened since it was read

    def _done_by(self) -> str:
        last = self.record.rollout
        return last.host if last and self.session.identity.repeats(last.request, last.host) else ""

    # -- results -----------------------------------------------------------------------------------

    def left_to(self, host: str, **more: t.Any) -> Result:
        """Return the result where the task of another host of the play does the step."""
        what = (
            f"{self.settings.service}: done once for all hosts of the play, by the task for {host};"
            " nothing to do for "
        )
        return self.report(
            False, msg=what + self.session.identity.host, acting_host=host, elsewhere=True, **more
        )

    def report(self, changed: bool, **more: t.Any) -> Result:
        """Return the result of every step.

        A `msg` is shown as well, since results need -v, and so are `lines` where the option `show`
        asks for them.
        """
        if "msg" in more:
            self.print_line(more["msg"])
        if self.options.get("show") is True:
            self.show(more["lines"])
        return {"changed": changed, "rollout": self.describe(changed), **more}

    def show(self, lines: Sequence[str]) -> None:
        """Show lines to the operator."""
        for line in lines:
            self.print_line(line)

    def would(self, path: Sequence[Waypoint], revision: str, **more: t.Any) -> Result:
        """Return the result in check mode: what the step would do on this path."""
        decision = self.loop.next_decision(path[0])
        arrived = self.loop.next_decision(path[-1]).reached
        arrived = arrived and not self.loop.has_orphaned_entries()
        diff = self.difference(path[-1], revision)
        return self.report(not arrived, next=NextView.of(decision).to_dict(), diff=diff, **more)

    def parked(self, why: str) -> Result:
        """Return the result of a step whose run ends because the rollout waits for a person."""
        self._parked = True
        self.loop.event(events.RunParked(reason=why))
        self.loop.commit()
        return self.report(self.loop.changed, msg=f"{why} [PR-612]", parked=True)

    def difference(self, waypoint: Waypoint, revision: str) -> dict[str, str]:
        """Return the fleet's composition before and after, for `--diff`."""
        now = Counter(i.revision for i in self.loop.fleet if i.state.counted)
        after = {revision: waypoint.new}
        return {
            "before": self._lines(now),
            "after": self._lines(now | Counter(after) if waypoint.old else after),
        }

    def composition(self, without: Container[str] = ()) -> str:
        """Return how many instances of each revision there are, `without` these, for `--diff`."""
        return self._lines(
            Counter(i.revision for i in self.loop.fleet if i.state.counted and i.id not in without)
        )

    def _lines(self, counts: Mapping[str, int]) -> str:
        return "".join(
            f"{self.settings.service} {revision}: {count}\n"
            for revision, count in sorted(counts.items())
            if count
        )

    def describe(self, changed: bool = False) -> Result:
        """Return the `rollout` mapping of every step's result."""
        fleet = fleets.summary(self.fleet, self.unmanaged)
        return RolloutView.of(self.record, fleet, changed).to_dict()


class StepPart:
    """Base of the classes that do one part of a step's work."""

    def __init__(self, step: StepContext) -> None:
        self.step = step

    @property
    def settings(self) -> Settings:
        """The step's settings."""
        return self.step.settings

    @property
    def loop(self) -> ReconcileLoop:
        """The step's reconcile loop."""
        return self.step.loop

    @property
    def record(self) -> Record:
        """The journal's record, as last read or written."""
        return self.step.record


def driver_context(
    settings: Settings,
    transport: Transport,
    platform: Callable[[Transport], PlatformDriver],
    wake: Callable[[], None],
) -> DriverContext:
    """Return what the drivers of a service are made with."""
    traffic = settings.traffic
    log = traffic.options.get("access_log")
    return DriverContext(
        settings.service,
        transport,
        settings.checks,
        platform,
        in_place=not settings.platform.driver.capabilities.starts_instances,
        wake=wake,
        counted=traffic.module.driver.counts,
        access_log=AccessLog(log, traffic.options.get("hosts")) if log else None,
        adopting=settings.adopt.servers if settings.adopt else (),
    )


def _request(options: Mapping[str, t.Any]) -> list[str]:
    """Return the options that tell one request of a step from another; none of them is secret."""
    return [
        f"{key} {options[key]}"
        for key in ("restart", "rebalance", "to", "command", "force", "count", "host")
        if options.get(key)
    ]
