# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plain data from files and hosts, read as the annotations of a type say, so that a new field is checked without another line. Pure.

Known are bool, int, float, str, None, Any, Literal, unions, enums of text, lists, tuples and frozensets of one kind, dictionaries whose keys are text
or whole numbers (which JSON has as text), dataclasses, and TypedDicts. What is Annotated with one of these is checked by that, and kept as it is.
Whole numbers are not negative: what we count and number is not. A number is finite, and no moment farther away than the year 5138.
"""

from __future__ import annotations

import contextlib
import functools
import types
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from types import NoneType

MOST = 2**53  # a larger whole number is not the same in every program that reads JSON
FARTHEST = 1e11  # seconds


class Misshapen(Exception):
    """What is where, and what it should be: "rollout.phase is 3, not text"."""


def read(kind: t.Any, data: t.Any, where: str = "") -> t.Any:
    """`data` as a value of this type; raises Misshapen. `where` leads to it.

    Of a dataclass, fields that it does not know are passed over, and those that are missing have their defaults.
    """
    origin, arguments = t.get_origin(kind), t.get_args(kind)
    if origin is t.Annotated:
        read(arguments[1], data, where)
        return data
    if origin in (t.Union, types.UnionType):
        return None if data is None and NoneType in arguments else _union(arguments, data, where)
    if origin is t.Literal:
        return _checked(data in arguments and type(data) in {type(one) for one in arguments}, data, where, _either(arguments))
    if origin in (list, Sequence, tuple, frozenset):
        _checked(isinstance(data, (list, tuple)), data, where, "a list")
        found = [read(arguments[0], one, f"{where}[{number}]") for number, one in enumerate(data)]
        return origin(found) if origin in (tuple, frozenset) else found
    if origin in (dict, Mapping):
        _checked(isinstance(data, Mapping), data, where, "a mapping")
        return {_key(arguments[0], key, where): read(arguments[1], one, f"{where}.{key}") for key, one in data.items()}
    if is_dataclass(kind):
        return _fields(kind, data, where)
    if t.is_typeddict(kind):
        return _typed(kind, data, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        known = tuple(one.value for one in kind)
        return kind(_checked(isinstance(data, str) and data in known, data, where, _either(known)))
    return data if kind is t.Any else _plain(kind, data, where)


def _plain(kind: t.Any, data: t.Any, where: str) -> t.Any:
    if kind in (None, NoneType):
        return _checked(data is None, data, where, "nothing")
    if kind is bool:
        return _checked(isinstance(data, bool), data, where, "true or false")
    if kind is str:
        return _checked(isinstance(data, str), data, where, "text")
    number = isinstance(data, (int, float)) and not isinstance(data, bool)
    if kind is int:
        return _checked(number and isinstance(data, int) and 0 <= data <= MOST, data, where, "a whole number")
    if kind is float:
        return _checked(number and abs(data) <= FARTHEST, data, where, "a number")  # nan is not less than anything
    raise TypeError(f"{kind!r} is none of the types that can be read")


def _union(kinds: tuple[t.Any, ...], data: t.Any, where: str) -> t.Any:
    """What the first of the kinds that fits makes of it."""
    first, *others = (kind for kind in kinds if kind is not NoneType)
    try:
        return read(first, data, where)
    except Misshapen:
        for kind in others:
            with contextlib.suppress(Misshapen):
                return read(kind, data, where)
        raise


def _fields(kind: t.Any, data: t.Any, where: str) -> t.Any:
    _keyed(data, where)
    hints, known = _hints(kind), {}
    for field in fields(kind):
        inner = _inside(where, field.name)
        if field.name in data:
            known[field.name] = read(hints[field.name], data[field.name], inner)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise Misshapen(f"{inner} is missing")
    return kind(**known)


def _typed(kind: t.Any, data: t.Any, where: str) -> dict[str, t.Any]:
    _keyed(data, where)
    found = dict(data)
    for name, hint in _hints(kind).items():
        optional = t.get_origin(hint) is t.NotRequired
        if name in data:
            found[name] = read(t.get_args(hint)[0] if optional else hint, data[name], _inside(where, name))
        elif kind.__total__ and not optional:
            raise Misshapen(f"{_inside(where, name)} is missing")
    return found


@functools.cache
def _hints(kind: t.Any) -> dict[str, t.Any]:
    return t.get_type_hints(kind, include_extras=True)


def _key(kind: t.Any, key: t.Any, where: str) -> t.Any:
    if kind is int and isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) < 16:
        return int(key)
    return read(kind, key, f"a key of {where}")


def _keyed(data: t.Any, where: str) -> None:
    _checked(isinstance(data, Mapping) and all(isinstance(key, str) for key in data), data, where, "a mapping with text for keys")


def _checked(fits: bool, data: t.Any, where: str, what: str) -> t.Any:
    if not fits:
        shown = repr(data) if isinstance(data, (bool, int, float, NoneType)) and abs(data or 0) <= MOST else type(data).__name__
        raise Misshapen(f"{where or 'it'} is {shown if not isinstance(data, str) else 'text'}, not {what}")
    return data


def _either(choices: tuple[t.Any, ...]) -> str:
    return f"one of {', '.join(map(str, choices))}"


def _inside(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
