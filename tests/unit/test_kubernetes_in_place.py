# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts of StatefulSets and DaemonSets, over an API server in memory."""

from __future__ import annotations

import copy
import typing as t
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.action import (
    begin,
    info,
    plan,
    remove,
    rollback,
    scale,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    LeaseLost,
    PlatformError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.settings import parse
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Composition,
    Process,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.check import (
    HealthCheck,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    InstanceSettings,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import (
    _on_delete,
    _pod,
    _pods,
    _rights,
    kubernetes,
)
from ansible_collections.progressive.rollout.tests.support import kubernetes as api
from ansible_collections.progressive.rollout.tests.support.contexts import Knows, tell
from ansible_collections.progressive.rollout.tests.support.memory import Service, World
from ansible_collections.progressive.rollout.tests.support.pages import ROOT, SNIPPETS
from ansible_collections.progressive.rollout.tests.support.statefulsets import (
    AGENT,
    DB,
    HISTORY,
    Server,
)

pytestmark = pytest.mark.usefixtures("virtual_time")

IMAGE = "local/shop:{revision}"
BUDGET = {"max_surge": 0, "max_unavailable": 1}


def driver(server: Server, epoch: int = 1) -> t.Any:
    workload = "statefulset/db" if server.path == DB else "daemonset/agent"
    options = kubernetes.OPTIONS.parse({"workload": workload, "image": IMAGE}, "rollout_platform.")
    said: list[str] = []
    transport = t.cast(t.Any, SimpleNamespace(print_line=said.append, said=said))
    made = kubernetes.Driver.variant(options)(
        options, DriverContext("shop", transport, HealthCheck(), known=Knows(epoch=epoch))
    )
    assert isinstance(made, _on_delete.OnDeleteDriver)
    made.__dict__["_cluster"] = server
    return made


class Killed(BaseException):
    """As by a signal that nothing can be done about."""


@dataclass
class Pods(World):
    """A service whose instances are the pods of a server."""

    server: Server = field(default_factory=Server)
    fewest: int = 0
    made: list[t.Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.journals = self.server.journals  # they outlive a run

    def platform(self) -> t.Any:
        made = driver(self.server)
        made.context = replace(made.context, known=self.known)
        self.made.append(made)
        return made


class Shop(Service):
    """The service `shop`, as a play rolls it out, and how few of its pods were ready at once."""

    world: Pods

    def __init__(self, server: Server, **given: t.Any) -> None:
        more = {"budget": BUDGET, "headroom": 0, "progress_deadline": "5s", **given}
        super().__init__(Pods(server=server), **more)
        self.server, self.least = server, len(server.living())
        ends = server.end

        def ended(path: str) -> None:
            ready = _pod.condition(server.objects[path], "Ready").get("status") == "True"
            self.least = min(self.least, api.serving(server) - ready)
            ends(path)

        server.end = ended  # type: ignore[method-assign]


def is_over(server: Server, revision: str, number: int) -> None:
    """Nothing is left to do."""
    assert list(server.revisions().values()) == [revision] * number
    assert server.template == revision
    before = {pod["metadata"]["uid"] for pod in server.living()}
    server.reconcile()
    assert {pod["metadata"]["uid"] for pod in server.living()} == before


def deleted(server: Server) -> list[str]:
    return [change.partition(" ")[2] for change in server.changes if change.startswith("delete")]


# Whole rollouts
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("watches", [True, False])
@pytest.mark.slow
def test_a_statefulset_is_walked_from_its_highest_number(ordered: bool, watches: bool) -> None:
    server = Server(4, ordered=ordered)
    server.watches = watches
    # A watch is a real thread: on a busy machine, virtual time goes on before it is heard.
    shop = Shop(server, progress_deadline="1h")
    assert shop.play(revision="2")["rollout"]["outcome"] == "promoted"
    is_over(server, "2", 4)
    assert deleted(server) == ["db-3", "db-2", "db-1", "db-0"]
    assert shop.least == 3
    assert not shop.play(revision="2")["changed"]
    shop.play(revision="3")
    is_over(server, "3", 4)


def test_a_daemonset_is_walked() -> None:
    server = Server(nodes=3)
    shop = Shop(server)
    shop.play(revision="2")
    is_over(server, "2", 3)
    assert (len(deleted(server)), shop.least) == (3, 2)
    shop.step(rollback)
    is_over(server, "1", 3)


def test_the_stable_template_is_that_from_before_to_the_letter() -> None:
    server = Server()
    server.starts = lambda pod: not pod["spec"]["containers"][0]["image"].endswith("broken")
    shop = Shop(server, progress_deadline="1s")
    before = server.objects[DB]["spec"]
    with pytest.raises(RolloutFailed):
        shop.play(revision="broken")
    assert shop.journal.rollout and shop.journal.rollout.outcome == "rolled_back"
    assert server.objects[DB]["spec"] == before
    is_over(server, "1", 3)
    assert deleted(server) == ["db-2", "db-2"], "once each way, and no other pod was touched"
    assert shop.least == 2


def test_a_restart_replaces_each_pod() -> None:
    server = Server()
    shop = Shop(server)
    shop.play(revision="2")
    before = {pod["metadata"]["uid"] for pod in server.living()}
    shop.step(begin, {"restart": True})
    shop.play(revision="2")
    assert not before & {pod["metadata"]["uid"] for pod in server.living()}
    is_over(server, "2", 3)


APPROVAL = {"driver": "approval"}
CANARY: t.Any = {
    "revision": "2",
    "strategy": "canary",
    "steps": [{"set_replicas": 1}, {"gate": APPROVAL}],
}


@pytest.fixture(params=["statefulset", "daemonset"])
def waiting(request: pytest.FixtureRequest) -> Shop:
    """With a canary of one, which a person is waited for; the run has ended."""
    nodes = 3 if request.param == "daemonset" else 0
    shop = Shop(Server(3, nodes=nodes), **CANARY)
    assert shop.play()["parked"]
    assert sorted(shop.server.revisions().values()) == ["1", "1", "2"]
    return shop


def test_what_ends_while_a_canary_waits_comes_back_stable(waiting: Shop) -> None:
    server = waiting.server
    assert server.template == "1"
    for path in [f"{api.PODS}/{name}" for name in server.revisions()]:
        server.end(path)
    assert sorted(server.revisions().values()) == ["1", "1", "1"]
    assert waiting.play()["parked"], "and the next run makes the canary again"
    assert sorted(server.revisions().values()) == ["1", "1", "2"]
    waiting.say("promote")
    waiting.play()
    is_over(server, "2", 3)


def test_a_canary_is_aborted(waiting: Shop) -> None:
    server = waiting.server
    stable = [one["metadata"]["uid"] for one in server.living()]
    waiting.say("abort")
    with pytest.raises(RolloutFailed):
        waiting.play()
    is_over(server, "1", 3)
    assert len(set(stable) & {one["metadata"]["uid"] for one in server.living()}) == 2


def test_a_canary_is_superseded(waiting: Shop) -> None:
    assert waiting.play(revision="3", supersede=True)["parked"]
    assert sorted(waiting.server.revisions().values()) == ["1", "1", "3"]
    waiting.say("promote")
    waiting.play(revision="3")
    is_over(waiting.server, "3", 3)


def test_a_workload_is_scaled_while_a_canary_waits(waiting: Shop) -> None:
    server = waiting.server
    for number in (5, 2, 4):
        if server.nodes:
            server.nodes = [f"node{one}" for one in range(number)]
            gone = [p for p in server.living() if p["spec"]["nodeName"] not in server.nodes]
        else:
            server.patch(DB, {"spec": {"replicas": number}})
            there = [f"db-{one}" for one in range(number)]
            gone = [p for p in server.living() if p["metadata"]["name"] not in there]
        for pod in gone:
            server._remove(f"{api.PODS}/{pod['metadata']['name']}")
        server.reconcile()
        assert waiting.play()["parked"]
        assert sorted(server.revisions().values()) == ["1"] * (number - 1) + ["2"]
    waiting.say("promote")
    waiting.play()
    is_over(server, "2", 4)


@pytest.mark.slow
def test_a_held_rollout_leaves_the_stable_template() -> None:
    server = Server()
    server.starts = lambda pod: not pod["spec"]["containers"][0]["image"].endswith("broken")
    shop = Shop(server, progress_deadline="1s", on_failure="hold")
    with pytest.raises(RolloutFailed):
        shop.play(revision="broken")
    assert server.revisions()["db-2"] == "broken"
    assert server.template == "1"


@pytest.mark.slow
def test_why_no_pod_comes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_on_delete, "TOLD_AFTER", 0.0)
    server = Server()
    server.denies = "create Pod db-2 failed error: exceeded quota: q"
    shop = Shop(server, progress_deadline="1s")
    with pytest.raises(RolloutFailed):
        shop.play(revision="2")
    said = [line for made in shop.world.made for line in made.context.transport.said]
    assert said[0] == f"no more pods of db: {server.denies} [PR-245]"


# Killed
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [False, True], ids=["before it", "after it"])
@pytest.mark.parametrize("nodes", [0, 2])
@pytest.mark.slow
def test_a_run_that_is_killed_at_a_change_is_continued(lost: bool, nodes: int) -> None:
    """And a pod ends by itself before the next run."""
    whole = Server(2, nodes=nodes)
    Shop(whole).play(revision="2")
    assert len(whole.changes) >= 4, "the lease, the template, each pod"
    for number in range(len(whole.changes)):
        server = Server(2, nodes=nodes)
        shop = Shop(server)
        note = server._changes

        def changes(
            what: str, server: Server = server, at: int = number, note: t.Any = note
        ) -> None:
            if len(server.changes) == at and not lost:
                server._changes = note  # type: ignore[method-assign]
                raise Killed
            note(what)
            if len(server.changes) == at + 1 and lost:
                server._changes = note  # type: ignore[method-assign]
                put = server._put

                def once(path: str, one: t.Any) -> None:
                    server._put = put  # type: ignore[method-assign]
                    put(path, one)
                    server.reconcile()
                    raise Killed

                server._put = once  # type: ignore[method-assign]

        server._changes = changes  # type: ignore[method-assign]
        try:
            shop.play(revision="2")
        except Killed:
            server.reconcile()
            server.end(f"{api.PODS}/{sorted(server.revisions())[0]}")
            shop.play(revision="2")
        is_over(server, "2", 2)
        assert shop.least >= 1, number


# Single calls
# --------------------------------------------------------------------------------------------------


def states(made: t.Any, **work: t.Any) -> dict[str, Process]:
    return {one.labels.id.partition("/")[0]: one.process for one in made.sync(**work)}


def test_a_place_is_stopping_until_the_next_pod_is_there() -> None:
    server = Server(2)
    server.stops_at_once = False
    made = driver(server)
    one, other = (report.labels.id for report in made.sync())
    made.refill("2", 2)
    for _again in range(2):
        assert states(made, stop=[other]) == {"db-0": Process.RUNNING, "db-1": Process.STOPPING}
    assert deleted(server) == ["db-1"], "once"
    server.denies = "quota"
    server.ended()
    assert [report.labels.id for report in made.sync()] == [one, "db-1/vacant"]
    assert states(made)["db-1"] is Process.STOPPING
    server.denies = ""
    server.reconcile()
    new = made.sync()[1]
    assert (new.labels.revision, new.labels.generation) == ("2", 2)
    assert new.labels.id not in (other, "db-1/vacant")
    assert states(made, stop=[other]) == dict.fromkeys(["db-0", "db-1"], Process.RUNNING)


def test_no_pod_is_deleted_before_the_controller_has_seen_the_template() -> None:
    server = Server(2)
    made = driver(server)
    ids = [report.labels.id for report in made.sync()]
    server.blind = True
    made.refill("2", 2)
    made.sync(stop=ids[:1])
    assert deleted(server) == []
    assert "has not seen" in made.conclude(None)
    server.blind = False
    server.reconcile()
    made.sync(stop=ids[:1])
    assert deleted(server) == ["db-0"]
    assert server.revisions()["db-0"] == "2"


def test_a_pod_of_another_uid_is_not_deleted() -> None:
    server = Server(1)
    made = driver(server)
    (first,) = (report.labels.id for report in made.sync())
    server.end(f"{api.PODS}/db-0")
    made._list_pods = lambda _workload, seen=made._places.pods: seen
    made.sync(stop=[first])
    assert len(server.living()) == 1


def test_what_the_pods_were_made_of_is_found_in_the_history() -> None:
    server = Server(2)
    before = server.objects[DB]["spec"]["template"]
    other = api.template("1", nodeSelector={"disk": "fast"})
    server.patch(DB, {"spec": {"template": other}})
    made = driver(server)
    made.refill("2", 2)
    assert server.objects[DB]["spec"]["template"]["spec"]["nodeSelector"] == {"disk": "fast"}
    made.refill("1", 1)
    assert server.objects[DB]["spec"]["template"] == before, "as the pods are, not as it was"
    made.refill("2", 2)
    assert server.objects[DB]["spec"]["template"]["spec"]["nodeSelector"] == {"disk": "fast"}


def test_a_revision_that_ran_before_gets_the_pod_template_that_it_had() -> None:
    """Whatever was changed since, and of whichever generation it was."""
    server = Server(2)
    made = driver(server)
    made.refill("2", 2)
    server.patch(DB, {"spec": {"template": api.template("2", nodeSelector={"disk": "fast"})}})
    made.refill("3", 3)
    assert server.objects[DB]["spec"]["template"]["spec"]["nodeSelector"]
    tell(made, settings={4: InstanceSettings("kubernetes", {}, {}, again=True)})
    made.refill("1", 4)
    assert server.template == "1"
    assert "nodeSelector" not in server.objects[DB]["spec"]["template"]["spec"]
    for name in ("db-0", "db-1"):
        server.end(f"{api.PODS}/{name}")
    assert {(one.labels.generation, one.labels.revision) for one in made.sync()} == {(4, "1")}
    tell(made, settings={5: InstanceSettings("kubernetes", {}, {}, again=True)})
    made.refill("2", 5)
    for name in ("db-0", "db-1"):
        server.end(f"{api.PODS}/{name}")
    assert {(one.labels.generation, one.labels.revision) for one in made.sync()} == {(5, "2")}


@pytest.mark.parametrize("generation", [None, 2])
def test_the_server_checks_the_new_template_first(generation: int | None) -> None:
    server, seen = Server(1), []

    def admits(one: t.Any) -> t.Any:
        seen.append(one["spec"]["template"]["spec"]["containers"][0]["image"])
        return one

    server.admits = admits
    driver(server, epoch=0).prepare("2", generation)
    assert (seen, server.template, server.changes) == (["local/shop:2"], "1", [])


def test_a_stable_template_that_is_lost_is_told() -> None:
    server = Server(1)
    made = driver(server)
    made.refill("2", 2)
    for path in [path for path in server.objects if path.startswith(HISTORY)]:
        del server.objects[path]
    with pytest.raises(PlatformError, match="not in its history any more"):
        made.refill("1", 1)


def test_an_older_lease_does_nothing() -> None:
    server = Server(2)
    older = driver(server, epoch=7)
    ids = [report.labels.id for report in older.sync()]
    driver(server, epoch=8).sync()
    for call in (
        lambda: older.sync(stop=ids),
        lambda: older.refill("2", 2),
        lambda: older.conclude(Composition("2", 2, 2)),
    ):
        with pytest.raises(LeaseLost):
            call()
    assert (server.template, deleted(server)) == ("1", [])


def test_nothing_is_done_without_a_lease() -> None:
    server = Server(1)
    made = driver(server, epoch=0)
    (only,) = (report.labels.id for report in made.sync())
    for call in (lambda: made.sync(stop=[only]), lambda: made.refill("2", 2)):
        with pytest.raises(PlatformError, match="nothing is done without a lease"):
            call()
    assert server.changes == []


def test_a_template_that_somebody_changes_meanwhile_is_looked_at_again() -> None:
    server = Server(1)
    made = driver(server)
    made.sync()

    def change(_what: str) -> None:
        server.fails = lambda what: None
        server.patch(DB, {"metadata": {"labels": {"by": "somebody"}}})

    look = made._fenced_look
    made._fenced_look = lambda fresh: (look(fresh), change(""))[0]
    with pytest.raises(PlatformError, match="changed by somebody else"):
        made.refill("2", 2)
    made._fenced_look = look
    made.refill("2", 2)
    assert server.template == "2"


def lost(pod: dict[str, t.Any]) -> None:
    pod["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z"


def test_a_pod_on_a_node_that_does_not_answer() -> None:
    """It keeps the place of a StatefulSet; of a DaemonSet, nobody waits for it."""
    database, agents = Server(2), Server(nodes=2)
    lost(database.objects[f"{api.PODS}/db-1"])
    made = driver(database)
    report = made.sync()[1]
    assert (report.process, made.replicas()) == (Process.STOPPING, 2)
    assert report.detail == "node node1 does not answer, so its pod does not end"
    lost(agents.living()[1])
    made = driver(agents)
    assert (len(made.sync()), made.replicas()) == (1, 1)


# What is refused
# --------------------------------------------------------------------------------------------------

REFUSED: t.Any = [
    ({"updateStrategy": {"type": "RollingUpdate"}}, "kubectl patch statefulset/db --type merge"),
    ({"updateStrategy": None}, "has the update strategy RollingUpdate"),
    ({"revisionHistoryLimit": 0}, "has the revisionHistoryLimit 0"),
    ({"selector": {"matchExpressions": [{"key": "app"}]}}, "selects its pods by expressions"),
    ({"replicas": 0}, "has no pods"),
]


@pytest.mark.parametrize(("changed", "why"), REFUSED, ids=lambda one: str(one)[:30])
def test_a_workload_is_refused(changed: t.Any, why: str) -> None:
    server = Server(1)
    server.objects[DB]["spec"] |= changed
    with pytest.raises(InputError, match=why):
        driver(server, epoch=0).check()
    assert server.changes == []


def test_a_container_needs_a_readiness_probe() -> None:
    server = Server(1)
    (container,) = server.objects[DB]["spec"]["template"]["spec"]["containers"]
    del container["readinessProbe"]
    with pytest.raises(InputError, match="has no readinessProbe"):
        driver(server).check()


@pytest.mark.parametrize("path", [DB, AGENT])
def test_missing_rights_are_told_as_a_role(path: str) -> None:
    server = Server(1) if path == DB else Server(nodes=1)
    kind = path.split("/")[-2]
    server.forbidden = {("delete", "pods"), ("patch", kind)}
    with pytest.raises(InputError, match=f"patch {kind}, delete pods; apply this Role"):
        driver(server).check()
    role = _rights.role("web", _rights.in_place(kind))
    assert {(rule["resources"][0], *rule["verbs"]) for rule in role["rules"]} == {
        (kind, "list", "watch", "patch"),
        ("controllerrevisions", "list"),
        ("pods", "list", "watch", "patch", "delete"),
        ("events", "list"),
    }


def settings(**given: t.Any) -> t.Any:
    platform = {"driver": "kubernetes", "workload": "statefulset/db", "image": IMAGE}
    return parse({"service": "shop", "platform": platform, "budget": BUDGET, **given})


def test_nothing_is_started_beside_what_is_there() -> None:
    found = settings(budget={"max_surge": 3, "max_unavailable": 2}, headroom=2)
    assert (found.budget, found.headroom) == (Budget(0, 2), 0)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"budget": {}}, "rollout_budget: .* set max_unavailable to at least 1"),
        ({"budget": {"max_in_flight": 1}}, "rollout_budget: "),
        ({"strategy": "blue_green"}, "rollout_strategy: blue_green needs a second set"),
    ],
)
def test_settings_are_refused(given: t.Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        settings(**given)


def test_steps_that_move_nothing_need_no_budget() -> None:
    """They are not given it, and its default allows no pod to be unavailable."""
    platform = {"driver": "kubernetes", "workload": "statefulset/db", "image": IMAGE}
    for action in (info, remove):
        assert parse({"service": "shop", "platform": platform}, moves=action.ActionModule.moves)
    with pytest.raises(InputError, match="rollout_budget"):
        parse({"service": "shop", "platform": platform}, moves=begin.ActionModule.moves)


@pytest.mark.parametrize("replicas", [2, 4])
def test_another_number_is_refused(replicas: int) -> None:
    server = Server(3)
    with pytest.raises(InputError, match=f"rollout_replicas: {replicas} asked for"):
        Shop(server).play(revision="2", replicas=replicas)
    assert (server.template, deleted(server)) == ("1", [])


def test_the_step_that_scales_is_refused() -> None:
    server = Server(3)
    with pytest.raises(InputError, match="scale the workload itself"):
        Shop(server).step(scale, revision="1", replicas=4)
    assert (server.template, len(server.living()), deleted(server)) == ("1", 3, [])


def test_an_operator_cannot_scale_a_rollout(waiting: Shop) -> None:
    waiting.say("scale", replicas=5)
    assert waiting.play()["parked"]
    assert any("scale the workload itself" in line for line in waiting.said)
    assert sorted(waiting.server.revisions().values()) == ["1", "1", "2"]


def test_a_plan_names_the_pods_as_they_go() -> None:
    server = Server(3)
    found = Shop(server).step(plan, revision="2")
    assert [name.partition("/")[0] for name in found["order"]] == ["db-2", "db-1", "db-0"]
    assert (found["surge"], found["unavailable"], found["minimum_available"]) == (0, 1, 2)
    assert "no preStop" in "".join(found["risks"])
    assert (server.template, deleted(server)) == ("1", [])


def test_check_mode_changes_nothing() -> None:
    server = Server(3)
    assert Shop(server).step(begin, check_mode=True, revision="2")["changed"]
    assert (server.template, deleted(server)) == ("1", [])


def test_the_same_number_is_fine() -> None:
    server = Server(3)
    Shop(server).play(revision="2", replicas=3)
    is_over(server, "2", 3)


def test_the_first_pods_are_the_most_common_ones() -> None:
    """Of a template that was changed and rolled out by hand in part."""
    server = Server(3)
    server.patch(DB, {"spec": {"template": api.template("1", nodeSelector={"disk": "fast"})}})
    server.end(f"{api.PODS}/db-0")
    found = {one.labels.id[:4]: one.labels.generation for one in driver(server).sync()}
    assert found == {"db-0": 0, "db-1": _pods.ADOPTED, "db-2": _pods.ADOPTED}
    made = driver(server)
    made.sync()
    made.refill("2", 2)
    for name in ("db-1", "db-2"):
        server.end(f"{api.PODS}/{name}")
    assert [one.labels.generation for one in made.sync()] == [0, 2, 2], "they were the first ones"
    made.refill("1", 1)
    assert "nodeSelector" not in server.objects[DB]["spec"]["template"]["spec"]


def test_a_rollout_that_kubectl_has_undone_is_followed_by_others() -> None:
    """`kubectl rollout undo` gives the workload the template before, and moves no pod."""
    server = Server(2)
    before = copy.deepcopy(server.objects[DB]["spec"]["template"])
    shop = Shop(server)
    shop.play(revision="2")
    server._put(
        DB, {**server.objects[DB], "spec": {**server.objects[DB]["spec"], "template": before}}
    )
    server.reconcile()
    shop.play(revision="3")
    is_over(server, "3", 2)
    shop.step(rollback)
    is_over(server, "2", 2)


def test_a_statefulset_needs_no_service() -> None:
    """Since https://github.com/kubernetes/kubernetes/pull/130233, `serviceName` is optional."""
    server = Server(3)
    del server.objects[DB]["spec"]["serviceName"]
    Shop(server).play(revision="2")
    is_over(server, "2", 3)
    assert deleted(server) == ["db-2", "db-1", "db-0"]


# The documentation
# --------------------------------------------------------------------------------------------------

PAGE = SNIPPETS["docs/how-to/kubernetes-in-place.md"]
EXAMPLE = ROOT / "docs/examples/kubernetes-in-place"


@pytest.mark.parametrize("name", ["statefulset.yml", "daemonset.yml"])
def test_the_variables_of_the_page_are_taken(name: str) -> None:
    given = yaml.safe_load(PAGE[name])
    taken = {key.removeprefix("rollout_"): value for key, value in given.items()}
    found = parse({"service": "shop", **taken})
    assert found.platform.driver is _on_delete.OnDeleteDriver


def test_the_strategy_of_the_page_is_the_one_that_is_needed() -> None:
    wanted = yaml.safe_load(PAGE["strategy"])["spec"]
    mine = yaml.safe_load((EXAMPLE / "statefulset.yaml").read_text())["spec"]
    assert mine["updateStrategy"] == wanted["updateStrategy"]
    server = Server(1)
    server.objects[DB]["spec"] |= wanted
    driver(server).check()


def test_the_role_of_the_example_is_the_one_that_is_needed() -> None:
    found = yaml.safe_load((EXAMPLE / "role.yaml").read_text())
    assert found["rules"] == _rights.role("any", _rights.in_place("statefulsets"))["rules"]
