# SPDX-License-Identifier: GPL-3.0-or-later
"""A revision that was stable not long ago, which is rolled out again without steps."""

from __future__ import annotations

from ...base import clock
from ...base.text import span
from ...engine.plans import one_walk
from ...engine.strategy import Plan
from ..step.context import StepContext
from .generations import Generations, given, last_of


def plan_of(step: StepContext, revision: str) -> Plan:
    """Return the plan that a new rollout of the revision follows; tell where it has no steps."""
    settings, left = step.settings, step.record.left_at(revision)
    if not settings.known_good or left is None:
        return settings.plan
    ago, title = clock.wall() - left, f"{settings.service} {revision}"
    if ago > settings.known_good:
        return settings.plan
    if changed := _changed(step, revision):
        step.print_line(
            f"{title}: was stable {span(ago)} ago, but not with these settings ({changed}); it"
            " takes all steps"
        )
        return settings.plan
    step.print_line(
        f"{title}: was stable {span(ago)} ago; rolled out without steps (rollout_known_good)"
    )
    return one_walk(settings.plan)


def _changed(step: StepContext, revision: str) -> str:
    """Return how the settings differ from those that the revision had; "" if they do not."""
    if given(step.settings) is None:
        return ""  # the platform keeps them itself
    generation = last_of(step.record, revision)
    if generation is None:
        return "these are not known any more"
    return "; ".join(Generations(step).differences(revision, generation))
