# SPDX-License-Identifier: GPL-3.0-or-later
"""A service that was made by hand is adopted, under load."""

from __future__ import annotations

import os
import subprocess
import sys
import typing as t
from collections.abc import Iterator
from contextlib import contextmanager

from ansible_collections.progressive.rollout.tests.support.playbook import APP, ROLLOUT
from ansible_collections.progressive.rollout.tests.support.ports import free_port
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindHAProxy,
    Load,
    Shop,
    failures,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

NAMES = ["app1", "app2", "app3", "app4"]
KEEP_ALIVE = [("GET", True), ("POST", True)]


@contextmanager
def by_hand() -> Iterator[dict[str, int]]:
    """Four programs that somebody started, each with its port."""
    ports = {name: free_port() for name in NAMES}
    programs = [
        subprocess.Popen(
            [sys.executable, "-I", "-S", str(APP)],
            env={**os.environ, "PORT": str(port), "REVISION": "2.3", "INSTANCE": name},
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
        for name, port in ports.items()
    ]
    try:
        yield ports
    finally:
        for program in programs:
            program.kill()
            program.wait()


def test_a_service_made_by_hand_is_adopted_and_loses_no_request() -> None:
    with by_hand() as ports:
        lines = (f"    server {name} 127.0.0.1:{port} check\n" for name, port in ports.items())
        front = BehindHAProxy("".join(lines))
        try:
            until(lambda: set(front.servers().values()) == {"UP"}, "all are up")
            adopt: t.Any = {"revision": "2.3", "servers": NAMES}
            with (
                Shop(
                    front, env={"START_DELAY": "0.1"}, rollout_replicas=4, rollout_adopt=adopt
                ) as shop,
                Load(front.url, KEEP_ALIVE, connections=4, rate=100) as load,
            ):
                canary = {
                    "rollout_revision": "2.4",
                    "rollout_strategy": "canary",
                    "rollout_steps": [
                        {"set_weight": 25},
                        {"gate": {"driver": "command", "command": ["false"]}},
                    ],
                }
                failed = shop.run(ROLLOUT, canary)
                assert failed.rollout["outcome"] == "rolled_back", failed.output
                assert front.serving() == {("127.0.0.1", port) for port in ports.values()}
                assert set(front.weights().values()) == {1}
                assert not shop.living()
                outcome = shop.to("2.5")
                assert all(name in outcome.output for name in [*NAMES, "PR-349"])
                assert len(front.serving()) == 4
                servers = front.servers()
                assert {servers[name] for name in NAMES} == {"MAINT"}
                reports = load.stop()
                assert not failures(reports)
                served = {r for report in reports for r in report["by_revision"]}
                assert {"2.3", "2.5"} <= served, served
        finally:
            front.close()
