# SPDX-License-Identifier: GPL-3.0-or-later
"""What load balancers count, added up by instance, and what the metric `load_balancer` makes of
it.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis.counters import Counters
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    MetricError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.metric import Question
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    Labels,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import (
    COUNTS,
    Cut,
    Served,
    Server,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.metrics.load_balancer import (
    ENOUGH,
    FASTEST,
    OPTIONS,
    Driver,
)
from ansible_collections.progressive.rollout.tests.support.contexts import Counted

WINDOW = 512  # HAProxy's TIME_STATS_SAMPLES


@dataclass
class Simulated:
    """One server of a HAProxy, as its source counts: whole milliseconds, all of them up to 512
    answers, then a sliding window.

    Of a full window each answer takes the 512th part, rounded up, and adds its own; what is shown
    is the mean, rounded up.
    """

    requests: int = 0
    errors: int = 0
    total: int = 0  # ms

    def answer(self, milliseconds: float, failed: bool = False) -> None:
        self.requests += 1
        self.errors += failed
        gone = -(-self.total // WINDOW) if self.requests > WINDOW else 0
        self.total += int(milliseconds) - gone

    @property
    def server(self) -> Server:
        mean = -(-self.total // min(self.requests, WINDOW)) / 1000 if self.requests else 0.0
        return Server(
            Rotation.IN,
            True,
            0,
            requests=self.requests,
            errors=self.errors,
            answered=self.requests,
            mean=mean,
        )


def labels(name: str, generation: int = 1, port: int = 8001) -> Labels:
    return Labels(name, "shop", f"r{generation}", generation, "web1", Endpoint("10.0.0.1", port), 0)


def server(requests: int, errors: int = 0, rotation: Rotation = Rotation.IN) -> Server:
    """As of a balancer that does not measure how long answers take."""
    return Server(rotation, True, 0, requests=requests, errors=errors)


A, B = labels("a"), labels("b", port=8002)


class Looks:
    """A run that looks at its balancers."""

    def __init__(self) -> None:
        self.counters = Counters()

    def at(
        self, *there: Labels, now: float = 0.0, **balancers: Mapping[Labels, Server]
    ) -> Mapping[str, Served]:
        table = {
            name: {one.endpoint: server for one, server in servers.items()}
            for name, servers in balancers.items()
        }
        self.counters.take(table, there, now)
        return self.counters.served


def counted(served: Mapping[str, Served]) -> dict[str, tuple[int, int]]:
    return {name: (one.requests, one.errors) for name, one in served.items()}


# Counters


def test_what_was_counted_before_we_looked_is_nobodys() -> None:
    looks = Looks()
    assert counted(looks.at(A, lb={A: server(900, 9)})) == {"a": (0, 0)}
    assert counted(looks.at(A, lb={A: server(950, 10)})) == {"a": (50, 1)}


def test_an_instance_begins_with_its_first_request() -> None:
    """One that is deployed in place begins anew."""
    looks = Looks()
    looks.at(A, lb={A: server(0)}, now=100.0)
    assert looks.at(A, lb={A: server(0)}, now=110.0)["a"].age(110.0) == 0
    looks.at(A, lb={A: server(3)}, now=120.0)
    assert looks.at(A, lb={A: server(9)}, now=150.0)["a"].age(150.0) == 30
    changed = labels("a", 2)
    assert looks.at(changed, lb={changed: server(9)}, now=160.0)["a"].age(170.0) == 0
    assert looks.at(changed, lb={changed: server(11)}, now=180.0)["a"].age(190.0) == 10


def test_an_instance_that_had_requests_in_an_earlier_step_is_as_old() -> None:
    """But not the one that takes its place."""
    looks = Looks()
    looks.counters.first = {("a", 1): 40.0}
    assert looks.at(A, lb={A: server(900)}, now=100.0)["a"].age(100.0) == 60
    assert looks.at(A, lb={A: server(903)}, now=110.0)["a"].age(110.0) == 70
    changed = labels("a", 2)
    assert looks.at(changed, lb={changed: server(9)}, now=120.0)["a"].age(120.0) == 0


def test_balancers_are_added_up() -> None:
    looks = Looks()
    looks.at(A, B, one={A: server(10), B: server(0)}, two={A: server(500)})
    assert counted(
        looks.at(A, B, one={A: server(20, 1), B: server(7)}, two={A: server(530, 2)})
    ) == {"a": (40, 3), "b": (7, 0)}


def test_a_balancer_that_was_restarted_counts_on() -> None:
    looks = Looks()
    looks.at(A, one={A: server(100, 5)}, two={A: server(100)})
    looks.at(A, one={A: server(160, 8)}, two={A: server(110)})
    assert counted(looks.at(A, one={A: server(30, 2)}, two={A: server(120)})) == {
        "a": (60 + 30 + 20, 3 + 2)
    }


def test_a_balancer_that_was_away_for_a_while_is_not_guessed_at() -> None:
    looks = Looks()
    looks.at(A, one={A: server(100)}, two={A: server(0)})
    looks.at(A, two={A: server(10)})
    looks.at(A, one={A: server(700)}, two={A: server(20)})  # it may be another one altogether
    assert counted(looks.at(A, one={A: server(705)}, two={A: server(20)})) == {"a": (25, 0)}


def test_who_takes_an_address_does_not_take_its_counts() -> None:
    looks, heir = Looks(), labels("c")
    looks.at(A, lb={A: server(0)})
    looks.at(A, lb={A: server(100, 50)})
    looks.at(lb={A: server(100, 50)})  # stopped
    assert counted(looks.at(heir, lb={heir: server(100, 50)})) == {"a": (100, 50), "c": (0, 0)}
    assert counted(looks.at(heir, lb={heir: server(104, 50)})) == {"a": (100, 50), "c": (4, 0)}
    # One that was taken away and entered anew counts from 0.
    assert counted(looks.at(heir, lb={heir: server(3, 1)}))["c"] == (7, 1)


def test_an_instance_that_becomes_a_new_one_in_place_is_counted_anew() -> None:
    looks, new = Looks(), labels("a", 2)
    looks.at(A, lb={A: server(0)})
    looks.at(A, lb={A: server(100, 3)})
    served = looks.at(new, lb={new: server(110, 4)})
    assert counted(served) == {"a": (10, 1)} and served["a"].generation == 2


def test_who_is_in_rotation_anywhere_is_serving() -> None:
    looks = Looks()
    out = server(0, rotation=Rotation.OUT)
    assert looks.at(A, one={A: out}, two={A: server(0)})["a"].serving
    assert not looks.at(A, one={A: out}, two={A: out})["a"].serving
    assert not looks.at()["a"].serving


def test_what_nobody_knows_is_not_counted() -> None:
    assert Looks().at(A, lb={A: server(5), B: server(7)}).keys() == {"a"}


def test_a_balancer_that_measures_no_times_has_none() -> None:
    looks = Looks()
    looks.at(A, lb={A: server(0)})
    (found,) = looks.at(A, lb={A: server(100)}).values()
    assert (found.answered, found.seconds) == (0, 0.0)


def means(looks: Iterable[int], time: t.Callable[[int], float]) -> list[float]:
    """The mean of what came between two looks, in ms, of a HAProxy that gives so many answers
    before each.
    """
    one, seen, found = Simulated(), Looks(), []
    seen.at(A, lb={A: one.server})
    before = (0, 0.0)
    for answers in looks:
        for _number in range(answers):
            one.answer(time(one.requests))
        served = seen.at(A, lb={A: one.server})["a"]
        found.append(1000 * (served.seconds - before[1]) / (served.answered - before[0]))
        before = (served.answered, served.seconds)
    return found


def test_up_to_512_answers_the_mean_is_of_all() -> None:
    assert means([100, 100, 100, 200], lambda number: 10 if number < 300 else 30) == pytest.approx(
        [10, 10, 10, 30], abs=3
    )


def test_over_512_answers_the_mean_is_of_a_window_that_slides() -> None:
    found = means([500, 500, 2000, 500, 500], lambda number: 10 if number < 3000 else 30)
    assert found == pytest.approx([10, 10, 10, 30, 30], abs=1.5)


def test_what_is_rounded_away_in_one_look_comes_in_with_the_next() -> None:
    """Few answers between two looks: each may come to anything, and all together to the truth."""
    random = Random("looks")
    found = means([30] * 200, lambda _number: random.uniform(8, 14))
    assert max(found) - min(found) > 10  # a millisecond of 512 answers, in 30 of them
    assert math.fsum(found) / len(found) == pytest.approx(10.5, abs=1.5)


def test_a_balancer_that_was_restarted_has_a_mean_of_its_own() -> None:
    one, seen = Simulated(), Looks()
    for _number in range(5000):
        one.answer(10)
    seen.at(A, lb={A: one.server})
    one = Simulated()
    for _number in range(1000):
        one.answer(20)
    served = seen.at(A, lb={A: one.server})["a"]
    assert served.answered == 1000 and served.seconds / served.answered == pytest.approx(
        0.02, abs=0.0015
    )


# The metric `load_balancer`


class Measured:
    """A metric, and what the balancers count meanwhile."""

    def __init__(
        self, of: str = "errors", counted: t.Sequence[str] = ("errors", "latency"), **served: Served
    ) -> None:
        self.served: dict[str, Served] = served
        self.cuts: list[Cut] = []
        self.now = 0.0
        context = DriverContext(
            "shop",
            t.cast(t.Any, None),
            counted=counted,
            counters=Counted(self),
        )
        self.driver = Driver(OPTIONS.parse({"of": of}, "metric."), context)
        self.driver.begin()

    def more(self, name: str, requests: int, errors: int = 0, seconds: float = 0.0) -> None:
        one = self.served[name]
        self.served[name] = one._replace(
            requests=one.requests + requests,
            errors=one.errors + errors,
            answered=one.answered + requests,
            seconds=one.seconds + seconds,
        )

    def ask(self, baseline: int = 0, **question: t.Any) -> t.Any:
        return self.driver.measure(
            Question({"generation": 2, "baseline": baseline}, 0.0, self.now, **question)
        )

    def spans(self, **question: t.Any) -> list[dict[str, dict[str, t.Any]]]:
        """What came of each instance, for each share: requests and errors."""
        found = self.ask(paired=True, counts=True, **question)["spans"]
        return [
            {
                side: {name: (one["requests"], one["errors"]) for name, one in known.items()}
                for side, known in span.items()
            }
            for span in found
        ]

    def times(self) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        """The samples of new and of stable instances."""
        found = self.ask(paired=True, counts=True)["samples"]
        return found["new"], found["stable"]


def instance(generation: int, requests: int = 0, errors: int = 0) -> Served:
    return Served(
        f"r{generation}",
        generation,
        f"web{generation}",
        Endpoint("10.0.0.1", 8000),
        True,
        requests,
        errors,
        requests,
        0.0,
    )


def test_the_age_of_instances_is_told() -> None:
    metric = Measured(old=instance(1), new=instance(2)._replace(first=1000.0))
    metric.more("new", 90)
    metric.now = 1250.0
    (span,) = metric.ask(paired=True, counts=True)["spans"]
    assert span["new"]["new"]["age"] == 250 and span["stable"]["old"]["age"] == 0


def test_conditions_get_what_came_since_the_last_measurement() -> None:
    metric = Measured(old=instance(1, 1000, 500), new=instance(2, 10, 10))
    metric.more("old", 90, 9, seconds=0.9)
    metric.more("new", 10, 1, seconds=0.2)
    found = metric.ask()
    assert found["new"] == {"requests": 10, "errors": 1, "error_rate": 0.1, "latency": 0.02}
    assert found["stable"] == {
        "requests": 90,
        "errors": 9,
        "error_rate": 0.1,
        "latency": pytest.approx(0.01),
    }
    metric.more("new", 5)
    assert metric.ask()["new"] == {"requests": 5, "errors": 0, "error_rate": 0, "latency": 0}
    metric.more("new", 1)
    assert metric.ask()["stable"] == {
        "requests": 0,
        "errors": 0,
        "error_rate": None,
        "latency": None,
    }


def test_without_a_request_to_the_new_ones_nothing_is_measured() -> None:
    metric = Measured(old=instance(1), new=instance(2))
    metric.more("old", 90)
    with pytest.raises(MetricError, match="no request to the new instances"):
        metric.ask()
    with pytest.raises(MetricError, match="no request to the new instances"):
        Measured(old=instance(1)).ask()


def test_new_ones_are_compared_with_all_others() -> None:
    metric = Measured(older=instance(0), old=instance(1), new=instance(2))
    for name in ("older", "old", "new"):
        metric.more(name, 10)
    assert metric.spans() == [
        {"new": {"new": (10, 0)}, "stable": {"older": (10, 0), "old": (10, 0)}}
    ]
    (span,) = metric.ask(paired=True, counts=True)["spans"]
    assert span["new"]["new"]["host"] == "web2"


def test_new_ones_are_compared_with_the_baseline_where_there_is_one() -> None:
    metric = Measured(old=instance(1), fresh=instance(3), new=instance(2))
    metric.more("old", 100, 7)
    metric.more("fresh", 10)
    metric.more("new", 10)
    assert metric.spans(baseline=3)[0]["stable"] == {"fresh": (10, 0)}
    metric.more("old", 100, 7)
    assert metric.spans(baseline=9)[0]["stable"]["old"] == (100, 7)  # not there (yet)


def test_instances_that_came_from_elsewhere_are_no_baseline() -> None:
    metric = Measured(old=instance(0), new=instance(2))
    metric.more("old", 100)
    metric.more("new", 10)
    assert metric.spans()[0]["stable"] == {"old": (100, 0)}


def test_what_came_at_another_share_is_apart() -> None:
    """The share was changed twice since the last measurement, and before the first one."""
    metric = Measured(old=instance(1), new=instance(2))
    metric.cuts = [Cut(1, dict(metric.served))]
    metric.driver.begin()
    metric.more("old", 90)
    metric.more("new", 10)
    metric.cuts.append(Cut(2, dict(metric.served)))
    metric.more("old", 50)
    metric.more("new", 50, 5)
    metric.cuts.append(Cut(3, dict(metric.served)))
    metric.more("new", 7)
    assert metric.spans() == [
        {"new": {"new": (10, 0)}, "stable": {"old": (90, 0)}},
        {"new": {"new": (50, 5)}, "stable": {"old": (50, 0)}},
        {"new": {"new": (7, 0)}, "stable": {"old": (0, 0)}},
    ]
    assert len(metric.spans()) == 1


def test_the_counters_of_a_change_of_the_share_are_kept_for_a_while() -> None:
    looks = Looks()
    looks.at(A, lb={A: server(0)})
    for number in range(1, 31):
        looks.at(A, lb={A: server(number)})
        looks.counters.cut()
    kept = looks.counters.cuts
    assert [cut.number for cut in kept] == list(range(11, 31))
    assert [cut.served["a"].requests for cut in kept] == list(range(11, 31))


def test_an_instance_that_became_a_new_one_in_place_counts_from_there() -> None:
    metric = Measured(one=instance(1, 500, 100), old=instance(1))
    metric.served["one"] = instance(2, 20, 1)
    metric.more("old", 50)
    assert metric.spans() == [{"new": {"one": (20, 1)}, "stable": {"old": (50, 0)}}]


def test_a_sample_is_a_mean_of_enough_answers_of_one_instance() -> None:
    metric = Measured("latency", old=instance(1), new=instance(2, 1))
    assert metric.times() == ({}, {})
    metric.now = 60.0  # the new instance is warm
    metric.more("old", ENOUGH, seconds=ENOUGH * 0.02)
    metric.more("new", ENOUGH - 1, seconds=3.0)
    assert metric.times() == ({}, {"old": [pytest.approx(0.02)]})
    metric.more("new", 1, seconds=0.0)
    assert metric.times() == ({"new": [pytest.approx(3.0 / ENOUGH)]}, {})
    metric.more("new", ENOUGH, seconds=ENOUGH * 0.001)
    metric.more("old", ENOUGH, seconds=-0.3)  # rounded
    assert metric.times() == ({"new": [FASTEST]}, {"old": [FASTEST]})


def test_what_a_new_instance_needs_while_it_is_cold_is_no_sample() -> None:
    """Its minute begins with its first request, and what came within is not in a later sample."""
    metric = Measured("latency", old=instance(1), new=instance(2))
    metric.now = 100.0
    assert metric.times() == ({}, {})
    metric.more("new", ENOUGH, seconds=ENOUGH * 9.0)
    assert metric.times()[0] == {}
    metric.now = 159.0
    metric.more("new", ENOUGH, seconds=ENOUGH * 9.0)
    assert metric.times()[0] == {}
    metric.now = 161.0
    metric.more("new", ENOUGH, seconds=ENOUGH * 0.02)
    assert metric.times()[0] == {"new": [pytest.approx(0.02)]}


def test_an_instance_that_had_requests_before_the_analysis_is_warm() -> None:
    metric = Measured("latency", old=instance(1), new=instance(2, 1)._replace(first=30.0))
    metric.now = 100.0
    metric.more("new", ENOUGH, seconds=ENOUGH * 0.02)
    assert metric.times()[0] == {"new": [pytest.approx(0.02)]}


def test_kayenta_gets_rates() -> None:
    metric = Measured(old=instance(1), new=instance(2))
    metric.more("old", 100, 5)
    found = metric.ask(paired=True)
    assert found["stable"] == 0.05 and math.isnan(found["new"])


@pytest.mark.parametrize("of", ["client_errors", "retries", "aborts", "connect_failures"])
def test_what_else_is_counted_is_compared_as_errors_are(of: str) -> None:
    """Retries may be more than the requests."""
    metric = Measured(of, COUNTS, old=instance(1), new=instance(2))
    metric.more("old", 50, errors=7)
    metric.served["new"] = metric.served["new"]._replace(requests=10, **{of: 30})
    assert metric.spans() == [{"new": {"new": (10, 10)}, "stable": {"old": (50, 0)}}]
    metric.served["new"] = metric.served["new"]._replace(requests=30, **{of: 34})
    found = metric.ask()
    assert (found["new"]["errors"], found["new"]["requests"]) == (4, 20)


def test_what_is_not_counted_is_refused() -> None:
    with pytest.raises(InputError, match=r"metric\.of: .* do not count 'latency', but errors;"):
        Measured("latency", ("errors",))
