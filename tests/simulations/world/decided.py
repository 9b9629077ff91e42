# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run that continues relies on: the journal had each decision before anything was done, and
no run forgets what was decided before it.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Sequence

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import (
    Decision,
    evaluate,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Instance,
    Phase,
    Process,
    Rotation,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import (
    ProgressTracker,
    Rules,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Waypoint
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    Labels,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import Target
from ansible_collections.progressive.rollout.tests.support.decisions import check

if t.TYPE_CHECKING:
    from .world import Balancer, World
    from .world import Instance as Running


class Decided:
    """The promises about what is decided."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._draining: t.Collection[str] = ()  # as last written
        # how many instances of a revision may be started and fail, with none that is ever ready
        self.failures = math.inf

    def evaluate(
        self,
        fleet: Sequence[Instance],
        waypoint: Waypoint,
        budget: Budget,
        rules: Rules,
        progress: ProgressTracker,
        now: float,
    ) -> Decision:
        """Decide as the engine does, and see that the decision is one that it may take."""
        decision = evaluate(fleet, waypoint, budget, rules, progress, now)
        try:
            check(fleet, decision, waypoint, budget, rules, now)
        except AssertionError as exc:
            self._world.broken(f"a decision: {str(exc).splitlines()[0]}")
        return decision

    def check_start(self, labels: Labels) -> None:
        """An instance is started: the journal has its number, which is given once, and its
        revision has not failed too often.
        """
        world, number = self._world, int(labels.id.rpartition("-")[2])
        if number > (world.recorded("serial") or 0):
            world.broken(f"{labels.id} is started, and the journal does not have its number")
        rollout = world.recorded("rollout") or {}
        if rollout.get("id") in world.waits.retried or world.happened:
            return
        mine = [one for one in world.born.values() if one.labels.generation == labels.generation]
        failed = all(one.gone is Process.FAILED and not one.served for one in mine)
        if failed and len(mine) >= self.failures:
            world.broken(f"{labels.id} is started after {len(mine)} of its revision failed")

    def check_change(self, balancer: Balancer, wanted: t.Mapping[Endpoint, Target]) -> None:
        """A balancer is changed: the journal has that what leaves drains, unless a whole side does
        for the other one, or it does not answer, or only since a moment ago, or it was adopted and
        is out for good.
        """
        world, draining = self._world, self._world.recorded("draining") or {}
        inside = {at for at, target in wanted.items() if target.rotation is Rotation.IN}
        staying = {one.labels.generation for at in inside if (one := world.at(at))}
        for at, entry in balancer.entries.items():
            leaves = entry.rotation is Rotation.IN and at not in inside and not entry.restored
            seen = world.answers(at) and not world.has_recovered(at)
            leaves = leaves and seen and not world.is_unseen(balancer)
            instance = world.at(at) if leaves and entry.name not in world.by_hand.out else None
            if instance and instance.labels.generation in staying:
                if instance.labels.id not in draining:
                    name = instance.labels.id
                    world.broken(f"{name} leaves {balancer.name}, and the journal has no drain")

    def written(self) -> None:
        """The record was written: what drains goes on to, unless the rollout goes back to it."""
        world = self._world
        world.check_superseded()
        before, self._draining = self._draining, world.recorded("draining") or {}
        for name in before:
            instance = world.born.get(name)
            if name not in self._draining and instance and self._is_out(instance):
                world.broken(f"the run has forgotten that {name} drains")

    def _is_out(self, instance: Running) -> bool:
        """Return whether an instance gets no requests any more, and is not to come back."""
        world, rollout = self._world, self._world.recorded("rollout") or {}
        if not instance.labels.generation:
            return False  # in place, it comes back with the new revision
        previous = rollout.get("previous") or {}
        back = rollout.get("phase") in (Phase.ROLLING_BACK, Phase.HELD)  # perhaps on its way back
        if back and instance.labels.generation == previous.get("generation", 0):
            return False
        if any(world.is_unseen(balancer) for balancer in world.balancers.values()):
            return False  # one had it in rotation, perhaps, when this was decided
        entries = (one.entries.get(instance.labels.endpoint) for one in world.balancers.values())
        inside = any(entry and entry.rotation is Rotation.IN for entry in entries)
        ended = (
            instance.gone or instance.told is not None or instance.labels.id in world.by_hand.out
        )
        return not (inside or ended)
