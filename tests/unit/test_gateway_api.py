# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts whose requests a route of the Gateway API divides, over a server in memory."""

from __future__ import annotations

import copy
import time
import typing as t
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    LeaseLost,
    RolloutFailed,
    TrafficError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.check import (
    HealthCheck,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import Target
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import kubernetes
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote import kubernetes_rights
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import ApiError
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic import (
    _gateway_objects,
    gateway_api,
)
from ansible_collections.progressive.rollout.tests.support import kubernetes as api
from ansible_collections.progressive.rollout.tests.support.contexts import Knows
from ansible_collections.progressive.rollout.tests.support.gateways import SERVICES, Gateways
from ansible_collections.progressive.rollout.tests.support.memory import Service, World
from ansible_collections.progressive.rollout.tests.support.pages import SNIPPETS
from ansible_collections.progressive.rollout.tests.support.playbook import ROOT as CHECKOUT

pytestmark = pytest.mark.usefixtures("virtual_time")

ROUTE = "httproute/shop"
EXAMPLE = CHECKOUT / "docs/examples/kubernetes"
HEADER = {"header": "X-Preview", "value": "yes"}


def gateway(server: Gateways, epoch: int = 1, **given: t.Any) -> gateway_api.Driver:
    written = {"route": ROUTE, "service": "shop", "settle": "0s", **given}
    options = gateway_api.OPTIONS.parse(written, "rollout_traffic.")
    context = DriverContext("shop", t.cast(t.Any, None), HealthCheck(), known=Knows(epoch=epoch))
    made = gateway_api.Driver(options, context)
    objects = made.gateway.objects
    objects.__dict__["cluster"] = server
    objects.timeout = objects.poll = 0.01
    return made


@dataclass
class Pods(World):
    """A service whose instances are pods behind a route."""

    server: Gateways = field(default_factory=Gateways)
    fewest: int = 0
    given: dict[str, t.Any] = field(default_factory=dict)
    epoch: int = 0

    def platform(self) -> t.Any:
        written = {"workload": "deployment/shop", "image": "local/shop:{revision}"}
        options = kubernetes.OPTIONS.parse(written, "rollout_platform.")
        transport = t.cast(t.Any, SimpleNamespace(print_line=lambda text: None))
        made = kubernetes.Driver(
            options, DriverContext("shop", transport, HealthCheck(), known=Knows(epoch=1))
        )
        made.__dict__["_cluster"] = self.server
        return made

    def traffic(self) -> t.Any:
        self.epoch += 1  # each step takes the lease anew
        return gateway(self.server, epoch=self.epoch, **self.given)


class Shop(Service):
    """The service `shop`, as a play rolls it out."""

    def __init__(self, server: Gateways, match: bool = False, **given: t.Any) -> None:
        options = {"match": HEADER} if match else {}
        super().__init__(Pods(server=server, given=options), **given)
        self.server, self.before = server, copy.deepcopy(server.rules)
        self.service = copy.deepcopy(server.objects[f"{SERVICES}/shop"])

    def is_as_before(self, revision: str) -> None:
        """The route and the Services are their owner's, and no request was lost."""
        server = self.server
        assert server.lost == []
        assert server.rules == self.before
        assert server.objects[f"{SERVICES}/shop"] == self.service
        assert [path for path in server.objects if path.startswith(SERVICES)] == [
            f"{SERVICES}/shop"
        ]
        notes = server.objects[server.route]["metadata"]["annotations"]
        assert set(notes) == {"rollout.progressive/epoch"}
        assert set(server.counts()) == {revision}


# Whole rollouts
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["httproute", "grpcroute"])
def test_a_canary_gets_its_share(kind: str) -> None:
    server = Gateways(kind=kind)
    steps = [{"set_weight": 10}, {"set_weight": 50}]
    shop = Shop(server, strategy="canary", steps=steps)
    t.cast(Pods, shop.world).given["route"] = f"{kind}/shop"
    assert shop.play(revision="2")["rollout"]["outcome"] == "promoted"
    assert {"shop": 0, "shop-g1": 9, "shop-g2": 1} not in server.sent[:3]
    hashed = next(iter(server.sent[1].keys() - {"shop"}))
    assert server.sent[:2] == [{"shop": 1}, {"shop": 1, hashed: 0}], "named before it is used"
    parts = [one["shop-g2"] / sum(one.values()) for one in server.sent if "shop-g2" in one]
    assert parts[:2] == [0, 0.1] and 0.5 in parts and parts == sorted(parts), parts
    shop.is_as_before("2")


def test_blue_green_is_one_switch() -> None:
    server = Gateways()
    shop = Shop(server, match=True, strategy="blue_green", hold="0s")
    previews: list[t.Any] = []
    put = server._put

    def watched(path: str, one: t.Any) -> None:
        put(path, one)
        if path == server.route and len(server.rules) == 2:
            previews.append(server.rules[0])

    server._put = watched  # type: ignore[method-assign]
    shop.play(revision="2")
    parts = [one["shop-g2"] / sum(one.values()) for one in server.sent if "shop-g2" in one]
    assert set(parts) == {0, 1}
    assert parts == sorted(parts)
    (backend,) = previews[0]["backendRefs"]
    assert (backend["name"], backend["weight"]) == ("shop-g2", 1)
    shop.is_as_before("2")


@pytest.mark.slow
def test_idle_instances_get_copies_of_requests() -> None:
    server = Gateways()
    shop = Shop(server, strategy="blue_green", hold="0s")
    t.cast(Pods, shop.world).given |= {"mirror": 10, "settle": "300ms"}
    copied: list[tuple[str, bool]] = []  # whose copies, and whether it has requests of clients
    put = server._put

    def watched(path: str, one: t.Any) -> None:
        put(path, one)
        if path == server.route:
            for given in server.rules[0].get("filters", ()):
                assert given["requestMirror"]["percent"] == 10
                name = given["requestMirror"]["backendRef"]["name"]
                copied.append((name, bool(server.sent[-1].get(name))))

    server._put = watched  # type: ignore[method-assign]
    shop.play(revision="2")
    assert copied and set(copied) <= {("shop-g2", False), ("shop-g2", True)}
    assert copied[0] == ("shop-g2", False)
    shop.is_as_before("2")


def test_a_cluster_that_knows_no_percentage_is_refused_before_anything_is_touched() -> None:
    server = Gateways()

    def drops(one: t.Any) -> t.Any:
        for mine in one["spec"]["rules"]:
            for given in mine.get("filters", ()):
                given["requestMirror"].pop("percent", None)
        return one

    gateway(server, mirror=10).check()
    before = copy.deepcopy(server.objects)
    server.admits = drops
    with pytest.raises(InputError, match=r"rollout_traffic\.mirror: 10, and the cluster's httprou"):
        gateway(server, mirror=10).check()
    gateway(server, mirror=100).check()
    assert server.objects == before


def test_more_conditions_than_a_rule_can_have_are_refused() -> None:
    server = Gateways()
    mine = copy.deepcopy(server.rules)
    mine[0]["matches"] = [{"path": {"value": f"/{one}"}} for one in range(13)]
    server.rules = mine
    values = ["a", "b", "c", "d", "e"]
    gateway(server, match={"header": "X-Preview", "values": values[:4]}).check()
    with pytest.raises(InputError, match=r"13 conditions, and each is needed 5 times"):
        gateway(server, match={"header": "X-Preview", "values": values}).check()


def test_a_rolling_rollout_leaves_the_route_alone() -> None:
    server = Gateways()
    shop = Shop(server)
    assert shop.play(revision="2")["rollout"]["outcome"] == "promoted"
    assert server.sent == [{"shop": 1}]
    assert server.objects[server.route]["metadata"]["generation"] == 1
    shop.is_as_before("2")


@pytest.mark.parametrize("strategy", ["canary", "blue_green"])
def test_a_broken_revision_gets_no_request(strategy: str) -> None:
    server = Gateways()
    server.starts = lambda pod: not pod["spec"]["containers"][0]["image"].endswith("broken")
    steps = {"steps": [{"set_weight": 50}]} if strategy == "canary" else {}
    shop = Shop(server, strategy=strategy, progress_deadline="1s", **steps)
    with pytest.raises(RolloutFailed):
        shop.play(revision="broken")
    assert not any(one.get("shop-g2") for one in server.sent)
    shop.is_as_before("1")


def test_a_second_run_changes_nothing() -> None:
    server = Gateways()
    shop = Shop(server, strategy="canary", steps=[{"set_weight": 50}])
    shop.play(revision="2")
    server.changes.clear()
    assert not shop.play(revision="2")["changed"]
    assert [one for one in server.changes if "shop-g" in one] == []


# Killed at each change, and continued
# --------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """As by a signal that nothing can be done about."""


@pytest.mark.slow
def test_a_run_that_is_killed_at_any_change_is_continued(tmp_path: Path) -> None:
    def killed(at: int) -> bool:
        server = Gateways(replicas=1)
        steps = [{"set_weight": 50}]
        shop = Shop(server, match=True, strategy="canary", steps=steps)
        left = at

        def fails(change: str) -> None:
            nonlocal left
            left -= server.changing.startswith((server.route, SERVICES))
            if not left:
                raise Killed

        server.fails = fails
        try:
            shop.play(revision="2")
        except Killed:
            assert server.lost == [], "what is left serves"
            shop.play(revision="2")
        shop.is_as_before("2")
        return left > 0

    (tmp_path / "0").mkdir()
    at = 1
    while not killed(at):
        at += 1
    assert at > 9


# What goes wrong
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refused", ["shop-", "shop-g2"])
def test_a_change_that_is_refused_is_told_and_undone(refused: str) -> None:
    server = Gateways()
    server.rejects = lambda route: "no such backend" if refused in str(route["spec"]) else ""
    shop = Shop(server, match=True, strategy="canary", steps=[{"set_weight": 50}])
    words = r"Gateway edge \(acme\): ResolvedRefs: Wrong: no such backend; its rules are as they"
    with pytest.raises(RolloutFailed, match=words):
        shop.play(revision="2")
    tried = [one for one in server.sent if refused in str(one)]
    assert len(tried) == 1, "once, since a Gateway may drop a route that it refuses"
    shop.is_as_before("1")


def test_the_old_weights_come_back_where_new_ones_are_refused() -> None:
    server = Gateways()
    made = gateway(server)
    made.begin(True)
    made.observe()
    before = copy.deepcopy(server.rules)
    server.rejects = lambda route: "no weights" if server.rules != before else ""
    seen = made.gateway.look()
    with pytest.raises(RolloutFailed, match="no weights; its rules are as they were before"):
        made.gateway.write(seen, seen.split.naming(["g2"]))
    assert server.rules == before


def test_late_gateways_are_named_and_change_nothing_else() -> None:
    server = Gateways()
    made = gateway(server)
    made.begin(True)
    server.behind, server.parents = 1, ["edge", "inner"]
    with pytest.raises(TrafficError, match=r"Gateway edge .* has not reported Accepted of gener"):
        made.observe()
    server.rules = server.rules
    for _again in range(2):
        with pytest.raises(TrafficError, match=r"Gateway inner .*; waited for 0\.01 s"):
            made.observe()
    assert server.sent == [{"shop": 1}]


def test_an_older_lease_changes_nothing() -> None:
    server = Gateways()
    gateway(server, epoch=8).observe()
    older = gateway(server, epoch=7)
    for act in (older.observe, lambda: older.apply({ROUTE: {}}), older.conclude):
        with pytest.raises(LeaseLost, match=r"\(epoch 8, ours is 7\)"):
            act()
    assert len(gateway(server, epoch=0).observe()[ROUTE]) == 4


def test_an_older_lease_that_has_looked_already_changes_nothing() -> None:
    """Neither the route nor the Services of generations, which the new one has taken over."""
    server = Gateways()
    older, newer = gateway(server, epoch=7), gateway(server, epoch=8)
    older.begin(True)
    older.observe()
    seen, services = older.gateway.look(), older.gateway.objects._services()
    newer.begin(True)
    newer.observe()
    with pytest.raises(ApiError, match="409"):
        older.gateway.write(seen, seen.split.naming(["g9"]))
    newer.gateway.objects.make_services(seen.service, seen.split.shares)
    older.gateway.objects._services = lambda: services  # type: ignore[method-assign]
    with pytest.raises(ApiError, match="409"):
        older.gateway.objects.remove_services()
    assert server.lost == []


def test_weights_stay_where_all_pods_are_to_be_out() -> None:
    """A sum of 0 is answered with 500, and the owner's Service has pods of all generations."""
    server = Gateways()
    made = gateway(server)
    made.begin(True)
    (table,) = made.observe().values()
    before = copy.deepcopy(server.rules)
    made.apply({ROUTE: dict.fromkeys(table, Target(Rotation.OUT))})
    assert server.rules == before
    assert server.lost == []


def test_weights_of_a_new_run_are_those_of_the_route() -> None:
    server = Gateways()
    made = gateway(server)
    made.begin(True)
    (table,) = made.observe().values()
    assert {one.weight for one in table.values()} == {100}
    told = dict.fromkeys(table, Target(Rotation.IN, 7))
    (shown,) = made.apply({ROUTE: told}).values()
    assert {one.weight for one in shown.values()} == {7}
    (shown,) = gateway(server).observe().values()
    assert {one.weight for one in shown.values()} == {100}


@pytest.mark.parametrize(("age", "healthy"), [(0, False), (60, True)])
def test_a_new_run_does_not_wait_for_what_has_settled(age: float, healthy: bool) -> None:
    """The old pods of a blue-green switch get the requests back at once."""
    server = Gateways()
    made = gateway(server)
    made.begin(True)
    made.observe()
    route = copy.deepcopy(server.objects[server.route])
    for ref in route["spec"]["rules"][0]["backendRefs"]:
        ref["weight"] = 0
    server.objects[server.route] = route
    then = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock.wall() - age))
    for path, one in server.objects.items():
        if path.startswith((SERVICES, api.PODS)):
            one["metadata"]["creationTimestamp"] = then
        if path.startswith(api.PODS):
            one["status"]["conditions"][0]["lastTransitionTime"] = then
    seen = gateway(server, settle="30s").gateway.proven(made.gateway.seen(route))
    assert len(seen) == (4 if healthy else 0)


def test_rules_that_their_owner_has_reset_are_divided_again() -> None:
    server = Gateways()
    before = copy.deepcopy(server.rules)
    made = gateway(server)
    made.begin(True)
    made.observe()
    divided = copy.deepcopy(server.rules)
    assert divided != before
    server.rules = before
    made.observe()
    assert server.rules == divided


# What is refused
# --------------------------------------------------------------------------------------------------


def refs(*names: str, **more: t.Any) -> dict[str, t.Any]:
    backend = {"kind": "Service", "port": 80, "weight": 1, **more}
    return {"backendRefs": [{**backend, "name": name} for name in names]}


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ([], "has no rule that sends requests to the Service shop"),
        ([refs("other")], "has no rule that sends requests to the Service shop"),
        ([refs("shop", weight=0)], "has no rule that sends requests to the Service shop"),
        ([refs("shop", "shop")], "names the Service shop twice in a rule"),
        ([refs("shop", port=81)], "names a port that the Service shop does not have"),
        ([refs("shop", *"abcdefghijklmn")], "has a rule with more than 14 backends"),
        ([refs("shop")] * 9, "has 9 rules, and match needs 9 more; there can be 16"),
        (
            [{**refs("shop"), "matches": [{"headers": [{"name": "x-preview", "value": "a"}]}]}],
            "has a rule that looks at X-Preview already",
        ),
    ],
)
def test_rules_that_cannot_be_divided_are_refused(rules: t.Any, why: str) -> None:
    server = Gateways()
    server.rules = rules
    with pytest.raises(InputError, match=rf"rollout_traffic\.route: httproute shop in .* {why}"):
        gateway(server, match=HEADER).check()


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"selector": None}, "which selects no pods"),
        ({"selector": {"app": "shop", "pod-template-hash": "a"}}, "which selects a single gener"),
    ],
)
def test_a_service_that_cannot_be_copied_is_refused(spec: t.Any, why: str) -> None:
    server = Gateways()
    server.objects[f"{SERVICES}/shop"]["spec"] |= spec
    with pytest.raises(InputError, match=why):
        gateway(server).check()


def test_pods_that_no_deployment_has_made_are_refused() -> None:
    server = Gateways()
    del server.living()[0]["metadata"]["labels"]["pod-template-hash"]
    with pytest.raises(InputError, match=r"are not a Deployment's \(no pod-template-hash\)"):
        gateway(server).check()


def test_what_is_missing_is_named() -> None:
    server = Gateways()
    with pytest.raises(InputError, match=r"rollout_traffic\.service: there is no service shop2 in"):
        gateway(server, service="shop2").check()
    with pytest.raises(InputError, match=r"rollout_traffic\.route: there is no httproute shop2 in"):
        gateway(server, route="httproute/shop2").check()
    server.versions = {}
    with pytest.raises(InputError, match=r"no httproutes of gateway\.networking.* v1 or v1beta1"):
        gateway(server).check()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"rejects": lambda route: "not at all"}, "is refused: Gateway edge .*: not at all"),
        ({"behind": 1}, "Gateway edge .acme. has not reported Accepted of generation 1"),
        ({"parents": []}, "no Gateway reports about it"),
    ],
)
def test_a_route_that_is_not_accepted_is_refused(change: t.Any, why: str) -> None:
    server = Gateways()
    for key, value in change.items():
        setattr(server, key, value)
    server._report()
    with pytest.raises(InputError, match=rf"rollout_traffic\.route: .*{why}"):
        gateway(server).check()
    assert server.changes == []


def test_the_version_is_found_by_discovery() -> None:
    server = Gateways(version="v1beta1")
    server.versions["discovery.k8s.io"] = {"v1": ["endpointslices"]}
    made = gateway(server)
    made.check()
    assert "/v1beta1/" in made.gateway.objects._route_path
    assert made.gateway.objects._slices == "/apis/discovery.k8s.io/v1"


def test_missing_rights_are_told_with_the_role() -> None:
    server = Gateways()
    server.forbidden = {("patch", "httproutes"), ("create", "services")}
    told = r"may not patch httproutes, create services; apply this Role, .*\"patch\""
    with pytest.raises(InputError, match=told):
        gateway(server).check()


def test_somebody_elses_service_is_not_taken_over() -> None:
    server = Gateways()
    made = gateway(server)
    made.begin(True)
    hashed = server.living()[0]["metadata"]["labels"]["pod-template-hash"]
    spec = {"selector": {"app": "b"}, "ports": [{"port": 80}]}
    server.create(SERVICES, {"metadata": {"name": f"shop-{hashed}"}, "spec": spec})
    with pytest.raises(TrafficError, match=f"the Service shop-{hashed} is somebody else's"):
        made.observe()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"route": "shop"}, "write httproute/NAME or grpcroute/NAME"),
        ({"route": "tlsroute/shop"}, "write httproute/NAME or grpcroute/NAME"),
        (
            {"match": [HEADER, {"cookie": "a", "value": "b"}]},
            "routes match whole headers; use header",
        ),
    ],
)
def test_options_that_are_wrong_are_refused(given: t.Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        gateway(Gateways(), **given)


# The documentation
# --------------------------------------------------------------------------------------------------


def test_the_options_of_the_page_and_the_example_are_taken() -> None:
    page = yaml.safe_load(SNIPPETS["docs/how-to/kubernetes.md"]["gateway.yml"])
    example = yaml.safe_load((EXAMPLE / "group_vars/all.yml").read_text())
    for given in (page["rollout_traffic"], example["rollout_traffic"]):
        assert given.pop("driver") == "gateway_api"
        gateway(Gateways(), **given).check()


def test_the_role_of_the_example_is_the_one_that_is_needed() -> None:
    found = yaml.safe_load((EXAMPLE / "role_traffic.yaml").read_text())
    wanted = kubernetes_rights.role(
        _gateway_objects.ROLE, "any", _gateway_objects.needed("httproute")
    )
    assert found["rules"] == wanted["rules"]
    assert found["metadata"]["name"] == wanted["metadata"]["name"]


def test_the_service_of_a_generation_treats_requests_as_the_owners_does() -> None:
    shaping = {
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
        "ipFamilyPolicy": "PreferDualStack",
        "ipFamilies": ["IPv6", "IPv4"],
        "internalTrafficPolicy": "Local",
        "trafficDistribution": "PreferClose",
        "publishNotReadyAddresses": True,
    }
    labels = {
        "istio.io/use-waypoint": "edge",
        "app": "shop",
        "app.kubernetes.io/instance": "web",
        "kustomize.toolkit.fluxcd.io/name": "apps",
    }
    owner = {
        "metadata": {"name": "shop", "uid": "1", "labels": labels},
        "spec": {
            "selector": {"app": "shop"},
            "ports": [{"port": 80, "nodePort": 30000}],
            "clusterIP": "10.0.0.1",
            "clusterIPs": ["10.0.0.1"],
            "externalTrafficPolicy": "Local",
            **shaping,
        },
    }
    made = _gateway_objects._service(owner, "g2", 1)
    assert made["metadata"]["labels"] == {
        "istio.io/use-waypoint": "edge",
        "rollout.progressive/service": "shop",
    }, "monitoring and GitOps do not take it for the owner's"
    selector = {"app": "shop", "pod-template-hash": "g2"}
    assert made["spec"] == {**shaping, "selector": selector, "ports": [{"port": 80}]}
