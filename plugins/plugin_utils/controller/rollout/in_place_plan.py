# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts, the budget and the batches of an in-place rollout."""

from __future__ import annotations

from collections.abc import Sequence

from ...base.errors import InputError, RolloutFailed
from ...base.text import count
from ...engine import in_place as engine
from ...engine.model import Phase, State
from ...engine.strategy import rolling
from ...state.record import Rollout
from ..step.context import Result, StepContext, StepPart
from .deployments import Deployments, with_reasons
from .request import requested, supersedes
from .stages import InPlaceStages, deploy_target, final_waypoint

SHOWN = 6  # hosts or servers that a message names


class InPlacePlan(StepPart):
    """Check and show an in-place rollout before it takes hosts out of rotation."""

    def __init__(self, step: StepContext) -> None:
        super().__init__(step)
        self.stages = InPlaceStages(step)
        self.deployments = Deployments(step)

    def hosts(self) -> frozenset[str]:
        """Return the hosts that may be deployed: those of the play that the service is on."""
        given = self.step.options.get("hosts")
        if not isinstance(given, list) or not all(isinstance(host, str) for host in given):
            raise InputError(
                "rollout_hosts: expected a list of hosts, as the role in_place passes it, got"
                f" {given!r}",
                "PR-118",
            )
        mine = frozenset(given) & frozenset(self.loop.platform.hosts())
        if not mine:
            raise InputError(
                f"rollout_platform.hosts: contains none of the play's {count(len(given), 'host')};"
                " use the same hosts in the play and in rollout_platform",
                "PR-110",
            )
        return mine

    def scope(self, rollout: Rollout | None) -> engine.Scope:
        """Return what may be deployed."""
        failed = frozenset(
            name for name, deployment in self.record.deployed.items() if deployment.failed
        )
        return engine.Scope(
            self.hosts(), failed, bool(rollout and rollout.phase == Phase.ROLLING_BACK)
        )

    def check(self) -> None:
        """Refuse what is impossible where no extra instance can be started."""
        settings = self.settings
        if not self.step.in_place:
            raise InputError(
                f"rollout_platform.driver: {settings.platform.name} starts its own instances; the"
                " role in_place needs driver static",
                "PR-617",
            )
        self.hosts()
        if settings.plan.strategy == "blue_green":
            raise InputError(
                "rollout_strategy: blue_green needs a second set of instances, which does not exist"
                " in place; use rolling or canary",
                "PR-107",
            )
        if settings.plan.standby is not None:
            raise InputError(
                "rollout_hold: the old instances stay beside the new ones, and in place there are"
                " none beside them; remove it",
                "PR-107",
            )
        if any(gate.options.get("baseline") for gate in settings.plan.gates):
            raise InputError(
                "rollout_steps: baseline needs new instances, which cannot be started in place;"
                " remove it",
                "PR-107",
            )
        if settings.adopt and settings.adopt.servers:
            raise InputError(
                "rollout_adopt.servers: in place, the load balancers' servers are those of"
                " rollout_platform.hosts; remove it",
                "PR-107",
            )
        self._check_budget()

    def check_entries(self) -> None:
        """Refuse load balancers whose configuration has no server of an instance, or one that gets
        no requests: a rollout in place neither adds a server nor changes a weight.
        """
        if not self.loop.traffic.fixed:
            return
        instances = [report.labels for report in self.loop.platform.sync()]
        for balancer, servers in self.loop.traffic.observe().items():
            missing = [i for i in instances if i.endpoint not in servers]
            if missing:
                lacking = _listed([f"{i.host} ({i.endpoint})" for i in missing])
                known = _listed([f"{server.name} {at}" for at, server in sorted(servers.items())])
                raise InputError(
                    f"rollout_platform.hosts: load balancer {balancer} has no server for {lacking};"
                    f" it has {known or 'none with an address'}. Add what is missing to its"
                    " configuration, or correct ansible_host or rollout_platform.port",
                    "PR-342",
                )
            idle = [servers[i.endpoint].name for i in instances if not servers[i.endpoint].weight]
            if idle:
                raise InputError(
                    f"rollout_traffic: {_listed(idle)} at load balancer {balancer} has weight 0 and"
                    " so gets no requests, and a rollout in place changes no weight; set it to 1 or"
                    " more, or leave the host out of rollout_platform.hosts",
                    "PR-343",
                )

    def unproven(self) -> list[str]:
        """Return which hosts would not get in again, a line each: they pass our checks, and fail
        that of a load balancer, as observed.
        """
        ready = {i.id for i in self.loop.fleet if i.state is State.READY}
        places = {
            r.labels.endpoint: r.labels.host for r in self.loop.reports if r.labels.id in ready
        }
        return [
            f"{self.settings.service}: {host} is ready, and would not get into rotation: load"
            f" balancer {balancer}: {servers[at].detail} [PR-345]"
            for balancer, servers in (self.loop.table or {}).items()
            for at, host in places.items()
            if at in servers and servers[at].detail and not servers[at].parked
        ]

    def _check_budget(self) -> None:
        budget, platform = self.settings.budget, self.loop.platform
        replicas = platform.capacity()
        if budget.max_in_flight is not None or budget.max_unavailable == 0:
            raise InputError(
                "rollout_budget: in place an instance is unavailable while it is deployed; set"
                " max_unavailable to at least 1",
                "PR-105",
            )
        if self.settings.replicas not in (None, replicas):
            raise InputError(
                f"rollout_replicas: {self.settings.replicas} asked for, and in place there are"
                f" exactly {replicas}; remove it",
                "PR-107",
            )
        each, allowed = replicas // len(platform.hosts()), self.stages.allowed(replicas)
        if each > allowed.unavailable:
            raise InputError(
                f"rollout_budget.max_unavailable: {allowed.unavailable} of {replicas} instances is"
                f" less than the {each} of one host, which are deployed together; set it to at"
                " least as many",
                "PR-105",
            )

    def refuse_unreachable(self, revision: str, restart: bool) -> None:
        """Refuse to begin or resume with too many unreachable hosts, except in a rollback."""
        record, replicas = self.record, self.loop.platform.capacity()
        waypoint = rolling(record.generation + 1, replicas)
        if record.open and not supersedes(self.step, revision, record.open):
            waypoint = final_waypoint(record.open)
        elif record.stable and record.stable.revision == revision and not restart:
            waypoint = rolling(record.stable.generation, replicas)
        if record.open and record.open.phase == Phase.ROLLING_BACK:
            return
        lost, scope, rules = self.deployments.unreachable(), self.scope(None), self.settings.rules
        allowed = self.stages.allowed(replicas)
        if why := engine.refusal(
            self.loop.fleet, waypoint, scope, lost, allowed, rules.failure_limit
        ):
            hosts = with_reasons({host: lost[host] for host in lost if host in scope.hosts})
            raise RolloutFailed(
                f"{self.settings.service}: {hosts}: unreachable, and {why}; nothing was touched."
                " Bring them back, or exclude them with --limit",
                "PR-614",
            )

    def show(self, would: bool = False, restart: bool = False) -> Result:
        """Return the batches if all goes well; with `would` as the result in check mode."""
        record, rollout, replicas = self.record, self.record.open, self.loop.platform.capacity()
        revision, _replicas = requested(self.step, restart)
        if rollout:
            path = [stage.waypoint for stage in self.stages.of(rollout)]
            revision = deploy_target(rollout).revision
        elif record.stable and record.stable.revision == revision and not restart:
            path = [rolling(record.stable.generation, replicas)]
        else:
            stages = self.stages.planned(record.generation + 1, replicas, self.settings.plan)
            path = [stage.waypoint for stage in stages]
        batches = engine.batches(
            self.loop.fleet, path, self.stages.allowed(replicas), self.scope(rollout)
        )
        lines = [
            f"batch {number}: {', '.join(hosts)} to {revision}\n"
            for number, hosts in enumerate(batches, 1)
        ]
        back = rollout is not None and rollout.phase == Phase.ROLLING_BACK
        if beside := self.loop.unmanaged.described(self.loop.fleet):
            self.step.print_line(f"{self.settings.service}: {beside} [PR-338]")
        shown = {"batches": [list(hosts) for hosts in batches], "deploys": revision, "back": back}
        return self.step.report(
            would and bool(batches), **shown, diff={"before": "", "after": "".join(lines)}
        )


def _listed(names: Sequence[str]) -> str:
    """Return the first names of a list."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if names[SHOWN:] else "")
