# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that is waited for is named once, then each minute, and when it answers again."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote import pool
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.pool import (
    Job,
    Pool,
    SilentHosts,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(pool, "time", SimpleNamespace(monotonic=lambda: made.seconds))
    return made


def test_a_host_that_hangs_is_named_each_minute_and_at_the_end(now: SimpleNamespace) -> None:
    said: list[str] = []
    silent = SilentHosts(said.append)
    for second in range(131):
        now.seconds = 1000.0 + second
        silent.waited({"lb1": float(second), "web1": 0.5})
    assert said == [
        "waiting for lb1: no answer for 3 s",
        "waiting for lb1: no answer for 64 s",
        "waiting for lb1: no answer for 2 min 04 s",
    ]
    silent.answered("web1")
    silent.answered("lb1")
    silent.answered("lb1")
    assert said[3:] == ["lb1 answers again after 2 min 10 s"]


def test_a_slow_host_has_two_lines_a_minute_at_most(now: SimpleNamespace) -> None:
    """Each of its answers takes four seconds: it was named for every one."""
    said: list[str] = []
    silent = SilentHosts(said.append)
    for _call in range(30):
        for second in range(5):
            silent.waited({"lb1": float(second)})
            now.seconds += 1
        silent.answered("lb1")
    assert len(said) <= 6
    assert said[:2] == ["waiting for lb1: no answer for 3 s", "lb1 answers again after 5 s"]


def test_hosts_that_fall_silent_together_share_a_line(now: SimpleNamespace) -> None:
    said: list[str] = []
    SilentHosts(said.append).waited({"web1": 4.0, "": 4.0, "web2": 1.0})
    assert said == ["waiting for web1, the controller: no answer for 3 s"]


@pytest.mark.parametrize("unreachable", ["", "no route to host"])
def test_only_an_answer_ends_the_wait(monkeypatch: pytest.MonkeyPatch, unreachable: str) -> None:
    monkeypatch.setattr(pool, "NAMED_AFTER", 0.01)
    told, said = threading.Event(), list[str]()

    def say(line: str) -> None:
        said.append(line)
        told.set()
        until(lambda: job.outcome is not None)  # the answer arrives while its host is named

    def work() -> pool.Outcome:
        assert told.wait(60)
        return SimpleNamespace(summary="", unreachable=unreachable)

    def lost(why: str) -> pool.Outcome:
        return SimpleNamespace(summary=why, unreachable=why)

    job = Job("ask", work, lost, 60)
    Pool(SilentHosts(say)).run({"lb1": job}, 1)
    assert said[0].startswith("waiting for lb1: no answer for ")
    assert [line.startswith("lb1 answers again after ") for line in said[1:]] == (
        [] if unreachable else [True]
    )


def test_a_job_that_nobody_waits_for_is_told_of_at_its_end() -> None:
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> pool.Outcome:
        begun.set()
        assert go.wait(60)
        return SimpleNamespace(summary="", unreachable="")

    job = Job("ask", work, lambda why: SimpleNamespace(summary=why, unreachable=why), 60)
    Pool(SilentHosts(lambda _line: None), ended.set).run({"web1": job}, 1, {"web1": -1.0})
    assert begun.wait(60) and job.outcome is None and not ended.is_set()
    go.set()
    assert ended.wait(60) and job.over()


def test_a_job_that_is_over_when_it_is_left_is_told_of() -> None:
    ended = threading.Event()
    job = Job(
        "ask",
        lambda: SimpleNamespace(summary="", unreachable=""),
        lambda why: SimpleNamespace(summary=why, unreachable=why),
        60,
    )
    Pool(SilentHosts(lambda _line: None)).run({"web1": job}, 1)
    job.leave(ended.set)
    assert ended.is_set()
