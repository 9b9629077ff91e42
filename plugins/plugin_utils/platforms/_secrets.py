# SPDX-License-Identifier: GPL-3.0-or-later
"""The secret settings of generations, which only the hosts keep."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping, Sequence

from ..base.errors import PlatformError
from ..interfaces.context import DriverContext
from ..interfaces.platform import Labels, key_of

ENOUGH = 5  # hosts that are asked at once for what each of them should have
TIMEOUT = 60.0  # seconds that they have


class Secrets:
    """Which hosts keep the secret settings of which generations.

    A host gets those of a generation with its first instance.
    """

    def __init__(
        self, context: DriverContext, agent: str, hosts: Sequence[str], away: Collection[str]
    ) -> None:
        """`away` has the hosts that do not answer, at any time."""
        self._context, self._agent, self._hosts, self._away = context, agent, hosts, away
        self._kept: dict[str, frozenset[str]] = {}  # by host, the keys it has

    def kept(self, host: str, keys: Sequence[str]) -> None:
        """Note which keys a host has."""
        self._kept[host] = frozenset(map(str, keys))

    def wanted(self, host: str, starts: Sequence[Labels]) -> dict[str, Mapping[str, t.Any]]:
        """Return what a host needs to keep to start these instances, and does not have yet."""
        settings = [self._context.settings_of(labels.generation) for labels in starts]
        keys = {labels.key for labels in settings if labels and labels.key} - self._kept.get(
            host, frozenset()
        )
        return {key: self._context.secrets[key] for key in sorted(keys)}

    def recall(self, key: str, path: str) -> Mapping[str, t.Any] | None:
        """Return what is kept under a key, from a host that has it; None where no host has.

        Raises PlatformError while hosts that may have it do not answer.
        """
        if key not in self._context.secrets:
            settings, silent = self._ask(key, path)
            if settings is not None:
                self._context.secrets[key] = settings
            elif silent:
                raise PlatformError(
                    f"{', '.join(silent)} may have the settings that instances are to be started"
                    " with; fix the host, or remove it from the inventory",
                    "PR-222",
                )
        return self._context.secrets.get(key)

    def _ask(self, key: str, path: str) -> tuple[Mapping[str, t.Any] | None, list[str]]:
        """Return what some hosts have under a key, and the hosts that do not answer."""
        holders = [
            host for host in self._hosts if not self._kept or key in self._kept.get(host, ())
        ]
        request = {"recall": key, "service": self._context.service, "path": path}
        asked = {host: {**request, "host": host} for host in holders[:ENOUGH]}
        answers = self._context.transport.ask(self._agent, asked, TIMEOUT) if asked else {}
        silent = [
            host
            for host in self._hosts
            if host in self._away or (host in answers and answers[host].value is None)
        ]
        for answer in answers.values():
            kept_settings = (answer.value or {}).get("settings")
            # The key is a digest: a host cannot make up the settings of other hosts' instances.
            if isinstance(kept_settings, Mapping) and key_of(kept_settings) == key:
                return kept_settings, silent
        return None, silent
