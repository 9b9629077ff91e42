# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of a service for people: the rollout, the lease, and a table of the instances.

No I/O.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ..base.errors import InputError
from ..base.text import columns, moment, printable, span
from ..engine.model import Phase, Rotation
from ..inputs import values
from ..state import commands
from ..state.record import Record, Rollout
from .messages import at, ended, no_rollout, numbered

COLUMNS = (
    "instance",
    "revision",
    "host",
    "state",
    "rotation",
    "open",  # requests
    "age",
    "restarts",
    "detail",
)


UNSERVED = "no load balancer sends requests to any instance; run rollout.yml again"


def lines(
    record: Record,
    lease: Mapping[str, t.Any] | None,
    instances: Sequence[Mapping[str, t.Any]],
    problems: Sequence[str] = (),
    far: Mapping[str, t.Any] | None = None,
    place: str = "",
    *,
    note: str = "",
    shares: Mapping[str, float] | None = None,
    pending: Sequence[Mapping[str, t.Any]] = (),
    advice: Sequence[str] = (),
) -> list[str]:
    """Return all lines.

    Args:
        record: The journal's.
        lease: As the step `info` returns it.
        instances: Likewise.
        problems: What could not be observed.
        far: How far the rollout is, as `progress` returns it.
        place: Where the journal is.
        note: What else is to be said of the instances, above their table.
        shares: The percentage of new requests of each revision; empty: not known.
        pending: Commands that no run has obeyed yet.
        advice: What to do about the problems.
    """
    unseen = [f"unknown at present: {error}" for error in problems]
    far_lines = _far(far, lease is not None) if far else ()
    head = [
        _rollout(record, place),
        *_begun(record),
        *_left_out(record),
        _lease(record, lease),
        *_pending(pending, lease is not None),
        *far_lines,
        *_requests(shares or {}),
    ]
    idle = [UNSERVED] if not problems and record.stable and _unserved(instances) else []
    notes = [note] if note else []
    table = _table(instances) if instances or not problems else []
    return [printable(line) for line in (*idle, *unseen, *advice, *head, *notes, *table)]


def _pending(pending: Sequence[Mapping[str, t.Any]], active: bool) -> list[str]:
    """Return the commands that no run has obeyed yet; `active`: a run is working on it."""
    when = "the run obeys shortly" if active else "the next run obeys"
    return [f"pending: {commands.sentence(command)}; {when}" for command in pending]


def _requests(shares: Mapping[str, float]) -> list[str]:
    """Return which revisions get new requests, where any does."""
    parts = [f"{share:g} % to {revision}" for revision, share in shares.items() if share]
    return [f"requests: {', '.join(parts)}"] if parts else []


def _unserved(instances: Sequence[Mapping[str, t.Any]]) -> bool:
    """Return whether there are load balancers, and none has an instance in rotation."""
    places = {instance["rotation"] for instance in instances if instance["rotation"]}
    return bool(places) and not places & {Rotation.IN.value, Rotation.PARTIAL.value}


def progress(
    rollout: Rollout, timeline: Sequence[Mapping[str, t.Any]], now: float
) -> dict[str, t.Any]:
    """Return how far a rollout in progress is, as data.

    Args:
        rollout: In progress.
        timeline: Its events.
        now: Seconds since the epoch.
    """
    new, every = rollout.sent.get("new", 0), rollout.sent.get("all", 0)
    gates = {**rollout.background, **rollout.gates}
    budget = rollout.given.get("budget")
    return {
        "strategy": rollout.strategy,
        "stage": rollout.name,
        "step": _step(rollout, timeline),
        "budget": dict(budget) if isinstance(budget, Mapping) else {},
        "bounds": _bounds(rollout, timeline),
        "asked": rollout.asked,
        "measured": round(100 * new / every, 1) if every else None,
        "requests": every,
        "deadline_left": _deadline(rollout, now),
        "gates": [
            {"gate": key, "state": gate.state.value, "message": gate.message, "by": gate.by}
            for key, gate in gates.items()
        ],
    }


def _step(rollout: Rollout, timeline: Sequence[Mapping[str, t.Any]]) -> str:
    """Return the step of a canary with the number of the last one; "" for any other stage."""
    plans = [event.get("stages") for event in timeline if event.get("kind") == "plan"]
    stages = plans[-1] if plans and isinstance(plans[-1], list) else []
    names = [
        str(name)
        for stage in stages
        if isinstance(stage, Mapping)
        for name in (stage.get("stage"), *(stage.get("gates") or ()))
    ]
    step = numbered(rollout.name, names)
    return "" if step == rollout.name else step


def _bounds(rollout: Rollout, timeline: Sequence[Mapping[str, t.Any]]) -> dict[str, int]:
    """Return how many instances the budget allows in the stage; empty where that is not known."""
    entered = [event for event in timeline if event.get("kind") == "stage"]
    if not entered or rollout.phase == Phase.ROLLING_BACK:
        return {}
    bounds = {name: entered[-1].get(name) for name in ("floor", "ceiling")}
    return {name: bound for name, bound in bounds.items() if isinstance(bound, int)}


def _far(far: Mapping[str, t.Any], active: bool) -> list[str]:
    """Return the same in lines; `active`: a run is working on it."""
    asked = f"{far['asked']} % of requests asked for" if far["asked"] is not None else ""
    measured = (
        f"{far['measured']} % of {far['requests']:,} requests measured" if far["requests"] else ""
    )
    words = [f"strategy: {far['strategy'].replace('_', '-')}", far["step"], asked, measured]
    left = far["deadline_left"] if active else None
    return [
        ", ".join(word for word in words if word),
        *_budget(far),
        *([f"progress deadline: {span(left)} left"] if left is not None else []),
        *(f"gate {gate['gate']}: {gate['state']}{_why(gate)}" for gate in far["gates"]),
    ]


def _budget(far: Mapping[str, t.Any]) -> list[str]:
    """Return the budget in a line, as given and as resolved for the stage."""
    given = ", ".join(f"{name} {amount}" for name, amount in far["budget"].items())
    names = {"floor": "at least {} available", "ceiling": "at most {} instances"}
    now = ", ".join(names[name].format(bound) for name, bound in far["bounds"].items())
    text = ": ".join(part for part in (given, now) if part)
    return [f"budget: {text}"] if text else []


def _deadline(rollout: Rollout, now: float) -> float | None:
    """Return how long the rollout may go on without progress; None: it has no deadline now."""
    given = rollout.given.get("progress_deadline")
    stopped = rollout.phase.waits or rollout.phase == Phase.HELD
    if given is None or rollout.tally is None or stopped:
        return None
    try:
        deadline = values.duration(given, "rollout_progress_deadline")
    except InputError:  # a damaged journal is no reason to show nothing
        return None
    return round(max(0.0, rollout.tally.since + deadline - now), 1)


def _why(gate: Mapping[str, t.Any]) -> str:
    return f" ({gate['message']})" if gate["message"] else ""


def _rollout(record: Record, place: str) -> str:
    rollout, service = record.rollout, record.service
    if rollout is None:
        return no_rollout(service, place)
    if record.open is None:
        return f"{moment(rollout.updated)}: {ended(service, rollout)}"
    before = (
        f", previous revision {rollout.previous.revision}"
        if rollout.previous
        else ", first deployment"
    )
    why = f". Why: {rollout.reason}" if rollout.reason else ""
    share = (
        f" ({rollout.asked} % of requests)"
        if rollout.asked is not None and rollout.phase != Phase.ROLLING_BACK
        else ""
    )
    since = f" since {moment(rollout.entered)}" if rollout.entered else ""
    waits = (
        f". Waiting for {'; '.join(rollout.waiting)}"
        if rollout.waiting and rollout.phase.waits
        else ""
    )
    judged = "".join(
        f". {key}: {summary}" for key, summary in rollout.analysis.items() if summary and not waits
    )
    paused = f". Paused by {rollout.paused.get('by')}" if rollout.paused else ""
    paused += f": {rollout.paused['why']}" if rollout.paused.get("why") else ""
    started = f", started at {moment(rollout.started)}"
    phase = f"{rollout.phase.replace('_', ' ')}{at(rollout)}{share}{since}{started}{before}"
    return f"{service} {rollout.revision}: {phase}{why}{waits}{judged}{paused}"


def _begun(record: Record) -> list[str]:
    """Return who began the rollout and why, where a reason was given."""
    rollout = record.rollout
    return [f"begun by {rollout.by}: {rollout.why}"] if rollout and rollout.why else []


def _left_out(record: Record) -> list[str]:
    """Return the hosts that an operator left out of the rollout in progress."""
    rollout = record.open
    if rollout is None or not rollout.excluded:
        return []
    return [f"left out: {', '.join(rollout.excluded)} (exclude; include brings a host back)"]


def _lease(record: Record, lease: Mapping[str, t.Any] | None) -> str:
    if lease is not None:
        since, until = moment(lease["since"]), moment(lease["until"])
        return f"lease: {lease['holder']} since {since} until {until}"
    if record.open is None:
        return "lease: free"
    return f"lease: free (no active run). Next: {next_step(record.open)}"


def next_step(rollout: Rollout) -> str:
    """Return what to do about a rollout without an active run."""
    if rollout.phase == Phase.HELD:
        return "rerun or resume.yml to resume, or rollback.yml to roll back [PR-606]"
    if rollout.phase == Phase.ROLLING_BACK:
        return "rerun to finish the rollback"
    if rollout.paused:
        from ..state.command_line import WITH_PLAYBOOK  # of paused rollouts alone

        ways = [
            f"{command}.yml to {effect}"
            for effect, command in commands.ways_out(rollout)
            if command in WITH_PLAYBOOK
        ]
        return f"{', '.join(ways[:-1])}, or {ways[-1]}"
    if rollout.waiting and rollout.phase != Phase.HOLDING:
        return "rerun to keep waiting, promote.yml to continue, or abort.yml to roll back"
    return "rerun to continue, or rollback.yml to roll back"


_EMPTY = ("", "-")  # cells that say nothing


def _table(instances: Sequence[Mapping[str, t.Any]]) -> list[str]:
    """Return the table of the instances, without columns in which nothing is said."""
    if not instances:
        return ["no instances"]
    rows = [_row(instance) for instance in instances]
    filled = [
        i for i, name in enumerate(COLUMNS) if i < 4 or any(row[i] not in _EMPTY for row in rows)
    ]
    table = columns([[row[i] for i in filled] for row in (COLUMNS, *rows)])
    return [*table, *_programs(instances)]


def _programs(instances: Sequence[Mapping[str, t.Any]]) -> list[str]:
    """Return what the revisions run, once for those that run the same."""
    runs: dict[str, list[str]] = {}
    for revision, what in {
        instance["revision"]: instance.get("runs") for instance in instances
    }.items():
        if what:
            runs.setdefault(what, []).append(revision)
    return [
        f"{' and '.join(revisions)} {'run' if len(revisions) > 1 else 'runs'} {what}"
        for what, revisions in runs.items()
    ]


def _row(instance: Mapping[str, t.Any]) -> tuple[str, ...]:
    return (
        instance["id"],
        instance["revision"],
        instance["host"],
        instance["state"].replace("_", " "),
        instance["rotation"] or "-",
        str(instance["active"]) if instance["rotation"] else "-",
        span(instance["age"]),
        str(instance.get("restarts") or "-"),
        " | ".join(instance["detail"].splitlines()),
    )
