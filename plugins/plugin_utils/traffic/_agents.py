# SPDX-License-Identifier: GPL-3.0-or-later
"""What the agents on load balancers' hosts answer, looked at before it is believed. Pure."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from types import MappingProxyType

from ..base.errors import LeaseLost
from ..base.messages import MESSAGES
from ..base.text import clean
from ..remote.agents import Answer
from ..remote.inventory import label

ENTRY: Mapping[str, type] = MappingProxyType(
    {"address": str, "port": int, "in": bool, "weight": int, "name": str, "active": int}
)


def read(
    answers: Mapping[str, Answer], program: str, entry: Mapping[str, type] = ENTRY
) -> dict[str, dict[str, t.Any]]:
    """Return by host either `entries`, each with these keys, or `error`.

    `program` is what messages call the load balancer. Raises LeaseLost where a newer lease holder
    has acted.
    """
    values = {host: _value(answer, entry) for host, answer in answers.items()}
    stale = [
        f"{program} on {label(host)}: {value['stale']}"
        for host, value in values.items()
        if "stale" in value
    ]
    if stale:
        raise LeaseLost("; ".join(stale))
    return values


def _value(answer: Answer, entry: Mapping[str, type]) -> dict[str, t.Any]:
    value: t.Any = answer.value
    if value is None:
        return {"error": answer.error or "its agent answered nothing", "id": answer.id}
    if isinstance(value, dict):
        if any(isinstance(value.get(kind), str) for kind in ("stale", "error")):
            return value
        entries = value.get("entries")
        if isinstance(entries, list) and all(_is(item, entry) for item in entries):
            return value
    return {"error": f"its agent does not answer as expected: {clean(value)}", "id": "PR-212"}


def id_of(values: Mapping[str, Mapping[str, t.Any]]) -> str:
    """Return the id of a message about all errors that hosts answered: of the first of them."""
    first = next(value for value in values.values() if "error" in value)
    if first.get("field"):
        return "PR-301" if first["field"] == "admin" else "PR-304"
    return str(first["id"]) if first.get("id") in MESSAGES else "PR-300"


def _is(value: t.Any, entry: Mapping[str, type]) -> bool:
    return isinstance(value, dict) and all(
        isinstance(value.get(key), kind) for key, kind in entry.items()
    )
