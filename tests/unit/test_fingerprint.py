# SPDX-License-Identifier: GPL-3.0-or-later
"""Fingerprints of plans are the same in every version, or no rollout survives an upgrade.

A value that differs here means that a field or an option was added or changed. Do not replace it:
see `LATER` in `fingerprint.py`.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import fields
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import strategy
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.fingerprint import (
    NAMES,
    fingerprint,
)

# by name: [the arguments of a step, the fingerprint]
GOLDEN: dict[str, tuple[dict[str, t.Any], str]] = json.loads(
    (Path(__file__).parents[1] / "support" / "recorded" / "fingerprints.json").read_text()
)


@pytest.mark.parametrize("name", GOLDEN)
def test_a_fingerprint_is_the_same_in_every_version(name: str) -> None:
    given, known = GOLDEN[name]
    assert fingerprint(strategy.parse(given)) == known


@pytest.mark.parametrize("part", NAMES, ids=lambda part: part.__name__)
def test_every_field_of_a_plan_is_hashed(part: type) -> None:
    assert set(NAMES[part]) == {field.name for field in fields(part)}
