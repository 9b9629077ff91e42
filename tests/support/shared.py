# SPDX-License-Identifier: GPL-3.0-or-later
"""A world that the tests of a file share, since it takes long to make, as long as they pass.

The file has a fixture of its module that yields the Shared, and a fixture that lends its world to
a test.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

World = t.TypeVar("World")


class Shared(t.Generic[World]):
    """Lends a world to one test after the other; after a test that failed, the next gets another.

    So no test inherits what a failed one left, and fails for it.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[World]]) -> None:
        self._make, self._stack = make, ExitStack()
        self._worlds: list[World] = []  # the one there is, if any

    def __enter__(self) -> Shared[World]:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the world."""
        self._worlds.clear()
        self._stack.close()

    @contextmanager
    def lend(self, request: pytest.FixtureRequest) -> Iterator[World]:
        """Lend the world to the test that asks."""
        failed = request.session.testsfailed  # counted before fixtures are torn down
        if not self._worlds:
            self._worlds.append(self._stack.enter_context(self._make()))
        try:
            yield self._worlds[0]
        except BaseException:
            self.close()
            raise
        if request.session.testsfailed != failed:
            self.close()
