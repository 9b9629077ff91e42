# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The measurements: `make bench`. One table, printed and written to tests/output/benchmarks.md.

What counts are the ratios from one run: the times depend on the machine and on what else it does.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import typing as t
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import access_log
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import (
    Budget,
    Percent,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import evaluate
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.forecast import (
    forecast,
    ideal,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.evalue import ALPHA
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Instance,
    Rotation,
    State,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import (
    ProgressTracker,
    Rules,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.shares import Target
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    Plan,
    RolloutTarget,
    Step,
    rolling,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.targets import stages
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import process
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import Command
from ansible_collections.progressive.rollout.tests.benchmarks import (
    history,
    orchestrators,
    reports,
    stores,
    swarm,
)
from ansible_collections.progressive.rollout.tests.simulations import verdict
from ansible_collections.progressive.rollout.tests.support.connect import connect
from ansible_collections.progressive.rollout.tests.support.hosts import Hosts

ROOT = Path(__file__).resolve().parents[2]
APP = [sys.executable, "-I", "-S", str(ROOT / "playbooks/files/app.py")]
INSTANCES, SURGE, MEDIAN, SIGMA, SEED, STOP = 100, 10, 2.0, 0.3, 7, 0.3
ENV = {"START_DELAY": f"lognormal:{MEDIAN}:{SIGMA}:{SEED}", "STOP_DELAY": str(STOP)}
FIRST_PORT = 21000
HOSTS = 20  # over SSH, with INSTANCES / HOSTS on each
LOOKS = 10


@dataclass(frozen=True)
class Fleet:
    """What is rolled out, and how long its instances take."""

    instances: int
    hosts: int
    surge: int
    env: Mapping[str, str]
    first_port: int = FIRST_PORT


SMALL = Fleet(INSTANCES, INSTANCES, SURGE, ENV)
# below the ports of outgoing connections
LARGE = Fleet(1000, 200, 100, {"START_DELAY": "2", "STOP_DELAY": str(STOP)}, 11000)


def main() -> None:
    """Measure everything and print the table."""
    rows: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory(prefix="rollout-bench-") as folder:
        rows += rollouts(Path(folder))
        rows += large(Path(folder))
        rows += over_ssh(Path(folder))
        rows += stores.rows(Path(folder))
        rows += orchestrators.rows(Path(folder))
    rows += swarm.rows()
    rows += engine()
    rows += reports.rows()
    rows += judges()
    width = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        f"| {' | '.join(cell.ljust(size) for cell, size in zip(row, width, strict=True))} |"
        for row in rows
    ]
    lines.insert(1, f"|{'|'.join('-' * (size + 2) for size in width)}|")
    text = "\n".join(lines) + "\n"
    output = ROOT / "tests/output/benchmarks.md"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text)
    print(text, end="")
    history.append(rows[1:])


# -- whole rollouts --------------------------------------------------------------------------------


def rollouts(folder: Path) -> list[tuple[str, str, str]]:
    """The same fleet and the same start-up times, by this collection and by a hand-written
    playbook.
    """
    inventory = _inventory(folder, SMALL)
    figures = _ours(folder / "small", inventory, SMALL)
    serial = _serial(folder, inventory)
    alone = _alone(folder, inventory)
    return [
        ("measurement", "figure", "goal"),
        (f"{INSTANCES} instances, surge {SURGE}: wall time", f"{figures['wall']:.1f} s", ""),
        (
            (
                "the ideal sliding window of the same start-up and stop times, as the processes"
                " took them"
            ),
            f"{figures['ideal']:.1f} s",
            "",
        ),
        (
            "the same of the times they were made to take, their interpreters' start left out",
            f"{figures['drawn']:.1f} s",
            "",
        ),
        (
            "wall time over the ideal, Ansible's start included",
            f"{figures['wall'] / figures['ideal']:.3f}",
            "at most 1.06",
        ),
        (
            "what the rollout costs beside its instances",
            f"{figures['wall'] - figures['ideal']:.2f} s",
            "under 1.6 s",
        ),
        ("a run that finds nothing to do: wall time / CPU", _both(figures["again"]), "under 0.9 s"),
        ("a play with one task, by Ansible alone: wall time / CPU", _both(alone), ""),
        ("controller CPU (the agents on the local hosts included)", f"{figures['cpu']:.1f} s", ""),
        ("controller memory, the largest process", f"{figures['memory']:.0f} MB", "under 250 MB"),
        ("lines and events printed", f"{figures['lines']}", "at most 300"),
        (
            "readiness seen after, median / 95 %",
            f"{figures['seen'][0]:.2f} s / {figures['seen'][1]:.2f} s",
            "within 0.1 s",
        ),
        (f"serial: {SURGE} by hand: wall time", f"{serial['wall']:.1f} s", ""),
        ("serial: controller CPU", f"{serial['cpu']:.1f} s", ""),
        ("wall time over serial", f"{figures['wall'] / serial['wall']:.2f}", "at most 0.22"),
        ("controller CPU over serial", f"{figures['cpu'] / serial['cpu']:.3f}", "at most 0.050"),
    ]


def large(folder: Path) -> list[tuple[str, str, str]]:
    """Many instances on many hosts, all on this machine."""
    figures = _ours(folder / "large", _inventory(folder, LARGE), LARGE)
    what = f"{LARGE.instances:,} instances on {LARGE.hosts} local hosts, surge {LARGE.surge}"
    return [
        (f"{what}: wall time", f"{figures['wall']:.1f} s", "under 30 s"),
        (
            "the ideal sliding window of the same start-up and stop times",
            f"{figures['ideal']:.1f} s",
            "",
        ),
        ("wall time over the ideal", f"{figures['wall'] / figures['ideal']:.2f}", "at most 1.30"),
        ("controller CPU", f"{figures['cpu']:.1f} s", ""),
        ("controller memory, the largest process", f"{figures['memory']:.0f} MB", "under 250 MB"),
        ("lines and events printed", f"{figures['lines']}", "at most 300"),
        ("a run that finds nothing to do: wall time / CPU", _both(figures["again"]), ""),
    ]


def _both(figures: Mapping[str, t.Any]) -> str:
    return f"{figures['wall']:.2f} s / {figures['cpu']:.2f} s"


def _inventory(folder: Path, fleet: Fleet) -> Path:
    hosts = {f"h{number:03d}": {"slot": number} for number in range(fleet.hosts)}
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    path = folder / f"{fleet.hosts}-hosts.yml"
    path.write_text(yaml.safe_dump({"fleet": {"hosts": hosts, "vars": local}}))
    return path


def _alone(folder: Path, inventory: Path) -> dict[str, t.Any]:
    """What Ansible takes for a play that does nothing."""
    playbook = folder / "nothing.yml"
    playbook.write_text(
        yaml.safe_dump(
            [
                {
                    "hosts": "localhost",
                    "gather_facts": False,
                    "tasks": [{"ansible.builtin.debug": {}}],
                }
            ]
        )
    )
    return _playbook([str(playbook), "-i", str(inventory)])


def _ours(path: Path, inventory: Path, fleet: Fleet) -> dict[str, t.Any]:
    options = {
        "command": APP,
        "path": str(path),
        "ports": f"{fleet.first_port}-{fleet.first_port + 4 * fleet.instances}",
    }
    try:
        figures = _replaced(path, inventory, fleet, options)
        files = {str(file): file.read_text() for file in path.glob("*/bench/*/*")}
    finally:
        _end(
            json.loads(record.read_text())["pid"]
            for record in path.glob("*/bench/instances/*.json")
        )
    return figures | _took(files, path, fleet)


def _replaced(
    journal: Path,
    inventory: Path,
    fleet: Fleet,
    options: Mapping[str, t.Any],
    count: t.Callable[[], int] = lambda: 0,
) -> dict[str, t.Any]:
    """Deploy the service by the platform `process` with these options, and measure its
    replacement; `again`: one more run. `commands`: by how many the count rose in it.
    """
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
    playbook = [str(ROOT / "playbooks/rollout.yml"), "-i", str(inventory), "-e", f"@{extra}"]
    _playbook([*playbook, "-e", "rollout_revision=r1"])
    before = count()
    figures = _playbook([*playbook, "-e", "rollout_revision=r2"])
    commands = count() - before
    again = _playbook([*playbook, "-e", "rollout_revision=r2"])
    return {**figures, "commands": commands, "again": again}


def _took(files: Mapping[str, str], journal: Path, fleet: Fleet) -> dict[str, t.Any]:
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


def _serial(folder: Path, inventory: Path) -> dict[str, t.Any]:
    path = folder / "serial"
    path.mkdir()
    extra = folder / "serial-vars.yml"

    def variables(revision: str, old: str, port: int, old_port: int) -> None:
        ports = {"port": f"{{{{ {port} + slot }}}}", "old_port": f"{{{{ {old_port} + slot }}}}"}
        extra.write_text(
            yaml.safe_dump(
                {
                    "app": APP,
                    "env": ENV,
                    "path": str(path),
                    "revision": revision,
                    "old": old,
                    **ports,
                }
            )
        )

    playbook = [
        str(ROOT / "tests/benchmarks/serial.yml"),
        "-i",
        str(inventory),
        "-e",
        f"@{extra}",
        "--forks",
        str(SURGE),
    ]
    first, second = FIRST_PORT + 5 * INSTANCES, FIRST_PORT + 6 * INSTANCES
    try:
        # The fleet to be replaced is started here: only the replacement is measured.
        for slot in range(INSTANCES):
            env = {
                **os.environ,
                "REVISION": "r1",
                "PORT": str(first + slot),
                "SLOT": str(slot),
                "STOP_DELAY": str(STOP),
            }
            process = subprocess.Popen(
                APP,
                env=env,
                start_new_session=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            (path / f"h{slot:03d}.r1.pid").write_text(str(process.pid))
        variables("r2", "r1", second, first)
        return _playbook(playbook)
    finally:
        _end(int(pid.read_text()) for pid in path.glob("*.pid"))


def draw(slot: int) -> float:
    """The start-up time the demo service draws for a slot."""
    return MEDIAN * random.Random(f"{SEED}:{slot}").lognormvariate(0, SIGMA)


def _playbook(arguments: list[str]) -> dict[str, t.Any]:
    """Run ansible-playbook: its wall time, the CPU of it and its children, its memory, the lines
    it printed.
    """
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        ["ansible-playbook", *arguments], capture_output=True, text=True, check=False, timeout=900
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


def _end(pids: t.Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


# -- the same on hosts over SSH --------------------------------------------------------------------

# it logs every command
VERBOSE = "echo LogLevel VERBOSE >/etc/ssh/sshd_config.d/count.conf; systemctl reload ssh"


def over_ssh(folder: Path) -> list[tuple[str, str, str]]:
    """The same fleet on hosts of its own."""
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
        figures = _replaced(journal, inventory, fleet, options, lambda: _commands(hosts))
        printed = _everywhere(hosts, "grep -r ^ /var/lib/rollout/*/bench")
        files: dict[str, str] = {}
        for line in "".join(printed).splitlines():
            path, _colon, text = line.partition(":")
            files[path] = files.get(path, "") + text + "\n"
        figures |= _took(files, journal, fleet)
        looks = _looks(hosts, connect(known, folder / "hosts.json"), options)
    # as many commands that do nothing, one after the other
    sshd = figures["commands"] * looks["empty"].wall / HOSTS
    return [
        (f"{what}: wall time", f"{figures['wall']:.1f} s", ""),
        (
            "wall time over the ideal, Ansible's start and connecting included",
            f"{figures['wall'] / figures['ideal']:.3f}",
            "at most 1.15",
        ),
        ("commands that the sshd of all hosts ran for it", f"{figures['commands']}", ""),
        (
            "the same number of empty commands: ssh, sshd and sudo alone, all on this machine",
            f"{sshd:.1f} s, {sshd / figures['ideal']:.3f} of the ideal",
            "",
        ),
        ("controller CPU, ssh included", f"{figures['cpu']:.1f} s", ""),
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


# -- the engine ------------------------------------------------------------------------------------


def engine() -> list[tuple[str, str, str]]:
    """One evaluate in the middle of a rollout, at three sizes, and a whole simulated one."""
    times = {size: _evaluate(size) for size in (1_000, 10_000, 100_000)}
    rows = [
        (f"evaluate {size:,} instances", f"{seconds * 1000:.1f} ms", "")
        for size, seconds in times.items()
    ]
    rows[-1] = (*rows[-1][:2], "at most 150 ms")
    rows.append(
        ("100k over 10k (linear is 10)", f"{times[100_000] / times[10_000]:.1f}", "about 10")
    )
    fleet = [_instance(number, 1) for number in range(100_000)]
    budget = Budget(Percent(Decimal(10)), 0)
    began = time.perf_counter()
    walked = forecast(fleet, [rolling(2, len(fleet))], budget, Rules(), MEDIAN, STOP)
    rows.append(
        (
            "a simulated rollout of 100,000, surge 10 %",
            f"{time.perf_counter() - began:.1f} s, peak {walked.peak:,}",
            "",
        )
    )
    rows.append(_regions(len(fleet), 50))
    return rows


def _regions(size: int, regions: int) -> tuple[str, str, str]:
    """A simulated ramp over several targets at once."""
    targets = [Target(f"t{number}", frozenset({f"h{number}"})) for number in range(regions)]
    ramp = tuple(Step(f"{part} %", replicas=Percent(Decimal(part))) for part in (10, 20, 40, 80))
    budget = Budget(Percent(Decimal(10)), 0)
    goal = RolloutTarget(2, size, budget.resolve(size), before=size, stable=1)
    path = [stage.waypoint for stage in stages(Plan("canary", ramp), goal, targets)]
    fleet = [replace(_instance(n, 1), host=f"h{n % regions}") for n in range(size)]
    began = time.perf_counter()
    walked = forecast(fleet, path, budget, Rules(), MEDIAN, STOP)
    assert walked.seconds is not None and walked.replaced == size
    return (
        f"a simulated ramp of {size:,} over {regions} targets, surge 10 %",
        f"{time.perf_counter() - began:.1f} s, peak {walked.peak:,}",
        "",
    )


def _evaluate(size: int) -> float:
    fleet = [_instance(number, 1 + number % 2) for number in range(size)]
    waypoint, budget = rolling(2, size), Budget(size // 10, 0)
    return min(
        _timed(lambda: evaluate(fleet, waypoint, budget, Rules(), ProgressTracker(0.0), 10.0))
        for _turn in range(5)
    )


def _timed(call: t.Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _instance(number: int, generation: int) -> Instance:
    return Instance(
        f"i{number}",
        "r",
        generation,
        State.READY,
        created=number % 977,
        ready_since=0.0,
        rotation=Rotation.IN,
        lb_healthy=True,
    )


# -- the judges ------------------------------------------------------------------------------------

GOALS = {"0 -> 0.3": f"at least {math.ceil(0.95 * verdict.RUNS)} by sequential"}
GOALS |= {
    f"{rate} -> {rate}": f"at most {verdict.RUNS * ALPHA:.0f} by sequential"
    for rate, same in verdict.RATES
    if rate == same
}
CANARIES = 500


def judges() -> list[tuple[str, str, str]]:
    """How many of the same simulated analyses each judge fails, and after how many intervals;
    and what a bad canary costs.
    """
    what = (
        f"errors an interval {{}}: failed of {verdict.RUNS} (median of {verdict.INTERVALS}"
        " intervals)"
    )
    rows = [
        (
            what.format(name),
            ", ".join(f"{judge} {of}" for judge, of in by.items()),
            GOALS.get(name, ""),
        )
        for name, by in verdict.table()
    ]
    good = [
        verdict.canary(f"good {run}", 0.01, 0.01, (10, 25, 50), looks=20) for run in range(CANARIES)
    ]
    bad = [verdict.canary(f"bad {run}", 0.05, 0.001) for run in range(CANARIES)]
    cost = [failed for failed in bad if failed is not None]
    twice = {
        number: [
            verdict.canary(
                f"twice {run}", 0.01, 0.005, verdict.steps(number), 1000, looks=99 // number
            )
            for run in range(50)
        ]
        for number in (3, 10, 30, 99)
    }
    failed = sum(end is not None for end in good)
    return [
        *rows,
        (
            f"canaries of 10, 25 and 50 % as good as stable: failed of {CANARIES}",
            f"{failed}",
            f"at most {CANARIES * ALPHA:.0f}",
        ),
        (
            f"canaries of 10 % that fail 5 % of requests: found of {CANARIES}",
            f"{len(cost)}",
            f"{CANARIES}",
        ),
        (
            "requests failed until then, mean / most",
            f"{statistics.mean(cost):.1f} / {max(cost)}",
            "under 50",
        ),
        *(
            (
                f"1 % of requests failed instead of 0.5 %, over {number} shares: found of 50",
                f"{50 - ends.count(None)}",
                "at least 45",
            )
            for number, ends in twice.items()
        ),
        (
            "lines of an access log counted in a second of a core",
            f"{_lines():,}",
            "at least 50,000",
        ),
    ]


def _lines() -> int:
    """How many lines of HAProxy the agent counts in a second of a core."""
    lines = [
        f"Nov 22 20:00:01 lb1 haproxy[7]: rollout-haproxy|10.0.0.{number % 20}:80|200"
        f"|{number * 7919 % 5000}|90|--|/shop/item/{number}".encode()
        for number in range(200_000)
    ]
    addresses = [f"10.0.0.{number}:80" for number in range(20)]
    counter = access_log.Counter(
        {"addresses": addresses, "errors": ["5"], "path": "/", "whole": False}
    )
    start = time.process_time()
    counter.count(lines)
    return int(len(lines) / (time.process_time() - start))


if __name__ == "__main__":
    main()
