# SPDX-License-Identifier: GPL-3.0-or-later
"""The reason that somebody gives on the command line, `rollout_why`."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping, Sequence

from ansible import context

from ...base.errors import InputError

# A reason without quotes, up to the next assignment, and what comes after it.
_WHY = re.compile(r"(?:^|\s)rollout_why=((?!['\"])\S+(?:\s+[^\s=]+(?=\s|$))*)(.*)", re.DOTALL)


def given(options: Mapping[str, t.Any]) -> str:
    """Return the whole reason among a step's own options; "" for none."""
    return complete(options.get("why", ""), context.CLIARGS.get("extra_vars") or ())


def complete(why: str, given: Sequence[str]) -> str:
    """Return the whole reason: of `-e rollout_why=wrong prices` Ansible passes the first word.

    Raises InputError where the end of the reason is ambiguous.
    """
    for text in reversed(given):
        match = _WHY.search(text)
        if not match or text[:1] in "@{[" or match[1].split()[0] != why:
            continue
        if any("=" not in part for part in match[2].split()):
            raise InputError(
                f'rollout_why: Ansible takes only {why!r} of {text!r}; write -e \'{{"rollout_why":'
                ' "..."}\', or -e "rollout_why=\'...\'"',
                "PR-118",
            )
        return " ".join(match[1].split())
    return why
