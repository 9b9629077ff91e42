# SPDX-License-Identifier: GPL-3.0-or-later
"""Three operators send twenty commands each, in any order, while a pipeline rolls one canary out
after the other. Some of the senders, and a run that obeys, are killed meanwhile.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from unittest import mock

import pytest
from ansible_collections.progressive.rollout.plugins.action import control
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutError
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Phase
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.commands import (
    COMMANDS,
    OF_HOSTS,
    not_withdrawn,
)
from ansible_collections.progressive.rollout.tests.simulations.world.machine import (
    Job,
    Machine,
    Process,
)
from ansible_collections.progressive.rollout.tests.simulations.world.runs import (
    DRIVERS,
    Run,
    inside,
    journal,
)
from ansible_collections.progressive.rollout.tests.simulations.world.store import MemoryStore
from ansible_collections.progressive.rollout.tests.simulations.world.waits import Waits
from ansible_collections.progressive.rollout.tests.simulations.world.world import Life, World
from ansible_collections.progressive.rollout.tests.support import seeds

SENDERS, EACH = 3, 20
STORMS = range(200) if seeds.PROFILE == "thorough" else range(6)
GIVEN: Mapping[str, t.Any] = {
    **DRIVERS,
    "revision": "2",
    "replicas": 3,
    "budget": {"max_surge": 1, "max_unavailable": 0},
    "strategy": "canary",
    "steps": [{"set_replicas": 1}, {"pause": {}}, {"set_replicas": 2}, {"pause": {}}],
    "wait": 60,
    "progress_deadline": 60,
}
ENDING = ("abort", "promote_full", "skip")  # seldom: after them others have less to do
DRAWN = (*(word for word in COMMANDS if word not in ENDING),) * 3 + ENDING
KILLED_AFTER = (0.0, 0.05, 0.3, 1.0, 3.0)  # seconds


@dataclass
class Sent:
    """A command, and what its sender was told."""

    word: str
    number: int | None = None  # in the journal
    message: str = ""
    error: RolloutError | None = None
    killed: bool = False


class Storm:
    """A service, its pipeline, and those who send commands."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(f"storm {seed}")
        self.machine = Machine(Random(f"machine {seed}"))
        self.world = World(
            self.machine, [], lambda _revision, _number: Life(), 3, 99, Random(f"world {seed}")
        )
        self.sent: list[Sent] = []
        self._sending: dict[int, Sent] = {}  # by process
        self._rollouts: set[str] = set()  # that commands were for
        self._calm = False  # whether nobody sends anything any more

    # -- what happens --------------------------------------------------------------------------

    def run(self) -> None:
        """Let it happen, and then end the rollout in progress."""
        self._play("first", lambda run: run.rollout({**GIVEN, "revision": "1"}))[1].join()
        process, job = self._play("canary", lambda run: run.rollout(GIVEN))
        self._posts = control.send
        with mock.patch.object(control, "send", self._post):
            senders = [self._beside(self._operator) for _sender in range(SENDERS)]
            pipeline = self._beside(self._pipeline)
            if self.dice.random() < 0.4:
                self.machine.sleep(self.dice.uniform(0, 20))
                process.kill()
                self.machine.wake(job)
            for sender in senders:
                sender.join()
                assert sender.result is None, sender.result
            self._calm = True
            pipeline.join()
            self._end()

    def _play(self, name: str, work: Callable[[Run], t.Any]) -> tuple[Process, Job]:
        """Begin a playbook."""
        process = self.machine.process(name)
        run = Run(self.world, process, "controller")
        return process, self.machine.start(process, lambda: work(run), "main")

    def _beside(self, work: Callable[[], None]) -> Job:
        """Begin what somebody does who runs one playbook after the other."""
        return self.machine.start(self.machine.process("somebody"), work, "main")

    def _operator(self) -> None:
        for _command in range(EACH):
            self.machine.sleep(self.dice.choice((0.0, 0.1, 0.5, 1.0, 3.0)))
            self._send(self.dice.choice(DRAWN))

    def _pipeline(self) -> None:
        """Roll out another revision whenever there is no rollout."""
        revision = 2
        while not self._calm:
            self.machine.sleep(1.0)
            if journal(self.world).open is None:
                revision += 1
                given = {**GIVEN, "revision": str(revision)}
                _process, job = self._play(f"run{revision}", lambda run, g=given: run.rollout(g))
                while not (job.done or self._calm):
                    self.machine.sleep(1.0)

    def _end(self) -> None:
        """End the rollout in progress, as operators do."""
        self.machine.sleep(10.0)  # it may have been begun just now
        for word in ("retry", "promote_full") * 10:
            rollout = journal(self.world).open
            if rollout is None:
                return
            if rollout.phase == Phase.ROLLING_BACK:
                self._play("rollback", lambda run: run.rollback(GIVEN))[1].join(200.0)
            else:
                self._send(word)
            self.machine.sleep(10.0)

    def _send(self, word: str) -> None:
        """Send a command, in a playbook of its own, which may be killed meanwhile."""
        sent = Sent(word)
        self.sent.append(sent)
        host = self.dice.choice(("web1", "web2")) if word in OF_HOSTS else None
        number = self.dice.randint(3, 5)
        more = {
            "set_target": {"count": number - 2},
            "scale": {"replicas": number},
        }.get(word, {})

        def work(run: Run) -> None:
            try:
                sent.message = str(run.control(word, GIVEN, host=host, **more)["msg"])
            except RolloutError as exc:
                sent.error = exc

        process, job = self._play("sender", work)
        self._sending[process.pid] = sent
        if self.dice.random() < 0.15:
            self.machine.sleep(self.dice.choice(KILLED_AFTER))
            sent.killed = not job.done
            process.kill()
            self.machine.wake(job)
        job.join(200.0)

    def _post(self, step: t.Any, rollout: t.Any, asked: t.Mapping[str, t.Any]) -> int:
        """Write a command into the journal, and note its number."""
        number = self._posts(step, rollout, asked)
        self._rollouts.add(rollout.id)
        self._sending[self.machine.current.process.pid].number = number
        return number

    # -- what came of it -----------------------------------------------------------------------

    def traces(self) -> dict[int, Mapping[str, t.Any]]:
        """Return the event of each command, by its number."""
        store = MemoryStore("shop", self.world.journals["shop"])
        return {
            event["number"]: event
            for rollout in self._rollouts
            for event in store.timeline(rollout)
            if event["kind"] == "word"
        }

    def untrue(self) -> list[str]:
        """Return the senders that were told what is not so."""
        traces, store = self.traces(), MemoryStore("shop", self.world.journals["shop"])
        kept = store.commands(0)
        withdrawn = {one["number"] for one in kept} - {one["number"] for one in not_withdrawn(kept)}
        return [
            f"{why}: {sent}"
            for sent in self.sent
            if not sent.killed and sent.number is not None and sent.number not in withdrawn
            if (why := _untrue(sent, traces.get(sent.number)))
        ]


def _untrue(sent: Sent, trace: Mapping[str, t.Any] | None) -> str:
    """Return what is not so of what a sender was told; "" if it is true."""
    if trace is None:
        return "" if sent.error else "it has no trace"
    refused, ineffective = bool(trace["refused"]), "ineffective" in trace
    if sent.error:  # a run that ends with the rollout that it continued says so itself
        obeyed = not (refused or ineffective)
        return "it was obeyed" if sent.error.id == "PR-700" and obeyed else ""
    if "has obeyed" in sent.message:
        return "it was not obeyed" if refused or ineffective else ""
    return "it had an effect" if "without effect" in sent.message and not ineffective else ""


@pytest.fixture
def no_check_of_includes() -> t.Iterator[None]:
    """The world takes a host for left out too long that was left out again since."""
    with mock.patch.object(Waits, "_check_obeyed", lambda *_args: None):
        yield


def storm(seed: int) -> Storm:
    """Return a storm that is over."""
    made = Storm(seed)
    with inside(made.world, 1):
        made.run()
        made.machine.end()
    return made


@pytest.mark.slow
@pytest.mark.seeded
@pytest.mark.usefixtures("no_check_of_includes")
@pytest.mark.parametrize("number", STORMS)
def test_a_storm_of_commands_ends_right(number: int) -> None:
    made = storm(1_000_000 * seeds.SEED + number)
    story = "\n".join(made.world.lines)
    assert made.world.wrong == "", story
    assert made.untrue() == [], story
    assert journal(made.world).open is None, story
    assert len(made.world.summary()) == 1, story
