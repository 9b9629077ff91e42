# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that accept a connection and then hang: real ones over SSH, whose Python waits for a
file to go away.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutError
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Process
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Labels,
    Report,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import (
    _calls,
    _hosts,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms.process import (
    OPTIONS,
    Driver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote import pool
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.transport import Transport
from ansible_collections.progressive.rollout.tests.support.connect import connect
from ansible_collections.progressive.rollout.tests.support.contexts import Knows
from ansible_collections.progressive.rollout.tests.support.sshd import Sshd
from ansible_collections.progressive.rollout.tests.support.waiting import until

PYTHON = """\
#!/bin/sh
while [ -e {home}/{host}.hangs ]; do sleep 0.05; done
exec {python} "$@"
"""


class Fleet:
    """Three hosts, of which any may hang, and a service of processes on them."""

    def __init__(self, sshd: Sshd, home: Path) -> None:
        self.home = home
        self.names = ["web1", "web2", "web3"]
        hosts = {}
        for name, address in zip(self.names, sshd.addresses, strict=True):
            python = home / f"python-{name}"
            python.write_text(PYTHON.format(home=home, host=name, python=sys.executable))
            python.chmod(0o755)
            hosts[name] = {**sshd.variables(address), "ansible_python_interpreter": str(python)}
        self.transport: Transport = connect(hosts, home / "hosts.json")
        self.said: list[str] = []
        self.transport.print_line = self.said.append
        self.context = DriverContext("shop", self.transport, known=Knows(epoch=1))
        given = {
            "hosts": "all",
            "command": ["/bin/sleep", "1000"],
            "ports": "20100-20199",
            "path": str(home / "state"),
        }
        self.driver = Driver(OPTIONS.parse(given, "rollout_platform."), self.context)

    def hang(self, host: str) -> None:
        (self.home / f"{host}.hangs").touch()

    def mend(self, host: str) -> None:
        (self.home / f"{host}.hangs").unlink()

    def labels(self, *ids: str) -> list[Labels]:
        taken = [report.labels for report in self.driver.sync()]
        places = self.driver.place(len(ids), taken, 1)
        return [
            Labels(name, "shop", "1", 1, *place) for name, place in zip(ids, places, strict=False)
        ]

    def took(self, **work: t.Any) -> tuple[float, dict[str, Process]]:
        began = time.monotonic()
        reports: list[Report] = list(self.driver.sync(**work))
        return time.monotonic() - began, {report.labels.host: report.process for report in reports}

    def processes(self, host: str) -> list[int]:
        return [
            json.loads(path.read_text())["pid"]
            for path in (self.home / "state" / host).glob("*/instances/*.json")
        ]

    def close(self) -> None:
        for host in self.names:
            (self.home / f"{host}.hangs").unlink(missing_ok=True)
            for pid in self.processes(host):
                os.killpg(pid, signal.SIGKILL)
        self.transport.close()


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    with Sshd(3) as server:
        yield server


@pytest.fixture
def fleet(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setattr(_calls, "HOST_TIMEOUT", 8.0)
    monkeypatch.setattr(pool, "NAMED_AFTER", 1.0)
    made = Fleet(sshd, tmp_path)
    yield made
    made.close()


def test_a_host_that_hangs_keeps_nobody_waiting_and_its_late_answer_is_taken(fleet: Fleet) -> None:
    fleet.driver.sync(start=fleet.labels("a", "b", "c"))
    running = dict.fromkeys(fleet.names, Process.RUNNING)
    assert fleet.took()[1] == running
    fleet.hang("web3")
    took, seen = fleet.took()
    assert took < 2 * _calls.HOST_TIMEOUT < _calls.LOOK
    assert seen == running | {"web3": Process.UNREACHABLE} and list(fleet.driver.away) == ["web3"]
    named = [
        line for line in fleet.said if re.search(r"^waiting for .*web3: no answer for 1 s", line)
    ]
    assert len(named) == 1, fleet.said
    for _turn in range(3):
        took, seen = fleet.took()
        assert took < _calls.HOST_TIMEOUT, "who is known to hang is not waited for again"
        assert seen["web3"] is Process.UNREACHABLE
    assert {place[0] for place in fleet.driver.place(4, [], 1)} == {"web1", "web2"}
    hung = fleet.driver._calls._under_way["web3"]
    fleet.mend("web3")
    until(lambda: fleet.took()[1] == running, "web3 answers")
    answer = hung.later()
    assert answer and answer.value and not fleet.driver.away


def test_a_host_that_hangs_while_it_starts_an_instance(fleet: Fleet) -> None:
    wanted = fleet.labels("a", "b", "c")
    fleet.hang("web3")
    took, seen = fleet.took(start=wanted)
    assert took < 2 * _calls.HOST_TIMEOUT
    assert seen == {"web1": Process.RUNNING, "web2": Process.RUNNING, "web3": Process.STARTING}
    assert fleet.driver.place(3, [], 2)[:2] and {
        place[0] for place in fleet.driver.place(3, [], 2)
    } == {"web1", "web2"}
    until(
        lambda: fleet.took()[1]["web3"] is Process.UNREACHABLE,
        "it is found out that it is not at work",
    )
    fleet.mend("web3")
    until(lambda: fleet.took()[1]["web3"] is Process.RUNNING, "the instance is there")
    assert len(fleet.processes("web3")) == 1


def test_a_host_that_takes_long_to_start_an_instance_is_not_given_up(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = ["/bin/sh", "-c", f"while ! [ -e {tmp_path}/go ]; do sleep 0.05; done"]
    fleet.driver._hooks["before_start"] = wait
    fleet.driver._hook_timeout = 30.0
    monkeypatch.setattr(_calls, "HOST_TIMEOUT", 1.0)
    wanted = [labels for labels in fleet.labels("a", "b", "c") if labels.host == "web3"]
    fleet.took()
    assert fleet.took(start=wanted)[1] == {"web3": Process.STARTING}
    pinged = fleet.driver._calls._under_way["web3"].pinged
    until(
        lambda: fleet.took() and fleet.driver._calls._under_way["web3"].pinged > pinged,
        "it was asked twice whether it is alive",
    )
    assert fleet.took()[1] == {"web3": Process.STARTING} and not fleet.driver.away
    (tmp_path / "go").touch()
    until(lambda: fleet.took()[1] == {"web3": Process.RUNNING}, "it runs")


def asked_to_stop(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, go: Path) -> list[str]:
    """Ask the instance on web3 to stop, which it does once there is a file; return the commands
    that hosts are given from now on.
    """
    monkeypatch.setattr(_calls, "FREE", 3)
    monkeypatch.setattr(_hosts, "UNTIL_END", 60.0)
    wait = f"while ! [ -e {go} ]; do sleep 0.05; done"
    fleet.driver._command = [
        "/bin/sh",
        "-c",
        f"trap '{wait}; exit' TERM; while :; do sleep 0.05; done",
    ]
    wanted = fleet.labels("a", "b", "c")
    fleet.driver.sync(start=wanted)
    fleet.took()
    asked: list[str] = []
    ask = fleet.transport.ask

    def counted(agent: str, requests: t.Mapping[str, t.Any], *more: t.Any) -> t.Any:
        asked.extend(requests if agent == "process" else ())
        return ask(agent, requests, *more)

    monkeypatch.setattr(fleet.transport, "ask", counted)
    name = next(labels.id for labels in wanted if labels.host == "web3")
    for _turn in range(3):
        assert fleet.took(stop=[name])[1]["web3"] is Process.STOPPING
    assert asked == ["web3"], "it has heard it"
    assert {place[0] for place in fleet.driver.place(3, [], 2)} == {"web1", "web2"}
    return asked


def test_a_host_says_by_itself_when_an_instance_has_ended(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken = threading.Event()
    fleet.transport.wake = woken.set
    asked = asked_to_stop(fleet, monkeypatch, tmp_path / "go")
    assert not fleet.driver.changed() and not woken.is_set()
    seen = {report.labels.host: report.process for report in fleet.driver.look(["web1"])}
    assert seen == dict.fromkeys(fleet.names, Process.RUNNING) | {"web3": Process.STOPPING}
    (tmp_path / "go").touch()
    assert woken.wait(60)
    until(fleet.driver.changed, "the answer has come")
    seen = {report.labels.host: report.process for report in fleet.driver.look([])}
    assert seen == dict.fromkeys(fleet.names, Process.RUNNING) | {"web3": Process.STOPPED}
    assert asked == ["web3", "web1"]
    assert not fleet.driver.changed()
    assert {place[0] for place in fleet.driver.place(3, [], 2)} == {*fleet.names}


def test_a_host_that_hangs_while_an_instance_stops_is_found_out(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_calls, "HOST_TIMEOUT", 1.0)
    asked_to_stop(fleet, monkeypatch, tmp_path / "go")
    fleet.hang("web3")
    until(lambda: fleet.took()[1]["web3"] is Process.UNREACHABLE, "it does not answer")
    fleet.mend("web3")
    (tmp_path / "go").touch()
    until(lambda: fleet.took()[1]["web3"] is Process.STOPPED, "it answers")


def test_a_host_that_never_answered_is_named(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_calls, "LOOK", 2.0)
    fleet.hang("web2")
    with pytest.raises(RolloutError, match=r"^cannot know what runs on web2: no answer in 2 s; "):
        fleet.driver.sync()
