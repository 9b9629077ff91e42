# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse `rollout_release`: which release a service is a member of, and what comes before it."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from ..base.errors import InputError
from ..inputs import values
from ..inputs.options import DURATION, FLAG, MAPPING, Field, Kind, Options, one_or_more

if t.TYPE_CHECKING:
    from ..engine.release import Member  # few services are members of a release

VARIABLE = "rollout_release"
MOST = 100  # members
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,62}")


def _name(value: t.Any, variable: str) -> str:
    """Return the name of a release."""
    name = values.revision(value, variable)
    if not _NAME.fullmatch(name):
        raise InputError(f"{variable}: {name!r} is longer than 63; shorten it", "PR-104")
    return name


_MEMBER = Kind("str", values.service)
_OF_MEMBER = (
    Field(
        "after",
        one_or_more(_MEMBER),
        "The members that are promoted before anything of this one is started.",
    ),
    Field(
        "soak",
        DURATION,
        "For how long those must have been promoted. They are watched meanwhile. V(0) if not"
        " given.",
    ),
    Field(
        "reversible",
        FLAG,
        "V(false) if the member cannot go back, as a schema migration. It keeps no old side, and"
        " what fails after it began holds the release instead of taking it back. V(true) if not"
        " given.",
    ),
)
MEMBER = Options(
    Field("service", _MEMBER, "Its O(service). The member's name if not given."), *_OF_MEMBER
)
OPTIONS = Options(
    Field(
        "name",
        Kind("str", _name),
        "Name of the release, such as V(2026.47). Each release needs a new one.",
        required=True,
    ),
    Field(
        "members",
        MAPPING,
        "All members by name, each with C(service), C(after), C(soak) and C(reversible). Required"
        " for the member that begins first; the others may leave it out, or have to give the same.",
    ),
    Field(
        "member",
        _MEMBER,
        "Which member this service is. The one with this O(service), or of its name, if not given.",
    ),
    *_OF_MEMBER,
    Field(
        "with_canary",
        FLAG,
        "Whether all members take the steps of their canaries together: none leaves a step before"
        " all have passed it.",
        default=False,
    ),
)


@dataclass(frozen=True)
class Membership:
    """The release that a service is a member of, as its variables say."""

    release: str
    member: str
    with_canary: bool
    members: tuple[Member, ...]  # all; none: another member declares them
    declared: Mapping[str, t.Any]  # what is said of this one alone: after, soak, reversible


def parse(given: Mapping[str, t.Any], service: str) -> Membership | None:
    """Return which release a service is a member of; None: of none."""
    if not given:
        return None
    options = OPTIONS.parse(given, f"{VARIABLE}.")
    of_member = {name: options[name] for name in ("after", "soak", "reversible")}
    of_member = {name: value for name, value in of_member.items() if value is not None}
    listed = members(options["members"], options["with_canary"]) if options["members"] else ()
    member = _of(service, options["member"], listed)
    return Membership(options["name"], member, options["with_canary"], listed, of_member)


def members(given: Mapping[str, t.Any], with_canary: bool) -> tuple[Member, ...]:
    """Return the members of a release."""
    from ..engine.release import problem  # as above

    variable = f"{VARIABLE}.members"
    if len(given) > MOST:
        raise InputError(f"{variable}: {len(given)} are more than {MOST}; release fewer", "PR-104")
    listed = [_member(name, value, f"{variable}.{name}") for name, value in given.items()]
    if wrong := problem(listed, with_canary):
        raise InputError(f"{variable}: {wrong}", "PR-134")
    return tuple(listed)


def _member(name: t.Any, given: t.Any, variable: str) -> Member:
    from ..engine.release import Member  # as above

    name = values.service(name, f"{VARIABLE}.members")
    options = MEMBER.parse(values.mapping(given or {}, variable), f"{variable}.")
    return Member(
        name,
        options["service"] or name,
        tuple(dict.fromkeys(options["after"] or ())),
        float(options["soak"] or 0),
        options["reversible"] is not False,
    )


def _of(service: str, given: str | None, listed: tuple[Member, ...]) -> str:
    """Return which member a service is."""
    by_service = {member.service: member.name for member in listed}
    name = given or by_service.get(service, service)
    if listed and by_service.get(service) != name:
        raise InputError(
            f"{VARIABLE}.members: {name} with the service {service} is none of them; they are"
            f" {', '.join(member.name for member in listed)}",
            "PR-134",
        )
    return name
