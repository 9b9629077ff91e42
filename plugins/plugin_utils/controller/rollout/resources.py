# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the instances of a rollout, by their limits, fit the memory and CPUs of their hosts,
where these are known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ...base.text import count, size
from ...engine.model import Instance
from ...interfaces.platform import InstanceSettings, Limits, Machine, PlatformDriver


@dataclass(frozen=True)
class Demand:
    """The most that the instances on one host may use at once, and what the hosts have."""

    each: int  # instances on a host
    limits: Limits  # of all of them together
    machines: Mapping[str, Machine]

    def excess(self) -> str:
        """Return the hosts with less memory, in words; empty if all have enough."""
        short = [
            f"{host} has {size(m.memory)}"
            for host, m in self.machines.items()
            if 0 < m.memory < self.limits.memory
        ]
        return ", ".join(short)

    def tight(self, used: Mapping[str, int]) -> list[str]:
        """Return warnings about hosts with too little memory available, counting what managed
        instances have `used`, or CPUs.
        """
        left = {
            host: m.available + used.get(host, 0) for host, m in self.machines.items() if m.memory
        }
        memory = [
            f"{size(free)} on {host}" for host, free in left.items() if free < self.limits.memory
        ]
        cpus = [
            f"{m.cpus} on {host}"
            for host, m in self.machines.items()
            if 0 < m.cpus < self.limits.cpus
        ]
        who = f"{count(self.each, 'instance')} on a host may use"
        lines = (
            [
                f"{who} {size(self.limits.memory)} of memory, and there is only {', '.join(memory)}"
                " for them"
            ]
            if memory
            else []
        )
        return lines + (
            [f"{who} {self.limits.cpus:g} CPUs, and there are only {', '.join(cpus)}"]
            if cpus
            else []
        )


def demand(
    platform: PlatformDriver,
    old: InstanceSettings | None,
    replicas: int,
    peak: int,
    among: Collection[str] | None = None,
) -> Demand:
    """Return the demand of `peak` instances, spread evenly over the hosts, or those in `among`:
    `replicas` new ones, and others with the `old` settings.

    An old instance counts for no more than a new one, so that a limit that was too high can be
    lowered.
    """
    part = platform if among is None else platform.at(among)
    hosts = [host for host in part.hosts() if among is None or host in among]
    machines = {host: machine for host, machine in part.machines.items() if host in hosts}
    if not machines:
        return Demand(0, Limits(), {})
    new, before = part.limits(), part.limits(old)
    each, most = (-(-number // len(hosts)) for number in (peak, replicas))

    def needed(ours: float, theirs: float) -> float:
        return most * ours + (each - most) * min(ours, theirs)

    return Demand(
        each,
        Limits(int(needed(new.memory, before.memory)), needed(new.cpus, before.cpus)),
        machines,
    )


def used(
    platform: PlatformDriver, fleet: Iterable[Instance], settings: Mapping[int, InstanceSettings]
) -> dict[str, int]:
    """Return the memory that the running instances may use, by host."""
    memory_of: dict[str, int] = {}
    for instance in fleet if platform.machines else ():
        part, kept = platform.at((instance.host,)), settings.get(instance.generation)
        memory = part.limits(kept).memory
        memory_of[instance.host] = memory_of.get(instance.host, 0) + memory * instance.state.counted
    return memory_of
