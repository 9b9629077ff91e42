# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gates of one stage: asked one after the other, in the background, their results kept as plain data.

A run that was killed goes on from what is kept: a gate's clock begins when it is first looked at and is not
begun again, and a result is not asked for again. Whoever leaves the stage clears what is kept.
"""

from __future__ import annotations

import copy
import threading
import typing as t
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import GateError, InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.text import clean, span
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Gate
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces import loader
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import Context
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.gate import (
    FAIL,
    PASS,
    PERSON,
    WAIT,
    Answer,
    GateDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import GateState

_SHOWN = 1000  # characters of what a gate says: it may have them from anybody
ANSWER, ERROR, TIMEOUT = "answer", "error", "timeout"  # who decided, where it was not an operator


@dataclass(frozen=True)
class GateStatus:
    """How a stage's gates stand."""

    passed: bool  # all of them
    failed: Gate | None  # the one that did not let the rollout pass
    then: str | None  # what the failed one says is to happen (rollback | hold); None: what the stage says
    message: str  # one line for people: what is waited for, or why it failed; empty when all have passed
    changed: bool  # what is kept was changed by this look: commit it
    person: bool = False  # what is waited for is a person, since the gate itself cannot say
    verdicts: tuple[Verdict, ...] = ()  # reached in this look


@dataclass(frozen=True)
class Verdict:
    """What a gate has come to by its own answer, with the samples that stands on."""

    gate: Gate
    verdict: str  # PASS, FAIL or PERSON
    message: str
    samples: Mapping[str, t.Any]


class GateRunner:
    """Asks the gates of one stage.

    `kept` is the journal's record of them, updated in place: by key, `since` (seconds since the epoch), `state`
    (waiting | passed | failed), `message`, `by` (answer | error | timeout, or the operator who let it pass), `person` (true: it
    waits for one, since the gate itself cannot say), and `memory`, which is its driver's.
    `wake` is called from another thread when an answer has come. Raises InputError for options of a gate that its
    driver refuses.
    """

    def __init__(
        self,
        gates: Sequence[Gate],
        context: Context,
        kept: dict[str, dict[str, t.Any]],
        now: Callable[[], float] = clock.now,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._gates = gates
        self._drivers = {gate.key: _driver(gate, context) for gate in gates}
        self._kept = kept
        self._now = now
        self._wake = wake
        self._questions: dict[str, _Question] = {}  # under way
        self._due: dict[str, float] = {}  # when to ask next
        self._said: dict[str, str] = {}  # by gates that wait
        self._verdicts: list[Verdict] = []
        self._changed = False
        self._closed = False

    def poll(self, rollout: Mapping[str, t.Any]) -> GateStatus:
        """Take in what was answered, ask what is due, and say how it stands. Never blocks."""
        self._changed, self._verdicts = False, []
        for gate in self._gates:
            record = self._look(gate, rollout)
            about = f"{gate.key} ({gate.driver})"
            if record["state"] == GateState.FAILED:
                then = gate.on_timeout if record["by"] == TIMEOUT else None
                return self._standing(False, f"{about}: {record['message']}", gate, then)
            if record["state"] == GateState.WAITING:
                person = bool(record.get("person"))
                what = f"waits at {about}{' for a person' if person else ''}: {self._state(gate, record)}"
                return self._standing(False, what, person=person)
        return self._standing(True, "")

    def _standing(
        self, passed: bool, message: str, failed: Gate | None = None, then: str | None = None, person: bool = False
    ) -> GateStatus:
        return GateStatus(passed, failed, then, message, self._changed, person, tuple(self._verdicts))

    def pass_(self, names: Collection[str] | None, by: str) -> list[str]:
        """An operator's word: let every gate of the stage pass that is not decided yet, of these drivers (None: of any) or that waits
        for a person. Returns their keys.
        """
        passed = []
        for gate in self._gates:
            if names is None or gate.driver in names or self._kept.get(gate.key, {}).get("person"):
                record = self._record(gate)
                if record["state"] == GateState.WAITING:
                    self._decide(gate, record, GateState.PASSED, f"passed by {by}", by)
                    passed.append(gate.key)
        return passed

    def close(self) -> None:
        """Ask nothing any more. A question under way is ended where its driver can, or left to itself; its answer is not taken in."""
        self._closed = True
        for question in self._questions.values():
            question.wake = lambda: None
        for gate in self._gates:
            self._forget(gate)
            self._drivers[gate.key].close()

    def _look(self, gate: Gate, rollout: Mapping[str, t.Any]) -> dict[str, t.Any]:
        record = self._record(gate)
        if record["state"] != GateState.WAITING:
            return record
        waited = max(0.0, self._now() - record["since"])  # not less, whatever was done to the machine's clock
        answer = None if record.get("person") else self._ask(gate, rollout, waited)
        if answer is not None:
            self._take(gate, record, answer)
        if record["state"] == GateState.WAITING and gate.timeout is not None and waited >= gate.timeout:
            late = f"not passed within {span(gate.timeout)} ({self._state(gate, record)})"
            promoted = gate.on_timeout == "promote"
            self._decide(
                gate,
                record,
                GateState.PASSED if promoted else GateState.FAILED,
                late + ", promoted all the same" * promoted,
                TIMEOUT,
            )
        return record

    def _record(self, gate: Gate) -> dict[str, t.Any]:
        """What is kept of a gate; begun now if there is nothing, or no beginning."""
        record = self._kept.setdefault(gate.key, {})
        if record.get("since") is None:
            self._forget(gate)  # what was asked before belongs to another time
            record.update({"since": self._now(), "state": GateState.WAITING, "message": "", "by": ""})
            self._changed = True
        return record

    def _ask(self, gate: Gate, rollout: Mapping[str, t.Any], waited: float) -> Answer | GateError | None:
        """The answer of a driver that needs nobody else for it, or to the question asked before; None if there is none yet."""
        driver = self._drivers[gate.key]
        if not driver.blocking:
            return _answer(driver, rollout, waited)
        question = self._questions.get(gate.key)
        if question is None:
            if not self._closed and self._now() >= self._due.get(gate.key, 0.0):
                if gate.key not in self._due and (memory := self._kept[gate.key].get("memory")):
                    driver.restore(memory)
                self._questions[gate.key] = _Question(driver, copy.deepcopy(dict(rollout)), waited, self._wake)
            return None
        if question.answer is not None:
            del self._questions[gate.key]
            again = question.answer.again if isinstance(question.answer, Answer) else None
            self._due[gate.key] = self._now() + (gate.interval if again is None else again)
        return question.answer

    def _take(self, gate: Gate, record: dict[str, t.Any], answer: Answer | GateError) -> None:
        if isinstance(answer, GateError):
            if gate.on_error == "ignore":
                self._decide(gate, record, GateState.PASSED, f"ignored: {answer}", ERROR)
            else:
                self._decide(gate, record, GateState.FAILED, str(answer), ERROR)
            return
        if answer.memory is not None:
            record["memory"], self._changed = dict(answer.memory), True
        if answer.verdict != WAIT:
            self._verdicts.append(Verdict(gate, answer.verdict, answer.message, answer.samples))
        if answer.verdict == PERSON:
            record.update({"person": True, "message": answer.message})
            self._forget(gate)
            self._changed = True
        elif answer.verdict != WAIT:
            self._decide(gate, record, GateState.PASSED if answer.verdict == PASS else GateState.FAILED, answer.message, ANSWER)
        else:
            self._said[gate.key] = answer.message
            # Of one that counts seconds this would be a commit a second.
            if self._drivers[gate.key].blocking and record["message"] != answer.message:
                record["message"] = answer.message
                self._changed = True

    def _decide(self, gate: Gate, record: dict[str, t.Any], state: GateState, message: str, by: str) -> None:
        record.update({"state": state, "message": message, "by": by})
        self._forget(gate)
        self._changed = True

    def _forget(self, gate: Gate) -> None:
        question = self._questions.pop(gate.key, None)
        if question and question.answer is None:
            self._drivers[gate.key].cancel()
        for memory in (self._due, self._said):
            memory.pop(gate.key, None)

    def _state(self, gate: Gate, record: Mapping[str, t.Any]) -> str:
        return self._said.get(gate.key) or record["message"] or "no answer yet"


class _Question:
    """One question to one gate, in a thread of its own: a daemon, since one that hangs must not keep this process from ending."""

    def __init__(self, driver: GateDriver, rollout: Mapping[str, t.Any], waited: float, wake: Callable[[], None]) -> None:
        self.answer: Answer | GateError | None = None
        self.wake = wake
        threading.Thread(target=self._run, args=(driver, rollout, waited), name="gate", daemon=True).start()

    def _run(self, driver: GateDriver, rollout: Mapping[str, t.Any], waited: float) -> None:
        self.answer = _answer(driver, rollout, waited)
        self.wake()


def _answer(driver: GateDriver, rollout: Mapping[str, t.Any], waited: float) -> Answer | GateError:
    """What the driver says; whatever goes wrong in it is an error of the gate."""
    try:
        answer = driver.ask(rollout, waited)
        if answer.verdict not in (PASS, WAIT, FAIL, PERSON):
            raise GateError(f"its driver gave {answer.verdict!r}, which is no verdict")
    except GateError as exc:
        return GateError(clean(exc, _SHOWN))
    except BaseException as exc:  # SystemExit, too, would end the thread without an answer
        return GateError(clean(f"its driver failed: {type(exc).__name__}: {exc}", _SHOWN))
    return replace(answer, message=clean(answer.message, _SHOWN))


def check(gates: Iterable[Gate], context: Context) -> None:
    """Raise InputError for options that a gate's driver refuses. Asks nobody."""
    for gate in gates:
        _driver(gate, context)


def _driver(gate: Gate, context: Context) -> GateDriver:
    try:
        return loader.load(GateDriver, gate.driver, "gate").driver(gate.options, context)
    except InputError as exc:
        said = str(exc).removeprefix("gate").replace("did you mean gate.", f"did you mean {gate.variable}.")
        raise InputError(gate.variable + said) from None  # its drivers do not know where it was written
