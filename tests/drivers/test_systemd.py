# SPDX-License-Identifier: GPL-3.0-or-later
"""The systemd platform on real hosts, with real units, over SSH."""

from __future__ import annotations

import copy
import re
import shlex
import typing as t
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import systemd as agent
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    PlatformError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Process
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    InstanceSettings,
    Labels,
    Report,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms.systemd import (
    OPTIONS,
    Driver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote import agents
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import Command
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.transport import Transport
from ansible_collections.progressive.rollout.tests.drivers import platform_contract as contract
from ansible_collections.progressive.rollout.tests.support.connect import connect
from ansible_collections.progressive.rollout.tests.support.contexts import Knows, tell
from ansible_collections.progressive.rollout.tests.support.hosts import Hosts
from ansible_collections.progressive.rollout.tests.support.pages import SNIPPETS
from ansible_collections.progressive.rollout.tests.support.waiting import until

SLEEP = ["/bin/sleep", "1000"]
STUBBORN = ["/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"]
ENV = "/var/lib/rollout/env"
OWN = """\
[Service]
EnvironmentFile=/var/lib/rollout/env/%n
ExecStart=/bin/sh -c 'echo "$REVISION at $PORT"; exec sleep 1000'
"""


class Bench:
    """Two hosts, and drivers of a service of its own for each test."""

    def __init__(self, hosts: Hosts, transport: Transport) -> None:
        self.hosts, self.transport = hosts, transport
        self.service = ""

    def driver(self, command: list[str] | None = None, epoch: int = 1, **options: t.Any) -> Driver:
        given = {
            "hosts": "web1",
            "ports": "20100-20199",
            **({"command": command} if command else {}),
            **options,
        }
        return Driver(
            OPTIONS.parse(given, "rollout_platform."),
            DriverContext(self.service, self.transport, known=Knows(epoch=epoch)),
        )

    def unit(self, slot: int = 0) -> str:
        return f"{self.service}@{slot}.service"

    def run(self, script: str, host: str = "web1") -> str:
        """What a shell says that root runs on a host."""
        result = self.transport.run({host: Command(["/bin/sh", "-ec", script])}, 60)[host]
        assert result.rc == 0, f"{script}: {result.stderr}{result.unreachable}"
        return result.stdout

    def systemctl(self, *words: str, host: str = "web1") -> str:
        return self.run(shlex.join(["systemctl", *words]), host)

    def log(self, slot: int = 0) -> list[str]:
        """What the unit itself printed."""
        return self.run(
            f"journalctl --sync; journalctl -q -o cat _SYSTEMD_UNIT={self.unit(slot)}"
        ).splitlines()

    def put(self, path: str, text: str, host: str = "web1") -> None:
        self.run(f"printf %s {shlex.quote(text)} >{path}", host)

    def left(self, host: str = "web1") -> list[str]:
        """What there is of the service on a host, but for its template, its lock and its epoch."""
        places = (
            f"/etc/systemd/system/*/{self.service}@* {ENV}/{self.service}@*"
            f" /var/lib/rollout/{host}/{self.service}/instances/*"
        )
        units = f"systemctl list-units --all --plain --no-legend '{self.service}@*'"
        return self.run(f"ls -d {places} 2>/dev/null || true; {units}", host).splitlines()


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Hosts("web1", "web2") as hosts:
        variables = {
            name: {**hosts.variables(name), "ansible_become": True} for name in hosts.names
        }
        transport = connect(variables, tmp_path_factory.mktemp("inventory") / "hosts.json")
        yield Bench(hosts, transport)
        transport.close()


@pytest.fixture
def bench(machines: Bench, request: pytest.FixtureRequest) -> Bench:
    """With a service that no other test has had, and none that has a port by its records."""
    machines.service = f"s{abs(hash(request.node.name)) % 10**8}"
    for host in ("web1", "web2"):
        machines.run("rm -rf /var/lib/rollout/web*/", host)
    return machines


class Site:
    """The hosts of a bench, as the contract wants them."""

    told = "; last log lines: no"

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def driver(self, epoch: int = 1) -> Driver:
        return self.bench.driver(SLEEP, epoch=epoch, hosts="web1:web2")

    def neighbour(self) -> Driver:
        cart = copy.copy(self.bench)
        cart.service += "cart"
        return cart.driver(SLEEP, hosts="web1:web2")

    def ending(self) -> Driver:
        return self.bench.driver(["/bin/sh", "-c", "echo no; exit 3"], hosts="web1:web2")

    def stubborn(self, stop_timeout: str) -> Driver:
        return self.bench.driver(STUBBORN, stop_timeout=stop_timeout, hosts="web1:web2")

    def up(self, report: Report) -> bool:
        unit = f"_SYSTEMD_UNIT={self.bench.unit(report.labels.slot)}"
        return (
            self.bench.run(f"journalctl --sync; journalctl -q -o cat {unit}", report.labels.host)
            == "up\n"
        )

    def logging(self) -> Driver:
        return self.bench.driver(["/bin/sh", "-c", contract.TICKS], hosts="web1:web2")

    def left(self) -> list[str]:
        return [*self.bench.left("web1"), *self.bench.left("web2")]


class TestSystemd(contract.HostsContract):
    @pytest.fixture
    def site(self, bench: Bench) -> Site:
        return Site(bench)


def labels(
    driver: Driver, *ids: str, revision: str = "2.4.1", taken: tuple[Labels, ...] = ()
) -> list[Labels]:
    places = zip(ids, driver.place(len(ids), taken, 1), strict=True)
    return [
        Labels(id, driver.context.service, revision, 7, host, endpoint, slot)
        for id, (host, endpoint, slot) in places
    ]


def states(reports: t.Iterable[Report]) -> dict[str, Process]:
    return {report.labels.id: report.process for report in reports}


def all_are(driver: Driver, process: Process) -> bool:
    return {report.process for report in driver.sync()} == {process}


def detail(driver: Driver, id: str) -> str:
    return next(report.detail for report in driver.sync() if report.labels.id == id)


def request(driver: Driver, host: str, **work: t.Any) -> dict[str, t.Any]:
    """What the driver would send to one host."""
    asked: dict[str, t.Any] = {}
    spy = t.cast(t.Any, lambda _name, requests, *_: asked.update(requests) or {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver.context.transport, "ask", spy)
        with suppress(KeyError):  # nothing is answered
            driver.sync(**work)
    return t.cast("dict[str, t.Any]", asked[host])


def dies(bench: Bench, driver: Driver, before: str, **work: t.Any) -> None:
    """The agent on web1 is killed before it gets to a line of its own."""
    program = agents.program(agent, request(driver, "web1", **work), 60, "MARK:").decode()
    line = next(
        line for line in agents.source(agent).splitlines() if line.strip().startswith(before)
    )
    killed = " " * (len(line) - len(line.lstrip())) + "os.kill(os.getpid(), 9)"
    there = repr(f"{line}\n")[1:-1]
    assert program.count(there) == 1
    program = program.replace(there, repr(f"{killed}\n{line}\n")[1:-1])
    command = Command(["python3", "-I", "-S", "-"], program.encode())
    assert "was ended by signal 9" in bench.transport.run({"web1": command}, 60)["web1"].stdout


def test_what_rollouts_left_is_removed_and_units_run_on(bench: Bench) -> None:
    def listing() -> list[str]:
        places = "/var/lib/rollout /etc/systemd/system"
        return bench.run(f"find {places} 2>/dev/null | sort || true").splitlines()

    bench.run("rm -rf /var/lib/rollout")
    before, driver = listing(), bench.driver(SLEEP, env={"TOKEN": "secret"})
    driver.sync(start=labels(driver, "shop-1"))
    until(lambda: all_are(driver, Process.RUNNING))
    pid = bench.systemctl("show", "--property=MainPID", bench.unit())
    named = driver.leave(dry=True)
    assert any("/instances/shop-1.json" in name for name in named)
    assert list(driver.leave(dry=False)) == list(named)
    assert list(driver.leave(dry=False)) == [], "again"
    left = [path for path in listing() if path not in before]
    assert left == [
        f"/etc/systemd/system/multi-user.target.wants/{bench.unit()}",
        f"/etc/systemd/system/{bench.service}@.service",
        "/var/lib/rollout",
        ENV,
        f"{ENV}/{bench.unit()}",
    ], "what the unit needs"
    assert bench.systemctl("show", "--property=MainPID", bench.unit()) == pid
    bench.systemctl("restart", bench.unit())
    page = SNIPPETS["docs/how-to/leave.md"]["units"]
    bench.run(page.replace("shop@", f"{bench.service}@"))
    state = bench.systemctl("show", "--property=ActiveState", bench.unit())
    assert state.strip() == "ActiveState=inactive"
    gone = f"/etc/systemd/system/multi-user.target.wants/{bench.unit()}"
    assert gone not in listing(), "it does not come back with its host"
    bench.run(
        f"rm -r {ENV}/{bench.unit()} /etc/systemd/system/{bench.service}@.service;"
        " systemctl daemon-reload"
    )


def test_units_are_enabled_so_that_they_come_back_with_their_host(bench: Bench) -> None:
    driver = bench.driver(SLEEP, hosts="web1:web2")
    wanted = labels(driver, "a", "b", "c")
    assert [(one.host, one.slot) for one in wanted] == [("web1", 0), ("web2", 1), ("web1", 2)]
    driver.sync(start=wanted)
    assert bench.systemctl("is-enabled", bench.unit(0), bench.unit(2)).split() == [
        "enabled",
        "enabled",
    ]


def test_what_an_instance_is_given(bench: Bench) -> None:
    words = [
        "{revision}",
        "{port}",
        "{host}",
        "{slot}",
        "{instance}",
        "a b;$(c) $HOME %n \\ ' \"",
        "{{}}",
    ]
    nasty = "{slot}/{host} $HOME %n `date` \\x \" ' # ;\n  two\ttabs é"
    show = (
        'printf "%s\\n" "$@" "$SERVICE $REVISION $INSTANCE $SLOT $ADDRESS $PORT" "$PWD $(id -un)"'
        ' "$MINE" "$(env | grep -c ^ROLLOUT_)"'
    )
    options = {"env": {"MINE": nasty, "PORT": "1"}, "cwd": "/home/{service}", "user": "deploy"}
    driver = bench.driver(["/bin/sh", "-c", show + "; exec sleep 1000", "sh", *words], **options)
    bench.run(f"mkdir -m 755 /home/{bench.service}")
    (wanted,) = labels(driver, "a")
    driver.sync(start=[wanted])
    until(lambda: bench.log()[-1:] == ["0"])
    assert bench.log() == [
        *["2.4.1", "20100", "web1", "0", "a", "a b;$(c) $HOME %n \\ ' \"", "{}"],
        f"{bench.service} 2.4.1 a 0 {wanted.endpoint.address} 20100",
        f"/home/{bench.service} deploy",
        *nasty.replace("{slot}/{host}", "0/web1").split("\n"),
        "0",
    ]


def test_the_environment_is_a_secret(bench: Bench) -> None:
    secret = "s3cret-f00d"
    driver = bench.driver(SLEEP, env={"TOKEN": secret})
    driver.sync(start=labels(driver, "a"))
    pid = bench.systemctl("show", "--value", "--property=MainPID", bench.unit()).strip()
    until(lambda: "sleep" in bench.run(f"cat /proc/{pid}/cmdline"))
    assert f"TOKEN={secret}" in bench.run(f"cat /proc/{pid}/environ")
    # sudo logs what we run
    found = bench.run(r"grep -rls 's3cret[-]f00d' /etc /run /var || true").split()
    assert found == [f"{ENV}/{bench.unit()}"]
    assert bench.run(f"stat -c '%a %U' {ENV} {ENV}/{bench.unit()}").split("\n")[:2] == [
        "700 root",
        "600 root",
    ]
    assert secret not in bench.run(
        f"systemctl show {bench.unit()}; systemctl cat {bench.unit()};"
        " cat /proc/*/cmdline 2>/dev/null || true"  # processes end meanwhile
    )


def test_one_that_died_has_failed_and_says_how(bench: Bench) -> None:
    ways = {
        "three": "for i in 1 2 3 4 5 6 7; do echo line $i; done; sleep 0.2; exit 3",
        "none": "exit 0",
        "killed": "kill -9 $$",
    }
    script = "; ".join(f"[ $INSTANCE = {way} ] && {{{{ {what}; }}}}" for way, what in ways.items())
    driver = bench.driver(["/bin/sh", "-c", script])
    driver.sync(start=labels(driver, *ways))
    until(
        lambda: all(report.restarts or report.process is Process.FAILED for report in driver.sync())
    )
    until(
        lambda: set(states(driver.sync(stop=[*ways])).values()) <= {Process.STOPPED, Process.FAILED}
    )
    reports = {report.labels.id: report for report in driver.sync()}
    said = {name: report.detail for name, report in reports.items()}
    lines = "line 3 | line 4 | line 5 | line 6 | line 7"
    how = r"restarted (?:once|\d+ times): "
    assert re.fullmatch(
        rf"{how}exit code 3 within [0-9.]+ s of its start; last log lines: {re.escape(lines)}",
        said["three"],
    )
    # systemd forgets it at once
    assert (reports["none"].process, said["none"]) == (Process.FAILED, "exited; its log is empty")
    assert re.fullmatch(
        rf"{how}killed by signal 9 within [0-9.]+ s of its start; its log is empty", said["killed"]
    )
    assert driver.sync(forget=[*ways]) == []
    assert bench.left() == []


@pytest.mark.parametrize(
    ("command", "options", "said"),
    [
        (
            ["/nowhere/shop"],
            {},
            r"exit code 127 within .*: /bin/sh: 1: exec: /nowhere/shop: not found",
        ),
        (
            SLEEP,
            {"cwd": "/nowhere", "user": "deploy"},
            r"exit code 2 within .*: /bin/sh: 1: cd: can't cd to /nowhere",
        ),
        (
            SLEEP,
            {"user": "nobody2"},
            r"exit code 217 within .*: .*Failed at step USER spawning /bin/sh: No such process",
        ),
    ],
)
def test_what_cannot_be_run_has_failed(
    bench: Bench, command: list[str], options: dict[str, t.Any], said: str
) -> None:
    driver = bench.driver(command, **options)
    driver.sync(start=labels(driver, "a"))
    # systemd tells how it ended until it starts it again
    until(lambda: re.fullmatch(rf"restarted (?:once|\d+ times): {said}", detail(driver, "a")))


READY = (
    "import os, socket, time; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'READY=1',"
    " os.environ['NOTIFY_SOCKET']); time.sleep(1000)"
)
NO_RESTART = "Restart=no"
LATE = "systemd killed it, since it did not report to its watchdog in time (WatchdogSec)"
LIMIT = "systemd ended it at a time limit (RuntimeMaxSec, or TimeoutStartSec)"
REASONS = {  # the program, lines of its unit, the cause, how it ended and the last line of its log
    "watchdog": (
        ["/usr/bin/python3", "-c", READY],
        ["Type=notify", "WatchdogSec=1", "WatchdogSignal=SIGKILL"],
        (LATE, ", killed by signal 9", "Watchdog timeout (limit 1s)!"),
    ),
    "run time": (
        SLEEP,
        ["RuntimeMaxSec=1"],
        (LIMIT, ", killed by signal 15", "Service reached runtime time limit. Stopping."),
    ),
    "run time, stubborn": (
        STUBBORN,
        ["RuntimeMaxSec=1", "TimeoutStopSec=1"],
        (LIMIT, ", killed by signal 9", "State 'stop-sigterm' timed out. Killing."),
    ),
    "start time": (
        SLEEP,
        ["Type=notify", "TimeoutStartSec=1"],
        (LIMIT, ", killed by signal 15", "start operation timed out. Terminating."),
    ),
    "no log": (
        ["/bin/sh", "-c", "echo no database; exit 3"],
        ["StandardOutput=null"],
        ("exit code 3", "", "; its log is not in the journal (StandardOutput=null)"),
    ),
}


@pytest.mark.parametrize("name", REASONS)
@pytest.mark.parametrize("restart", [NO_RESTART, "Restart=always"])
def test_end_by_systemd_names_its_cause(bench: Bench, name: str, restart: str) -> None:
    """Whether it is over, or was started again since."""
    program, lines, (cause, how, words) = REASONS[name]
    driver = bench.driver(program)
    folder = f"/etc/systemd/system/{bench.service}@.service.d"
    text = "".join(f"{line}\n" for line in ("[Service]", restart, "RestartSec=1", *lines))
    bench.run(f"mkdir {folder}")
    bench.put(f"{folder}/mine.conf", text)
    driver.sync(start=labels(driver, "a"))
    if restart == NO_RESTART:
        until(lambda: states(driver.sync()) == {"a": Process.FAILED})
        shown = detail(driver, "a")
        assert shown.startswith(f"{cause}{how} within "), shown
    else:
        until(lambda: detail(driver, "a"))
        shown = detail(driver, "a")
        assert re.match(rf"restarted (?:once|\d+ times): {re.escape(cause)}", shown), shown
    assert words in shown and "outside the rollout" not in shown


def test_unit_that_systemd_gives_up_says_so(bench: Bench) -> None:
    driver = bench.driver(["/bin/sh", "-c", "echo no database; exit 3"])
    folder = f"/etc/systemd/system/{bench.service}@.service.d"
    limit = "[Unit]\nStartLimitIntervalSec=60\nStartLimitBurst=2\n[Service]\nRestartSec=100ms\n"
    bench.run(f"mkdir {folder}")
    bench.put(f"{folder}/mine.conf", limit)
    driver.sync(start=labels(driver, "a"))
    until(lambda: states(driver.sync()) == {"a": Process.FAILED})
    shown = detail(driver, "a")
    assert "exit code 3" in shown and "no database" in shown
    assert "Start request repeated too quickly." in shown


@pytest.mark.parametrize("seen", ["between", "later"])
def test_one_that_systemd_has_started_again_says_so_whenever_it_is_looked_at(
    bench: Bench, seen: str
) -> None:
    driver = bench.driver(SLEEP)
    folder = f"/etc/systemd/system/{bench.service}@.service.d"
    if seen == "between":  # for long enough to be seen
        slow = f"mkdir {folder}; printf '[Service]\\nRestartSec=10\\n' >{folder}/slow.conf"
        bench.run(f"{slow}; systemctl daemon-reload")
    driver.sync(start=labels(driver, "a"))
    until(lambda: all_are(driver, Process.RUNNING))
    bench.systemctl("kill", "--signal=KILL", bench.unit())
    if seen == "between":
        until(lambda: all_are(driver, Process.STARTING))
        assert driver.sync()[0].restarts == 1
        until(lambda: all_are(driver, Process.RUNNING))
        bench.run(f"rm -r {folder}; systemctl daemon-reload")
    else:
        until(
            lambda: (
                bench.systemctl("show", "--property=NRestarts,ActiveState", bench.unit()).split()
                == ["NRestarts=1", "ActiveState=active"]
            )
        )
    (report,) = driver.sync()
    assert (report.process, report.restarts) == (Process.RUNNING, 1)
    assert report.restarted and 0 <= report.restarted - report.created < 60
    assert report.detail.startswith("restarted once: ")
    bench.systemctl("kill", "--signal=KILL", bench.unit())
    until(lambda: driver.sync()[0].restarts == 2)
    assert abs((driver.sync()[0].restarted or 0.0) - report.restarted) < 1, (
        "the first time is what tells a new one from an old one"
    )
    until(lambda: states(driver.sync(stop=["a"])) == {"a": Process.STOPPED})
    assert driver.sync()[0].restarts == 2


def test_one_that_somebody_else_started_again_says_so(bench: Bench) -> None:
    driver = bench.driver(SLEEP)
    driver.sync(start=labels(driver, "a"))
    until(lambda: all_are(driver, Process.RUNNING))
    bench.systemctl("restart", bench.unit())
    assert [(report.process, report.restarts) for report in driver.sync()] == [(Process.RUNNING, 1)]


def test_one_that_says_itself_when_it_is_ready(bench: Bench) -> None:
    tell = (
        "import os, socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'READY=1',"
        " os.environ['NOTIFY_SOCKET'])"
    )
    script = (
        f'import os, time\nwhile not os.path.exists("/run/{bench.service}"):'
        f" time.sleep(0.05)\n{tell}\ntime.sleep(1000)"
    )
    driver = bench.driver(["/usr/bin/python3", "-I", "-S", "-c", script], notify=True)
    assert states(driver.sync(start=labels(driver, "a"))) == {"a": Process.STARTING}
    assert states(driver.sync()) == {"a": Process.STARTING}
    bench.run(f"touch /run/{bench.service}")
    until(lambda: all_are(driver, Process.RUNNING))


def test_a_port_and_a_unit_that_a_stranger_has(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, lines = bench.driver(SLEEP, ports="20200-20299"), list[str]()
    monkeypatch.setattr(bench.transport, "print_line", lines.append)
    driver.prepare("2.4.1")
    wanted = labels(driver, "a", "b", "c")
    listen = (
        "import socket, time; s = socket.socket(); s.bind(('', 20200)); s.listen();"
        " time.sleep(1000)"
    )
    bench.run(f"systemd-run --quiet --unit=stranger python3 -I -S -c {shlex.quote(listen)}")
    bench.run(f"mkdir -p {ENV}")
    bench.put(f"{ENV}/{bench.unit(2)}", 'ROLLOUT_COMMAND="sleep 1000"\nROLLOUT_CWD=/\n')
    bench.systemctl("start", bench.unit(2))
    until(lambda: ":20200 " in bench.run("ss -Hltn"))
    others = {"b": Process.RUNNING}
    assert states(driver.sync(start=wanted)) == others
    passed = f"web1: the unit {bench.unit(2)} runs already, and is not ours; an instance of"
    assert [line.startswith(passed) for line in lines] == [True]
    slots = [slot for _host, _endpoint, slot in driver.place(3, (), 1)]
    assert slots == [0, 1, 3], "another one is free"
    # insisted on, as where there is no other port
    reports = {report.labels.id: report for report in driver.sync(start=wanted[:1])}
    assert states(reports.values()) == {"a": Process.FAILED, "b": Process.RUNNING}
    assert reports["a"].detail.startswith("port 20200 at ")
    assert states(driver.sync(forget=["a"])) == {"b": Process.RUNNING}
    assert bench.systemctl("is-active", bench.unit(2)) == "active\n"


def test_units_that_run_by_hand_are_named(bench: Bench) -> None:
    driver, cart = bench.driver(SLEEP), copy.copy(bench)
    cart.service += "cart"
    driver.prepare("2.4.1")
    driver.sync(start=labels(driver, "a", "b"))
    until(lambda: all_are(driver, Process.RUNNING))
    bench.put(f"{ENV}/{bench.unit(7)}", 'ROLLOUT_COMMAND="sleep 1000"\nROLLOUT_CWD=/\n')
    bench.systemctl("start", bench.unit(7))
    driver.check()
    (line,) = driver.risks(2, 2, 3)
    assert line.startswith(f"on web1, {bench.unit(7)} run beside the instances: no rollout has")
    other = cart.driver(unit=f"{bench.service}@.service")
    other.check()
    assert bench.unit(7) in other.risks(2, 2, 3)[0]
    assert bench.unit(0) not in other.risks(2, 2, 3)[0], "of another service"
    bench.systemctl("stop", bench.unit(7))
    driver.check()
    assert not driver.risks(2, 2, 3)


def test_an_agent_that_is_killed_as_it_starts_one(bench: Bench) -> None:
    """The next call goes on where it was; nothing is there twice."""
    driver = bench.driver(["/bin/sh", "-c", "echo up; exec sleep 1000"])
    steps = (
        "os.makedirs(",
        '_systemctl("enable"',
        "status, _out, stderr",
        'record["begun"] = True',
    )
    wanted = labels(driver, "a", "b", "c", "d")
    for one, step in zip(wanted, steps, strict=True):
        dies(bench, driver, step, start=[one])
    driver.sync(start=wanted)
    until(lambda: all_are(driver, Process.RUNNING) and all(bench.log(slot) for slot in range(4)))
    assert [bench.log(slot) for slot in range(4)] == [["up"]] * 4
    assert (
        bench.systemctl("is-enabled", *(bench.unit(slot) for slot in range(4))).split()
        == ["enabled"] * 4
    )


def test_an_agent_that_is_killed_as_it_stops_one(bench: Bench) -> None:
    driver = bench.driver(SLEEP)
    driver.sync(start=labels(driver, "a", "b"))
    dies(bench, driver, '_service.run("systemctl", "stop"', stop=["a"])
    dies(bench, driver, '_systemctl("disable"', stop=["b"])
    until(lambda: all_are(driver, Process.STOPPED))
    assert driver.sync(forget=["a", "b"]) == []
    assert bench.left() == []


def test_what_others_do_to_a_unit_is_seen(bench: Bench) -> None:
    driver = bench.driver(["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done"])
    driver.sync(start=labels(driver, "a"))
    bench.systemctl("stop", bench.unit())
    assert states(driver.sync()) == {"a": Process.FAILED}
    stopped = f"unit {bench.unit()} was stopped outside the rollout"
    assert detail(driver, "a").startswith(f"{stopped}; ")
    bench.systemctl("start", bench.unit())
    assert states(driver.sync()) == {"a": Process.RUNNING}
    bench.systemctl("restart", bench.unit())
    assert states(driver.sync()) == {"a": Process.RUNNING}
    assert detail(driver, "a").startswith(f"restarted once: {stopped}")
    bench.systemctl("kill", "--signal=USR1", bench.unit())
    until(lambda: driver.sync()[0].restarts == 2)


def test_one_that_ignores_the_signal_is_killed_after_the_timeout(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = bench.driver(STUBBORN, stop_timeout="1h")
    patient.sync(start=labels(patient, "a"))
    until(lambda: bench.log() == ["up"])
    assert states(patient.sync(stop=["a"])) == {"a": Process.STOPPING}
    assert states(patient.sync(stop=["a"])) == {"a": Process.STOPPING}
    hasty = bench.driver(STUBBORN, stop_timeout="1ms")
    hasty.sync(start=[replace(labels(hasty, "b")[0], slot=1)])
    until(lambda: bench.log(1) == ["up"])
    lines: list[str] = []
    monkeypatch.setattr(bench.transport, "print_line", lines.append)
    # Each has the time that it was started with.
    until(
        lambda: states(hasty.sync(stop=["a", "b"])) == {"a": Process.STOPPING, "b": Process.STOPPED}
    )
    assert detail(hasty, "b") == "did not stop in time and was killed"
    (line,) = lines
    assert line.startswith("b on web1 did not stop in time and was killed: ")
    assert "raise rollout_platform.stop_timeout [PR-228]" in line


def test_one_that_ignores_the_signal_is_killed_by_systemd_where_we_are_gone(bench: Bench) -> None:
    driver = bench.driver(STUBBORN, stop_timeout="200ms", stop_signal="int")
    driver.sync(start=labels(driver, "a"))
    until(lambda: bench.log() == ["up"])
    driver.sync(stop=["a"])
    until(lambda: all_are(driver, Process.STOPPED))
    assert "KillSignal=2" in bench.systemctl("show", "--property=KillSignal", bench.unit())


def test_a_slot_that_is_used_again(bench: Bench) -> None:
    dying, driver = bench.driver(["/bin/sh", "-c", "echo bye; exit 3"]), bench.driver(SLEEP)
    dying.sync(start=labels(dying, "a"))
    until(lambda: dying.sync()[0].restarts)
    until(lambda: states(dying.sync(stop=["a"])) == {"a": Process.STOPPED})
    assert states(driver.sync(start=labels(driver, "b"))) == {
        "a": Process.STOPPED,
        "b": Process.RUNNING,
    }
    assert "last log lines: bye" in detail(driver, "a")
    assert states(driver.sync(forget=["a"])) == {"b": Process.RUNNING}
    assert states(driver.sync()) == {"b": Process.RUNNING}
    assert bench.systemctl("is-enabled", bench.unit()) == "enabled\n"


def test_each_unit_keeps_what_it_was_started_with(bench: Bench) -> None:
    """Also where the template is another by now, and the users' own drop-in for all of them
    comes after ours.
    """
    bench.run("id old >/dev/null 2>&1 || useradd --system old")
    old, new = bench.driver(SLEEP, user="old", stop_timeout="7s"), bench.driver(SLEEP)
    old.prepare("1")
    old.sync(start=labels(old, "a"))
    until(lambda: all_are(old, Process.RUNNING))
    new.prepare("2")
    kept = {"command": SLEEP, "user": "old", "stop_timeout": "7s"}
    tell(new, settings={1: InstanceSettings("systemd", kept, {})})
    wanted = [
        replace(one, generation=number, slot=number + 1)
        for number, one in enumerate(labels(new, "b", "c"))
    ]
    new.sync(start=[replace(wanted[0], generation=2), replace(wanted[1], generation=1)])
    until(lambda: all_are(new, Process.RUNNING))

    def shown(slot: int) -> list[str]:
        return bench.systemctl("show", "--property=User,TimeoutStopUSec", bench.unit(slot)).split()

    assert [shown(slot) for slot in range(3)] == [
        ["TimeoutStopUSec=7s", "User=old"],
        ["TimeoutStopUSec=10s", "User=root"],
        ["TimeoutStopUSec=7s", "User=old"],
    ]
    folder = f"/etc/systemd/system/{bench.service}@.service.d"
    bench.run(
        f"mkdir -p {folder}; printf '[Service]\\nTimeoutStopSec=9s\\n' >{folder}/own.conf;"
        " systemctl daemon-reload"
    )
    assert shown(0) == ["TimeoutStopUSec=9s", "User=old"]
    bench.run(f"rm -r {folder}; systemctl daemon-reload")
    until(lambda: set(states(new.sync(stop=["a", "b", "c"])).values()) == {Process.STOPPED})
    assert new.sync(forget=["a", "b", "c"]) == []
    bench.systemctl("daemon-reload")
    assert (
        bench.left() == []
        and bench.run(f"ls -d /etc/systemd/system/{bench.service}@*.d || true") == ""
    )


def test_a_unit_of_the_users_own(bench: Bench) -> None:
    name = f"{bench.service}-mine@.service"
    driver = bench.driver(unit=name)
    bench.put(f"/etc/systemd/system/{name}", OWN.replace("EnvironmentFile", "# EnvironmentFile"))
    with pytest.raises(
        InputError,
        match=(
            rf"rollout_platform.unit: {name} does not read .*; add EnvironmentFile={ENV}/%n \(on"
            r" web1\)"
        ),
    ):
        driver.check()
    bench.put(f"/etc/systemd/system/{name}", OWN)
    bench.systemctl("daemon-reload")
    driver.check()
    driver.prepare("2.4.1")
    assert states(driver.sync(start=labels(driver, "a"))) == {"a": Process.RUNNING}
    unit = name.replace("@", "@0")
    until(
        lambda: (
            bench.run(f"journalctl --sync; journalctl -q -o cat _SYSTEMD_UNIT={unit}")
            == "2.4.1 at 20100\n"
        )
    )
    until(lambda: states(driver.sync(stop=["a"])) == {"a": Process.STOPPED})
    assert driver.sync(forget=["a"]) == []
    assert bench.run(f"cat /etc/systemd/system/{name}") == OWN
    with pytest.raises(
        InputError, match=r"rollout_platform.unit: systemd cannot load nowhere@.service"
    ):
        bench.driver(unit="nowhere@.service").check()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("KillMode=process", r"KillMode=process.* KillMode=mixed"),
        ("KillMode=none", r"KillMode=none"),
        ("KillMode=mixed", ""),
        ("Type=oneshot", r"Type=oneshot, so that the end"),
        ("RemainAfterExit=yes", r"RemainAfterExit=yes, so that the end"),
        ("Type=forking", ""),
    ],
)
def test_a_unit_that_systemd_does_not_end_is_refused(bench: Bench, line: str, why: str) -> None:
    name = f"{bench.service}@.service"
    bench.put(f"/etc/systemd/system/{name}", f"{OWN}{line}\n")
    bench.systemctl("daemon-reload")
    driver = bench.driver(unit=name)
    if why:
        with pytest.raises(InputError, match=why) as refused:
            driver.check()
        assert refused.value.id == "PR-208"
    else:
        driver.check()
    bench.run(f"rm /etc/systemd/system/{name}; systemctl daemon-reload")


def test_a_drop_in_for_our_template_is_refused_likewise(bench: Bench) -> None:
    folder = f"/etc/systemd/system/{bench.service}@.service.d"
    bench.run(f"mkdir {folder}")
    bench.put(f"{folder}/mine.conf", "[Service]\nKillMode=process\n")
    bench.systemctl("daemon-reload")
    driver = bench.driver(SLEEP)
    driver.prepare("2.4.1")
    with pytest.raises(InputError, match="KillMode=process"):
        driver.check()
    bench.run(f"rm -r {folder}; systemctl daemon-reload")


def test_programs_that_a_stopped_unit_has_left_are_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has left its unit with the port, and two that its KillMode spares."""
    script = (
        "systemd-run --quiet --collect --unit={service}-away python3 -m http.server {port};"
        " sleep 1000 & exec sleep 1000"
    )
    driver, lines = bench.driver(["/bin/sh", "-c", script]), list[str]()
    monkeypatch.setattr(bench.transport, "print_line", lines.append)
    first, second = labels(driver, "a", "b")
    driver.sync(start=[first])
    listening = f"ss -Hltn sport = :{first.endpoint.port}"
    until(lambda: bench.run(listening).strip())
    until(lambda: states(driver.sync(stop=["a"])) == {"a": Process.STOPPED})
    port = f"a on web1 was stopped, and a program still listens at its port {first.endpoint.port}"
    driver.sync()
    assert [line.partition(";")[0] for line in lines] == [port]
    folder = f"/etc/systemd/system/{bench.service}@.service.d"
    bench.run(f"systemctl stop {bench.service}-away; mkdir {folder}")
    bench.put(f"{folder}/mine.conf", "[Service]\nKillMode=process\n")
    bench.systemctl("daemon-reload")
    sleeping = bench.driver(["/bin/sh", "-c", "sleep 1001 & exec sleep 1000"])
    sleeping.sync(start=[second])
    until(lambda: bench.run("pgrep -xfc 'sleep 1001' || true").strip() == "1")
    until(lambda: states(sleeping.sync(stop=["b"]))["b"] is Process.STOPPED)
    assert re.fullmatch(
        r"b on web1 was stopped, and 1 of its processes still run: \d+ \(sleep\); .* \[PR-259\]",
        lines[-1],
    )
    bench.run(f"pkill -xf 'sleep 1001'; rm -r {folder}; systemctl daemon-reload")


def test_a_template_that_is_not_ours_is_left_alone(bench: Bench) -> None:
    path = f"/etc/systemd/system/{bench.service}@.service"
    bench.put(path, OWN)
    driver = bench.driver(SLEEP)
    with pytest.raises(
        InputError, match=rf"rollout_platform.unit: {path} is not ours, .*\(on web1\)$"
    ):
        driver.check()
    with pytest.raises(PlatformError, match="is not ours"):
        driver.prepare("2.4.1")
    with pytest.raises(PlatformError, match="is not ours"):
        driver.sync(start=labels(driver, "a"))
    assert bench.run(f"cat {path}") == OWN
    bench.service = "user"  # a template of systemd's, elsewhere
    with pytest.raises(InputError, match=r"/lib/systemd/system/user@.service is not ours"):
        bench.driver(SLEEP).check()


def test_systemd_reads_the_template_again_when_it_changed(bench: Bench) -> None:
    def reloads() -> int:
        return bench.run("journalctl --sync; journalctl -q -o cat _PID=1").count("\nReloading")

    driver = bench.driver(SLEEP)
    driver.prepare("1")
    before = reloads()
    driver.prepare("2")
    driver.sync(start=labels(driver, "a"))
    assert reloads() == before
    bench.driver(SLEEP, stop_signal="QUIT").prepare("3")
    assert reloads() == before + 1
    shown = bench.systemctl("show", "--property=KillSignal", bench.unit(), bench.unit(1)).split()
    assert shown == ["KillSignal=15", "KillSignal=3"], "what runs keeps what it was started with"
    assert states(driver.sync()) == {"a": Process.RUNNING}


def test_check_names_what_is_wrong_and_touches_nothing(bench: Bench) -> None:
    bench.driver(SLEEP).check()
    bench.driver(["/opt/{revision}/shop"], cwd="/opt/{revision}").check()
    with pytest.raises(InputError) as caught:
        bench.driver(
            ["/nowhere/shop"], user="nobody2", path="/etc/passwd/x", cwd="/nowhere"
        ).check()
    for said in (
        "command: /nowhere/shop is not there or cannot be executed",
        "cwd: /nowhere is not a directory",
    ):
        assert f"rollout_platform.{said} (on web1)" in str(caught.value)
    for said in ("user: there is no user nobody2", "path: /etc/passwd is not a directory"):
        assert f"rollout_platform.{said} (on web1)" in str(caught.value)
    assert bench.run(f"ls /etc/systemd/system/{bench.service}@.service || true") == ""
    with pytest.raises(
        PlatformError, match=r"rollout_platform.command: /opt/3/shop is not there .*\(on web1\)"
    ):
        bench.driver(["/opt/{revision}/shop"]).prepare("3")
    assert bench.left() == []


def test_without_root_nothing_goes(bench: Bench, tmp_path: Path) -> None:
    transport = connect({"web1": bench.hosts.variables("web1")}, tmp_path / "hosts.json")
    driver = Driver(
        OPTIONS.parse({"hosts": "web1", "ports": "20100", "command": SLEEP}, "rollout_platform."),
        DriverContext(bench.service, transport, known=Knows(epoch=1)),
    )
    with pytest.raises(
        InputError,
        match=r"rollout_platform.hosts: units are root's, .*; set ansible_become \(on web1\)",
    ):
        driver.check()
    transport.close()


def test_instances_come_back_with_their_host(bench: Bench) -> None:
    driver = bench.driver(SLEEP)
    driver.sync(start=labels(driver, "wanted", "disabled", "stopped"))
    until(lambda: states(driver.sync(stop=["stopped"]))["stopped"] == Process.STOPPED)
    bench.systemctl("disable", "--no-reload", bench.unit(1))
    bench.hosts.kill("web1")
    bench.hosts.start("web1")
    expected = {"wanted": Process.RUNNING, "disabled": Process.FAILED, "stopped": Process.STOPPED}
    until(lambda: states(driver.sync()) == expected)
    assert detail(driver, "disabled") == "gone: the host was restarted"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {},
            (
                "rollout_platform.command: not given; give it, or a template of your own as"
                " rollout_platform.unit"
            ),
        ),
        (
            {"unit": "shop.service"},
            "rollout_platform.unit: 'shop.service' is not a template of services",
        ),
        (
            {"unit": "shop@.service", "cwd": "/"},
            "rollout_platform.cwd: cannot be given with rollout_platform.unit",
        ),
        (
            {"command": SLEEP, "user": "a b"},
            "rollout_platform.user: 'a b' is not the name of a user",
        ),
        (
            {"command": SLEEP, "path": "/var/a b"},
            "rollout_platform.path: '/var/a b' cannot be in a unit",
        ),
        (
            {"command": SLEEP, "env": {"A.B": "s3cret"}},
            "rollout_platform.env: 'A.B' cannot be the name of an environment variable",
        ),
        (
            {"command": SLEEP, "env": {"ROLLOUT_CWD": "s3cret"}},
            "rollout_platform.env: 'ROLLOUT_CWD' cannot be",
        ),
        (
            {"command": SLEEP, "stop_signal": "no"},
            "rollout_platform.stop_signal: 'no' is not a signal",
        ),
    ],
)
def test_options_that_cannot_be_meant(
    options: dict[str, t.Any], message: str, tmp_path: Path
) -> None:
    transport = connect({"web1": {"ansible_connection": "local"}}, tmp_path / "hosts.json")
    with pytest.raises(InputError) as caught:
        Driver(
            OPTIONS.parse({"hosts": "web1", "ports": "1-2", **options}, "rollout_platform."),
            DriverContext("shop", transport),
        )
    assert message in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_sudo_that_wants_a_terminal_is_named_with_its_remedy(bench: Bench) -> None:
    """The remedy is tried as it is printed."""

    def sudoers(text: str) -> None:
        script = f"printf '%s\\n' {shlex.quote(text)} >/etc/sudoers.d/00-tty"
        bench.hosts.run("web1", "sh", "-c", script)

    driver = bench.driver(SLEEP)
    driver.check()
    sudoers("Defaults requiretty")
    try:
        with pytest.raises(PlatformError, match="web1: sudo wants a terminal") as refused:
            driver.check()
        assert refused.value.id == "PR-210" and "must have a tty" in str(refused.value)
        remedies = re.findall(r"`(.*?)`", str(refused.value))
        assert len(remedies) == 2
        for remedy in remedies:
            line = remedy.replace("USER", bench.hosts.variables("web1")["ansible_user"])
            sudoers(f"Defaults requiretty\n{line}")
            driver.check()
    finally:
        bench.hosts.run("web1", "rm", "/etc/sudoers.d/00-tty")
