# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of ports, servers, memory and gates before anything is touched."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import replace

from ...base import clock
from ...base.errors import InputError
from ...base.text import count, size
from ...config.settings import Settings
from ...engine.budget import PerHost
from ...engine.model import State
from ...engine.shares import Target, counted, share, total
from ...engine.strategy import Groups, Plan, Stage, peak
from ...engine.targets import most_at
from ...interfaces.platform import Endpoint
from ...interfaces.traffic import Server
from ..loop.timing import FIRST_CHECKS
from ..step.context import StepContext, StepPart
from . import resources
from .stages import LaunchStages, refuse_in_place

SHOWN = 4  # entries that a message names
# Options of rollout_traffic that neither choose load balancers nor affect how old and new instances
# share them.
NOT_SHARED = ("drain_timeout", "preview", "match", "mirror", "retry", "port")


class Validation(StepPart):
    """Refuse what the hosts, load balancers and gates of a step cannot do."""

    def __init__(self, step: StepContext) -> None:
        super().__init__(step)
        self.stages = LaunchStages(step)

    def check(self, replicas: int, plan: Plan) -> None:
        """Refuse a rollout that cannot be done, asking the store, load balancers and hosts."""
        self.step.session.store.check()
        self.loop.traffic.check()
        self.check_balancers(replicas, plan)
        self.loop.platform.check()
        if self.loop.balanced or self.settings.checks.enabled:
            self.loop.platform.check_endpoints()
        self.check_hosts(replicas, plan)
        if self.settings.autoscaler:
            self.loop.autoscaling.check(replicas)

    def check_capacity(self, replicas: int, plan: Plan) -> None:
        """Refuse what cannot be placed, reached or asked, with old and new instances together."""
        refuse_in_place(self.step)
        self.check_gates(plan)
        platform = self.loop.platform
        capacity, (most, needs) = platform.capacity(), self._most(replicas, plan)
        if capacity < most:
            hosts = count(len(platform.hosts()), "host")
            per_host = isinstance(self.settings.replicas, PerHost)
            more = "set rollout_budget.max_surge to 0" if per_host else "add hosts"
            raise InputError(
                f"rollout_platform: {hosts} with room for {count(capacity, 'instance')}, but"
                f" {needs}; widen rollout_platform.ports or {more}",
                "PR-202",
            )
        self._check_targets(replicas, plan)
        self._check_weights(plan)
        if plan.strategy == "blue_green" and not self.loop.balanced:
            raise InputError(
                "rollout_strategy: blue_green switches requests at a load balancer, and"
                " rollout_traffic names none; name one, or use rolling",
                "PR-107",
            )
        if plan.standby is not None and not self.loop.balanced:
            raise InputError(
                "rollout_hold: a rollback from the old instances on standby is a switch at a load"
                " balancer, and rollout_traffic names none; name one, or remove it",
                "PR-107",
            )

    def check_gates(self, plan: Plan) -> None:
        """Refuse options that the drivers of gates refuse; the timers of a strategy have none."""
        asked = [gate for gate in plan.gates if gate.variable != "gate"]
        if asked:
            from ..loop import gate_runner  # few plans have any

            gate_runner.check(asked, self.step.context)

    def _check_targets(self, replicas: int, plan: Plan) -> None:
        """Refuse more instances than the hosts of a target have room for."""
        budget = self.settings.budget
        for target, most in self._most_at(replicas, plan, replicas).items():
            room = self.loop.platform.capacity(target.hosts)
            if room < most:
                hosts = count(len(target.hosts), "host")
                raise InputError(
                    f"rollout_targets: target {target.name}: {hosts} with room for"
                    f" {count(room, 'instance')}, but rollout_replicas {replicas} with a surge of"
                    f" {budget.resolve(replicas).surge} needs {most} there; widen"
                    " rollout_platform.ports, add hosts, or lower its factor",
                    "PR-202",
                )

    def _check_weights(self, plan: Plan) -> None:
        """Refuse weights that the load balancers cannot divide requests by."""
        steps = () if isinstance(plan.steps, Groups) else plan.steps
        weights = [step.weight for step in steps if step.weight not in (None, 0, 100)]
        if weights and not self.loop.traffic.divides:
            raise InputError(
                f"rollout_steps: set_weight: {weights[0]}, but {self.settings.traffic.name} cannot"
                " divide requests by weights; use set_replicas, where the pods of each revision"
                " get their part",
                "PR-107",
            )

    def refuse_to_scale(self) -> None:
        """Refuse another number where the platform says itself how many instances there are."""
        if self.loop.platform.capabilities.refills_places:
            raise InputError(
                "rollout_replicas: this workload says itself how many instances it has; scale the"
                " workload itself, and a rollout in progress follows",
                "PR-107",
            )
        last = self.record.rollout
        if last and last.per_host:
            raise InputError(
                f"rollout_replicas: {self.settings.service} has one instance on each host"
                f" (per_host) since {last.revision}; add hosts to rollout_platform.hosts or remove"
                " them there, or run rollout.yml with a number",
                "PR-107",
            )

    def check_balancers(self, replicas: int, plan: Plan) -> None:
        """Refuse more instances than the load balancers have servers for, and unknown ones."""
        if any(target.balancers for target in self.loop.targets):
            from ..loop.regions import refuse_unknown_balancers  # few services have targets

            refuse_unknown_balancers(self.loop.targets, self.loop.traffic.observe())
        pools = [(self.loop.traffic, *self._most(replicas, plan))]
        preview = f"a preview of rollout_replicas {replicas} needs as many"
        pools += [(pool.traffic, replicas, preview) for pool in self.loop.previews]
        for traffic, most, needs in pools:
            few = {name: number for name, number in traffic.capacity().items() if number < most}
            if few:
                lacking = ", ".join(
                    f"{name} has servers for {count(number, 'instance')}"
                    for name, number in few.items()
                )
                raise InputError(
                    f"rollout_traffic: load balancer {lacking}, but {needs}; prepare more in its"
                    " configuration",
                    "PR-303",
                )

    def check_hosts(self, replicas: int, plan: Plan) -> None:
        """Refuse more instances than the hosts have memory for, as the platform's check found."""
        demands, needs = self._demands(replicas, plan)
        for demand in demands:
            if excess := demand.excess():
                raise InputError(
                    f"rollout_platform.memory: {excess}, but {needs}:"
                    f" {count(demand.each, 'instance')} on a host, which may use"
                    f" {size(demand.limits.memory)}; lower rollout_platform.memory or"
                    " rollout_budget.max_surge, or add hosts",
                    "PR-203",
                )

    def check_order(self, revision: str) -> None:
        """Refuse a revision that is older than the stable one or the one in progress."""
        record, order = self.record, self.settings.order
        last = record.open or record.stable
        if self.settings.older or (last and last.revision == revision):
            return  # it was let in before
        for known, what in ((record.open, "in progress"), (record.stable, "stable")):
            if known is None or known.order is None or known.revision == revision:
                continue
            if order is None:
                raise InputError(
                    f"rollout_order: not given, and {known.revision} ({what}) has"
                    f" {known.order}; give that of {revision}, or set rollout_older: true",
                    "PR-131",
                )
            if order <= known.order:
                older = "older than" if order < known.order else "not newer than"
                raise InputError(
                    f"rollout_order: {revision} ({order}) is {older} {known.revision}"
                    f" ({known.order}), which is {what}; roll back (rollback.yml), or set"
                    " rollout_older: true",
                    "PR-131",
                )

    def check_window(self) -> None:
        """Refuse windows of which none opens any more."""
        if not self.settings.window:
            return
        from ...config.freeze import YEAR, closed  # few services have windows

        now = clock.wall()
        last = closed(self.settings.window, now)
        if last and last.until >= now + YEAR:
            raise InputError(
                "rollout_window: no window opens within a year, so that nothing could move;"
                " correct them, or set rollout_window: always",
                "PR-124",
            )

    def check_neighbours(self) -> None:
        """Refuse a pool of a load balancer with entries of another service, or of nobody knows
        whom, or with entries of our instances that another program changes, as observed.
        """
        endpoints = {labels.endpoint for labels in self.loop.observer.living()}
        self._check_workloads(endpoints)
        pools = [("", self.loop.table or {}), *(("preview ", p.table) for p in self.loop.previews)]
        for kind, table in pools:
            for balancer, servers in table.items():
                where = f"the {kind}pool of {self.settings.service} at load balancer {balancer}"
                self._refuse_foreign(where, servers, endpoints)
                self._refuse_steered(where, servers, endpoints)

    def _refuse_foreign(
        self, where: str, servers: Mapping[Endpoint, Server], ours: Container[Endpoint]
    ) -> None:
        """Refuse entries of another service, and prepared ones of which nobody knows whose they
        are, except where our instances are.
        """
        foreign: dict[str, list[str]] = {}
        for endpoint, server in servers.items():
            known = server.service or not server.prepared
            if server.service not in ("", self.settings.service) or not known:
                if endpoint not in ours:
                    foreign.setdefault(server.service, []).append(f"{server.name} {endpoint}")
        for service, names in foreign.items():
            listed = ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
            if not service:
                raise InputError(
                    f"rollout_traffic: {where} has {count(len(names), 'prepared server')} in use"
                    f" ({listed}), and nothing there says by which service; put those that nobody"
                    " needs into maintenance, or give the service a separate pool",
                    "PR-336",
                )
            raise InputError(
                f"rollout_traffic: {where} has {count(len(names), 'server')} of service {service}"
                f" ({listed}), which would get its requests; give each service a separate pool, and"
                " remove servers that are left over",
                "PR-314",
            )

    def _refuse_steered(
        self, where: str, servers: Mapping[Endpoint, Server], ours: Container[Endpoint]
    ) -> None:
        """Refuse entries of our instances whose state or weight another program may change."""
        steered = {
            server.name: server.steered_by
            for endpoint, server in servers.items()
            if server.steered_by and (server.ours or endpoint in ours)
        }
        for name, program in steered.items():
            raise InputError(
                f"rollout_traffic: {where}: server {name} has {program}, which may change its state"
                f" and weight during the rollout; remove `{program}` from its line, or disable it"
                " for as long as rollouts take",
                "PR-337",
            )

    def _check_workloads(self, endpoints: Collection[Endpoint]) -> None:
        """Refuse a load balancer of an orchestrator that has other workloads behind it, which a
        rollout would take the requests from.
        """
        mine = self.loop.platform.workloads
        for balancer, servers in (self.loop.table or {}).items():
            others = Counter(
                server.workload
                for endpoint, server in servers.items()
                if server.workload and server.workload not in mine and endpoint not in endpoints
            )
            if others:
                names = ", ".join(f"{name} ({count(n, 'pod')})" for name, n in others.items())
                raise InputError(
                    f"rollout_traffic: {balancer} also sends requests to {names}, which would have"
                    f" none while a rollout of {', '.join(sorted(mine))} lasts; give that a Service"
                    " that selects its pods alone, or remove rollout_traffic: every ready pod then"
                    " gets its requests, as now",
                    "PR-257",
                )
            self._check_ports(balancer, servers, endpoints)

    def _check_ports(
        self,
        balancer: str,
        servers: Mapping[Endpoint, Server],
        endpoints: Collection[Endpoint],
    ) -> None:
        """Refuse a load balancer of an orchestrator that knows the pods at another port."""
        ports = {endpoint.address: endpoint.port for endpoint in endpoints if endpoint.known}
        others = [
            endpoint
            for endpoint, server in servers.items()
            if server.workload and ports.get(endpoint.address, endpoint.port) != endpoint.port
        ]
        if others:
            port, other = others[0].port, ports[others[0].address]
            raise InputError(
                f"rollout_traffic: {balancer} sends requests to port {port} of the pods, and"
                f" rollout_platform knows them at port {other}, so that none would ever be"
                f" in rotation; set rollout_platform.port to {port}, or name another port of"
                " the load balancer",
                "PR-258",
            )

    def check_health(self) -> None:
        """Refuse a new check that no instance of the stable revision passes, which may be wrong."""
        loop, stable = self.loop, self.record.stable
        timeout = self.settings.checks.timeout + FIRST_CHECKS
        tried = stable and loop.checks.tried(loop.reports, loop.fleet, stable.generation, timeout)
        if not (stable and tried) or not all(tried.values()):
            return
        allowed = self.settings.new_check and not loop.traffic.shares_check
        if allowed:
            return
        http = self.settings.checks.check.http
        what = f"GET {http.path}" if http else "it"
        remedy = (
            "rollout_traffic asks all instances by it, so it must be one that they pass, such as"
            " {tcp: true} for this rollout"
            if self.settings.new_check
            else "if only the new revision answers it, set rollout_new_check: true"
        )
        raise InputError(
            f"rollout_health: 0 of {count(len(tried), 'instance')} of {stable.revision} pass"
            f" {what}: {next(iter(tried.values()))}; correct it, or {remedy}",
            "PR-133",
        )

    def check_same_balancers(self) -> None:
        """Refuse a canary or second set on other load balancers than the old instances are on."""
        known, plan = self.record.balancers, self.settings.asked
        if (
            plan.strategy != "rolling"
            and self.record.stable
            and known
            and known != balancers_of(self.settings)
        ):
            raise InputError(
                f"rollout_traffic: has changed since the last rollout of {self.record.service}, and"
                f" rollout_strategy {plan.strategy} needs old and new instances on the same load"
                " balancers; apply the change with a rolling rollout (restart.yml) first",
                "PR-618",
            )

    def risks(self, replicas: int, plan: Plan) -> list[str]:
        """Return what may go wrong, a line each: hosts with too little, and what platforms see."""
        platform = self.loop.platform
        used = resources.used(platform, self.loop.fleet, self.record.settings)
        tight = [line for demand in self._demands(replicas, plan)[0] for line in demand.tight(used)]
        least = replicas - self.settings.budget.resolve(replicas).unavailable
        risks = platform.risks(replicas, least, self._most(replicas, plan)[0])
        return [f"{self.settings.service}: {line}" for line in (*tight, *risks)]

    def kept_replicas(self, replicas: int, plan: Plan) -> int:
        """Return how many stable instances are kept until the promotion of `replicas` new ones.

        Those that serve now, as far as there is room for them beside the new ones. Stable instances
        that do not serve are replaced only up to the number asked for.
        """
        stable, loop = self.record.stable, self.loop
        if stable is None:
            return 0
        if isinstance(self.settings.replicas, PerHost):
            return min(stable.replicas, replicas)  # of several on a host, all but one go first
        if self.record.is_adopted(stable.generation):
            return stable.replicas  # they need no room
        capacity = min([loop.platform.capacity(), *loop.traffic.capacity().values()])
        serving = sum(
            i.state is State.READY or (i.state.counted and i.in_rotation and i.lb_healthy)
            for i in loop.fleet
        )
        if loop.targets:
            serving = counted(serving, loop.targets)
        most = min(stable.replicas, max(serving, replicas))
        fitting = (
            base
            for base in range(most, replicas, -1)
            if self._peak(replicas, plan, base) <= capacity
            and all(
                loop.platform.capacity(target.hosts) >= most_there
                for target, most_there in self._most_at(replicas, plan, base).items()
            )
        )
        return next(fitting, min(most, replicas))

    def _peak(self, replicas: int, plan: Plan, base: int) -> int:
        """Return the most instances at once, with `base` stable ones kept until the promotion."""
        return peak(self._stages(replicas, plan, base), self.settings.budget)

    def _most_at(self, replicas: int, plan: Plan, base: int) -> Mapping[Target, int]:
        """Return the most instances at once at each target, where there are any."""
        return most_at(self._stages(replicas, plan, base), self.settings.budget)

    def _stages(self, replicas: int, plan: Plan, base: int) -> tuple[Stage, ...]:
        """Return the stages from `base` stable instances to `replicas` new ones."""
        stable = self.record.stable and replace(self.record.stable, replicas=base)
        return self.stages.planned(self.record.generation + 1, replicas, stable, plan)

    def _most(self, replicas: int, plan: Plan) -> tuple[int, str]:
        """Return the most instances at once, and why, in words."""
        if self.step.in_place:
            return replicas, f"{replicas} are deployed in place"
        allowed, most = self.settings.budget.resolve(replicas), self._peak(replicas, plan, replicas)
        why = (
            f"a surge of {allowed.surge}"
            if most == replicas + allowed.surge
            else f"rollout_strategy {plan.strategy}"
        )
        return most, f"rollout_replicas {replicas} with {why} needs {most}"

    def _demands(self, replicas: int, plan: Plan) -> tuple[list[resources.Demand], str]:
        """Return the most that a host has to provide, at each target where there are any, and for
        how many instances, in words.
        """
        most, needs = self._most(replicas, plan)
        platform, stable, targets = self.loop.platform, self.record.stable, self.loop.targets
        old = self.record.settings.get(stable.generation) if stable else None
        if not targets:
            return [resources.demand(platform, old, replicas, most)], needs
        return [
            resources.demand(
                platform, old, share(replicas, len(targets), target.factor), instances, target.hosts
            )
            for target, instances in self._most_at(replicas, plan, replicas).items()
        ], needs


def balancers_of(settings: Settings) -> str:
    """Return a hash of the settings that choose the load balancers and how instances share them."""
    options = {
        key: value
        for key, value in settings.traffic.options.items()
        # journals of versions that had no cohorts have a hash without it
        if key not in NOT_SHARED and (key, value) != ("cohort", None)
    }
    text = json.dumps([settings.traffic.name, options], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def fewer(service: str, base: int, replicas: int, targets: Sequence[Target] = ()) -> dict[str, str]:
    """Return the message where fewer instances are asked for than run.

    Each target has a share that is rounded up, so that fewer replicas may be as many instances.
    """
    run, asked = (total(n, targets) if targets else n for n in (base, replicas))
    rounded = f" ({asked} with each target's share rounded up)" if asked != replicas else ""
    return (
        {"msg": f"{service}: {run} run, {replicas} are asked for{rounded}: {run - asked} fewer"}
        if run > asked
        else {}
    )
