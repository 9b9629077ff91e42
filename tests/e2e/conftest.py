# SPDX-License-Identifier: GPL-3.0-or-later
"""What the end-to-end tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ansible_collections.progressive.rollout.tests.support.playbook import Playground


@pytest.fixture
def playground() -> Iterator[Playground]:
    with Playground() as made:
        yield made
