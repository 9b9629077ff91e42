# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of several load balancers need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ansible_collections.progressive.rollout.tests.drivers.traffic_contract import Backends


@pytest.fixture
def backends() -> Iterator[Backends]:
    """Processes that answer requests, and end with the test."""
    backends = Backends()
    yield backends
    for endpoint in list(backends.processes):
        backends.kill(endpoint)
