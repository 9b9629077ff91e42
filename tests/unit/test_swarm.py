# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver for Docker Swarm and its agent, at a swarm in memory."""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
import typing as t
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _http
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import swarm as agent
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    LeaseLost,
    PlatformError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Process
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.check import (
    HealthCheck,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    NOWHERE,
    Endpoint,
    InstanceSettings,
    Labels,
    Report,
    key_of,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import (
    _swarm_spec,
    _swarm_tasks,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import (
    swarm as platform,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.agents import Answer
from ansible_collections.progressive.rollout.tests.support.contexts import Knows, tell
from ansible_collections.progressive.rollout.tests.support.memory import Service, World
from ansible_collections.progressive.rollout.tests.support.swarm import Managers, Server

LEAST = {"hosts": "managers", "image": "shop:{revision}", "port": 8080}
RUNNING = Process.RUNNING
STARTING = Process.STARTING
STOPPED = Process.STOPPED
STOPPING = Process.STOPPING
FAILED, UNREACHABLE = Process.FAILED, Process.UNREACHABLE


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def managers(server: Server, monkeypatch: pytest.MonkeyPatch) -> Managers:
    return Managers(server, monkeypatch)


def driver(managers: Managers, epoch: int = 1, **options: t.Any) -> platform.Driver:
    parsed = platform.OPTIONS.parse({**LEAST, **options}, "rollout_platform.")
    return platform.Driver(
        parsed, DriverContext("shop", t.cast(t.Any, managers), known=Knows(epoch=epoch))
    )


def labels(*names: str, revision: str = "1", generation: int = 7) -> list[Labels]:
    return [Labels(name, "shop", revision, generation, "", NOWHERE, 0) for name in names]


def states(reports: t.Iterable[Report]) -> dict[str, Process]:
    return {one.labels.id: one.process for one in reports}


# The service of an instance
# --------------------------------------------------------------------------------------------------


def spec(published: int = 0, **options: t.Any) -> dict[str, t.Any]:
    parsed = platform.OPTIONS.parse({**LEAST, **options}, "rollout_platform.")
    return _swarm_spec.service(parsed, labels("shop-3")[0], published)


def test_a_service_is_one_replica_published_on_its_node() -> None:
    made = spec()
    assert made["Name"] == "shop-3"
    assert made["Mode"] == {"Replicated": {"Replicas": 1}}
    port = {"Protocol": "tcp", "TargetPort": 8080, "PublishMode": "host"}
    assert made["EndpointSpec"] == {"Mode": "dnsrr", "Ports": [port]}
    ours = {name.removeprefix(agent.OURS): text for name, text in made["Labels"].items()}
    assert ours == {
        "service": "shop",
        "revision": "1",
        "generation": "7",
        "port": "8080",
        "published": "0",
        "image": "shop:1",
    }
    assert made["TaskTemplate"]["RestartPolicy"] == {"Condition": "any"}
    container = made["TaskTemplate"]["ContainerSpec"]
    assert (container["Image"], container["StopGracePeriod"]) == ("shop:1", 10_000_000_000)
    assert container["Env"] == ["INSTANCE=shop-3", "PORT=8080", "REVISION=1", "SERVICE=shop"]
    assert "Args" not in container


def test_every_option_is_in_the_service() -> None:
    made = spec(
        published=9000,
        command=["--at", "{instance}"],
        env={"MODE": "r{revision}", "NODE": "{{{{.Node.Hostname}}}}"},
        secrets=["token", "key-{revision}:/etc/key"],
        configs=["shop", "shop-{revision}:/etc/shop.conf"],
        constraints=["node.labels.zone == east"],
        networks=["backend"],
        volumes=["data:/data", "/srv/{service}:/shop:ro"],
        labels={"team": "{service}"},
        memory="512m",
        cpus=1.5,
        reserve={"memory": "256m", "cpus": "0.5"},
        user="1000",
        healthcheck={"command": "true", "interval": "2s", "retries": 3},
        restart="on-failure",
        stop_signal="INT",
        stop_timeout="90s",
    )
    task = made["TaskTemplate"]
    container = task["ContainerSpec"]
    assert container["Args"] == ["--at", "shop-3"]
    assert {"MODE=r1", "NODE={{.Node.Hostname}}"} < set(container["Env"])
    usual = {"UID": "0", "GID": "0", "Mode": 0o444}
    assert container["Secrets"] == [
        {"SecretName": "token", "File": {"Name": "token", **usual}},
        {"SecretName": "key-1", "File": {"Name": "/etc/key", **usual}},
    ]
    assert container["Configs"] == [
        {"ConfigName": "shop", "File": {"Name": "/shop", **usual}},
        {"ConfigName": "shop-1", "File": {"Name": "/etc/shop.conf", **usual}},
    ]
    assert container["Mounts"] == [
        {"Type": "volume", "Source": "data", "Target": "/data", "ReadOnly": False},
        {"Type": "bind", "Source": "/srv/shop", "Target": "/shop", "ReadOnly": True},
    ]
    check = {"Test": ["CMD-SHELL", "true"], "Interval": 2_000_000_000, "Retries": 3}
    assert container["Healthcheck"] == check
    assert (container["User"], container["StopSignal"]) == ("1000", "SIGINT")
    assert container["StopGracePeriod"] == 90_000_000_000
    assert task["Placement"] == {"Constraints": ["node.labels.zone == east"]}
    assert task["Networks"] == [{"Target": "backend"}]
    assert task["Resources"] == {
        "Limits": {"MemoryBytes": 512 * 2**20, "NanoCPUs": 1_500_000_000},
        "Reservations": {"MemoryBytes": 256 * 2**20, "NanoCPUs": 500_000_000},
    }
    assert task["RestartPolicy"] == {"Condition": "on-failure"}
    assert made["Labels"]["team"] == "shop"
    assert made["EndpointSpec"]["Ports"][0]["PublishedPort"] == 9000


def test_an_images_own_check_can_be_switched_off() -> None:
    made = spec(healthcheck="none")
    assert made["TaskTemplate"]["ContainerSpec"]["Healthcheck"] == {"Test": ["NONE"]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"image": "shop:latest"},
        {"image": "shop:{revision}-{instance}"},
        {"env": {"NAME": "{host}"}},
        {"env": {"NAME": "{address}"}},
        {"secrets": ["a b"]},
        {"secrets": [":/etc/key"]},
        {"volumes": ["data"]},
        {"volumes": ["data:relative"]},
        {"constraints": ["zone east"]},
        {"command": ["{slot}"]},
        {"reserve": {"memory": "much"}},
        {"labels": {"progressive.rollout.service": "other"}},
        {"healthcheck": {"command": "check {host}"}},
        {"user": "{host}"},
        {"socket": "docker.sock"},
        {"socket": "/run/{revision}.sock"},
        {"restart": "always"},
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, t.Any], managers: Managers) -> None:
    (option,) = wrong
    with pytest.raises(InputError, match=f"rollout_platform.{option}"):
        driver(managers, **wrong)


def test_checks_from_hosts_are_refused(managers: Managers) -> None:
    mine = driver(managers)
    mine.context = replace(mine.context, health=HealthCheck(from_host=True))
    with pytest.raises(InputError, match=r"rollout_health\.from: host, but the nodes of a swarm"):
        mine.check()


def test_names_that_swarm_does_not_take_are_refused(managers: Managers) -> None:
    for name in ("shop.web", "-shop", "s" * 51, "läden"):
        with pytest.raises(InputError, match="cannot begin the name of a service of Swarm"):
            _swarm_spec.check_name(name)
    _swarm_spec.check_name("shop-2_web")


# What is seen of it
# --------------------------------------------------------------------------------------------------

NODES: dict[str, _swarm_tasks.Node] = {
    "n1": {"name": "one", "address": "10.0.0.1", "state": "ready"},
    "n2": {"name": "two", "address": "10.0.0.2", "state": "down"},
    "n3": {"name": "three", "address": "10.0.0.3", "state": "unknown"},
}


def task(
    state: str, desired: str = "running", at: int = 1, node: str = "n1", why: str = ""
) -> _swarm_tasks.Task:
    stamp = f"2026-11-22T17:00:{at:02}.25Z"
    ports = {"8080": 32768 + at} if state == "running" else {}
    return {
        "id": f"task{at}",
        "created": stamp,
        "at": stamp,
        "state": state,
        "desired": desired,
        "why": why,
        "node": node,
        "ports": ports,
    }


def report(
    *tasks: _swarm_tasks.Task, replicas: int = 1, restart: str = "any", now: float = 0
) -> Report:
    one: _swarm_tasks.Service = {
        "name": "shop-1",
        "created": "2026-11-22T17:00:00.5Z",
        "labels": {"revision": "1", "generation": "7", "port": "8080"},
        "image": "shop:1",
        "replicas": replicas,
        "restart": restart,
        "tasks": list(tasks),
    }
    begun = _swarm_tasks.seconds("2026-11-22T17:00:00Z")
    seen: _swarm_tasks.Seen = {"services": [one], "nodes": NODES, "now": begun + 60}
    (found,) = _swarm_tasks.Reading("shop").reports(seen, now or begun + 60)
    return found


MISSING = "No such image: shop:9"
NOWHERE_ELSE = "no suitable node (insufficient resources on 3 nodes)"


@pytest.mark.parametrize(
    ("tasks", "more", "process", "detail"),
    [
        ([], {}, STARTING, ""),
        ([], {"replicas": 0}, STOPPED, ""),
        ([task("new")], {}, STARTING, ""),
        ([task("preparing")], {}, STARTING, ""),
        ([task("starting")], {}, STARTING, ""),
        ([task("pending", node="", why=NOWHERE_ELSE)], {}, STARTING, f"pending: {NOWHERE_ELSE}"),
        ([task("running")], {}, RUNNING, ""),
        ([task("running", node="n3")], {}, RUNNING, ""),
        ([task("running", node="n2")], {}, UNREACHABLE, "node two is down"),
        ([task("running", "remove")], {"replicas": 0}, STOPPING, ""),
        (
            [task("running", "remove", node="n2")],
            {"replicas": 0},
            STOPPED,
            "node two is down; Swarm ends it when it is back",
        ),
        ([task("shutdown", "remove")], {"replicas": 0}, STOPPED, ""),
        ([task("rejected", why=MISSING)], {}, STARTING, f"rejected: {MISSING}"),
        (
            [task("rejected", "shutdown", why=MISSING), task("ready", "ready", 2)],
            {},
            STARTING,
            f"rejected: {MISSING}",
        ),
        ([task("failed", why="exit 1")], {"restart": "none"}, FAILED, "failed: exit 1"),
        ([task("failed", why="exit 1")], {"restart": "on-failure"}, STARTING, "failed: exit 1"),
        ([task("complete")], {"restart": "on-failure"}, FAILED, "complete"),
        ([task("complete")], {"restart": "any"}, STARTING, "complete"),
        # moved by Swarm, and the old one has not ended yet
        (
            [task("running", "shutdown", node="n2"), task("ready", "ready", 2)],
            {},
            STARTING,
            "",
        ),
        ([task("running", "shutdown")], {}, STARTING, ""),
        # another one that Swarm has given up again
        ([task("running"), task("shutdown", "shutdown", 2)], {}, RUNNING, ""),
        ([task("shutdown", "shutdown"), task("running", at=2)], {}, RUNNING, ""),
        ([task("shutdown", "shutdown")], {"restart": "none"}, FAILED, "shutdown"),
        ([task("shutdown", "shutdown")], {"restart": "on-failure"}, STARTING, ""),
        ([task("orphaned", "shutdown"), task("running", at=2)], {}, RUNNING, ""),
    ],
)
def test_what_its_tasks_say_of_an_instance(
    tasks: list[_swarm_tasks.Task], more: dict[str, t.Any], process: Process, detail: str
) -> None:
    found = report(*tasks, **more)
    assert (found.process, found.detail) == (process, detail)


def test_an_instance_is_where_its_task_runs() -> None:
    assert report(task("running")).labels.endpoint == Endpoint("10.0.0.1", 32769)
    assert report(task("running")).labels.host == "one"
    assert report(task("starting")).labels.endpoint == NOWHERE
    moved = report(task("running", "shutdown"), task("running", at=2, node="n3"))
    assert moved.labels.endpoint == Endpoint("10.0.0.3", 32770)
    going = report(task("running", "shutdown"), task("ready", "ready", 2, "n3"))
    assert going.labels.endpoint == NOWHERE, "what Swarm ends gets no requests"
    stopping = report(task("running", "remove"), replicas=0)
    assert stopping.labels.endpoint == Endpoint("10.0.0.1", 32769), "until it has ended"


@pytest.mark.parametrize(
    "address", ["", "0.0.0.0/0", "10.0.0.1 weight 9", "10.0.0.1;disable", "host\n"]
)
def test_what_is_no_address_reaches_no_load_balancer(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NODES, "n1", {"name": "one", "address": address, "state": "ready"})
    assert report(task("running")).labels.endpoint == NOWHERE
    assert _swarm_tasks.endpoint("10.0.0.1", 65536) == NOWHERE
    assert _swarm_tasks.endpoint("fd00::1", 80) == Endpoint("fd00::1", 80)


def test_a_crash_before_a_move_does_not_count_after_it() -> None:
    reading, nodes = _swarm_tasks.Reading("shop"), NODES
    one: _swarm_tasks.Service = {
        "name": "shop-1",
        "created": "2026-11-22T17:00:00.5Z",
        "labels": {},
        "image": "shop:1",
        "replicas": 1,
        "restart": "any",
        "tasks": [task("failed", "shutdown", 5), task("running", at=9)],
    }
    now = _swarm_tasks.seconds("2026-11-22T17:01:00Z")
    (before,) = reading.reports({"services": [one], "nodes": nodes, "now": now}, now)
    moves = [
        task("shutdown", "shutdown", 9),
        task("failed", "shutdown", 20),
        task("running", at=30),
    ]
    later: _swarm_tasks.Service = {**one, "tasks": [task("failed", "shutdown", 5), *moves]}
    (after,) = reading.reports({"services": [later], "nodes": nodes, "now": now}, now)
    assert before.restarted and after.restarted
    assert after.restarted >= after.created > before.restarted


def test_restarts_are_told_and_moves_are_none() -> None:
    crashed = report(
        task("failed", "shutdown", 5), task("rejected", "shutdown", 3), task("running", at=9)
    )
    begun = _swarm_tasks.seconds("2026-11-22T17:00:00Z")
    assert (crashed.restarts, crashed.restarted) == (2, begun + 3.25)
    moved = report(
        task("shutdown", "shutdown"), task("orphaned", "remove", 2), task("running", at=3)
    )
    assert (moved.restarts, moved.restarted) == (0, None)


def test_a_move_begins_anew() -> None:
    """Or a moved instance would be overdue at once."""
    begun = _swarm_tasks.seconds("2026-11-22T17:00:00Z")
    drained = task("running", "shutdown", 20, "n3")
    found = report(task("failed", "shutdown", 5), drained, task("ready", "ready", 30))
    assert (found.created, found.restarts) == (begun + 30.25, 0)
    before = task("shutdown", "shutdown", 20)
    crashed = report(before, task("failed", "shutdown", 30), task("running", at=40))
    assert (crashed.created, crashed.restarts) == (begun + 30.25, 1)
    stopped = report(task("running", "remove", 20), replicas=0)
    assert stopped.created == begun + 0.5


def test_times_are_those_of_our_clock() -> None:
    begun = _swarm_tasks.seconds("2026-11-22T17:00:00Z")
    found = report(task("failed", "shutdown", 5), now=begun + 1060)
    assert (found.created, found.restarted) == (begun + 1000.5, begun + 1005.25)


def test_times_that_are_none_are_no_error() -> None:
    for stamp in ("", "yesterday", "2026-13-22T17:00:00Z", "0001-01-01T00:00:00"):
        assert _swarm_tasks.seconds(stamp) == 0


# The driver
# --------------------------------------------------------------------------------------------------


def test_an_instance_from_start_to_end(managers: Managers, server: Server) -> None:
    mine = driver(managers)
    assert list(mine.sync()) == []
    found = mine.sync(start=labels("shop-1", "shop-2"))
    assert states(found) == {"shop-1": RUNNING, "shop-2": RUNNING}
    assert all(one.labels.endpoint.known and one.labels.host for one in found)
    assert states(mine.sync(start=labels("shop-1"))) == states(found), "again"
    assert states(mine.sync(stop=["shop-1"])) == {"shop-1": STOPPED, "shop-2": RUNNING}
    assert states(mine.sync(stop=["shop-1", "none"])) == {"shop-1": STOPPED, "shop-2": RUNNING}
    with pytest.raises(PlatformError, match="instance shop-2 is running"):
        mine.sync(forget=["shop-2"])
    assert states(mine.sync(forget=["shop-1"])) == {"shop-2": RUNNING}
    assert states(mine.sync(forget=["shop-1"])) == {"shop-2": RUNNING}, "again"
    assert states(driver(managers, epoch=0).sync()) == {"shop-2": RUNNING}


def test_what_others_changed_meanwhile_is_read_again(managers: Managers, server: Server) -> None:
    mine = driver(managers)
    mine.sync(start=labels("shop-1"))
    server.quicker = agent.TRIES - 1
    assert states(mine.sync(stop=["shop-1"])) == {"shop-1": STOPPED}
    assert server.quicker == 0
    mine.sync(start=labels("shop-2"))
    server.quicker = 1000
    with pytest.raises(PlatformError, match="shop-2 keeps being changed by something else"):
        mine.sync(stop=["shop-2"])


def test_an_older_lease_does_nothing(managers: Managers, server: Server) -> None:
    driver(managers, epoch=8).sync(start=labels("shop-1"))
    before = json.dumps(server.objects)
    for work in ({"start": labels("shop-2")}, {"stop": ["shop-1"]}, {}):
        with pytest.raises(LeaseLost, match=r"acted here \(epoch 8, ours is 7\)"):
            driver(managers, epoch=7).sync(**work)  # type: ignore[arg-type]
    with pytest.raises(PlatformError, match="without a lease"):
        driver(managers, epoch=0).sync(stop=["shop-1"])
    assert json.dumps(server.objects) == before


def test_of_two_leases_that_begin_at_once_the_newer_one_stays(
    managers: Managers, server: Server
) -> None:
    driver(managers, epoch=3).sync()
    server.quicker = 2
    driver(managers, epoch=8).sync()
    server.quicker = 0
    with pytest.raises(LeaseLost):
        driver(managers, epoch=7).sync()


def test_a_service_of_somebody_else_is_left_alone(managers: Managers, server: Server) -> None:
    theirs = {"Name": "shop-1", "Labels": {}, "Mode": {"Replicated": {"Replicas": 2}}}
    server._object("POST", server.objects["services"], ["create"], theirs, {})
    with pytest.raises(PlatformError, match="has a service shop-1 already, which is not an inst"):
        driver(managers).sync(start=labels("shop-1"))
    driver(managers).sync(stop=["shop-1"])
    driver(managers).sync(forget=["shop-1"])
    assert server.objects["services"]["shop-1"]["Spec"] == theirs


def test_all_instances_of_a_generation_run_the_very_same_image(
    managers: Managers, server: Server
) -> None:
    def image(name: str) -> str:
        task = server.objects["services"][name]["Spec"]["TaskTemplate"]
        return str(task["ContainerSpec"]["Image"])

    server.images["shop:1"] = "sha256:one"
    driver(managers).sync(start=labels("shop-1"))
    server.images["shop:1"] = "sha256:moved"
    driver(managers).sync(start=labels("shop-2", "shop-3"))
    assert [image(f"shop-{n}") for n in (1, 2, 3)] == ["shop:1@sha256:one"] * 3
    driver(managers).sync(start=labels("shop-4", generation=8))
    assert image("shop-4") == "shop:1@sha256:moved"
    server.images.clear()
    driver(managers).sync(start=labels("shop-5", revision="2", generation=9))
    assert image("shop-5") == "shop:2", "no registry says which"


def test_an_image_that_somebody_else_gave_an_instance_is_seen_and_told(
    managers: Managers, server: Server
) -> None:
    """As `docker service update --image` does: the labels stay those of the rollout."""
    server.images["shop:1"] = "sha256:one"
    mine = driver(managers)
    mine.sync(start=labels("shop-1", "shop-2"))
    assert {(one.labels.revision, one.labels.generation) for one in mine.sync()} == {("1", 7)}
    container = server.objects["services"]["shop-2"]["Spec"]["TaskTemplate"]["ContainerSpec"]
    container["Image"] = "shop:3@sha256:three"
    found = {one.labels.id: one.labels for one in mine.sync()}
    assert (found["shop-1"].revision, found["shop-1"].generation) == ("1", 7)
    assert (found["shop-2"].revision, found["shop-2"].generation) == ("3", 0)
    mine.sync()
    (told,) = [line for line in managers.said if "PR-255" in line]
    assert told.startswith("shop-2: somebody else has changed its image from shop:1 to shop:3")
    container["Image"] = "shop"
    assert {one.labels.revision for one in mine.sync()} == {"1", "unknown"}
    del server.objects["services"]["shop-2"]["Spec"]["Labels"]["progressive.rollout.image"]
    assert {one.labels.revision for one in mine.sync()} == {"1"}, "created by an earlier version"


@pytest.mark.parametrize("changed", [1, 3], ids=["one", "all"])
def test_instances_of_another_image_are_replaced_by_a_rollout_of_the_stable_revision(
    changed: int,
) -> None:
    world = World(most=6, fewest=0)
    shop = Service(world, replicas=3)
    shop.play(revision="2")
    for name, found in list(world.instances.items())[:changed]:
        other = replace(found.labels, revision="3", generation=0)
        world.instances[name] = replace(found, labels=other)
    shop.play(revision="2")
    assert shop.running == {"2": 3}


def test_ports_of_a_range_are_used_evenly(managers: Managers, server: Server) -> None:
    def published() -> list[int]:
        found = server.objects["services"].values()
        return sorted(one["Spec"]["EndpointSpec"]["Ports"][0]["PublishedPort"] for one in found)

    mine = driver(managers, ports="9000-9002")
    mine.sync(start=labels("shop-1", "shop-2"))
    mine.sync(start=labels("shop-3", "shop-4"))
    assert published() == [9000, 9000, 9001, 9002]
    later = driver(managers, ports="9000-9002")
    later.sync(stop=["shop-2"])
    later.sync(forget=["shop-2"])
    later.sync(start=labels("shop-5"))
    assert published() == [9000, 9000, 9001, 9002]


def test_swarms_words_are_told_once(managers: Managers, server: Server) -> None:
    server.starts = lambda spec: "preparing"
    mine = driver(managers)
    mine.sync(start=labels("shop-1"))
    server.tasks[0]["Status"] |= {"State": "pending", "Err": "no suitable\x1b[2J node"}
    mine.sync()
    mine.sync()
    assert managers.said == ["shop-1: pending: no suitable?[2J node [PR-253]"]


def test_a_move_is_told_and_the_address_follows(managers: Managers, server: Server) -> None:
    mine = driver(managers)
    (before,) = mine.sync(start=labels("shop-1"))
    server.tasks[0] |= {"DesiredState": "shutdown", "NodeID": "n1"}
    mine.sync()
    server.task(server.tasks[0]["ServiceID"], "running", NodeID="n3")
    (after,) = mine.sync()
    assert (after.labels.id, after.labels.host) == ("shop-1", "manager3")
    assert after.labels.endpoint != before.labels.endpoint
    assert (after.created > before.created, after.restarts) == (True, 0)
    assert [line for line in managers.said if "has moved it" in line]


def test_secrets_and_configs_are_passed_on_by_id(managers: Managers, server: Server) -> None:
    mine = driver(managers, secrets=["token"], configs=["conf-{revision}"], networks=["backend"])
    with pytest.raises(PlatformError, match=r"secrets: Swarm has no token.*configs:.* conf-1"):
        mine.prepare("1")
    with pytest.raises(PlatformError, match="Swarm has no secret token"):
        mine.sync(start=labels("shop-1"))
    for kind, name in (("secrets", "token"), ("configs", "conf-1")):
        server._object("POST", server.objects[kind], ["create"], {"Name": name}, {})
    mine.prepare("1")
    mine.sync(start=labels("shop-1"))
    spec = server.objects["services"]["shop-1"]["Spec"]["TaskTemplate"]["ContainerSpec"]
    assert spec["Secrets"][0]["SecretID"] == server.objects["secrets"]["token"]["ID"]
    assert spec["Configs"][0]["ConfigID"] == server.objects["configs"]["conf-1"]["ID"]
    with pytest.raises(PlatformError, match="networks: Swarm has no other"):
        driver(managers, networks=["other"]).prepare("1")


def test_secret_settings_are_kept_and_forgotten(managers: Managers, server: Server) -> None:
    mine = driver(managers, env={"TOKEN": "s3cr3t"})
    content = {"platform": {"env": {"TOKEN": "first"}}, "salt": "x"}
    key = key_of(content)
    shape = {"image": "shop:{revision}", "port": 8080}
    kept = {7: InstanceSettings("swarm", shape, {}, {}, key)}
    tell(mine, settings=kept)
    mine.keep(key, content)
    later = driver(managers)
    tell(later, settings=kept)
    assert later.recall(key) == content
    assert later.recall(key_of({"salt": "y"})) is None
    later.sync(start=labels("shop-1"))
    env = server.objects["services"]["shop-1"]["Spec"]["TaskTemplate"]["ContainerSpec"]["Env"]
    assert "TOKEN=first" in env
    other = {"salt": "z"}
    tell(later, settings={})
    later.keep(key_of(other), other)
    assert later.recall(key_of(other)) == other
    assert sorted(server.objects["configs"]) == [f"rollout-{key_of(other)}", "rollout.shop"]


def test_settings_that_were_changed_there_are_not_used(managers: Managers, server: Server) -> None:
    mine, content = driver(managers), {"platform": {}, "salt": "x"}
    mine.keep(key_of(content), content)
    kept = server.objects["configs"][f"rollout-{key_of(content)}"]["Spec"]
    kept["Data"] = base64.b64encode(b'{"platform": {"env": {"A": "evil"}}}').decode()
    assert driver(managers).recall(key_of(content)) is None


# Managers
# --------------------------------------------------------------------------------------------------


def away(why: str) -> Answer:
    return Answer({"away": why})


def test_a_manager_that_does_not_answer_is_passed_over(managers: Managers, server: Server) -> None:
    mine = driver(managers)
    managers.away["m1"] = away("The swarm does not have a leader.")
    managers.away["m2"] = Answer(error="no route", unreachable=True)
    assert states(mine.sync(start=labels("shop-1"))) == {"shop-1": RUNNING}
    managers.asked.clear()
    mine.sync()
    assert managers.asked == ["m3"], "the one that answered is asked first"
    managers.away["m3"] = away("Connection refused")
    with pytest.raises(PlatformError, match=r"m3: Connection refused; m1: .* leader.*m2: no route"):
        mine.sync()


def test_a_manager_that_hangs_is_not_asked_again_until_it_answers(
    managers: Managers, server: Server
) -> None:
    mine, late = driver(managers), [None]
    managers.away["m1"] = Answer(error="no answer", unreachable=True, later=lambda: late[0])
    for _again in range(2):
        mine.sync()
    assert managers.asked == ["m1", "m2", "m2"]
    managers.away |= {"m2": away("gone"), "m3": away("gone")}
    with pytest.raises(PlatformError, match="no answer yet"):
        mine.sync()
    assert managers.asked.count("m1") == 1
    late[0] = t.cast(None, Answer({}))
    del managers.away["m1"]
    mine.sync()
    assert managers.asked[-1] == "m1"


def test_what_swarm_refuses_is_not_asked_of_the_others(managers: Managers, server: Server) -> None:
    managers.away["m1"] = Answer({"error": "name must be valid as a DNS name component"})
    with pytest.raises(PlatformError, match="Swarm refuses it: name must be valid"):
        driver(managers).sync()
    assert managers.asked == ["m1"]


def test_the_check_tells_of_managers_that_are_away(managers: Managers, server: Server) -> None:
    managers.away["m2"] = away("Connection refused")
    driver(managers).check()
    told = "a manager of the swarm does not answer: m2: Connection refused [PR-250]"
    assert managers.said == [told]
    managers.away |= {"m1": away("gone"), "m3": away("gone")}
    with pytest.raises(InputError, match="no manager of the swarm answers"):
        driver(managers).check()


def test_hosts_that_are_no_managers_of_one_swarm_are_refused(
    managers: Managers, server: Server
) -> None:
    managers.away["m3"] = Answer({"swarm": "another one"})
    with pytest.raises(InputError, match=r"different swarms: m1, m2; m3"):
        driver(managers).check()
    managers.away["m3"] = Answer({"problems": {"hosts": "is a worker, and not a swarm manager"}})
    with pytest.raises(InputError, match="m3 is a worker, and not a swarm manager; name man"):
        driver(managers).check()


def test_an_answer_that_is_no_agents_is_that_of_a_silent_host(
    managers: Managers, server: Server
) -> None:
    managers.away["m1"] = Answer({"services": "many"})
    assert list(driver(managers).sync()) == []
    assert managers.asked == ["m1", "m2"]


def test_a_worker_and_a_lone_docker_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    for state, said in (("active", "is a worker"), ("inactive", "is in no swarm")):
        info = {"Swarm": {"ControlAvailable": False, "LocalNodeState": state}}
        monkeypatch.setattr(_http, "ask", lambda *_args, info=info: (200, info))
        answer = agent.main({"socket": "/run/docker.sock", "check": {}})
        assert said in answer["problems"]["hosts"]


def test_a_manager_that_has_forgotten_old_versions_is_asked_by_its_oldest(
    managers: Managers, server: Server
) -> None:
    server.oldest = "1.44"
    assert states(driver(managers).sync(start=labels("shop-1"))) == {"shop-1": RUNNING}
    server.oldest = "none"
    assert states(driver(managers).sync()) == {"shop-1": RUNNING}


# Registries
# --------------------------------------------------------------------------------------------------


def login(image: str) -> dict[str, str]:
    return dict(json.loads(base64.urlsafe_b64decode(agent.credentials(image))))


def test_the_login_that_docker_left_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, managers: Managers, server: Server
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with pytest.raises(agent.Refused, match="log in first"):
        agent.credentials("registry.example.com/shop:1")
    auth = base64.b64encode(b"ada:pass:word").decode()
    hub = "https://index.docker.io/v1/"
    auths = {"registry.example.com": {"auth": auth}, hub: {"auth": auth}}
    (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))
    expected = {"username": "ada", "password": "pass:word"}
    found = login("registry.example.com/shop:1")
    assert found == {**expected, "serveraddress": "registry.example.com"}
    for image in ("shop:1", "team/shop:1", "docker.io/team/shop:1"):
        assert login(image) == {**expected, "serveraddress": hub}
    with pytest.raises(agent.Refused, match="no login for other:5000"):
        agent.credentials("other:5000/shop:1")
    image = "registry.example.com/shop:{revision}"
    driver(managers, image=image, registry_auth=True).sync(start=labels("shop-1"))
    sent = [one["X-Registry-Auth"] for one in server.headers if "X-Registry-Auth" in one]
    assert len(sent) == 2, "to look the image up, and with the service"
    assert "pass:word" not in json.dumps(server.objects)
    assert "X-Registry-Auth" not in str(server.objects)


def test_a_credential_helper_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = tmp_path / "docker-credential-test"
    helper.write_text(
        '#!/bin/sh\nread r\necho \'{"Username": "\'$U\'", "Secret": "for \'$r\'"}\'\n'
    )
    helper.chmod(0o755)
    (tmp_path / "config.json").write_text('{"credHelpers": {"r:5000": "test"}, "auths": {}}')
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("U", "ada")
    assert login("r:5000/shop:1")["password"] == "for r:5000"
    monkeypatch.setenv("U", "<token>")
    assert login("r:5000/shop:1")["identitytoken"] == "for r:5000"
    helper.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(agent.Refused, match="docker-credential-test gives no login"):
        agent.credentials("r:5000/shop:1")


# The socket
# --------------------------------------------------------------------------------------------------


class Answering:
    """A socket that answers each connection with the same bytes."""

    def __init__(self, path: Path, answer: bytes) -> None:
        self.path, self.heard = str(path), b""
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(self.path)
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _from = self._socket.accept()
            self.heard = connection.recv(65536)
            connection.sendall(self._answer)
            connection.close()


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n[1, 2]\r\n", (200, [1, 2])),
        (b"HTTP/1.1 204 No Content\r\n\r\n", (204, None)),
        (
            b'HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{"me\r\n8;x\r\n'
            b'ssage":1\r\n1\r\n}\r\n0\r\n\r\n',
            (404, {"message": 1}),
        ),
    ],
)
def test_an_answer_of_the_api_is_read(answer: bytes, found: t.Any, tmp_path: Path) -> None:
    there = Answering(tmp_path / "sock", answer)
    assert _http.ask(there.path, "POST", "/x", {"a": "ä"}, [("X-A", "b")]) == found
    assert there.heard.startswith(b"POST /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n")
    assert there.heard.endswith(b'X-A: b\r\n\r\n{"a": "\\u00e4"}')
    assert b"Content-Length: 15" in there.heard


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 what\r\n\r\n{}",
    ],
)
def test_what_is_no_answer_of_the_api_is_refused(answer: bytes, tmp_path: Path) -> None:
    there = Answering(tmp_path / "sock", answer)
    with pytest.raises(OSError, match=r"."):
        _http.ask(there.path, "GET", "/x")
    assert "sock" in agent.main({"socket": there.path, "check": {}})["away"]


def test_a_manager_without_a_leader_is_away(tmp_path: Path) -> None:
    said = '{"message": "rpc error: code = Unknown desc = The swarm does not have a leader."}'
    answer = f"HTTP/1.1 500 Internal Server Error\r\n\r\n{said}".encode()
    there = Answering(tmp_path / "sock", answer)
    found = agent.main({"socket": there.path, "recall": "a"})
    assert found == {"away": "The swarm does not have a leader."}


def test_parts_of_urls_are_quoted() -> None:
    assert _http.quote('{"a": ["b=ü"]}') == "%7B%22a%22%3A%20%5B%22b%3D%C3%BC%22%5D%7D"
