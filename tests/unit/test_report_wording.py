# SPDX-License-Identifier: GPL-3.0-or-later
"""What the pages of rollouts say, and how they write numbers, people and times."""

from __future__ import annotations

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.pages import (
    graphs,
    render,
    report_model,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.pages.charts import figure
from ansible_collections.progressive.rollout.tests.support.timelines import rollout, timeline

RUNS = {"phase": "progressing", "outcome": ""}


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (71_000, "71,000"),
        (111.111, "111"),
        (12.345, "12.3"),
        (0.05, "0.05"),
        (0, "0"),
        (1e-7, "under 0.001"),
        (1.4e13, "over 1,000,000"),
    ],
)
def test_numbers_are_written_alike(value: float, written: str) -> None:
    assert figure(value) == written


def test_a_running_rollout_is_told_in_the_present() -> None:
    events = timeline(6)[:-1]
    report = report_model.from_timeline("shop", rollout(6, **RUNS), events)
    summaries = " ".join(chart.summary for chart in graphs.of(report))
    assert "Now 6 new and 0 old instances are in rotation. So far there were" in summaries
    assert (
        "100 % of the requests are sent to it now" in summaries
        and " now. The threshold" in summaries
    )
    assert "At the end" not in summaries and "at the end" not in summaries
    ended = report_model.from_timeline("shop", rollout(6), timeline(6))
    summaries = " ".join(chart.summary for chart in graphs.of(ended))
    assert (
        "At the end 6 new" in summaries and "% at the end." in summaries and "Now" not in summaries
    )


def test_the_marks_are_explained_below_their_strip_and_instances_come_before_the_events() -> None:
    events = timeline(6)
    page = render.html(report_model.from_timeline("shop", rollout(6), events), events, 0.0)
    strip, _charts, _rest = page.partition("<figure")
    assert '<span class="n">1' in strip and "</span> Begins" in strip
    assert page.index('id="lanes"') < page.index('id="events"') < page.index('id="plan"')


def test_the_index_names_the_person_and_the_zone() -> None:
    by = "root@vm pid 10725 (ansible-playbook /tmp/a/rollout.yml)"
    page = render.index("shop", [rollout(6, by=by)], {}, 0.0)
    assert f'title="{by}">root@vm</td>' in page and "times in UTC" in page
