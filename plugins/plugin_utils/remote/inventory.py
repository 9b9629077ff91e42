# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that options name: found in the inventory, or refused."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.errors import InputError
from .connections import CONTROLLER
from .transport import Transport


def hosts(transport: Transport, pattern: str, variable: str) -> Sequence[str]:
    """Return the hosts that a pattern matches; raise InputError where there are none."""
    names = transport.hosts(pattern)
    if not names:
        raise InputError(
            f"{variable}: {pattern!r} matches no host of the inventory; correct it, or name the"
            " inventory that has them (-i)",
            "PR-110",
        )
    return names


def hosts_or_controller(transport: Transport, pattern: str | None, variable: str) -> Sequence[str]:
    """Return the hosts that a pattern matches, or the controller without a pattern."""
    return hosts(transport, pattern, variable) if pattern else [CONTROLLER]


def host_or_controller(transport: Transport, name: str | None, variable: str) -> str:
    """Return one host of the inventory, or the controller without a name."""
    if not name:
        return CONTROLLER
    if (names := transport.hosts(name)) != [name]:
        what = f"names {len(names)} hosts" if names else "is not in the inventory"
        hint = "name one inventory host, or none for the controller"
        raise InputError(f"{variable}: {name!r} {what}; {hint}", "PR-110")
    return name


def label(host: str) -> str:
    """Return the name of a host in tables and messages."""
    return host or "the controller"
