# SPDX-License-Identifier: GPL-3.0-or-later
"""Output whose reader has left: a real pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from ansible import context
from ansible.utils.context_objects import CLIArgs
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.step.output import (
    Forgiving,
    forgive_readers,
)


class Pipe:
    def __init__(self, buffering: int) -> None:
        self.reader, writer = os.pipe()
        self.stream = os.fdopen(writer, "w", buffering)
        self.output = Forgiving(self.stream)

    def read(self) -> str:
        return os.read(self.reader, 1000).decode()

    def leave(self) -> None:
        os.close(self.reader)


@pytest.fixture(params=[1, 65536], ids=["lines", "blocks"])
def pipe(request: pytest.FixtureRequest) -> Iterator[Pipe]:
    made = Pipe(request.param)
    yield made
    made.stream.close()


def test_a_reader_gets_what_is_written(pipe: Pipe) -> None:
    assert pipe.output.write("one\n") == 4
    pipe.output.flush()
    assert pipe.read() == "one\n"
    assert pipe.output.fileno() == pipe.stream.fileno()
    pipe.leave()


def test_a_reader_that_left_stops_nothing(pipe: Pipe) -> None:
    pipe.output.write("one\n")
    pipe.leave()
    for _ in range(3):
        assert pipe.output.write("x" * 100_000 + "\n") == 100_001
        pipe.output.flush()
    assert os.readlink(f"/proc/self/fd/{pipe.output.fileno()}") == os.devnull


def test_only_a_run_of_ansible_has_forgiving_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    monkeypatch.setattr(context, "CLIARGS", CLIArgs({}))
    forgive_readers()
    assert not isinstance(sys.stdout, Forgiving)

    monkeypatch.setattr(context, "CLIARGS", CLIArgs({"verbosity": 0}))
    forgive_readers()
    first = sys.stdout
    forgive_readers()
    assert isinstance(sys.stdout, Forgiving) and sys.stdout is first
    assert isinstance(sys.stderr, Forgiving)
