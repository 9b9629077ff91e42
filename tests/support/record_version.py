# SPDX-License-Identifier: GPL-3.0-or-later
"""Record what a version of the collection leaves behind, for `tests/unit/test_versions.py`.

    python tests/support/record_version.py COLLECTIONS NAME

COLLECTIONS has that version's checkout as `ansible_collections/progressive/rollout` (a link will
do); NAME is what its files are called in `recorded/versions/`. It runs that version's playbooks on
two local hosts with the process platform behind HAProxy, once for each of `SCENARIOS`, and writes
the journal, the instances' records, the epochs and HAProxy's servers, as they were then.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import typing as t
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).parent / "recorded" / "versions"
HOME = Path(tempfile.gettempdir()) / "shop"  # the same in each recording
SOCKET = ("127.0.0.1", 8098)
HAPROXY = f"""\
global
    stats socket ipv4@{SOCKET[0]}:{SOCKET[1]} level admin
defaults
    mode http
    timeout connect 1s
    timeout client 5s
    timeout server 5s
frontend front
    bind 127.0.0.1:8099
    default_backend shop
backend shop
    balance roundrobin
    option httpchk GET /
"""
VARIABLES: dict[str, t.Any] = {
    "rollout_service": "shop",
    "rollout_revision": "1",
    "rollout_replicas": 3,
    "rollout_budget": {"max_surge": 1, "max_unavailable": 0},
    "rollout_platform": {
        "driver": "process",
        "hosts": "web",
        "command": ["/usr/bin/python3", "-m", "http.server", "{port}", "--bind", "{address}"],
        "ports": "8100-8109",
        "path": str(HOME / "platform"),
    },
    "rollout_traffic": {"driver": "haproxy", "backend": "shop", "socket": "127.0.0.1:8098"},
    "rollout_health": {"http": "/", "interval": "100ms", "rise": 1},
    "rollout_store": {"driver": "file", "path": str(HOME / "store")},
    "rollout_min_ready": "1s",
}
CANARY = {
    "rollout_strategy": "canary",
    "rollout_steps": [{"set_weight": 50}, {"pause": {}}],
    "rollout_wait": 0,
}
BLUE_GREEN = {"rollout_strategy": "blue_green", "rollout_hold": "10m"}
# by name: the variables of revision 2's rollout, and after which phase its run is killed
SCENARIOS: dict[str, tuple[dict[str, t.Any], str]] = {
    "parked": (CANARY, ""),
    "killed": ({}, "progressing"),
    "holding": (BLUE_GREEN, "holding"),
    "finished": ({}, ""),
    "rolled_back": (CANARY, ""),
}


def main(collections: str, name: str) -> None:
    """Record every scenario."""
    for scenario, (more, kill) in SCENARIOS.items():
        shutil.rmtree(HOME, ignore_errors=True)
        HOME.mkdir()
        (HOME / "haproxy.cfg").write_text(HAPROXY)
        haproxy = subprocess.Popen(["haproxy", "-db", "-f", str(HOME / "haproxy.cfg")])
        try:
            wait(answers)
            run(collections, "rollout", {}).wait()
            variables = {"rollout_revision": "2", **more}
            last = run(collections, "rollout", variables)
            if kill:
                wait(lambda kill=kill: reached(kill))  # type: ignore[misc]
                last.send_signal(signal.SIGKILL)
                last.wait()
                time.sleep(5)  # its worker ends after its action
            last.wait()
            if scenario == "rolled_back":
                run(collections, "rollback", variables).wait()
            found = {"scenario": scenario, "variables": variables, **recorded()}
            (FOLDER / f"{name}-{scenario}.json").write_text(json.dumps(found, indent=1) + "\n")
        finally:
            for record in instances():
                try:
                    os.killpg(record["pid"], signal.SIGKILL)
                except ProcessLookupError:
                    pass
            haproxy.kill()
            haproxy.wait()


def run(collections: str, playbook: str, variables: dict[str, t.Any]) -> subprocess.Popen[bytes]:
    """Begin a playbook of the collection, as users run it."""
    local = {"ansible_connection": "local"}
    web = {
        "web1": {"ansible_host": "127.0.0.11", **local},
        "web2": {"ansible_host": "127.0.0.12", **local},
    }
    (HOME / "inventory.json").write_text(json.dumps({"web": {"hosts": web}}))
    (HOME / "shop.json").write_text(json.dumps({**VARIABLES, **variables}))
    return subprocess.Popen(
        [
            str(Path(sys.executable).with_name("ansible-playbook")),
            *("-i", "inventory.json", "-e", "@shop.json", f"progressive.rollout.{playbook}"),
        ],
        cwd=HOME,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": collections, "ANSIBLE_HOME": str(HOME)},
        start_new_session=True,
    )


def reached(phase: str) -> bool:
    """Return whether the rollout of revision 2 has the phase, and an instance that serves."""
    rollout = json.loads((HOME / "store/journal/shop.json").read_text())["rollout"]
    started = any(record["revision"] == "2" for record in instances())
    return rollout["revision"] == "2" and rollout["phase"] == phase and started


def recorded() -> dict[str, t.Any]:
    """Return all that is left behind."""
    journal = HOME / "store/journal"
    return {
        "at": time.time(),
        "record": json.loads((journal / "shop.json").read_text()),
        "lease": json.loads((journal / "shop.lease.json").read_text()),
        "timelines": {
            path.stem: path.read_text().splitlines() for path in journal.glob("shop/*.jsonl")
        },
        "instances": instances(),
        "epochs": {
            str(path.relative_to(HOME)): path.read_text() for path in HOME.glob("**/*epoch")
        },
        "servers": servers(),
    }


def instances() -> list[dict[str, t.Any]]:
    """Return the instances' records."""
    return [json.loads(path.read_text()) for path in sorted(HOME.glob("**/instances/*.json"))]


def answers() -> bool:
    """Return whether HAProxy answers."""
    try:
        return bool(servers())
    except OSError:
        return False


def servers() -> list[str]:
    """Return HAProxy's servers."""
    with socket.create_connection(SOCKET, 5) as connection, connection.makefile() as answer:
        connection.sendall(b"show servers state shop\n")
        return [line for line in answer.read().splitlines() if line]


def wait(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("not so within 60 s")
        time.sleep(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
