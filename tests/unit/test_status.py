# SPDX-License-Identifier: GPL-3.0-or-later
"""What `status` prints: how it stands, who is at work, what to do, and a table whose columns
stand below each other.
"""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.text import span
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Composition,
    Phase,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import (
    ProgressTracker,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.report.status import (
    lines,
    progress,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import (
    GateRecord,
    GateState,
    Record,
    Rollout,
    RolloutKind,
)

LEASE = {"holder": "me@here pid 7", "since": 0.0, "until": 60.0}


TIMELINE = [
    {"kind": "plan", "stages": "damaged"},
    {
        "kind": "plan",
        "stages": [
            {"stage": "step 1", "gates": ["step 2 analysis (analysis)"]},
            {"stage": "step 3", "gates": ["step 4 pause (pause)"]},
            {"stage": "promote", "gates": []},
        ],
    },
]


def instance(name: str, **more: t.Any) -> dict[str, t.Any]:
    return {
        "id": name,
        "revision": "2",
        "host": "web1",
        "state": "ready",
        "rotation": "in",
        "active": 3,
        "age": 12.4,
        "detail": "",
        **more,
    }


def record(phase: str, reason: str = "") -> Record:
    rollout = Rollout(
        id="shop-1",
        revision="2",
        generation=2,
        replicas=2,
        strategy="rolling",
        previous=Composition("1", 1, 2),
        started=0.0,
        kind=RolloutKind.ROLLOUT,
        updated=0.0,
    )
    rollout.phase, rollout.reason = Phase(phase), reason
    return Record("shop", rollout=rollout)


def test_nothing_known() -> None:
    assert lines(Record("shop"), None, []) == [
        "shop: no rollout so far",
        "lease: free",
        "no instances",
    ]
    assert lines(Record("shop"), None, [], ["lb1: \x1b[2Jdown"]) == [
        "unknown at present: lb1: ?[2Jdown",
        "shop: no rollout so far",
        "lease: free",
    ], "that there are none is not known"


def test_without_a_journal_it_is_said_where_none_is() -> None:
    """The address of another journal, misspelt, looks like a service that was never rolled out."""
    assert lines(Record("shop"), None, [], place="/srv/shop.json on lb1")[0] == (
        "shop: no rollout so far in /srv/shop.json on lb1; if there was one, correct rollout_store"
    )


def test_under_way() -> None:
    first, lease = lines(record("progressing"), LEASE, [])[:2]
    assert first == "shop 2: progressing, started at 1970-01-01T00:00:00Z, previous revision 1"
    assert lease == "lease: me@here pid 7 since 1970-01-01T00:00:00Z until 1970-01-01T00:01:00Z"


def test_how_far_it_is() -> None:
    given = record("progressing")
    rollout = given.rollout
    assert rollout
    rollout.name, rollout.strategy, rollout.sent = "step 3", "canary", {"new": 50, "all": 200}
    rollout.given, rollout.tally = {"progress_deadline": "10m"}, ProgressTracker(since=1000.0)
    rollout.gates = {"step 2 analysis": GateRecord(0.0, GateState.PASSED, "errors 0 of 9")}
    rollout.asked = 20
    far = progress(rollout, TIMELINE, 1090.0)
    assert far["gates"] == [
        {"gate": "step 2 analysis", "state": "passed", "message": "errors 0 of 9", "by": ""}
    ]
    assert (far["step"], far["deadline_left"]) == ("step 3/4", 510.0)
    found = lines(given, LEASE, [], far=far)
    assert found[2:5] == [
        "strategy: canary, step 3/4, 20 % of requests asked for, 25.0 % of 200 requests measured",
        "progress deadline: 8 min 30 s left",
        "gate step 2 analysis: passed (errors 0 of 9)",
    ]
    rollout.phase = Phase.PAUSED
    assert progress(rollout, [], 1090.0)["deadline_left"] is None
    rollout.phase = Phase.HELD
    assert progress(rollout, [], 1090.0)["deadline_left"] is None
    unknown = progress(rollout, [], 1090.0) | {"asked": None}
    assert lines(given, None, [], far=unknown)[2:4] == [
        "strategy: canary, 25.0 % of 200 requests measured",
        "gate step 2 analysis: passed (errors 0 of 9)",
    ]


def test_the_budget_as_given_and_for_the_stage() -> None:
    given = record("progressing")
    rollout = given.rollout
    assert rollout
    entered = [
        {"kind": "stage", "floor": 3, "ceiling": 4},
        {"kind": "stage", "floor": 6, "ceiling": 8},
    ]

    def told(timeline: list[dict[str, t.Any]] = entered) -> list[str]:
        shown = lines(given, LEASE, [], far=progress(rollout, timeline, 0.0))
        return [line for line in shown if line.startswith("budget")]

    rollout.given = {"budget": {"max_in_flight": 2}}
    assert told() == ["budget: max_in_flight 2: at least 6 available, at most 8 instances"]
    assert told([]) == ["budget: max_in_flight 2"]
    rollout.given = {"budget": {"max_surge": "25%", "max_unavailable": 0}}
    assert told([]) == ["budget: max_surge 25%, max_unavailable 0"]
    rollout.phase = Phase.ROLLING_BACK  # the bounds are those of the way forward
    assert told() == ["budget: max_surge 25%, max_unavailable 0"]
    rollout.given = {}
    assert told() == []


def test_no_deadline_is_running_while_no_run_is_active() -> None:
    given = record("progressing")
    rollout = given.rollout
    assert rollout
    rollout.given, rollout.tally = {"progress_deadline": "10m"}, ProgressTracker(since=0.0)
    far = progress(rollout, [], 9999.0)
    assert "progress deadline: 0 s left" in lines(given, LEASE, [], far=far)
    assert not any("deadline" in line for line in lines(given, None, [], far=far))


@pytest.mark.parametrize("name", ["back", "switch back"])
def test_a_rollback_is_not_at_a_stage(name: str) -> None:
    given = record("rolling_back", "no progress")
    assert given.rollout
    given.rollout.name = name
    assert lines(given, None, [])[0].startswith("shop 2: rolling back, started at ")


def test_what_waits_for_a_person_says_what_to_do() -> None:
    held = lines(record("held", "no progress"), None, [])
    assert held[0].endswith("previous revision 1. Why: no progress") and held[1].endswith(
        "roll back [PR-606]"
    )
    assert (
        "free (no active run). Next: rerun to continue" in lines(record("progressing"), None, [])[1]
    )
    assert "rerun to finish the rollback" in lines(record("rolling_back"), None, [])[1]


def test_what_waits_at_a_gate_says_since_when_and_who_lets_it_pass() -> None:
    waits = record("awaiting_promotion")
    assert waits.rollout
    waits.rollout.name, waits.rollout.asked, waits.rollout.entered = "prepare", 0, 60.0
    waits.rollout.gates = {"promotion approval": GateRecord(60.0)}
    first, lease = lines(waits, None, [])[:2]
    assert first.startswith(
        "shop 2: awaiting promotion at prepare (0 % of requests) since 1970-01-01T00:01:00Z,"
        " started at "
    )
    assert first.endswith(". Waiting for promotion approval")
    assert lease.endswith(
        "Next: rerun to keep waiting, promote.yml to continue, or abort.yml to roll back"
    )
    waits.rollout.phase = Phase.HELD
    assert "Waiting for" not in lines(waits, None, [])[0]
    waits.rollout.phase = Phase.HOLDING
    assert "promote.yml" not in lines(waits, None, [])[1]


def test_what_is_paused_says_by_whom_and_why() -> None:
    paused = record("paused")
    assert paused.rollout
    paused.rollout.paused = {"by": "ann", "why": "lunch", "at": 1.0}
    first, lease = lines(paused, None, [])[:2]
    assert first.endswith(". Paused by ann: lunch") and lease.endswith(
        "resume.yml to continue, or abort.yml to roll back"
    )
    paused.rollout.gates = {"step 1": GateRecord(60.0)}
    assert lines(paused, None, [])[1].endswith(
        "resume.yml to wait at step 1 as before, promote.yml to pass step 1 and continue, or"
        " abort.yml to roll back"
    )


def test_an_ended_one() -> None:
    ended = record("progressing")
    ended.close("rolled_back", "it crashes", 60.0)
    assert (
        lines(ended, None, [])[0] == "1970-01-01T00:01:00Z: shop 2 rolled back to 1 after 60.0 s"
        " (0.0 s of work, 60.0 s waiting). Why: it crashes"
    )


def test_columns_stand_below_each_other() -> None:
    odd = instance("shop-100", state="not_ready", rotation=None, detail="boom\ncrash")
    heading, first, second = lines(Record("shop"), None, [instance("shop-1"), odd])[2:]
    assert heading == "instance  revision  host  state      rotation  open  age   detail"
    assert first == "shop-1    2         web1  ready      in        3     12 s"
    assert second == "shop-100  2         web1  not ready  -         -     12 s  boom | crash"


def test_columns_that_say_nothing_are_left_out_and_what_runs_is_said_once() -> None:
    plain = {"rotation": None, "runs": "registry/shop:2"}
    more = [instance("shop-1", **plain), instance("shop-2", **plain, restarts=4)]
    assert lines(Record("shop"), None, more)[2:] == [
        "instance  revision  host  state  age   restarts",
        "shop-1    2         web1  ready  12 s  -",
        "shop-2    2         web1  ready  12 s  4",
        "2 runs registry/shop:2",
    ]


def test_revisions_that_run_the_same_are_named_together() -> None:
    plain = {"rotation": None, "runs": "shop {revision}"}
    more = [instance("shop-1", **plain), instance("shop-2", **plain, revision="3")]
    assert lines(Record("shop"), None, more)[-1] == "2 and 3 run shop {revision}"
    assert lines(Record("shop"), None, more)[-2].startswith("shop-2")


def test_spans_of_time() -> None:
    spans = [span(seconds) for seconds in (0.4, 119, 125, 7200, 90061, 200000)]
    assert spans == ["0 s", "119 s", "2 min 05 s", "2 h 00 min", "25 h 01 min", "2 d 7 h"]


def test_a_service_that_gets_no_requests_is_told_first() -> None:
    told = "no load balancer sends requests to any instance; run rollout.yml again"
    known = record("held")
    known.stable = Composition("1", 1, 2)
    out = [instance("shop-1", rotation="absent"), instance("shop-2", rotation="out")]
    assert lines(known, None, out)[0] == told
    assert told not in lines(known, None, [*out, instance("shop-3", rotation="partial")])
    assert told not in lines(known, None, out, ["lb1: no answer"])  # who knows
    assert told not in lines(known, None, [instance("shop-1", rotation=None)])  # no load balancer
    assert told not in lines(record("held"), None, out)  # a first deployment
