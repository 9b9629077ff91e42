# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers that YAML 1.1 reads otherwise than people do: `010` is 8 to it, `1:30` is 90, `0x1F` is 31, and `1_000` is 1000.

A value does not show how it was written. Ansible keeps where: in which file, line and column.
"""

from __future__ import annotations

import functools
import importlib
import re
import typing as t
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError


def _tag() -> t.Any:
    """Ansible's tag of where a value was written. A later version may keep it elsewhere: then it is not known."""
    try:
        return importlib.import_module("ansible._internal._datatag._tags").Origin
    except (ImportError, AttributeError):
        return None


_ORIGIN = _tag()
_TOKEN = re.compile(r"[^\s,\]}#]+")
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_LONGEST = 1 << 20  # bytes of a file that is read again
_SECRET = ("env", "headers", "auth")  # what is below these is not shown


def refuse_odd_numbers(value: t.Any, variable: str) -> None:
    """Raise InputError for a number in a variable, however deep, that was written in a way which people read as another value."""
    for name, number in _numbers(value, variable):
        text = _written(number)
        if text is None or (_WHOLE.fullmatch(text) if isinstance(number, int) else not {":", "_"} & set(text)):
            continue
        if any(part in _SECRET for part in name.split(".")):
            raise InputError(f"{name}: YAML reads this number otherwise than it is written; put it in quotes", "PR-100")
        raise InputError(
            f'{name}: YAML reads {text} as the number {number}; write {number}, or put it in quotes ("{text}")', "PR-100"
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
    """How a number was written, where that can be found."""
    origin = _ORIGIN.get_tag(number) if _ORIGIN else None
    if not origin or not origin.path or not origin.line_num or not origin.col_num:
        return None
    lines = _lines(origin.path)
    if origin.line_num > len(lines) or not (token := _TOKEN.match(lines[origin.line_num - 1], origin.col_num - 1)):
        return None
    try:
        return token[0] if yaml.safe_load(token[0]) == number else None
    except (yaml.YAMLError, ValueError):
        return None  # the file is not the one that was read, or the number is not there


@functools.cache
def _lines(path: str) -> list[str]:
    try:
        file = Path(path)
        return file.read_text(encoding="utf-8").splitlines() if file.stat().st_size <= _LONGEST else []
    except (OSError, ValueError):
        return []
