# SPDX-License-Identifier: GPL-3.0-or-later
"""A release for people, and as data. No I/O."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ..base.text import columns, moment, printable, span
from ..engine.release import OUT, Place, Release, ReleasePhase, ordered
from ..inputs import shapes

NOTES = 5  # of the log, the last ones
NEXT = {
    ReleasePhase.PROGRESSING: "release.yml, or the rollouts of its members, continue it",
    ReleasePhase.HELD: (
        "release.yml continues it; release.yml with rollout_command: abort takes it back"
    ),
    ReleasePhase.GOING_BACK: "release.yml, or the rollouts of its members, take them back",
}


def places(release: Release) -> str:
    """Return where its members are, in a line."""
    return ", ".join(f"{m.name} {_place(m.place)}" for m in ordered(release.members.values()))


def lines(release: Release, now: float) -> list[str]:
    """Return what is known of a release."""
    phase = "back" if release.phase is ReleasePhase.BACK else release.phase.replace("_", " ")
    why = f": {release.reason}" if release.reason else ""
    head = f"release {release.name} is {phase}{why} (began {moment(release.began)})"
    rows = [["member", "service", "revision", "place", "since", "after", "why"]]
    for member in ordered(release.members.values()):
        kept = "" if member.reversible else " (cannot go back)"
        rows.append(
            [
                member.name,
                member.service,
                member.revision or "-",
                _place(member.place) + kept,
                span(max(0.0, now - member.since)) if member.since else "-",
                ", ".join(member.after) or "-",
                member.reason or "-",
            ]
        )
    log = [f"{moment(note.at)} {note.text}" for note in release.log[-NOTES:]]
    ahead = [f"next: {NEXT[release.phase]}"] if release.phase in NEXT else []
    return [printable(line) for line in (head, *columns(rows), *log, *ahead)]


def data(release: Release) -> dict[str, t.Any]:
    """Return a release as data."""
    return t.cast("dict[str, t.Any]", shapes.write(release))


def ended(release: Release, failed: Sequence[str] = ()) -> str:
    """Return why a release is not promoted; empty: it is.

    `failed` are the members whose turn failed in this run.
    """
    if release.phase is ReleasePhase.PROMOTED:
        return ""
    fixed = [m.name for m in release.members.values() if m.moved and not m.reversible]
    kept = f"; stays, since it cannot go back: {', '.join(fixed)}" if fixed else ""
    held = [m.name for m in release.members.values() if m.place is Place.HELD]
    stuck = f"; held: {', '.join(held)}" if held else ""
    if release.phase is ReleasePhase.BACK:
        return f"release {release.name} was taken back: {release.reason}{kept}{stuck}"
    phase = release.phase.replace("_", " ")
    why = f": {release.reason}" if release.reason else ""
    turns = (
        f" The turn of {', '.join(failed)} failed: correct the cause, which is above."
        if failed
        else ""
    )
    return (
        f"release {release.name} is {phase}{why}; {places(release)}.{turns} Run release.yml again"
    )


def not_taken_back(release: Release) -> str:
    """Return which members of a release that is to be taken back are not back."""
    if release.phase is ReleasePhase.PROMOTED:
        return (
            f"release {release.name} is promoted, and no abort takes it back; use rollback.yml for"
            " each member"
        )
    left = [m for m in ordered(release.members.values()) if m.place in OUT]
    stay = ", ".join(f"{m.name} {_place(m.place)}" for m in left) or places(release)
    return (
        f"release {release.name} is {release.phase.replace('_', ' ')}, and not all members are"
        f" back: {stay}. Run the same command again; the message of each member above says what"
        " keeps it"
    )


def of_service(known: Mapping[str, Release], service: str) -> Release | None:
    """Return the release that a service is a member of, in progress or the last one."""
    mine = [r for r in known.values() if any(m.service == service for m in r.members.values())]
    return mine[-1] if mine else None


def _place(place: Place) -> str:
    return place.replace("_", " ")
