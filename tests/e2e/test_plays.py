# SPDX-License-Identifier: GPL-3.0-or-later
"""The roles in every kind of play: a service is rolled out once, by one worker, however many
hosts the play has.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Iterator

import pytest
import yaml
from ansible_collections.progressive.rollout.tests.support.playbook import ROOT, Outcome, Playground

ROLE = "progressive.rollout.rolling"
EVERY_HOST = ({"serial": 1}, {"strategy": "free"})  # runs the tasks of the role for every host
KEYWORDS = ({}, *EVERY_HOST)

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


@pytest.fixture
def playground() -> Iterator[Playground]:
    with Playground(variables={"rollout_replicas": 1}) as made:
        yield made


def ran(outcome: Outcome, step: str) -> int:
    """For how many hosts a step was run."""
    return sum(task.status != "skipped" for task in outcome.of(step))


def test_one_worker_rolls_out_whatever_the_play(playground: Playground) -> None:
    """A play of each kind, each with a revision of its own; and restarts: the second batch, or a
    host that comes late, finds nothing to do, though it asks for one, too.
    """
    variables = playground.variables | {"rollout_revision": None}
    plays = [
        {"gather_facts": False, **play, "vars": {"rollout_revision": str(number)}}
        for number, play in enumerate(PLAYS.values(), 1)
    ]
    restarts = [
        {"gather_facts": False, **PLAYS[kind], "vars": {"rollout_restart": True}}
        for kind in ("serial", "free")
    ]
    outcome = playground.run([*plays, *restarts], variables)
    assert outcome.rc == 0, outcome.output
    last = str(len(PLAYS))
    history = [(one["kind"], one["revision"]) for one in playground.journal()["history"]]
    rollouts = [("rollout", str(number)) for number in range(1, len(PLAYS) + 1)]
    assert history == [*rollouts, ("restart", last), ("restart", last)]
    assert ran(outcome, "replace") == len(history)
    begun = Counter(task.result["rollout"]["revision"] for task in outcome.of("begin"))
    hosts = len(playground.hosts)
    for number, play in enumerate(PLAYS.values(), 1):
        every = "serial" in play or "strategy" in play
        more = 2 * hosts if str(number) == last else 0
        assert begun[str(number)] == (hosts if every else 1) + more, play
    others = [task for task in outcome.of("begin") if "elsewhere" in task.result]
    every_host = sum("serial" in play or "strategy" in play for play in PLAYS.values()) + 2
    assert len(others) == every_host * (hosts - 1)
    for task in others:
        assert task.msg.startswith("shop: done once for all hosts of the play")
    assert playground.revisions() == [last]


@pytest.mark.parametrize("kind", ["serial", "free"])
@pytest.mark.parametrize("step", ["begin", "replace"])
def test_every_step_that_fails_ends_red(playground: Playground, kind: str, step: str) -> None:
    """By a setting that this step alone is given."""
    defaults = {f"progressive.rollout.{step}": {"lease": "never"}}
    outcome = playground.run([{"gather_facts": False, "module_defaults": defaults, **PLAYS[kind]}])
    assert outcome.rc != 0 and "'never' is not a duration" in outcome.output, outcome.output


def test_a_failed_rollout_is_not_tried_again_for_the_next_hosts(playground: Playground) -> None:
    """The step that decided has rolled back already, and its reason is the play's."""
    playground.variables["rollout_gates"] = {
        "confirm_rollout": [{"driver": "command", "command": ["/bin/false"]}]
    }
    for kind in ("serial", "free"):
        outcome = playground.run(
            [{"gather_facts": False, **PLAYS[kind]}], {"rollout_revision": kind}
        )
        assert outcome.rc != 0 and "/bin/false ended with 1" in outcome.output, outcome.output
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
    assert playground.revisions() == ["1"]


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


@pytest.mark.parametrize(
    ("playbook", "options"),
    [("abort", ("--limit", "web1")), ("rollout", ("--tags", "deploy"))],
    ids=["begins with the guard", "begins with another playbook"],
)
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
    inventory = {"lb": {"hosts": {name: {"ansible_connection": "local"}}}}
    with Playground(variables={"rollout_replicas": 1}, inventory=inventory) as playground:
        outcome = playground.run("progressive.rollout.rollout")
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
    """One that hides none is not; and then there is nothing to do in few tasks, each of which is a
    process, even where it is skipped.
    """
    outcome = playground.run("progressive.rollout.rollout", None, "--limit", "localhost,web1")
    hidden = "rollout_platform.hosts: --limit leaves out web2, web3, whose instances"
    assert outcome.rc != 0 and hidden in outcome.failed.msg
    assert not playground.records()
    assert playground.run("progressive.rollout.rollout", None, "--limit", "all,localhost").rc == 0
    for playbook, most in (("progressive.rollout.rollout", 5), ("progressive.rollout.status", 4)):
        outcome = playground.run(playbook)
        assert outcome.rc == 0
        assert outcome.output.count("\nTASK [") <= most, outcome.output


def tagged(
    playground: Playground, role: str, options: tuple[str, ...], **keywords: t.Any
) -> Outcome:
    play = {"hosts": "web", "gather_facts": False, "roles": [{"role": role, **keywords}]}
    variables = {"rollout_steps": [{"set_replicas": 1}]} if role.endswith("canary") else {}
    return playground.run([play], variables, *options)


@pytest.mark.parametrize("role", [ROLE, "progressive.rollout.canary"])
def test_tags_run_all_steps_and_never_leave_all_out_unasked(
    playground: Playground, role: str
) -> None:
    untagged = tagged(playground, role, ("--tags", "deploy"))
    nothing = "exclude every step of the rollout, so nothing would be done"
    assert untagged.rc != 0 and nothing in untagged.failed.msg
    assert playground.files() == set()
    wanted = tagged(playground, role, ("--tags", "deploy"), tags=["deploy"])
    assert wanted.rc == 0 and playground.revisions() == ["1"], wanted.output


def test_tags_of_others_leave_all_steps_out(playground: Playground) -> None:
    for options in (("--tags", "config"), ("--skip-tags", "deploy")):
        outcome = tagged(playground, ROLE, options, tags=["deploy"])
        assert outcome.rc == 0 and ran(outcome, "begin") == 0, outcome.output
    assert playground.files() == set()


def test_a_word_is_said_once_for_the_whole_play(playground: Playground) -> None:
    """A second one would let the rollout pass at its next pause, too."""
    playground.variables["rollout_replicas"] = 3
    assert playground.run().rc == 0
    role = {
        "ansible.builtin.include_role": {"name": ROLE, "tasks_from": "control"},
        "vars": {"rollout_command": "promote"},
    }
    for number, keywords in enumerate(KEYWORDS, 1):
        canary = {
            "rollout_revision": f"{number}0",
            "rollout_strategy": "canary",
            "rollout_steps": [
                {"set_replicas": 1},
                {"pause": {}},
                {"set_replicas": 2},
                {"pause": {}},
            ],
            "rollout_wait": 0,
            "rollout_supersede": True,  # that of the play before
        }
        assert playground.run(variables=canary).rc == 0
        outcome = playground.run(
            [{"hosts": "web", "gather_facts": False, **keywords, "tasks": [role]}], canary
        )
        assert outcome.rc == 0, outcome.output
        sent = (playground.store / "journal" / "shop.words.jsonl").read_text().splitlines()
        assert len(sent) == number, keywords
        assert playground.revisions() == ["1", f"{number}0", f"{number}0"], keywords
        assert ran(outcome, "replace") == 1
        assert playground.journal()["rollout"]["phase"] == "paused"


def test_a_rollback_is_one_for_the_whole_play(playground: Playground) -> None:
    """Plays that roll out and plays of each kind that roll back, in turn."""
    role = {"ansible.builtin.include_role": {"name": ROLE, "tasks_from": "rollback"}}
    every = {"gather_facts": False, "hosts": "web"}
    plays: list[dict[str, t.Any]] = [
        {**every, "roles": [ROLE], "vars": {"rollout_revision": "1"}},
    ]
    for number, keywords in enumerate(KEYWORDS, 2):
        plays += [
            {**every, "roles": [ROLE], "vars": {"rollout_revision": str(number)}},
            {**every, **keywords, "tasks": [role]},
        ]
    outcome = playground.run(plays, {"rollout_revision": None})
    assert outcome.rc == 0, outcome.output
    kinds = [one["kind"] for one in playground.journal()["history"]]
    assert kinds == ["rollout", *(["rollout", "rollback"] * len(KEYWORDS))]
    assert playground.revisions() == ["1"]


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
