# SPDX-License-Identifier: GPL-3.0-or-later
"""What a step is asked for: which revision, and how many replicas of it."""

from __future__ import annotations

from ...base.errors import InputError
from ...engine.budget import Bounds, PerHost
from ...state.record import Rollout, RolloutKind
from ..step.context import StepContext
from .adoption import adopt, running
from .generations import Generations


def requested(
    step: StepContext, restart: bool = False, present: int | None = None
) -> tuple[str, int]:
    """Return the revision and the number of replicas asked for.

    What is not given is that of the rollout in progress, or for a restart that of the stable
    revision. `present` is the number of instances of other revisions in a fleet that is only
    hypothetical.
    """
    revision, replicas = step.settings.revision, step.settings.replicas
    if present is None and step.loop.platform.capabilities.refills_places:
        replicas = _as_there_are(step)
    if replicas is None and step.in_place:
        replicas = step.loop.platform.capacity()
    if replicas is None and step.session.read().open is None:
        replicas = _of_workload(step)
    if revision is None or replicas is None:
        record = step.session.read()
        known = record.open or (record.stable if restart else None)
        if restart and known is None:
            raise InputError(
                f"rollout_restart: no revision of {step.settings.service} is known to run; roll out"
                " a revision first",
                "PR-609",
            )
        if known is not None:
            revision = revision or known.revision
            replicas = known.replicas if replicas is None else replicas
    if revision is None:
        raise InputError(
            'rollout_revision: required; name the revision to roll out ("2.4.1")', "PR-102"
        )
    if replicas is None:
        raise InputError("rollout_replicas: required; give the number of instances", "PR-102")
    return revision, _number(step, replicas, revision, present)


def _as_there_are(step: StepContext) -> int | None:
    """Return the platform's own number of instances, which cannot be changed from here."""
    present, given = step.loop.platform.replicas(), step.settings.replicas
    known = step.session.read().open
    if given not in (None, present) and not isinstance(given, Bounds):
        raise InputError(
            f"rollout_replicas: {given} asked for, and this workload says itself that it has"
            f" {present}; remove it, and scale the workload",
            "PR-107",
        )
    return known.replicas if known and step.settings.revision in (None, known.revision) else present


def _of_workload(step: StepContext) -> int | None:
    """Return how many instances the workload itself asks for; None: it does not say.

    With 0, what is started later is to be of the new revision. At a first deployment, 0 is that of
    a workload made for rollouts, which says nothing.
    """
    number = step.loop.platform.replicas()
    return number if number or step.session.read().stable else None


def _number(
    step: StepContext, asked: int | Bounds | PerHost, revision: str, present: int | None
) -> int:
    """Return the number of replicas asked for, where it may follow the present number.

    A rollout in progress keeps its number: its own instances are never counted.
    """
    if isinstance(asked, int):
        return asked
    if isinstance(asked, PerHost):
        return len(step.loop.platform.hosts()) if present is None else present
    if present is None:
        present = _present(step, revision)
    if not present and asked == Bounds() and _of_workload(step) == 0:
        return 0
    replicas = asked.of(present)
    if replicas is None:
        raise InputError(
            f"rollout_replicas: {asked} follows the number of running instances, and none of"
            f" {step.settings.service} runs; give a number for the first deployment"
            " (rollout_replicas: 6)",
            "PR-106",
        )
    return replicas


def _present(step: StepContext, revision: str) -> int:
    """Return how many instances carry the requests now, without those of the rollout itself."""
    known = step.session.read().open
    if known and known.revision == revision:
        return known.replicas
    if known is None and (asked := _of_workload(step)) is not None:
        return asked  # what scales the service may have changed it
    step.loop.observe_fleet()
    adopt(step)
    stable = step.session.record.stable
    if stable is None:
        return known.replicas if known else 0
    # More may run than the journal knows of; fewer may be an accident.
    return max(stable.replicas, known.base if known else 0, running(step.loop.fleet, stable))


def supersedes(step: StepContext, revision: str, rollout: Rollout) -> bool:
    """Return whether this revision is to supersede the rollout in progress."""
    return (
        step.settings.supersede
        and rollout.kind != RolloutKind.ROLLBACK
        and (rollout.revision != revision or Generations(step).replaced(rollout))
    )


def whole_replicas(step: StepContext) -> int:
    """Return rollout_replicas of a step that needs a plain number."""
    replicas = step.settings.replicas
    if isinstance(replicas, int):
        return replicas
    what = "required" if replicas is None else f"{replicas} is not a whole number"
    raise InputError(
        f"rollout_replicas: {what}; give the number of instances",
        "PR-102" if replicas is None else "PR-104",
    )


def target_of_step(step: StepContext) -> tuple[int, str]:
    """Return generation and revision that a step works on."""
    record, revision = step.record, step.settings.revision
    for known in (record.open, record.stable):
        if known is not None and revision in (None, known.revision):
            return known.generation, known.revision
    if revision is None:
        raise InputError(
            f"rollout_revision: required, since no revision of {record.service} is known to run;"
            " name the revision",
            "PR-102",
        )
    return record.generation + 1, revision
