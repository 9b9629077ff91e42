# SPDX-License-Identifier: GPL-3.0-or-later
"""What guides a walk: every command in every phase, pauses, freeze windows, gates and hooks. On a
clock of the test's own.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import time
import typing as t
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    Aborted,
    GateError,
    GateFailed,
    GaveWay,
    Parked,
    RolloutError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.text import moment
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.freeze import Range
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.settings import parse
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop import supervisor
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.gate_runner import (
    GateRunner,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.supervisor import (
    Proceed,
    Reporter,
    Supervisor,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Composition,
    Phase,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    FINISH,
    PROMOTE,
    Gate,
    Plan,
    Stage,
    Waypoint,
    rolling,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.gates import analysis, prepare
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.options import Options
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.gate import (
    FAIL,
    PASS,
    PERSON,
    WAIT,
    Answer,
    GateDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import commands
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.commands import (
    COMMANDS,
    OF_HOSTS,
    refusal,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.events import Event
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import (
    GateRecord,
    GateState,
    Record,
    Rollout,
    RolloutKind,
)

HOUR = 3600.0
DAY = 24 * HOUR
SWITCHED = Waypoint(2, 3, 3, 3, 100)
Script = Callable[[], Answer]


class Told(GateDriver):
    """A gate's driver that says what the test says, at once."""

    blocking = False

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._says: Script = options["says"]

    def ask(self, rollout: Mapping[str, t.Any], waited: float) -> Answer:
        return self._says()


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time; and the driver is found by its name, as one of another collection is."""
    name = "ansible_collections.test.gates.plugins.plugin_utils.gates.told"
    for count in range(5):
        monkeypatch.setitem(sys.modules, name.rsplit(".", count)[0], ModuleType(name))
    monkeypatch.setattr(sys.modules[name], "Driver", Told, raising=False)
    monkeypatch.setattr(sys.modules[name], "OPTIONS", Options(), raising=False)
    passed = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(clock._machine, "offset", 1.7e9)  # whole seconds, so that sums are exact
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0 + passed.seconds)
    monkeypatch.setattr(time, "time", clock.now)
    return passed


def says(answer: Answer | Exception) -> Script:
    def script() -> Answer:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return script


def told(key: str, script: Script, **settings: t.Any) -> Gate:
    return Gate(key, "test.gates.told", {"says": script}, **settings)


def approval(key: str = "approval", **settings: t.Any) -> Gate:
    return Gate(key, "approval", **settings)


def pause(seconds: float, key: str = "pause") -> Gate:
    return Gate(key, "pause", {"duration": seconds})


class Walk:
    """One stage of a rollout under its supervisor, turned as the reconcile loop does."""

    def __init__(self, now: SimpleNamespace, *gates: Gate, **stage: t.Any) -> None:
        self.now = now
        self.stage = Stage("stage", stage.pop("waypoint", rolling(2, 3)), gates, **stage)
        self.settings = parse({"service": "shop", "wait": "1h"}, drivers=False)
        self.record = Record("shop", stable=Composition("1", 1, 3))
        self.record.rollout = Rollout(
            "r1", "2", 2, 3, "canary", self.record.stable, clock.now(), entered=clock.now()
        )
        self.said: list[dict[str, t.Any]] = []
        self.events: list[dict[str, t.Any]] = []
        self.lines: list[str] = []
        self.question = ""  # of the platform
        self.hints: list[str] = []  # how a wait is ended, and its heartbeats
        self.rollback_gates: tuple[Gate, ...] = ()
        self.background: tuple[Gate, ...] = ()
        self.described: dict[str, t.Any] = {}
        self._supervisor: Supervisor | None = None

    @property
    def rollout(self) -> Rollout:
        assert self.record.rollout is not None
        return self.record.rollout

    @property
    def supervisor(self) -> Supervisor:
        if self._supervisor is None:
            plan = Plan("canary", rollback_gates=self.rollback_gates, background=self.background)
            session = SimpleNamespace(
                record=self.record,
                commands=lambda: self._commands(self.record.obeyed),
                changed=False,
            )
            context = DriverContext("shop", t.cast(t.Any, None))
            settings = replace(self.settings, asked=plan, default_analysis=False)
            self._supervisor = Supervisor(
                self.stage,
                self.rollout,
                settings=settings,
                session=t.cast(t.Any, session),
                context=context,
                background=GateRunner(plan.background, context, self.rollout.background),
                reporter=Reporter(
                    self._note,
                    self._tell,
                    self._tell,
                    lambda: None,
                    lambda: self.question,
                    "run {}".format,
                ),
            )
        return self._supervisor

    def _commands(self, after: int) -> Sequence[dict[str, t.Any]]:
        return [command for command in self.said if command["number"] > after]

    def _tell(self, line: str) -> None:
        hint = line.startswith(("to ", "this run waits")) or "(waiting for " in line
        (self.hints if hint else self.lines).append(line)

    def _note(self, event: Event) -> None:
        self.events.append(event.to_dict())

    def say(self, command: str, rollout: str = "r1", **more: t.Any) -> None:
        said = {
            "number": len(self.said) + 1,
            "word": command,
            "rollout": rollout,
            "by": "ann",
            "why": "",
            "at": clock.now(),
        }
        self.said.append(said | more)

    def turn(self, after: float = 1.0, arrived: bool = True) -> str:
        """What one turn comes to: goes, stays, skips, renumbers, waits (at a gate), or passed."""
        self.now.seconds += after
        proceed = self.supervisor.proceed(lambda: self.described)
        if proceed in (Proceed.SKIP, Proceed.RENUMBER):
            return f"{proceed.value}s"
        if arrived and proceed is Proceed.GO and self.supervisor.passed(lambda: self.described):
            return "passed"
        if arrived:
            self.supervisor.park()
        return "stays" if proceed is Proceed.HOLD else "waits" if arrived else "goes"

    def next_run(self, **stage: t.Any) -> None:
        """The run died or parked after its record was written; another one goes on, perhaps from
        another stage.
        """
        self.record = Record.load("shop", json.loads(json.dumps(self.record.dump())))
        self.stage = replace(self.stage, **stage)
        self._supervisor = None

    def kinds(self, kind: str) -> list[dict[str, t.Any]]:
        return [event for event in self.events if event["kind"] == kind]

    def frozen(self, *spans: tuple[float, float]) -> None:
        """In spans of seconds from now."""
        windows = tuple(
            Range(time.time() + begin, time.time() + end, "year end") for begin, end in spans
        )
        self.settings = replace(self.settings, freeze=windows)


def test_what_follows_where_no_stable_instance_serves_any_more(now: SimpleNamespace) -> None:
    walk = at_a_pause(now)
    assert [walk.supervisor.stable_lost() for _twice in range(2)] == [Proceed.GO, Proceed.GO]
    assert walk.lines[1:] == [
        "no instance of 1 serves any more; rollout_on_stable_lost is repair: starting it again"
        " [PR-613]"
    ]
    assert walk.kinds("stable_lost") == [
        {"kind": "stable_lost", "message": "no instance of 1 serves any more", "then": "repair"}
    ]
    walk = at_a_pause(now)
    walk.settings = replace(walk.settings, on_stable_lost="promote")
    walk.next_run()
    assert (
        walk.supervisor.stable_lost() is Proceed.SKIP
        and walk.rollout.full
        and walk.turn() == "passed"
    )
    walk = Walk(now, approval(), part=PROMOTE)
    walk.settings = replace(walk.settings, on_stable_lost="promote")
    assert walk.supervisor.stable_lost() is Proceed.GO and walk.rollout.full
    walk = at_a_pause(now)
    walk.settings = replace(walk.settings, on_stable_lost="hold")
    walk.next_run()
    with pytest.raises(RolloutFailed, match="no instance of 1 serves any more") as caught:
        walk.supervisor.stable_lost()
    assert caught.value.then == "hold"


# -- phases: how a walk comes into each of them ----------------------------------------------------


def progressing(now: SimpleNamespace) -> Walk:
    walk = Walk(now, approval())
    assert walk.turn(arrived=False) == "goes"
    return walk


def at_a_pause(now: SimpleNamespace) -> Walk:
    walk = Walk(now, approval())
    assert walk.turn() == "waits"
    return walk


def paused(now: SimpleNamespace) -> Walk:
    walk = progressing(now)
    walk.say("pause")
    assert walk.turn(arrived=False) == "stays"
    return walk


def paused_at_a_pause(now: SimpleNamespace) -> Walk:
    walk = at_a_pause(now)
    walk.rollout.paused = {"by": "ann", "why": "", "at": clock.now()}
    assert walk.turn() == "stays"
    return walk


def awaiting_promotion(now: SimpleNamespace) -> Walk:
    walk = Walk(now, approval("promotion approval"), waiting=Phase.AWAITING_PROMOTION)
    assert walk.turn() == "waits"
    return walk


def promoting(now: SimpleNamespace) -> Walk:
    walk = Walk(now, part=FINISH)
    walk.rollout.phase = Phase.PROMOTING
    assert walk.turn(arrived=False) == "goes"
    return walk


def holding(now: SimpleNamespace) -> Walk:
    walk = Walk(now, pause(30, "hold"), part=FINISH, waiting=Phase.HOLDING, waypoint=SWITCHED)
    walk.rollout.phase = Phase.PROMOTING
    assert walk.turn() == "waits"
    return walk


def rolling_back(now: SimpleNamespace) -> Walk:
    walk = Walk(now, approval())
    walk.rollout.turn_to(Phase.ROLLING_BACK, "3 instances failed", clock.now())
    assert walk.turn(arrived=False) == "goes"
    return walk


PHASES: Mapping[str, Sequence[Callable[[SimpleNamespace], Walk]]] = {
    "progressing": [progressing],
    "paused": [at_a_pause, paused, paused_at_a_pause],
    "awaiting_promotion": [awaiting_promotion],
    "promoting": [promoting],
    "holding": [holding],
    "rolling_back": [rolling_back],
}
PLACES = [(phase, place) for phase, places in PHASES.items() for place in places]


def outcome(walk: Walk) -> str:
    """What a turn, or the end of the walk, comes to."""
    try:
        return walk.turn()
    except RolloutFailed as exc:
        return "aborted" if isinstance(exc, Aborted) else str(exc.then)


@pytest.mark.parametrize(("phase", "place"), PLACES)
def test_the_phases_are_what_they_are_called(
    now: SimpleNamespace, phase: str, place: Callable[[SimpleNamespace], Walk]
) -> None:
    assert place(now).rollout.phase == phase


# What each command comes to where it makes sense, with the fleet as it should be.
COMES_TO = {
    ("progressing", "pause"): "stays",
    ("progressing", "promote_full"): "skips",
    ("progressing", "skip"): "skips",
    ("paused", "pause"): "stays",
    ("paused", "resume"): "waits",  # at the gate, as before: only a pause is undone
    ("paused", "promote"): "passed",
    ("paused", "promote_full"): "skips",
    ("paused", "skip"): "skips",
    ("awaiting_promotion", "promote"): "passed",
    ("awaiting_promotion", "promote_full"): "skips",
    ("awaiting_promotion", "skip"): "skips",
    ("awaiting_promotion", "pause"): "stays",
    ("promoting", "pause"): "stays",
    ("holding", "pause"): "stays",
    ("holding", "promote_full"): "passed",
    ("holding", "skip"): "passed",
}


@pytest.mark.parametrize(
    ("phase", "place", "command"), [(*place, command) for place in PLACES for command in COMMANDS]
)
def test_every_command_in_every_phase(
    now: SimpleNamespace, phase: str, place: Callable[[SimpleNamespace], Walk], command: str
) -> None:
    walk, silent = place(now), place(now)
    number = {"replicas": 5} if command in ("scale", "set_target") else {}
    place_named = {"place": "web3"} if command in OF_HOSTS else {}
    walk.say(command, why="a hunch", **number, **place_named)
    expected = {
        "abort": "aborted",
        "hold": "hold",
        "scale": "renumbers",
        "set_target": "renumbers",
    }.get(command) or COMES_TO.get((phase, command), "")
    why_not = refusal(Phase(phase), command, paused=bool(walk.rollout.paused))
    came_to = outcome(walk)
    assert came_to == (outcome(silent) if why_not or place_named else expected)
    if why_not:
        assert (walk.rollout.phase, walk.rollout.paused.keys()) == (
            silent.rollout.phase,
            silent.rollout.paused.keys(),
        )
    assert walk.record.obeyed == len(walk.said)
    met = bool(why_not) and phase != "rolling_back" and command in ("resume", "retry")
    told = {
        "kind": "word",
        "word": command,
        "by": "ann",
        "why": "a hunch",
        "refused": "" if met else why_not,
        "number": len(walk.said),
    } | number
    moving = phase == "progressing"
    told |= {"ineffective": "the rollout continues already" if moving else why_not} if met else {}
    told |= {"host": "web3"} if place_named else {}
    assert walk.rollout.excluded == (["web3"] if command == "exclude" else [])
    assert walk.kinds("word") == [*silent.kinds("word"), told]
    about = " to 5" if number else " web3" if place_named else ""
    assert f"{command}{about} sent by ann: a hunch" in "\n".join(walk.lines)


@pytest.mark.parametrize(("phase", "place"), PLACES)
def test_commands_for_another_rollout_are_passed_over(
    now: SimpleNamespace, phase: str, place: Callable[[SimpleNamespace], Walk]
) -> None:
    walk, silent = place(now), place(now)
    for command in COMMANDS:
        walk.say(command, rollout="r0", place="web3")
    assert outcome(walk) == outcome(silent)
    assert (walk.rollout.phase, walk.rollout.paused.keys()) == (
        silent.rollout.phase,
        silent.rollout.paused.keys(),
    )
    assert walk.record.obeyed == len(walk.said) and walk.kinds("word") == silent.kinds("word")


def test_a_command_is_obeyed_once_whoever_goes_on(now: SimpleNamespace) -> None:
    walk = at_a_pause(now)
    walk.say("promote")
    assert walk.turn() == "passed"
    walk.rollout.advance(["stage"], "next")
    walk.next_run(gates=(approval("the next"),))
    assert walk.turn() == "waits"
    assert len(walk.kinds("word")) == 1


def test_a_command_whose_record_was_not_written_is_obeyed_by_the_next_run(
    now: SimpleNamespace,
) -> None:
    walk = at_a_pause(now)
    before = walk.record.dump()
    walk.say("abort")
    with pytest.raises(RolloutFailed, match="abort sent by ann"):
        walk.turn()
    walk.record = Record.load("shop", json.loads(json.dumps(before)))
    walk.next_run()
    with pytest.raises(RolloutFailed, match="abort sent by ann"):
        walk.turn()


def test_a_rollout_gives_way_only_to_a_run_that_still_waits(now: SimpleNamespace) -> None:
    walk = at_a_pause(now)
    walk.say("give_way", until=clock.now())
    assert walk.turn() == "waits", "that run could not withdraw it"
    walk.say("give_way", until=clock.now() + 60)
    with pytest.raises(GaveWay, match="run this one again"):
        walk.turn()


def test_commands_are_looked_for_once_a_second(now: SimpleNamespace) -> None:
    walk = progressing(now)
    walk.say("pause")
    assert walk.turn(0.5, arrived=False) == "goes"
    assert walk.turn(0.5, arrived=False) == "stays"


@pytest.mark.parametrize("phase", ["progressing", "paused"])
@pytest.mark.parametrize("command", ["retry", "resume"])
def test_what_was_said_to_a_held_one_is_done_by_the_run_that_goes_on(
    now: SimpleNamespace, command: str, phase: str
) -> None:
    """Its begin makes it progressing; the command says nothing to the gates it comes to."""
    walk = Walk(now, approval())
    walk.say(command, phase="held")
    assert walk.turn() == "waits"
    assert [(taken["refused"], "ineffective" in taken) for taken in walk.kinds("word")] == [
        ("", False)
    ]


def test_a_resume_behind_a_promote_is_recorded_as_without_effect(now: SimpleNamespace) -> None:
    """Both are sent within two seconds at a pause."""
    walk = paused_at_a_pause(now)
    walk.say("promote")
    walk.say("resume")
    assert walk.turn() == "passed"
    assert [taken.get("ineffective") for taken in walk.kinds("word")[-2:]] == [
        None,
        "the rollout continues already",
    ]
    assert "resume sent by ann; without effect: the rollout continues already" in walk.lines


# Two commands at once: sent within a second, or while nobody ran it.

LASTING = ("pause", "resume", "promote")


def settled(walk: Walk) -> t.Any:
    gates = {key: record.state for key, record in walk.rollout.gates.items()}
    return walk.turn(arrived=False), bool(walk.rollout.paused), gates


@pytest.mark.parametrize("place", [progressing, paused])
@pytest.mark.parametrize(
    "said", list(itertools.product(LASTING, repeat=2)) + list(itertools.product(LASTING, repeat=3))
)
def test_commands_at_once_are_obeyed_as_commands_one_after_the_other(
    now: SimpleNamespace, place: Callable[[SimpleNamespace], Walk], said: Sequence[str]
) -> None:
    """As long as the walk is on its way: nothing but commands happens meanwhile."""
    once, slowly = place(now), place(now)
    for command in said:
        once.say(command)
        slowly.say(command)
        slowly.turn(arrived=False)
    once.turn(arrived=False)
    assert settled(once) == settled(slowly)
    assert [event["refused"] for event in once.kinds("word")] == [
        event["refused"] for event in slowly.kinds("word")
    ]


def test_the_last_command_counts(now: SimpleNamespace) -> None:
    walk = paused(now)
    walk.say("resume")
    walk.say("pause", why="no, wait")
    assert walk.turn(arrived=False) == "stays"
    assert walk.rollout.paused["why"] == "no, wait"


def test_resume_at_a_pause_and_pause_again_stays(now: SimpleNamespace) -> None:
    walk = at_a_pause(now)
    walk.say("resume")
    walk.say("pause")
    assert walk.turn() == "stays"


PAUSABLE = [place for phase, place in PLACES if phase not in ("rolling_back",)]
PROMOTING = ("promote", "promote_full", "skip")


@pytest.mark.parametrize("place", PAUSABLE)
def test_a_pause_holds_anywhere_until_resume_alone(
    now: SimpleNamespace, place: Callable[[SimpleNamespace], Walk]
) -> None:
    walk = place(now)
    at_gate = dict(walk.rollout.gates)
    walk.say("pause")
    assert [walk.turn(), walk.turn(60)] == ["stays", "stays"]
    hints = [hint for hint in walk.hints if hint.startswith("to ")][-3:]
    assert any(hint.endswith("run resume") for hint in hints)
    walk.next_run()
    walk.say("resume")
    if at_gate and walk.rollout.phase != "holding":
        assert walk.turn() == "waits" and not walk.rollout.paused
    else:
        assert walk.turn(arrived=False) == "goes" and not walk.rollout.paused


def test_a_pause_at_a_gate_names_what_each_command_does(now: SimpleNamespace) -> None:
    walk = at_a_pause(now)
    walk.say("pause")
    walk.turn()
    assert [hint for hint in walk.hints if hint.startswith("to ")][-3:] == [
        "to wait at approval as before: run resume",
        "to pass approval and continue: run promote",
        "to roll back: run abort",
    ]


@pytest.mark.parametrize("place", [at_a_pause, awaiting_promotion])
@pytest.mark.parametrize("seed", range(60))
def test_commands_other_than_promotion_pass_no_gate(
    now: SimpleNamespace, place: Callable[[SimpleNamespace], Walk], seed: int
) -> None:
    """Several senders, in any order, across runs, with a doubting background analysis, too."""
    dice = random.Random(seed)
    walk = place(now)
    if seed % 2:
        walk.background = (told("watch", says(Answer(PERSON, "looks worse"))),)
        walk.next_run()
    for _command in range(20):
        for _sender in range(dice.randint(1, 3)):
            walk.say(
                dice.choice(("pause", "resume", "pause", "resume", "retry")),
                by=dice.choice(("ann", "bob", "eve")),
            )
        assert walk.turn(dice.choice((0.3, 1.0, 60.0))) in ("stays", "waits")
        if dice.random() < 0.2:
            walk.next_run()
    assert all(record.state == "waiting" for record in walk.rollout.gates.values())
    assert all(record.state == "waiting" for record in walk.rollout.background.values())
    walk.say("resume")
    walk.say(dice.choice(PROMOTING))
    walk.turn()
    assert any(event["word"] in PROMOTING and not event["refused"] for event in walk.kinds("word"))


def test_a_hold_that_was_ended_before_it_was_read_is_not_obeyed(now: SimpleNamespace) -> None:
    """Otherwise the run would end held, and tell people to resume what is to be rolled back."""
    walk = progressing(now)
    walk.say("hold")
    walk.say("abort", rollout="r0")
    walk.say("abort")
    with pytest.raises(Aborted):
        walk.turn()
    walk = progressing(now)
    walk.say("hold")
    walk.say("resume")
    assert walk.turn(arrived=False) == "goes"
    assert [taken["refused"] for taken in walk.kinds("word")] == [
        "resume sent by ann after it",
        "",
    ]
    walk.say("hold")
    with pytest.raises(RolloutFailed):
        walk.turn()


@pytest.mark.parametrize("command", ["resume", "promote", "promote_full", "skip"])
def test_it_is_known_what_a_command_not_obeyed_yet_leads_to(
    now: SimpleNamespace, command: str
) -> None:
    """So that `control` takes a pause that follows on it."""
    assert refusal(commands.ahead(Phase.PAUSED, command, paused=True)[0], "pause") == ""
    assert refusal(commands.ahead(Phase.HOLDING, command, paused=True)[0], "abort") == ""


# -- gates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [at_a_pause, awaiting_promotion, holding])
def test_after_a_gate_it_walks_again(
    now: SimpleNamespace, place: Callable[[SimpleNamespace], Walk]
) -> None:
    walk = place(now)
    entered = walk.rollout.entered
    walk.say("skip" if place is holding else "promote")
    assert walk.turn() == "passed"
    assert walk.rollout.phase == ("promoting" if place is holding else "progressing")
    assert walk.rollout.entered > entered


@pytest.mark.parametrize("command", ["skip", "promote_full"])
def test_who_skips_a_wait_does_not_wait_any_more(now: SimpleNamespace, command: str) -> None:
    walk = awaiting_promotion(now)
    walk.say(command)
    assert walk.turn() == "skips"
    walk.rollout.advance(["stage"], "switch")
    walk.next_run(gates=(), part=PROMOTE)
    walk.turn(arrived=False)
    assert walk.rollout.phase == "progressing"


def test_the_clock_of_a_phase_begins_when_it_is_entered(now: SimpleNamespace) -> None:
    """Whoever looks at it, however often, and also in the next run."""
    walk = progressing(now)
    assert walk.turn(100) == "waits"
    entered, since = walk.rollout.entered, walk.rollout.gates["approval"].since
    assert entered == since == clock.now()
    walk.turn(50)
    walk.next_run()
    walk.turn(50)
    assert (walk.rollout.entered, walk.rollout.gates["approval"].since) == (entered, since)


@pytest.mark.parametrize(
    ("then", "came_to"),
    [("rollback", "rollback"), ("hold", "hold"), (None, "None"), ("promote", "passed")],
)
def test_nobody_comes(now: SimpleNamespace, then: str | None, came_to: str) -> None:
    walk = Walk(now, approval(timeout=10 * 60.0, on_timeout=then))
    walk.settings = replace(walk.settings, wait=2 * DAY)
    assert [walk.turn(), walk.turn(599)] == ["waits", "waits"]
    assert outcome(walk) == came_to
    assert walk.kinds("gate")[-1]["passed"] is (then == "promote")


def test_only_who_asks_for_it_waits_without_end(now: SimpleNamespace) -> None:
    walk = Walk(now, approval())
    walk.settings = replace(walk.settings, wait=40 * DAY)
    assert [walk.turn(), walk.turn(30 * DAY)] == ["waits", "waits"]


def test_the_timeline_says_why_gates_have_passed(now: SimpleNamespace) -> None:
    walk = Walk(now, approval(), told("checks", says(Answer(PASS, "1 % errors"))))
    walk.turn()
    walk.say("promote", by="ann")
    while walk.turn() == "waits":
        pass
    assert walk.kinds("gate") == [
        {
            "kind": "gate",
            "message": "approval: passed by ann; checks (test.gates.told): 1 % errors",
            "passed": True,
        }
    ]


def test_a_gate_that_fails_says_so_and_what_follows_is_not_its_to_say(now: SimpleNamespace) -> None:
    walk = Walk(now, told("checks", says(Answer(FAIL, "5 % errors"))))
    with pytest.raises(GateFailed, match=r"checks .*: 5 % errors") as failed:
        walk.turn()
    assert failed.value.then is None
    assert walk.kinds("gate") == [
        {"kind": "gate", "gate": "checks", "message": str(failed.value), "passed": False}
    ]


def test_gates_are_not_asked_on_the_way_there_nor_back(now: SimpleNamespace) -> None:
    walk = Walk(now, told("checks", says(AssertionError("asked"))))
    walk.turn(arrived=False)
    walk.rollout.phase = Phase.ROLLING_BACK
    assert walk.turn() == "passed"
    assert walk.rollout.gates == {}


def test_promote_lets_people_and_timers_pass_and_asks_the_hooks_all_the_same(
    now: SimpleNamespace,
) -> None:
    answers = iter([Answer(WAIT, "not yet"), Answer(PASS)])
    walk = Walk(now, approval(), told("hook", lambda: next(answers)), pause(60))
    assert walk.turn() == "waits"
    walk.say("promote")
    assert walk.turn() == "waits"
    assert walk.turn() == "passed"


def test_promote_full_asks_nobody_any_more_but_keeps_the_old_set_for_its_time(
    now: SimpleNamespace,
) -> None:
    walk = at_a_pause(now)
    walk.say("promote_full")
    assert walk.turn() == "skips"
    walk.rollout.advance(["stage"], "switch")
    walk.next_run(gates=(told("post_rollout 1", says(AssertionError("asked"))),), part=PROMOTE)
    assert walk.turn() == "passed"
    walk.rollout.phase = Phase.PROMOTING
    walk.rollout.advance(["stage"], "hold")
    walk.next_run(gates=(pause(30, "hold"),), part=FINISH, waiting=Phase.HOLDING)
    assert [walk.turn(), walk.turn(29), walk.turn()] == ["waits", "waits", "passed"]


def test_skip_leaves_one_stage_and_no_other(now: SimpleNamespace) -> None:
    walk = at_a_pause(now)
    walk.say("skip")
    assert walk.turn() == "skips"
    walk.rollout.advance(["stage"], "next")
    walk.next_run(gates=(approval("next"),))
    assert [walk.turn(), walk.rollout.full] == ["waits", False]


@pytest.mark.parametrize("command", ["skip", "promote_full"])
def test_the_last_stage_is_walked_whatever_is_said(now: SimpleNamespace, command: str) -> None:
    walk = Walk(now, approval("post_rollout 1"), part=PROMOTE)
    assert walk.turn(arrived=False) == "goes"
    walk.say(command)
    assert walk.turn(arrived=False) == "goes"
    assert walk.turn() == "passed"


def test_a_forced_promotion_is_recorded(now: SimpleNamespace) -> None:
    walk = progressing(now)
    walk.say("promote", force=True)
    assert walk.turn() == "passed"
    walk.next_run()
    assert walk.rollout.force


# -- staying ---------------------------------------------------------------------------------------


def test_who_paused_it_is_recorded_and_a_later_run_still_stays(now: SimpleNamespace) -> None:
    walk = progressing(now)
    walk.say("pause", why="looking into it")
    assert walk.turn(arrived=False) == "stays"
    assert (walk.rollout.paused["by"], walk.rollout.paused["why"]) == ("ann", "looking into it")
    assert "paused by ann: looking into it" in walk.lines
    walk.next_run()
    assert walk.turn(arrived=False) == "stays"
    walk.say("resume")
    assert walk.turn(arrived=False) == "goes"
    assert (walk.rollout.phase, walk.rollout.paused) == ("progressing", {})


def test_a_question_of_the_platform_holds_the_stage_until_it_is_answered(
    now: SimpleNamespace,
) -> None:
    walk = progressing(now)
    walk.question = "somebody else has changed it: change it back"
    assert walk.turn(arrived=False) == "stays"
    assert (walk.rollout.phase, walk.lines) == ("paused", [walk.question])
    assert [hint for hint in walk.hints if hint.startswith("to ")] == ["to roll back: run abort"]
    walk.say("resume")
    assert walk.turn(arrived=False) == "stays"
    with pytest.raises(Parked, match=r"change it back; the run ended .* Rerun when that is done"):
        walk.turn(3601)
    walk.question = ""
    assert walk.turn(arrived=False) == "goes"
    assert walk.rollout.phase == "progressing"


def test_a_question_of_the_platform_does_not_keep_a_rollback(now: SimpleNamespace) -> None:
    walk = progressing(now)
    walk.question = "somebody else has changed it"
    walk.say("abort")
    with pytest.raises(Aborted):
        walk.turn(arrived=False)
    walk.rollout.phase = Phase.ROLLING_BACK
    assert walk.turn(arrived=False) == "goes"


def test_gates_are_not_asked_while_it_is_paused(now: SimpleNamespace) -> None:
    walk = Walk(now, told("checks", says(AssertionError("asked"))))
    walk.say("pause")
    assert walk.turn() == "stays"


def test_a_freeze_begins_in_the_middle_of_a_stage_and_ends(now: SimpleNamespace) -> None:
    walk = Walk(now)
    walk.frozen((10, 600))
    assert walk.turn(9, arrived=False) == "goes"
    assert walk.turn(1, arrived=False) == "stays"
    assert (walk.rollout.phase, walk.lines) == ("paused", ["frozen: year end, for 9 min 50 s more"])
    assert walk.turn(589, arrived=False) == "stays"
    assert len(walk.kinds("wait")) == 1
    assert walk.turn(1, arrived=False) == "goes"
    assert walk.rollout.phase == "progressing"


def test_a_freeze_that_is_over_is_over_in_the_next_run(now: SimpleNamespace) -> None:
    walk = Walk(now)
    walk.frozen((0, 600))
    assert walk.turn() == "stays"
    walk.next_run()
    assert walk.turn(600, arrived=False) == "goes"
    assert walk.rollout.phase == "progressing"


def test_a_freeze_at_a_gate_comes_before_the_gate(now: SimpleNamespace) -> None:
    walk = awaiting_promotion(now)
    walk.frozen((10, 600))
    walk._supervisor = None
    walk.say("promote")
    walk.now.seconds += 20
    assert walk.turn() == "stays"
    assert walk.turn(600) == "passed"


@pytest.mark.parametrize("command", ["resume", "promote"])
def test_a_command_does_not_end_a_freeze_nor_open_gates_that_are_not_reached(
    now: SimpleNamespace, command: str
) -> None:
    walk = Walk(now, approval())
    walk.frozen((0, 60))
    assert walk.turn(arrived=False) == "stays"
    walk.say(command)
    assert walk.turn(arrived=False) == "stays"
    assert walk.turn(60) == "waits"


def test_a_freeze_stops_neither_a_way_back_nor_a_rollback_nor_the_end(now: SimpleNamespace) -> None:
    back = rolling_back(now)
    back.frozen((0, DAY))
    back._supervisor = None
    assert back.turn(arrived=False) == "goes"
    by_hand = Walk(now)
    by_hand.rollout.kind = RolloutKind.ROLLBACK
    by_hand.frozen((0, DAY))
    assert by_hand.turn(arrived=False) == "goes"
    end = Walk(now, part=FINISH)
    end.rollout.phase = Phase.PROMOTING
    end.frozen((0, DAY))
    assert end.turn(arrived=False) == "goes"
    assert Walk(now).turn() == "passed"


def test_abort_is_obeyed_in_a_freeze(now: SimpleNamespace) -> None:
    walk = Walk(now)
    walk.frozen((0, DAY))
    walk.settings = replace(walk.settings, wait=2 * DAY)
    assert walk.turn() == "stays"
    walk.say("abort")
    assert outcome(walk) == "aborted"


def test_the_reason_of_a_rollback_is_kept(now: SimpleNamespace) -> None:
    walk = Walk(now)
    walk.rollout.kind, walk.rollout.reason = RolloutKind.ROLLBACK, "rolled back from 2"
    walk.say("pause")
    assert walk.turn() == "stays"
    walk.say("resume")
    assert walk.turn() == "passed"
    assert (walk.rollout.phase, walk.rollout.reason) == ("progressing", "rolled back from 2")


# -- parking ---------------------------------------------------------------------------------------


def parks(walk: Walk, after: float) -> None:
    """Not a second sooner."""
    assert walk.turn(after - 1) in ("stays", "waits")
    with pytest.raises(
        Parked,
        match=(
            r"shop 2: .*; the run ended while waiting \(parked\)\. (Continue with"
            r" resume.yml|Continue with promote.yml|Rerun when the freeze is over)"
        ),
    ):
        walk.turn()


@pytest.mark.parametrize("place", [at_a_pause, awaiting_promotion, paused])
def test_a_run_waits_for_a_person_for_so_long(
    now: SimpleNamespace, place: Callable[[SimpleNamespace], Walk]
) -> None:
    parks(place(now), HOUR)


def test_every_run_waits_anew(now: SimpleNamespace) -> None:
    walk = at_a_pause(now)
    parks(walk, HOUR)
    walk.next_run()
    assert walk.turn() == "waits"
    parks(walk, HOUR)


def test_who_need_not_wait_parks_at_once(now: SimpleNamespace) -> None:
    walk = Walk(now, approval())
    walk.settings = replace(walk.settings, wait=0.0)
    with pytest.raises(Parked):
        walk.turn()
    assert walk.rollout.phase == "paused" and walk.rollout.gates["approval"].state == "waiting"


def test_a_command_that_is_said_begins_the_wait_anew(now: SimpleNamespace) -> None:
    walk = awaiting_promotion(now)
    walk.turn(HOUR - 10)
    walk.say("pause")
    walk.say("resume")
    assert walk.turn() == "waits"
    parks(walk, HOUR)


def test_nobody_parks_for_timers_and_hooks(now: SimpleNamespace) -> None:
    timer = Walk(now, pause(DAY))
    assert [timer.turn(), timer.turn(DAY - 1)] == ["waits", "waits"]
    hook = Walk(now, told("hook", says(Answer(WAIT))), approval())
    assert [hook.turn(), hook.turn(DAY)] == ["waits", "waits"]
    assert [holding(now).turn(10)] == ["waits"]


def test_the_time_at_a_hook_is_no_time_for_the_person_after_it(now: SimpleNamespace) -> None:
    answers = iter([Answer(WAIT), Answer(WAIT), Answer(PASS)])
    walk = Walk(now, told("hook", lambda: next(answers)), approval())
    assert [walk.turn(), walk.turn(2 * HOUR), walk.turn()] == ["waits", "waits", "waits"]
    parks(walk, HOUR)


def test_a_timer_is_no_person_but_who_paused_it_is(now: SimpleNamespace) -> None:
    walk = Walk(now, pause(DAY, "promotion delay"), waiting=Phase.AWAITING_PROMOTION)
    assert walk.turn() == "waits"
    walk.say("pause")
    assert walk.turn() == "stays"
    parks(walk, HOUR)


def test_nobody_parks_while_something_is_to_be_done(now: SimpleNamespace) -> None:
    walk = paused(now)
    assert walk.turn(2 * HOUR, arrived=False) == "stays"
    with pytest.raises(Parked):
        walk.turn(arrived=True)


def test_a_short_freeze_is_waited_for_and_a_long_one_is_not(now: SimpleNamespace) -> None:
    short = Walk(now)
    short.frozen((0, HOUR))
    assert [short.turn(), short.turn(HOUR - 2), short.turn(1)] == ["stays", "stays", "passed"]
    long = Walk(now)
    long.frozen((0, HOUR + 10))
    assert long.turn(arrived=False) == "stays"
    with pytest.raises(
        Parked, match=r"frozen: year end, for 60 min .* more; the run ended while waiting"
    ):
        long.turn(2)


def test_after_a_long_freeze_a_person_is_waited_for_as_ever(now: SimpleNamespace) -> None:
    walk = Walk(now, approval())
    walk.frozen((0, HOUR + 10))
    assert walk.turn(arrived=False) == "stays"
    assert walk.turn(HOUR + 10) == "waits"
    parks(walk, HOUR)


# -- hooks that pull the cord ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "place", [progressing, at_a_pause, paused, awaiting_promotion, promoting, holding]
)
def test_a_hook_that_passes_pulls_the_cord(
    now: SimpleNamespace, place: Callable[[SimpleNamespace], Walk]
) -> None:
    walk = place(now)
    answers = iter([Answer(WAIT), Answer(PASS, "the queue grows")])
    walk.rollback_gates = (told("rollback 1", lambda: next(answers)),)
    walk.next_run()
    walk.turn(arrived=False)
    with pytest.raises(RolloutFailed, match="rollback 1") as pulled:
        walk.turn(arrived=False)
    assert pulled.value.then == "rollback" and not isinstance(pulled.value, Aborted)


@pytest.mark.parametrize(
    "answer",
    [Answer(FAIL, "all is well"), GateError("no route"), ValueError("a bug"), Answer(WAIT)],
)
@pytest.mark.parametrize("on_error", ["fail", "ignore"])
def test_anything_else_is_no_reason_to_go_back(
    now: SimpleNamespace, answer: Answer | Exception, on_error: str
) -> None:
    walk = Walk(now)
    walk.rollback_gates = (told("rollback 1", says(answer), on_error=on_error),)
    assert [walk.turn(10, arrived=False) for _dummy in range(5)] == ["goes"] * 5
    assert walk.rollout.gates == {}


@pytest.mark.parametrize("then", ["promote", "rollback", "hold", None])
def test_a_hook_that_never_answers_is_no_reason_to_go_back(
    now: SimpleNamespace, then: str | None
) -> None:
    walk = Walk(now)
    walk.rollback_gates = (told("rollback 1", says(Answer(WAIT)), timeout=60.0, on_timeout=then),)
    assert [walk.turn(50, arrived=False) for _dummy in range(5)] == ["goes"] * 5


def test_a_hook_that_said_no_is_asked_again_after_its_interval(now: SimpleNamespace) -> None:
    asked: list[float] = []

    def script() -> Answer:
        asked.append(walk.now.seconds)
        return Answer(PASS if len(asked) == 3 else FAIL)

    walk = Walk(now)
    walk.rollback_gates = (told("rollback 1", script, interval=30.0),)
    with pytest.raises(RolloutFailed):
        for _dummy in range(100):
            walk.turn(arrived=False)
    assert asked == [1.0, 31.0, 61.0]


def test_nobody_pulls_the_cord_of_a_way_back_or_a_rollback(now: SimpleNamespace) -> None:
    """There is never a rollback of a rollback."""
    back, by_hand = rolling_back(now), Walk(now)
    by_hand.rollout.kind = RolloutKind.ROLLBACK
    for walk in (back, by_hand):
        walk.rollback_gates = (told("rollback 1", says(Answer(PASS))),)
        walk.next_run()
        assert walk.turn(arrived=False) == "goes"


def test_an_operator_is_heard_before_a_hook(now: SimpleNamespace) -> None:
    walk = Walk(now)
    walk.rollback_gates = (told("rollback 1", says(Answer(PASS))),)
    walk.say("abort")
    assert outcome(walk) == "aborted"


# -- gates that are asked all along ----------------------------------------------------------------


def watched(
    now: SimpleNamespace, *answers: Answer, gates: tuple[Gate, ...] = (), **stage: t.Any
) -> Walk:
    """A walk whose background gate gives these answers, one a turn, and the last of them for
    ever.
    """
    left = list(answers)
    walk = Walk(now, *gates, **{"watched": True, **stage})
    walk.background = (told("analysis", lambda: left.pop(0) if len(left) > 1 else left[0]),)
    return walk


WAITS = Answer(WAIT, "errors 0 of 900")
WORSE = Answer(FAIL, "errors 12 of 900")
DOUBT = Answer(PERSON, "needs 40 more requests")
DOUBTFUL = "waiting for an operator at analysis (test.gates.told): needs 40 more requests"


@pytest.mark.parametrize("arrived", [False, True])
def test_who_is_watched_fails_on_the_way_and_at_a_gate(now: SimpleNamespace, arrived: bool) -> None:
    walk = watched(now, WAITS, WORSE, gates=(approval(),))
    assert walk.turn(arrived=arrived) == ("waits" if arrived else "goes")
    with pytest.raises(RolloutFailed, match=r"analysis .*: errors 12 of 900") as failed:
        walk.turn(arrived=arrived)
    assert failed.value.then is None  # what follows is not its to say
    assert walk.kinds("gate") == [
        {"kind": "gate", "gate": "analysis", "message": str(failed.value), "passed": False}
    ]


@pytest.mark.parametrize(("of_stage", "of_all"), [("continue", "rollback"), (None, "continue")])
def test_a_failure_that_does_not_matter_is_told_once(
    now: SimpleNamespace, of_stage: str | None, of_all: str
) -> None:
    walk = watched(now, WORSE, on_failure=of_stage)
    walk.settings = replace(walk.settings, on_failure=of_all)
    assert [walk.turn(arrived=False) for _dummy in range(3)] == ["goes"] * 3
    walk.next_run(on_failure=None)
    assert walk.turn() == "passed"
    assert len(walk.kinds("gate")) == 1 and not walk.rollout.waiting


@pytest.mark.parametrize(
    ("of_stage", "of_all"), [("rollback", "continue"), ("hold", "continue"), (None, "hold")]
)
def test_the_stage_says_what_a_failure_comes_to(
    now: SimpleNamespace, of_stage: str | None, of_all: str
) -> None:
    walk = watched(now, WORSE, on_failure=of_stage)
    walk.settings = replace(walk.settings, on_failure=of_all)
    with pytest.raises(RolloutFailed):
        walk.turn(arrived=False)


def doubtful(now: SimpleNamespace) -> Walk:
    walk = watched(now, DOUBT, WORSE, gates=(approval(),))
    assert walk.turn(arrived=False) == "stays"
    return walk


def test_a_doubt_keeps_the_fleet_and_waits_for_a_person(now: SimpleNamespace) -> None:
    walk = doubtful(now)
    assert [walk.turn(100) for _dummy in range(3)] == ["stays"] * 3  # and is not asked again
    assert walk.rollout.phase == "paused"
    assert walk.rollout.waiting == ["analysis: needs 40 more requests"]
    assert walk.lines == [DOUBTFUL] and len(walk.kinds("wait")) == 1
    with pytest.raises(
        Parked,
        match=(
            r"for an operator at .*: needs 40 more requests; .* \(parked\). Continue with promote.yml"
        ),
    ):
        walk.turn(HOUR)
    walk.next_run()
    assert walk.turn(arrived=False) == "stays"  # and who goes on waits as well
    assert walk.rollout.waiting == ["analysis: needs 40 more requests"]


def test_a_doubt_does_not_keep_a_standby_set(now: SimpleNamespace) -> None:
    walk = watched(now, DOUBT, part=FINISH, waiting=Phase.HOLDING, waypoint=SWITCHED)
    walk.rollout.phase = Phase.PROMOTING
    assert walk.turn(arrived=False) == "goes"


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    ("command", "came_to"),
    [
        ("promote", "passed"),
        ("promote_full", "skips"),
        ("skip", "skips"),
        ("abort", "aborted"),
        ("hold", "hold"),
    ],
)
def test_a_command_ends_a_doubt(
    now: SimpleNamespace, command: str, came_to: str, again: bool
) -> None:
    """Said to this run, or while nobody ran it."""
    walk = doubtful(now)
    if again:
        walk.next_run()
    walk.say(command)
    assert outcome(walk) == came_to
    assert walk.kinds("word")[-1]["refused"] == ""
    if came_to in ("passed", "skips"):
        assert replace(walk.rollout.background["analysis"], since=0) == GateRecord(
            0, GateState.PASSED, "passed by ann", "ann", person=True
        )
        assert "analysis: needs 40 more requests" not in walk.rollout.waiting
        walk.next_run()
        assert outcome(walk) in ("waits", "passed")  # it is not asked any more


def test_a_pause_in_a_doubt_and_its_end_leave_the_doubt(now: SimpleNamespace) -> None:
    """Only a command of promotion passes an analysis that a person has to decide."""
    walk = doubtful(now)
    walk.say("resume")
    assert walk.turn(arrived=False) == "stays" and walk.kinds("word")[-1]["ineffective"]
    walk.say("pause")
    assert walk.turn(arrived=False) == "stays" and not walk.kinds("word")[-1]["refused"]
    walk.say("resume")
    assert walk.turn(arrived=False) == "stays" and not walk.kinds("word")[-1]["refused"]
    assert (walk.rollout.paused, walk.lines[-1]) == ({}, DOUBTFUL)
    walk = watched(now, WAITS, DOUBT)
    walk.say("pause")
    # it is watched while it is paused
    assert [walk.turn(arrived=False) for _dummy in range(2)] == ["stays"] * 2
    assert walk.rollout.waiting
    walk.say("promote")  # ends both
    assert walk.turn(arrived=False) == "goes"


def test_who_is_paused_or_frozen_is_still_watched(now: SimpleNamespace) -> None:
    walk = watched(now, WAITS, WAITS, WORSE)
    walk.frozen((0, HOUR))
    assert [walk.turn(), walk.turn()] == ["stays", "stays"]
    with pytest.raises(RolloutFailed, match="errors 12 of 900"):
        walk.turn()


def test_a_doubt_in_a_freeze_waits_for_a_person_and_then_for_its_end(now: SimpleNamespace) -> None:
    walk = watched(now, DOUBT)
    walk.frozen((0, HOUR))
    assert walk.turn(arrived=False) == "stays"
    walk.say("promote")
    assert walk.turn(arrived=False) == "stays" and "frozen" in walk.lines[-1]
    assert walk.turn(HOUR, arrived=False) == "goes"


def test_who_is_not_watched_is_not_asked(now: SimpleNamespace) -> None:
    """Before the first step it is asked at, on the way back, in a rollback, and once everything
    was said to go on.
    """
    early, back, by_hand, full = (
        watched(now, WORSE, watched=False),
        *(watched(now, WORSE) for _dummy in range(3)),
    )
    back.rollout.phase = Phase.ROLLING_BACK
    by_hand.rollout.kind = RolloutKind.ROLLBACK
    full.rollout.full = True
    for walk in (early, back, by_hand, full):
        assert walk.turn() == "passed"
        assert walk.rollout.background == {}


def test_it_begins_once_the_new_ones_have_requests(now: SimpleNamespace) -> None:
    walk = watched(now, WORSE)
    walk.described = {"share": {"set": 0.0}}
    assert [walk.turn(100, arrived=False) for _dummy in range(3)] == ["goes"] * 3
    walk.described = {"share": {"set": 2.5}}
    with pytest.raises(RolloutFailed):
        walk.turn(arrived=False)
    assert walk.rollout.background["analysis"].since == clock.now()


def test_who_was_watched_before_the_balancers_lost_the_new_ones_still_is(
    now: SimpleNamespace,
) -> None:
    walk = watched(now, WAITS, WORSE)
    walk.turn(arrived=False)
    walk.described = {"share": {"set": 0.0}}
    with pytest.raises(RolloutFailed):
        walk.turn(arrived=False)


def test_what_was_measured_is_written_down(now: SimpleNamespace) -> None:
    """At once, not with the next lease: a run that is killed costs one measurement."""
    walk = watched(now, Answer(WAIT, "so far", memory={"count": 1}))
    walk.turn(arrived=False)
    assert walk.supervisor.session.changed and walk.rollout.background["analysis"].memory == {
        "count": 1
    }
    at_gate = Walk(now, told("analysis", says(Answer(WAIT, "so far", memory={"count": 2}))))
    at_gate.turn()
    assert at_gate.supervisor.session.changed


def test_a_verdict_is_an_event_with_its_samples(
    now: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = Answer(PASS, "errors 1 of 900", samples={"errors": [{"at": 1.0}]})
    walk = Walk(now, told("step 2 analysis", says(answer)))
    monkeypatch.setattr(supervisor, "ANALYSIS", "test.gates.told")
    assert walk.turn() == "passed"
    event = {
        "gate": "step 2 analysis",
        "verdict": "pass",
        "message": "errors 1 of 900",
        "samples": {"errors": [{"at": 1.0}]},
    }
    assert walk.kinds("verdict") == [{"kind": "verdict", **event}]
    assert walk.lines == ["step 2 analysis: errors 1 of 900"]


@pytest.mark.parametrize("by_default", [False, True])
def test_results_that_were_judged_are_an_event(now: SimpleNamespace, by_default: bool) -> None:
    looked = {"settings": {"alpha": 0.02}, "results": {"errors": "eJw="}}
    answer = Answer(PASS, "errors 1 of 900", looked=looked)
    walk = Walk(now, told("step 2 analysis", says(answer), by_default=by_default))
    assert walk.turn() == "passed"
    default = {"by_default": True} if by_default else {}
    assert walk.kinds("look") == [{"kind": "look", "gate": "step 2 analysis", **default, **looked}]


def test_a_gate_that_leaves_it_to_a_person_parks_the_run(now: SimpleNamespace) -> None:
    walk = Walk(now, told("analysis", says(DOUBT)))
    assert walk.turn() == "waits" and walk.lines == [DOUBTFUL]
    parks(walk, HOUR)
    walk.next_run()
    assert walk.turn() == "waits"
    walk.say("promote")
    assert walk.turn() == "passed"


def test_whatever_it_ends_with_is_an_error_of_ours(now: SimpleNamespace) -> None:
    for command in ("abort", "hold"):
        walk = rolling_back(now) if command == "hold" else progressing(now)
        walk.say(command)
        with pytest.raises(RolloutError):
            walk.turn()


# -- what people read while it waits ---------------------------------------------------------------


def test_a_wait_for_a_person_says_until_when_and_how_to_end_it(now: SimpleNamespace) -> None:
    walk = Walk(now, approval())
    walk.turn()
    assert walk.hints == [
        f"this run waits until {moment(clock.now() + HOUR)} (rollout_wait)",
        "to continue: run promote",
        "to roll back: run abort",
    ]


def test_a_wait_that_ends_by_itself_has_no_end_of_the_run(now: SimpleNamespace) -> None:
    walk = Walk(now, pause(HOUR))
    walk.turn()
    assert walk.hints == [], "it may be short"
    walk.turn(5)
    walk.turn()
    assert walk.hints == ["to continue: run promote", "to roll back: run abort"]


def test_commands_are_named_only_where_a_person_may_end_the_wait(now: SimpleNamespace) -> None:
    """A promotion passes no analysis: it is waited for, and the commands would do nothing."""
    walk = Walk(now, told("checks", says(WAITS)))
    for _turn in range(20):
        walk.turn(2)
    assert len(walk.lines) == 1 and walk.lines[0].startswith("waiting at checks (test.gates.told)")
    assert [line for line in walk.hints if line.startswith("to ")] == []


def test_an_analysis_measures_and_hosts_are_prepared(
    now: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Told, "waiting", analysis.Driver.waiting)
    monkeypatch.setattr(Told, "unanswered", analysis.Driver.unanswered)
    walk = Walk(now, told("step 2 analysis", says(Answer(WAIT, ""))))
    walk.turn()
    assert walk.lines == ["measuring for step 2 analysis: no measurement yet"]
    monkeypatch.setattr(Told, "waiting", prepare.Driver.waiting)
    monkeypatch.setattr(Told, "unanswered", prepare.Driver.unanswered)
    walk = Walk(now, told("prepare", says(Answer(WAIT, ""))))
    walk.turn()
    assert walk.lines == ["preparing the hosts: no answer yet"]


def test_the_old_instances_that_are_kept_warm_are_stopped_by_skip(now: SimpleNamespace) -> None:
    walk = holding(now)
    walk.turn()
    walk.turn(5)
    walk.turn()
    assert walk.hints[-2:] == [
        "to stop the old instances now: run skip",
        "to roll back: run abort",
    ]
    for line in walk.hints[-2:]:
        assert not commands.refusal(Phase.HOLDING, line.split()[-1])


def test_a_paused_rollout_is_resumed(now: SimpleNamespace) -> None:
    walk = Walk(now)
    walk.say("pause")
    walk.turn()
    assert walk.hints[1:] == ["to continue: run resume", "to roll back: run abort"]


def test_no_command_ends_a_freeze(now: SimpleNamespace) -> None:
    walk = Walk(now)
    walk.frozen((0, 600))
    walk.turn()
    assert walk.hints[1:] == ["to roll back: run abort"]


def test_a_silent_wait_has_a_heartbeat_each_minute(now: SimpleNamespace) -> None:
    walk = Walk(now, approval())
    for _turn in range(130):
        walk.turn(1)
    beats = [line.rpartition("(")[2] for line in walk.hints if "(waiting for " in line]
    assert beats == ["waiting for 60 s)", "waiting for 2 min 00 s)"]


# -- the last old instances ------------------------------------------------------------------------

LOOKS_WORSE = Answer(WAIT, "errors 4 of 240", doubt="errors 4 of 240 against 0 of 240")


def test_the_last_old_instances_stay_while_the_new_side_looks_worse_and_not_for_long(
    now: SimpleNamespace,
) -> None:
    walk = watched(now, WAITS, LOOKS_WORSE)
    walk.turn(arrived=False)
    assert not walk.supervisor.awaits_verdict() and not walk.lines
    walk.turn(arrived=False)
    assert walk.supervisor.awaits_verdict() and walk.supervisor.awaits_verdict()
    (line,) = walk.lines
    assert line.startswith("errors 4 of 240 against 0 of 240") and "15 s" in line
    assert [event["person"] for event in walk.kinds("wait")] == [False]
    walk.turn(after=14.9, arrived=False)
    assert walk.supervisor.awaits_verdict()
    walk.turn(after=0.2, arrived=False)
    assert not walk.supervisor.awaits_verdict()


def test_they_stay_no_longer_once_the_new_side_looks_good_or_a_person_promotes(
    now: SimpleNamespace,
) -> None:
    walk = watched(now, LOOKS_WORSE, WAITS)
    walk.turn(arrived=False)
    assert walk.supervisor.awaits_verdict()
    walk.turn(arrived=False)
    assert not walk.supervisor.awaits_verdict()
    walk = watched(now, LOOKS_WORSE)
    walk.turn(arrived=False)
    walk.rollout.full = True
    assert not walk.supervisor.awaits_verdict()
