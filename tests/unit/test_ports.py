# SPDX-License-Identifier: GPL-3.0-or-later
"""Two servers of tests never get the same port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from ansible_collections.progressive.rollout.tests.support.ports import (
    BLOCKS,
    SIZE,
    free_port,
)


def test_a_port_is_given_once_until_the_block_is_used_up() -> None:
    ports = [free_port() for _n in range(SIZE // 2)]
    assert len(set(ports)) == len(ports)


def test_no_connection_gets_a_port_before_its_server_listens() -> None:
    span = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    assert free_port() < int(span.split()[0])


def test_a_port_in_use_is_left_out() -> None:
    taken = free_port("127.1.2.3")
    with socket.create_server(("127.1.2.3", taken)):
        given = {free_port("127.0.0.1", "127.1.2.3") for _n in range(SIZE)}
    assert given
    assert taken not in given


def test_a_block_belongs_to_one_process() -> None:
    ours = free_port()  # before the other process: its block is free again when it ends
    code = f"from {free_port.__module__} import free_port; print(free_port())"
    theirs = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (ours - BLOCKS.start) // SIZE != (int(theirs.stdout) - BLOCKS.start) // SIZE
