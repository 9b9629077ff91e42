# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The number of replicas changes while a rollout is under way, as users change it: by running it again, and by a word."""

from __future__ import annotations

import json
import typing as t
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.action import begin, plan
from ansible_collections.progressive.rollout.plugins.plugin_utils import conductor as conductors
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Process
from ansible_collections.progressive.rollout.plugins.plugin_utils.errors import RolloutFailed
from ansible_collections.progressive.rollout.tests.memory import Service, World

GROUPS = {"group_size": 1, "cycles": 3, "acceptance": "checks", "gates": [{"driver": "approval"}]}
CANARY: dict[str, t.Any] = {"revision": "2", "strategy": "canary", "steps": GROUPS}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conductors, "PAUSE", 0.0)
    monkeypatch.setattr(conductors, "LOOK", (0.02, 0.02))
    monkeypatch.setattr(conductors, "WAITING", 0.0)


@pytest.fixture
def shop(tmp_path: Path) -> Service:
    """Six instances of revision 1."""
    service = Service(tmp_path, World(most=7, fewest=0))
    service.play(revision="1", replicas=6)
    assert service.running == {"1": 6}
    service.world.fewest = 6
    return service


def at(shop: Service) -> str:
    """Where the rollout waits."""
    rollout = shop.journal.open
    return rollout.waiting[0].partition(":")[0] if rollout else ""


def pass_(shop: Service, times: int, **given: t.Any) -> None:
    """Promote it so many times where it waits, and let it walk on."""
    for _time in range(times):
        shop.say("promote")
        shop.play(**CANARY, **given)


def test_fewer_replicas_skip_no_gate_of_the_groups(shop: Service) -> None:
    assert shop.play(**CANARY, replicas=6)["parked"] and at(shop) == "group 1 gate 1"
    pass_(shop, 1, replicas=6)
    assert at(shop) == "group 2 gate 1"
    shop.world.fewest = 1
    # One replica is one group: nobody has approved of all being new.
    assert shop.play(**CANARY, replicas=1)["parked"] and at(shop) == "group 1 gate 1"
    pass_(shop, 1, replicas=1)
    journal = shop.journal
    assert journal.open is None and journal.stable and (journal.stable.revision, journal.stable.replicas) == ("2", 1)
    assert shop.running == {"2": 1}


def test_a_journal_that_only_counts_stages_goes_on(shop: Service) -> None:
    shop.play(**CANARY, replicas=6)
    pass_(shop, 2, replicas=6)
    assert at(shop) == "group 3 gate 1"
    path = Path(shop.path) / "journal" / "shop.json"
    journal = json.loads(path.read_text())
    rollout = next(part["rollout"] for part in (journal, journal.get("record", {})) if "rollout" in part)
    rollout["stage"] = len(rollout.pop("passed"))
    path.write_text(json.dumps(journal))
    shop.world.fewest = 2
    assert shop.play(**CANARY, replicas=2)["parked"] and at(shop) == "group 2 gate 1"
    shop.play(**CANARY, replicas=6)
    waited = [pass_(shop, 1, replicas=6) or at(shop) for _time in range(3)]
    assert waited == ["group 3 gate 1", "group 4 gate 1", ""]
    assert shop.running == {"2": 6}


def test_what_is_recorded_at_the_end_is_what_runs(shop: Service) -> None:
    shop.play(**CANARY, replicas=6)
    pass_(shop, 3, replicas=6)
    assert at(shop) == "group 4 gate 1" and shop.running == {"2": 6}
    shop.world.fewest = 2
    assert shop.play(**CANARY, replicas=2)["parked"] and at(shop) == "group 2 gate 1"
    pass_(shop, 1, replicas=2)
    stable = shop.journal.stable
    assert stable and (stable.revision, stable.replicas) == ("2", 2) and shop.running == {"2": 2}


def test_more_replicas_skip_no_gate_of_the_groups(shop: Service) -> None:
    shop.world.fewest, shop.world.most = 2, 9
    shop.play(revision="1", replicas=2)
    shop.play(**CANARY, replicas=2)
    pass_(shop, 1, replicas=2)
    assert at(shop) == "group 2 gate 1"  # with which all would be new
    shop.play(**CANARY, replicas=8)
    assert at(shop) == "group 2 gate 1"
    waited = [pass_(shop, 1, replicas=8) or at(shop) for _time in range(3)]
    assert waited == ["group 3 gate 1", "group 4 gate 1", ""]
    assert shop.running == {"2": 8}


# Fewer than run -------------------------------------------------------------------------------------------------------

ASK = [{"driver": "approval"}]


def test_fewer_leave_at_the_promotion_and_not_before(shop: Service) -> None:
    shop.world.most = 8
    rolling: dict[str, t.Any] = {"revision": "2", "replicas": 2, "gates": {"confirm_promotion": ASK}}
    assert "6 run, 2 are asked for: 4 fewer" in shop.step(begin, check_mode=True, **rolling)["msg"]
    assert "6 run, 2 are asked for: 4 fewer" in shop.step(plan, **rolling)["msg"]
    assert shop.play(**rolling)["parked"]
    assert shop.running == {"1": 4, "2": 2} and any("6 run, 2 are asked for: 4 fewer" in line for line in shop.said)
    shop.say("promote")
    shop.world.fewest = 2
    shop.play(**rolling)
    stable = shop.journal.stable
    assert stable and (stable.revision, stable.replicas) == ("2", 2) and shop.running == {"2": 2}


def test_who_goes_back_before_the_promotion_has_lost_nothing(shop: Service) -> None:
    shop.world.most = 8
    canary = {"revision": "2", "replicas": 2, "strategy": "canary", "steps": [{"set_weight": 50}, {"pause": {}}]}
    shop.play(**canary)
    assert shop.running == {"1": 6, "2": 1}
    shop.say("abort")
    with pytest.raises(RolloutFailed, match="abort"):
        shop.play(**canary)
    stable = shop.journal.stable
    assert stable and (stable.revision, stable.replicas) == ("1", 6) and shop.running == {"1": 6}
    assert shop.world.told.total() == 1  # the new one


def test_fewer_of_the_same_revision_leave_at_once(shop: Service) -> None:
    shop.world.fewest = 2
    shop.play(revision="1", replicas=2)
    stable = shop.journal.stable
    assert stable and stable.replicas == 2 and shop.running == {"1": 2}


def test_what_does_not_run_is_not_kept(shop: Service) -> None:
    # Four of six are gone: two are kept until the promotion, not six made of them.
    for name in list(shop.world.instances)[:4]:
        shop.world.instances[name] = replace(shop.world.instances[name], process=Process.FAILED)
    shop.world.fewest = 2
    shop.play(revision="2", replicas=1, gates={"confirm_promotion": ASK})
    assert shop.running == {"1": 1, "2": 1}


def test_where_every_port_is_taken_one_makes_room(shop: Service) -> None:
    shop.world.capacity, shop.world.fewest = 6, 5
    shop.play(revision="2", replicas=2, gates={"confirm_promotion": ASK})
    assert shop.running == {"1": 3, "2": 2}
