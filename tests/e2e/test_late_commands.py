# SPDX-License-Identifier: GPL-3.0-or-later
"""A command for a load balancer whose run was killed arrives after another run has finished: it
changes nothing.
"""

from __future__ import annotations

import sys
import typing as t
from collections.abc import Callable, Iterator

import pytest
from ansible_collections.progressive.rollout.tests.support.playbook import ROLLOUT
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindEnvoy,
    Front,
    Load,
    Reloadable,
    Shop,
    failures,
    kill_all,
)
from ansible_collections.progressive.rollout.tests.support.sshd import Sshd
from ansible_collections.progressive.rollout.tests.support.waiting import until

ROLLBACK = "progressive.rollout.rollback"
SLOW = """\
#!{python}
# A load balancer's host that is slow once: what matches the pattern in the file `hold` waits for the file `release`.
import pathlib, re, subprocess, sys, time
here, program = pathlib.Path({here!r}), sys.stdin.buffer.read()
try:
    hold = (here / "hold").read_bytes()
    if late := re.search(hold, program):
        (here / "hold").rename(here / "held")
        while not (here / "release").exists():
            time.sleep(0.01)
except FileNotFoundError:
    late = None
said = subprocess.run([{python!r}, *sys.argv[1:]], input=program, capture_output=True)
if late:
    (here / "answer").write_bytes(said.stdout)
sys.stdout.buffer.write(said.stdout)
"""
REPLICAS = 3
# an instance of the second rollout
NEW = rb"'op': 'apply'.*'in': True, 'weight': \d+, 'name': 'shop-([4-9]|1\d)'"


class SlowHost:
    """A host behind a real sshd."""

    def __init__(self, sshd: Sshd) -> None:
        self.here = sshd.home
        interpreter = self.here / "python"
        interpreter.write_text(SLOW.format(python=sys.executable, here=str(self.here)))
        interpreter.chmod(0o755)
        own = {**sshd.variables(sshd.addresses[0]), "ansible_python_interpreter": str(interpreter)}
        self.inventory = {"lb": {"hosts": {"lb1": own}}}

    def hold(self, pattern: bytes) -> None:
        """Keep the next command that has this."""
        (self.here / "new").write_bytes(pattern)
        (self.here / "new").rename(self.here / "hold")

    def held(self) -> bool:
        return (self.here / "held").exists()

    def release(self) -> str:
        """Let it go on; what its agent answered."""
        (self.here / "release").touch()
        answer = self.here / "answer"
        until(lambda: answer.exists() and answer.read_text(), "the late command ends")
        return answer.read_text()


@pytest.fixture
def slow() -> Iterator[SlowHost]:
    with Sshd(1) as sshd:
        yield SlowHost(sshd)


def slots() -> Front:
    return Reloadable(prepared=True)


CASES: list[tuple[str, Callable[[], Front], bytes, bool]] = [
    # What is held back of the rollout of 2, and whether that is rolled back then, or run again.
    (
        "slots: entered",
        slots,
        rb"addr [^;]*;set server shop/slot\d weight [^;]*;set server shop/slot\d state drain",
        False,
    ),
    ("envoy: admitted", BehindEnvoy, NEW, True),
]


@pytest.mark.parametrize(
    ("make", "pattern", "back"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_late_command_changes_nothing(
    slow: SlowHost, make: Callable[[], Front], pattern: bytes, back: bool
) -> None:
    front = make()
    kinds = (("GET", True), ("POST", False))
    try:
        few = {
            "rollout_replicas": REPLICAS,
            "rollout_budget": {"max_surge": 1, "max_unavailable": 0},
        }
        traffic = {**front.traffic, "hosts": "lb1"}
        with Shop(
            front,
            inventory=slow.inventory,
            env={"START_DELAY": "0.1"},
            rollout_traffic=traffic,
            **few,
        ) as shop:
            shop.to("1")
            slow.hold(pattern)
            run = shop.start(variables={"rollout_revision": "2"})
            until(slow.held, "the command is held back")
            kill_all(run, shop)
            with Load(front.url, kinds, connections=2, rate=50) as load:
                if back:
                    outcome = shop.run(ROLLBACK)
                    assert outcome.rc == 0, outcome.output
                else:
                    shop.to("2")
                shop.settled("1" if back else "2")
                answer = slow.release()
                assert "a newer lease holder has acted here" in answer, answer
                shop.settled("1" if back else "2")
                reports = load.stop()
            assert failures(reports) == []
            again = shop.to("1" if back else "2")
            assert "nothing to do" in again.output and not again.one("begin").result["changed"]
    finally:
        t.cast(t.Any, front).close()


def test_what_was_left_at_a_load_balancer_is_put_right_by_any_run() -> None:
    """A balancer keeps an entry at an address of no instance, in rotation or not."""
    front = Reloadable(prepared=True)
    try:
        with Shop(front, env={"START_DELAY": "0.1"}) as shop:
            shop.to("1")
            shop.settled("1")
            free = next(name for name, status in front.servers().items() if status == "MAINT")
            for state in ("ready", "drain"):
                front.ask(
                    f"set server shop/{free} addr 127.0.0.9 port 9;set server shop/{free} state"
                    f" {state}"
                )
                assert ("127.0.0.9", 9) in front.known()
                checked = shop.run(ROLLOUT, {"rollout_revision": "1"}, "--check")
                assert checked.one("begin").result["changed"], "what --check sees"
                shop.to("1")
                shop.settled("1")
            assert "nothing to do" in shop.to("1").output
    finally:
        front.close()
