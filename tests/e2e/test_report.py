# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports of rollouts, by the playbooks that users run."""

from __future__ import annotations

from ansible_collections.progressive.rollout.tests.support.playbook import Playground

REPORT, HISTORY = "progressive.rollout.report", "progressive.rollout.history"


def test_rollouts_leave_reports_and_a_history(playground: Playground) -> None:
    reports = playground.home / "reports"
    reports.mkdir()
    playground.variables["rollout_report"] = f"{reports}/"
    assert playground.run().rc == 0
    broken = {**playground.variables["rollout_platform"], "command": ["/bin/false"]}
    failed = playground.run(variables={"rollout_revision": "2", "rollout_platform": broken})
    assert failed.rc != 0

    second, first = [one["id"] for one in reversed(playground.journal()["history"])]
    page = (reports / "shop" / f"{second}.html").read_text()
    assert "Rolled back: shop 1 → 2" in page and "PR-604" in page
    index = (reports / "shop/index.html").read_text()
    assert f'href="{first}.html"' in index and f'href="{second}.html"' in index

    single = playground.home / "one.md"
    chosen = {"rollout_report": str(single), "rollout_id": first}
    outcome = playground.run(REPORT, chosen)
    assert outcome.rc == 0 and single.read_text().startswith("# ✓ Promoted: shop 1")
    assert outcome.one("Write the report").result["files"] == [str(single)]
    shown = playground.run(REPORT, {"rollout_report": None})
    assert shown.rc == 0 and "\n# ✕ Rolled back" in shown.output

    history = playground.run(HISTORY)
    assert history.rc == 0
    lines = history.one("Show the history").result["lines"]
    assert second in lines[1] and "rolled back" in lines[1] and first in lines[2]
    assert all(f"\n{line}\n" in history.output for line in lines)


def test_a_step_writes_what_it_says_and_only_what_changed(playground: Playground) -> None:
    task = {"report": {"report": f"{playground.home}/shop.html"}, "name": "the step"}
    nothing = playground.steps(task)
    assert nothing.rc == 0 and not nothing.one("the step").changed
    deploy = ({"begin": {}}, {"replace": {}}, {"promote": {}}, {"finish": {}})
    outcome = playground.steps(*deploy, {**task, "check_mode": True}, task, task)
    assert [one.changed for one in outcome.of("the step")] == [True, True, False]
    result = outcome.of("the step")[-1].result
    assert result["history"][0]["outcome"] == "promoted" and "Promoted" in result["markdown"]

    missing = playground.steps({"report": {"report": "/nowhere/shop.html"}})
    assert "/nowhere" in missing.failed.msg and "PR-630" in missing.failed.msg
    unknown = playground.steps({"report": {"id": "shop-x"}})
    assert "shop-x" in unknown.failed.msg and "PR-130" in unknown.failed.msg
