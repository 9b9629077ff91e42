# SPDX-License-Identifier: GPL-3.0-or-later
"""Ending with the run, and telling whether another run has ended: with real processes, and under
a real ansible-playbook.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
import typing as t
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import errors
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.interrupt import (
    GONE,
    Guard,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.identity import (
    gone,
    identity,
    orphaned,
    resting,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

fork = multiprocessing.get_context("fork")
COLLECTIONS = str(Path(errors.__file__).parents[6])


def alive(pid: int) -> bool:
    """Running: a dead process nobody has waited for is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def put(path: Path, line: str) -> None:
    with path.open("a") as stream:
        stream.write(line + "\n")


def signals() -> list[t.Any]:
    return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]


def death_signal() -> int:
    number = ctypes.c_int(-1)
    ctypes.CDLL(None).prctl(2, ctypes.byref(number), 0, 0, 0)  # PR_GET_PDEATHSIG
    return number.value


def step(log: Path, late: bool) -> None:
    """What a worker does: one action after another, until told to stop."""
    forked_by = os.getppid()
    put(log, f"pid {os.getpid()}")
    if late:
        until(lambda: os.getppid() != forked_by)
    reader, writer = os.pipe()
    try:
        with Guard(wake=lambda: os.write(writer, b"!")) as guard:
            for number in range(2):
                guard.check()
                put(log, f"begin {number}")
                # the action in hand, and its end
                assert select.select([reader], [], [], 20)[0], "not woken"
                put(log, f"end {number}")
    except errors.Interrupted as exc:
        put(log, str(exc).partition(":")[0])


def parent(log: Path, late: bool) -> None:
    child = fork.Process(target=step, args=(log, late))
    child.start()
    child.join()


@pytest.mark.parametrize("late", [False, True], ids=["in an action", "before the step began"])
def test_a_step_ends_when_its_parent_is_killed(tmp_path: Path, late: bool) -> None:
    log = tmp_path / "log"
    main = fork.Process(target=parent, args=(log, late))
    main.start()
    until(lambda: ("pid" if late else "begin 0") in text(log))
    main.kill()
    main.join()
    until(lambda: GONE in text(log))
    first, *rest = text(log).splitlines()
    assert rest == ([GONE] if late else ["begin 0", "end 0", GONE])
    until(lambda: not alive(int(first.split()[1])))


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_only_raises_the_flag_however_often_it_comes(name: str) -> None:
    before, woken = signals(), []
    with Guard(wake=lambda: woken.append(1)) as guard:
        guard.check()
        assert guard.stopped == ""
        assert death_signal() == signal.SIGTERM
        for _dummy in range(2):
            os.kill(os.getpid(), getattr(signal, name))
        os.kill(os.getpid(), signal.SIGTERM)
        assert len(woken) == 3
        assert guard.stopped == name
        with pytest.raises(errors.Interrupted, match=f"^{name}: stopped after"):
            guard.check()
    assert signals() == before
    assert death_signal() == 0


def test_outside_the_main_thread_no_handler_is_touched() -> None:
    seen = []

    def look() -> None:
        before = signals()
        with Guard() as guard:
            seen.append((signals() == before, death_signal(), guard.stopped))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [(True, 0, "")]


ACTION = """
import json, os, select, time
from ansible.plugins.action import ActionBase
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import Interrupted
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.identity import identity
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.interrupt import Guard

class ActionModule(ActionBase):
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        log = task_vars["log"]
        def put(**what):
            with open(log, "a") as stream:
                stream.write(json.dumps(what) + "\\n")
        reader, writer = os.pipe()
        with Guard(wake=lambda: os.write(writer, b"!")) as guard:
            me = identity(guard.parent, task_vars)
            put(token=me.token, run=me.run, holder=me.holder, details=me.details)
            if self._task.args.get("wait"):
                select.select([reader], [], [], 20)
                deadline = time.monotonic() + 20  # of a parent with threads the main one dies first
                while task_vars["killed"] and os.getppid() == guard.parent and time.monotonic() < deadline:
                    time.sleep(0.005)
                try:
                    guard.check()
                except Interrupted as exc:
                    put(end=str(exc).partition(":")[0])
        return {"changed": False}
"""
PLAY = """
- hosts: localhost
  gather_facts: false
  vars: {awx_job_id: 42, awx_user_name: ann}
  tasks:
    - hold:
    - hold: {wait: true}
    - hold:
"""


@pytest.mark.parametrize("number, reason", [(signal.SIGKILL, GONE), (signal.SIGTERM, "SIGTERM")])
@pytest.mark.slow
def test_under_ansible(tmp_path: Path, number: signal.Signals, reason: str) -> None:
    """Two steps of a run are known as such; killed (itself) or told to stop (its worker), the
    step in hand ends in order.
    """
    (tmp_path / "action_plugins").mkdir()
    (tmp_path / "action_plugins" / "hold.py").write_text(ACTION)
    (tmp_path / "play.yml").write_text(PLAY)
    log = tmp_path / "log"
    command = [
        sys.executable,
        "-m",
        "ansible.cli.playbook",
        "-e",
        json.dumps({"log": str(log), "killed": number == signal.SIGKILL}),
        "play.yml",
    ]
    environment = os.environ | {
        "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS,
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_HOME": str(tmp_path),
    }
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as playbook:
        try:
            until(lambda: text(log).count("\n") == 2, 60)
            first, second = map(json.loads, text(log).splitlines())
            assert gone(second["details"]) is False
            os.kill(
                playbook.pid if number == signal.SIGKILL else second["details"]["worker_pid"],
                number,
            )
            until(lambda: '"end"' in text(log))
        finally:
            if number == signal.SIGKILL:
                playbook.kill()
        output = playbook.communicate(timeout=60)[0]
    lines = list(map(json.loads, text(log).splitlines()))
    assert lines[2] == {"end": reason}
    assert first["run"] == second["run"] and first["token"] != second["token"]
    assert first["details"]["pid"] == second["details"]["pid"] == playbook.pid
    assert first["details"]["worker_pid"] != second["details"]["worker_pid"]
    assert second["holder"].endswith(
        f" pid {playbook.pid} (playbook.py play.yml), AWX job 42 of ann"
    )
    until(lambda: gone(second["details"]))
    if number == signal.SIGTERM:  # the worker lived on and the next task ran
        assert (playbook.returncode, len(lines)) == (0, 4), output


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"],
        stdout=subprocess.PIPE,
    )


AT_REST = {"worker_pid": 0, "worker_ticks": 0}


def test_a_holder_is_gone_when_both_its_processes_are() -> None:
    with sleeper() as main, sleeper() as worker:
        try:
            details = dict(identity(main.pid).details)
            of_worker = identity(worker.pid).details
            details.update(worker_pid=of_worker["pid"], worker_ticks=of_worker["ticks"])
            assert details["ticks"] > 0
            assert (gone(details), orphaned(details), resting(details)) == (False, False, False)
            assert (gone(details | AT_REST), resting(details | AT_REST)) == (False, True)
            main.kill()
            until(lambda: not alive(main.pid))  # nobody has waited for it: dead all the same
            assert (gone(details), orphaned(details)) == (False, True)  # its worker lives
            assert gone(details | AT_REST) is True
            worker.kill()
            until(lambda: not alive(worker.pid))
            assert (gone(details), orphaned(details)) == (True, False)
            main.wait()
            worker.wait()
            assert gone(details) is True
        finally:
            main.kill()
            worker.kill()
    again = details | {"pid": os.getpid()}  # the same number, another process
    assert gone(again) is True
    for elsewhere in ({"hostname": "other"}, {"boot_id": "other"}, {"pid_namespace": "other"}):
        assert (gone(details | elsewhere), orphaned(details | elsewhere)) == (None, False)
    assert gone({}) is None
    assert gone({key: value for key, value in details.items() if key != "worker_pid"}) is None


def test_a_run_is_the_same_for_all_that_share_the_main_process_and_a_token_is_each_workers_own() -> (
    None
):
    queue = fork.SimpleQueue()
    children = [
        fork.Process(target=lambda: queue.put(identity(os.getppid()))) for _dummy in range(2)
    ]
    for child in children:
        child.start()
    one, two = queue.get(), queue.get()
    for child in children:
        child.join()
    here = identity(os.getpid())
    assert (one.run, one.holder) == (two.run, two.holder) == (here.run, here.holder)
    assert (
        len({one.token, two.token, here.token}) == 3 and identity(os.getpid()).token == here.token
    )
    assert {one.details["worker_pid"], two.details["worker_pid"]} == {
        child.pid for child in children
    }
    assert identity(os.getppid()).run != one.run
    assert identity(os.getpid(), {"tower_job_id": 7}).holder.endswith("), AWX job 7")
