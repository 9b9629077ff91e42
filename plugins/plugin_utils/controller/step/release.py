# SPDX-License-Identifier: GPL-3.0-or-later
"""The step's rollout as a member of its release: joins it, asks it, and tells it where it is."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from ...base import clock
from ...base.errors import InputError, RolloutFailed, StoreError
from ...config.release import Membership
from ...engine import release as engine
from ...engine.release import RETREAT, Member, Passage, Place, Release
from ...engine.strategy import Groups
from ...report.release import lines, places
from ...state import events
from ...state.record import MemberOf, Outcome, Record
from ...state.releases import JOURNAL, Releases

if t.TYPE_CHECKING:
    from .context import StepContext

Known = Mapping[str, Release]


class ReleaseLink:
    """The link between the step's rollout and its release."""

    def __init__(self, step: StepContext) -> None:
        self._step = step
        apart = replace(step.context, service=JOURNAL, transport=step.transport.apart())
        me = step.session.identity
        self.releases = Releases(step.settings.store.make(apart), me.token, me.holder)

    # -- begin -------------------------------------------------------------------------------------

    def join(self, membership: Membership, revision: str) -> MemberOf:
        """Join a release, which begins if it is not in progress; in check mode only look.

        Raises RolloutFailed or InputError where that is not possible.
        """
        name, now = membership.member, clock.wall()
        steps = self._steps()
        if self._step.record.open is None and not self._step.check_mode:
            self._give_up(membership, now)

        def joined(known: Known) -> Known:
            release = self._of(known, membership, now)
            if differ := engine.steps_differ(release, name, steps):
                raise InputError(f"rollout_release.with_canary: {differ}", "PR-134")
            release = engine.join(release, name, revision, steps, now)
            same = known.get(release.name) is release
            return known if same else {**known, release.name: release}

        release = dict(self._change(joined))[membership.release]
        member = release.members[name]
        return MemberOf(release.name, name, member.reversible, release.with_canary)

    def _give_up(self, membership: Membership, now: float) -> None:
        """Tell a release that goes back that its member is back: a run was killed between joining
        it and beginning the rollout.
        """

        def given_up(known: Known) -> Known:
            release = known.get(membership.release)
            member = release.members.get(membership.member) if release else None
            if (
                release is None
                or member is None
                or release.phase is not engine.ReleasePhase.GOING_BACK
                or not (member.joined and member.place is Place.WAITING)
            ):
                return known
            why = "its rollout had not begun"
            return {
                **known,
                release.name: engine.arrive(release, member.name, Place.BACK, now, why),
            }

        self._change(given_up)

    def check(self, membership: Membership) -> None:
        """Refuse a member that its release would refuse, as far as is known before it begins."""
        known = self.releases.read()
        release = self._of(known, membership, clock.wall(), continues=True)
        self._check_promoted(release)
        if differ := engine.steps_differ(release, membership.member, self._steps()):
            raise InputError(f"rollout_release.with_canary: {differ}", "PR-134")

    def begin(self, membership: Membership) -> Release:
        """Begin a release of which no member has begun, or return the one that has begun: it
        continues, forward or back.
        """
        now = clock.wall()

        def begins(known: Known) -> Known:
            release = self._of(known, membership, now, continues=True)
            same = known.get(release.name) is release
            return known if same else {**known, release.name: release}

        return self._change(begins)[membership.release]

    def abort(self, name: str, who: str, why: str) -> Release:
        """Take a release back; its members go back when they are run."""
        now, reason = clock.wall(), f"{who}: {why}" if why else who

        def aborted(known: Known) -> Known:
            release = engine.abort(known[name], reason, now)
            return known if release is known[name] else {**known, name: release}

        return self._change(aborted)[name]

    def leave_out(self, membership: Membership, revision: str) -> None:
        """Tell the release that the service already runs its revision."""
        name, now = membership.member, clock.wall()

        def done(known: Known) -> Known:
            release = self._of(known, membership, now)
            release = engine.arrive(release, name, Place.DONE, now, f"already runs {revision}")
            same = known.get(release.name) is release
            return known if same else {**known, release.name: release}

        self._change(done)

    def _change(self, change: t.Callable[[Known], Known]) -> Known:
        if self._step.check_mode:
            return change(self.releases.read())
        return self._step.store_retry.call(lambda: self.releases.change(change))

    def _steps(self) -> tuple[str, ...]:
        """Return the steps of the canary; a first deployment has none."""
        plan = self._step.settings.plan
        if plan.strategy != "canary" or isinstance(plan.steps, Groups):
            return ()
        return tuple(step.name for step in plan.steps) if self._step.record.stable else ()

    def _check_promoted(self, release: Release) -> None:
        """Refuse a member of a promoted release that is to have another revision than it has."""
        asked, stable = self._step.settings.revision, self._step.record.stable
        if release.phase is not engine.ReleasePhase.PROMOTED or asked is None:
            return
        if stable is None or stable.revision != asked:
            has = stable.revision if stable else "none"
            raise RolloutFailed(
                f"rollout_release: release {release.name} is promoted, and"
                f" {self._step.settings.service} has the revision {has}, not {asked}; give"
                " rollout_release another name",
                "PR-634",
            )

    def _of(
        self, known: Known, membership: Membership, now: float, continues: bool = False
    ) -> Release:
        """Return the release to join, or with `continues` to bring to its end, which a promoted
        one has reached; raises RolloutFailed.
        """
        release = known.get(membership.release)
        title = f"rollout_release: {self._step.settings.service} cannot join"
        open_ = [engine.ReleasePhase.PROGRESSING, engine.ReleasePhase.HELD]
        if continues:
            open_ += [engine.ReleasePhase.GOING_BACK, engine.ReleasePhase.PROMOTED]
        if release is None:
            release = begun(known, membership, now)
        elif release.phase not in open_:
            why = f": {release.reason}" if release.reason else ""
            raise RolloutFailed(
                f"{title} release {release.name}, which is {shown(release)}{why}; give"
                " rollout_release another name",
                "PR-634",
            )
        member = release.members.get(membership.member)
        if differs := _differs(release, member, membership, self._step.settings.service):
            raise RolloutFailed(
                f"{title} release {release.name}: {differs}; give all members the same, or give"
                " rollout_release another name",
                "PR-634",
            )
        starts = self._step.settings.platform.driver.capabilities.starts_instances
        if member is not None and member.reversible and not starts:
            raise InputError(
                f"rollout_release.members.{member.name}.reversible: instances are deployed in"
                " place, and their rollout cannot stay open to go back; set reversible: false",
                "PR-107",
            )
        return release

    # -- in progress -------------------------------------------------------------------------------

    @property
    def _mine(self) -> MemberOf | None:
        rollout = self._step.record.rollout
        return rollout.release if rollout else None

    def ask(self, point: str, step: str) -> Passage:
        """Ask the release whether its member may pass a point; any thread may do so."""
        mine, now = self._mine, clock.wall()
        if mine is None:
            return Passage(point != RETREAT, "no release")
        answers: list[Passage] = []

        def visited(known: Known) -> Known:
            release = known.get(mine.release)
            if release is None:
                raise StoreError(f"release {mine.release} is not in its journal", "PR-506")
            if point == RETREAT:  # what a killed run did not report
                release = self._arrived(release, mine, now)
            release, passage = engine.visit(release, mine.member, point, step, now)
            answers.append(passage)
            same = release is known[mine.release]
            return known if same else {**known, mine.release: release}

        self.releases.change(visited)
        return answers[-1]

    def report(self) -> None:
        """Report to the release where its member is; what fails now, the next run reports."""
        mine, now = self._mine, clock.wall()
        if mine is None or not self._step.session.epoch:
            return  # one that has the lease reports it

        def with_arrival(known: Known) -> Known:
            release = known.get(mine.release)
            changed = release and self._arrived(release, mine, now)
            if changed is None or changed is release:
                return known
            return {**known, mine.release: changed}

        try:
            known = self._step.store_retry.call(lambda: self.releases.change(with_arrival))
        except StoreError as exc:
            service = self._step.settings.service
            self._step.print_line(
                f"{service}: release {mine.release} was not told of it: {exc}; the next run does"
                f" [{exc.id}]"
            )
            return
        rollout = self._step.record.open
        if rollout and (release := known.get(mine.release)):
            self._note(release)
            self._step.loop.commit()

    def note(self) -> None:
        """Write down where the members are, for the rollout's report."""
        mine = self._mine
        if mine is None:
            return
        with suppress(StoreError):  # for people alone
            if release := self.releases.read().get(mine.release):
                self._note(release)

    def _arrived(self, release: Release, mine: MemberOf, now: float) -> Release:
        place, reason = place_of(self._step.record, release.members[mine.member])
        rollout = self._step.record.rollout
        ends = (rollout.ending, rollout.outcome) if rollout else ()
        aborted = Outcome.ABORTED in ends
        return engine.arrive(release, mine.member, place, now, reason, aborted)

    def _note(self, release: Release) -> None:
        seen = places(release)
        self._step.loop.event(
            events.ReleaseSeen(release=release.name, phase=release.phase.value, members=seen)
        )

    def lines(self) -> list[str]:
        """Return the release of the service's last rollout for people."""
        mine = self._mine
        try:
            release = self.releases.read().get(mine.release) if mine else None
        except StoreError as exc:  # the service has a journal of its own
            name = mine.release if mine else ""
            return [f"release {name}: its members are not known: {exc} [{exc.id}]"]
        return lines(release, clock.wall()) if release else []

    def holds(self) -> str:
        """Return why the member, which failed, is held instead of rolled back; empty: it is not."""
        release = self._joined()
        return engine.holds(release) if release else ""

    def abandoned(self) -> str:
        """Return why the member, which is not promoted, does not go on; empty: it does."""
        release, mine = self._joined(), self._mine
        return engine.abandoned(release, mine.member) if release and mine else ""

    def retreat(self) -> str:
        """Return why the member has to go back now; empty: it stays, or its release is not known.

        Those that come after it go first.
        """
        with suppress(StoreError):  # the gate of the rollout asks again
            release, mine = self._joined(), self._mine
            return engine.must_go_back(release, mine.member) if release and mine else ""
        return ""

    def _joined(self) -> Release | None:
        """Return the release of the rollout; None: it has none."""
        if (mine := self._mine) is None:
            return None
        return self._step.store_retry.call(self.releases.read).get(mine.release)


def in_progress(step: StepContext, service: str) -> str:
    """Return of which release in progress a service is a member; empty: of none.

    Over the connections of the step: every rollout asks, and few services have releases.
    """
    context = replace(step.context, service=JOURNAL, transport=step.transport)
    me = step.session.identity
    with suppress(StoreError):  # a damaged record of releases keeps no service
        for release in (
            Releases(step.settings.store.make(context), me.token, me.holder).read().values()
        ):
            members = {member.service for member in release.members.values()}
            if service in members and not release.phase.over:
                return release.name
    return ""


def begun(known: Known, membership: Membership, now: float) -> Release:
    """Return a release that begins; raises RolloutFailed where it cannot."""
    name = membership.release
    if not membership.members:
        raise RolloutFailed(
            f"rollout_release: release {name} is not in progress, and rollout_release.members,"
            " which begins it, is not given; run release.yml, or give all members",
            "PR-633",
        )
    members = {member.name: member for member in membership.members}
    release = engine.declared(Release(name, members, membership.with_canary), now)
    if taken := engine.conflict(known.values(), release):
        raise RolloutFailed(
            f"rollout_release: cannot begin release {name}: {taken}; wait for its end, or abort it",
            "PR-634",
        )
    return release


def _differs(release: Release, member: Member | None, membership: Membership, service: str) -> str:
    """Return in what a member differs from what the release says; empty: in nothing."""
    if member is None or member.service != service:
        return f"its members are {places(release)}, and {membership.member} ({service}) is none"
    members = {known.name: known for known in membership.members}
    asked = Release(release.name, members, membership.with_canary)
    if membership.members and asked.plan != release.plan:
        return "its members, or with_canary, are not those that it began with"
    for name, value in membership.declared.items():
        begun_with = getattr(member, name)
        if (tuple(value) if name == "after" else value) != begun_with:
            return f"{name} of {member.name} is not what it began with ({begun_with})"
    return ""


def shown(release: Release) -> str:
    """Return the phase of a release for people."""
    return "back" if release.phase is engine.ReleasePhase.BACK else release.phase.replace("_", " ")


def place_of(record: Record, member: Member) -> tuple[Place, str]:
    """Return where a member is by its service's journal, and why."""
    rollout = record.rollout
    if rollout is None:
        return member.place, ""
    if rollout.over:
        left = rollout.outcome == Outcome.FAILED and rollout.previous is not None
        if rollout.outcome == Outcome.PROMOTED:
            return Place.DONE, ""
        return (Place.HELD if left else Place.BACK), rollout.reason
    if rollout.phase == "rolling_back":
        return Place.GOING_BACK, rollout.reason
    if rollout.phase == "held":
        return Place.HELD, rollout.reason
    if record.stable and record.stable.generation == rollout.generation and member.reversible:
        return Place.PROMOTED, ""
    return (Place.MOVING if rollout.passed or member.moved else Place.WAITING), ""
