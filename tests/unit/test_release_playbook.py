# SPDX-License-Identifier: GPL-3.0-or-later
"""What `release.yml` does, as its role does it: killed, repeated, aborted, and with members that
were rolled out alone.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest
from ansible_collections.progressive.rollout.plugins.action import info, release
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    RolloutError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.release import (
    Place,
    Release,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.releases import (
    JOURNAL,
    Releases,
)
from ansible_collections.progressive.rollout.tests.simulations.world.store import MemoryStore
from ansible_collections.progressive.rollout.tests.support.memory import Service, World

pytestmark = pytest.mark.usefixtures("virtual_time")

MEMBERS: Mapping[str, t.Any] = {
    "api": {},
    "worker": {"after": ["api"]},
    "web": {"after": ["worker"]},
}


class Killed(BaseException):
    """The playbook is killed between two turns."""


class Playbook:
    """`release.yml` over services in memory."""

    def __init__(self, members: Mapping[str, t.Any] = MEMBERS) -> None:
        first = World(fewest=0)
        self.declared: dict[str, t.Any] = {"members": members}
        self.first = next(iter(members))
        self.worlds = {name: World(fewest=0, journals=first.journals) for name in members}
        self.services = {
            name: Service(world, service=name, replicas=2, failure_limit=1)
            for name, world in self.worlds.items()
        }
        self.said: list[str] = []

    def run(
        self,
        name: str,
        revision: str,
        command: str = "begin",
        turns: int = 99,
        until: Callable[[], bool] = lambda: False,
        **more: t.Any,
    ) -> str:
        """Run it; return what `begin` said. It is killed after so many turns, or between two."""
        given = {"release": {"name": name, **self.declared}, **more}
        if command != "abort":
            for member, service in self.services.items():
                service.step(release, {"command": "check"}, **self.of(member, given, revision))
        first = self.services[self.first]
        of_first = self.of(self.first, given, revision)
        begun = first.step(release, {"command": command}, **of_first)
        turn: dict[str, t.Any] = {}
        while True:
            turn = first.step(release, {"command": "next", "turn": turn}, **of_first)["turn"]
            if not turn["member"]:
                break
            if not turns or until():
                raise Killed
            turns -= 1
            clock.sleep(1.0)  # no turn is as short as those of a virtual clock
            turn["failed"] = False
            try:
                service = self.services[turn["member"]]
                service.play(**self.of(turn["member"], given, revision), wait=0)
            except RolloutError as exc:
                self.said.append(f"{exc} [{exc.id}]")
                turn["failed"] = True
        options = {
            "command": "taken_back" if command == "abort" else "end",
            "turn": turn,
            "show": True,
        }
        first.step(release, options, **of_first)
        return str(begun.get("msg", ""))

    def of(self, member: str, given: Mapping[str, t.Any], revision: str) -> dict[str, t.Any]:
        """Return the variables of a member."""
        declared = {**given["release"], "member": member}
        return {**given, "release": declared, "revision": revision}

    @property
    def running(self) -> list[dict[str, int]]:
        return [service.running for service in self.services.values()]

    def releases(self) -> Mapping[str, Release]:
        """The releases, as their journal has them."""
        store = MemoryStore(JOURNAL, self.worlds[self.first].journals[JOURNAL])
        return Releases(store, "test", "test").read()

    def places(self, name: str) -> set[Place]:
        return {member.place for member in self.releases()[name].members.values()}

    def log(self, name: str) -> list[str]:
        return [note.text for note in self.releases()[name].log]


@pytest.fixture
def playbook() -> Playbook:
    """Three services that were released."""
    made = Playbook()
    made.run("1", "1")
    assert made.running == [{"1": 2}] * 3
    return made


@pytest.mark.parametrize("turns", range(6))
def test_a_release_that_goes_back_is_continued_by_the_same_command(
    playbook: Playbook, turns: int
) -> None:
    playbook.worlds["web"].crashes = lambda labels: labels.revision == "2"
    with suppress(Killed, RolloutFailed):
        playbook.run("2", "2", turns=turns)
    with pytest.raises(RolloutFailed, match="release 2 was taken back") as failed:
        playbook.run("2", "2")
    assert failed.value.id == "PR-636"
    assert playbook.running == [{"1": 2}] * 3 and playbook.places("2") == {Place.BACK}


def test_a_promoted_release_that_is_repeated_has_nothing_to_do(playbook: Playbook) -> None:
    assert playbook.run("1", "1") == "release 1 is promoted; nothing to do"
    with pytest.raises(RolloutFailed, match="give rollout_release another name") as refused:
        playbook.run("1", "2")
    assert refused.value.id == "PR-634" and playbook.running == [{"1": 2}] * 3


def two_are_new(playbook: Playbook) -> None:
    """Let the playbook be killed when two of three members are promoted."""
    worker = playbook.services["worker"]
    with suppress(Killed):
        playbook.run("2", "2", until=lambda: worker.running == {"2": 2})


def test_an_abort_takes_members_back_whose_settings_have_changed(playbook: Playbook) -> None:
    two_are_new(playbook)
    assert playbook.running == [{"2": 2}, {"2": 2}, {"1": 2}]
    playbook.run("2", "2", "abort", strategy="canary", steps=[{"set_replicas": 1}])
    assert playbook.running == [{"1": 2}] * 3 and playbook.places("2") <= {
        Place.BACK,
        Place.WAITING,
    }


def test_an_abort_that_leaves_members_on_the_new_revision_fails(playbook: Playbook) -> None:
    two_are_new(playbook)
    world = playbook.worlds["worker"]
    world.crashes = lambda labels: labels.revision == "1"
    with pytest.raises(RolloutFailed, match="worker") as failed:
        playbook.run("2", "2", "abort", progress_deadline=5)
    assert failed.value.id == "PR-636" and playbook.running[0] == {"2": 2}


def test_an_abort_of_a_promoted_release_fails(playbook: Playbook) -> None:
    with pytest.raises(RolloutFailed, match="is promoted, and no abort takes it back") as failed:
        playbook.run("1", "1", "abort")
    assert failed.value.id == "PR-636"


def test_a_member_that_waits_is_not_rolled_out_alone(playbook: Playbook) -> None:
    with suppress(Killed):
        playbook.run("2", "2", turns=1)
    before = playbook.running
    with pytest.raises(RolloutFailed, match="web is a member of release 2") as refused:
        playbook.services["web"].play(revision="3")
    assert refused.value.id == "PR-638" and playbook.running == before
    playbook.run("2", "2")
    playbook.services["web"].play(revision="3")
    assert playbook.running == [{"2": 2}, {"2": 2}, {"3": 2}]


def test_status_of_a_member_needs_no_record_of_releases(playbook: Playbook) -> None:
    texts = playbook.worlds["api"].journals[JOURNAL].texts
    for damaged in (b"{", b'{"releases": {"1": {"name": 5}}, "id": ""}'):
        texts["record"] = damaged
        lines = playbook.services["api"].step(info)["lines"]
        assert "api 1 promoted" in lines[0]
        assert any("the record of the releases is damaged" in line for line in lines), lines
    playbook.services["api"].play(revision="2")
    assert playbook.running[0] == {"2": 2}


def test_a_release_whose_member_is_refused_fails(playbook: Playbook) -> None:
    """Nothing of the release has failed, and nothing goes on."""
    playbook.run("2", "2", order=5)
    with pytest.raises(RolloutFailed, match="The turn of api failed") as failed:
        playbook.run("3", "3", order=4)
    assert failed.value.id == "PR-636" and playbook.running == [{"2": 2}] * 3
    assert "PR-131" in playbook.said[-1]


def test_the_end_of_a_release_is_shown_once(playbook: Playbook) -> None:
    said = playbook.services["api"].said
    assert [line.startswith("release 1 is promoted") for line in said].count(True) == 1


def test_a_failure_after_a_migration_holds_the_release() -> None:
    """What cannot go back stays, and the release waits for a person."""
    playbook = Playbook({"schema": {"reversible": False}, "api": {"after": ["schema"]}})
    playbook.run("1", "1")
    playbook.worlds["api"].crashes = lambda labels: labels.revision == "2"
    with pytest.raises(RolloutFailed, match="schema cannot go back"):
        playbook.run("2", "2")
    members = playbook.releases()["2"].members
    assert {name: member.place for name, member in members.items()} == {
        "schema": Place.DONE,
        "api": Place.HELD,
    }
    playbook.run("2", "2", "abort")
    assert playbook.releases()["2"].phase == "back" and playbook.running == [{"2": 2}, {"1": 2}]


def test_members_take_the_steps_of_their_canaries_together() -> None:
    playbook = Playbook({"api": {}, "worker": {"after": ["api"]}})
    steps = [{"set_replicas": 1}, {"pause": "1s"}, {"set_replicas": 2}]
    canary = {"strategy": "canary", "steps": steps, "replicas": 3}
    playbook.run("1", "1")
    playbook.declared["with_canary"] = True
    playbook.run("2", "2", **canary)
    log = playbook.log("2")
    first, second = (
        [log.index(f"{name}: {step} passed") for name in ("api", "worker")]
        for step in ("step 1", "step 3")
    )
    assert max(first) < min(second), log
    assert max(second) < log.index("api: promoted") < log.index("worker: promoted"), log


@pytest.mark.parametrize(
    ("members", "id"),
    [
        ({"api": {"after": ["worker"]}, "worker": {"after": ["api"]}}, "PR-134"),
        ({"api": {"after": ["cron"]}}, "PR-134"),
        ({"api": {"service": "worker"}, "worker": {}}, "PR-134"),
        ({"api": {"soak": "soon"}}, "PR-121"),
    ],
)
def test_a_release_that_cannot_be_is_refused(members: dict[str, t.Any], id: str) -> None:
    playbook = Playbook(members)
    with pytest.raises(InputError) as refused:
        playbook.run("1", "1")
    assert refused.value.id == id
    assert not any(playbook.running) and not playbook.worlds["api"].journals[JOURNAL].texts
