# SPDX-License-Identifier: GPL-3.0-or-later
"""What the unit tests share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait until a disk has written: no test here switches the machine off, and a busy
    disk takes a minute for all.
    """
    monkeypatch.setattr(os, "fsync", lambda _file: None)
