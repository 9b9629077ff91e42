# SPDX-License-Identifier: GPL-3.0-or-later
"""Make docs/how-to/report-example.html, the report of a rollout that was recorded."""

from __future__ import annotations

import json
from pathlib import Path

RECORDED = Path(__file__).resolve().parents[1] / "tests/support/recorded/rollout.json"


def page() -> str:
    """Return the report as HTML."""
    from ansible_collections.progressive.rollout.plugins.plugin_utils.pages import (
        render,
        report_model,
    )

    recorded = json.loads(RECORDED.read_text())
    report = report_model.from_timeline(
        recorded["service"], recorded["rollout"], recorded["events"]
    )
    return render.html(report, recorded["events"], recorded["rollout"]["updated"])
