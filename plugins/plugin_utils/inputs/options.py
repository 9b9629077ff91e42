# SPDX-License-Identifier: GPL-3.0-or-later
"""Options, each written once: a table of fields parses what users write, and documents it. Pure.

`make generate` writes the documentation from the tables: of modules, doc fragments, roles and the
reference.
"""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from ..base.errors import InputError
from . import values

Parse = Callable[[t.Any, str], t.Any]  # a value and its variable's name, for messages


@dataclass(frozen=True)
class Kind:
    """The kind of an option's values."""

    type: str  # Ansible's name of it
    parse: Parse
    note: str = ""  # a sentence for the documentation: the form and the bounds
    elements: str = ""  # the type of a list's items
    choices: Mapping[str, str] = field(default_factory=dict)  # with a sentence each, or none
    # of a mapping, or of each mapping in a list; a function where they are for documentation alone
    fields: Options | Callable[[], Options] | None = None
    drivers: str = ""  # the folder of the drivers whose options it takes, too

    @property
    def documented(self) -> Options:
        """The options of a mapping, or of each mapping in a list."""
        return self.fields() if callable(self.fields) else self.fields or Options()


@dataclass(frozen=True)
class Field:
    """An option: its name, its kind, and what it means (Ansible's markup, a paragraph a line)."""

    name: str
    kind: Kind
    text: str
    default: t.Any = None  # as a user would write it; None: not given
    required: bool = False
    no_log: bool = False

    def parse(self, value: t.Any, variable: str) -> t.Any:
        """Return the value in its type, None where neither it nor a default is given."""
        if value == "" and self.no_log:
            raise InputError(f"{variable}: must not be empty; set it, or leave it out", "PR-125")
        if value is None or value == "":
            if self.required:
                raise InputError(f"{variable}: not given, but required", "PR-102")
            value = self.default
        return None if value is None else self.kind.parse(value, variable)


class Options(Mapping[str, Field]):
    """The fields that a driver, a step or a mapping takes, by name.

    Of two with the same name the last counts.
    """

    def __init__(self, *fields: Field) -> None:
        self._by_name = {field.name: field for field in fields}
        self.fields = tuple(self._by_name.values())

    def __getitem__(self, name: str) -> Field:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def parse(self, given: Mapping[str, t.Any], prefix: str) -> dict[str, t.Any]:
        """Return every option in its type; raise InputError for an unknown, missing or wrong one.

        `prefix` precedes the options' names in messages, as `rollout_traffic.` does.
        """
        values.refuse_unknown(given, self, prefix)
        return {
            field.name: field.parse(given.get(field.name), prefix + field.name)
            for field in self.fields
        }

    def part(self, given: Mapping[str, t.Any]) -> dict[str, t.Any]:
        """Return what of `given` belongs to these options."""
        return {name: value for name, value in given.items() if name in self}

    def parted(self, given: Mapping[str, t.Any]) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
        """Return the options that may be shown, and the secret ones. Empty ones are in neither."""
        present = {name: value for name, value in given.items() if value not in (None, "", {}, [])}
        secret = {
            name: value for name, value in present.items() if name in self and self[name].no_log
        }
        return {name: value for name, value in present.items() if name not in secret}, secret


# Kinds ----------------------------------------------------------------------------------------


def duration(minimum: float = 0.0, maximum: float = values.LONGEST) -> Kind:
    """Return the kind of a duration: seconds, or a number with a unit."""
    bounds = [f"at least {values.units(minimum)}"] if minimum >= 1 else []
    bounds += [f"at most {values.units(maximum)}"] if maximum < values.LONGEST else []
    note = ", ".join(["A duration", *bounds]) + "."
    return Kind("raw", functools.partial(values.duration, minimum=minimum, maximum=maximum), note)


def whole(minimum: int = 0, maximum: int = 999_999_999) -> Kind:
    """Return the kind of a whole number within bounds."""
    bounded = (
        f"{minimum} to {maximum}."
        if maximum < 999_999
        else f"At least {minimum}."
        if minimum > 0
        else ""
    )
    return Kind("int", functools.partial(values.whole, minimum=minimum, maximum=maximum), bounded)


def number(low: float, high: float, exclusive: bool = False) -> Kind:
    """Return the kind of a number within bounds."""
    bounds = f"More than {low:g}." if high > 1000 else f"Between {low:g} and {high:g}."
    note = bounds if exclusive else f"{low:g} to {high:g}."
    return Kind(
        "float", functools.partial(values.number, low=low, high=high, exclusive=exclusive), note
    )


def choice(*names: str, **sentences: str) -> Kind:
    """Return the kind of one of a few words, perhaps with a sentence each."""
    choices = {**dict.fromkeys(names, ""), **sentences}
    return Kind("str", functools.partial(values.choice, choices=tuple(choices)), choices=choices)


def group(options: Options) -> Kind:
    """Return the kind of a mapping with nested options."""

    def parse(value: t.Any, variable: str) -> dict[str, t.Any]:
        return options.parse(values.mapping(value, variable), f"{variable}.")

    return Kind("dict", parse, fields=options)


def one_or_more(kind: Kind) -> Kind:
    """Return the kind of a value or a list of them, which becomes a list."""

    def parse(value: t.Any, variable: str) -> list[t.Any]:
        listed = value if isinstance(value, (list, tuple)) else [value]
        if not listed:
            raise InputError(f"{variable}: must not be empty; leave it out", "PR-125")
        return [kind.parse(item, variable) for item in listed]

    return Kind("list", parse, kind.note, kind.type)


def unparsed(value: t.Any, _variable: str) -> t.Any:
    """Return what the driver itself parses."""
    return value


def _factor(value: t.Any, variable: str) -> Fraction:
    """Return a factor, exactly as it was written."""
    return Fraction(str(number(0, MOST, exclusive=True).parse(value, variable)))


RAW = Kind("raw", unparsed)
MOST = 1000
FACTOR = Kind("float", _factor, f"More than 0, at most {MOST}.")
TEXT = Kind("str", values.text)
NAME = Kind("str", values.label)
FLAG = Kind("bool", values.boolean)
DURATION = duration()
WHOLE = whole()
AMOUNT = Kind("raw", values.amount, "A whole number or a percentage.")
MAPPING = Kind("dict", values.mapping)
PATH = Kind("str", values.absolute, "An absolute path.")
PORT = Kind("int", values.port, "1 to 65535.")
ADDRESS = Kind("str", values.socket_address, "An address and a port.")
LISTEN = Kind("str", values.ip_socket_address, "An IP address and a port.")
