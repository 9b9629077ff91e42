# SPDX-License-Identifier: GPL-3.0-or-later
"""Two services whose names begin alike, on the same hosts, in the same journal, behind the same
load balancer.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.progressive.rollout.tests.support.haproxy import HAProxy
from ansible_collections.progressive.rollout.tests.support.playbook import Outcome, Playground, Run

PORTS = {"shop": "8100-8149", "shop-api": "8150-8199"}


@pytest.fixture
def balancer() -> Iterator[HAProxy]:
    made = HAProxy("backend shop-api\n    balance roundrobin\n    option httpchk GET /healthz")
    yield made
    made.close()


class Street:
    """The hosts, and what each of the services would write."""

    def __init__(self, playground: Playground, balancer: HAProxy) -> None:
        self.playground, self.balancer = playground, balancer

    def variables(self, service: str, revision: str, **env: str) -> dict[str, t.Any]:
        return {
            "rollout_service": service,
            "rollout_revision": revision,
            "rollout_platform": {
                **self.playground.variables["rollout_platform"],
                "ports": PORTS[service],
                "env": env,
            },
            "rollout_traffic": {
                "driver": "haproxy",
                "socket": self.balancer.api,
                "backend": service,
                "path": str(self.playground.home / "fences"),
            },
            "rollout_failure_limit": 2,
        }

    def start(self, service: str, revision: str, **env: str) -> Run:
        return self.playground.start(variables=self.variables(service, revision, **env))

    def living(self, service: str) -> dict[str, str]:
        """The revision of each instance."""
        return {
            record["id"]: record["revision"]
            for record in self.playground.living()
            if record["service"] == service
        }

    def states(self, service: str) -> set[str]:
        """In which its instances were, in its last rollout."""
        events = self.playground.timeline(
            self.playground.journal(service)["rollout"]["id"], service
        )
        assert {
            event["instance"].rpartition("-")[0] for event in events if event["kind"] == "state"
        } == {service}
        return {event["state"] for event in events if event["kind"] == "state"}


@pytest.fixture
def street(playground: Playground, balancer: HAProxy) -> Street:
    return Street(playground, balancer)


def both(*runs: Run) -> list[Outcome]:
    return [run.wait() for run in runs]


def test_one_that_fails_is_nothing_to_its_neighbour(street: Street) -> None:
    """A failure belongs to its own rollout, although both are under way at once."""
    first = both(street.start("shop", "1"), street.start("shop-api", "1"))
    assert [outcome.rc for outcome in first] == [0, 0], [outcome.output for outcome in first]
    before = street.living("shop")
    assert sorted(before.values()) == sorted(street.living("shop-api").values()) == ["1"] * 3

    bad, good = both(
        street.start("shop", "2", HEALTH="fail", CRASH_AFTER="0.3"),
        street.start("shop-api", "2", START_DELAY="1"),
    )
    assert bad.rc != 0 and bad.rollout["outcome"] == "rolled_back", bad.output
    assert good.rc == 0 and good.rollout["outcome"] == "promoted", good.output
    assert "failed" in street.states("shop") and "failed" not in street.states("shop-api")

    assert street.living("shop") == before
    assert sorted(street.living("shop-api").values()) == ["2"] * 3
    for service in PORTS:
        assert set(street.balancer.servers(service)) == set(street.living(service))


def test_another_journal_may_not_roll_the_service_out_behind_the_same_pool(street: Street) -> None:
    """Whatever its hosts are: the load balancer knows the journal that its servers belong to."""
    playground = street.playground
    assert street.start("shop", "1").wait().rc == 0
    before = street.balancer.servers("shop")
    elsewhere = {"driver": "file", "path": str(playground.home / "elsewhere")}
    hosts = {"path": str(playground.home / "hosts"), "ports": "8300-8309"}
    given = street.variables("shop", "2") | {"rollout_store": elsewhere}
    given["rollout_platform"] |= hosts
    refused = playground.run(variables=given)
    assert refused.rc == 2 and "[PR-515]" in refused.failed.msg, refused.output
    for store in (str(playground.store), elsewhere["path"]):
        assert f"{store}/journal/shop.json" in refused.failed.msg
    assert street.balancer.servers("shop") == before
    assert not (playground.home / "hosts").exists()
    moved = {**street.variables("shop", "1"), "rollout_to_store": elsewhere}
    assert playground.run("progressive.rollout.store", moved).rc == 0
    given["rollout_platform"] = moved["rollout_platform"]
    assert playground.run(variables=given).rc == 0
    old = playground.run(variables=street.variables("shop", "3"))
    assert old.rc == 2 and "[PR-512]" in old.failed.msg, old.output
