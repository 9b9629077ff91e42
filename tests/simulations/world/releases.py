# SPDX-License-Identifier: GPL-3.0-or-later
"""Stories of releases: rollouts of several services that wait for each other, with members that
fail, runs that are killed and run again, and operators who take the release back.
"""

from __future__ import annotations

import json
import math
import traceback
import typing as t
from collections.abc import Mapping
from random import Random

from ansible_collections.progressive.rollout.plugins.action import release as release_step
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutError
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.release import (
    Place,
    Release,
    ReleasePhase,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import shapes
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import Labels
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.releases import JOURNAL

from .machine import Dead, Job, Machine
from .runs import DRIVERS, Run, inside, journal
from .world import AT_CALLS, Broken, Fault, Instance, Life, World

NAME, LEASE, LONGEST = "2026.47", 30.0, 7200.0
DEADLY = ("dies before", "dies after", "is interrupted", "is lost", "fails", "freezes", "is slow")


class ReleaseWorld(World):
    """Checks at each start of an instance that what its service comes after is promoted."""

    def __init__(self, machine: Machine, members: Mapping[str, t.Any], together: bool, seed: int):
        super().__init__(machine, [], lambda *_of: Life(), 0, 1000, Random(f"world {seed}"))
        self.members, self.together = members, together  # whether they take steps together
        self.moved: set[str] = set()  # members that were started
        self.bad = ""  # the member whose new instances never answer

    def begin(self, labels: Labels, lost: float | None = None) -> Instance:
        name = labels.service
        # one that cannot go back may be tried again, whatever the others do
        bound = self.members[name].get("reversible", True) or name not in self.moved
        if labels.revision == "2" and bound and not self.together:
            self._check_order(name)
        instance = super().begin(labels, lost)
        if labels.revision == "2" and labels.service == self.bad:
            instance.life = Life(start=math.inf)
        return instance

    def _check_order(self, name: str) -> None:
        self.moved.add(name)
        for other in self.members[name].get("after", ()):
            if self.stable_revision(other) != "2":
                self.broken(f"{name} is started, and {other} is not promoted")

    def stable_revision(self, service: str) -> str:
        """Return the stable revision that the journal of a service has."""
        stable = journal(self, service).stable
        return stable.revision if stable else ""

    def running(self, service: str) -> list[str]:
        return sorted(one.labels.revision for one in self.instances(service) if not one.gone)

    @property
    def release(self) -> Release | None:
        """The release as its journal has it."""
        text = self.journals[JOURNAL].texts.get("record")
        known = json.loads(text).get("releases", {}) if text else {}
        return shapes.read(dict[str, Release], known).get(NAME)


class ReleaseStory:
    """A release of drawn members, while it happens."""

    def __init__(self, seed: int) -> None:
        self.seed, self.dice = seed, Random(f"release {seed}")
        self.machine = Machine(Random(f"machine {seed}"))
        self.together = self.dice.random() < 0.25
        self.members = self._drawn()
        self.world = ReleaseWorld(self.machine, self.members, self.together, seed)
        self.world.bad = self.dice.choice(["", "", *self.members])
        self.jobs: list[Job] = []
        # by `release.yml`, which may be killed anywhere, and is run again, or by runs of their own
        self.playbook = self.dice.random() < 0.5

    def _drawn(self) -> dict[str, dict[str, t.Any]]:
        dice, members = self.dice, dict[str, dict[str, t.Any]]()
        for number in range(dice.randint(2, 4)):
            after = [name for name in members if dice.random() < 0.6]
            members[f"m{number}"] = {"soak": dice.choice([0, 0, 5])} | (
                {"after": after} if after else {}
            )
            if not self.together and dice.random() < 0.2:
                members[f"m{number}"]["reversible"] = False
        return members

    def _given(self, name: str, revision: str = "2") -> dict[str, t.Any]:
        """Return the variables of a member's rollout."""
        given = {**DRIVERS, "service": name, "revision": revision, "replicas": 2, "lease": LEASE}
        given |= {"budget": {"max_surge": 1, "max_unavailable": 0}, "progress_deadline": 60}
        given |= {"failure_limit": 1, "wait": 5}
        if revision == "1":
            return given
        if self.together:
            given |= {"strategy": "canary", "steps": [{"set_weight": 50}]}
        release = {"name": NAME, "members": self.members, "with_canary": self.together}
        return {**given, "release": {**release, "member": name}}

    def tell(self) -> str:
        """Let it happen; return what is wrong, with the story, or nothing."""
        world = self.world
        with inside(world, self.seed):
            try:
                self._tell()
            except Broken as exc:
                world.broken(str(exc))
            finally:
                wrong, lines = world.wrong, list(world.lines)
                self.machine.end()
        about = f"seed {self.seed}: {wrong}\nmembers: {self.members}, together: {self.together}"
        return "\n".join((about, f"fails: {self.world.bad or 'none'}", *lines)) if wrong else ""

    def _tell(self) -> None:
        world, dice = self.world, self.dice
        for name in self.members:
            self._await(self._rollout(name, "1"))
        world.tell("-- the release begins")
        world.lives = lambda revision, _number: Life(start=dice.choice([0.5, 3.0]))
        world.calls = 0
        kinds = [dice.choice(DEADLY) for _fault in range(dice.choice([0, 1, 2, 4]))]
        spans = dict.fromkeys(("freezes", "is slow"), 10.0)
        faults = [Fault(kind, dice.randint(1, 400), spans.get(kind, 0.0)) for kind in kinds]
        world.at_calls = {int(fault.at): fault for fault in faults if fault.kind in AT_CALLS}
        if dice.random() < 0.35:
            at = self.machine.time + dice.uniform(1, 40)
            work = dice.choice([self._abort_release, self._abort_member])
            self.machine.at(at, lambda: t.cast(None, work()))
        for _round in range(dice.randint(1, 4)):
            for job in self._busy():
                self._await(job)
        self._end()

    def _busy(self) -> list[Job]:
        if self.playbook:
            return [self._release()]
        return [self._rollout(name) for name in self.members if self.dice.random() < 0.8]

    def _end(self) -> None:
        """Without faults, members that are run again bring the release to its end."""
        world = self.world
        world.at_calls = {}
        for job in self.jobs:
            self._await(job)
        self.machine.sleep(LEASE + 61.0)
        for number in range(12):
            release = world.release
            if release and release.phase.over and not self._left_open(release):
                break
            if release and release.phase is ReleasePhase.HELD and number > 2:
                self._await(self._abort_release())
            if self.playbook:
                self._await(self._release())
                continue
            for name in self.members:
                self._await(self._rollout(name))
        self._abort_left()
        self._check_end()

    def _abort_left(self) -> None:
        """What cannot go back, and a run was killed at, is rolled back by hand, as its page says."""
        release = self.world.release
        for name, member in release.members.items() if release else ():
            if release and release.phase is ReleasePhase.BACK and member.place is Place.MOVING:
                self._await(self._abort_member(name))

    def _left_open(self, release: Release) -> bool:
        """Return whether the rollout of a member that can go back, or has to go on, is open."""
        return any(
            journal(self.world, name).open
            for name, member in release.members.items()
            if member.reversible or not member.moved or release.phase is ReleasePhase.PROMOTED
        )

    def _check_end(self) -> None:
        world, release = self.world, self.world.release
        if release is None or not release.phase.over:
            raise Broken(f"the release does not end: {release and release.phase}")
        for name in self.members:
            member, runs = release.members[name], world.running(name)
            # once the release is promoted, an operator may take a member back alone
            kept = release.phase is ReleasePhase.PROMOTED and member.place is not Place.BACK
            stays = member.moved and not member.reversible
            if stays and not kept:
                if member.place not in (Place.DONE, Place.HELD, Place.BACK):
                    raise Broken(f"{name}, which cannot go back, is {member.place}")
                continue
            revision = "2" if kept else "1"
            if runs != [revision] * 2 or world.stable_revision(name) != revision:
                raise Broken(f"release {release.phase}: {name} runs {runs}, not {revision}")
            if journal(world, name).open:
                raise Broken(f"release {release.phase}: the rollout of {name} is open")

    # -- runs --------------------------------------------------------------------------------------

    def _rollout(self, name: str, revision: str = "2") -> Job:
        given = self._given(name, revision)
        return self._begin(f"rollout.yml {name} {revision}", lambda run: run.rollout(given))

    def _release(self) -> Job:
        members = {name: self._given(name) for name in self.members}
        return self._begin("release.yml", lambda run: run.release(members))

    def _abort_release(self) -> Job:
        given = self._given(self.dice.choice(list(self.members)))
        return self._begin(
            "release.yml abort", lambda run: run.step(release_step, given, command="abort")
        )

    def _abort_member(self, name: str = "") -> Job:
        given = self._given(name or self.dice.choice(list(self.members)))
        return self._begin(f"abort.yml {given['service']}", lambda run: run.control("abort", given))

    def _begin(self, what: str, work: t.Callable[[Run], object]) -> Job:
        process = self.machine.process(f"run {len(self.jobs) + 1}")
        run = Run(self.world, process, "controller")

        def main() -> None:
            self.world.tell(f"-- {what}")
            try:
                work(run)
                self.world.tell("-- ended")
            except RolloutError as exc:
                self.world.tell(f"-- failed: {exc} [{exc.id}]")
            except Dead:
                self.world.tell("-- killed")
                raise
            except BaseException as exc:
                self.world.tell(traceback.format_exc())
                self.world.broken(f"internal error: {type(exc).__name__}: {exc}")
            finally:
                process.kill()

        job = self.machine.start(process, main, "main")
        self.jobs.append(job)
        return job

    def _await(self, job: Job) -> None:
        """Wait for a run, and see that it ends."""
        world = self.world
        self.machine.wait_for(lambda: job.done or bool(world.wrong), job.waiters, LONGEST)
        if world.wrong:
            raise Broken(world.wrong)
        if not job.done:
            raise Broken(f"{job.process.name} does not end")
