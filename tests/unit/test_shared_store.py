# SPDX-License-Identifier: GPL-3.0-or-later
"""The lease of a store that keeps texts, where the store's clock is set back."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    LeaseHeld,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.stores._shared import (
    Change,
    SharedStore,
    StoredTexts,
)

TTL = 30.0


class Memory(SharedStore):
    """Texts in memory, by a clock that tests set."""

    def __init__(self) -> None:
        super().__init__("shop")
        self.place = "memory"
        self.clock = 10_000.0
        self.texts: dict[str, bytes] = {}
        self.version = 0

    def _read(self, names: Collection[str]) -> StoredTexts:
        texts = {name: self.texts[name] for name in names if name in self.texts}
        return StoredTexts(texts, dict.fromkeys(texts, self.version), self.clock)

    def _write(self, change: Change) -> bool:
        self.texts |= {name: text.encode() for name, text in change.texts.items()}
        self.version += 1
        return True

    def _texts(self, prefix: str) -> Iterable[bytes]:
        return [text for name, text in sorted(self.texts.items()) if name.startswith(prefix)]

    def _remove_all(self) -> None:
        self.texts.clear()

    def _where(self, name: str) -> str:
        return name


def test_a_lease_taken_by_a_clock_that_ran_ahead_ends_after_its_ttl() -> None:
    store = Memory()
    store.clock += 3600
    store.acquire("killed", "ann", TTL, {})
    store.clock -= 3600
    with pytest.raises(LeaseHeld):
        store.acquire("next", "bob", TTL, {})
    store.clock += TTL + 1
    store.acquire("next", "bob", TTL, {})


def test_a_holder_that_is_alive_keeps_such_a_lease() -> None:
    store = Memory()
    store.clock += 3600
    store.acquire("alive", "ann", TTL, {})
    store.clock -= 3600
    for _renewal in range(3):
        with pytest.raises(LeaseHeld):
            store.acquire("next", "bob", TTL, {})
        store.clock += TTL / 3
        store.commit("alive", TTL)
    store.clock += TTL - 1
    with pytest.raises(LeaseHeld):
        store.acquire("next", "bob", TTL, {})
