# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the kernel for the TCP connections of this host, as `ss` does. Needs Python 3.8 and Linux.

/proc/net/tcp takes seconds where there are many. See sock_diag(7):
https://man7.org/linux/man-pages/man7/sock_diag.7.html
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct

TYPE_CHECKING = False  # importing typing costs start-up time
if TYPE_CHECKING:
    import typing as t

    End = t.Tuple[bytes, int]  # address and port, as the kernel gives them

SOCK_DIAG, BY_FAMILY, REQUEST_DUMP = 4, 20, 0x301  # what the kernel is asked
ERROR, DONE = 2, 3  # kinds of what it answers
LISTENS, LIVE = 10, 0xFFF & ~(1 << 6)  # a state of sockets, and all of them but TIME_WAIT


class Unlisted(Exception):
    """The kernel does not list its connections."""


def connections() -> tuple[dict[str, tuple[int, End]], set[int]]:
    """Return the TCP connections, and the ports that are listened at.

    By the link of its open file, each connection that is not in TIME_WAIT has its near port and its
    far end. Raises Unlisted.
    """
    far, listening = {}, set()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as kernel:
        kernel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        for family, size in ((socket.AF_INET, 4), (socket.AF_INET6, 16)):
            body = struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, 0, 0, LIVE)
            kernel.send(struct.pack("=IHHII", 16 + len(body), BY_FAMILY, REQUEST_DUMP, 0, 0) + body)
            for message in _replies(kernel):
                state, near, port = struct.unpack_from("!xB2xHH", message)
                if state == LISTENS:
                    listening.add(near)
                else:
                    inode = struct.unpack_from("=I", message, 68)[0]
                    far["socket:[%d]" % inode] = near, (message[24 : 24 + size], port)
    return far, listening


def _replies(kernel: socket.socket) -> t.Iterator[bytes]:
    """Yield the bodies of the messages that answer a question."""
    while True:
        data = kernel.recv(1 << 18)
        while data:
            length, kind = struct.unpack_from("=IH", data)
            if kind == DONE:
                return
            if kind == ERROR:
                raise Unlisted(os.strerror(-struct.unpack_from("=i", data, 16)[0]))
            yield data[16:length]
            data = data[(length + 3) & ~3 :]


def open_files(pid: int) -> t.Iterator[str]:
    """Yield what the open files of a process are links to; none if it has ended."""
    folder = "/proc/%d/fd" % pid
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                yield os.readlink(os.path.join(folder, name))


def end(address: str, port: int) -> End:
    """Return an address and a port as the kernel gives them."""
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address), port
