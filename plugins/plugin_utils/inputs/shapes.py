# SPDX-License-Identifier: GPL-3.0-or-later
"""Read plain data from files and hosts as type annotations say. Pure.

So a new field is checked without another line.

Supported are bool, int, float, str, None, Any, Literal, enums of text, unions, lists, tuples and
frozensets of one kind, dictionaries whose keys are text or whole numbers (which JSON has as text),
dataclasses, NamedTuples, and TypedDicts. Annotated data is checked by the annotation, and kept as
it is. Whole numbers are not negative: what is counted and numbered here is not. A number is finite,
and no moment is farther away than the year 5138.

A type's annotations are looked at once. What reads data of the type is then a function.
"""

from __future__ import annotations

import contextlib
import functools
import types
import typing as t
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from types import NoneType

MOST = 2**53  # a larger whole number is not the same in every program that reads JSON
FARTHEST = 1e11  # seconds
Reader = Callable[[t.Any], t.Any]
Writer = Callable[[t.Any, Container[tuple[str, t.Any]]], t.Any]


class Misshapen(Exception):
    """What is wrong with which part of the data: "rollout.phase is 3, not text"."""

    def __init__(self, what: str, where: str = "", of_key: bool = False) -> None:
        super().__init__(what)
        self.what, self.where, self.of_key = what, where, of_key

    def within(self, part: str) -> Misshapen:
        """Return the same error, seen from what contains the data."""
        return Misshapen(self.what, part + self.where, self.of_key)

    def __str__(self) -> str:
        where = self.where.removeprefix(".") or "it"
        return f"{'a key of ' if self.of_key else ''}{where} {self.what}"


def read(kind: t.Any, data: t.Any, where: str = "") -> t.Any:
    """Return `data` as a value of this type; raises Misshapen. `where` leads to the data.

    Unknown fields of a dataclass are passed over, and missing ones have their defaults.
    """
    try:
        return reader(kind)(data)
    except Misshapen as exc:
        raise (exc.within(where) if where else exc) from None


def write(value: t.Any, omitted: Container[tuple[str, t.Any]] = ()) -> t.Any:
    """Return a value as the plain data that `read` makes it of.

    Fields of dataclasses are left out where name and value are `omitted`. Those that are annotated
    are kept as they are.
    """
    kind: t.Any = type(value)
    return _writer(kind)(value, omitted)


@functools.cache
def _writer(kind: t.Any) -> Writer:
    """Return the function that writes values of a type."""
    if issubclass(kind, tuple) and hasattr(kind, "_asdict"):
        return lambda value, omitted: _write_mapping(value._asdict(), omitted)
    if issubclass(kind, (list, tuple)):
        return lambda value, omitted: [write(item, omitted) for item in value]
    if issubclass(kind, Mapping):
        return _write_mapping
    if issubclass(kind, (set, frozenset)):
        return lambda value, _omitted: sorted(map(write, value))
    if issubclass(kind, Enum):
        return lambda value, _omitted: value.value
    if is_dataclass(kind):
        return functools.partial(_write_dataclass, kind)
    return lambda value, _omitted: value


def _write_mapping(value: t.Any, omitted: Container[tuple[str, t.Any]]) -> t.Any:
    return {
        key: item if type(item) in _PLAIN else write(item, omitted) for key, item in value.items()
    }


def _write_dataclass(kind: t.Any, value: t.Any, omitted: Container[tuple[str, t.Any]]) -> t.Any:
    return {
        name: item if plain or type(item) in _PLAIN else write(item, omitted)
        for name, plain in _written(kind)
        if (item := getattr(value, name))
        or item not in (None, False)
        or (name, item) not in omitted
    }


@functools.cache
def _written(kind: t.Any) -> tuple[tuple[str, bool], ...]:
    """Return the names of a dataclass's fields, and whether each is plain data: annotated."""
    hints = t.get_type_hints(kind, include_extras=True)
    return tuple((name, t.get_origin(hints[name]) is t.Annotated) for name in _fields(kind))


@functools.cache
def reader(kind: t.Any) -> Reader:
    """Return the function that reads data of a type."""
    origin, arguments = t.get_origin(kind), t.get_args(kind)
    if origin is t.Annotated:
        return functools.partial(_kept, reader(arguments[1]))
    if origin in (t.Union, types.UnionType):
        readers = tuple(reader(argument) for argument in arguments if argument is not NoneType)
        return functools.partial(_union, readers, NoneType in arguments)
    if origin is t.Literal:
        return functools.partial(_literal, arguments, {type(argument) for argument in arguments})
    if origin in (list, Sequence, tuple, frozenset):
        return functools.partial(
            _list, reader(arguments[0]), origin if origin in (tuple, frozenset) else list
        )
    if origin in (dict, Mapping):
        return functools.partial(
            _mapping, _key if arguments[0] is int else reader(arguments[0]), reader(arguments[1])
        )
    if is_dataclass(kind) or hasattr(kind, "_field_defaults"):
        return functools.partial(_dataclass, kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return functools.partial(_enum, {member.value: member for member in kind})
    if t.is_typeddict(kind):
        return functools.partial(_typed, kind)
    if kind not in _PLAIN:
        raise TypeError(f"{kind!r} is none of the types that can be read")
    return _PLAIN[kind]


def _kept(check: Reader, data: t.Any) -> t.Any:
    check(data)
    return data


def _union(readers: tuple[Reader, ...], optional: bool, data: t.Any) -> t.Any:
    """Return what the first of the kinds that fits makes of the data."""
    if data is None and optional:
        return None
    try:
        return readers[0](data)
    except Misshapen:
        for other in readers[1:]:
            with contextlib.suppress(Misshapen):
                return other(data)
        raise


def _literal(choices: tuple[t.Any, ...], kinds: set[type], data: t.Any) -> t.Any:
    return (
        data
        if type(data) in kinds and data in choices
        else _wrong(data, f"one of {', '.join(map(str, choices))}")
    )


def _enum(members: Mapping[str, Enum], data: t.Any) -> Enum:
    if isinstance(data, str) and data in members:
        return members[data]
    return _wrong(data, f"one of {', '.join(members)}")


def _list(item: Reader, kind: type, data: t.Any) -> t.Any:
    if not isinstance(data, (list, tuple)):
        _wrong(data, "a list")
    items: list[t.Any] = []
    try:
        for entry in data:
            items.append(item(entry))
    except Misshapen as exc:
        raise exc.within(f"[{len(items)}]") from None
    return items if kind is list else kind(items)


def _mapping(key: Reader, value: Reader, data: t.Any) -> dict[t.Any, t.Any]:
    if not isinstance(data, Mapping):
        _wrong(data, "a mapping")
    items = {}
    for name, entry in data.items():
        try:
            known = key(name)
        except Misshapen as exc:
            raise Misshapen(exc.what, of_key=True) from None
        try:
            items[known] = value(entry)
        except Misshapen as exc:
            raise exc.within(f".{name}") from None
    return items


def _dataclass(kind: t.Any, data: t.Any) -> t.Any:
    return kind(**_members(_fields(kind), _keyed(data)))


def _typed(kind: t.Any, data: t.Any) -> dict[str, t.Any]:
    return {**_keyed(data), **_members(_items(kind), data)}


def _members(
    known: Mapping[str, tuple[Reader, bool]], data: Mapping[str, t.Any]
) -> dict[str, t.Any]:
    """Read the members that are known, by name: how, and whether it must be there."""
    members = {}
    for name, (read_member, required) in known.items():
        if name in data:
            try:
                members[name] = read_member(data[name])
            except Misshapen as exc:
                raise exc.within(f".{name}") from None
        elif required:
            raise Misshapen("is missing", f".{name}")
    return members


@functools.cache
def _fields(kind: t.Any) -> dict[str, tuple[Reader, bool]]:
    hints = t.get_type_hints(kind, include_extras=True)
    if not is_dataclass(kind):
        return {name: (reader(hints[name]), name not in kind._field_defaults) for name in hints}
    return {
        field.name: (
            reader(hints[field.name]),
            field.default is MISSING and field.default_factory is MISSING,
        )
        for field in fields(kind)
    }


@functools.cache
def _items(kind: t.Any) -> dict[str, tuple[Reader, bool]]:
    items = {}
    for name, hint in t.get_type_hints(kind, include_extras=True).items():
        optional = t.get_origin(hint) is t.NotRequired
        items[name] = (
            reader(t.get_args(hint)[0] if optional else hint),
            bool(kind.__total__) and not optional,
        )
    return items


def _keyed(data: t.Any) -> Mapping[str, t.Any]:
    if isinstance(data, Mapping) and all(isinstance(key, str) for key in data):
        return data
    return _wrong(data, "a mapping with text for keys")


def _key(key: t.Any) -> t.Any:
    """Read a whole number, which JSON has as text where it is a key."""
    return (
        int(key)
        if isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) < 16
        else _whole(key)
    )


def _nothing(data: t.Any) -> None:
    if data is not None:
        _wrong(data, "nothing")


def _boolean(data: t.Any) -> t.Any:
    return data if isinstance(data, bool) else _wrong(data, "true or false")


def _text(data: t.Any) -> t.Any:
    return data if isinstance(data, str) else _wrong(data, "text")


def _whole(data: t.Any) -> t.Any:
    fits = isinstance(data, int) and not isinstance(data, bool) and 0 <= data <= MOST
    return data if fits else _wrong(data, "a whole number")


def _number(data: t.Any) -> t.Any:
    # nan is not less than it
    fits = isinstance(data, (int, float)) and not isinstance(data, bool) and abs(data) <= FARTHEST
    return data if fits else _wrong(data, "a number")


def _anything(data: t.Any) -> t.Any:
    return data


_PLAIN: dict[t.Any, Reader] = {
    None: _nothing,
    NoneType: _nothing,
    bool: _boolean,
    str: _text,
    int: _whole,
    float: _number,
    t.Any: _anything,
}


def _wrong(data: t.Any, what: str) -> t.NoReturn:
    shown = (
        repr(data)
        if isinstance(data, (bool, int, float, NoneType)) and abs(data or 0) <= MOST
        else type(data).__name__
    )
    raise Misshapen(f"is {'text' if isinstance(data, str) else shown}, not {what}")
