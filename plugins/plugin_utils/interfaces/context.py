# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every driver is made with, beside its own options."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Deployment
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import InstanceSettings, Platform
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import Served
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import Transport


def _no_platform(transport: Transport) -> Platform:
    raise InputError("rollout_platform: not given; say where instances live")


@dataclass
class Context:
    """What every driver is made with, beside its own options."""

    service: str
    transport: Transport
    health: Mapping[str, t.Any] = field(default_factory=dict)  # `rollout_health` as given: http, interval, rise, ...
    platform: Callable[[Transport], Platform] = _no_platform  # makes one with connections of its own
    epoch: int = 0  # of the lease we act under; 0 while only looking. Hosts refuse commands of an older one
    deployed: Mapping[str, Deployment] = field(default_factory=dict)  # by instance, what the journal has of those in place
    # By host that did not answer when it was last asked, what was seen there before; the journal keeps it from run to run.
    away: dict[str, list[dict[str, t.Any]]] = field(default_factory=dict)
    settings: Mapping[int, InstanceSettings] = field(default_factory=dict)  # by generation, what the journal has of its settings
    secrets: dict[str, Mapping[str, t.Any]] = field(default_factory=dict)  # by key, what is secret of those; in memory only
    counted: Sequence[str] = ()  # what the load balancers count of each instance: errors, latency
    served: Callable[[], Mapping[str, Served]] = (
        dict  # by instance, what the load balancers have counted since this run looks at them
    )
