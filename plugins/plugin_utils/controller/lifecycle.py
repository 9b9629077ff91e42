# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts as the journal knows them: opened, gone on with, walked, walked back, closed."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from statistics import median

from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import GateFailed, InputError, RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.text import count, moment, size
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import strategy
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import gate_runner, generations, resources
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop import TROUBLE, as_it_is
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.supervisor import Proceed
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Bounds, whole
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.instances import is_orphaned
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Composition,
    FailureAction,
    Instance,
    Phase,
    Process,
    State,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    FINISH,
    PARTS,
    REPLACE,
    Gate,
    InvalidSteps,
    Plan,
    RolloutTarget,
    Stage,
    Waypoint,
    peak,
    remaining,
    rolling,
    stages,
    still_passed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import TrafficDriver
from ansible_collections.progressive.rollout.plugins.plugin_utils.report.messages import ended, left_behind
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import remembered
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Kind, Outcome, Record, Rollout

# Of rollout_traffic: what does not say which load balancers are meant, or how old and new share them.
APART = ("drain_timeout", "preview", "match", "mirror", "retry")


def hold(run: Run, rollout: Rollout, reason: str) -> None:
    """Stop where it is, for a person to decide."""
    turn(run, rollout, Phase.HELD, reason)
    run.conductor.commit()


def turn(run: Run, rollout: Rollout, phase: Phase, reason: str = "") -> None:
    """Enter a phase, and write that down with the next commit."""
    if rollout.turn_to(phase, reason, clock.now()):
        run.conductor.event("phase", phase=phase, **({"reason": reason} if reason else {}))


def asked(run: Run, restart: bool, there: int | None = None) -> tuple[str, int]:
    """The revision and the number asked for; a restart takes those that run, and who goes on those of the rollout under way.
    `there`: how many instances of other revisions there are, where that is only thought of."""
    revision, replicas = run.settings.revision, run.settings.replicas
    if replicas is None and run.in_place:
        replicas = run.conductor.platform.capacity()
    if revision is None or replicas is None:
        record = run.session.read()
        known = record.open or (record.stable if restart else None)
        if restart and known is None:
            raise InputError(f"rollout_restart: nothing is known to run of {run.settings.service}; roll out a revision first")
        if known is not None:
            revision, replicas = revision or known.revision, replicas or known.replicas
    if revision is None:
        raise InputError('rollout_revision: not given; name the revision to roll out ("2.4.1")')
    if replicas is None:
        raise InputError("rollout_replicas: not given; say how many instances there shall be")
    return revision, number(run, replicas, revision, there)


def number(run: Run, asked: int | Bounds, revision: str, there: int | None = None) -> int:
    """How many replicas are asked for, for this revision. What follows the present number stays what it is while a rollout is under
    way, whose own instances are never counted."""
    if isinstance(asked, int):
        return asked
    if there is None:
        record = run.session.read()
        known = record.open if record.open and record.open.revision == revision else record.stable
        if known is None:
            run.conductor.look()  # a journal that was lost is no reason for fewer
            adopt(run)
        there = known.replicas if known else record.stable.replicas if record.stable else 0
    found = asked.of(there)
    if found is None:
        raise InputError(
            f"rollout_replicas: {asked} is as many as run, and nothing of {run.settings.service} does; give a number for the first "
            "deployment (rollout_replicas: 6)"
        )
    return found


def listed(run: Run, generation: int, replicas: int, before: Composition | None, plan: Plan, grown: int = 0) -> tuple[Stage, ...]:
    """The stages of a plan from what is stable to so many replicas; raises InputError where they cannot be walked."""
    allowed = run.settings.budget.resolve(replicas)
    there, stable = (before.replicas, before.generation) if before else (0, 0)
    goal = RolloutTarget(generation, replicas, allowed, there, stable, baseline_of(plan, generation), grown)
    try:
        if not goal.before:
            stages(plan, replace(goal, before=replicas))  # refused at the first rollout, although the second is to walk them
        return stages(plan, goal)
    except InvalidSteps as exc:
        raise InputError(f"rollout_steps: {exc}") from None


def baseline_of(plan: Plan, generation: int) -> int:
    """The number of the generation to compare with: the one after the new one's. 0 where the plan wants none."""
    return generation + 1 if plan.baseline else 0


def stages_of(run: Run, rollout: Rollout) -> tuple[Stage, ...]:
    """Of a rollout under way. Only a new revision, or a restart, is walked to as the strategy says."""
    refuse_in_place(run)
    before = rollout.previous and replace(rollout.previous, replicas=rollout.base or rollout.previous.replicas)
    if before and rollout.kind == Kind.ROLLBACK:
        before = replace(before, generation=0)  # nothing is started of what it leads away from
    found = listed(run, rollout.generation, rollout.replicas, before, plan_of(run, rollout), rollout.grown)
    return evened(found) if rollout.kind == Kind.REBALANCE else found


def evened(found: Iterable[Stage]) -> tuple[Stage, ...]:
    """The stages, on whose way instances leave crowded hosts for emptier ones."""
    return tuple(replace(stage, waypoint=replace(stage.waypoint, rebalance=True)) for stage in found)


def plan_of(run: Run, rollout: Rollout) -> Plan:
    """What is asked for on the way of a rollout: of a way to what ran before, or of scaling, nothing."""
    return replace(run.settings.plan, strategy=rollout.strategy) if rollout.kind.forward else Plan()


def onward(found: Sequence[Stage], rollout: Rollout) -> Sequence[Stage]:
    """The stages of a rollout's list from the one on that is walked to or waited at."""
    if rollout.stage:  # an earlier version only counted them, and asked at `promote` what `replace` asks now
        rollout.passed, rollout.stage = [stage.name for stage in found[: rollout.stage] if stage.name != "replace"], 0
    return remaining(found, rollout.passed)


def renumber(rollout: Rollout, replicas: int, fleet: Iterable[Instance], stages_of: Callable[[Rollout], Sequence[Stage]]) -> None:
    """Go on to another number of replicas, from the same stage: what was found of the one before says nothing (E-39).

    `stages_of` makes the list of a rollout, and raises InputError where the number cannot be walked to: then nothing is changed.
    """
    grown = sum(i.generation == rollout.generation and i.state.counted and i.draining_since is None for i in fleet)
    before, after = stages_of(rollout), stages_of(replace(rollout, replicas=replicas, grown=grown))
    onward(before, rollout)
    rollout.passed, rollout.replicas, rollout.grown = still_passed(before, after, rollout.passed), replicas, grown
    rollout.gates, rollout.background = {}, {}


def rescale(run: Run, rollout: Rollout) -> None:
    """Go on to the number of replicas that an operator asked for, or say why that cannot be."""
    replicas, rollout.wanted = rollout.wanted, 0
    if replicas in (0, rollout.replicas):
        return
    name, before = f"{run.settings.service} {rollout.revision}", rollout.replicas
    try:
        fits(run, replicas, plan_of(run, rollout))
        renumber(rollout, replicas, run.conductor.look(), partial(stages_of, run))
    except InputError as exc:
        run.conductor.event("scale", refused=str(exc), replicas=replicas)
        run.conductor.say(f"{name}: stays at {before} replicas, and is not scaled to {replicas}: {exc}")
    else:
        rollout.tally = None  # the way is another one now
        run.conductor.event("scale", replicas=replicas)
        run.conductor.say(
            f"{name}: scaled from {before} to {replicas} replicas; the gates of {rollout.name or 'the stage'} are asked anew"
        )
    run.conductor.commit()


def refuse_in_place(run: Run, back: bool = False) -> None:
    """Refuse to start and stop instances that the user's own tasks deploy where they are; `back`: say what was before."""
    if run.in_place:
        before = run.session.read().before if back else None
        raise InputError(
            f"rollout_platform.driver: the instances of {run.settings.service} are deployed in place ({run.settings.platform.name}), and "
            "neither started nor stopped; use the playbook in_place.yml, which also goes on with what is under way"
            + (f". To go back, deploy {before.revision}, which was before" if before else "")
        )


def fits(run: Run, replicas: int, plan: Plan) -> None:
    """Refuse what could not be placed, walked or asked: every port is needed while old and new stand side by side."""
    refuse_in_place(run)
    gate_runner.check(plan.gates, run.context)
    capacity, (most, needs) = run.conductor.platform.capacity(), _most(run, replicas, plan)
    if capacity < most:
        raise InputError(
            f"rollout_platform: {len(run.conductor.platform.hosts())} host(s) have room for {capacity} instance(s), but {needs}; "
            "widen rollout_platform.ports or add hosts"
        )
    if plan.strategy == "blue_green" and not run.conductor.balanced:
        raise InputError(
            "rollout_strategy: blue_green switches requests at a load balancer, and rollout_traffic names none; name one, or use rolling"
        )


def _peak(run: Run, replicas: int, plan: Plan, base: int) -> int:
    """The most instances at once where so many are asked for, and `base` stable ones are kept until the promotion."""
    stable = run.record.stable and replace(run.record.stable, replicas=base)
    return peak(listed(run, run.record.generation + 1, replicas, stable, plan), run.settings.budget)


def kept(run: Run, replicas: int, plan: Plan) -> int:
    """How many stable instances are kept until the promotion, where so many are asked for: those that serve now, as far as there is
    room for them beside the new ones. Of those that do not serve no more are made than are asked for."""
    stable, capacity = run.record.stable, min([run.conductor.platform.capacity(), *servers(run.conductor.traffic).values()])
    if stable is None:
        return 0
    serving = sum(i.state is State.READY or (i.state.counted and i.in_rotation and i.lb_healthy) for i in run.conductor.fleet)
    most = min(stable.replicas, max(serving, replicas))
    return next((base for base in range(most, replicas, -1) if _peak(run, replicas, plan, base) <= capacity), min(most, replicas))


def fewer(service: str, base: int, replicas: int) -> dict[str, str]:
    """Where fewer are asked for than run, the message that says so."""
    less = base - replicas
    return {"msg": f"{service}: {base} run, {replicas} are asked for: {less} fewer"} if less > 0 else {}


def fits_balancers(run: Run, replicas: int, plan: Plan) -> None:
    """Refuse more instances than the load balancers have servers for, as `fits` does for ports. Touches nothing, and asks them."""
    pools = [(run.conductor.traffic, *_most(run, replicas, plan))]
    pools += [
        (window.traffic, replicas, f"a preview of rollout_replicas {replicas} needs as many") for window in run.conductor.windows
    ]
    for traffic, most, needs in pools:
        few = {name: number for name, number in servers(traffic).items() if number < most}
        if few:
            there = ", ".join(f"{name} has servers for {number} instance(s)" for name, number in few.items())
            raise InputError(f"rollout_traffic: load balancer {there}, but {needs}; prepare more in its configuration")


def fits_hosts(run: Run, replicas: int, plan: Plan) -> None:
    """Refuse more instances than the hosts have memory for, by what an instance may use; after the platform's check."""
    demand, needs = _demand(run, replicas, plan)
    if excess := demand.excess():
        raise InputError(
            f"rollout_platform.memory: {excess}, but {needs}: {count(demand.each, 'instance')} on a host, which may use "
            f"{size(demand.limits.memory)}; lower rollout_platform.memory or rollout_budget.max_surge, or add hosts"
        )


def tight_hosts(run: Run, replicas: int, plan: Plan) -> list[str]:
    """Lines on hosts whose memory or CPUs may not do for all that is to be there; memory is often less used than allowed."""
    used = resources.used(run.conductor.platform, run.conductor.fleet, run.record.settings)
    return [f"{run.settings.service}: {line}" for line in _demand(run, replicas, plan)[0].tight(used)]


def _demand(run: Run, replicas: int, plan: Plan) -> tuple[resources.Demand, str]:
    """What is needed of a host at the most, and for how many instances, in words."""
    most, needs = _most(run, replicas, plan)
    stable = run.record.stable
    old = run.record.settings.get(stable.generation) if stable else None
    return resources.demand(run.conductor.platform, old, replicas, most), needs


def servers(traffic: TrafficDriver) -> Mapping[str, int]:
    """For how many instances each load balancer has servers; those without a limit are left out."""
    return traffic.capacity()


def _most(run: Run, replicas: int, plan: Plan) -> tuple[int, str]:
    """The most instances that there will be at once, and why, in words."""
    if run.in_place:
        return replicas, f"{replicas} are deployed in place"
    allowed, most = run.settings.budget.resolve(replicas), _peak(run, replicas, plan, replicas)
    why = f"a surge of {allowed.surge}" if most == replicas + allowed.surge else f"rollout_strategy {plan.strategy}"
    return most, f"rollout_replicas {replicas} with {why} needs {most}"


def same_balancers(run: Run) -> None:
    """Refuse a canary or a second set whose load balancers are set up otherwise than the old one's: both cannot be right (E-35)."""
    known = run.record.balancers
    if run.settings.plan.strategy != "rolling" and run.record.stable and known and known != balancers(run):
        raise InputError(
            f"rollout_traffic: was changed since the last rollout of {run.record.service}, and with rollout_strategy "
            f"{run.settings.plan.strategy} old and new share the load balancers; change it with a rolling rollout (restart.yml) first"
        )


def balancers(run: Run) -> str:
    """The settings that decide which load balancers are meant and how, as a hash."""
    options = {key: value for key, value in run.settings.traffic.options.items() if key not in APART}
    text = json.dumps([run.settings.traffic.name, options], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def adopt(run: Run) -> None:
    """A lost journal, or a first deployment that failed and was left, is no lost fleet: what runs carries its revision and
    generation with it, and is what can be gone back to."""
    record = run.record
    there = [report.labels for report in run.conductor.reports if report.process is not Process.STOPPED]
    record.generation = max([record.generation, *(labels.generation for labels in there)])
    numbers = [labels.id.rpartition("-")[2] for labels in there]
    record.serial = max([record.serial, *(int(number) for number in numbers if number.isdecimal())])
    alive = [i for i in run.conductor.fleet if i.state.counted]
    if record.stable is None and record.open is None and alive:
        revision, count = Counter(i.revision for i in alive).most_common(1)[0]
        generation = Counter(i.generation for i in alive if i.revision == revision).most_common(1)[0][0]
        # What serves beside it takes its part of the requests: without that, there would be more of this one.
        serving = [i for i in alive if i.in_rotation]
        weights = [sum(i.weight for i in serving if one in (None, i.revision)) for one in (revision, None)]
        record.stable = Composition(revision, generation, whole(count, *weights))


def open_(run: Run, kind: Kind, revision: str, generation: int, replicas: int, base: int = 0) -> Rollout:
    """Begin a rollout: from here on it is unfinished until it is closed. `base`: what is `kept`; 0: all that is stable."""
    record, now = run.record, time.time()
    forward = kind.forward
    baseline = baseline_of(run.settings.plan, generation) if forward and record.stable else 0
    begin_settings(run, forward, revision, generation, baseline)
    record.generation = max(record.generation, generation, baseline)
    record.balancers = balancers(run)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
    record.rollout = Rollout(
        id=f"{record.service}-{stamp}-{os.getpid()}",
        revision=revision,
        generation=generation,
        replicas=replicas,
        strategy=run.settings.plan.strategy if forward else "rolling",
        previous=record.stable,
        started=now,
        kind=kind,
        updated=now,
        entered=clock.now(),
        plan=strategy.fingerprint(run.settings.plan),
        base=base,
        played=replicas,
        baseline=baseline,
        request=run.session.identity.request,
        host=run.session.identity.host,
        given=remembered.of(run.given),
    )
    run.conductor.event(
        "begin", revision=revision, generation=generation, replicas=replicas, rollout=kind, by=run.session.identity.holder
    )
    run.conductor.commit()
    return record.rollout


def begin_settings(run: Run, forward: bool, revision: str, generation: int, baseline: int) -> None:
    """The settings of the generations that a rollout makes: what is new has those given, what was there before those it had."""
    record = run.record
    if forward or generation > record.generation:
        generations.begin(run, generation, None if forward else generations.last_of(record, revision))
    if baseline and record.stable:
        generations.begin(run, baseline, record.stable.generation)
    if forward and record.stable and generation in record.settings and record.stable.generation not in record.settings:
        run.say(
            f"{record.service}: the settings that {record.stable.revision} was rolled out with are not known; where it is started "
            "again, it has those given now. They are kept from this rollout on"
        )


def resume(run: Run, rollout: Rollout, revision: str, replicas: int, stages_of: Callable[[Rollout], Sequence[Stage]]) -> Result:
    """Go on with the unfinished rollout of this revision; refuse another. `stages_of` makes the list of a rollout."""
    if rollout.revision != revision:
        raise RolloutFailed(
            f"rollout_revision: {revision!r} has to wait, because the rollout of {run.record.service} {rollout.revision} is unfinished "
            f"({rollout.phase}{': ' + rollout.reason if rollout.reason else ''}); run that one again to go on, roll it back (rollback.yml), "
            "or supersede it (rollout_supersede: true)"
        )
    if rollout.plan != strategy.fingerprint(run.settings.plan) and rollout.kind.forward:
        raise RolloutFailed(
            f"rollout_steps: strategy, steps or gates were changed while the rollout of {run.record.service} {rollout.revision} is under way; "
            "run it with those it began with, or abort it (abort.yml) and begin anew"
        )
    if not run.by_word:
        generations.go_on(run, rollout)
    if run.check_mode:
        return would_go_on(run, rollout, replicas)
    changed = rollout.phase == Phase.HELD
    # The same number again is no other one: an operator may have changed it since.
    if replicas not in (rollout.replicas, rollout.played):
        changed = True
        renumber(rollout, replicas, run.conductor.fleet, stages_of)
    rollout.played = replicas
    if rollout.phase == Phase.HELD:
        turn(run, rollout, Phase.PROGRESSING)
        rollout.tally, rollout.gates, rollout.background, rollout.pardoned = None, {}, {}, rollout.failed
        started = (rollout.generation, rollout.baseline)
        mine = [i for i in run.conductor.fleet if i.generation in started and not run.in_place]
        # It was held because of them, or they had their time while it was: they are replaced.
        run.record.draining.update({i.id: time.time() for i in mine if i.state in (State.STARTING, State.NOT_READY)})
    rollout.request, rollout.host = run.session.identity.request, run.session.identity.host
    if not run.by_word:
        rollout.given = remembered.of(run.given)
    run.conductor.event("resume", phase=rollout.phase, by=run.session.identity.holder)
    run.conductor.commit()
    return run.report(
        changed, msg=f"{run.record.service}: goes on with the rollout of {revision} begun at {moment(rollout.started)}"
    )


def supersede(run: Run, rollout: Rollout, revision: str) -> None:
    """End the rollout under way in favour of another revision, whose walk evicts what it left (E-16)."""
    done = run.record.stable is not None and run.record.stable.generation == rollout.generation
    close(run, Outcome.PROMOTED if done else Outcome.SUPERSEDED, f"superseded by {revision}")


def superseded(run: Run, rollout: Rollout, revision: str) -> bool:
    """Whether the rollout under way is to give way to this revision."""
    return (
        run.settings.supersede
        and rollout.kind != Kind.ROLLBACK
        and (rollout.revision != revision or generations.replaced(run, rollout))
    )


def refuse_way_back(rollout: Rollout, service: str) -> None:
    """Raise for a rollout that was decided to go back."""
    if rollout.phase == Phase.ROLLING_BACK:
        raise RolloutFailed(f"{service} {rollout.revision}: {rollout.reason}; it is to be rolled back")


def prepare(run: Run, rollout: Rollout) -> None:
    """Bring what the revision needs to every host, before anything of it is started; what waits for people has it already."""
    if not rollout.passed and rollout.phase == Phase.PROGRESSING:
        wait_at(run, rollout, Gate("prepare", "prepare"), Phase.PROGRESSING)


def wait_at(run: Run, rollout: Rollout, gate: Gate, phase: Phase) -> None:
    """Wait at a gate in this phase, with the fleet kept as it is and in repair."""
    motion = Proceed.RENUMBER
    while motion is Proceed.RENUMBER:
        rescale(run, rollout)
        found = stages_of(run, rollout)
        here = (onward(found, rollout) or found[-1:])[0]
        waypoint = as_it_is(run.conductor.look(), here.waypoint, rollout.previous)
        watched = here.watched and phase != Phase.PROGRESSING  # then there is nothing of it yet
        stage = Stage(gate.key, waypoint, (gate,), waiting=phase, reversible=here.reversible, watched=watched)
        motion = walk_to(run, stage, rollout, revision_of(rollout, waypoint))
    rollout.gates.pop(gate.key, None)
    run.conductor.commit()


def walk(run: Run, rollout: Rollout, part: str) -> None:
    """Through the strategy's stages, up to the last one that this step or one before it walks."""
    mine = PARTS[: PARTS.index(part) + 1]
    while (ahead := onward(stages_of(run, rollout), rollout)) and ahead[0].part in mine:
        if walk_to(run, ahead[0], rollout, revision_of(rollout, ahead[0].waypoint)) is Proceed.RENUMBER:
            rescale(run, rollout)
            continue
        count = 1
        while rollout.full and count < len(ahead) and ahead[count].part == REPLACE:
            count += 1
        rollout.advance((stage.name for stage in ahead[:count]), ahead[count].name if count < len(ahead) else "")
        run.conductor.commit()


def revision_of(rollout: Rollout, waypoint: Waypoint) -> str:
    """What a waypoint's new ones are instances of."""
    return rollout.previous.revision if rollout.previous and waypoint.is_baseline else rollout.revision


def walk_to(run: Run, stage: Stage, rollout: Rollout, revision: str) -> Proceed:
    """To one stage, whose new instances are of `revision`; a failure leaves its decision in the journal before anybody
    acts on it."""
    rollout.name, rollout.asked, rollout.reversible = stage.name, stage.waypoint.weight, stage.reversible
    if rollout.phase != Phase.PROMOTING and not rollout.phase.waits:
        turn(run, rollout, Phase.PROGRESSING)
    run.conductor.event("stage", stage=stage.name, share=stage.waypoint.weight, new=stage.waypoint.new, old=stage.waypoint.old)
    try:
        return run.conductor.walk(stage, revision, rollout, lambda: run.describe(False))
    except RolloutFailed as exc:
        then = consequence(run, stage, rollout, exc)
        if then == FailureAction.CONTINUE and isinstance(exc, GateFailed):
            run.conductor.event("gate", message=f"goes on all the same: {exc}", passed=True)
            return Proceed.GO
        if then == FailureAction.HOLD:
            hold(run, rollout, str(exc))
            left = "; it is held as it is: run it again to go on, or roll it back"
        elif then == FailureAction.CONTINUE:
            close(run, Outcome.FAILED, str(exc))
            left = "; it is left as it is"
        else:
            go_back(run, rollout, str(exc), exc.ending)
            run.conductor.commit()
            turn_back(run, rollout)
            left = ""
        raise RolloutFailed(f"{run.settings.service} {rollout.revision}: {exc}{left}") from None


def consequence(run: Run, stage: Stage, rollout: Rollout, exc: RolloutFailed) -> FailureAction:
    """What follows from a failure: rollback, hold or continue."""
    if rollout.kind == Kind.ROLLBACK:
        return FailureAction.HOLD  # never a rollback of a rollback
    if exc.ending:
        return FailureAction.ROLLBACK  # an operator said so
    then = FailureAction(exc.then) if exc.then else stage.on_failure or run.settings.on_failure
    # A clean-up that fails is no reason to take a good revision back, and some steps cannot be taken back at all. But as long as the
    # old set is kept, going back is open.
    cleaning = stage.part == FINISH and not stage.waypoint.old
    return FailureAction.HOLD if then == FailureAction.ROLLBACK and (cleaning or not stage.reversible) else then


def go_back(run: Run, rollout: Rollout, reason: str, ending: str = "") -> None:
    """Decide that the rollout is walked back."""
    turn(run, rollout, Phase.ROLLING_BACK, reason)
    rollout.ending, rollout.tally, rollout.paused = Outcome(ending) or rollout.ending, None, {}
    rollout.gates, rollout.background = {}, {}


def begin_back(run: Run, rollout: Rollout) -> Sequence[Stage]:
    """The stages of the way back of the fleet as it is: what was to go of the stable revision stays, and what has no request goes."""
    # A first deployment has nothing to go back to: everything of it goes (E-15).
    target = rollout.previous or Composition(rollout.revision, 0, 0)
    run.conductor.spare(target.generation)
    if rollout.generation != target.generation:
        idle = unserved(run.conductor.fleet, rollout.generation, rollout.asked)
        run.record.draining.update({name: clock.now() for name in idle if name not in run.record.draining})
    return way_home(run.conductor.fleet, rollout.asked, target, rollout.baseline, run.settings.headroom)


def revision_back(rollout: Rollout) -> str:
    """What is started on the way back."""
    return rollout.previous.revision if rollout.previous else rollout.revision


def turn_back(run: Run, rollout: Rollout) -> None:
    """The first turn of the way back, at once: where the stable ones can carry all requests, they get them now, not when the step
    `rollback` has begun. What cannot be done now is done there."""
    with suppress(*TROUBLE):
        run.conductor.turn(begin_back(run, rollout)[0], revision_back(rollout), rollout)
        run.conductor.commit()


def walk_back(run: Run, rollout: Rollout) -> None:
    """Old back and in rotation before new goes, within the same budget; where the old set is still warm, in one switch."""
    back = rollout.previous
    if rollout.phase != Phase.ROLLING_BACK:
        go_back(run, rollout, rollout.reason or "rolled back by hand")
    rollout.step = "rollback"
    try:
        for stage in begin_back(run, rollout):
            rollout.name = stage.name
            run.conductor.walk(stage, revision_back(rollout), rollout, lambda: run.describe(False))
            rollout.tally = None
    except RolloutFailed as exc:
        hold(run, rollout, f"{rollout.reason}; and the way back failed: {exc}")
        raise RolloutFailed(
            f"{run.settings.service}: the way back from {rollout.revision} failed: {exc}; it is held as it is"
        ) from None
    run.record.stable = back
    close(run, (rollout.ending or Outcome.ROLLED_BACK) if back else Outcome.FAILED, rollout.reason)


def unserved(fleet: Iterable[Instance], generation: int, asked: int | None) -> list[str]:
    """Who serves nobody of the generation that is left: it goes at once, and never has its first request on the way back."""
    there = [i for i in fleet if i.state.counted]
    if asked != 0 and not any(i.in_rotation for i in there):
        return []  # the balancers were restarted: any of them may have served, and is better than none
    return [i.id for i in there if i.generation == generation and not i.in_rotation]


def way_home(
    fleet: Iterable[Instance], asked: int | None, target: Composition, baseline: int = 0, headroom: Fraction = Fraction(0)
) -> Sequence[Stage]:
    """The stages of the way back of a fleet whose stage asked for this share. The new ones' share only falls on it: they have
    none as soon as the stable ones can carry all requests with their `headroom`. They go before what was started to compare with them."""
    home = replace(rolling(target.generation, target.replicas), baseline=baseline)
    # By weights, whatever the requests were divided by: by number, a big canary with a small share would gain on its way out.
    end = Stage("back", replace(home, weight=100, headroom=headroom))
    there = [i for i in fleet if i.state.counted]
    warm = [i for i in there if i.generation == target.generation and i.state is State.READY and i.lb_healthy]
    others = sum(i.generation != target.generation for i in there)
    if asked != 100 or not 0 < target.replicas <= len(warm) or not others or all(i.in_rotation for i in warm):
        return (end,)
    return Stage("switch back", replace(home, old=others, weight=100)), end


def close(run: Run, outcome: Outcome, reason: str) -> None:
    """The end: what is left of the dead is removed and the history written."""
    record, rollout = run.record, run.record.open
    if rollout is None:
        return
    rollout.step = "finish"
    left = rollout.previous
    if outcome == Outcome.PROMOTED and record.stable and left and left.revision not in (rollout.revision, record.stable.revision):
        # Never a rollback of a rollback: after one there is nothing to go back to.
        record.before = None if rollout.kind == Kind.ROLLBACK else left
    run.conductor.hide()
    run.conductor.forget()
    run.conductor.event("end", outcome=outcome, reason=reason)
    record.close(outcome, reason, time.time())
    generations.prune(record)
    left_there = note_places(run)
    run.conductor.commit()
    run.conductor.say(ended(record.service, rollout))
    if lost := [i for i in run.conductor.fleet if is_orphaned(i)]:
        run.conductor.say(left_behind(record.service, lost))
    for line in left_there:
        run.conductor.say(line)


def note_places(run: Run) -> list[str]:
    """Note which host has which instances. What was left on hosts that are not among ours any more, a sentence each."""
    record, hosts = run.record, set(run.conductor.platform.hosts())
    placed: dict[str, list[str]] = {}
    for instance in run.conductor.fleet:
        if instance.state.counted and instance.host in hosts:
            placed.setdefault(instance.host, []).append(instance.id)
    record.placed = {host: ids for host, ids in record.placed.items() if host not in hosts} | placed
    return elsewhere(run)


def elsewhere(run: Run) -> list[str]:
    """What was left on hosts that were taken out of the platform's, a sentence each."""
    hosts = set(run.conductor.platform.hosts())
    return [
        f"{run.record.service}: left on {host}, which is not in rollout_platform.hosts any more: {', '.join(ids)}; no load balancer sends "
        "requests there. Stop them there, or name the host again, so that the next run counts them; if the host is gone, the step "
        "drain forgets them"
        for host, ids in sorted(run.record.placed.items())
        if host not in hosts
    ]


def forget_places(run: Run, names: Sequence[str]) -> bool:
    """Forget instances on hosts that were taken out of the platform's; whether there were any of these."""
    hosts, before = set(run.conductor.platform.hosts()), dict(run.record.placed)
    kept = {host: [name for name in ids if host in hosts or name not in names] for host, ids in before.items()}
    run.record.placed = {host: ids for host, ids in kept.items() if ids}
    return run.record.placed != before


def idle_hosts(run: Run) -> str:
    """Which hosts have no instance, where others have several, in a sentence; or nothing."""
    there = Counter(i.host for i in run.conductor.fleet if i.state.counted)
    idle = [host for host in run.conductor.platform.hosts() if not there[host]]
    if not idle or max(there.values(), default=0) < 2 or run.in_place:
        return ""
    return f"{run.record.service}: no instance on {', '.join(idle)}; the next rollout, or restart.yml, places some there, and so does rollout_rebalance: true"


def way_back(run: Run, to: str | None = None) -> Composition | None:
    """Where a rollback goes while no rollout is under way: to the revision asked for, which was promoted once; else from
    what was left where it failed, or only scaled, to the stable revision; otherwise to the one before it. None where there
    is nothing to undo; a rollback is never undone."""
    record = run.record
    if to is not None:
        return _kept(run, to)
    if record.stable is None or record.rollout is None or _rolled_back(record.rollout):
        return None
    if record.rollout.outcome == Outcome.FAILED or record.rollout.revision != record.stable.revision:
        return record.stable
    if record.before is None:
        return None
    return Composition(record.before.revision, record.generation + 1, _number_back(run, record.stable.replicas))


def _number_back(run: Run, known: int) -> int:
    """How many replicas a rollback goes to: as many as are asked for, or as are stable."""
    given = run.settings.replicas
    return given if isinstance(given, int) else (given.of(known) if given else None) or known


def _kept(run: Run, to: str) -> Composition | None:
    """A revision that is known to have been stable."""
    record = run.record
    known = [c.revision for c in (record.stable, record.before) if c]
    known += [one["revision"] for one in reversed(record.history) if one.get("outcome") == Outcome.PROMOTED]
    if to not in known:
        raise InputError(
            f"rollout_to: {to!r} was never promoted as a revision of {record.service}; known are: {', '.join(dict.fromkeys(known)) or 'none'}"
        )
    if record.stable is None or record.stable.revision == to:
        return None
    return Composition(to, record.generation + 1, _number_back(run, record.stable.replicas))


def open_rollback(run: Run, back: Composition) -> Rollout:
    """A rollout to where a rollback goes."""
    failed, stable = run.record.rollout, run.record.stable
    left = failed if back == stable else stable
    rollout = open_(run, Kind.ROLLBACK, back.revision, back.generation, back.replicas, kept(run, back.replicas, Plan()))
    rollout.step, rollout.reason = "rollback", f"rolled back from {left.revision if left else 'nothing'}"
    return rollout


def _rolled_back(rollout: Rollout) -> bool:
    return rollout.outcome in (Outcome.ROLLED_BACK, Outcome.ABORTED) or (rollout.kind == Kind.ROLLBACK and rollout.over)


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
    if record.stable is not None and record.stable.revision == revision:
        return would_open(run, Kind.SCALE, revision, record.stable.generation, replicas)
    return would_open(run, Kind.ROLLOUT, revision, record.generation + 1, replicas)


def would_open(run: Run, kind: Kind, revision: str, generation: int, replicas: int) -> Result:
    """Check mode of `open_`."""
    plan, stable = run.settings.plan if kind.forward else Plan(), run.record.stable
    base = kept(run, replicas, plan)
    found = listed(run, generation, replicas, stable and replace(stable, replicas=base), plan)
    if kind == Kind.REBALANCE:
        found = evened(found)
    return run.would([stage.waypoint for stage in found], revision, **fewer(run.record.service, base, replicas))


def would_go_on(run: Run, rollout: Rollout, replicas: int) -> Result:
    """Check mode of going on with a rollout under way."""
    if rollout.phase == Phase.ROLLING_BACK:
        return would_roll_back(run)
    rollout = replace(rollout)
    if replicas not in (rollout.replicas, rollout.played):
        renumber(rollout, replicas, run.conductor.fleet, partial(stages_of, run))
    ahead = onward(stages_of(run, rollout), rollout)
    return run.would([stage.waypoint for stage in ahead] or [rolling(rollout.generation, replicas)], rollout.revision)


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


def would_roll_back(run: Run, to: str | None = None) -> Result:
    """Check mode of a rollback."""
    record = run.record
    if record.open is not None:
        rollout = record.open
        back = rollout if rollout.kind == Kind.ROLLBACK else rollout.previous or Composition(rollout.revision, 0, 0)
        return run.would([rolling(back.generation, back.replicas)], back.revision)
    before = way_back(run, to)
    if before is None:
        return run.report(False, msg=nothing_to_undo(record))
    return run.would([rolling(before.generation, before.replicas)], before.revision)


def measured(run: Run) -> tuple[float, float] | None:
    """The median seconds instances took to be ready and to go, by the timeline of the last rollout; None if it shows none."""
    rollout = run.record.rollout
    first: dict[str, dict[str, float]] = {}
    for event in run.session.store.timeline(rollout.id) if rollout else ():
        if event.get("kind") == "state" and event.keys() >= {"instance", "state", "at"}:
            first.setdefault(event["instance"], {}).setdefault(event["state"], event["at"])
    starts = [states["ready"] - states["starting"] for states in first.values() if states.keys() >= {"starting", "ready"}]
    stops = [states["stopped"] - states["draining"] for states in first.values() if states.keys() >= {"draining", "stopped"}]
    return (median(starts), median(stops) if stops else 0.0) if starts else None
