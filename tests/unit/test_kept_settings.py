# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs of a revision runs with the settings that revision was rolled out with, whatever the
variables say by now.
"""

from __future__ import annotations

import json
import typing as t
from collections import Counter
from collections.abc import Iterator
from functools import partial
from unittest import mock

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import LeaseLost
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.lease import Session
from ansible_collections.progressive.rollout.tests.support.playbook import Outcome
from ansible_collections.progressive.rollout.tests.support.tasks import Tasks

pytestmark = pytest.mark.usefixtures("virtual_time")
OLD, NEW = "hunter2-old", "hunter2-new"  # values of the variable MARK, which are secrets


class Site(Tasks):
    """Three instances; their program is told its MARK in the environment, and a flag in its
    arguments.
    """

    def given(self, mark: str | None, *flags: str, **platform: t.Any) -> dict[str, t.Any]:
        """The platform as the variables of a commit have it."""
        own = self.variables["rollout_platform"]
        env = {"MARK": mark} if mark else {}
        changed = {"command": [*own["command"], *flags], "env": env, **platform}
        return {"rollout_platform": {**own, **changed}}

    def to(
        self,
        revision: str,
        given: dict[str, t.Any],
        playbook: str = "rollout",
        rc: int = 0,
        **variables: t.Any,
    ) -> Outcome:
        run = {
            "rollout": self.rollout,
            "restart": partial(self.rollout, rollout_restart=True),
            "rollback": self.rollback,
            "promote": partial(self.command, "promote"),
        }[playbook]
        outcome = run(**{"rollout_revision": revision, **given, **variables})
        assert outcome.rc == rc, outcome.output
        assert OLD not in outcome.output and NEW not in outcome.output
        journal = "".join(
            path.read_text() for path in (self.store / "journal").glob("**/*") if path.is_file()
        )
        assert OLD not in journal and NEW not in journal
        return outcome

    def run_with(self) -> Counter[tuple[str, str, str]]:
        """How many instances were started with which revision, MARK and flag."""
        found: Counter[tuple[str, str, str]] = Counter()
        for wanted in self.started():
            env, last = wanted["env"], wanted["argv"][-1]
            found[env["REVISION"], env.get("MARK", ""), last if last.startswith("--") else ""] += 1
        return found

    def kept(self) -> dict[str, set[str]]:
        """The names of the settings that each host keeps."""
        return {
            name: {path.name for path in self.platform.glob(f"{name}/shop/settings/*")}
            for name in self.hosts
        }


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as made:
        yield made


def test_a_rollback_starts_the_old_revision_with_its_old_settings(site: Site) -> None:
    old, new = site.given(OLD, "--old"), site.given(NEW, "--new", stop_timeout="7s")
    site.to("1", old)
    site.to("2", new)
    assert site.run_with() == {("2", NEW, "--new"): 3}
    site.to("2", new, "rollback")
    assert site.run_with() == {("1", OLD, "--old"): 3}
    assert {record["stop_timeout"] for record in site.records()} == {5}
    site.to("2", new, "rollback", rollout_to="2")
    assert site.run_with() == {("2", NEW, "--new"): 3}
    assert {record["stop_timeout"] for record in site.records()} == {7}


def test_what_is_replaced_on_the_way_back_of_a_canary_has_the_old_settings(site: Site) -> None:
    """Also by a run that goes on with the way back that another one began."""
    site.to("1", site.given(OLD))
    canary = {
        "rollout_strategy": "canary",
        "rollout_steps": [{"set_weight": 67}, {"pause": {}}],
        "rollout_wait": 0,
    }
    slow = site.given(NEW, "--new")
    site.to("2", slow, **canary)
    assert site.run_with() == {("1", OLD, ""): 1, ("2", NEW, "--new"): 3}
    commit = Session.commit

    def killed(session: Session, *given: t.Any) -> None:
        commit(session, *given)
        raise LeaseLost("killed")

    with mock.patch.object(Session, "commit", killed):
        assert site.rollback(**slow, **canary).rc != 0
    assert site.journal()["rollout"]["phase"] == "rolling_back"
    assert site.run_with()["2", NEW, "--new"] == 3
    site.to("2", slow, "rollback", **canary)
    assert site.run_with() == {("1", OLD, ""): 3}


def test_a_restart_has_the_new_settings_and_what_is_added_the_old_ones(site: Site) -> None:
    site.to("1", site.given(OLD))
    more = site.to("1", site.given(NEW, "--new"), rollout_replicas=4)
    assert (
        "shop 1 runs with other settings: rollout_platform.command: [" in more.output
        and "MARK changed" in more.output
    )
    assert site.run_with() == {("1", OLD, ""): 4}
    site.to("1", site.given(NEW, "--new"), "restart", rollout_replicas=4)
    assert site.run_with() == {("1", NEW, "--new"): 4}
    again = site.to("1", site.given(NEW, "--new"), rollout_replicas=4)
    assert "other settings" not in again.output


def test_a_host_without_the_settings_gets_them_from_another(site: Site) -> None:
    site.to("1", site.given(OLD))
    site.to("2", site.given(NEW))
    kept = site.kept()
    assert len(kept["web1"]) == 2 and kept["web1"] == kept["web2"] == kept["web3"]
    assert {path.stat().st_mode & 0o777 for path in site.platform.glob("*/shop/settings/*")} == {
        0o600
    }
    for host in ("web1", "web3"):
        for name in kept[host]:
            (site.platform / host / "shop" / "settings" / name).unlink()
    (forged,) = kept["web2"] - {site.journal()["settings"]["2"]["key"] + ".json"}
    (site.platform / "web1" / "shop" / "settings" / forged).write_text(
        json.dumps({"platform": {"env": {"MARK": "forged"}}})
    )
    site.to("2", site.given(NEW), "rollback")
    assert site.run_with() == {("1", OLD, ""): 3}
    assert forged in site.kept()["web3"]


def test_where_no_host_has_the_settings_nothing_is_started_with_others(site: Site) -> None:
    site.to("1", site.given(OLD))
    site.to("2", site.given(NEW))
    for path in site.platform.glob("*/shop/settings/*"):
        path.unlink()
    refused = site.to("2", site.given(NEW), "rollback", rc=2)
    assert "no host has the values of rollout_platform.env (MARK) any more" in refused.output
    assert site.run_with() == {("2", NEW, ""): 3}
    rollout = site.journal()["rollout"]
    assert (rollout["revision"], rollout["outcome"]) == (
        "2",
        "promoted",
    ), "a rollback that is refused is not begun"
    site.to("1", site.given(OLD))
    assert site.run_with() == {("1", OLD, ""): 3}


def test_a_rollout_goes_on_with_the_settings_given_where_no_host_has_its_own(site: Site) -> None:
    site.to("1", site.given(OLD))
    canary = {
        "rollout_strategy": "canary",
        "rollout_steps": [{"set_weight": 34}, {"pause": {}}],
        "rollout_wait": 0,
    }
    site.to("2", site.given(NEW), **canary)
    for path in site.platform.glob("*/shop/settings/*"):
        path.unlink()
    told = site.to("2", site.given(NEW), **canary)
    assert (
        "shop 2: new instances get the current settings (no host has them any more)" in told.output
    )
    site.to("2", site.given(NEW), "promote", **canary)
    assert site.run_with() == {("2", NEW, ""): 3}


def test_a_rollout_goes_on_with_what_it_began_with(site: Site) -> None:
    site.to("1", site.given(OLD))
    canary = {
        "rollout_strategy": "canary",
        "rollout_steps": [{"set_weight": 34}, {"pause": {}}],
        "rollout_wait": 0,
    }
    site.to("2", site.given(OLD, "--new"), **canary)
    refused = site.to("2", site.given(OLD, "--newer"), rc=2, **canary)
    assert (
        "has changed since the rollout of shop 2 began (rollout_platform.command: ["
        in refused.output
    )
    told = site.to("2", site.given(NEW, "--new"), **canary)
    assert (
        "new instances get the current settings (rollout_platform.env: MARK changed)" in told.output
    )
    site.to("2", site.given(NEW, "--newer"), rollout_supersede=True, **canary)
    assert site.run_with() == {("1", OLD, ""): 2, ("2", NEW, "--newer"): 2}
    site.to("2", site.given(NEW, "--newer"), "promote", **canary)
    site.to("2", site.given(NEW, "--newer"), **canary)
    assert site.run_with() == {("2", NEW, "--newer"): 3}


def test_a_journal_from_before_has_no_settings_and_says_so_once(site: Site) -> None:
    site.to("1", site.given(OLD))
    path = site.store / "journal" / "shop.json"
    path.write_text(
        json.dumps({key: value for key, value in site.journal().items() if key != "settings"})
    )
    said = "the settings that 1 was rolled out with are unknown"
    plan = site.steps({"plan": {}}, variables={**site.given(NEW), "rollout_revision": "2"})
    assert said in plan.one("plan").result["settings"][0]
    assert f"[WARNING]: shop: {said}" in site.to("2", site.given(NEW)).output
    assert said not in site.to("3", site.given(NEW)).output
    site.to("3", site.given(OLD), "rollback", rollout_to="1")
    assert site.run_with() == {("1", OLD, ""): 3}


def test_a_plan_shows_what_differs(site: Site) -> None:
    site.to("1", site.given(OLD, "--old"))
    health = {"http": "/healthz", "headers": {"X-Key": NEW}}
    plan = site.steps(
        {"plan": {}},
        variables={**site.given(NEW), "rollout_revision": "2", "rollout_health": health},
    )
    command = site.variables["rollout_platform"]["command"]
    assert plan.one("plan").result["settings"] == [
        f"rollout_platform.command: {[*command, '--old']!r} -> {command!r}",
        "rollout_health.http: not given -> '/healthz'",
        "rollout_health.headers: X-Key added",
        "rollout_platform.env: MARK changed",
    ]
    assert NEW not in plan.output and OLD not in plan.output


def test_only_settings_that_something_can_go_back_to_are_kept(site: Site) -> None:
    for number in range(4):
        site.to("1", site.given(f"{OLD}-{number}"), "restart" if number else "rollout")
    journal = site.journal()
    assert set(journal["settings"]) == {str(journal["stable"]["generation"])}
    # what starts something clears up
    site.to("1", site.given(f"{OLD}-{number}"), rollout_replicas=4)
    names = {kept["key"] + ".json" for kept in journal["settings"].values()}
    assert any(mine == names for mine in site.kept().values())


def test_what_is_left_on_a_host_that_was_taken_out_is_named_until_it_is_gone(site: Site) -> None:
    site.to("1", site.given(None))
    (left,) = [record["id"] for record in site.records() if record["host"] == "web3"]
    fewer = site.given(None, hosts="web1:web2")
    said = (
        f"shop: left on web3, which is not in rollout_platform.hosts any more: {left}; no load"
        " balancer"
    )
    assert said in site.to("1", fewer).output
    again = site.to("1", fewer).output
    assert said in again and "nothing to do" in again
    assert site.steps({"drain": {"instances": [left]}}, variables=fewer).one("drain").changed
    assert said not in site.to("1", fewer).output
    # the host is among ours again, and so is what runs there
    back = site.to("1", site.given(None)).output
    assert said not in back and len(site.living()) == 3


def test_a_host_without_instances_is_named(site: Site) -> None:
    site.to("1", site.given(None, hosts="web1:web2"))
    assert (
        "shop: no instance on web3; the next rollout, restart.yml or rollout_rebalance"
        in site.to("1", site.given(None)).output
    )
    assert "no instance on" not in site.to("2", site.given(None)).output
