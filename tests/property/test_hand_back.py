# SPDX-License-Identifier: GPL-3.0-or-later
"""The hand-back of a Deployment ends wherever it begins, with every pod that there was, whenever the
controller acts and however old its view is.
"""

from __future__ import annotations

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.hand_back import (
    Action,
    Blocked,
    HandBackStep,
    ReplicaSet,
    UserDeployment,
    next_step,
)
from ansible_collections.progressive.rollout.tests.support.deployments import Cluster
from ansible_collections.progressive.rollout.tests.support.seeds import examples
from hypothesis import given
from hypothesis import strategies as st

NEW = "shop-g2"


def walked(history: int, same: bool, others: int, pods: int) -> Cluster:
    """A rollout has moved all pods to its ReplicaSet.

    `history` are the Deployment's old ones, the first with the new template (`same`), and `others`
    are left of superseded rollouts.
    """
    old = [
        ReplicaSet(f"shop-{n}", 0, "b" if same and not n else f"a{n}", owned=True, labelled=True)
        for n in range(history)
    ]
    left = [ReplicaSet(f"shop-left-{n}", 0, f"c{n}") for n in range(others)]
    every = [*old, *left, ReplicaSet(NEW, pods, "b", base=old[-1].template)]
    return Cluster(UserDeployment(0, old[-1].template), {one.name: one for one in every})


clusters = st.builds(
    walked,
    history=st.integers(1, 4),
    same=st.booleans(),
    others=st.integers(0, 2),
    pods=st.integers(1, 5),
)
# What happens next: the planner acts (None), or the controller, with a view so many changes old.
events = st.lists(st.none() | st.integers(0, 3), max_size=60)


def check(cluster: Cluster, pods: int) -> None:
    assert {one.name: one.replicas for one in cluster.sets.values() if one.replicas} == {NEW: pods}


def finish(cluster: Cluster, pods: int) -> None:
    for _turn in range(60):
        action = cluster.step(NEW)
        check(cluster, pods)
        if action.step is HandBackStep.DONE:
            return
        cluster.reconcile()
        check(cluster, pods)
    raise AssertionError(f"it does not end: {cluster}")


@examples(300)
@given(clusters, events)
def test_it_ends_and_no_pod_is_started_or_stopped(
    cluster: Cluster, happens: list[int | None]
) -> None:
    pods = cluster.sets[NEW].replicas
    history = {name for name, one in cluster.sets.items() if one.owned and one.template != "b"}
    for stale in happens:
        if stale is None:
            cluster.step(NEW)
        else:
            cluster.reconcile(stale)
        check(cluster, pods)
    finish(cluster, pods)
    assert cluster.deployment == UserDeployment(pods, "b"), "not paused, and seen by its controller"
    assert set(cluster.sets) == {NEW, *history}, "what is left over is deleted, history is not"
    assert all(one.owned and one.labelled and not one.released for one in cluster.sets.values())
    for stale in (3, 0):
        cluster.reconcile(stale)
        check(cluster, pods)


@examples(100)
@given(st.integers(0, 3), st.integers(1, 5))
def test_a_rollback_leaves_the_deployment_as_it_was(others: int, pods: int) -> None:
    cluster = walked(2, False, others, 0)
    cluster.sets["shop-1"] = ReplicaSet("shop-1", pods, "a1", owned=True, labelled=True)
    cluster.deployment = UserDeployment(pods, "a1")
    cluster.seen = [cluster.deployment]
    before = dict(cluster.sets)
    for _other in range(others + 1):
        assert cluster.step("shop-1").step is HandBackStep.DELETE
        cluster.reconcile()
    assert cluster.step("shop-1").step is HandBackStep.DONE
    assert cluster.deployment == UserDeployment(pods, "a1")
    assert cluster.sets == {name: one for name, one in before.items() if one.owned}


def test_the_steps_of_an_ordinary_one() -> None:
    cluster = walked(history=1, same=False, others=0, pods=3)
    steps = []
    while (action := cluster.step(NEW)).step is not HandBackStep.DONE:
        steps.append(action)
        cluster.reconcile()
    assert steps == [
        Action(HandBackStep.PAUSE),
        Action(HandBackStep.RELEASE, "shop-0"),
        Action(HandBackStep.RETARGET, NEW),
        Action(HandBackStep.ADOPT, NEW),
        Action(HandBackStep.GIVE_BACK, "shop-0"),
        Action(HandBackStep.RESUME),
    ]


def test_it_waits_until_the_controller_has_seen_each_change() -> None:
    cluster = walked(history=1, same=False, others=0, pods=3)
    waits = 0
    for _turn in range(20):
        if cluster.step(NEW).step is HandBackStep.WAIT:
            waits += 1
            cluster.reconcile()
    assert waits == 5, "after: pause, target, adoption, the one given back, resume"


OLD = ReplicaSet("shop-0", 0, "a", owned=True, labelled=True)


@pytest.mark.parametrize(
    ("deployment", "sets", "new", "why"),
    [
        (UserDeployment(0, "a"), [OLD], NEW, "shop-g2 is gone"),
        (
            UserDeployment(1, "a"),
            [ReplicaSet("shop-0", 1, "a", True, True), ReplicaSet(NEW, 3, "b")],
            NEW,
            "shop-0 is still to have 1 pods",
        ),
        (UserDeployment(3, "z"), [OLD, ReplicaSet(NEW, 3, "b", True, True)], NEW, "somebody else"),
        (
            UserDeployment(0, "z"),
            [OLD, ReplicaSet(NEW, 3, "b", base="a")],
            NEW,
            "somebody else has ch",
        ),
        (UserDeployment(0, "a", paused=True), [OLD, ReplicaSet(NEW, 3, "b")], NEW, "has paused"),
        (
            UserDeployment(0, "a", paused=True, pending="shop-g1"),
            [OLD, ReplicaSet(NEW, 3, "b")],
            NEW,
            "has paused",
        ),
        (
            UserDeployment(3, "a"),
            [OLD, ReplicaSet(NEW, 2, "b")],
            None,
            "shop-g2 is still to have 2",
        ),
    ],
)
def test_what_cannot_be_handed_back(
    deployment: UserDeployment, sets: list[ReplicaSet], new: str | None, why: str
) -> None:
    with pytest.raises(Blocked, match=why):
        next_step(deployment, sets, new)


def test_a_first_rollout_that_failed_leaves_only_the_deployment() -> None:
    cluster = walked(history=1, same=False, others=2, pods=0)
    while cluster.step(None).step is not HandBackStep.DONE:
        pass
    assert list(cluster.sets) == ["shop-0"]
