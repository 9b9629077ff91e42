# SPDX-License-Identifier: GPL-3.0-or-later
"""The block of lines that a failed rollout ends with."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Composition,
    Phase,
    Process,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Report,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.report.failure import (
    LINE,
    LINES,
    WIDTH,
    Broken,
    block,
    broken,
    without_log,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import (
    Outcome,
    Rollout,
)
from ansible_collections.progressive.rollout.tests.support.memory import (
    Platform,
    Service,
    World,
)
from ansible_collections.progressive.rollout.tests.support.pages import SNIPPETS

REASON = (
    "1 consecutive instance failure (rollout_failure_limit 1). Last: shop-4 on web1: exit code 3"
)
DETAIL = "exit code 3; last log lines: starting | \x1b[2Jno such file"


def rollout() -> Rollout:
    made = Rollout("shop-1", "2", 2, 3, "rolling", Composition("1", 1, 3), 0.0)
    made.reason, made.cause = f"{REASON}; last log lines: starting | no such file", "PR-604"
    return made


def state(**more: t.Any) -> dict[str, t.Any]:
    known = {"kind": "state", "instance": "shop-4", "host": "web1", "state": "failed"}
    return {**known, "generation": 2, "detail": DETAIL, **more}


def test_the_new_instance_that_failed_last_is_told_with_its_log() -> None:
    events = [
        state(instance="shop-3"),
        state(),
        state(instance="shop-1", generation=1),
        state(instance="shop-5", state="starting", detail=None),
    ]
    assert broken(rollout(), events) == Broken(
        "shop-4", "web1", "exit code 3", ["starting", "?[2Jno such file"]
    )
    assert broken(rollout(), events[2:]) is None


def test_a_log_is_bounded() -> None:
    noisy = state(detail="it ended; last log lines: " + " | ".join(["x" * 999] * 99))
    found = broken(rollout(), [noisy])
    assert found and len(found.log) == LINES and {len(line) for line in found.log} == {LINE}


def test_the_block_says_each_thing_once_as_the_page_shows() -> None:
    failed = rollout()
    failed.end(Outcome.ROLLED_BACK, failed.reason, 7.2)
    failed.elapsed, failed.failed = 7.2, 1
    detail = "exit code 3; last log lines: starting | no such file: /etc/shop.conf"
    look = "ansible-playbook progressive.rollout.status -i inventory.yml"
    log = "web1:/var/lib/rollout/web1/shop/logs/shop-4.log"
    found = broken(failed, [state(detail=detail)])
    lines = block("shop", failed, found, log, "1: 3 ready", [("look", look)])
    assert lines == SNIPPETS["docs/how-to/troubleshoot.md"]["failed"].splitlines()


def test_a_long_reason_is_wrapped_and_what_is_not_known_is_left_out() -> None:
    held = rollout()
    held.phase, held.name, held.cause = Phase.HELD, "step 3", ""
    held.reason = "the analysis failed: " + "errors of the new revision, " * 9
    lines = block("shop", held, None, "", "", [])
    assert lines[0].startswith("---- shop 2 held at step 3 -")
    assert len(lines) > 4 and all(len(line) <= WIDTH for line in lines)
    assert all(line.startswith(" " * 12) for line in lines[2:-1])


def test_a_reason_without_its_log() -> None:
    assert without_log(rollout().reason) == REASON
    assert without_log("no log here") == "no log here"


class NeverReady(Platform):
    """Instances of the second generation start, and stay so."""

    def sync(self, *args: t.Any, **kwargs: t.Any) -> list[Report]:
        return [
            replace(report, process=Process.STARTING, detail="404")
            if report.labels.generation == 2 and report.process is Process.RUNNING
            else report
            for report in super().sync(*args, **kwargs)
        ]


@pytest.mark.usefixtures("virtual_time")
def test_a_held_rollout_names_the_instance_that_failed_last() -> None:
    world = World()
    world.platform = lambda: NeverReady(world)  # type: ignore[method-assign]
    settings = {"on_failure": "hold", "failure_limit": 1, "health": {"deadline": 5}}
    service = Service(world, replicas=3, **settings)
    service.play(revision="1")
    for name in ("shop-4", "shop-5"):
        with pytest.raises(RolloutFailed, match=f"Last: {name} on web"):
            service.play(revision="2")
        held = service.journal.rollout
        assert held and held.phase == Phase.HELD
        found = broken(held, service.timeline(held.id))
        assert found == Broken(name, "web", "404", [])
