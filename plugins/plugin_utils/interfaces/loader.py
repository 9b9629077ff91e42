# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find a driver by its name."""

from __future__ import annotations

import importlib
import re
import typing as t

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.names import HERE

_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*){0,2}")


def load(folder: str, name: str, variable: str) -> t.Any:
    """The module of driver `name` in `folder` (`platforms`, `traffic`, `stores`); `variable` is what asked for it."""
    collection, _dot, short = name.rpartition(".")
    path = f"ansible_collections.{collection or HERE}.plugins.plugin_utils.{folder}.{short}"
    try:
        if not _NAME.fullmatch(name):
            raise ModuleNotFoundError(name=path)
        return importlib.import_module(path)
    except ModuleNotFoundError as exc:
        if not path.startswith(str(exc.name)):
            raise
        raise InputError(
            f"{variable}.driver: there is no driver {name!r}; write a name from the documentation, or namespace.collection.name"
        ) from None
