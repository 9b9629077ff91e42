# SPDX-License-Identifier: GPL-3.0-or-later
"""The keeper of a stage's gates: its clock, what it keeps, and who decides. With a clock of the
test's own.
"""

from __future__ import annotations

import queue
import sys
import threading
import typing as t
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    GateError,
    InputError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.gate_runner import (
    GateResult,
    GateRunner,
    GateStatus,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Gate
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
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
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import (
    GateRecord,
    GateState,
)

DAY = 86400.0
ROLLOUT = {"id": "r1", "service": "shop", "revision": "2.4.1"}
CONTEXT = DriverContext("shop", t.cast(t.Any, None))
Outcome = Answer | BaseException
Kept = dict[str, GateRecord]


@dataclass
class Question:
    """What a driver was asked; it waits for its answer from the test."""

    rollout: Mapping[str, t.Any]
    waited: float
    outcomes: queue.SimpleQueue[Outcome] = field(default_factory=queue.SimpleQueue)


class Scripted(GateDriver):
    """A driver that says what the test says, when the test does; until then a question hangs."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        if options.get("colour", "blue") != "blue":
            raise InputError("gate.colour: must be blue")

    def restore(self, memory: Mapping[str, t.Any]) -> None:
        recalled.append(memory)

    def cancel(self) -> None:
        ended.append("cancel")

    def close(self) -> None:
        ended.append("close")

    def ask(self, rollout: Mapping[str, t.Any], waited: float) -> Answer:
        question = Question(rollout, waited)
        asked.put(question)
        outcome = question.outcomes.get()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


class Thread(threading.Thread):
    """One that is counted."""

    def start(self) -> None:
        started.append(self)
        super().start()


asked: queue.SimpleQueue[Question] = queue.SimpleQueue()
started: list[threading.Thread] = []
heard: list[Question] = []
recalled: list[Mapping[str, t.Any]] = []
ended: list[str] = []


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The driver is found by its name, as one of another collection is; no question outlives its
    test.
    """
    name = "ansible_collections.test.gates.plugins.plugin_utils.gates.scripted"
    for count in range(5):
        monkeypatch.setitem(sys.modules, name.rsplit(".", count)[0], ModuleType(name))
    monkeypatch.setattr(sys.modules[name], "Driver", Scripted, raising=False)
    monkeypatch.setattr(sys.modules[name], "OPTIONS", Options(), raising=False)
    monkeypatch.setattr(threading, "Thread", Thread)
    yield
    for question in questions():
        question.outcomes.put(Answer(WAIT))
    for thread in started:
        thread.join(20)
    for one in (started, heard, recalled, ended):
        t.cast("list[t.Any]", one).clear()


def questions() -> list[Question]:
    """All that were asked in this test."""
    while len(heard) < len(started):
        heard.append(asked.get(timeout=20))
    return heard


class Stage:
    """A keeper and its clock."""

    def __init__(self, *gates: Gate, kept: Kept | None = None, now: float = 1000.0) -> None:
        self.now = now
        self.kept: Kept = {} if kept is None else kept
        self.woken = threading.Semaphore(0)
        self.keeper = GateRunner(gates, CONTEXT, self.kept, lambda: self.now, self.woken.release)

    def poll(self, after: float = 0.0) -> GateStatus:
        self.now += after
        return self.keeper.poll(lambda: ROLLOUT)

    def last(self) -> Question:
        """The question asked last."""
        return questions()[-1]

    def answer(self, outcome: Outcome, question: Question | None = None) -> GateStatus:
        """How it stands once the question (that asked last) is answered."""
        (question or self.last()).outcomes.put(outcome)
        assert self.woken.acquire(timeout=20)
        return self.poll()


def ask(key: str, **settings: t.Any) -> Gate:
    return Gate(key, "test.gates.scripted", **settings)


def approval(key: str = "approval", **settings: t.Any) -> Gate:
    return Gate(key, "approval", {}, **settings)


def pause(duration: str, key: str = "pause", **settings: t.Any) -> Gate:
    return Gate(key, "pause", {"duration": values.duration(duration, "duration")}, **settings)


# Its clock
# --------------------------------------------------------------------------------------------------


def test_a_stage_without_gates_has_passed() -> None:
    assert Stage().poll() == GateStatus(True, None, None, "", False)


def test_the_clock_begins_at_the_first_look() -> None:
    stage = Stage(approval())
    first = stage.poll()
    assert stage.kept == {"approval": GateRecord(1000.0)}
    assert (first.passed, first.failed, first.changed) == (False, None, True)
    assert first.message == "waiting at approval: for promote"
    assert not stage.poll(5).changed
    assert stage.kept["approval"].since == 1000.0


def test_a_run_that_goes_on_does_not_begin_anew() -> None:
    before = Stage(pause("10m"))
    before.poll()
    after = Stage(pause("10m"), kept=before.kept, now=1599.0)
    standing = after.poll()
    assert standing.message == "waiting at pause: 1 s left" and not standing.changed
    assert after.poll(1).passed


def test_a_clock_that_was_set_back_takes_no_wait_away() -> None:
    stage = Stage(pause("10s"), kept={"pause": GateRecord(5000.0)})
    assert stage.poll().message.endswith("10 s left")


def test_a_pause_is_exact_whatever_its_interval() -> None:
    stage = Stage(pause("10s", interval=60.0))
    said = [stage.poll(1 if second else 0) for second in range(11)]
    assert [one.passed for one in said] == [False] * 10 + [True]
    assert said[3].message == "waiting at pause: 7 s left"
    # not a commit a second
    assert [number for number, one in enumerate(said) if one.changed] == [0, 10]


def test_one_after_the_other() -> None:
    stage = Stage(pause("10s", "first"), pause("10s", "second"), approval())
    stage.poll()
    assert list(stage.kept) == ["first"]
    assert stage.poll(10).message == "waiting at second (pause): 10 s left"
    assert stage.kept["second"].since == 1010.0
    assert "approval" in stage.poll(10).message
    assert stage.kept["approval"].since == 1020.0


# Questions
# --------------------------------------------------------------------------------------------------


def test_looking_never_blocks_and_one_question_is_enough() -> None:
    stage = Stage(ask("hook"))
    assert stage.poll().message == "waiting at hook (test.gates.scripted): no answer yet"
    for _turn in range(5):
        assert not stage.poll(100).passed
    assert len(started) == 1
    assert stage.answer(Answer(PASS, "all is well")).passed
    assert stage.kept["hook"] == GateRecord(1000.0, GateState.PASSED, "all is well", "answer")


def test_the_next_question_comes_an_interval_after_the_last_answer() -> None:
    stage = Stage(ask("hook", interval=30.0))
    stage.poll()
    assert (stage.last().rollout, stage.last().waited) == (ROLLOUT, 0.0)
    stage.now += 100  # it takes its time
    waits = stage.answer(Answer(WAIT, "tests run"))
    assert waits.message == "waiting at hook (test.gates.scripted): tests run" and waits.changed
    stage.poll(29.5)
    assert len(started) == 1
    assert stage.poll(0.5).message.endswith("tests run")
    assert len(started) == 2 and stage.last().waited == 130.0
    assert not stage.answer(Answer(WAIT, "tests run")).changed  # it said nothing new


def test_what_is_asked_about_is_not_changed_under_the_question() -> None:
    stage = Stage(ask("hook"))
    rollout: dict[str, t.Any] = {"fleet": {"1": 3}}
    stage.keeper.poll(lambda: rollout)
    rollout["fleet"]["1"] = 4
    assert stage.last().rollout == {"fleet": {"1": 3}}


def test_a_no_fails_the_stage() -> None:
    gate = ask("hook", on_timeout="promote", on_error="ignore")
    stage = Stage(gate, approval())
    stage.poll()
    verdict = GateResult(gate, FAIL, "500: no", {})
    expected = GateStatus(
        False,
        gate,
        None,
        "hook (test.gates.scripted): 500: no",
        True,
        verdicts=(verdict,),
        id="PR-402",
    )
    assert stage.answer(Answer(FAIL, "500: no")) == expected
    assert "approval" not in stage.kept


def test_a_result_is_asked_for_once_and_goes_with_its_stage() -> None:
    stage = Stage(ask("hook"))
    stage.poll()
    assert stage.answer(Answer(FAIL, "no")).failed
    assert stage.poll(1000).failed
    again = Stage(ask("hook"), kept=stage.kept)  # a run that goes on
    assert again.poll() == GateStatus(
        False, ask("hook"), None, "hook (test.gates.scripted): no", False, id="PR-402"
    )
    assert len(started) == 1
    stage.kept.clear()  # as when a stage is left
    following = Stage(ask("hook"), kept=stage.kept)
    assert following.poll().failed is None and len(started) == 2
    assert following.answer(Answer(PASS)).passed


def test_an_answer_to_what_was_asked_before_is_not_taken_in() -> None:
    stage = Stage(ask("hook"))
    stage.poll()
    before = stage.last()
    stage.kept.clear()  # the stage is walked anew while a question hangs
    stage.poll(1)
    now = stage.last()
    assert now is not before
    assert stage.answer(Answer(FAIL, "of before"), before).failed is None
    assert stage.answer(Answer(PASS, "of now"), now).passed


def test_after_the_end_nothing_is_asked_and_nobody_is_woken() -> None:
    stage = Stage(ask("hook"))
    stage.poll()
    assert started[0].daemon  # the process may end while it hangs
    question = stage.last()
    stage.keeper.close()
    question.outcomes.put(Answer(PASS))
    started[0].join(20)
    assert not stage.poll(1000).passed
    assert len(started) == 1 and not stage.woken.acquire(blocking=False)


# Time-outs
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on_timeout", "then"), [(None, None), ("rollback", "rollback"), ("hold", "hold")]
)
def test_a_bounded_wait_ends(on_timeout: str | None, then: str | None) -> None:
    gate = approval(timeout=600.0, on_timeout=on_timeout)
    stage = Stage(gate)
    stage.poll()
    assert not stage.poll(599.9).failed
    standing = stage.poll(0.1)
    message = "approval: not passed within 10 min 00 s (for promote)"
    assert standing == GateStatus(False, gate, then, message, True, id="PR-401")
    # Also for a run that goes on afterwards.
    assert Stage(gate, kept=stage.kept).poll() == GateStatus(
        False, gate, then, message, False, id="PR-401"
    )


def test_a_wait_without_bounds_has_none() -> None:
    stage = Stage(approval())
    stage.poll()
    assert stage.poll(30 * DAY).message == "waiting at approval: for promote"


def test_a_timeout_may_promote() -> None:
    stage = Stage(approval(timeout=60.0, on_timeout="promote"))
    stage.poll()
    assert stage.poll(60).passed
    assert (
        stage.kept["approval"].message
        == "not passed within 60 s (for promote), promoted anyway (on_timeout: promote)"
    )
    assert stage.kept["approval"].by == "timeout"


def test_a_question_that_hangs_is_bounded_by_the_timeout() -> None:
    stage = Stage(ask("hook", timeout=60.0, on_timeout="hold"))
    stage.poll()
    standing = stage.poll(60)
    assert standing.then == "hold" and standing.message.endswith(
        "not passed within 60 s (no answer yet)"
    )
    late = stage.answer(Answer(PASS))
    assert late.failed and not late.changed


def test_an_answer_that_has_come_goes_before_the_timeout() -> None:
    stage = Stage(ask("hook", timeout=60.0), pause("60s", timeout=60.0))
    stage.poll()
    stage.now += 60
    assert "pause" in stage.answer(Answer(PASS)).message
    assert stage.poll(60).passed


# Errors
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "message", "id"),
    [
        (GateError("the hook cannot be asked"), "the hook cannot be asked", "PR-400"),
        (GateError("the file cannot be read", "PR-404"), "the file cannot be read", "PR-404"),
        (KeyError("colour"), "its driver failed: KeyError: 'colour'", "PR-400"),
        (SystemExit(3), "its driver failed: SystemExit: 3", "PR-400"),
    ],
)
def test_a_gate_that_cannot_be_asked(error: BaseException, message: str, id: str) -> None:
    stage = Stage(ask("hook"))
    stage.poll()
    standing = stage.answer(error)
    assert (
        standing.failed
        and standing.then is None
        and standing.message == f"hook (test.gates.scripted): {message}"
        and standing.id == id
    )
    again = Stage(ask("hook"), kept=stage.kept)  # another run that continues the rollout
    assert again.poll().id == id
    assert stage.kept["hook"].by == "error"
    stage = Stage(ask("hook", on_error="ignore"))
    stage.poll()
    assert stage.answer(error).passed
    assert replace(stage.kept["hook"], since=0) == GateRecord(
        0, GateState.PASSED, f"ignored: {message}", "error"
    )


def test_a_verdict_there_is_none_of_is_an_error() -> None:
    stage = Stage(ask("hook"))
    stage.poll()
    assert "returned 'maybe', which is not a verdict" in stage.answer(Answer("maybe")).message


def test_options_are_refused_before_anything_is_asked() -> None:
    with pytest.raises(InputError, match=r"^rollout_steps\[1\]\.gate\.colour: must be blue"):
        Stage(Gate("g", "test.gates.scripted", {"colour": "red"}, variable="rollout_steps[1].gate"))
    with pytest.raises(InputError, match=r"^gate\.driver: there is no driver 'prayer'"):
        Stage(Gate("g", "prayer"))


# An operator's word
# --------------------------------------------------------------------------------------------------


def test_the_word_passes_what_is_not_decided() -> None:
    stage = Stage(pause("10s"), approval(), pause("1h", "soak"))
    stage.poll()
    assert stage.poll(10).message.startswith("waiting at approval")
    assert stage.keeper.pass_(("approval", "web"), "ann@desk") == ["approval"]
    assert stage.kept["approval"] == GateRecord(
        1010.0, GateState.PASSED, "passed by ann@desk", "ann@desk"
    )
    assert stage.poll().message == "waiting at soak (pause): 60 min 00 s left"
    assert stage.keeper.pass_(None, "bob") == ["soak"]
    assert stage.poll().passed
    assert stage.keeper.pass_(None, "bob") == []


def test_the_word_may_come_before_the_first_look_and_does_not_undo_a_no() -> None:
    stage = Stage(approval())
    assert stage.keeper.pass_(None, "ann") == ["approval"]
    assert stage.poll().passed
    failed: Kept = {"approval": GateRecord(1.0, GateState.FAILED, "rejected", "answer")}
    stage = Stage(approval(), kept=failed)
    assert stage.keeper.pass_(None, "ann") == []
    assert stage.poll().failed


def test_the_word_goes_before_the_answer_to_a_question_under_way() -> None:
    stage = Stage(ask("hook"))
    stage.poll()
    stage.keeper.pass_(None, "ann")
    assert stage.answer(Answer(FAIL, "no")).passed
    assert stage.kept["hook"].by == "ann"


# Memory, and people
# --------------------------------------------------------------------------------------------------

DOUBT = Answer(PERSON, "needs 40 more requests", memory={"count": 12}, samples={"errors": []})


def test_memory_is_kept_and_recalled_once_by_the_run_that_goes_on() -> None:
    stage = Stage(ask("hook"))
    stage.poll()
    assert stage.answer(Answer(WAIT, "so far", memory={"count": 1})).changed
    assert not stage.poll(4).changed and recalled == []  # who asked remembers by itself
    stage.poll(1)
    assert stage.answer(Answer(WAIT, "so far", memory={"count": 2})).changed
    assert stage.poll(5).message.endswith("so far")
    assert not stage.answer(Answer(WAIT, "so far")).changed  # nothing new to remember
    assert stage.kept["hook"].memory == {"count": 2}
    again = Stage(ask("hook"), kept=stage.kept, now=stage.now)
    again.poll()
    again.answer(Answer(WAIT, "so far", memory={"count": 3}))
    again.poll(5)
    assert again.answer(Answer(PASS, "good")).passed
    assert recalled == [{"count": 2}]


def test_what_is_walked_anew_remembers_nothing() -> None:
    stage = Stage(ask("hook"))
    stage.poll()
    stage.answer(Answer(WAIT, "so far", memory={"count": 1}))
    stage.kept.clear()
    stage.poll(5)
    assert recalled == [] and stage.kept["hook"].memory is None


def test_the_next_question_comes_when_the_answer_says() -> None:
    stage = Stage(ask("hook", interval=30.0))
    stage.poll()
    stage.answer(Answer(WAIT, "so far", again=2.0))
    stage.poll(1.5)
    assert len(started) == 1
    stage.poll(0.5)
    assert len(started) == 2
    stage.answer(Answer(WAIT, "so far", again=0.0))
    stage.poll()
    assert len(started) == 3  # at once, and not as the interval says


def test_a_gate_that_cannot_say_is_not_asked_again_and_waits_for_a_person() -> None:
    gate = ask("hook", interval=1.0)
    stage = Stage(gate, approval())
    stage.poll()
    message = "waiting for an operator at hook (test.gates.scripted): needs 40 more requests"
    verdict = GateResult(gate, PERSON, "needs 40 more requests", {"errors": []})
    assert stage.answer(DOUBT) == GateStatus(
        False, None, None, message, True, person=True, verdicts=(verdict,)
    )
    for _turn in range(3):
        # the verdict is told once
        assert stage.poll(100) == GateStatus(False, None, None, message, False, person=True)
    # nor is it asked by a run that goes on
    again = Stage(gate, approval(), kept=stage.kept, now=stage.now)
    assert again.poll(100) == GateStatus(False, None, None, message, False, person=True)
    assert len(started) == 1 and "approval" not in stage.kept


def test_a_gate_that_watches_is_asked_on_while_a_person_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also by a run that goes on. It says the latest, tells the verdict once, and may pass."""
    monkeypatch.setattr(Scripted, "watches", True)
    stage = Stage(ask("hook", interval=1.0))
    stage.poll()
    stage.answer(Answer(WAIT, "measuring"))
    stage.poll(1)
    assert stage.answer(DOUBT).verdicts
    stage.poll(1)
    status = stage.answer(Answer(PERSON, "needs 30 more requests"))
    assert status.person and not status.verdicts
    assert status.message.endswith(": needs 30 more requests")
    again = Stage(ask("hook", interval=1.0), kept=stage.kept, now=stage.now)
    again.poll(1)
    again.answer(Answer(WAIT, "measuring"))
    assert not again.kept["hook"].person  # a source that was away is back
    again.poll(1)
    assert again.answer(Answer(PASS, "enough")).passed


@pytest.mark.parametrize("names", [(), ("approval", "pause"), None])
def test_the_word_passes_a_gate_that_cannot_say_though_it_is_no_approval(
    names: tuple[str, ...] | None,
) -> None:
    stage = Stage(ask("hook"))
    stage.poll()
    assert stage.keeper.pass_(("approval",), "ann") == []  # as long as it may find out by itself
    stage.answer(DOUBT)
    assert stage.keeper.pass_(names, "ann") == ["hook"]
    assert stage.poll().passed and stage.kept["hook"].by == "ann"
    assert stage.keeper.pass_(names, "bob") == []


@pytest.mark.parametrize(("on_timeout", "passed"), [("hold", False), ("promote", True)])
def test_nobody_comes_to_a_gate_that_cannot_say(on_timeout: str, passed: bool) -> None:
    stage = Stage(ask("hook", timeout=60.0, on_timeout=on_timeout))
    stage.poll()
    stage.answer(DOUBT)
    assert stage.poll(59).person
    standing = stage.poll(1)
    assert (standing.passed, standing.then, standing.person) == (
        passed,
        None if passed else "hold",
        False,
    )
    assert stage.kept["hook"].message.startswith("not passed within 60 s (needs 40 more requests)")


def test_a_verdict_is_told_by_the_look_that_came_to_it() -> None:
    first, second = ask("first"), ask("second")
    stage = Stage(first, second)
    stage.poll()
    assert stage.answer(Answer(PASS, "good", samples={"n": 1})).verdicts == (
        GateResult(first, PASS, "good", {"n": 1}),
    )
    assert stage.poll().verdicts == ()
    assert stage.answer(Answer(PASS, "fine")).verdicts == (GateResult(second, PASS, "fine", {}),)


def test_a_question_under_way_is_ended_and_a_driver_closed() -> None:
    stage = Stage(ask("hook"), ask("never reached"))
    stage.poll()
    stage.keeper.close()
    assert ended == ["cancel", "close", "close"]


def test_a_gate_that_nobody_asked_for_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked on, and its failure is one."""
    monkeypatch.setattr(Scripted, "watches", True)
    stage = Stage(replace(ask("hook", interval=1.0), by_default=True))
    stage.poll()
    status = stage.answer(DOUBT)
    assert not status.person and not status.passed and not stage.kept["hook"].person
    stage.poll(1)
    assert stage.answer(Answer(FAIL, "errors 40 of 90")).failed
