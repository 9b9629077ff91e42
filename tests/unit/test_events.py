# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every event of a timeline fits its schema, which names and explains each field."""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import timing
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Phase
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import shapes
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import events
from ansible_collections.progressive.rollout.tests.support.memory import Service, World

ASK = [{"driver": "approval"}]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RETRY", "GATES", "COMMANDS"):
        monkeypatch.setattr(timing, name, 0.0)
    monkeypatch.setattr(timing, "PLATFORM", (0.02, 0.02))


def check(event: dict[str, t.Any]) -> None:
    """Raise unless the event is one of the schema, without another field."""
    kind = events.KINDS[event["kind"]]
    hints = t.get_type_hints(kind)
    known = {field.name for field in dataclasses.fields(kind)}
    given = {name: value for name, value in event.items() if name not in ("at", "kind")}
    assert isinstance(event["at"], float) and given.keys() <= known
    read = kind(**{name: shapes.read(hints[name], value, name) for name, value in given.items()})
    assert {"at": event["at"], **read.to_dict()} == event


@pytest.fixture
def shop(tmp_path: Path) -> Service:
    service = Service(tmp_path, World(fewest=0, most=9), replicas=3)
    service.play(revision="1")
    return service


def test_every_event_of_rollouts_fits_its_schema(shop: Service) -> None:
    shop.play(revision="2", gates={"confirm_promotion": ASK})
    shop.say("scale", replicas=4)
    shop.play(revision="2", replicas=4, gates={"confirm_promotion": ASK})
    shop.say("promote")
    shop.play(revision="2", replicas=4, gates={"confirm_promotion": ASK})
    shop.world.crashes = lambda labels: labels.revision == "3"
    with pytest.raises(RolloutFailed):
        shop.play(revision="3", replicas=4)

    found: set[str] = set()
    for path in (Path(shop.path) / "journal" / "shop").glob("*.jsonl"):
        for event in shop.timeline(path.stem):
            check(event)
            found.add(event["kind"])
    assert found >= {
        "begin",
        "resume",
        "stage",
        "phase",
        "decision",
        "state",
        "traffic",
        "wait",
        "gate",
        "word",
        "parked",
        "end",
    }


def test_an_event_of_another_shape_does_not_fit() -> None:
    fits = {"at": 1.0, "kind": "phase", "phase": "held", "reason": "no"}
    check(fits)
    for wrong in ({"phase": "nowhere"}, {"reason": 3}, {"more": 1}):
        with pytest.raises((AssertionError, shapes.Misshapen)):
            check(fits | wrong)


@pytest.mark.parametrize("kind", events.KINDS.values(), ids=list(events.KINDS))
def test_each_kind_and_each_field_is_explained(kind: type[events.Event]) -> None:
    assert kind.__doc__ and kind.__doc__.endswith(".")
    assert all(events.documented(kind).values())


def test_optional_fields_without_a_value_are_left_out() -> None:
    assert events.PhaseEntered(phase=Phase.HELD).to_dict() == {"kind": "phase", "phase": "held"}
    assert events.StageEntered(stage="replace", share=None, new=3, old=0).to_dict()["share"] is None
