# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts have which instances, and what was left on removed hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..step.context import StepPart


class PlacementNotes(StepPart):
    """The journal's notes on which host has which instances."""

    def note(self) -> None:
        """Note which host has which instances; keep the notes on removed hosts."""
        hosts = set(self.loop.platform.hosts())
        placed: dict[str, list[str]] = {}
        for instance in self.loop.fleet:
            if instance.state.counted and instance.host in hosts:
                placed.setdefault(instance.host, []).append(instance.id)
        self.record.placed = {
            host: ids for host, ids in self.record.placed.items() if host not in hosts
        } | placed

    def left(self) -> list[str]:
        """Return a line for each host with instances that is not among the platform's any more."""
        hosts = set(self.loop.platform.hosts())
        return [
            f"{self.record.service}: left on {host}, which is not in rollout_platform.hosts any"
            f" more: {', '.join(ids)}; no load balancer sends requests there. Stop them there, or"
            " add the host again so that the next run manages them; if the host is gone, use the"
            " step drain to forget them [PR-223]"
            for host, ids in sorted(self.record.placed.items())
            if host not in hosts
        ]

    def forget(self, names: Sequence[str]) -> bool:
        """Forget instances on hosts that the platform lost; return whether any were noted."""
        hosts, before = set(self.loop.platform.hosts()), dict(self.record.placed)
        kept = {
            host: [name for name in ids if host in hosts or name not in names]
            for host, ids in before.items()
        }
        self.record.placed = {host: ids for host, ids in kept.items() if ids}
        return self.record.placed != before

    def idle_hosts(self) -> str:
        """Return a line on hosts without an instance while others have several; or nothing."""
        instances = Counter(i.host for i in self.loop.fleet if i.state.counted)
        idle = [host for host in self.loop.platform.hosts() if not instances[host]]
        if not idle or max(instances.values(), default=0) < 2 or self.step.in_place:
            return ""
        return (
            f"{self.record.service}: no instance on {', '.join(idle)}; the next rollout,"
            " restart.yml or rollout_rebalance: true places some there"
        )
