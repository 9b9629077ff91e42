# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts whose requests a route of the Gateway API divides, through a real Envoy."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import typing as t
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import _rights
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import (
    ApiError,
    Cluster,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic import (
    _gateway_objects as gateway_objects,
)
from ansible_collections.progressive.rollout.tests.support.envoy import Envoy
from ansible_collections.progressive.rollout.tests.support.namespaces import (
    KUBECONFIG,
    ROOT,
    Namespace,
)
from ansible_collections.progressive.rollout.tests.support.playbook import Playground
from ansible_collections.progressive.rollout.tests.support.route_controller import (
    GATEWAYS,
    Controller,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KINDS = ("httproutes", "grpcroutes")


def published() -> Path:
    """The definitions of the Gateway API, standard channel, as it publishes them."""
    given = os.environ.get("GATEWAY_API")
    near = [folder / "shared/data/gateway-api" for folder in ROOT.parents]
    places = [Path(given)] if given else near
    found = [place for place in places if (place / "httproutes.yaml").is_file()]
    if not found:
        pytest.fail(
            "the cluster has no Gateway API, and GATEWAY_API names no folder with its definitions"
            " (config/crd/standard of kubernetes-sigs/gateway-api)"
        )
    return found[0]


def understood(found: t.Any) -> t.Any:
    """A definition without what a server of 1.20 does not know."""
    if isinstance(found, list):
        return [understood(one) for one in found]
    if not isinstance(found, dict):
        return found
    return {
        key: understood(value)
        for key, value in found.items()
        if key != "x-kubernetes-validations" and (key, value) != ("default", "")
    }


@pytest.fixture(scope="session")
def gateways(cluster: Cluster) -> None:
    """The cluster has the Gateway API."""
    try:
        cluster.get("/apis/gateway.networking.k8s.io/v1")
        return
    except ApiError:
        folder = published()
    for kind in KINDS:
        whole = (folder / f"{kind}.yaml").read_text()
        cluster.post(DEFINITIONS, understood(yaml.safe_load(whole)))

    def served() -> bool:
        try:
            found = cluster.get("/apis/gateway.networking.k8s.io/v1")["resources"]
            return {one["name"] for one in found} >= set(KINDS)
        except ApiError:
            return False

    until(served, "the Gateway API is served")


class Gateway:
    """A namespace's Gateway: a route, its controller, and an Envoy."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace, self.envoy = namespace, Envoy()
        self.controller = Controller(namespace.cluster, namespace.name, self.envoy)
        self.path = f"{GATEWAYS}/{namespace.name}/httproutes"

    def close(self) -> None:
        self.controller.close()
        self.envoy.close()

    def deploy(self, replicas: int, *others: t.Any, start: float = 0) -> list[t.Any]:
        """A Deployment, and a route to its Service; return the rules."""
        self.namespace.deploy(replicas, start=start)
        backends = [{"name": "shop", "port": 80}, *others]
        self.create("httproute", {"backendRefs": backends})
        until(self.serves, "the route is served")
        return self.rules()

    def create(self, kind: str, rule: t.Any) -> None:
        body = {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": {"httproute": "HTTPRoute", "grpcroute": "GRPCRoute"}[kind],
            "metadata": {"name": "shop"},
            "spec": {"parentRefs": [{"name": "edge"}], "rules": [rule]},
        }
        path = self.path.replace("httproute", kind)
        self.namespace.cluster.post(path, body)
        until(lambda: self.namespace.cluster.get(f"{path}/shop").get("status"), "it is reported")

    def route(self) -> dict[str, t.Any]:
        return dict(self.namespace.cluster.get(f"{self.path}/shop"))

    def rules(self) -> list[t.Any]:
        return list(self.route()["spec"]["rules"])

    def shares(self) -> list[dict[str, int]]:
        """The weights as they were, one after the other."""
        found: list[dict[str, int]] = []
        for rules in self.controller.seen:
            now = {ref["name"]: ref["weight"] for ref in rules[-1]["backendRefs"]}
            if now not in found[-1:]:
                found.append(now)
        return found

    def serves(self) -> bool:
        try:
            return self.ask() == (200, "1")
        except (OSError, http.client.HTTPException):
            return False

    def ask(self, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.envoy.listen, timeout=10)
        try:
            connection.request("GET", "/", headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def is_as_before(self, rules: list[t.Any]) -> None:
        """The route is its owner's, and nothing else is left."""
        assert self.rules() == rules
        notes = self.route()["metadata"].get("annotations") or {}
        ours = {name for name in notes if name.startswith("rollout.progressive/")}
        assert ours <= {"rollout.progressive/epoch"}
        services = self.namespace.cluster.get(f"{self.namespace.core}/services")["items"]
        assert [one["metadata"]["name"] for one in services] == ["shop"]
        assert services[0]["spec"]["selector"] == {"app": "shop"}


class Clients:
    """Send requests through Envoy without a pause."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway, self.order, self.failed = gateway, list[str](), list[t.Any]()
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._send) for _one in range(2)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        while not self._end.wait(0.005):
            try:
                status, revision = self.gateway.ask()
                if status == 200:
                    self.order.append(revision)
                else:
                    self.failed.append((status, revision))
            except (OSError, http.client.HTTPException) as exc:
                self.failed.append(repr(exc))

    def share(self, requests: int) -> float:
        """The percentage of revision 2 in the next requests."""
        first = len(self.order)
        until(lambda: len(self.order) >= first + requests, "so many requests", 60)
        found = Counter(self.order[first : first + requests])
        return 100 * found["2"] / requests


@pytest.fixture
def gateway(gateways: None, namespace: Namespace) -> Iterator[Gateway]:
    made = Gateway(namespace)
    yield made
    made.close()


@pytest.fixture
def playground(namespace: Namespace) -> Iterator[Playground]:
    there = {"kubeconfig": str(KUBECONFIG), "namespace": namespace.name}
    platform = {
        "driver": "kubernetes",
        "workload": "deployment/shop",
        "image": "docker.io/local/shop:{revision}",
        **there,
    }
    balancer = {
        "driver": "gateway_api",
        "route": "httproute/shop",
        "service": "shop",
        "settle": "1s",
        "match": {"header": "X-Preview", "value": "yes"},
        **there,
    }
    none = {"rollout_replicas": None, "rollout_health": None}
    made = Playground(1, {"rollout_platform": platform, "rollout_traffic": balancer, **none})
    yield made
    made.close()


CANARY = {"rollout_strategy": "canary", "rollout_revision": "2"}
BLUE_GREEN = {"rollout_strategy": "blue_green", "rollout_revision": "2", "rollout_hold": "2s"}


# Whole rollouts
# --------------------------------------------------------------------------------------------------


def test_a_canary_gets_the_share_that_it_is_to_have(
    playground: Playground, gateway: Gateway
) -> None:
    rules = gateway.deploy(4)
    steps = [{"set_weight": 10}, {"pause": "6s"}, {"set_weight": 50}, {"pause": "6s"}]
    with Clients(gateway) as clients:
        run = playground.start(variables={**CANARY, "rollout_steps": steps})
        found = {}
        for share in (10, 50):
            until(lambda share=share: current(gateway) == share, f"{share} %")
            found[share] = clients.share(600)
        outcome = run.wait()
    assert outcome.rc == 0, outcome.output
    assert clients.failed == []
    assert 5 < found[10] < 16 and 42 < found[50] < 58, found
    gateway.namespace.is_ordinary("2", 4)
    gateway.is_as_before(rules)


def current(gateway: Gateway) -> float:
    """The percentage of the new generation by the weights of the route."""
    weights = {ref["name"]: ref["weight"] for ref in gateway.rules()[-1]["backendRefs"]}
    return 100 * weights.get("shop-g2", 0) / sum(weights.values())


def test_other_backends_of_a_rule_keep_their_part(playground: Playground, gateway: Gateway) -> None:
    ports = [{"port": 80, "targetPort": 8080}]
    spec = {"selector": {"app": "shop"}, "ports": ports}
    gateway.namespace.cluster.post(
        f"{gateway.namespace.core}/services", {"metadata": {"name": "other"}, "spec": spec}
    )
    rules = gateway.deploy(2, {"name": "other", "port": 80, "weight": 2})
    run = playground.start(variables={**CANARY, "rollout_steps": [{"set_weight": 25}]})
    assert run.wait().rc == 0, run.output
    divided = [one for one in gateway.shares() if one.get("shop-g1") or one.get("shop-g2")]
    assert all(3 * one["other"] == 2 * sum(one.values()) for one in divided), divided
    assert [0, 1, 3, 8] in [sorted(one.values()) for one in divided], divided
    gateway.namespace.cluster.delete(f"{gateway.namespace.core}/services/other")
    gateway.is_as_before(rules)


def test_blue_green_is_one_switch(playground: Playground, gateway: Gateway) -> None:
    rules = gateway.deploy(3)
    given = {**BLUE_GREEN, "rollout_promote_delay": "3s"}
    with Clients(gateway) as clients:
        run = playground.start(variables=given)
        until(lambda: len(gateway.rules()) == 2, "the preview")
        until(lambda: gateway.ask(**{"X-Preview": "yes"}) == (200, "2"), "it is served")
        assert gateway.ask(**{"X-Preview": "no"}) == (200, "1")
        assert "2" not in clients.order
        outcome = run.wait()
    assert outcome.rc == 0, outcome.output
    assert clients.failed == []
    first = clients.order.index("2")
    assert "1" not in clients.order[first + 50 :], "but for what was sent before"
    assert {"shop": 0, "shop-g2": 1} == {
        name: weight
        for name, weight in next(one for one in gateway.shares() if one.get("shop-g2")).items()
        if weight or name == "shop"
    }, "all of it at once"
    gateway.namespace.is_ordinary("2", 3)
    gateway.is_as_before(rules)


def test_a_rolling_rollout_leaves_the_route_alone(playground: Playground, gateway: Gateway) -> None:
    rules = gateway.deploy(4)
    del playground.variables["rollout_traffic"]["match"]
    before = gateway.route()["metadata"]["generation"]
    with Clients(gateway) as clients:
        outcome = playground.run(variables={"rollout_revision": "2"})
    assert outcome.rc == 0, outcome.output
    assert clients.failed == []
    assert {"1", "2"} == set(clients.order)
    gateway.namespace.is_ordinary("2", 4)
    gateway.is_as_before(rules)
    assert gateway.route()["metadata"]["generation"] == before


def test_a_canary_is_rolled_back(playground: Playground, gateway: Gateway) -> None:
    """Then what it left is removed, and another canary is the first one."""
    rules = gateway.deploy(3)
    steps = [{"set_weight": 50}, {"pause": "10m"}]
    with Clients(gateway) as clients:
        run = playground.start(variables={**CANARY, "rollout_steps": steps})
        until(lambda: current(gateway) == 50, "half of the requests")
        assert playground.run("progressive.rollout.abort").rc == 0
        outcome = run.wait()
        assert outcome.rollout["outcome"] in ("aborted", "rolled_back"), outcome.output
        gateway.namespace.is_ordinary("1", 3)
        gateway.is_as_before(rules)
        assert gateway.ask() == (200, "1")
        removed = playground.run("progressive.rollout.remove", {})
        assert removed.rc == 0 and "httproutes/shop" in removed.output, removed.output
        until(lambda: not gateway.namespace.notes("httproute,service"), "pods have ended")
        assert gateway.rules() == rules
        first = {**CANARY, "rollout_steps": [{"set_weight": 50}]}
        assert playground.run(variables=first).rc == 0
    assert clients.failed == []
    gateway.namespace.is_ordinary("2", 3)
    gateway.is_as_before(rules)


# What goes wrong
# --------------------------------------------------------------------------------------------------


def test_a_gateway_that_is_late_is_waited_for_and_named(
    playground: Playground, gateway: Gateway
) -> None:
    rules = gateway.deploy(2)
    steps = [{"set_weight": 50}, {"pause": "3s"}]
    with Clients(gateway) as clients:
        run = playground.start(variables={**CANARY, "rollout_steps": steps})
        until(lambda: len(gateway.shares()) > 1, "the generation is named")
        gateway.controller.stops.set()
        until(lambda: gateway.route()["metadata"]["generation"] > 2, "a change that is not seen")
        time.sleep(12)
        assert "2" not in clients.order, "nothing goes on before it is accepted"
        gateway.controller.stops.clear()
        gateway.controller._changed.set()
        outcome = run.wait()
    assert outcome.rc == 0, outcome.output
    assert "Gateway edge (example.com/tests) has not reported Accepted of gen" in outcome.output
    assert clients.failed == []
    gateway.is_as_before(rules)


def test_a_refusal_is_told_and_undone(playground: Playground, gateway: Gateway) -> None:
    rules = gateway.deploy(2)
    gateway.controller.refuses = lambda route: (
        "no shop-g2 here" if "shop-g2" in str(route["spec"]) else ""
    )
    steps = [{"set_weight": 50}, {"pause": "3s"}]
    outcome = playground.run(variables={**CANARY, "rollout_steps": steps})
    assert outcome.rc != 0
    words = "Gateway edge (example.com/tests): ResolvedRefs, BackendNotFound, no shop-g2 here"
    assert words.replace(", ", ": ") in outcome.output, outcome.output
    assert outcome.rollout["outcome"] == "rolled_back"
    gateway.namespace.is_ordinary("1", 2)
    gateway.is_as_before(rules)
    until(gateway.serves, "it is served as before")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("refuses", "ResolvedRefs: BackendNotFound: not at all"),
        ("behind", "has not reported Accepted of generation 1"),
        ("silent", "no Gateway reports about it"),
    ],
)
def test_a_route_that_is_not_accepted_is_refused_before_anything_is_touched(
    wrong: str, why: str, playground: Playground, gateway: Gateway
) -> None:
    if wrong == "refuses":
        gateway.controller.refuses = lambda route: "not at all"
    gateway.controller.behind = int(wrong == "behind")
    gateway.namespace.deploy(1, start=0)
    gateway.create("httproute", {"backendRefs": [{"name": "shop", "port": 80}]})
    if wrong == "silent":
        gateway.controller.close()
        path = f"{gateway.path}/shop/status"
        gateway.namespace.cluster.patch(path, {"status": {"parents": []}})
    outcome = playground.run(variables={**CANARY, "rollout_steps": [{"set_weight": 50}]})
    assert outcome.rc != 0
    assert why in outcome.failed.msg, outcome.output
    assert gateway.route()["metadata"]["generation"] == 1
    gateway.namespace.is_ordinary("1", 1)


@pytest.mark.parametrize("change", (2, 4))
def test_a_run_that_is_killed_is_continued(
    change: int, playground: Playground, gateway: Gateway
) -> None:
    """After each change of the route's rules, what was left serves, and the next run ends it."""
    rules = gateway.deploy(2)
    steps = [{"set_weight": 50}]
    first = len(gateway.controller.seen)
    with Clients(gateway) as clients:
        run = playground.start(variables={**CANARY, "rollout_steps": steps})
        until(lambda: len(gateway.controller.seen) >= first + change, f"change {change}")
        for pid in run.left():
            os.kill(pid, signal.SIGKILL)
        run.process.wait()
        time.sleep(2)
        outcome = playground.run(variables={**CANARY, "rollout_steps": steps})
    assert outcome.rc == 0, outcome.output
    assert clients.failed == []
    gateway.namespace.is_ordinary("2", 2)
    gateway.is_as_before(rules)


def test_grpc_routes_have_weights_too(playground: Playground, gateway: Gateway) -> None:
    gateway.namespace.deploy(2, start=0)
    gateway.create("grpcroute", {"backendRefs": [{"name": "shop", "port": 80}]})
    path = gateway.path.replace("httproute", "grpcroute")
    before = gateway.namespace.cluster.get(f"{path}/shop")["spec"]
    playground.variables["rollout_traffic"]["route"] = "grpcroute/shop"
    outcome = playground.run(variables={**CANARY, "rollout_steps": [{"set_weight": 50}]})
    assert outcome.rc == 0, outcome.output
    half = {"shop": 0, "shop-g2": 1}
    assert any(half.items() <= one.items() for one in gateway.shares()), gateway.shares()
    assert gateway.namespace.cluster.get(f"{path}/shop")["spec"] == before


# The documentation
# --------------------------------------------------------------------------------------------------

EXAMPLE = ROOT / "docs/examples/kubernetes"


def test_the_example_runs_as_it_is(gateway: Gateway, tmp_path: Path) -> None:
    """But for the image, which is on the node, and shorter pauses."""
    namespace = gateway.namespace
    for name in ("role", "role_traffic", "deployment", "service", "route"):
        text = (EXAMPLE / f"{name}.yaml").read_text()
        local = text.replace("shop:1\n", "shop:1\n          imagePullPolicy: Never\n")
        (tmp_path / name).write_text(local)
        namespace.kubectl("apply", "--validate=false", "-f", str(tmp_path / name))
    until(gateway.serves, "the route is served")
    rules = gateway.rules()
    config = KUBECONFIG.read_text().replace("namespace: default", f"namespace: {namespace.name}")
    (tmp_path / "config").write_text(config)
    steps = (EXAMPLE / "canary.yml").read_text().replace("10m", "2s")
    (tmp_path / "canary.yml").write_text(steps)
    program = Path(sys.executable).with_name("ansible-playbook")
    given = ["-i", "inventory.yml", "-e", f"@{tmp_path}/canary.yml", "-e", "rollout_revision=2"]
    with Clients(gateway) as clients:
        done = subprocess.run(
            [program, "rollout.yml", *given],
            cwd=EXAMPLE,
            env={**os.environ, "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "config")},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert clients.failed == []
    namespace.is_ordinary("2", 4)
    gateway.is_as_before(rules)


def test_the_rights_that_the_role_gives_are_enough(
    playground: Playground, gateway: Gateway
) -> None:
    rules = gateway.deploy(1)
    namespace = gateway.namespace
    bound = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "subjects": [{"kind": "User", "name": "rollout"}],
    }
    platforms = _rights.role(namespace.name, [*_rights.NEEDED, *_rights.NO_COSTS])
    namespace.kubectl("apply", "-f", "-", given=platforms)
    for role in (platforms["metadata"]["name"], gateway_objects.ROLE):
        reference = {"kind": "Role", "name": role, "apiGroup": ""}
        binding = {**bound, "metadata": {"name": role}, "roleRef": reference}
        namespace.kubectl("apply", "-f", "-", given=binding)
    account = {"kubeconfig": str(KUBECONFIG.with_name("rollout.kubeconfig"))}
    for part in ("rollout_platform", "rollout_traffic"):
        playground.variables[part] |= account
    given = {**CANARY, "rollout_steps": [{"set_weight": 50}]}
    outcome = playground.run(variables=given)
    assert outcome.rc != 0
    assert "this account may not get httproutes, patch httproutes" in outcome.failed.msg
    shown = json.JSONDecoder().raw_decode(outcome.failed.msg.partition("account: ")[2])[0]
    assert shown["rules"] == yaml.safe_load((EXAMPLE / "role_traffic.yaml").read_text())["rules"]
    namespace.kubectl("apply", "-f", "-", given=shown)
    outcome = playground.run(variables=given)
    assert outcome.rc == 0, outcome.output
    gateway.is_as_before(rules)
