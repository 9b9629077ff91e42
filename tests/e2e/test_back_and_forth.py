# SPDX-License-Identifier: GPL-3.0-or-later
"""Back and forth quickly, under load: a canary whose number an operator sets, a revision that is
known to be good, and a rollback in steps.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Iterator

import pytest
from ansible_collections.progressive.rollout.tests.support.playbook import Outcome, Playground
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindHAProxy,
    Load,
    Shop,
    failures,
)

PLAYBOOKS = "progressive.rollout."
CANARY: dict[str, t.Any] = {
    "rollout_strategy": "canary",
    "rollout_steps": [{"set_replicas": 1}, {"pause": {}}, {"set_replicas": 2}],
    "rollout_wait": 0,
}


@pytest.fixture
def front() -> Iterator[BehindHAProxy]:
    made = BehindHAProxy()
    yield made
    made.close()


def numbers(shop: Playground) -> Counter[str]:
    return Counter(shop.revisions())


def stages(shop: Playground) -> list[str]:
    """The stages that the last rollout has entered."""
    events = shop.timeline(shop.journal()["rollout"]["id"])
    return list(dict.fromkeys(event["stage"] for event in events if event["kind"] == "stage"))


def ran(outcome: Outcome) -> Outcome:
    assert outcome.rc == 0, outcome.output
    return outcome


def test_back_and_forth_under_load(front: BehindHAProxy) -> None:
    with Shop(front, rollout_replicas=4) as shop:
        shop.to("1")
        with Load(front.url, connections=4) as load:
            shop.to("2", **CANARY)
            assert numbers(shop) == {"1": 3, "2": 1}
            for number in (3, 2):
                target = {"rollout_command": "set_target", "rollout_count": number}
                ran(shop.run(f"{PLAYBOOKS}control", target))
                assert numbers(shop) == {"1": 4 - number, "2": number}
            refused = shop.run(
                f"{PLAYBOOKS}control", {"rollout_command": "set_target", "rollout_count": 5}
            )
            assert "5 is more than the 4 replicas" in refused.failed.msg
            ran(shop.run(f"{PLAYBOOKS}promote"))
            shop.settled("2")

            back = shop.to("1", **CANARY, rollout_known_good="1h")
            assert "was stable" in back.output and "without steps" in back.output
            shop.settled("1")
            assert stages(shop) == ["prepare", "replace", "promote"]

            ran(shop.run(f"{PLAYBOOKS}rollback", CANARY))
            assert numbers(shop) == {"1": 3, "2": 1}
            status = ran(shop.run(f"{PLAYBOOKS}status", {"rollout_platform": None}))
            assert "budget: " in status.output
            ran(shop.run(f"{PLAYBOOKS}promote"))
            shop.settled("2")
            assert shop.journal()["rollout"]["kind"] == "rollback"

            # It was left by a rollback, so it is not known to be good.
            shop.to("1", **CANARY, rollout_known_good="1h")
            assert numbers(shop) == {"1": 1, "2": 3}
            ran(shop.run(f"{PLAYBOOKS}promote", {"rollout_command": "promote_full"}))
            shop.settled("1")
            reports = load.stop()
        assert failures(reports) == []
        assert all(report["by_revision"].keys() == {"1", "2"} for report in reports)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"rollout_known_good": "1h"}, "rollout_known_good: has no effect"),
        (
            {**CANARY, "rollout_known_good": "1h", "rollout_release": {"with_canary": True}},
            "rollout_known_good: leaves out steps",
        ),
    ],
)
def test_what_leaves_out_no_steps_is_refused(
    playground: Playground, variables: dict[str, t.Any], message: str
) -> None:
    refused = playground.run(variables=variables)
    assert message in refused.failed.msg, refused.output
    assert playground.files() == set()
