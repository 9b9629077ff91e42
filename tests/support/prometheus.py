# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Prometheus (Debian's package `prometheus`) on a free loopback port, ended by its pid."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
import typing as t
from collections.abc import Mapping
from pathlib import Path

import requests
from ansible_collections.progressive.rollout.tests.support.ports import free_port

PATIENCE = 60.0  # s
LOGIN = ("ann", "s3cret-of-prometheus")
# of that password, by bcrypt
_HASH = "$2b$04$abcdefghijklmnopqrstuuzr/34qMbhk8koY/slifteMLwjftqIRm"


class Prometheus:
    """One process that scrapes its targets every second. The first scrape comes some 5 s after
    the start.
    """

    def __init__(
        self,
        targets: Mapping[str, str],
        certificate: tuple[Path, Path] | None = None,
        login: bool = False,
        past: str = "",
    ) -> None:
        """`targets`: by job, where its metrics are (`127.0.0.1:8404/metrics`). `certificate`
        with its key: it talks TLS. `login`: it admits only `LOGIN`. `past`: samples that it has,
        as OpenMetrics.
        """
        self.directory = Path(tempfile.mkdtemp(prefix="prom", dir="/tmp"))
        self.port = free_port()
        self.url = f"http{'s' * bool(certificate)}://127.0.0.1:{self.port}"
        self._known: dict[str, t.Any] = {"timeout": PATIENCE, "auth": LOGIN if login else None}
        jobs = []
        for job, (address, _slash, path) in (
            (job, target.partition("/")) for job, target in targets.items()
        ):
            jobs.append(
                {
                    "job_name": job,
                    "metrics_path": f"/{path}",
                    "static_configs": [{"targets": [address]}],
                }
            )
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": jobs,
        }
        (self.directory / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML, too
        web: dict[str, t.Any] = {"basic_auth_users": {LOGIN[0]: _HASH}} if login else {}
        if certificate:
            web["tls_server_config"] = {
                "cert_file": str(certificate[0]),
                "key_file": str(certificate[1]),
            }
            self._known["verify"] = str(certificate[0])
        (self.directory / "web.yml").write_text(json.dumps(web))
        if past:
            self._import(past)
        self.process = self._start()

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def query(self, text: str) -> t.Any:
        """Return the result of an instant query, without the driver."""
        reply = requests.post(f"{self.url}/api/v1/query", data={"query": text}, **self._known)
        reply.raise_for_status()
        return reply.json()["data"]["result"]

    def until(self, text: str) -> t.Any:
        """Wait until a query finds something, and return it."""
        end = time.monotonic() + PATIENCE
        while not (found := self.query(text)):
            assert time.monotonic() < end, f"Prometheus found nothing in {PATIENCE:g} s: {text}"
            time.sleep(0.05)
        return found

    def scraped(self, job: str) -> None:
        """Wait until a scrape of a job has ended that began after now."""
        self.until(f'timestamp(up{{job="{job}"}}) > {time.time():.3f} and up == 1')

    def _import(self, past: str) -> None:
        """https://prometheus.io/docs/prometheus/latest/storage/#backfilling-from-openmetrics-format"""
        (self.directory / "past").write_text(past)
        where = [f"{self.directory}/past", f"{self.directory}/data"]
        words = ["promtool", "tsdb", "create-blocks-from", "openmetrics", *where]
        subprocess.run(words, check=True, capture_output=True)

    def _start(self) -> subprocess.Popen[bytes]:
        binary = shutil.which("prometheus", path="/usr/bin:/usr/local/bin")
        assert binary, "these tests need Prometheus: install the package `prometheus`"
        log = self.directory / "log"
        words = [
            f"--web.listen-address=127.0.0.1:{self.port}",
            f"--storage.tsdb.path={self.directory}/data",
        ]
        words += [
            f"--config.file={self.directory}/prometheus.yml",
            f"--web.config.file={self.directory}/web.yml",
        ]
        with log.open("wb") as out:
            process = subprocess.Popen(
                [binary, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        end = time.monotonic() + PATIENCE
        while True:
            try:
                if requests.get(f"{self.url}/-/ready", **self._known).ok:
                    return process
            except requests.ConnectionError:
                pass
            assert process.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.02)
