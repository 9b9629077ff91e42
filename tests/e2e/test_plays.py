# SPDX-License-Identifier: GPL-3.0-or-later
"""The roles in every kind of play: a service is rolled out once, by one worker, however many
hosts the play has.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml
from ansible_collections.progressive.rollout.tests.support.playbook import ROOT, Outcome, Playground
from ansible_collections.progressive.rollout.tests.support.shared import Shared
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindHAProxy,
    Load,
    Shop,
    Watch,
    failures,
)

ROLE = "progressive.rollout.rolling"
REPLICAS, SURGE = 4, 2

PLAYS: dict[str, dict[str, t.Any]] = {
    "localhost": {"hosts": "localhost", "roles": [ROLE]},
    "all hosts": {"hosts": "web", "roles": [ROLE]},
    "serial": {"hosts": "web", "serial": 1, "roles": [ROLE]},
    "free": {"hosts": "web", "strategy": "free", "roles": [ROLE]},
    "included": {"hosts": "web", "tasks": [{"ansible.builtin.include_role": {"name": ROLE}}]},
    "included, free": {
        "hosts": "web",
        "strategy": "free",
        "tasks": [{"ansible.builtin.include_role": {"name": ROLE}}],
    },
    "imported, delegated": {
        "hosts": "web",
        "tasks": [
            {
                "ansible.builtin.import_role": {"name": ROLE},
                "delegate_to": "localhost",
                "run_once": True,
            }
        ],
    },
    "included for one host": {
        "hosts": "web",
        "tasks": [
            {"ansible.builtin.include_role": {"name": ROLE}, "when": "inventory_hostname == 'web2'"}
        ],
    },
}


@contextmanager
def made_shop() -> Iterator[Shop]:
    front = BehindHAProxy()
    given = {
        "rollout_replicas": REPLICAS,
        "rollout_budget": {"max_surge": SURGE, "max_unavailable": 0},
    }
    given["rollout_health"] = {"http": "/healthz", "interval": "100ms", "rise": 1}
    with Shop(front, env={"START_DELAY": "0.3"}, **given) as made:
        made.to("1")
        yield made
    front.close()


@pytest.fixture(scope="module")
def shops() -> Iterator[Shared[Shop]]:
    with Shared(made_shop) as shops:
        yield shops


@pytest.fixture
def shop(shops: Shared[Shop], request: pytest.FixtureRequest) -> Iterator[Shop]:
    with shops.lend(request) as shop:
        yield shop


def ran(outcome: Outcome, step: str) -> int:
    """For how many hosts a step was run."""
    return sum(task.status != "skipped" for task in outcome.of(step))


@pytest.mark.parametrize("kind", PLAYS)
def test_one_worker_walks_whatever_the_play(shop: Shop, kind: str) -> None:
    before = len(shop.journal()["history"])
    new = str(int(shop.journal()["stable"]["revision"]) + 1)
    with (
        Watch(shop, *shop.fronts) as watch,
        Load(shop.fronts[0].url, connections=2, rate=100) as load,
    ):
        outcome = shop.run([{"gather_facts": False, **PLAYS[kind]}], {"rollout_revision": new})
        assert failures(load.stop()) == []
    assert outcome.rc == 0, outcome.output
    assert watch.wrong == [] and watch.looks
    assert watch.most <= REPLICAS + SURGE and watch.fewest >= REPLICAS, (watch.most, watch.fewest)
    assert len(shop.journal()["history"]) == before + 1
    assert ran(outcome, "replace") == 1
    assert ran(outcome, "begin") == (
        len(shop.hosts) if "serial" in PLAYS[kind] or "strategy" in PLAYS[kind] else 1
    )
    shop.settled(new)


@pytest.mark.parametrize("kind", ["serial", "free"])
def test_a_restart_is_one_for_the_whole_play(shop: Shop, kind: str) -> None:
    """The second batch, or a host that comes late, finds nothing to do, though it asks for a
    restart, too.
    """
    before = len(shop.journal()["history"])
    outcome = shop.run(
        [{"gather_facts": False, **PLAYS[kind]}],
        {"rollout_restart": True, "rollout_revision": None},
    )
    assert outcome.rc == 0, outcome.output
    assert len(shop.journal()["history"]) == before + 1 and ran(outcome, "replace") == 1
    others = [task.msg for task in outcome.of("begin") if "elsewhere" in task.result]
    assert len(others) == 2 and all(
        msg.startswith("shop: done once for all hosts of the play") for msg in others
    )


@pytest.mark.parametrize("kind", ["all hosts", "serial", "free"])
@pytest.mark.parametrize("step", ["begin", "replace", "rollback"])
def test_every_step_that_fails_ends_red(playground: Playground, kind: str, step: str) -> None:
    """By a setting that this step alone is given."""
    defaults = {f"progressive.rollout.{step}": {"lease": "never"}}
    if step == "rollback":
        playground.variables["rollout_gates"] = {
            "confirm_promotion": [{"driver": "command", "command": ["/bin/false"]}]
        }
    outcome = playground.run(
        [{"gather_facts": False, "module_defaults": defaults, **PLAYS[kind]}],
        {"rollout_replicas": 1},
    )
    # the step that decided has rolled back already, and its reason is the play's
    said = "/bin/false ended with 1" if step == "rollback" else "'never' is not a duration"
    assert outcome.rc != 0 and said in outcome.output, outcome.output


def test_a_failed_rollout_is_not_tried_again_for_the_next_hosts(playground: Playground) -> None:
    playground.variables["rollout_gates"] = {
        "confirm_rollout": [{"driver": "command", "command": ["/bin/false"]}]
    }
    for kind in ("serial", "free"):
        outcome = playground.run(
            [{"gather_facts": False, **PLAYS[kind]}], {"rollout_revision": kind}
        )
        assert outcome.rc != 0
        assert [one["revision"] for one in playground.journal()["history"]].count(kind) == 1, (
            outcome.output
        )


def test_single_steps_of_a_play_on_many_hosts_are_refused_but_for_one(
    playground: Playground,
) -> None:
    """Without run_once: one of them walks, the others are told which."""
    names = {key.removeprefix("rollout_"): f"{{{{ {key} }}}}" for key in playground.variables}
    tasks: list[dict[str, t.Any]] = [
        {f"progressive.rollout.{step}": {}} for step in ("begin", "replace")
    ]
    play = {
        "hosts": "web",
        "gather_facts": False,
        "module_defaults": {"group/progressive.rollout.steps": names},
        "tasks": tasks,
    }
    platform = {**playground.variables["rollout_platform"], "env": {"START_DELAY": "8"}}
    outcome = playground.run([play], {"rollout_platform": platform})
    assert outcome.rc != 0
    walked, refused = (
        [task for task in outcome.of("replace") if task.status == status]
        for status in ("ok", "failed")
    )
    assert (len(walked), len(refused)) == (1, 2), outcome.output
    for task in refused:
        assert (
            "of this run already works on shop (worker pid " in task.msg
            and "run each step once" in task.msg
        )
    assert playground.revisions() == ["1"] * 3


def test_a_condition_that_leaves_out_the_first_host_is_not_green(playground: Playground) -> None:
    role = {"ansible.builtin.import_role": {"name": ROLE}, "when": "inventory_hostname == 'web2'"}
    outcome = playground.run([{"hosts": "web", "gather_facts": False, "tasks": [role]}])
    assert (
        outcome.rc != 0
        and "nothing was rolled out: the condition (when) at the role" in outcome.output
    ), outcome.output
    assert playground.files() == set()


# What is left out of a run.

# The demo is not for services of others; what is deployed in place may be limited to hosts.
PLAYBOOKS = sorted(
    {path.stem for path in (ROOT / "playbooks").glob("*.yml")} - {"demo", "everything", "in_place"}
)


def is_guarded(playbook: str) -> bool:
    """Return whether a playbook begins with the guard, or with a playbook that does."""
    first = yaml.safe_load((ROOT / "playbooks" / playbook).read_text())[0]
    imported = first.get("ansible.builtin.import_playbook")
    return imported == "everything.yml" or (imported is not None and is_guarded(imported))


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_every_playbook_begins_with_the_guard(playbook: str) -> None:
    assert is_guarded(f"{playbook}.yml")


@pytest.mark.parametrize("options", [("--limit", "web1"), ("--tags", "deploy")], ids=" ".join)
@pytest.mark.parametrize(
    "playbook", ["abort", "rollout"]
)  # begins with the guard, and with another
def test_a_run_that_would_do_nothing_is_refused(
    playground: Playground, playbook: str, options: tuple[str, str]
) -> None:
    outcome = playground.run(f"progressive.rollout.{playbook}", {}, *options)
    assert outcome.rc != 0
    assert outcome.failed.msg.startswith(f"{' '.join(options)}: ")
    assert "so nothing would be done; run without" in outcome.output
    assert playground.files() == set()


@pytest.mark.parametrize("name", ["127.0.0.1", "::1"])
def test_a_host_that_ansible_takes_for_localhost_may_be_in_the_inventory(name: str) -> None:
    """Plays on localhost run for it."""
    with Playground(
        inventory={"lb": {"hosts": {name: {"ansible_connection": "local"}}}}
    ) as playground:
        outcome = playground.run("progressive.rollout.rollout", {"rollout_replicas": 1})
        assert outcome.rc == 0 and playground.revisions() == ["1"], outcome.output
        left_out = playground.run("progressive.rollout.status", {}, "--limit", "web1")
        assert left_out.rc != 0 and left_out.failed.msg.startswith("--limit web1: ")


def test_a_limit_that_leaves_out_every_host_is_refused_in_place() -> None:
    with Playground(
        inventory={"lb": {"hosts": {"lb1": {"ansible_connection": "local"}}}}
    ) as playground:
        outcome = playground.run("progressive.rollout.in_place", {}, "--limit", "lb1")
        assert outcome.rc != 0 and not playground.files()
        assert (
            "--limit lb1: excludes every host of rollout_platform.hosts (web), so nothing would"
            " be done" in outcome.failed.msg
        )


def test_a_limit_that_hides_instances_is_refused(playground: Playground) -> None:
    outcome = playground.run("progressive.rollout.rollout", None, "--limit", "localhost,web1")
    assert (
        outcome.rc != 0
        and "rollout_platform.hosts: --limit leaves out web2, web3, whose instances"
        in outcome.failed.msg
    )
    assert not playground.records()
    assert playground.run("progressive.rollout.rollout", None, "--limit", "all,localhost").rc == 0


def test_a_run_with_nothing_to_do_is_few_tasks(playground: Playground) -> None:
    """Each is a process, even where it is skipped."""
    assert playground.run().rc == 0
    for playbook, most in (("progressive.rollout.rollout", 5), ("progressive.rollout.status", 4)):
        outcome = playground.run(playbook)
        assert outcome.rc == 0
        assert outcome.output.count("\nTASK [") <= most, outcome.output


@pytest.mark.parametrize(
    "role", [ROLE, "progressive.rollout.canary", "progressive.rollout.blue_green"]
)
def test_tags_run_all_steps_or_none_and_never_leave_all_out_unasked(
    playground: Playground, role: str
) -> None:
    def run(options: tuple[str, ...], **keywords: t.Any) -> Outcome:
        play = {"hosts": "web", "gather_facts": False, "roles": [{"role": role, **keywords}]}
        variables = {"rollout_steps": [{"set_replicas": 1}]} if role.endswith("canary") else {}
        return playground.run([play], variables, *options)

    untagged = run(("--tags", "deploy"))
    assert (
        untagged.rc != 0
        and "exclude every step of the rollout, so nothing would be done" in untagged.failed.msg
    )
    other = run(("--tags", "config"), tags=["deploy"])
    assert other.rc == 0 and ran(other, "begin") == 0, other.output
    skipped = run(("--skip-tags", "deploy"), tags=["deploy"])
    assert skipped.rc == 0 and ran(skipped, "begin") == 0, skipped.output
    assert playground.files() == set()
    wanted = run(("--tags", "deploy"), tags=["deploy"])
    if role.endswith("blue_green"):
        assert (
            "rollout_strategy: blue_green switches requests at a load balancer" in wanted.failed.msg
        )
    else:
        assert wanted.rc == 0 and playground.revisions() == ["1"] * 3, wanted.output


@pytest.mark.parametrize("keywords", [{}, {"serial": 1}, {"strategy": "free"}], ids=str)
def test_a_word_is_said_once_for_the_whole_play(
    playground: Playground, keywords: dict[str, t.Any]
) -> None:
    """A second one would let the rollout pass at its next pause, too."""
    assert playground.run().rc == 0
    steps = [{"set_replicas": 1}, {"pause": {}}, {"set_replicas": 2}, {"pause": {}}]
    canary = {
        "rollout_revision": "2",
        "rollout_strategy": "canary",
        "rollout_steps": steps,
        "rollout_wait": 0,
    }
    assert playground.run(variables=canary).rc == 0
    role = {
        "ansible.builtin.include_role": {"name": ROLE, "tasks_from": "control"},
        "vars": {"rollout_command": "promote"},
    }
    outcome = playground.run(
        [{"hosts": "web", "gather_facts": False, **keywords, "tasks": [role]}], canary
    )
    assert outcome.rc == 0, outcome.output
    assert len((playground.store / "journal" / "shop.words.jsonl").read_text().splitlines()) == 1
    assert playground.revisions() == ["1", "2", "2"] and ran(outcome, "replace") == 1
    assert playground.journal()["rollout"]["phase"] == "paused"


@pytest.mark.parametrize("keywords", [{}, {"serial": 1}, {"strategy": "free"}], ids=str)
def test_a_rollback_is_one_for_the_whole_play(
    playground: Playground, keywords: dict[str, t.Any]
) -> None:
    for revision in ("1", "2"):
        assert playground.run(variables={"rollout_revision": revision}).rc == 0
    role = {"ansible.builtin.include_role": {"name": ROLE, "tasks_from": "rollback"}}
    outcome = playground.run(
        [{"hosts": "web", "gather_facts": False, **keywords, "tasks": [role]}],
        {"rollout_revision": None},
    )
    assert outcome.rc == 0, outcome.output
    assert [one["kind"] for one in playground.journal()["history"]] == [
        "rollout",
        "rollout",
        "rollback",
    ]
    assert playground.revisions() == ["1"] * 3


def test_a_step_that_fails_once_the_rollout_is_over_ends_red(playground: Playground) -> None:
    """The result of a failed step says `finished` then; that must not be taken for an end that
    is well.
    """
    assert playground.run().rc == 0
    names = {key.removeprefix("rollout_"): f"{{{{ {key} }}}}" for key in playground.variables}
    away = {"driver": "haproxy", "socket": ["127.0.0.1:1"], "backend": "shop"}
    defaults = {
        "group/progressive.rollout.steps": names,
        "progressive.rollout.replace": {"traffic": away},
    }
    replace = {"ansible.builtin.include_role": {"name": ROLE, "tasks_from": "replace"}}
    outcome = playground.run(
        [{"hosts": "web", "gather_facts": False, "module_defaults": defaults, "tasks": [replace]}]
    )
    assert outcome.of("replace")[0].result["rollout"]["phase"] == "finished"
    assert outcome.rc != 0 and "127.0.0.1:1" in outcome.failed.msg, outcome.output
