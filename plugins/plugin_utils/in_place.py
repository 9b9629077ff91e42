# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts whose instances the user's own tasks deploy where they are: hosts are taken out in waves, and put back."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ansible_collections.progressive.rollout.plugins.plugin_utils import clock, rollouts
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine import in_place as engine
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget, Room
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import Decision
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Instance, State
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import Failure, Rules, Tally, limits
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    Goal,
    Plan,
    Stage,
    Unfit,
    Waypoint,
    rolling,
    stages,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.errors import GateFailed, InputError, RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.guide import Motion
from ansible_collections.progressive.rollout.plugins.plugin_utils.journal import (
    HELD,
    PROGRESSING,
    PROMOTING,
    ROLLING_BACK,
    UNKNOWN,
    WAITING,
    Composition,
    Deployment,
    Rollout,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.run import Result, Run

Decide = t.Callable[[Sequence[Instance], Waypoint, Rules, Tally, float], Decision]


# What is asked for ----------------------------------------------------------------------------------------------------


def hosts_of(run: Run) -> frozenset[str]:
    """The hosts that may be worked on: those of the play that the service is on."""
    given = run.own.get("hosts")
    if not isinstance(given, list) or not all(isinstance(host, str) for host in given):
        raise InputError(f"rollout_hosts: {given!r} is not a list of hosts; the role in_place gives those of its play")
    mine = frozenset(given) & frozenset(run.conductor.platform.hosts())
    if not mine:
        raise InputError(
            f"rollout_platform.hosts: none of the play's {len(given)} host(s) is among them; let the play and the service have the same hosts"
        )
    return mine


def check(run: Run) -> None:
    """Refuse what cannot be done where no instance can be started beside the others."""
    if not run.in_place:
        name = run.settings.platform.name
        raise InputError(f"rollout_platform.driver: {name} starts its own instances; the role in_place is for driver static")
    hosts_of(run)
    settings, budget, replicas = run.settings, run.settings.budget, run.conductor.platform.capacity()
    if settings.plan.strategy == "blue_green":
        raise InputError(
            "rollout_strategy: blue_green needs a second set of instances, and in place there is none; use rolling or canary"
        )
    if any(gate.options.get("baseline") for gate in settings.plan.gates):
        raise InputError("rollout_steps: in place no fresh instance can be started to compare with; leave baseline out")
    if budget.max_in_flight is not None or budget.max_unavailable == 0:
        raise InputError("rollout_budget: in place an instance is missing while it is deployed; give max_unavailable, at least 1")
    if settings.replicas not in (None, replicas):
        raise InputError(
            f"rollout_replicas: {settings.replicas} are asked for, and in place there are exactly {replicas}; leave it out"
        )
    each = replicas // len(run.conductor.platform.hosts())
    if each > room_for(run, replicas).unavailable:
        raise InputError(
            f"rollout_budget.max_unavailable: {room_for(run, replicas).unavailable} of {replicas} instances is less than the {each} "
            "of one host, which are deployed together; allow as many"
        )


def room_for(run: Run, replicas: int) -> Room:
    """The budget, without surge: there is no place for more than there are."""
    return Budget(0, run.settings.budget.max_unavailable).resolve(replicas)


def listed(run: Run, plan: Plan, generation: int, replicas: int) -> tuple[Stage, ...]:
    """The stages of a plan; they begin with all instances old, also where nobody knows what those are."""
    try:
        return stages(engine.counted(plan), Goal(generation, replicas, room_for(run, replicas), before=replicas))
    except Unfit as exc:
        raise InputError(f"rollout_steps: {exc}") from None


def stages_of(run: Run, rollout: Rollout) -> tuple[Stage, ...]:
    """Of a rollout under way; a way back is one stage, that asks nobody."""
    target = goal(rollout)
    if rollout.phase == ROLLING_BACK:
        return (Stage("back", rolling(target.generation, rollout.replicas)),)
    plan = replace(run.settings.plan, strategy=rollout.strategy) if rollout.kind in ("rollout", "restart") else Plan()
    return listed(run, plan, rollout.generation, rollout.replicas)


def goal(rollout: Rollout) -> Composition:
    """What is deployed now: the rollout's revision, or on the way back the one before it."""
    if rollout.phase == ROLLING_BACK and rollout.previous:
        return rollout.previous
    return Composition(rollout.revision, rollout.generation, rollout.replicas)


def scope_of(run: Run, rollout: Rollout | None) -> engine.Scope:
    """What may be worked on."""
    failed = frozenset(name for name, one in run.record.deployed.items() if one.failed)
    return engine.Scope(hosts_of(run), failed, bool(rollout and rollout.phase == ROLLING_BACK))


# The steps ------------------------------------------------------------------------------------------------------------


def again(run: Run) -> None:
    """What failed before is tried again, and what was deployed and does not work any more is deployed anew."""
    record = run.record
    target = record.open.generation if record.open else record.stable.generation if record.stable else 0
    broken = {i.id for i in run.conductor.fleet if i.generation == target and i.state in (State.STARTING, State.NOT_READY)}
    record.deployed = {name: replace(one, failed="") for name, one in record.deployed.items() if name not in broken}


def plan(run: Run, would: bool = False) -> Result:
    """The waves from here to the end, if nothing goes wrong; `would`: as the result of a step that begins them, in check mode."""
    record, rollout, fleet = run.record, run.record.open, run.conductor.fleet
    replicas = run.conductor.platform.capacity()
    revision, _replicas = rollouts.asked(run, False)
    if rollout:
        path = [stage.waypoint for stage in stages_of(run, rollout)]
        revision = goal(rollout).revision
    elif record.stable and record.stable.revision == revision:
        path = [rolling(record.stable.generation, replicas)]
    else:
        path = [stage.waypoint for stage in listed(run, run.settings.plan, record.generation + 1, replicas)]
    waves = engine.waves(fleet, path, room_for(run, replicas), scope_of(run, rollout))
    text = "".join(f"wave {number}: {', '.join(hosts)} to {revision}\n" for number, hosts in enumerate(waves, 1))
    return run.report(would and bool(waves), waves=[list(hosts) for hosts in waves], diff={"before": "", "after": text})


def vacate(run: Run, rollout: Rollout) -> list[str]:
    """Take the next hosts out and let them be deployed; none where there is nothing to do now, or the rollout has failed."""
    while rollout.phase != HELD:
        back, found = rollout.phase == ROLLING_BACK, stages_of(run, rollout)
        ahead = found if back else rollouts.onward(found, rollout)
        if not ahead:
            return []
        stage, scope = ahead[0], scope_of(run, rollout)
        fleet = run.conductor.look()
        if engine.done(fleet, stage.waypoint) < stage.waypoint.new or engine.going(fleet, scope):
            take = partial(engine.vacate, room=room_for(run, rollout.replicas), scope=scope)
            if _walk(run, rollout, replace(stage, gates=()), take):
                return _begun(run, rollout, engine.going(run.conductor.fleet, scope))
        elif back:
            return []
        elif _walk(run, rollout, stage, engine.keep):
            rollout.advance((stage.name,), ahead[1].name if len(ahead) > 1 else "")
            run.conductor.commit()
    return []


def _begun(run: Run, rollout: Rollout, out: Sequence[Instance]) -> list[str]:
    """Write down, before the first task, that from now on nobody knows what is there until it has come to a good end."""
    target = goal(rollout)
    run.record.deployed |= {i.id: Deployment(target.revision, target.generation, clock.now()) for i in out}
    run.conductor.commit()
    return list(dict.fromkeys(instance.host for instance in out))


def settle(run: Run, rollout: Rollout, results: Mapping[str, str]) -> None:
    """Put hosts back whose tasks came to a good end; what failed, or does not become ready, stays out, and is counted.
    `results` are the hosts, each with why its tasks failed, or nothing."""
    scope, target = scope_of(run, rollout), goal(rollout)
    (stage,) = stages_of(run, rollout)[-1:]
    fleet = run.conductor.look()
    wave = [i for i in engine.going(fleet, scope) if i.host in results and i.generation == target.generation]
    before = engine.done(fleet, stage.waypoint)
    rollout.count(rollout.counting(clock.now()).advance(before, len(fleet) - before, (), clock.now()))
    _deployed(run, rollout, wave, target, results)
    names = frozenset(instance.id for instance in wave if not results[instance.host])
    put_back = partial(engine.settle, names=names)
    if names and _walk(run, rollout, replace(stage, gates=(), name=rollout.name), put_back):
        for instance in run.conductor.fleet:
            if instance.id in names and instance.draining_since is not None:
                _failed(run, instance, f"not healthy: {instance.detail or 'not in rotation in time'}")
    _judge(run, rollout, stage, wave)


def _deployed(run: Run, rollout: Rollout, wave: Iterable[Instance], target: Composition, results: Mapping[str, str]) -> None:
    """Write down what became of the wave's tasks, and how long they took."""
    record, now = run.record, clock.now()
    took = [now - record.deployed[i.id].at for i in wave if i.id in record.deployed]
    rollout.elapsed += max(took, default=0.0)
    for instance in wave:
        if results[instance.host]:
            _failed(run, instance, results[instance.host])
        else:
            record.deployed[instance.id] = Deployment(target.revision, target.generation, now)
            record.draining.pop(instance.id, None)
            run.conductor.event("deployed", instance=instance.id, host=instance.host, revision=target.revision)
    run.conductor.refresh()


def _failed(run: Run, instance: Instance, why: str) -> None:
    record = run.record
    record.deployed[instance.id] = replace(record.deployed[instance.id], failed=why)
    record.draining.setdefault(instance.id, clock.now())
    run.conductor.event("deployment_failed", instance=instance.id, host=instance.host, reason=why)


def _judge(run: Run, rollout: Rollout, stage: Stage, wave: Iterable[Instance]) -> None:
    """Count what failed; as many as the limit end the rollout. A way back takes what it can."""
    deployed, now = run.record.deployed, clock.now()
    failures = [Failure(i.id, deployed[i.id].failed) for i in wave if deployed[i.id].failed]
    fleet = run.conductor.look()
    put_back = engine.done(fleet, stage.waypoint)
    tally = rollout.counting(now).advance(put_back, len(fleet) - put_back, failures, now)
    rollout.count(tally)
    rules = run.conductor.bounds(stage, rollout)
    reached = [most for count, most, _where in limits(rules, tally, stable=False) if count >= most]
    if reached and rollout.phase not in (ROLLING_BACK, HELD):
        _ends(run, rollout, stage, RolloutFailed(f"rollout_failure_limit is {reached[0]}"))
    run.conductor.commit()


def lost(run: Run) -> dict[str, str]:
    """Which hosts failed and stay out, each with the reason."""
    hosts = {i.host: run.record.deployed[i.id].failed for i in run.conductor.fleet if i.id in run.record.deployed}
    return {host: why for host, why in hosts.items() if why}


def _told(lost: Mapping[str, str]) -> str:
    return "; ".join(f"{host}: {why}" for host, why in lost.items())


def whole(rollout: Rollout) -> Waypoint:
    """Where it goes now: all instances deployed, forth or back."""
    return rolling(goal(rollout).generation, rollout.replicas)


def end(run: Run, rollout: Rollout) -> Result:
    """The end of a run: promoted, rolled back, held, or left to the next one. Raises RolloutFailed unless all is well."""
    target, name = goal(rollout), f"{run.settings.service} {rollout.revision}"
    left = [i for i in run.conductor.look() if not engine.is_done(i, whole(rollout))]
    out = _told(lost(run))
    if rollout.phase == HELD:
        raise RolloutFailed(f"{name} is held: {rollout.reason}; run it again to go on, or abort it (abort.yml) and run it again")
    if any(not run.record.deployed[i.id].failed if i.id in run.record.deployed else True for i in left):
        done = f"{rollout.replicas - len(left)} of {rollout.replicas} instance(s) have {target.revision}"
        return run.parked(
            f"{name}: {done}; the others' hosts are not in this run. Run it for them to go on{f'. Out of rotation: {out}' if out else ''}"
        )
    if rollout.phase == ROLLING_BACK:
        run.record.stable = target
        rollouts.close(run, rollout.ending or "rolled_back", rollout.reason)
        still = f". Still out of rotation: {out}" if out else ""
        raise RolloutFailed(f"{name}: now {rollout.outcome.replace('_', ' ')} to {target.revision}{still}. Why: {rollout.reason}")
    if out:
        rollouts.hold(run, rollout, out)
        raise RolloutFailed(
            f"{name}: {rollout.replicas - len(left)} of {rollout.replicas} instance(s) have it; run it again for the others. {out}"
        )
    if rollouts.onward(stages_of(run, rollout), rollout):
        raise RolloutFailed(f"{name} still waits at {rollout.name}; run it again to go on")
    run.record.stable = target
    rollouts.turn(run, rollout, PROMOTING)
    rollouts.close(run, "promoted", rollout.reason)
    return run.report(True)


# A walk ---------------------------------------------------------------------------------------------------------------


def _walk(run: Run, rollout: Rollout, stage: Stage, decide: Decide) -> bool:
    """Walk a stage; False where it failed, and what follows from that is written down."""
    if rollout.phase not in (PROMOTING, ROLLING_BACK, *WAITING):
        rollouts.turn(run, rollout, PROGRESSING)
    rollout.name = stage.name
    try:
        motion = Motion.SKIP
        while motion in (Motion.SKIP, Motion.RENUMBER):
            rollouts.rescale(run, rollout)
            motion = run.conductor.walk(
                stage,
                goal(rollout).revision,
                rollout,
                lambda: run.describe(False),
                lambda fleet, waypoint, _budget, rules, tally, now: decide(fleet, waypoint, rules, tally, now),
            )
            if motion is Motion.SKIP and stage.gates:
                break
    except RolloutFailed as exc:
        return _ends(run, rollout, stage, exc)
    return True


def _ends(run: Run, rollout: Rollout, stage: Stage, exc: RolloutFailed) -> bool:
    """Write down what follows from a failure; whether the rollout goes on all the same."""
    then, out = rollouts.consequence(run, stage, rollout, exc), _told(lost(run))
    reason = f"{out} ({exc})" if out else str(exc)
    if then == "continue" and isinstance(exc, GateFailed):
        run.conductor.event("gate", message=f"goes on all the same: {exc}", passed=True)
        return True
    record, back = run.record, rollout.previous
    if rollout.phase == ROLLING_BACK:
        rollouts.hold(run, rollout, f"{rollout.reason}; and the way back failed: {reason}")
    elif then == "rollback" and back and back.revision != UNKNOWN and back.generation != rollout.generation:
        rollouts.go_back(run, rollout, reason, exc.ending)
        # What was taken out and not touched yet goes in again; what failed is worth another try.
        broken = {name for name, one in record.deployed.items() if one.failed or one.generation != back.generation}
        untouched = {i.id for i in run.conductor.fleet if i.generation == back.generation} - broken
        record.draining = {name: since for name, since in record.draining.items() if name not in untouched}
        record.deployed = {name: replace(one, failed="") for name, one in record.deployed.items()}
        run.conductor.refresh()
    else:
        why = (
            f"{reason}; no other revision is known to have been there, so nothing is taken back" if then == "rollback" else reason
        )
        rollouts.hold(run, rollout, why)
    run.conductor.commit()
    return False
