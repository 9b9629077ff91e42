# SPDX-License-Identifier: GPL-3.0-or-later
"""Many hosts that are this machine, as far away as hosts of a network are.

    with DistantHosts(1000, delay=0.02) as hosts:
        inventory, env = {"fleet": {"hosts": hosts.variables}}, hosts.environment

A server runs their commands, and everything that these start belongs to it: its CPU is that of the
hosts, apart from the controller's. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.progressive.rollout.tests.support.waiting import until

PLUGINS = Path(__file__).with_name("connection_plugins")
SERVER = Path(__file__).with_name("distant_server.py")


class DistantHosts:
    """`count` hosts with addresses of their own, and the server that runs their commands."""

    def __init__(self, count: int, delay: float) -> None:
        """`delay`: seconds to a host and back."""
        self.names = [f"h{number:04d}" for number in range(1, count + 1)]
        self._delay = delay
        self._folder = tempfile.TemporaryDirectory(prefix="hosts-")  # a socket's path is short
        self._socket = Path(self._folder.name, "socket")
        self._count = Path(self._folder.name, "commands")
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> DistantHosts:
        files = str(self._socket), str(self._count)
        self._server = subprocess.Popen([sys.executable, "-I", "-S", str(SERVER), *files])
        until(self._socket.exists, "the server of the distant hosts listens")
        return self

    def __exit__(self, *_exc: object) -> None:
        for pid in [*reversed(_descendants(self._pid)), self._pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self._server
        self._server.wait()
        self._folder.cleanup()

    @property
    def _pid(self) -> int:
        assert self._server
        return self._server.pid

    @property
    def variables(self) -> dict[str, dict[str, t.Any]]:
        """The inventory variables of each host."""
        common = {"ansible_connection": "distant", "ansible_python_interpreter": sys.executable}
        return {
            name: {**common, "ansible_host": f"127.1.{number // 250}.{number % 250 + 1}"}
            for number, name in enumerate(self.names)
        }

    @property
    def environment(self) -> dict[str, str]:
        """What Ansible needs to reach them."""
        return {
            "ANSIBLE_CONNECTION_PLUGINS": str(PLUGINS),
            "DISTANT_SOCKET": str(self._socket),
            "DISTANT_DELAY": str(self._delay),
        }

    @property
    def commands(self) -> int:
        """How many commands they were given."""
        return self._count.stat().st_size

    @property
    def cpu(self) -> float:
        """The CPU seconds of the server and of all processes that it has seen end."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _descendants(pid: int) -> list[int]:
    """All that a process has started, and those they started."""
    pids = [pid]
    for one in pids:  # the list grows meanwhile
        with contextlib.suppress(OSError):
            pids += map(int, Path(f"/proc/{one}/task/{one}/children").read_text().split())
    return pids[1:]
