# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands for the rollout in a gate's options: `{service}`, `{revision}`, `{previous}` and `{id}`."""

from __future__ import annotations

import re
import typing as t
import urllib.parse
from collections.abc import Mapping

from ansible_collections.progressive.rollout.plugins.plugin_utils.errors import InputError

PLACEHOLDERS = ("service", "revision", "previous", "id")
_BRACES = re.compile(r"\{\{|\}\}|\{(\w*)\}")


def fill(text: str, variable: str, rollout: Mapping[str, t.Any] | None = None, quoted: bool = False) -> str:
    """`text` with its placeholders filled in (`quoted` as for a URL); without a rollout it is only checked.

    `{{` and `}}` are braces. Raises InputError for a placeholder there is none of.
    """

    def one(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        if match[1] not in PLACEHOLDERS:
            names = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
            raise InputError(
                f"{variable}: there is no placeholder {match[0]!r}; there are {names}; write {{{{ or }}}} for a brace"
            )
        value = str((rollout or {}).get(match[1]) or "")
        return urllib.parse.quote(value, safe="") if quoted else value

    return _BRACES.sub(one, text)
