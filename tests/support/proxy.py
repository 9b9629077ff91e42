# SPDX-License-Identifier: GPL-3.0-or-later
"""A network between a client and a server that is slow, swallows answers, or is cut."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress


class Proxy:
    """Forwards connections to a server on a loopback port, as its switches say."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.delay = 0.0  # seconds before each piece of an answer
        self.mute = threading.Event()  # set: answers are swallowed
        self.half = threading.Event()  # set: half of the next answer passes, then it is cut
        self.closed = threading.Event()  # set: nothing passes, and connections are refused
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lines: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """End all connections, and those that come, until `mend`."""
        self.closed.set()
        self._drop()

    def mend(self) -> None:
        self.mute.clear()
        self.half.clear()
        self.closed.clear()
        self._drop()

    def _drop(self) -> None:
        lines, self._lines = self._lines, []
        for line in lines:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _address = self._listener.accept()
            except OSError:
                return
            if self.closed.is_set():
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target), 5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            self._lines += [client, server]
            for pair, answers in (((client, server), False), ((server, client), True)):
                threading.Thread(target=self._pump, args=(*pair, answers), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if answers:
                    time.sleep(self.delay)
                    if self.mute.is_set():
                        continue
                    if self.half.is_set():
                        self.half.clear()
                        sink.sendall(data[: len(data) // 2])
                        break
                sink.sendall(data)
        for line in (source, sink):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self._drop()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
