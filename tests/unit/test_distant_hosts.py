# SPDX-License-Identifier: GPL-3.0-or-later
"""The distant hosts of the benchmarks: what they were asked, what it cost, and that nothing of it
stays.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from ansible.plugins.loader import connection_loader
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import Command
from ansible_collections.progressive.rollout.tests.support.connect import connect
from ansible_collections.progressive.rollout.tests.support.distant import PLUGINS, DistantHosts
from ansible_collections.progressive.rollout.tests.support.waiting import until

# ends when it has needed 0.2 s of CPU
BUSY = f"{sys.executable} -I -S -c 'import time\nwhile time.process_time() < 0.2: pass'"


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Iterator[DistantHosts]:
    connection_loader.add_directory(str(PLUGINS))
    with DistantHosts(2, delay=0.0) as hosts:
        for name, value in hosts.environment.items():
            monkeypatch.setenv(name, value)
        yield hosts


def run(hosts: DistantHosts, folder: Path, script: str) -> Mapping[str, str]:
    """What a script prints on each host."""
    transport = connect(hosts.variables, folder / "hosts.json")
    results = transport.run(dict.fromkeys(hosts.names, Command(["/bin/sh", "-c", script])), 60)
    assert all(result.rc == 3 for result in results.values()), results
    return {name: result.stdout for name, result in results.items()}


def test_each_command_is_run_and_counted(hosts: DistantHosts, tmp_path: Path) -> None:
    assert run(hosts, tmp_path, "echo said; exit 3") == dict.fromkeys(hosts.names, "said\n")
    assert hosts.commands == 2


def test_agents_answer(hosts: DistantHosts, tmp_path: Path) -> None:
    transport = connect(hosts.variables, tmp_path / "hosts.json")
    for _again in range(2):  # the second time as code that this Python has compiled
        answers = transport.ask("ping", {name: {} for name in hosts.names}, 60)
        assert not [answer.error for answer in answers.values() if answer.error]
    assert hosts.commands == 4


@pytest.mark.slow
def test_the_cpu_of_what_a_command_leaves_behind_is_the_hosts(
    hosts: DistantHosts, tmp_path: Path
) -> None:
    before = hosts.cpu
    run(hosts, tmp_path, f"{BUSY} >/dev/null 2>&1 & exit 3")
    until(lambda: hosts.cpu - before > 0.4, "its CPU is counted")


@pytest.mark.slow
def test_nothing_outlives_the_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection_loader.add_directory(str(PLUGINS))
    with DistantHosts(1, delay=0.0) as hosts:
        for name, value in hosts.environment.items():
            monkeypatch.setenv(name, value)
        said = run(hosts, tmp_path, "sleep 1000 >/dev/null 2>&1 & echo $!; exit 3")
    process = Path("/proc", said[hosts.names[0]].strip())
    until(lambda: not process.exists(), "the instance has ended")
