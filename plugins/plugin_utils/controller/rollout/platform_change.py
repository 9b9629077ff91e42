# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a service goes from instances that rollouts start to hosts that are deployed in place, or
back, for which there is no transition.
"""

from __future__ import annotations

from ...base.errors import InputError
from ...engine.model import UNKNOWN
from ...interfaces import loader
from ...interfaces.platform import PlatformDriver
from ...state.record import Record, Rollout
from ..step.context import StepContext


def refuse(step: StepContext) -> None:
    """Refuse a platform of the other kind than what the journal says of the service."""
    record, in_place = step.record, step.in_place
    before = was_in_place(record)
    if before is None or before is in_place:
        return
    known = record.open or record.stable
    revision = known.revision if known else ""
    was = "its hosts were deployed in place" if before else "rollouts started its instances"
    is_ = "deploys hosts in place" if in_place else "starts instances beside them"
    raise InputError(
        f"rollout_platform.driver: {step.settings.platform.name} {is_}, and until {revision} of"
        f" {record.service} {was}: no rollout goes from one to the other. Use another"
        " rollout_service; or run remove.yml with the earlier rollout_platform, after which what"
        f" runs stays, and declare it (rollout_adopt: {{revision: {revision}}})",
        "PR-344",
    )


def was_in_place(record: Record) -> bool | None:
    """Return whether the user's own tasks deployed what runs of a service; None: it is unknown."""
    if record.open:
        return _is_in_place(record.open)
    stable = record.stable
    if stable is None or stable.revision == UNKNOWN:
        return None
    if stable.generation in record.settings:
        return False
    return any(known.generation == stable.generation for known in record.deployed.values())


def _is_in_place(rollout: Rollout) -> bool | None:
    """Return whether a rollout in progress is in place, by the platform that the journal kept."""
    name = (rollout.given.get("platform") or {}).get("driver")
    if not isinstance(name, str):
        return None
    driver = loader.load(PlatformDriver, name, "rollout_platform").driver
    return not driver.capabilities.starts_instances
