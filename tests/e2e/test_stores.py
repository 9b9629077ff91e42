# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts whose journal is in etcd or PostgreSQL, real servers: controllers that die, and stores
that do. No request fails. tests/engines/test_kubernetes_store.py has a journal in Kubernetes.
"""

from __future__ import annotations

import os
import signal
import time
import typing as t
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.store import (
    StoreDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.stores import (
    etcd,
    postgresql,
)
from ansible_collections.progressive.rollout.tests.support.api_server import ApiServer
from ansible_collections.progressive.rollout.tests.support.etcd import Etcd, EtcdCluster
from ansible_collections.progressive.rollout.tests.support.playbook import (
    Playground,
    Run,
    suspend,
)
from ansible_collections.progressive.rollout.tests.support.postgresql import PASSWORD, PostgreSQL
from ansible_collections.progressive.rollout.tests.support.proxy import Proxy
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindHAProxy,
    Load,
    Shop,
    Watch,
    failures,
    kill_all,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

pytestmark = pytest.mark.long
RATE = 100  # requests a second, of each kind of client


class InEtcd:
    """A journal in etcd, which controllers reach over a network that can be broken."""

    def __init__(self, cluster: EtcdCluster | None = None) -> None:
        """Give it a cluster, or it has one member of its own."""
        if cluster:
            self.server, self.urls = cluster.members[0], cluster.urls
            self.variable: dict[str, t.Any] = {"driver": "etcd", "endpoints": self.urls}
            return
        self.server = Etcd()
        self.urls = [self.server.url]
        self.proxy = Proxy(self.server.port)
        self.variable = {"driver": "etcd", "endpoints": [f"http://127.0.0.1:{self.proxy.port}"]}

    def driver(self) -> StoreDriver:
        options = etcd.OPTIONS.parse({"endpoints": self.urls}, "rollout_store.")
        return etcd.Driver(options, DriverContext("shop", t.cast(t.Any, None)))


class InPostgreSQL:
    """A journal in PostgreSQL, likewise."""

    def __init__(self) -> None:
        self.server = PostgreSQL()
        self.proxy = Proxy(self.server.port)
        self.variable = self._options(self.proxy.port)
        self.variable["driver"] = "postgresql"

    @staticmethod
    def _options(port: int) -> dict[str, t.Any]:
        return {"servers": f"127.0.0.1:{port}", "password": PASSWORD, "tls": False}

    def driver(self) -> StoreDriver:
        options = postgresql.OPTIONS.parse(self._options(self.server.port), "rollout_store.")
        return postgresql.Driver(options, DriverContext("shop", t.cast(t.Any, None)))


Kept = InEtcd | InPostgreSQL
KEPT: dict[str, type[Kept]] = {"etcd": InEtcd, "postgresql": InPostgreSQL}


class Shared(Shop):
    """A shop whose journal is in a store that several controllers share."""

    def __init__(self, front: BehindHAProxy, kept: Kept) -> None:
        super().__init__(front, rollout_store=kept.variable, rollout_lease="5s")
        self.front, self.kept, self.reader = front, kept, kept.driver()

    def journal(self, service: str = "shop") -> dict[str, t.Any]:
        return self.reader.load()

    def timeline(self, rollout: str, service: str = "shop") -> list[dict[str, t.Any]]:
        return list(self.reader.timeline(rollout))

    def lease(self) -> dict[str, t.Any] | None:
        return {} if self.reader.lease() else None

    def under_way(self, run: Run) -> bool:
        """Whether there are new instances beside old ones."""
        assert run.process.poll() is None, run.output
        return len(set(self.revisions())) == 2

    def reached(self, run: Run, moment: int) -> bool:
        """Whether a rollout has come to this event."""
        assert run.process.poll() is None, run.output
        rollout = self.journal()["rollout"]
        return rollout["phase"] != "finished" and len(self.timeline(rollout["id"])) > moment


@pytest.fixture(params=sorted(KEPT))
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    made = KEPT[request.param]()
    yield made
    made.proxy.close()
    made.server.close()


@pytest.fixture
def shop(kept: Kept) -> Iterator[Shared]:
    front = BehindHAProxy()
    try:
        with Shared(front, kept) as made:
            made.to("1")
            yield made
    finally:
        front.close()


@pytest.mark.parametrize("kept", ["etcd"], indirect=True)
def test_a_job_that_is_killed_goes_on_from_another_controller(shop: Shared) -> None:
    """In the way of AWX: SIGKILL for all at once, and no controller knows of the other's
    processes.
    """
    with (
        Watch(shop, shop.front) as watch,
        Load(shop.front.url, connections=2, rate=RATE) as load,
    ):
        run = shop.start(variables={"rollout_revision": "2"}, machine="awx-1")
        until(partial(shop.reached, run, 25), "the rollout is in its middle")
        killed = shop.journal()["rollout"]["id"]
        kill_all(run, shop)
        early = shop.start(variables={"rollout_revision": "2"}, machine="awx-2").wait()
        if early.rc:  # it is not known there that the holder is gone
            assert "the lease is held by" in early.failed.msg, early.output
            assert "@awx-1 pid" in early.failed.msg
            until(lambda: shop.lease() is None, "the lease ends")
            early = shop.start(variables={"rollout_revision": "2"}, machine="awx-2").wait()
        assert early.rc == 0, early.output
        assert early.rollout["id"] == killed
        assert "resuming the rollout" in early.one("begin").msg
        shop.settled("2")
        reports = load.stop()
    assert failures(reports) == []
    assert watch.wrong == [] and watch.most <= 8 and watch.fewest >= 6


@pytest.mark.parametrize("kept", ["postgresql"], indirect=True)
def test_a_worker_that_outlives_its_job_is_refused_when_another_controller_has_gone_on(
    shop: Shared, tmp_path: Path
) -> None:
    """AWX cancels a job: ansible-playbook is killed, its worker is not. It is suspended here, as on
    a machine without memory, and goes on when all is over.
    """
    with (
        Watch(shop, shop.front) as watch,
        Load(shop.front.url, connections=2, rate=RATE) as load,
    ):
        run = shop.start(variables={"rollout_revision": "2"}, machine="awx-1")
        until(partial(shop.under_way, run), "the rollout is under way")
        held = shop.reader.lease()
        assert held is not None
        worker = int(held.details["worker_pid"])
        suspend(worker)
        try:
            run.process.kill()
            run.process.wait()
            killed = shop.journal()["rollout"]["id"]
            until(lambda: shop.lease() is None, "the lease ends")
            other = {"HOME": str(tmp_path), "ANSIBLE_HOME": str(tmp_path / "ansible")}
            variables = {"rollout_revision": "2"}
            second = shop.start(variables=variables, machine="awx-2", env=other).wait()
            assert second.rc == 0 and second.rollout["id"] == killed, second.output
            shop.settled("2")
            before = shop.journal(), shop.timeline(killed), _fleet(shop)
        finally:
            os.kill(worker, signal.SIGCONT)
        until(lambda: not run.left(), "the worker has ended")
        assert (shop.journal(), shop.timeline(killed), _fleet(shop)) == before
        assert shop.lease() is None
        reports = load.stop()
    assert failures(reports) == []
    assert watch.wrong == [] and watch.most <= 8 and watch.fewest >= 6


def test_the_leader_of_etcd_is_killed_in_the_middle() -> None:
    """Of three members; the rollout goes on with the others."""
    front, cluster = BehindHAProxy(), EtcdCluster()
    try:
        kept = InEtcd(cluster)
        with Shared(front, kept) as shop:
            shop.to("1")
            with Load(front.url, connections=2, rate=RATE) as load:
                run = shop.start(variables={"rollout_revision": "2"})
                until(partial(shop.under_way, run), "the rollout is under way")
                leader = cluster.leader()
                leader.kill()
                outcome = run.wait()
                assert outcome.rc == 0 and outcome.rollout["outcome"] == "promoted", outcome.output
                shop.settled("2")
                leader.start()
                shop.to("3")
                assert failures(load.stop()) == []
    finally:
        cluster.close()
        front.close()


@pytest.mark.parametrize("kept", ["postgresql"], indirect=True)
def test_a_store_that_is_away_in_the_middle_is_waited_for(shop: Shared, kept: Kept) -> None:
    """The fleet stays as it is, and the rollout goes on when the store is back."""
    with (
        Watch(shop, shop.front) as watch,
        Load(shop.front.url, connections=2, rate=RATE) as load,
    ):
        # It takes long enough to be in the middle still when the store is away.
        run = shop.start(variables={"rollout_revision": "2", "rollout_min_ready": "3s"})
        until(partial(shop.under_way, run), "the rollout is under way")
        kept.server.kill()
        said = "waiting for the journal, up to 60 s; nothing is changed meanwhile: "
        until(lambda: said in run.output or run.process.poll() is not None, said)
        assert run.process.poll() is None, run.output
        fleet = _fleet(shop)
        for _look in range(20):
            time.sleep(0.1)
            assert _fleet(shop) == fleet
        kept.server.start()
        outcome = run.wait()
        assert outcome.rc == 0 and outcome.rollout["outcome"] == "promoted", outcome.output
        assert "the journal is back after" in outcome.output
        shop.settled("2")
        reports = load.stop()
    assert PASSWORD not in outcome.output
    assert failures(reports) == []
    assert watch.wrong == [] and watch.most <= 8 and watch.fewest >= 6


@pytest.mark.parametrize("kept", ["etcd"], indirect=True)
def test_a_store_that_stays_away_ends_the_run_and_leaves_the_fleet(
    shop: Shared, kept: Kept
) -> None:
    """After what is stated; when it is back, the playbook continues."""
    short = {"rollout_revision": "2", "rollout_progress_deadline": "12s"}
    with Load(shop.front.url, connections=2, rate=RATE) as load:
        run = shop.start(variables=short)
        until(partial(shop.under_way, run), "the rollout is under way")
        kept.proxy.cut()
        outcome = run.wait()
        assert outcome.rc != 0
        assert "rollout_progress_deadline (12 s)" in outcome.output, outcome.output
        assert set(shop.revisions()) == {"1", "2"}
        again = shop.run(variables=short)
        assert again.rc != 0 and "[PR-511]" in again.failed.msg, again.output
        kept.proxy.mend()
        until(lambda: shop.lease() is None, "the lease ends")
        shop.to("2")
        shop.settled("2")
        assert failures(load.stop()) == []


def test_rights_that_are_missing_are_named_before_anything_is_touched() -> None:
    with Playground() as playground, ApiServer() as server:
        server.forbidden = {("delete", "configmaps")}
        store = {"driver": "kubernetes", "kubeconfig": server.kubeconfig()}
        refused = playground.run(variables={"rollout_store": store})
        assert refused.rc != 0 and "[PR-244]" in refused.failed.msg, refused.output
        assert "this account may not delete configmaps; apply this Role" in refused.failed.msg
        assert playground.living() == []
        server.forbidden = set()
        assert playground.run(variables={"rollout_store": store}).rc == 0
        assert playground.revisions() == ["1"] * 3


@pytest.mark.parametrize("kept", ["postgresql"], indirect=True)
def test_a_journal_moves_from_files_and_the_next_rollout_goes_on_there(kept: Kept) -> None:
    with Playground() as playground:
        assert playground.run().rc == 0
        before = playground.journal()
        moved = playground.run(
            "progressive.rollout.store", {"rollout_to_store": kept.variable}, "-vvv"
        )
        assert moved.rc == 0, moved.output
        assert f"now set rollout_store: {{'driver': '{kept.variable['driver']}'" in moved.output
        assert PASSWORD not in moved.output
        there = kept.driver()
        assert there.load()["rollout"] == before["rollout"]
        assert len(there.timeline(before["rollout"]["id"])) > 5
        refused = playground.run(variables={"rollout_revision": "2"})
        assert refused.rc != 0 and "was moved to" in refused.failed.msg, refused.output
        assert playground.revisions() == ["1"] * 3
        playground.variables["rollout_store"] = kept.variable
        rolled = playground.run(variables={"rollout_revision": "2"})
        assert rolled.rc == 0, rolled.output
        assert rolled.rollout["previous"] == "1" and playground.revisions() == ["2"] * 3


def _fleet(shop: Shared) -> object:
    """What runs, and what gets requests."""
    return sorted((r["id"], r["pid"]) for r in shop.living()), shop.front.serving()
