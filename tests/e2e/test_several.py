# SPDX-License-Identifier: GPL-3.0-or-later
"""Two platforms as parts of one service, each with hosts and settings of its own, behind one
HAProxy under load. With Kubernetes as the second, `tests/engines/test_vms.py` does the same.
"""

from __future__ import annotations

import json
import typing as t
from collections import Counter
from collections.abc import Iterator

import pytest
from ansible_collections.progressive.rollout.tests.support.playbook import Outcome
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindHAProxy,
    Load,
    Shop,
    Watch,
    failures,
)

PARTS = {"first": ["web1"], "second": ["web2", "web3"]}
WAVES = [{"name": "one", "hosts": "web1"}, {"name": "two", "parts": ["second"]}]
FAILS = [{"driver": "command", "command": ["false"]}]


class Site(Shop):
    """Four instances of each part, by default one part after the other."""

    def __init__(self, front: BehindHAProxy) -> None:
        super().__init__(front, rollout_replicas=8, rollout_targets=WAVES)
        one = {**self.variables["rollout_platform"], "driver": "process"}
        self.parts = {
            name: {**one, "hosts": ":".join(hosts), "env": {**one["env"], "WHERE": name}}
            for name, hosts in PARTS.items()
        }
        self.give()

    def give(self, **parts: t.Any) -> None:
        """Give parts other options."""
        self.parts = {name: {**one, **parts.get(name, {})} for name, one in self.parts.items()}
        self.variables["rollout_platform"] = {"driver": "several", "parts": self.parts}

    def counts(self) -> dict[str, Counter[str]]:
        """By part, how many instances of each revision live there."""
        found: dict[str, Counter[str]] = {name: Counter() for name in PARTS}
        for record in self.living():
            (part,) = (name for name, hosts in PARTS.items() if record["host"] in hosts)
            found[part][record["revision"]] += 1
        return found

    def order(self, outcome: Outcome, revision: str) -> list[str]:
        """The parts in which instances of a revision became ready, in order."""
        home = {host: name for name, hosts in PARTS.items() for host in hosts}
        ready = [
            home[event["host"]]
            for event in self.timeline(outcome.rollout["id"])
            if (event["kind"], event.get("state"), event.get("revision"))
            == ("state", "ready", revision)
        ]
        return list(dict.fromkeys(ready))


def all_of(revision: str) -> dict[str, dict[str, int]]:
    return {"first": {revision: 4}, "second": {revision: 4}}


@pytest.fixture
def site() -> Iterator[Site]:
    front = BehindHAProxy()
    with Site(front) as found:
        found.to("1")
        assert found.counts() == all_of("1")
        yield found
    front.close()


@pytest.mark.long
def test_one_part_after_the_other_and_both_back(site: Site) -> None:
    front = site.fronts[0]
    with Watch(site, front) as watch, Load(front.url, connections=2, rate=100) as load:
        site.give(first={"env": {**site.parts["first"]["env"], "TOKEN": "s3cret"}})
        outcome = site.to("2")
        site.settled("2")
        assert site.order(outcome, "2") == ["first", "second"]
        text = json.dumps(site.journal())
        assert "s3cret" not in text and "parts.first.env" in text
        # revision 3 passes the first part with other settings, and fails in the second
        site.give(first={"env": {**site.parts["first"]["env"], "TOKEN": "other"}})
        failed = site.run(
            variables={"rollout_revision": "3", "rollout_gates": {"confirm_promotion": FAILS}}
        )
        assert failed.rc != 0 and failed.rollout["outcome"] == "rolled_back", failed.output
        assert site.order(failed, "3") == ["first", "second"]
        assert site.counts() == all_of("2")
        reports = load.stop()
    assert failures(reports) == []
    assert all({"1", "2", "3"} <= report["by_revision"].keys() for report in reports)
    # on the way back, 7 carry all requests with the headroom of 1.25
    assert watch.wrong == [] and watch.fewest >= 7 and watch.most <= 10
    for record in site.living():
        given = dict(
            word.split("=", 1)
            for word in open(f"/proc/{record['pid']}/environ").read().split("\0")
            if "=" in word
        )
        part = next(name for name, hosts in PARTS.items() if record["host"] in hosts)
        assert given["WHERE"] == part
        assert given.get("TOKEN") == ("s3cret" if part == "first" else None), (
            "on the way back, each part has the settings that the revision had"
        )
