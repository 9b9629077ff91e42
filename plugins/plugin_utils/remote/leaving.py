# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove the files of a service from hosts, by `agents/leave.py`."""

from __future__ import annotations

import os
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from ..base.errors import LeaseLost, RolloutError
from ..base.text import clean
from .agents import shaped
from .inventory import label
from .transport import Transport

TIMEOUT = 60.0  # seconds for a host


class Removed(t.TypedDict):
    """The files that were removed."""

    removed: list[str]


class Stale(t.TypedDict):
    """That a newer lease holder has acted there."""

    stale: str


class Failed(t.TypedDict):
    """Why files were not removed."""

    error: str


@dataclass(frozen=True)
class LeftFiles:
    """Files of a service in one place, as `agents/leave.py` takes them."""

    lock: str
    fence: str
    marks: Sequence[str] = ()
    files: Sequence[str] = ()
    trees: Sequence[str] = ()
    folders: Sequence[str] = ()


def at_stem(stem: str, files: Sequence[str] = (), folders: Sequence[str] = ()) -> LeftFiles:
    """Return what a load balancer's agent keeps: `STEM.lock`, `STEM.epoch` and `STEM.journal`."""
    return LeftFiles(f"{stem}.lock", f"{stem}.epoch", [f"{stem}.journal"], files, (), folders)


def of_host(path: str, host: str, service: str) -> LeftFiles:
    """Return what the agents that run instances keep below `path`."""
    home = os.path.join(path, host, service)
    names = (os.path.join(home, name) for name in ("lock", "epoch", "journal"))
    lock, fence, mark = names
    folders = [os.path.join(path, host), os.path.join(path, "env"), path]
    return LeftFiles(lock, fence, [mark], (), [home], folders)


def leave(
    transport: Transport,
    places: Mapping[str, Sequence[LeftFiles]],
    run: Mapping[str, t.Any],
    error: type[RolloutError],
) -> list[str]:
    """Remove the files on these hosts, all at once; return them, each with its host.

    `run` has the epoch, the journal, and whether files are only named (`dry`). Raises `error` with
    the hosts that could not, once all were asked.
    """
    requests = {
        host: {**run, "places": [asdict(place) for place in mine]} for host, mine in places.items()
    }
    removed, problems = [], []
    for host, given in transport.ask("leave", requests, TIMEOUT).items():
        answer = shaped(given, Removed | Stale | Failed)
        value = answer.value or {}
        if "stale" in value:
            raise LeaseLost(f"{label(host)}: {value['stale']}", "PR-503")
        removed += [f"{label(host)}: {clean(path)}" for path in value.get("removed", ())]
        if "removed" not in value:
            problems.append(f"{label(host)}: {clean(value.get('error') or answer.error)}")
    if problems:
        raise error(
            f"files of the service are left on {'; '.join(problems)}; mend that, and run it again",
            "PR-517",
        )
    return removed
