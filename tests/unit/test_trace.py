# SPDX-License-Identifier: GPL-3.0-or-later
"""What -vvv shows: calls with their outcome and time, those that take long before they end."""

from __future__ import annotations

import threading

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import trace as tracing
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.trace import (
    note,
    shown,
    trace,
    words,
)


def test_a_call_is_shown_with_its_outcome_and_time() -> None:
    lines: list[str] = []
    with shown(lines.append):
        note("decision", {"reason": "ready", "detail": ""})
        with trace("lb1: haproxy") as call:
            call.outcome = "refused"
        with trace("web1: process"):
            assert len(lines) == 2
        with pytest.raises(OSError), trace("web2: process"):
            raise OSError("gone")
    assert lines[0] == "decision: reason=ready"
    assert [line.rpartition(" (")[0] for line in lines[1:]] == [
        "lb1: haproxy: refused",
        "web1: process",
        "web2: process: OSError: gone",
    ]
    assert all(line.endswith(" ms)") for line in lines[1:])


def test_a_call_that_hangs_is_shown_while_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "LONG", (0.02, 0.05))
    lines: list[str] = []
    twice = threading.Event()

    def show(line: str) -> None:
        lines.append(line)
        if len(lines) == 2:
            twice.set()

    with shown(show), trace("lb1: haproxy"):
        assert twice.wait(20)
    assert [line.partition(": no answer after ")[0] for line in lines[:2]] == ["lb1: haproxy"] * 2
    assert lines[2].startswith("lb1: haproxy (") and len(lines) == 3


def test_nothing_is_shown_unless_asked_for() -> None:
    with shown(None), trace("web1: process") as call:
        note("decision", {"reason": "ready", "detail": ""})
        call.outcome = "well"
    lines: list[str] = []
    with shown(lines.append):
        pass
    with trace("web1: process"):
        note("decision", {"reason": "ready", "detail": ""})
    assert lines == []


def test_a_step_within_a_step_leaves_the_trace_of_the_outer_one() -> None:
    lines: list[str] = []
    with shown(lines.append):
        with shown(None):
            note("decision", {"reason": "not this"})
        note("decision", {"reason": "this"})
    assert lines == ["decision: reason=this"]


def test_facts_that_say_nothing_are_left_out() -> None:
    assert words({"new": 0, "detail": "", "by": None, "host": "web1"}) == "new=0, host=web1"
