# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook of docs/examples/vms-and-kubernetes under load: processes behind a real HAProxy,
then a Deployment of a real Kubernetes, and both back.
"""

from __future__ import annotations

import json
import shutil
import sys
import typing as t
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from ansible_collections.progressive.rollout.tests.engines.conftest import (
    IMAGE,
    KUBECONFIG,
    ROOT,
    Client,
    Namespace,
)
from ansible_collections.progressive.rollout.tests.support.playbook import Outcome
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindHAProxy,
    Load,
    Shop,
    failures,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

PLAYBOOK = ROOT / "docs/examples/vms-and-kubernetes/rollout.yml"
PODS = 2


class Site(Shop):
    """The service on hosts of this machine and in a namespace; its variables are those of groups."""

    def __init__(self, front: BehindHAProxy, namespace: Namespace) -> None:
        super().__init__(front)
        self.front, self.namespace = front, namespace
        self.vms, self.variables = self.variables, {}
        self.pods: dict[str, t.Any] = {
            "rollout_service": "shop-kubernetes",
            "rollout_store": self.vms["rollout_store"],
            "rollout_platform": {
                "driver": "kubernetes",
                "kubeconfig": str(KUBECONFIG),
                "namespace": namespace.name,
                "workload": "deployment/shop",
                "image": IMAGE,
            },
            "rollout_traffic": {
                "driver": "kubernetes_service",
                "kubeconfig": str(KUBECONFIG),
                "namespace": namespace.name,
                "service": "shop",
            },
        }

    def begin(self, revision: str, **of_pods: t.Any) -> t.Any:
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        path = self.home / "hosts.json"
        inventory = json.loads(path.read_text())
        inventory["all"]["children"] |= {
            "vms": {"children": {"web": {}}, "vars": self.vms},
            "kubernetes": {"hosts": {"cluster": local}, "vars": {**self.pods, **of_pods}},
        }
        path.write_text(json.dumps(inventory))
        playbook = shutil.copy(PLAYBOOK, self.home)  # without the group_vars beside it
        return self.start(str(playbook), {"rollout_revision": revision})

    def roll_out(self, revision: str, **of_pods: t.Any) -> Outcome:
        return t.cast("Outcome", self.begin(revision, **of_pods).wait())

    def serves(self, revision: str) -> None:
        assert self.revisions() == [revision] * self.vms["rollout_replicas"]
        self.namespace.is_ordinary(revision, PODS)

    @contextmanager
    def loaded(self) -> Iterator[Client]:
        """No request fails, on either side."""
        with ExitStack() as stack:
            client = stack.enter_context(Client(self.namespace))
            load = stack.enter_context(Load(self.front.url, connections=2, rate=100))
            yield client
            assert failures(load.stop()) == []
        assert client.failed == []


@pytest.fixture
def site(namespace: Namespace) -> Iterator[Site]:
    front = BehindHAProxy()
    namespace.deploy(PODS, start=0)
    with Site(front, namespace) as found:
        outcome = found.roll_out("1")
        assert outcome.rc == 0, outcome.output
        yield found
    front.close()


def test_a_wave_after_the_other(site: Site) -> None:
    with site.loaded() as client:
        run = site.begin("2")
        until(lambda: site.revisions() == ["2"] * 6, "the first wave is complete")
        assert "2" not in client.answers, "the second begins later"
        outcome = run.wait()
    assert outcome.rc == 0, outcome.output
    site.serves("2")
    assert client.answers["2"] > 0


def test_a_failure_in_the_second_takes_the_first_back(site: Site) -> None:
    fails = [{"driver": "command", "command": ["false"]}]
    with site.loaded() as client:
        outcome = site.roll_out("2", rollout_gates={"confirm_promotion": fails})
    assert outcome.rc != 0 and "the virtual machines are rolled back, too" in outcome.output
    site.serves("1")
    assert client.answers["2"] > 0, "it was there"


def test_a_run_that_was_killed_in_the_second_is_continued(site: Site) -> None:
    with site.loaded() as client:
        run = site.begin("2")
        until(lambda: client.answers["2"] > 0, "the second wave is under way", 120)
        run.kill()
        outcome = site.roll_out("2")
    assert outcome.rc == 0, outcome.output
    site.serves("2")
