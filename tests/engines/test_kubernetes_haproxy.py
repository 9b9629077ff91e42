# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods of a real Kubernetes behind a real HAProxy outside: docs/examples/kubernetes-haproxy as it
is, but for addresses, ports, paths and the image, which is on the node.
"""

from __future__ import annotations

import csv
import http.client
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible_collections.progressive.rollout.tests.support.namespaces import (
    KUBECONFIG,
    ROOT,
    Namespace,
)
from ansible_collections.progressive.rollout.tests.support.ports import free_port
from ansible_collections.progressive.rollout.tests.support.waiting import until

EXAMPLE = ROOT / "docs/examples/kubernetes-haproxy"


class Site:
    """The example in a directory of its own, with its HAProxy and its pods."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.home = Path(tempfile.mkdtemp(prefix="hap", dir="/tmp"))
        self.port = free_port()
        replaced = {
            "    user haproxy\n    group haproxy\n": "",
            "  vars: {ansible_become: true}\n": "",
            ":80\n": f":{self.port}\n",
            "/run/haproxy/": f"{self.home}/",
            "/var/lib/rollout": f"{self.home}/rollout",
            "shop:1\n": "shop:1\n          imagePullPolicy: Never\n",
        }
        shutil.copytree(EXAMPLE, self.home, dirs_exist_ok=True)
        for path in (path for path in self.home.rglob("*") if path.is_file()):
            text = path.read_text()
            for old, new in replaced.items():
                text = text.replace(old, new)
            path.write_text(text)
        (self.home / "rollout").mkdir()
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        with (self.home / "group_vars/all.yml").open("a") as variables:
            variables.write(yaml.safe_dump(local))
        config = KUBECONFIG.read_text()
        config = config.replace("namespace: default", f"namespace: {namespace.name}")
        (self.home / "kubeconfig").write_text(config)
        binary = shutil.which("haproxy", path="/usr/sbin:/usr/bin")
        assert binary, "this test needs HAProxy: install the package `haproxy`"
        self.haproxy = subprocess.Popen([binary, "-db", "-f", self.home / "haproxy.cfg"])
        namespace.kubectl(
            "apply", "-f", f"{self.home}/role.yaml", "-f", f"{self.home}/deployment.yaml"
        )
        until(lambda: namespace.ready() == {"1": 4}, "the pods are ready")

    def close(self) -> None:
        self.haproxy.kill()
        self.haproxy.wait()
        shutil.rmtree(self.home)

    def roll_out(self, revision: str, *options: str) -> str:
        program = Path(sys.executable).with_name("ansible-playbook")
        words = ["-i", "inventory.yml", "rollout.yml", *options]
        done = subprocess.run(
            [program, *words, "-e", f"rollout_revision={revision}"],
            cwd=self.home,
            env={**os.environ, "KUBECONFIG": str(self.home / "kubeconfig")},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def serving(self) -> set[str]:
        """The addresses of the pods that HAProxy sends requests to."""
        with socket.socket(socket.AF_UNIX) as asked:
            asked.connect(str(self.home / "admin.sock"))
            asked.sendall(b"show stat shop 4 -1\n")
            shown = b"".join(iter(lambda: asked.recv(65536), b"")).decode()
        rows = csv.DictReader(shown.removeprefix("# ").splitlines())
        return {row["addr"].partition(":")[0] for row in rows if row["status"] == "UP"}

    def get(self) -> str:
        """The revision that answers a request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/")
            answer = connection.getresponse()
            text = answer.read().decode()
            assert answer.status == 200, f"{answer.status}: {text}"
            return text
        finally:
            connection.close()


class Load:
    """Requests without a pause, by two clients."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.answers: Counter[str] = Counter()
        self.failed: list[str] = []
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._send) for _one in range(2)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        while not self._end.wait(0.01):
            try:
                self.answers[self.site.get()] += 1
            except (OSError, http.client.HTTPException, AssertionError) as exc:
                self.failed.append(repr(exc))


@pytest.fixture
def site(namespace: Namespace) -> Iterator[Site]:
    made = Site(namespace)
    yield made
    made.close()


def test_the_example_runs_as_it_is_and_loses_no_request(site: Site, namespace: Namespace) -> None:
    """Rolling, a canary by exact weights, and a pod that Kubernetes replaces in between."""
    site.roll_out("1")  # HAProxy gets the pods that are there
    assert site.get() == "1"
    with Load(site) as load:
        site.roll_out("2")
    assert load.failed == []
    assert min(load.answers["1"], load.answers["2"]) > 100
    namespace.is_ordinary("2", 4)
    assert {site.get() for _one in range(20)} == {"2"}

    steps = yaml.safe_load((site.home / "canary.yml").read_text())["rollout_steps"]
    short = [{"pause": "5s"} if "pause" in step else step for step in steps]
    (site.home / "canary.yml").write_text(
        yaml.safe_dump({"rollout_strategy": "canary", "rollout_steps": short})
    )
    with Load(site) as load:
        site.roll_out("3", "-e", "@canary.yml")
    assert load.failed == []
    namespace.is_ordinary("3", 4)

    one = namespace.pods()[0]["metadata"]["name"]
    namespace.cluster.delete(f"{namespace.core}/pods/{one}")
    until(lambda: namespace.ready() == {"3": 4}, "another pod in its place")
    before = namespace.uids()
    site.roll_out("3")
    assert namespace.uids() == before, "nothing but HAProxy was changed"
    assert site.serving() == {pod["status"]["podIP"] for pod in namespace.pods()}
