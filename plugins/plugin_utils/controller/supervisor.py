# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a walk to one stage is guided by: the operator's word, freeze windows, and the gates of the stage."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Mapping
from enum import Enum

from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import GateFailed, GaveWay, Parked, RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.text import span
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.freeze import frozen
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.settings import Settings
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.gate_runner import ANSWER, GateRunner, GateStatus
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import FailureAction, Phase
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import FINISH, REPLACE, Gate, Stage
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import Context
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import commands
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.lease import Session
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import GateState, Kind, Outcome, Rollout

LISTEN = 1.0  # seconds between two looks for an operator's word
NEWS = 30.0  # seconds between two lines of how an analysis stands
QUIET = 2.0  # seconds for which a gate that is part of the walk is not worth a line
WATCH = 0.25  # seconds between two looks at the gates that are asked all along
APPROVAL, ANALYSIS = "approval", "analysis"  # drivers: of gates that wait for a person, and that judge by measurements


class Proceed(Enum):
    """What a walk may do in this turn."""

    GO = "go"
    HOLD = "hold"  # keep the fleet as it is, and in repair
    SKIP = "skip"  # leave this stage for the next one
    RENUMBER = "renumber"  # leave it, for an operator asked for another number of replicas


class Supervisor:
    """Asked in every turn of the walk to `stage`. What it finds goes into `rollout`; `note` writes an event, `tell` a line.
    `background` is the keeper of the gates that are asked all along, from stage to stage: who made it closes it."""

    def __init__(
        self,
        stage: Stage,
        rollout: Rollout,
        settings: Settings,
        session: Session,
        context: Context,
        note: Callable[..., None],
        tell: Callable[[str], None],
        wake: Callable[[], None],
        background: GateRunner,
    ) -> None:
        self.stage = stage
        self.rollout = rollout
        self.settings = settings
        self.session = session
        self._note = note
        self._tell = tell
        self._gates = GateRunner(stage.gates, context, rollout.gates, wake=wake)
        back = self._back or rollout.kind == Kind.ROLLBACK  # there is never a rollback of a rollback
        self._hooks = [] if back else [_Hook(gate, context, wake) for gate in settings.plan.rollback_gates]
        self._background = background
        watching = bool(settings.plan.background) and stage.watched and not back
        self._watched = float("-inf" if watching else "inf")  # when it was last looked at
        self._doubt = ""  # why the background gates want a person
        self._lost = False  # that no stable instance serves was told
        self._listened = float("-inf")
        self._stayed = rollout.phase.waits and not rollout.gates  # by a word or a freeze, or at a gate that was left
        self._began = time.monotonic()
        self._waits = ""  # what for, as last told
        self._news = time.monotonic() + NEWS  # when an analysis is told of again
        self._waiting: float | None = None  # since when this run waits for somebody

    @property
    def _back(self) -> bool:
        return self.rollout.phase == Phase.ROLLING_BACK

    def close(self) -> None:
        """Ask nobody any more, but for the background."""
        for keeper in (self._gates, *(hook.keeper for hook in self._hooks)):
            keeper.close()

    def proceed(self, described: Callable[[], Mapping[str, t.Any]]) -> Proceed:
        """What the walk may do now; raises RolloutFailed where it is to end, by an operator's word or by a hook."""
        skip = self._listen()
        if self._back:
            return Proceed.GO
        if self.rollout.wanted:
            return Proceed.RENUMBER
        for hook in self._hooks:
            if hook.pulls(described()):
                raise RolloutFailed(f"{hook.gate.key} ({hook.gate.driver}) asked for it", then=FailureAction.ROLLBACK)
        if skip:
            return Proceed.SKIP
        self._watch(described)
        if self._doubt:
            return self._stay(self._doubt)
        if self.rollout.paused:
            why = self.rollout.paused.get("why")
            return self._stay(f"paused by {self.rollout.paused.get('by')}{f': {why}' if why else ''}")
        freeze = frozen(self.settings.freeze, time.time())
        if freeze and self.stage.part != FINISH and self.rollout.kind != Kind.ROLLBACK:  # never kept from what is safer
            left = freeze.until - time.time()
            return self._stay(f"frozen: {freeze.reason}, for {span(left)} more", long=left > self.settings.wait)
        if self._stayed:
            self._stayed, self._waiting, self._waits = False, None, ""
            self._turn(self._walking)
        return Proceed.GO

    def passed(self, described: Callable[[], Mapping[str, t.Any]]) -> bool:
        """Whether the gates of the stage, which is reached, let the rollout go on; raises RolloutFailed where one fails."""
        if self._back or (self.rollout.full and self.stage.waiting != Phase.HOLDING):
            return True
        standing = self._look(self._gates, described())
        if standing.failed:
            self._note("gate", gate=standing.failed.key, message=standing.message, passed=False)
            raise GateFailed(standing.message, then=standing.then)
        if standing.passed:
            if standing.changed:
                self._note("gate", message=standing.message, passed=True)
            self._waiting, self._waits = None, ""
            self._turn(self._walking)
            return True
        self._wait(self.stage.waiting, standing.message, self._person)
        return False

    def _watch(self, described: Callable[[], Mapping[str, t.Any]]) -> None:
        """Ask the gates that are asked all along; raises RolloutFailed where one fails."""
        if time.monotonic() - self._watched < WATCH or self.rollout.full:
            return
        self._watched = time.monotonic()
        rollout = described()
        if not self.rollout.background and (rollout.get("share") or {}).get("set") == 0:
            return  # there is nothing to measure before the new ones have requests
        standing = self._look(self._background, rollout)
        if standing.failed:
            self._note("gate", gate=standing.failed.key, message=standing.message, passed=False)
            if (self.stage.on_failure or self.settings.on_failure) != FailureAction.CONTINUE:
                raise RolloutFailed(standing.message)
            self.rollout.background[standing.failed.key]["state"] = GateState.PASSED  # it goes on all the same
        # After a switch nothing is left to compare with: there doubt is no reason to keep the old set for good.
        self._doubt = standing.message if standing.person and self.stage.waiting != Phase.HOLDING else ""
        if not standing.passed and not self._doubt:
            self._tell_news(standing.message.removeprefix("waits at "))

    def _look(self, gates: GateRunner, rollout: Mapping[str, t.Any]) -> GateStatus:
        """How gates stand; what an analysis has come to is told, with what that stands on."""
        standing = gates.poll(rollout)
        self.session.changed = self.session.changed or standing.changed
        for one in standing.verdicts:
            if one.gate.driver == ANALYSIS:
                self._note("verdict", gate=one.gate.key, verdict=one.verdict, message=one.message, samples=one.samples)
                self._tell(f"{one.gate.key}: {one.message}")
        return standing

    def stable_lost(self) -> Proceed:
        """What to do now that no stable instance serves, and new ones are ready; raises RolloutFailed where it is to be held."""
        then, previous = self.settings.on_stable_lost, self.rollout.previous
        what = f"no instance of {previous.revision if previous else 'the stable revision'} serves any more"
        if not self._lost:
            self._lost = True
            doing = {"repair": "it is started again", "promote": "going straight to the promotion", "hold": "held"}
            self._note("stable_lost", message=what, then=then)
            self._tell(f"{what}; rollout_on_stable_lost is {then}: {doing[then]}")
        if then == "hold":
            raise RolloutFailed(what, then=FailureAction.HOLD)
        if then == "promote":
            self.rollout.full = True
            self._gates.pass_(None, "rollout_on_stable_lost")
            return Proceed.SKIP if self.stage.part == REPLACE else Proceed.GO
        return Proceed.GO

    def park(self) -> None:
        """Called when there is nothing to do but wait: raises Parked if that is for somebody, and took long enough."""
        if self._waiting is not None and time.monotonic() - self._waiting >= self.settings.wait:
            who = "resume.yml goes on" if self.rollout.paused else "promote.yml lets it pass"
            frozen_ = self._stayed and not self.rollout.paused and not self._doubt
            then = "run it again once that is over" if frozen_ else who
            raise Parked(f"{self.settings.service} {self.rollout.revision}: {self._waits}; parked: {then}")

    # -- waiting ------------------------------------------------------------------------------------------------

    @property
    def _walking(self) -> Phase:
        return Phase.PROMOTING if self.stage.part == FINISH else Phase.PROGRESSING

    @property
    def _person(self) -> bool:
        """Whether the gate that is waited for waits for a person."""
        open_ = [gate for gate in self.stage.gates if self.rollout.gates.get(gate.key, {}).get("state") != GateState.PASSED]
        return bool(open_) and (open_[0].driver == APPROVAL or bool(self.rollout.gates.get(open_[0].key, {}).get("person")))

    def _stay(self, why: str, long: bool = False) -> Proceed:
        """Stay; with `long` there is no use in waiting for the end of it."""
        self._stayed = True
        self._wait(Phase.PAUSED, why, True)
        self._waiting = float("-inf") if long else self._waiting
        return Proceed.HOLD

    def _wait(self, phase: Phase, what: str, somebody: bool) -> None:
        if not somebody:
            self._waiting = None
        elif self._waiting is None:
            self._waiting = time.monotonic()
        self._turn(phase)
        if not phase.waits and time.monotonic() - self._began < QUIET:
            return
        if what.partition(":")[0] != self._waits.partition(":")[0]:
            self._note("wait", what=what)
            self._tell(what)
            self._news = time.monotonic() + NEWS
        elif what != self._waits and "(analysis)" in what:
            self._tell_news(what)
        self._waits = what

    def _tell_news(self, what: str) -> None:
        """How an analysis stands, now and then."""
        if time.monotonic() >= self._news:
            self._news = time.monotonic() + NEWS
            self._tell(what)

    def _turn(self, phase: Phase) -> None:
        if self.rollout.turn_to(phase, self.rollout.reason, clock.now()):
            self._note("phase", phase=phase)

    # -- the operator -------------------------------------------------------------------------------------------

    def _listen(self) -> bool:
        """Take in what operators have said; whether to leave the stage. Raises RolloutFailed where the walk is to end."""
        if time.monotonic() - self._listened < LISTEN:
            return False
        self._listened = time.monotonic()
        skip = False
        found = self.session.store.words(self.session.record.obeyed)
        for word in commands.not_withdrawn(found):
            self.session.record.obeyed = word["number"]
            if word["rollout"] != self.rollout.id:
                continue
            if word["word"] in ("retry", "resume") and self._standing == Phase.PROGRESSING:
                continue  # said while nobody ran it: this run does so
            refused = commands.refusal(self._standing, word["word"], bool(word.get("force")))
            self._note("word", **{key: word[key] for key in ("word", "by", "why", "replicas") if word.get(key)}, refused=refused)
            number = f" to {word['replicas']}" if word.get("replicas") else ""
            said = f"{word['word']}{number} is said by {word['by']}{': ' + word['why'] if word.get('why') else ''}"
            self._tell(f"{said}{f'; refused: {refused}' if refused else ''}")
            skip = (not refused and self._obey(word, said)) or skip
        return skip

    @property
    def _standing(self) -> Phase:
        """The phase to judge a word by: others were perhaps obeyed a moment ago, and a freeze waits for nobody's word."""
        if self.rollout.paused or self._doubt:
            return Phase.PAUSED
        if not self.rollout.phase.waits:
            return self.rollout.phase
        return self.stage.waiting if self.rollout.waiting else self._walking

    def _obey(self, word: Mapping[str, t.Any], said: str) -> bool:
        """Do as it was said; whether that is to leave the stage."""
        rollout, name = self.rollout, word["word"]
        if name == commands.GIVE_WAY:
            raise GaveWay(
                f"{self.settings.service} {rollout.revision}: gave way to {word.get('why')}, which {word['by']} rolls out; that run goes on "
                "from here, and nothing was rolled back"
            )
        if name == "abort":
            raise RolloutFailed(said, then=FailureAction.ROLLBACK, ending=Outcome.ABORTED)
        if name == "hold":
            raise RolloutFailed(said, then=FailureAction.HOLD)
        if name == "pause":
            rollout.paused = {key: word.get(key) for key in ("by", "why", "at")}
            return False
        if name == "scale":
            rollout.wanted = int(word["replicas"])
            return False
        was_paused, rollout.paused = bool(rollout.paused), {}
        self._waiting, self._waits = None, ""
        doubted, self._doubt = self._background.pass_((), word["by"]), ""
        if name == "resume" and (was_paused or doubted):
            return False
        rollout.force = rollout.force or bool(word.get("force"))
        rollout.full = rollout.full or name == "promote_full"
        self._gates.pass_(None if name in ("skip", "promote_full") else (APPROVAL, "pause"), word["by"])
        return name in ("skip", "promote_full") and self.stage.part == REPLACE


class _Hook:
    """Asked all along: one that passes is a reason to go back, and anything else is none."""

    def __init__(self, gate: Gate, context: Context, wake: Callable[[], None]) -> None:
        self.gate = gate
        self._kept: dict[str, dict[str, t.Any]] = {}
        self.keeper = GateRunner([gate], context, self._kept, wake=wake)
        self._again = 0.0

    def pulls(self, rollout: Mapping[str, t.Any]) -> bool:
        if time.monotonic() < self._again:
            return False
        standing = self.keeper.poll(rollout)
        pulled = standing.passed and self._kept[self.gate.key]["by"] == ANSWER  # not by an error that is ignored, nor by time
        if standing.failed or (standing.passed and not pulled):
            self._kept.clear()
            self._again = time.monotonic() + self.gate.interval
        return pulled
