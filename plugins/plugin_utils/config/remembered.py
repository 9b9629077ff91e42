# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings that a rollout began with, as the journal keeps them, without secrets.

Operator commands need not repeat them.
"""

from __future__ import annotations

import hashlib
import json
import typing as t
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ..base.errors import InputError
from ..health import spec
from ..inputs import values
from ..inputs.options import Options
from ..interfaces import loader
from ..interfaces.autoscaler import AutoscalerDriver
from ..interfaces.driver import BaseDriver
from ..interfaces.gate import GateDriver
from ..interfaces.metric import MetricDriver
from ..interfaces.platform import PARTS, PlatformDriver
from ..interfaces.traffic import TrafficDriver
from ..state.record import Record, Rollout

SECRET = "<secret, not kept>"  # instead of a value
# Arguments that identify the rollout, or concern one run only.
NOT_KEPT = (
    "service",
    "revision",
    "replicas",
    "store",
    "supersede",
    "order",
    "older",
    "new_check",
    "notify",
)
# Arguments of this run that override those kept, unless they are the defaults that roles pass.
OF_RUN: Mapping[str, t.Any] = {
    "wait": "1h",
    "freeze": [],
    "window": None,
    "report": "",
    "notify": [],
    "metrics": {},
}


def of(args: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return what to keep of a step's arguments, which were checked.

    What is empty is not given, but for an analysis: an empty one is none, in place of the default.
    """
    given = {
        name: value
        for name, value in args.items()
        if name not in NOT_KEPT
        and (value not in (None, "", {}, []) or (name, value) == ("analysis", {}))
    }
    return {name: READ[name](value) if name in READ else value for name, value in given.items()}


def of_rollout(record: Record) -> dict[str, t.Any]:
    """Return the arguments that the rollout in progress continues with.

    The hosts keep its platform's secrets.
    """
    rollout = record.open
    if rollout is None:
        return {}
    given = dict(rollout.given)
    if given.get("strategy") == "canary" and given.get("hold") == "30s":
        del given["hold"]  # the default in earlier versions, which had no effect
    platform = dict(given.get("platform", {}))
    if rollout.generation in record.settings:
        platform = _without_secrets(platform)
        if isinstance(platform.get(PARTS), Mapping):
            parts = platform[PARTS].items()
            platform[PARTS] = {name: _without_secrets(options) for name, options in parts}
    return {**given, "platform": platform} if platform else given


def digest(rollout: Rollout) -> str:
    """Return what tells whether a rollout continues with other arguments by now; "" if none are
    kept.
    """
    text = json.dumps(rollout.given, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16] if rollout.given else ""


def _without_secrets(options: Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {name: value for name, value in options.items() if value != SECRET}


def restored(kept: Mapping[str, t.Any], args: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the arguments to continue with: those kept, with the secrets given now.

    Raises InputError for missing secrets.
    """
    missing: list[str] = []
    filled = {
        name: _filled(value, args.get(name), f"rollout_{name}", missing)
        for name, value in kept.items()
    }
    if missing:
        variables = dict.fromkeys(path.partition(".")[0].partition("[")[0] for path in missing)
        raise InputError(
            f"{', '.join(missing)}: secret, so the journal does not have it; also pass "
            f"{' and '.join(variables)}, as when the rollout began",
            "PR-116",
        )
    options = {
        name: args[name]
        for name, default in OF_RUN.items()
        if args.get(name) not in (None, "", default)
    }
    return {
        **{name: args[name] for name in ("service", "store") if name in args},
        **filled,
        **options,
    }


def _filled(kept: t.Any, given: t.Any, path: str, missing: list[str]) -> t.Any:
    if kept == SECRET:
        if given in (None, "", {}, []):
            missing.append(path)
        return given
    if isinstance(kept, Mapping):
        theirs = given if isinstance(given, Mapping) else {}
        return {
            name: _filled(value, theirs.get(name), f"{path}.{name}", missing)
            for name, value in kept.items()
        }
    if isinstance(kept, list):
        listed = given if isinstance(given, list) else []
        return [
            _filled(v, listed[n] if n < len(listed) else None, f"{path}[{n}]", missing)
            for n, v in enumerate(kept)
        ]
    return kept


def _marked(table: Options, given: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return options with a mark instead of secrets: by the table, or a URL that holds one."""
    secret = table.parted(given)[1]
    return {
        name: SECRET if name in secret or (value and holds_secret(value)) else value
        for name, value in given.items()
    }


def holds_secret(value: t.Any) -> bool:
    """Return whether a value is a URL with a password, or a query that may be a token."""
    if not isinstance(value, str) or "://" not in value:
        return False
    try:
        parts = urllib.parse.urlsplit(value)
    except ValueError:
        return True
    return "@" in parts.netloc or bool(parts.query)


def _driven(kind: type[BaseDriver], default: str, given: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the options of a driver without its secrets."""
    spec = loader.load(kind, str(given.get("driver", default)), "driver").options
    marked = _marked(spec, given)
    if kind is PlatformDriver and isinstance(marked.get(PARTS), Mapping):
        marked[PARTS] = {name: _driven(kind, "", part) for name, part in marked[PARTS].items()}
    if isinstance(marked.get("metrics"), list):
        marked["metrics"] = [
            _driven(MetricDriver, "load_balancer", metric) for metric in marked["metrics"]
        ]
    return marked


_gate = partial(_driven, GateDriver, "approval")
_analysis = partial(_driven, GateDriver, "analysis")


def _steps(given: t.Any) -> t.Any:
    """Return a list of steps, or groups with gates, without secrets."""
    if isinstance(given, Mapping):
        return (
            {**given, "gates": [_gate(entry) for entry in given["gates"]]}
            if given.get("gates")
            else dict(given)
        )
    return [dict(_step(entry)) for entry in given]


def _step(given: Mapping[str, t.Any]) -> Iterator[tuple[str, t.Any]]:
    for name, value in given.items():
        yield (
            name,
            (
                {"gate": _gate, "analysis": _analysis}[name](value or {})
                if name in ("gate", "analysis")
                else value
            ),
        )


def _calls(given: Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {call: [_gate(gate) for gate in gates or ()] for call, gates in given.items()}


def _targets(given: t.Any) -> t.Any:
    return [
        {**target, "gates": [_gate(gate) for gate in target["gates"]]}
        if target.get("gates")
        else target
        for target in given
    ]


READ: Mapping[str, Callable[[t.Any], t.Any]] = {
    "platform": partial(_driven, PlatformDriver, ""),
    "traffic": partial(_driven, TrafficDriver, "none"),
    "autoscaler": partial(_driven, AutoscalerDriver, ""),
    "health": lambda given: _marked(spec.table(given), given),
    "steps": _steps,
    "gates": _calls,
    "analysis": _analysis,
    "approval": _gate,
    "hold": lambda given: values.duration(given, "rollout_hold"),
    "targets": _targets,
}
