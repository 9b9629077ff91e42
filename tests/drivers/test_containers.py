# SPDX-License-Identifier: GPL-3.0-or-later
"""The platforms podman and docker against the real programs, on real hosts over SSH."""

from __future__ import annotations

import json
import time
import typing as t
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    PlatformError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Process
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces import loader
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Labels,
    PlatformDriver,
    Report,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import (
    Connections,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.transport import Transport
from ansible_collections.progressive.rollout.tests.drivers import platform_contract as contract
from ansible_collections.progressive.rollout.tests.support.contexts import Knows
from ansible_collections.progressive.rollout.tests.support.hosts import Hosts
from ansible_collections.progressive.rollout.tests.support.waiting import until

ENGINES = ("podman", "docker")
NAMES = ("web1", "web2")
SHOP = {"image": "localhost/shop:{revision}", "container_port": 8080}
PYTHON = {**SHOP, "args": ["--entrypoint=/usr/bin/python3"]}
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True);"
    " time.sleep(1000)"
)
TICKS = (
    "import time; [(print('ERROR tick', n, flush=True), time.sleep(0.1)) for n in range(1, 21)];"
    " time.sleep(1000)"
)
SHOW = (
    "import os, sys, time; print(os.environ['TOKEN'] + open(sys.argv[1]).read(), flush=True);"
    " time.sleep(1000)"
)


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(*NAMES) as made, ThreadPoolExecutor() as pool:
        list(pool.map(lambda name: made.run(name, "systemctl", "start", "docker"), NAMES))
        loads = [
            (name, engine, "load", "--quiet", "--input", "/opt/shop/images.tar")
            for name in NAMES
            for engine in ENGINES
        ]
        list(pool.map(lambda load: made.run(*load), loads))
        yield made


@pytest.fixture(scope="module")
def transport(hosts: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transport]:
    file = tmp_path_factory.mktemp("inventory") / "hosts.json"
    file.write_text(json.dumps({"all": {"hosts": {name: hosts.variables(name) for name in NAMES}}}))
    loader = DataLoader()
    inventory = InventoryManager(loader, sources=[str(file)])
    manager = VariableManager(loader, inventory)
    hostvars = HostVars(inventory, manager, loader)
    task_vars = manager.get_vars() | {"hostvars": hostvars, "groups": inventory.get_groups_dict()}
    made = Transport(Connections(task_vars, PlayContext(), loader, {"become": True}))
    yield made
    made.close()


class Bench:
    """A service of its own on both hosts, run by one of the programs."""

    def __init__(self, hosts: Hosts, transport: Transport, engine: str, service: str) -> None:
        self.hosts, self.transport, self.engine, self.service = hosts, transport, engine, service

    def driver(
        self, options: Mapping[str, t.Any] | None = None, epoch: int = 1, **more: t.Any
    ) -> t.Any:
        given = {
            "hosts": "all",
            "ports": "20100-20199",
            **(SHOP if options is None else options),
            **more,
        }
        module = loader.load(PlatformDriver, self.engine, "rollout_platform")
        context = DriverContext(self.service, self.transport, known=Knows(epoch=epoch))
        return module.driver(module.check(given, "rollout_platform"), context)

    def run(self, *words: str, host: str = "web1") -> str:
        """What the program says on a host."""
        return self.hosts.run(host, self.engine, *words)

    def names(self, host: str = "web1") -> set[str]:
        """The containers on a host, running or not."""
        return set(self.run("ps", "--all", "--format={{.Names}}", host=host).split())

    def state(self, *, host: str = "web1") -> str:
        """The directory of the service's records on a host."""
        return f"/var/lib/rollout/{host}/{self.service}"

    def remove(self) -> None:
        ours = f"{self.engine} ps --all --quiet --filter label=progressive.rollout.service"
        at_once = "--time=0" if self.engine == "podman" else ""
        script = (
            f"{ours} | xargs --no-run-if-empty {self.engine} rm --force --volumes {at_once} && rm"
            " -rf /var/lib/rollout"
        )
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda host: self.hosts.run(host, "/bin/sh", "-c", script), NAMES))


@pytest.fixture(params=ENGINES)
def both(request: pytest.FixtureRequest, hosts: Hosts, transport: Transport) -> Iterator[Bench]:
    """For what depends on the program."""
    bench = Bench(hosts, transport, request.param, "shop")
    yield bench
    bench.remove()


@pytest.fixture
def bench(hosts: Hosts, transport: Transport) -> Iterator[Bench]:
    """For what does not."""
    bench = Bench(hosts, transport, "podman", "shop")
    yield bench
    bench.remove()


class Site:
    """The hosts of a bench, as the contract wants them."""

    told = "; last log lines: no"

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def driver(self, epoch: int = 1) -> PlatformDriver:
        return t.cast("PlatformDriver", self.bench.driver(epoch=epoch))

    def neighbour(self) -> PlatformDriver:
        cart = Bench(self.bench.hosts, self.bench.transport, self.bench.engine, "cart")
        return t.cast("PlatformDriver", cart.driver())

    def ending(self) -> PlatformDriver:
        options = {"command": ["-c", "print('no'); raise SystemExit(3)"]}
        return t.cast("PlatformDriver", self.bench.driver(PYTHON, **options))

    def stubborn(self, stop_timeout: str) -> PlatformDriver:
        options = {"command": ["-c", STUBBORN], "stop_timeout": stop_timeout}
        return t.cast("PlatformDriver", self.bench.driver(PYTHON, **options))

    def up(self, report: Report) -> bool:
        return self.bench.run("logs", report.labels.id, host=report.labels.host) == "up\n"

    def logging(self) -> PlatformDriver:
        return t.cast("PlatformDriver", self.bench.driver(PYTHON, command=["-c", TICKS]))

    def left(self) -> list[str]:
        """What runs: one stopped container of the last revision is kept, with its image."""
        return [
            name
            for host in NAMES
            for name in self.bench.run("ps", "--format={{.Names}}", host=host).split()
        ]


class TestContainers(contract.HostsContract):
    @pytest.fixture
    def site(self, both: Bench) -> Site:
        return Site(both)


def labels(
    driver: t.Any, *ids: str, revision: str = "1", taken: Sequence[Labels] = ()
) -> list[Labels]:
    return [
        Labels(id, driver.context.service, revision, 7, host, endpoint, slot)
        for id, (host, endpoint, slot) in zip(ids, driver.place(len(ids), taken, 7), strict=True)
    ]


def states(reports: t.Iterable[Report]) -> dict[str, Process]:
    return {report.labels.id: report.process for report in reports}


def by_id(reports: t.Iterable[Report]) -> dict[str, Report]:
    return {report.labels.id: report for report in reports}


def get(report: Report, path: str = "/") -> str:
    """What an instance answers, once it does."""
    found: list[str] = []

    def answered() -> bool:
        try:
            with urllib.request.urlopen(
                f"http://{report.labels.endpoint}{path}", timeout=5
            ) as answer:
                found.append(answer.read().decode())
        except OSError:
            return False
        return True

    until(answered, f"{report.labels.id} answers")
    return found[-1]


def becomes(driver: t.Any, expected: Mapping[str, Process], **work: t.Any) -> list[Report]:
    """The reports, once they are as expected; the work is asked for again and again, as it is in
    a rollout.
    """
    found: list[list[Report]] = []

    def reached() -> bool:
        found.append(driver.sync(**work))
        return states(found[-1]) == expected

    until(reached, f"{expected}")
    return found[-1]


def test_instances_answer_under_their_names(both: Bench) -> None:
    driver = both.driver()
    driver.check()
    assert list(driver.machines) == list(NAMES)
    wanted = labels(driver, "shop-1", "shop-2", "shop-3")
    reports = driver.sync(start=wanted)
    assert [get(report) for report in reports] == [f"1 {report.labels.id}\n" for report in reports]
    assert both.names("web1") == {"shop-1", "shop-3"}
    driver.sync(start=wanted[:1])  # again
    assert both.names("web1") == {"shop-1", "shop-3"}


def test_what_rollouts_left_is_removed_and_containers_run_on(both: Bench) -> None:
    driver = both.driver()
    driver.sync(start=labels(driver, "shop-1"))
    named = driver.leave(dry=True)
    assert any("/instances/shop-1.json" in name for name in named)
    assert list(driver.leave(dry=False)) == list(named)
    assert list(driver.leave(dry=False)) == [], "again"
    assert both.hosts.run("web1", "/bin/sh", "-c", "ls /var/lib/rollout 2>/dev/null || true") == ""
    assert both.names("web1") == {"shop-1"}
    (report,) = both.driver().sync()
    assert get(report) == "1 shop-1\n", "its labels are part of it, and a later rollout finds it"


def test_one_that_was_stopped_is_not_brought_back_by_its_restart_policy(both: Bench) -> None:
    driver = both.driver(restart="unless-stopped")
    driver.sync(start=labels(driver, "shop-1"))
    becomes(driver, {"shop-1": Process.STOPPED}, stop=["shop-1"])
    for _look in range(10):
        assert states(driver.sync()) == {"shop-1": Process.STOPPED}
    assert driver.sync(forget=["shop-1"]) == []


def test_one_that_ends_says_how(both: Bench) -> None:
    driver = both.driver(
        PYTHON, command=["-c", "print('no'); print('config'); raise SystemExit(3)"]
    )
    driver.sync(start=labels(driver, "shop-1"))
    (report,) = becomes(driver, {"shop-1": Process.FAILED})
    assert report.detail.startswith("exit code 3 within ")
    assert report.detail.endswith("of its start; last log lines: no | config")
    assert driver.sync(forget=["shop-1"]) == []
    assert both.names() == set()
    assert both.hosts.run("web1", "cat", f"{both.state()}/logs/shop-1.log") == "no\nconfig\n"


def test_end_without_a_readable_log_says_why(both: Bench) -> None:
    given = {**PYTHON, "args": [*PYTHON["args"], "--log-driver=none"]}
    driver = both.driver(given, command=["-c", "print('no'); raise SystemExit(3)"])
    driver.sync(start=labels(driver, "shop-1"))
    (report,) = becomes(driver, {"shop-1": Process.FAILED})
    words = {"podman": "'none' log driver", "docker": "does not support reading"}[both.engine]
    log = report.detail.partition(" of its start; ")[2]
    assert log.startswith(f"its log cannot be read ({both.engine} logs: ") and words in log


def test_one_that_ignores_the_signal_is_killed_after_the_timeout(
    both: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = both.driver(PYTHON, command=["-c", STUBBORN], stop_timeout="1h")
    patient.sync(start=labels(patient, "shop-1"))
    until(lambda: both.run("logs", "shop-1") == "up\n", "it is up")
    assert states(patient.sync(stop=["shop-1"])) == {"shop-1": Process.STOPPING}
    assert states(patient.sync(stop=["shop-1"])) == {"shop-1": Process.STOPPING}
    assert states(both.driver(PYTHON, stop_timeout="1ms").sync(stop=["shop-1"])) == {
        "shop-1": Process.STOPPING
    }, "its own time"
    both.run("kill", "--signal=KILL", "shop-1")
    becomes(patient, {"shop-1": Process.STOPPED}, stop=["shop-1"])
    patient.sync(forget=["shop-1"])
    hasty = both.driver(PYTHON, command=["-c", STUBBORN], stop_timeout="1ms")
    hasty.sync(start=labels(hasty, "shop-1"))
    lines: list[str] = []
    monkeypatch.setattr(both.transport, "print_line", lines.append)
    (report,) = becomes(hasty, {"shop-1": Process.STOPPED}, stop=["shop-1"])
    assert report.detail == "did not stop in time and was killed"
    hasty.sync()
    (line,) = lines
    assert line.startswith("shop-1 on web1 did not stop in time and was killed: ")
    assert "raise rollout_platform.stop_timeout [PR-228]" in line


def test_what_cannot_start_has_failed_and_leaves_nothing(bench: Bench) -> None:
    driver = bench.driver({**SHOP, "args": ["--entrypoint=/nowhere/shop"]})
    (report,) = driver.sync(start=labels(driver, "shop-1"))
    assert report.process is Process.FAILED
    assert report.detail.startswith(f"{bench.engine} cannot start it: ")
    assert "/nowhere/shop" in report.detail
    assert bench.names() == set()


def test_a_port_that_a_stranger_has(bench: Bench) -> None:
    driver = bench.driver()
    wanted = labels(driver, "shop-1", "shop-2", "shop-3")
    endpoint = wanted[0].endpoint
    publish = f"--publish={endpoint.address}:{endpoint.port}:8080"
    bench.run(
        "run",
        "--detach",
        "--name=stranger",
        "--label=progressive.rollout.service=shop",
        publish,
        "localhost/shop:1",
    )
    others = {"shop-2": Process.RUNNING, "shop-3": Process.RUNNING}
    reports = driver.sync(start=wanted)
    assert states(reports) == others
    (place,) = labels(driver, "shop-4", taken=[report.labels for report in reports])
    assert place.endpoint != endpoint
    reports = driver.sync(start=wanted[:1])  # insisted on, as where there is no other port
    assert states(reports) == others | {"shop-1": Process.FAILED}
    assert (
        f"port {endpoint.port} at {endpoint.address} is taken by another program"
        in by_id(reports)["shop-1"].detail
    )


def test_a_name_that_a_stranger_has(both: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(both.transport, "print_line", lines.append)
    both.run("run", "--detach", "--name=shop-1", "localhost/shop:1")
    driver = both.driver(hooks={"after_stop": ["/bin/touch", "/run/{instance}"]})
    wanted = labels(driver, "shop-1", "shop-2", "shop-3")
    assert [one.host for one in wanted] == ["web1", "web2", "web1"]
    running = {"shop-2": Process.RUNNING, "shop-3": Process.RUNNING}
    assert states(driver.sync(start=wanted)) == running, "nothing has failed"
    said = "web1: the container shop-1 is there already, not ours; an instance of another name is"
    assert [line.startswith(said) for line in lines] == [True]
    assert both.hosts.run("web1", "ls", "/run/shop-1"), "its hook has undone what the other did"
    assert both.names() == {"shop-1", "shop-3"}
    both.run("rm", "--force", "shop-1")
    both.hosts.run("web1", "rm", "/run/shop-1")


def test_what_a_start_cut_short_left_is_removed_and_what_runs_is_taken_in(both: Bench) -> None:
    driver = both.driver()
    wanted = labels(driver, "shop-1", "shop-2", "shop-3")
    driver.sync(start=wanted)
    both.hosts.run("web1", "rm", "-rf", both.state())
    half = [
        f"--label=progressive.rollout.{name}={value}"
        for name, value in (("service", "shop"), ("host", "web1"), ("id", "shop-9"))
    ]
    both.run("create", "--name=shop-9", *half, "localhost/shop:1")
    looking = both.driver(epoch=0)
    assert {report.labels for report in looking.sync()} == set(wanted)
    assert both.names() == {"shop-1", "shop-3", "shop-9"}
    both.hosts.run("web1", "test", "!", "-e", both.state())
    reports = both.driver().sync(start=wanted)
    assert states(reports) == dict.fromkeys(("shop-1", "shop-2", "shop-3"), Process.RUNNING)
    assert {report.labels for report in reports} == set(wanted)
    assert all(time.time() - 600 < report.created <= time.time() for report in reports)
    assert both.names() == {"shop-1", "shop-3"}


def test_an_agent_that_is_killed_as_it_starts_one(both: Bench) -> None:
    """The program goes on alone, and nobody records what it has started."""
    driver = both.driver()
    (wanted,) = labels(driver, "shop-1")
    shadow, program = f"/usr/local/bin/{both.engine}", f"/usr/bin/{both.engine}"
    script = f'#!/bin/sh\n[ "$1" != run ] || {{ rm "$0"; kill -9 $PPID; }}\n{program} "$@"\n'
    both.hosts.run("web1", "/bin/sh", "-c", f"printf '%s' '{script}' >{shadow}; chmod +x {shadow}")
    with pytest.raises(PlatformError, match="web1: the agent was ended by signal 9"):
        driver.sync(start=[wanted])
    (report,) = driver.sync(start=[wanted])
    assert (report.labels, report.process) == (wanted, Process.RUNNING)
    until(
        lambda: both.hosts.run("web1", "/bin/sh", "-c", f"pgrep -x {both.engine} || true") == "",
        "the program has ended",
        20,
    )
    assert both.names() == {"shop-1"}
    assert get(report) == "1 shop-1\n"


def test_one_container_of_the_last_revisions_is_kept(bench: Bench) -> None:
    driver = bench.driver()
    for number, revision in enumerate("112", 1):
        name = f"shop-{number}"
        wanted, *_more = labels(driver, name, revision=revision)
        driver.sync(start=[wanted])
        becomes(driver, {name: Process.STOPPED}, stop=[name])
        assert driver.sync(forget=[name]) == []
    assert bench.names() == {"shop-3"}
    driver.sync(start=labels(driver, "shop-3"))  # in a new journal
    assert bench.driver(keep_revisions=0).sync(forget=["nothing"]) != []
    assert bench.names() == {"shop-3"}


def test_what_somebody_else_did_is_seen(bench: Bench) -> None:
    driver = bench.driver()
    driver.sync(start=labels(driver, "shop-1", "shop-2", "shop-3"))
    bench.run("rm", "--force", "shop-1")
    bench.run("stop", "shop-2", host="web2")
    bench.run("pause", "shop-3")
    reports = by_id(driver.sync())
    assert reports["shop-1"].process is reports["shop-2"].process is Process.FAILED
    assert reports["shop-1"].detail == "its container was removed outside the rollout"
    assert reports["shop-2"].detail.startswith("exit code 0 within ")
    assert (reports["shop-3"].process, reports["shop-3"].detail) == (
        Process.UNKNOWN,
        "it is paused",
    )
    bench.run("start", "shop-2", host="web2")
    bench.run("unpause", "shop-3")
    driver.sync(forget=["shop-1"])
    assert states(driver.sync()) == dict.fromkeys(("shop-2", "shop-3"), Process.RUNNING)


def test_a_host_that_was_restarted(both: Bench) -> None:
    driver, lasting = both.driver(), both.driver(restart="unless-stopped")
    ended, lives = labels(driver, "shop-1", "shop-2", "shop-3")[::2]
    driver.sync(start=[ended])
    lasting.sync(start=[lives])
    both.hosts.kill("web1")
    both.hosts.start("web1")
    both.hosts.run("web1", "systemctl", "start", "docker")
    if both.engine == "podman":
        both.run("start", "shop-3")  # it does not by itself
    reports = by_id(driver.sync())
    assert reports["shop-1"].process is Process.FAILED
    # Docker makes up an end, and all hosts of the tests are one for the kernel, which gives its
    # number to each start of a machine.
    assert reports["shop-1"].detail.startswith(
        "exit code 255" if both.engine == "docker" else "gone: the host was restarted"
    )
    assert reports["shop-3"].process is Process.RUNNING
    assert get(reports["shop-3"]) == "1 shop-3\n"
    becomes(driver, {"shop-1": Process.FAILED, "shop-3": Process.STOPPED}, stop=["shop-3"])
    assert driver.sync(forget=["shop-1", "shop-3"]) == []


def test_an_image_that_is_not_there(both: Bench) -> None:
    never = both.driver(pull="never")
    refused = (
        r"^rollout_platform.image: localhost/shop:9 is not there, and is never pulled"
        r" \(rollout_platform.pull\) \(on web1, web2\)$"
    )
    with pytest.raises(PlatformError, match=refused):
        never.prepare("9")
    missing = both.driver(image="127.0.0.1:1/shop:{revision}")
    with pytest.raises(
        PlatformError,
        match=(
            r"image: 127.0.0.1:1/shop:1 cannot be pulled: .*connection refused.*\(on web1, web2\)$"
        ),
    ):
        missing.prepare("1")


def test_images_that_are_not_the_same_are_refused(both: Bench) -> None:
    for revision, host in zip("12", NAMES, strict=True):
        both.run("tag", f"localhost/shop:{revision}", "localhost/shop:moved", host=host)
    with pytest.raises(
        PlatformError, match=r"is not the same image everywhere \(\w{12} on web1; \w{12} on web2\)"
    ):
        both.driver(pull="never").prepare("moved")


def test_the_environment_is_a_secret(bench: Bench) -> None:
    secret = "s3cret-f00d"
    driver = bench.driver(env={"TOKEN": secret})
    watch = "while :; do ps -eo args; done"
    bench.hosts.run(
        "web1",
        "systemd-run",
        "--unit=watch",
        "--property=StandardOutput=file:/run/seen",
        "/bin/sh",
        "-c",
        watch,
    )
    try:
        driver.sync(start=labels(driver, "shop-1"))
    finally:
        bench.hosts.run("web1", "systemctl", "stop", "watch")
    assert secret in bench.run("inspect", "shop-1")
    seen = bench.hosts.run("web1", "cat", "/run/seen")
    assert "--name=shop-1" in seen
    assert secret not in seen
    files = bench.hosts.run("web1", "/bin/sh", "-c", f"cat $(find {bench.state()} -type f)")
    assert '"shop-1"' in files
    assert secret not in files


def test_all_options(both: Bench) -> None:
    driver = both.driver(
        {"image": "localhost/shop:{revision}"},
        command=["-c", SHOW, "/run/{slot}"],
        network="host",
        volumes=["/etc/hostname:/run/{slot}:ro"],
        env={"TOKEN": ' "#" {address} '},
        env_files=["/run/{revision}.env"],
        labels={"team": "shop {revision}"},
        memory="64m",
        cpus=0.5,
        pids=50,
        ulimits={"nofile": "1000:2000", "nproc": 1000},
        user=1000,
        healthcheck={
            "command": "test -e /dev/shm/well",
            "interval": "500ms",
            "retries": 1,
            "start_period": 0,
        },
        restart="on-failure:2",
        stop_signal="INT",
        args=["--entrypoint=/usr/bin/python3", "--hostname={host}"],
    )
    both.hosts.run("web1", "/bin/sh", "-c", "printf 'TOKEN=no\\nMINE=file\\n' > /run/1.env")
    with pytest.raises(
        PlatformError, match=r"env_files: /run/1.env is not there or cannot be read \(on web2\)"
    ):
        driver.prepare("1")
    driver.check()
    wanted = labels(driver, "shop-1")
    driver.sync(start=wanted)
    (shown,) = json.loads(both.run("inspect", "shop-1"))
    config, host = shown["Config"], shown["HostConfig"]
    env = dict(entry.split("=", 1) for entry in config["Env"])
    assert (env["MINE"], env["PORT"], env["SLOT"], env["ADDRESS"]) == (
        "file",
        "20100",
        "0",
        wanted[0].endpoint.address,
    )
    assert (config["Labels"]["team"], config["User"], config["Hostname"]) == (
        "shop 1",
        "1000",
        "web1",
    )
    assert (host["Memory"], host["NanoCpus"], host["PidsLimit"]) == (64 << 20, 5 * 10**8, 50)
    assert host["RestartPolicy"] == {"Name": "on-failure", "MaximumRetryCount": 2}
    until(
        lambda: both.run("logs", "shop-1") == f' "#" {wanted[0].endpoint.address} web1\n',
        "it says what it has",
        20,
    )

    (report,) = becomes(driver, {"shop-1": Process.UNKNOWN})
    assert report.detail == f"{both.engine}'s check of it: unhealthy (without output)"
    both.run("exec", "shop-1", "/bin/sh", "-c", ": > /dev/shm/well")
    becomes(driver, {"shop-1": Process.RUNNING})


def test_secrets_of_podman(bench: Bench) -> None:
    show = "import time; print(open('/run/secrets/token').read(), flush=True); time.sleep(1000)"
    driver = bench.driver(PYTHON, secrets=["token,uid=0"], command=["-c", show])
    with pytest.raises(
        PlatformError,
        match=r"rollout_platform.secrets: there is no secret token \(on web1, web2\)$",
    ):
        driver.prepare("1")
    for host in NAMES:
        bench.hosts.run(host, "/bin/sh", "-c", "printf sesame | podman secret create token -")
    try:
        driver.prepare("1")
        driver.sync(start=labels(driver, "shop-1"))
        until(lambda: bench.run("logs", "shop-1") == "sesame\n", "it reads it")
    finally:
        bench.remove()
        for host in NAMES:
            bench.run("secret", "rm", "token", host=host)


def test_check_names_what_is_wrong(bench: Bench) -> None:
    with pytest.raises(
        InputError, match=r"rollout_platform.network: there is no network blue \(on web1, web2\)$"
    ):
        bench.driver(network="blue").check()
    with pytest.raises(
        InputError,
        match=r"rollout_platform.path: /etc/hostname is not a directory \(on web1, web2\)$",
    ):
        bench.driver(path="/etc/hostname").check()


def test_a_program_that_does_not_work(both: Bench) -> None:
    program = f"/usr/bin/{both.engine}"
    both.hosts.run("web2", "mv", program, f"{program}.away")
    try:
        with pytest.raises(
            InputError,
            match=rf"^rollout_platform.driver: {both.engine} is not installed \(on web2\)$",
        ):
            both.driver().check()
        with pytest.raises(
            PlatformError, match=rf"cannot know what runs on web2: {both.engine} is not installed$"
        ):
            both.driver().sync()
    finally:
        both.hosts.run("web2", "mv", f"{program}.away", program)
