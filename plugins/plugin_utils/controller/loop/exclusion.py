# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts an operator may leave out of a rollout in progress."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ...base.text import count
from ...engine.budget import Budget
from ...engine.exclusion import ends_service, most_at_once
from ...engine.model import Instance, Phase
from ...engine.shares import Target, share
from ...interfaces.platform import PlatformDriver
from ...state.record import Rollout


def refusal(
    command: Mapping[str, t.Any],
    rollout: Rollout,
    platform: PlatformDriver,
    budget: Budget,
    *,
    fleet: Sequence[Instance] = (),
    targets: Sequence[Target] = (),
) -> str:
    """Return why a host cannot be left out, or brought back; "" if it can.

    `fleet` and `targets` are those of the run that obeys.
    """
    host, can, hosts = command["place"], platform.capabilities, platform.hosts()
    if not can.starts_instances:
        return "its instances are deployed in place, by your own tasks; remove the host there"
    if not can.has_hosts or not hosts:
        return "the platform places instances itself; drain the node there"
    if host not in hosts:
        more = ", …" if len(hosts) > 5 else ""
        return f"{host} is not in rollout_platform.hosts; name one of {', '.join(hosts[:5])}{more}"
    out = host in rollout.excluded
    if command["word"] == "include":
        return "" if out else f"{host} is not left out; no command is needed"
    if out:
        return f"{host} is already left out; use include to bring it back"
    excluded = {*rollout.excluded, host}
    rest = [name for name in hosts if name not in excluded]
    return (
        _lack_of_room(rest, rollout, platform, budget)
        or _lack_at_target(rest, rollout, platform, targets)
        or (
            f"no instance serves but on {host}; wait until others do, or abort"
            if ends_service(fleet, excluded)
            else ""
        )
    )


def _lack_of_room(
    rest: Sequence[str], rollout: Rollout, platform: PlatformDriver, budget: Budget
) -> str:
    """Return that the hosts that are left have too little room for the budget."""
    before = rollout.previous.replicas if rollout.previous else 0
    second_set = rollout.strategy == "blue_green" and rollout.phase != Phase.ROLLING_BACK
    numbers = rollout.replicas, rollout.base or before
    if rollout.per_host:  # the host's own instance needs no room elsewhere
        numbers = len(rest), min(len(rest), numbers[1])
    most = most_at_once(*numbers, second_set, budget)
    room = platform.capacity(rest) if rest else 0
    if room >= most:
        return ""
    if not rest:
        return "no other host is left; add hosts, or abort"
    return (
        f"the other {count(len(rest), 'host')} have room for {count(room, 'instance')}, and"
        f" rollout_replicas and rollout_budget need {most}; add hosts, or abort"
    )


def _lack_at_target(
    rest: Sequence[str], rollout: Rollout, platform: PlatformDriver, targets: Sequence[Target]
) -> str:
    """Return that the hosts that are left in a target have too little room for its share."""
    for target in targets:
        left = target.hosts.intersection(rest)
        if not target.hosts.intersection(platform.hosts()):
            continue  # a cluster, which no host is left out of
        needed = share(rollout.replicas, len(targets), target.factor) + 1
        if not left or platform.capacity(left) < needed:
            return (
                f"target {target.name} has {count(len(left), 'host')} left, too few for {needed}"
                " instances; add hosts there, or abort"
            )
    return ""
