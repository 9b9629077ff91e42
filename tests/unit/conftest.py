# SPDX-License-Identifier: GPL-3.0-or-later
"""What the unit tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from ansible_collections.progressive.rollout.tests.simulations.world.machine import (
    Machine,
    virtual_clock,
)


@pytest.fixture(autouse=True)
def no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait until a disk has written: no test here switches the machine off, and a busy
    disk takes a minute for all.
    """
    monkeypatch.setattr(os, "fsync", lambda _file: None)


@pytest.fixture
def virtual_time() -> Iterator[Machine]:
    """A virtual clock, which goes on while all wait: waiting takes no time."""
    with virtual_clock() as machine:
        yield machine
