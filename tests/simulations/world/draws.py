# SPDX-License-Identifier: GPL-3.0-or-later
"""What a story is, and how it is drawn from a seed: what is rolled out, and what goes wrong."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from random import Random

from . import by_hand, older
from .in_place import PLATFORM
from .runs import DRIVERS
from .world import AT_CALLS, BALANCERS, HOSTS, Fault, Life

LEASE = 30.0
PER_HOST = "per_host"
ENDS = ("promoted", "rolled_back", "aborted", "failed")
NOTIFY = [{"driver": "simulated", "on": ["begun", "held", *ENDS], "retries": 1}]
RECEIVING = ("gets it", "gets it", "is late", "hangs", "refuses")
LOOKS = ("status", "plan")
FORCE = "force"  # a promotion, with the new instances that are ready
OTHERS = ("same", "next", "rollback", "restart", "scale run", *LOOKS)
WORDS = (
    "pause",
    "resume",
    "promote",
    "promote_full",
    "skip",
    "abort",
    "retry",
    "hold",
    "scale",
    "exclude",
    "include",
)


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
    retries: bool = False  # whether balancers send a refused request to another entry once
    tasks: float = 1.0  # seconds that the user's tasks take on a host, in place
    differ: bool = False  # whether each revision has settings and a check of its own
    left: str = ""  # the recording of an earlier version that the story begins with
    # seconds after which platforms start what ended by itself again; 0: they do not
    again: float = 0.0
    # whether requests are few and long: none is in flight at a look before an instance drains
    quiet: bool = False
    by_hand: int = 0  # servers that were there before the first rollout, which adopts them

    def without(self, *faults: Fault) -> Story:
        return replace(self, faults=[one for one in self.faults if one not in faults])


def size(given: Mapping[str, t.Any]) -> int:
    """Return how many replicas variables ask for."""
    return len(HOSTS) if given["replicas"] == PER_HOST else int(given["replicas"])


def allowed(budget: Mapping[str, t.Any], replicas: int) -> tuple[int, int]:
    """Return how many instances a budget allows to be over and under so many replicas."""

    def of(name: str) -> Fraction:
        amount = str(budget[name])
        percent = amount.endswith("%")
        return Fraction(amount.rstrip("%")) * (Fraction(replicas, 100) if percent else 1)

    if "max_in_flight" in budget:
        return max(1, math.ceil(of("max_in_flight"))), 0
    surge, unavailable = math.ceil(of("max_surge")), math.floor(of("max_unavailable"))
    return surge, unavailable if surge or unavailable else 1


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
    if strategy == "blue_green" or (strategy == "canary" and dice.random() < 0.4):
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
        given["notify"] = NOTIFY
    if dice.random() < 0.3:
        given["autoscaler"] = {
            "driver": "simulated",
            "mode": dice.choice(["hold", "follow", "raise"]),
        }
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
    if not (in_place or left) and Random(f"one a host {seed}").random() < 0.12:
        replicas, given["replicas"] = len(HOSTS), PER_HOST
        for name in ("targets", "autoscaler", *(["hold"] if strategy == "canary" else [])):
            given.pop(name, None)
    if "targets" in given and Random(f"own balancers {seed}").random() < 0.4:
        for target, balancer in zip(given["targets"], BALANCERS, strict=True):
            target["load_balancers"] = [balancer]
    if not in_place and Random(f"preview {seed}").random() < 0.2:
        given["traffic"] = {**given["traffic"], "preview": True}
    if not left:
        _other_numbers(Random(f"numbers {seed}"), given, in_place)
    quiet = Random(f"quiet {seed}").random() < 0.3
    bad = _bad(Random(f"bad {seed}"), given, in_place or bool(left))
    replicas = size(given)
    faults = _faults(dice, replicas)
    if quiet:  # perhaps while an instance drains
        restored = Random(f"restored {seed}")
        times = [round(restored.uniform(1, 20), 1) for _number in range(4)]
        faults += [Fault("balancer restores", at, 0.0, BALANCERS[0]) for at in times]
    if in_place and dice.random() < 0.5:  # perhaps while the user's tasks run
        at, balancer = round(dice.uniform(0, 60), 1), dice.choice(BALANCERS)
        faults.append(Fault("balancer restores", at, 0.0, balancer))
    lives = [_life(dice) for _number in range(dice.randint(1, 4))]
    lives, faults = bad or (lives, faults)
    if dice.random() < 0.15:
        lives = [replace(one, errors=0.3) for one in lives]
        if strategy == "canary" and not left:
            given["steps"] = [{"set_weight": 30}, {"analysis": {"interval": "5s"}}]
    change = 0 if in_place else dice.choice([0, 0, 0, -2, -1, 1])
    later = PER_HOST if given["replicas"] == PER_HOST else max(1, replicas + change)
    if not in_place:
        faults += _busy(Random(f"busy {seed}"))
    faults += _rare(Random(f"rare {seed}"), given, lives, in_place or bool(left))
    count = 0 if in_place or left else _by_hand(Random(f"by hand {seed}"), given, faults)
    following = {**given, "replicas": later, "supersede": True}
    return Story(
        seed,
        given,
        sorted(faults, key=lambda one: (one.kind in AT_CALLS, one.at)),
        lives,
        [
            dice.choice(["same", "same", "same", "abort", "rollback", "next", "restart"])
            for _number in range(dice.randint(1, 4))
        ],
        dice.choice([1, 1, 2]),
        following,
        [dice.choice(RECEIVING) for _number in range(3)],
        dice.random() < 0.5,
        dice.choice([1.0, 45.0]),
        not in_place and not left and dice.random() < 0.3 and not count,
        left,
        0.0 if in_place else _again(Random(f"again {seed}")),
        quiet,
        count,
    )


def _by_hand(dice: Random, given: dict[str, t.Any], faults: list[Fault]) -> int:
    """Draw how many servers a first rollout adopts, if any; leave out what is refused then, or is
    no fault of such a story.
    """
    compares = any(one.get("analysis", {}).get("baseline") for one in _listed(given.get("steps")))
    if "targets" in given or given["replicas"] == PER_HOST or compares or dice.random() > 0.1:
        return 0
    count = max(1, given["replicas"] + dice.choice([0, 0, 0, 1, -1]))
    given["adopt"] = by_hand.given(count)
    faults[:] = [
        one
        for one in faults
        if one.kind != "server by hand" and one.what not in ("exclude", "include")
    ]
    return count


def _listed(steps: t.Any) -> Sequence[Mapping[str, t.Any]]:
    """Return steps that are written one by one."""
    return steps if isinstance(steps, list) else []


def _other_numbers(dice: Random, given: dict[str, t.Any], in_place: bool) -> None:
    """Draw a budget in percent, or of instances in flight; and for canaries, targets with load
    balancers of their own.
    """
    if dice.random() < 0.2:
        given["budget"] = dice.choice(
            [
                {"max_surge": "25%", "max_unavailable": 0},
                {"max_surge": "50%", "max_unavailable": "34%"},
                {"max_surge": "10%", "max_unavailable": "10%"},
                {"max_surge": 0, "max_unavailable": "29.5%"},
                {"max_in_flight": 2},
                {"max_in_flight": "50%"},
            ]
        )
        if in_place:
            given["budget"] = {"max_surge": 0, "max_unavailable": dice.choice(["20%", "67%"])}
    whole = in_place or "hold" in given or given["replicas"] == PER_HOST
    if given["strategy"] == "canary" and not whole and dice.random() < 0.3:
        given["targets"] = [
            {"name": "eu", "hosts": "web1", "load_balancers": ["lb1"]},
            {"name": "us", "hosts": "web2,web3", "load_balancers": ["lb2"]},
        ]


def _bad(
    dice: Random, given: dict[str, t.Any], fixed: bool
) -> tuple[list[Life], list[Fault]] | None:
    """Draw a revision of many instances that is bad, and nothing else: all fail one after the
    other, or it is aborted late, when some of the stable ones carry all requests.
    """
    whole = fixed or "targets" in given or given["replicas"] == PER_HOST
    if given["strategy"] != "rolling" or whole or dice.random() > 0.16:
        return None
    given |= {"replicas": 6, "headroom": 1.25, "failure_limit": 3}
    surge = given["budget"] = {"max_surge": dice.randint(1, 3), "max_unavailable": 0}
    if surge["max_surge"] > 1 and dice.random() < 0.5:
        return [Life(start=5.0, crash=0.5 + number) for number in range(4)], []
    return [Life()], [Fault("command", round(dice.uniform(3, 15), 1), 0.0, "abort")]


def _busy(dice: Random) -> list[Fault]:
    """Draw hosts that are busy for a while, as with the disk while they remove containers."""
    if dice.random() > 0.12:
        return []
    return [
        Fault(
            "host is busy",
            round(dice.uniform(0, 40), 1),
            dice.choice([3.0, 8.0, 30.0, 70.0]),
            dice.choice(HOSTS),
        )
        for _number in range(dice.randint(1, 2))
    ]


def _again(dice: Random) -> float:
    """Draw how soon platforms start again what ended, as systemd and containers' policies do."""
    return dice.choice([0.1, 2.0, 2.0]) if dice.random() < 0.12 else 0.0


def _rare(dice: Random, given: dict[str, t.Any], lives: list[Life], fixed: bool) -> list[Fault]:
    """Draw what is rare, from dice of its own, so that other seeds keep their stories: other steps,
    a baseline for an analysis, and promotions that are forced while some instances start.
    """
    other, compares = dice.random() < 0.25, dice.random() < 0.25
    steps = given.get("steps", ())
    judged = any("analysis" in step for step in steps)
    if steps and not fixed and other and not judged:
        given["steps"] = _other_steps(dice)
    for step in steps if judged and compares and not (fixed or "targets" in given) else ():
        if "analysis" in step:
            step["analysis"] = {**step["analysis"], "baseline": True}
    if given["strategy"] != "blue_green" or fixed or dice.random() > 0.2:
        return []
    lives[-1] = replace(lives[-1], start=dice.choice([20.0, math.inf]))
    return [Fault("command", round(dice.uniform(0.5, 15), 1), 0.0, FORCE)]


def _other_steps(dice: Random) -> t.Any:
    """Draw steps of a canary that set more than weights."""
    some, share = dice.randint(1, 3), dice.choice([10, 40])
    pause = {"pause": {"duration": f"{some}s"}}
    return dice.choice(
        [
            {"ramp": "geometric", "start": share, "every": f"{some}s", "ahead": some > 1},
            {"ramp": "linear", "start": share, "increment": 20, "every": f"{some}s"},
            {"group_size": some, "cycles": dice.randint(0, 2)},
            [{"set_replicas": some}, pause, {"set_weight": share}],
            [{"set_weight": share}, {"set_replicas": some}, pause],
            [{"instance_weight": share}, pause, {"instance_weight": 80}],
        ]
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
            replace(good, flap=(dice.choice([3.0, 10.0]), dice.choice([1.0, 20.0, 60.0]))),
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
                "at the switch",
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
        elif kind == "at the switch":
            what, at, span = dice.choice(["scale", "scale", "abort", "pause"]), 0.0, 0.0
        elif kind == "second run":
            what, span = dice.choice([*OTHERS, "cart 2", "cart 3", "cart bad"]), 0.0
        found.append(Fault(kind, at, span, what))
    return found
