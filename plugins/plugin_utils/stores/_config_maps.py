# SPDX-License-Identifier: GPL-3.0-or-later
"""A journal as the data of ConfigMaps, which hold at most 1 MiB each. No I/O.

One has the record, the latest events, and the names of those with earlier events, its *chunks*.
"""

from __future__ import annotations

import base64
import json
import typing as t
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..base.errors import StoreError
from ._shared import RECORD, TIMELINES, Change

LARGEST = 1 << 20  # bytes of the data of a ConfigMap
LARGE = 100_000  # bytes from which a text is compressed, and events become a chunk
MOST = 16 << 20  # bytes of a text
EVENTS, INDEX = "events", "index"
Data = Mapping[str, Mapping[str, str]]  # `data` and `binaryData` of a ConfigMap


@dataclass(frozen=True)
class Journal:
    """The texts of a service."""

    name: str = ""  # of its ConfigMap
    texts: Mapping[str, bytes] = field(default_factory=dict)
    rollout: str = ""  # whose latest events these are
    events: str = ""
    # by rollout, the ConfigMaps with its earlier events
    chunks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    epoch: int = 0  # of the lease that it was written under
    number: int = 0  # grows with each commit

    @property
    def order(self) -> tuple[int, int]:
        """Return what is higher for a later journal."""
        return self.epoch, self.number

    def named(self) -> set[str]:
        """Return all chunks."""
        return {name for names in self.chunks.values() for name in names}

    def after(self, change: Change, name: str, epoch: int) -> tuple[Journal, dict[str, str]]:
        """Return the journal after a commit, and the events of the chunks that it needs."""
        texts = {key: text.encode() for key, text in change.texts.items() if key in _TEXTS}
        new = replace(
            self, name=name, texts={**self.texts, **texts}, epoch=epoch, number=self.number + 1
        )
        made: dict[str, str] = {}
        for key, text in change.texts.items():
            if key.startswith("timeline/"):
                new = new._appended(key.split("/")[1], text, made)
        dropped = {prefix.split("/")[1] for prefix in change.drop}
        kept = {chunk: names for chunk, names in new.chunks.items() if chunk not in dropped}
        return replace(new, chunks=kept), made

    def _appended(self, rollout: str, text: str, made: dict[str, str]) -> Journal:
        """Add events; earlier ones become a chunk where they are many, or another rollout's."""
        if rollout == self.rollout and len(self.events) + len(text) < LARGE:
            return replace(self, events=self.events + text)
        chunks = dict(self.chunks)
        if self.events:
            chunk = f"{self.name}.{len(made) + 1}"
            made[chunk] = self.events
            chunks[self.rollout] = (*chunks.get(self.rollout, ()), chunk)
        return replace(self, rollout=rollout, events=text, chunks=chunks)

    def data(self) -> Data:
        """Return the data of its ConfigMap."""
        index = {
            "rollout": self.rollout,
            "chunks": self.chunks,
            "epoch": self.epoch,
            "number": self.number,
        }
        texts = {name: text.decode() for name, text in self.texts.items()}
        return packed({**texts, EVENTS: self.events, INDEX: json.dumps(index)})


_TEXTS = (RECORD, TIMELINES)


def journal(name: str, config_map: Mapping[str, t.Any]) -> Journal:
    """Return the journal in a ConfigMap; raises ValueError and the like for a damaged one."""
    texts = unpacked(config_map)
    index = json.loads(texts[INDEX])
    return Journal(
        name,
        {key: texts[key] for key in _TEXTS if key in texts},
        str(index["rollout"]),
        texts.get(EVENTS, b"").decode(),
        {str(chunk): tuple(map(str, names)) for chunk, names in index["chunks"].items()},
        int(index["epoch"]),
        int(index["number"]),
    )


def packed(texts: Mapping[str, str]) -> Data:
    """Return texts as the data of a ConfigMap, large ones compressed; raises StoreError."""
    binary = {
        name: zlib.compress(text.encode(), 1) for name, text in texts.items() if len(text) > LARGE
    }
    plain = {name: text for name, text in texts.items() if name not in binary}
    size = sum(len(name) + len(text.encode()) for name, text in plain.items())
    size += sum(len(name) + len(data) for name, data in binary.items())
    if size > LARGEST or any(len(text) > MOST for text in texts.values()):
        raise StoreError(
            f"rollout_store: the journal of this service is too large for Kubernetes ({size} bytes,"
            f" and a ConfigMap holds {LARGEST}); keep it in a store of another kind",
            "PR-509",
        )
    coded = {name: base64.b64encode(data).decode() for name, data in binary.items()}
    return {"data": plain, "binaryData": coded}


def unpacked(config_map: Mapping[str, t.Any]) -> dict[str, bytes]:
    """Return the texts in a ConfigMap; raises ValueError and the like for damaged ones."""
    texts = {name: text.encode() for name, text in (config_map.get("data") or {}).items()}
    for name, coded in (config_map.get("binaryData") or {}).items():
        reader = zlib.decompressobj()
        try:
            texts[name] = reader.decompress(base64.b64decode(coded, validate=True), MOST + 1)
        except zlib.error as exc:
            raise ValueError(f"{name}: {exc}") from None
        if not reader.eof:
            raise ValueError(f"{name} is not whole")
    return texts
