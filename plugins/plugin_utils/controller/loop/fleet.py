# SPDX-License-Identifier: GPL-3.0-or-later
"""Translates reports into the engine's fleet, and decisions into load balancer targets. Pure."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

from ...engine.model import Health, Instance, Process, Rotation, State, classify
from ...engine.shares import Target as Region
from ...engine.shares import cluster_of, owner_of, shows
from ...engine.unmanaged import NOTHING, Unmanaged, shares
from ...engine.weights import EVEN, WeightSplit
from ...health.monitor import HealthStatus
from ...interfaces.platform import Endpoint, Labels, Report
from ...interfaces.traffic import Server, Table, Target


def assemble(
    reports: Iterable[Report],
    table: Table | None,
    statuses: Mapping[str, HealthStatus],
    draining: Mapping[str, float],
    known: Container[str] = (),
    *,
    previews: Sequence[Mapping[Endpoint, Server]] = (),
    seen_ready: Container[str] = (),
    crashes: Container[str] = (),
    silent: Mapping[str, float] = MappingProxyType({}),
    unready: Container[str] = (),
    targets: Sequence[Region] = (),
    fixed: bool = False,
    parked: Mapping[str, float] | None = None,
    unborn: Container[str] = (),
) -> list[Instance]:
    """Return the fleet as the engine sees it.

    Args:
        reports: Of the platform.
        table: Of the load balancers; None: there are none.
        statuses: Health status by instance.
        draining: Since when, by instance.
        known: Instances that were there before this step, and may serve without a check yet.
        previews: Entries of the preview pools.
        seen_ready: Instances that have been ready.
        crashes: Instances that `crashed` returned.
        silent: Since when their hosts have not answered, by instance.
        unready: Instances that were not ready when their hosts last answered.
        targets: Of the rollout, perhaps with load balancers of their own.
        fixed: Whether the load balancers' entries are those of their configuration.
        parked: Since when bound clients were sent nowhere, by instance; None: none are bound.
        unborn: Instances that have never been ready, and were put in rotation by nobody.
    """
    reports = list(reports)
    # Another instance may use a dead one's endpoint: the entry belongs to the living one.
    places = [_place(report) for report in reports]
    living = {
        place: report.labels.id
        for place, report in zip(places, reports, strict=True)
        if report.process in _ALIVE and report.labels.endpoint.known
    }
    parted = any(target.balancers for target in targets)
    fleet = []
    entries: Sequence[Server]
    for place, report in zip(places, reports, strict=True):
        name = report.labels.id
        endpoint, entries = report.labels.endpoint, []
        shown: Table | None = None if table is None else {balancer: {} for balancer in table}
        if living.get(place, name) == name:
            shown = _of_target(table, report, targets) if table and parted else table
            entries = [servers[endpoint] for servers in previews if endpoint in servers]
        more = statuses.get(name), draining.get(name), name in known, name in crashes
        instance = _instance(report, shown, *more, fixed=fixed, parked=parked)
        if shown and name in unborn and instance.state is not State.READY:
            others = _without_foreign(shown, report)
            instance = _instance(report, others, *more, fixed=fixed, parked=parked)
        if (instance.state is State.FAILED or instance.crashed) and (
            name in seen_ready or instance.in_rotation
        ):
            instance = replace(instance, was_ready=True)
        if instance.state is State.UNREACHABLE:
            instance = replace(instance, silent_since=silent.get(name), was_unready=name in unready)
        fleet.append(_shown(instance, entries))
    return fleet


def _place(report: Report) -> tuple[str, Endpoint]:
    """Return where an instance listens: pods of different clusters may have the same address."""
    return cluster_of(report.labels.host), report.labels.endpoint


def _of_target(table: Table, report: Report, targets: Sequence[Region]) -> Table:
    """Return the entries of the load balancers that are to send requests to an instance.

    One of another target is among them as long as it does; that of another cluster never does.
    """
    at, host = report.labels.endpoint, report.labels.host
    return {
        balancer: servers
        for balancer, servers in table.items()
        if shows(balancer, host, targets)
        or (at in servers and not any(balancer in target.hosts for target in targets))
    }


def _without_foreign(table: Table, report: Report) -> Table:
    """Return an instance's entries without those in rotation that were there before it: it has
    never been ready, so a rollout has put none of it in rotation.

    Where it runs, one that rollouts made may be in rotation again with an older state of its load
    balancer, and is taken out.
    """
    at, ended = report.labels.endpoint, report.process not in _ALIVE

    def was_before(server: Server) -> bool:
        return server.rotation is Rotation.IN and (ended or not server.ours)

    return {
        balancer: {at: servers[at]} if at in servers and not was_before(servers[at]) else {}
        for balancer, servers in table.items()
    }


def crashed(reports: Iterable[Report], since: float, within: float) -> set[str]:
    """Return the instances started `since` then that were restarted `within` so many seconds."""
    soon = [
        report for report in reports if report.restarted is not None and report.created >= since
    ]
    return {
        report.labels.id
        for report in soon
        if report.restarted is not None and report.restarted - report.created <= within
    }


def _shown(instance: Instance, entries: Sequence[Server]) -> Instance:
    """Add the instance's requests in the preview pools, which keep it in rotation, too."""
    if not entries:
        return instance
    goes = instance.draining_since is not None and instance.rotation is not Rotation.IN
    stays = goes and any(entry.rotation is Rotation.IN for entry in entries)
    active = instance.active + sum(entry.active for entry in entries)
    rotation = Rotation.PARTIAL if stays else instance.rotation
    return replace(instance, rotation=rotation, active=active)


def _instance(
    report: Report,
    table: Table | None,
    status: HealthStatus | None,
    since: float | None,
    known: bool,
    crashed: bool,
    *,
    fixed: bool,
    parked: Mapping[str, float] | None,
) -> Instance:
    """Return one instance as the engine sees it."""
    status = _both(report, status or HealthStatus(Health.PENDING, report.created))
    # A known instance is not starting because its first check failed: it may be serving.
    health = Health.FAILING if known and status.health is Health.PENDING else status.health
    # An instance that was stopped because it crashed has failed.
    process = Process.FAILED if crashed and report.process is Process.STOPPED else report.process
    state = classify(process, health, since is not None)
    labels = report.labels
    if table is None:
        # Without a load balancer, nothing keeps requests from an instance that runs, or may run.
        rotation = (
            Rotation.IN
            if state in (State.READY, State.NOT_READY, State.UNREACHABLE)
            else Rotation.ABSENT
        )
        lb_healthy, active, weight, unproven = True, 0, int(rotation is Rotation.IN), ""
        served = bound = parked_anywhere = False
    else:
        entries = [servers.get(labels.endpoint) for servers in table.values()]
        # an entry that is not managed stays where it is, and sends no requests; that of another
        # service leads to its instance, which has the port
        if not state.counted:
            entries = [
                entry
                if entry
                and (entry.ours or entry.rotation is Rotation.IN)
                and entry.service in ("", labels.service)
                else None
                for entry in entries
            ]
        rotation, lb_healthy, active = placement(entries)
        inside = [entry for entry in entries if entry and entry.rotation is Rotation.IN]
        weight = sum(entry.weight for entry in inside)
        served = any(entry.lb_healthy for entry in inside)
        unproven = ""
        if state is State.READY:
            unproven = why_unhealthy(entries, table, labels.endpoint if fixed else None)
        parked_anywhere = any(entry.parked for entry in entries if entry)
        left_open = any(not entry.parked for entry in entries if entry)
        bound = parked is not None and rotation is Rotation.OUT and left_open
    return Instance(
        id=labels.id,
        revision=labels.revision,
        generation=labels.generation,
        state=state,
        created=report.created,
        ready_since=max(status.since, report.created) if state is State.READY else None,
        rotation=rotation,
        lb_healthy=lb_healthy,
        served=served,
        active=active,
        weight=weight,
        draining_since=(
            since if since is not None or report.process is not Process.STOPPING else report.created
        ),
        bound=bound,
        parked=parked_anywhere,
        parked_since=parked.get(labels.id) if parked and parked_anywhere and not bound else None,
        host=labels.host,
        detail=report.detail or status.detail or unproven,
        crashed=crashed,
        precedence=report.precedence,
    )


_WORST_FIRST = (Health.FAILING, Health.PENDING, Health.PASSING)


def _both(report: Report, status: HealthStatus) -> HealthStatus:
    """Return an instance's health by the platform's checks and by ours: the worse of the two."""
    if report.health is Health.NONE:
        return status
    platform = HealthStatus(report.health, report.health_since, report.detail)
    if status.health is Health.NONE:
        return platform
    checked = (status, platform)
    worst = min(checked, key=lambda known: _WORST_FIRST.index(known.health))
    return worst._replace(
        since=max(known.since for known in checked if known.health is worst.health)
    )


def placement(entries: Sequence[Server | None]) -> tuple[Rotation, bool, int]:
    """Return an instance's rotation, health and requests in flight over all load balancers."""
    known = [entry for entry in entries if entry is not None]
    if not known:
        return Rotation.ABSENT, False, 0
    ins = [entry.rotation for entry in known].count(Rotation.IN)
    rotation = Rotation.OUT if not ins else Rotation.IN if ins == len(entries) else Rotation.PARTIAL
    lb_healthy = len(known) == len(entries) and all(entry.lb_healthy for entry in known)
    return rotation, lb_healthy, sum(entry.active for entry in known)


def why_unhealthy(
    entries: Iterable[Server | None], balancers: Iterable[str], place: Endpoint | None = None
) -> str:
    """Return why a load balancer's own check of an instance fails, or what it calls the entry; ""
    if none says so.

    `place`: where the instance listens, if a rollout adds no entry of it.
    """
    for balancer, entry in zip(balancers, entries, strict=True):
        if entry and entry.detail:
            return f"load balancer {balancer}: {entry.detail}"
        if entry and entry.status and not entry.lb_healthy:
            return f"load balancer {balancer} shows it as {entry.status}"
        if entry is None and place:
            return f"load balancer {balancer}: it has no server for {place}"
    return ""


Targets = Mapping[str, Mapping[Endpoint, Target]]  # by load balancer


def targets(
    reports: Iterable[Report],
    table: Table,
    admit: Iterable[str],
    out: Iterable[str],
    leaving: Iterable[str],
    *,
    split: WeightSplit | None = None,
    regions: Sequence[Region] = (),
    never_ready: Collection[str] = (),
    ready: Collection[str] = (),
    postponed: Mapping[str, Collection[str]] = MappingProxyType({}),
    idle: Mapping[str, Collection[str]] = MappingProxyType({}),
    fixed: bool = False,
    park: Collection[str] = (),
    enter: Collection[str] = (),
    unborn: Collection[str] = (),
) -> dict[str, dict[Endpoint, Target]]:
    """Return what each load balancer is to show.

    An instance has an entry out of rotation from its start, so that the balancer's own check can
    pass meanwhile. It is in rotation where it is admitted and the balancer finds it healthy, unless
    it is `out`. Its entry is removed before it is stopped (`leaving`). Requests are divided by
    `split`; without it, weights stay as they are. A load balancer of a target (`regions`) shows
    the instances of that target alone. An instance that was `never_ready` gets no requests
    where others do that are `ready`, whatever entry another had at its endpoint. What is
    `postponed` at a load balancer stays in rotation there for now, although it is `out`; what is
    `idle` at one leaves it. What is `unborn` has no entry where another is in rotation that no
    rollout has made: another program has its endpoint. Where entries are `fixed`, an instance
    without one gets none. What is parked stays so, unless it is to `enter`.
    """
    admitted, kept_out, gone = set(admit), set(out), set(leaving)
    wanted = [
        r
        for r in reports
        if r.labels.id not in gone and r.process in _ALIVE and r.labels.endpoint.known
    ]
    owners = {name: owner_of(name, regions) for name in table}
    splits = {name: split.at(owner) if split else None for name, owner in owners.items()}
    entries = {}
    for name, servers in table.items():
        off = kept_out.difference(postponed.get(name, ())).union(idle.get(name, ()))
        present = [
            r
            for r in wanted
            if (not regions or shows(name, r.labels.host, regions))
            and (r.labels.id not in unborn or not _has_foreign(r, servers))
            and (not fixed or r.labels.endpoint in servers)
        ]
        entries[name] = _entries(
            present,
            servers,
            admitted,
            off | _early(wanted, servers, off, never_ready, ready),
            splits[name],
        )
    shown = {}
    for name, mine in entries.items():
        peers = [other for peer, other in entries.items() if owners[peer] == owners[name]]
        weights = _weights(mine, peers, splits[name])
        shown[name] = _targets(mine, splits[name], weights, park, enter)
    return shown


def _has_foreign(report: Report, servers: Mapping[Endpoint, Server]) -> bool:
    """Return whether an entry is in rotation at the endpoint that no rollout has made."""
    entry = servers.get(report.labels.endpoint)
    return entry is not None and entry.rotation is Rotation.IN and not entry.ours


def serving_at(
    balancer: str,
    reports: Iterable[Report],
    table: Table,
    fleet: Iterable[Instance],
    regions: Sequence[Region] = (),
) -> list[Instance]:
    """Return the instances that one load balancer has in rotation and finds healthy."""
    inside = {
        endpoint
        for endpoint, server in table[balancer].items()
        if server.rotation is Rotation.IN and server.lb_healthy
    }
    names = {
        report.labels.id
        for report in reports
        if report.labels.endpoint in inside and shows(balancer, report.labels.host, regions)
    }
    return [i for i in fleet if i.id in names and i.state.counted]


def with_predecessors(
    targets: Targets,
    table: Table,
    reports: Iterable[Report],
    replicas: int,
    capacity: Callable[[], Mapping[str, int]],
    unborn: Container[str] = (),
) -> Targets:
    """Return targets with servers that no platform reports, where too few others serve.

    A first rollout may find servers of a service that was removed, or of how it was deployed
    before, also where an instance was to be that ended `unborn`, without having been ready: another
    program has its endpoint. They stay until an instance is in rotation, then as many as are
    missing to `replicas`, as far as the load balancer has room.
    """
    places = {
        report.labels.endpoint
        for report in reports
        if report.process in _ALIVE or report.labels.id not in unborn
    }
    wanted = dict(targets)
    for name, shown in targets.items():
        serving = sum(target.rotation is Rotation.IN for target in shown.values())
        if serving and serving >= replicas:
            continue
        if left := _predecessors(table[name], places):
            room = capacity().get(name, len(left) + len(shown)) - len(shown)
            needed = replicas - serving if serving else len(left)
            wanted[name] = {**shown, **dict(left[: max(0, min(room, needed))])}
    return wanted


def _predecessors(
    servers: Mapping[Endpoint, Server], places: Container[Endpoint]
) -> list[tuple[Endpoint, Target]]:
    """Return the named, healthy servers in rotation that lead to no instance."""
    return [
        (endpoint, Target(Rotation.IN, server.weight, server.name))
        for endpoint, server in servers.items()
        if endpoint not in places
        and (server.ours and server.name and server.lb_healthy)
        and server.rotation is Rotation.IN
    ]


def _early(
    reports: Iterable[Report],
    servers: Mapping[Endpoint, Server],
    out: set[str],
    never_ready: Collection[str],
    ready: Collection[str],
) -> set[str]:
    """Return the instances that a load balancer with an older state sends requests to before they
    are ready, unless no other one there is ready, or healthy by its own check.

    Where entries have no names, orchestrators make them, once instances are ready.
    """
    inside = {
        report.labels.id: server
        for report in reports
        if (server := servers.get(report.labels.endpoint))
        and server.rotation is Rotation.IN
        and server.name
        and report.labels.id not in out
    }
    early = inside.keys() & set(never_ready)
    others = any(
        server.lb_healthy or name in ready for name, server in inside.items() if name not in early
    )
    return early if others else set()


def _entries(
    reports: Iterable[Report],
    servers: Mapping[Endpoint, Server],
    admitted: set[str],
    out: set[str],
    split: WeightSplit | None,
) -> list[_Entry]:
    """Return the instances that one load balancer is to show, with their next places there."""
    return [
        _Entry(
            report.labels,
            server := servers.get(report.labels.endpoint),
            _rotation(report, server, admitted, out),
            split.is_new(report.labels.generation) if split else None,
        )
        for report in reports
    ]


def _weights(
    entries: Sequence[_Entry], peers: Sequence[Sequence[_Entry]], split: WeightSplit | None
) -> tuple[int, int]:
    """Return the weight of each new and each old instance at a load balancer.

    `peers`: the entries of all load balancers of its target.
    """
    if split is None:
        return EVEN, EVEN
    serving = [entry for entry in entries if entry.rotation is Rotation.IN]
    new = sum(bool(entry.new) for entry in serving)
    old = len(serving) - new
    if split.waypoint.headroom is None:
        return split.weights(new, old)
    # Bad instances whose check fails get nothing of what is left to all of them.
    healthy = sum(not entry.new and entry.is_healthy for entry in serving)
    return split.weights(new, healthy or old, _left(entries, peers))


def _targets(
    entries: Sequence[_Entry],
    split: WeightSplit | None,
    weights: tuple[int, int],
    park: Collection[str],
    enter: Collection[str],
) -> dict[Endpoint, Target]:
    """Return what one load balancer is to show, with these weights of new and old instances."""
    of_new, of_old = weights
    targets = {}
    for labels, server, rotation, new in entries:
        weight = server.weight if server else EVEN
        if new is not None and rotation is Rotation.IN:
            weight = of_new if new else of_old
        targets[labels.endpoint] = Target(
            rotation,
            max(1, weight),
            labels.id,
            labels.generation,
            new and not (split and split.waypoint.is_baseline),
            rotation is Rotation.OUT
            and (labels.id in park or (_is_parked(server) and labels.id not in enter)),
        )
    return targets


def _is_parked(server: Server | None) -> bool:
    return server is not None and server.parked


class _Entry(t.NamedTuple):
    """What a load balancer shows of an instance, its next place there, and whether it is new."""

    labels: Labels
    server: Server | None
    rotation: Rotation
    new: bool | None  # None: requests are not divided

    @property
    def serves(self) -> bool:
        """Whether it gets requests now."""
        return self.server is not None and self.server.rotation is Rotation.IN

    @property
    def is_healthy(self) -> bool:
        """Whether the load balancer's own check of it passes."""
        return self.server is not None and self.server.lb_healthy


def _left(entries: Sequence[_Entry], peers: Sequence[Sequence[_Entry]]) -> Fraction:
    """Return the part of its requests that a load balancer sends to old instances now.

    Where they return to it, it had lost its state, and has the part of those that had not. If all
    had, old instances get what the others cannot carry.
    """
    if not _returns(entries):
        return _sent(entries)
    keep = [peer for peer in peers if _serve(peer) or not _returns(peer)]
    return max(map(_sent, keep), default=Fraction(1))


def _returns(entries: Iterable[_Entry]) -> bool:
    """Return whether a load balancer is to send requests to an old instance that gets none now."""
    return any(
        entry.new is False and entry.rotation is Rotation.IN and not entry.serves
        for entry in entries
    )


def _serve(entries: Iterable[_Entry]) -> bool:
    """Return whether a load balancer sends requests to any old instance now."""
    return any(entry.new is False and entry.serves for entry in entries)


def _sent(entries: Iterable[_Entry]) -> Fraction:
    """Return the part of the requests that old instances get with these entries.

    The load balancer sends none to those whose check fails, unless it has no others.
    """
    serving = [(bool(i.new), i.server) for i in entries if i.server is not None and i.serves]
    healthy = [(new, server) for new, server in serving if server.lb_healthy]
    weights = {True: 0, False: 0}
    for new, server in healthy or serving:
        weights[new] += server.weight
    total = sum(weights.values())
    return Fraction(weights[False], total) if total else Fraction(1)


_ALIVE = (Process.STARTING, Process.RUNNING, Process.STOPPING, Process.UNREACHABLE, Process.UNKNOWN)


def _rotation(report: Report, server: Server | None, admitted: set[str], out: set[str]) -> Rotation:
    name = report.labels.id
    stays = server is not None and server.rotation is Rotation.IN
    enters = server is not None and server.lb_healthy and name in admitted
    serves = name not in out and report.process is not Process.STOPPING and (stays or enters)
    return Rotation.IN if serves else Rotation.OUT


def differs(table: Table, wanted: Mapping[str, Mapping[Endpoint, Target]]) -> bool:
    """Return whether a load balancer differs from its targets; weights count in rotation only."""
    for name, servers in table.items():
        targets = wanted[name]
        shown = {at: server for at, server in servers.items() if server.ours or at in targets}
        if shown.keys() != targets.keys():
            return True
        for at, server in shown.items():
            rotation, weight = targets[at].rotation, targets[at].weight
            if server.rotation is not rotation:
                return True
            if rotation is Rotation.OUT and server.parked is not targets[at].parked:
                return True
            if rotation is Rotation.IN and server.weight != weight:
                return True
    return False


_NONE = {state.value: 0 for state in State}


def summary(fleet: Sequence[Instance], unmanaged: Unmanaged = NOTHING) -> dict[str, t.Any]:
    """Return, by revision, the instances in each state and the percentage of new requests."""
    revisions: dict[str, dict[str, t.Any]] = {}
    for instance in fleet:
        if instance.revision not in revisions:
            revisions[instance.revision] = dict(_NONE)
        revisions[instance.revision][instance.state.value] += 1
    for revision, percentage in shares(fleet, unmanaged).items():
        revisions[revision]["traffic"] = percentage
    return revisions


def unmanaged(
    table: Table, reports: Iterable[Report], pool: str, unborn: Container[str] = ()
) -> Unmanaged:
    """Return what load balancers send requests to that is no instance of the service.

    What was at the endpoint before an instance that has never been ready is not that instance.
    """
    reports = list(reports)
    places = {r.labels.endpoint for r in reports if r.labels.id not in unborn}
    starting = {r.labels.endpoint for r in reports if r.labels.id in unborn and r.process in _ALIVE}
    names: dict[str, None] = {}
    weights = {True: 0, False: 0}
    for servers in table.values():
        for endpoint, server in servers.items():
            instance = endpoint in places or (server.ours and endpoint in starting)
            if server.share_weight and not instance:
                weights[server.by_hand] += server.share_weight
                if server.by_hand:
                    names[server.name or str(endpoint)] = None
    return Unmanaged(pool, tuple(names), weights[True], weights[False])
