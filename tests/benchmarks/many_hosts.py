# SPDX-License-Identifier: GPL-3.0-or-later
"""Hundreds of hosts 20 ms away, with two instances each: what a host more costs.

Their agents and instances share the cores of this machine, and their CPU is taken out of the
controller's. HOSTS="100 300" chooses the sizes.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from pathlib import Path

import yaml
from ansible_collections.progressive.rollout.tests.benchmarks.history import Row
from ansible_collections.progressive.rollout.tests.benchmarks.rollouts import (
    APART,
    APP,
    STOP,
    Figures,
    Fleet,
    Service,
    apart,
    both,
    took,
    written,
)
from ansible_collections.progressive.rollout.tests.support.distant import DistantHosts
from ansible_collections.progressive.rollout.tests.support.waiting import until

SIZES = tuple(map(int, (os.environ.get("HOSTS") or "100 300 1000").split()))
DELAY = 0.02  # seconds to a host and back
START = 2.0
LEASE = 60  # seconds, the default of rollout_lease
RENEWED = 0.6 * LEASE  # in the background, after half of it, looked at each tenth of it


def rows(folder: Path) -> list[Row]:
    """Measure a replacement, a run with nothing to do and an interruption at each size."""
    found: list[Row] = []
    by_size: dict[int, Figures] = {}
    for size in SIZES:
        home = folder / str(size)
        home.mkdir()
        by_size[size] = _measured(home, size)
        found += _rows(size, by_size[size])
    least = min(SIZES)
    for size in sorted(SIZES)[1:]:
        growth = by_size[size]["cpu"] / by_size[least]["cpu"]
        what = f"controller CPU with {size:,} hosts over that with {least:,}"
        found.append((f"{what} (linear is {size / least:g})", f"{growth:.1f}", "linear"))
    return found


def _rows(size: int, figures: Figures) -> list[Row]:
    instances = 2 * size
    what = f"{instances:,} instances on {size:,} hosts {1000 * DELAY:.0f} ms away, surge 10 %"
    found = [
        ("wall time", f"{figures['wall']:.1f} s", ""),
        ("wall time over the ideal", f"{figures['wall'] / figures['ideal']:.3f}", ""),
        (APART, apart(figures, figures["hosts"]), ""),
        ("CPU of the hosts an instance", f"{1000 * figures['hosts'] / instances:.0f} ms", ""),
        (
            "CPU of the controller an instance",
            f"{1000 * figures['cpu'] / instances:.0f} ms",
            "at most 70 ms",
        ),
        ("controller memory, the largest process", f"{figures['memory']:.0f} MB", "under 250 MB"),
        ("commands an instance", f"{figures['commands'] / instances:.1f}", "at most 4"),
        (
            f"longest time between two renewals of the lease, of {LEASE} s",
            f"{figures['renewed']:.1f} s",
            f"at most {RENEWED:g} s",
        ),
        (
            "from Ctrl-C to the end of the step / of ansible-playbook",
            f"{figures['obeyed']:.2f} s / {figures['ended']:.2f} s",
            "at most 1 s",
        ),
        ("a run that finds nothing to do: wall time / CPU", both(figures["again"]), ""),
        ("status: wall time / CPU", both(figures["status"]), ""),
    ]
    return [(f"{what}: {name}", figure, goal) for name, figure, goal in found]


def _measured(home: Path, size: int) -> Figures:
    fleet = Fleet(
        2 * size, size, 2 * size // 10, {"START_DELAY": str(START), "STOP_DELAY": str(STOP)}
    )
    options = {"command": APP, "path": str(home / "hosts"), "ports": "21000-21009"}
    journal, inventory = home / "store", home / "inventory.yml"
    with DistantHosts(size, DELAY) as hosts:
        inventory.write_text(yaml.safe_dump({"fleet": {"hosts": hosts.variables}}))
        service = Service(journal, inventory, fleet, options, hosts.environment)
        service.run("r1")
        commands, spent = hosts.commands, hosts.cpu
        with Lease(journal) as lease:
            figures = service.run("r2")
        figures |= {
            "commands": hosts.commands - commands,
            "hosts": hosts.cpu - spent,
            "renewed": lease.longest,
            "again": service.run("r2"),
            "status": service.run("r2", "status"),
        }
        figures |= took(written(home / "hosts"), journal, fleet)
        return figures | _interrupted(service, journal)


class Lease:
    """Watches how often the lease of the service is renewed."""

    def __init__(self, journal: Path) -> None:
        self._file = journal / "journal/bench.lease.json"
        self._written: list[float] = []  # when it was
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Lease:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._end.set()
        self._thread.join()

    @property
    def longest(self) -> float:
        """The longest time between two renewals."""
        return max(late - early for early, late in itertools.pairwise(self._written))

    def _watch(self) -> None:
        while not self._end.wait(0.05):
            at = self._file.stat().st_mtime
            if at not in self._written[-1:]:
                self._written.append(at)


def _interrupted(service: Service, journal: Path) -> Figures:
    """Return how long a run takes to end that is told to in the middle of a rollout."""
    timelines = journal / "journal/bench"
    before = set(timelines.iterdir())
    run = service.start("r3")
    new = until(lambda: set(timelines.iterdir()) - before, "the rollout begins", 300)
    until(lambda: '"state": "ready"' in new.copy().pop().read_text(), "an instance is ready", 300)
    workers = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    began = time.monotonic()
    run.send_signal(signal.SIGINT)
    until(lambda: not any(map(_lives, workers)), "the step ends", 300)
    obeyed = time.monotonic() - began
    run.wait()
    return {"obeyed": obeyed, "ended": time.monotonic() - began}


def _lives(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
