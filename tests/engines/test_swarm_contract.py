# SPDX-License-Identifier: GPL-3.0-or-later
"""What every platform promises, kept by the driver for Docker Swarm on a real one."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import swarm as platform
from ansible_collections.progressive.rollout.tests.drivers import platform_contract as contract
from ansible_collections.progressive.rollout.tests.engines.swarms import (
    HOME,
    LOCAL,
    MANAGERS,
    PLATFORM,
    Swarm,
)
from ansible_collections.progressive.rollout.tests.support.connect import connect
from ansible_collections.progressive.rollout.tests.support.contexts import Knows


class Site:
    """A swarm without services."""

    told = r"task: non-zero exit \(1\)"

    def __init__(self, path: Path) -> None:
        self.swarm, self._path = Swarm(), path
        self.swarm.mend()

    def driver(self, epoch: int = 1, **more: t.Any) -> platform.Driver:
        given = {name: value for name, value in PLATFORM.items() if name != "driver"}
        given |= {"hosts": "all", **more}
        options = platform.OPTIONS.parse(given, "rollout_platform.")
        transport = connect(dict.fromkeys(MANAGERS, LOCAL), self._path)
        return platform.Driver(options, DriverContext("shop", transport, known=Knows(epoch=epoch)))

    def ending(self) -> platform.Driver:
        return self.driver(command=["/bin/sh", "-c", "echo no; exit 1"])

    def left(self) -> list[str]:
        return [one["Spec"]["Name"] for one in self.swarm.services()]


class TestSwarm(contract.PlatformContract):
    @pytest.fixture
    def site(self, tmp_path: Path) -> Iterator[Site]:
        if not HOME.exists():
            pytest.fail("there is no swarm: run scripts/swarm up 3")
        made = Site(tmp_path / "hosts.json")
        yield made
        made.swarm.mend()

    # Of those for hosts, what does not depend on places.
    test_one_that_is_there_is_not_started_again = (
        contract.HostsContract.test_one_that_is_there_is_not_started_again
    )
    test_one_that_runs_is_not_forgotten = contract.HostsContract.test_one_that_runs_is_not_forgotten
    test_secret_settings_are_kept = (
        contract.HostsContract.test_secret_settings_are_kept_on_the_hosts
    )
