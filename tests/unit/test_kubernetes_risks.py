# SPDX-License-Identifier: GPL-3.0-or-later
"""What is told, or refused, about a Deployment on Kubernetes before anything is touched."""

from __future__ import annotations

import re
import typing as t
from decimal import Decimal

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import (
    _kubernetes_risks as risks,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import (
    _pod_needs,
)
from ansible_collections.progressive.rollout.tests.support import kubernetes as api
from ansible_collections.progressive.rollout.tests.support import statefulsets
from ansible_collections.progressive.rollout.tests.unit.test_kubernetes import (
    Shop,
    cluster,
    driver,
)
from ansible_collections.progressive.rollout.tests.unit.test_kubernetes_in_place import (
    driver as in_place,
)

SLEEP = {"lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}}}


def prepared(grace: int = 30, **container: t.Any) -> api.Server:
    """A cluster with nothing to say about its Deployment, but for what is given."""
    server, mine = api.Server(), api.deployment("1", 4)
    mine["spec"]["template"] = api.template("1", terminationGracePeriodSeconds=grace)
    mine["spec"]["template"]["spec"]["containers"][0] |= {**SLEEP, **container}
    server.create(api.DEPLOYMENTS, mine)
    return server


def serve(server: api.Server, group: str, version: str, plural: str, *objects: t.Any) -> str:
    """Have the server know a kind of objects, and return the path of their list."""
    served = f"{group}/{version}" if group else version
    path = f"/apis/{served}/namespaces/web/{plural}" if group else f"/api/v1/{plural}"
    if group:
        server.groups.append({"name": group, "preferredVersion": {"groupVersion": served}})
    server.lists.add(path)
    for one in objects:
        name = one["metadata"]["name"]
        server.objects[f"{path}/{name}"] = one
    return path


def told(server: api.Server, least: int = 4, most: int = 5) -> list[str]:
    made = driver(server, epoch=0)
    made.check()
    before = list(server.requests)
    found = list(made.risks(4, least, most))
    assert all(one.startswith("GET") for one in server.requests[len(before) :])
    return found


def test_nothing_is_said_where_there_is_nothing_to_say() -> None:
    assert told(prepared()) == []


# What is lost when a pod ends
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hook", "grace", "said"),
    [
        (None, 30, "container shop has no preStop: "),
        ({"exec": {"command": ["sleep", "5"]}}, 30, ""),
        ({"exec": {"command": ["sleep", "30"]}}, 30, "takes 30 s, and .*Seconds is 30.* to 60"),
        ({"exec": {"command": ["sh", "-c", "sleep 45; quit"]}}, 40, "takes 45 s"),
        ({"sleep": {"seconds": 10}}, 10, "takes 10 s"),
        ({"sleep": {"seconds": 10}}, 11, ""),
        ({"httpGet": {"path": "/stop"}}, 30, ""),
    ],
)
def test_requests_that_a_pod_loses_when_it_ends(hook: t.Any, grace: int, said: str) -> None:
    found = told(prepared(grace, lifecycle={"preStop": hook} if hook else {}))
    assert [bool(re.search(said, line)) for line in found] == [True] * bool(said)


def test_a_history_of_none_is_told() -> None:
    server = prepared()
    server.objects[api.SHOP]["spec"]["revisionHistoryLimit"] = 0
    (line,) = told(server)
    assert "kubectl rollout undo has nothing to go back to" in line


# Room
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "least", "promised"),
    [
        ({"minAvailable": 4}, 4, 0),
        ({"minAvailable": 4}, 3, 4),
        ({"minAvailable": "60%"}, 2, 3),
        ({"minAvailable": "60%"}, 3, 0),
        ({"maxUnavailable": 1}, 2, 3),
        ({"maxUnavailable": "30%"}, 1, 2),
        ({"maxUnavailable": "30%"}, 2, 0),
    ],
)
@pytest.mark.parametrize("mine", [True, False])
def test_a_disruption_budget_that_the_rollout_would_break(
    spec: t.Any, least: int, promised: int, mine: bool
) -> None:
    server = prepared()
    selector = {"matchLabels": {"app": "shop" if mine else "other"}}
    one = {"metadata": {"name": "keep"}, "spec": {**spec, "selector": selector}}
    serve(server, "policy", "v1beta1", "poddisruptionbudgets", one)
    found = told(server, least=least)
    wanted = f"PodDisruptionBudget keep promises {promised} available pods"
    assert [line.startswith(wanted) for line in found] == [True] * (promised > 0 and mine)


def quota(**resources: tuple[str, str]) -> dict[str, t.Any]:
    """A quota: used and hard, of each resource."""
    names = {name.replace("_", "."): pair for name, pair in resources.items()}
    status = {
        "used": {name: used for name, (used, _hard) in names.items()},
        "hard": {name: hard for name, (_used, hard) in names.items()},
    }
    return {"metadata": {"name": "few"}, "status": status}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pods": ("4", "5")}, ""),
        ({"pods": ("4", "4")}, "has room for 0 more pods (pods: 4 of 4 used)"),
        ({"requests_memory": ("1Gi", "1280Mi")}, ""),
        ({"requests_memory": ("1Gi", "1279Mi")}, "(requests.memory: 1Gi of 1279Mi used)"),
        ({"cpu": ("400m", "1")}, ""),
        ({"cpu": ("950m", "1")}, "(cpu: 950m of 1 used)"),
        ({"limits_cpu": ("0", "0")}, ""),
    ],
)
def test_a_quota_without_room_for_the_most_pods_at_once(given: t.Any, said: str) -> None:
    server = prepared(resources={"requests": {"memory": "256Mi", "cpu": "100m"}})
    path = f"{api.CORE}/resourcequotas"
    server.lists.add(path)
    server.objects[f"{path}/few"] = quota(**given)
    found = told(server)
    assert [said in line for line in found] == [True] * bool(said)
    server.objects[f"{path}/few"] = quota(pods=("4", "6"))
    assert told(server, most=6) == []
    (line,) = told(server, most=7)
    assert "room for 2 more pods" in line and "needs 3 more at once" in line
    scoped = {"scopes": ["BestEffort"]}
    server.objects[f"{path}/few"]["spec"] = scoped
    assert told(server) == [], "it is of other pods"


def test_nodes_that_have_too_little_even_if_they_were_empty() -> None:
    server = prepared(resources={"limits": {"memory": "1Gi"}})
    nodes = [
        {"metadata": {"name": name}, "spec": spec, "status": {"allocatable": {"memory": "3Gi"}}}
        for name, spec in (("a", {}), ("b", {}), ("off", {"unschedulable": True}))
    ]
    for node in nodes:
        node["status"] |= {"allocatable": {"memory": "3Gi", "pods": "110", "cpu": "2"}}
    path = serve(server, "", "v1", "nodes", *nodes)
    assert told(server, most=6) == []
    (line,) = told(server, most=7)
    assert line.startswith("2 nodes together have too little memory for 7 pods at once")
    server.refuses = lambda asked: asked == path
    assert told(server, most=7) == [], "a right that is not needed otherwise"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("500m", "0.5"),
        ("1Gi", str(2**30)),
        ("2k", "2000"),
        ("1e3", "1000"),
        ("1E", "1e18"),
        ("4", "4"),
        ("1.5", "1.5"),
        ("x", "0"),
        ("1.2.3", "0"),
        ("1Zi", "0"),
        ("9" * 9, "9" * 9),
    ],
)
def test_quantities(text: str, number: str) -> None:
    assert _pod_needs.amount(text) == Decimal(number)


@pytest.mark.parametrize(
    ("operator", "values", "found"),
    [
        ("In", ["shop"], True),
        ("In", ["other"], False),
        ("NotIn", ["shop"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
        ("New", [], False),
    ],
)
def test_selectors_by_expressions(operator: str, values: list[str], found: bool) -> None:
    expression = {"key": "app", "operator": operator, "values": values}
    assert risks.selects({"matchExpressions": [expression]}, {"app": "shop"}) is found


# Who else drives it
# --------------------------------------------------------------------------------------------------

RIVALS = [
    ("argoproj.io", "v1alpha1", "rollouts", "workloadRef", "Argo Rollout busy drives"),
    ("flagger.app", "v1beta1", "canaries", "targetRef", "Flagger Canary busy drives"),
    ("keda.sh", "v1alpha1", "scaledobjects", "scaleTargetRef", "scaledobjects/busy scales"),
]


@pytest.mark.parametrize(("group", "version", "plural", "field", "why"), RIVALS)
def test_others_that_drive_the_deployment_are_refused(
    group: str, version: str, plural: str, field: str, why: str
) -> None:
    server = prepared()
    target = {"kind": "Deployment", "name": "shop"}
    one: dict[str, t.Any] = {"metadata": {"name": "busy"}, "spec": {field: target}}
    path = serve(server, group, version, plural, one)
    with pytest.raises(InputError, match=why):
        driver(server).check()
    one["metadata"]["annotations"] = {"autoscaling.keda.sh/paused": "true"}
    if group == "keda.sh":
        assert told(server) == []
    target["name"] = "other"
    assert told(server) == []
    server.refuses = lambda asked: asked == path
    (line,) = told(server)
    kind = "KEDA ScaledObject" if group == "keda.sh" else why.removesuffix(" busy drives")
    assert line.startswith(f"not known: whether a {kind} drives")
    assert line.endswith(f"the right to list {plural}.{group}")
    server.refuses, server.lists = lambda asked: False, set()
    assert told(server) == [], "such as Argo CD without Rollouts"


def test_another_deployment_that_finds_its_pods_is_refused() -> None:
    server = prepared()
    other = api.deployment("1", 0)
    other["metadata"]["name"] = "other"
    server.objects[f"{api.DEPLOYMENTS}/other"] = other
    with pytest.raises(InputError, match="selector of Deployment other also finds the pods"):
        driver(server).check()
    other["spec"]["selector"] = {"matchLabels": {"app": "shop", "track": "canary"}}
    driver(server).check()


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        (
            {"annotations": {"argocd.argoproj.io/tracking-id": "web:apps/Deployment:web/shop"}},
            "the application web of Argo CD keeps",
        ),
        (
            {"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}},
            "flux suspend kustomization apps -n",
        ),
        ({"labels": {"helm.toolkit.fluxcd.io/name": "shop"}}, "flux suspend helmrelease shop -n"),
        (
            {
                "labels": {"kustomize.toolkit.fluxcd.io/name": "apps"},
                "annotations": {"kustomize.toolkit.fluxcd.io/reconcile": "disabled"},
            },
            "",
        ),
    ],
)
def test_what_is_synchronized_from_git_is_told_with_the_recipe(metadata: t.Any, said: str) -> None:
    server = prepared()
    server.objects[api.SHOP]["metadata"] |= metadata
    found = told(server)
    assert [said in line for line in found] == [True] * bool(said)


def managed(*managers: str, field: str = "f:template") -> dict[str, t.Any]:
    entries = [{"manager": one, "fieldsV1": {"f:spec": {field: {}}}} for one in managers]
    return {"managedFields": entries}


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        (managed("argocd-controller"), "Argo CD keeps"),
        (
            managed("argocd-application-controller")
            | {"labels": {"app.kubernetes.io/instance": "web"}},
            "the application web of Argo CD keeps",
        ),
        (managed("kustomize-controller"), "Flux (kustomize-controller) keeps"),
        (
            managed("helm-controller") | {"labels": {"helm.toolkit.fluxcd.io/name": "shop"}},
            "flux suspend helmrelease shop -n",
        ),
        (managed("helm", "kubectl-edit"), "the next helm upgrade sets it"),
        (managed("argocd-controller", field="f:revisionHistoryLimit"), ""),
        (managed("kubectl-client-side-apply", "progressive-rollout"), ""),
        ({"labels": {"app.kubernetes.io/instance": "web"}}, ""),
        ({"managedFields": [{"manager": "argocd-controller", "fieldsV1": None}]}, ""),
    ],
)
def test_who_has_written_the_template_tells_who_keeps_it(metadata: t.Any, said: str) -> None:
    """https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management"""
    server = prepared()
    server.objects[api.SHOP]["metadata"] |= metadata
    assert [said in line for line in told(server)] == [True] * bool(said)


@pytest.mark.parametrize("nodes", [0, 3])
def test_the_owner_of_a_statefulset_or_a_daemonset_is_told_as_well(nodes: int) -> None:
    server = statefulsets.Server(nodes=nodes)
    server.objects[server.path]["metadata"] |= managed("argocd-controller")
    made = in_place(server, epoch=0)
    (line,) = [line for line in made.risks(3, 2, 3) if "Argo CD" in line]
    kind = "DaemonSet" if nodes else "StatefulSet"
    assert f"kind: {kind}, jqPathExpressions: [.spec.template]" in line


def takes(cpu: str, **more: t.Any) -> dict[str, t.Any]:
    return {"resources": {"requests": {"cpu": cpu}}, **more}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [takes("100m"), takes("50m")]}, "0.15"),
        # init containers run one after the other, and before the others
        ({"containers": [takes("100m")], "initContainers": [takes("2"), takes("1")]}, "2"),
        ({"containers": [takes("3")], "initContainers": [takes("2")]}, "3"),
        # sidecars run beside what follows them
        ({"containers": [takes("1")], "initContainers": [takes("1", restartPolicy="Always")]}, "2"),
        (
            {
                "containers": [takes("1")],
                "initContainers": [takes("1", restartPolicy="Always"), takes("3")],
            },
            "4",
        ),
        (
            {
                "containers": [takes("1")],
                "initContainers": [takes("3"), takes("1", restartPolicy="Always")],
            },
            "3",
        ),
        ({"containers": [takes("1")], "overhead": {"cpu": "250m"}}, "1.25"),
        ({"containers": [takes("1")], **takes("4")}, "4"),
        ({"containers": [takes("1")], **takes("4"), "overhead": {"cpu": "1"}}, "5"),
    ],
)
def test_what_a_pod_of_today_takes(spec: t.Any, cpu: str) -> None:
    """https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/,
    https://kubernetes.io/docs/concepts/scheduling-eviction/pod-overhead/ and
    https://kubernetes.io/docs/tasks/configure-pod-container/assign-pod-level-resources/
    """
    found = _pod_needs.needs({"spec": spec})
    assert found["cpu"] == found["requests.cpu"] == Decimal(cpu)
    assert "limits.cpu" not in found


# Where it is told
# --------------------------------------------------------------------------------------------------


def test_a_rollout_begins_with_its_risks() -> None:
    server = cluster(2)
    shop = Shop(server)
    shop.play(revision="2")
    assert [line for line in shop.said if "container shop has no preStop" in line]
