# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that several load balancers have, or refuse. Pure."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from ..base.errors import InputError
from ..inputs import values
from ..inputs.options import DURATION, PATH, TEXT, Field, Kind, Options, whole
from ..interfaces.check import HealthCheck

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")
_VALUE = re.compile(r"[A-Za-z0-9._~:/+=-]{1,200}")


@dataclass(frozen=True)
class Match:
    """A header, or a cookie, that has this very value."""

    name: str
    value: str
    cookie: bool = False

    @property
    def header(self) -> str:
        """Return the name of the header to look at."""
        return "cookie" if self.cookie else self.name.lower()

    @property
    def regex(self) -> str:
        """Return what the whole header `cookie` matches where the cookie has the value."""
        return f"(.*; *)?{self.name}={re.escape(self.value)}( *;.*)?"


def match(given: t.Any, variable: str) -> Match | None:
    """Parse `{header: NAME, value: VALUE}` or `{cookie: NAME, value: VALUE}`."""
    if not given:
        return None
    kinds = [key for key in ("header", "cookie") if isinstance(given, Mapping) and key in given]
    if len(kinds) != 1 or set(given) != {*kinds, "value"}:
        raise InputError(
            f"{variable}: {given!r} is not one header or cookie and its value; write {{header:"
            " X-Canary, value: always}",
            "PR-118",
        )
    name, value = str(given[kinds[0]]), given["value"]
    _named(name, f"{variable}.{kinds[0]}")
    if isinstance(value, bool) or not _VALUE.fullmatch(str(value)):
        raise InputError(
            f"{variable}.value: {value!r} is not a string of letters, digits and . _ ~ : / + = -;"
            " write it in quotes",
            "PR-118",
        )
    return Match(name, str(value), kinds[0] == "cookie")


def sticky(given: t.Any, variable: str) -> str:
    """Return the name of the cookie in `{cookie: NAME}`."""
    if not given:
        return ""
    if not isinstance(given, Mapping) or list(given) != ["cookie"]:
        raise InputError(
            f"{variable}: {given!r} is not a cookie; write {{cookie: shop-instance}}", "PR-118"
        )
    return _named(str(given["cookie"]), f"{variable}.cookie")


def _named(name: str, variable: str) -> str:
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{variable}: {name!r} is not a name; use letters, digits, _ and -", "PR-120"
        )
    return name


MATCH = Kind(
    "dict",
    match,
    fields=Options(
        Field("header", TEXT, "Name of the header."),
        Field("cookie", TEXT, "Name of the cookie, instead of a header."),
        Field("value", TEXT, "The value that such requests carry.", required=True),
    ),
)
STICKY = Kind(
    "dict", sticky, fields=Options(Field("cookie", TEXT, "Name of the cookie.", required=True))
)
PERCENT = whole(1, 100)
DRAIN_TIMEOUT = Field(
    "drain_timeout",
    DURATION,
    "How long to wait for requests in flight. After that, the instance is stopped anyway.",
    default="30s",
)
ACCESS_LOG = Field(
    "access_log",
    PATH,
    "Access log on the load balancer hosts, in the format that M(progressive.rollout.gate) reads."
    " Analyses then judge the times of individual requests.",
)


def _plain_path(given: t.Any, variable: str) -> str:
    path = values.absolute(given, variable)
    if not re.fullmatch(r"[A-Za-z0-9/._+:@~,=-]+", path):
        raise InputError(
            f"{variable}: {path!r} has other characters than letters, digits and / . _ -", "PR-123"
        )
    return path


CA_PATH = Kind("str", _plain_path, "An absolute path.")


def certificate_name(health: HealthCheck) -> str:
    """Return the name that certificates of instances have to be for, "" if they are not verified.

    Load balancers verify a name, and not, as the rollout's own check can, the address of each
    instance. Raises InputError where there is none.
    """
    name = health.check.server_name
    if name and not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise InputError(
            f"rollout_health.headers.Host: {name!r} is not the name of a host", "PR-310"
        )
    if health.tls and health.validate_certs and not name:
        raise InputError(
            "rollout_health.validate_certs: load balancers verify certificates by a name; give the"
            " name that those of instances have as rollout_health.headers.Host, or set"
            " validate_certs: false",
            "PR-310",
        )
    return name
