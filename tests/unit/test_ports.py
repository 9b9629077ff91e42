# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two servers of tests never get the same port."""

from __future__ import annotations

import multiprocessing
import socket
from pathlib import Path

from ansible_collections.progressive.rollout.tests.support.ports import SIZE, free_port


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


def test_processes_have_ports_of_their_own() -> None:
    mine = {free_port() for _n in range(10)}
    fork = multiprocessing.get_context("fork")
    with fork.Pool(2) as pool:
        theirs = pool.map(_some, range(2), chunksize=1)
    assert all(mine.isdisjoint(ports) for ports in theirs)


def _some(_n: int) -> list[int]:
    return [free_port() for _n in range(10)]
