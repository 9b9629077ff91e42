# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts of a Deployment, over an API server in memory."""

from __future__ import annotations

import copy
import itertools
import json
import re
import typing as t
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.action import rollback
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    LeaseLost,
    PlatformError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine import hand_back
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.hand_back import (
    HandBackStep,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Composition,
    Health,
    Phase,
    Process,
    Rotation,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.check import (
    HealthCheck,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    NOWHERE,
    Capabilities,
    Endpoint,
    InstanceSettings,
    Labels,
    PlatformDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import (
    _pod,
    _pod_reports,
    _pods,
    kubernetes,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms._hand_back import CAUSE
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import ApiError
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic import kubernetes_service
from ansible_collections.progressive.rollout.tests.support import kubernetes as api
from ansible_collections.progressive.rollout.tests.support.contexts import Knows, tell
from ansible_collections.progressive.rollout.tests.support.memory import Service, World
from ansible_collections.progressive.rollout.tests.support.pages import SNIPPETS
from ansible_collections.progressive.rollout.tests.support.playbook import ROOT

pytestmark = pytest.mark.usefixtures("virtual_time")

GIVEN = {"workload": "deployment/shop", "image": "local/shop:{revision}"}


def driver(server: api.Server, epoch: int = 1, **given: t.Any) -> kubernetes.Driver:
    options = kubernetes.OPTIONS.parse({**GIVEN, **given}, "rollout_platform.")
    said: list[str] = []
    transport = t.cast(t.Any, SimpleNamespace(print_line=said.append, said=said))
    made = kubernetes.Driver(
        options, DriverContext("shop", transport, HealthCheck(), known=Knows(epoch=epoch))
    )
    made.__dict__["_cluster"] = server
    return made


def cluster(replicas: int = 4) -> api.Server:
    server = api.Server()
    server.create(f"{api.APPS}/deployments", api.deployment("1", replicas))
    return server


def with_service(replicas: int = 4) -> api.Server:
    server = cluster(replicas)
    ports = [{"port": 80, "targetPort": 8080}]
    spec = {"selector": {"app": "shop"}, "ports": ports}
    server.create(f"{api.CORE}/services", {"metadata": {"name": "shop"}, "spec": spec})
    return server


def service(server: api.Server, epoch: int = 1, **given: t.Any) -> kubernetes_service.Driver:
    options = kubernetes_service.OPTIONS.parse({"service": "shop", **given}, "rollout_traffic.")
    transport = t.cast(t.Any, None)
    context = DriverContext("shop", transport, HealthCheck(), known=Knows(epoch=epoch))
    made = kubernetes_service.Driver(options, context)
    made.__dict__["_cluster"] = server
    return made


def ordered(count: int, generation: int = 2, revision: str = "2") -> list[Labels]:
    return [Labels("", "shop", revision, generation, "", NOWHERE, 0)] * count


# Whole rollouts
# --------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """As by a signal that nothing can be done about."""


@dataclass
class Pods(World):
    """A service whose instances are pods."""

    server: api.Server = field(default_factory=cluster)
    fewest: int = 0
    service: bool = False  # whether a Service is the load balancer
    made: list[kubernetes.Driver] = field(default_factory=list)
    options: dict[str, t.Any] = field(default_factory=dict)  # of the platform

    def __post_init__(self) -> None:
        self.journals = self.server.journals  # they outlive a run

    def platform(self) -> t.Any:
        made = driver(self.server, **self.options)
        made.context = replace(made.context, known=self.known)
        self.made.append(made)
        return made

    def traffic(self) -> t.Any:
        return service(self.server, settle="0s") if self.service else super().traffic()


class Shop(Service):
    """The service `shop`, as a play rolls it out."""

    world: Pods

    def __init__(self, server: api.Server, **given: t.Any) -> None:
        pods = Pods(server=server, service=api.SERVICE in server.objects)
        super().__init__(pods, **given)
        self.server = server
        self.least, self.most = api.serving(server), len(server.living())
        put = server._put

        def watched(path: str, one: t.Any) -> None:
            put(path, one)
            self.least = min(self.least, api.serving(server))
            self.most = max(self.most, len(server.living()))

        server._put = watched  # type: ignore[method-assign]


def is_ordinary(
    server: api.Server, revision: str, replicas: int, notes: dict[str, str] | None = None
) -> None:
    """The Deployment is as if nothing but its template and number had been changed.

    `notes`: the annotations of its pod template.
    """
    template = api.template(revision)
    if notes:
        template["metadata"]["annotations"] = notes
    mine = server.objects[api.SHOP]
    assert server.counts() == {revision: replicas}
    assert (mine["spec"]["replicas"], "paused" in mine["spec"]) == (replicas, False)
    assert mine["spec"]["template"] == template
    sets = [one for path, one in server.objects.items() if path.startswith(api.SETS)]
    assert all(_pod.owned_by(one, mine) for one in sets), "nothing else is left"
    assert [one["spec"]["replicas"] for one in sets if one["spec"]["replicas"]] == [replicas]
    left = {key for one in (mine, *sets) for key in _pod.notes_of(one)}
    assert left <= {_pods.EPOCH, _pods.MARK, CAUSE}
    before = server.counts()
    server.reconcile()
    assert server.counts() == before


@pytest.mark.parametrize("service", [True, False])
@pytest.mark.parametrize("steers", [True, False])
def test_a_deployment_is_rolled_out_and_handed_back(steers: bool, service: bool) -> None:
    server = with_service() if service else cluster()
    server.steers = steers
    shop = Shop(server)
    old = {pod["metadata"]["name"] for pod in server.living()}
    assert shop.play(revision="2")["rollout"]["outcome"] == "promoted"
    is_ordinary(server, "2", 4)
    assert (shop.least, shop.most) == (4, 5)
    assert not old & {pod["metadata"]["name"] for pod in server.living()}
    assert not shop.play(revision="2")["changed"]
    shop.play(revision="3")
    is_ordinary(server, "3", 4)
    assert (shop.least, shop.most) == (4, 5)
    assert len([path for path in server.objects if path.startswith(api.SETS)]) == 3, "the history"


@pytest.mark.parametrize("replicas", [0, 2])
def test_a_deployment_of_any_size_gets_the_revision_asked_for(replicas: int) -> None:
    server = cluster(replicas)
    shop = Shop(server)
    assert shop.play(revision="2", replicas=2)["rollout"]["outcome"] == "promoted"
    is_ordinary(server, "2", 2)
    assert not shop.play(revision="2", replicas=2)["changed"]


def test_what_rollouts_left_is_removed_and_pods_run_on() -> None:
    server = with_service()
    Shop(server).play(revision="2")
    pods = {pod["metadata"]["name"] for pod in server.living()}
    made, balancer = driver(server, epoch=9), service(server, epoch=9)
    with pytest.raises(PlatformError, match="without a lease"):
        driver(server, epoch=0).leave(dry=False)
    before = copy.deepcopy(server.objects)
    named = [*made.leave(dry=True), *balancer.leave(dry=True)]
    assert server.objects == before
    assert [*made.leave(dry=False), *balancer.leave(dry=False)] == named
    assert [*made.leave(dry=False), *balancer.leave(dry=False)] == []
    server.reconcile()
    assert {pod["metadata"]["name"] for pod in server.living()} == pods
    is_ordinary(server, "2", 4)
    for path, obj in server.objects.items():
        noted = [*_pod.notes_of(obj), *_pod.labels_of(obj)]
        ours = [key for key in noted if key.startswith(_pods.DOMAIN) or key == CAUSE]
        assert not ours, path


def test_the_pods_stay_when_the_deployment_takes_them_over() -> None:
    server = cluster()
    shop, pods = Shop(server), set()

    def note(change: str) -> None:
        if _pods.PENDING in _pod.notes_of(server.objects[api.SHOP]):
            pods.update(pod["metadata"]["uid"] for pod in server.living())

    server.fails = note
    shop.play(revision="2")
    assert pods == {pod["metadata"]["uid"] for pod in server.living()}
    hand_back = ["shop", "made-0", "shop", "shop-g2", "made-0", "shop"]
    tidied = ["shop", "shop-g2"]
    assert server.changes[-8:] == [f"patch {name}" for name in hand_back + tidied]


def test_a_revision_that_does_not_get_ready_is_rolled_back() -> None:
    server = cluster()
    server.starts = lambda pod: not pod["spec"]["containers"][0]["image"].endswith("broken")
    shop = Shop(server, progress_deadline="1s")
    before = server.objects[api.SHOP]["spec"]
    with pytest.raises(RolloutFailed):
        shop.play(revision="broken")
    assert shop.journal.rollout and shop.journal.rollout.outcome == "rolled_back"
    assert server.objects[api.SHOP]["spec"] == before
    is_ordinary(server, "1", 4)
    assert shop.least == 4


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 99], ids=["for a while", "for too long"])
def test_a_server_that_does_not_answer_is_waited_for_before_anything_is_started(times: int) -> None:
    server = cluster()
    post, failures = server.post, iter(range(times))

    def silent(path: str, body: t.Any, **query: str) -> t.Any:
        if query.get("dryRun") and next(failures, None) is not None:
            raise ApiError("POST /apis/apps/v1: no answer", 503)
        return post(path, body, **query)

    server.post = silent  # type: ignore[method-assign]
    shop = Shop(server, progress_deadline="2s")
    if times == 1:
        assert shop.play(revision="2")["rollout"]["outcome"] == "promoted"
        return is_ordinary(server, "2", 4)
    with pytest.raises(RolloutFailed, match=r"nothing was started.*no answer"):
        shop.play(revision="2")
    is_ordinary(server, "1", 4)


def test_a_promoted_revision_is_rolled_back() -> None:
    server = cluster()
    shop = Shop(server)
    shop.play(revision="2")
    shop.step(rollback)
    is_ordinary(server, "1", 4)
    assert (shop.least, shop.most) == (4, 5)
    sets = [path for path in server.objects if path.startswith(api.SETS)]
    assert len(sets) == 2, "one with each template, as after kubectl rollout undo"


def kill_at(server: api.Server, number: int, lost: bool) -> None:
    """Kill the run at this change of the cluster: before it, or after it (`lost`)."""
    put = server._put

    def once(path: str, one: t.Any) -> None:
        server._put = put  # type: ignore[method-assign]
        put(path, one)
        server.reconcile()
        raise Killed

    def kill(change: str) -> None:
        if len(server.changes) == number:
            server.fails = lambda change: None
            if not lost:
                raise Killed
            server._put = once  # type: ignore[method-assign]

    server.fails = kill


def changes_of_a_rollout() -> int:
    server = cluster(2)
    Shop(server).play(revision="2")
    return len(server.changes)


@pytest.mark.parametrize("lost", [False, True], ids=["before it", "after it"])
@pytest.mark.slow
def test_a_run_that_is_killed_at_a_change_is_continued(lost: bool) -> None:
    count = changes_of_a_rollout()
    assert count >= 12
    for number in range(count):
        server = cluster(2)
        shop = Shop(server)
        kill_at(server, number, lost)
        try:
            shop.play(revision="2")
        except Killed:
            shop.play(revision="2")
        is_ordinary(server, "2", 2)
        assert shop.least == 2, number
        assert shop.most <= 3, number


@pytest.mark.slow
def test_looks_between_changes_are_watches() -> None:
    server = cluster()
    server.watches = True
    shop = Shop(server, min_ready="1s")
    shop.play(revision="2")
    is_ordinary(server, "2", 4)
    assert (shop.least, shop.most) == (4, 5)
    shown = len(server.told) + server.labelled
    changes = [one for one in server.requests if one.startswith(("P", "D"))][shown:]
    reads = [one for one in server.requests if one.startswith("GET")]
    hand_back = 3 * 7 * 2  # a look before each of the six changes, and one that finds it done
    assert len(changes) <= len(server.changes) + 3
    assert len(reads) < len(changes) + hand_back, Counter(reads)


@pytest.mark.slow
def test_a_service_is_looked_at_by_watches_between_changes() -> None:
    server = with_service()
    server.watches = True
    Shop(server, strategy="blue_green", hold="0s", min_ready="1s").play(revision="2")
    is_ordinary(server, "2", 4)
    assert server.objects[api.SERVICE]["spec"]["selector"] == {"app": "shop"}
    changes = [one for one in server.requests if one.startswith("PATCH")]
    reads = [one for one in server.requests if one.startswith("GET") and "/services" in one]
    assert len(reads) <= len(changes), Counter(server.requests)


def test_why_no_pods_are_made_is_told_at_once() -> None:
    server = cluster()
    server.quota = 4
    shop = Shop(server, progress_deadline="1s")
    with pytest.raises(RolloutFailed):
        shop.play(revision="2")
    said = [line for made in shop.world.made for line in made.context.transport.said]  # type: ignore[attr-defined]
    assert said[0] == (
        'no more pods of shop-g2: pods "shop-g2-" is forbidden: exceeded quota: q [PR-245]'
    )
    is_ordinary(server, "1", 4)


def test_the_last_reason_stands_in_the_final_message() -> None:
    server = cluster()

    def refused(change: str) -> None:
        if change.startswith("create"):
            raise ApiError("POST replicasets: denied by the policy of the month (500)", 500)

    server.fails = refused
    shop = Shop(server, progress_deadline="1s")
    with pytest.raises(RolloutFailed, match=r"no progress .* denied by the policy of the month"):
        shop.play(revision="2")
    assert shop.journal.rollout and "denied by the policy" in shop.journal.rollout.reason


# Single calls
# --------------------------------------------------------------------------------------------------


def states(made: kubernetes.Driver, **work: t.Any) -> dict[str, Process]:
    return {report.labels.id: report.process for report in made.sync(**work)}


def test_what_is_ordered_and_not_seen_is_starting_and_not_ordered_again() -> None:
    server = cluster()
    server.quota = 4
    made = driver(server)
    found = [one for one in made.sync(start=ordered(2)) if one.labels.generation == 2]
    assert [one.labels.id for one in found] == ["shop-g2/ordered-1-1", "shop-g2/ordered-1-2"]
    assert {(one.process, one.labels.endpoint) for one in found} == {(Process.STARTING, NOWHERE)}
    assert {one.labels.revision for one in found} == {"2"}
    assert "exceeded quota" in found[0].detail
    assert len([one for one in driver(server).sync() if one.labels.generation == 2]) == 2
    made.sync(stop=[found[0].labels.id])
    assert server.objects[f"{api.SETS}/shop-g2"]["spec"]["replicas"] == 1
    left = [one.labels.id for one in made.sync() if one.labels.generation == 2]
    assert left == ["shop-g2/ordered-2-1"], "another one: no later pod is one that was to stop"


def test_one_that_is_to_stop_counts_until_it_is_gone_and_is_asked_for_once() -> None:
    server = cluster()
    server.stops_at_once = False
    made = driver(server)
    first, *others = states(made)
    for _again in range(3):
        assert states(made, stop=[first]) == {
            first: Process.STOPPING,
            **dict.fromkeys(others, Process.RUNNING),
        }
    assert server.objects[api.SHOP]["spec"]["replicas"] == 3


@pytest.mark.parametrize("steers", [True, False])
def test_the_very_pod_goes_that_is_out_of_rotation(steers: bool) -> None:
    """The oldest, which the controller would choose last."""
    server = cluster()
    server.steers, wrong = steers, []
    shop = Shop(server)
    remove = server._remove

    def removed(path: str) -> None:
        address = Endpoint(str(server.objects[path].get("status", {}).get("podIP")), 8080)
        entry = shop.world.servers.get(address)
        if path.startswith(api.PODS) and entry and entry.rotation is Rotation.IN:
            wrong.append(path)
        remove(path)

    server._remove = removed  # type: ignore[method-assign]
    shop.play(revision="2")
    is_ordinary(server, "2", 4)
    assert wrong == []


def costs(server: api.Server) -> set[str]:
    """The pods that are deleted before others."""
    pods = server.living()
    return {one["metadata"]["name"] for one in pods if _pod.notes_of(one).get(_pod.COST)}


def test_which_pod_goes_is_said_when_its_drain_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with the number: the controller may hear of the number first.

    https://github.com/kubernetes/kubernetes/issues/126138
    """
    server, late = cluster(), []
    sync = kubernetes.Driver.sync

    def watched(self: kubernetes.Driver, start: t.Any = (), stop: t.Any = (), forget: t.Any = ()):
        late.extend(one for one in stop if one.partition("/")[0] not in costs(server))
        return sync(self, start, stop, forget)

    monkeypatch.setattr(kubernetes.Driver, "sync", watched)
    Shop(server).play(revision="2")
    is_ordinary(server, "2", 4)
    assert (late, costs(server)) == ([], set())


def test_a_pod_that_stays_after_all_is_like_the_others_again() -> None:
    server = cluster()
    made = driver(server)
    first, second, *_others = states(made)
    made.leaving([first, second])
    assert costs(server) == {first, second}
    made.leaving([second])
    assert costs(server) == {second}
    count = len(server.changes)
    made.leaving([second])
    made.sync(stop=[second])
    assert server.changes[count:] == ["patch shop"], "it is said once"
    made.leaving([first])
    made.conclude(Composition("1", 1, 3))
    assert costs(server) == set()


def test_a_pod_that_kubernetes_keeps_in_the_place_of_another_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kubernetes, "DELETION_GRACE", 0.0)
    server = cluster()
    server.steers, server.corrects = False, True
    made = driver(server)
    first, *_others = states(made)
    made.sync(stop=[first])
    made.sync()
    told = [line for line in made.context.transport.said if first in line]  # type: ignore[attr-defined]
    assert told == [
        f"made-0: Kubernetes has deleted another pod than {first}, which stays, as {first}/2"
    ]


def test_no_pod_is_made_unready_where_costs_are_known() -> None:
    server = cluster()
    made = driver(server)
    made.sync(stop=[next(iter(states(made)))])
    assert not [one for one in server.requests if one.endswith("/status")]


def test_another_one_than_was_asked_for_may_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "DELETION_GRACE", 0.0)
    server = cluster()
    server.steers, server.corrects = False, True
    made = driver(server)
    first, *others = states(made)
    left = states(made, stop=[first])
    assert left == dict.fromkeys([f"{first}/2", *others[:2]], Process.RUNNING)
    assert states(made, stop=[first]) == left, "again: it is gone for the rollout"
    assert len(states(made, stop=[f"{first}/2"])) == 2
    assert states(driver(server)) == states(made)


def test_a_number_is_lowered_once_the_controller_knows_which_pod_is_to_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would delete another one: it hears of pods and of the number by two watches."""
    server = cluster()
    server.steers, path = False, f"{api.SETS}/made-0"
    made = driver(server)
    first, *others = states(made)
    server.objects[path]["status"] = {"readyReplicas": 4}
    for _again in range(2):
        assert len(states(made, stop=[first])) == 4
    assert server.objects[api.SHOP]["spec"]["replicas"] == 4
    server.objects[path]["status"] = {"readyReplicas": 3}
    assert set(states(made)) == set(others), "at the next look, without being asked again"
    server.objects[path]["status"] = {"readyReplicas": 4}
    monkeypatch.setattr(kubernetes, "DELETION_GRACE", 0.0)
    assert len(states(made, stop=others[:1])) == 2, "not for ever"


def test_an_older_lease_does_nothing() -> None:
    server = cluster()
    driver(server, epoch=8).sync()
    older = driver(server, epoch=7)
    for work in ({"start": ordered(1)}, {"stop": ["shop-1"]}, {}):
        with pytest.raises(LeaseLost, match=r"a newer lease holder .* \(epoch 8, ours is 7\)"):
            older.sync(**work)
    with pytest.raises(LeaseLost):
        older.conclude(Composition("1", 1, 4))
    assert server.counts() == {"1": 4}


def test_what_an_older_lease_has_just_looked_at_it_does_not_change() -> None:
    """Whatever it was about to change: the Deployment, or the new ReplicaSet."""
    server = cluster()
    older = driver(server, epoch=7)
    older.sync(start=ordered(1))
    deployment, found = older._look()
    driver(server, epoch=8).sync()
    for group in found:
        with pytest.raises(PlatformError, match="was changed by somebody else meanwhile"):
            older._scale(deployment, found, (), list(group.ids.values())[:1])
    assert server.counts() == {"1": 4, "2": 1}


def test_without_a_lease_it_only_looks() -> None:
    server = cluster()
    made = driver(server, epoch=0)
    assert len(made.sync()) == 4
    made.check()
    made.prepare("2", 2)
    for work in ({"start": ordered(1)}, {"stop": ["shop-1"]}, {"forget": ["shop-1"]}):
        with pytest.raises(PlatformError, match="without a lease"):
            made.sync(**work)
    with pytest.raises(PlatformError, match="without a lease"):
        made.conclude(None)
    assert server.changes == []


def test_a_number_that_somebody_else_has_changed_is_not_overwritten() -> None:
    server = cluster()
    made = driver(server)
    deployment, found = made._look()
    server.patch(api.SHOP, {"spec": {"replicas": 6}})
    with pytest.raises(PlatformError, match="shop was changed by somebody else meanwhile"):
        made._scale(deployment, found, (), [next(iter(found[0].living))])
    assert server.counts() == {"1": 6}


def begun(server: api.Server, pods: int = 1, revision: str = "2", **given: t.Any) -> Shop:
    """A rollout whose run was killed when so many of its pods were there."""
    shop = Shop(server, **given)

    def kill(change: str) -> None:
        if server.counts().get(revision, 0) >= pods:
            server.fails = lambda change: None
            raise Killed

    server.fails = kill
    with pytest.raises(Killed):
        shop.play(revision=revision)
    return shop


def test_another_template_in_the_middle_waits_for_a_person_and_is_not_overwritten() -> None:
    server = cluster()
    begun(server)
    server.patch(api.SHOP, {"spec": {"template": api.template("hotfix")}})
    shop = Shop(server, progress_deadline="1s")
    result = shop.play(revision="2")
    assert (result["parked"], result["rollout"]["phase"]) == (True, "paused")
    assert "somebody else has changed the pod template" in result["msg"]
    assert "kubectl rollout undo deployment/shop" in result["msg"]
    assert server.counts() == {"hotfix": 4, "2": 1}
    shop.say("abort")
    with pytest.raises(RolloutFailed):
        shop.play(revision="2")
    is_ordinary(server, "hotfix", 4)
    assert shop.least == 4


def test_another_template_of_a_revision_that_was_rolled_out_is_gone_back_to() -> None:
    server = cluster()
    Shop(server).play(revision="2")
    begun(server, revision="3")
    server.patch(api.SHOP, {"spec": {"template": api.template("hotfix")}})
    shop = Shop(server)
    assert shop.play(revision="3")["parked"]
    shop.say("abort")
    with pytest.raises(RolloutFailed):
        shop.play(revision="3")
    is_ordinary(server, "hotfix", 4)
    assert shop.least == 4


def test_a_template_that_is_changed_back_is_no_obstacle() -> None:
    server = cluster()
    begun(server)
    server.patch(api.SHOP, {"spec": {"template": api.template("hotfix")}})
    assert Shop(server).play(revision="2")["parked"]
    server.patch(api.SHOP, {"spec": {"template": api.template("1")}})
    Shop(server).play(revision="2")
    is_ordinary(server, "2", 4)


# Other changes of the pod template
# --------------------------------------------------------------------------------------------------

CHANGES = {
    "spec": {
        "containers": [
            {"name": "shop", "env": [{"name": "LEVEL", "value": "{revision}"}]},
            {"name": "log", "image": "log:{revision}"},
        ]
    }
}


def settings_of(**changes: t.Any) -> InstanceSettings:
    """The settings of a generation, as the journal has them."""
    return InstanceSettings("kubernetes", {"image": GIVEN["image"], **changes}, {})


def containers(server: api.Server, name: str) -> dict[str, t.Any]:
    spec = server.objects[f"{api.SETS}/{name}"]["spec"]["template"]["spec"]
    return {one["name"]: one for one in spec["containers"]}


def test_a_patch_of_the_pod_template_is_rolled_out_and_kept() -> None:
    server = cluster()
    server.patch(
        api.SHOP,
        [
            {
                "op": "add",
                "path": "/spec/template/spec/containers/0/env",
                "value": [{"name": "OLD", "value": "1"}],
            }
        ],
    )
    shop = Shop(server)
    shop.world.options = {"container": "shop", "template": CHANGES}
    shop.play(revision="2")
    new = containers(server, "shop-g2")
    assert new["shop"]["image"] == "local/shop:2"
    assert new["shop"]["readinessProbe"], "all else is as before"
    assert new["shop"]["env"] == [{"name": "OLD", "value": "1"}, {"name": "LEVEL", "value": "2"}]
    assert new["log"]["image"] == "log:2"
    mine = server.objects[api.SHOP]
    assert [one["name"] for one in mine["spec"]["template"]["spec"]["containers"]] == [
        "shop",
        "log",
    ]
    assert (server.counts(), shop.least, shop.most) == ({"2": 4}, 4, 5)


def test_instances_get_the_changes_that_their_generation_was_begun_with() -> None:
    server = cluster()
    made = driver(server, container="shop", template={"spec": {"hostname": "later"}})
    tell(made, settings={2: settings_of(template=CHANGES), 3: settings_of()})
    made.sync(start=ordered(1) + ordered(1, 3, "3"))
    assert set(containers(server, "shop-g2")) == {"shop", "log"}
    assert set(containers(server, "shop-g3")) == {"shop"}
    sets = [server.objects[f"{api.SETS}/shop-g{number}"] for number in (2, 3)]
    assert not [one for one in sets if "hostname" in one["spec"]["template"]["spec"]]


@pytest.mark.parametrize("earlier", ["1", "2"], ids=["its first pods", "a revision rolled out"])
def test_a_revision_that_ran_before_gets_the_pod_template_that_it_had(earlier: str) -> None:
    """Not the present one with another image: what was changed since is not of that revision."""
    server = cluster()
    shop = Shop(server)
    if earlier == "2":
        shop.play(revision="2")
    shop.world.options = {"container": "shop", "template": CHANGES}
    shop.play(revision="3")
    made = driver(server, epoch=90, container="shop", template=CHANGES)
    tell(made, settings={7: replace(settings_of(), again=True)})
    made.sync(start=ordered(1, 7, earlier))
    template = _pods.template_of(server.objects[f"{api.SETS}/shop-g7"])
    assert template == api.template(earlier)
    for path in [path for path in server.objects if path.startswith(api.SETS)]:
        if path.rpartition("/")[2] not in ("shop-g3", "shop-g7"):
            del server.objects[path]
    tell(made, settings={8: replace(settings_of(), again=True)})
    made.sync(start=ordered(1, 8, "0"))
    assert "the pod template of 0 is not in its history any more" in made.context.transport.said[-1]  # type: ignore[attr-defined]


def test_a_rollback_of_a_promoted_revision_goes_to_the_earlier_pod_template(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = cluster()
    shop = Shop(server)
    shop.play(revision="2")
    shop.world.options = {"container": "shop", "template": CHANGES}
    shop.play(revision="3")
    assert "log" in containers(server, "shop-g3")
    keeps = Capabilities(host_options=())  # so that the journal keeps settings
    monkeypatch.setattr(PlatformDriver, "capabilities", keeps)
    shop.step(rollback)
    is_ordinary(server, "2", 4)
    assert shop.least == 4


def test_of_two_pod_templates_of_a_revision_the_later_one_is_its_own() -> None:
    mine = {"metadata": {"name": "shop"}}
    metadata = [{"name": "a", "annotations": {_pods.SEQUENCE: number}} for number in ("9", "10")]
    first, second = (_pods.Group({"metadata": one}, mine, inherited=(1, "")) for one in metadata)
    assert second.sequence > first.sequence


# A Deployment that its owner has paused with another template
# --------------------------------------------------------------------------------------------------


def pause(server: api.Server, revision: str) -> dict[str, t.Any]:
    """As GitOps does, with more than another image; returns what is in Git."""
    template = api.template(revision, hostname="other")
    server.patch(api.SHOP, {"spec": {"paused": True, "template": template}})
    assert server.counts().get(revision) is None, "nothing moves by itself"
    return dict(server.objects[api.SHOP]["spec"])


@pytest.mark.parametrize("steers", [True, False])
def test_a_deployment_paused_with_another_template_is_rolled_out_as_it_is(steers: bool) -> None:
    server = cluster()
    server.steers = steers
    shop = Shop(server)
    for revision in ("2", "3"):
        git = pause(server, revision)
        assert shop.play(revision=revision)["rollout"]["outcome"] == "promoted"
        mine = server.objects[api.SHOP]
        assert mine["spec"] == git, "no drift"
        assert server.counts() == {revision: 4}
        server.reconcile()
        assert server.counts() == {revision: 4}
        assert (shop.least, shop.most) == (4, 5)
        sets = [one for path, one in server.objects.items() if path.startswith(api.SETS)]
        assert all(_pod.owned_by(one, mine) for one in sets), "nothing else is left"
        assert set(_pod.notes_of(mine)) == {_pods.EPOCH}


@pytest.mark.slow
def test_a_paused_template_that_fails_is_rolled_back_and_stays_to_be_rolled_out() -> None:
    server = cluster()
    server.starts = lambda pod: not pod["spec"]["containers"][0]["image"].endswith("broken")
    git = pause(server, "broken")
    shop = Shop(server, progress_deadline="1s")
    for _again in range(2):
        with pytest.raises(RolloutFailed):
            shop.play(revision="broken")
        assert shop.journal.rollout and shop.journal.rollout.outcome == "rolled_back"
        assert server.objects[api.SHOP]["spec"] == git
        assert server.counts() == {"1": 4}
        assert (shop.least, shop.most) == (4, 5)
        assert len([path for path in server.objects if path.startswith(api.SETS)]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("lost", [False, True], ids=["before it", "after it"])
def test_a_run_of_a_paused_template_that_is_killed_is_continued(lost: bool) -> None:
    server = cluster(2)
    pause(server, "2")
    Shop(server).play(revision="2")
    for number in range(len(server.changes) - 1):
        killed = cluster(2)
        git = pause(killed, "2")
        shop = Shop(killed)
        kill_at(killed, len(killed.changes) + number, lost)
        try:
            shop.play(revision="2")
        except Killed:
            shop.play(revision="2")
        assert killed.objects[api.SHOP]["spec"] == git, number
        assert killed.counts() == {"2": 2}
        assert (shop.least, shop.most) == (2, 3), number


def test_another_revision_than_the_paused_one_is_refused() -> None:
    server = cluster()
    server.patch(api.SHOP, {"spec": {"paused": True}})
    made = driver(server, epoch=0)
    made.check()
    with pytest.raises(
        InputError, match=r"2 asked for, and .* is paused .* template of 1; "
    ) as got:
        made.prepare("2")
    assert got.value.id == "PR-243"
    pause(server, "2")
    made.prepare("2")
    with pytest.raises(InputError, match=r"3 asked for, and .* is paused .* template of 2; "):
        made.prepare("3")


def test_a_paused_deployment_that_runs_its_template_is_left_as_it_is() -> None:
    server = cluster()
    shop = Shop(server)
    git = pause(server, "2")
    shop.play(revision="2")
    assert not shop.play(revision="2")["changed"]
    assert (server.objects[api.SHOP]["spec"], server.counts()) == (git, {"2": 4})


# A restart of the Deployment: annotations of its template alone
# --------------------------------------------------------------------------------------------------

RESTARTED = {"kubectl.kubernetes.io/restartedAt": "2026-11-24T12:00:00Z"}


def restart(server: api.Server) -> None:
    """As `kubectl rollout restart` does."""
    metadata = {"metadata": {"annotations": RESTARTED}}
    server.patch(api.SHOP, {"spec": {"template": metadata}})


@pytest.mark.parametrize("pods", [1, 4], ids=["at the beginning", "at the end"])
def test_a_restart_in_the_middle_is_taken_over(pods: int) -> None:
    server = cluster()
    begun(server, pods)
    restart(server)
    shop = Shop(server)
    shop.play(revision="2")
    is_ordinary(server, "2", 4, RESTARTED)
    assert (shop.least, shop.most) == (4, 5)
    said = [line for made in shop.world.made for line in made.context.transport.said]  # type: ignore[attr-defined]
    assert [line for line in said if "restartedAt" in line and "PR-249" in line]


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_restart_during_the_hand_back_is_taken_over(after: int) -> None:
    """Before the Deployment has the new template, and before and after the adoption."""
    server = cluster()
    shop = Shop(server)

    def restarted(change: str) -> None:
        pending = _pods.PENDING in _pod.notes_of(server.objects[api.SHOP])
        seen.append(pending and change != "patch shop")  # the model has computed that change
        if sum(seen) == after:
            server.fails = lambda change: None
            restart(server)

    seen: list[bool] = []
    server.fails = restarted
    shop.play(revision="2")
    is_ordinary(server, "2", 4, RESTARTED)
    assert (shop.least, shop.most) == (4, 5)


@pytest.mark.slow
def test_a_rollback_after_a_restart_goes_to_the_restarted_pods() -> None:
    server = cluster()
    server.starts = lambda pod: not pod["spec"]["containers"][0]["image"].endswith("broken")
    shop = Shop(server, progress_deadline="1s")
    shop.play(revision="2")
    restart(server)
    shop.least = 4  # the model replaces all pods at once
    shop.play(revision="2")
    assert f"{api.SETS}/shop-g3" not in server.objects, "the same revision runs"
    with pytest.raises(RolloutFailed):
        shop.play(revision="broken")
    is_ordinary(server, "2", 4, RESTARTED)
    assert shop.least == 4


def test_no_pod_is_taken_while_the_deployment_restarts_its_own() -> None:
    server = cluster()
    made = driver(server)
    made.sync(start=ordered(1))
    old = f"{api.SETS}/made-0"
    restart(server)
    name = next(one for one in states(made) if "made-" in one)
    before = server.objects[api.SHOP]["spec"]["replicas"]
    server.objects[old]["spec"]["replicas"] = 2  # half way
    made.sync(stop=[name])
    assert server.objects[api.SHOP]["spec"]["replicas"] == before
    server.objects[old]["spec"]["replicas"] = 0
    made.sync(stop=[name])
    assert server.objects[api.SHOP]["spec"]["replicas"] == before - 1


def test_a_deployment_that_is_deleted_in_the_middle_ends_the_run() -> None:
    server = cluster()
    begun(server)
    mine = server.objects.pop(api.SHOP)
    for path, one in list(server.objects.items()):
        if "made-" in path:  # it owned them
            del server.objects[path]
        assert one
    with pytest.raises(InputError, match="there is no deployment shop"):
        Shop(server).play(revision="2")
    assert server.counts() == {"2": 1}
    mine = api.deployment("1", mine["spec"]["replicas"])
    server.create(f"{api.APPS}/deployments", mine)
    Shop(server).play(revision="2")
    is_ordinary(server, "2", 4)


def test_without_its_journal_the_epoch_can_be_removed() -> None:
    server = cluster()
    driver(server, epoch=8).sync(start=ordered(1))
    with pytest.raises(LeaseLost):
        driver(server, epoch=1).sync()
    for path in [path for path in server.objects if not path.startswith(api.PODS)]:
        server.patch(path, {"metadata": {"annotations": {_pods.EPOCH: None}}})
    assert len(driver(server, epoch=1).sync()) == 5


# The owner's number of replicas
# --------------------------------------------------------------------------------------------------


def scale(server: api.Server, replicas: int) -> None:
    """As `kubectl scale` does, or an autoscaler."""
    server.patch(api.SHOP, {"spec": {"replicas": replicas}})


@pytest.mark.parametrize("replicas", [9, 3])
@pytest.mark.parametrize(
    "given",
    [{}, {"strategy": "canary", "steps": [{"set_weight": 20}, {"set_weight": 60}]}],
    ids=["rolling", "canary"],
)
def test_a_number_that_the_owner_sets_in_the_middle_is_followed_and_told(
    replicas: int, given: dict[str, t.Any]
) -> None:
    server = cluster()
    begun(server, **given)
    scale(server, replicas)
    shop = Shop(server, **given)
    shop.play(revision="2")
    is_ordinary(server, "2", replicas)
    told = [line for line in shop.said if "PR-264" in line]
    assert told == [
        f"shop 2: the number of replicas was set to {replicas} outside this rollout; the rollout continues"
        f" to it (before: 4) [PR-264]"
    ]
    assert shop.least >= 3
    shop.play(revision="3")
    is_ordinary(server, "3", replicas)


def test_a_number_that_is_raised_before_the_first_pod_goes_is_followed() -> None:
    server = cluster()
    shop = Shop(server)
    server.fails = lambda change: scale(server, 6) if "create shop-g2" in change else None
    shop.play(revision="2")
    is_ordinary(server, "2", 6)


@pytest.mark.slow
def test_a_rollback_keeps_the_number_that_the_owner_set_in_the_middle() -> None:
    server = cluster()
    begun(server)
    scale(server, 9)
    server.starts = lambda pod: "shop:1" in pod["spec"]["containers"][0]["image"]
    with pytest.raises(RolloutFailed):
        Shop(server, progress_deadline="1s").play(revision="2")
    is_ordinary(server, "1", 9)


@pytest.mark.parametrize("replicas", [6, 2])
@pytest.mark.slow
def test_a_number_that_the_owner_sets_during_a_rollback_is_followed(replicas: int) -> None:
    server = cluster()
    server.starts = lambda pod: not pod["spec"]["containers"][0]["image"].endswith("broken")
    shop = Shop(server, progress_deadline="1s", budget={"max_surge": 1})

    def scaled(change: str) -> None:
        if shop.journal.open and shop.journal.open.phase == Phase.ROLLING_BACK:
            server.fails = lambda change: None
            scale(server, replicas)

    server.fails = scaled
    with pytest.raises(RolloutFailed):
        shop.play(revision="broken")
    is_ordinary(server, "1", replicas)


@pytest.mark.parametrize("given", [{}, {"replicas": 6}], ids=["its own number", "a given number"])
@pytest.mark.slow
def test_a_rollback_leaves_the_number_that_the_owner_has_lowered_before(
    given: dict[str, int],
) -> None:
    server = cluster()
    server.starts = lambda pod: not pod["spec"]["containers"][0]["image"].endswith("broken")
    shop = Shop(server, progress_deadline="1s")
    shop.play(revision="2")
    scale(server, 2)
    with pytest.raises(RolloutFailed):
        shop.play(revision="broken", **given)
    is_ordinary(server, "2", 2)
    shop.step(rollback, {"to": "1"})
    is_ordinary(server, "1", 2)


def test_a_number_is_given_back_that_the_owner_set_in_the_hand_back() -> None:
    server = cluster()
    shop = Shop(server)

    def scaled(change: str) -> None:
        if _pods.PENDING in _pod.notes_of(server.objects[api.SHOP]):
            server.fails = lambda change: None
            scale(server, 7)

    server.fails = scaled
    shop.play(revision="2")
    is_ordinary(server, "2", 7)


def test_a_given_number_is_kept_and_the_other_one_is_told() -> None:
    server = cluster()
    begun(server, replicas=4)
    scale(server, 9)
    shop = Shop(server, replicas=4)
    shop.play(revision="2")
    is_ordinary(server, "2", 4)
    assert [
        line
        for line in shop.said
        if "to 9 outside this rollout; rollout_replicas says 4, which stays" in line
    ]


def test_a_pause_of_somebody_else_is_left_to_him() -> None:
    server = cluster()
    made = driver(server)
    made.sync(start=ordered(4))
    made.sync(stop=[name for name in states(made) if "made-0" in name])
    server.patch(api.SHOP, {"spec": {"paused": True}})
    left = made.conclude(Composition("2", 2, 4))
    assert left.startswith("somebody else has paused the Deployment; resume it")
    assert server.counts() == {"2": 4}
    server.patch(api.SHOP, {"spec": {"paused": None}})
    assert made.conclude(Composition("2", 2, 4)) == ""
    is_ordinary(server, "2", 4)
    server.patch(api.SHOP, {"spec": {"paused": True}})
    assert made.conclude(Composition("2", 2, 4)) == ""
    assert server.objects[api.SHOP]["spec"]["paused"]


def test_a_hand_back_that_something_undoes_is_given_up_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = cluster()
    made = driver(server)
    made.sync(start=ordered(4))
    made.sync(stop=[name for name in states(made) if "made-0" in name])
    steps = itertools.cycle(
        [hand_back.Action(step) for step in (HandBackStep.PAUSE, HandBackStep.RESUME)]
    )
    monkeypatch.setattr(hand_back, "next_step", lambda *_state: next(steps))
    assert "which something undoes" in made.conclude(Composition("2", 2, 4))
    assert server.counts() == {"2": 4}


def test_without_a_journal_the_number_is_that_of_all_pods() -> None:
    server = cluster()
    begun(server, pods=3)
    assert server.objects[api.SHOP]["spec"]["replicas"] < 4
    assert (driver(server, epoch=0).replicas() or 0) >= 4


def test_a_conflict_with_a_controller_is_looked_at_again() -> None:
    server = cluster()
    made, patch = driver(server), server.patch

    def conflicts(path: str, body: t.Any, **query: str) -> t.Any:
        server.patch = patch  # type: ignore[method-assign]
        server.objects[api.SHOP]["metadata"]["resourceVersion"] = "997"
        return patch(path, body, **query)

    server.patch = conflicts  # type: ignore[method-assign]
    assert len(made.sync()) == 4
    assert _pod.notes_of(server.objects[api.SHOP])[_pods.EPOCH] == "1"


def test_a_name_that_is_longer_than_a_label() -> None:
    name = "shop-" + "a" * 70
    found = [
        _pods.service_of({"metadata": {"name": f"{name}{end}"}})
        for end in ("", "b", ".web-" + "c" * 160)
    ]
    assert len(set(found)) == 3
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])", one) for one in found)
    assert _pods.service_of({"metadata": {"name": "shop"}}) == "shop"


def test_each_order_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or what is ordered last would seem as late as what was ordered first."""
    server = cluster()
    server.quota = 4
    made = driver(server)
    monkeypatch.setattr(kubernetes.clock, "now", lambda: NOW)
    made.sync(start=ordered(1))
    monkeypatch.setattr(kubernetes.clock, "now", lambda: NOW + 50)
    assert {one.created for one in made.sync() if one.labels.generation == 2} == {NOW}
    made.sync(start=ordered(1))
    assert {one.created for one in made.sync() if one.labels.generation == 2} == {NOW + 50}


@pytest.mark.parametrize("note", ["5", "[", "null", '{"a": 1}'])
def test_annotations_that_somebody_else_has_spoilt(note: str) -> None:
    server = cluster()
    names = (_pods.STOPPED, _pods.MARK, _pods.PENDING, _pods.NUMBER, _pods.WANTED)
    notes = {**dict.fromkeys(names, note), _pods.EPOCH: note * 9000}
    server.patch(api.SHOP, {"metadata": {"annotations": {**notes, _pods.EPOCH: "x"}}})
    server.patch(f"{api.SETS}/made-0", {"metadata": {"annotations": notes}})
    Shop(server).play(revision="2")
    is_ordinary(server, "2", 4)


def test_a_webhook_that_would_keep_the_deployment_from_taking_the_pods_over() -> None:
    server = cluster()

    def changes(one: t.Any) -> t.Any:
        one["spec"]["template"]["metadata"]["annotations"] = {"policy": "seen"}
        return one

    server.admits = changes
    with pytest.raises(InputError, match="an admission webhook changes the pod template") as found:
        driver(server, epoch=0).prepare("2")
    assert (found.value.id, server.changes) == ("PR-243", [])


def test_pods_of_a_template_that_somebody_else_replaced_are_not_started() -> None:
    server = cluster()
    Shop(server).play(revision="2")
    server.patch(api.SHOP, {"spec": {"template": api.template("9")}})
    with pytest.raises(PlatformError, match="somebody else has changed its pod template"):
        driver(server, epoch=9).sync(start=ordered(1))


# Before anything is touched
# --------------------------------------------------------------------------------------------------


def without_probe(mine: t.Any) -> None:
    del mine["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]


def with_two(mine: t.Any) -> None:
    mine["spec"]["template"]["spec"]["containers"].append({"name": "log", "image": "log:1"})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda mine: mine["spec"].update(strategy={"type": "Recreate"}), "strategy Recreate"),
        (lambda mine: mine["spec"]["selector"].update(matchExpressions=[{}]), "by expressions"),
        (lambda mine: mine["spec"].update(selector={"matchLabels": {_pods.HASH: "x"}}), "differs"),
        (without_probe, "has no readinessProbe"),
        (with_two, "rollout_platform.container: not given; .* are shop, log"),
    ],
)
def test_a_deployment_that_cannot_be_rolled_out_is_refused(
    change: Callable[[t.Any], None], why: str
) -> None:
    server = api.Server()
    wrong = api.deployment("1", 0)
    change(wrong)
    wrong["metadata"]["resourceVersion"] = wrong["metadata"]["uid"] = "1"
    server.objects[api.SHOP] = wrong
    with pytest.raises(InputError, match=why):
        driver(server).check()
    assert server.changes == []


def test_one_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="there is no deployment shop in namespace web") as found:
        driver(api.Server()).check()
    assert found.value.id == "PR-242"


def test_missing_rights_are_told_with_a_role_that_has_them() -> None:
    server = cluster()
    server.forbidden = {("patch", "deployments"), ("watch", "pods")}
    with pytest.raises(InputError, match="may not patch deployments, watch pods; ") as found:
        driver(server).check()
    role = json.loads(str(found.value).partition("account: ")[2])
    assert role["metadata"] == {"name": "progressive-rollout", "namespace": "web"}
    assert {"apiGroups": [""], "resources": ["pods"]}.items() <= role["rules"][2].items()
    server.forbidden = {("patch", "pods/status")}
    driver(server).check()
    server.steers = False
    with pytest.raises(InputError, match="may not patch pods/status; "):
        driver(server).check()
    server.forbidden = {("list", "deployments")}
    server.refuses = lambda path: path == api.DEPLOYMENTS
    with pytest.raises(InputError, match="may not list deployments; "):
        driver(server, epoch=0).replicas()


def test_an_autoscaler_is_refused() -> None:
    server = cluster()
    target = {"kind": "Deployment", "name": "shop"}
    scaler = {"metadata": {"name": "busy"}, "spec": {"scaleTargetRef": target}}
    server.objects[f"{api.AUTOSCALERS}/busy"] = scaler
    with pytest.raises(InputError, match="horizontalpodautoscalers/busy scales deployment shop"):
        driver(server).check()
    target["name"] = "other"
    driver(server).check()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"workload": "shop"}, "'shop' is not a workload"),
        ({"workload": "pod/shop"}, "'pod/shop' is not a workload"),
        ({"workload": "deployment/a..b"}, "is not a workload"),
        ({"workload": "deployment/../secrets"}, "is not a workload"),
        ({"workload": f"deployment/{'a' * 250}"}, "is not a workload"),
        ({"image": "local/shop:1"}, "is the same for all revisions"),
        ({"image": "local/shop:{tag}"}, "unknown placeholder '{tag}'"),
        ({"template": {"replicas": 3, "spec": {}}}, "replicas: not a part of a pod template"),
        ({"template": "env"}, "rollout_platform.template: expected a mapping"),
    ],
)
def test_options_that_cannot_be_meant(given: dict[str, str], why: str) -> None:
    with pytest.raises(InputError, match=why):
        driver(api.Server(), **given)


# What pods mean
# --------------------------------------------------------------------------------------------------

NOW = 1_800_000_000.0
BORN, LATER = "2027-01-15T07:59:00Z", "2027-01-15T07:59:30Z"  # a minute and half a minute before


def read(**pod: t.Any) -> t.Any:
    """The report of one pod."""
    metadata = {
        "name": "shop-1",
        "creationTimestamp": BORN,
        "ownerReferences": [{"uid": "set", "controller": True}],
        **pod.pop("metadata", {}),
    }
    mine = {**api.deployment("1", 1), "metadata": {"name": "shop", "uid": "mine"}}
    one = {
        "metadata": {"name": "shop-a", "uid": "set", "labels": {_pods.SERVICE: "shop"}},
        "spec": {"replicas": 1, "template": api.template("1")},
    }
    body = {"metadata": metadata, "spec": api.template("1")["spec"], "status": pod}
    (group,) = _pods.groups(mine, [one], [body])
    reading = _pod_reports.Reading("shop", "", "local/shop:{revision}", 0, NOW)
    return next(iter(reading.reports(group, NOW)))


def ready(status: str, since: str) -> list[dict[str, str]]:
    return [{"type": "Ready", "status": status, "lastTransitionTime": since}]


def status(**more: t.Any) -> list[dict[str, t.Any]]:
    return [{"name": "shop", "restartCount": 0, "state": {"running": {"startedAt": BORN}}, **more}]


ENDED = {"terminated": {"reason": "Error", "exitCode": 3, "finishedAt": LATER}}
PULL = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
SCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}


@pytest.mark.parametrize(
    ("pod", "process", "health", "detail"),
    [
        ({"phase": "Pending"}, Process.STARTING, Health.NONE, ""),
        (
            {"phase": "Pending", "conditions": [SCHEDULED]},
            Process.STARTING,
            Health.NONE,
            "Unschedulable: 0/1",
        ),
        (
            {"phase": "Pending", "containerStatuses": status(state=PULL)},
            Process.STARTING,
            Health.NONE,
            "ImagePullBackOff: Back-off pulling image",
        ),
        (
            {"phase": "Running", "conditions": ready("True", LATER)},
            Process.RUNNING,
            Health.PASSING,
            "",
        ),
        (
            {
                "phase": "Running",
                "conditions": ready("False", BORN),
                "containerStatuses": status(),
            },
            Process.RUNNING,
            Health.PENDING,
            "",
        ),
        (
            {
                "phase": "Running",
                "conditions": ready("False", LATER),
                "containerStatuses": status(),
            },
            Process.RUNNING,
            Health.FAILING,
            "",
        ),
        (
            {
                "phase": "Running",
                "conditions": ready("False", BORN),
                "containerStatuses": status(restartCount=1, lastState=ENDED),
            },
            Process.RUNNING,
            Health.PENDING,
            "restarted: Error, exit code 3",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
            Process.FAILED,
            Health.NONE,
            "Evicted: low on memory",
        ),
        ({"phase": "Succeeded"}, Process.FAILED, Health.NONE, "it ended (Succeeded)"),
        ({"phase": "Odd"}, Process.UNKNOWN, Health.NONE, ""),
        (
            {"phase": "Running", "metadata": {"deletionTimestamp": LATER}},
            Process.STOPPING,
            Health.NONE,
            "",
        ),
        (
            {"phase": "Running", "metadata": {"deletionTimestamp": "2027-01-15T07:00:00Z"}},
            Process.UNREACHABLE,
            Health.NONE,
            "",
        ),
    ],
)
def test_what_a_pod_is(pod: t.Any, process: Process, health: Health, detail: str) -> None:
    report = read(**pod)
    assert (report.process, report.health, report.detail) == (process, health, detail)
    assert (report.created, report.labels.revision) == (NOW - 60, "1")


def test_a_deleted_pod_is_gone_once_its_containers_have_ended() -> None:
    one = {"metadata": {"name": "shop-1", "deletionTimestamp": LATER}, "status": {}}
    assert not _pod.gone(one), "it may never have been started"
    one["status"] = {"containerStatuses": [*status(state=ENDED), *status()]}
    assert not _pod.gone(one)
    for state in (ENDED, {"waiting": {"reason": "ContainerCreating"}}):
        one["status"] = {"containerStatuses": status(state=state)}
        assert _pod.gone(one)
    del one["metadata"]["deletionTimestamp"]
    assert not _pod.gone(one)


def test_a_container_that_runs_before_the_others_is_told_of() -> None:
    """As one that migrates a database, or a sidecar."""
    waits = [
        {"name": "shop", "restartCount": 0, "state": {"waiting": {"reason": "PodInitializing"}}}
    ]
    crash = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    first = [{"name": "migrate", "restartCount": 2, "state": crash, "lastState": ENDED}]
    report = read(phase="Pending", containerStatuses=waits, initContainerStatuses=first)
    assert (report.process, report.detail) == (Process.STARTING, "CrashLoopBackOff: back-off 10s")
    assert (report.restarts, report.restarted) == (2, NOW - 30)
    runs = {"name": "migrate", "state": {"running": {"startedAt": BORN}}}
    body = {"metadata": {"deletionTimestamp": LATER}, "status": {"initContainerStatuses": [runs]}}
    assert not _pod.gone(body)


def test_since_when_it_is_ready_and_how_often_it_restarted() -> None:
    report = read(phase="Running", conditions=ready("True", LATER), podIP="198.18.65.7")
    assert (report.health_since, report.restarts, report.restarted) == (NOW - 29, 0, None)
    assert report.labels.endpoint == Endpoint("198.18.65.7", 8080)
    report = read(phase="Running", containerStatuses=status(restartCount=2, lastState=ENDED))
    assert (report.restarts, report.restarted) == (2, NOW - 30)


@pytest.mark.parametrize(
    ("image", "revision"),
    [
        ("local/shop:2.4.1", "2.4.1"),
        ("elsewhere/shop:7", "7"),
        ("elsewhere:5000/shop", "unknown"),
        ("elsewhere/shop@sha256:abc", "unknown"),
    ],
)
def test_the_revision_of_pods_that_no_rollout_started(image: str, revision: str) -> None:
    one = {"metadata": {"name": "a"}, "spec": {"template": api.template("1")}}
    one["spec"]["template"]["spec"]["containers"][0]["image"] = image
    reading = _pod_reports.Reading("shop", "", "local/shop:{revision}", 0, NOW)
    assert reading.revision(_pods.Group(one, {"metadata": {"name": "shop"}})) == revision


# A Service as the load balancer
# --------------------------------------------------------------------------------------------------


class Watched(Shop):
    """Notes which revisions the Service sends requests to, whenever something has changed."""

    def __init__(self, server: api.Server, **given: t.Any) -> None:
        super().__init__(server, **given)
        self.sent: list[dict[str, int]] = []
        put = server._put

        def watched(path: str, one: t.Any) -> None:
            put(path, one)
            wanted = server.objects[api.SERVICE]["spec"]["selector"].items()
            counts: dict[str, int] = {}
            for pod in server.living():
                if wanted <= pod["metadata"]["labels"].items():
                    tag = pod["spec"]["containers"][0]["image"].rpartition(":")[2]
                    counts[tag] = counts.get(tag, 0) + 1
            if self.sent[-1:] != [counts]:
                self.sent.append(counts)

        server._put = watched  # type: ignore[method-assign]


def test_blue_green_switches_all_requests_by_one_patch() -> None:
    server = with_service()
    shop = Watched(server, strategy="blue_green", hold="0s")
    shop.play(revision="2")
    assert shop.sent == [{"1": 4}, {"2": 4}]
    assert server.objects[api.SERVICE]["spec"]["selector"] == {"app": "shop"}
    is_ordinary(server, "2", 4)


def test_a_canary_by_numbers_of_pods() -> None:
    server = with_service()
    steps = [{"set_replicas": 1}, {"set_replicas": 2}]
    shop = Watched(server, strategy="canary", steps=steps)
    shop.play(revision="2")
    assert all(sum(counts.values()) >= 4 for counts in shop.sent)
    assert {"1": 3, "2": 1} in shop.sent or {"1": 4, "2": 1} in shop.sent
    assert server.objects[api.SERVICE]["spec"]["selector"] == {"app": "shop"}
    is_ordinary(server, "2", 4)


def test_a_broken_revision_gets_no_request_and_leaves_the_service_as_it_was() -> None:
    server = with_service()
    server.starts = lambda pod: not pod["spec"]["containers"][0]["image"].endswith("broken")
    shop = Watched(server, strategy="blue_green", progress_deadline="1s")
    with pytest.raises(RolloutFailed):
        shop.play(revision="broken")
    assert shop.sent == [{"1": 4}]
    assert server.objects[api.SERVICE]["spec"]["selector"] == {"app": "shop"}
    is_ordinary(server, "1", 4)


def test_weights_are_refused() -> None:
    shop = Shop(with_service(), strategy="canary", steps=[{"set_weight": 20}])
    with pytest.raises(InputError, match="cannot divide requests by weights; use set_replicas"):
        shop.play(revision="2")


def test_an_older_lease_does_not_switch() -> None:
    server = with_service()
    service(server, epoch=8).observe()
    older = service(server, epoch=7)
    for act in (older.observe, lambda: older.apply({"shop": {}}), older.conclude):
        with pytest.raises(LeaseLost, match=r"\(epoch 8, ours is 7\)"):
            act()
    assert len(service(server, epoch=0).observe()["shop"]) == 4


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"ports": [{"port": 80}]}, "has no selector"),
        ({"selector": {"app": "shop"}}, "the ports of service shop in namespace web are none"),
    ],
)
def test_a_service_that_cannot_be_switched_is_refused(spec: t.Any, why: str) -> None:
    server = api.Server()
    with pytest.raises(InputError, match="there is no service shop in namespace web"):
        service(server).check()
    server.objects[api.SERVICE] = {"metadata": {"name": "shop"}, "spec": spec}
    with pytest.raises(InputError, match=why):
        service(server).check()


@pytest.mark.parametrize(("port", "number"), [(None, 8080), ("http", 8080), ("9", 9100)])
def test_of_several_ports_one_names_the_pods(port: str | None, number: int) -> None:
    server = with_service()
    server.objects[api.SERVICE]["spec"]["ports"] = [
        {"name": "http", "port": 80, "targetPort": 8080},
        {"name": "metrics", "port": 9, "targetPort": 9100},
    ]
    made = service(server, **({"port": port} if port else {}))
    made.check()
    assert {endpoint.port for endpoint in made.observe()["shop"]} == {number}


def test_a_port_that_the_service_does_not_have_is_refused() -> None:
    with pytest.raises(InputError, match=r"rollout_traffic.port: grpc, and the ports of") as exc:
        service(with_service(), port="grpc").check()
    assert "are 80; name one" in str(exc.value)


def test_missing_rights_on_the_service_are_told() -> None:
    server = with_service()
    server.forbidden = {("patch", "services")}
    with pytest.raises(InputError, match="may not patch services"):
        service(server).check()


# The documentation
# --------------------------------------------------------------------------------------------------

PAGE = SNIPPETS["docs/how-to/kubernetes.md"]


def test_the_options_of_the_page_are_taken() -> None:
    for name in ("kubernetes.yml", "template.yml"):
        given = yaml.safe_load(PAGE[name])["rollout_platform"]
        del given["driver"]
        driver(api.Server(), **given)
    given = yaml.safe_load(PAGE["service.yml"])["rollout_traffic"]
    del given["driver"]
    service(api.Server(), **given)


def test_the_paused_deployment_of_the_page_is_an_order() -> None:
    server = cluster()
    server.patch(api.SHOP, yaml.safe_load(PAGE["paused"]))
    made = driver(server, epoch=0, image="registry.example.com/shop:{revision}")
    made.prepare("2.4.1")
    with pytest.raises(InputError, match=r"is paused .* with a pod template of 2\.4\.1"):
        made.prepare("2.4.2")


def test_the_pods_of_the_example_wait_as_the_page_says() -> None:
    wanted = yaml.safe_load(PAGE["prestop"])["lifecycle"]
    mine = yaml.safe_load((ROOT / "docs/examples/kubernetes/deployment.yaml").read_text())
    assert mine["spec"]["template"]["spec"]["containers"][0]["lifecycle"] == wanted
