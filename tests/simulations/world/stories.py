# SPDX-License-Identifier: GPL-3.0-or-later
"""Stories while they happen: the runs and commands of one, its faults, and its end."""

from __future__ import annotations

import json
import math
import re
import shlex
import traceback
import typing as t
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    GaveWay,
    LeaseHeld,
    RolloutError,
    StoreAway,
    StoreGone,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Record

from . import drivers, older
from .draws import ENDS, FORCE, LEASE, LOOKS, PER_HOST, WORDS, Story, allowed, size
from .in_place import PLATFORM, InPlaceRun, labels
from .machine import START, Dead, Job, Machine
from .runs import DRIVERS, Run, inside, journal, lease
from .world import AT_CALLS, HOSTS, Broken, Entry, Fault, Life, World

LONGEST = 7200.0  # seconds that a run may take
SETTINGS = {"1": "one", "2": "two", "3": "three"}  # by revision
# commands that may pass a gate, and a rollback to the revision
PASSES = ("promote", "promote_full", "skip", "retry", "rollback", FORCE)
RARE = ("targets", "on_stable_lost", "notify", "autoscaler")
TOLD = re.compile(r"ansible-playbook progressive\.rollout\.(\w+ .*)")


@dataclass
class End:
    """How a story ended."""

    story: Story
    wrong: str
    lines: Sequence[str]
    rollouts: int
    faults: int
    seconds: float  # of virtual time

    def text(self) -> str:
        """Return the story for people."""
        story = self.story
        bad = ", ".join(str(life) for life in story.bad if life != Life()) or "none"
        return "\n".join(
            (
                f"seed {story.seed}: {self.wrong or 'every promise is kept'}",
                f"variables: {shown(story.given)}, then {shown(story.next_given)}",
                f"instances that misbehave: {bad}",
                f"follows: {', '.join(story.follows)}; controllers: {story.machines};"
                f" a receiver of notices: {', '.join(story.receiving)}"
                + (f"; begins with {story.left}" if story.left else "")
                + (f"; adopts {story.by_hand} servers" if story.by_hand else "")
                + ("; each revision has its settings" if story.differ else "")
                + ("; balancers retry" if story.retries else "")
                + (f"; what ends is restarted after {story.again:g} s" if story.again else "")
                + ("; few requests, and long ones" if story.quiet else "")
                + (f"; tasks take {story.tasks:g} s" if story.tasks > 1 else ""),
                "faults: " + ("; ".join(map(str, story.faults)) or "none"),
                *self.lines,
            )
        )


def shown(given: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the variables of a story that others do not have."""
    return {name: value for name, value in given.items() if DRIVERS.get(name) != value}


def without_gates(given: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the variables of a rolling rollout that waits for nothing but its instances."""
    return {
        name: value
        for name, value in {**given, "strategy": "rolling"}.items()
        if name not in ("steps", "gates", "hold")
    }


def run(story: Story) -> End:
    """Let a story happen, and say how it ended."""
    return _Telling(story).end()


class _Telling:
    """One story while it happens."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.machine = Machine(Random(f"machine {story.seed}"))
        given, later = story.given, story.next_given
        sizes = [size(given), size(later)]
        if given["replicas"] == PER_HOST:  # a host that is left out counts for nothing
            sizes.append(len(HOSTS) - any("exclude" in one.what for one in story.faults))
        sizes += [sizes[0] + 1] if any("scale" in one.what for one in story.faults) else []
        sizes += [story.by_hand] if story.by_hand else []
        wishes = [int(one.span) for one in story.faults if one.kind == "autoscaler wants"]
        sizes += wishes if "autoscaler" in given else []
        rounded = "targets" in given  # the share of each target is rounded up
        parts = len(given.get("targets", "1"))
        numbers = [allowed(given["budget"], -(-number // parts) * parts) for number in sizes]
        surge, self.unavailable = (max(column) for column in zip(*numbers, strict=True))
        # so few may carry all requests on a way back; an earlier version's rollout has the default
        headroom = max(given["headroom"], 1.25 if story.left else 1)
        floor = math.ceil(min(sizes) / headroom)
        double = 2 if given["strategy"] == "blue_green" or "hold" in given else 1
        self.world = World(
            self.machine,
            [],
            self._good,
            max(0, floor - self.unavailable),
            double * max(sizes) + surge + rounded,
            Random(f"world {story.seed}"),
        )
        # on a way back so many are enough for all requests
        self.world.even = headroom / min(sizes)
        self.world.unavailable = self.unavailable
        self.world.wanted = max(0, min(sizes) - self.unavailable)
        self._divide(min(sizes), headroom)
        # those that start together may all fail
        together = surge + self.unavailable + (max(sizes) if double == 2 else 0)
        self.world.decided.failures = given["failure_limit"] + together
        self.world.receiving = story.receiving
        self.in_place = given["platform"] == PLATFORM
        if self.in_place:
            for host in HOSTS:
                self.world.begin(labels(host, "0"))
        self.world.managed = given["autoscaler"]["mode"] if "autoscaler" in given else ""
        self.world.inherited = bool(story.left)
        self.world.waits.robust = all(
            life.start < math.inf and life.crash is None and life.flap is None for life in story.bad
        )
        self.world.waits.in_place = self.in_place
        if not story.left:
            self.world.waits.hold = float(given.get("hold", "0s").rstrip("s"))
        self.world.one_a_host = given["replicas"] == PER_HOST
        self.world.retries, self.world.tasks = story.retries, story.tasks
        self.world.again, self.world.quiet = story.again, story.quiet
        self.world.settings = SETTINGS if story.differ else {}
        self.world.previewed = bool(given["traffic"].get("preview"))
        self.world.unfit = {"2"} if self._unfit() else set()
        self.world.hidden = self.world.unfit if given["strategy"] == "blue_green" else set()
        self.jobs: list[Job] = []
        self.last: Run
        self.rollouts = 0
        self.healed = self.told_bare = False

    def _divide(self, least: int, headroom: float) -> None:
        """Tell load balancers of one target what they send requests to: each target has the same
        part, rounded up.
        """
        given = self.story.given
        steps = given.get("steps") or ()
        self.world.weights = [one["set_weight"] for one in steps if "set_weight" in one]
        if "ramp" in steps:
            self.world.weights = range(steps["start"], 101)
        for target in given.get("targets", ()):
            for name in target.get("load_balancers", ()):
                balancer, part = self.world.balancers[name], -(-least // len(given["targets"]))
                balancer.hosts, balancer.even = target["hosts"].split(","), headroom / part
                few = math.ceil(part / headroom)
                balancer.floor = max(0, few - self.unavailable)

    def _unfit(self) -> bool:
        """Return whether revision 2 cannot pass its gates, and no operator passes them."""
        story = self.story
        obeys = story.left or any(one.what in PASSES for one in story.faults)
        # a new side that has lost the stable one may be promoted without its gates
        obeys = obeys or story.given.get("on_stable_lost") == "promote"
        gates = story.given.get("gates", {}).get("confirm_promotion", [])
        analysed = any("analysis" in one for one in story.given.get("steps", ()))
        judged = analysed and all(life.errors for life in story.bad)
        return not obeys and (judged or any(one["answer"] != "pass" for one in gates))

    def _good(self, _revision: str, _number: int) -> Life:
        return Life(work=4.0) if self.story.quiet else Life()

    def _drawn(self, revision: str, number: int) -> Life:
        if revision == "bad":
            return Life(start=math.inf)
        if revision == "1":
            return self._good(revision, number)
        return self.story.bad[number % len(self.story.bad)] if revision == "2" else Life()

    def end(self) -> End:
        world = self.world
        with inside(world, self.story.seed):
            try:
                self._tell()
            except Broken as exc:
                if not world.wrong:
                    world.broken(str(exc))
            finally:
                wrong, lines = world.wrong, list(world.lines)
                self.machine.end()
        return End(
            self.story,
            wrong,
            lines,
            self.rollouts,
            len(world.happened),
            self.machine.time - START,
        )

    def _tell(self) -> None:
        story, world = self.story, self.world
        if story.left:
            older.leave(world, story.left, DRIVERS)
        elif story.by_hand:
            world.write_by_hand(story.by_hand)
        else:
            self._deploy_first()
        world.snapshot()
        self._go_on()

    def _deploy_first(self) -> None:
        """Deploy revision 1, before anything goes wrong."""
        story, world = self.story, self.world
        self._await(self._rollout("1", without_gates(story.given)))
        if any(one.what == "cart bad" for one in story.faults):
            self._await(self._neighbour("3"))
        if journal(world).stable is None:
            raise Broken(f"the first revision is not deployed: {self.jobs[-1].result}")

    def _go_on(self) -> None:
        """Roll revision 2 out, while everything goes wrong that the story has."""
        story, world = self.story, self.world
        world.tell(f"-- the story begins: {dict(world.summary())}")
        world.lives = self._drawn
        world.calls = 0
        world.at_calls = {int(one.at): one for one in story.faults if one.kind in AT_CALLS}
        begin = world.now
        for fault in story.faults:
            if fault.kind == "at the switch":
                world.at_switch = lambda fault=fault: self._at_switch(fault)
            elif fault.kind not in AT_CALLS:
                self.machine.at(begin + fault.at, lambda fault=fault: self._befall(fault))
        self._await(self._rollout("2", story.given))
        self._check_calm()
        for follow in story.follows:
            if journal(world).open is None:
                break
            self.machine.sleep(5.0)
            self._await(self._follow(follow))
        while busy := [job for job in self.jobs if job.is_alive()]:
            self._await(busy[0])
        self._converge()

    def _check_calm(self) -> None:
        """Where nothing befalls a rollout of a good revision, it is not taken back."""
        story, rollout = self.story, journal(self.world).rollout
        gates = story.given.get("gates", {}).get("confirm_promotion", [])
        well = self.world.waits.robust and not any(life.errors for life in story.bad)
        if story.faults or story.left or not well or any(one["answer"] == "fail" for one in gates):
            return
        if rollout and (rollout.phase == "held" or rollout.outcome not in ("", "promoted")):
            why = f"{rollout.outcome or rollout.phase}, {rollout.reason}"
            raise Broken(f"nothing went wrong, and the rollout is {why}")

    def _at_switch(self, fault: Fault) -> None:
        self.world.at_switch = lambda: None
        self._befall(fault)

    def _befall(self, fault: Fault) -> None:
        if self.healed or self.world.wrong:
            return
        if fault.kind in ("command", "at the switch"):
            self.world.happened.append(fault)
            self._command(fault.what)
        elif fault.kind == "second run":
            self.world.happened.append(fault)
            self._follow(fault.what)
        else:
            self.world.strike(fault)

    # -- runs --------------------------------------------------------------------------------------

    def _begin(self, what: str, kind: str, work: Callable[[Run], object]) -> Job:
        number = len(self.jobs) + 1
        self.rollouts += kind == "rollout"
        process = self.machine.process(f"{kind} {number}")
        host = "controller" if self.story.machines == 1 else f"controller{number % 2}"
        in_place = self.in_place and kind != "cart"
        run = (InPlaceRun if in_place else Run)(self.world, process, host)

        def whole() -> object:
            self.world.tell(f"-- {what}")
            try:
                result = work(run)
            except RolloutError as exc:
                run.say(f"-- failed: {exc} [{exc.id}]")
                self._check_verdict(exc)
                self._check_patience(exc, process.run)
                return exc
            except Dead:
                self.world.tell("-- killed")
                raise
            except BaseException as exc:
                self.world.tell(traceback.format_exc())
                self.world.broken(f"internal error: {type(exc).__name__}: {exc}")
                return exc
            self.world.tell("-- ended")
            return result

        def main() -> object:
            try:
                return whole()
            finally:
                process.kill()  # its threads end with it

        job = self.machine.start(process, main, "main")
        self.jobs.append(job)
        self.last = run if kind != "cart" else self.last
        return job

    def _check_verdict(self, exc: RolloutError) -> None:
        """A rollout failed: not by an analysis, unless the new revision has errors."""
        good = not any(life.errors for life in self.story.bad)
        if good and "e-value" in str(exc):
            self.world.broken(f"a good revision is judged bad: {exc}")

    def _check_patience(self, exc: RolloutError, run: int) -> None:
        """A run that had the lease ends for a store that is away only if that takes longer than it
        waits; before, it is refused at once.
        """
        longest = self.story.given["progress_deadline"]
        away = [one for one in self.world.happened if one.kind in ("store away", *AT_CALLS)]
        if run not in self.world.leases or any(one.span >= longest for one in away):
            return
        if isinstance(exc, StoreAway | StoreGone):
            self.world.broken(f"a run does not wait for a store that is away for a while: {exc}")

    def _told(self) -> list[str]:
        """Return the commands that the last run told the operator to continue or end it with. Where
        it was held, what it told before is over.
        """
        said = "\n".join(self.last.told).rpartition(" held at ")[2]
        return [one for one in TOLD.findall(said) if one.split()[0] not in ("status", "report")]

    def _obey(self, command: str) -> Job:
        """Run a command that an operator was told, with the variables that it has, and no others."""
        word, *more = shlex.split(command)
        given: dict[str, t.Any] = {}
        for text in more[1::2]:
            name, equals, value = text.partition("=")
            given |= json.loads(text) if text.startswith("{") else {name: value if equals else ""}
        given = {name.removeprefix("rollout_"): value for name, value in given.items()}
        word = given.pop("command", word)
        return self._begin(f"as told: {command}", "control", lambda run: run.control(word, given))

    def _rollout(self, revision: str, given: Mapping[str, t.Any]) -> Job:
        asked = self._of(revision, given)
        return self._begin(f"rollout.yml {revision}", "rollout", lambda run: run.rollout(asked))

    def _of(self, revision: str, given: Mapping[str, t.Any]) -> dict[str, t.Any]:
        """Return the variables with which a revision is rolled out."""
        asked = {**given, "revision": revision}
        if flavour := self.world.settings.get(revision):
            asked["platform"] = {**given["platform"], "flavour": flavour}
            asked["health"] = {**given["health"], "http": f"/{flavour}"}
            asked["new_check"] = True
        return asked

    def _command(self, word: str) -> Job:
        open = journal(self.world).open
        given = self._of(open.revision if open else "2", self.story.given)
        more: dict[str, t.Any] = {}
        if word == "scale":
            more = {"replicas": size(self.story.given) + 1}
        if word in ("exclude", "include"):
            more = {"host": HOSTS[0]}
        if word == FORCE:
            word, more = "promote", {"force": True}
        what = f"{word}.yml {more or ''}".rstrip()
        return self._begin(what, "control", lambda run: run.control(word, given, **more))

    def _follow(self, what: str) -> Job:
        open = journal(self.world).open
        revision = open.revision if open else "2"
        given = self.story.given if revision == "2" else self.story.next_given
        if what.startswith("as told"):
            return self._obey(what.removeprefix("as told "))
        if what == "abort":
            return self._command("abort")
        if what == "rollback" and self.in_place:
            return self._command("abort")
        if what == "rollback":
            asked = self._of(revision, given)
            return self._begin("rollback.yml", "rollback", lambda run: run.rollback(asked))
        if what == "next":
            return self._rollout("3", self.story.next_given)
        if what.startswith("cart"):
            return self._neighbour(what.removeprefix("cart "))
        if what in LOOKS:
            asked = {**given, "revision": revision}
            return self._begin(what, "look", lambda run: run.look(what, asked))
        if what == "restart":
            asked = self._of(revision, given)
            return self._begin(
                "restart.yml", "rollout", lambda run: run.rollout(asked, restart=True)
            )
        if what == "scale run":
            stable = journal(self.world).stable
            asked = self._of(stable.revision if stable else "1", given)
            asked["replicas"] = size(self.story.given) + 1
            self._allow_beside(asked["revision"])
            return self._begin("scale", "scale", lambda run: run.scale(asked))
        return self._rollout(revision, given)

    def _allow_beside(self, revision: str) -> None:
        """Let a revision be scaled beside what a rollout in progress has of others."""
        others = sum(one.labels.revision != revision for one in self.world.alive())
        self.world.ceiling += others

    def _neighbour(self, revision: str) -> Job:
        """Roll out another service on the same hosts and balancers."""
        known = {name: self.story.given[name] for name in ("lease", "progress_deadline")}
        known |= {"service": "cart", "replicas": 2, "supersede": True}
        asked = {**DRIVERS, **known, "revision": revision}
        return self._begin(
            f"rollout.yml {revision} of cart", "cart", lambda run: run.rollout(asked)
        )

    def _check_neighbour(self) -> None:
        """The other service is as it was rolled out."""
        alive = [one for one in self.world.instances("cart") if not one.gone]
        places = {one.labels.endpoint for one in alive}
        if [one.labels.revision for one in alive] != ["4", "4"] or len(places) != 2:
            raise Broken(f"of cart there are {alive}")
        for balancer in self.world.pool("cart").values():
            inside = {at for at, one in balancer.entries.items() if one.rotation is Rotation.IN}
            if inside != places or balancer.entries.keys() != places:
                raise Broken(f"{balancer.name} has other entries of cart than there are instances")

    def _await(self, job: Job) -> None:
        """Wait for a run, and see that it ends."""
        world, until = self.world, self.machine.time + LONGEST
        self.machine.wait_for(
            lambda: job.done or bool(world.wrong), job.waiters, until - self.machine.time
        )
        if world.wrong:
            raise Broken(world.wrong)
        if not job.done:
            raise Broken(f"{job.process.name} does not end")

    # -- the end -----------------------------------------------------------------------------------

    def _converge(self) -> None:
        """Without faults, whatever was left of a rollout comes to its end when run again."""
        world = self.world
        self.healed = True
        world.heal()
        self.machine.sleep(LEASE + 61.0)
        world.tell(f"-- the faults are over: {dict(world.summary())}")
        words: tuple[str, ...] = ("same", "same", "promote_full", "rollback", "same")
        if self.in_place:
            words = ("same", "same", "promote_full", "same", "abort", "same", "same")
        self._do_as_told()
        for word in words:
            open = journal(world).open
            if open is None:
                break
            if word == "promote_full" and open.phase == "held":
                word = "retry"
            self._await(self._command(word) if word in WORDS else self._follow(word))
            # a lease taken by a clock that was ahead ends a lease's time after it was first read
            self.machine.sleep(LEASE + 1.0 if lease(world) else 1.0)
        self._deploy_again()

    def _do_as_told(self) -> None:
        """A run that leaves its rollout open tells what to do, and just that works.

        A lease that a run took with a clock that was ahead lasts once more as long from when the
        next run is refused, which is told so; and to run again, if another gives way to a run that
        was killed.
        """
        if journal(self.world).open:
            job = self._follow("same")
            self._await(job)
            if isinstance(job.result, LeaseHeld | GaveWay):
                self.machine.sleep(LEASE + 1.0)
                self._await(self._follow("same"))
        open, commands = journal(self.world).open, self._told()
        if open is None or not (open.phase.waits or commands):
            return
        if not commands:
            raise Broken(f"the operator is not told what to do with a rollout that is {open.phase}")
        job = self._obey(self.world.dice.choice(commands))
        self._await(job)
        if isinstance(job.result, GaveWay):
            job = self._follow("same")
            self._await(job)
        self.told_bare = True
        if isinstance(job.result, RolloutError) and job.result.id[:4] not in ("PR-6", "PR-4"):
            raise Broken(f"what the operator is told is refused: {job.result}")

    def _deploy_again(self) -> None:
        """The rollout has ended; run again, it finds nothing wrong. Of leases: see `_do_as_told`."""
        record = journal(self.world)
        if record.open:
            raise Broken(f"rollout of {record.open.revision} does not end: {record.open.phase}")
        if self.story.by_hand and self._runs_by_hand(record):
            self._await(self._rollout("3", without_gates(self.story.next_given)))
            record = journal(self.world)
        if record.stable is None:
            raise Broken("there is no stable revision")
        given = self.story.given if record.stable.revision != "3" else self.story.next_given
        per_host = given["replicas"] == PER_HOST
        asked = {**given, "replicas": PER_HOST if per_host else record.stable.replicas}
        job = self._rollout(record.stable.revision, asked)
        self._await(job)
        if isinstance(job.result, LeaseHeld):  # taken with a clock that was ahead
            self.machine.sleep(LEASE + 1.0)
            self._await(self._rollout(record.stable.revision, asked))
        self._check_end()
        if any(one.what.startswith("cart") for one in self.story.faults):
            self._await(self._neighbour("4"))
            self._check_neighbour()

    def _runs_by_hand(self, record: Record) -> bool:
        """Return whether the service is as it was before its first rollout."""
        stable, adopted = record.stable, record.adopted
        if stable and adopted and adopted.generation == stable.generation:
            if adopted.out:
                raise Broken(f"{', '.join(adopted.out)} did not come back")
            if not any(one.kind.startswith("balancer") for one in self.story.faults):
                self._check_end()  # no run would put right what befell a balancer since
            return True
        return stable is None

    def _check_end(self) -> None:
        """Nothing is left over, and the journal's end agrees with the fleet."""
        world, record = self.world, journal(self.world)
        stable = record.stable
        if record.open or stable is None:
            raise Broken(f"the last run left a rollout: {record.open}")
        alive = world.alive()
        ours = [
            one
            for one in alive
            if (one.labels.revision, one.labels.generation or stable.generation)
            == (stable.revision, stable.generation)
        ]
        targets = len(self.story.given.get("targets", [0]))  # each has the same part, rounded up
        if len(alive) != math.ceil(stable.replicas / targets) * targets or len(ours) != len(alive):
            raise Broken(f"{dict(world.summary())} run, and {stable} should")
        if left := [one.labels.id for one in world.instances() if one.gone]:
            raise Broken(f"left of dead instances: {', '.join(left)}")
        for balancer in world.balancers.values():
            there = {one.labels.endpoint for one in alive if one.labels.host in balancer.hosts}
            entries = {
                at: one for at, one in balancer.entries.items() if one.ours and not one.unused
            }
            others = [one for one in balancer.entries.values() if not one.ours]
            if any(one != Entry("by hand", Rotation.IN, 7, ours=False) for one in others):
                raise Broken(f"{balancer.name}: a server that is not ours is changed")
            if entries.keys() != there:
                raise Broken(f"{balancer.name} has other entries than there are instances")
            for at, entry in entries.items():
                if entry.rotation is not Rotation.IN:
                    raise Broken(f"{balancer.name} sends nothing to {at}")
            if len({entry.weight for entry in entries.values()}) > 1:
                raise Broken(f"{balancer.name} has different weights")
        if wrong := world.by_hand.wrong():
            raise Broken(wrong)
        if left := [one.name for one in world.previews.values() if one.entries]:
            raise Broken(f"the previews of {', '.join(left)} have entries left")
        if self.story.given.get("autoscaler") and (world.scaler["off"] or record.autoscaler):
            raise Broken(f"the autoscaler is left as it was held: {world.scaler}")
        if world.scaler["min"] != 1:
            raise Broken(f"the autoscaler's minimum is left raised: {world.scaler}")
        self._check_notices()
        self._check_timelines(record)
        if held := lease(world):
            raise Broken(f"the lease is left: {held}")

    def _check_timelines(self, record: Record) -> None:
        """The timeline of each rollout tells how it began, and once how it ended."""
        store = drivers.Store({}, DriverContext("shop", t.cast(t.Any, None)))
        for rollout in record.history:
            told = [(one.get("kind"), one.get("outcome")) for one in store.timeline(rollout["id"])]
            ends = [outcome for kind, outcome in told if kind == "end"]
            if ("begin", None) not in told or ends != [rollout["outcome"]]:
                raise Broken(f"the timeline of {rollout['id']} tells of the ends {ends}")

    def _check_notices(self) -> None:
        """A receiver was told how the last rollout ended, or it is noted why not."""
        world, last = self.world, journal(self.world).rollout
        if last is None or self.told_bare or not self.story.given.get("notify"):
            return
        told = {event for rollout, event in world.received if rollout == last.id}
        if not told & set(ENDS) and last.outcome in ENDS:
            raise Broken(f"nobody is told that {last.id} is {last.outcome}")


def shrunk(story: Story, limit: int = 200) -> End:
    """Return the end of a story with the fewest faults that fails as this one does."""
    end = run(story)
    kind = kind_of(end.wrong)
    tries = 0
    again = True
    while again and tries < limit:
        again = False
        for smaller in _smaller(end.story):
            tries += 1
            new = run(smaller)
            if new.wrong and kind_of(new.wrong) == kind:
                end, again = new, True
                break
    return end


def _smaller(story: Story) -> list[Story]:
    found = [story.without(one) for one in story.faults]
    found += [replace(story, bad=[Life()])] if any(one != Life() for one in story.bad) else []
    found += [replace(story, follows=story.follows[:-1])] if story.follows else []
    found += [replace(story, receiving=("gets it",))] if len(story.receiving) > 1 else []
    found += [replace(story, machines=1)] if story.machines > 1 else []
    found += [replace(story, differ=False)] if story.differ else []
    found += [replace(story, tasks=1.0)] if story.tasks > 1 else []
    found += [replace(story, quiet=False)] if story.quiet else []
    found += [replace(story, again=0.0)] if story.again else []
    for name in ("gates", "hold", "min_ready", "watch_new", *RARE):
        if story.given.get(name):
            rest = {key: value for key, value in story.given.items() if key != name}
            later = {key: value for key, value in story.next_given.items() if key != name}
            found.append(replace(story, given=rest, next_given=later))
    return found


def kind_of(wrong: str) -> str:
    """Return what is wrong without names and numbers."""
    return "".join(char for char in wrong if not char.isdigit())[:40]
