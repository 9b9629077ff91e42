# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse values as users write them; a refusal names the variable. Pure."""

from __future__ import annotations

import ipaddress
import json
import re
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from ..base.errors import InputError
from ..base.text import clean
from ..engine.budget import Amount, Percent

_UNITS = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
    "": Decimal(1),
}
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*(ms|s|m|h|d|)")
_PERCENTAGE = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,9})?")
_SERVICE = re.compile(r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
_LABEL = re.compile(r"\w[\w .,:/+%-]{0,59}")
_PORTS = re.compile(r"([0-9]{1,5})\s*-\s*([0-9]{1,5})")
_WHOLE = re.compile(r"-?[0-9]{1,13}")
_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
LONGEST = 366 * 86400.0  # seconds of any duration
MOST = 10_000  # instances of a service
LISTED = 30  # known names that a message lists


def refuse_unknown(given: Iterable[str], known: Iterable[str], prefix: str) -> None:
    """Raise for the first unknown key, with the nearest known one."""
    known = sorted(set(known))
    for key in sorted(map(str, given)):
        if key not in known:
            import difflib  # of wrong input alone

            near = difflib.get_close_matches(key, known, n=1)
            more = ", …" if len(known) > LISTED else ""
            hint = (
                f"did you mean {prefix}{near[0]}?"
                if near
                else f"known: {', '.join(known[:LISTED]) or 'none'}{more}"
            )
            what = "option" if "." in prefix else "variable"
            raise InputError(f"{prefix}{key}: unknown {what}; {hint}", "PR-101")


def shown(value: t.Any) -> str:
    """Return a value as messages show it."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:77]}..."


# Texts and names ------------------------------------------------------------------------------


def text(value: t.Any, variable: str) -> str:
    """Return a text, also of a number. The value is not shown: it may be a secret."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InputError(
            f"{variable}: expected a string, got {type(value).__name__}; put it in quotes", "PR-118"
        )
    return str(value)


def line(value: t.Any, variable: str) -> str:
    """Return a text for people, in one line; "" for none."""
    return clean("" if value is None else text(value, variable))


def choice(value: t.Any, variable: str, choices: Iterable[str]) -> str:
    """Return one of the choices. YAML 1.1 reads `no` and `yes` as booleans."""
    named = {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value
    if not isinstance(named, str) or named not in choices:
        raise InputError(
            f"{variable}: {shown(value)} must be one of {', '.join(choices)}", "PR-119"
        )
    return str(named)


def service(value: t.Any, variable: str) -> str:
    """Return a service's name, which becomes part of file and server names."""
    rule = (
        "lower-case letters, digits, - and _, at most 63, beginning and ending with a letter or"
        " digit"
    )
    return _name(value, variable, _SERVICE, rule)


def revision(value: t.Any, variable: str) -> str:
    """Return a revision's name, which becomes part of paths and of commands' arguments."""
    rule = "letters, digits and . _ + -, at most 128, beginning with a letter or digit"
    return _name(value, variable, _REVISION, rule)


def _name(value: t.Any, variable: str, pattern: re.Pattern[str], rule: str) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        example = "1.10 would become 1.1" if isinstance(value, float) else "010 would become 8"
        if value < 0:
            raise InputError(f"{variable}: {value!r} is not a name; use {rule}", "PR-120")
        raise InputError(
            f'{variable}: {value!r} is a number; quote it ("{value}"), or {example}', "PR-103"
        )
    name = "" if isinstance(value, bool) or value is None else str(value)
    if not pattern.fullmatch(name):
        raise InputError(f"{variable}: {shown(value)} is not a name; use {rule}", "PR-120")
    return name


def label(value: t.Any, variable: str) -> str:
    """Return the name of a step, a gate or a metric, for messages and the journal."""
    if not (isinstance(value, str) and _LABEL.fullmatch(value)):
        rule = "at most 60 letters, digits, spaces and . , : / + % - _"
        raise InputError(f"{variable}: {shown(value)} is not a name; use {rule}", "PR-120")
    return value


def absolute(value: t.Any, variable: str) -> str:
    """Return an absolute path."""
    path = text(value, variable)
    if not path.startswith("/"):
        raise InputError(
            f"{variable}: {value!r} is not an absolute path; begin it with /", "PR-123"
        )
    return path


REPORTS = (".html", ".md", ".xml", "/")


def report(value: t.Any, variable: str) -> str:
    """Return the absolute path of a report, whose form its ending says."""
    path = absolute(value, variable)
    if not path.endswith(REPORTS):
        raise InputError(
            f"{variable}: {shown(path)} does not say which form; end it with .html, .md or .xml, or"
            " with / for a directory with all of them",
            "PR-123",
        )
    return path


# Numbers --------------------------------------------------------------------------------------


def boolean(value: t.Any, variable: str) -> bool:
    """Return a boolean, also from the text that `-e` passes."""
    word = str(value).lower()
    if word not in (*_YES, *_NO):
        raise InputError(f"{variable}: {shown(value)} must be true or false", "PR-118")
    return word in _YES


def whole(
    value: t.Any,
    variable: str,
    minimum: int = 0,
    hint: str = "write one, as in 3",
    maximum: int = 999_999_999,
) -> int:
    """Return a whole number, also from the digits that `-e` passes."""
    huge = isinstance(value, int) and abs(value) > 10**12
    digits = "" if isinstance(value, (bool, float)) or huge else str(value).strip()
    if not _WHOLE.fullmatch(digits):
        raise InputError(f"{variable}: {shown(value)} is not a whole number; {hint}", "PR-118")
    if int(digits) < minimum:
        raise InputError(
            f"{variable}: {value!r} is too small; must be at least {minimum}", "PR-104"
        )
    if int(digits) > maximum:
        raise InputError(f"{variable}: {value!r} is too large; must be at most {maximum}", "PR-104")
    return int(digits)


def number(value: t.Any, variable: str, low: float, high: float, exclusive: bool = False) -> float:
    """Return a number within bounds."""
    try:
        parsed = float("nan") if isinstance(value, bool) else float(str(value))
    except ValueError:
        parsed = float("nan")
    if not (low < parsed < high if exclusive else low <= parsed <= high):
        between = f"between {low:g} and {high:g}" if exclusive else f"from {low:g} to {high:g}"
        raise InputError(f"{variable}: {shown(value)} is not a number {between}", "PR-104")
    return parsed


def duration(value: t.Any, variable: str, minimum: float = 0.0, maximum: float = LONGEST) -> float:
    """Return seconds from `90`, `1.5`, `"90s"`, `"500ms"`, `"10m"`, `"2h"` or `"1d"`."""
    given = f"{value:f}" if isinstance(value, float) else str(value).strip()
    match = None if isinstance(value, bool) else _DURATION.fullmatch(given)
    if match is None:
        hint = 'write seconds (90) or a number with ms, s, m, h or d ("10m")'
        raise InputError(f"{variable}: {shown(value)} is not a duration; {hint}", "PR-121")
    seconds = float(Decimal(match[1]) * _UNITS[match[2]])
    if seconds < minimum:
        raise InputError(
            f"{variable}: {value!r} is too short; must be at least {minimum:g} s", "PR-104"
        )
    if seconds > maximum:
        raise InputError(
            f"{variable}: {value!r} is too long; must be at most {units(maximum)}", "PR-104"
        )
    return seconds


def units(seconds: float) -> str:
    """Return a duration as users write it."""
    unit = next((unit for unit in ("d", "h", "m", "s") if seconds % float(_UNITS[unit]) == 0), "ms")
    return f"{seconds / float(_UNITS[unit]):g}{unit}"


def percentage(value: str, variable: str) -> Decimal:
    """Return the exact number before the percent sign, 0 to 100."""
    digits = value.strip().removesuffix("%").strip()
    parsed = Decimal(digits) if _PERCENTAGE.fullmatch(digits) else Decimal(-1)
    if not 0 <= parsed <= 100:
        raise InputError(
            f'{variable}: {value!r} is not a percentage between "0%" and "100%"', "PR-104"
        )
    return parsed


def amount(value: t.Any, variable: str) -> Amount:
    """Return the amount of `3` or `"25%"`. A float is refused: it could not be exact."""
    if isinstance(value, str) and value.strip().endswith("%"):
        return Percent(percentage(value, variable))
    return whole(value, variable, 0, 'write one (3), or a percentage ("25%")')


# Addresses ------------------------------------------------------------------------------------


def ports(value: t.Any, variable: str) -> range:
    """Return the ports of `"8100-8199"` or of a single number."""
    if isinstance(value, range):
        return value
    given = str(value).strip()
    match = _PORTS.fullmatch(given)
    single = (int(given), int(given)) if _is_port(given) else (0, 0)
    first, last = (int(match[1]), int(match[2])) if match else single
    if not 1 <= first <= last <= 65535 or isinstance(value, bool):
        hint = 'write "8100-8199", between 1 and 65535, lower one first'
        raise InputError(f"{variable}: {value!r} is not a range of ports; {hint}", "PR-104")
    return range(first, last + 1)


def port(value: t.Any, variable: str) -> int:
    """Return a TCP port."""
    if isinstance(value, bool) or not _is_port(str(value)):
        raise InputError(f"{variable}: {shown(value)} is not a port between 1 and 65535", "PR-104")
    return int(value)


def _is_port(given: str) -> bool:
    return len(given) <= 5 and given.isascii() and given.isdecimal() and 1 <= int(given) <= 65535


def address(value: t.Any, variable: str) -> str:
    """Return an IP address. Names are refused: load balancers accept unresolvable ones silently."""
    try:
        return str(ipaddress.ip_address(str(value)))
    except ValueError:
        raise InputError(f"{variable}: {value!r} is not an IP address", "PR-122") from None


class SocketAddress(t.NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def socket_address(value: t.Any, variable: str) -> SocketAddress:
    """Return the host and port of `host:port` or `[IPv6]:port`."""
    host, colon, digits = str(value or "").removeprefix("http://").rstrip("/").rpartition(":")
    if not colon or not host.strip("[]") or "/" in host or not _is_port(digits):
        raise InputError(
            f'{variable}: {value!r} is not an address and a port; write it like "127.0.0.1:9901"',
            "PR-122",
        )
    return SocketAddress(host.strip("[]"), port(digits, variable))


def ip_socket_address(value: t.Any, variable: str) -> SocketAddress:
    """Return the IP address and port of `IP:port`."""
    parsed = socket_address(value, variable)
    return parsed._replace(host=address(parsed.host, variable))


# Lists and mappings ---------------------------------------------------------------------------


def sequence(value: t.Any, variable: str, example: str) -> Sequence[t.Any]:
    """Return a list. The value is not shown: it may hold secrets."""
    if not isinstance(value, (list, tuple)):
        raise InputError(
            f"{variable}: expected a list, got {type(value).__name__}; write {example}", "PR-118"
        )
    return value


def data(value: t.Any) -> t.Any:
    """Return a text with a mapping or a list in JSON as data, and anything else as it is.

    The answers of a survey, and what follows `-e name=`, are texts.
    """
    if not (isinstance(value, str) and value.strip()[:1] in ("{", "[")):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def mapping(value: t.Any, variable: str, example: str = "key: value pairs") -> dict[str, t.Any]:
    """Return a mapping, an empty one for nothing. The value is not shown: it may hold secrets."""
    if value is None or value == "":
        return {}
    if not isinstance(value, Mapping):
        raise InputError(
            f"{variable}: expected a mapping, got {type(value).__name__}; write {example}", "PR-118"
        )
    return dict(value)
