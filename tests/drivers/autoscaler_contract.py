# SPDX-License-Identifier: GPL-3.0-or-later
"""What every autoscaler's driver has to do. A test class gives the fixture `scaler`: an autoscaler
from 2 to 12 instances.
"""

from __future__ import annotations

import json

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import AutoscalerError
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.autoscaler import (
    AutoscalerDriver,
)


class AutoscalerContract:
    def test_its_state_is_plain_data_with_bounds(self, scaler: AutoscalerDriver) -> None:
        scaler.check()
        state = scaler.read()
        assert json.loads(json.dumps(state)) == state
        assert {"min", "max"} <= set(state)
        assert scaler.bounds(state) == (2, 12)

    def test_it_shows_exactly_what_was_written(self, scaler: AutoscalerDriver) -> None:
        before = scaler.read()
        for after in (scaler.held(before, 6), scaler.raised(before, 8), scaler.followed(before)):
            scaler.write(scaler.read(), after)
            assert scaler.read() == after
        scaler.write(scaler.read(), before)
        assert scaler.read() == before

    def test_being_held_twice_is_being_held_once(self, scaler: AutoscalerDriver) -> None:
        held = scaler.held(scaler.read(), 6)
        assert held != scaler.read()
        assert scaler.held(held, 6) == held

    def test_a_raised_minimum_is_its_minimum(self, scaler: AutoscalerDriver) -> None:
        assert scaler.bounds(scaler.raised(scaler.read(), 8)) == (8, 12)

    def test_what_somebody_else_has_changed_is_not_overwritten(
        self, scaler: AutoscalerDriver
    ) -> None:
        before = scaler.read()
        theirs = scaler.raised(before, 3)
        scaler.write(before, theirs)
        with pytest.raises(AutoscalerError, match="changed by somebody else meanwhile"):
            scaler.write(before, scaler.held(before, 6))
        assert scaler.read() == theirs
