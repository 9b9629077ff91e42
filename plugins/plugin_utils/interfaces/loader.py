# SPDX-License-Identifier: GPL-3.0-or-later
"""Find a driver by its name."""

from __future__ import annotations

import importlib
import re
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..base.errors import InputError
from ..base.names import HERE
from ..inputs.options import Options
from .driver import BaseDriver

if t.TYPE_CHECKING:
    from .context import DriverContext

D = t.TypeVar("D", bound=BaseDriver)
_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*){0,2}")


@dataclass(frozen=True)
class DriverModule(t.Generic[D]):
    """A driver's class, and the table of its options."""

    driver: type[D]
    options: Options

    def check(self, given: Mapping[str, t.Any], variable: str) -> dict[str, t.Any]:
        """Return the options with defaults filled in; raise InputError for what does not fit."""
        for name, why in self.driver.unsupported.items():
            if given.get(name) not in (None, "", {}, []):
                raise InputError(f"{variable}.{name}: {why}", "PR-310")
        supported = {
            name: value for name, value in given.items() if name not in self.driver.unsupported
        }
        return self.options.parse(supported, f"{variable}.")


@dataclass(frozen=True)
class DriverChoice(t.Generic[D]):
    """A driver by its name, with its own options, checked."""

    name: str
    module: DriverModule[D]
    options: dict[str, t.Any]

    @property
    def driver(self) -> type[D]:
        """The driver's class."""
        chosen: type[D] = self.module.driver.variant(self.options)
        return chosen

    def make(self, context: DriverContext) -> D:
        """Make the driver. Raises InputError for options that it refuses."""
        return self.driver(self.options, context)


def load(kind: type[D], name: str, variable: str) -> DriverModule[D]:
    """Return the driver `name` of this kind; `variable` is the one that asks for it."""
    collection, _dot, short = name.rpartition(".")
    path = f"ansible_collections.{collection or HERE}.plugins.plugin_utils.{kind.folder}.{short}"
    try:
        if not _NAME.fullmatch(name):
            raise ModuleNotFoundError(name=path)
        module = importlib.import_module(path)
    except ModuleNotFoundError as exc:
        if not path.startswith(str(exc.name)):
            raise
        raise InputError(
            f"{variable}.driver: there is no driver {name!r}; {_hint(kind, name)}", "PR-108"
        ) from None
    members = vars(module)
    driver, options = members.get("Driver"), members.get("OPTIONS")
    if not (isinstance(driver, type) and issubclass(driver, kind) and isinstance(options, Options)):
        raise InputError(
            f"{variable}.driver: {name!r} is not a driver of a {kind.kind}: {path} needs OPTIONS"
            f" and a class Driver derived from {kind.__name__}",
            "PR-108",
        )
    return DriverModule(driver, options)


def _hint(kind: type[BaseDriver], name: str) -> str:
    """Return the driver of this collection that may be meant, or all of this kind."""
    folder = Path(__file__).parents[1] / kind.folder
    names = sorted(path.stem for path in folder.glob("[a-z]*.py"))
    import difflib  # of wrong input alone

    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"known: {', '.join(names)}, and namespace.collection.name"
