# SPDX-License-Identifier: GPL-3.0-or-later
"""The results of measurements as the timeline keeps them: short texts, and not too many. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import typing as t
import zlib
from collections.abc import Mapping

MOST = 1_000_000  # characters of a metric in an analysis
LARGEST = 100_000  # characters of one result: stores hold a commit of 1 MiB
UNPACKED = 16 << 20  # bytes of one result


def packed(result: Mapping[str, t.Any], at: float, kept: int) -> tuple[str | None, int]:
    """Return a result for the timeline, and how much is kept with it; `kept` is before.

    None is one that is not kept, and none that follow it is: a replay needs all before.
    """
    try:
        text = json.dumps({"at": round(at, 3), **result}, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):  # a driver's result that is no plain data
        return None, MOST
    coded = base64.b64encode(zlib.compress(text.encode())).decode()
    if len(coded) > LARGEST or kept + len(coded) > MOST:
        return None, MOST
    return coded, kept + len(coded)


def unpacked(coded: t.Any) -> dict[str, t.Any] | None:
    """Return a result with `at`, and `result` or `error`; None: it is not kept, or damaged."""
    if not isinstance(coded, str):
        return None
    try:
        reader = zlib.decompressobj()
        result = json.loads(reader.decompress(base64.b64decode(coded, validate=True), UNPACKED))
    except (binascii.Error, ValueError, zlib.error, RecursionError):
        return None
    sound = isinstance(result, dict) and isinstance(result.get("at"), (int, float))
    return result if sound and ("result" in result) != ("error" in result) else None
