# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollout that is superseded while another run is at work on it: who is told, who is waited
for, and for how long.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    AlreadyRunning,
    Interrupted,
    LeaseHeld,
    RolloutError,
    StoreError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout import takeover
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.generations import (
    Generations,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.step.context import (
    StepContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Composition,
    Phase,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import (
    Record,
    Rollout,
    RolloutKind,
)


@dataclass
class Rival:
    """As much of a run as taking over needs, beside one that gives way at the look `gives_way`
    (0: never).
    """

    gives_way: int = 0
    supersede: bool = True
    phase: Phase = Phase.PAUSED
    kind: RolloutKind = RolloutKind.ROLLOUT
    held: LeaseHeld = field(default_factory=lambda: LeaseHeld("the lease is held by ann"))
    looks: int = 0
    deadline: float = 0.05

    def __post_init__(self) -> None:
        self.said: list[dict[str, t.Any]] = []
        self.told: list[str] = []
        rollout = Rollout(
            "r1", "2", 2, 3, "canary", Composition("1", 1, 3), 1.0, phase=self.phase, kind=self.kind
        )
        self.record = Record("shop", rollout=rollout)
        self.settings = SimpleNamespace(
            service="shop",
            supersede=self.supersede,
            rules=SimpleNamespace(progress_deadline=self.deadline),
        )
        store = SimpleNamespace(post=lambda command: self.said.append(command) or len(self.said))
        self.session = SimpleNamespace(
            read=lambda: self.record, store=store, identity=SimpleNamespace(holder="bob")
        )
        self.loop = SimpleNamespace(print_line=self.told.append)
        self.guard = SimpleNamespace(check=lambda: None)

    def begin_once(self) -> str:
        self.looks += 1
        if self.gives_way and self.looks > self.gives_way:
            return ""
        raise self.held

    def begin(self, revision: str, replicas: int = 3) -> str:
        try:
            return self.begin_once()
        except LeaseHeld as exc:
            return takeover.supersede(t.cast(StepContext, self), revision, replicas, exc)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "LOOK", 0.001)
    monkeypatch.setattr(Generations, "replaced", lambda *_: False)


def test_it_is_told_to_give_way_and_waited_for() -> None:
    rival = Rival(gives_way=3)
    assert rival.begin("3") == ""
    told, withdrawn = rival.said
    assert (told["word"], told["rollout"], told["why"]) == ("give_way", "r1", "3")
    assert told["until"] > told["at"], "it is void once its run waits no longer"
    assert (withdrawn["word"], withdrawn["of"]) == ("withdraw", 1), "its run may have ended before"
    assert (
        rival.looks == 4
        and "told 2 to give way" in rival.told[0]
        and "held by ann" in rival.told[0]
    )


def test_one_that_does_not_in_time_is_told_that_it_need_not_any_more() -> None:
    rival = Rival()
    with pytest.raises(LeaseHeld, match="held by ann; told to give way, it did not within 0 s"):
        rival.begin("3")
    assert [command["word"] for command in rival.said] == ["give_way", "withdraw"] and rival.said[
        1
    ]["of"] == 1


@pytest.mark.parametrize("exc", [Interrupted("SIGINT: stopped"), StoreError("it is full")])
def test_a_run_that_stops_waiting_withdraws_what_it_sent(exc: RolloutError) -> None:
    rival = Rival(deadline=60.0)

    def check() -> None:
        if rival.looks == 3:
            raise exc

    rival.guard.check = check
    with pytest.raises(type(exc)) as caught:
        rival.begin("3")
    assert caught.value is exc
    assert [(command["word"], command.get("of")) for command in rival.said] == [
        ("give_way", None),
        ("withdraw", 1),
    ]


def test_for_another_number_of_replicas_it_names_the_playbook_that_scales() -> None:
    with pytest.raises(LeaseHeld, match=r"held by ann; .*scale\.yml"):
        Rival().begin("2", replicas=5)
    with pytest.raises(LeaseHeld) as caught:
        Rival().begin("2", replicas=3)
    assert "scale.yml" not in str(caught.value)


@pytest.mark.parametrize(
    "rival",
    [
        Rival(supersede=False),
        Rival(held=AlreadyRunning("shop", {"task": "Begin", "host": "web1", "worker_pid": 1})),
    ],
    ids=["nobody asked for it", "the same run"],
)
def test_otherwise_nothing_is_said(rival: Rival) -> None:
    with pytest.raises(LeaseHeld) as caught:
        rival.begin("3")
    assert rival.said == [] and rival.looks == 1
    assert ("supersede it (rollout_supersede: true)" in str(caught.value)) == (not rival.supersede)


@pytest.mark.parametrize(
    "given",
    [{"phase": Phase.ROLLING_BACK}, {"kind": RolloutKind.ROLLBACK}, {"phase": Phase.FINISHED}],
    ids=["on its way back", "a rollback", "at its end"],
)
def test_a_run_that_cannot_give_way_is_waited_for(given: dict[str, t.Any]) -> None:
    rival = Rival(gives_way=3, **given)
    assert rival.begin("3") == "" and rival.looks == 4
    assert rival.said == [] and rival.told[0].startswith("shop 3: waiting for the run that ")
    with pytest.raises(LeaseHeld, match="it did not end within") as caught:
        Rival(**given).begin("3")
    assert caught.value.id == "PR-703"
    with pytest.raises(LeaseHeld) as caught:
        Rival(supersede=False, **given).begin("3")
    assert "abort" not in str(caught.value), "its service is going back"


def test_a_rollout_that_begins_meanwhile_is_told_to_give_way() -> None:
    rival = Rival(gives_way=6, phase=Phase.FINISHED)

    def check() -> None:
        if rival.looks == 3 and rival.record.rollout:
            rival.record.rollout.phase = Phase.PROGRESSING

    rival.guard.check = check
    assert rival.begin("3") == ""
    assert [command["word"] for command in rival.said] == ["give_way", "withdraw"]
