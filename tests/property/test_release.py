# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases of several services, in random graphs, with members that fail, are killed and run again.

Each member is a rollout that goes from point to point and knows its own journal alone. A killed
one tells the release later, or never.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.release import (
    BEGIN,
    LEAVE,
    OUT,
    PROMOTION,
    RETIRE,
    RETREAT,
    SETTLED,
    Member,
    Place,
    Release,
    ReleasePhase,
    abort,
    arrive,
    conflict,
    declared,
    has_turn,
    holds,
    join,
    may_begin,
    may_promote,
    ordered,
    problem,
    steps_differ,
    visit,
)
from hypothesis import given, settings
from hypothesis import strategies as st

STEPS = ("step 1", "step 2")


@st.composite
def releases(draw: st.DrawFn) -> Release:
    """A release whose members come after any of those before them in the list."""
    count = draw(st.integers(1, 5))
    members: dict[str, Member] = {}
    for number in range(count):
        name = f"m{number}"
        after = tuple(other for other in members if draw(st.booleans()))
        soak = draw(st.sampled_from([0.0, 5.0]))
        reversible = draw(st.integers(0, 3)) > 0
        members[name] = Member(name, f"s{number}", after, soak, reversible)
    with_canary = draw(st.booleans()) and not problem(list(members.values()), True)
    return declared(Release("1", members, with_canary), 0.0)


@dataclass
class Run:
    """The rollout of a member, as its own journal has it."""

    name: str
    told: bool = True  # whether the release knows where it is
    points: list[tuple[str, str]] = field(default_factory=list)  # ahead
    place: Place = Place.WAITING
    reason: str = ""
    alone: bool = False  # it goes back because it failed
    late: bool = False  # likewise, once the release was promoted: it is that member's alone


class World:
    """A release and its members' rollouts. It checks the promises at every change."""

    def __init__(self, release: Release) -> None:
        self.release, self.now = release, 0.0
        self.runs: dict[str, Run] = {}
        self.left: dict[str, set[str]] = {}  # by step, the members that left it
        self.aborted = False

    def move(self, name: str, fails: bool, killed: bool) -> None:
        """Let the member do its next action; a killed run does not tell the release of it."""
        self.now += 1.0
        run = self.runs.get(name)
        if run is None:
            if self.release.phase is ReleasePhase.PROGRESSING:
                self._begin(name)
            return
        if not run.told:  # run again
            self._tell(run)
            return
        if run.place in (Place.DONE, Place.BACK):
            return
        if run.place is Place.GOING_BACK:
            run.place = Place.BACK
        elif (why := self._ask(run, RETREAT)[1]) and self._ask(run, RETREAT)[0]:
            self._retreat(run, why)
        elif fails and run.place in (Place.MOVING, Place.PROMOTED):
            self._fail(run)
        elif run.place is not Place.HELD:
            self._advance(run)
        if killed:
            run.told = False
        else:
            self._tell(run)

    def _begin(self, name: str) -> None:
        member = self.release.members[name]
        together = self.release.with_canary and member.reversible
        steps = STEPS if together else ()
        assert not steps_differ(self.release, name, steps)
        points = [(BEGIN, ""), *[(LEAVE, step) for step in steps], (PROMOTION, "")]
        points += [(RETIRE, "")] if member.reversible else []
        self.runs[name] = Run(name, points=points)
        self.release = join(self.release, name, "2", steps, self.now)

    def _ask(self, run: Run, point: str, step: str = "") -> tuple[bool, str]:
        self.release, passage = visit(self.release, run.name, point, step, self.now)
        return passage.may, passage.why

    def _advance(self, run: Run) -> None:
        point, step = run.points[0]
        if point == RETIRE:
            run.place = Place.PROMOTED
        if not self._ask(run, point, step)[0]:
            return
        run.points.pop(0)
        member = self.release.members[run.name]
        if point == BEGIN:
            run.place = Place.MOVING
            if not (self.release.with_canary and member.reversible):
                self._check_order(member)
        elif point == LEAVE:
            self._check_step(run.name, step)
        elif point == PROMOTION:
            self._check_order(member)
            run.place = Place.PROMOTED if run.points else Place.DONE
        else:
            assert self.release.phase is ReleasePhase.PROMOTED
            run.place = Place.DONE

    def _check_order(self, member: Member) -> None:
        """Never is a member promoted before what it comes after has been promoted and has soaked."""
        for name in member.after:
            other = self.release.members[name]
            assert self.runs[name].place in SETTLED and other.place in SETTLED
            assert self.now - other.since >= member.soak

    def _check_step(self, name: str, step: str) -> None:
        """No member leaves a step before all are there."""
        for other in self.release.members.values():
            if other.reversible and other.name != name:
                assert step in other.passed or other.place in SETTLED

    def _retreat(self, run: Run, why: str) -> None:
        """What comes after a member goes back before it does, and what cannot go back stays."""
        member = self.release.members[run.name]
        assert member.reversible or not member.moved
        for follower in self.release.followers(run.name):
            own = self.runs.get(follower.name)
            idle = own is None or own.points[:1] == [(BEGIN, "")]  # it has started nothing
            assert idle or not follower.reversible or own.place not in OUT
        run.place, run.reason = Place.GOING_BACK, why

    def _fail(self, run: Run) -> None:
        if holds(self.release) or not self.release.members[run.name].reversible:
            run.place, run.reason = Place.HELD, "failed"
        else:
            run.place, run.reason, run.alone = Place.GOING_BACK, "failed", True
            run.late = self.release.phase is ReleasePhase.PROMOTED

    def _tell(self, run: Run) -> None:
        self.release = arrive(self.release, run.name, run.place, self.now, run.reason)
        run.told = True

    def abort(self) -> None:
        self.release = abort(self.release, "abort sent by ann", self.now)
        self.aborted = self.aborted or self.release.phase in (
            ReleasePhase.GOING_BACK,
            ReleasePhase.BACK,
        )

    def settle(self) -> None:
        """Let every member run, without a failure, until nothing happens any more."""
        for _turn in range(200):
            before = self.release.phase, {n: r.place for n, r in self.runs.items()}
            for _again in range(12):
                for name in self.release.members:
                    self.move(name, fails=False, killed=False)
            if (self.release.phase, {n: r.place for n, r in self.runs.items()}) == before:
                return
        raise AssertionError("the release never comes to rest")


MOVES = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers(0, 9), st.integers(0, 60)),
    max_size=80,
)


@given(releases(), MOVES)
@settings(max_examples=300, deadline=None)
def test_a_release_is_promoted_in_order_or_not_at_all(
    release: Release, moves: t.Sequence[tuple[int, int, int, int]]
) -> None:
    world = World(release)
    listed = list(release.members)
    for number, fails, killed, aborts in moves:
        world.move(listed[number % len(listed)], fails == 0, killed == 0)
        if aborts == 0:
            world.abort()
    world.settle()
    release = world.release
    places = {name: member.place for name, member in release.members.items()}
    assert places == {name: world.runs[name].place for name in world.runs} | {
        name: Place.WAITING for name in places if name not in world.runs
    }
    if release.phase is ReleasePhase.PROMOTED:
        late = {name for name, run in world.runs.items() if run.late}
        assert {places[name] for name in places.keys() - late} <= {Place.DONE}
        assert {places[name] for name in late} <= {Place.BACK}
        return
    if release.phase is ReleasePhase.BACK:
        # every member is on its old revision, or cannot go back and is named as such
        out = [m for m in release.members.values() if m.place not in (Place.WAITING, Place.BACK)]
        assert all(m.moved and not m.reversible for m in out)
        assert not any(m.place is Place.WAITING and m.joined for m in release.members.values())
        return
    assert release.phase is ReleasePhase.HELD and release.reason and not world.aborted
    world.abort()
    world.settle()
    assert world.release.phase is ReleasePhase.BACK


@given(releases(), st.integers(0, 4), st.integers(1, 40))
@settings(max_examples=100, deadline=None)
def test_after_an_abort_every_member_is_back(release: Release, first: int, count: int) -> None:
    world = World(release)
    listed = list(release.members)
    for number in range(count):
        world.move(listed[(first + number) % len(listed)], fails=False, killed=number % 5 == 0)
    ended = world.release.phase is ReleasePhase.PROMOTED
    world.abort()
    world.settle()
    assert world.release.phase is (ReleasePhase.PROMOTED if ended else ReleasePhase.BACK)


@given(releases())
@settings(max_examples=100, deadline=None)
def test_turns_lead_to_the_end(release: Release) -> None:
    """A driver that gives turns only to members that have something to do comes to the end."""
    world = World(release)
    for _turn in range(500):
        if all(member.place is Place.DONE for member in world.release.members.values()):
            break
        now = world.now
        due = [
            m.name
            for m in ordered(release.members.values())
            if has_turn(world.release, m.name, now)
        ]
        assert due, world.release
        for name in due:
            world.move(name, fails=False, killed=False)
    assert world.release.phase is ReleasePhase.PROMOTED


@pytest.mark.parametrize(
    ("members", "with_canary", "message"),
    [
        ([Member("a", "a", ("b",))], False, "a comes after b, which is no member"),
        ([Member("a", "a", ("b",)), Member("b", "b", ("a",))], False, "come after each other"),
        ([Member("a", "a", ("a",))], False, "come after each other"),
        ([Member("a", "x"), Member("b", "x")], False, "two members are the service x"),
        (
            [Member("a", "a"), Member("b", "b", ("a",), reversible=False)],
            True,
            "b cannot go back and comes after a member",
        ),
        ([Member("a", "a", reversible=False), Member("b", "b", ("a",))], True, ""),
    ],
)
def test_members_that_cannot_be_released_are_refused(
    members: list[Member], with_canary: bool, message: str
) -> None:
    told = problem(members, with_canary)
    assert message in told and bool(told) == bool(message)


def test_a_service_is_in_one_release_in_progress_at_a_time() -> None:
    first = Release("1", {"a": Member("a", "shop")})
    second = Release("2", {"x": Member("x", "shop")})
    assert "shop is a member of release 1" in conflict([first], second)
    assert not conflict([abort(first, "no", 1.0)], second)
    assert not conflict([first], Release("1", {"a": Member("a", "shop")}))


def test_a_member_with_other_steps_is_refused() -> None:
    members = {name: Member(name, name) for name in ("a", "b")}
    release = join(Release("1", members, True), "a", "2", ("step 1",), 1.0)
    assert not steps_differ(release, "b", ("step 1",))
    assert "a has step 1" in steps_differ(release, "b", ("step 1", "step 2"))
    assert "has no steps" in steps_differ(release, "b", ())


def test_a_member_waits_until_what_it_comes_after_has_soaked() -> None:
    members = {"a": Member("a", "a"), "b": Member("b", "b", ("a",), soak=10.0)}
    release = arrive(Release("1", members), "a", Place.MOVING, 5.0)
    assert not may_begin(release, "b", 100.0).may
    release = arrive(release, "a", Place.PROMOTED, 6.0)
    assert may_begin(release, "b", 15.9).alone
    assert may_promote(release, "b", 16.0).may


def test_a_failure_after_a_migration_holds_the_release_until_an_operator_decides() -> None:
    members = {
        "schema": Member("schema", "schema", reversible=False),
        "api": Member("api", "api", ("schema",)),
    }
    release = arrive(Release("1", members), "schema", Place.MOVING, 1.0)
    assert "schema cannot go back" in holds(release)
    release = arrive(arrive(release, "schema", Place.DONE, 2.0), "api", Place.MOVING, 3.0)
    held = arrive(release, "api", Place.HELD, 4.0, "500s")
    assert held.phase is ReleasePhase.HELD and held.reason == "api: 500s"
    assert arrive(held, "api", Place.MOVING, 5.0).phase is ReleasePhase.PROGRESSING
    back = arrive(abort(held, "abort sent by ann", 5.0), "api", Place.BACK, 6.0)
    assert back.phase is ReleasePhase.BACK and back.members["schema"].place is Place.DONE


def test_what_cannot_even_begin_after_a_migration_holds_the_release() -> None:
    members = {
        "schema": Member("schema", "schema", reversible=False),
        "api": Member("api", "api", ("schema",)),
    }
    release = arrive(Release("1", members), "schema", Place.MOVING, 1.0)
    release = arrive(release, "schema", Place.DONE, 2.0)
    assert arrive(release, "api", Place.BACK, 3.0, "no room").phase is ReleasePhase.HELD
    sent = arrive(release, "api", Place.BACK, 3.0, "abort sent by ann", aborted=True)
    assert sent.phase is ReleasePhase.BACK
