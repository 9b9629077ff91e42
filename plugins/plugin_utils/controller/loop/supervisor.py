# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides in each iteration whether a stage may proceed: commands, freeze windows and gates."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from ...base import clock
from ...base.errors import Aborted, GateFailed, GaveWay, Parked, RolloutFailed
from ...base.text import moment, span
from ...config.freeze import Freeze, stopped
from ...config.settings import Settings
from ...engine.last_old import longest
from ...engine.model import FailureAction, Phase
from ...engine.release_plan import RETREAT_GATE
from ...engine.strategy import FINISH, RELEASE, REPLACE, Gate, Stage
from ...interfaces.context import DriverContext
from ...interfaces.gate import WAIT
from ...state import commands, events
from ...state.lease import Session
from ...state.record import GateRecord, GateState, Rollout, RolloutKind
from . import timing
from .gate_runner import ANSWER, Describe, GateResult, GateRunner, GateStatus

MET = ("retry", "resume")  # by a rollout that is not held
# gates: a person decides, time passes, measurements decide
APPROVAL, PAUSE, ANALYSIS = "approval", "pause", "analysis"


class Proceed(Enum):
    """What a stage may do in this iteration."""

    GO = "go"
    HOLD = "hold"  # keep the fleet as it is, and in repair
    SKIP = "skip"  # leave this stage for the next one
    RENUMBER = "renumber"  # leave it, since an operator asked for another number of instances


@dataclass(frozen=True)
class Reporter:
    """How a supervisor reports."""

    event: Callable[[events.Event], None]  # adds to the timeline
    note: Callable[[str], None]  # writes a line for people, those who follow the rollout included
    mention: Callable[[str], None]  # writes a line for the people who see this run alone
    wake: Callable[[], None]  # ends a wait of the loop
    question: Callable[[], str]  # what the platform wants a person to decide; "": nothing
    command: Callable[[str], str]  # how a person sends this operator command
    # why a host cannot be left out, or brought back; "": it can
    refuse: Callable[[Mapping[str, t.Any]], str] = lambda _command: ""


class Supervisor:
    """Decides in each iteration whether a stage may proceed: commands, freeze windows and gates."""

    def __init__(
        self,
        stage: Stage,
        rollout: Rollout,
        *,
        settings: Settings,
        session: Session,
        context: DriverContext,
        background: GateRunner,
        reporter: Reporter,
        now: Callable[[], float] = clock.now,
    ) -> None:
        """`background`: of the background gates of all stages; closed by its maker."""
        self.stage = stage
        self.rollout = rollout
        self.settings = settings
        self.session = session
        self._report = reporter
        self._now = now
        self._gates = GateRunner(stage.gates, context, rollout.gates, now, reporter.wake)
        back = self._back or rollout.kind == RolloutKind.ROLLBACK  # a rollback is never rolled back
        gates = () if back else settings.plan.rollback_gates
        if rollout.release and not back:
            gates = (*gates, RETREAT_GATE)
        self._rollback_gates = [RollbackGate(gate, context, now, reporter.wake) for gate in gates]
        self._background = background
        watching = bool(settings.plan.background) and stage.watched and not back
        self._next_background = float("-inf" if watching else "inf")
        self._next_commands = float("-inf")
        self._stopped: Freeze | None = None  # why nothing may move
        self._question = ""  # of the platform, for a person
        self._doubt = ""  # why the background gates need a person
        # since when the last old instances stay for a verdict, and until when at most
        self._undecided: float | None = None
        self._until = float("-inf")
        self._lost_reported = False  # that no stable instance serves
        # by a command or a freeze, or at a gate that was left
        self._held = rollout.phase.waits and not rollout.gates
        self._began = now()
        self._waits_for = ""  # as last reported
        self._next_measured: dict[str, float] = {}  # by analysis, seconds into the rollout
        self._next_news = self._began + timing.NEWS
        self._waiting: float | None = None  # since when this run waits for a person
        self._waits_since = self._began  # since when it waits for the same
        self._next_heartbeat = self._next_hints = float("inf")

    def close(self) -> None:
        """Ask the gates nothing any more, except the background gates."""
        for runner in (self._gates, *(gate.runner for gate in self._rollback_gates)):
            runner.close()

    def proceed(self, describe: Describe) -> Proceed:
        """Return what the stage may do now; raises RolloutFailed if a command or gate ends it."""
        skip = self._obey_commands()
        if self.rollout.wanted or self.rollout.wanted_new:
            return Proceed.RENUMBER
        if self._back:
            return Proceed.GO
        self._poll_rollback_gates(describe)
        if skip:
            return Proceed.SKIP
        self._poll_background(describe)
        if self._doubt:
            return self._hold(self._doubt)
        self._question = self._report.question()
        if self._question:
            return self._hold(self._question)
        self._stopped = self._find_stop()
        if self.rollout.paused:
            why = self.rollout.paused.get("why")
            return self._hold(
                f"paused by {self.rollout.paused.get('by')}{f': {why}' if why else ''}"
            )
        if self._stopped:
            left = self._stopped.until - clock.wall()
            return self._hold(
                f"{self._stopped}, for {span(left)} more",
                person=False,
                long=left > self.settings.wait,
            )
        if self._held:
            self._held, self._waiting, self._waits_for = False, None, ""
            self._enter(self._moving)
        return Proceed.GO

    def passed(self, describe: Describe) -> bool:
        """Return whether the gates of the reached stage pass; raises GateFailed if one fails."""
        if self._back:
            return True
        if self.rollout.full and self.stage.waiting != Phase.HOLDING:
            if not self._gates.bound:
                return True
            self._gates.pass_(None, "promote_full")
        status = self._poll(self._gates, describe)
        if status.failed:
            self._report_failure(status.failed, status.message)
            raise GateFailed(status.message, status.id, then=status.then)
        if status.passed:
            if status.changed:
                self._report.event(events.GateDecided(message=status.message, passed=True))
            self._waiting, self._waits_for = None, ""
            self._enter(self._moving)
            return True
        person = self._needs_person
        self._wait(self.stage.waiting, status.message, person or status.others, person)
        return False

    def awaits_verdict(self) -> bool:
        """Return whether the last old instances stay for now: the new revision looks worse to a
        background gate, which has not decided yet.
        """
        doubt = "" if self._back or self.rollout.full else self._background.doubt
        if not doubt:
            return False
        if self._undecided is None:
            self._undecided = self._now()
            seconds = longest(self._undecided - self.rollout.started)
            self._until = self._undecided + seconds
            what = f"the last old instances stay until that is decided, for {span(seconds)} at most"
            self._report.event(events.WaitingFor(what=f"{doubt}: {what}", person=False))
            self._report.note(f"{doubt}: {what}")
        return self._now() < self._until

    def stable_lost(self) -> Proceed:
        """Return what to do now that no stable instance serves; raises RolloutFailed to hold."""
        then, previous = self.settings.on_stable_lost, self.rollout.previous
        stable = previous.revision if previous else "the stable revision"
        what = f"no instance of {stable} serves any more"
        if not self._lost_reported:
            self._lost_reported = True
            doing = {
                "repair": "starting it again",
                "promote": "going straight to the promotion",
                "hold": "held",
            }
            self._report.event(events.StableLost(message=what, then=then))
            self._report.note(f"{what}; rollout_on_stable_lost is {then}: {doing[then]} [PR-613]")
        if then == "hold":
            raise RolloutFailed(what, "PR-613", then=FailureAction.HOLD)
        if then == "promote":
            self.rollout.full = True
            self._gates.pass_(None, "rollout_on_stable_lost")
            skips = self.stage.part == REPLACE and not self._gates.bound
            return Proceed.SKIP if skips else Proceed.GO
        return Proceed.GO

    def park(self) -> None:
        """Raise Parked if the stage has waited for a person for as long as a run may."""
        if self._waiting is None or self._now() - self._waiting < self.settings.wait:
            return
        if self.rollout.paused:
            then = "Continue with resume.yml"
        elif self._question:
            then = "Rerun when that is done, or roll back with rollback.yml"
        elif self._held and not self._doubt:
            opens = self._stopped is not None and self._stopped.closed
            then = "Rerun when a window is open" if opens else "Rerun when the freeze is over"
        elif self._is_at(RELEASE):
            then = "Rerun to continue, or run release.yml for all members"
        else:
            then = "Continue with promote.yml"
        name = f"{self.settings.service} {self.rollout.revision}"
        raise Parked(f"{name}: {self._waits_for}; the run ended while waiting (parked). {then}")

    def _find_stop(self) -> Freeze | None:
        """Return the freeze, or the window that is not open yet, that the rollout waits for."""
        # these make the service safer
        if self.stage.part == FINISH or self.rollout.kind == RolloutKind.ROLLBACK:
            return None
        return stopped(self.settings.freeze, self.settings.window, clock.wall())

    # -- gates ------------------------------------------------------------------------------------

    @property
    def _back(self) -> bool:
        """Whether the rollout is being rolled back."""
        return self.rollout.phase == Phase.ROLLING_BACK

    def _poll_rollback_gates(self, describe: Describe) -> None:
        """Ask the gates that may ask for a rollback; raises RolloutFailed where one does."""
        for asked in self._rollback_gates:
            if asked.wants_rollback(describe):
                if asked.gate is RETREAT_GATE:
                    raise Aborted(asked.why, "PR-635")
                gate = f"{asked.gate.key} ({asked.gate.driver})"
                raise RolloutFailed(
                    f"rollback requested by gate {gate}", "PR-403", then=FailureAction.ROLLBACK
                )

    def _poll_background(self, describe: Describe) -> None:
        """Ask the background gates; raises RolloutFailed where one fails."""
        if self._now() < self._next_background or self.rollout.full:
            return
        self._next_background = self._now() + timing.BACKGROUND
        if not self.rollout.background and (describe().get("share") or {}).get("set") == 0:
            return  # there is nothing to measure before the new instances get requests
        status = self._poll(self._background, describe)
        if status.failed:
            self._report_failure(status.failed, status.message)
            if (self.stage.on_failure or self.settings.on_failure) != FailureAction.CONTINUE:
                raise RolloutFailed(status.message, status.id)
            self._background.pass_failed(status.failed)
        # After a switch nothing is left to compare with: doubt must not keep the standby set.
        self._doubt = (
            status.message if status.person and self.stage.waiting != Phase.HOLDING else ""
        )
        asked_for = not all(gate.by_default for gate in self.settings.plan.background)
        if asked_for and not status.passed and not self._doubt:
            self._report_news(status.message.removeprefix("waiting at "))

    def _poll(self, gates: GateRunner, describe: Describe) -> GateStatus:
        """Poll gates, and report the verdicts of analyses."""
        status = gates.poll(describe)
        self.session.changed = self.session.changed or status.changed
        for gate, looked in status.looks:
            by_default = gate.by_default or None
            self._report.event(events.Looked(gate=gate.key, by_default=by_default, **looked))
        for result in status.verdicts:
            if result.gate.driver == ANALYSIS and result.verdict == WAIT:
                self._note_measured(result)
            elif result.gate.driver == ANALYSIS:
                key, message = result.gate.key, result.message
                verdict = result.verdict
                self._report.event(
                    events.VerdictReached(
                        gate=key, verdict=verdict, message=message, samples=result.samples
                    )
                )
                self._report.note(f"{key}: {message}")
        return status

    def _note_measured(self, result: GateResult) -> None:
        """Write down what an analysis has measured, the less often the longer it takes."""
        elapsed, key = clock.wall() - self.rollout.started, result.gate.key
        if elapsed < self._next_measured.get(key, 0.0):
            return
        self._next_measured[key] = elapsed + timing.thinned(elapsed)
        self._report.event(
            events.Measured(gate=key, message=result.message, samples=result.samples)
        )

    def _report_failure(self, gate: Gate, message: str) -> None:
        """Report that a gate has failed."""
        self._report.event(events.GateDecided(gate=gate.key, message=message, passed=False))

    # -- waiting ----------------------------------------------------------------------------------

    @property
    def _moving(self) -> Phase:
        """The phase while the fleet moves."""
        return Phase.PROMOTING if self.stage.part == FINISH else Phase.PROGRESSING

    @property
    def _needs_person(self) -> bool:
        """Whether the gate that the stage waits for waits for a person."""
        gate = self._gate
        record = self.rollout.gates.get(gate.key) if gate else None
        by_person = gate is not None and gate.driver == APPROVAL
        return by_person or (record is not None and record.person)

    @property
    def _gate(self) -> Gate | None:
        """The gate that the stage waits for."""
        for gate in self.stage.gates:
            record = self.rollout.gates.get(gate.key)
            if record is None or record.state != GateState.PASSED:
                return gate
        return None

    def _is_at(self, driver: str) -> bool:
        """Return whether the stage waits for a gate with this driver."""
        return self._gate is not None and self._gate.driver == driver

    def _hold(self, why: str, person: bool = True, long: bool = False) -> Proceed:
        """Keep the fleet as it is, until a `person` or time ends that; with `long` this run does
        not wait for it.
        """
        self._held = True
        self._waiting = float("-inf") if long else self._waiting
        # what is switched already is not taken for a stage before the switch
        kept = self.stage.waiting if self.rollout.waiting else self._moving
        self._wait(Phase.PAUSED if self.stage.part != FINISH else kept, why, True, person)
        return Proceed.HOLD

    def _wait(self, phase: Phase, what: str, parks: bool, person: bool) -> None:
        """Enter a phase that waits, and report what for, when that is news.

        A run that `parks` ends when it has waited for long.
        """
        if not parks:
            self._waiting = None
        elif self._waiting is None:
            self._waiting = self._now()
        self._enter(phase)
        if not phase.waits and self._now() - self._began < timing.QUIET:
            return
        if what.partition(":")[0] != self._waits_for.partition(":")[0]:
            self._report.event(events.WaitingFor(what=what, person=person))
            self._report_wait(what)
        elif self._now() >= self._next_heartbeat:
            waited = span(self._now() - self._waits_since)
            self._report.mention(f"{what} (waiting for {waited})")
            self._next_heartbeat = self._now() + timing.HEARTBEAT
        elif what != self._waits_for and self._is_at(ANALYSIS):
            self._report_news(what)
        if self._now() >= self._next_hints:
            self._report_ways_out()
        self._waits_for = what

    def _report_wait(self, what: str) -> None:
        """Write what is waited for from now on, and until when this run waits for a person."""
        now = self._now()
        self._waits_since, self._next_heartbeat = now, now + timing.HEARTBEAT
        self._next_news = now + timing.NEWS
        self._next_hints = float("inf")
        if self._waiting is not None or self._is_at(PAUSE):  # no command passes any other gate
            self._next_hints = now + (timing.HINTS if self._waiting is None else 0.0)
        self._report.note(what)
        if self._waiting == now:
            until = moment(clock.wall() + self.settings.wait)
            self._report.mention(f"this run waits until {until} (rollout_wait)")

    def _report_ways_out(self) -> None:
        """Write the commands that end the present wait, once."""
        self._next_hints = float("inf")
        for effect, command in self._ways_out():
            self._report.mention(f"to {effect}: {self._report.command(command)}")

    def _ways_out(self) -> Iterator[tuple[str, str]]:
        """Yield the commands that end the present wait, each with what it does."""
        if self.rollout.paused:
            yield from commands.ways_out(self.rollout)
            return
        if self._phase_for_commands == Phase.HOLDING:
            yield "stop the old instances now", "skip"
        elif (not self._held or self._doubt) and not self._is_at(RELEASE):
            yield "continue", "promote"
        yield "roll back", "abort"

    def _report_news(self, what: str) -> None:
        """Write a line on an analysis in progress, now and then."""
        if self._now() >= self._next_news:
            self._next_news = self._now() + timing.NEWS
            self._report.mention(what)

    def _enter(self, phase: Phase) -> None:
        """Enter a phase, and write that down."""
        if self.rollout.turn_to(phase, self.rollout.reason, self._now()):
            self._report.event(events.PhaseEntered(phase=phase))

    # -- operator commands ------------------------------------------------------------------------

    def _obey_commands(self) -> bool:
        """Obey operators' commands; return whether to skip the stage."""
        if self._now() < self._next_commands:
            return False
        self._next_commands = self._now() + timing.COMMANDS
        skip = False
        sent_by_now = commands.not_withdrawn(self.session.commands())
        for command in sent_by_now:
            concerns = self._concerns(command)
            refused = self._refusal(command, sent_by_now) if concerns else ""
            self.session.record.obeyed = command["number"]
            if not concerns:
                continue
            met = bool(refused) and command["word"] in MET and not self._back
            ineffective = self._ineffective(command, refused) if met else ""
            refused = "" if met else refused
            self._report.event(events.CommandTaken.of(command, refused, ineffective))
            self._report.note(commands.outcome(command, refused, ineffective))
            obeyed = not (refused or met)
            skip = (obeyed and self._obey(command, commands.sentence(command))) or skip
        return skip

    def _concerns(self, command: Mapping[str, t.Any]) -> bool:
        """Return whether a command is for this rollout, and its sender still wants it."""
        return (command["rollout"], True) == (
            self.rollout.id,
            command.get("until", math.inf) >= self._now(),
        )

    def _refusal(self, command: Mapping[str, t.Any], sent: Sequence[Mapping[str, t.Any]]) -> str:
        """Return why a command is refused, "" if it is not; `sent`: all commands that were."""
        name, phase = command["word"], self._phase_for_commands
        force, paused = bool(command.get("force")), bool(self.rollout.paused)
        refused = commands.refusal(phase, name, force, paused)
        if name in commands.OF_HOSTS:
            refused = refused or self._report.refuse(command)
        return refused or commands.overtaken(command, sent)

    def _ineffective(self, command: Mapping[str, t.Any], refused: str) -> str:
        """Return why a command to continue a rollout that is not held has no effect; "" if it has
        had its effect: sent where the rollout was held, it has let this run continue.
        """
        if command.get("phase") == Phase.HELD:
            return ""
        moving = self._phase_for_commands == Phase.PROGRESSING
        return "the rollout continues already" if moving else refused

    @property
    def _phase_for_commands(self) -> Phase:
        """The phase by which commands are judged.

        Another command may just have been obeyed, and a freeze waits for no command.
        """
        if (self.rollout.paused or self._doubt) and self.stage.part != FINISH:
            return Phase.PAUSED
        if not self.rollout.phase.waits:
            return self.rollout.phase
        return self.stage.waiting if self.rollout.waiting else self._moving

    def _obey(self, command: Mapping[str, t.Any], sent: str) -> bool:
        """Obey a command; return whether to skip the stage."""
        rollout, name = self.rollout, command["word"]
        if name == commands.GIVE_WAY:
            raise GaveWay(
                f"{self.settings.service} {rollout.revision}: superseded by {command.get('why')},"
                f" which {command['by']} rolls out; that run continues from here, and nothing was"
                " rolled back; if that run has ended, run this one again"
            )
        if name == "abort":
            raise Aborted(sent, "PR-608")
        if name == "hold":
            raise RolloutFailed(sent, "PR-606", then=FailureAction.HOLD)
        if name == "pause":
            rollout.paused = {key: command.get(key) for key in ("by", "why", "at")}
            return False
        if name == "scale":
            rollout.wanted = int(command["replicas"])
            return False
        if name == "set_target":
            rollout.wanted_new = int(command["replicas"])
            return False
        if name in commands.OF_HOSTS:
            rollout.excluded = commands.left_out(rollout, [command])
            rollout.tally = rollout.tally and replace(rollout.tally, since=self._now())
            return False
        return self._continue(command)

    def _continue(self, command: Mapping[str, t.Any]) -> bool:
        """End what holds the stage, as the command says; return whether to skip the stage."""
        rollout, name, by = self.rollout, command["word"], command["by"]
        rollout.paused = {}
        self._waiting, self._waits_for = None, ""
        if name == "resume":
            return False
        self._background.pass_((), by)
        self._doubt = ""
        rollout.force = rollout.force or bool(command.get("force"))
        rollout.full = rollout.full or name == "promote_full"
        everything = name in ("skip", "promote_full")
        self._gates.pass_(None if everything else (APPROVAL, PAUSE), by)
        return everything and self.stage.part == REPLACE and not self._gates.bound


class RollbackGate:
    """A gate polled throughout the rollout; only a pass by its own answer wants a rollback."""

    def __init__(
        self, gate: Gate, context: DriverContext, now: Callable[[], float], wake: Callable[[], None]
    ) -> None:
        self.gate = gate
        self._records: dict[str, GateRecord] = {}
        self.runner = GateRunner([gate], context, self._records, now, wake)
        self._now = now
        self._next = float("-inf")

    def wants_rollback(self, describe: Describe) -> bool:
        """Poll the gate; return whether it has passed."""
        if self._now() < self._next:
            return False
        status = self.runner.poll(describe)
        # not by an ignored error, nor by time
        wanted = status.passed and self._records[self.gate.key].by == ANSWER
        if status.failed or (status.passed and not wanted):
            self._records.clear()
            self._next = self._now() + self.gate.interval
        return wanted

    @property
    def why(self) -> str:
        """What the gate said last."""
        return self._records[self.gate.key].message
