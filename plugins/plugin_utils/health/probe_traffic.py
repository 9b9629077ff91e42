# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests of our own to the new instances that serve, where those of users are too few to judge by. Users never see them."""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.health import monitor
from ansible_collections.progressive.rollout.plugins.plugin_utils.health.monitor import Checker
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.check import Probe
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import Context
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import Served


class Prober:
    """Asks the new instances as `rollout_health` asks, in its words, and counts what comes of it. Raises InputError."""

    def __init__(self, given: Mapping[str, t.Any], context: Context, variable: str) -> None:
        settings = monitor.parse(given, variable)
        if settings is None:
            raise InputError(f"{variable}: it asks nothing; write what to ask, as in {{http: /}}")
        self._settings = settings
        self._context = context
        self._asker: _Asker | None = None

    def look(self, generation: int) -> None:
        """From here on ask those of the generation that are in rotation now."""
        if self._asker is None:
            self._asker = _Asker(self._settings, self._context.transport.apart())
        serving = {name: one for name, one in self._context.served().items() if one.serving and one.generation == generation}
        self._asker.watch({name: (one.endpoint, one.host, True, 0.0) for name, one in serving.items()})

    def served(self) -> Mapping[str, Served]:
        """What the load balancers have counted, and what was asked here."""
        counted = self._context.served()
        if self._asker is None:
            return counted
        asked, failed = self._asker.asked.copy(), self._asker.failed.copy()
        return {
            name: replace(one, requests=one.requests + asked[name], errors=one.errors + failed[name])
            for name, one in counted.items()
        }

    def close(self) -> None:
        """Ask nobody any more."""
        if self._asker is not None:
            self._asker.watch({})


class _Asker(Checker):
    """Counts outcomes, by instance."""

    def __init__(self, settings: monitor.Settings, transport: t.Any) -> None:
        self.asked: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        super().__init__(settings, transport)

    def _note(self, watched: t.Any, probe: Probe) -> None:
        self.failed[watched.id] += not probe.passed
        self.asked[watched.id] += 1
        super()._note(watched, probe)
