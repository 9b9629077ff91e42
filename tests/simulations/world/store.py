# SPDX-License-Identifier: GPL-3.0-or-later
"""A journal in memory, by the rules of every shared store."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.stores._shared import (
    Change,
    SharedStore,
    StoredTexts,
)


@dataclass
class Journal:
    """The texts of a service, and how often each was written."""

    texts: dict[str, bytes] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)


class MemoryStore(SharedStore):
    place = "memory"

    def __init__(self, service: str, journal: Journal) -> None:
        super().__init__(service)
        self.journal = journal

    def _read(self, names: Collection[str]) -> StoredTexts:
        texts = {name: self.journal.texts[name] for name in names if name in self.journal.texts}
        versions = {name: self.journal.versions[name] for name in texts}
        return StoredTexts(texts, versions, clock.wall())

    def _write(self, change: Change) -> bool:
        texts, versions = self.journal.texts, self.journal.versions
        if versions.get(change.guard, 0) != change.version:
            return False
        dropped = tuple(change.drop)
        for name in [text for text in texts if text.startswith(dropped)] if dropped else ():
            del texts[name], versions[name]
        for name, text in change.texts.items():
            texts[name] = text.encode()
            versions[name] = versions.get(name, 0) + 1
        return True

    def _texts(self, prefix: str) -> Iterable[bytes]:
        return [
            text for name, text in sorted(self.journal.texts.items()) if name.startswith(prefix)
        ]

    def _remove_all(self) -> None:
        self.journal.texts.clear()
        self.journal.versions.clear()

    def _where(self, name: str) -> str:
        return f"{name} in memory"
