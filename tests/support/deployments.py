# SPDX-License-Identifier: GPL-3.0-or-later
"""A model of Kubernetes' Deployment controller, as far as it moves ReplicaSets, and the patches of a
hand-back on it.

After https://github.com/kubernetes/kubernetes/tree/v1.20.2/pkg/controller/deployment: `syncDeployment`,
`scale`, `FindActiveOrLatest`, `FindNewReplicaSet`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.hand_back import (
    Action,
    HandBackStep,
    ReplicaSet,
    UserDeployment,
    next_step,
)


@dataclass
class Cluster:
    """A Deployment and the ReplicaSets there are, in the order of their creation."""

    deployment: UserDeployment
    sets: dict[str, ReplicaSet]
    # As the controller may still see it: since what it saw last.
    seen: list[UserDeployment] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.seen = self.seen or [self.deployment]

    def change(self, **changed: object) -> None:
        """Patch the Deployment."""
        self.deployment = replace(self.deployment, **changed, observed=False)  # type: ignore[arg-type]
        self.seen.append(self.deployment)

    def patch(self, name: str, **changed: object) -> None:
        self.sets[name] = replace(self.sets[name], **changed)  # type: ignore[arg-type]

    # -- the planner's side ------------------------------------------------------------------------

    def step(self, new: str | None) -> Action:
        """Ask the planner, and do what it says."""
        action = next_step(self.deployment, self.sets.values(), new)
        name, step = action.name, action.step
        if step is HandBackStep.PAUSE:
            self.change(paused=True, pending=new)
        elif step is HandBackStep.RESUME:
            self.change(paused=False, pending="")
        elif step is HandBackStep.RETARGET:
            target = self.sets[name]
            self.change(template=target.template, replicas=target.replicas)
        elif step is HandBackStep.RELEASE:
            self.patch(name, owned=False, labelled=False, released=True)
        elif step is HandBackStep.ADOPT:
            self.patch(name, labelled=True)
        elif step is HandBackStep.GIVE_BACK:
            self.patch(name, labelled=True, released=False)
        elif step is HandBackStep.DELETE:
            assert not self.sets[name].replicas, "a ReplicaSet with pods was deleted"
            del self.sets[name]
        return action

    # -- the controller's side ---------------------------------------------------------------------

    def reconcile(self, stale: int = 0) -> None:
        """Reconcile once, with a view of the Deployment that may be that many changes old."""
        at = max(0, len(self.seen) - 1 - stale)
        deployment = self.seen[at]
        del self.seen[:at]
        for name, one in self.sets.items():
            self.sets[name] = replace(one, owned=one.labelled)
        owned = [one for one in self.sets.values() if one.owned]
        new = next((one for one in owned if one.template == deployment.template), None)
        if deployment.paused:
            self._scale(deployment, new, owned)
        else:
            self._roll(deployment, new, owned)
        if len(self.seen) == 1:
            self.deployment = replace(self.deployment, observed=True)
            self.seen = [self.deployment]

    def _scale(
        self, deployment: UserDeployment, new: ReplicaSet | None, owned: Iterable[ReplicaSet]
    ) -> None:
        """`scale` of a paused Deployment."""
        active = [one for one in owned if one.replicas]
        latest = new or max(
            (one for one in owned if one is not new),
            key=lambda one: list(self.sets).index(one.name),
            default=None,
        )
        if len(active) <= 1:
            chosen = active[0] if active else latest
            if chosen:
                self.patch(chosen.name, replicas=deployment.replicas)
        elif new and new.replicas == deployment.replicas:
            for one in active:
                if one.name != new.name:
                    self.patch(one.name, replicas=0)

    def _roll(
        self, deployment: UserDeployment, new: ReplicaSet | None, owned: Iterable[ReplicaSet]
    ) -> None:
        """A whole rolling update: its last state."""
        if new is None:
            new = ReplicaSet(f"made-{len(self.sets)}", 0, deployment.template, True, True)
            self.sets[new.name] = new
        for one in owned:
            if one.name != new.name:
                self.patch(one.name, replicas=0)
        self.patch(new.name, replicas=deployment.replicas)
