# SPDX-License-Identifier: GPL-3.0-or-later
"""A real HAProxy (Debian's package `haproxy`) on free loopback ports, ended by its pid."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from ansible_collections.progressive.rollout.tests.support.ports import free_port

CONFIG = """\
global
    nbthread 2
    stats socket {socket} mode 600 level admin
    stats socket {socket}.operator mode 600 level operator
    stats socket ipv4@{api} level admin
defaults
    mode http
    log stdout format raw local0
    log-format "rollout-haproxy|%si:%sp|%ST|%Tr|%Ta|%ts %B|%HU"
    retries 0
    timeout connect 1s
    timeout client 30s
    timeout server 30s
    timeout queue 5s
    timeout check 2s
frontend front
    bind {front[0]}:{front[1]}
{rules}
    default_backend shop
frontend exporter
    bind {exporter}
    http-request use-service prometheus-exporter if {{ path /metrics }}
backend shop
    balance roundrobin
    option httpchk GET /healthz
{servers}
backend fixed
    balance static-rr
"""


def _connection(api: str) -> socket.socket:
    """Return a connection to a Runtime API, at HOST:PORT or at the path of a socket."""
    host, colon, port = api.rpartition(":")
    if colon:
        return socket.create_connection((host, int(port)), 10)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(api)
    return connection


class HAProxy:
    """One process. Two of them may share a port in silence (SO_REUSEPORT), so it is asked for
    its pid.
    """

    def __init__(self, servers: str = "", rules: str = "") -> None:
        """`servers` and `rules`: more lines of the backend `shop`, and of the frontend."""
        self.directory = Path(tempfile.mkdtemp(prefix="hap", dir="/tmp"))
        self.front = ("127.0.0.1", free_port())
        exporter = f"127.0.0.1:{free_port()}"
        self.metrics = f"{exporter}/metrics"  # for Prometheus
        self.api = f"127.0.0.1:{free_port()}"
        self.socket = str(self.directory / "s")
        self.config = self.directory / "haproxy.cfg"
        servers = servers.replace("{directory}", str(self.directory))
        places = {"api": self.api, "front": self.front, "exporter": exporter}
        lines = {"servers": servers, "rules": rules}
        self.config.write_text(CONFIG.format(socket=self.socket, **lines, **places))
        self.process: subprocess.Popen[bytes] | None = None
        self._forget()
        self.start()

    def start(self) -> None:
        binary = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
        assert binary, "these tests need HAProxy: install the package `haproxy`"
        log = self.directory / "log"
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [binary, "-db", "-f", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        end = time.monotonic() + 20
        while True:
            try:
                info = self.ask("show info")
                break
            except OSError:
                assert self.process.poll() is None and time.monotonic() < end, log.read_text()
                time.sleep(0.01)
        assert f"\nPid: {self.process.pid}\n" in info, (
            f"another HAProxy answers on {self.api}: {info}"
        )

    def _forget(self) -> None:
        """Remove what rollouts have kept of an earlier process at this address."""
        for path in Path("/var/lib/rollout/haproxy").glob(f"*@{self.api}*"):
            path.unlink()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.directory)

    def ask(self, line: str) -> str:
        """Return the answer of the Runtime API, without the driver."""
        with _connection(self.api) as connection:
            connection.sendall(line.encode() + b"\n")
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()

    def servers(self, backend: str = "shop") -> dict[str, str]:
        """The status of every server of a backend, by name."""
        lines = [line.split(",") for line in self.ask(f"show stat {backend} 4 -1").splitlines()]
        return {line[1]: line[17] for line in lines if line[0] == backend}
