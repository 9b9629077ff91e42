# SPDX-License-Identifier: GPL-3.0-or-later
"""The values of placeholders in the options of a metric."""

from __future__ import annotations

import typing as t

from ..inputs.placeholders import OF_GATES
from ..interfaces.metric import Question


def facts(question: Question) -> dict[str, t.Any]:
    """Return the values of placeholders.

    `start` is in seconds since the epoch; `elapsed` has its unit: `90s`.
    """
    rollout = question.rollout
    known = {name: rollout.get(name) for name in (*OF_GATES, "stable")}
    elapsed = max(1, round(question.now - question.start))
    return known | {
        "step": rollout.get("stage"),
        "start": int(question.start),
        "elapsed": f"{elapsed}s",
    }
