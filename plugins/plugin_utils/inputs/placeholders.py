# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands for the rollout in the options of gates and metrics: `{service}`, `{revision}` and others. Pure."""

from __future__ import annotations

import re
import typing as t
import urllib.parse
from collections.abc import Collection, Mapping

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError, MetricError

OF_GATES = ("service", "revision", "previous", "id")
OF_METRICS = (*OF_GATES, "stable", "step", "start", "elapsed")
_BRACES = re.compile(r"\{\{|\}\}|\{(\w*)\}")
_WORD = re.compile(r"(?<!\$)\{([A-Za-z_]\w*)\}")  # not `${name}`, which is label_replace's


def fill(
    text: str,
    variable: str,
    facts: Mapping[str, t.Any] | None = None,
    quoted: bool = False,
    names: Collection[str] = OF_GATES,
) -> str:
    """`text` with its placeholders filled in (`quoted` as for a URL); without facts it is only checked.

    `{{` and `}}` are braces. Raises InputError for a placeholder there is none of.
    """

    def one(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        if match[1] not in names:
            raise InputError(f"{_unknown(match[0], variable, names)}; write {{{{ or }}}} for a brace")
        value = str((facts or {}).get(match[1]) or "")
        return urllib.parse.quote(value, safe="") if quoted else value

    return _BRACES.sub(one, text)


def insert(text: str, variable: str, facts: Mapping[str, t.Any] | None = None) -> str:
    """Like `fill`, for PromQL and JSON, which have braces of their own: only `{word}` is a placeholder, and it is in neither.

    Raises MetricError for a value that the rollout does not have: `{revision=""}` would select something else.
    """

    def one(match: re.Match[str]) -> str:
        if match[1] not in OF_METRICS:
            raise InputError(f"{_unknown(match[0], variable, OF_METRICS)}; correct it")
        if facts is None:
            return match[0]
        if not facts.get(match[1]):
            raise MetricError(f"{variable}: the rollout has no value for {match[0]}")
        return str(facts[match[1]])

    return _WORD.sub(one, text)


def _unknown(placeholder: str, variable: str, names: Collection[str]) -> str:
    return f"{variable}: unknown placeholder {placeholder!r}; known: {', '.join(f'{{{name}}}' for name in names)}"
