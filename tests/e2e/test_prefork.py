# SPDX-License-Identifier: GPL-3.0-or-later
"""A forked ansible-playbook finds what a started one finds, and ends as it does."""

from __future__ import annotations

import os
import signal
import typing as t
from contextlib import suppress

import pytest
from ansible_collections.progressive.rollout.tests.support.playbook import Playground
from ansible_collections.progressive.rollout.tests.support.shop import descendants
from ansible_collections.progressive.rollout.tests.support.waiting import until

# What a task sees of its process: directory, environment, limits, signals; and of Ansible's
# settings.
LOOK = (
    "pwd; env | grep -vE '^(_|RESULTS|PWD|OLDPWD)=' | sort; ulimit -a; grep '^Sig[BIC]'"
    " /proc/self/status"
)
SEEN = {
    "hosts": "localhost",
    "gather_facts": False,
    "tasks": [
        {"ansible.builtin.debug": {"msg": f"{{{{ lookup('ansible.builtin.pipe', {LOOK!r}) }}}}"}},
        {
            "ansible.builtin.debug": {
                "msg": "{{ lookup('ansible.builtin.config', 'ANSIBLE_HOME', 'COLLECTIONS_PATHS') }}"
            }
        },
        {"ansible.builtin.fail": {"msg": "no"}},
    ],
}
# Nothing is on its way from the worker to Ansible while the command runs: a worker that is killed
# while it sends keeps the lock of the queue, and Ansible waits for the lock forever.
WAIT: dict[str, t.Any] = {
    "hosts": "localhost",
    "gather_facts": False,
    "tasks": [{"ansible.builtin.shell": "touch started; exec sleep 60"}],
}


def test_it_sees_the_same() -> None:
    found = []
    for forked in (False, True, True):
        with Playground() as playground:
            run = playground.start([SEEN], forked=forked)
            outcome = run.wait()
            assert not run.left()
            messages = [task.msg.replace(str(playground.home), "HOME") for task in outcome.tasks]
            found.append(
                (outcome.rc, outcome.output.replace(str(playground.home), "HOME"), messages)
            )
    assert "HOME/ansible" in found[0][2][1] and found[0][0] == 2
    assert found[1:] == found[:1] * 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_it_in_the_same_way(playground: Playground, number: signal.Signals) -> None:
    ended = []
    started = playground.home / "started"
    for forked in (False, True):
        started.unlink(missing_ok=True)
        run = playground.start([WAIT], forked=forked)
        until(started.exists, "the command runs")
        workers = descendants(run.process.pid)[1:]
        run.process.send_signal(number)
        ended.append(run.process.wait(30))
        for pid in workers:  # their parent may have been killed
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert ended[0] == ended[1] != 0


def test_two_at_once_are_told_apart(playground: Playground) -> None:
    plays = [
        {**WAIT, "tasks": [{"ansible.builtin.fail": {"msg": name}}]} for name in ("one", "two")
    ]
    runs = [playground.start([play], forked=True) for play in plays]
    assert [run.wait().failed.msg for run in reversed(runs)] == ["two", "one"]
