# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that an earlier generation's instances are started with again."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ..base.errors import RolloutFailed
from ..inputs.options import Options
from ..interfaces.platform import InstanceSettings, PlatformDriver, of_part


def as_kept(
    driver: PlatformDriver,
    table: Options,
    given: Mapping[str, t.Any],
    kept: InstanceSettings,
    *,
    part: str = "",
) -> dict[str, t.Any]:
    """Return the options `given`, those that shape an instance as they were kept."""
    name = type(driver).__module__.rpartition(".")[2]
    if kept.driver.rpartition(".")[2] != name:
        raise RolloutFailed(
            f"rollout_platform.driver: {kept.driver} ran the instances that are to be started"
            f" again, and {name} cannot start them; give the driver they had",
            "PR-222",
        )
    hidden = driver.recall(kept.key) if kept.key else {}
    if hidden is None:
        lost = ", ".join(
            f"rollout_{option} ({', '.join(names)})" for option, names in kept.secret.items()
        )
        raise RolloutFailed(
            "cannot start instances with the settings they had: no host has the values of"
            f" {lost} any more; set these variables as they were, and roll that revision out"
            " again",
            "PR-222",
        )
    of_hosts = driver.capabilities.host_options or ()
    of_host = {option: value for option, value in given.items() if option in of_hosts}
    secret = of_part(hidden.get("platform", {}), part)
    return table.parse({**of_host, **kept.platform, **secret}, "rollout_platform.")
