# SPDX-License-Identifier: GPL-3.0-or-later
"""The same fleet as in local.py, on hosts of its own, over SSH."""

from __future__ import annotations

import os
import resource
import shutil
import time
import typing as t
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import process
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import Command
from ansible_collections.progressive.rollout.tests.benchmarks.history import Row
from ansible_collections.progressive.rollout.tests.benchmarks.rollouts import (
    APART,
    ENV,
    INSTANCES,
    SURGE,
    Fleet,
    Service,
    apart,
    took,
)
from ansible_collections.progressive.rollout.tests.support.connect import connect
from ansible_collections.progressive.rollout.tests.support.hosts import Hosts

HOSTS = 20  # over SSH, with INSTANCES / HOSTS on each
LOOKS = 10


# it logs every command
VERBOSE = "echo LogLevel VERBOSE >/etc/ssh/sshd_config.d/count.conf; systemctl reload ssh"


def rows(folder: Path) -> list[Row]:
    """Measure a replacement, and what a look at all hosts takes."""
    what = f"{INSTANCES} instances on {HOSTS} hosts over SSH"
    if os.geteuid() != 0 or not shutil.which("podman") or not shutil.which("mmdebstrap"):
        return [(what, "not measured", "needs root and scripts/system-packages")]
    journal, fleet = folder / "ssh", Fleet(INSTANCES, HOSTS, SURGE, ENV)
    with Hosts(*(f"web{number}" for number in range(1, HOSTS + 1))) as hosts:
        _everywhere(hosts, VERBOSE)
        known = {name: {**hosts.variables(name), "ansible_become": True} for name in hosts.names}
        inventory = folder / "hosts.yml"
        inventory.write_text(yaml.safe_dump({"fleet": {"hosts": known}}))
        options = {
            "command": ["/usr/bin/python3", "-I", "-S", "/opt/shop/app.py"],
            "ports": "8100-8199",
        }
        service = Service(journal, inventory, fleet, options)
        service.run("r1")
        before, spent = _commands(hosts), _spent(hosts)
        figures = service.run("r2")
        commands, hosts_cpu = _commands(hosts) - before, _spent(hosts) - spent
        printed = _everywhere(hosts, "grep -r ^ /var/lib/rollout/*/bench")
        files: dict[str, str] = {}
        for line in "".join(printed).splitlines():
            path, _colon, text = line.partition(":")
            files[path] = files.get(path, "") + text + "\n"
        figures |= took(files, journal, fleet)
        looks = _looks(hosts, connect(known, folder / "hosts.json"), options)
    # as many commands that do nothing, one after the other
    sshd = commands * looks["empty"].wall / HOSTS
    return [
        (f"{what}: wall time", f"{figures['wall']:.1f} s", ""),
        (
            "wall time over the ideal, Ansible's start and connecting included",
            f"{figures['wall'] / figures['ideal']:.3f}",
            "at most 1.15",
        ),
        (APART, apart(figures, hosts_cpu), "at most 1.06"),
        ("commands an instance", f"{commands / INSTANCES:.1f}", "at most 4"),
        (
            "the same number of empty commands: ssh, sshd and sudo alone, all on this machine",
            f"{sshd:.1f} s, {sshd / figures['ideal']:.3f} of the ideal",
            "",
        ),
        (
            "controller CPU an instance, ssh included",
            f"{1000 * figures['cpu'] / INSTANCES:.0f} ms",
            "at most 70 ms",
        ),
        (
            "readiness seen after, median / 95 %",
            f"{figures['seen'][0]:.2f} s / {figures['seen'][1]:.2f} s",
            "",
        ),
        (
            f"one look at {INSTANCES} instances on {HOSTS} hosts",
            f"{looks['look'].wall:.2f} s",
            "",
        ),
        ("as many commands that do nothing", f"{looks['empty'].wall:.2f} s", ""),
        ("commands that each host's sshd ran for it", f"{looks['look'].commands:.2f}", "1"),
        *(
            (
                f"CPU of a command {what}: on the host / here",
                f"{1000 * looks[name].there:.1f} ms / {1000 * looks[name].here:.1f} ms",
                "",
            )
            for name, what in (("look", "that looks"), ("empty", "that does nothing"))
        ),
    ]


@dataclass(frozen=True)
class Look:
    """What asking every host once takes, in seconds; CPU and commands of each host."""

    wall: float
    there: float
    here: float
    commands: float


def _looks(hosts: Hosts, transport: t.Any, options: Mapping[str, t.Any]) -> dict[str, Look]:
    """What one look at the fleet takes, and the same where the commands do nothing."""
    driver = process.Driver(
        process.OPTIONS.parse({**options, "hosts": "all"}, "rollout_platform."),
        DriverContext("bench", transport),
    )
    empty = dict.fromkeys(hosts.names, Command(["true"]))
    try:
        assert len(driver.sync()) == INSTANCES  # connects
        return {
            "look": _repeated(hosts, driver.sync),
            "empty": _repeated(hosts, lambda: transport.run(empty, 20)),
        }
    finally:
        transport.close()


def _repeated(hosts: Hosts, ask: t.Callable[[], object]) -> Look:
    """What this call, which asks every host once, takes on average."""
    before = _commands(hosts), _spent(hosts), _cpu(), time.monotonic()
    for _look in range(LOOKS):
        ask()
    after = time.monotonic(), _cpu(), _spent(hosts), _commands(hosts)
    commands, there, here, wall = (
        (late - early) / LOOKS for early, late in zip(before, reversed(after), strict=True)
    )
    count = len(hosts.names)
    return Look(wall, there / count, here / count, commands / count)


def _cpu() -> float:
    """The CPU seconds of this process and the programs it ran."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _spent(hosts: Hosts) -> float:
    """The CPU seconds of all processes of the hosts, those that ended included."""
    lines = "".join(_everywhere(hosts, "cat /proc/[0-9]*/stat 2>/dev/null || true")).splitlines()
    ticks = sum(sum(map(int, line.rpartition(")")[2].split()[11:15])) for line in lines)
    return ticks / os.sysconf("SC_CLK_TCK")


def _commands(hosts: Hosts) -> int:
    return sum(
        map(
            int,
            _everywhere(
                hosts,
                "journalctl --sync; journalctl --identifier=sshd | grep -c 'Starting session:"
                " command'",
            ),
        )
    )


def _everywhere(hosts: Hosts, script: str) -> list[str]:
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda name: hosts.run(name, "/bin/sh", "-c", script), hosts.names))
