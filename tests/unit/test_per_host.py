# SPDX-License-Identifier: GPL-3.0-or-later
"""`rollout_replicas: per_host`: what it is refused with, and where the next instances go."""

from __future__ import annotations

import typing as t
from dataclasses import replace
from types import SimpleNamespace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import settings
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.background.durations import (
    MedianTimes,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.command_request import (
    scale_refusal,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.planning import (
    foresee,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.validation import (
    Validation,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import PerHost
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Instance,
    Rotation,
    State,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.per_host import (
    OnePerHost,
    fitted,
    free_hosts,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import Rules
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    RolloutTarget,
    Waypoint,
    rolling,
    stages,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import (
    Record,
    Rollout,
)

PROCESS = {"driver": "process", "hosts": "web", "command": ["/bin/agent"], "ports": 9100}

KUBERNETES = {"driver": "kubernetes", "workload": "deployment/agent", "image": "a:{revision}"}
SWARM = {"driver": "swarm", "hosts": "web", "image": "agent:{revision}", "port": 80}
SCALER = {"driver": "command", "get": ["/bin/get"], "set": ["/bin/set", "{min}", "{max}"]}


def parsed(**given: t.Any) -> settings.Settings:
    known = {"service": "agent", "replicas": "per_host", "platform": PROCESS}
    return settings.parse({**known, **given})


def test_it_is_a_number_of_replicas() -> None:
    assert parsed().replicas == PerHost()
    assert parsed(replicas=3).replicas == 3
    with pytest.raises(InputError, match=r"rollout_replicas: .*per_hosts.*per_host"):
        parsed(replicas="per_hosts")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"platform": KUBERNETES}, "DaemonSet"),
        ({"platform": SWARM}, "global service"),
        ({"platform": {"driver": "static", "hosts": "web", "port": 9100}}, "in place"),
        ({"autoscaler": SCALER}, "rollout_autoscaler"),
        ({"targets": [{"name": "eu", "hosts": "eu"}]}, "rollout_targets"),
        ({"strategy": "canary", "steps": [{"set_weight": 20}], "hold": "15s"}, "rollout_hold"),
    ],
)
def test_it_is_refused_where_something_else_decides(given: dict[str, t.Any], why: str) -> None:
    with pytest.raises(InputError, match=f"rollout_replicas: per_host, but .*{why}"):
        parsed(**given)


def test_another_number_is_refused_while_it_lasts() -> None:
    rollout = Rollout("r1", "2", 2, 4, "rolling", None, 0.0)
    assert scale_refusal(rollout) == ""
    rollout.per_host = True
    assert "one instance on each host" in scale_refusal(rollout)


def test_a_run_that_is_told_another_number_refuses_it_by_the_record_that_it_has() -> None:
    """It would lose what it has not written yet if it read the journal again."""
    record = Record("agent", rollout=Rollout("r1", "2", 2, 4, "rolling", None, 0.0, per_host=True))
    platform = SimpleNamespace(capabilities=SimpleNamespace(refills_places=False))
    step = SimpleNamespace(
        record=record, settings=parsed(), loop=SimpleNamespace(platform=platform), session=None
    )
    with pytest.raises(InputError, match="one instance on each host"):
        Validation(t.cast(t.Any, step)).refuse_to_scale()


def test_a_plan_replaces_hosts_in_the_order_of_the_rollout() -> None:
    """The zone where fewest hosts are without goes next, not the host with the oldest instance."""
    zones = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}
    fleet = [
        replace(ready(name, float(n)), host=name, rotation=Rotation.IN)
        for n, name in enumerate(zones)
    ]
    given = parsed(budget={"max_surge": 0, "max_unavailable": 2})
    rules = replace(given.rules, one_per_host=OnePerHost(zones))
    target = RolloutTarget(2, 4, given.budget.resolve(4), before=4, stable=1)
    shown = foresee(given, rules, fleet, stages(given.plan, target), 4, MedianTimes(1.0, 1.0))
    assert shown["order"] == ["a1", "b1", "a2", "b2"]
    assert shown["next"]["drain"] == ["a1", "b1"]


TAKEN = [("web1", 1), ("web2", 2), ("web3", 1), ("web3", 2)]
HOSTS = ["web1", "web2", "web3", "web4"]


def test_a_host_is_free_once_its_old_instance_is_gone_or_may_be_beside() -> None:
    assert free_hosts(HOSTS, TAKEN, 2, beside=False) == (["web4"], [])
    assert free_hosts(HOSTS, TAKEN, 2, beside=True) == (["web4"], ["web1"])


def test_waypoints_are_for_the_hosts_that_are_left() -> None:
    canary = Waypoint(2, new=2, old=3, desired=4, weight=20)  # a surge of one
    four, three = fitted(canary, 4), fitted(canary, 3)
    assert (four.new, four.old, four.desired) == (2, 2, 4)
    assert (three.new, three.old, three.desired) == (2, 1, 3)
    second_set = fitted(Waypoint(2, new=4, old=4, desired=4, weight=0), 3)
    assert (second_set.new, second_set.old, second_set.desired) == (3, 3, 3)
    back = fitted(rolling(1, 12), 3)  # there were several on a host before
    assert (back.new, back.old, back.desired) == (3, 0, 3)


def ready(name: str, created: float) -> Instance:
    return Instance(name, "1", 1, State.READY, created, created, lb_healthy=True)


def test_of_two_on_a_host_the_new_one_stays_or_else_the_stable_one() -> None:
    """What a superseded rollout has started goes before what a rollback needs."""
    stable, superseded, new = (
        Instance(f"a{generation}", "", generation, State.READY, generation, 0.0, Rotation.IN, True)
        for generation in (1, 2, 3)
    )

    def leaves(*instances: Instance) -> set[str]:
        point, one = Waypoint(3, new=1, old=0, desired=1, stable=1), OnePerHost({})
        return {i.id for i in one.marked(instances, point, Rules(), 9.0) if i.redundant}

    assert leaves(stable, superseded) == {"a2"}
    assert leaves(stable, superseded, new) == {"a1", "a2"}
