# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove the files that rollouts of a service have left on this host.

Request: epoch, journal (id and place of this run's), dry (only name them), and `places`, each with
`lock`, `fence` (the file with the epoch), `marks` (the files that name a journal), `files`, `trees`
(folders that are removed with all that is in them), and `folders` (removed if they are empty then,
in this order). A file that a process has open stays, as the log of an instance that runs.
Answer: {"removed": [paths]}, {"stale": why} where a newer lease holder or a run with another
journal has acted here, or {"error": why}.

Needs Python 3.8.
"""

from __future__ import annotations

import os

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _files

TYPE_CHECKING = False  # importing typing costs start-up time
if TYPE_CHECKING:
    import typing as t

    Request = t.Dict[str, t.Any]


def main(request: Request) -> dict[str, t.Any]:
    """Answer a request."""
    try:
        removed: list[str] = []
        for place in request["places"]:
            removed += _leave(place, request)
        return {"removed": sorted(removed)}
    except _files.Stale as exc:
        return {"stale": str(exc)}
    except _files.Refused as exc:
        return {"error": str(exc)}
    except OSError as exc:
        return {"error": "%s: %s" % (exc.filename or "the system", exc.strerror or exc)}


def _leave(place: dict[str, t.Any], request: Request) -> list[str]:
    """Remove the files of one place, its lock last; return their paths."""
    kept = _open_files()
    left = [path for path in _files_of(place) if path not in kept and os.path.lexists(path)]
    for path in place["marks"]:
        _files.JournalMark(path, "the files of the service", request["journal"]).check()
    if request["dry"]:
        return left
    if request["epoch"] <= 0:
        raise _files.Refused("nothing is removed without a lease (epoch 0 only looks)")
    if left:
        with _files.Locked(place["lock"]):
            _files.newer(place["fence"], request["epoch"])
            for path in left:
                _files.discard(path)
            _files.discard(place["lock"])
    for tree in place["trees"]:
        for folder, _folders, _names in os.walk(tree, topdown=False):
            _remove_empty(folder)
    for folder in place["folders"]:
        _remove_empty(folder)
    return left


def _files_of(place: dict[str, t.Any]) -> list[str]:
    """Return the files of a place, whether they are there or not; the lock last."""
    inside = [
        os.path.join(folder, name)
        for tree in place["trees"]
        for folder, _folders, names in os.walk(tree)
        for name in names
    ]
    named = [*place["files"], *place["marks"], place["fence"]]
    return [*sorted({*inside, *named} - {place["lock"]}), place["lock"]]


def _open_files() -> set[str]:
    """Return the files that processes have open, as far as this user may see them."""
    paths = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        folder = "/proc/%s/fd" % name
        try:
            for link in os.listdir(folder):
                paths.add(os.readlink(os.path.join(folder, link)))
        except OSError:  # it has ended, or is another user's
            continue
    return paths


def _remove_empty(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:  # something is in it, or it is not ours, or not there
        pass
