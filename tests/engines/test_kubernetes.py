# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts of a Deployment on a real Kubernetes, with a real kubelet: `make test-engines`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import typing as t
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.check import (
    HealthCheck,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import (
    _rights,
    kubernetes,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import (
    Connections,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import (
    ApiError,
    Cluster,
    Expired,
    Reflector,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.transport import Transport
from ansible_collections.progressive.rollout.plugins.plugin_utils.stores import file
from ansible_collections.progressive.rollout.tests.support.contexts import Knows
from ansible_collections.progressive.rollout.tests.support.memory import Service, Traffic, World
from ansible_collections.progressive.rollout.tests.support.namespaces import (
    IMAGE,
    KUBECONFIG,
    ROOT,
    Client,
    Namespace,
)
from ansible_collections.progressive.rollout.tests.support.playbook import Playground
from ansible_collections.progressive.rollout.tests.support.waiting import until

# Whole rollouts
# --------------------------------------------------------------------------------------------------


def test_a_rolling_rollout_loses_no_request(playground: Playground, namespace: Namespace) -> None:
    namespace.deploy(4)
    with Client(namespace) as client:
        outcome = playground.run(variables={"rollout_revision": "2"})
        time.sleep(1)
    assert outcome.rc == 0, outcome.output
    assert outcome.rollout["outcome"] == "promoted"
    namespace.is_ordinary("2", 4)
    assert client.failed == []
    assert min(client.answers["1"], client.answers["2"]) > 100
    again = playground.run(variables={"rollout_revision": "2"})
    assert (again.rc, again.rollout["changed"]) == (0, False), again.output


def test_a_canary_waits_with_both_and_loses_no_request(
    playground: Playground, namespace: Namespace
) -> None:
    namespace.deploy(4)
    given = {"rollout_revision": "2", "rollout_strategy": "canary"}
    steps = [{"set_replicas": 1}, {"pause": "3s"}, {"set_replicas": 2}, {"pause": "3s"}]
    seen = set()
    with Client(namespace) as client:
        run = playground.start(variables={**given, "rollout_steps": steps})
        while run.process.poll() is None:
            seen.add(tuple(sorted(namespace.ready().items())))
            time.sleep(0.2)
        outcome = run.wait()
        time.sleep(1)
    assert outcome.rc == 0, outcome.output
    assert {(("1", 3), ("2", 1)), (("1", 2), ("2", 2))} <= seen, seen
    namespace.is_ordinary("2", 4)
    assert client.failed == []


def test_blue_green_is_one_switch_and_loses_no_request(
    playground: Playground, namespace: Namespace
) -> None:
    namespace.deploy(3)
    balancer = {
        "driver": "kubernetes_service",
        "kubeconfig": str(KUBECONFIG),
        "namespace": namespace.name,
        "service": "shop",
    }
    given = {"rollout_strategy": "blue_green", "rollout_hold": "2s", "rollout_traffic": balancer}
    with Client(namespace) as client:
        outcome = playground.run(variables={**given, "rollout_revision": "2"})
        time.sleep(1)
    assert outcome.rc == 0, outcome.output
    namespace.is_ordinary("2", 3)
    service = namespace.cluster.get(f"{namespace.core}/services/shop")
    assert service["spec"]["selector"] == {"app": "shop"}
    assert client.failed == []
    first = client.order.index("2")
    assert "1" not in client.order[first + 50 :], "but for what was sent before"


def test_a_broken_revision_is_rolled_back(playground: Playground, namespace: Namespace) -> None:
    namespace.deploy(3)
    before, uids = namespace.deployment["spec"], namespace.uids()
    with Client(namespace) as client:
        outcome = playground.run(
            variables={"rollout_revision": "broken", "rollout_failure_limit": 1}
        )
    assert outcome.rc != 0, outcome.output
    assert outcome.rollout["outcome"] == "rolled_back"
    assert namespace.deployment["spec"] == before
    namespace.is_ordinary("1", 3)
    assert namespace.uids() == uids, "no pod of the stable revision was touched"
    assert client.failed == []


def test_what_rollouts_left_is_removed_and_a_first_rollout_follows(
    playground: Playground, namespace: Namespace
) -> None:
    namespace.deploy(2, start=0)
    assert playground.run(variables={"rollout_revision": "2"}).rc == 0
    uids = namespace.uids()
    removed = playground.run("progressive.rollout.remove", {})
    assert removed.rc == 0 and "deployments/shop" in removed.output, removed.output
    assert "rollout.progressive" not in namespace.kubectl("get", "deployment,rs,pod", "-o", "yaml")
    assert namespace.uids() == uids
    again = playground.run("progressive.rollout.remove", {})
    assert again.rc == 0 and "nothing to do" in again.output, again.output
    given = {"rollout_revision": "broken", "rollout_failure_limit": 1}
    assert playground.run(variables=given).rc != 0
    namespace.is_ordinary("2", 2)
    assert namespace.uids() == uids
    assert playground.run(variables={"rollout_revision": "3"}).rc == 0
    namespace.is_ordinary("3", 2)


def test_kubectl_undoes_a_rollout_and_the_next_one_follows(
    playground: Playground, namespace: Namespace
) -> None:
    namespace.deploy(2, start=0)
    assert playground.run(variables={"rollout_revision": "2"}).rc == 0
    namespace.kubectl("rollout", "undo", "deployment/shop")
    namespace.kubectl("rollout", "status", "deployment/shop", "--timeout=60s")
    namespace.is_ordinary("1", 2)
    outcome = playground.run(variables={"rollout_revision": "3"})
    assert outcome.rc == 0, outcome.output
    namespace.is_ordinary("3", 2)


def test_a_promoted_revision_is_rolled_back(playground: Playground, namespace: Namespace) -> None:
    namespace.deploy(2, start=0)
    assert playground.run(variables={"rollout_revision": "2"}).rc == 0
    outcome = playground.run("progressive.rollout.rollback")
    assert outcome.rc == 0, outcome.output
    namespace.is_ordinary("1", 2)
    assert len(namespace.sets()) == 2, "one with each template, as after kubectl rollout undo"


# Killed at each change of the end
# --------------------------------------------------------------------------------------------------


@dataclass
class Pods(World):
    """A service whose instances are the pods of a namespace."""

    namespace: Namespace | None = None
    kills: int = 0  # at which change of the hand-back the process is killed; 0: at none
    path: str = ""  # of the journal, which outlives the process
    fewest: int = 0

    def platform(self) -> t.Any:
        assert self.namespace
        given = {"workload": "deployment/shop", "image": IMAGE, "namespace": self.namespace.name}
        options = kubernetes.OPTIONS.parse({**given, "kubeconfig": str(KUBECONFIG)}, "")
        transport = t.cast(t.Any, type("Quiet", (), {"print_line": print}))
        made = kubernetes.Driver(
            options, DriverContext("shop", transport, HealthCheck(), known=Knows(epoch=1))
        )
        take, count = made._take, 0

        def taken(*args: t.Any) -> None:
            nonlocal count
            count += 1
            take(*args)
            if count == self.kills:
                os.kill(os.getpid(), signal.SIGKILL)

        made._take = taken  # type: ignore[method-assign]
        return made

    def traffic(self) -> t.Any:
        return Traffic(self)  # takes no part: the pods are in a Service as soon as they are ready

    def store(self, service: str) -> file.Driver:
        cli = SimpleNamespace(timeout=10, password=None, become_pass=None)
        context = DriverContext(service, Transport(Connections({}, cli, None)), HealthCheck())
        return file.Driver({"path": self.path, "host": None}, context)


def play(path: str, namespace: str, kills: int) -> None:
    """Roll revision 2 out, in a process of its own."""
    cluster = Cluster(str(KUBECONFIG))
    pods = Pods(namespace=Namespace(cluster, namespace), kills=kills, path=path)
    Service(pods).play(revision="2")


def played(path: Path, namespace: Namespace, kills: int = 0) -> int:
    """Return how a process ends that rolls revision 2 out."""
    call = f"from {__name__} import play; play({str(path)!r}, {namespace.name!r}, {kills})"
    return subprocess.run([sys.executable, "-c", call], timeout=120, check=False).returncode


@pytest.mark.parametrize("change", range(1, 7))
def test_a_run_that_is_killed_in_the_hand_back_is_continued(
    change: int, namespace: Namespace, tmp_path: Path
) -> None:
    namespace.deploy(2, start=0)
    with Client(namespace) as client:
        assert played(tmp_path, namespace, kills=change) == -signal.SIGKILL
        pods = namespace.uids()
        time.sleep(3)  # the controllers act on what they find
        assert namespace.uids() == pods, "what was left stands still"
        assert played(tmp_path, namespace) == 0
    assert namespace.uids() == pods, "no pod was started or stopped"
    namespace.is_ordinary("2", 2)
    assert client.failed == []


# What goes wrong
# --------------------------------------------------------------------------------------------------


def test_a_quota_is_told_in_the_servers_words(playground: Playground, namespace: Namespace) -> None:
    namespace.deploy(2, start=0)
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}
    namespace.cluster.post(f"{namespace.core}/resourcequotas", quota)
    until(
        lambda: namespace.cluster.get(f"{namespace.core}/resourcequotas/few")["status"].get("used"),
        "the quota is counted",
    )
    given = {"rollout_revision": "2", "rollout_progress_deadline": "20s"}
    outcome = playground.run(variables={**given, "rollout_health": {"tcp": True, "deadline": "8s"}})
    assert outcome.rollout["outcome"] == "rolled_back", outcome.output
    assert "no more pods of shop-g2: pods" in outcome.output
    assert "exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2" in outcome.output
    namespace.is_ordinary("1", 2)


def test_a_missing_image_is_told(playground: Playground, namespace: Namespace) -> None:
    namespace.deploy(2, start=0)
    given = {"rollout_revision": "9", "rollout_progress_deadline": "20s"}
    outcome = playground.run(variables=given)
    assert outcome.rollout["outcome"] == "rolled_back", outcome.output
    assert "ErrImageNeverPull" in outcome.output, outcome.output
    namespace.is_ordinary("1", 2)


@pytest.mark.usefixtures("own")
def test_the_rights_that_a_role_gives_are_enough(
    playground: Playground, namespace: Namespace
) -> None:
    namespace.deploy(2, start=0)
    mine = {
        **playground.variables["rollout_platform"],
        "kubeconfig": str(KUBECONFIG.with_name("rollout.kubeconfig")),
    }
    role = _rights.role(namespace.name, [*_rights.NEEDED, *_rights.NO_COSTS])
    bound = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "rollout"},
        "roleRef": {"kind": "Role", "name": role["metadata"]["name"], "apiGroup": ""},
        "subjects": [{"kind": "User", "name": "rollout"}],
    }
    namespace.kubectl("apply", "-f", "-", given=bound)
    given = {"rollout_revision": "2", "rollout_platform": mine}
    outcome = playground.run(variables=given)
    assert outcome.rc != 0
    message = outcome.failed.msg
    assert "this account may not list deployments, watch deployments" in message, message
    shown = json.JSONDecoder().raw_decode(message.partition("account: ")[2])[0]
    assert shown == role
    namespace.kubectl("apply", "-f", "-", given=shown)
    outcome = playground.run(variables=given)
    assert outcome.rc == 0, outcome.output
    namespace.is_ordinary("2", 2)


@pytest.mark.usefixtures("own")
def test_the_api_server_may_be_restarted(playground: Playground, namespace: Namespace) -> None:
    namespace.deploy(4, start=0)
    run = playground.start(variables={"rollout_revision": "2"})
    until(lambda: namespace.ready().get("2", 0) >= 1, "the first new pod")
    subprocess.run([str(ROOT / "scripts/kubernetes"), "restart"], check=True, timeout=120)
    assert run.process.poll() is None, "it was in progress"
    outcome = run.wait()
    assert outcome.rc == 0, outcome.output
    namespace.is_ordinary("2", 4)


# The client
# --------------------------------------------------------------------------------------------------


def test_a_watch_from_too_long_ago_is_begun_anew(cluster: Cluster, namespace: Namespace) -> None:
    path = f"{namespace.core}/pods"
    with pytest.raises((Expired, ApiError), match=r"too old|410"):
        list(cluster.watch(path, "1"))
    woken: list[float] = []
    pods = Reflector(cluster, path, lambda: woken.append(time.monotonic()))
    pods._relist = lambda relist=pods._relist: relist() and "1"  # type: ignore[misc]
    assert pods.list() == []
    del pods._relist  # type: ignore[method-assign]
    until(lambda: bool(woken), "it was listed again")
    namespace.deploy(1, start=0)
    until(lambda: len(pods.list()) == 1, "a pod is seen")
    pods.close()


# The documentation
# --------------------------------------------------------------------------------------------------

EXAMPLE = ROOT / "docs/examples/kubernetes"


class Example:
    """The example in a directory of its own, as it is but for the image, which is on the node."""

    def __init__(self, home: Path, namespace: Namespace) -> None:
        self.home, self.namespace = home, namespace
        shutil.copytree(EXAMPLE, home, dirs_exist_ok=True)
        for name in ("deployment.yaml", "in_git.yaml"):
            manifest = (home / name).read_text()
            (home / name).write_text(
                re.sub(r"( +)(image: .*)", r"\1\2\n\1imagePullPolicy: Never", manifest)
            )
        config = KUBECONFIG.read_text()
        config = config.replace("namespace: default", f"namespace: {namespace.name}")
        (home / "config").write_text(config)
        for name in ("role.yaml", "service.yaml", "deployment.yaml"):
            namespace.kubectl("apply", "-f", str(home / name))
        until(lambda: namespace.ready() == {"1": 4}, "the pods are ready")

    def roll_out(self, *options: str) -> None:
        """Roll revision 2 out without a Gateway."""
        program = Path(sys.executable).with_name("ansible-playbook")
        words = ["-i", "inventory.yml", "-e", "@service.yml", "-e", "rollout_revision=2", *options]
        done = subprocess.run(
            [program, "rollout.yml", *words],
            cwd=self.home,
            env={
                **os.environ,
                "HOME": str(self.home),
                "KUBECONFIG": str(self.home / "config"),
            },
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def is_as_written(self, manifest: str) -> None:
        """No field of the Deployment differs from its manifest, and all pods are of revision 2."""
        self.namespace.kubectl("diff", "-f", str(self.home / manifest))
        assert self.namespace.ready() == {"2": 4}
        pods = [pod["spec"] for pod in self.namespace.pods()]
        wanted = self.namespace.deployment["spec"]["template"]["spec"]["containers"][0]
        assert [pod["containers"][0]["env"] for pod in pods] == [wanted["env"]] * 4


@pytest.fixture
def example(namespace: Namespace, tmp_path: Path) -> Example:
    return Example(tmp_path, namespace)


def test_the_example_runs_without_a_gateway(example: Example) -> None:
    example.roll_out()
    example.namespace.is_ordinary("2", 4)


def test_a_patch_of_the_template_is_rolled_out_and_nothing_else(example: Example) -> None:
    """Afterwards the Deployment is what `kubectl apply` of the image and the patch would make."""
    with Client(example.namespace) as client:
        example.roll_out("-e", "@patch.yml")
        time.sleep(1)
    assert client.failed == []
    assert min(client.answers["1"], client.answers["2"]) > 100
    example.namespace.is_ordinary("2", 4)
    patch = yaml.safe_load((example.home / "patch.yml").read_text())["rollout_platform"]["template"]
    written = yaml.safe_load((example.home / "deployment.yaml").read_text())
    pods = written["spec"]["template"]["spec"]
    (changes,) = patch["spec"].pop("containers")
    pods["containers"][0] |= {**changes, "image": "docker.io/local/shop:2"}
    pods |= patch["spec"]
    (example.home / "written.yaml").write_text(yaml.safe_dump(written))
    example.is_as_written("written.yaml")


def test_git_orders_a_rollout_and_sees_no_difference_afterwards(example: Example) -> None:
    before = example.namespace.uids()
    with Client(example.namespace) as client:
        example.namespace.kubectl("apply", "-f", str(example.home / "in_git.yaml"))
        time.sleep(3)  # its controllers act on it, if they do
        assert example.namespace.uids() == before, "a paused Deployment moves nothing"
        example.roll_out()
        time.sleep(1)
    assert client.failed == []
    assert min(client.answers["1"], client.answers["2"]) > 100
    assert example.namespace.deployment["spec"]["paused"] is True
    example.is_as_written("in_git.yaml")
    pods = example.namespace.uids()
    example.roll_out()
    assert example.namespace.uids() == pods, "there was nothing to do"


def test_the_role_of_the_example_is_the_one_that_is_needed() -> None:
    found = yaml.safe_load((EXAMPLE / "role.yaml").read_text())
    assert found["rules"] == _rights.role("any")["rules"]
