# SPDX-License-Identifier: GPL-3.0-or-later
"""A lease belongs to one worker: steps of a run hand it on, and two of them never have it at
once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import typing as t
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    AlreadyRunning,
    LeaseHeld,
    LeaseLost,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import (
    Connections,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.transport import Transport
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import identity as holder
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import lease
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.lease import Session
from ansible_collections.progressive.rollout.plugins.plugin_utils.stores.file import OPTIONS, Driver


@pytest.fixture
def store(tmp_path: Path) -> Driver:
    transport = Transport(
        Connections({}, SimpleNamespace(timeout=10, password=None, become_pass=None), None)
    )
    return Driver(
        OPTIONS.parse({"path": str(tmp_path)}, "rollout_store."), DriverContext("shop", transport)
    )


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives, to stand for another worker."""
    with subprocess.Popen(
        [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"], stdout=-1
    ) as process:
        assert process.stdout and process.stdout.readline()
        yield process
        process.kill()


def identity(
    worker: subprocess.Popen[bytes] | None = None, main: int = 0, **more: t.Any
) -> holder.Identity:
    """Of this process' run, or of that of `main`; of this process as its worker, or of another
    one.
    """
    made = holder.identity(main or os.getpid(), {"inventory_hostname": "web1"})
    details = {**made.details, "task": "Replace"}
    if worker:
        theirs = holder.identity(worker.pid).details
        details |= {"worker_pid": worker.pid, "worker_ticks": theirs["ticks"]}
    return replace(
        made, token=f"{made.token}{worker.pid if worker else ''}", details=details, **more
    )


def opened(store: Driver, me: holder.Identity) -> Session:
    made = Session(store, "shop", me, 60)
    made.acquire(lambda: None)
    return made


def details(store: Driver) -> Mapping[str, t.Any]:
    held = store.lease()
    assert held is not None
    return held.details


def test_a_second_worker_of_the_same_run_is_refused_by_name(
    store: Driver, worker: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(store, identity(worker))
    monkeypatch.setattr(lease, "COLLEAGUE", 0.1)
    said = (
        r"the task 'Replace' for web1 of this run already works on shop \(worker pid"
        rf" {worker.pid}\); run each step once"
    )
    with pytest.raises(AlreadyRunning, match=said):
        opened(store, identity())
    first.commit()  # it is still the first one's


def test_the_next_step_of_a_run_takes_over_what_the_one_before_has_left(
    store: Driver, worker: subprocess.Popen[bytes]
) -> None:
    first = opened(store, identity(worker))
    epoch = first.epoch
    first.rest()
    assert (first.epoch, holder.resting(details(store))) == (0, True)
    second = opened(store, identity())
    assert second.epoch > epoch and not holder.resting(details(store))
    with pytest.raises(LeaseLost):
        first.commit()
    second.commit()


def test_a_step_that_lost_its_lease_leaves_none_to_the_next_step(store: Driver) -> None:
    first = opened(store, identity())
    for ends in (False, True):
        held = store.lease()
        assert held is not None
        store.take_over(held, "another", "another run", 60, {})
        if ends:
            store.release("another")
        with pytest.raises((LeaseHeld, LeaseLost)):
            first.rest()
    assert store.lease() is None


def test_the_next_step_takes_over_from_a_worker_that_was_killed(
    store: Driver, worker: subprocess.Popen[bytes]
) -> None:
    opened(store, identity(worker))
    worker.kill()
    worker.wait()
    opened(store, identity()).commit()


def test_another_run_waits_for_no_step(store: Driver, worker: subprocess.Popen[bytes]) -> None:
    """Between two steps the lease is the run's: nobody else gets it while that lives."""
    first = opened(store, identity(worker))
    for _state in ("at work", "at rest"):
        with pytest.raises(LeaseHeld, match="the lease is held by") as caught:
            opened(store, identity(main=os.getppid()))
        assert not isinstance(caught.value, AlreadyRunning)
        first.rest()
