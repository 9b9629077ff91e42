# SPDX-License-Identifier: GPL-3.0-or-later
"""Three operators send commands at once, in an order drawn from a seed, under load and beside a
pipeline that rolls one canary out after the other; some of their playbooks are killed. Each that
ends has told what became of its command.

In `make soak` they send twenty each.
"""

from __future__ import annotations

import json
import threading
import typing as t
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.commands import (
    COMMANDS,
    OF_HOSTS,
    not_withdrawn,
)
from ansible_collections.progressive.rollout.tests.support import seeds
from ansible_collections.progressive.rollout.tests.support.playbook import Outcome
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindHAProxy,
    Load,
    Shop,
    failures,
)

SENDERS = 3
EACH = 20 if seeds.PROFILE == "thorough" else 3
CANARY: dict[str, t.Any] = {
    "rollout_strategy": "canary",
    "rollout_steps": [
        {"set_replicas": 1},
        {"pause": {}},
        {"set_replicas": 2},
        {"pause": {}},
    ],
    "rollout_wait": "10s",
}
ENDING = ("abort", "promote_full", "skip")  # seldom: after them others have less to do
DRAWN = (*(word for word in COMMANDS if word not in ENDING),) * 3 + ENDING


@dataclass
class Sent:
    """A command, and how its playbook ended; None: it was killed."""

    word: str
    outcome: Outcome | None = None

    @property
    def number(self) -> int | None:
        """The number that the command has in the journal, if it was recorded there."""
        sent = self.outcome.of("Send the command") if self.outcome else []
        return sent[0].result.get("number") if sent else None


class Storm:
    """Those who send, and the pipeline."""

    def __init__(self, shop: Shop, dice: Random) -> None:
        self._shop, self._dice = shop, dice
        self.sent: list[Sent] = []
        self._calm = threading.Event()
        self._revision = 2

    def run(self) -> None:
        pipeline = threading.Thread(target=self._roll_out)
        draws = [Random(self._dice.random()) for _sender in range(SENDERS)]
        senders = [threading.Thread(target=self._operate, args=(dice,)) for dice in draws]
        for thread in (pipeline, *senders):
            thread.start()
        for thread in senders:
            thread.join()
        self._calm.set()
        pipeline.join()
        self._end()

    def _roll_out(self) -> None:
        """Roll out another revision whenever there is no rollout."""
        while not self._calm.wait(0.2):
            if self._shop.journal()["rollout"]["phase"] == "finished":
                given = {**CANARY, "rollout_revision": str(self._revision)}
                self._revision += 1
                self._shop.start(variables=given, forked=True).wait()

    def _operate(self, dice: Random) -> None:
        for _command in range(EACH):
            self._send(dice.choice(DRAWN), dice, killed=dice.random() < 0.15)

    def _send(self, word: str, dice: Random, *, killed: bool = False) -> None:
        given: dict[str, t.Any] = {"rollout_command": word, "rollout_why": "storm"}
        if word in OF_HOSTS:
            given["rollout_host"] = dice.choice(("web1", "web2"))
        if word == "set_target":
            given["rollout_count"] = dice.randint(1, 3)
        if word == "scale":
            given["rollout_replicas"] = dice.randint(3, 5)
        sent = Sent(word)
        self.sent.append(sent)
        run = self._shop.start("progressive.rollout.control", {**CANARY, **given}, forked=True)
        if killed:
            threading.Event().wait(dice.uniform(0.0, 2.0))
            run.kill()
        else:
            sent.outcome = run.wait()

    def _end(self) -> None:
        """End the rollout in progress, as operators do."""
        for word in ("retry", "promote_full") * 10:
            rollout = self._shop.journal()["rollout"]
            if rollout["phase"] == "finished":
                return
            if rollout["phase"] == "rolling_back":
                self._shop.run("progressive.rollout.rollback")
            else:
                self._send(word, Random(word))

    def untrue(self) -> list[str]:
        """Return what became of each command whose sender was told something else."""
        folder = self._shop.store / "journal" / "shop"
        traces = {
            event["number"]: event
            for path in folder.glob("*.jsonl")
            for event in map(json.loads, path.read_text().splitlines())
            if event["kind"] == "word"
        }
        kept = self._shop.commands()
        withdrawn = {one["number"] for one in kept} - {one["number"] for one in not_withdrawn(kept)}
        return [
            f"{sent.word} {sent.number}: {why}: {trace}\n{sent.outcome.output}"
            for sent in self.sent
            if sent.outcome and sent.number not in withdrawn
            for trace in [traces.get(sent.number)]
            if (why := _untrue(sent.outcome, sent.number, trace))
        ]

    def numbers(self) -> Counter[str]:
        """Return how many commands ended how."""
        return Counter(
            "killed" if sent.outcome is None else f"rc {sent.outcome.rc}" for sent in self.sent
        )


def _untrue(outcome: Outcome, number: int | None, trace: Mapping[str, t.Any] | None) -> str:
    """Return what is not so of what a sender was told; "" if it is true."""
    if outcome.rc:
        obeyed = trace and not trace["refused"] and "ineffective" not in trace
        if "[PR-" not in outcome.output:
            return "it gives no reason"
        return "it was obeyed" if "[PR-700]" in outcome.failed.msg and obeyed else ""
    message = outcome.of("Send the command")[0].msg
    if number is None and "nothing to abort" in message:
        return ""
    if number is None or trace is None:
        return "it has no trace"
    if trace["refused"]:  # by a run that began when the sender was gone
        later = "takes effect on the next run" in message or "obeys shortly" in message
        return "" if later else "it was refused"
    if "has obeyed" in message and "ineffective" in trace:
        return "it had no effect"
    return "it had an effect" if "without effect" in message and "ineffective" not in trace else ""


@pytest.mark.long
@pytest.mark.seeded
def test_a_storm_of_commands_loses_no_request() -> None:
    dice = seeds.dice("storm")
    front = BehindHAProxy()
    try:
        with Shop(front, env={"START_DELAY": "0.1"}, rollout_replicas=3) as shop:
            shop.variables["rollout_budget"] = {"max_surge": 1, "max_unavailable": 0}
            shop.to("1")
            storm = Storm(shop, dice)
            with Load(front.url, connections=2, rate=20) as load:
                storm.run()
                reports = load.stop()
            requests = sum(report["requests"] for report in reports)
            print(f"seed {seeds.SEED}: {dict(storm.numbers())}, {requests} requests")
            assert failures(reports) == []
            assert storm.untrue() == []
            assert shop.journal()["rollout"]["phase"] == "finished"
            assert len(set(shop.revisions())) == 1
            places = {(record["address"], record["port"]) for record in shop.living()}
            assert front.serving() == places
    finally:
        front.close()
