# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What everything else is built on, and so what a step imports first.

Ansible's loader of collections compiles what it imports at each start. Python's own loader keeps
bytecode, so it imports the modules of `plugin_utils`; what it does not find is left to Ansible.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType


class Finder(MetaPathFinder):
    """Finds the modules below a package."""

    def __init__(self, package: str) -> None:
        self._below = f"{package}."
        self._folder = functools.cache(
            lambda path: FileFinder(path, (SourceFileLoader, SOURCE_SUFFIXES))
        )

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is; None: it is another's, or a folder without code."""
        if not fullname.startswith(self._below):
            return None
        specs = (self._folder(folder).find_spec(fullname) for folder in path or ())
        return next((spec for spec in specs if spec and spec.loader), None)


sys.meta_path.insert(0, Finder(__name__.rpartition(".")[0]))
