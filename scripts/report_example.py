# SPDX-License-Identifier: GPL-3.0-or-later
"""Make docs/how-to/report-example.html, the report of a rollout that was recorded."""

from __future__ import annotations

import json
from pathlib import Path

RECORDED = Path(__file__).resolve().parents[1] / "tests/support/recorded/rollout.json"


def page() -> str:
    """Return the report as HTML."""
    from ansible_collections.progressive.rollout.plugins.plugin_utils.pages import render, story

    found = json.loads(RECORDED.read_text())
    told = story.tell(found["service"], found["rollout"], found["events"])
    return render.html(told, found["events"], found["rollout"]["updated"])
