# SPDX-License-Identifier: GPL-3.0-or-later
"""What docs/how-to/systemd.md shows, on real hosts, over SSH, behind HAProxy, under load."""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml
from ansible_collections.progressive.rollout.tests.support.hosts import Hosts
from ansible_collections.progressive.rollout.tests.support.pages import SNIPPETS
from ansible_collections.progressive.rollout.tests.support.playbook import Outcome, Playground
from ansible_collections.progressive.rollout.tests.support.shared import Shared
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindEnvoy,
    BehindHAProxy,
    Load,
    failures,
)

PAGE = SNIPPETS["docs/how-to/systemd.md"]
SHOP = """#!/bin/sh
exec /usr/bin/python3 -I -S /opt/shop/app.py
"""
BAD = """#!/bin/sh
echo there is no configuration
exit 3
"""
RUN_SHOP = """#!/bin/sh
exec "/opt/shop/$1/shop"
"""


class Site(Playground):
    """The service `shop` on two hosts of systemd, with three revisions; the last one does not
    start.
    """

    def __init__(self, hosts: Hosts, front: BehindHAProxy | BehindEnvoy) -> None:
        known = {name: {**hosts.variables(name), "ansible_become": True} for name in hosts.names}
        super().__init__(inventory={"shop": {"hosts": known}})
        self.machines, self.front = hosts, front
        self.variables |= {
            **yaml.safe_load(PAGE["systemd.yml"]),
            "rollout_replicas": 4,
            "rollout_budget": {"max_surge": 2, "max_unavailable": 0},
            "rollout_traffic": front.traffic,
            "rollout_health": {"http": "/healthz", "interval": "200ms", "rise": 1},
        }
        for name in hosts.names:
            self.sh(name, "useradd --system shop; mkdir -p /opt/shop/1 /opt/shop/2 /opt/shop/3")
            for path, text in {"1/shop": SHOP, "2/shop": SHOP, "3/shop": BAD}.items():
                self.put(name, f"/opt/shop/{path}", text)

    def sh(self, name: str, script: str) -> str:
        return self.machines.run(name, "/bin/sh", "-ec", script)

    def put(self, name: str, path: str, text: str) -> None:
        self.sh(name, f"cat >{path} <<'END'\n{text}END\nchmod 755 {path}")

    def to(self, revision: str, **variables: t.Any) -> Outcome:
        outcome = self.run(variables={"rollout_revision": revision, **variables})
        assert outcome.rc == 0, outcome.output
        return outcome

    def units(self) -> Counter[str]:
        """How many units of each revision run, over all hosts; there is nothing of any other."""
        found: Counter[str] = Counter()
        for name in self.machines.names:
            running = self.sh(
                name, "systemctl list-units --plain --no-legend 'shop@*' | cut -d' ' -f1"
            ).split()
            enabled = self.sh(
                name, "cd /etc/systemd/system/multi-user.target.wants; ls -d shop@* || true"
            ).split()
            files = self.sh(name, "ls /var/lib/rollout/env").split()
            assert sorted(running) == sorted(enabled) == sorted(files)
            lines = self.sh(name, "cat /var/lib/rollout/env/*").splitlines()
            found.update(
                line.partition("=")[2].strip('"') for line in lines if line.startswith("REVISION=")
            )
        return found


@contextmanager
def made_site() -> Iterator[Site]:
    front = BehindHAProxy()
    try:
        with Hosts("web1", "web2") as hosts, Site(hosts, front) as made:
            yield made
    finally:
        front.close()


@pytest.fixture(scope="module")
def sites() -> Iterator[Shared[Site]]:
    with Shared(made_site) as sites:
        yield sites


@pytest.fixture
def site(sites: Shared[Site], request: pytest.FixtureRequest) -> Iterator[Site]:
    with sites.lend(request) as site:
        yield site


@pytest.mark.essential
def test_old_and_new_stand_side_by_side_until_all_are_new(site: Site) -> None:
    site.to("1")
    assert site.units() == {"1": 4}
    with Load(site.front.url, connections=2, rate=50) as load:
        site.to("2")
        assert site.units() == {"2": 4}
        failed = site.run(variables={"rollout_revision": "3", "rollout_failure_limit": 1})
        assert failed.rc != 0
        assert failed.rollout["outcome"] == "rolled_back"
        assert "exit code 3 within" in failed.rollout["reason"]
        assert "last log lines: there is no configuration" in failed.rollout["reason"]
        assert site.units() == {"2": 4}
        reports = load.stop()
    assert failures(reports) == []
    assert all(report["by_revision"].keys() == {"1", "2"} for report in reports)


def test_in_place_with_a_template_of_ones_own(site: Site) -> None:
    """There is room for no more than the two there are, so each slot and each port is used
    again.
    """
    for name in site.machines.names:
        site.put(name, "/usr/local/bin/run-shop", RUN_SHOP)
        site.put(name, "/etc/systemd/system/mine@.service", PAGE["shop@.service"])
    platform = {"driver": "systemd", "hosts": "shop", "ports": "8200", "unit": "mine@.service"}
    own = {
        "rollout_service": "mine",
        "rollout_replicas": 2,
        "rollout_platform": platform,
        "rollout_traffic": {"driver": "none"},
        "rollout_budget": {"max_surge": 0, "max_unavailable": 1},
    }
    site.to("1", **own)
    site.to("2", **own)
    for name in site.machines.names:
        running = site.sh(
            name, "systemctl list-units --plain --no-legend 'mine@*' | cut -d' ' -f1"
        ).split()
        pids = [
            site.sh(name, f"systemctl show --value -p MainPID {unit}").strip() for unit in running
        ]
        texts = [site.sh(name, f"tr '\\0' '\\n' </proc/{pid}/environ") for pid in pids]
        assert ["REVISION=2" in text.splitlines() for text in texts] == [True]
