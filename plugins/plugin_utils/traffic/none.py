# SPDX-License-Identifier: GPL-3.0-or-later
"""No load balancer: a ready instance is in service, and a stopped one is not."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ..inputs.options import Options
from ..interfaces.context import DriverContext
from ..interfaces.platform import Endpoint
from ..interfaces.traffic import Table, Target, TrafficDriver

OPTIONS = Options()


class Driver(TrafficDriver):
    """Has no entries and changes none."""

    drain_timeout = 0.0

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        pass

    def check(self) -> None:
        """Do nothing: there is nothing to check."""

    def observe(self) -> Table:
        """Return no balancers."""
        return {}

    def apply(self, targets: Mapping[str, Mapping[Endpoint, Target]]) -> Table:
        """Return no balancers."""
        return {}
