# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what processes use of their host, from /proc and from their cgroup. Needs Python 3.8.

See proc(5), https://man7.org/linux/man-pages/man5/proc.5.html, and the kernel's page on cgroup v2:
https://docs.kernel.org/admin-guide/cgroup-v2.html. Hosts of before 2021 often have v1 still.
"""

from __future__ import annotations

import math
import os

TYPE_CHECKING = False  # importing typing takes longer than a look at twenty instances
if TYPE_CHECKING:
    import typing as t

CGROUPS = "/sys/fs/cgroup"
MOST = 512  # processes of an instance that are read; of one with more, nothing is said
LARGEST = 65536  # bytes of a file that are read


def of_processes(pids: t.Sequence[int]) -> dict[str, float]:
    """Return CPU seconds, bytes of memory, threads and file descriptors of living processes.

    What may not be read of every process is left out.
    """
    if not 0 < len(pids) <= MOST:
        return {}
    usage = {"cpu": 0.0, "memory": 0.0, "threads": 0.0, "fds": 0.0}
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    for pid in pids:
        fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        if len(fields) < 22 or fields[0] in "ZX":
            continue
        usage["cpu"] += sum(int(ticks) for ticks in fields[11:15]) / ticks  # and of ended children
        usage["threads"] += int(fields[17])
        usage["memory"] += int(fields[21]) * page
        try:
            usage["fds"] += len(os.listdir(f"/proc/{pid}/fd"))
        except PermissionError:
            usage["fds"] = float("nan")
        except OSError:
            pass  # it has just ended
    return {
        name: amount
        for name, amount in usage.items()
        if not math.isnan(amount) and usage["threads"]
    }


def of_cgroup(pid: int) -> dict[str, float]:
    """Return what the cgroup of an instance's main process and all processes in it use."""
    text = _read(f"/proc/{pid}/cgroup")
    for folder, counted in ((folder_of(text), counters), (old_folder_of(text), old_counters)):
        pids = [int(pid) for pid in _read(f"{folder}/cgroup.procs").split()] if folder else []
        if pids:
            return {**of_processes(pids), **counted(folder)}
    return of_processes([pid])


def folder_of(text: str) -> str:
    """Return the folder of a cgroup v2 as /proc/PID/cgroup has it; "": unknown, or of all."""
    for line in text.splitlines():
        if line.startswith("0::/") and len(line) > 4 and ".." not in line:
            return CGROUPS + line[3:]
    return ""


def counters(folder: str) -> dict[str, float]:
    """Return what a cgroup has counted: CPU, throttling, and memory events. In seconds."""
    cpu, memory = _pairs(f"{folder}/cpu.stat"), _pairs(f"{folder}/memory.events")
    totals = {}
    if "usage_usec" in cpu:
        totals["cpu"] = cpu["usage_usec"] / 1e6
    if "throttled_usec" in cpu:
        totals["throttled"] = cpu["throttled_usec"] / 1e6
    if "oom_kill" in memory:
        totals["oom"] = float(memory["oom_kill"])
        totals["pressure"] = float(memory.get("high", 0) + memory.get("max", 0))
    return totals


def old_folder_of(text: str) -> str:
    """Return the folder of a cgroup v1 that systemd made; "": unknown, or of all.

    Controllers may be those of many units together, so nothing is read of any other path.
    """
    for line in text.splitlines():
        path = line.partition(":name=systemd:")[2]
        if path.startswith("/") and path != "/" and ".." not in path:
            return CGROUPS + "/systemd" + path
    return ""


def old_counters(folder: str) -> dict[str, float]:
    """Return what the controllers of a cgroup v1 have counted, of those that it has.

    https://docs.kernel.org/admin-guide/cgroup-v1/
    """
    path = folder[len(CGROUPS + "/systemd") :]
    cpu, memory = f"{CGROUPS}/cpu{path}", f"{CGROUPS}/memory{path}"
    totals = {}
    used, held = _read(f"{CGROUPS}/cpuacct{path}/cpuacct.usage"), _pairs(f"{cpu}/cpu.stat")
    if used.strip().isdigit():
        totals["cpu"] = int(used) / 1e9
    if "throttled_time" in held:
        totals["throttled"] = held["throttled_time"] / 1e9
    killed, full = _pairs(f"{memory}/memory.oom_control"), _read(f"{memory}/memory.failcnt")
    if "oom_kill" in killed and full.strip().isdigit():
        totals["oom"], totals["pressure"] = float(killed["oom_kill"]), float(full)
    return totals


def _pairs(path: str) -> dict[str, int]:
    lines = [line.split() for line in _read(path).splitlines()]
    return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit()}


def _read(path: str) -> str:
    """Return the beginning of a file; "" if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""
