# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps by hand that refuse what they are given. Others: tests/unit/test_odd_hours.py."""

from __future__ import annotations

from ansible_collections.progressive.rollout.tests.support.playbook import Playground

STEPS = ("replace", "rollback", "scale", "promote", "finish", "traffic")


def test_steps_that_refuse_their_input_touch_nothing(playground: Playground) -> None:
    platform = {**playground.variables["rollout_platform"], "hosts": "nobody"}
    outcome = playground.steps(
        *({step: {"platform": platform}, "ignore_errors": True} for step in STEPS)
    )
    for step in STEPS:
        refused = outcome.one(step)
        assert refused.status == "failed" and "rollout_platform.hosts: 'nobody'" in refused.msg
    assert playground.files() == set()
