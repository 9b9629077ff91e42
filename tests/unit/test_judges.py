# SPDX-License-Identifier: GPL-3.0-or-later
"""From what was measured to what a judge makes of it. The judges themselves are in
test_verdict_*.py.
"""

from __future__ import annotations

import functools
import json
import math
import typing as t
from collections.abc import Mapping

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis import judging, spec
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis.judging import (
    Measurement,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis.spec import (
    Analysis,
    Metric,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import MetricError
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.counts import Counts
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.dispersion import (
    Dispersion,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.latency import (
    Histogram,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.tails import (
    GRADED,
    LEVELS,
    Tails,
    Times,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.threshold import (
    AnalysisPhase,
)

NAN, INFINITE = float("nan"), float("inf")
GOOD, BAD, NEITHER = AnalysisPhase.SUCCESSFUL, AnalysisPhase.FAILED, AnalysisPhase.INCONCLUSIVE


def parse(**given: t.Any) -> Analysis:
    return spec.parse(
        spec.OPTIONS.parse(given, "gate."), "gate", spec.standard(("errors", "latency"), False)
    )


def metric(**given: t.Any) -> Metric:
    (found,) = parse(metrics=[{"name": "m", **given}]).metrics
    return found


def take(given: Metric, result: t.Any, state: judging.State | None = None) -> Measurement:
    return judging.judge_result(given, {} if state is None else state, result)


# By thresholds


@pytest.mark.parametrize(
    ("conditions", "result", "phase"),
    [
        (("result > 1", None), 2, GOOD),
        (("result > 1", None), 1, BAD),
        ((None, "result > 1"), 2, BAD),
        ((None, "result > 1"), 1, GOOD),
        (("result < 1", "result > 2"), 0, GOOD),
        (("result < 1", "result > 2"), 1.5, NEITHER),
        (("result < 9", "result > 2"), 3, BAD),
        ((None, None), 1, NEITHER),
        # NaN is nothing that says anything, in any place, unless it is asked about.
        (("result > 1", None), NAN, NEITHER),
        ((None, "result[0] > 1"), [2.0, NAN], NEITHER),
        (("result.a > 1", None), {"a": 2, "b": {"c": NAN}}, NEITHER),
        (("is_nan(result) or result > 1", None), NAN, GOOD),
        ((None, "isNaN(result)"), NAN, BAD),
        (("result > 1", None), INFINITE, GOOD),
        # What is 0 or false is something.
        (("result == 0", None), 0, GOOD),
        (("not result", None), False, GOOD),
    ],
)
def test_conditions(
    conditions: tuple[str | None, str | None], result: t.Any, phase: AnalysisPhase
) -> None:
    given = metric(
        judge="threshold", success_condition=conditions[0], failure_condition=conditions[1]
    )
    assert take(given, result).phase is phase


@pytest.mark.parametrize("nothing", [None, [], {}, ""])
def test_nothing_is_an_error(nothing: t.Any) -> None:
    with pytest.raises(MetricError) as error:
        take(metric(success_condition="true"), nothing)
    assert error.value.id == "PR-423"


def test_a_condition_that_fails_is_an_error() -> None:
    with pytest.raises(
        MetricError, match=r"gate\.metrics\[0\]\.success_condition: .*fails on a list of 1"
    ):
        take(metric(success_condition="result[1] > 1"), [1.0])
    with pytest.raises(MetricError, match="neither true nor false"):
        take(metric(success_condition="result"), 1.0)


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (0.987654, "0.9877"),
        (12345678, "1.235e+07"),
        (INFINITE, "inf"),
        ([1, 2.5], "[1, 2.5]"),
        (list(range(9)), "[0, 1, 2, 3, 4, ...]"),
        ({"new": {"errors": 1}}, "{new: {errors: 1}}"),
        ("\x1b[31mRED\x1b]0;owned\x07", "?[31mRED?]0;owned?"),
        ({"\x1b" + "k" * 99: 1}, f"{{?{'k' * 56}...: 1}}"),
        (
            "a\nb" * 40,
            f"{'a ba ba ba ba ba ba ba ba ba ba ba ba ba ba ba ba ba ba ba ba b'[:57]}...",
        ),
    ],
)
def test_a_result_is_shown_in_few_words(result: t.Any, shown: str) -> None:
    taken = take(metric(success_condition="true"), result)
    assert (taken.value, taken.sentence) == (shown, f"{shown}: ok")


# One after the other


def of(requests: float, errors: float) -> dict[str, float]:
    return {"requests": requests, "errors": errors}


def counted(
    given: Metric, *results: t.Any, state: judging.State | None = None
) -> tuple[Measurement, judging.State]:
    """The last of these results as judged, each after a run that was killed; and the state."""
    state = state or {}
    for result in results:
        state = json.loads(json.dumps(state, allow_nan=False))
        taken = take(given, result, state)
    return taken, state


def test_errors_are_compared_and_remembered() -> None:
    taken, state = counted(metric(), {"new": of(10, 0), "stable": of(90, 0)})
    assert taken.phase is GOOD and taken.lacking and "more requests" in taken.sentence
    taken, state = counted(metric(), {"new": of(150, 0), "stable": of(1350, 0)}, state=state)
    assert taken.phase is GOOD and not taken.lacking
    bad = [{"new": of(150 + n, n), "stable": of(1350 + 9 * n, 0)} for n in range(1, 16)]
    taken, state = counted(metric(), *bad, state=state)
    assert taken.phase is BAD and taken.sentence.startswith(
        "errors 15 of 165 (9.1 %) against 0 of 1,485 on stable; e-value "
    )
    assert taken.value == {"new": of(165, 15), "stable": of(1485, 0)}


def test_a_share_that_changes_is_no_evidence() -> None:
    """At 10 % there were 9 errors of stable, and at 50 % as many on each side: nobody is worse,
    though new has more of all than its share.
    """
    sums = [{"new": of(10 * n, 0), "stable": of(90 * n, 0)} for n in range(1, 6)]
    sums += [
        {"new": of(50 + 50 * n, 5 * n), "stable": of(450 + 50 * n, 5 * n)} for n in range(1, 20)
    ]
    assert counted(metric(tolerance=1), *sums)[0].phase is GOOD


def test_counts_that_fall_are_not_believed() -> None:
    sums = [{"new": of(100 * n, 9 * n), "stable": of(900 * n, n)} for n in range(1, 9)]
    taken, _state = counted(metric(), *sums, {"new": of(3, 0), "stable": of(20, 0)})
    assert taken.phase is BAD and "errors 72 of 800 (9 %) against 8 of 7,200" in taken.sentence


def test_a_nan_is_nothing_counted() -> None:
    taken = take(metric(), {"new": of(NAN, 1), "stable": of(900, 1)})
    assert (
        taken.phase is GOOD
        and taken.lacking
        and "no requests to the new revision" in taken.sentence
    )


def test_no_request_to_stable_is_nothing_to_compare() -> None:
    taken = take(metric(), {"new": of(900, 900), "stable": of(0, 0)})
    assert (
        taken.phase is GOOD
        and taken.lacking
        and "no requests to stable, nothing to compare" in taken.sentence
    )


def test_one_bad_instance_is_named() -> None:
    """As a source says it that counts from the start, and as the load balancers do."""

    def sums(n: int) -> dict[str, t.Any]:
        instances = {
            f"a-{number}": {**of(100 * n, 3 * n if number == 7 else 0), "host": "web1"}
            for number in range(5, 9)
        }
        return {
            "new": of(400 * n, 3 * n),
            "stable": of(2400 * n, 18 * n),
            "instances": instances,
        }

    taken, _state = counted(metric(), *(sums(n) for n in range(1, 31)))
    assert taken.phase is BAD and taken.sentence.startswith(
        "a-7: errors 90 of 3,000 (3 %) against 540 of 81,000 (0.67 %) on all others; e-value "
    )
    new = {f"a-{number}": {**of(100, 3 if number == 7 else 0), "host": "web1"} for number in (7, 8)}
    stable = {f"b-{number}": {**of(100, 1), "host": "web2"} for number in range(6)}
    taken, _state = counted(metric(), *[{"spans": [{"new": new, "stable": stable}]}] * 40)
    assert taken.phase is BAD and taken.sentence.startswith(
        "a-7: errors 120 of 4,000 (3 %) against "
    )


def test_the_journal_of_an_older_run_goes_on() -> None:
    """It has strata, and counts from the start."""
    new, stable = {"requests": 100.0, "errors": 9.0}, {"requests": 900.0, "errors": 1.0}
    state: judging.State = {
        "strata": [
            {"name": "step 1 10", "new": new, "stable": stable, "evidence": None, "mean": None}
        ],
        "chapter": {"name": "step 1 10", "began": {}, "stable": stable, "evidence": {}},
    }
    taken, state = counted(metric(), {"new": of(200, 9), "stable": of(1800, 1)}, state=state)
    assert taken.value == {"new": of(200, 9), "stable": of(1800, 1)}
    assert "strata" not in state and "chapter" not in state
    older = {"new": {"0": 5, "3": 6}, "stable": {"0": 20}}
    taken, state = counted(metric(of="latency"), {"new": [1.0], "stable": [1.0]}, state=older)
    assert "(12 samples)" in taken.sentence and "on stable (21 samples)" in taken.sentence


def test_more_errors_than_requests_are_an_error_of_the_source() -> None:
    with pytest.raises(MetricError, match="new: 50 errors in 10 requests; both") as error:
        take(metric(), {"new": of(10, 50), "stable": of(90, 0)})
    assert error.value.id == "PR-423"
    instances = {"a": of(5, 20), "b": of(5, 0)}
    with pytest.raises(MetricError, match="a: 20 errors in 5 requests"):
        take(metric(), {"new": of(10, 5), "stable": of(90, 0), "instances": instances})


@pytest.mark.parametrize(
    ("given", "result", "message"),
    [
        ({}, {"new": of(2.0**51, 2.0**51), "stable": of(9, 0)}, "new: {requests: 2.252e+15, "),
        ({}, {"new": of(9, 0), "stable": of(math.inf, 0)}, "stable: {requests: inf, "),
        ({"of": "latency"}, {"new": [0.1, -0.1], "stable": [0.1]}, "a time is negative"),
    ],
)
def test_what_cannot_be_counted_or_timed_is_an_error_of_the_source(
    given: dict[str, t.Any], result: t.Any, message: str
) -> None:
    with pytest.raises(MetricError) as error:
        take(metric(**given), result)
    assert str(error.value).startswith(message) and error.value.id == "PR-423"


def test_times_are_compared_and_remembered() -> None:
    state: judging.State = {}
    given = metric(of="latency")
    for _look in range(12):
        taken = take(given, {"new": [0.03], "stable": [0.01, 0.01]}, state)
        state = json.loads(json.dumps(state))
        if taken.phase is BAD:
            break
    assert taken.phase is BAD and "more than 1.2 times" in taken.sentence
    assert taken.value == {"new": [0.03], "stable": [0.01, 0.01]}


def test_no_times_of_stable_are_nothing_to_compare() -> None:
    taken = take(metric(of="latency"), {"new": [0.01] * 20, "stable": []})
    assert (
        taken.phase is GOOD
        and taken.lacking
        and taken.sentence.endswith("(0 samples); needs 11 more samples of stable")
    )
    taken = take(metric(of="latency", quantile=0.9), {"new": [0.01] * 20, "stable": [0.01] * 20})
    assert (
        taken.phase is GOOD
        and taken.lacking
        and "needs " in taken.sentence
        and taken.sentence.endswith("of stable")
    )


def test_a_number_is_a_sample_and_a_nan_is_none() -> None:
    state: judging.State = {}
    taken = take(metric(of="latency"), {"new": 3, "stable": NAN}, state)
    assert (
        taken.phase is GOOD
        and taken.lacking
        and "(1 samples)" in taken.sentence
        and "on stable (0 samples)" in taken.sentence
    )


WRONG: list[tuple[t.Any, str]] = [
    (7, "new and stable, got 7"),
    ({"new": 1}, "new and stable, got {new: 1}"),
    ({"new": "many", "stable": 1}, "got many"),
    ({"new": [1, None], "stable": 1}, "got [1, None]"),
    ({"new": True, "stable": 1}, "got True"),
    ({"new": None, "stable": None}, "got None"),
    ({"new": {"requests": 1}, "stable": {"requests": 1}}, "requests and errors, got {requests: 1}"),
    (
        {"new": {"requests": "1", "errors": 0}, "stable": of(1, 0)},
        "requests and errors, got {requests: 1, errors: 0}",
    ),
    ({"new": of(1, 0), "stable": 7}, "got {requests: 1, errors: 0}"),
    ({"new": of(1, 0), "stable": of(1, 0), "instances": {"a": 1}}, "requests and errors, got 1"),
]


@pytest.mark.parametrize(("result", "message"), WRONG)
def test_what_cannot_be_compared_is_an_error(result: t.Any, message: str) -> None:
    with pytest.raises(MetricError) as error:
        take(metric(), result)
    assert error.value.id == "PR-423" and message in str(error.value)


@pytest.mark.parametrize(("result", "message"), WRONG[:6])
def test_what_kayenta_cannot_compare_is_an_error(result: t.Any, message: str) -> None:
    state: judging.State = {}
    with pytest.raises(MetricError) as error:
        take(metric(judge="kayenta"), result, state)
    assert message in str(error.value) and state == {}


# All together

OK = [10, 11, 10, 12, 11, 10, 12, 11, 10, 11] * 2
HIGH = [
    20,
    22,
    19,
    23,
    21,
    20,
    24,
    22,
    21,
    20,
] * 2


def judged(options: Mapping[str, t.Any], **samples: list[float]) -> tuple[AnalysisPhase, str]:
    """What Kayenta's judge makes of metrics with these samples, all of whose stable ones are
    `OK`.
    """
    metrics = [
        {"name": name, "judge": "kayenta", "direction": "increase", **options.get(name, {})}
        for name in samples
    ]
    parsed = parse(metrics=metrics, **options.get("all", {}))
    asked = {}
    for one in parsed.metrics:
        state: judging.State = {}
        for new, stable in zip(samples[one.name], OK, strict=True):
            assert take(one, {"new": new, "stable": stable}, state).phase is GOOD
        asked[one.name] = (one, json.loads(json.dumps(state)))
    return judging.judge_by_kayenta(asked, parsed)


def test_kayenta_passes_what_is_alike_and_fails_what_is_not() -> None:
    assert judged({}, a=OK)[0] is GOOD
    assert judged({}, a=HIGH)[0] is BAD
    assert judged({"a": {"allowed_increase": 3}}, a=HIGH)[0] is GOOD
    assert judged({"a": {"direction": "decrease"}}, a=HIGH)[0] is GOOD


def test_what_is_between_pass_and_marginal_is_left_to_a_person() -> None:
    options = {"all": {"pass": 90, "marginal": 40}}
    assert judged(options, a=OK, b=HIGH)[0] is NEITHER
    assert judged(options | {"b": {"critical": True}}, a=OK, b=HIGH)[0] is BAD
    assert judged(options | {"b": {"muted": True}}, a=OK, b=HIGH)[0] is GOOD


def test_groups_count_for_their_weights() -> None:
    options = {
        "b": {"group": "system"},
        "all": {"pass": 90, "marginal": 40, "weights": {"metrics": 91, "system": 9}},
    }
    phase, sentence = judged(options, a=OK, b=HIGH)
    assert phase is GOOD and "91" in sentence
    options["all"]["weights"] = {"metrics": 30, "system": 70}
    assert judged(options, a=OK, b=HIGH)[0] is BAD


def test_what_kayenta_cannot_judge_is_an_error() -> None:
    assert judged({}, a=OK, b=[INFINITE] * 20)[0] in (BAD, AnalysisPhase.ERROR)
    one = metric(judge="kayenta")
    parsed = parse(metrics=[{"name": "a", "judge": "kayenta", "must_have_data": True}])
    assert judging.judge_by_kayenta({"a": (one, {})}, parsed)[0] is not GOOD


def test_kayenta_keeps_the_last_thousand_samples() -> None:
    state: judging.State = {}
    given = metric(judge="kayenta")
    for number in range(3):
        taken = take(given, {"new": [float(number)] * 600, "stable": 1}, state)
    assert (len(state["new"]), state["new"][0], len(state["stable"])) == (judging.MOST, 1.0, 3)
    assert taken.sentence == "1000 samples against 3 on stable"
    assert len(taken.value["new"]) == 10


# Hostile answers

HUGE = 10**400  # more than a float holds
MANY = [float(number) for number in range(100_000)]
HOSTILE = {
    "huge": HUGE,
    "a huge number on one side": {"new": HUGE, "stable": 1},
    "huge counts": {"new": of(HUGE, 1), "stable": of(1, 1)},
    "counts that are nearly infinite": {"new": of(1e308, 1e308), "stable": of(1e308, 1e307)},
    "tiny counts": {"new": of(5e-324, 5e-324), "stable": of(5e-324, 0)},
    "negative counts": {"new": of(-5, -5), "stable": of(-1e308, 1e308)},
    "many numbers": MANY,
    "many numbers on both sides": {"new": MANY, "stable": MANY},
    "many instances": {
        "new": of(10, 1),
        "stable": of(10, 1),
        "instances": {f"shop-{number}": of(1, 1) for number in range(20_000)},
    },
    "an instance with a long name": {
        "new": of(1000, 900),
        "stable": of(1000, 0),
        "instances": {"x" * 1_000_000: of(500, 400), "\x1b[2J": of(500, 500)},
    },
    "instances that are a list": {"new": of(1, 1), "stable": of(1, 1), "instances": [1, 2]},
    "infinite": {"new": [math.inf, -math.inf, math.nan], "stable": -math.inf},
    "a long text": "x" * 1_000_000,
    "a long key": {"x" * 1_000_000: "\x1b[2J" * 1000},
    "deep": functools.reduce(lambda inner, _: [inner], range(900), 1),
}


@pytest.mark.parametrize("result", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(
    "given",
    [{"success_condition": "result == 1"}, {"judge": "sequential"}, {"judge": "kayenta"}],
    ids=["threshold", "sequential", "kayenta"],
)
def test_whatever_a_metric_answers_is_judged_or_an_error_and_kept_briefly(
    given: dict[str, t.Any], result: t.Any
) -> None:
    state: judging.State = {}
    for _time in range(3):
        try:
            measured = take(metric(**given), result, state)
        except MetricError as exc:
            assert len(str(exc)) < 500 and str(exc).isprintable()
        else:
            assert len(json.dumps(measured.value, allow_nan=False)) < 1000
            assert measured.sentence.isprintable()
    assert len(json.dumps(state, allow_nan=False)) < 100_000


# -- slow answers ----------------------------------------------------------------------------------

STABLE = {"shop-1": Histogram({-160: 990, -140: 9, -120: 1})}
HANGS = {"shop-7": Histogram({-160: 989, -140: 9, -120: 1, 32: 1})}


def after(tails: Tails, new: Mapping[str, Histogram], looks: int) -> Tails:
    for _look in range(looks):
        tails = tails.after(Times(new, STABLE), 0.01, 1.2)
    return tails


def test_a_few_answers_that_hang_are_found_far_beyond_all_quantiles() -> None:
    """Of a thousand requests in each look one takes 2 s: as many as are slower than p99.9."""
    verdict, _remark = after(after(Tails(), {}, 1), HANGS, 20).verdict(0.01, 0.05)
    assert verdict.worse and verdict.sentence.startswith(
        "slowest by far (over 0.117 s, stable 0.0964 s): 20 of"
    )
    verdict, _remark = after(after(Tails(), {}, 1), {"shop-7": STABLE["shop-1"]}, 20).verdict(
        0.01, 0.05
    )
    assert not verdict.worse


def test_what_is_slow_is_known_without_the_storms_of_stable() -> None:
    """One that lasts becomes usual."""
    storm = {"shop-1": Histogram({-80: 990, -60: 10})}
    calm = after(Tails(), {}, 5)
    stormy = calm
    for _look in range(6):
        stormy = stormy.after(Times({}, storm), 0.01, 1.2)
    assert stormy.stable == calm.stable and stormy.slow_looks == 6
    assert stormy.after(Times({}, storm), 0.01, 1.2).stable != calm.stable


def test_the_levels_of_tails_share_alpha() -> None:
    assert sum(LEVELS.values()) == pytest.approx(1)


def test_what_is_known_of_tails_is_kept() -> None:
    known = after(after(Tails(), {}, 1), HANGS, 3)
    state = json.loads(json.dumps(known.dump(), allow_nan=False))
    assert json.loads(json.dumps(Tails.load(state).dump())) == state
    told = [after(one, HANGS, 20).verdict(0.01, 0.05)[0] for one in (Tails.load(state), known)]
    assert told[0].worse and told[0].sentence == told[1].sentence


def test_the_slower_the_more_an_answer_tells() -> None:
    """As many are slow in both; where they are the slowest, that is more evidence."""
    stable = {"shop-1": Histogram({-160: 9900, -140: 70, -130: 20, -120: 7, -110: 3})}

    def evidence(slow: Mapping[int, int]) -> float:
        new = {"shop-7": Histogram({-160: 980, **slow})}
        known = Tails().after(Times({}, stable), 0.01, 1.0)
        for _look in range(5):
            known = known.after(Times(new, stable), 0.01, 1.0)
        return known.tails[GRADED].compared.sides.log_e

    assert evidence({-140: 20}) < evidence({-130: 20}) < evidence({-120: 20}) < evidence({-100: 20})


# -- errors with one cause -------------------------------------------------------------------------


def seen(errors: list[float], known: Dispersion | None = None) -> float:
    """How many errors have one cause, where a new instance had so many in each look."""
    found = known or Dispersion()
    for one in errors:
        found = found.after([Counts(100, one)], {"old": Counts(100, 0)})
    return found.of_look


def test_errors_in_every_look_have_causes_of_their_own() -> None:
    assert seen([4.0]) > 3.5  # by a single look, they may be of one client
    assert seen([4.0] * 3) >= 2
    assert seen([4.0] * 100) < 1.5
    assert seen([4.0, *[0.0] * 99]) > 3.9  # a burst
    # by an older run, of which the looks are not known
    assert seen([4.0] * 100, Dispersion(own=8.0, own_squares=32.0)) == 4.0
