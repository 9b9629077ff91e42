# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver as users choose one: its name and its options."""

from __future__ import annotations

import typing as t

from ..base.errors import InputError
from ..inputs import values
from ..inputs.options import TEXT, Field, Kind, Options
from ..interfaces import loader
from ..interfaces.driver import BaseDriver
from ..interfaces.loader import DriverChoice


def driver(kind: type[BaseDriver], default: str | None = None) -> Kind:
    """Return the kind of a mapping with the name of a driver and its options."""

    def parse(given: t.Any, variable: str) -> DriverChoice[t.Any]:
        options = values.mapping(given, variable)
        name = options.pop("driver", default)
        if not isinstance(name, str) or not name:
            what, message = (
                ("not given, but required; write one", "PR-102")
                if name is None
                else (f"{name!r} is not the name of a driver; write one", "PR-108")
            )
            raise InputError(f"{variable}.driver: {what}, as in {{driver: process}}", message)
        module = loader.load(kind, name, variable)
        return DriverChoice(name, module, module.check(options, variable))

    named = Field(
        "driver",
        TEXT,
        "Name of the driver. One from another collection is V(namespace.collection.driver).",
        default=default,
        required=default is None,
    )
    return Kind("dict", parse, fields=Options(named), drivers=kind.folder)
