# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the owner of a workload changes there while a rollout lasts: the number of instances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...config.settings import Settings
from ...interfaces.platform import PlatformDriver
from ...state.record import Rollout


class WorkloadOwner:
    """The owner of the workload that the platform keeps instances for."""

    def __init__(
        self, settings: Settings, platform: PlatformDriver, show: Callable[[str], None]
    ) -> None:
        self._settings, self._platform, self._show = settings, platform, show

    def follow(self, rollout: Rollout) -> None:
        """Have the rollout go on to the number that the owner has set, and a rollback end there.

        A number that the playbook gives stays, and the other one is told.
        """
        number, before = self._platform.asked(), rollout.replicas
        if number == rollout.owner:
            return
        rollout.owner = number
        if not number or number == before:
            return
        given = self._settings.replicas
        text = f"somebody else has set the number of replicas to {number}"
        if isinstance(given, int):
            self._tell(rollout, f"{text}; rollout_replicas says {given}, which stays")
            return
        wanted = (given.of(number) if given else None) or number
        if rollout.previous:
            rollout.previous = replace(rollout.previous, replicas=wanted)
        rollout.base, rollout.wanted = 0, wanted
        self._tell(rollout, f"{text}; the rollout goes on to it (before: {before})")

    def _tell(self, rollout: Rollout, text: str) -> None:
        self._show(f"{self._settings.service} {rollout.revision}: {text} [PR-264]")
