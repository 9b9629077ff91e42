# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stories: what is rolled out, and what goes wrong meanwhile, all of it drawn from a seed."""

from __future__ import annotations

import json
import math
import re
import shlex
import traceback
import typing as t
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutError
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Record

from . import drivers, older
from .in_place import PLATFORM, InPlaceRun, labels
from .machine import START, Dead, Job, Machine
from .runs import DRIVERS, Run, inside, journal, lease
from .world import AT_CALLS, BALANCERS, HOSTS, Broken, Entry, Fault, Life, World

LONGEST = 7200.0  # seconds that a run may take
LEASE = 30.0
RARE = ("targets", "on_stable_lost", "notify", "autoscaler")
ENDS = ("promoted", "rolled_back", "aborted", "failed")
RECEIVING = ("gets it", "gets it", "is late", "hangs", "refuses")
TOLD = re.compile(r"ansible-playbook progressive\.rollout\.(\w+ .*)")
LOOKS = ("status", "plan")
OTHERS = ("same", "next", "rollback", "restart", "scale run", *LOOKS)
WORDS = ("pause", "resume", "promote", "promote_full", "skip", "abort", "retry", "hold", "scale")


@dataclass(frozen=True)
class Story:
    """What happens, all of it."""

    seed: int
    given: Mapping[str, t.Any]
    faults: Sequence[Fault]
    bad: Sequence[Life]  # of the new revision's first instances, over and over
    follows: Sequence[str]  # what the operator does after a run that has not ended the rollout
    machines: int = 1  # controllers: two do not see each other's processes
    next_given: Mapping[str, t.Any] = field(default_factory=dict)
    receiving: Sequence[str] = ("gets it",)  # what a receiver of notices does, in turn
    left: str = ""  # the recording of an earlier version that the story begins with

    def without(self, *faults: Fault) -> Story:
        return replace(self, faults=[one for one in self.faults if one not in faults])


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
                + (f"; begins with {story.left}" if story.left else ""),
                "faults: " + ("; ".join(map(str, story.faults)) or "none"),
                *self.lines,
            )
        )


def shown(given: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the variables of a story that others do not have."""
    return {name: value for name, value in given.items() if DRIVERS.get(name) != value}


def drawn(seed: int) -> Story:
    """Return the story of a seed."""
    dice = Random(f"story {seed}")
    replicas = dice.randint(1, 6)
    surge, unavailable = dice.choice([(1, 0), (2, 0), (1, 1), (0, 1), (3, 1)])
    strategy = dice.choice(["rolling", "rolling", "canary", "blue_green"])
    given: dict[str, t.Any] = {
        **DRIVERS,
        "replicas": replicas,
        "budget": {"max_surge": surge, "max_unavailable": unavailable},
        "strategy": strategy,
        "wait": dice.choice([0, 20]),
        "lease": LEASE,
        "progress_deadline": 120,
        "min_ready": dice.choice([0, 0, 2]),
        "on_failure": dice.choice(["rollback", "rollback", "hold"]),
        "failure_limit": dice.choice([1, 3]),
        "watch_new": dice.choice([0, 30]),
        "headroom": dice.choice([0, 1.25]),
    }
    if strategy == "canary":
        given["steps"] = dice.choice(
            [
                [{"set_weight": 20}, {"pause": {"duration": "10s"}}, {"set_weight": 60}],
                [{"set_weight": 50}, {"pause": {}}],
                [{"set_weight": 10}],
                [{"set_weight": 30}, {"analysis": {"interval": "5s"}}],
                [{"set_weight": 30}, {"analysis": {"interval": "5s"}}, {"set_weight": 60}],
            ]
        )
    if strategy == "blue_green" or dice.random() < 0.2:
        given["hold"] = dice.choice(["0s", "15s"])
    if dice.random() < 0.3:
        answer = dice.choice(["pass", "fail", "person"])
        given["gates"] = {
            "confirm_promotion": [
                {"driver": "simulated", "after": dice.randint(0, 10), "answer": answer}
            ]
        }
    if strategy == "rolling" and dice.random() < 0.4:
        given["targets"] = [{"name": "eu", "hosts": "web1"}, {"name": "us", "hosts": "web2,web3"}]
        if dice.random() < 0.5:
            given["targets"][0]["soak"] = 5
    if dice.random() < 0.3:
        given["on_stable_lost"] = dice.choice(["repair", "promote", "hold"])
    if dice.random() < 0.3:
        given["notify"] = [{"driver": "simulated", "on": ["begun", "held", *ENDS], "retries": 1}]
    if dice.random() < 0.3:
        given["autoscaler"] = {"driver": "simulated", "mode": dice.choice(["hold", "follow"])}
    if in_place := strategy != "blue_green" and "hold" not in given and dice.random() < 0.2:
        replicas = given["replicas"] = len(HOSTS)
        given["platform"] = PLATFORM
        given["budget"] = {"max_unavailable": dice.choice([1, 1, 2]), "max_surge": 0}
        for name in ("targets", "on_stable_lost", "autoscaler"):
            given.pop(name, None)
    left = "" if in_place or dice.random() > 0.12 else dice.choice(older.NAMES)
    if left:
        for name in ("steps", "hold", "gates", "targets"):
            given.pop(name, None)
        given |= older.given(left)
        replicas = given["replicas"]
    lives = [_life(dice) for _number in range(dice.randint(1, 4))]
    if dice.random() < 0.15:
        lives = [replace(one, errors=0.3) for one in lives]
        if strategy == "canary" and not left:
            given["steps"] = [{"set_weight": 30}, {"analysis": {"interval": "5s"}}]
    following = {
        **given,
        "replicas": max(1, replicas + (0 if in_place else dice.choice([0, 0, 0, -2, -1, 1]))),
        "supersede": True,
    }
    return Story(
        seed,
        given,
        sorted(_faults(dice, replicas), key=lambda one: (one.kind in AT_CALLS, one.at)),
        lives,
        [
            dice.choice(["same", "same", "same", "abort", "rollback", "next", "restart"])
            for _number in range(dice.randint(1, 4))
        ],
        dice.choice([1, 1, 2]),
        following,
        [dice.choice(RECEIVING) for _number in range(3)],
        left,
    )


def _life(dice: Random) -> Life:
    start, stop, work = (
        dice.choice([0.5, 2.0, 5.0]),
        dice.choice([0.2, 2.0]),
        dice.choice([0, 1, 4]),
    )
    good = Life(start, stop, work)
    if dice.random() < 0.7:
        return good
    return dice.choice(
        [
            replace(good, start=math.inf),
            replace(good, stop=math.inf),
            replace(good, crash=dice.choice([0.0, 1.0, 8.0, 30.0])),
            replace(good, flap=(dice.choice([3.0, 10.0]), dice.choice([1.0, 20.0]))),
        ]
    )


def _faults(dice: Random, replicas: int) -> list[Fault]:
    found = []
    for _number in range(dice.choice([0, 1, 2, 3, 5, 8])):
        if dice.random() < 0.5:
            kind = dice.choice(sorted(AT_CALLS))
            span = dice.choice([1.0, 10.0, 70.0])
            timed = kind in ("is slow", "answers late", "freezes")
            number = dice.randint(1, dice.choice([30, 150, 500]))
            found.append(Fault(kind, number, span if timed else 0.0))
            if kind == "freezes" and span > LEASE:  # another run may take its lease meanwhile
                at = round(dice.uniform(LEASE, span), 1)
                found.append(Fault("second run", at, 0.0, dice.choice(["same", "next"])))
            continue
        at, span = round(dice.uniform(0, 60), 1), dice.choice([1.0, 5.0, 40.0, 150.0])
        kind = dice.choice(
            [
                "host away",
                "host reboots",
                "balancer away",
                "store away",
                "balancer forgets",
                "balancer restores",
                "instance killed",
                "instance killed",
                "clock jumps",
                "command",
                "command",
                "command",
                "second run",
                "stable dies",
                "balancer is blind",
                "server by hand",
                "autoscaler is changed",
                "autoscaler wants",
            ]
        )
        what = ""
        if kind in ("host away", "host reboots"):
            what = dice.choice(HOSTS)
        elif kind.startswith("balancer"):
            what = dice.choice(BALANCERS)
            span = span if kind in ("balancer away", "balancer is blind") else 0.0
        elif kind == "instance killed":
            span = float(dice.randrange(6))
        elif kind == "server by hand":
            what, span = dice.choice(BALANCERS), 0.0
        elif kind == "stable dies":
            span = dice.choice([0.0, 1.0, 10.0])
        elif kind == "autoscaler is changed":
            span = 0.0
        elif kind == "autoscaler wants":
            span = float(max(1, replicas + dice.choice([-1, 1])))
        elif kind == "clock jumps":
            span = dice.choice([-3600.0, -20.0, 20.0, 3600.0])
        elif kind == "command":
            what, span = dice.choice(WORDS), 0.0
        elif kind == "second run":
            what, span = dice.choice([*OTHERS, "cart 2", "cart 3"]), 0.0
        found.append(Fault(kind, at, span, what))
    return found


def run(story: Story) -> End:
    """Let a story happen, and say how it ended."""
    return _Telling(story).end()


class _Telling:
    """One story while it happens."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.machine = Machine(Random(f"machine {story.seed}"))
        given, later = story.given, story.next_given
        sizes = [given["replicas"], later["replicas"]]
        sizes += [sizes[0] + 1] if any("scale" in one.what for one in story.faults) else []
        sizes += [int(one.span) for one in story.faults if one.kind == "autoscaler wants"]
        rounded = "targets" in given  # the share of each target is rounded up
        budget = given["budget"]
        # so few may carry all requests on a way back
        floor = math.ceil(min(sizes) / 1.25) if given["headroom"] else min(sizes)
        double = 2 if given["strategy"] == "blue_green" or "hold" in given else 1
        self.world = World(
            self.machine,
            [],
            self._good,
            max(0, floor - budget["max_unavailable"]),
            double * max(sizes) + budget["max_surge"] + rounded,
            Random(f"world {story.seed}"),
        )
        # on a way back so many are enough for all requests
        self.world.even = (given["headroom"] or 1) / min(sizes)
        self.world.receiving = story.receiving
        self.in_place = given["platform"] == PLATFORM
        if self.in_place:
            for host in HOSTS:
                self.world.begin(labels(host, "0"))
        self.world.managed = "autoscaler" in given
        self.world.unfit = {"2"} if self._unfit() else set()
        self.jobs: list[Job] = []
        self.rollouts = 0
        self.healed = self.told_bare = False

    def _unfit(self) -> bool:
        """Return whether revision 2 cannot pass its gates, and no operator passes them."""
        story = self.story
        obeys = story.left or any(
            one.kind == "command" or one.what == "rollback" for one in story.faults
        )
        gates = story.given.get("gates", {}).get("confirm_promotion", [])
        analysed = any("analysis" in one for one in story.given.get("steps", ()))
        judged = analysed and all(life.errors for life in story.bad)
        return not obeys and (judged or any(one["answer"] != "pass" for one in gates))

    def _good(self, _revision: str, _number: int) -> Life:
        return Life()

    def _drawn(self, revision: str, number: int) -> Life:
        if revision == "1":
            return Life()
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
        else:
            self._deploy_first()
        world.snapshot()
        self._go_on()

    def _deploy_first(self) -> None:
        """Deploy revision 1, before anything goes wrong."""
        story, world = self.story, self.world
        first = {**story.given, "strategy": "rolling", "steps": None, "gates": None, "hold": None}
        first = {name: value for name, value in first.items() if value is not None}
        self._await(self._rollout("1", first))
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
            if fault.kind not in AT_CALLS:
                self.machine.at(begin + fault.at, lambda fault=fault: self._befall(fault))
        self._await(self._rollout("2", story.given))
        for follow in story.follows:
            if journal(world).open is None:
                break
            self.machine.sleep(5.0)
            self._await(self._follow(follow))
        while busy := [job for job in self.jobs if job.is_alive()]:
            self._await(busy[0])
        self._converge()

    def _befall(self, fault: Fault) -> None:
        if self.healed or self.world.wrong:
            return
        if fault.kind == "command":
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

    def _told(self) -> list[str]:
        """Return the commands that the last run told the operator to continue or end it with."""
        said = "\n".join(self.last.told)
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
        asked = {**given, "revision": revision}
        return self._begin(f"rollout.yml {revision}", "rollout", lambda run: run.rollout(asked))

    def _command(self, word: str) -> Job:
        open = journal(self.world).open
        given = {**self.story.given, "revision": open.revision if open else "2"}
        more = {"replicas": self.story.given["replicas"] + 1} if word == "scale" else {}
        return self._begin(f"{word}.yml", "control", lambda run: run.control(word, given, **more))

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
            asked = {**given, "revision": revision}
            return self._begin("rollback.yml", "rollback", lambda run: run.rollback(asked))
        if what == "next":
            return self._rollout("3", self.story.next_given)
        if what.startswith("cart"):
            return self._neighbour(what.removeprefix("cart "))
        if what in LOOKS:
            asked = {**given, "revision": revision}
            return self._begin(what, "look", lambda run: run.look(what, asked))
        if what == "restart":
            asked = {**given, "revision": revision}
            return self._begin(
                "restart.yml", "rollout", lambda run: run.rollout(asked, restart=True)
            )
        if what == "scale run":
            stable = journal(self.world).stable
            asked = {**given, "revision": stable.revision if stable else "1"}
            asked["replicas"] = self.story.given["replicas"] + 1
            return self._begin("scale", "scale", lambda run: run.scale(asked))
        return self._rollout(revision, given)

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
        words = ("same", "same", "promote_full", "rollback", "same")
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
        """A run that leaves its rollout open tells what to do, and just that works."""
        if journal(self.world).open:
            self._await(self._follow("same"))
        open, commands = journal(self.world).open, self._told()
        if open is None or not (open.phase.waits or commands):
            return
        if not commands:
            raise Broken(f"the operator is not told what to do with a rollout that is {open.phase}")
        job = self._obey(self.world.dice.choice(commands))
        self._await(job)
        self.told_bare = True
        if isinstance(job.result, RolloutError) and job.result.id[:4] not in ("PR-6", "PR-4"):
            raise Broken(f"what the operator is told is refused: {job.result}")

    def _deploy_again(self) -> None:
        """The rollout has ended; run again, it finds nothing wrong."""
        record = journal(self.world)
        if record.open:
            raise Broken(f"rollout of {record.open.revision} does not end: {record.open.phase}")
        if record.stable is None:
            raise Broken("there is no stable revision")
        given = self.story.given if record.stable.revision != "3" else self.story.next_given
        asked = {**given, "replicas": record.stable.replicas}
        self._await(self._rollout(record.stable.revision, asked))
        self._check_end()
        if any(one.what.startswith("cart") for one in self.story.faults):
            self._await(self._neighbour("4"))
            self._check_neighbour()

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
            there = {one.labels.endpoint for one in alive}
            ours = {at: one for at, one in balancer.entries.items() if one.ours}
            others = [one for one in balancer.entries.values() if not one.ours]
            if any(one != Entry("by hand", Rotation.IN, 7, ours=False) for one in others):
                raise Broken(f"{balancer.name}: a server that is not ours is changed")
            if ours.keys() != there:
                raise Broken(f"{balancer.name} has other entries than there are instances")
            for at, entry in ours.items():
                if entry.rotation is not Rotation.IN:
                    raise Broken(f"{balancer.name} sends nothing to {at}")
            if len({entry.weight for entry in ours.values()}) > 1:
                raise Broken(f"{balancer.name} has different weights")
        if self.story.given.get("autoscaler") and (world.scaler["off"] or record.autoscaler):
            raise Broken(f"the autoscaler is left as it was held: {world.scaler}")
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
    for name in ("gates", "hold", "min_ready", "watch_new", *RARE):
        if story.given.get(name):
            rest = {key: value for key, value in story.given.items() if key != name}
            later = {key: value for key, value in story.next_given.items() if key != name}
            found.append(replace(story, given=rest, next_given=later))
    return found


def kind_of(wrong: str) -> str:
    """Return what is wrong without names and numbers."""
    return "".join(char for char in wrong if not char.isdigit())[:40]
