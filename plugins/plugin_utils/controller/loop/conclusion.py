# SPDX-License-Identifier: GPL-3.0-or-later
"""What is left to do once a rollout has reached its end."""

from __future__ import annotations

from collections.abc import Callable

from ...base.errors import TRANSIENT, RolloutFailed
from ...engine.evaluate import Decision
from ...engine.instances import can_stop, ids
from ...engine.model import Composition, State
from ...engine.wording import states
from ...state import events
from . import timing
from .late_commands import LateCommands
from .reconcile_loop import ReconcileLoop


def stop_orphaned(loop: ReconcileLoop) -> None:
    """Stop the drained instances whose hosts answer again by a rollout's end.

    Nothing waits for hosts that are left out. Raises RolloutFailed if an instance does not end
    although its host answers.
    """
    if not loop.platform.capabilities.starts_instances:
        return  # its instances are drained for the user's tasks, and never stopped
    draining, rollout = loop.session.record.draining, loop.session.record.open
    deadline = loop.now() + timing.LAST_LOOK
    late = LateCommands(loop, rollout)

    def stop() -> str:
        loop.observer.catch_up()
        snapshot = loop.observe()
        left = [i for i in snapshot.fleet if i.id in draining and i.state.counted]
        answering = [i for i in left if i.state is not State.UNREACHABLE]
        drained = (i for i in answering if can_stop(i, loop.rules, loop.now()))
        loop.actuator.apply(snapshot, Decision(retire=ids(drained)))
        awaited = left if loop.now() < deadline else answering
        staying = {i.host for i in snapshot.fleet if i.id not in draining and i.state.counted}
        excluded = late.take({i.host for i in awaited} - staying)
        return states([i for i in awaited if i.host not in excluded])

    if draining and (
        left := _retry(loop, "stopping drained instances", stop, loop.rules.progress_deadline)
    ):
        raise RolloutFailed(f"not within {loop.rules.progress_deadline:g} s: {left}", "PR-616")


def conclude(loop: ReconcileLoop, stable: Composition | None) -> None:
    """Have the platform do what is left to do at a rollout's end; raises RolloutFailed."""

    def finish() -> str:
        if left := loop.platform.conclude(stable):
            return left
        loop.traffic.conclude()
        return ""

    if left := _retry(loop, "concluding the rollout", finish, loop.rules.progress_deadline):
        raise RolloutFailed(f"the rollout cannot be concluded: {left}", "PR-620")


def put_autoscaler_back(loop: ReconcileLoop) -> None:
    """Put the autoscaler back at a rollout's end; raises RolloutFailed."""

    def put_back() -> str:
        loop.autoscaling.put_back()
        return ""

    if left := _retry(loop, "putting the autoscaler back", put_back, loop.rules.progress_deadline):
        raise RolloutFailed(f"the autoscaler cannot be put back: {left}", "PR-263")


def empty_previews(loop: ReconcileLoop) -> None:
    """Empty the preview pools at a rollout's end, and wait for their requests in flight."""
    for pool in loop.previews:
        pool.wanted = False

    def empty() -> str:
        for pool in loop.previews:
            pool.observe(loop.now())
        loop.actuator.apply_previews(loop.observer.snapshot)
        return "it still has requests" if any(pool.filled for pool in loop.previews) else ""

    if any(pool.filled for pool in loop.previews) and (
        left := _retry(loop, "emptying the preview", empty, loop.rules.drain_timeout)
    ):
        message = f"the preview is not empty; the next rollout empties it: {left}"
        loop.event(events.Trouble(message=message))


def remove_dead(loop: ReconcileLoop) -> None:
    """Remove what is left of dead instances; their logs stay.

    Waits for hosts that are still removing: once the run has ended, nothing reads their answers.
    """

    def remove() -> str:
        dead = loop.actuator.forget_dead(loop.observe())
        return ", ".join(f"{i.id} on {i.host}" for i in dead if i.host in loop.platform.at_work)

    if left := _retry(loop, "removing dead instances", remove, timing.REMOVAL):
        text = f"dead instances were not removed within {timing.REMOVAL:g} s: {left}"
        loop.show(f"{loop.session.record.service}: {text}; the next rollout removes them [PR-621]")


def _retry(loop: ReconcileLoop, activity: str, attempt: Callable[[], str], seconds: float) -> str:
    """Repeat an attempt, keeping the lease, until nothing is left; return what is left by then."""

    def try_once() -> str:
        try:
            if loop.recorder.due:
                loop.commit()
            return attempt()
        except TRANSIENT as exc:
            return str(exc)

    return loop.until(activity, try_once, seconds)
