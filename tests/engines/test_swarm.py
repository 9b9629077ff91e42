# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts on a real Docker Swarm of three managers, behind a real HAProxy: `make test-engines`."""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
import shutil
import subprocess
import threading
import time
import typing as t
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents.swarm import Refused
from ansible_collections.progressive.rollout.tests.engines.swarms import (
    HOME,
    INVENTORY,
    LOCAL,
    NUMBER,
    PLATFORM,
    ROOT,
    SOCKET,
    Swarm,
    script,
)
from ansible_collections.progressive.rollout.tests.support.playbook import (
    Outcome,
    Playground,
)
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindHAProxy,
    Load,
    failures,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

KINDS = (("GET", True), ("GET", False))
RATE = 40  # requests a second, of each kind


@pytest.fixture
def swarm() -> Iterator[Swarm]:
    if not HOME.exists():
        pytest.fail("there is no swarm: run scripts/swarm up 3")
    made = Swarm()
    made.mend()
    yield made
    made.mend()


@pytest.fixture
def front() -> Iterator[BehindHAProxy]:
    made = BehindHAProxy()
    yield made
    made.close()


@pytest.fixture
def playground(swarm: Swarm, front: BehindHAProxy) -> Iterator[Playground]:
    given = {
        "rollout_platform": PLATFORM,
        "rollout_traffic": front.traffic,
    }
    made = Playground(1, given, INVENTORY)
    yield made
    made.close()


def deployed(playground: Playground, swarm: Swarm, replicas: int = 3) -> None:
    outcome = playground.run(variables={"rollout_replicas": replicas})
    assert outcome.rc == 0, outcome.output
    assert swarm.running() == {"1": replicas}


def promoted(outcome: Outcome, swarm: Swarm, revision: str = "2", replicas: int = 3) -> None:
    assert outcome.rc == 0, outcome.output
    assert outcome.rollout["outcome"] == "promoted"
    assert swarm.running() == {revision: replicas}
    assert len(swarm.services()) == replicas, "no service is left without an instance"


# Whole rollouts
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "strategy",
    [
        {},
        {
            "rollout_strategy": "canary",
            "rollout_steps": [{"set_weight": 34}, {"pause": "2s"}, {"set_weight": 67}],
        },
        {"rollout_strategy": "blue_green", "rollout_hold": "2s"},
    ],
    ids=["rolling", "canary", "blue_green"],
)
def test_a_rollout_loses_no_request(
    strategy: dict[str, t.Any], playground: Playground, swarm: Swarm, front: BehindHAProxy
) -> None:
    deployed(playground, swarm)
    load = Load(front.url, KINDS, rate=RATE)
    outcome = playground.run(variables={"rollout_revision": "2", **strategy})
    promoted(outcome, swarm)
    time.sleep(1)
    assert failures(load.stop()) == []
    again = playground.run(variables={"rollout_revision": "2", **strategy})
    assert (again.rc, again.rollout["changed"]) == (0, False), again.output


def test_a_promoted_revision_is_rolled_back_with_the_settings_it_had(
    playground: Playground, swarm: Swarm
) -> None:
    """Its secret ones, too, which Swarm keeps."""
    tokens = {"rollout_platform": {**PLATFORM, "env": {"TOKEN": "first"}}}
    assert playground.run(variables=tokens).rc == 0
    tokens = {"rollout_platform": {**PLATFORM, "env": {"TOKEN": "second"}}}
    assert playground.run(variables={"rollout_revision": "2", **tokens}).rc == 0
    assert environments(swarm, "TOKEN") == {"second"}
    outcome = playground.run("progressive.rollout.rollback", tokens)
    assert outcome.rc == 0, outcome.output
    assert swarm.running() == {"1": 3}
    assert environments(swarm, "TOKEN") == {"first"}
    assert "first" not in outcome.output + str(playground.journal())


def environments(swarm: Swarm, name: str) -> set[str]:
    found = [
        word.partition("=")
        for one in swarm.services()
        for word in one["Spec"]["TaskTemplate"]["ContainerSpec"]["Env"]
    ]
    return {value for key, _sign, value in found if key == name}


def test_secrets_configs_and_ports_are_those_named(playground: Playground, swarm: Swarm) -> None:
    platform = {
        **PLATFORM,
        "secrets": ["token", "key-{revision}:/etc/key"],
        "configs": ["shop:/etc/shop.conf"],
        "ports": "9000-9001",
    }
    outcome = playground.run(variables={"rollout_platform": platform})
    assert outcome.rc != 0
    assert "rollout_platform.secrets: Swarm has no token, key-1" in outcome.output, outcome.output
    assert "rollout_platform.configs: Swarm has no shop" in outcome.output
    assert not swarm.services()
    for kind, name in (("secrets", "token"), ("secrets", "key-1"), ("configs", "shop")):
        data = base64.b64encode(f"this is {name}".encode()).decode()
        swarm.api.create(kind, {"Name": name, "Data": data})
    outcome = playground.run(variables={"rollout_platform": platform})
    assert outcome.rc == 0, outcome.output
    (one, *_others) = swarm.tasks()
    node = next(name for name, node in swarm.nodes().items() if node["ID"] == one["NodeID"])
    container = one["Status"]["ContainerStatus"]["ContainerID"]
    files = ["/run/secrets/token", "/etc/key", "/etc/shop.conf"]
    shown = script("docker", node[-1], "exec", container, "cat", *files)
    assert shown == "this is tokenthis is key-1this is shop"
    assert "this is" not in outcome.output
    published = Counter(
        port["PublishedPort"] for one in swarm.services() for port in one["Endpoint"]["Ports"]
    )
    assert sorted(published) == [9000, 9001]


# What goes wrong
# --------------------------------------------------------------------------------------------------


def test_a_run_that_is_killed_is_continued(
    playground: Playground, swarm: Swarm, front: BehindHAProxy
) -> None:
    deployed(playground, swarm)
    load = Load(front.url, KINDS, rate=RATE)
    run = playground.start(variables={"rollout_revision": "2"})
    until(lambda: swarm.running().get("2"), "the first new instance runs")
    run.kill()
    promoted(playground.run(variables={"rollout_revision": "2"}), swarm)
    time.sleep(1)
    assert failures(load.stop()) == []


def test_a_journal_that_was_lost_is_begun_anew(playground: Playground, swarm: Swarm) -> None:
    """With the instances that are there, and fewer of them."""
    deployed(playground, swarm)
    shutil.rmtree(playground.store)
    fewer = {"rollout_revision": "2", "rollout_replicas": 2}
    promoted(playground.run(variables=fewer), swarm, replicas=2)
    restarted = playground.run("progressive.rollout.restart", fewer)
    promoted(restarted, swarm, replicas=2)


def test_what_rollouts_left_is_removed_and_a_first_rollout_follows(
    playground: Playground, swarm: Swarm, front: BehindHAProxy
) -> None:
    """Beside the services that run, which are nobody's any more."""
    deployed(playground, swarm, 2)
    given = {"rollout_replicas": 2, "rollout_revision": "2"}
    promoted(playground.run(variables=given), swarm, replicas=2)
    before, names = places(swarm), [one["Spec"]["Name"] for one in swarm.services()]
    with Load(front.url, KINDS, rate=RATE) as load:
        removed = playground.run("progressive.rollout.remove", {})
        assert removed.rc == 0 and "rollout.shop" in removed.output, removed.output
        assert (swarm.services(), swarm.api.get("/configs")) == ([], [])
        assert front.serving() == before
        outcome = playground.run(variables={**given, "rollout_revision": "1"})
        assert failures(load.stop()) == []
    for name in names:
        swarm.api.delete("services", name)
    promoted(outcome, swarm, "1", replicas=2)
    assert front.serving() == front.known() == places(swarm)


def test_a_manager_that_is_killed_is_passed_over(
    playground: Playground, swarm: Swarm, front: BehindHAProxy
) -> None:
    """The leader, which all is asked of. Swarm moves what its node had."""
    deployed(playground, swarm)
    load = Load(front.url, KINDS, rate=RATE)
    run = playground.start(variables={"rollout_revision": "2"})
    until(lambda: swarm.running().get("2"), "the first new instance runs")
    leader = next(name for name, one in swarm.nodes().items() if one["ManagerStatus"].get("Leader"))
    swarm.kill(leader)
    outcome = run.wait()
    assert outcome.rc == 0, outcome.output
    time.sleep(1)
    assert failures(load.stop()) == []
    assert outcome.rollout["outcome"] == "promoted"
    assert len(swarm.services()) == 3
    gone = swarm.nodes()[leader]["ID"]
    until(
        lambda: len([x for x in swarm.tasks() if x["NodeID"] != gone]) == 3, "three run elsewhere"
    )
    again = playground.run(variables={"rollout_revision": "2"})
    assert again.rc == 0, again.output
    until(lambda: front.serving() == places(swarm), "the entries follow")


def places(swarm: Swarm) -> set[tuple[str, int]]:
    """Where the instances listen, of all nodes that are there."""
    there = {
        one["ID"]: one["ManagerStatus"]["Addr"].partition(":")[0]
        for one in swarm.nodes().values()
        if one["Status"]["State"] == "ready"
    }
    return {
        (there[one["NodeID"]], one["Status"]["PortStatus"]["Ports"][0]["PublishedPort"])
        for one in swarm.tasks()
        if one["NodeID"] in there
    }


def test_a_node_that_is_drained_loses_its_instances_and_no_request(
    playground: Playground, swarm: Swarm, front: BehindHAProxy
) -> None:
    """Instances fail their check before they end, so that the load balancer takes them out."""
    mine = {"rollout_platform": {**PLATFORM, "env": {"LAMEDUCK": "6"}, "stop_timeout": "15s"}}
    assert playground.run(variables={**mine, "rollout_replicas": 4}).rc == 0
    load = Load(front.url, KINDS, rate=RATE)
    given = {**mine, "rollout_replicas": 4, "rollout_revision": "2"}
    run = playground.start(variables=given)
    until(lambda: swarm.running().get("2"), "the first new instance runs")
    drained = swarm.nodes()["manager2"]["ID"]
    swarm.availability("manager2", "drain")
    outcome = run.wait()
    promoted(outcome, swarm, replicas=4)
    assert drained not in [one["NodeID"] for one in swarm.tasks()]
    time.sleep(1)
    assert failures(load.stop()) == []
    assert front.serving() == places(swarm)


def test_a_missing_image_is_told_in_swarms_words(
    playground: Playground, swarm: Swarm, front: BehindHAProxy
) -> None:
    deployed(playground, swarm)
    before = {one["ID"] for one in swarm.tasks()}
    load = Load(front.url, KINDS, rate=RATE)
    outcome = playground.run(variables={"rollout_revision": "9", "rollout_failure_limit": 1})
    assert outcome.rc != 0
    assert "rejected: No such image: local/shop:9" in outcome.output, outcome.output
    assert outcome.rollout["outcome"] == "rolled_back"
    assert {one["ID"] for one in swarm.tasks()} == before, "nothing of the stable one was touched"
    assert len(swarm.services()) == 3
    assert failures(load.stop()) == []


def test_no_node_for_an_instance_is_told_in_swarms_words(
    playground: Playground, swarm: Swarm
) -> None:
    nowhere = {**PLATFORM, "constraints": ["node.labels.zone == none"]}
    given = {"rollout_platform": nowhere, "rollout_progress_deadline": "12s"}
    outcome = playground.run(variables=given)
    assert outcome.rc != 0
    words = "no suitable node (scheduling constraints not satisfied on 3 nodes)"
    assert words in outcome.output, outcome.output


def test_changes_by_others_at_the_same_time_do_not_matter(
    playground: Playground, swarm: Swarm
) -> None:
    """Each of them makes what we have read of a service out of date."""
    deployed(playground, swarm)
    end, made = threading.Event(), Counter[str]()

    def change() -> None:
        while not end.is_set():
            for one in swarm.services():
                with contextlib.suppress(Refused):
                    swarm.api.change("services", one["ID"], label)

    def label(spec: dict[str, t.Any]) -> None:
        made[spec["Name"]] += 1
        spec["Labels"]["changed"] = str(made.total())

    threads = [threading.Thread(target=change) for _one in range(2)]
    for thread in threads:
        thread.start()
    try:
        outcome = playground.run(variables={"rollout_revision": "2"})
    finally:
        end.set()
        for thread in threads:
            thread.join()
    promoted(outcome, swarm)
    assert len(made) == 6 and min(made.values()) > 10, made


def test_a_crash_while_an_instance_is_new_is_a_failure(
    playground: Playground, swarm: Swarm
) -> None:
    deployed(playground, swarm)
    outcome = playground.run(variables={"rollout_revision": "broken", "rollout_failure_limit": 1})
    assert outcome.rc != 0
    assert "task: non-zero exit (1)" in outcome.output, outcome.output
    assert outcome.rollout["outcome"] == "rolled_back"
    assert swarm.running() == {"1": 3}


# The documentation
# --------------------------------------------------------------------------------------------------

EXAMPLE = ROOT / "docs/examples/swarm-haproxy"
# A machine as the example has them: Docker's socket, HAProxy and what they keep are in their usual
# places, beside the files of this machine. Its network is that of a manager.
MACHINE = """\
set -e
mount -t tmpfs machine /run
mount -t tmpfs machine /var/lib
mkdir -p /run/haproxy /var/lib/rollout
touch /run/docker.sock
mount --bind "$SOCKET" /run/docker.sock
cd "$EXAMPLE"
haproxy -W -f haproxy.cfg -p /run/haproxy.pid -D
trap 'kill $(cat /run/haproxy.pid)' EXIT
for revision in 1 2; do
    ansible-playbook -i "$INVENTORY" rollout.yml -e rollout_revision=$revision
    touch "$INVENTORY.$revision"
done
until [ -e "$INVENTORY.end" ]; do sleep 0.1; done
"""


def test_the_example_runs_as_it_is(swarm: Swarm, tmp_path: Path) -> None:
    """But for the inventory, whose hosts are all this machine."""
    for manager, revision in itertools.product("123", "12"):
        name = f"registry.example.com/shop:{revision}"
        script("docker", manager, "tag", f"local/shop:{revision}", name)
    inventory = yaml.safe_load((EXAMPLE / "inventory.yml").read_text())
    for group in inventory.values():
        group["hosts"] = dict.fromkeys(group["hosts"], LOCAL)
        del group["vars"]
    inventory["load_balancers"]["hosts"].pop("lb2")  # there is one socket of HAProxy
    path = tmp_path / "hosts.yml"
    path.write_text(yaml.safe_dump(inventory))
    shutil.copytree(EXAMPLE / "group_vars", tmp_path / "group_vars")
    environment = {
        **os.environ,
        "SOCKET": SOCKET.replace("{host}", "manager1"),
        "EXAMPLE": str(EXAMPLE),
        "INVENTORY": str(path),
    }
    network = f"--net=/var/run/netns/prsw{NUMBER}-1"
    with (tmp_path / "log").open("w") as log:
        machine = subprocess.Popen(
            ["nsenter", network, "unshare", "--mount", "sh", "-c", MACHINE],
            env=environment,
            stdout=log,
            stderr=log,
        )

    def passed(name: str) -> bool:
        assert machine.poll() is None, (tmp_path / "log").read_text()
        return Path(f"{path}.{name}").exists()

    until(lambda: passed("1"), "the first revision is out", 120)
    answers = Counter[str]()
    while not passed("2"):
        with urllib.request.urlopen(f"http://198.19.{16 * NUMBER}.1/", timeout=10) as answer:
            answers[answer.read().decode()] += 1
    assert set(answers) == {"1", "2"}
    Path(f"{path}.end").touch()
    assert machine.wait(30) == 0, (tmp_path / "log").read_text()
    assert swarm.running() == {"2": 4}
