# SPDX-License-Identifier: GPL-3.0-or-later
"""Deployed in place by tasks of the users' own, behind HAProxy and under load: no request fails,
whatever does. What the steps decide alone: tests/property/test_simulated_in_place.py.

All tests share one service of four hosts. Each finds it settled at some revision, and leaves it so.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
import typing as t
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import variables
from ansible_collections.progressive.rollout.tests.support.playbook import (
    APP,
    Outcome,
    Playground,
)
from ansible_collections.progressive.rollout.tests.support.shared import Shared
from ansible_collections.progressive.rollout.tests.support.shop import (
    Load,
    Reloadable,
    Watch,
    failures,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

pytestmark = pytest.mark.long
HOSTS, PORT = 4, 8100
RATE = 60  # requests a second, of each kind of client
KINDS = (("GET", True), ("POST", False))
IN_PLACE = "progressive.rollout.in_place"
SERVER = "    server {host} {address}:{port} check inter 100ms fall 2 rise 1\n"

# As a service manager does it, on the host: the old one ends, a new one begins, at the same port.
RESTART = f"""\
import os, subprocess, sys, time

host, address, revision = sys.argv[1:]
if os.path.exists(f"fails-{{host}}-{{revision}}"):
    sys.exit("the disk is full")
if os.path.exists(f"{{host}}.pid"):
    pid = open(f"{{host}}.pid").read()
    if os.path.exists(f"/proc/{{pid}}"):
        os.kill(int(pid), 15)
    while os.path.exists(f"/proc/{{pid}}") and open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[0] not in "ZX":
        time.sleep(0.01)
env = {{"ADDRESS": address, "PORT": "{PORT}", "REVISION": revision, "LATENCY": "0.01"}}
argv = [sys.executable, "-I", "-S", "{APP}"]
null = subprocess.DEVNULL
new = subprocess.Popen(argv, env=env, start_new_session=True, stdin=null, stdout=null, stderr=null)
open(f"{{host}}.pid", "w").write(str(new.pid))
open("deployed", "a").write(f"{{host}} {{revision}}\\n")
"""
TASKS = """\
- name: Restart the shop
  ansible.builtin.raw: cd {home} && {python} restart.py {{{{ inventory_hostname }}}} {{{{ shop_address }}}} {{{{ rollout_host_revision }}}}

- name: Wait as long as the test says
  ansible.builtin.wait_for: {{path: "{home}/wait", state: absent, sleep: 0}}
  when: shop_waits | default(false)
"""
# What HAProxy shows of a host.
ASKS = """\
import socket, sys

with socket.create_connection(({api[0]!r}, {api[2]})) as connection:
    connection.sendall(b"show stat shop 4 -1\\n")
    lines = b"".join(iter(lambda: connection.recv(65536), b"")).decode().splitlines()
print(next(line.split(",")[17] for line in lines if line.split(",")[1:2] == sys.argv[1:]), end="")
"""
# nobody listens there
SSH = {"ansible_connection": "ssh", "ansible_port": 1, "ansible_ssh_common_args": "-F /dev/null"}


class Fleet(Playground):
    """Four hosts with a service that was there before us, in the configuration of a HAProxy."""

    def __init__(self) -> None:
        super().__init__(hosts=HOSTS)
        self.inventory: dict[str, dict[str, t.Any]] = {
            host: {"ansible_host": address, "shop_address": address, "ansible_connection": "local"}
            for host, address in self.addresses.items()
        }
        lines = [
            SERVER.format(host=host, address=address, port=PORT)
            for host, address in self.addresses.items()
        ]
        self.front = Reloadable(servers="".join(lines))
        (self.home / "restart.py").write_text(RESTART)
        (self.home / "deploy.yml").write_text(TASKS.format(python=sys.executable, home=self.home))
        self.variables = {
            "rollout_service": "shop",
            "rollout_platform": {"driver": "static", "hosts": "web", "port": PORT},
            "rollout_traffic": {**self.front.traffic, "drain_timeout": "5s"},
            "rollout_health": {
                "http": "/healthz",
                "interval": "100ms",
                "rise": 1,
                "deadline": "3s",
            },
            "rollout_budget": {"max_unavailable": 2},
            "rollout_progress_deadline": "30s",
            "rollout_store": {"driver": "file", "path": str(self.store)},
            "rollout_deploy_tasks": str(self.home / "deploy.yml"),
            "ansible_python_interpreter": sys.executable,
        }
        self.hosts_are()

    def _environment(self) -> dict[str, str]:
        return super()._environment() | {"ANSIBLE_GATHERING": "explicit"}

    def hosts_are(self, **changed: Mapping[str, t.Any]) -> None:
        """Write the inventory, with these hosts' variables changed."""
        hosts = {
            host: {**variables, **changed.get(host, {})}
            for host, variables in self.inventory.items()
        }
        (self.home / "hosts.json").write_text(
            json.dumps({"all": {"children": {"web": {"hosts": hosts}}}})
        )

    def to(self, revision: str, *options: str, **variables: t.Any) -> Outcome:
        """Roll a revision out; it shall end well."""
        outcome = self.run(IN_PLACE, {"rollout_revision": revision, **variables}, *options)
        assert outcome.rc == 0, outcome.output
        return outcome

    def deployed(self) -> list[tuple[str, str]]:
        """Host and revision of every deployment so far, in their order."""
        return [tuple(line.split()) for line in (self.home / "deployed").read_text().splitlines()]  # type: ignore[misc]

    def answers(self, host: str) -> bool:
        """Whether its instance takes connections."""
        with suppress(OSError), socket.create_connection((self.addresses[host], PORT), 5):
            return True
        return False

    def since(self, count: int) -> list[tuple[str, str]]:
        """Those after so many."""
        return self.deployed()[count:]

    @contextmanager
    def flag(self, name: str) -> Iterator[None]:
        """A file that the restart, or the tasks, look for."""
        (self.home / name).touch()
        yield
        (self.home / name).unlink(missing_ok=True)

    def drained(self, host: str) -> bool:
        """Whether the host was taken out in the last rollout."""
        events = self.timeline(self.record["id"])
        return any(
            event.get("instance") == f"shop-{host}" and event.get("state") == "draining"
            for event in events
        )

    def serving(self) -> set[str]:
        """The hosts that HAProxy sends requests to."""
        places = self.front.serving()
        return {host for host, address in self.addresses.items() if (address, PORT) in places}

    def revisions(self) -> list[str]:
        """What each host runs, in their order, by its last deployment."""
        last = dict(self.deployed())
        return [last[host] for host in self.hosts]

    def settled(self, revision: str) -> None:
        assert self.revisions() == [revision] * HOSTS and self.serving() == set(self.hosts)
        journal = self.journal()
        assert journal["rollout"]["phase"] == "finished" and not journal["draining"]
        assert not self.held()

    def lease(self) -> dict[str, t.Any]:
        return t.cast(
            "dict[str, t.Any]", json.loads((self.store / "journal" / "shop.lease.json").read_text())
        )

    def held(self) -> bool:
        """Whether somebody holds the lease."""
        return "token" in self.lease()

    @property
    def record(self) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", self.journal()["rollout"])

    def close(self) -> None:
        for path in self.home.glob("*.pid"):
            try:
                os.kill(int(path.read_text()), signal.SIGKILL)
            except ProcessLookupError:
                pass
        super().close()
        self.front.close()


@contextmanager
def made_fleet() -> Iterator[Fleet]:
    with Fleet() as fleet:
        fleet.to("1")
        fleet.settled("1")
        yield fleet


@pytest.fixture(scope="module")
def fleets() -> Iterator[Shared[Fleet]]:
    with Shared(made_fleet) as fleets:
        yield fleets


@pytest.fixture
def fleet(fleets: Shared[Fleet], request: pytest.FixtureRequest) -> Iterator[Fleet]:
    with fleets.lend(request) as fleet:
        yield fleet
        fleet.hosts_are()
        assert fleet.record["phase"] == "finished"


@contextmanager
def loaded(fleet: Fleet, fewest: int = HOSTS - 2) -> Iterator[Load]:
    """Under load and watched: no request fails, and the budget is kept."""
    with (
        Watch(fleet, fleet.front) as watch,
        Load(fleet.front.url, KINDS, connections=2, rate=RATE) as load,
    ):
        yield load
        assert failures(load.stop()) == [], fleet.front.refused()
    assert watch.wrong == [] and watch.looks and watch.fewest >= fewest, (watch.wrong, watch.fewest)


def in_batches(deployed: list[tuple[str, str]], *sizes: int) -> list[set[tuple[str, str]]]:
    """Deployments batch by batch; those of one batch are made at the same time."""
    assert len(deployed) == sum(sizes), deployed
    left = iter(deployed)
    return [set(islice(left, size)) for size in sizes]


def next_of(fleet: Fleet) -> tuple[str, str, int]:
    """The stable revision, the next one, and how many deployments there were so far."""
    old = fleet.journal()["stable"]["revision"]
    return old, str(int(old) + 1), len(fleet.deployed())


def test_a_lost_host_and_a_failing_one_are_too_many(fleet: Fleet) -> None:
    """The first is lost in the middle of its tasks, and Ansible takes it out of the play: that
    counts, and makes batches smaller.
    """
    old, new, before = next_of(fleet)
    lost = (
        f"- ansible.builtin.raw: touch {fleet.home}/lost\n  when: shop_lost | default(false)\n-"
        " ansible.builtin.raw: exit 0\n"
    )
    (fleet.home / "lost.yml").write_text((fleet.home / "deploy.yml").read_text() + lost)
    tasks = {
        "rollout_deploy_tasks": f"{fleet.home}/lost.yml",
        "rollout_rollback_tasks": f"{fleet.home}/deploy.yml",
    }
    connection = (
        f"{{{{ 'ssh' if lookup('ansible.builtin.fileglob', '{fleet.home}/lost') else 'local' }}}}"
    )
    fleet.hosts_are(web1={**SSH, "ansible_connection": connection, "shop_lost": True})
    with loaded(fleet), fleet.flag(f"fails-web3-{new}"):
        outcome = fleet.run(
            IN_PLACE, {"rollout_revision": new, "rollout_failure_limit": 2, **tasks}
        )
        message = outcome.failed.msg
        assert outcome.rc != 0 and f"shop {new}: now rolled back to {old}" in message, (
            outcome.output
        )
        assert "web1: unreachable before its tasks came to an end" in message
        assert (
            "web3: Restart the shop: non-zero return code: the disk is full" in message
            and "(rollout_failure_limit is 2)" in message
        )
        # One at a time, as long as the lost one is missing; what failed is mended first; the lost
        # one cannot be.
        expected = [{("web1", new), ("web2", new)}, {("web3", old)}, {("web2", old)}]
        assert in_batches(fleet.since(before), 2, 1, 1) == expected
        assert (
            fleet.serving() == {"web2", "web3", "web4"} and fleet.record["outcome"] == "rolled_back"
        )
        (fleet.home / "lost").unlink()
        fleet.hosts_are()
        fleet.to(old)
    assert fleet.since(before)[4:] == [("web1", old)]
    fleet.settled(old)


def test_a_host_that_is_lost_before_its_first_task_goes_back_in_as_it_was(fleet: Fleet) -> None:
    """As one that Ansible has lost while it gathered facts, it is not touched. The one is
    unreachable while HAProxy sends nobody there.
    """
    old, new, before = next_of(fleet)
    (fleet.home / "asks.py").write_text(ASKS.format(api=fleet.front.api.partition(":")))
    drained = (
        f"lookup('ansible.builtin.pipe', '{sys.executable} {fleet.home}/asks.py web2') == 'MAINT'"
    )
    fleet.hosts_are(
        web2={**SSH, "ansible_connection": f"{{{{ 'ssh' if {drained} else 'local' }}}}"}, web4=SSH
    )
    with loaded(fleet):
        outcome = fleet.run(
            IN_PLACE, {"rollout_revision": new}, env={"ANSIBLE_GATHERING": "implicit"}
        )
        assert outcome.rc != 0 and "web2: cannot be reached any more" in outcome.failed.msg, (
            outcome.output
        )
        assert "web4: unreachable: it left the play" in outcome.failed.msg
        assert fleet.serving() == set(fleet.hosts) and fleet.revisions() == [new, old, new, old]
        assert fleet.drained("web2") and not fleet.drained("web4")
        fleet.hosts_are()
        fleet.to(new)
    assert sorted(fleet.since(before)[2:]) == [("web2", new), ("web4", new)]
    fleet.settled(new)


def test_the_others_of_a_failed_batch_go_back_with_it_and_serve_nothing_meanwhile(
    fleet: Fleet,
) -> None:
    """In a play in which one error were the end for all hosts, were it not for us."""
    old, new, before = next_of(fleet)
    play = {"hosts": "web", "any_errors_fatal": True, "roles": ["progressive.rollout.in_place"]}
    begun = time.time()
    with loaded(fleet) as load, fleet.flag(f"fails-web2-{new}"):
        outcome = fleet.run([play], {"rollout_revision": new, "rollout_failure_limit": 1})
        assert (
            outcome.rc != 0
            and f"rolled back to {old}. Why: web2: Restart the shop" in outcome.failed.msg
        ), outcome.output
        assert load.served(begun, time.time()).keys() == {old}
    assert in_batches(fleet.since(before), 1, 2) == [
        {("web1", new)},
        {("web1", old), ("web2", old)},
    ]
    fleet.settled(old)


def test_a_task_that_fails_for_all_hosts_keeps_none_of_the_others_from_their_turn(
    fleet: Fleet,
) -> None:
    _old, new, before = next_of(fleet)
    for_all = (
        "- ansible.builtin.fail: {msg: the disk is full}\n  run_once: true\n  when: \"'web1' in"
        ' _in_place_batch.hosts"\n'
    )
    (fleet.home / "all.yml").write_text(for_all + (fleet.home / "deploy.yml").read_text())
    canary = {
        "rollout_revision": new,
        "rollout_strategy": "canary",
        "rollout_steps": [{"set_replicas": 1}],
    }
    with loaded(fleet):
        outcome = fleet.run(IN_PLACE, {**canary, "rollout_deploy_tasks": f"{fleet.home}/all.yml"})
        assert "3 of 4 instances have it" in outcome.failed.msg, outcome.output
        assert "web1: ansible.builtin.fail: the disk is full" in outcome.failed.msg
        assert fleet.serving() == {"web2", "web3", "web4"} and fleet.record["phase"] == "held"
        fleet.to(new, **canary)
    assert fleet.since(before) == [(host, new) for host in ("web2", "web3", "web4", "web1")]
    fleet.settled(new)


def test_a_host_that_ends_the_play_is_told_so(fleet: Fleet) -> None:
    _old, new, before = next_of(fleet)
    (fleet.home / "ends.yml").write_text(
        "- ansible.builtin.meta: end_host\n  when: inventory_hostname == 'web2'\n"
    )
    (fleet.home / "includes.yml").write_text(
        f"- ansible.builtin.include_tasks: {fleet.home}/ends.yml\n"
    )
    with loaded(fleet):
        refused = fleet.run(
            IN_PLACE, {"rollout_revision": new, "rollout_deploy_tasks": f"{fleet.home}/ends.yml"}
        )
        assert "meta: end_host removes a host from the play" in refused.output and refused.rc != 0
        (fleet.home / "includes.yml").open("a").write((fleet.home / "deploy.yml").read_text())
        outcome = fleet.run(
            IN_PLACE,
            {"rollout_revision": new, "rollout_deploy_tasks": f"{fleet.home}/includes.yml"},
        )
        assert (
            "web2: left the play before its tasks came to an end, although it can be reached"
            in outcome.failed.msg
        ), outcome.output
        assert fleet.serving() == {"web1", "web3", "web4"}
        fleet.to(new)
    assert fleet.since(before)[3:] == [("web2", new)]
    fleet.settled(new)


def test_batch_after_batch_killed_in_the_middle_and_run_again(fleet: Fleet) -> None:
    _old, new, before = next_of(fleet)
    with loaded(fleet):
        with fleet.flag("wait"):
            run = fleet.start(IN_PLACE, {"rollout_revision": new, "shop_waits": True})
            until(lambda: len(fleet.since(before)) == 2, "two hosts run the new one")
            until(lambda: all(map(fleet.answers, ("web1", "web2"))), "both of them answer")
            run.kill()
        assert fleet.serving() == {"web3", "web4"}
        until(lambda: not fleet.held(), "the lease was given back")
        fleet.front.reload()  # it has read its configuration, in which all are in rotation
        until(lambda: fleet.serving() == set(fleet.hosts), "nobody takes them out again")
        outcome = fleet.to(new)
        fleet.settled(new)
        again = fleet.to(new)
    assert "resuming the rollout" in outcome.one("begin").msg
    assert outcome.one("plan").result["batches"] == [["web1", "web2"], ["web3", "web4"]]
    # What was under way is done once more, the others once.
    batches = [{("web1", new), ("web2", new)}, {("web3", new), ("web4", new)}]
    assert in_batches(fleet.since(before), 2, 2, 2) == [batches[0], *batches]
    assert "nothing to do" in again.one("begin").msg and "changed=0" in again.output


def test_a_balancer_that_is_reloaded_during_the_tasks_sends_nothing_there(fleet: Fleet) -> None:
    """A reloaded HAProxy has read its configuration, in which all hosts are in rotation. The
    lease is kept as well.
    """
    _old, new, before = next_of(fleet)
    with loaded(fleet), fleet.flag("wait"):
        run = fleet.start(
            IN_PLACE, {"rollout_revision": new, "shop_waits": True, "rollout_lease": "5s"}
        )
        until(lambda: len(fleet.since(before)) == 2, "two hosts run the new one")
        until(lambda: all(map(fleet.answers, ("web1", "web2"))), "both of them answer")
        expires = fleet.lease()["until"]
        fleet.front.reload()
        # The old HAProxy may answer for a moment still, and shows what was wanted.
        until(
            lambda: "web1, web2 taken out again" in run.output,
            "what was taken out is taken out again",
        )
        until(lambda: fleet.serving() == {"web3", "web4"}, "what was taken out is out again")
        until(
            lambda: fleet.lease()["until"] > expires + 1,
            "the lease is renewed while the tasks run",
        )
        (fleet.home / "wait").unlink()
        outcome = run.wait()
    assert outcome.rc == 0, outcome.output
    assert any(
        "taken out again" in event.get("message", "")
        for event in fleet.timeline(fleet.record["id"])
    )
    fleet.settled(new)


def test_hosts_that_a_limit_leaves_out_keep_what_they_have(fleet: Fleet) -> None:
    _old, new, before = next_of(fleet)
    with loaded(fleet):
        outcome = fleet.to(new, "--limit", "web1,web3")
        assert "2 of 4 instances have" in outcome.one("finish").msg
        fleet.to(new)
    batches = [{("web1", new), ("web3", new)}, {("web2", new), ("web4", new)}]
    assert in_batches(fleet.since(before), 2, 2) == batches
    fleet.settled(new)


BEGIN: dict[str, t.Any] = {"hosts": "{{ groups.web }}", "revision": "99"}
WRONG: list[tuple[dict[str, t.Any], str]] = [
    (
        {"hosts": "{{ omit }}"},
        (
            "deployed in place (static) and cannot be started or stopped; use the playbook"
            " in_place.yml"
        ),
    ),
    ({"hosts": ["db1"]}, "none of the play's 1 host"),
    ({"strategy": "blue_green"}, "rollout_strategy: blue_green needs a second set of instances"),
    (
        {"budget": {"max_surge": 1}},
        (
            "rollout_budget: in place an instance is unavailable while it is deployed; set"
            " max_unavailable"
        ),
    ),
    ({"replicas": 3}, "rollout_replicas: 3 asked for, and in place there are exactly 4"),
    (
        {"platform": {"driver": "static", "hosts": "web", "port": [8100, 8101, 8102]}},
        "is less than the 3 of one host",
    ),
    (
        {"platform": {"driver": "static", "hosts": "web,localhost", "port": "http"}},
        "rollout_platform.port: 'http' is not a port",
    ),
    (
        {"platform": {"driver": "process", "hosts": "web", "ports": 8100, "command": ["x"]}},
        "role in_place needs driver static",
    ),
]


def test_what_cannot_be_done_in_place_is_refused(fleet: Fleet) -> None:
    before = fleet.journal()
    tasks = [{"progressive.rollout.begin": {**BEGIN, **wrong}} for wrong, _message in WRONG]
    taken = {f"rollout_{name}": name for name in variables.COMMON}
    given = {
        name: fleet.variables[variable]
        for variable, name in taken.items()
        if variable in fleet.variables
    }
    play = {
        "hosts": "localhost",
        "ignore_errors": True,
        "module_defaults": {"group/progressive.rollout.steps": given},
    }
    outcome = fleet.run([{**play, "tasks": [*tasks, {"progressive.rollout.rollback": {}}]}])
    for task, (wrong, message) in zip(outcome.of("begin"), WRONG, strict=True):
        assert task.status == "failed" and message in task.msg, (wrong, task.msg)
    assert (
        f"To go back, deploy {before['before']['revision']}, the previous revision"
        in outcome.one("rollback").msg
    )
    assert fleet.journal() == before


ROLES: dict[str, t.Any] = {"hosts": "web", "roles": ["progressive.rollout.in_place"]}
PORTS = {"rollout_platform": {"driver": "static", "hosts": "web", "port": "{{ shop_port }}"}}
PLAYS: list[tuple[str, dict[str, t.Any], dict[str, t.Any], list[str], str]] = [
    ("serial", {"serial": 2}, {}, [], "remove serial from the play"),
    ("tags", {}, {}, ["--tags", "code"], "--tags, --skip-tags: exclude every step of the rollout"),
    (
        "ports",
        {},
        PORTS,
        [],
        "rollout_platform.port: 8101 and 8100, by the variables of different hosts",
    ),
]


@pytest.mark.parametrize(
    ("play", "variables", "options", "message"),
    [one[1:] for one in PLAYS],
    ids=[one[0] for one in PLAYS],
)
def test_a_play_in_which_it_would_break_is_refused_before_anything_is_touched(
    fleet: Fleet,
    play: dict[str, t.Any],
    variables: dict[str, t.Any],
    options: list[str],
    message: str,
) -> None:
    before, done = fleet.journal(), fleet.deployed()
    fleet.hosts_are(
        web1={"shop_port": 8101}, **{h: {"shop_port": PORT} for h in ("web2", "web3", "web4")}
    )
    outcome = fleet.run([{**ROLES, **play}], {"rollout_revision": "99", **variables}, *options)
    assert outcome.rc != 0 and message in outcome.output, outcome.output
    assert {**fleet.journal(), "rollout": None} == {
        **before,
        "rollout": None,
    } and fleet.deployed() == done
    assert fleet.serving() == set(fleet.hosts)


def test_with_a_tag_of_its_own_the_role_is_run_or_left_out_by_it(fleet: Fleet) -> None:
    _old, new, before = next_of(fleet)
    play = {"hosts": "web", "roles": [{"role": "progressive.rollout.in_place", "tags": ["shop"]}]}
    left_out = fleet.run([play], {"rollout_revision": new}, "--tags", "other")
    assert left_out.rc == 0 and fleet.since(before) == [], left_out.output
    outcome = fleet.run([play], {"rollout_revision": new}, "--tags", "shop")
    assert outcome.rc == 0 and len(fleet.since(before)) == HOSTS, outcome.output
    fleet.settled(new)


CONFIGURES = """
- name: Configure the shop
  ansible.builtin.copy: {{content: "revision {{{{ rollout_host_revision }}}}\n", dest: "{home}/{{{{ inventory_hostname }}}}.conf"}}
"""


def test_check_mode_says_what_a_restart_and_the_tasks_would_do(fleet: Fleet) -> None:
    old, _new, before = next_of(fleet)
    (fleet.home / "configures.yml").write_text(CONFIGURES.format(home=fleet.home))
    own = {
        "rollout_deploy_tasks": f"{fleet.home}/configures.yml",
        "rollout_check_tasks": True,
        "rollout_revision": "99",
    }
    given = {"rollout_deploy_tasks": own["rollout_deploy_tasks"], "rollout_restart": True}
    restart = fleet.run(IN_PLACE, given, "--check", "--diff")
    assert restart.rc == 0 and restart.one("begin").changed, restart.output
    assert (
        f"batch 1: web1, web2 to {old}" in restart.output
        and f"batch 2: web3, web4 to {old}" in restart.output
    )
    assert "Configure the shop" not in restart.output  # rollout_check_tasks is false
    outcome = fleet.run(IN_PLACE, own, "--check", "--diff")
    assert outcome.rc == 0 and outcome.output.count("+revision 99") == HOSTS, outcome.output
    assert fleet.since(before) == [] and not list(fleet.home.glob("*.conf"))
