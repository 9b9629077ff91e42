# SPDX-License-Identifier: GPL-3.0-or-later
"""Run commands by the server of `tests/support/distant.py`, each after the time a network takes."""

from __future__ import annotations

import os
import socket
import time

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: distant
short_description: hosts of the benchmarks, which are this machine
description:
  - Runs commands on this machine, as far away as the environment variable DISTANT_DELAY says.
options: {}
"""
CONNECTING = 3  # round trips before the first command, at least


class Connection(ConnectionBase):
    """The way to one host."""

    transport = "distant"
    has_pipelining = True

    def _connect(self) -> Connection:
        if not self._connected:
            _wait(CONNECTING)
            self._connected = True
        return self

    def exec_command(
        self, cmd: str, in_data: bytes | None = None, sudoable: bool = True
    ) -> tuple[int, bytes, bytes]:
        """Return how the command ended, what it printed, and its errors."""
        _wait(1)
        try:
            with socket.socket(socket.AF_UNIX) as stream:
                stream.connect(os.environ["DISTANT_SOCKET"])
                stream.sendall(cmd.encode() + b"\0" + (in_data or b""))
                stream.shutdown(socket.SHUT_WR)
                with stream.makefile("rb") as answer:
                    output, _null, ended = answer.read().rpartition(b"\0")
            code, _space, errors = ended.partition(b" ")
            return int(code), output, errors
        except (OSError, ValueError) as exc:
            raise AnsibleConnectionFailure(f"the distant host is gone: {exc}") from None

    def put_file(self, in_path: str, out_path: str) -> None:
        """Not needed: what a command reads comes through its standard input."""
        raise NotImplementedError

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Not needed, either."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing stays open."""
        self._connected = False


def _wait(trips: int) -> None:
    time.sleep(trips * float(os.environ["DISTANT_DELAY"]))
