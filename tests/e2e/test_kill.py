# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollout that is killed, told to stop, or doubled: run again, it ends as if nothing had been;
no request fails.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import time
from collections.abc import Iterator

import pytest
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindHAProxy,
    Load,
    Shop,
    Watch,
    failures,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

RATE = 150  # requests a second, of each kind of client
PLAYBOOKS = "progressive.rollout."


@pytest.fixture
def front() -> Iterator[BehindHAProxy]:
    made = BehindHAProxy()
    yield made
    made.close()


@pytest.fixture
def shop(front: BehindHAProxy) -> Iterator[Shop]:
    with Shop(front, env={"START_DELAY": "lognormal:0.2:0.5:1"}) as made:
        made.to("1")
        yield made


def steps_of(shop: Shop) -> int:
    """How far the rollout under way has come: the number of its events."""
    rollout = shop.journal()["rollout"]
    return len(shop.timeline(rollout["id"])) if rollout["phase"] != "finished" else 0


@pytest.mark.essential
def test_killed_during_a_rollback(front: BehindHAProxy, shop: Shop) -> None:
    shop.to("2")
    with Watch(shop, front) as watch, Load(front.url, connections=2, rate=RATE) as load:
        run = shop.start(f"{PLAYBOOKS}rollback")
        until(lambda: steps_of(shop) > 25, "the rollback is under way")
        run.process.kill()
        run.process.wait()
        assert shop.run(f"{PLAYBOOKS}rollback").rc == 0
        shop.settled("1")
        reports = load.stop()
    assert failures(reports) == []
    assert watch.wrong == [] and watch.most <= 8 and watch.fewest >= 6


def test_told_to_stop_while_another_waits(front: BehindHAProxy, shop: Shop) -> None:
    """A second rollout is refused, and told by whom. The action in hand is finished, the journal
    says why, the lease is given back, and the next run goes on at once.
    """
    ready = shop.home / "ready"
    shop.set_env(READY_FILE=str(ready))  # so that it is under way still when the other one comes
    with Watch(shop, front) as watch, Load(front.url, connections=2, rate=RATE) as load:
        run = shop.start(variables={"rollout_revision": "2"})
        until(lambda: set(shop.revisions()) == {"1", "2"}, "the rollout is under way")
        rollout = shop.journal()["rollout"]["id"]
        other = shop.run(variables={"rollout_revision": "3"})
        assert other.rc != 0
        assert re.search(
            rf"the lease is held by \S+@\S+ pid {run.process.pid} \(ansible-playbook .*rollout\) "
            r"since \d{4}-\d\d-\d\dT[\d:]+Z until [\d:]+Z \(another \d+ s\); wait for its end",
            other.failed.msg,
        ), other.failed.msg
        run.process.send_signal(signal.SIGTERM)
        run.wait(30)
        until(lambda: shop.lease() is None, "the lease is given back")
        last = shop.timeline(rollout)[-1]
        assert last["kind"] == "interrupted" and "rerun the playbook to resume" in last["reason"], (
            last
        )
        assert set(shop.revisions()) == {"1", "2"}
        ready.touch()
        outcome = shop.to("2")
        assert outcome.rollout["id"] == rollout
        assert "resuming the rollout of 2" in outcome.one("begin").msg
        shop.settled("2")
        reports = load.stop()
    assert failures(reports) == []
    assert watch.wrong == [] and watch.most <= 8 and watch.fewest >= 6


@pytest.mark.essential
def test_who_lost_the_lease_stops_before_its_next_action(front: BehindHAProxy, shop: Shop) -> None:
    with Load(front.url, connections=2, rate=RATE) as load:
        run = shop.start(variables={"rollout_revision": "2"})
        until(lambda: steps_of(shop) > 25, "the rollout is under way")
        take_lease(shop)
        events = len(shop.timeline(shop.journal()["rollout"]["id"]))
        outcome = run.wait()
        assert outcome.rc != 0
        assert (
            "this run no longer holds the lease; it is held by somebody else" in outcome.failed.msg
        ), outcome.failed.msg
        # and nothing is done that is not written before
        assert len(shop.timeline(shop.journal()["rollout"]["id"])) == events
        lease = shop.store / "journal" / "shop.lease.json"
        # somebody else is gone
        lease.write_text(json.dumps({**json.loads(lease.read_text()), "until": time.time() - 1}))
        shop.to("2")
        shop.settled("2")
        assert failures(load.stop()) == []


def take_lease(shop: Shop) -> None:
    """As somebody else who found it expired, under the store's lock."""
    path = shop.store / "journal" / "shop.lease.json"
    with open(path.with_name("shop.lock"), "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = json.loads(path.read_text())
        taken = {
            **held,
            "token": "f" * 32,
            "holder": "somebody else",
            "epoch": held["epoch"] + 1,
            "until": time.time() + 600,
        }
        path.with_suffix(".test").write_text(json.dumps({**taken, "details": {}}))
        os.replace(path.with_suffix(".test"), path)
