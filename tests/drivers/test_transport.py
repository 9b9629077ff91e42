# SPDX-License-Identifier: GPL-3.0-or-later
"""The transport against real processes, a real sshd and a real sudo."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import typing as t
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import TransportError
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Process
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import Labels
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import process
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote import transport as module
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.agents import Answer
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import (
    CONTROLLER,
    Command,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.transport import Transport
from ansible_collections.progressive.rollout.tests.support.connect import Hosts
from ansible_collections.progressive.rollout.tests.support.connect import connect as connect_to
from ansible_collections.progressive.rollout.tests.support.contexts import Knows
from ansible_collections.progressive.rollout.tests.support.ports import free_port
from ansible_collections.progressive.rollout.tests.support.sshd import Sshd
from ansible_collections.progressive.rollout.tests.support.waiting import PATIENCE, until

LOCAL = {"ansible_connection": "local"}
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="becoming another user without a password needs root"
)


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    with Sshd(4) as server:
        yield server


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[..., Transport]]:
    """A transport over an inventory of these hosts."""
    made: list[Transport] = []

    def one(hosts: Hosts, **options: t.Any) -> Transport:
        made.append(connect_to(hosts, tmp_path / f"{len(made)}.json", **options))
        return made[-1]

    yield one
    for transport in made:
        transport.close()


def every(hosts: Iterable[str], *argv: str, stdin: bytes = b"") -> dict[str, Command]:
    return {host: Command(argv, stdin) for host in hosts}


def fleet(sshd: Sshd) -> dict[str, dict[str, t.Any]]:
    return {f"s{number}": sshd.variables(address) for number, address in enumerate(sshd.addresses)}


def test_patterns_give_hosts_in_inventory_order(connect: Callable[..., Transport]) -> None:
    transport = connect({"z1": {}, "a2": {}, "m3": {}, "b4": {}})
    assert transport.hosts("all") == ["z1", "a2", "m3", "b4"]
    assert transport.hosts("b4:z1") == ["z1", "b4"]
    assert transport.hosts("all:!odd") == ["z1", "m3"]
    assert transport.hosts("localhost") == ["localhost"]
    assert transport.hosts("nowhere") == transport.hosts("") == []
    assert {type(name) for name in transport.hosts("all")} == {str}


def test_addresses(connect: Callable[..., Transport]) -> None:
    transport = connect(
        {
            "named": {"ansible_host": "localhost"},
            "ip": {"ansible_host": "10.1.2.3"},
            "local": LOCAL,
            "local_ip": {**LOCAL, "ansible_host": "127.0.0.9"},
            "127.0.0.8": {},
            "templated": {"ansible_host": "{{ hostvars['ip'].ansible_host }}"},
            "lost": {"ansible_host": "no-such-name.invalid"},
        }
    )
    found = {host: transport.address(host) for host in transport.hosts("all:!lost")}
    assert found.pop("named") in ("127.0.0.1", "::1")
    assert found == {
        "ip": "10.1.2.3",
        "local": "127.0.0.1",
        "local_ip": "127.0.0.9",
        "127.0.0.8": "127.0.0.8",
        "templated": "10.1.2.3",
    }
    assert transport.address("templated").__class__ is str
    with pytest.raises(
        TransportError,
        match=r"^lost: 'no-such-name.invalid' does not resolve .*; set ansible_host of lost to",
    ):
        transport.address("lost")
    with pytest.raises(TransportError, match=r"^stranger: there is no such host"):
        transport.address("stranger")


def test_every_host_is_in_the_answer_reachable_or_not(
    connect: Callable[..., Transport], sshd: Sshd
) -> None:
    dead = {**sshd.variables("127.0.0.1"), "ansible_port": free_port()}
    refused = {**sshd.variables(sshd.addresses[0]), "ansible_user": "nobody-of-that-name"}
    transport = connect({"dead": dead, **fleet(sshd), "refused": refused, "l1": LOCAL, "l2": LOCAL})
    asked = [*transport.hosts("all"), CONTROLLER, "stranger", "localhost"]
    answers = transport.ask("ping", {host: {} for host in asked}, timeout=20)
    assert list(answers) == asked
    assert [host for host in asked if answers[host].unreachable] == ["dead", "refused", "stranger"]
    assert "Connection refused" in answers["dead"].error
    assert "Permission denied" in answers["refused"].error
    assert {answers[host].value["uid"] for host in asked if answers[host].value} == {os.geteuid()}  # type: ignore[index]
    assert answers["l1"].value["python"] == "{}.{}.{}".format(*sys.version_info[:3])  # type: ignore[index]
    results = transport.run(every(asked, "true"), timeout=20)
    assert [host for host in asked if results[host].unreachable] == ["dead", "refused", "stranger"]
    assert {results[host].rc for host in ("dead", "refused", "stranger")} == {-1}


def test_commands_arrive_as_they_are_and_failed_is_not_unreachable(
    connect: Callable[..., Transport], sshd: Sshd
) -> None:
    hosts = {**fleet(sshd), "l1": LOCAL}
    transport = connect(hosts)
    words = ["a b", "$HOME", "it's", '"', "*", "", ";"]
    code = (
        "import sys; print(sys.argv[1:], sys.stdin.read()); print('why', file=sys.stderr);"
        " sys.exit(3)"
    )
    for result in transport.run(
        every(hosts, "python3", "-c", code, *words, stdin=b"in\xc3\xa9"), timeout=20
    ).values():
        assert (result.rc, result.stdout, result.stderr.strip(), result.unreachable) == (
            3,
            f"{words} iné\n",
            "why",
            "",
        )
    # nothing to read is the end of the input
    for result in transport.run(every(hosts, "cat"), timeout=20).values():
        assert (result.rc, result.stdout) == (0, "")


def test_all_hosts_at_the_same_time_within_forks(
    connect: Callable[..., Transport], tmp_path: Path
) -> None:
    hosts = {f"l{number}": LOCAL for number in range(5)}
    together = (
        f'touch {tmp_path}/$$.up; until [ "$(ls {tmp_path} | grep -c up$)" -ge 5 ]; do sleep 0.02;'
        " done"
    )
    results = connect(hosts).run(every(hosts, "sh", "-c", together), timeout=20)
    assert [result.rc for result in results.values()] == [0] * 5
    log = tmp_path / "log"
    step = f"echo +1 >>{log}; sleep 0.2; echo -1 >>{log}"
    connect(hosts, forks=2).run(every(hosts, "sh", "-c", step), timeout=20)
    steps = [int(line) for line in log.read_text().split()]
    assert len(steps) == 10
    assert max(sum(steps[:end]) for end in range(11)) == 2


@needs_root
def test_a_look_at_all_instances_is_one_command_on_each_host(
    connect: Callable[..., Transport], sshd: Sshd, tmp_path: Path
) -> None:
    options = {
        "hosts": "all",
        "command": ["/bin/sleep", "1000"],
        "ports": "8100-8199",
        "path": str(tmp_path / "state"),
    }
    driver = process.Driver(
        process.OPTIONS.parse(options, "rollout_platform."),
        DriverContext("shop", connect(fleet(sshd)), known=Knows(epoch=1)),
    )
    places = enumerate(driver.place(20, (), 1))
    started = [
        Labels(f"shop-{n}", "shop", "1", 1, host, endpoint, slot)
        for n, (host, endpoint, slot) in places
    ]
    ids = [labels.id for labels in started]
    try:
        driver.sync(start=started)
        before = sshd.commands()
        reports = driver.sync()
        assert sshd.commands() - before == len(sshd.addresses)
        assert sorted(
            report.labels.id for report in reports if report.process is Process.RUNNING
        ) == sorted(ids)
    finally:
        driver.sync(stop=ids)
        until(
            lambda: all(report.process is Process.STOPPED for report in driver.sync(stop=ids)),
            "all have ended",
            20,
        )


def test_become(connect: Callable[..., Transport], sshd: Sshd) -> None:
    become = {
        "ansible_become": True,
        "ansible_become_method": "sudo",
        "ansible_become_user": "nobody",
    }
    python = {"ansible_python_interpreter": "/usr/bin/python3"}  # one that nobody may read
    hosts = {
        "s": {**sshd.variables(sshd.addresses[0]), **become, **python},
        "l": {**LOCAL, **become, **python},
    }
    transport = connect(hosts)
    assert [
        result.stdout for result in transport.run(every(hosts, "id", "-un"), timeout=20).values()
    ] == ["nobody\n"] * 2
    answers = transport.ask("ping", {host: {} for host in hosts}, timeout=20)
    assert [answer.value and answer.value["user"] for answer in answers.values()] == ["nobody"] * 2
    plain = {name: {**LOCAL, **python} for name in ("l1", "l2")}
    keywords = {"become": True, "become_method": "sudo", "become_user": "nobody"}
    results = connect({**plain, "no": {**LOCAL, "ansible_become": False}}, keywords=keywords).run(
        every([*plain, "no"], "id", "-u"), 20
    )
    assert [result.stdout == "0\n" for result in results.values()] == [False, False, True]


@needs_root
def test_a_wrong_become_password_ends(connect: Callable[..., Transport], sshd: Sshd) -> None:
    wrong = {
        "ansible_become": True,
        "ansible_become_password": "hunter2-wrong",
        "ansible_become_exe": "sudo -n -u nobody sudo",
    }
    hosts = {"s": {**sshd.variables(sshd.addresses[0]), **wrong}, "l": {**LOCAL, **wrong}}
    for answer in connect(hosts).ask("ping", {host: {} for host in hosts}, timeout=30).values():
        assert answer.unreachable
        assert "password" in answer.error and answer.error.endswith(
            "; check ansible_become_password"
        )
        assert "no answer" not in answer.error and "hunter2" not in answer.error


def running(word: str) -> list[int]:
    """The processes with this word among their arguments."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word in entry.read_text(errors="replace").split("\0"):
                pids.append(int(entry.parent.name))
        except OSError:
            continue
    return pids


def test_a_slow_host_does_not_hold_up_the_others(
    connect: Callable[..., Transport], sshd: Sshd, tmp_path: Path
) -> None:
    hosts = {**fleet(sshd), "l1": LOCAL, "l2": LOCAL}
    transport = connect(hosts)
    transport.run(every(hosts, "true"), timeout=20)
    commands = every(hosts, "echo", "here") | every(
        ["s0", "l1"], "sleep", word := f"{os.getpid()}.5"
    )
    results = transport.run(commands, timeout=5)
    assert {host: result.unreachable or result.stdout for host, result in results.items()} == {
        host: "no answer in 5 s" if host in ("s0", "l1") else "here\n" for host in hosts
    }
    # what is left may be the sleep behind sshd, which is not our child
    until(lambda: len(running(word)) <= 1, "what took too long is ended")
    for pid in running(word):
        os.kill(pid, 9)
    assert {
        result.stdout
        for result in transport.run(every(hosts, "echo", "again"), timeout=20).values()
    } == {"again\n"}


def test_a_connection_that_ended_between_two_commands(
    connect: Callable[..., Transport], sshd: Sshd
) -> None:
    hosts = fleet(sshd)
    transport = connect(hosts)
    assert {result.rc for result in transport.run(every(hosts, "true"), timeout=20).values()} == {0}
    masters = sshd.masters()
    assert len(masters) >= len(hosts)
    for pid in masters:
        with contextlib.suppress(ProcessLookupError):  # of an earlier test: it may end now
            os.kill(pid, 9)
    until(lambda: not sshd.masters(), "the connections ended")
    assert {result.rc for result in transport.run(every(hosts, "true"), timeout=20).values()} == {0}


class Wire:
    """A TCP forwarder that ends the first `drop` connections at once, and the others when told
    to.
    """

    def __init__(self, target: tuple[str, int], drop: int) -> None:
        self.target, self.drop, self.count = target, drop, 0
        self.silent = False  # whether nothing comes through, as to a host that was switched off
        self.ends: list[socket.socket] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _peer = self.listener.accept()
            except OSError:
                return
            self.count += 1
            if self.count <= self.drop:
                client.close()
                continue
            server = socket.create_connection(self.target)
            self.ends += [client, server]
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=pair, daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                if not self.silent:
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def cut(self) -> None:
        for end in self.ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()
        self.ends.clear()

    def close(self) -> None:
        self.listener.close()
        self.cut()


@pytest.mark.parametrize(("drop", "reached"), [(0, True), (1, True), (9, False)])
def test_a_refused_connection_is_tried_once_more(
    connect: Callable[..., Transport], sshd: Sshd, drop: int, reached: bool
) -> None:
    wire = Wire((sshd.addresses[0], sshd.port), drop)
    result = connect({"s": sshd.variables("127.0.0.1", wire.port)}).run(
        every(["s"], "echo", "here"), timeout=20
    )["s"]
    wire.close()
    assert (result.stdout, bool(result.unreachable)) == (
        ("here\n", False) if reached else ("", True)
    )
    assert wire.count == min(drop + 1, 2)


def test_a_command_that_may_have_run_is_not_repeated(
    connect: Callable[..., Transport], sshd: Sshd, tmp_path: Path
) -> None:
    wire = Wire((sshd.addresses[0], sshd.port), 0)
    log = tmp_path / "log"

    def cut_when_running() -> None:
        while not log.exists():
            time.sleep(0.01)
        wire.cut()

    threading.Thread(target=cut_when_running, daemon=True).start()
    transport = connect({"s": sshd.variables("127.0.0.1", wire.port)})
    result = transport.run(
        every(["s"], "sh", "-c", f"echo ran >>{log}; sleep 3; exit 0"), timeout=20
    )["s"]
    wire.close()
    assert (result.rc, log.read_text(), wire.count) == (-1, "ran\n", 1)
    assert result.unreachable and "no answer" not in result.unreachable


@pytest.mark.parametrize(
    ("own", "patience", "why"),
    [("", 20, "timed out"), (" -o ServerAliveInterval=0", 1, "no answer in 1 s")],
)
def test_a_host_that_was_switched_off_is_noticed_and_connected_to_anew(
    connect: Callable[..., Transport], sshd: Sshd, own: str, patience: float, why: str
) -> None:
    """Nobody tells ssh, which keeps the connection. The user may have switched off its way to
    find out.
    """
    wire = Wire((sshd.addresses[0], sshd.port), 0)
    variables = sshd.variables("127.0.0.1", wire.port)
    variables |= {
        "ansible_ssh_timeout": 1,
        "ansible_ssh_common_args": variables["ansible_ssh_common_args"] + own,
    }
    transport = connect({"s": variables})
    assert transport.run(every(["s"], "echo", "here"), timeout=20)["s"].stdout == "here\n"
    wire.silent = True
    assert why in transport.run(every(["s"], "echo", "here"), timeout=patience)["s"].unreachable
    wire.silent = False
    assert transport.run(every(["s"], "echo", "here"), timeout=20)["s"].stdout == "here\n"
    wire.close()
    assert wire.count > 1


AGENT = '''
"""Does what it is told, é."""
import os, sys, time
def main(request):
    print("noise from the agent")
    do = request["do"]
    if do == "raise":
        raise ValueError("bad\\nthing")
    if do == "exit":
        sys.exit(4)
    if do == "die":
        os.kill(os.getpid(), 9)
    if do == "sleep":
        time.sleep(60)
    if do == "daemon":
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
    with open("/proc/%d/cmdline" % os.getppid()) as stream:
        return {"argv": stream.read().split("\\x00"), "echo": request["data"]}
'''
DATA = {
    "text": "é\n\"'\\ \ud800",
    "number": -1.5e300,
    "list": [1, None, True, {"": []}],
    "secret": "s3cret-word",
}


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An agent of another collection."""
    folder = (
        tmp_path
        / "ansible_collections"
        / "acme"
        / f"t{time.monotonic_ns()}"
        / "plugins"
        / "plugin_utils"
        / "agents"
    )
    folder.mkdir(parents=True)
    (folder / "odd.py").write_text(AGENT, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return f"acme.{folder.parts[-4]}.odd"


def test_agents_whatever_they_do(connect: Callable[..., Transport], sshd: Sshd, odd: str) -> None:
    kinds = {"s": sshd.variables(sshd.addresses[0]), "l": LOCAL}
    expected = {
        "raise": Answer(error="ValueError: bad thing"),
        "exit": Answer(error="SystemExit: 4"),
        "die": Answer(error="the agent was ended by signal 9"),
        "sleep": Answer(error="no answer in 1 s", unreachable=True),
    }
    dos = [*expected, "daemon", "answer"]
    hosts = {f"{kind}_{do}": variables for kind, variables in kinds.items() for do in dos}
    transport = connect(hosts)
    requests = {host: {"do": host[2:], "data": DATA} for host in hosts}
    asleep = {host: requests.pop(host) for host in list(requests) if host.endswith("_sleep")}
    answers = transport.ask(odd, requests, timeout=PATIENCE)
    answers |= transport.ask(odd, asleep, timeout=1)
    assert {host: answer for host, answer in answers.items() if answer.error} == {
        f"{kind}_{do}": answer for kind in kinds for do, answer in expected.items()
    }
    for host in [f"{kind}_{do}" for kind in kinds for do in ("daemon", "answer")]:
        value = answers[host].value
        assert value is not None
        assert value["echo"] == DATA
        assert value["argv"][1:] == ["-I", "-S", "-", ""]  # no word of the request


def test_agents_on_the_controller_and_with_ansibles_own_types(
    connect: Callable[..., Transport], odd: str
) -> None:
    transport = connect({"l": {**LOCAL, "data": {"a": "{{ 1 + 1 }}", "b": ["x"]}}})
    tagged = transport._connections._vars["hostvars"]["l"]["data"]
    answers = transport.ask(
        odd, {host: {"do": "", "data": tagged} for host in ("l", CONTROLLER)}, timeout=20
    )
    for answer in answers.values():
        assert answer.value is not None, answer.error
        assert answer.value["echo"] == {"a": 2, "b": ["x"]}
        assert answer.value["echo"]["b"][0].__class__ is str
    assert transport.ask(odd, {CONTROLLER: {"do": "raise"}}, timeout=20) == {
        CONTROLLER: Answer(error="ValueError: bad thing")
    }


def test_a_login_that_talks(connect: Callable[..., Transport], sshd: Sshd, tmp_path: Path) -> None:
    talks = tmp_path / "python"
    talks.write_text(
        f'#!/bin/sh\necho "Welcome {{}}"\nprintf "[1, 2"\n{sys.executable} "$@"\necho bye\n'
    )
    talks.chmod(0o755)
    hosts = {"s": sshd.variables(sshd.addresses[0]), "l": LOCAL}
    hosts = {
        host: {**variables, "ansible_python_interpreter": str(talks)}
        for host, variables in hosts.items()
    }
    answers = connect(hosts).ask("ping", {host: {} for host in hosts}, timeout=20)
    assert [answer.error for answer in answers.values()] == ["", ""]
    assert all(answer.value and answer.value["uid"] == os.geteuid() for answer in answers.values())


def test_a_missing_python_is_named(connect: Callable[..., Transport], sshd: Sshd) -> None:
    hosts = {
        "s": {**sshd.variables(sshd.addresses[0]), "ansible_python_interpreter": "/opt/python9"}
    }
    hosts["ok"] = {**LOCAL, "ansible_python_interpreter": "auto_silent"}
    answers = connect(hosts).ask("ping", {host: {} for host in hosts}, timeout=20)
    assert answers["ok"].value
    assert answers["s"].error.startswith(
        "s: ansible_python_interpreter '/opt/python9' cannot run the agents (rc 127: "
    )


def test_a_variable_that_cannot_be_read_is_of_its_host_alone(
    connect: Callable[..., Transport],
) -> None:
    hosts = {"u": {**LOCAL, "ansible_host": "{{ not_defined }}"}, "ok": LOCAL}
    results = connect(hosts).run(every(hosts, "true"), timeout=20)
    assert results["ok"].rc == 0
    assert results["u"].unreachable.startswith("u: ") and "not_defined" in results["u"].unreachable


ACTION = """
from ansible.plugins.action import ActionBase
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import Command
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.transport import Transport

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        transport = Transport.from_action(self, task_vars)
        answers = transport.ask("ping", {host: {} for host in transport.hosts("web")}, timeout=20)
        result["addresses"] = {host: transport.address(host) for host in answers}
        result["answers"] = {host: answer.value or answer.error for host, answer in answers.items()}
        wrong = {host: Command(["true"]) for host in transport.hosts("wrong")}
        result["wrong"] = {host: one.unreachable for host, one in transport.run(wrong, timeout=20).items()}
        transport.close()
        return result
"""


def test_inside_an_action_plugin(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "action_plugins").mkdir()
    (tmp_path / "action_plugins" / "look.py").write_text(ACTION)
    web = {
        **{f"{host}": variables for host, variables in fleet(sshd).items()},
        "l": {"ansible_connection": "local"},
    }
    wrong: Hosts = {
        "c": {"ansible_connection": "pigeon"},
        "b": {**LOCAL, "ansible_become": True, "ansible_become_method": "prayer"},
    }
    (tmp_path / "hosts.json").write_text(
        json.dumps({"web": {"hosts": web}, "wrong": {"hosts": wrong}})
    )
    copy = {"content": "{{ seen | to_json }}", "dest": str(tmp_path / "seen.json")}
    tasks = [{"look": {}, "register": "seen"}, {"ansible.builtin.copy": copy}]
    (tmp_path / "play.json").write_text(
        json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}])
    )
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
        "ANSIBLE_COLLECTIONS_PATH": str(Path(module.__file__ or "").parents[6]),
        "ANSIBLE_LOCAL_TEMP": str(tmp_path / "tmp"),
    }
    program = Path(sys.executable).with_name("ansible-playbook")
    run = subprocess.run(
        [program, "-i", "hosts.json", "play.json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert list(seen["answers"]) == list(web)
    assert not [answer for answer in seen["answers"].values() if isinstance(answer, str)]
    assert [answer["uid"] for answer in seen["answers"].values()] == [os.geteuid()] * len(web), seen
    assert seen["addresses"] == {
        **{f"s{number}": address for number, address in enumerate(sshd.addresses)},
        "l": "127.0.0.1",
    }
    assert seen["wrong"] == {
        "c": "c: there is no connection plugin 'pigeon'; check ansible_connection",
        "b": "b: there is no become plugin 'prayer'; check ansible_become_method",
    }
