# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollout whose hosts cannot be prepared is refused: nothing of it was started."""

from __future__ import annotations

import sys

import pytest
from ansible_collections.progressive.rollout.plugins.action import rollback
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.pages import junit, report_model
from ansible_collections.progressive.rollout.plugins.plugin_utils.pages.render import facts
from ansible_collections.progressive.rollout.plugins.plugin_utils.report import history
from ansible_collections.progressive.rollout.plugins.plugin_utils.report.notices import Notices
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import (
    Outcome,
    Record,
)
from ansible_collections.progressive.rollout.tests.support.memory import Service, World
from ansible_collections.progressive.rollout.tests.support.tasks import Tasks

pytestmark = pytest.mark.usefixtures("virtual_time")

MISSING = "web1: /srv/shop/releases/4 does not exist"


@pytest.fixture
def shop() -> Service:
    """Three instances of revision 2, which followed revision 1."""
    service = Service(World(fewest=0), replicas=3, wait=60)
    service.play(revision="1")
    service.play(revision="2")
    service.said.clear()
    return service


def refused(shop: Service, revision: str, **given: object) -> str:
    """What the failed task of a rollout says whose hosts lack something."""
    shop.world.missing = MISSING
    with pytest.raises(RolloutFailed) as failed:
        shop.play(revision=revision, **given)
    shop.world.missing = ""
    assert failed.value.id == "PR-402"
    return str(failed.value)


def test_nothing_that_was_not_started_is_rolled_back(shop: Service) -> None:
    instances = dict(shop.world.instances)
    message = refused(shop, "4")
    assert message == f"shop 4: refused: nothing was started. Why: prepare: {MISSING}"
    assert shop.world.instances == instances
    last = shop.journal.rollout
    assert last is not None and last.outcome is Outcome.REFUSED and last.cause == "PR-402"
    assert last.reason == f"prepare: {MISSING}"
    shown = "\n".join(shop.said)
    assert "shop 4 refused: nothing was started" in shown and MISSING in shown
    for word in ("rolling back", "rolled back", "failed at"):
        assert word not in shown
    phases = [one["phase"] for one in shop.timeline(last.id) if one["kind"] == "phase"]
    assert "rolling_back" not in phases


def test_a_first_deployment_is_refused_too() -> None:
    service = Service(World(fewest=0), replicas=3, wait=60)
    assert refused(service, "1").startswith("shop 1: refused: nothing was started. Why: ")
    assert service.journal.stable is None and not service.running
    service.play(revision="1")
    assert service.running == {"1": 3}


def test_a_refusal_is_read_wherever_outcomes_are(shop: Service) -> None:
    refused(shop, "4")
    record = shop.journal
    (entry, *_) = history.entries(record)
    assert entry["outcome"] == "refused"
    assert record.rollout is not None
    assert Record.load("shop", record.dump()).rollout == record.rollout
    timeline = shop.timeline(record.rollout.id)
    notices = Notices("shop", record.rollout.id)
    ends = [notice for event in timeline if (notice := notices.take(event))]
    assert [notice.event for notice in ends] == ["begun", "refused"]
    assert "refused: nothing was started: prepare: web1" in ends[-1].text
    page = report_model.from_timeline("shop", record.history[-1], timeline)
    assert (page.headline, page.tone) == ("Refused: nothing was started", "bad")
    assert ("Serves now", "2") in facts(page)
    assert 'type="refused"' in junit.xml(page)


def test_rollback_yml_after_a_refusal_changes_nothing(shop: Service) -> None:
    """The stable revision was not touched: a pipeline that rolls back after any failure keeps it."""
    refused(shop, "4")
    result = shop.step(rollback)
    assert not result["changed"] and shop.running == {"2": 3}
    assert result["msg"] == (
        "nothing to roll back: the rollout of shop 4 was refused before anything was started, and"
        " 2 is stable; to go back further, name the revision (rollout_to)"
    )
    shop.step(rollback, {"to": "1"})
    assert shop.running == {"1": 3}


def test_what_an_earlier_rollout_left_is_removed_and_that_is_a_rollback(shop: Service) -> None:
    waits = [{"set_weight": 34}, {"gate": {"driver": "approval"}}]
    shop.play(revision="3", strategy="canary", steps=waits, wait=0)
    assert shop.running["3"]
    message = refused(shop, "4", supersede=True)
    assert message.startswith(f"shop 4: now rolled back to 2. Why: prepare: {MISSING}")
    assert shop.running == {"2": 3}


def test_a_hold_was_asked_for_and_is_one(shop: Service) -> None:
    shop.world.missing = MISSING
    with pytest.raises(RolloutFailed):
        shop.play(revision="4", on_failure="hold")
    assert shop.journal.open is not None and shop.journal.open.phase == "held"


def test_a_rollback_to_what_cannot_start_is_refused() -> None:
    """As where the image of the revision before was pruned on one host, and the registry does
    not have it.
    """
    with Tasks() as site:
        for revision in ("1", "2"):
            (site.home / f"shop-{revision}").symlink_to(sys.executable)
        site.variables["rollout_platform"]["command"] = [f"{site.home}/shop-{{revision}}"]
        for revision in ("1", "2"):
            assert site.rollout(rollout_revision=revision).rc == 0
        (site.home / "shop-1").unlink()
        before = site.records()

        failed = site.rollback()
        assert failed.rc != 0 and "shop cannot be rolled back to 1" in failed.failed.msg
        assert "shop-1" in failed.failed.msg and "nothing was touched" in failed.failed.msg
        assert site.records() == before and len(site.living()) == 3
        last = site.journal()["rollout"]
        assert (last["phase"], last["revision"]) == ("finished", "2"), "no rollout is left behind"
        assert last["outcome"] == "promoted"

        (site.home / "shop-1").symlink_to(sys.executable)
        assert site.rollback().rc == 0 and site.revisions() == ["1"] * 3
