# SPDX-License-Identifier: GPL-3.0-or-later
"""Podman containers on inventory hosts; no agent stays there."""

from __future__ import annotations

from . import _containers

OPTIONS = _containers.OPTIONS


class Driver(_containers.Containers):
    """A service's containers on the hosts of `rollout_platform.hosts`, by podman."""

    _program, _table = "podman", OPTIONS
