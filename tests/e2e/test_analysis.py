# SPDX-License-Identifier: GPL-3.0-or-later
"""The judge, under load and through a real load balancer: bad canaries go back by themselves,
and good ones do not. What else an analysis leads to: tests/property/test_simulated_analyses.py.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from ansible_collections.progressive.rollout.tests.support.playbook import Outcome, Run
from ansible_collections.progressive.rollout.tests.support.prometheus import Prometheus
from ansible_collections.progressive.rollout.tests.support.shared import Shared
from ansible_collections.progressive.rollout.tests.support.shop import (
    FRONTS,
    BehindHAProxy,
    Load,
    Shop,
    failures,
    kill_all,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

KINDS = (("GET", True), ("POST", False))
RATE = 200  # requests a second, of each kind of client
INTERVAL = 0.5  # s
OFTEN = {"interval": "500ms"}
ERRORS = {"name": "errors", "driver": "load_balancer"}
LATENCY = {"name": "latency", "of": "latency", "warm_up": 0}
BOTH = {**OFTEN, "metrics": [ERRORS, LATENCY]}
TENTH, THIRD = {"set_weight": 10}, {"set_weight": 30}
EVERYWHERE = ("web1", "web2", "web3")


def opened(front: t.Any) -> Shop:
    """With revision 1; others fail every twentieth request where there is a file that says so."""
    shop = Shop(
        front,
        env={"START_DELAY": "0.2", "FAIL_EVERY": "20"},
        rollout_budget={"max_surge": 6, "max_unavailable": 0},
    )
    shop.set_env(FAIL_FILE=f"{shop.home}/bad-{{revision}}-{{host}}")
    shop.to("1")
    return shop


@contextmanager
def made_shop() -> Iterator[Shop]:
    front = BehindHAProxy()
    with opened(front) as shop:
        yield shop
    front.close()


@pytest.fixture(scope="module")
def shops() -> Iterator[Shared[Shop]]:
    with Shared(made_shop) as shops:
        yield shops


@pytest.fixture
def shop(shops: Shared[Shop], request: pytest.FixtureRequest) -> Iterator[Shop]:
    with shops.lend(request) as shop:
        yield shop


class Canary:
    """A rollout to the next revision, under load."""

    def __init__(
        self,
        shop: Shop,
        *steps: t.Any,
        rate: float = RATE,
        env: t.Mapping[str, str] | None = None,
        **variables: t.Any,
    ) -> None:
        self.shop = shop
        self.old = shop.journal()["stable"]["revision"]
        self.new = str(int(shop.journal()["rollout"]["revision"]) + 1)
        platform = shop.variables["rollout_platform"]
        platform = {**platform, "env": {**platform["env"], **(env or {})}}
        self.variables = {"rollout_revision": self.new, "rollout_platform": platform, **variables}
        if steps:
            self.variables |= {"rollout_strategy": "canary", "rollout_steps": list(steps)}
        self.load = Load(shop.fronts[0].url, KINDS, connections=4, rate=rate)
        self.reports: list[dict[str, t.Any]] = []
        self._last = shop.journal()["rollout"]["id"]

    def __enter__(self) -> Canary:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.load.__exit__()

    def turns_bad(self, *hosts: str) -> None:
        for host in hosts or EVERYWHERE:
            (self.shop.home / f"bad-{self.new}-{host}").touch()

    def start(self) -> Run:
        return self.shop.start(variables=self.variables)

    def run(self) -> Outcome:
        return self.over(self.start())

    def over(self, run: Run) -> Outcome:
        """The end of the rollout, and of the load."""
        outcome = run.wait()
        self.reports = self.load.stop()
        return outcome

    @property
    def record(self) -> dict[str, t.Any]:
        """What the journal has of it; empty before it has begun."""
        found: dict[str, t.Any] = self.shop.journal()["rollout"]
        return found if found["id"] != self._last else {}

    def events(self, kind: str) -> list[dict[str, t.Any]]:
        return (
            [event for event in self.shop.timeline(self.record["id"]) if event["kind"] == kind]
            if self.record
            else []
        )

    def waits_at(self, gate: str) -> None:
        until(
            lambda: any(
                event["what"].startswith((f"waiting at {gate}", f"measuring for {gate}"))
                for event in self.events("wait")
            ),
            f"it waits at {gate}",
        )

    def measured(self, gate: str, metric: str) -> int:
        """How many measurements the journal has."""
        kept = {**self.record.get("gates", {}), **self.record.get("background", {})}.get(gate, {})
        return int(kept.get("memory", {}).get(metric, {}).get("tally", {}).get("count", 0))

    @property
    def verdict(self) -> dict[str, t.Any]:
        (found,) = self.events("verdict")
        return found

    @property
    def failed(self) -> int:
        """Requests of users, that got an answer that they should not; and no other way to fail."""
        reasons = {reason for report in self.reports for reason in report["failures"]}
        assert reasons <= {"status 500"}, reasons
        return sum(report["failed"] for report in self.reports)

    def went_back(self, outcome: Outcome, *said: str) -> None:
        """Within an interval and a second of the measurement that showed it; it says why, and
        all is as it was.
        """
        assert outcome.rc != 0, outcome.output
        assert all(word in outcome.failed.msg for word in said), outcome.failed.msg
        assert self.verdict["verdict"] == "fail" and said[0] in self.verdict["message"]
        shown = max(
            one["at"]
            for listed in self.verdict["samples"].values()
            for one in listed
            if one["phase"] == "failed"
        )
        (back,) = [
            event["at"] for event in self.events("phase") if event["phase"] == "rolling_back"
        ]
        assert 0 <= back - shown <= INTERVAL + 1
        assert self.record["outcome"] == "rolled_back"
        self.shop.settled(self.old)

    def had_no_more(self, outcome: Outcome) -> None:
        """What was judged bad had no request from the first change on, in the step that judged it:
        by the load balancer's own account, which the report is made of.
        """
        events = self.shop.timeline(self.record["id"])
        decided = next(n for n, e in enumerate(events) if e.get("phase") == "rolling_back")
        away = next(
            n
            for n, event in enumerate(events)
            if n > decided and event["kind"] == "traffic" and not event["shares"].get(self.new)
        )
        print(f"share 0 {events[away]['at'] - events[decided]['at']:.3f} s after the verdict")
        between = [event["kind"] for event in events[decided:away]]
        assert not {"requests", "resume", "repair"} & set(between), "at the first look"
        # The first count after it has what came before it.
        counts = [
            event["new"]["requests"] for event in events[away:] if event["kind"] == "requests"
        ]
        assert counts and sum(counts[1:]) == 0
        every = [event for event in events if event["kind"] == "requests"]
        assert not any(event.get("gap") for event in every)
        answered = sum(report["by_revision"].get(self.new, 0) for report in self.reports)
        assert sum(event["new"]["requests"] for event in every) == answered + self.failed
        assert not outcome.of("rollback") or outcome.one("rollback").status == "skipped"

    def promoted(self, outcome: Outcome) -> None:
        assert outcome.rc == 0, outcome.output
        self.shop.settled(self.new)


# Canaries
# --------------------------------------------------------------------------------------------------


@pytest.mark.essential
def test_one_that_fails_a_twentieth_of_its_requests_is_taken_back(shop: Shop) -> None:
    """Judged again, its analysis comes to the same, and nothing is touched."""
    with Canary(shop, TENTH, {"analysis": {**OFTEN, "count": 60}}) as canary:
        canary.turns_bad()
        outcome = canary.run()
        canary.went_back(outcome, "errors ", "against 0 of ", "e-value ")
        assert 0 < canary.failed < 50
        canary.had_no_more(outcome)
    before = shop.journal()
    judged = shop.run(playbook="progressive.rollout.judge")
    assert judged.rc == 0 and shop.journal() == before, judged.output
    analyses = judged.one("Replay the analyses").result["analyses"]
    (same,) = [one for one in analyses if one["then"] and one["then"]["verdict"] == "fail"]
    assert same["now"]["message"] == same["then"]["message"] == canary.verdict["message"]


def test_one_that_is_three_times_as_slow_is_taken_back(shop: Shop) -> None:
    with Canary(
        shop, THIRD, {"analysis": {**BOTH, "count": 60}}, env={"LATENCY": "0.03"}
    ) as canary:
        canary.went_back(canary.run(), "latency median ", "; more than 1.", " times")
        assert failures(canary.reports) == []


def test_a_good_one_is_promoted_by_a_run_after_a_killed_one(shop: Shop) -> None:
    """It goes on counting."""
    with Canary(
        shop, THIRD, {"analysis": {"interval": "1s", "count": 8, "metrics": [ERRORS, LATENCY]}}
    ) as canary:
        run = canary.start()
        until(
            lambda: canary.measured("step 2 analysis", "errors") >= 3,
            "it is in the middle of its analysis",
        )
        kill_all(run, shop)
        before = canary.record["gates"]["step 2 analysis"]["memory"]["errors"]
        canary.promoted(canary.run())
        samples = canary.verdict["samples"]["errors"]
        counted = before["tally"]["count"]
        assert 3 <= counted < 8 == len(samples)
        assert samples[:counted] == before["recent"]
        requests = [one["value"]["new"]["requests"] for one in samples]
        assert requests == sorted(requests) and requests[counted - 1] > 0
        assert failures(canary.reports) == []


@pytest.mark.long
def test_one_that_answers_404_to_everybody_is_taken_back_without_any_analysis(shop: Shop) -> None:
    env = {"FAIL_EVERY": "1", "FAIL_STATUS": "404"}
    with Canary(shop, TENTH, {"pause": {}}, env=env) as canary:
        run = canary.start()
        canary.waits_at("step 2 pause")
        canary.turns_bad()
        canary.went_back(canary.over(run), "4xx client errors ", " on stable; e-value ")
        assert {why for report in canary.reports for why in report["failures"]} == {"status 404"}


# By a Prometheus that looks at the load balancer
# ----------------------------------------------------------------------


def test_by_prometheus(shop: Shop) -> None:
    """Both a limit, which decides, and the comparison, which is only told."""
    front = t.cast(BehindHAProxy, shop.fronts[0])
    serial = shop.journal()["serial"]
    # as users' own labels say it
    new = "|".join(f"shop-{number}" for number in range(serial + 1, serial + 9))
    counted = 'haproxy_server_http_responses_total{proxy="shop",code=~"%s"}'
    labelled = (
        f'label_replace(label_replace({counted}, "revision", "{{stable}}", "", ""), "revision",'
        f' "{{revision}}", "server", "{new}")'
    )
    since = f"sum by (revision) (increase(({labelled})[{{elapsed}}:500ms]))"
    with (
        Prometheus({"balancer": front.metrics}) as prometheus,
        Canary(shop, env={"FAIL_EVERY": "4"}) as canary,
    ):
        known = {"driver": "prometheus", "address": prometheus.url, "initial_delay": "4s"}
        limit = {
            **known,
            "name": "limit",
            "query": since % "5xx",
            "failure_condition": "max(result) > 2",
            "failure_limit": 20,  # so that there is time to compare
        }
        compared = {
            "name": "compared",
            "requests": since % "[1-5]xx",
            "errors": since % "5xx",
            "dry_run": True,
        }
        prometheus.scraped("balancer")
        analysis = {**OFTEN, "count": 60, "metrics": [limit, {**known, **compared}]}
        canary.variables |= {
            "rollout_strategy": "canary",
            "rollout_steps": [TENTH, {"analysis": analysis}],
        }
        canary.turns_bad()
        canary.went_back(canary.run(), "limit ", "21 failed > failure_limit 20")
        assert canary.verdict["samples"]["compared"][-1]["phase"] == "failed", canary.verdict


# Another load balancer
# ------------------------------------------------------------------------------------------------


def test_by_the_counters_of_envoy() -> None:
    front = FRONTS["envoy"]()
    try:
        with (
            opened(front) as shop,
            Canary(shop, TENTH, {"analysis": {**OFTEN, "count": 60}}) as canary,
        ):
            canary.turns_bad()
            canary.went_back(canary.run(), "errors ", "against 0 of ", "e-value ")
            assert 0 < canary.failed < 50
    finally:
        front.close()
