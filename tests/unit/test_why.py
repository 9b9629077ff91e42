# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a rollout was begun, as `rollout_why` says: kept, and shown wherever the rollout is."""

from __future__ import annotations

import pytest
from ansible import context
from ansible.utils.context_objects import CLIArgs
from ansible_collections.progressive.rollout.plugins.action import begin, info, rollback
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.background.reports import (
    Reports,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.pages import render, report_model
from ansible_collections.progressive.rollout.plugins.plugin_utils.report import history, status
from ansible_collections.progressive.rollout.plugins.plugin_utils.report.notices import Notices
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Record
from ansible_collections.progressive.rollout.tests.support.memory import Service, World

pytestmark = pytest.mark.usefixtures("virtual_time")

TICKET = "ticket 42"


@pytest.fixture
def shop() -> Service:
    """A rollout of revision 2 with a reason, which is in progress."""
    service = Service(World(fewest=0, most=9), replicas=2)
    service.play(revision="1")
    service.step(begin, {"why": TICKET}, revision="2")
    return service


def test_the_journal_and_the_result_have_it(shop: Service) -> None:
    rollout = shop.journal.open
    assert rollout and rollout.why == TICKET and rollout.reason == ""
    assert shop.step(info)["rollout"]["why"] == TICKET
    shop.play(revision="2")  # as a rerun, which has no reason
    assert shop.journal.history[-1]["why"] == TICKET


def test_a_journal_of_an_earlier_version_has_none(shop: Service) -> None:
    kept = shop.journal.dump()
    del kept["rollout"]["why"]
    rollout = Record.load("shop", kept).open
    assert rollout and rollout.why == ""


def test_the_timeline_has_it(shop: Service) -> None:
    rollout = shop.journal.open
    assert rollout
    assert [one["why"] for one in shop.timeline(rollout.id) if one["kind"] == "begin"] == [TICKET]
    first = shop.journal.history[-1]
    assert not any("why" in one for one in shop.timeline(first["id"]))


def test_status_shows_it(shop: Service) -> None:
    shown = status.lines(shop.journal, None, [])
    assert f"begun by {shop.identity.holder}: {TICKET}" in shown
    shop.play(revision="2")
    assert f"begun by {shop.identity.holder}: {TICKET}" in status.lines(shop.journal, None, [])


def test_the_history_shows_it_and_why_it_ended(shop: Service) -> None:
    shop.step(rollback, {"why": "wrong prices"}, revision="2")
    entry = history.entries(shop.journal)[0]
    assert (entry["why"], entry["reason"]) == (TICKET, "rolled back by hand: wrong prices")
    line = history.lines(shop.journal, [entry])[1]
    assert f"{TICKET}; rolled back by hand: wrong prices" in line


def test_notices_tell_it(shop: Service) -> None:
    shop.play(revision="2")
    id = shop.journal.history[-1]["id"]
    notices = Notices("shop", id)
    taken = [notice for one in shop.timeline(id) if (notice := notices.take(one))]
    assert [(one.event, one.why) for one in taken] == [("begun", TICKET), ("promoted", TICKET)]
    assert taken[0].text.endswith(f", by {shop.identity.holder}: {TICKET}")


def test_the_report_shows_it(shop: Service) -> None:
    shop.play(revision="2")
    rollout = shop.journal.history[-1]
    events = shop.timeline(rollout["id"])
    report = report_model.from_timeline("shop", rollout, events)
    assert dict(render.facts(report))["Begun for"] == TICKET
    assert report.annotations[0].why == TICKET
    assert TICKET in render.html(report, events, 0.0) and TICKET in render.markdown(report)
    assert TICKET in render.index("shop", [rollout], {}, 0.0)
    assert TICKET in Reports(shop.journal, shop.store).markdown(rollout["id"])


def test_the_reason_of_a_rollback_stays_what_it_is(shop: Service) -> None:
    shop.play(revision="2")
    shop.step(rollback, {"why": "wrong prices"})
    last = shop.journal.rollout
    assert last and (last.why, last.reason) == ("", "rolled back from 2: wrong prices")


def test_a_reason_that_ansible_cut_off_is_completed_or_refused(
    shop: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.play(revision="2")
    given = CLIArgs({"extra_vars": ("rollout_why=ticket 43",)})
    monkeypatch.setattr(context, "CLIARGS", given)
    shop.step(begin, {"why": "ticket"}, revision="3")
    rollout = shop.journal.open
    assert rollout and rollout.why == "ticket 43"
    monkeypatch.setattr(context, "CLIARGS", CLIArgs({"extra_vars": ("rollout_why=a b=1 c",)}))
    with pytest.raises(InputError, match="rollout_why: Ansible takes only"):
        shop.step(begin, {"why": "a"}, revision="3")
