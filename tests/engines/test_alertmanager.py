# SPDX-License-Identifier: GPL-3.0-or-later
"""The rulebook that ends rollouts on alerts of Alertmanager, by a real ansible-rulebook.

It is installed by `VENV=.cache/eda scripts/setup run eda`, and needs Java.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import yaml
from ansible_collections.progressive.rollout.tests.support.playbook import Playground
from ansible_collections.progressive.rollout.tests.support.ports import free_port
from ansible_collections.progressive.rollout.tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / ".cache/eda/bin/ansible-rulebook"
TOKEN = "t0ken-of-alertmanager"


def documented() -> list[str]:
    """The command of the page."""
    page = (ROOT / "docs/how-to/metrics.md").read_text()
    command = page.partition("<!-- test: rulebook -->\n```sh\n")[2].partition("\n")[0]
    return [str(PROGRAM), *command.split()[1:]]


def installed(home: Path) -> Path:
    """Install the artefact that users get; return where collections are."""
    galaxy = [str(PROGRAM.with_name("ansible-galaxy")), "collection"]
    subprocess.run([*galaxy, "build", "--output-path", home], cwd=ROOT, check=True)
    (artefact,) = home.glob("progressive-rollout-*.tar.gz")
    where = home / "collections"
    subprocess.run([*galaxy, "install", "--offline", artefact, "-p", where], check=True)
    return where


def write_inventory(playground: Playground, folder: Path) -> None:
    """Write the inventory of the example for AWX, with this machine in place of its hosts."""
    inventory = yaml.safe_load((ROOT / "docs/examples/awx/inventory.yml").read_text())
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    for group in inventory.values():
        del group["vars"]  # no root is needed here
        for name in group["hosts"]:
            address = playground.addresses.get(name, "127.0.0.1")
            group["hosts"][name] = {"ansible_host": address, **local}
    platform = {**playground.variables["rollout_platform"], "hosts": "shop"}
    variables = {**playground.variables, "rollout_platform": platform}
    (folder / "group_vars").mkdir(parents=True)
    (folder / "inventory.yml").write_text(yaml.safe_dump(inventory))
    (folder / "group_vars/all.yml").write_text(json.dumps(variables))


class Rulebook:
    """A run of the rulebook, with the variables of a playground's service."""

    def __init__(self, playground: Playground) -> None:
        assert PROGRAM.exists(), "run: VENV=.cache/eda scripts/setup run eda"
        self.port = free_port()
        home = playground.home
        write_inventory(playground, home / "inventory")
        given = {"alertmanager_port": self.port, "alertmanager_token": TOKEN}
        (home / "alertmanager.yml").write_text(json.dumps(given))
        self.log = home / "rulebook.log"
        kept = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
        environment = {
            **kept,
            "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}",
            "ANSIBLE_HOME": str(home / "eda"),
            "ANSIBLE_COLLECTIONS_PATH": str(installed(home)),
        }
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                documented(),
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=home,
            )
        until(lambda: self.ended or self.listens(), "ansible-rulebook", 120)
        assert not self.ended, self.log.read_text()

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def listens(self) -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    def alert(self, token: str = TOKEN, status: str = "firing", **labels: str) -> int:
        """Send what Alertmanager sends; return the status of the answer."""
        alert = {"status": status, "labels": {"alertname": "Errors", **labels}, "annotations": {}}
        body = {"version": "4", "status": status, "commonLabels": labels, "alerts": [alert]}
        url = f"http://127.0.0.1:{self.port}/"
        headers = {"Authorization": f"Bearer {token}"}
        return requests.post(url, json=body, headers=headers, timeout=30).status_code

    def close(self) -> None:
        if not self.ended:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


@pytest.fixture
def playground() -> Iterator[Playground]:
    with Playground() as made:
        yield made


def test_alerts_abort_a_rollout_and_take_the_last_one_back(playground: Playground) -> None:
    for revision in ("1", "2"):
        assert playground.run(variables={"rollout_revision": revision}).rc == 0
    waits = {"confirm_promotion": [{"driver": "approval"}]}
    third = playground.start(
        variables={"rollout_revision": "3", "rollout_gates": waits, "rollout_wait": "10m"}
    )
    until(lambda: playground.journal()["rollout"]["gates"], "a rollout that waits", 120)
    rulebook = Rulebook(playground)
    try:
        assert rulebook.alert(token="another", service="shop", rollout="abort") == 401
        # a rollback that one of these began would throttle the one below
        owned = playground.home / "owned"
        template = f"{{{{ lookup('pipe', 'touch {owned}') }}}}"
        for labels in (
            {"service": "shop"},
            {"service": "shop", "rollout": "rollback", "status": "resolved"},
            {"service": template, "rollout": "abort"},
            {"service": template, "rollout": "rollback"},
        ):
            assert rulebook.alert(**labels) == 200
        assert rulebook.alert(service="shop", rollout="abort") == 200
        outcome = third.wait()
        assert outcome.rc != 0 and stable(playground) == "2"
        assert playground.journal()["rollout"]["outcome"] == "aborted", rulebook.log.read_text()

        assert playground.run(variables={"rollout_revision": "3"}).rc == 0
        assert rulebook.alert(service="shop", rollout="rollback") == 200
        until(lambda: stable(playground) == "2", "the rollback", 120)
        until(lambda: set(playground.revisions()) == {"2"}, "the end of the others")
        assert not owned.exists()
    finally:
        rulebook.close()


def stable(playground: Playground) -> str:
    return str(playground.journal()["stable"]["revision"])
