# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values as users write them, turned into what the code works with; refused with the variable's name. Pure."""

from __future__ import annotations

import difflib
import ipaddress
import re
import typing as t
from collections.abc import Iterable, Mapping
from decimal import Decimal

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.text import clean
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Amount, Percent

_UNITS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600), "d": Decimal(86400), "": Decimal(1)}
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*(ms|s|m|h|d|)")
_PERCENTAGE = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,9})?")
_SERVICE = re.compile(r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
_LABEL = re.compile(r"\w[\w .,:/+%-]{0,59}")
_PORTS = re.compile(r"([0-9]{1,5})\s*-\s*([0-9]{1,5})")
_WHOLE = re.compile(r"-?[0-9]{1,9}")
LONGEST = 366 * 86400.0  # seconds that anything may take
MOST = 10_000  # instances of a service


def duration(value: t.Any, variable: str, minimum: float = 0.0, maximum: float = LONGEST) -> float:
    """Seconds from `90`, `1.5`, `"90s"`, `"500ms"`, `"10m"`, `"2h"` or `"1d"`."""
    text = f"{value:f}" if isinstance(value, float) else str(value).strip()
    match = None if isinstance(value, bool) else _DURATION.fullmatch(text)
    if match is None:
        raise InputError(f'{variable}: {value!r} is not a duration; write seconds (90) or a number with ms, s, m, h or d ("10m")')
    seconds = float(Decimal(match[1]) * _UNITS[match[2]])
    if seconds < minimum:
        raise InputError(f"{variable}: {value!r} is too short; the least is {minimum:g} s")
    if seconds > maximum:
        raise InputError(f"{variable}: {value!r} is too long; the most is {_span(maximum)}")
    return seconds


def _span(seconds: float) -> str:
    unit = next(unit for unit in ("d", "h", "m", "s") if seconds % float(_UNITS[unit]) == 0)
    return f"{seconds / float(_UNITS[unit]):g}{unit}"


def percentage(value: str, variable: str) -> Decimal:
    """The exact number before the percent sign, 0 to 100."""
    text = value.strip().removesuffix("%").strip()
    number = Decimal(text) if _PERCENTAGE.fullmatch(text) else Decimal(-1)
    if not 0 <= number <= 100:
        raise InputError(f'{variable}: {value!r} is not a percentage between "0%" and "100%"')
    return number


def service(value: t.Any, variable: str) -> str:
    """A service's name: lower-case letters, digits, `-` and `_`; it becomes part of file and server names."""
    return _name(
        value, variable, _SERVICE, "lower-case letters, digits, - and _, at most 63, beginning and ending with a letter or digit"
    )


def revision(value: t.Any, variable: str) -> str:
    """A revision's name; it becomes part of paths and of commands' arguments."""
    return _name(value, variable, _REVISION, "letters, digits and . _ + -, at most 128, beginning with a letter or digit")


def _name(value: t.Any, variable: str, pattern: re.Pattern[str], rule: str) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        example = "1.10 would become 1.1" if isinstance(value, float) else "010 would become 8"
        raise InputError(f'{variable}: {value!r} is a number; quote it ("{value}"), or {example}')
    text = "" if isinstance(value, bool) or value is None else str(value)
    if not pattern.fullmatch(text):
        raise InputError(f"{variable}: {value!r} is not a name; use {rule}")
    return text


def ports(value: t.Any, variable: str) -> range:
    """The ports of `"8100-8199"` or of a single number, as a range."""
    text = str(value).strip()
    match = _PORTS.fullmatch(text)
    first, last = (int(match[1]), int(match[2])) if match else (int(text), int(text)) if _is_port(text) else (0, 0)
    if not 1 <= first <= last <= 65535 or isinstance(value, bool):
        raise InputError(
            f'{variable}: {value!r} is not a range of ports; write "8100-8199", between 1 and 65535, lower one first'
        )
    return range(first, last + 1)


def port(value: t.Any, variable: str) -> int:
    """One TCP port."""
    if isinstance(value, bool) or not _is_port(str(value)):
        raise InputError(f"{variable}: {shown(value)} is not a port between 1 and 65535")
    return int(value)


def _is_port(text: str) -> bool:
    return len(text) <= 5 and text.isascii() and text.isdecimal() and 1 <= int(text) <= 65535


def shown(value: t.Any) -> str:
    """A value as messages show it."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:77]}..."


def address(value: t.Any, variable: str) -> str:
    """An IP address. Load balancers accept unresolvable names in silence, so names are refused."""
    try:
        return str(ipaddress.ip_address(str(value)))
    except ValueError:
        raise InputError(f"{variable}: {value!r} is not an IP address") from None


def socket_address(value: t.Any, variable: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[IPv6]:port`."""
    host, colon, text = str(value or "").rpartition(":")
    if not colon or not host.strip("[]") or "/" in host or not _is_port(text):
        raise InputError(f'{variable}: {value!r} is not an address and a port; write it like "127.0.0.1:9901"')
    return host.strip("[]"), port(text, variable)


def refuse_unknown(given: Iterable[str], known: Iterable[str], prefix: str) -> None:
    """Raise for the first key that is not known, with the nearest one that is."""
    known = sorted(known)
    for key in sorted(map(str, given)):
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {prefix}{near[0]}?" if near else f"known are: {', '.join(known) or 'none'}"
            raise InputError(f"{prefix}{key}: there is no such setting; {hint}")


def boolean(value: t.Any, variable: str) -> bool:
    """A yes or no, also as `-e` gives it."""
    text = str(value).lower()
    if text not in ("true", "yes", "1", "false", "no", "0"):
        raise InputError(f"{variable}: {value!r} is neither true nor false")
    return text in ("true", "yes", "1")


def label(value: t.Any, variable: str) -> str:
    """What a step, a gate or a metric is called in messages and in the journal."""
    if not (isinstance(value, str) and _LABEL.fullmatch(value)):
        raise InputError(f"{variable}: {value!r} is not a name; use at most 60 letters, digits, spaces and . , : / + % - _")
    return value


def line(value: t.Any, variable: str) -> str:
    """A text for people, in one line; "" for none."""
    if isinstance(value, (Mapping, list, tuple)):
        raise InputError(f"{variable}: {value!r} is not a text; write a few words")
    return clean("" if value is None else value)


def amount(value: t.Any, variable: str) -> Amount:
    """`3` or `"25%"`; never a float, which could not be exact (E-08)."""
    if isinstance(value, str) and value.strip().endswith("%"):
        return Percent(percentage(value, variable))
    return whole(value, variable, 0, 'write a whole number (3) or a percentage ("25%")')


def whole(value: t.Any, variable: str, minimum: int, hint: str = "write a whole number", maximum: int = 999_999_999) -> int:
    """A whole number, also from a string of digits as `-e` gives it."""
    text = "" if isinstance(value, (bool, float)) or (isinstance(value, int) and abs(value) > 10**12) else str(value).strip()
    if not _WHOLE.fullmatch(text):
        raise InputError(f"{variable}: {shown(value)} is not a whole number; {hint}")
    if int(text) < minimum:
        raise InputError(f"{variable}: {value!r} is too small; the least is {minimum}")
    if int(text) > maximum:
        raise InputError(f"{variable}: {value!r} is too many; the most is {maximum}")
    return int(text)


def parted(spec: Mapping[str, t.Any], given: Mapping[str, t.Any]) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """Options that may be written down and shown, and those that are secret: what the spec marks `no_log`. Empty ones are neither."""
    there = {name: value for name, value in given.items() if value not in (None, "", {}, [])}
    secret = {name: value for name, value in there.items() if spec.get(name, {}).get("no_log")}
    return {name: value for name, value in there.items() if name not in secret}, secret


def options(spec: Mapping[str, t.Any], given: Mapping[str, t.Any], variable: str) -> dict[str, t.Any]:
    """A driver's options, checked against its `OPTIONS` (an Ansible argument spec), with the defaults filled in."""
    refuse_unknown(given, spec, variable + ".")
    result = ArgumentSpecValidator(dict(spec)).validate(dict(given))
    if result.error_messages:
        raise InputError(f"{variable}: {'; '.join(result.error_messages)}")
    return {key: value for key, value in result.validated_parameters.items() if value is not None}
