# SPDX-License-Identifier: GPL-3.0-or-later
"""What an autoscaler is set to while a rollout lasts, and what it is set back to."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from . import model
from .model import Instance
from .strategy import Waypoint

State = Mapping[str, t.Any]  # the fields of an autoscaler that a rollout may change


def minimum(waypoint: Waypoint, least: int, most: int) -> int:
    """Return the minimum of an autoscaler with which the waypoint's instances stay.

    They are what the strategy allots: the same number decides what is started and what the
    autoscaler keeps. `most` binds, and what is there already (`least`) is not lowered.
    """
    return min(max(least, waypoint.new + waypoint.old), most)


def measured(fleet: Sequence[Instance]) -> int:
    """Return how many instances the metrics of a service are of: those that start have none."""
    return sum(
        instance.state.counted and instance.state is not model.State.STARTING for instance in fleet
    )


def foreign(now: State, original: State, ours: Sequence[State]) -> list[str]:
    """Return the fields that somebody else has changed since a rollout set them to `ours`."""
    return [
        name
        for name, before in original.items()
        if now.get(name) != before and all(now.get(name) != state.get(name) for state in ours)
    ]


def put_back(now: State, original: State, ours: Sequence[State]) -> dict[str, t.Any]:
    """Return the state with the original fields, but for those that somebody else has changed.

    Where a minimum put back would exceed somebody else's maximum, or the other way round, theirs
    binds.
    """
    theirs = foreign(now, original, ours)
    after = {**now, **{name: value for name, value in original.items() if name not in theirs}}
    least, most = after.get("min"), after.get("max")
    if least is not None and most is not None and least > most:
        if "max" in theirs or "max" not in original:
            after["min"] = most
        else:
            after["max"] = least
    return after
