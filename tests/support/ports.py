# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports for servers that tests start, so that nobody else takes one before its server listens.

A port that the kernel hands out (`bind` to 0) and that is closed again may go to any connection of
the machine until the server listens, and once more while the server is restarted. Here they come
from below the range of the kernel, and from a block that belongs to this process.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterator

SIZE = 500
BLOCKS = range(10_000, 32_500, SIZE)  # Linux itself begins at 32768
LOOPBACK = "127.0.0.1"

_blocks: dict[int, tuple[socket.socket, Iterator[int]]] = {}  # by process: a fork takes its own


def free_port(*addresses: str) -> int:
    """Return a port that is free at all of the addresses; without any: on loopback."""
    _claim, ports = _blocks.get(os.getpid()) or _take()
    return next(port for port in ports if _free(port, addresses or (LOOPBACK,)))


def _take() -> tuple[socket.socket, Iterator[int]]:
    """Claim a block; the claim ends with this process."""
    for first in BLOCKS:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0progressive.rollout-tests-{first}")
        except OSError:
            claim.close()
            continue
        _blocks[os.getpid()] = (claim, itertools.cycle(range(first, first + SIZE)))
        return _blocks[os.getpid()]
    raise RuntimeError(f"all {len(BLOCKS)} blocks of ports are taken by other processes")


def _free(port: int, addresses: tuple[str, ...]) -> bool:
    for address in addresses:
        with socket.socket() as probe:
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True
