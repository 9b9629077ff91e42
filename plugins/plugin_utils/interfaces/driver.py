# SPDX-License-Identifier: GPL-3.0-or-later
"""What drivers of every kind have in common."""

from __future__ import annotations

import abc
import typing as t
from collections.abc import Mapping, Sequence

if t.TYPE_CHECKING:
    from .context import DriverContext


class BaseDriver(abc.ABC):
    """A driver: the class `Driver` of a module that also has `OPTIONS`, a table of fields.

    What is abstract in the base class of its kind, each driver implements. For all else the base
    class has a default that works.
    """

    kind: t.ClassVar[str]  # what messages call such a driver
    folder: t.ClassVar[str]  # the package below `plugin_utils` that modules of this kind are in
    unsupported: t.ClassVar[Mapping[str, str]] = {}
    """Options that other drivers of this kind have, with the reason why this one does not."""

    @abc.abstractmethod
    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        """Take the options as `OPTIONS` parses them, all of them, with defaults. Touch nothing.

        Raises InputError for what a table of fields cannot check, with the variable's name, its
        value, and what to do.
        """

    def leave(self, dry: bool) -> Sequence[str]:
        """Remove what rollouts of the service have left that nothing needs which goes on serving.

        Return what that is, each with its place; `dry`: only return it. No instance is stopped, and
        no load balancer changes where it sends requests. Raises an error of this kind of driver
        where something is left; called again, it removes the rest.
        """
        return ()

    @classmethod
    def variant(cls, options: Mapping[str, t.Any]) -> type[t.Any]:
        """Return the class for these options: a driver may have several, under one name."""
        return cls
