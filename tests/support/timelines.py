# SPDX-License-Identifier: GPL-3.0-or-later
"""Timelines of rollouts that never were, of any size."""

from __future__ import annotations

import typing as t

START = 1_795_253_412.0
Event = dict[str, t.Any]


def rollout(count: int, **changes: t.Any) -> dict[str, t.Any]:
    """A rollout of so many instances, as the journal has it."""
    return {
        "id": "shop-20261121T093012-4711",
        "revision": "2.4.3",
        "generation": 7,
        "previous": {"revision": "2.4.2", "generation": 6, "replicas": count},
        "started": START,
        "updated": START + 4 * count,
        "kind": "rollout",
        "phase": "finished",
        "outcome": "promoted",
        "reason": "",
        "failed": 1,
        "by": "ada@deploy1",
        **changes,
    }


def timeline(count: int, hosts: int = 10) -> list[Event]:
    """Its events: each instance is replaced, one fails, a person and an analysis decide."""
    events = [_state(START, f"shop-{n}", 6, f"web{n % hosts}", "ready") for n in range(count)]
    events += [_rotation(START, f"shop-{n}", True) for n in range(count)]
    events += [
        _event(START, "begin", revision="2.4.3", generation=7, replicas=count, by="ada@deploy1"),
        _event(START, "plan", stages=[_stage("step 1", 20), _stage("promote", 100)]),
        _event(START, "stage", **_stage("step 1", 20), floor=count, ceiling=count + 1),
        _event(START, "trouble", message="lb1: no answer"),
        _state(START + 1, "shop-bad", 7, "web1", "failed", detail="exit code 1"),
    ]
    for n in range(count):
        events += _replaced(START + 2 + 3 * n, n, hosts, 100 * (n + 1) / count)
    end = START + 4 * count
    sample = {"at": end - 1, "phase": "successful", "evidence": 3.5, "threshold": 50.0}
    return [
        *events,
        _event(
            end, "verdict", gate="analysis", verdict="pass", message="ok", samples={"e": [sample]}
        ),
        _event(end, "word", word="promote", by="bob@desk", why="looks good", refused=""),
        _event(end, "end", outcome="promoted", reason=""),
    ]


def _replaced(at: float, n: int, hosts: int, share: float) -> list[Event]:
    """One instance is started and another stopped."""
    new, old, host = f"shop-n{n}", f"shop-{n}", f"web{n % hosts}"
    counted = {"requests": 500, "errors": n % 3, "latency": 0.02}
    return [
        _event(at, "decision", reason=f"create 1: {n} of them exist"),
        _state(at, new, 7, host, "starting"),
        _state(at + 1, new, 7, host, "ready"),
        _rotation(at + 1.5, new, True),
        _rotation(at + 2, old, False),
        _state(at + 2, old, 6, host, "draining"),
        _state(at + 2.5, old, 6, host, "stopped"),
        _event(at + 2.5, "traffic", shares={"2.4.3": share, "2.4.2": 100 - share}),
        _event(at + 2.5, "requests", new=counted, old=counted | {"errors": 0}),
    ]


def _event(at: float, kind: str, **fields: t.Any) -> Event:
    return {"at": at, "kind": kind, **fields}


def _state(
    at: float, instance: str, generation: int, host: str, state: str, **more: t.Any
) -> Event:
    revision = "2.4.3" if generation == 7 else "2.4.2"
    known = {"revision": revision, "generation": generation, "host": host}
    return _event(at, "state", instance=instance, state=state, **known, **more)


def _rotation(at: float, instance: str, serving: bool) -> Event:
    return _event(at, "rotation", instance=instance, serving=serving)


def _stage(name: str, share: int) -> dict[str, t.Any]:
    return {"stage": name, "share": share, "new": 1, "old": 5, "gates": ["analysis (analysis)"]}
