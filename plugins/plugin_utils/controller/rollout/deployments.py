# SPDX-License-Identifier: GPL-3.0-or-later
"""What was deployed in place on each instance: what the user's tasks came to, host by host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...base import clock
from ...base.errors import InputError
from ...engine.model import Composition, Deployment, Instance, State
from ...engine.progress import Failure
from ...state import events
from ...state.record import Rollout
from ..step.context import StepPart
from .stages import deploy_target


class Deployments(StepPart):
    """The journal's notes on what was deployed in place."""

    def unreachable(self) -> dict[str, str]:
        """Return the unreachable hosts with the reasons, as the play's task `raw` found them."""
        reached = self.step.options.get("reached") or {}
        if not isinstance(reached, Mapping) or not all(
            isinstance(result, Mapping) for result in reached.values()
        ):
            raise InputError(
                "rollout_reached: expected a mapping of hosts to the result of a task that reaches"
                f" them, got {reached!r}",
                "PR-118",
            )
        reasons = {
            host: str(result.get("msg", ""))
            for host, result in reached.items()
            if result.get("unreachable")
        }
        return {
            host: " ".join(text.removeprefix("Task failed: ").split())[:200]
            for host, text in reasons.items()
        }

    def failed_hosts(self, out: bool = False) -> dict[str, str]:
        """Return failed hosts with the reasons; with `out` only those out of rotation."""
        record = self.record
        deployed = [
            i
            for i in self.loop.fleet
            if i.id in record.deployed and (not out or i.id in record.draining)
        ]
        return {
            i.host: record.deployed[i.id].failed for i in deployed if record.deployed[i.id].failed
        }

    def failures(self, batch: Iterable[Instance]) -> list[Failure]:
        """Return the failed deployments of a batch."""
        deployed = self.record.deployed
        return [Failure(i.id, deployed[i.id].failed) for i in batch if deployed[i.id].failed]

    def retry_failed(self) -> None:
        """Forget failures and broken deployments, so that they are tried again."""
        record = self.record
        target = (
            record.open.generation
            if record.open
            else record.stable.generation
            if record.stable
            else 0
        )
        fleet = self.loop.fleet
        broken = {
            i.id
            for i in fleet
            if i.generation == target and i.state in (State.STARTING, State.NOT_READY)
        }
        record.deployed = {
            name: replace(deployment, failed="")
            for name, deployment in record.deployed.items()
            if name not in broken
        }

    def skip(self, instance: Instance, why: str) -> None:
        """Note that an instance was not touched because its host is unreachable."""
        known = self.record.deployed.get(instance.id) or Deployment(
            instance.revision, instance.generation, clock.now()
        )
        self.record.deployed[instance.id] = replace(known, failed=f"unreachable: {why}")
        self._report_failure(instance, why)

    def begin(
        self, rollout: Rollout, out: Sequence[Instance], serving: Mapping[str, Composition]
    ) -> list[str]:
        """Note, before the first task runs, what is being deployed, and what was `serving`."""
        target, now = deploy_target(rollout), clock.now()
        self.record.deployed |= {
            i.id: Deployment(target.revision, target.generation, now, before=serving.get(i.id))
            for i in out
        }
        self.loop.commit()
        return list(dict.fromkeys(instance.host for instance in out))

    def end(self, rollout: Rollout, batch: Iterable[Instance], results: Mapping[str, str]) -> None:
        """Note the results of the batch's tasks by host (empty: success), and their time."""
        target = deploy_target(rollout)
        deployed = self.record.deployed
        now = clock.now()
        unreachable = self.unreachable()
        rollout.elapsed += max(
            (now - deployed[i.id].at for i in batch if i.id in deployed), default=0.0
        )
        for instance in batch:
            why, before = results[instance.host], deployed[instance.id].before
            if why and instance.host in unreachable and before:
                deployed[instance.id] = Deployment(before.revision, before.generation, now)
                self.fail(instance, why, out=False)
            elif why:
                self.fail(instance, why)
            else:
                rollout.replaced += 1
                deployed[instance.id] = Deployment(target.revision, target.generation, now)
                self.loop.event(
                    events.Deployed(
                        instance=instance.id, host=instance.host, revision=target.revision
                    )
                )
        self.loop.refresh()

    def fail(self, instance: Instance, why: str, out: bool = True) -> None:
        """Note that the deployment of an instance failed; with `out` it stays out of rotation."""
        record = self.record
        record.deployed[instance.id] = replace(record.deployed[instance.id], failed=why)
        if out:
            record.draining.setdefault(instance.id, clock.now())
        else:
            record.draining.pop(instance.id, None)
        self._report_failure(instance, why)

    def _report_failure(self, instance: Instance, why: str) -> None:
        self.loop.event(
            events.DeploymentFailed(instance=instance.id, host=instance.host, reason=why)
        )

    def roll_back(self, back: Composition) -> None:
        """Put back what was drained but not deployed, and let failed instances be tried again."""
        record = self.record
        broken = {
            name
            for name, deployment in record.deployed.items()
            if deployment.failed or deployment.generation != back.generation
        }
        # Tasks of an earlier rollback may have failed; what they left behind is unknown.
        begun = {
            name
            for name, since in record.draining.items()
            if name in record.deployed and record.deployed[name].at >= since
        }
        same = {i.id for i in self.loop.fleet if i.generation == back.generation}
        untouched = same - broken - begun
        record.draining = {
            name: since for name, since in record.draining.items() if name not in untouched
        }
        record.deployed = {
            name: replace(deployment, failed="") for name, deployment in record.deployed.items()
        }
        self.loop.refresh()


def with_reasons(hosts: Mapping[str, str]) -> str:
    """Return hosts with the reasons for their failures, in one line."""
    return "; ".join(f"{host}: {why}" for host, why in hosts.items())
