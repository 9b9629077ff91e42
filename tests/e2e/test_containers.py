# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts of containers of podman and docker on real hosts, over SSH, behind HAProxy, under
load.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from ansible_collections.progressive.rollout.tests.support.hosts import Hosts
from ansible_collections.progressive.rollout.tests.support.playbook import Outcome, Playground
from ansible_collections.progressive.rollout.tests.support.shared import Shared
from ansible_collections.progressive.rollout.tests.support.shop import BehindHAProxy, Load, failures

pytestmark = pytest.mark.long
CRASHES = {"CRASH_AFTER": "0.1", "START_READY_DELAY": "1000"}


class Site(Playground):
    """The service `shop` as containers on two hosts that have the images of three revisions."""

    def __init__(self, hosts: Hosts, front: BehindHAProxy, engine: str) -> None:
        known = {name: {**hosts.variables(name), "ansible_become": True} for name in hosts.names}
        super().__init__(inventory={"shop": {"hosts": known}})
        self.machines, self.front, self.engine = hosts, front, engine
        self.platform = {
            "driver": engine,
            "hosts": "shop",
            "ports": "8100-8199",
            "image": "localhost/shop:{revision}",
            "container_port": 8080,
            "pull": "never",
        }
        self.variables |= {
            "rollout_platform": self.platform,
            "rollout_replicas": 2,
            "rollout_traffic": front.traffic,
            "rollout_health": {"http": "/healthz", "interval": "200ms", "rise": 1},
        }
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._load, hosts.names))

    def _load(self, name: str) -> None:
        if self.engine == "docker":
            self.machines.run(name, "systemctl", "start", "docker")
        self.machines.run(name, self.engine, "load", "--quiet", "--input", "/opt/shop/images.tar")

    def close(self) -> None:
        super().close()
        for name in self.machines.names:  # the next one has the same ports, and another journal
            script = (
                f"{self.engine} ps --all --quiet | xargs --no-run-if-empty {self.engine} rm --force;"
                " rm -rf /var/lib/rollout/*/shop"
            )
            self.machines.run(name, "/bin/sh", "-c", script)

    def to(self, revision: str, **variables: t.Any) -> Outcome:
        return self.run(variables={"rollout_revision": revision, **variables})

    def containers(self, *which: str) -> Counter[str]:
        """How many containers of each revision there are, over all hosts."""
        found: Counter[str] = Counter()
        for name in self.machines.names:
            ids = self.machines.run(name, self.engine, "ps", "--quiet", *which).split()
            label = '--format={{index .Config.Labels "progressive.rollout.revision"}}'
            found.update(
                self.machines.run(name, self.engine, "inspect", label, *ids).split() if ids else ()
            )
        return found


@contextmanager
def made_hosts() -> Iterator[Hosts]:
    with Hosts("web1", "web2") as made:
        yield made


@pytest.fixture(scope="module")
def many() -> Iterator[Shared[Hosts]]:
    with Shared(made_hosts) as many:
        yield many


@pytest.fixture
def hosts(many: Shared[Hosts], request: pytest.FixtureRequest) -> Iterator[Hosts]:
    with many.lend(request) as hosts:
        yield hosts


@pytest.fixture(params=[pytest.param("podman", marks=pytest.mark.essential), "docker"])
def site(request: pytest.FixtureRequest, hosts: Hosts) -> Iterator[Site]:
    front = BehindHAProxy()
    try:
        with Site(hosts, front, request.param) as made:
            yield made
    finally:
        front.close()


def test_containers_are_replaced_and_a_bad_revision_goes_back(site: Site) -> None:
    first = site.to("1")
    assert first.rc == 0, first.output
    assert site.containers() == {"1": 2}
    with Load(site.front.url, connections=2, rate=50) as load:
        second = site.to("2")
        assert second.rc == 0, second.output
        assert site.containers() == {"2": 2}
        missing = site.to("9")
        assert missing.rc != 0
        assert (
            "rollout_platform.image: localhost/shop:9 is not there, and is never pulled"
            in missing.failed.msg
        )
        never_ready = {**site.platform, "env": CRASHES}
        bad = site.to("3", rollout_platform=never_ready, rollout_failure_limit=1)
        assert bad.rc != 0
        assert bad.rollout["outcome"] == "rolled_back", bad.output
        assert "exit code 3 within" in bad.rollout["reason"]
        reports = load.stop()
    assert failures(reports) == []
    assert all(report["by_revision"].keys() == {"1", "2"} for report in reports)
    assert site.containers() == {"2": 2}
    # one of the revision before is kept on each host
    assert site.containers("--all") == {"1": 2, "2": 2}


def test_both_engines_are_parts_of_one_service(hosts: Hosts) -> None:
    front = BehindHAProxy()
    try:
        with Site(hosts, front, "docker") as other, Site(hosts, front, "podman") as site:
            parts = {
                "first": {**site.platform, "hosts": "web1"},
                "second": {**other.platform, "hosts": "web2"},
            }
            site.variables["rollout_platform"] = {"driver": "several", "parts": parts}

            def there() -> tuple[Counter[str], Counter[str]]:
                return site.containers(), other.containers()

            assert site.to("1").rc == 0
            assert there() == ({"1": 1}, {"1": 1})
            with Load(front.url, connections=2, rate=50) as load:
                second = site.to("2")
                assert second.rc == 0, second.output
                assert there() == ({"2": 1}, {"2": 1})
                parts["second"]["env"] = CRASHES
                bad = site.to("3", rollout_failure_limit=1)
                assert bad.rc != 0 and bad.rollout["outcome"] == "rolled_back", bad.output
                assert there() == ({"2": 1}, {"2": 1})
                reports = load.stop()
            assert failures(reports) == []
    finally:
        front.close()
