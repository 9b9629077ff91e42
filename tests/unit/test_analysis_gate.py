# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate `analysis`, on a clock of the test's own: metrics are scripted, or what load
balancers counted is simulated.
"""

from __future__ import annotations

import json
import queue
import re
import sys
import threading
import typing as t
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType, SimpleNamespace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    MetricError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop import gate_runner
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.forward import (
    Forward,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.lifecycle import (
    Lifecycle,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.stages import (
    LaunchStages,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Composition,
    Phase,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    Gate,
    Stage,
    rolling,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.gates import analysis
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.options import (
    TEXT,
    Field,
    Options,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.gate import (
    FAIL,
    PASS,
    PERSON,
    WAIT,
    Answer,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.metric import (
    MetricDriver,
    Question,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import Served
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import (
    GateRecord,
    Record,
    Rollout,
    RolloutKind,
)
from ansible_collections.progressive.rollout.tests.support.contexts import Counted
from ansible_collections.progressive.rollout.tests.support.seeds import examples
from hypothesis import given
from hypothesis import strategies as st

START = 1_700_000_000.0
NAME = "test.metrics.scripted"
ROLLOUT = {
    "id": "r1",
    "service": "shop",
    "revision": "2",
    "generation": 2,
    "stage": "step 1",
    "share": {"set": 10.0},
}
GOOD = {"success_condition": "result < 0.05"}
Script = Callable[[Question], t.Any]


class Scripted(MetricDriver):
    """A metric that comes to what the test says of it by its key."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._key = options["key"]

    def measure(self, question: Question) -> t.Any:
        asked.append((self._key, round(question.now - START, 6)))
        found = scripts[self._key](question)
        if isinstance(found, BaseException):
            raise found
        return found


NOW = SimpleNamespace(seconds=0.0)
scripts: dict[str, Script] = {}
asked: list[tuple[str, float]] = []  # which metric, and when


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The time; and the driver is found by its name, as one of another collection is."""
    name = "ansible_collections.test.metrics.plugins.plugin_utils.metrics.scripted"
    for count in range(5):
        monkeypatch.setitem(sys.modules, name.rsplit(".", count)[0], ModuleType(name))
    monkeypatch.setattr(sys.modules[name], "Driver", Scripted, raising=False)
    monkeypatch.setattr(
        sys.modules[name], "OPTIONS", Options(Field("key", TEXT, "The key.")), raising=False
    )
    NOW.seconds = 0.0
    monkeypatch.setattr(clock, "now", lambda: START + NOW.seconds)
    yield NOW
    scripts.clear()
    asked.clear()


def metric(key: str, found: t.Any, **options: t.Any) -> dict[str, t.Any]:
    """A metric that finds this, or what a function or the next of an iterator says."""
    if isinstance(found, Iterator):
        scripts[key] = lambda _question: next(found)
    else:
        scripts[key] = found if callable(found) else lambda _question: found
    return {"name": key, "driver": NAME, "key": key, **options}


class Judged:
    """An analysis, asked when it says."""

    def __init__(
        self,
        now: SimpleNamespace,
        *metrics: Mapping[str, t.Any],
        context: DriverContext | None = None,
        **options: t.Any,
    ) -> None:
        self.now, self.began = now, now.seconds
        self.rollout: dict[str, t.Any] = dict(ROLLOUT)
        self.options = {
            "interval": "10s",
            "count": 3,
            **({"metrics": list(metrics)} if metrics else {}),
            **options,
        }
        self.context = context or DriverContext("shop", t.cast(t.Any, None))
        self.driver = analysis.Driver(analysis.OPTIONS.parse(self.options, "gate."), self.context)
        self.memory: Mapping[str, t.Any] | None = None

    def ask(self) -> Answer:
        answer = self.driver.ask(self.rollout, self.now.seconds - self.began)
        self.memory = answer.memory or self.memory
        return answer

    def again(self) -> None:
        """The run died; another one goes on from the journal."""
        self.driver = analysis.Driver(analysis.OPTIONS.parse(self.options, "gate."), self.context)
        if self.memory:
            self.driver.restore(json.loads(json.dumps(self.memory, allow_nan=False)))

    def end(self, killed: t.Collection[int] = (), most: int = 1000) -> Answer:
        """Its verdict. `killed` after these answers."""
        for number in range(most):
            answer = self.ask()
            if answer.verdict != WAIT:
                return answer
            if number in killed:
                self.again()
            assert answer.again is not None
            self.now.seconds += answer.again
        raise AssertionError(f"no verdict after {most} answers: {answer.message}")


def counts(new: tuple[float, float], stable: tuple[float, float]) -> dict[str, dict[str, float]]:
    """Errors of requests."""
    return {
        side: {"errors": one[0], "requests": one[1]}
        for side, one in (("new", new), ("stable", stable))
    }


# When it measures, and what it comes to
# -------------------------------------------------------------------------------


def test_it_measures_count_times_at_its_interval_and_passes(now: SimpleNamespace) -> None:
    answer = Judged(now, metric("a", 0.01, **GOOD)).end()
    assert asked == [("a", 0.0), ("a", 10.0), ("a", 20.0)]
    assert (answer.verdict, answer.message) == (PASS, "a 0.01: ok; 3 of 3 measurements successful")
    assert [one["phase"] for one in answer.samples["a"]] == ["successful"] * 3


def test_each_metric_has_its_own_time(now: SimpleNamespace) -> None:
    late = metric("late", 0.01, initial_delay="15s", interval="5s", count=2, **GOOD)
    assert Judged(now, metric("a", 0.01, **GOOD), late).end().verdict == PASS
    assert asked == [("a", 0.0), ("a", 10.0), ("late", 15.0), ("a", 20.0), ("late", 20.0)]


def test_the_first_failure_ends_it(now: SimpleNamespace) -> None:
    answer = Judged(now, metric("a", 0.01, **GOOD), metric("b", iter([0.01, 0.5]), **GOOD)).end()
    assert (answer.verdict, now.seconds) == (FAIL, 10.0)
    assert answer.message == "b 0.5: failed; 1 failed > failure_limit 0"


@pytest.mark.parametrize(
    "trouble",
    [
        MetricError("no route"),
        ValueError("a bug"),
        SystemExit(3),
        MemoryError(),
        None,
        [],
        {},
        {"a": object()},
        {1, 2},
    ],
)
@pytest.mark.parametrize("judge", ["threshold", "sequential", "kayenta"])
def test_errors_in_a_row_are_no_failure_but_a_persons(
    now: SimpleNamespace, trouble: t.Any, judge: str
) -> None:
    """Whatever a driver raises or finds that nothing can be made of. They are tried again after
    ten seconds, whatever the interval.
    """
    rules = GOOD if judge == "threshold" else {}
    answer = Judged(
        now,
        metric("a", lambda _question: trouble, judge=judge, **rules),
        metric("b", 0.01, **GOOD),
        interval="1m",
    ).end()
    assert answer.verdict == PERSON
    assert [at for key, at in asked if key == "a"] == [0.0, 10.0, 20.0, 30.0, 40.0]
    assert "5 errors in a row > consecutive_error_limit 4: " in answer.message
    json.dumps(answer.memory)


def test_what_is_told_of_a_metric_begins_with_its_name(now: SimpleNamespace) -> None:
    answer = Judged(
        now, metric("m", [], success_condition="result[0] < 1", consecutive_error_limit=0)
    ).end()
    assert answer.message == "m 1 errors in a row > consecutive_error_limit 0: empty result"
    answer = Judged(
        now, metric("m", [1.0], success_condition="result[1] < 1", consecutive_error_limit=0)
    ).end()
    assert (
        ": success_condition: `result[1] < 1` fails on a list of 1: " in answer.message
        and "gate" not in answer.message
    )
    answer = Judged(now, metric("m", {"new": 1, "stable": 1}), count=1).end()
    assert answer.message.startswith("inconclusive: m median ")


@pytest.mark.parametrize(
    "trouble", [MetricError("\x1b[2J" * 100_000), KeyError("\x1b[2J" * 100_000)]
)
def test_the_text_of_an_error_is_clean_and_short(now: SimpleNamespace, trouble: Exception) -> None:
    answer = Judged(now, metric("a", lambda _question: trouble, **GOOD)).end()
    assert answer.verdict == PERSON and answer.message.isprintable()
    kept = json.dumps(answer.memory, ensure_ascii=False)
    assert len(kept) < 10_000 and kept.isprintable()


def test_an_error_between_measurements_costs_time_and_nothing_else(now: SimpleNamespace) -> None:
    answer = Judged(
        now, metric("a", iter([0.01, MetricError("no route"), 0.01, 0.01]), **GOOD)
    ).end()
    assert (answer.verdict, len(asked)) == (PASS, 4)


def test_inconclusive_is_a_persons(now: SimpleNamespace) -> None:
    both = {"success_condition": "result < 0.05", "failure_condition": "result > 0.5"}
    answer = Judged(now, metric("a", 0.2, **both)).end()
    assert (answer.verdict, answer.message) == (
        PERSON,
        "inconclusive: a 0.2: neither good nor bad; 1 inconclusive > inconclusive_limit 0",
    )


@pytest.mark.parametrize("found", [0.9, MetricError("no route"), float("nan")])
def test_a_dry_run_is_told_and_of_no_consequence(now: SimpleNamespace, found: t.Any) -> None:
    answer = Judged(
        now, metric("a", 0.01, **GOOD), metric("dry", lambda _question: found, dry_run=True, **GOOD)
    ).end()
    assert answer.verdict == PASS
    assert "dry " in answer.message and answer.message.endswith("(dry run)")
    assert answer.samples["dry"]


@pytest.mark.parametrize(
    ("found", "would"),
    [
        ([0.01], "would pass: a 0.01: ok"),
        ([0.01, 0.9], "would fail: a 0.9: failed; 1 failed > failure_limit 0"),
        ([MetricError("no route")], "would ask an operator: a 5 errors in a row"),
        ([float("nan")], "would ask an operator: inconclusive: a nan"),
    ],
)
def test_a_dry_run_of_an_analysis_says_what_it_would_do(
    now: SimpleNamespace, found: list[t.Any], would: str
) -> None:
    """It ends when it would have, and the next run of the rollout does not change that."""
    measured = iter([*found, *found[-1:] * 20])
    answer = Judged(now, metric("a", measured, **GOOD), dry_run=True).end(killed=[0, 1])
    assert answer.verdict == PASS
    assert answer.message.startswith(f"dry run, {would}")
    assert answer.samples["a"]


def test_a_dry_run_of_an_analysis_is_judged_as_the_analysis(now: SimpleNamespace) -> None:
    """By the same part of alpha, so that both decide at the same moment."""

    def judged(**options: t.Any) -> tuple[Answer, float]:
        began = now.seconds
        looks = iter(counts((10.0 * n, 100.0 * n), (0, 900.0 * n)) for n in range(1, 40))
        pair = metric("a", looks), metric("b", counts((0, 100), (0, 900)))
        return Judged(now, *pair, count=30, **options).end(), now.seconds - began

    (real, took), (dry, took_dry) = judged(), judged(dry_run=True)
    assert (real.verdict, dry.verdict) == (FAIL, PASS)
    assert dry.message == f"dry run, would fail: {real.message}" and took == took_dry
    assert [one["phase"] for one in dry.samples["a"]] == [one["phase"] for one in real.samples["a"]]


def test_where_all_is_a_dry_run_all_is_measured(now: SimpleNamespace) -> None:
    answer = Judged(now, metric("dry", 0.01, dry_run=True, **GOOD)).end()
    assert (answer.verdict, len(asked)) == (PASS, 3)


@pytest.mark.slow
def test_a_slow_metric_does_not_hold_up_the_others(now: SimpleNamespace) -> None:
    released = threading.Event()
    slow = metric("slow", lambda _question: released.wait(60) and 0.01, **GOOD)
    judged = Judged(now, slow, metric("quick", iter([0.01, 0.01, 0.5]), **GOOD))
    try:
        while (answer := judged.ask()).verdict == WAIT:
            now.seconds += 10
        assert (answer.verdict, asked) == (
            FAIL,
            [("slow", 0.0), ("quick", 0.0), ("quick", 10.0), ("quick", 20.0)],
        )
    finally:
        released.set()


def test_a_slow_metric_is_judged_when_it_comes(now: SimpleNamespace) -> None:
    results: queue.SimpleQueue[float] = queue.SimpleQueue()
    judged = Judged(now, metric("slow", lambda _question: results.get(timeout=60), **GOOD), count=1)
    first = judged.ask()
    # nothing to remember, and somebody to listen to
    assert (first.verdict, first.memory, first.again) == (WAIT, None, 0.0)
    results.put(0.5)
    assert judged.end(most=50).verdict == FAIL
    assert len(asked) == 1


def test_who_is_slow_when_it_is_over_is_ended(
    now: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    monkeypatch.setattr(Scripted, "cancel", lambda _self: ended.set())
    slow = metric("slow", lambda _question: ended.wait(60) and 0.01, **GOOD)
    assert Judged(now, slow, metric("quick", 0.5, **GOOD)).end().verdict == FAIL
    assert ended.is_set()


def test_options_are_refused_with_their_place() -> None:
    gate = Gate(
        "analysis",
        "analysis",
        analysis.OPTIONS.parse({"metrics": [{"name": "a", "of": "colours"}]}, ""),
        variable="rollout_analysis",
    )
    with pytest.raises(InputError, match=r"^rollout_analysis\.metrics\[0\]\.of: 'colours'"):
        gate_runner.check([gate], DriverContext("shop", t.cast(t.Any, None)))


# Judges that compare
# --------------------------------------------------------------------------------------------------


def test_the_sequential_judge_fails_as_soon_as_it_knows(now: SimpleNamespace) -> None:
    growing = (counts((errors, 10 * errors), (0, 90 * errors)) for errors in range(1, 100))
    answer = Judged(now, metric("errors", growing), count=60).end()
    assert answer.verdict == FAIL and len(asked) < 12
    assert answer.message.startswith(
        f"errors {len(asked)} of {10 * len(asked)} (10 %) against 0 of "
    )


def test_who_is_short_of_data_at_the_end_says_how_much_and_leaves_it_to_a_person(
    now: SimpleNamespace,
) -> None:
    answer = Judged(now, metric("errors", counts((0, 40), (0, 360)))).end()
    assert answer.verdict == PERSON and len(asked) == 3
    assert answer.message.startswith(
        "inconclusive: errors 0 of 40 against 0 of 360 on stable; e-value "
    )
    assert re.search(r" < 56; needs \d+ more requests$", answer.message)


@pytest.mark.parametrize("nobody", [counts((0, 0), (0, 360)), counts((0, 40), (0, 0))])
def test_nothing_to_compare_is_a_persons(now: SimpleNamespace, nobody: t.Any) -> None:
    answer = Judged(now, metric("errors", nobody)).end()
    assert answer.verdict == PERSON and "nothing to compare" in answer.message


SAME = {
    "new": [10, 12, 11, 13, 12, 11, 10, 12, 13, 11],
    "stable": [11, 12, 11, 12, 13, 11, 10, 12, 12, 11],
}
TWICE = {"new": [20, 22, 19, 23, 21, 20, 24, 22, 21, 20], "stable": SAME["new"]}


@pytest.mark.parametrize(
    ("slow", "heavy", "weights", "verdict"),
    [
        (SAME, SAME, {}, PASS),
        (SAME, TWICE, {"times": 80, "sizes": 20}, PERSON),  # 80 of 100: marginal
        (SAME, TWICE, {"times": 50, "sizes": 50}, FAIL),
        (TWICE, TWICE, {}, FAIL),
    ],
)
def test_kayenta_judges_all_its_metrics_together_at_the_end(
    now: SimpleNamespace, slow: t.Any, heavy: t.Any, weights: Mapping[str, float], verdict: str
) -> None:
    of = {"judge": "kayenta", "direction": "increase", "allowed_increase": 1.1}
    judged = Judged(
        now,
        metric("slow", slow, group="times", **of),
        metric("heavy", heavy, group="sizes", **of),
        weights=weights,
    )
    answer = judged.end()
    assert (answer.verdict, len(asked), now.seconds) == (verdict, 6, 20.0)
    assert "score" in answer.message


def test_a_critical_metric_alone_fails_it(now: SimpleNamespace) -> None:
    of = {"judge": "kayenta", "direction": "increase", "allowed_increase": 1.1}
    many = [metric(f"m{number}", SAME, **of) for number in range(30)]
    assert Judged(now, *many, metric("bad", TWICE, **of)).end().verdict == PASS  # 30 of 31
    assert Judged(now, *many, metric("bad", TWICE, critical=True, **of)).end().verdict == FAIL


def failing(errors: float) -> Iterator[t.Any]:
    """So many of 400 requests to the new side in each interval, and none of 3,600 to stable."""
    return (counts((errors * n, 400 * n), (0, 3600 * n)) for n in range(1, 100))


def test_judges_of_all_kinds_in_one_analysis(now: SimpleNamespace) -> None:
    def judged(kayenta: t.Any = None, threshold: float = 0.01, errors: float = 0) -> Answer:
        asked.clear()
        metrics = [
            metric("k", kayenta or SAME, judge="kayenta", count=2),
            metric("t", threshold, count=4, failure_limit=2, **GOOD),
            metric("s", failing(errors), count=4),
        ]
        return Judged(now, *metrics).end()

    assert judged().verdict == PASS and len(asked) == 10
    # as soon as Kayenta has all of its own
    assert (judged(kayenta=TWICE).verdict, len(asked)) == (FAIL, 6)
    assert (judged(threshold=0.5).verdict, len(asked)) == (FAIL, 8)
    assert (judged(errors=400).verdict, len(asked)) == (FAIL, 8)


def test_kayenta_is_refused_where_there_is_no_end(now: SimpleNamespace) -> None:
    with pytest.raises(InputError, match="kayenta judges at the end"):
        Judged(now, metric("k", SAME, judge="kayenta"), count=0)


# While a person decides
# --------------------------------------------------------------------------------------------------


def waits_for_a_person(judged: Judged) -> Answer:
    answer = judged.end()
    assert answer.verdict == PERSON and answer.again
    judged.now.seconds += answer.again
    return answer


def grown(new_errors: int = 0) -> Iterator[t.Any]:
    """Ten requests to the new side in each interval; from the fourth on they fail."""
    bad = 0
    for n in range(1, 100):
        bad += new_errors if n > 3 else 0
        yield counts((bad, 10 * n), (0, 90 * n))


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("then", ["pass", "ask"])
def test_a_quiet_service_passes_once_there_is_enough(
    now: SimpleNamespace, then: str, killed: bool
) -> None:
    judged = Judged(now, metric("errors", grown()), on_enough=then)
    assert "more requests" in waits_for_a_person(judged).message
    for _look in range(30):
        if killed:
            judged.again()
        answer = judged.ask()
        if answer.verdict != PERSON or "enough" in answer.message:
            break
        assert answer.again is not None
        now.seconds += answer.again
    assert len(asked) > 10
    if then == "pass":
        assert answer.verdict == PASS
    else:
        assert answer.verdict == PERSON
        assert answer.message.startswith("enough has been measured, and all is well: errors 0 of")


def test_one_that_breaks_while_a_person_sleeps_fails(now: SimpleNamespace) -> None:
    judged = Judged(now, metric("errors", grown(5)))
    waits_for_a_person(judged)
    while (answer := judged.ask()).verdict == PERSON:
        assert answer.again is not None
        now.seconds += answer.again
    assert answer.verdict == FAIL and len(asked) < 12


def test_a_source_that_is_away_at_first_is_begun_with_once_it_is_there(
    now: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a driver that counts itself cannot begin with is an error of its measurement."""
    there = iter([MetricError("no log"), MetricError("no log"), None])
    monkeypatch.setattr(Scripted, "counting", True)
    monkeypatch.setattr(Scripted, "begin", lambda _driver: _raise(next(there)))
    found = iter([MetricError("no log"), 0.01, 0.01, 0.01])
    answer = Judged(now, metric("a", found, **GOOD)).end()
    assert answer.verdict == PASS
    assert next(there, "begun") == "begun"


def _raise(error: BaseException | None) -> None:
    if error is not None:
        raise error


def test_a_source_that_is_away_for_a_while_is_asked_again(now: SimpleNamespace) -> None:
    """And what it then says counts: a person is not asked any more."""
    away = [MetricError("no route")] * 8
    judged = Judged(now, metric("a", iter([0.01, *away, *[0.01] * 9]), **GOOD))
    assert "no route" in waits_for_a_person(judged).message
    verdicts = []
    while not verdicts or verdicts[-1] in (PERSON, WAIT):
        answer = judged.ask()
        verdicts.append(answer.verdict)
        now.seconds += answer.again or 0.0
    assert verdicts[-1] == PASS and WAIT in verdicts[verdicts.index(PERSON) :]
    assert len(asked) == 1 + len(away) + 2


def test_what_is_inconclusive_by_its_conditions_fails_all_the_same(now: SimpleNamespace) -> None:
    both = {"success_condition": "result < 0.05", "failure_condition": "result > 0.5"}
    judged = Judged(now, metric("a", iter([0.2, 0.2, 0.01, 0.9]), **both))
    waits_for_a_person(judged)
    while (answer := judged.ask()).verdict == PERSON:
        assert answer.again is not None
        now.seconds += answer.again
    assert answer.verdict == FAIL and len(asked) == 4


# Going on
# --------------------------------------------------------------------------------------------------

MEASURED = st.one_of(
    st.sampled_from([0.01, 0.2, 0.9, None, float("nan")]), st.just(MetricError("no route"))
)
NUMBER = st.one_of(st.floats(0.5, 2), st.sampled_from([float("nan"), float("inf")]))
COMPARED = st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(5, 60))


@examples(40)
@given(
    found=st.lists(MEASURED, min_size=12, max_size=12),
    compared=st.lists(COMPARED, min_size=12, max_size=12),
    kept=st.lists(st.tuples(NUMBER, NUMBER), min_size=12, max_size=12),
    killed=st.sets(st.integers(0, 11)),
)
def test_who_goes_on_from_the_journal_comes_to_the_same(
    found: list[t.Any],
    compared: list[tuple[int, int, int]],
    kept: list[tuple[float, float]],
    killed: set[int],
) -> None:
    """Killed after any of its answers, which is what the journal has."""

    def at(values: list[t.Any]) -> Script:
        left = iter(values)
        return lambda _question: next(left)

    totals, sums = [0, 0, 0, 0], []
    for new, stable, requests in compared:
        totals = [
            one + more
            for one, more in zip(totals, (new, requests, stable, 9 * requests), strict=True)
        ]
        sums.append(counts((totals[0], totals[1]), (totals[2], totals[3])))

    def verdict(killed: t.Collection[int]) -> tuple[Answer, float]:
        limits = {"success_condition": "result < 0.05", "failure_condition": "result > 0.5"}
        metrics = [
            metric(
                "t",
                at(found),
                failure_limit=2,
                inconclusive_limit=2,
                consecutive_error_limit=2,
                **limits,
            ),
            metric("s", at(sums)),
            metric(
                "k",
                at([{"new": new, "stable": stable} for new, stable in kept]),
                judge="kayenta",
                allowed_increase=1.1,
            ),
        ]
        NOW.seconds = 0.0
        return Judged(NOW, *metrics, count=6).end(killed), NOW.seconds

    (straight, took), (broken, took_again) = verdict(()), verdict(killed)
    assert (broken.verdict, broken.message, took_again) == (
        straight.verdict,
        straight.message,
        took,
    )
    json.dumps(straight.memory, allow_nan=False)
    assert repr(broken.samples) == repr(straight.samples) and repr(broken.memory) == repr(
        straight.memory
    )


@pytest.mark.parametrize(
    ("phase", "replicas", "anew"),
    [(Phase.HELD, 3, True), (Phase.PROGRESSING, 4, True), (Phase.PROGRESSING, 3, False)],
)
def test_what_was_found_of_another_target_or_before_it_failed_says_nothing(
    monkeypatch: pytest.MonkeyPatch, phase: Phase, replicas: int, anew: bool
) -> None:
    rollout = Rollout(
        "r1",
        "2",
        2,
        3,
        "canary",
        Composition("1", 1, 3),
        START,
        kind=RolloutKind.SCALE,
        phase=phase,
    )
    rollout.gates, rollout.background = {"a": GateRecord(1.0)}, {"b": GateRecord(1.0)}
    said: list[str] = []
    run = SimpleNamespace(
        record=Record("shop", rollout=rollout),
        settings=SimpleNamespace(plan=None, notify=(), replicas=None),
        given={},
        restored=False,
        check_mode=False,
        in_place=False,
        session=SimpleNamespace(identity=SimpleNamespace(holder="ann", request="", host="")),
        loop=SimpleNamespace(fleet=[], event=lambda *_kind, **_what: None, commit=lambda: None),
        report=lambda _changed, msg: said.append(msg),
        notify_release=lambda: None,
    )
    monkeypatch.setattr(Lifecycle, "_fingerprint", "")
    lifecycle = Lifecycle(t.cast(t.Any, run))
    lifecycle.stages = t.cast(
        t.Any, SimpleNamespace(of=lambda rollout: [Stage("replace", rolling(2, rollout.replicas))])
    )
    lifecycle.resume(rollout, replicas)
    assert (not rollout.gates, not rollout.background) == (anew, anew) and said


@pytest.mark.parametrize(("phase", "watched"), [(Phase.PAUSED, True), (Phase.PROGRESSING, False)])
def test_a_gate_of_its_own_is_watched_and_as_irreversible_as_the_stage(
    monkeypatch: pytest.MonkeyPatch, phase: Phase, watched: bool
) -> None:
    """That of the step `gate`; but not while a host is prepared, when there is nothing new to
    watch.
    """
    rollout = Rollout("r1", "2", 2, 3, "canary", Composition("1", 1, 3), START)
    rollout.passed = ["step 1", "step 2"]  # it is past the last stage
    here = Stage("step 2", rolling(2, 3), reversible=False, watched=True)
    run = SimpleNamespace(loop=SimpleNamespace(observe_fleet=list, commit=lambda: None))
    walked: list[Stage] = []
    monkeypatch.setattr(LaunchStages, "of", lambda _self, _rollout: (here,))
    monkeypatch.setattr(Forward, "run_stage", lambda _self, stage, *_rest: walked.append(stage))
    Forward(t.cast(t.Any, run)).wait_at(rollout, Gate("mine", "pause"), phase)
    assert [(stage.name, stage.reversible, stage.watched) for stage in walked] == [
        ("mine", False, watched)
    ]


# As load balancers count
# ----------------------------------------------------------------------------------------------


class Traffic:
    """What the load balancers of a canary with a tenth of the requests count, in an interval after
    the other.

    Errors come evenly, as many as the rates say, so that a verdict follows from the rates alone.
    """

    def __init__(self, fails: float, stable_fails: float) -> None:
        self.served: dict[str, Served] = {}
        self.fails = {
            "shop-10": fails,
            **dict.fromkeys((f"shop-{number}" for number in range(1, 10)), stable_fails),
        }

    @property
    def failed(self) -> int:
        """Requests to the new instance that failed."""
        return self.served["shop-10"].errors

    def flow(self, requests: int = 50) -> None:
        """So many requests to each of ten instances."""
        found = {}
        for number, (name, fails) in enumerate(self.fails.items(), 1):
            new = name == "shop-10"
            one = self.served.get(name) or Served(
                "2" if new else "1", 2 if new else 1, "web", Endpoint("127.0.0.1", number)
            )
            found[name] = Served(
                one.revision,
                one.generation,
                one.host,
                one.endpoint,
                True,
                one.requests + requests,
                round((one.requests + requests) * fails),
                one.answered + requests,
                one.seconds + requests * (0.01 + number / 10_000),
            )
        self.served = found


def analysed(now: SimpleNamespace, fails: float, stable_fails: float) -> tuple[Answer, int]:
    """The verdict on a canary, by the metrics measured by default; and how many requests to it
    failed.
    """
    traffic = Traffic(fails, stable_fails)
    traffic.flow()
    context = DriverContext(
        "shop", t.cast(t.Any, None), counted=("errors", "latency"), counters=Counted(traffic)
    )
    judged = Judged(now, context=context, count=30)
    while (answer := judged.ask()).verdict == WAIT:
        now.seconds += 10.0
        traffic.flow()
    return answer, traffic.failed


def test_what_is_counted_by_ourselves_has_an_interval_to_come_together(
    now: SimpleNamespace,
) -> None:
    """After the initial delay, and again where a run goes on: it has seen nothing yet, and
    nobody knows what came in between.
    """
    traffic = Traffic(1.0, 1.0)
    context = DriverContext(
        "shop", t.cast(t.Any, None), counted=("errors",), counters=Counted(traffic)
    )
    found = {"name": "rate", "success_condition": "result.new.requests == 50"}
    judged = Judged(now, {**found, "initial_delay": "15s"}, context=context)
    traffic.flow(70)  # while it is cold
    assert judged.ask().again == 15.0
    now.seconds += 15
    assert judged.ask().again == 10.0
    now.seconds += 10
    traffic.flow()
    assert judged.ask().memory
    judged.again()
    now.seconds += 60
    traffic.flow(70)  # while nobody looked
    assert judged.ask().again == 10.0
    now.seconds += 10
    traffic.flow()
    answer = judged.ask()
    assert [
        one["phase"] for one in t.cast("dict[str, t.Any]", answer.memory)["rate"]["recent"]
    ] == ["successful"] * 2


@pytest.mark.parametrize(("rate", "verdict"), [(0.0, PASS), (0.002, PASS), (0.045, PASS)])
def test_a_revision_as_good_as_stable_is_not_failed(
    now: SimpleNamespace, rate: float, verdict: str
) -> None:
    """Also where stable fails nearly as often as must be detected elsewhere."""
    assert analysed(now, rate, rate)[0].verdict == verdict


@pytest.mark.parametrize("rate", [0.0, 0.005])
def test_a_revision_that_fails_a_twentieth_is_found(now: SimpleNamespace, rate: float) -> None:
    answer, failed = analysed(now, 0.05, rate)
    assert answer.verdict == FAIL and failed < 50


# Messages of new instances
# -------------------------------------------------------------------------------


class Logged(Scripted):
    """A metric that finds messages."""

    judge = "new_messages"


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, t.Any]]:
    name = "ansible_collections.test.metrics.plugins.plugin_utils.metrics.logged"
    module = ModuleType(name)
    vars(module).update(Driver=Logged, OPTIONS=Options(Field("key", TEXT, "The key.")))
    monkeypatch.setitem(sys.modules, name, module)

    def made(found: t.Any, **options: t.Any) -> dict[str, t.Any]:
        return {**metric("log", found, **options), "driver": "test.metrics.logged"}

    return made


def messages(**times: int) -> dict[str, t.Any]:
    """New instances have logged these so often."""
    new = {key: {"times": n, "example": key, "instances": ["shop-7"]} for key, n in times.items()}
    return {"new": new, "old": [], "compared": True, "crowded": False, "skipped": False}


def test_new_messages_are_told_and_decide_nothing(
    now: SimpleNamespace, logged: Callable[..., t.Any]
) -> None:
    answer = Judged(now, metric("a", 0.01, **GOOD), logged(messages(boom=9))).end()
    assert answer.verdict == PASS
    assert 'log 1 error message of new instances only: "boom" (9 times on shop-7)' in answer.message
    assert answer.samples["log"][-1]["value"]["messages"] == ['"boom" (9 times on shop-7)']
    answer = Judged(now, metric("a", 0.01, **GOOD), logged(MetricError("no log"))).end()
    assert answer.verdict == PASS and "no log" in answer.message
    assert Judged(now, logged(messages())).end().verdict == PASS


def test_new_messages_are_told_when_another_metric_fails(
    now: SimpleNamespace, logged: Callable[..., t.Any]
) -> None:
    bad = metric("a", iter([0.01, 0.9]), **GOOD)
    answer = Judged(now, logged(messages(boom=9)), bad).end()
    assert answer.verdict == FAIL
    assert answer.message.startswith("a 0.9: failed") and '"boom"' in answer.message


@pytest.mark.parametrize("killed", [(), (0, 1)])
def test_new_messages_fail_where_asked(
    now: SimpleNamespace, logged: Callable[..., t.Any], killed: tuple[int, ...]
) -> None:
    options = {"failure": "any", "count": 10}
    answer = Judged(now, logged(messages(boom=3), **options)).end(killed)
    assert answer.verdict == FAIL and '"boom"' in answer.message
    assert len(asked) == 3, "two looks for the old instances"
    alone = {**messages(boom=3), "compared": False}
    assert Judged(now, logged(alone, **options)).end().verdict == PERSON


def test_it_says_by_what_the_new_side_looks_worse_before_that_is_decided(
    now: SimpleNamespace,
) -> None:
    """Not of errors that are none yet (`at_least`), and not in a dry run."""
    for options, doubt in (
        ({}, "errors 6 of 600 (1 %) against 0 of 600"),
        ({"at_least": 0.5}, ""),
        ({"dry_run": True}, ""),
    ):
        looks = (counts((number, 100 * number), (0, 100 * number)) for number in range(1, 7))
        judged = Judged(now, metric("errors", looks, **options), count=0)
        answers = []
        for _look in range(6):
            answers.append(judged.ask())
            now.seconds += 10
        assert {answer.verdict for answer in answers} == {WAIT}
        assert answers[0].doubt == "" and answers[-1].doubt[: len(doubt) or None] == doubt
