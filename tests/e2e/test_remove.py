# SPDX-License-Identifier: GPL-3.0-or-later
"""remove.yml: what rollouts have left goes, instances and load balancers stay as they are."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.tests.support.playbook import Outcome
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindEnvoy,
    BehindHAProxy,
    BehindNginx,
    Load,
    Shop,
    failures,
)

REMOVE = "progressive.rollout.remove"
Front = BehindHAProxy | BehindEnvoy | BehindNginx


@pytest.fixture(params=[BehindHAProxy, BehindEnvoy, BehindNginx])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    front: Front = request.param()
    with Shop(front, rollout_replicas=3) as made:
        yield made
    front.close()


def listing(shop: Shop) -> set[str]:
    """What there is on the hosts, at the load balancer and in the store."""
    (front,) = shop.fronts
    traffic = front.traffic
    folders = [shop.store, shop.platform, Path(traffic["path"])]
    return {str(path) for folder in folders for path in [folder, *folder.rglob("*")]}


def remove(shop: Shop, *options: str) -> Outcome:
    return shop.run(REMOVE, {}, *options)


@pytest.mark.long
def test_the_place_is_as_it_was_and_instances_run_on(shop: Shop) -> None:
    (front,) = shop.fronts
    given = {path for path in listing(shop) if Path(path).exists()}
    shop.to("1")
    instances, places = shop.living(), front.serving()
    before = listing(shop)
    with Load(front.url, rate=50) as load:
        checked = remove(shop, "--check")
        assert checked.rc == 0, checked.output
        assert listing(shop) == before, "check mode touches nothing"
        done = remove(shop)
        assert done.rc == 0, done.output
        reports = load.stop()
    named = checked.output.count("would be removed")
    assert named and named == done.output.count(": removed: ")
    assert failures(reports) == []
    assert front.serving() == places, "it sends where it did"
    logs = {str(next(shop.platform.glob(f"*/shop/logs/{one['id']}.log"))) for one in instances}
    left = {path for path in listing(shop) - given if Path(path).is_file()}
    kept = {path for path in left if path.startswith(str(front.traffic["path"]))}
    assert left - kept == logs, "the logs that the instances write"
    assert not [path for path in kept if path.endswith((".lock", ".epoch", ".journal"))]
    with Load(front.url, rate=50) as load:
        shop.to("2")  # the first rollout again, beside what runs
        assert failures(load.stop()) == []
    assert not front.known() & places
    for one in instances:
        os.kill(one["pid"], 0)  # it runs
        with suppress(ProcessLookupError):
            os.killpg(one["pid"], signal.SIGKILL)
