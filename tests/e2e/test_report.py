# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports of rollouts, by the playbooks that users run."""

from __future__ import annotations

from ansible_collections.progressive.rollout.tests.support.playbook import Playground

REPORT, HISTORY = "progressive.rollout.report", "progressive.rollout.history"


def test_rollouts_leave_reports_and_a_history(playground: Playground) -> None:
    reports = playground.home / "reports"
    reports.mkdir()
    playground.variables |= {"rollout_replicas": 1, "rollout_report": f"{reports}/"}
    assert playground.run().rc == 0
    (first,) = [one["id"] for one in playground.journal()["history"]]
    page = (reports / "shop" / f"{first}.html").read_text()
    assert "Promoted: shop 1" in page
    assert f'href="{first}.html"' in (reports / "shop/index.html").read_text()

    single = playground.home / "one.md"
    chosen = {"rollout_report": str(single), "rollout_id": first}
    outcome = playground.run(REPORT, chosen)
    assert outcome.rc == 0 and single.read_text().startswith("# ✓ Promoted: shop 1")
    assert outcome.one("Write the report").result["files"] == [str(single)]
    assert f"\n{single}\n" in outcome.output

    history = playground.run(HISTORY)
    assert history.rc == 0
    lines = history.one("Show the history").result["lines"]
    assert first in lines[1] and "promoted" in lines[1]
    assert all(f"\n{line}\n" in history.output for line in lines)
