# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout measured is kept, and judged again under other settings."""

from __future__ import annotations

import json
import shlex
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from unittest import mock

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis import replay, samples
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.gates import analysis
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
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import Served
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.events import Looked
from ansible_collections.progressive.rollout.tests.simulations.world.machine import virtual_clock
from ansible_collections.progressive.rollout.tests.support.contexts import Counted
from ansible_collections.progressive.rollout.tests.support.pages import SNIPPETS
from ansible_collections.progressive.rollout.tests.support.seeds import examples
from hypothesis import given
from hypothesis import strategies as st

START = 1_700_000_000.0
GATE = "step 2 analysis"
ROLLOUT = {"id": "r1", "service": "shop", "revision": "2", "generation": 2}
METRICS = (
    {"name": "errors"},
    {"name": "latency", "of": "latency", "warm_up": 0},
    {"name": "rate", "failure_condition": "result.new.error_rate > 0.2", "failure_limit": 1},
    {
        "name": "both",
        "success_condition": "result.new.error_rate < 0.05",
        "failure_condition": "result.new.error_rate > 0.5",
        "inconclusive_limit": 2,
    },
    {"name": "tried", "judge": "kayenta", "direction": "increase"},
    {"name": "dry", "dry_run": True, "detect": 0.2},
)


@dataclass
class Traffic:
    """What load balancers count of two new instances and three old ones."""

    dice: Random
    new: float  # the part of the requests that fail
    stable: float = 0.01
    requests: int = 60  # at most, of an instance between two looks
    slower: float = 1.0
    served: dict[str, Served] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number in range(5):
            generation, host = (2, "web1") if number < 2 else (1, f"web{number}")
            self.served[f"shop-{number}"] = Served(
                str(generation), generation, host, Endpoint("10.0.0.1", 8000 + number)
            )

    def come(self) -> None:
        for name, one in self.served.items():
            rate, slower = (self.new, self.slower) if one.generation == 2 else (self.stable, 1.0)
            came = self.dice.randint(0, self.requests)
            self.served[name] = one._replace(
                requests=one.requests + came,
                errors=one.errors + sum(self.dice.random() < rate for _request in range(came)),
                answered=one.answered + came,
                seconds=one.seconds + came * slower * self.dice.uniform(0.01, 0.012),
            )


@dataclass
class Measured:
    """An analysis of a rollout: the events that it left, and what was answered with each."""

    events: list[dict[str, t.Any]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


def measured(
    traffic: Traffic, killed: t.Collection[int] = (), looks: int = 40, **options: t.Any
) -> Measured:
    """The events of an analysis, as they are read from the journal; `killed` after these answers."""
    found, seconds, memory = Measured(), 0.0, None
    context = DriverContext(
        "shop", t.cast(t.Any, None), counted=("errors", "latency"), counters=Counted(traffic)
    )
    with virtual_clock(), mock.patch.object(clock, "now", lambda: START + seconds):
        given = analysis.OPTIONS.parse({"interval": "10s", **options}, "gate.")
        driver = analysis.Driver(given, context)
        for number in range(looks):
            answer = driver.ask(ROLLOUT, seconds)
            memory = answer.memory or memory
            if answer.looked:
                event = {"at": START + seconds, **Looked(gate=GATE, **answer.looked).to_dict()}
                found.events.append(json.loads(json.dumps(event)))
                found.answers.append(answer)
            if answer.verdict in (PASS, FAIL):
                break
            if number in killed:
                driver = analysis.Driver(given, context)
                driver.restore(json.loads(json.dumps(memory)) if memory else {})
            traffic.come()
            seconds += answer.again or 0.0
        driver.close()
    return found


def run(**options: t.Any) -> Measured:
    """An analysis of a revision that fails a tenth of its requests."""
    return measured(Traffic(Random("bad"), 0.1), **{"count": 10, **options})


def verdict_event(answer: Answer) -> dict[str, t.Any]:
    return {
        "kind": "verdict",
        "gate": GATE,
        "verdict": answer.verdict,
        "message": answer.message,
        "samples": answer.samples,
    }


@given(
    st.randoms(use_true_random=False),
    st.sampled_from([0.0, 0.02, 0.1, 0.6]),
    st.sampled_from([0, 20, 60, 400]),
    st.sampled_from([1.0, 4.0]),
    st.lists(st.sampled_from(METRICS), min_size=1, max_size=4, unique_by=lambda one: one["name"]),
    st.sampled_from([{}, {"on_enough": "ask"}, {"dry_run": True}, {"alpha": 0.2}]),
    st.integers(1, 12),
    st.sets(st.integers(0, 12), max_size=2),
)
@examples(60)
@pytest.mark.slow
def test_the_same_settings_give_the_same_verdict_at_the_same_look(
    dice: Random,
    rate: float,
    requests: int,
    slower: float,
    metrics: list[dict[str, t.Any]],
    options: dict[str, t.Any],
    count: int,
    killed: set[int],
) -> None:
    """In its middle and at its end, also where the run was killed in between and where a person was asked."""
    traffic = Traffic(dice, rate, requests=requests, slower=slower)
    found = measured(traffic, killed, metrics=metrics, count=count, **options)
    for number in sorted({(len(found.answers) + 1) // 2, len(found.answers)}):
        again, answer = replay.replay(found.events[:number], {}), found.answers[number - 1]
        assert (again.overall.verdict, again.overall.message) == (answer.verdict, answer.message)
        assert again.looks == number and again.whole
    again = replay.replay(found.events, {})
    if found.answers[-1].verdict in (PASS, FAIL):
        assert again.overall.look == len(found.answers)
        for name, shown in found.answers[-1].samples.items():
            assert json.dumps(again.progress[name].recent) == json.dumps(shown)


def test_a_changed_setting_changes_the_verdict() -> None:
    found = run(metrics=[{"name": "errors"}])
    assert found.answers[-1].verdict == FAIL
    (one,) = replay.replayed(
        [*found.events, verdict_event(found.answers[-1])],
        {"metrics": [{"name": "errors", "tolerance": 100}]},
    )
    assert one["then"]["verdict"] == FAIL and one["then"]["look"] == len(found.answers)
    assert one["now"]["verdict"] == WAIT and one["now"]["look"] is None
    (metric,) = one["metrics"]
    assert (metric["then"]["verdict"], metric["now"]["verdict"]) == ("failed", WAIT)
    assert metric["evidence"] < metric["threshold"]


def test_a_verdict_that_did_not_wait_for_warm_up_does_not_when_it_is_judged_again() -> None:
    options = analysis.OPTIONS.parse(
        {"metrics": [{"name": "errors", "warm_up": "0s"}]}, "analysis."
    )
    kept = analysis.OPTIONS.parse(
        json.loads(json.dumps(analysis.spec.recorded(options, ()))), "analysis."
    )
    (metric,) = analysis.spec.parse(kept, "analysis", (), again=True).metrics
    assert metric.options["warm_up"] == 0


def test_a_lower_alpha_decides_later() -> None:
    found = run()
    (one,) = replay.replayed(found.events, {"alpha": 1e-9})
    then, now = one["metrics"][0]["then"], one["now"]
    assert then["verdict"] == "failed" and (now["look"] or 99) > then["look"]


def test_fewer_measurements_end_before_the_others() -> None:
    found = measured(Traffic(Random("good"), 0.0), count=8, metrics=[{"name": "errors"}])
    assert found.answers[-1].verdict in (PASS, PERSON)
    again = replay.replay(
        found.events, {"count": 3, "metrics": [{"name": "errors", "detect": 0.5}]}
    )
    assert (again.overall.verdict, again.overall.look) == (PASS, 3)


def test_measurements_are_counted_and_not_the_moments_in_which_they_came() -> None:
    """Each metric's result may come by itself, of errors first."""
    events = run().events
    apart = [
        {**event, "results": {name: coded}, "settings": event.get("settings") if at == 0 else None}
        for event in events
        for at, (name, coded) in enumerate(event["results"].items())
    ]
    assert len(apart) > len(events)
    together, alone = (replay.replay(one, {}) for one in (events, apart))
    assert together.overall.look == alone.overall.look == alone.metrics["errors"].look
    assert alone.looks == together.looks


def test_a_metric_that_is_over_is_judged_no_more() -> None:
    """By the settings tried: what it failed by came later."""
    failing = {"name": "rate", "failure_condition": "result.new.requests > 0", "failure_limit": 3}
    traffic = Traffic(Random("good"), 0.0)
    found = measured(traffic, count=10, metrics=[{"name": "errors"}, failing])
    assert found.answers[-1].verdict == FAIL and len(found.answers) == 4
    again = replay.replay(found.events, {"metrics": [{"name": "rate", "count": 2}]})
    assert again.overall.verdict == WAIT and again.metrics["rate"].look == 2


def test_what_the_timeline_says_goes_before_a_replay() -> None:
    """The judges of then may have been others."""
    found = run()
    said = {**verdict_event(found.answers[-1]), "verdict": PASS, "message": "all well"}
    (one,) = replay.replayed([*found.events, said], {})
    assert (one["then"]["verdict"], one["then"]["message"]) == (PASS, "all well")
    assert one["now"]["verdict"] == FAIL


def test_an_analysis_that_began_anew_is_another_one() -> None:
    first, second = run(), measured(Traffic(Random("good"), 0.0), count=4)
    (one, two) = replay.replayed([*first.events, *second.events], {})
    assert one["now"]["verdict"] == FAIL and two["now"]["verdict"] != FAIL
    assert two["looks"] == len(second.answers)


def test_the_default_analysis_asks_no_person() -> None:
    found = measured(Traffic(Random("few"), 0.0, requests=1), count=2)
    assert found.answers[-1].verdict == PERSON
    assert replay.replay(found.events, {}).overall.verdict == PERSON
    quiet = [{**event, "by_default": True} for event in found.events]
    assert replay.replay(quiet, {}).overall.verdict == WAIT


def test_results_are_bounded_and_a_replay_says_where_they_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(samples, "MOST", 1500)
    traffic = Traffic(Random("good"), 0.0)
    found = measured(traffic, killed=[3, 7], count=20, metrics=[{"name": "errors"}])
    kept = [event["results"]["errors"] for event in found.events]
    assert sum(len(one or "") for one in kept) <= 1500
    end = kept.index(None)
    assert end and set(kept[end:]) == {None}  # nothing follows what is missing
    (one,) = replay.replayed(found.events, {})
    assert not one["whole"] and one["looks"] == end
    assert replay.lines("r1", [one])[-1].endswith(f"results after {end} measurements are not kept")


def test_a_result_that_no_store_takes_is_not_kept() -> None:
    dice = Random("noise")
    noise = [dice.random() for _number in range(20_000)]
    for found in (noise, {1, 2}, object()):
        assert samples.packed({"result": found}, 1.0, 0) == (None, samples.MOST)


@pytest.mark.parametrize("damaged", [None, 3, "", "!", "eJw=", "AAAA"])
def test_a_damaged_result_is_none(damaged: t.Any) -> None:
    assert samples.unpacked(damaged) is None


@given(st.recursive(st.none() | st.integers() | st.floats() | st.text(), st.lists))
@examples(50)
def test_a_result_is_read_as_it_was(result: t.Any) -> None:
    coded, kept = samples.packed({"result": result}, START, 7)
    assert coded is not None and kept == 7 + len(coded)
    again = samples.unpacked(coded)
    assert again is not None and repr(again["result"]) == repr(result)


def test_the_timeline_has_no_secret_of_a_metric() -> None:
    metrics = [
        {
            "name": "rate",
            "driver": "prometheus",
            "address": "http://prometheus:9090",
            "query": "up",
            "bearer_token": "s3cret",
            "success_condition": "result < 1",
        }
    ]
    given = analysis.OPTIONS.parse({"metrics": metrics}, "gate.")
    kept = analysis.spec.recorded(given, ())
    assert kept["metrics"] == [
        {"name": "rate", "driver": "prometheus", "success_condition": "result < 1"}
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alfa": 0.1}, "rollout_try.alfa: unknown option; did you mean rollout_try.alpha?"),
        ({"alpha": 7}, "rollout_try.alpha"),
        ({"metrics": 3}, "rollout_try.metrics: expected a list"),
        ({"metrics": [3]}, "rollout_try.metrics[0]: expected a mapping"),
        ({"metrics": [{}]}, "rollout_try.metrics[0].name"),
        ({"metrics": [{"name": "errors", "driver": "web"}]}, "rollout_try.metrics[0].driver"),
        ({"metrics": [{"name": "none"}]}, "measured no 'none'; it measured errors, latency"),
        ({"metrics": [{"name": "errors", "quantile": 3}]}, "rollout_try.metrics[errors].quantile"),
        ({"metrics": [{"name": "errors", "group": "a"}]}, "rollout_try.metrics[errors].group"),
    ],
)
def test_a_change_that_cannot_be_is_refused(change: Mapping[str, t.Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        replay.replayed(run().events, change)
    assert message in str(refused.value)


def test_the_page_shows_what_would_have_happened() -> None:
    found = measured(Traffic(Random("bad 5"), 0.05), count=10, metrics=[{"name": "errors"}])
    page = SNIPPETS["docs/how-to/analysis.md"]
    change = json.loads(shlex.split(page["judge"].splitlines()[0])[-1])["rollout_try"]
    events = [*found.events, verdict_event(found.answers[-1])]
    assert replay.lines("r1", replay.replayed(events, change)) == page["replayed"].splitlines()


def test_a_rollout_without_an_analysis_has_nothing_to_replay() -> None:
    lines = replay.lines("r1", replay.replayed([{"kind": "begin"}], {}))
    assert lines == ["r1: no analysis judged anything in this rollout"]
