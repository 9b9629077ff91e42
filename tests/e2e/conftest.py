# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
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
