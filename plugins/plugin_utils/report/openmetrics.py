# SPDX-License-Identifier: GPL-3.0-or-later
"""A service and its rollout as metrics, of the journal alone. Pure.

The text is [OpenMetrics](https://prometheus.io/docs/specs/om/open_metrics_spec/) and the
[format of Prometheus](https://prometheus.io/docs/instrumenting/exposition_formats/) at once, since
the textfile collector of node_exporter and the Pushgateway read the latter: all metrics are gauges.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..base.text import clean
from ..engine.model import Phase, State
from ..interfaces.store import Lease
from ..state.events import total
from ..state.record import Outcome, Record, Rollout

GATES = 20  # analyses with a verdict, the last ones
_LONGEST = 128  # characters of a label's value
SIDES = ("new", "old")
VERDICTS = ("pass", "fail", "person")

Labels = Mapping[str, str]
Samples = list[tuple[Labels, float]]

HELP = {
    "rollout_info": "The last rollout: its revisions, strategy and kind.",
    "rollout_stable_info": "The stable revision.",
    "rollout_phase": "1 for the phase that the last rollout is in.",
    "rollout_phase_entered_timestamp_seconds": "When that phase was entered.",
    "rollout_started_timestamp_seconds": "When the last rollout began.",
    "rollout_ended_timestamp_seconds": "When it ended; absent while it is in progress.",
    "rollout_work_seconds": "How long it took, without the time that it waited at gates.",
    "rollout_outcome": "1 for how it ended; all are 0 while it is in progress.",
    "rollout_last_success_timestamp_seconds": "When a revision was promoted last.",
    "rollout_recent": "Rollouts in the history of the journal, the last 20, by outcome.",
    "rollout_replicas": "How many instances there are to be.",
    "rollout_instances": "Instances, as the last rollout saw them last.",
    "rollout_failed_instances": "New instances that failed in the last rollout.",
    "rollout_share_asked_ratio": "The share of requests asked for the new instances.",
    "rollout_share_measured_ratio": "The share that they got since the stage was reached.",
    "rollout_requests": "Requests that the load balancers counted in the last rollout.",
    "rollout_request_errors": "Those of them that failed.",
    "rollout_verdict": "1 for the last verdict of an analysis.",
    "rollout_waiting_for_person": "1 if it waits for an operator, or for the end of a freeze.",
    "rollout_lease_held": "1 if a run works on the service.",
    "rollout_lease_expires_timestamp_seconds": "When the lease expires, unless it is renewed.",
    "rollout_lease_epoch": "How many runs have held the lease.",
    "rollout_notification_failures": "Receivers that could not be notified, in the last rollout.",
}


def exposition(record: Record, timeline: Sequence[Mapping[str, t.Any]], lease: Lease | None) -> str:
    """Return the metrics of a service, of its record, its last rollout's timeline and its lease."""
    metrics = {**_of_record(record), **_of_lease(lease)}
    if record.rollout:
        metrics |= _of_rollout(record.rollout) | _of_timeline(record.rollout, timeline)
    lines: list[str] = []
    for name, help in HELP.items():
        if samples := metrics.get(name):
            lines += [f"# HELP {name} {help}", f"# TYPE {name} gauge"]
            lines += [
                _line(name, {"service": record.service, **labels}, at) for labels, at in samples
            ]
    return "\n".join([*lines, "# EOF", ""])


def _line(name: str, labels: Labels, value: float) -> str:
    written = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{written}}} {value:.16g}"


def _escaped(text: str) -> str:
    """Return the value of a label, bounded, and in one line whatever it has."""
    return clean(text, _LONGEST).replace("\\", "\\\\").replace('"', '\\"')


def _of_record(record: Record) -> dict[str, Samples]:
    outcomes = Counter(str(entry.get("outcome")) for entry in record.history)
    promoted = [
        float(entry.get("updated") or 0)
        for entry in record.history
        if entry.get("outcome") == Outcome.PROMOTED
    ]
    metrics: dict[str, Samples] = {
        "rollout_recent": [
            ({"outcome": outcome.value}, outcomes[outcome]) for outcome in _outcomes()
        ]
    }
    if record.stable:
        metrics["rollout_stable_info"] = [({"revision": record.stable.revision}, 1)]
    if promoted:
        metrics["rollout_last_success_timestamp_seconds"] = _single(max(promoted))
    return metrics


def _of_lease(lease: Lease | None) -> dict[str, Samples]:
    if lease is None:
        return {"rollout_lease_held": _single(0)}
    return {
        "rollout_lease_held": _single(1),
        "rollout_lease_expires_timestamp_seconds": _single(lease.until),
        "rollout_lease_epoch": _single(lease.epoch),
    }


def _of_rollout(rollout: Rollout) -> dict[str, Samples]:
    previous = rollout.previous.revision if rollout.previous else ""
    info = {
        "revision": rollout.revision,
        "previous": previous,
        "strategy": rollout.strategy,
        "kind": rollout.kind.value,
    }
    metrics: dict[str, Samples] = {
        "rollout_info": [(info, 1)],
        "rollout_phase": [({"phase": phase.value}, rollout.phase == phase) for phase in Phase],
        "rollout_phase_entered_timestamp_seconds": _single(rollout.entered),
        "rollout_started_timestamp_seconds": _single(rollout.started),
        "rollout_work_seconds": _single(rollout.elapsed),
        "rollout_outcome": [({"outcome": o.value}, rollout.outcome == o) for o in _outcomes()],
        "rollout_replicas": _single(rollout.replicas),
        "rollout_failed_instances": _single(rollout.failed),
    }
    if rollout.over:
        metrics["rollout_ended_timestamp_seconds"] = _single(rollout.updated)
    if rollout.asked is not None:
        metrics["rollout_share_asked_ratio"] = _single(rollout.asked / 100)
    if rollout.sent.get("all"):
        share = rollout.sent.get("new", 0) / rollout.sent["all"]
        metrics["rollout_share_measured_ratio"] = _single(share)
    return metrics


def _of_timeline(rollout: Rollout, timeline: Sequence[Mapping[str, t.Any]]) -> dict[str, Samples]:
    requests = [event for event in timeline if event.get("kind") == "requests"]
    failed = sum(bool(e.get("error")) for e in timeline if e.get("kind") == "notified")
    return {
        "rollout_instances": list(_instances(rollout, timeline)),
        "rollout_requests": _counted(requests, "requests"),
        "rollout_request_errors": _counted(requests, "errors"),
        "rollout_verdict": list(_verdicts(timeline)),
        "rollout_waiting_for_person": _single(_waits(rollout, timeline)),
        "rollout_notification_failures": _single(failed),
    }


def _instances(
    rollout: Rollout, timeline: Iterable[Mapping[str, t.Any]]
) -> Iterator[tuple[Labels, float]]:
    """Yield how many instances of each side are in each state, zeros included."""
    now: dict[t.Any, tuple[str, t.Any]] = {}
    sides: dict[t.Any, str] = {}
    for event in timeline:
        if event.get("kind") == "state":
            name = event.get("instance")
            if "generation" in event:
                sides[name] = "new" if event["generation"] == rollout.generation else "old"
            now[name] = (sides.get(name, "old"), event.get("state"))
    counts = Counter(now.values())
    for side in SIDES:
        for state in State:
            yield {"side": side, "state": state.value}, counts[side, state.value]


def _counted(events: Iterable[Mapping[str, t.Any]], what: str) -> Samples:
    """Return what the load balancers counted of each side; nothing where there are none."""
    counted = list(events)
    return [({"side": side}, total(counted, side, what)) for side in (SIDES if counted else ())]


def _verdicts(timeline: Iterable[Mapping[str, t.Any]]) -> Iterator[tuple[Labels, float]]:
    last: dict[str, str] = {}
    for event in timeline:
        if event.get("kind") == "verdict":
            gate = clean(event.get("gate"), _LONGEST)
            last.pop(gate, None)  # it becomes the latest
            last[gate] = str(event.get("verdict"))
    for gate in list(last)[-GATES:]:
        for verdict in VERDICTS:
            yield {"gate": gate, "verdict": verdict}, last[gate] == verdict


def _waits(rollout: Rollout, timeline: Iterable[Mapping[str, t.Any]]) -> bool:
    """Return whether the last wait is for a person, and is not over."""
    waits = [event for event in timeline if event.get("kind") == "wait"]
    return rollout.phase.waits and bool(waits) and bool(waits[-1].get("person"))


def _single(value: float) -> Samples:
    return [({}, value)]


def _outcomes() -> list[Outcome]:
    return [outcome for outcome in Outcome if outcome != Outcome.NONE]
