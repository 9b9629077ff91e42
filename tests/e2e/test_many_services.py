# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/examples/many-services and its page, command by command; only addresses, ports, paths and
times are replaced.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import typing as t
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible_collections.progressive.rollout.tests.support.awx import TOKEN, Awx
from ansible_collections.progressive.rollout.tests.support.haproxy import HAProxy
from ansible_collections.progressive.rollout.tests.support.pages import SNIPPETS
from ansible_collections.progressive.rollout.tests.support.playbook import APP, ROOT, Playground
from ansible_collections.progressive.rollout.tests.support.ports import free_port
from ansible_collections.progressive.rollout.tests.support.waiting import LONG

EXAMPLE = ROOT / "docs/examples/many-services"
README = SNIPPETS["docs/examples/many-services/README.md"]
PAGE = SNIPPETS["docs/how-to/many-services.md"]
SERVICES = ("api", "mailer", "web", "worker")


class Repository:
    """A copy of the example, with services and load balancer of this machine."""

    def __init__(self, playground: Playground) -> None:
        self.playground, self.home = playground, playground.home / "services"
        shutil.copytree(EXAMPLE, self.home)
        self.front = (playground.addresses["web1"].rpartition(".")[0] + ".2", free_port())
        state = playground.home / "state"
        state.mkdir()
        replaced = {
            "10.0.0.": f"{self.front[0].rpartition('.')[0]}.",
            "bind :80": f"bind {self.front[0]}:{self.front[1]}",
            "    user haproxy\n    group haproxy\n": "",
            "/run/haproxy": str(state),
            "/etc/haproxy": str(state),
            "/var/lib/rollout": str(state),
            "/opt": str(playground.home / "opt"),
            "  driver: process\n": f"  driver: process\n  path: {playground.platform}\n",
            "pause: 10m": "pause: 1s",
            "soak: 10m": "soak: 1s",
        }
        left = set(replaced)
        for path in (path for path in self.home.rglob("*") if path.is_file()):
            text = path.read_text()
            for before, after in replaced.items():
                left -= {before} if before in text else set()
                text = text.replace(before, after)
            path.write_text(text)
        assert not left
        setup = self.home / "setup.yml"  # without systemd
        setup.write_text(setup.read_text().partition("    - name: Run it\n")[0])
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        (self.home / "inventory/group_vars/all/local.yml").write_text(yaml.safe_dump(local))
        (playground.home / ".services-vault").write_text("vault password")
        for service in SERVICES:
            for revision in ("2.4.1", "2.4.2"):
                program = playground.home / "opt" / service / revision / service
                program.parent.mkdir(parents=True)
                program.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S {APP}\n")
                program.chmod(0o755)

    def shell(self, text: str, **env: str) -> str:
        """What a shell snippet prints."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"
        given = {"HOME": str(self.playground.home), "PATH": path, "RESULTS": os.devnull}
        result = subprocess.run(
            ["bash", "-euc", text],
            cwd=self.home,
            env={**self.playground._environment(), **given, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONG,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def running(self) -> dict[str, Counter[str]]:
        """How many instances of each revision run, by service."""
        found = {service: Counter[str]() for service in SERVICES}
        for record in self.playground.living():
            found[record["id"].rpartition("-")[0]][record["revision"]] += 1
        return found

    def secrets(self) -> dict[str, set[str]]:
        """The password that the instances of each service have."""
        found: dict[str, set[str]] = {}
        for record in self.playground.living():
            text = Path(f"/proc/{record['pid']}/environ").read_text()
            known = re.findall(r"DATABASE_PASSWORD=([^\0]*)", text)
            found.setdefault(record["id"].rpartition("-")[0], set()).update(known)
        return found

    def served(self, service: str) -> str:
        """The revision that answers for a service through the load balancer."""
        url = f"http://{self.front[0]}:{self.front[1]}/"
        request = urllib.request.Request(url, headers={"Host": f"{service}.example.com"})
        with urllib.request.urlopen(request, timeout=10) as response:
            return str(response.read().decode()).split()[0]


class Balancer(HAProxy):
    """A HAProxy with the configuration that setup.yml has made."""

    def __init__(self, repository: Repository) -> None:
        self.directory = repository.playground.home / "state"
        self.config = self.directory / "haproxy.cfg"
        self.api = str(self.directory / "admin.sock")
        self.process = None
        self.start()


@pytest.fixture
def repository(playground: Playground) -> Repository:
    return Repository(playground)


@pytest.mark.long
def test_each_command_of_the_page_of_many_services(repository: Repository) -> None:
    secret = "swordfish"
    repository.shell(README["setup"])
    balancer = Balancer(repository)
    try:
        repository.shell(PAGE["vault"], PASSWORD=secret)
        assert secret not in (repository.home / "services/api.yml").read_text()
        vault = {"ANSIBLE_VAULT_PASSWORD_FILE": f"{repository.playground.home}/.services-vault"}
        printed = repository.shell(PAGE["run"], **vault)
        assert "api 2.4.1 (canary, 3 instances)" in printed and "api 2.4.1 promoted" in printed
        # what has no encrypted value needs no password
        repository.shell(PAGE["several"])
        numbers = {"api": 3, "mailer": 1, "web": 3, "worker": 2}
        expected = {service: Counter({"2.4.1": n}) for service, n in numbers.items()}
        assert repository.running() == expected
        assert (repository.served("api"), repository.served("web")) == ("2.4.1", "2.4.1")
        stable = json.dumps(dict.fromkeys(SERVICES, "2.4.1"))
        assert stable in " ".join(repository.shell(PAGE["all"]).split()).replace("{ ", "{").replace(
            " }", "}"
        )
        printed = repository.shell(PAGE["release"], **vault)
        assert "release 2.4.2 is promoted" in printed
        released = {s: Counter({"2.4.2": n}) for s, n in numbers.items() if s != "mailer"}
        assert repository.running() == expected | released
        assert repository.secrets() == {**dict.fromkeys(SERVICES, set()), "api": {secret}}
        assert (repository.served("api"), repository.served("web")) == ("2.4.2", "2.4.2")
        for record in repository.playground.living():
            first, last = map(int, ports()[record["id"].rpartition("-")[0]].split("-"))
            assert first <= record["port"] <= last, record
    finally:
        balancer.stop()


def ports() -> dict[str, str]:
    text = (EXAMPLE / "inventory/group_vars/all/ports.yml").read_text()
    return t.cast("dict[str, str]", yaml.safe_load(text)["ports_of"])


def test_a_service_without_a_file_is_refused(repository: Repository) -> None:
    run = README["rollout"].replace("=web", "=wbe").strip()
    printed = repository.shell(f"{run} || echo failed")
    assert "rollout_service: file services/wbe.yml not found" in printed
    assert printed.endswith("failed\n")
    # the collection's own playbook does not read the file
    run = README["rollout"].replace(" rollout.yml", " progressive.rollout.rollout").strip()
    printed = repository.shell(f"{run} || echo failed")
    assert "rollout_replicas: required" in printed and printed.endswith("failed\n")
    assert not repository.playground.living()


@pytest.fixture
def awx() -> Iterator[Awx]:
    made = Awx({path.name for path in EXAMPLE.glob("*.yml")})
    for kind, name in (
        ("credentials", "services hosts"),
        ("credentials", "services vault"),
        ("teams", "web"),
    ):
        made.create(kind, {"name": name, "organization": 1})
    yield made
    made.close()


@pytest.mark.long
def test_services_share_a_project_and_an_inventory_in_awx(repository: Repository, awx: Awx) -> None:
    text = PAGE["awx"].replace("services/*.yml", "services/web.yml")
    repository.shell(text, CONTROLLER_HOST=awx.url, CONTROLLER_OAUTH_TOKEN=TOKEN)
    shared = ("projects", "inventories", "inventory_sources", "execution_environments")
    assert [awx.names(kind) for kind in shared] == [["services"]] * len(shared)
    assert awx.named("inventory_sources", "services")["source_path"] == "inventory"
    for template in awx.objects["job_templates"].values():
        name = template["name"].removeprefix("web ")
        assert template["playbook"] == f"{name}.yml" and (EXAMPLE / f"{name}.yml").exists()
        assert yaml.safe_load(template["extra_vars"])["rollout_service"] == "web"
        assert awx.may(template, "execute", "teams") == ([] if name == "promote" else ["web"])
