# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that is left beside the user's tasks: it begins when told to, finishes what it has
in hand, and never outlives the run.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.background import watch
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.interrupt import (
    Guard,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import identity
from ansible_collections.progressive.rollout.tests.support.waiting import until

fork = multiprocessing.get_context("fork")


def nothing() -> None:
    """Nobody is to be told."""


def attending(log: Path) -> None:
    """As the watch of a step does: until its guard stops it, and to the end of what it has in
    hand.
    """
    with Guard(outlives=True) as guard:
        log.write_text("begun")
        while not guard.stopped:
            time.sleep(0.005)
        time.sleep(0.05)
        log.write_text(guard.stopped)


def test_without_a_beginning_it_does_nothing_and_ends(tmp_path: Path) -> None:
    one = watch.Watch((tmp_path / "log").touch)
    one.close()
    assert not (tmp_path / "log").exists()
    with pytest.raises(ChildProcessError):  # it was waited for
        os.waitpid(one.pid, os.WNOHANG)


def test_it_is_ended_by_a_later_step_which_waits_for_what_it_has_in_hand(tmp_path: Path) -> None:
    log = tmp_path / "log"
    one = watch.Watch(lambda: attending(log))
    known = one.begin()
    one.close()
    until(lambda: log.exists() and log.read_text() == "begun")
    watch.end(known, nothing)
    assert log.read_text() == "SIGTERM"
    os.waitpid(one.pid, 0)
    watch.end(known, nothing)  # and is not there any more


def test_another_process_with_its_number_is_left_alone() -> None:
    watch.end({"pid": os.getpid(), "began": identity.began(os.getpid()) - 1}, nothing)
    watch.end(None, nothing)
    with pytest.raises(InputError, match="rollout_watch: expected what vacate returned, got 'no'"):
        watch.end("no", nothing)


def run(log: Path, known: Path) -> None:
    """A run of ansible-playbook: its worker leaves a watch behind."""

    def worker() -> None:
        one = watch.Watch(lambda: attending(log))
        known.write_text(str(one.begin()["pid"]))
        one.close()

    step = fork.Process(target=worker)
    step.start()
    step.join()
    known.with_name("joined").touch()
    signal.pause()


def test_it_outlives_the_worker_that_left_it_and_ends_with_the_run(tmp_path: Path) -> None:
    log, known = tmp_path / "log", tmp_path / "pid"
    main = fork.Process(target=run, args=(log, known))
    main.start()
    until((tmp_path / "joined").exists)
    pid = int(known.read_text())
    began = identity.began(pid)
    until(lambda: log.exists() and log.read_text() == "begun")
    assert identity.lives(pid, began), "its worker has ended"
    main.kill()
    main.join()
    until(lambda: not identity.lives(pid, began))
    assert log.read_text() == "ansible-playbook is gone"
