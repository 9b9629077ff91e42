# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts with placeholders, such as `{service}` and `{revision}`, in options. Pure."""

from __future__ import annotations

import re
import typing as t
import urllib.parse
from collections.abc import Collection, Mapping

from ..base.errors import InputError, MetricError

OF_GATES = ("service", "revision", "previous", "id")
OF_METRICS = (*OF_GATES, "stable", "step", "start", "elapsed")
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_WORD = re.compile(r"(?<!\$)\{([A-Za-z_]\w*)\}")  # not `${name}`, which is label_replace's


# Ansible takes doubled braces for a template of its own unless they are marked.
BRACES = "write {{ or }} for a brace, and !unsafe before the text: NAME: !unsafe '{{...}}'"


class Template:
    """A text with placeholders, parsed once. `{{` and `}}` are braces.

    Raises InputError, which begins with `variable`, for an unknown placeholder or a lone brace.
    """

    pattern = _BRACES
    hint = f"; {BRACES}"

    def __init__(self, text: str, variable: str, names: Collection[str] = OF_GATES) -> None:
        self.variable = variable
        # a literal text, and the placeholder that follows it
        self._parts: list[tuple[str, str]] = []
        literal, end = "", 0
        for match in self.pattern.finditer(text):
            literal, end = literal + text[end : match.start()], match.end()
            if match[0] in ("{{", "}}"):
                literal += match[0][0]
            elif match[1] in names:
                self._parts.append((literal, match[1]))
                literal = ""
            else:
                known = ", ".join(f"{{{name}}}" for name in names)
                raise InputError(
                    f"{variable}: unknown placeholder {match[0]!r}; known: {known}{self.hint}",
                    "PR-112",
                )
        self._last = literal + text[end:]

    @property
    def names(self) -> set[str]:
        """The placeholders that the text has."""
        return {name for _literal, name in self._parts}

    def render(self, facts: Mapping[str, t.Any], *, quoted: bool = False) -> str:
        """Return the text with its placeholders filled in, `quoted` as for a URL.

        A missing value is empty.
        """
        filled = []
        for literal, name in self._parts:
            value = self.value(name, facts)
            filled += [literal, urllib.parse.quote(value, safe="") if quoted else value]
        return "".join(filled) + self._last

    def value(self, name: str, facts: Mapping[str, t.Any]) -> str:
        """Return what a placeholder stands for."""
        return str(facts.get(name) or "")


class QueryTemplate(Template):
    """A template in PromQL or JSON, which have braces of their own: only `{word}` is a placeholder.

    Raises MetricError where the rollout has no value: `{revision=""}` would select something else.
    """

    pattern = _WORD
    hint = ""

    def __init__(self, text: str, variable: str) -> None:
        super().__init__(text, variable, OF_METRICS)

    def value(self, name: str, facts: Mapping[str, t.Any]) -> str:
        if not facts.get(name):
            raise MetricError(f"{self.variable}: the rollout has no value for {{{name}}}", "PR-424")
        return str(facts[name])
