# SPDX-License-Identifier: GPL-3.0-or-later
"""A real swarm, that of `scripts/swarm up 3`, looked at through its own API and not by the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents.swarm import OURS, Api
from ansible_collections.progressive.rollout.tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
NUMBER = int(os.environ.get("SWARM", "0"))
HOME = ROOT / ".cache/swarm" / str(NUMBER)
MANAGERS = ("manager1", "manager2", "manager3")
IMAGE = "docker.io/local/shop:{revision}"
SOCKET = str(HOME / "{host}" / "docker.sock")
LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
INVENTORY = {"managers": {"hosts": dict.fromkeys(MANAGERS, LOCAL)}}
PLATFORM: Mapping[str, t.Any] = {
    "driver": "swarm",
    "hosts": "managers",
    "socket": SOCKET,
    "image": IMAGE,
    "port": 8080,
    "stop_timeout": "5s",
}
Object = dict[str, t.Any]


def script(*words: str) -> str:
    done = subprocess.run(
        [str(ROOT / "scripts/swarm"), *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Swarm:
    """Three managers, asked through one that lives."""

    def __init__(self) -> None:
        self.dead: set[str] = set()

    @property
    def api(self) -> Api:
        host = next(host for host in MANAGERS if host not in self.dead)
        return Api(SOCKET.replace("{host}", host))

    def services(self, service: str = "shop") -> list[Object]:
        found: list[Object] = self.api.get("/services", label=[f"{OURS}service={service}"])
        return found

    def tasks(self, service: str = "shop") -> list[Object]:
        """The tasks that run and are to run."""
        found = self.api.get("/tasks", label=[f"{OURS}service={service}"])
        return [
            one
            for one in found
            if (one["Status"]["State"], one["DesiredState"]) == ("running", "running")
        ]

    def running(self, service: str = "shop") -> dict[str, int]:
        """How many tasks of each revision run."""
        images = [one["Spec"]["ContainerSpec"]["Image"] for one in self.tasks(service)]
        return dict(Counter(image.rpartition(":")[2] for image in images))

    def nodes(self) -> dict[str, Object]:
        return {one["Description"]["Hostname"]: one for one in self.api.get("/nodes")}

    def availability(self, name: str, wanted: str) -> None:
        script("docker", self._alive()[-1], "node", "update", "--availability", wanted, name)

    def kill(self, host: str) -> None:
        self.dead.add(host)
        script("kill", host[-1])

    def _alive(self) -> str:
        return next(host for host in MANAGERS if host not in self.dead)

    def mend(self) -> None:
        """As it was: all managers there and active, and nothing of a rollout."""
        for host in sorted(self.dead):
            script("start", host[-1])
        self.dead.clear()
        until(
            lambda: all(one["Status"]["State"] == "ready" for one in self.nodes().values()),
            "all nodes are ready",
        )
        for name, node in self.nodes().items():
            if node["Spec"]["Availability"] != "active":
                self.availability(name, "active")
        for one in self.api.get("/services"):
            self.api.delete("services", one["ID"])
        until(lambda: not self.api.get("/tasks"), "all tasks are gone")
        for kind in ("configs", "secrets"):
            for one in self.api.get(f"/{kind}"):
                self.api.delete(kind, one["ID"])


def shown(value: t.Any) -> str:
    return json.dumps(value, indent=1)
