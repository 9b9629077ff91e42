# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/examples/regions under load: one region after the other, and all of them back.

Its service, regions and playbook are as they stand; hosts, load balancers and times are local.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import yaml
from ansible_collections.progressive.rollout.tests.support.playbook import ROOT, Outcome
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindHAProxy,
    Load,
    Shop,
    failures,
)

EXAMPLE = ROOT / "docs/examples/regions"
REGIONS = {"eu": ["web1", "web2"], "us": ["web3", "web4"], "ap": ["web5"]}
RATE = 60  # requests a second, of each kind of client and region


class Site(Shop):
    """The example's service on hosts of this machine, each region behind a HAProxy of its own."""

    def __init__(self, fronts: dict[str, BehindHAProxy]) -> None:
        shop = yaml.safe_load((EXAMPLE / "group_vars/all.yml").read_text())
        self.by_region = fronts
        groups = {name: {"hosts": dict.fromkeys(hosts, {})} for name, hosts in REGIONS.items()}
        traffic = {
            **fronts["eu"].traffic,
            "socket": [front.api for front in fronts.values()],
        }
        for wave in shop["rollout_targets"]:
            wave["load_balancers"] = [fronts[wave["name"]].api]
            if wave.get("soak"):
                wave["soak"] = "1s"
            if wave.get("gates"):
                wave["gates"] = [{"driver": "command", "command": ["true"]}]
        super().__init__(
            fronts["eu"],
            inventory=groups,
            machines=5,
            rollout_traffic=traffic,
            rollout_replicas=shop["rollout_replicas"],
            rollout_budget=shop["rollout_budget"],
            rollout_targets=shop["rollout_targets"],
        )

    def regions(self) -> dict[str, Counter[str]]:
        """By region, how many instances of each revision live there."""
        found: dict[str, Counter[str]] = {name: Counter() for name in REGIONS}
        for record in self.living():
            (region,) = (name for name, hosts in REGIONS.items() if record["host"] in hosts)
            found[region][record["revision"]] += 1
        return found

    def at_home(self) -> None:
        """Each load balancer sends requests to the instances of its region, and to no others."""
        for name, front in self.by_region.items():
            places = {
                (r["address"], r["port"]) for r in self.living() if r["host"] in REGIONS[name]
            }
            assert front.serving() == places and front.known() == places, name


def all_of(revision: str) -> dict[str, dict[str, int]]:
    return {"eu": {revision: 4}, "us": {revision: 4}, "ap": {revision: 2}}


@pytest.fixture
def site() -> Iterator[Site]:
    with ExitStack() as stack:
        fronts = {name: BehindHAProxy() for name in REGIONS}
        for front in fronts.values():
            stack.callback(front.close)
        yield stack.enter_context(Site(fronts))


def stages_of(site: Site, outcome: Outcome) -> list[dict[str, t.Any]]:
    (plan,) = (e for e in site.timeline(outcome.rollout["id"]) if e["kind"] == "plan")
    return list(plan["stages"])


def loads(site: Site, stack: ExitStack) -> list[Load]:
    return [
        stack.enter_context(Load(front.url, connections=1, rate=RATE))
        for front in site.by_region.values()
    ]


def test_three_regions_one_after_the_other_and_all_of_them_back(site: Site) -> None:
    site.to("1")
    assert site.regions() == all_of("1")
    site.at_home()
    with ExitStack() as stack:
        clients = loads(site, stack)
        outcome = site.to("2")
        assert site.regions() == all_of("2")
        site.at_home()
        assert [stage["stage"] for stage in stages_of(site, outcome)] == [
            "eu replace",
            "us replace",
            "ap replace",
            "promote",
        ]
        in_order(site, outcome)
        # the third revision fails in the second region: nothing of it is left in the first
        site.variables["rollout_targets"][1]["gates"] = [
            {"driver": "command", "command": ["false"]}
        ]
        failed = site.run(variables={"rollout_revision": "3"})
        assert failed.rc != 0 and failed.rollout["outcome"] == "rolled_back", failed.output
        assert site.regions() == all_of("2")
        site.at_home()
        regions = {host for host, revision in started(site, failed) if revision == "3"}
        assert regions == {"eu", "us"}, "it was in two regions, and never in the third"
        reports = [report for load in clients for report in load.stop()]
    assert failures(reports) == []
    assert all({"1", "2"} <= report["by_revision"].keys() for report in reports)


def started(site: Site, outcome: Outcome) -> list[tuple[str, str]]:
    """Region and revision of each instance that was started in a rollout, in order."""
    home = {host: name for name, hosts in REGIONS.items() for host in hosts}
    return [
        (home[event["host"]], event["revision"])
        for event in site.timeline(outcome.rollout["id"])
        if event["kind"] == "state" and event["state"] == "ready"
    ]


def in_order(site: Site, outcome: Outcome) -> None:
    begun = list(
        dict.fromkeys(region for region, revision in started(site, outcome) if revision == "2")
    )
    assert begun == ["eu", "us", "ap"]
