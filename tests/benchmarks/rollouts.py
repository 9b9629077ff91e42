# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts of the demo's service by ansible-playbook, and what they take."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import resource
import signal
import statistics
import subprocess
import sys
import time
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.forecast import ideal

ROOT = Path(__file__).resolve().parents[2]
APP = [sys.executable, "-I", "-S", str(ROOT / "playbooks/files/app.py")]
INSTANCES, SURGE, MEDIAN, SIGMA, SEED, STOP = 100, 10, 2.0, 0.3, 7, 0.3
ENV = {"START_DELAY": f"lognormal:{MEDIAN}:{SIGMA}:{SEED}", "STOP_DELAY": str(STOP)}
FIRST_PORT = 21000
LONGEST = 1200.0  # seconds for a playbook on a busy machine
APART = "the same without the hosts' own CPU, which shares the cores of this machine"
Figures = dict[str, t.Any]


@dataclass(frozen=True)
class Fleet:
    """What is rolled out, and how long its instances take."""

    instances: int
    hosts: int
    surge: int
    env: Mapping[str, str]
    first_port: int = FIRST_PORT


def inventory(folder: Path, fleet: Fleet) -> Path:
    hosts = {f"h{number:03d}": {"slot": number} for number in range(fleet.hosts)}
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    path = folder / f"{fleet.hosts}-hosts.yml"
    path.write_text(yaml.safe_dump({"fleet": {"hosts": hosts, "vars": local}}))
    return path


class Service:
    """The service `bench` of a fleet, on the platform `process` with these options."""

    def __init__(
        self,
        journal: Path,
        inventory: Path,
        fleet: Fleet,
        options: Mapping[str, t.Any],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment`: of ansible-playbook, beside this process's own."""
        self._environment = environment or {}
        variables = {
            "rollout_service": "bench",
            "rollout_replicas": fleet.instances,
            "rollout_budget": {"max_surge": fleet.surge},
            "rollout_platform": {
                "driver": "process",
                "hosts": "fleet",
                "env": dict(fleet.env),
                **options,
            },
            "rollout_health": {"http": "/healthz", "interval": "1s", "rise": 1},
            "rollout_store": {"driver": "file", "path": str(journal)},
        }
        extra = inventory.with_suffix(".vars.yml")
        extra.write_text(yaml.safe_dump(variables))
        self._inventory, self._extra = inventory, extra

    def arguments(self, revision: str, name: str = "rollout") -> list[str]:
        """Return the words after `ansible-playbook` that roll a revision out."""
        playbook = [str(ROOT / f"playbooks/{name}.yml"), "-i", str(self._inventory)]
        return [*playbook, "-e", f"@{self._extra}", "-e", f"rollout_revision={revision}"]

    def run(self, revision: str, name: str = "rollout") -> Figures:
        """Run this playbook of the collection to its end."""
        return playbook(self.arguments(revision, name), self._environment)

    def start(self, revision: str) -> subprocess.Popen[bytes]:
        """Begin to roll a revision out."""
        return subprocess.Popen(
            ["ansible-playbook", *self.arguments(revision)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self._environment},
            start_new_session=True,
        )

    def replaced(self) -> Figures:
        """Deploy the service, and measure its replacement; `again`: one more run."""
        self.run("r1")
        return {**self.run("r2"), "again": self.run("r2")}


def here(path: Path, inventory: Path, fleet: Fleet) -> Figures:
    """Measure a replacement on hosts that are this machine."""
    last = fleet.first_port + 4 * fleet.instances
    options = {"command": APP, "path": str(path), "ports": f"{fleet.first_port}-{last}"}
    try:
        figures = Service(path, inventory, fleet, options).replaced()
        return figures | took(written(path), path, fleet) | {"instances": used(_pids(path))}
    finally:
        end(_pids(path))


def _pids(path: Path) -> list[int]:
    records = path.glob("*/bench/instances/*.json")
    return [json.loads(record.read_text())["pid"] for record in records]


def used(pids: t.Iterable[int]) -> float:
    """Return the CPU seconds of these processes, as far as they live."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def written(path: Path) -> dict[str, str]:
    """Return what the platform wrote below its path on hosts that are this machine."""
    return {str(file): file.read_text() for file in path.glob("*/bench/*/*")}


def took(files: Mapping[str, str], journal: Path, fleet: Fleet) -> Figures:
    """What the platform's files (path: text) and the journal say of the times that instances
    took.
    """
    records = [json.loads(text) for path, text in files.items() if "/instances/" in path]
    logs = {Path(path).stem: text for path, text in files.items() if path.endswith(".log")}
    timeline = [
        json.loads(line)
        for line in max((journal / "journal/bench").glob("*.jsonl")).read_text().splitlines()
    ]
    order = sorted(logs, key=lambda name: int(name.rpartition("-")[2]))
    starts = [
        _said(logs[name], r"listening on \S+ after (\S+) s")
        for name in order
        if " revision r2:" in logs[name]
    ]
    stops = [
        _said(logs[name], r"stopped (\S+) s after")
        for name in order
        if " revision r1:" in logs[name]
    ]
    return {
        "ideal": ideal(starts, stops, fleet.surge),
        "drawn": ideal([draw(r["slot"]) for r in records], [STOP] * len(records), fleet.surge),
        "seen": _seen(
            timeline,
            {r["id"]: _said(logs[r["id"]], r"listening on \S+ after (\S+) s") for r in records},
        ),
    }


def _said(log: str, pattern: str) -> float:
    found = re.search(pattern, log)
    return float(found[1]) if found else 0.0


def _seen(timeline: list[dict[str, t.Any]], drawn: dict[str, float]) -> tuple[float, float]:
    """How long after an instance could have answered its readiness was seen: the median, and
    what 95 % stay below.
    """
    at: dict[str, dict[str, float]] = {}
    for event in timeline:
        if event["kind"] == "state":
            at.setdefault(event["instance"], {}).setdefault(event["state"], event["at"])
    late = sorted(
        at[name]["ready"] - at[name]["starting"] - delay
        for name, delay in drawn.items()
        if "ready" in at.get(name, {})
    )
    return statistics.median(late), late[int(0.95 * len(late))]


def draw(slot: int) -> float:
    """The start-up time the demo service draws for a slot."""
    return MEDIAN * random.Random(f"{SEED}:{slot}").lognormvariate(0, SIGMA)


def playbook(arguments: list[str], environment: Mapping[str, str] | None = None) -> Figures:
    """Run ansible-playbook: its wall time, the CPU of it and its children, its memory, the lines
    it printed.
    """
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        ["ansible-playbook", *arguments],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST,
    )
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "wall": wall,
        "cpu": cpu,
        "memory": after.ru_maxrss / 1024,
        "lines": len(done.stdout.splitlines()),
    }


def end(pids: t.Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def both(figures: Mapping[str, t.Any]) -> str:
    return f"{figures['wall']:.2f} s / {figures['cpu']:.2f} s"


def apart(figures: Figures, cpu: float) -> str:
    """Return wall time over the ideal without the time that all cores need for this CPU."""
    return f"{(figures['wall'] - cpu / (os.cpu_count() or 1)) / figures['ideal']:.3f}"
