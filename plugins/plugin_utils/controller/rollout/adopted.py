# SPDX-License-Identifier: GPL-3.0-or-later
"""Adopt the servers that people wrote into the load balancers' configuration: they become the
instances of the stable revision, which the first rollout replaces as any others.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...base import clock
from ...base.errors import InputError
from ...base.text import count
from ...config.adoption import Adoption
from ...engine.budget import PerHost
from ...engine.model import Composition, Rotation
from ...interfaces.platform import Endpoint
from ...interfaces.traffic import Server, Table
from ...state.record import AdoptedServers, Record, Rollout
from ..step.context import StepContext
from .adoption import highest

SERVERS = "rollout_adopt.servers"


def take(step: StepContext, asked: Adoption) -> None:
    """Make the servers named the stable side, unless a rollout was promoted before.

    Those that a rollout has adopted and given back are adopted anew.
    """
    record = step.record
    if record.stable is not None and not is_stable(record):
        return
    _refuse_unable(step, asked)
    servers, known = _checked(step, asked), record.adopted
    same = known and (known.revision, known.servers) == (asked.revision, servers)
    generation = known.generation if known and same else record.generation + 1
    since = clock.now() - step.settings.rules.min_ready  # nothing is known of the time before
    record.adopted = AdoptedServers(asked.revision, generation, servers, since)
    record.generation = max(record.generation, generation)
    record.serial = max(record.serial, highest(servers))  # no instance gets the name of one
    record.stable = Composition(asked.revision, generation, len(servers))
    step.loop.observe_fleet()


def is_stable(record: Record) -> bool:
    """Return whether the adopted servers are the stable side."""
    return record.stable is not None and record.is_adopted(record.stable.generation)


def refuse_same(record: Record, revision: str) -> None:
    """Refuse to roll out the revision of the adopted servers: they would be what runs already."""
    if is_stable(record) and record.stable and record.stable.revision == revision:
        raise InputError(
            f"rollout_revision: {revision} is what runs on the adopted servers"
            f" ({', '.join(record.adopted.servers if record.adopted else ())}); roll out another"
            " one, or have new instances of the same take their place (rollout_restart: true)",
            "PR-348",
        )


def effect(record: Record) -> str:
    """Return what follows from `rollout_adopt`, for the operator."""
    if record.adopted and is_stable(record):
        names = ", ".join(record.adopted.servers)
        return f"adopted as {record.adopted.revision}: {names}"
    stable = record.stable.revision if record.stable else "a revision"
    return f"rollout_adopt has no effect, since {stable} was rolled out; remove it"


def left(record: Record, rollout: Rollout, table: Table, kept: bool) -> list[str]:
    """Return a line on the servers that a rollout has replaced, if there are any.

    `table`: as last observed; `kept`: the load balancers' configuration still has them.
    """
    adopted, previous = record.adopted, rollout.previous
    if adopted is None or previous is None or not record.is_adopted(previous.generation):
        return []
    if not adopted.out or is_stable(record):
        return []
    names = sorted(adopted.out)
    places = ", ".join(str(adopted.servers[name]) for name in names)
    todo = (
        "delete them from the load balancers' configuration before its next restart, then stop what"
        f" runs at {places}"
        if kept
        else "stop what runs there"
    )
    shown = [server for servers in table.values() for server in servers.values()]
    busy = sorted({server.name for server in shown if server.active} & {*names})
    needed = "" if busy else ", and not needed any more"
    wait = f", once clients have closed their connections to {', '.join(busy)}" if busy else ""
    return [f"{record.service}: out of rotation{needed}: {', '.join(names)}: {todo}{wait} [PR-349]"]


def _refuse_unable(step: StepContext, asked: Adoption) -> None:
    """Refuse what cannot be adopted with these drivers and variables."""
    settings, can = step.settings, step.loop.platform.capabilities
    if not asked.servers:
        raise InputError(
            f"{SERVERS}: not given; name the servers of the load balancers that run"
            f" {asked.revision}",
            "PR-346",
        )
    why = ""
    if can.names_instances or can.refills_places or can.has_parts or not can.has_hosts:
        why = f"rollout_platform.driver {settings.platform.name} cannot follow on them"
    elif not step.loop.traffic.adopts:
        why = f"rollout_traffic.driver {settings.traffic.name} cannot adopt servers"
        why += step.loop.traffic.instead_of_adopting
    elif step.loop.targets:
        why = "rollout_targets: what is adopted belongs to no target; leave it out at first"
    elif isinstance(settings.replicas, PerHost):
        why = (
            "rollout_replicas: per_host, and it is not known on which hosts they are; give a number"
        )
    elif settings.plan.baseline:
        why = "rollout_steps: baseline starts instances of what was adopted; remove it at first"
    if why:
        raise InputError(f"{SERVERS}: {', '.join(asked.servers[:3])}: {why}", "PR-346")


def _checked(step: StepContext, asked: Adoption) -> dict[str, Endpoint]:
    """Return the addresses of the servers; refuse those that cannot be adopted."""
    servers: dict[str, Endpoint] = {}
    for balancer, entries in (step.loop.table or {}).items():
        named = {server.name: (at, server) for at, server in entries.items()}
        for name in asked.servers:
            where = f"{SERVERS}: {name} at load balancer {balancer}"
            if name not in named:
                others = ", ".join(sorted(filter(None, named))[:10]) or "none"
                raise InputError(
                    f"{where}: there is no such server with an address; it has: {others}", "PR-347"
                )
            endpoint, server = named[name]
            if why := _why_not(step, name, endpoint, server):
                raise InputError(f"{where}: {why}", "PR-347")
            if servers.setdefault(name, endpoint) != endpoint:
                raise InputError(
                    f"{where} is {endpoint}, and elsewhere {servers[name]}; give each its own name",
                    "PR-347",
                )
        _check_weights(balancer, asked, named)
    return servers


def _why_not(step: StepContext, name: str, endpoint: Endpoint, server: Server) -> str:
    """Return why a server cannot be adopted; "" if it can."""
    record = step.record
    if not endpoint.known:
        return (
            "it has no address and port, by which a rollout knows servers; have what runs there"
            " listen at an address, too, and give that to the server"
        )
    again = bool(record.adopted and name in record.adopted.servers)
    if server.service not in ("", record.service):
        return f"it belongs to service {server.service}; name servers that were made by hand"
    if server.ours and not again:
        return "a rollout has made it; name servers that were made by hand"
    if server.backup:
        return "it is a backup, which gets requests only while no other server can; leave it out"
    if server.rotation is not Rotation.IN:
        return "it gets no requests (maintenance, drain or weight 0); put it in rotation first"
    if not server.lb_healthy:
        shown = server.detail or server.status
        why = f" ({shown})" if shown else ""
        return (
            f"it has not passed the load balancer's check{why}; start what runs there, or leave"
            " it out"
        )
    return ""


def _check_weights(
    balancer: str, asked: Adoption, named: Mapping[str, tuple[Endpoint, Server]]
) -> None:
    """Refuse servers with different weights, since a rollout gives all of one side the same, and
    others that get requests beside them.
    """
    weights = {name: named[name][1].weight for name in asked.servers}
    if len(set(weights.values())) > 1:
        shown = ", ".join(f"{name} {weight}" for name, weight in weights.items())
        raise InputError(
            f"{SERVERS}: at load balancer {balancer} their weights differ ({shown}), and a rollout"
            " gives all of them the same; give them the same weight first",
            "PR-347",
        )
    others = sorted(
        name
        for name, (_at, server) in named.items()
        if name not in weights
        and server.rotation is Rotation.IN
        and not server.ours
        and not server.backup
    )
    if others:
        raise InputError(
            f"{SERVERS}: load balancer {balancer} sends requests to"
            f" {count(len(others), 'server')} more: {', '.join(others[:10])}; name all that run"
            f" {asked.revision}, or take the others out of rotation",
            "PR-347",
        )
