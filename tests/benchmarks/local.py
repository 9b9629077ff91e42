# SPDX-License-Identifier: GPL-3.0-or-later
"""The same fleet and the same start-up times on this machine, by this collection and by a
hand-written playbook.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import yaml
from ansible_collections.progressive.rollout.tests.benchmarks.history import Row
from ansible_collections.progressive.rollout.tests.benchmarks.rollouts import (
    APP,
    ENV,
    FIRST_PORT,
    INSTANCES,
    ROOT,
    STOP,
    SURGE,
    Figures,
    Fleet,
    both,
    end,
    here,
    inventory,
    playbook,
)

SMALL = Fleet(INSTANCES, INSTANCES, SURGE, ENV)


def rows(folder: Path) -> list[Row]:
    """Measure both, and what Ansible takes alone."""
    hosts = inventory(folder, SMALL)
    figures = here(folder / "small", hosts, SMALL)
    serial = _serial(folder, hosts)
    alone = _alone(folder, hosts)
    return [
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
        ("a run that finds nothing to do: wall time / CPU", both(figures["again"]), "under 0.9 s"),
        ("a play with one task, by Ansible alone: wall time / CPU", both(alone), ""),
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


def _alone(folder: Path, hosts: Path) -> Figures:
    """What Ansible takes for a play that does nothing."""
    nothing = folder / "nothing.yml"
    nothing.write_text(
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
    return playbook([str(nothing), "-i", str(hosts)])


def _serial(folder: Path, hosts: Path) -> Figures:
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

    arguments = [
        str(ROOT / "tests/benchmarks/serial.yml"),
        "-i",
        str(hosts),
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
        return playbook(arguments)
    finally:
        end(int(pid.read_text()) for pid in path.glob("*.pid"))
