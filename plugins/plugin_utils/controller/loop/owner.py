# SPDX-License-Identifier: GPL-3.0-or-later
"""What the owner of a workload changes there while a rollout lasts: the number of instances."""

from __future__ import annotations

from dataclasses import replace

from ...state.record import Rollout
from .reconcile_loop import ReconcileLoop


def follow_owner(loop: ReconcileLoop, rollout: Rollout) -> None:
    """Have the rollout continue to the number that the owner has set, and a rollback end there.

    A number that the playbook gives stays, and the owner's is reported.
    """
    number, before = loop.platform.asked(), rollout.replicas
    if number == rollout.owner:
        return
    rollout.owner = number
    if not number or number == before:
        return
    given = loop.settings.replicas
    title = f"{loop.settings.service} {rollout.revision}"
    change = f"the number of replicas was set to {number} outside this rollout"
    if isinstance(given, int):
        loop.show(f"{title}: {change}; rollout_replicas says {given}, which stays [PR-264]")
        return
    wanted = (given.of(number) if given else None) or number
    if rollout.previous:
        rollout.previous = replace(rollout.previous, replicas=wanted)
    rollout.base, rollout.wanted = 0, wanted
    loop.show(f"{title}: {change}; the rollout continues to it (before: {before}) [PR-264]")
