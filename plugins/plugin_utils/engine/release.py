# SPDX-License-Identifier: GPL-3.0-or-later
"""A release: rollouts of several services that are promoted together, in order, or not at all.

Which member may begin, leave a step and be promoted, which has to go back, and when the release has
ended. Pure. Times in seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter


class Place(StrEnum):
    """Where a member of a release is."""

    WAITING = "waiting"  # nothing of its rollout was started
    MOVING = "moving"
    PROMOTED = "promoted"  # its rollout stays open, so that it can go back
    DONE = "done"  # its rollout has ended with a promotion
    GOING_BACK = "going_back"
    BACK = "back"
    HELD = "held"


class ReleasePhase(StrEnum):
    """Where a release is."""

    PROGRESSING = "progressing"
    HELD = "held"  # a member failed, and an operator decides
    GOING_BACK = "going_back"
    PROMOTED = "promoted"
    BACK = "back"  # every member that can go back is back

    @property
    def over(self) -> bool:
        """Whether the release has ended."""
        return self in (ReleasePhase.PROMOTED, ReleasePhase.BACK)


NOTES = 200  # that are kept of a release
SETTLED = (Place.PROMOTED, Place.DONE)
OUT = (Place.MOVING, Place.PROMOTED, Place.GOING_BACK, Place.HELD)  # what can go back


@dataclass(frozen=True)
class Member:
    """A service of a release."""

    name: str
    service: str
    after: tuple[str, ...] = ()  # members that are promoted before it
    soak: float = 0.0  # for how long they have been promoted before it begins
    reversible: bool = True
    place: Place = Place.WAITING
    since: float = 0.0  # when it came to its place
    joined: bool = False  # whether its rollout has begun
    moved: bool = False  # whether anything of its rollout was ever started
    steps: tuple[str, ...] = ()  # of its canary, where members take them together
    passed: tuple[str, ...] = ()  # of these
    revision: str = ""
    reason: str = ""

    @property
    def plan(self) -> tuple[object, ...]:
        """What was declared of the member."""
        return self.name, self.service, self.after, self.soak, self.reversible


@dataclass(frozen=True)
class Note:
    """What happened to a release."""

    at: float
    text: str


@dataclass(frozen=True)
class Release:
    """Members that are released together, by name."""

    name: str
    members: Mapping[str, Member]
    with_canary: bool = False  # whether they take the steps of their canaries together
    phase: ReleasePhase = ReleasePhase.PROGRESSING
    reason: str = ""  # why it is held or goes back
    began: float = 0.0
    updated: float = 0.0
    log: tuple[Note, ...] = ()  # what happened, oldest first

    @property
    def plan(self) -> tuple[object, ...]:
        """What was declared of the release."""
        members = sorted((member.plan for member in self.members.values()), key=str)
        return self.name, self.with_canary, tuple(members)

    @property
    def fixed(self) -> list[Member]:
        """The members that were started and cannot go back."""
        return [m for m in self.members.values() if m.moved and not m.reversible]

    def followers(self, name: str) -> list[Member]:
        """Return the members that come after one, directly or not."""
        names, following = {name}, []
        for member in ordered(self.members.values()):
            if names.intersection(member.after):
                names.add(member.name)
                following.append(member)
        return following


@dataclass(frozen=True)
class Passage:
    """Whether a member may pass a gate of its release."""

    may: bool
    why: str  # what it waits for, or why it may
    alone: bool = False  # the wait ends without another member


# The graph ------------------------------------------------------------------------------------


def ordered(members: Iterable[Member]) -> list[Member]:
    """Return members, each after all that it comes after; raises CycleError."""
    by_name = {member.name: member for member in members}
    graph = {name: list(member.after) for name, member in by_name.items()}
    return [by_name[name] for name in TopologicalSorter(graph).static_order()]


def problem(members: Sequence[Member], with_canary: bool) -> str:
    """Return what is wrong with the members of a release; empty: nothing."""
    names = {member.name for member in members}
    services = [member.service for member in members]
    for member in members:
        if unknown := [name for name in member.after if name not in names]:
            return (
                f"{member.name} comes after {', '.join(unknown)}, which is no member; the members"
                f" are {', '.join(sorted(names))}"
            )
        if services.count(member.service) > 1:
            return f"two members are the service {member.service}; each needs a service of its own"
    try:
        listed = ordered(members)
    except CycleError as exc:
        cycle = " after ".join(reversed([str(name) for name in exc.args[1]]))
        return f"members come after each other ({cycle}); remove one of these"
    return _mixed(listed) if with_canary else ""


def _mixed(listed: Sequence[Member]) -> str:
    """Return which irreversible member would wait for a canary that waits for it."""
    behind: set[str] = set()  # members that are taken together, and those after them
    for member in listed:
        if member.reversible or behind.intersection(member.after):
            behind.add(member.name)
            if not member.reversible:
                return (
                    f"{member.name} cannot go back and comes after a member that takes its steps"
                    " with the others (with_canary); release it first, or on its own"
                )
    return ""


def conflict(releases: Iterable[Release], release: Release) -> str:
    """Return which release in progress has a service of this one; empty: none."""
    services = {member.service for member in release.members.values()}
    for other in releases:
        if other.name == release.name or other.phase.over:
            continue
        for member in other.members.values():
            if member.service in services:
                return f"{member.service} is a member of release {other.name}, which is in progress"
    return ""


# Who may go -----------------------------------------------------------------------------------


def may_begin(release: Release, name: str, now: float) -> Passage:
    """Return whether a member may start its first instance."""
    if stopped := _stopped(release):
        return stopped
    if not _together(release, name):
        return may_promote(release, name, now)
    group = [m for m in release.members.values() if m.reversible]
    if missing := [m.name for m in group if not m.joined and m.place not in SETTLED]:
        return Passage(False, f"for the rollout of {', '.join(missing)} to begin")
    fixed = [m for m in ordered(release.members.values()) if not m.reversible]
    before = [m for m in fixed if any(f.reversible for f in release.followers(m.name))]
    return _after(release, name, [m.name for m in before], now)


def may_leave(release: Release, name: str, step: str) -> Passage:
    """Return whether a member that has passed a step may continue: all others have, too."""
    if stopped := _stopped(release):
        return stopped
    if not _together(release, name):
        return Passage(True, "")
    late = [
        m.name
        for m in release.members.values()
        if m.name != name and m.reversible and m.place not in SETTLED and step not in m.passed
    ]
    if late:
        return Passage(False, f"for {', '.join(late)} at {step}")
    return Passage(True, f"all members have passed {step}")


def may_promote(release: Release, name: str, now: float) -> Passage:
    """Return whether all that a member comes after are promoted, and have soaked."""
    return _stopped(release) or _after(release, name, release.members[name].after, now)


def may_retire(release: Release, name: str, now: float) -> Passage:
    """Return whether a promoted member may give up its way back."""
    member = release.members[name]
    if not member.reversible or release.phase is ReleasePhase.PROMOTED:
        return Passage(True, f"release {release.name} is promoted")
    if stopped := _stopped(release):
        return stopped
    direct = [m for m in release.members.values() if name in m.after and m.place is Place.WAITING]
    left = member.since + max([m.soak for m in direct], default=0.0) - now
    if left > 0:
        return Passage(False, f"soaking for {names(direct)}", alone=True)
    late = [m for m in ordered(release.members.values()) if m.place not in SETTLED]
    return Passage(False, f"for the promotion of {names(late)}")


def _stopped(release: Release) -> Passage | None:
    """Return that nothing may go forward; None: it may."""
    if release.phase is ReleasePhase.PROGRESSING:
        return None
    phase = release.phase.replace("_", " ")
    return Passage(False, f"release {release.name} is {phase}: {release.reason}")


def _together(release: Release, name: str) -> bool:
    """Return whether the member takes the steps of its canary with others."""
    return release.with_canary and release.members[name].reversible


def _after(release: Release, name: str, after: Iterable[str], now: float) -> Passage:
    members = [release.members[other] for other in after]
    if late := [m for m in members if m.place not in SETTLED]:
        return Passage(False, f"for the promotion of {names(late)}")
    soak = release.members[name].soak
    left = max([m.since + soak - now for m in members if m.moved], default=0.0)
    if left > 0:
        return Passage(False, f"for {names(members)} to soak", alone=True)
    return Passage(True, f"{names(members)} promoted" if members else "comes after no member")


def names(members: Iterable[Member]) -> str:
    """Return members for people."""
    return ", ".join(member.name for member in members)


# Who has to go back ---------------------------------------------------------------------------


def must_go_back(release: Release, name: str) -> str:
    """Return why a member has to go back now; empty: it stays.

    Those that come after it go first.
    """
    member = release.members[name]
    if release.phase is not ReleasePhase.GOING_BACK or member.place in (Place.DONE, Place.BACK):
        return ""
    if not member.joined or (member.moved and not member.reversible):
        return ""
    if any(other.place in OUT and other.reversible for other in release.followers(name)):
        return ""
    return f"release {release.name} goes back: {release.reason}"


def holds(release: Release) -> str:
    """Return why a member that fails is held instead of rolled back; empty: it is not."""
    fixed = release.fixed
    if not fixed or release.phase is ReleasePhase.GOING_BACK:
        return ""
    return f"release {release.name} is held, since {names(fixed)} cannot go back"


def abandoned(release: Release, name: str) -> str:
    """Return why a member that is not promoted does not go on; empty: it does, or goes back."""
    member = release.members[name]
    if release.phase not in (ReleasePhase.GOING_BACK, ReleasePhase.BACK):
        return ""
    if member.reversible or not member.moved:
        return ""
    return f"release {release.name} was taken back ({release.reason}), but for {name}"


# What happens ---------------------------------------------------------------------------------


def declared(release: Release, now: float) -> Release:
    """Return a release that begins."""
    return noted(replace(release, began=now), f"release {release.name} begins", now)


def noted(release: Release, text: str, now: float) -> Release:
    """Return the release with a line in its log, of which the last ones are kept."""
    return replace(release, log=(*release.log, Note(now, text))[-NOTES:], updated=now)


def join(release: Release, name: str, revision: str, steps: tuple[str, ...], now: float) -> Release:
    """Return the release once the rollout of a member has begun."""
    member = release.members[name]
    if member.joined:
        return release
    changed = replace(member, joined=True, revision=revision, steps=steps)
    text = f"{name}: the rollout of {revision} begins"
    return noted(_with(release, changed), text, now)


def steps_differ(release: Release, name: str, steps: tuple[str, ...]) -> str:
    """Return with which member's steps a member cannot go together; empty: with all."""
    if not _together(release, name):
        return ""
    if not steps:
        return f"{name} has no steps, and with_canary takes the steps of all members together"
    for other in release.members.values():
        if other.name != name and other.joined and other.reversible and other.steps != steps:
            return (
                f"{name} has the steps {', '.join(steps)}, and {other.name} has"
                f" {', '.join(other.steps)}; with_canary takes them together"
            )
    return ""


def pass_step(release: Release, name: str, step: str, now: float) -> Release:
    """Return the release once a member has passed a step of its canary."""
    member = release.members[name]
    if step in member.passed:
        return release
    changed = replace(member, passed=(*member.passed, step))
    return noted(_with(release, changed), f"{name}: {step} passed", now)


def arrive(
    release: Release, name: str, place: Place, now: float, reason: str = "", aborted: bool = False
) -> Release:
    """Return the release once a member has come to a place, and what follows for the others.

    `aborted`: it goes back because an operator said so. A member that is back stays back.
    """
    member = release.members[name]
    if member.place is place or member.place in (Place.BACK, Place.DONE):
        return release
    moved = member.moved or place in (Place.MOVING, Place.PROMOTED)
    # the time to soak counts from the promotion, not from the end of the rollout
    since = member.since if member.place is Place.PROMOTED and place is Place.DONE else now
    changed = replace(member, place=place, since=since, moved=moved, reason=reason)
    what = place.replace("_", " ")
    text = f"{name}: {what}{f': {reason}' if reason else ''}"
    return _followed(noted(_with(release, changed), text, now), changed, aborted, now)


def abort(release: Release, reason: str, now: float) -> Release:
    """Return the release once an operator takes it back."""
    if release.phase.over or release.phase is ReleasePhase.GOING_BACK:
        return release
    return _settle(_turn(release, ReleasePhase.GOING_BACK, reason, now), now)


def _with(release: Release, member: Member) -> Release:
    return replace(release, members={**release.members, member.name: member})


def _followed(release: Release, member: Member, aborted: bool, now: float) -> Release:
    """Return the release with what the place of a member means for all."""
    why = f"{member.name}{f': {member.reason}' if member.reason else ' failed'}"
    if release.phase in (ReleasePhase.PROGRESSING, ReleasePhase.HELD):
        if member.place in (Place.GOING_BACK, Place.BACK):
            others = [m for m in release.fixed if m.name != member.name]
            stays = others and not aborted
            phase = ReleasePhase.HELD if stays else ReleasePhase.GOING_BACK
            release = _turn(release, phase, why, now)
        elif member.place is Place.HELD:
            release = _turn(release, ReleasePhase.HELD, why, now)
        elif release.phase is ReleasePhase.HELD and not _bad(release):
            release = _turn(release, ReleasePhase.PROGRESSING, "", now)
    return _settle(release, now)


def _bad(release: Release) -> bool:
    """Return whether a member keeps the release held."""
    bad = (Place.HELD, Place.GOING_BACK, Place.BACK)
    return any(member.place in bad for member in release.members.values())


def _settle(release: Release, now: float) -> Release:
    """Return the release, ended if nothing is left to do."""
    members = release.members.values()
    if release.phase is ReleasePhase.PROGRESSING and all(m.place in SETTLED for m in members):
        return _turn(release, ReleasePhase.PROMOTED, "", now)
    left = any(
        (member.place in OUT and (member.reversible or not member.moved))
        or (member.place is Place.WAITING and member.joined)
        for member in members
    )
    if release.phase is ReleasePhase.GOING_BACK and not left:
        return _turn(release, ReleasePhase.BACK, release.reason, now)
    return release


def _turn(release: Release, phase: ReleasePhase, reason: str, now: float) -> Release:
    if release.phase is phase:
        return release
    what = phase.replace("_", " ")
    text = f"release {release.name} is {what}{f': {reason}' if reason else ''}"
    return noted(replace(release, phase=phase, reason=reason), text, now)


# The points at which a member asks its release ------------------------------------------------

BEGIN, LEAVE, PROMOTION, RETIRE, RETREAT = "begin", "leave", "promotion", "retire", "retreat"


def visit(
    release: Release, name: str, point: str, step: str, now: float
) -> tuple[Release, Passage]:
    """Return whether a member may pass a point, and the release once it is there.

    `step` is that of its canary which it leaves.
    """
    if point == RETREAT:
        why = must_go_back(release, name)
        return release, Passage(bool(why), why)
    if why := must_go_back(release, name):
        return release, Passage(False, why, alone=True)
    if point == BEGIN:
        passage = may_begin(release, name, now)
        place = release.members[name].place
        starts = passage.may and place is Place.WAITING
        return (arrive(release, name, Place.MOVING, now) if starts else release), passage
    if point == LEAVE:
        release = pass_step(release, name, step, now)
        return release, may_leave(release, name, step)
    if point == RETIRE:
        if release.members[name].place is Place.MOVING:
            release = arrive(release, name, Place.PROMOTED, now)
        return release, may_retire(release, name, now)
    return release, may_promote(release, name, now)


def has_turn(release: Release, name: str, now: float) -> bool:
    """Return whether a run of the member has something to do."""
    member = release.members[name]
    if release.phase is ReleasePhase.GOING_BACK:
        return member.place is Place.GOING_BACK or bool(must_go_back(release, name))
    if member.place is Place.PROMOTED:
        passage = may_retire(release, name, now)
        return passage.may or passage.alone
    if release.phase is ReleasePhase.HELD:
        return member.place is Place.HELD
    if member.place is Place.WAITING:
        joins = _together(release, name) and not member.joined
        passage = may_begin(release, name, now)
        return joins or passage.may or passage.alone
    return member.place is Place.MOVING
