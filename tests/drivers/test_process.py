# SPDX-License-Identifier: GPL-3.0-or-later
"""The process platform against real processes; its agent runs as it does on hosts, from standard
input.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import typing as t
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import (
    _bootstrap,
    _files,
    _service,
    _usage,
    instance_log,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import process as agent
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    PlatformError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Process
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Labels,
    Report,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms.process import (
    OPTIONS,
    Driver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.agents import Answer
from ansible_collections.progressive.rollout.tests.drivers import platform_contract as contract
from ansible_collections.progressive.rollout.tests.support.contexts import Knows
from ansible_collections.progressive.rollout.tests.support.waiting import until

SOURCES = {
    module.__name__: Path(str(module.__file__)).read_text()
    for module in (_bootstrap, _files, _service, _usage, agent)
}
# of our own: its ports are free
ADDRESS = "127.66.{}.{}".format(*(1 + byte % 254 for byte in os.urandom(2)))
SLEEP = ["/bin/sleep", "1000"]
STUBBORN = ["/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"]


class Agents:
    """A transport whose hosts are all this machine; every question is a process of its own."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.addresses: dict[str, str] = {}  # of hosts with one of their own
        self.down: set[str] = set()
        self.said: list[str] = []
        self.print_line = self.said.append

    def hosts(self, pattern: str) -> list[str]:
        return self.names

    def address(self, host: str) -> str:
        return self.addresses.get(host, ADDRESS)

    def left_out(self, hosts: list[str]) -> list[str]:
        return []

    def is_here(self, host: str) -> bool:
        return True

    def ask(
        self,
        name: str,
        requests: Mapping[str, Mapping[str, t.Any]],
        timeout: float,
        wait_limits: Mapping[str, float] | None = None,
    ) -> dict[str, Answer]:
        if name == "instance_log":
            return {host: Answer(instance_log.main(request)) for host, request in requests.items()}
        assert name == "process"
        running = {
            host: begin(request) for host, request in requests.items() if host not in self.down
        }
        answers = {host: Answer(error="no route to host", unreachable=True) for host in self.down}
        answers.update({host: Answer(finish(process)) for host, process in running.items()})
        return answers


def begin(request: Mapping[str, t.Any], before: str = "") -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    process.stdin.write(f"import json, os, sys\nrequest = json.loads({json.dumps(request)!r})\n")
    process.stdin.write(f"agents = sys.modules[{_service.__package__!r}] = type(sys)('agents')\n")
    for name, source in SOURCES.items():
        short = name.rpartition(".")[2]
        process.stdin.write(
            f"agents.{short} = type(sys)({short!r})\nexec({source!r}, agents.{short}.__dict__)\n"
        )
    process.stdin.write(f"{before}\nprint(json.dumps(agents.process.main(request)))\n")
    process.stdin.close()
    process.stdin = None
    return process


def finish(process: subprocess.Popen[str]) -> dict[str, t.Any]:
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 0
    answer: dict[str, t.Any] = json.loads(output)
    return answer


class Bench:
    """A state directory, its hosts, and drivers that use them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.transport = Agents(["web1", "web2"])

    def driver(
        self, command: list[str], epoch: int = 1, service: str = "shop", **options: t.Any
    ) -> Driver:
        given = {
            "hosts": "shop",
            "command": command,
            "ports": "20100-20199",
            "path": str(self.path),
            **options,
        }
        return Driver(
            OPTIONS.parse(given, "rollout_platform."),
            DriverContext(service, t.cast(t.Any, self.transport), known=Knows(epoch=epoch)),
        )

    def records(self) -> list[Path]:
        return sorted(self.path.glob("*/*/instances/*.json"))

    def record(self, id: str) -> dict[str, t.Any]:
        (path,) = self.path.glob(f"*/*/instances/{id}.json")
        record: dict[str, t.Any] = json.loads(path.read_text())
        return record

    def log(self, id: str) -> str:
        (path,) = self.path.glob(f"*/*/logs/{id}.log")
        return path.read_text()


@pytest.fixture
def bench() -> Iterator[Bench]:
    path = Path(tempfile.mkdtemp(dir="/tmp"))
    bench = Bench(path)
    yield bench
    for file in bench.records():
        record = json.loads(file.read_text())
        if "ended" not in record and ticks(record["pid"]) == record["ticks"]:
            kill(record["pid"])
    shutil.rmtree(path)


class Site:
    """The hosts of a bench, as the contract wants them."""

    told = "; last log lines: no"

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def driver(self, epoch: int = 1) -> Driver:
        return self.bench.driver(SLEEP, epoch=epoch)

    def neighbour(self) -> Driver:
        return self.bench.driver(SLEEP, service="cart")

    def ending(self) -> Driver:
        return self.bench.driver(["/bin/sh", "-c", "echo no; exit 3"])

    def stubborn(self, stop_timeout: str) -> Driver:
        return self.bench.driver(STUBBORN, stop_timeout=stop_timeout)

    def up(self, report: Report) -> bool:
        return self.bench.log(report.labels.id) == "up\n"

    def logging(self) -> Driver:
        return self.bench.driver(["/bin/sh", "-c", contract.TICKS])

    def left(self) -> list[str]:
        return [path.name for path in self.bench.records()]


class TestProcess(contract.HostsContract):
    @pytest.fixture
    def site(self, bench: Bench) -> Site:
        return Site(bench)


def test_errors_are_found_in_a_log_that_is_copied_and_truncated(bench: Bench) -> None:
    turn = "trap 'echo ERROR turn' USR1; echo up; while :; do sleep 0.05; done"
    driver = bench.driver(["/bin/sh", "-c", turn])
    (report,) = contract.started(driver, contract.order(driver, 1))
    name, host = report.labels.id, report.labels.host
    log = Path(driver.log_source(name, host)["file"])
    assert driver.log_of(name, host) == f"{host}:{log}"
    mark: t.Any = None

    def found() -> int:
        nonlocal mark
        logs = {name: {"source": {"file": str(log)}, "mark": mark}}
        answer = instance_log.main({"logs": logs, "ignored": []})["logs"][name]
        mark = answer["mark"]
        return sum(one["times"] for one in answer["found"].values())

    for _turn in range(3):
        until(lambda: "up" in log.read_text() or mark is not None)
        before = log.read_text()
        os.kill(bench.record(name)["pid"], signal.SIGUSR1)
        until(lambda before=before: len(log.read_text()) > len(before))
        until(lambda: found() == 1)
        shutil.copy(log, log.with_suffix(".log.1"))
        os.truncate(log, 0)
        assert found() == 0
    contract.stopped(driver, [name])


def ticks(pid: int) -> int | None:
    """When the living process began."""
    stat = agent._stat(pid)
    return stat.ticks if stat and stat.living else None


def kill(leader: int) -> None:
    assert leader > 1, "not the process of an instance"
    os.killpg(leader, signal.SIGKILL)
    until(lambda: ticks(leader) is None)


def labels(driver: Driver, *ids: str, taken: tuple[Labels, ...] = ()) -> list[Labels]:
    return [
        Labels(id, "shop", "2.4.1", 7, host, endpoint, slot)
        for id, (host, endpoint, slot) in zip(ids, driver.place(len(ids), taken, 1), strict=True)
    ]


def by_id(reports: t.Iterable[Report]) -> dict[str, Report]:
    return {report.labels.id: report for report in reports}


def states(reports: t.Iterable[Report]) -> dict[str, Process]:
    return {report.labels.id: report.process for report in reports}


def test_an_instance_leads_a_session_and_leaves_its_log(bench: Bench) -> None:
    driver = bench.driver(SLEEP)
    driver.sync(start=labels(driver, "a"))
    pid = bench.record("a")["pid"]
    assert os.getsid(pid) == os.getpgid(pid) == pid
    until(lambda: states(driver.sync(stop=["a"])) == {"a": Process.STOPPED})
    assert ticks(pid) is None
    assert driver.sync(forget=["a"]) == []
    assert bench.log("a") == ""


def test_what_a_process_is_given(bench: Bench) -> None:
    words = [
        "{revision}",
        "{port}",
        "{service}",
        "{host}",
        "{address}",
        "{slot}",
        "{instance}",
        "a b;$(c)",
        "{{}}",
    ]
    show = (
        'printf "%s\\n" "$@" "$SERVICE $REVISION $INSTANCE $SLOT $ADDRESS $PORT $MINE" "$PWD"; exec'
        " sleep 1000"
    )
    driver = bench.driver(
        ["/bin/sh", "-c", show, "sh", *words],
        env={"MINE": "{slot}/{host}", "PORT": "1"},
        cwd=str(bench.path),
    )
    driver.sync(start=labels(driver, "a"))
    until(lambda: len(bench.log("a").splitlines()) == 11)
    assert bench.log("a").splitlines() == [
        *["2.4.1", "20100", "shop", "web1", ADDRESS, "0", "a", "a b;$(c)", "{}"],
        f"shop 2.4.1 a 0 {ADDRESS} 20100 0/web1",
        str(bench.path),
    ]


def test_one_that_ignores_the_signal_is_killed_after_the_timeout(bench: Bench) -> None:
    patient = bench.driver(STUBBORN, stop_timeout="1h")
    patient.sync(start=labels(patient, "a"))
    until(lambda: bench.log("a") == "up\n")
    assert states(patient.sync(stop=["a"])) == {"a": Process.STOPPING}
    assert states(patient.sync(stop=["a"])) == {"a": Process.STOPPING}
    assert states(patient.sync()) == {"a": Process.STOPPING}
    hasty = bench.driver(STUBBORN, stop_timeout="1ms")
    hasty.sync(start=labels(hasty, "b"))
    pid = bench.record("b")["pid"]
    until(lambda: bench.log("b") == "up\n")
    # Each has the time that it was started with, whoever stops it.
    until(
        lambda: (
            states(patient.sync(stop=["a", "b"]))
            == {
                "a": Process.STOPPING,
                "b": Process.STOPPED,
            }
        )
    )
    assert ticks(pid) is None
    assert {report.labels.id: report.detail for report in hasty.sync()}[
        "b"
    ] == "did not stop in time and was killed"


def test_the_stop_signal_is_the_one_asked_for(bench: Bench) -> None:
    command = [
        "/bin/sh",
        "-c",
        "trap 'echo bye; exit' INT; trap '' TERM; echo up; while :; do sleep 0.05; done",
    ]
    driver = bench.driver(command, stop_signal="SIGINT")
    driver.sync(start=labels(driver, "a"))
    until(lambda: bench.log("a") == "up\n")
    driver.sync(stop=["a"])
    until(lambda: states(driver.sync()) == {"a": Process.STOPPED})
    assert bench.log("a") == "up\nbye\n"


def test_an_instance_is_stopped_when_its_last_process_is_gone(bench: Bench) -> None:
    worker = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    driver = bench.driver(
        ["/bin/sh", "-c", f'sh -c "{worker}" & echo $!; wait'], stop_timeout="1ms"
    )
    driver.sync(start=labels(driver, "a"))
    until(lambda: len(bench.log("a").splitlines()) == 2)
    child = int(next(line for line in bench.log("a").splitlines() if line != "up"))
    assert states(driver.sync(stop=["a"])) == {"a": Process.STOPPING}
    assert ticks(bench.record("a")["pid"]) is None
    assert ticks(child) is not None
    until(lambda: states(driver.sync(stop=["a"])) == {"a": Process.STOPPED})
    assert ticks(child) is None


def test_forgetting_a_dead_one_ends_what_it_left_behind(bench: Bench) -> None:
    driver = bench.driver(["/bin/sh", "-c", "sleep 1000 & echo $!"])
    driver.sync(start=labels(driver, "a"))
    until(lambda: states(driver.sync()) == {"a": Process.FAILED})
    child = int(bench.log("a"))
    assert ticks(child) is not None
    assert driver.sync(forget=["a"]) == []
    until(lambda: ticks(child) is None)


def test_a_program_that_has_left_its_session_is_told(bench: Bench) -> None:
    program = (
        "import os, socket, sys, time; away = os.fork(); away or os.setsid();"
        " kept = away or socket.create_server((sys.argv[1], int(sys.argv[2])));"
        " away or print(os.getpid(), flush=True); time.sleep(1000)"
    )
    driver = bench.driver([sys.executable, "-c", program, "{address}", "{port}"])
    wanted = labels(driver, "a")
    driver.sync(start=wanted)
    until(lambda: bench.log("a").strip().isdigit())
    try:
        until(lambda: states(driver.sync(stop=["a"])) == {"a": Process.STOPPED})
        driver.sync()
        (line,) = bench.transport.said
        port = wanted[0].endpoint.port
        assert f"was stopped, and a program still listens at its port {port}; " in line
    finally:
        os.kill(int(bench.log("a")), signal.SIGKILL)


def test_one_that_died_has_failed_and_says_its_last_words(bench: Bench) -> None:
    driver = bench.driver(
        ["/bin/sh", "-c", "for i in 1 2 3 4 5 6 7; do echo line $i; done; exit 3"]
    )
    driver.sync(start=labels(driver, "a"))
    until(lambda: states(driver.sync()) == {"a": Process.FAILED})
    (report,) = driver.sync()
    assert (
        " of its start; last log lines: line 3 | line 4 | line 5 | line 6 | line 7" in report.detail
    )
    assert states(driver.sync(stop=["a"])) == {"a": Process.FAILED}


@pytest.mark.parametrize(
    ("command", "cwd", "detail"),
    [
        (
            ["/nowhere/shop"],
            "/",
            (
                "cannot run /nowhere/shop (rollout_platform.command): No such file or directory"
                " (errno 2)"
            ),
        ),
        (
            ["no-such-program"],
            "/",
            (
                "cannot run no-such-program (rollout_platform.command): No such file or directory"
                " (errno 2)"
            ),
        ),
        (
            ["/etc/passwd"],
            "/",
            "cannot run /etc/passwd (rollout_platform.command): Permission denied (errno 13)",
        ),
        (
            SLEEP,
            "/nowhere",
            "cannot enter /nowhere (rollout_platform.cwd): No such file or directory (errno 2)",
        ),
    ],
)
def test_what_cannot_be_run_has_failed(
    bench: Bench, command: list[str], cwd: str, detail: str
) -> None:
    driver = bench.driver(command, cwd=cwd)
    (report,) = driver.sync(start=labels(driver, "a"))
    assert (report.process, report.detail) == (Process.FAILED, detail)
    assert driver.sync(forget=["a"]) == []


def test_a_port_that_a_stranger_has(bench: Bench) -> None:
    driver = bench.driver(SLEEP)
    wanted = labels(driver, "a", "b", "c")
    with socket.socket() as stranger:
        stranger.bind((ADDRESS, wanted[1].endpoint.port))
        stranger.listen()
        others = {"a": Process.RUNNING, "c": Process.RUNNING}
        there = [report.labels for report in driver.sync(start=wanted)]
        assert {labels.id for labels in there} == set(others)
        (place,) = driver.place(1, there, 1)
        assert place[1].port not in [labels.endpoint.port for labels in wanted]
        places = driver.place(98, there, 1)  # as many as there are: it may be free again
        assert wanted[1].endpoint in [endpoint for _host, endpoint, _slot in places]
        reports = by_id(driver.sync(start=[wanted[1]]))
    assert states(reports.values()) == others | {"b": Process.FAILED}
    assert f"port {wanted[1].endpoint.port} " in reports["b"].detail
    assert "rollout_platform.ports" in reports["b"].detail


def test_connections_that_wind_down_do_not_take_a_port(bench: Bench) -> None:
    driver = bench.driver(SLEEP)
    wanted = labels(driver, "a")
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        listener.bind((ADDRESS, wanted[0].endpoint.port))
        listener.listen()
        with socket.create_connection(listener.getsockname()) as client:
            server = listener.accept()[0]
            server.close()  # closes first: TIME_WAIT is on this side
            assert client.recv(1) == b""
    assert states(driver.sync(start=wanted)) == {"a": Process.RUNNING}


@pytest.mark.parametrize("forged", ["pid", "ticks", "boot"])
def test_another_process_with_the_pid_is_not_taken_for_ours(bench: Bench, forged: str) -> None:
    driver = bench.driver(SLEEP)
    driver.sync(start=labels(driver, "a"))
    record = bench.record("a")
    assert record["pid"] > 1
    tick = 1 / os.sysconf("SC_CLK_TCK")
    while float(Path("/proc/uptime").read_text().split()[0]) <= record["ticks"] * tick + tick:
        # in one tick two processes could not be told apart, nor can a pid come round again
        time.sleep(tick)
    stranger = subprocess.Popen(SLEEP, start_new_session=True)
    try:
        changed = {
            "pid": {"pid": stranger.pid},
            "ticks": {"ticks": record["ticks"] - 1},
            "boot": {"boot": "another"},
        }[forged]
        (file,) = bench.records()
        file.write_text(
            json.dumps(record | changed | ({} if forged == "pid" else {"pid": stranger.pid}))
        )
        assert states(driver.sync(stop=["a"])) == {"a": Process.FAILED}
        assert states(driver.sync(stop=["a"])) == {"a": Process.FAILED}
        assert driver.sync(forget=["a"]) == []
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
        kill(record["pid"])


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ("{", "it is not a whole JSON object"),
        ("[]", "it is not a whole JSON object"),
        ("{}", "id is missing"),
        ({"pid": "7"}, "pid is wrong"),
        ({"pid": None}, "pid is missing"),
        ({"ticks": True}, "ticks is wrong"),
        ({"port": 1e300}, "port is wrong"),
        ({"uptime": float("nan")}, "uptime is wrong"),
        ({"boot": []}, "boot is wrong"),
        ({"stop_requested": "now"}, "stop_requested is wrong"),
        ({"ended": "soon"}, "ended is wrong"),
        ({"after_stop": {}}, "after_stop is wrong"),
        ({"id": "../b"}, r"it is of \.\./b"),
    ],
)
def test_a_damaged_record_is_named(bench: Bench, damage: str | dict[str, t.Any], why: str) -> None:
    driver = bench.driver(SLEEP)
    driver.sync(start=labels(driver, "a"))
    (path,) = bench.records()
    whole = json.loads(path.read_text())
    path.write_text(damage if isinstance(damage, str) else json.dumps({**whole, **damage}))
    try:
        with pytest.raises(
            PlatformError,
            match=(
                rf"web1: {path} is damaged \({why}\); end its process, if there is one, and remove"
            ),
        ):
            driver.sync()
    finally:
        path.write_text(json.dumps(whole))
    assert states(driver.sync()) == {"a": Process.RUNNING}


def test_without_a_lease_one_only_looks(bench: Bench) -> None:
    driver = bench.driver(SLEEP, epoch=0)
    assert driver.sync() == []
    assert list(bench.path.iterdir()) == []
    for work in ({"start": labels(driver, "a")}, {"stop": ["a"]}, {"forget": ["a"]}):
        with pytest.raises(PlatformError, match="without a lease"):
            driver.sync(**work)
    assert list(bench.path.iterdir()) == []


@pytest.mark.parametrize("id", ["../a", "a/b", ".a", ""])
def test_ids_that_leave_the_directory_are_refused(bench: Bench, id: str) -> None:
    driver = bench.driver(SLEEP)
    with pytest.raises(PlatformError, match="cannot be part of a file's name"):
        driver.sync(start=labels(driver, id))
    assert not bench.records()
    assert not list(bench.path.glob("web1"))


def request(bench: Bench, driver: Driver, host: str, *wanted: Labels) -> dict[str, t.Any]:
    """What the driver would send to one host."""
    asked: dict[str, t.Any] = {}
    bench.transport.ask, ask = (
        lambda _name, requests, *_: asked.update(requests) or {},
        bench.transport.ask,
    )  # type: ignore
    try:
        driver.sync(start=wanted)
    finally:
        bench.transport.ask = ask  # type: ignore[method-assign]
    return t.cast(dict[str, t.Any], asked[host])


def test_calls_at_the_same_time_start_one_process(bench: Bench) -> None:
    driver = bench.driver(["/bin/sh", "-c", "echo started; exec sleep 1000"])
    asked = request(bench, driver, "web1", *labels(driver, "a"))
    answers = [finish(process) for process in [begin(asked) for dummy in range(5)]]
    assert [[item["process"] for item in answer["instances"]] for answer in answers] == [
        ["running"]
    ] * 5
    until(lambda: bench.log("a"))
    assert bench.log("a") == "started\n"
    assert len(bench.records()) == 1


def test_the_environment_is_a_secret(bench: Bench) -> None:
    secret = "s3cret-f00d"
    driver = bench.driver(SLEEP, env={"TOKEN": secret})
    asked = request(bench, driver, "web1", *labels(driver, "a"))
    home = bench.path / "web1" / "shop"
    home.mkdir(parents=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = begin(asked)  # waits for us
        until((home / "logs").exists)
        assert secret.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert secret.encode() not in Path(f"/proc/{process.pid}/environ").read_bytes()
    finish(process)
    pid = bench.record("a")["pid"]
    assert f"TOKEN={secret}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    assert secret.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    files = [path for path in bench.path.rglob("*") if path.is_file()]
    assert len(files) == 4  # record, log, lock, epoch
    assert all(secret not in path.read_text() for path in files)


def test_a_hundred_instances_on_five_hosts(bench: Bench) -> None:
    bench.transport.names = [f"web{number}" for number in range(1, 6)]
    driver = bench.driver(SLEEP)
    ids = [f"i{number}" for number in range(100)]
    reports = driver.sync(start=labels(driver, *ids))
    assert states(reports) == dict.fromkeys(ids, Process.RUNNING)
    assert Counter(report.labels.host for report in reports) == dict.fromkeys(
        bench.transport.names, 20
    )
    assert len({bench.record(id)["pid"] for id in ids}) == 100
    assert set(states(driver.sync(stop=ids)).values()) <= {Process.STOPPING, Process.STOPPED}
    until(lambda: set(states(driver.sync(stop=ids)).values()) == {Process.STOPPED})
    assert driver.sync(forget=ids) == []
    assert bench.records() == []


def test_the_newest_twenty_logs_are_kept(bench: Bench) -> None:
    bench.transport.names = ["web1"]
    driver = bench.driver(["/nowhere"])
    logs = bench.path / "web1" / "shop" / "logs"
    ids = [f"i{number:02}" for number in range(25)]
    wanted = labels(driver, "live", *ids)
    driver.sync(start=wanted)
    for age, item in enumerate(reversed(wanted)):
        os.utime(logs / f"{item.id}.log", (1e9 - age, 1e9 - age))  # live is the oldest
    driver.sync()
    assert len(list(logs.iterdir())) == 26
    driver.sync(forget=ids)
    assert sorted(path.name for path in logs.iterdir()) == [
        *(f"{id}.log" for id in ids[5:]),
        "live.log",
    ]


def test_hosts_that_do_not_answer(bench: Bench) -> None:
    driver = bench.driver(SLEEP)
    bench.transport.down = {"web2"}
    with pytest.raises(PlatformError, match="web2: no route to host"):
        driver.sync()
    bench.transport.down = set()
    driver.sync(start=labels(driver, "a", "b"))
    taken = tuple(report.labels for report in driver.sync())
    more = labels(driver, "c", "d", taken=taken)
    bench.transport.down = {"web2"}
    reports = driver.sync(start=more)
    assert {host for host, _endpoint, _slot in driver.place(4, taken, 1)} == {"web1"}, (
        "not where nobody answers"
    )
    # b was seen there; d may have begun before the host fell silent
    expected = {
        "a": Process.RUNNING,
        "b": Process.UNREACHABLE,
        "c": Process.RUNNING,
        "d": Process.UNREACHABLE,
    }
    assert states(reports) == expected
    assert states(driver.sync()) == expected
    bench.transport.down = set()
    assert states(driver.sync()) == {
        "a": Process.RUNNING,
        "b": Process.RUNNING,
        "c": Process.RUNNING,
    }


def test_check_passes_and_touches_nothing(bench: Bench) -> None:
    bench.driver(SLEEP, path=str(bench.path / "new" / "deep")).check()
    bench.driver(["sleep", "1"]).check()
    bench.driver(["/opt/{revision}/shop"]).check()
    assert list(bench.path.iterdir()) == []


def test_check_names_what_is_wrong(bench: Bench) -> None:
    (bench.path / "file").touch()
    for command in (["/nowhere/shop"], ["no-such-program"], ["/etc/passwd"]):
        with pytest.raises(
            InputError,
            match=rf"rollout_platform.command: {command[0]} is not there .* \(on web1, web2\)",
        ):
            bench.driver(command).check()
    with pytest.raises(InputError, match=r"rollout_platform.cwd: /nowhere is not a directory"):
        bench.driver(SLEEP, cwd="/nowhere").check()
    with pytest.raises(InputError, match=r"rollout_platform.path: .*file is not a directory"):
        bench.driver(SLEEP, path=str(bench.path / "file" / "state")).check()
    bench.transport.down = {"web2"}
    with pytest.raises(PlatformError, match="web2: no route to host"):
        bench.driver(SLEEP).check()


def test_check_finds_a_directory_it_may_not_write(bench: Bench) -> None:
    bench.path.chmod(0o555)
    check = {"path": str(bench.path / "state"), "program": "", "search": "", "cwd": "/"}
    # root may write anywhere
    answer = finish(begin({"check": check}, "if os.geteuid() == 0: os.seteuid(65534)"))
    bench.path.chmod(0o700)
    assert answer["problems"].keys() == {"path"}
    assert f"{bench.path} cannot be written by the user with the id" in answer["problems"]["path"]


# between fork and exec the agent only makes system calls
@pytest.mark.filterwarnings("ignore:.*use of fork")
def masks(pid: int) -> dict[str, int]:
    """The signals a process ignores and blocks, but for 32 and 33: those are the C library's
    own, whoever asks.
    """
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return {name: int(status[name], 16) & ~(0b11 << 31) for name in ("SigIgn", "SigBlk")}


def test_in_a_process_with_threads_nothing_is_inherited(bench: Bench) -> None:
    """The agent may run inside the controller: its signals, descriptors and variables stay
    there.
    """
    driver = bench.driver(SLEEP)
    names = bench.transport.names = [f"web{number}" for number in range(1, 5)]
    driver = bench.driver(SLEEP)
    wanted = {item.host: item for item in labels(driver, "a", "b", "c", "d")}
    requests = {host: request(bench, driver, host, item) for host, item in wanted.items()}
    answers: dict[str, dict[str, t.Any]] = {}
    left, right = os.pipe()
    os.set_inheritable(right, True)
    os.environ["CONTROLLER_SECRET"] = "s3cret"
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        threads = [
            threading.Thread(
                target=lambda host=host: answers.update({host: agent.main(requests[host])})
            )
            for host in names
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        del os.environ["CONTROLLER_SECRET"]
        os.close(left)
        os.close(right)
    assert [answers[host]["instances"][0]["process"] for host in names] == ["running"] * 4
    for item in wanted.values():
        pid = bench.record(item.id)["pid"]
        assert b"CONTROLLER_SECRET" not in Path(f"/proc/{pid}/environ").read_bytes()
        # What it opens and blocks itself while it starts passes; what it inherited would stay.
        until(lambda pid=pid: sorted(os.listdir(f"/proc/{pid}/fd")) == ["0", "1", "2"])
        until(lambda pid=pid: masks(pid) == {"SigIgn": 0, "SigBlk": 0})
    for host, item in wanted.items():
        stop = {**requests[host], "start": [], "stop": [item.id]}
        until(lambda stop=stop: agent.main(stop)["instances"][0]["process"] == "stopped")
        with pytest.raises(ProcessLookupError):
            os.kill(bench.record(item.id)["pid"], 0)  # not even a zombie


def test_in_our_own_process_the_exit_code_is_known(bench: Bench) -> None:
    driver = bench.driver(["/bin/sh", "-c", "echo no config; exit 3"])
    asked = request(bench, driver, "web1", *labels(driver, "a"))
    agent.main(asked)
    until(lambda: agent.main(asked)["instances"][0]["process"] == "failed")
    detail = agent.main(asked)["instances"][0]["detail"]
    assert detail.startswith("exit code 3 within ")
    assert detail.endswith("; last log lines: no config")


def test_an_agent_that_dies_before_the_record_is_written_leaves_no_process(bench: Bench) -> None:
    driver = bench.driver(["/bin/sh", "-c", "echo ran; exec sleep 1000"])
    asked = request(bench, driver, "web1", *labels(driver, "a"))
    dying = begin(
        asked, "agents.process.Service.save = lambda self, record: os.kill(os.getpid(), 9)"
    )
    assert dying.wait(timeout=60) == -signal.SIGKILL
    until(lambda: not holders(bench.path / "web1" / "shop" / "logs" / "a.log"))
    assert bench.log("a") == ""
    assert bench.records() == []


@pytest.mark.parametrize("at", [".json", "epoch"])
def test_what_a_killed_agent_was_writing_is_removed_by_the_next_lease_holder(
    bench: Bench, at: str
) -> None:
    driver = bench.driver(SLEEP)
    asked = request(bench, driver, "web1", *labels(driver, "a"))
    kills = (
        f"lambda draft, path: os.kill(os.getpid(), 9) if path.endswith('{at}') else"
        " os.rename(draft, path)"
    )
    dying = begin(asked, f"agents._service.os.replace = {kills}")
    assert dying.wait(timeout=60) == -signal.SIGKILL
    assert len(list(bench.path.glob("**/*.tmp"))) == 1
    assert bench.driver(SLEEP, epoch=2).sync() == []
    assert list(bench.path.glob("**/*.tmp")) == []


def holders(path: Path) -> list[str]:
    """The processes that have the file as their standard output."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "fd" / "1").readlink() == path:
                found.append(process.name)
        except OSError:
            continue
    return found


def test_hooks_before_the_start_and_after_the_stop(bench: Bench) -> None:
    told = bench.path / "told"
    script = f'echo "$INSTANCE $REVISION $TOKEN $1" >>{told}'
    hooks = {
        "before_start": ["/bin/sh", "-c", script, "sh", "{slot}"],
        "after_stop": ["/bin/sh", "-c", f"{script}; echo no; exit 3"],
    }
    driver = bench.driver(SLEEP, hooks=hooks, env={"TOKEN": "s3cret"})
    (one,) = labels(driver, "a")
    driver.sync(start=[one])
    assert told.read_text() == "a 2.4.1 s3cret 0\n"
    driver.sync(start=[one])
    driver.sync(stop=["a"])
    until(lambda: states(driver.sync()) == {"a": Process.STOPPED})
    driver.sync(forget=["a"])
    assert told.read_text() == "a 2.4.1 s3cret 0\na 2.4.1  \n", "once each"
    assert "after_stop: /bin/sh ended with 3: no" in bench.log("a")


@pytest.mark.parametrize(
    ("hook", "why"),
    [
        (
            ["/bin/sh", "-c", "echo the disk is full; exit 1"],
            "before_start: /bin/sh ended with 1: the disk is full",
        ),
        (["/nowhere/hook"], "before_start: /nowhere/hook: "),
        (SLEEP, "before_start: /bin/sleep: /bin/sleep 1000 took longer than 0.3 s"),
    ],
)
def test_a_hook_that_fails_keeps_an_instance_from_starting(
    bench: Bench, hook: list[str], why: str
) -> None:
    driver = bench.driver(SLEEP, hooks={"before_start": hook, "timeout": "300ms"})
    (report,) = driver.sync(start=labels(driver, "a"))
    assert report.process is Process.FAILED and report.detail.startswith(why)


@pytest.mark.parametrize(
    ("hooks", "why"),
    [
        (
            {"before": []},
            "hooks.before: unknown option; did you mean rollout_platform.hooks.before_start",
        ),
        ({"before_start": "rm -rf /"}, "hooks.before_start: expected a list, got str"),
        ({"after_stop": ["x", "{disk}"]}, "hooks.after_stop: unknown placeholder '{disk}'"),
        ({"timeout": "1h"}, "hooks.timeout: '1h' is too long"),
    ],
)
def test_hooks_that_are_refused(bench: Bench, hooks: dict[str, t.Any], why: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"rollout_platform.{why}")):
        bench.driver(SLEEP, hooks=hooks)


LEAKS = "import os, time; kept = []; pipes = []\nwhile True: kept.append(b'x' * 2**20); pipes.append(os.pipe()); time.sleep(0.01)"
BURNS = "while True: pass"


def test_what_instances_use(bench: Bench) -> None:
    """One leaks, one burns a CPU, and one sleeps, as far as the driver can see."""
    commands = {"leaks": LEAKS, "burns": BURNS, "sleeps": "import time; time.sleep(1000)"}
    drivers = {name: bench.driver([sys.executable, "-c", text]) for name, text in commands.items()}
    taken: tuple[Labels, ...] = ()
    for name, driver in drivers.items():
        taken += tuple(labels(driver, name, taken=taken))
        driver.sync(start=taken[-1:])
    look = bench.driver(SLEEP, epoch=0)
    first = look.usage()
    assert first.keys() == commands.keys()
    assert first["leaks"].host in ("web1", "web2") and first["leaks"].generation == 7

    def more(name: str, key: str) -> float:
        return look.usage()[name].found[key] - first[name].found[key]

    until(lambda: more("leaks", "memory") > 20 * 2**20 and more("leaks", "fds") > 20)
    until(lambda: more("burns", "cpu") > 0.5)
    last = look.usage()["sleeps"].found
    assert last["cpu"] < 0.5 and last["memory"] - first["sleeps"].found["memory"] < 20 * 2**20
    assert last["threads"] == 1 and last["restarts"] == 0


def test_what_children_of_an_instance_use_counts(bench: Bench) -> None:
    driver = bench.driver(["/bin/sh", "-c", "sleep 1000 & sleep 1000 & wait"])
    driver.sync(start=labels(driver, "a"))
    until(lambda: driver.usage()["a"].found["threads"] == 3)
