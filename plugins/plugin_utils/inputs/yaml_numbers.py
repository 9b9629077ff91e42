# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuse numbers that YAML 1.1 reads differently than people.

It reads `010` as 8, `1:30` as 90, `0x1F` as 31, and `1_000` as 1000.

A value does not show how it was written, but Ansible records its file, line and column.
"""

from __future__ import annotations

import functools
import importlib
import re
import typing as t
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from ..base.errors import InputError


def _tag() -> t.Any:
    """Return Ansible's tag of a value's origin, None where a later version keeps it elsewhere."""
    try:
        return importlib.import_module("ansible._internal._datatag._tags").Origin
    except (ImportError, AttributeError):
        return None


_ORIGIN = _tag()
_TOKEN = re.compile(r"[^\s,\]}#]+")
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_MOST = 10**100  # of a number; Python writes at most thousands of digits
_LONGEST = 1 << 20  # bytes of a file that is read again
_SECRET = ("env", "headers", "auth")  # what is below these is not shown


def refuse_odd_numbers(value: t.Any, variable: str) -> None:
    """Raise InputError for a number, at any depth, that people read as another value.

    Numbers with too many digits to be shown are refused, too.
    """
    for name, number in _numbers(value, variable):
        if isinstance(number, int) and abs(number) > _MOST:
            raise InputError(f"{name}: the number has too many digits", "PR-104")
        text = _written(number)
        if text is None or (
            _WHOLE.fullmatch(text) if isinstance(number, int) else not {":", "_"} & set(text)
        ):
            continue
        if any(part in _SECRET for part in name.split(".")):
            raise InputError(
                f"{name}: YAML reads this number differently than it is written; put it in quotes",
                "PR-103",
            )
        raise InputError(
            f"{name}: YAML reads {text} as the number {number}; write {number}, or put it in quotes"
            f' ("{text}")',
            "PR-103",
        )


def _numbers(value: t.Any, name: str) -> Iterator[tuple[str, int | float]]:
    if isinstance(value, Mapping):
        for key in value:
            yield from _numbers(value[key], f"{name}.{key}")
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _numbers(item, f"{name}[{number}]")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield name, value


def _written(number: float) -> str | None:
    """Return how a number was written, None where that is not known."""
    origin = _ORIGIN.get_tag(number) if _ORIGIN else None
    if not origin or not origin.path or not origin.line_num or not origin.col_num:
        return None
    lines = _lines(origin.path)
    if origin.line_num > len(lines) or not (
        token := _TOKEN.match(lines[origin.line_num - 1], origin.col_num - 1)
    ):
        return None
    try:
        return token[0] if yaml.safe_load(token[0]) == number else None
    except (yaml.YAMLError, ValueError):
        return None  # the file has changed


@functools.cache
def _lines(path: str) -> list[str]:
    try:
        file = Path(path)
        return (
            file.read_text(encoding="utf-8").splitlines() if file.stat().st_size <= _LONGEST else []
        )
    except (OSError, ValueError):
        return []
