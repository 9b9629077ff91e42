# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse `rollout_adopt`: what runs before the first rollout."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from ..base.errors import InputError
from ..inputs import values
from ..inputs.options import Field, Kind, Options, one_or_more

VARIABLE = "rollout_adopt"


def _server(value: t.Any, variable: str) -> str:
    """Return the name of an entry of a load balancer."""
    name = values.line(value, variable)
    if not name:
        raise InputError(f"{variable}: must not be empty; name a server", "PR-125")
    return name


OPTIONS = Options(
    Field(
        "revision",
        Kind("str", values.revision),
        "The revision that runs.",
        required=True,
    ),
    Field(
        "servers",
        one_or_more(Kind("str", _server)),
        "The entries that it has at the load balancers, by their names there. None if not given.",
    ),
)


@dataclass(frozen=True)
class Adoption:
    """What runs before the first rollout, as the variables say."""

    revision: str
    servers: tuple[str, ...]  # entries at the load balancers


def parse(given: Mapping[str, t.Any]) -> Adoption | None:
    """Return what runs before the first rollout; None: it is not declared."""
    if not given:
        return None
    options = OPTIONS.parse(given, f"{VARIABLE}.")
    servers = options["servers"] or ()
    if twice := next((name for name in servers if servers.count(name) > 1), None):
        raise InputError(
            f"{VARIABLE}.servers: {twice} is in the list twice; remove one of them", "PR-107"
        )
    return Adoption(options["revision"], tuple(servers))
