# SPDX-License-Identifier: GPL-3.0-or-later
"""A planned rollout for people, as the step `plan` returns it. No I/O."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Mapping, Sequence

from ..base.text import count, printable, span

WIDTH = 12  # of the names of rows
SHOWN = 8  # instances in the order in which they go
Plan = Mapping[str, t.Any]


def lines(service: str, plan: Plan, done: bool = False) -> list[str]:
    """Return the plan in lines: a title, then rows of a name and a text.

    `done`: whether there is nothing left to do.
    """
    if done:
        return [
            f"{service} {plan['revision']}: nothing to do",
            *map(printable, plan.get("beside", [])),
        ]
    previous = plan["previous"]
    before = f"{previous} -> " if previous and previous != plan["revision"] else ""
    title = f"{service} {before}{plan['revision']}"
    about = f"{plan['strategy']}, {count(plan['replicas'], 'instance')}"
    return [f"{title} ({about})", *(printable(line) for line in _rows(plan))]


def _rows(plan: Plan) -> Iterator[str]:
    """Yield the rows, each name once."""
    for name, texts in (
        ("settings", plan["settings"]),
        ("order", _orders(*plan["orders"])),
        ("begins", [plan["stopped"]] if plan["stopped"] else []),
        ("stages", [_stage(stage) for stage in plan["waypoints"]]),
        ("instances", [_instances(plan), *_started(plan)]),
        ("left out", [", ".join(plan["excluded"])] if plan["excluded"] else []),
        ("replaced", _order(plan["order"])),
        ("traffic", _traffic(plan)),
        ("beside", plan.get("beside", [])),
        ("time", [_time(plan)]),
        ("waits for", [_wait(wait) for wait in plan["waits"]]),
        ("requests", [needed(need) for need in plan["requests"]]),
        ("watched by", plan["watched"]),
        ("stable lost", _lost(plan)),
        ("not known", plan["unknown"]),
    ):
        for number, text in enumerate(texts):
            yield f"  {'' if number else name:<{WIDTH}}{text}"


def _stage(stage: Mapping[str, t.Any]) -> str:
    """Return where a stage leads: `step 1: 20 % of requests, 2 new, 6 old`."""
    share = "" if stage["share"] is None else f"{stage['share']} % of requests, "
    fresh = f", {stage['fresh']} fresh old ones to compare with" if stage["fresh"] else ""
    return f"{stage['name']}: {share}{stage['new']} new, {stage['old']} old{fresh}"


def _orders(stable: int | None, new: int | None) -> list[str]:
    """Return the place of the revision among all, after that of the stable one."""
    if new is None:
        return []
    return [f"{new}" if stable is None else f"{new}, after {stable}"]


def _instances(plan: Plan) -> str:
    most = plan["replicas"] + plan["peak_extra"]
    return f"at most {most} at once, at least {plan['minimum_available']} available"


def _started(plan: Plan) -> list[str]:
    """Return how many old instances are started first, where a stage has more than there are."""
    kept, running = max(stage["old"] for stage in plan["waypoints"]), len(plan["order"])
    if not plan["previous"] or kept <= running:
        return []
    more = count(kept - running, "instance")
    return [f"begins by starting {more} of {plan['previous']}: {running} run, a stage has {kept}"]


def _lost(plan: Plan) -> list[str]:
    """Return what happens where a complete second set waits and no stable instance serves."""
    if plan["strategy"] != "blue_green" or not plan["previous"] or not plan["on_stable_lost"]:
        return []
    return {
        "repair": [
            f"{plan['previous']} is started again, and the ready set of {plan['revision']} gets no"
            " requests before the switch (rollout_on_stable_lost: promote would switch at once)"
        ],
        "promote": [f"requests switch to {plan['revision']} at once, without gates"],
        "hold": ["the rollout is held, for an operator to decide"],
    }[plan["on_stable_lost"]]


def _order(order: Sequence[str]) -> list[str]:
    more = f" and {len(order) - SHOWN} more" if len(order) > SHOWN else ""
    return [f"{', '.join(order[:SHOWN])}{more}, in this order"] if order else []


def _traffic(plan: Plan) -> list[str]:
    changes = plan["traffic_changes"]
    moves = f"{changes['enter']} put in rotation, {changes['leave']} taken out"
    return [f"{moves}; divided {plan['shares']}"]


def _time(plan: Plan) -> str:
    """Return how long the rollout takes without its waits, and where that comes from."""
    if plan["seconds"] is None:
        return "not known: with these numbers and this budget it cannot end"
    source = "what instances took in the last rollout" if plan["measured"] else "a guess"
    pauses = sum(wait["seconds"] or 0.0 for wait in plan["waits"])
    waits = f", and {span(pauses)} of pauses" if pauses else ""
    return f"about {span(plan['seconds'])} by {source}{waits}"


def _wait(wait: Mapping[str, t.Any]) -> str:
    """Return what is waited for at a gate: a person, a time, or an answer."""
    if wait["person"]:
        return f"an operator, at {wait['gate']} (promote.yml or abort.yml)"
    if wait["seconds"] is not None:
        return f"{span(wait['seconds'])}, at {wait['gate']}"
    return f"{wait['driver']}, at {wait['gate']}"


def needed(need: Mapping[str, t.Any]) -> str:
    """Return how many requests an analysis needs, and whether it measures long enough."""
    where = f"{need['metric']}, at {need['gate']}"
    if need["new"] is None:
        return f"no number shows a rate of {need['detect']:g}: {where}"
    text = (
        f"{need['new']:,} of {need['all']:,} ({need['share']:g} %) show a rate of"
        f" {need['detect']:g}: {where}"
    )
    if need["seconds"] is None:
        return f"{text}; how long that takes is not known without counts of a last rollout"
    text += f"; about {span(need['seconds'])} as in the last rollout"
    short = need["seconds"] > need["lasts"]
    only = f"and it measures for {span(need['lasts'])} only: raise count, or add requests by probe"
    return f"{text}, {only}" if short else text
