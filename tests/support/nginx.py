# SPDX-License-Identifier: GPL-3.0-or-later
"""A real nginx (Debian's package `nginx`) on free loopback ports, ended by its pid."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents.nginx import workers
from ansible_collections.progressive.rollout.tests.support.ports import free_port

CONFIG = """\
worker_processes 2;
pid {home}/nginx.pid;
error_log {home}/log;
events {{ worker_connections 512; }}
http {{
    log_format rollout 'rollout-nginx|$upstream_addr|$upstream_status|$upstream_header_time'
        '|$upstream_response_time|$status $body_bytes_sent|$request_uri';
    access_log {home}/access.log rollout;
    client_body_temp_path {home}/tmp;
    proxy_temp_path {home}/tmp;
    fastcgi_temp_path {home}/tmp;
    uwsgi_temp_path {home}/tmp;
    scgi_temp_path {home}/tmp;
    keepalive_timeout {keepalive};
    proxy_next_upstream off;
    include {home}/rollout/*.conf;
    server {{
        listen 127.0.0.1:{listen};
        location / {{ {proxy} }}
    }}
}}
"""
PLACEHOLDER = "upstream shop { server 127.0.0.1:9 down; }\n"
# where clients stay on their side
COHORT_PROXY = "proxy_pass http://$rollout_shop; proxy_set_header Host $host;"
COHORT_PLACEHOLDER = 'split_clients "" $rollout_shop { * shop; }\n'


class Nginx:
    """One nginx with two workers. `keepalive`: how long it keeps idle connections of clients; 0
    as our docs say. `more`: what is beside the upstream in the service's file at first.
    """

    def __init__(
        self, keepalive: str = "0", proxy: str = "proxy_pass http://shop;", more: str = ""
    ) -> None:
        self.home = Path(tempfile.mkdtemp(dir="/tmp", prefix="nginx-"))
        self.home.chmod(0o755)  # its workers are another user
        self.path = self.home / "rollout"
        self.config = self.home / "nginx.conf"
        self.pid = self.home / "nginx.pid"
        self.path.mkdir()
        (self.path / "shop.conf").write_text(PLACEHOLDER + more)
        self.front, self.status = ("127.0.0.1", free_port()), free_port()
        self.config.write_text(
            CONFIG.format(home=self.home, listen=self.front[1], keepalive=keepalive, proxy=proxy)
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        binary = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
        assert binary, "these tests need nginx: install the package `nginx`"
        argv = [binary, "-c", str(self.config), "-e", str(self.home / "log"), "-g", "daemon off;"]
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
            )
        end = time.monotonic() + 20
        while not self.answers():
            assert self.process.poll() is None and time.monotonic() < end, self.log()
            time.sleep(0.01)

    def answers(self) -> bool:
        """Whether this very process listens, as nothing else can have its port, and has workers."""
        try:
            if self.process and int(self.pid.read_text()) == self.process.pid:
                socket.create_connection(self.front, 10).close()
                return len(workers(self.process.pid)) == 2
        except (OSError, ValueError):
            pass
        return False

    def log(self) -> str:
        return (self.home / "log").read_text()

    def stop(self) -> None:
        """At once, with its workers, old ones too."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.home)
