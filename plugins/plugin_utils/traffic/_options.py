# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that several load balancers have, or refuse. Pure."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from ..base.errors import InputError
from ..inputs import values
from ..inputs.options import DURATION, PATH, TEXT, Field, Kind, Options, unparsed, whole
from ..interfaces.check import HealthCheck

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")
_VALUE = re.compile(r"[A-Za-z0-9._~:/+=-]{1,200}")


@dataclass(frozen=True)
class Match:
    """A header, or a cookie, that has this very value, or as a whole matches this pattern."""

    name: str
    value: str
    cookie: bool = False
    pattern: bool = False

    @property
    def header(self) -> str:
        """Return the name of the header to look at."""
        return "cookie" if self.cookie else self.name.lower()

    @property
    def regex(self) -> str:
        """Return what the whole header matches; "" where it has to have the very value."""
        value = f"({self.value})" if self.pattern else re.escape(self.value)
        if self.cookie:
            return f"(.*; *)?{self.name}={value}( *;.*)?"
        return value if self.pattern else ""


def match(given: t.Any, variable: str) -> tuple[Match, ...]:
    """Parse a condition on a header or a cookie, or a list of them, of which one has to hold."""
    if not given:
        return ()
    if not isinstance(given, (list, tuple)):
        return _condition(given, variable)
    listed = [_condition(part, f"{variable}[{number}]") for number, part in enumerate(given)]
    return tuple(condition for conditions in listed for condition in conditions)


def _condition(given: t.Any, variable: str) -> tuple[Match, ...]:
    """Parse `{header: NAME, value: VALUE}`, with a cookie instead, `values` or a `regex`."""
    kinds = [key for key in ("header", "cookie") if isinstance(given, Mapping) and key in given]
    wanted = [key for key in ("value", "values", "regex") if kinds and key in given]
    if len(kinds) != 1 or len(wanted) != 1 or set(given) != {*kinds, *wanted}:
        raise InputError(
            f"{variable}: {given!r} is not one header or cookie and its value, values or regex;"
            " write {header: X-Canary, value: always}",
            "PR-118",
        )
    name, is_cookie = str(given[kinds[0]]), kinds[0] == "cookie"
    _named(name, f"{variable}.{kinds[0]}")
    where, value = f"{variable}.{wanted[0]}", given[wanted[0]]
    if wanted == ["regex"]:
        return (Match(name, _pattern(value, where), is_cookie, True),)
    listed = values.sequence(value, where, "[always, yes]") if wanted == ["values"] else [value]
    return tuple(Match(name, _value(text, where), is_cookie) for text in listed)


def _value(value: t.Any, variable: str) -> str:
    if isinstance(value, bool) or not _VALUE.fullmatch(str(value)):
        raise InputError(
            f"{variable}: {value!r} is not a string of letters, digits and . _ ~ : / + = -;"
            " write it in quotes",
            "PR-118",
        )
    return str(value)


def _pattern(value: t.Any, variable: str) -> str:
    """Return a pattern that proxies know, too: RE2 has no lookarounds and no backreferences.

    https://github.com/google/re2/wiki/Syntax
    """
    try:
        if not isinstance(value, str) or len(value) > 200 or not value.isprintable():
            raise ValueError("it is not a printable string of at most 200 characters")
        if re.search(r"\\[1-9]|\(\?[^:i]", value):
            raise ValueError("it has a backreference or a lookaround, which RE2 does not know")
        re.compile(value)
    except (ValueError, re.error) as exc:
        raise InputError(
            f"{variable}: {value!r} is no regular expression for a proxy: {exc}", "PR-118"
        ) from None
    return value


def sticky(given: t.Any, variable: str) -> str:
    """Return the name of the cookie in `{cookie: NAME}`."""
    if not given:
        return ""
    if not isinstance(given, Mapping) or list(given) != ["cookie"]:
        raise InputError(
            f"{variable}: {given!r} is not a cookie; write {{cookie: shop-instance}}", "PR-118"
        )
    return _named(str(given["cookie"]), f"{variable}.cookie")


def identity(given: t.Any, variable: str) -> tuple[str, str] | None:
    """Parse what identifies a client, `{cookie: NAME}` or `{header: NAME}`: its kind, its name."""
    if not given:
        return None
    if not isinstance(given, Mapping) or list(given) not in (["cookie"], ["header"]):
        raise InputError(
            f"{variable}: {given!r} is not one cookie or header; write {{cookie: user}}", "PR-118"
        )
    ((kind, name),) = given.items()
    return kind, _named(str(name), f"{variable}.{kind}")


def _named(name: str, variable: str) -> str:
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{variable}: {name!r} is not a name; use letters, digits, _ and -", "PR-120"
        )
    return name


MATCH = Kind(
    "raw",
    match,
    "One condition, or a list of them of which one has to hold.",
    fields=Options(
        Field("header", TEXT, "Name of the header."),
        Field("cookie", TEXT, "Name of the cookie, instead of a header."),
        Field("value", TEXT, "The value that such requests carry."),
        Field(
            "values",
            Kind("list", unparsed, elements="str"),
            "Instead of V(value): several, of which they carry one.",
        ),
        Field(
            "regex",
            TEXT,
            "Instead of V(value): a regular expression (RE2) that the whole value matches.",
        ),
    ),
)
STICKY = Kind(
    "dict", sticky, fields=Options(Field("cookie", TEXT, "Name of the cookie.", required=True))
)
COHORT = Field(
    "cohort",
    Kind(
        "dict",
        identity,
        fields=Options(
            Field("cookie", TEXT, "Name of a cookie that the service sets."),
            Field("header", TEXT, "Name of a header, instead of a cookie."),
        ),
    ),
    "Clients stay on their side: a hash of this cookie or header decides whether the new or the old"
    " instances get a request. Requests without it are divided at random.",
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


PLAIN_PATH = Kind("str", _plain_path, "An absolute path.")


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
