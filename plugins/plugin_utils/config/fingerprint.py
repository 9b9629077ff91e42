# SPDX-License-Identifier: GPL-3.0-or-later
"""The fingerprint of a plan, by which a run recognizes that it may resume a rollout.

An earlier version of the collection may have begun that rollout: what is hashed never changes,
whatever fields are called in the code. The golden values in `test_fingerprint.py` hold this.
"""

from __future__ import annotations

import hashlib
import json
import typing as t
from collections.abc import Mapping
from dataclasses import replace

from ..engine.budget import Percent
from ..engine.strategy import Gate, Groups, Plan, Step, Wave

# The name under which each field is hashed. A field that is renamed keeps its name here.
NAMES: Mapping[type, Mapping[str, str]] = {
    Plan: {
        "strategy": "strategy",
        "steps": "steps",
        "opening": "opening",
        "promotion": "promotion",
        "hold": "hold",
        "standby": "standby",
        "confirm_rollout": "confirm_rollout",
        "confirm_traffic_increase": "confirm_traffic_increase",
        "confirm_promotion": "confirm_promotion",
        "post_rollout": "post_rollout",
        "background": "background",
        "rollback_gates": "rollback_gates",
        "waves": "waves",
    },
    Step: {
        "name": "name",
        "weight": "weight",
        "replicas": "replicas",
        "instances": "instances",
        "gates": "gates",
        "on_failure": "on_failure",
        "reversible": "reversible",
        "failure_limit": "failure_limit",
        "watched": "watched",
        "baseline": "baseline",
        "ahead": "ahead",
    },
    Groups: {
        "size": "size",
        "cycles": "cycles",
        "gates": "gates",
        "failure_limit": "failure_limit",
    },
    Wave: {
        "name": "name",
        "hosts": "hosts",
        "factor": "factor",
        "balancers": "balancers",
        "gates": "gates",
        "clusters": "clusters",
    },
    Gate: {
        "key": "key",
        "driver": "driver",
        "options": "options",
        "interval": "interval",
        "timeout": "timeout",
        "on_timeout": "on_timeout",
        "on_error": "on_error",
        "variable": "variable",
        "early": "early",
        "by_default": "by_default",
    },
    Percent: {"value": "value"},
}
# Fields and options that plans got later, with the values that change nothing: these are left out,
# since an earlier version did not hash them. A new field or option is added here.
LATER: tuple[tuple[str, t.Any], ...] = (
    ("waves", []),
    ("clusters", []),
    ("ahead", None),
    ("early", False),
    ("standby", None),
    ("by_default", False),
)


def fingerprint(plan: Plan) -> str:
    """Return a short hash of the plan, the same in every run and every version.

    It reveals nothing. Default gates are not part of it.
    """
    asked = tuple(gate for gate in plan.background if not gate.by_default)
    text = json.dumps(_plain(replace(plan, background=asked)), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: t.Any) -> t.Any:
    """Return a value as it is hashed."""
    if names := NAMES.get(type(value)):
        return _without_later({name: getattr(value, field) for field, name in names.items()})
    if isinstance(value, Mapping):
        return _without_later(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _without_later(items: Mapping[t.Any, t.Any]) -> dict[t.Any, t.Any]:
    plain = {name: _plain(value) for name, value in items.items()}
    return {name: value for name, value in plain.items() if (name, value) not in LATER}
