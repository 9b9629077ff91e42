# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`match`, `mirror` and `sticky` of `rollout_traffic`, understood. Pure."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values

_VARIABLE = "rollout_traffic.match"
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
        """The header to look at."""
        return "cookie" if self.cookie else self.name.lower()

    @property
    def regex(self) -> str:
        """What the whole header `cookie` matches where the cookie has the value."""
        return f"(.*; *)?{self.name}={re.escape(self.value)}( *;.*)?"


def parse(given: t.Any) -> Match | None:
    """`{header: NAME, value: VALUE}` or `{cookie: NAME, value: VALUE}`, understood; None where nothing is given."""
    if given in (None, "", {}):
        return None
    kinds = [key for key in ("header", "cookie") if isinstance(given, Mapping) and key in given]
    if len(kinds) != 1 or set(given) != {*kinds, "value"}:
        raise InputError(
            f"{_VARIABLE}: {given!r} is not one header or cookie and its value; write {{header: X-Canary, value: always}}"
        )
    name, value = str(given[kinds[0]]), given["value"]
    if not _NAME.fullmatch(name):
        raise InputError(f"{_VARIABLE}.{kinds[0]}: {name!r} is not a name; use letters, digits, _ and -")
    if isinstance(value, bool) or not _VALUE.fullmatch(str(value)):
        raise InputError(f"{_VARIABLE}.value: {value!r} is not a text of letters, digits and . _ ~ : / + = -; write it in quotes")
    return Match(name, str(value), kinds[0] == "cookie")


def sticky(given: t.Any) -> str:
    """The name of the cookie in `{cookie: NAME}`; empty where nothing is given."""
    if given in (None, "", {}):
        return ""
    variable = "rollout_traffic.sticky"
    if not isinstance(given, Mapping) or list(given) != ["cookie"]:
        raise InputError(f"{variable}: {given!r} is not a cookie; write {{cookie: shop-instance}}")
    if not _NAME.fullmatch(str(given["cookie"])):
        raise InputError(f"{variable}.cookie: {given['cookie']!r} is not a name; use letters, digits, _ and -")
    return str(given["cookie"])


def mirror(given: t.Any) -> int:
    """How many percent of the requests are to be copied; 0 where nothing is given."""
    if given in (None, ""):
        return 0
    percent = values.whole(given, "rollout_traffic.mirror", 1)
    if percent > 100:
        raise InputError(f"rollout_traffic.mirror: {given!r} is more than 100 percent; write 1 to 100")
    return percent
