# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts as the journal knows them: opened, gone on with, walked, walked back, closed."""

from __future__ import annotations

import os
import time
from collections import Counter
from statistics import median

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Process, State
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import STRATEGIES, Waypoint
from ansible_collections.progressive.rollout.plugins.plugin_utils.errors import InputError, RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.journal import (
    HELD,
    PROGRESSING,
    ROLLING_BACK,
    Composition,
    Record,
    Rollout,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.run import Result, Run, when


def hold(run: Run, rollout: Rollout, reason: str) -> None:
    """Stop where it is, for a person to decide."""
    rollout.phase, rollout.reason = HELD, reason
    run.conductor.event("phase", phase=HELD, reason=reason)
    run.conductor.commit()


def asked(run: Run, restart: bool) -> tuple[str, int]:
    """The revision and the number asked for; a restart takes those that run."""
    revision, replicas = run.settings.revision, run.settings.replicas
    if restart and (revision is None or replicas is None):
        stable = run.session.read().stable
        if stable is None:
            raise InputError(f"rollout_restart: nothing is known to run of {run.settings.service}; roll out a revision first")
        revision, replicas = revision or stable.revision, replicas or stable.replicas
    if revision is None:
        raise InputError('rollout_revision: not given; name the revision to roll out ("2.4.1")')
    if replicas is None:
        raise InputError("rollout_replicas: not given; say how many instances there shall be")
    return revision, replicas


def fits(run: Run, replicas: int) -> None:
    """Refuse what could not be placed: every port is needed while old and new stand side by side."""
    room, capacity = run.settings.budget.resolve(replicas), run.conductor.platform.capacity()
    if capacity < replicas + room.surge:
        raise InputError(
            f"rollout_platform: {len(run.conductor.platform.hosts())} host(s) have room for {capacity} instance(s), but rollout_replicas "
            f"{replicas} with a surge of {room.surge} needs {replicas + room.surge}; widen rollout_platform.ports or add hosts"
        )


def adopt(run: Run) -> None:
    """A lost journal, or a first deployment that failed and was left, is no lost fleet: what runs carries its revision and
    generation with it, and is what can be gone back to."""
    record = run.record
    there = [report.labels for report in run.conductor.reports if report.process is not Process.STOPPED]
    record.generation = max([record.generation, *(labels.generation for labels in there)])
    numbers = [labels.id.rpartition("-")[2] for labels in there]
    record.serial = max([record.serial, *(int(number) for number in numbers if number.isdecimal())])
    alive = Counter((i.revision, i.generation) for i in run.conductor.fleet if i.state.counted)
    if record.stable is None and record.open is None and alive:
        (revision, generation), count = alive.most_common(1)[0]
        record.stable = Composition(revision, generation, count)


def open_(run: Run, kind: str, revision: str, generation: int, replicas: int) -> Rollout:
    """Begin a rollout: from here on it is unfinished until it is closed."""
    record, now = run.record, time.time()
    record.generation = max(record.generation, generation)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
    record.rollout = Rollout(
        id=f"{record.service}-{stamp}-{os.getpid()}",
        revision=revision,
        generation=generation,
        replicas=replicas,
        strategy=run.settings.strategy,
        previous=record.stable,
        started=now,
        kind=kind,
        updated=now,
    )
    run.conductor.event(
        "begin", revision=revision, generation=generation, replicas=replicas, rollout=kind, by=run.session.identity.holder
    )
    run.conductor.commit()
    return record.rollout


def resume(run: Run, rollout: Rollout, revision: str, replicas: int) -> Result:
    """Go on with the unfinished rollout of this revision; refuse another."""
    if rollout.revision != revision:
        raise RolloutFailed(
            f"rollout_revision: {revision!r} has to wait, because the rollout of {run.record.service} {rollout.revision} is unfinished "
            f"({rollout.phase}{': ' + rollout.reason if rollout.reason else ''}); run that one again to go on, or roll it back (rollback.yml)"
        )
    if run.check_mode:
        return would_go_on(run, rollout, replicas)
    changed = rollout.phase == HELD or rollout.replicas != replicas
    if rollout.phase == HELD:
        rollout.phase, rollout.reason, rollout.tally = PROGRESSING, "", None
        mine = [i for i in run.conductor.fleet if i.generation == rollout.generation]
        # It was held because of them, or they had their time while it was: they are replaced.
        run.record.draining.update({i.id: time.time() for i in mine if i.state in (State.STARTING, State.NOT_READY)})
    rollout.replicas = replicas
    run.conductor.event("resume", phase=rollout.phase, by=run.session.identity.holder)
    run.conductor.commit()
    return run.report(
        changed, msg=f"{run.record.service}: goes on with the rollout of {revision} begun at {when(rollout.started)}"
    )


def forward(generation: int, replicas: int, strategy: str = "rolling") -> Waypoint:
    """The composition a strategy ends at."""
    return STRATEGIES[strategy](generation, replicas)[-1]


def walk(run: Run, rollout: Rollout) -> None:
    """To the strategy's waypoints, one after the other."""
    for waypoint in STRATEGIES[rollout.strategy](rollout.generation, rollout.replicas):
        walk_to(run, waypoint, rollout, rollout.revision)


def walk_to(run: Run, waypoint: Waypoint, rollout: Rollout, revision: str) -> None:
    """To one waypoint, whose new instances are of `revision`; a failure leaves its decision in the journal before anybody
    acts on it."""
    try:
        run.conductor.walk(waypoint, revision, rollout)
    except RolloutFailed as exc:
        if rollout.kind == "rollback" or run.settings.on_failure == "hold":
            hold(run, rollout, str(exc))
            left = "; it is held as it is: run it again to go on, or roll it back"
        elif run.settings.on_failure == "continue":
            close(run, "failed", str(exc))
            left = "; it is left as it is"
        else:
            rollout.phase, rollout.reason, rollout.tally = ROLLING_BACK, str(exc), None
            run.conductor.event("phase", phase=ROLLING_BACK, reason=str(exc))
            run.conductor.commit()
            left = ""
        raise RolloutFailed(f"{run.settings.service} {rollout.revision}: {exc}{left}") from None


def walk_back(run: Run, rollout: Rollout) -> None:
    """Old back and in rotation before new goes, within the same budget."""
    back = rollout.previous
    if rollout.phase != ROLLING_BACK:
        rollout.phase, rollout.tally = ROLLING_BACK, None
        rollout.reason = rollout.reason or "rolled back by hand"
        run.conductor.event("phase", phase=ROLLING_BACK, reason=rollout.reason)
    rollout.step = "rollback"
    # A first deployment has nothing to go back to: everything of it goes (E-15).
    target = back or Composition(rollout.revision, 0, 0)
    run.conductor.spare(target.generation)
    try:
        run.conductor.walk(forward(target.generation, target.replicas), target.revision, rollout)
    except RolloutFailed as exc:
        hold(run, rollout, f"{rollout.reason}; and the way back failed: {exc}")
        raise RolloutFailed(
            f"{run.settings.service}: the way back from {rollout.revision} failed: {exc}; it is held as it is"
        ) from None
    run.record.stable = back
    close(run, "rolled_back" if back else "failed", rollout.reason)


def close(run: Run, outcome: str, reason: str) -> None:
    """The end: what is left of the dead is removed and the history written."""
    record, rollout = run.record, run.record.open
    if rollout is None:
        return
    rollout.step = "finish"
    left = rollout.previous
    if outcome == "promoted" and record.stable and left and left.revision not in (rollout.revision, record.stable.revision):
        # Never a rollback of a rollback: after one there is nothing to go back to.
        record.before = None if rollout.kind == "rollback" else left
    run.conductor.forget()
    run.conductor.event("end", outcome=outcome, reason=reason)
    record.close(outcome, reason, time.time())
    run.conductor.commit()
    run.conductor.say(ended(record.service, rollout))


def ended(service: str, rollout: Rollout) -> str:
    """How it ended, in a line."""
    back = f" to {rollout.previous.revision}" if rollout.outcome == "rolled_back" and rollout.previous else ""
    what = f": {rollout.replaced or rollout.replicas} instance(s){' replaced' if rollout.replaced else ''} in"
    took = f"{what if rollout.outcome == 'promoted' else ' after'} {rollout.elapsed:.1f} s"
    why = f" ({rollout.reason})" if rollout.kind == "rollback" else f". Why: {rollout.reason}" if rollout.reason else ""
    return f"{service} {rollout.revision} {rollout.outcome.replace('_', ' ')}{back}{took}{why}"


def way_back(run: Run) -> Composition | None:
    """Where a rollback goes while no rollout is under way: from what was left where it failed, or only scaled, to the
    stable revision; otherwise to the one before it. None where there is nothing to undo; a rollback is never undone."""
    record = run.record
    if record.stable is None or record.rollout is None or _rolled_back(record.rollout):
        return None
    if record.rollout.outcome == "failed" or record.rollout.revision != record.stable.revision:
        return record.stable
    if record.before is None:
        return None
    return Composition(record.before.revision, record.generation + 1, run.settings.replicas or record.stable.replicas)


def open_rollback(run: Run, back: Composition) -> Rollout:
    """A rollout to where a rollback goes."""
    failed, stable = run.record.rollout, run.record.stable
    left = failed if back == stable else stable
    rollout = open_(run, "rollback", back.revision, back.generation, back.replicas)
    rollout.step, rollout.reason = "rollback", f"rolled back from {left.revision if left else 'nothing'}"
    return rollout


def _rolled_back(rollout: Rollout) -> bool:
    return rollout.outcome == "rolled_back" or (rollout.kind == "rollback" and rollout.over)


def nothing_to_undo(record: Record) -> str:
    """Why there is nothing to roll back, in a sentence."""
    if record.stable and record.rollout and _rolled_back(record.rollout):
        return (
            f"{record.service} was already rolled back to {record.stable.revision}; to go anywhere else, roll that revision out"
        )
    return f"nothing to roll back: no revision of {record.service} before this one is known"


def would_walk(run: Run) -> Result:
    """Check mode of what follows `begin`, which in check mode has opened nothing."""
    record = run.session.read()
    rollout = record.open
    if rollout is not None:
        return would_go_on(run, rollout, rollout.replicas)
    revision, replicas = asked(run, False)
    run.conductor.look()
    adopt(run)
    same = record.stable is not None and record.stable.revision == revision
    generation = record.stable.generation if same and record.stable else record.generation + 1
    return run.would(forward(generation, replicas), revision)


def would_go_on(run: Run, rollout: Rollout, replicas: int) -> Result:
    """Check mode of going on with a rollout under way."""
    if rollout.phase == ROLLING_BACK:
        return would_roll_back(run)
    return run.would(forward(rollout.generation, replicas), rollout.revision)


def which(run: Run) -> tuple[int, str]:
    """The generation and revision a step is about: the one asked for, or the stable one."""
    record, revision = run.record, run.settings.revision
    known = [c for c in (record.open, record.stable) if c is not None]
    for one in known:
        if revision in (None, one.revision):
            return one.generation, one.revision
    if revision is None:
        raise InputError(f"rollout_revision: not given, and nothing is known to run of {record.service}; name the revision")
    return record.generation + 1, revision


def would_roll_back(run: Run) -> Result:
    """Check mode of a rollback."""
    record = run.record
    if record.open is not None:
        rollout = record.open
        back = rollout if rollout.kind == "rollback" else rollout.previous or Composition(rollout.revision, 0, 0)
        return run.would(forward(back.generation, back.replicas), back.revision)
    to = way_back(run)
    if to is None:
        return run.report(False, msg=nothing_to_undo(record))
    return run.would(forward(to.generation, to.replicas), to.revision)


def measured(run: Run) -> tuple[float, float] | None:
    """The median seconds instances took to be ready and to go, by the timeline of the last rollout; None if it shows none."""
    rollout = run.record.rollout
    first: dict[str, dict[str, float]] = {}
    for event in run.session.store.timeline(rollout.id) if rollout else ():
        if event.get("kind") == "state":
            first.setdefault(event["instance"], {}).setdefault(event["state"], event["at"])
    starts = [states["ready"] - states["starting"] for states in first.values() if states.keys() >= {"starting", "ready"}]
    stops = [states["stopped"] - states["draining"] for states in first.values() if states.keys() >= {"draining", "stopped"}]
    return (median(starts), median(stops) if stops else 0.0) if starts else None
