# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages made by templates of users: jinja2 in a sandbox, and of a bounded length. Pure."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from jinja2 import TemplateError, TemplateSyntaxError
from jinja2.runtime import StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..base.errors import InputError, NotifyError
from ..base.text import clean

LONGEST = 10_000  # characters of a template, and of what it makes
_ENVIRONMENT = ImmutableSandboxedEnvironment(
    undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True
)


class MessageTemplate:
    """A template of a user's, tried with sample values. Raises InputError."""

    def __init__(self, text: str, variable: str, sample: Mapping[str, t.Any]) -> None:
        if len(text) > LONGEST:
            raise InputError(
                f"{variable}: it has {len(text)} characters; use at most {LONGEST}", "PR-104"
            )
        try:
            self._template = _ENVIRONMENT.from_string(text)
            self._written(sample)
        except (TemplateError, ArithmeticError, TypeError, ValueError, RecursionError) as exc:
            raise InputError(
                f"{variable}: it is not a template: {_why(exc)}; it may use {', '.join(sample)}",
                "PR-152",
            ) from None

    def render(self, facts: Mapping[str, t.Any]) -> str:
        """Return the message. Raises NotifyError where the template fails on these values."""
        try:
            return self._written(facts)
        except Exception as exc:  # whatever a template does to a value
            raise NotifyError(f"its template fails: {_why(exc)}", "PR-631", again=False) from None

    def _written(self, facts: Mapping[str, t.Any]) -> str:
        """Return the message, cut where it is too long, so that a loop ends."""
        text = ""
        for part in self._template.generate(facts):
            text += part[: LONGEST - len(text)]
            if len(text) >= LONGEST:
                break
        return text


def _why(exc: Exception) -> str:
    if isinstance(exc, TemplateSyntaxError):
        return clean(f"line {exc.lineno}: {exc.message}", 200)
    return clean(exc, 200) or type(exc).__name__
