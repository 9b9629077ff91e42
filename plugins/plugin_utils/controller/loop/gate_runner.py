# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks the gates of one stage, one after the other, in the background.

The results are recorded in the journal, so that a run continues from those of a killed one: a
gate's time begins when it is first polled and does not begin again, and a decided gate is not asked
again. Leaving the stage clears the records.
"""

from __future__ import annotations

import copy
import typing as t
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ...base import clock
from ...base.errors import GateError, InputError
from ...base.text import clean, span
from ...engine.strategy import Gate
from ...interfaces import loader
from ...interfaces.context import DriverContext
from ...interfaces.gate import FAIL, PASS, PERSON, WAIT, Answer, GateDriver
from ...state.record import GateRecord, GateState

Describe = Callable[[], Mapping[str, t.Any]]
_SHOWN = 1000  # characters of a gate's message, which may come from anywhere
ANSWER, ERROR, TIMEOUT = "answer", "error", "timeout"  # what decided a gate, if no operator did
# the ids of a failed gate's message
_FAILED = {ANSWER: "PR-402", ERROR: "PR-400", TIMEOUT: "PR-401"}


@dataclass(frozen=True)
class GateStatus:
    """The state of a stage's gates."""

    passed: bool  # all of them
    failed: Gate | None  # the gate that did not let the rollout pass
    then: str | None  # what the failed gate asks for (rollback | hold); None: what the stage says
    message: str  # one line for people: what is waited for, why it failed, or why all passed
    changed: bool  # this poll changed the records: commit them
    person: bool = False  # a person has to decide, since the gate itself cannot
    others: bool = False  # another rollout is waited for
    verdicts: tuple[GateResult, ...] = ()  # reached by this poll
    id: str = ""  # of a failed gate's message
    looks: tuple[tuple[Gate, Mapping[str, t.Any]], ...] = ()  # for the timeline


@dataclass(frozen=True)
class GateResult:
    """What a gate answered, with the samples behind it."""

    gate: Gate
    verdict: str  # PASS, FAIL, PERSON, or WAIT where there are samples
    message: str
    samples: Mapping[str, t.Any]


class GateRunner:
    """Asks the gates of one stage."""

    def __init__(
        self,
        gates: Sequence[Gate],
        context: DriverContext,
        records: dict[str, GateRecord],
        now: Callable[[], float] = clock.now,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """Make the gates' drivers; raises InputError for options that one refuses.

        `records` are the journal's, by the gates' keys, and are updated in place. `wake` is called
        from another thread when an answer has come.
        """
        self._gates = gates
        self._drivers = {gate.key: _driver(gate, context) for gate in gates}
        self._records = records
        self._now = now
        self._wake = wake
        self._questions: dict[str, _Question] = {}  # in progress
        self._due: dict[str, float] = {}  # when to ask next
        self._messages: dict[str, str] = {}  # of gates that wait
        self._others: dict[str, bool] = {}  # whether they wait for another rollout
        self._doubts: dict[str, str] = {}  # of those to which the new revision looks worse
        self._verdicts: list[GateResult] = []
        self._looks: list[tuple[Gate, Mapping[str, t.Any]]] = []
        self._changed = False
        self._closed = False

    @property
    def bound(self) -> bool:
        """Whether no command lets the rollout pass all of the gates."""
        return not all(driver.commanded for driver in self._drivers.values())

    @property
    def doubt(self) -> str:
        """By what the new revision looks worse to gates that have not decided."""
        return "; ".join(self._doubts.values())

    def poll(self, describe: Describe) -> GateStatus:
        """Take in answers, ask the gates that are due, and return their status. Never blocks.

        `describe` returns the rollout as gates are told of it.
        """
        self._changed, self._verdicts, self._looks = False, [], []
        decided = []
        for gate in self._gates:
            record = self._poll(gate, describe)
            about = gate.key if gate.key == gate.driver else f"{gate.key} ({gate.driver})"
            decided.append(f"{about}: {record.message}" if record.message else about)
            if record.state == GateState.FAILED:
                then = gate.on_timeout if record.by == TIMEOUT else None
                return self._status(
                    f"{about}: {record.message}",
                    failed=gate,
                    then=then,
                    id=_failure_id(gate, record),
                )
            if record.state == GateState.WAITING:
                waiting = self._waiting(gate, about, record)
                state, others = self._state(gate, record), self._others.get(gate.key, False)
                return self._status(f"{waiting}: {state}", person=record.person, others=others)
        return self._status("; ".join(decided), passed=True)

    def pass_(self, drivers: Collection[str] | None, by: str) -> list[str]:
        """Let undecided gates with these drivers (None: any) pass, and those that need a person.

        Returns their keys.
        """
        passed = []
        for gate in self._gates:
            known = self._records.get(gate.key)
            if not self._drivers[gate.key].commanded:
                continue
            if drivers is None or gate.driver in drivers or (known is not None and known.person):
                record = self._record(gate)
                if record.state == GateState.WAITING:
                    self._decide(gate, record, GateState.PASSED, f"passed by {by}", by)
                    passed.append(gate.key)
        return passed

    def pass_failed(self, gate: Gate) -> None:
        """Let a gate pass that failed, since the rollout continues all the same."""
        self._records[gate.key].state = GateState.PASSED

    def close(self) -> None:
        """Ask nothing any more; cancel questions in progress, and ignore their answers."""
        self._closed = True
        for question in self._questions.values():
            question.wake = lambda: None
        for gate in self._gates:
            self._forget(gate)
            self._drivers[gate.key].close()

    def _status(self, message: str, **fields: t.Any) -> GateStatus:
        """Return the status of the gates after a poll."""
        known = {"passed": False, "failed": None, "then": None} | fields
        return GateStatus(
            message=message,
            changed=self._changed,
            verdicts=tuple(self._verdicts),
            looks=tuple(self._looks),
            **known,
        )

    def _poll(self, gate: Gate, describe: Describe) -> GateRecord:
        """Ask one gate, if it is due, and return its record."""
        record = self._record(gate)
        if record.state != GateState.WAITING:
            return record
        # not less, whatever was done to the machine's clock
        waited = max(0.0, self._now() - record.since)
        asks = not record.person or self._drivers[gate.key].watches
        answer = self._ask(gate, describe, waited) if asks else None
        if answer is not None:
            self._take(gate, record, answer)
        if (
            record.state == GateState.WAITING
            and gate.timeout is not None
            and waited >= gate.timeout
        ):
            late = f"not passed within {span(gate.timeout)} ({self._state(gate, record)})"
            if gate.on_timeout == "promote":
                late += ", promoted anyway (on_timeout: promote)"
                self._decide(gate, record, GateState.PASSED, late, TIMEOUT)
            else:
                self._decide(gate, record, GateState.FAILED, late, TIMEOUT)
        return record

    def _record(self, gate: Gate) -> GateRecord:
        """Return the gate's record, which begins now if there is none."""
        if gate.key not in self._records:
            self._forget(gate)  # earlier questions belong to another time
            self._records[gate.key] = GateRecord(self._now())
            self._changed = True
        return self._records[gate.key]

    def _ask(self, gate: Gate, describe: Describe, waited: float) -> Answer | GateError | None:
        """Return a driver's answer, if there is one yet; a blocking driver is asked in a thread."""
        driver = self._drivers[gate.key]
        if not driver.blocking:
            return _answer(driver, describe(), waited)
        question = self._questions.get(gate.key)
        if question is None:
            if not self._closed and self._now() >= self._due.get(gate.key, float("-inf")):
                if gate.key not in self._due and (memory := self._records[gate.key].memory):
                    driver.restore(memory)
                self._questions[gate.key] = _Question(
                    driver, copy.deepcopy(dict(describe())), waited, self._wake
                )
            return None
        if question.answer is not None:
            del self._questions[gate.key]
            again = question.answer.again if isinstance(question.answer, Answer) else None
            self._due[gate.key] = self._now() + (gate.interval if again is None else again)
        return question.answer

    def _take(self, gate: Gate, record: GateRecord, answer: Answer | GateError) -> None:
        """Take in an answer."""
        if isinstance(answer, GateError):
            if gate.on_error == "ignore":
                self._decide(gate, record, GateState.PASSED, f"ignored: {answer}", ERROR)
            else:
                record.id = answer.id
                self._decide(gate, record, GateState.FAILED, str(answer), ERROR)
            return
        if gate.by_default and answer.verdict == PERSON:
            answer = replace(answer, verdict=WAIT)
        self._others[gate.key] = answer.others
        self._doubts.pop(gate.key, None)
        if answer.doubt and answer.verdict == WAIT:
            self._doubts[gate.key] = clean(answer.doubt, _SHOWN)
        if answer.memory is not None:
            record.memory, self._changed = dict(answer.memory), True
        if answer.looked:
            self._looks.append((gate, answer.looked))
        asked = record.person and answer.verdict == PERSON  # and reported when it was asked first
        if answer.samples if answer.verdict == WAIT else not asked:
            self._verdicts.append(GateResult(gate, answer.verdict, answer.message, answer.samples))
        if answer.verdict == PERSON:
            self._changed = self._changed or not record.person or record.message != answer.message
            record.person, record.message = True, answer.message
            self._messages.pop(gate.key, None)
            if not self._drivers[gate.key].watches:
                self._forget(gate)
        elif answer.verdict != WAIT:
            state = GateState.PASSED if answer.verdict == PASS else GateState.FAILED
            self._decide(gate, record, state, answer.message, ANSWER)
        else:
            self._messages[gate.key] = answer.message
            self._changed, record.person = self._changed or record.person, False
            # The message of a gate that counts seconds would be a commit a second.
            if self._drivers[gate.key].blocking and record.message != answer.message:
                record.message, self._changed = answer.message, True

    def _decide(
        self, gate: Gate, record: GateRecord, state: GateState, message: str, by: str
    ) -> None:
        """Record a decision, by an answer, an error, the timeout, or an operator."""
        record.state, record.message, record.by = state, message, by
        self._forget(gate)
        self._changed = True

    def _forget(self, gate: Gate) -> None:
        """Cancel the question in progress, and forget when to ask next."""
        question = self._questions.pop(gate.key, None)
        if question and question.answer is None:
            self._drivers[gate.key].cancel()
        self._due.pop(gate.key, None)
        self._messages.pop(gate.key, None)
        self._doubts.pop(gate.key, None)

    def _state(self, gate: Gate, record: GateRecord) -> str:
        """Return a waiting gate's latest message."""
        known = self._messages.get(gate.key) or record.message
        return known or self._drivers[gate.key].unanswered

    def _waiting(self, gate: Gate, about: str, record: GateRecord) -> str:
        """Return what the rollout does at a gate that has not decided."""
        if record.person:
            return f"waiting for an operator at {about}"
        return self._drivers[gate.key].waiting.format(gate=about, key=gate.key)


class _Question:
    """One question to one gate, in a daemon thread, so that a hanging gate delays no exit."""

    def __init__(
        self,
        driver: GateDriver,
        rollout: Mapping[str, t.Any],
        waited: float,
        wake: Callable[[], None],
    ) -> None:
        self.answer: Answer | GateError | None = None
        self.wake = wake
        clock.alongside(partial(self._run, driver, rollout, waited), "gate")

    def _run(self, driver: GateDriver, rollout: Mapping[str, t.Any], waited: float) -> None:
        """Ask, and wake whoever waits for the answer."""
        self.answer = _answer(driver, rollout, waited)
        self.wake()


def check(gates: Iterable[Gate], context: DriverContext) -> None:
    """Raise InputError for options that a gate's driver refuses. Asks no gate."""
    for gate in gates:
        _driver(gate, context)


def _answer(driver: GateDriver, rollout: Mapping[str, t.Any], waited: float) -> Answer | GateError:
    """Ask a driver; whatever goes wrong in it is an error of the gate."""
    try:
        answer = driver.ask(rollout, waited)
        if answer.verdict not in (PASS, WAIT, FAIL, PERSON):
            raise GateError(
                f"its driver returned {answer.verdict!r}, which is not a verdict", "PR-400"
            )
    except GateError as exc:
        return GateError(clean(exc, _SHOWN), exc.id)
    except BaseException as exc:  # SystemExit, too, would end the thread without an answer
        return GateError(clean(f"its driver failed: {type(exc).__name__}: {exc}", _SHOWN), "PR-400")
    return replace(answer, message=clean(answer.message, _SHOWN))


def _failure_id(gate: Gate, record: GateRecord) -> str:
    """Return the id of a failed gate's message."""
    if (gate.driver, record.by) == ("analysis", ANSWER):
        return "PR-422"
    return record.id or _FAILED[record.by]


def _driver(gate: Gate, context: DriverContext) -> GateDriver:
    """Make a gate's driver; raises InputError naming the variable that the gate is from."""
    try:
        return loader.load(GateDriver, gate.driver, "gate").driver(gate.options, context)
    except InputError as exc:
        text = (
            str(exc)
            .removeprefix("gate")
            .replace("did you mean gate.", f"did you mean {gate.variable}.")
        )
        raise InputError(gate.variable + text, exc.id) from None
