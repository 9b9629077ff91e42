# SPDX-License-Identifier: GPL-3.0-or-later
"""The targets of a rollout: which hosts, clusters and load balancers belong to each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...base.errors import InputError
from ...config.waves import refuse_undivided, refuse_weights, weighted
from ...engine.shares import Target
from ...engine.strategy import Plan, Wave
from ...interfaces.platform import PARTS, PlatformDriver
from ...interfaces.traffic import TrafficDriver
from ...remote import inventory
from ...remote.transport import Transport

VARIABLE = "rollout_targets"
CLUSTERS = "rollout_platform.clusters"


def targets_of(
    plan: Plan, platform: PlatformDriver, traffic: TrafficDriver, transport: Transport
) -> tuple[Target, ...]:
    """Return the targets of a plan: those of its waves, and each cluster where there are several.

    Raises InputError where they do not divide the hosts or clusters.
    """
    _check_balancers(platform, traffic)
    if platform.clusters:
        return _of_clusters(plan, platform, traffic, transport)
    if not plan.waves:
        return ()
    named = any(wave.clusters for wave in plan.waves)
    if named and platform.capabilities.names_instances:
        raise InputError(
            f"{VARIABLE}: names clusters, and {CLUSTERS} has none; list them there", "PR-151"
        )
    if not (platform.capabilities.has_hosts and platform.capabilities.starts_instances):
        raise InputError(
            f"{VARIABLE}: this platform has no hosts to divide: instances are deployed in place, or"
            " an orchestrator places them; remove it",
            "PR-107",
        )
    if named:
        raise InputError(
            f"{VARIABLE}: names clusters, and instances are on hosts; name some of"
            " rollout_platform.hosts, or make both parts of one platform"
            " (rollout_platform.driver: several)",
            "PR-151",
        )
    return _of_hosts(plan.waves, platform.hosts(), transport)


def _of_hosts(
    waves: Sequence[Wave], hosts: Collection[str], transport: Transport
) -> tuple[Target, ...]:
    targets = tuple(_of_group(number, wave, transport) for number, wave in enumerate(waves))
    _check_cover({target.name: target.hosts for target in targets}, hosts, "rollout_platform.hosts")
    return targets


def _of_group(number: int, wave: Wave, transport: Transport) -> Target:
    """Return the target of a wave that names hosts."""
    hosts = inventory.hosts(transport, wave.hosts, f"{VARIABLE}[{number}].hosts")
    return Target(wave.name, frozenset(hosts), wave.factor, frozenset(wave.balancers))


def _of_clusters(
    plan: Plan, platform: PlatformDriver, traffic: TrafficDriver, transport: Transport
) -> tuple[Target, ...]:
    """Return a target for each cluster, part or group of hosts, in the order of the waves."""
    option = f"rollout_platform.{platform.capabilities.clusters_option}"
    refuse_undivided(plan, VARIABLE if plan.waves else option)
    waves = plan.waves or [Wave(name, "", clusters=(name,)) for name in platform.clusters]
    by_wave = {
        wave.name: _of_wave(number, wave, platform, traffic, transport)
        for number, wave in enumerate(waves)
    }
    listed = [target for targets in by_wave.values() for target in targets]
    hosts = {host for name in platform.clusters for host in platform.within(name)}
    named = {
        name: frozenset().union(*(target.hosts for target in targets))
        for name, targets in by_wave.items()
    }
    _refuse_same_names(listed)
    _check_cover(named, hosts, option)
    # Without waves, all targets have the same share of new instances at any time, so that load
    # balancers before all of them divide the requests of all.
    apart = any(target.balancers for target in listed) or bool(plan.waves)
    if weighted(plan) and apart and not all(target.balancers for target in listed):
        refuse_weights()
    return tuple(listed)


def _of_wave(
    number: int,
    wave: Wave,
    platform: PlatformDriver,
    traffic: TrafficDriver,
    transport: Transport,
) -> list[Target]:
    """Return the targets of a wave: its hosts, or each of its clusters or parts."""
    if wave.hosts:
        group = _of_group(number, wave, transport)
        _refuse_spread(group, platform)
        return [group]
    targets = []
    for name in wave.clusters:
        balancers = {name} if name in traffic.clusters else wave.balancers
        factor = platform.clusters.get(name, wave.factor)
        targets.append(Target(name, platform.within(name), factor, frozenset(balancers)))
    return targets


def _refuse_spread(target: Target, platform: PlatformDriver) -> None:
    """Refuse a target of hosts unless one part of the platform has them all."""
    if not any(platform.within(name) & target.hosts - {name} for name in platform.clusters):
        raise InputError(
            f"{VARIABLE}: {target.name} names hosts, and instances are in clusters; name some of"
            f" rollout_platform.{platform.capabilities.clusters_option}",
            "PR-151",
        )
    parts = [name for name in platform.clusters if platform.within(name) & target.hosts]
    if len(parts) > 1:
        raise InputError(
            f"{VARIABLE}: target {target.name} has hosts of the parts {' and '.join(parts)}; make a"
            " target of each",
            "PR-151",
        )


def _refuse_same_names(targets: Sequence[Target]) -> None:
    """Refuse a group of hosts that has the name of a part or cluster."""
    names = [target.name for target in targets]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"{VARIABLE}: two targets are called {name!r}, one of them for its part or cluster;"
                " give the other another name",
                "PR-151",
            )


def _check_balancers(platform: PlatformDriver, traffic: TrafficDriver) -> None:
    """Refuse load balancers that do not send requests to all of the clusters."""
    of_platform, of_traffic = set(platform.clusters), set(traffic.clusters)
    if platform.capabilities.has_parts and (of_traffic or traffic.of_cluster):
        raise InputError(
            "rollout_traffic.driver: sends requests to Kubernetes pods only, and"
            f" rollout_platform.{PARTS} has {', '.join(platform.clusters)}; use a load balancer"
            " before all of them, as haproxy",
            "PR-248",
        )
    if (of_platform and traffic.of_cluster) or (of_traffic and of_platform != of_traffic):
        listed = ", ".join(sorted(of_traffic)) or "none"
        raise InputError(
            f"rollout_traffic.clusters: {listed}, and {CLUSTERS}:"
            f" {', '.join(sorted(of_platform)) or 'none'}; list the same clusters in both",
            "PR-247",
        )


def _check_cover(
    targets: Mapping[str, Collection[str]], places: Collection[str], variable: str
) -> None:
    """Refuse a host or cluster that is in two targets, in none, or not one of the platform's."""
    for place in sorted({*places, *(name for names in targets.values() for name in names)}):
        names = [target for target, covered in targets.items() if place in covered]
        if place not in places:
            what = f"{place} of target {names[0]} is not among {variable}; add it there"
        elif not names:
            what = f"{place} is in no target; add it to one, or remove it from rollout_platform"
        elif len(names) > 1:
            what = f"{place} is in the targets {' and '.join(names)}; leave it in one"
        else:
            continue
        raise InputError(f"{VARIABLE}: {what}", "PR-151")


def refuse_unknown_balancers(targets: Sequence[Target], known: Collection[str]) -> None:
    """Refuse load balancers of targets that are not among those of `rollout_traffic`."""
    for target in targets:
        if unknown := sorted(target.balancers - set(known)):
            raise InputError(
                f"{VARIABLE}: load balancer {unknown[0]!r} of target {target.name} is not one of"
                f" rollout_traffic, which are {', '.join(sorted(known)) or 'none'}",
                "PR-151",
            )
