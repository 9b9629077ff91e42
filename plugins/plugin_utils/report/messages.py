# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a rollout ended, and what it left, in a line for people."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.text import count
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Instance
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Kind, Outcome, Rollout


def ended(service: str, rollout: Rollout) -> str:
    """How it ended, in a line."""
    outcome, previous = rollout.outcome.replace("_", " "), rollout.previous
    back = f" to {previous.revision}" if rollout.outcome == Outcome.ROLLED_BACK and previous else ""
    back = f", back to {previous.revision}" if rollout.outcome == Outcome.ABORTED and previous else back
    failed = f", {count(rollout.failed, 'start')} failed" if rollout.failed else ""
    took = f"{failed}{',' if failed else ''} in {rollout.elapsed:.1f} s"
    if rollout.outcome != Outcome.PROMOTED:
        why = f". Why: {rollout.reason}" if rollout.reason else ""
        return f"{service} {rollout.revision} {outcome}{back} after {rollout.elapsed:.1f} s{failed}{why}"
    if rollout.kind == Kind.SCALE:
        return f"{service} {rollout.revision} scaled: {count(rollout.replicas, 'instance')}{took}"
    if rollout.kind == Kind.REBALANCE:
        return f"{service} {rollout.revision} rebalanced: {count(rollout.replaced, 'instance')} moved{took}"
    done = f"{count(rollout.replaced, 'instance')} replaced" if rollout.replaced else count(rollout.replicas, "instance")
    left = previous.revision if rollout.kind == Kind.ROLLBACK and previous and previous.revision != rollout.revision else ""
    why = f" (rolled back from {left})" if left else f". Why: {rollout.reason}" if rollout.reason else ""
    return f"{service} {rollout.revision} {outcome}: {done}{took}{why}"


def left_behind(service: str, lost: Sequence[Instance]) -> str:
    """What is on hosts that do not answer, in a line."""
    there = ", ".join(f"{instance.id} on {instance.host}" for instance in lost)
    return (
        f"{service}: left behind, since the host does not answer: {there}; no load balancer sends requests there. When the host is back, run "
        "it again: that stops them. If it is gone for good, take it out of the inventory"
    )
