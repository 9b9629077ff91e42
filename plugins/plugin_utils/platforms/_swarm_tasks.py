# SPDX-License-Identifier: GPL-3.0-or-later
"""What the services of a Swarm and their tasks say of instances. Pure.

The states of a task: https://docs.docker.com/engine/swarm/how-swarm-mode-works/swarm-task-states/
"""

from __future__ import annotations

import calendar
import re
import time
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address

from ..base.text import clean
from ..engine.model import UNKNOWN, Process
from ..interfaces.platform import NOWHERE, Endpoint, Labels, Report

ENDED = ("complete", "shutdown", "failed", "rejected", "remove", "orphaned")
BY_ITSELF = ("complete", "failed", "rejected")  # not because Swarm ended it
KEPT = ("running", "ready", "accepted")  # desired states of a task that is to run


class Task(t.TypedDict):
    """A task as the agent shows it; times as the API writes them."""

    id: str
    created: str
    at: str  # since when its state is as it is
    state: str
    desired: str
    why: str
    node: str
    ports: dict[str, int]  # published, by port of the container


class Service(t.TypedDict):
    """A service with its tasks, those that ended too as far as Swarm keeps them."""

    name: str
    created: str
    labels: dict[str, str]
    image: str  # that its tasks are started with
    replicas: int
    restart: str
    tasks: list[Task]


class Node(t.TypedDict):
    """A node of the swarm."""

    name: str
    address: str
    state: str


class Seen(t.TypedDict):
    """The services of a rollout's service, the nodes by id, and the time it is there."""

    services: list[Service]
    nodes: dict[str, Node]
    now: float


def seconds(stamp: str) -> float:
    """Return a time of the API in seconds since the epoch; 0 if it is none."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?Z", stamp)
    try:
        whole = calendar.timegm(time.strptime(match[1], "%Y-%m-%dT%H:%M:%S")) if match else 0
    except ValueError:
        return 0.0
    return whole + float(match[2] or 0) if match else 0.0


@dataclass
class Reading:
    """Reads what managers show, the same in every iteration although their clocks may differ."""

    service: str
    _created: dict[str, float] = field(default_factory=dict)
    _restarted: dict[str, float] = field(default_factory=dict)

    def reports(self, seen: Seen, now: float) -> list[Report]:
        """Return what is to be seen of each instance, in the order of their names."""
        skew = now - seen["now"]
        return [
            self._report(service, seen["nodes"], skew)
            for service in sorted(seen["services"], key=lambda service: service["name"])
        ]

    def _report(self, service: Service, nodes: Mapping[str, Node], skew: float) -> Report:
        task = current(service)
        process = process_of(service, task, nodes)
        ends = [seconds(other["at"]) + skew for other in fallen(service)]
        # A move begins anew.
        tasks = here(service)
        moved = tasks if len(tasks) < len(service["tasks"]) else []
        begun = moved[0]["created"] if moved else service["created"]
        key = f"{service['name']} {moved[0]['id'] if moved else ''}"
        return Report(
            self._labels(service, task, nodes),
            process,
            self._created.setdefault(key, seconds(begun) + skew),
            reason(service, task, process, nodes),
            len(ends),
            self._restarted.setdefault(key, min(ends)) if ends else None,
        )

    def _labels(self, service: Service, task: Task | None, nodes: Mapping[str, Node]) -> Labels:
        """Return the labels; an instance is somewhere as long as a task of it runs."""
        labels, node = service["labels"], nodes.get(task["node"]) if task else None
        image = changed_image(service)
        generation = "" if image else labels.get("generation", "")
        revision = tag_of(image) if image else labels.get("revision")
        where = NOWHERE
        stays = not service["replicas"] or (task and task["desired"] in KEPT)
        if task and node and stays and task["state"] not in ENDED:
            where = endpoint(node["address"], task["ports"].get(labels.get("port", ""), 0))
        return Labels(
            clean(service["name"]),
            self.service,
            clean(revision or UNKNOWN),
            int(generation) if generation.isdecimal() else 0,
            clean(node["name"]) if node else "",
            where,
            0,
        )


def changed_image(service: Service) -> str:
    """Return the image that somebody else has given a service since a rollout created it, as
    `docker service update` does; "" if nobody has, or an earlier version created it.

    The digest does not count: it is that of the tag when the service was created.
    """
    ordered, image = service["labels"].get("image", ""), service["image"].partition("@")[0]
    return clean(image) if ordered and image and image != ordered.partition("@")[0] else ""


def tag_of(image: str) -> str:
    """Return the tag of an image; "" without one."""
    return image.rpartition("/")[2].partition(":")[2]


def endpoint(address: str, port: int) -> Endpoint:
    """Return where an instance listens; NOWHERE for what is no address or no port."""
    try:
        return Endpoint(str(ip_address(address)), port) if 0 < port < 65536 else NOWHERE
    except ValueError:
        return NOWHERE


def current(service: Service) -> Task | None:
    """Return the task that counts: the latest one that is to run, or else the latest one.

    While Swarm moves an instance, the task that it ends is not the instance any more.
    """
    tasks = in_order(service)
    kept = [task for task in tasks if task["desired"] in KEPT and task["state"] not in ENDED]
    living = [task for task in tasks if task["state"] not in ENDED]
    tasks_shown: Sequence[Task] = kept or (living if not service["replicas"] else []) or tasks
    return tasks_shown[-1] if tasks_shown else None


def process_of(service: Service, task: Task | None, nodes: Mapping[str, Node]) -> Process:
    """Return what an instance does."""
    node = nodes.get(task["node"]) if task else None
    down = node is not None and node["state"] == "down"
    ended = task is None or task["state"] in ENDED
    if not service["replicas"]:
        # What is on a node that is down, Swarm ends when the node is back.
        return Process.STOPPED if ended or down else Process.STOPPING
    if task is not None and ended:
        again = service["restart"] == "any" or (
            service["restart"] == "on-failure" and task["state"] != "complete"
        )
        return Process.STARTING if again else Process.FAILED
    if down:
        return Process.UNREACHABLE
    runs = task is not None and task["state"] == "running" and task["desired"] in KEPT
    return Process.RUNNING if runs else Process.STARTING


def in_order(service: Service) -> list[Task]:
    """Return the tasks, the first one first."""
    return sorted(service["tasks"], key=lambda task: seconds(task["created"]))


def here(service: Service) -> list[Task]:
    """Return the tasks since Swarm has last ended one that did not end by itself, to move it."""
    tasks, now = in_order(service), current(service)
    while tasks and any(task is not now and task["state"] not in BY_ITSELF for task in tasks):
        tasks = tasks[1:]
    return tasks


def fallen(service: Service) -> list[Task]:
    """Return the tasks that ended by themselves where the instance is."""
    return [task for task in here(service) if task["state"] in BY_ITSELF]


def reason(service: Service, task: Task | None, process: Process, nodes: Mapping[str, Node]) -> str:
    """Return why an instance does not run, in Swarm's own words."""
    if process is Process.STOPPED and task and task["state"] not in ENDED:
        return f"node {clean(nodes[task['node']]['name'])} is down; Swarm ends it when it is back"
    if process is Process.UNREACHABLE and task:
        return f"node {clean(nodes[task['node']]['name'])} is down"
    if process in (Process.STOPPED, Process.STOPPING):
        return ""
    if task and (process is Process.FAILED or (task["why"] and task["state"] != "running")):
        return _words(task)
    before = sorted(fallen(service), key=lambda other: seconds(other["at"]))
    return _words(before[-1]) if before else ""


def _words(task: Task) -> str:
    return clean(f"{task['state']}: {task['why']}" if task["why"] else task["state"])
