# SPDX-License-Identifier: GPL-3.0-or-later
"""Docker containers on inventory hosts; no agent stays there."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ..inputs.options import Options
from . import _containers

OPTIONS = Options(*(field for field in _containers.OPTIONS.fields if field.name != "secrets"))


class Driver(_containers.Containers):
    """A service's containers on the hosts of `rollout_platform.hosts`, by docker."""

    _program, _table = "docker", OPTIONS
    unsupported: t.ClassVar[Mapping[str, str]] = {
        "secrets": "docker has secrets only in a swarm; use env, or a file (volumes)"
    }
