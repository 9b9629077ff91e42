# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts whose instances the user's own tasks deploy where they are: hosts are taken out in waves, and put back."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    GateFailed,
    InputError,
    PlatformError,
    RolloutFailed,
    TrafficError,
    TransportError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import lifecycle
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.supervisor import Proceed
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine import in_place as engine
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget, ResolvedBudget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import Decision
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    UNKNOWN,
    Composition,
    Deployment,
    FailureAction,
    Instance,
    Phase,
    State,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import (
    Failure,
    ProgressTracker,
    Rules,
    failure_limits,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    InvalidSteps,
    Plan,
    RolloutTarget,
    Stage,
    Waypoint,
    rolling,
    stages,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Outcome, Rollout

Decide = t.Callable[[Sequence[Instance], Waypoint, Rules, ProgressTracker, float], Decision]


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


def room_for(run: Run, replicas: int) -> ResolvedBudget:
    """The budget, without surge: there is no place for more than there are."""
    return Budget(0, run.settings.budget.max_unavailable).resolve(replicas)


def listed(run: Run, plan: Plan, generation: int, replicas: int) -> tuple[Stage, ...]:
    """The stages of a plan; they begin with all instances old, also where nobody knows what those are."""
    try:
        return stages(
            engine.steps_as_replicas(plan), RolloutTarget(generation, replicas, room_for(run, replicas), before=replicas)
        )
    except InvalidSteps as exc:
        raise InputError(f"rollout_steps: {exc}") from None


def stages_of(run: Run, rollout: Rollout) -> tuple[Stage, ...]:
    """Of a rollout under way; a way back is one stage, that asks nobody."""
    target = goal(rollout)
    if rollout.phase == Phase.ROLLING_BACK:
        return (Stage("back", rolling(target.generation, rollout.replicas)),)
    plan = replace(run.settings.plan, strategy=rollout.strategy) if rollout.kind.forward else Plan()
    return listed(run, plan, rollout.generation, rollout.replicas)


def goal(rollout: Rollout) -> Composition:
    """What is deployed now: the rollout's revision, or on the way back the one before it."""
    if rollout.phase == Phase.ROLLING_BACK and rollout.previous:
        return rollout.previous
    return Composition(rollout.revision, rollout.generation, rollout.replicas)


def scope_of(run: Run, rollout: Rollout | None) -> engine.Scope:
    """What may be worked on."""
    failed = frozenset(name for name, one in run.record.deployed.items() if one.failed)
    return engine.Scope(hosts_of(run), failed, bool(rollout and rollout.phase == Phase.ROLLING_BACK))


# The steps ------------------------------------------------------------------------------------------------------------


def unreached(run: Run) -> dict[str, str]:
    """The hosts that could not be reached just now, each with the reason, by what the play's task `raw` has found."""
    reached = run.own.get("reached") or {}
    if not isinstance(reached, Mapping) or not all(isinstance(found, Mapping) for found in reached.values()):
        raise InputError(
            f"rollout_reached: {reached!r} is not a mapping of hosts; give each the result of a task that reaches it"
        )
    said = {host: str(found.get("msg", "")) for host, found in reached.items() if found.get("unreachable")}
    return {host: " ".join(text.removeprefix("Task failed: ").split())[:200] for host, text in said.items()}


def refuse_unreachable(run: Run, revision: str, restart: bool) -> None:
    """Refuse to begin, or to go on, where too many of the hosts cannot be reached. A way back takes what it can."""
    record, replicas = run.record, run.conductor.platform.capacity()
    waypoint = rolling(record.generation + 1, replicas)
    if record.open and not lifecycle.superseded(run, record.open, revision):
        waypoint = whole(record.open)
    elif record.stable and record.stable.revision == revision and not restart:
        waypoint = rolling(record.stable.generation, replicas)
    if record.open and record.open.phase == Phase.ROLLING_BACK:
        return
    lost, scope, allowed, rules = unreached(run), scope_of(run, None), room_for(run, replicas), run.settings.rules
    if why := engine.refusal(run.conductor.fleet, waypoint, scope, lost, allowed, rules.failure_limit):
        raise RolloutFailed(
            f"{run.settings.service}: {_told({host: lost[host] for host in lost if host in scope.hosts})}: cannot be reached, and {why}; nothing "
            "was touched. Bring them back, or leave them out with --limit"
        )


def pass_over(run: Run, rollout: Rollout) -> None:
    """Leave out, as failed, hosts that cannot be reached: they are not touched, and stay in rotation as they are."""
    lost, fleet, record = unreached(run), _look(run), run.record
    passed = engine.unreachable(fleet, whole(rollout), scope_of(run, rollout), lost)
    for instance in passed:
        known = record.deployed.get(instance.id) or Deployment(instance.revision, instance.generation, clock.now())
        record.deployed[instance.id] = replace(known, failed=f"cannot be reached: {lost[instance.host]}")
        run.conductor.event("deployment_failed", instance=instance.id, host=instance.host, reason=lost[instance.host])
    if passed:
        _judge(run, rollout, passed)


def again(run: Run) -> None:
    """What failed before is tried again, and what was deployed and does not work any more is deployed anew."""
    record = run.record
    target = record.open.generation if record.open else record.stable.generation if record.stable else 0
    broken = {i.id for i in run.conductor.fleet if i.generation == target and i.state in (State.STARTING, State.NOT_READY)}
    record.deployed = {name: replace(one, failed="") for name, one in record.deployed.items() if name not in broken}


def plan(run: Run, would: bool = False, restart: bool = False) -> Result:
    """The waves from here to the end, if nothing goes wrong; `would`: as the result of a step that begins them, in check mode."""
    record, rollout, fleet = run.record, run.record.open, run.conductor.fleet
    replicas = run.conductor.platform.capacity()
    revision, _replicas = lifecycle.asked(run, restart)
    if rollout:
        path = [stage.waypoint for stage in stages_of(run, rollout)]
        revision = goal(rollout).revision
    elif record.stable and record.stable.revision == revision and not restart:
        path = [rolling(record.stable.generation, replicas)]
    else:
        path = [stage.waypoint for stage in listed(run, run.settings.plan, record.generation + 1, replicas)]
    waves = engine.batches(fleet, path, room_for(run, replicas), scope_of(run, rollout))
    text = "".join(f"wave {number}: {', '.join(hosts)} to {revision}\n" for number, hosts in enumerate(waves, 1))
    back = rollout is not None and rollout.phase == Phase.ROLLING_BACK
    shown = {"waves": [list(hosts) for hosts in waves], "deploys": revision, "back": back}
    return run.report(would and bool(waves), **shown, diff={"before": "", "after": text})


def vacate(run: Run, rollout: Rollout) -> list[str]:
    """Take the next hosts out and let them be deployed; none where there is nothing to do now, or the rollout has failed."""
    pass_over(run, rollout)
    while rollout.phase != Phase.HELD:
        back, found = rollout.phase == Phase.ROLLING_BACK, stages_of(run, rollout)
        ahead = found if back else lifecycle.onward(found, rollout)
        if not ahead:
            return []
        stage, scope = ahead[0], scope_of(run, rollout)
        fleet = run.conductor.look()
        if engine.deployed(fleet, stage.waypoint) < stage.waypoint.new or engine.batch_out(fleet, scope):
            take = partial(engine.drain_batch, allowed=room_for(run, rollout.replicas), scope=scope)
            serving = {i.id: Composition(i.revision, i.generation, 1) for i in fleet if i.id not in run.record.draining}
            if _walk(run, rollout, replace(stage, gates=()), take):
                return _begun(run, rollout, engine.batch_out(run.conductor.fleet, scope), serving)
        elif back:
            return []
        elif _walk(run, rollout, stage, engine.hold_batch):
            rollout.advance((stage.name,), ahead[1].name if len(ahead) > 1 else "")
            run.conductor.commit()
    return []


def _begun(run: Run, rollout: Rollout, out: Sequence[Instance], serving: Mapping[str, Composition]) -> list[str]:
    """Write down, before the first task, that from now on nobody knows what is there until it has come to a good end; and
    what they were `serving` with."""
    target, now = goal(rollout), clock.now()
    run.record.deployed |= {i.id: Deployment(target.revision, target.generation, now, before=serving.get(i.id)) for i in out}
    run.conductor.commit()
    return list(dict.fromkeys(instance.host for instance in out))


def settle(run: Run, rollout: Rollout, results: Mapping[str, str]) -> None:
    """Put hosts back whose tasks came to a good end; what failed, or does not become ready, stays out, and is counted.
    `results` are the hosts, each with why its tasks failed, or nothing. Where so many failed that what was deployed is taken
    back, the others of the wave stay out as well, and go back together with those that failed."""
    scope, target = scope_of(run, rollout), goal(rollout)
    (stage,) = stages_of(run, rollout)[-1:]
    fleet = _look(run)
    wave = [i for i in engine.batch_out(fleet, scope) if i.host in results and i.generation == target.generation]
    before = engine.deployed(fleet, stage.waypoint)
    rollout.count(rollout.counting(clock.now()).advance(before, len(fleet) - before, (), clock.now()))
    _deployed(run, rollout, wave, target, results)
    if _is_taken_back(run, rollout, stage, wave):
        _judge(run, rollout, wave)
        return
    names = frozenset(i.id for i in wave if not results[i.host] or run.record.deployed[i.id].generation != target.generation)
    run.record.draining = {name: since for name, since in run.record.draining.items() if name not in names}
    put_back = partial(engine.admit_batch, names=names)
    if names and _walk(run, rollout, replace(stage, gates=(), name=rollout.name), put_back):
        for instance in run.conductor.fleet:
            if instance.id in names and instance.draining_since is not None:
                _failed(run, instance, f"not healthy: {instance.detail or 'not in rotation in time'}")
    _judge(run, rollout, wave)


def _deployed(run: Run, rollout: Rollout, wave: Iterable[Instance], target: Composition, results: Mapping[str, str]) -> None:
    """Write down what became of the wave's tasks, and how long they took."""
    record, now, untouched = run.record, clock.now(), unreached(run)
    took = [now - record.deployed[i.id].at for i in wave if i.id in record.deployed]
    rollout.elapsed += max(took, default=0.0)
    for instance in wave:
        before = record.deployed[instance.id].before
        if results[instance.host] and instance.host in untouched and before:
            record.deployed[instance.id] = Deployment(before.revision, before.generation, now)
            _failed(run, instance, results[instance.host], out=False)
        elif results[instance.host]:
            _failed(run, instance, results[instance.host])
        else:
            rollout.replaced += 1
            record.deployed[instance.id] = Deployment(target.revision, target.generation, now)
            run.conductor.event("deployed", instance=instance.id, host=instance.host, revision=target.revision)
    run.conductor.refresh()


def _failed(run: Run, instance: Instance, why: str, out: bool = True) -> None:
    """Write down that it failed; `out`: and stays out of rotation."""
    record = run.record
    record.deployed[instance.id] = replace(record.deployed[instance.id], failed=why)
    if out:
        record.draining.setdefault(instance.id, clock.now())
    else:
        record.draining.pop(instance.id, None)
    run.conductor.event("deployment_failed", instance=instance.id, host=instance.host, reason=why)


def _is_taken_back(run: Run, rollout: Rollout, stage: Stage, wave: Iterable[Instance]) -> bool:
    """Whether so many have failed that what was deployed is taken back, whatever becomes of the others of the wave."""
    deployed, now, fleet = run.record.deployed, clock.now(), run.conductor.fleet
    failures = [Failure(i.id, deployed[i.id].failed) for i in wave if deployed[i.id].failed]
    put_back = engine.deployed(fleet, stage.waypoint)
    exc = _too_many(run, rollout, stage, rollout.counting(now).advance(put_back, len(fleet) - put_back, failures, now))
    return (
        exc is not None
        and _way_back(rollout) is not None
        and lifecycle.consequence(run, stage, rollout, exc) == FailureAction.ROLLBACK
    )


def _too_many(run: Run, rollout: Rollout, stage: Stage, tally: ProgressTracker) -> RolloutFailed | None:
    """The end of a rollout of which as many have failed as may not; a way back takes what it can."""
    bounds = failure_limits(run.conductor.bounds(stage, rollout), tally, stable=False)
    reached = [bound.most for bound in bounds if bound.is_reached]
    if not reached or rollout.phase in (Phase.ROLLING_BACK, Phase.HELD):
        return None
    return RolloutFailed(f"rollout_failure_limit is {reached[0]}")


def _way_back(rollout: Rollout) -> Composition | None:
    """What can be deployed again; None where nobody knows what that was."""
    back = rollout.previous
    return back if back and back.revision != UNKNOWN and back.generation != rollout.generation else None


def _judge(run: Run, rollout: Rollout, wave: Iterable[Instance]) -> None:
    """Count what failed; as many as the limit end the rollout. A way back takes what it can."""
    deployed, now = run.record.deployed, clock.now()
    failures = [Failure(i.id, deployed[i.id].failed) for i in wave if deployed[i.id].failed]
    (stage,) = stages_of(run, rollout)[-1:]
    fleet = run.conductor.look()
    put_back = engine.deployed(fleet, stage.waypoint)
    counted = (put_back, len(fleet) - put_back)
    if rollout.tally is None:
        rollout.count(rollout.counting(now).advance(*counted, (), now))
    rollout.count(rollout.counting(now).advance(*counted, failures, now))
    if exc := _too_many(run, rollout, stage, rollout.counting(now)):
        _ends(run, rollout, stage, exc)
    run.conductor.commit()


def lost(run: Run, out: bool = False) -> dict[str, str]:
    """Which hosts failed, each with the reason; with `out` those that stay out of rotation."""
    record = run.record
    there = [i for i in run.conductor.fleet if i.id in record.deployed and (not out or i.id in record.draining)]
    return {i.host: record.deployed[i.id].failed for i in there if record.deployed[i.id].failed}


def _look(run: Run) -> list[Instance]:
    """The first look of a step: who does not answer is waited for, up to the progress deadline."""
    try:
        run.conductor.await_look()
    except RolloutFailed as exc:
        raise TrafficError(str(exc)) from None  # nothing is decided by that: see `told`
    return run.conductor.fleet


def _told(lost: Mapping[str, str]) -> str:
    return "; ".join(f"{host}: {why}" for host, why in lost.items())


def whole(rollout: Rollout) -> Waypoint:
    """Where it goes now: all instances deployed, forth or back."""
    return rolling(goal(rollout).generation, rollout.replicas)


@contextmanager
def told(run: Run) -> Iterator[None]:
    """Where hosts or load balancers do not answer any more: say what was decided, and what the next run will do."""
    try:
        yield
    except (TrafficError, TransportError, PlatformError) as exc:
        rollout = run.record.open
        if rollout is None:
            raise
        name, target = f"{run.settings.service} {rollout.revision}", goal(rollout)
        mine = {name for name, one in run.record.deployed.items() if one.generation == rollout.generation and not one.failed}
        have = len(mine - run.record.draining.keys())
        so_far = f"{have} of {rollout.replicas} instance(s) have {rollout.revision}"
        if rollout.phase == Phase.ROLLING_BACK:
            what = f"it goes back to {target.revision}, and {so_far}; run it again to finish that"
        elif rollout.phase == Phase.HELD:
            what = f"it is held, and {so_far}; run it again to go on"
        else:
            what = f"{so_far}; run it again to go on"
        why = f" Why: {rollout.reason}" if rollout.reason else ""
        raise RolloutFailed(f"{name}: {what}. {exc}.{why}") from None


def end(run: Run, rollout: Rollout) -> Result:
    """The end of a run: promoted, rolled back, held, or left to the next one. Raises RolloutFailed unless all is well."""
    target, name = goal(rollout), f"{run.settings.service} {rollout.revision}"
    left = [i for i in run.conductor.look() if not engine.is_deployed(i, whole(rollout))]
    failed, out = _told(lost(run)), _told(lost(run, out=True))
    if rollout.phase == Phase.HELD:
        raise RolloutFailed(f"{name} is held: {rollout.reason}; run it again to go on, or abort it (abort.yml) and run it again")
    if any(not run.record.deployed[i.id].failed if i.id in run.record.deployed else True for i in left):
        done = f"{rollout.replicas - len(left)} of {rollout.replicas} instance(s) have {target.revision}"
        return run.parked(
            f"{name}: {done}; the others' hosts are not in this run. Run it for them to go on{f'. Out of rotation: {out}' if out else ''}"
        )
    if rollout.phase == Phase.ROLLING_BACK:
        run.record.stable = target
        lifecycle.close(run, rollout.ending or Outcome.ROLLED_BACK, rollout.reason)
        still = f". Still out of rotation: {out}" if out else ""
        raise RolloutFailed(f"{name}: now {rollout.outcome.replace('_', ' ')} to {target.revision}{still}. Why: {rollout.reason}")
    if failed:
        lifecycle.hold(run, rollout, failed)
        raise RolloutFailed(
            f"{name}: {rollout.replicas - len(left)} of {rollout.replicas} instance(s) have it; run it again for the others. {failed}"
        )
    if lifecycle.onward(stages_of(run, rollout), rollout):
        raise RolloutFailed(f"{name} still waits at {rollout.name}; run it again to go on")
    run.record.stable = target
    lifecycle.turn(run, rollout, Phase.PROMOTING)
    lifecycle.close(run, Outcome.PROMOTED, rollout.reason)
    return run.report(True)


# A walk ---------------------------------------------------------------------------------------------------------------


def _walk(run: Run, rollout: Rollout, stage: Stage, decide: Decide) -> bool:
    """Walk a stage; False where it failed, and what follows from that is written down."""
    if not (rollout.phase.waits or rollout.phase in (Phase.PROMOTING, Phase.ROLLING_BACK)):
        lifecycle.turn(run, rollout, Phase.PROGRESSING)
    rollout.name, replaced = stage.name, rollout.replaced
    try:
        motion = Proceed.SKIP
        while motion in (Proceed.SKIP, Proceed.RENUMBER):
            lifecycle.rescale(run, rollout)
            motion = run.conductor.walk(
                stage,
                goal(rollout).revision,
                rollout,
                lambda: run.describe(False),
                lambda fleet, waypoint, _budget, rules, tally, now: decide(fleet, waypoint, rules, tally, now),
            )
            if motion is Proceed.SKIP and stage.gates:
                break
    except RolloutFailed as exc:
        return _ends(run, rollout, stage, exc)
    finally:
        rollout.replaced = replaced  # it is the user's tasks that replace them
    return True


def _ends(run: Run, rollout: Rollout, stage: Stage, exc: RolloutFailed) -> bool:
    """Write down what follows from a failure; whether the rollout goes on all the same."""
    then, out = lifecycle.consequence(run, stage, rollout, exc), _told(lost(run))
    reason = f"{out} ({exc})" if out else str(exc)
    if then == FailureAction.CONTINUE and isinstance(exc, GateFailed):
        run.conductor.event("gate", message=f"goes on all the same: {exc}", passed=True)
        return True
    record, back = run.record, _way_back(rollout)
    if rollout.phase == Phase.ROLLING_BACK:
        lifecycle.hold(run, rollout, f"{rollout.reason}; and the way back failed: {reason}")
    elif then == FailureAction.ROLLBACK and back:
        lifecycle.go_back(run, rollout, reason, exc.ending)
        # What was taken out and not touched yet goes in again; what failed is worth another try.
        broken = {name for name, one in record.deployed.items() if one.failed or one.generation != back.generation}
        untouched = {i.id for i in run.conductor.fleet if i.generation == back.generation} - broken
        record.draining = {name: since for name, since in record.draining.items() if name not in untouched}
        record.deployed = {name: replace(one, failed="") for name, one in record.deployed.items()}
        run.conductor.refresh()
    else:
        why = (
            f"{reason}; no other revision is known to have been there, so nothing is taken back"
            if then == FailureAction.ROLLBACK
            else reason
        )
        lifecycle.hold(run, rollout, why)
    run.conductor.commit()
    return False
