# SPDX-License-Identifier: GPL-3.0-or-later
"""What the Kubernetes store must do, over an API server in memory and over a real one.

Who derives from `KubernetesStoreContract` gives it a fixture `site`.
"""

from __future__ import annotations

import json
import typing as t
from random import Random

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    LeaseHeld,
    LeaseLost,
    StoreError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import (
    ApiError,
    Cluster,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.stores import _config_maps
from ansible_collections.progressive.rollout.plugins.plugin_utils.stores.kubernetes import (
    OPTIONS,
    Driver,
)
from ansible_collections.progressive.rollout.tests.drivers.store_contract import (
    Make,
    StoreContract,
)

EVENT = {"n": 1, "pad": "x" * 30_000}
CALLS = ("post", "patch", "delete", "get")


def driver(service: str = "shop", **options: t.Any) -> Driver:
    return Driver(
        OPTIONS.parse(options, "rollout_store."), DriverContext(service, t.cast(t.Any, None))
    )


class Site:
    """A namespace of an API server."""

    def __init__(self, kubeconfig: str, namespace: str) -> None:
        self.options = {"kubeconfig": kubeconfig, "namespace": namespace}
        self.cluster = Cluster(kubeconfig)
        self.maps = f"/api/v1/namespaces/{namespace}/configmaps"
        self.leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    def driver(self, service: str = "shop") -> Driver:
        return driver(service, **self.options)

    def named(self) -> dict[str, dict[str, t.Any]]:
        """The ConfigMaps of the store, by name."""
        found = self.cluster.get(self.maps)["items"]
        maps = {one["metadata"]["name"]: one for one in found}
        return {name: one for name, one in maps.items() if name.startswith("rollout-")}

    def lease(self) -> dict[str, t.Any]:
        return dict(self.cluster.get(f"{self.leases}/rollout-shop"))


class Crash(BaseException):
    """The run is killed here."""


def crashing(store: Driver, at: int, after: bool = False) -> None:
    """Let the run be killed at its request of this number, before or after it is done."""
    left = [at]

    def wrap(call: t.Any) -> t.Any:
        def asked(*args: t.Any, **more: t.Any) -> t.Any:
            left[0] -= 1
            if left[0] == 0 and not after:
                raise Crash
            done = call(*args, **more)
            if left[0] == 0:
                raise Crash
            return done

        return asked

    for name in CALLS:
        setattr(store._cluster, name, wrap(getattr(store._cluster, name)))


class KubernetesStoreContract(StoreContract):
    """What is special about it."""

    kills = 6

    @pytest.fixture
    def site(self) -> Site:
        raise NotImplementedError

    @pytest.fixture
    def make(self, site: Site) -> Make:
        return site.driver

    def test_people_see_who_holds_it(self, site: Site) -> None:
        store = site.driver()
        store.acquire("a", "ann@desk pid 7", 60, {})
        lease = site.lease()
        assert lease["spec"]["holderIdentity"] == "ann@desk pid 7"
        assert lease["spec"]["leaseDurationSeconds"] == 60
        first = lease["spec"]["renewTime"]
        assert first == lease["spec"]["acquireTime"]
        store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
        (name,) = site.named()
        assert site.named()[name]["immutable"] is True
        assert json.loads(site.named()[name]["data"]["record"])["id"] == "r1"
        store.release("a")
        assert "holderIdentity" not in site.lease()["spec"]

    def test_the_same_write_again_changes_the_version(self, site: Site) -> None:
        """An identical one would change none, and two could hold the lease."""
        store, versions = site.driver(), set()
        store.acquire("a", "ann", 60, {})
        for _again in range(5):
            store.acquire("a", "ann", 60, {})
            store.commit("a", 60)
            store.commit("a", 60, {"id": "r1"})
            versions.add(site.lease()["metadata"]["resourceVersion"])
        assert len(versions) == 5

    @pytest.mark.parametrize("taken", ["over", "and renewed"])
    def test_the_api_server_refuses_a_zombie_that_looked_before(
        self, site: Site, taken: str
    ) -> None:
        """It has read that the lease is its own, is suspended, and then writes."""
        zombie = site.driver()
        zombie.acquire("a", "ann", 60, {})
        zombie.commit("a", 60, {"id": "r1", "by": "ann"}, [{"n": 1}])
        post = zombie._cluster.post
        refused: list[int] = []

        def suspended(path: str, body: t.Any, **query: str) -> t.Any:
            zombie._cluster.post = post  # type: ignore[method-assign]
            other = site.driver()
            held = other.lease()
            assert held is not None
            other.take_over(held, "b", "bob", 60, {})
            if taken == "and renewed":
                other.commit("b", 60, {"id": "r1", "by": "bob"}, [{"n": 2}])
            return post(path, body, **query)

        patch = zombie._cluster.patch

        def noted(*args: t.Any, **query: str) -> t.Any:
            try:
                return patch(*args, **query)
            except ApiError as exc:
                refused.append(exc.status)
                raise

        zombie._cluster.post = suspended  # type: ignore[method-assign]
        zombie._cluster.patch = noted  # type: ignore[method-assign]
        with pytest.raises(LeaseLost, match="held by bob"):
            zombie.commit("a", 60, {"id": "r1", "by": "late"}, [{"late": True}])
        assert refused == [409]
        by, events = ("bob", 2) if taken == "and renewed" else ("ann", 1)
        assert site.driver().load()["by"] == by
        assert [one["n"] for one in site.driver().timeline("r1")] == list(range(1, events + 1))
        assert len(site.named()) == 1, "nothing of it is left"

    @pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
    @pytest.mark.parametrize("at", range(1, 8))
    def test_killed_at_every_request_nothing_is_lost_or_left(
        self, site: Site, at: int, after: bool
    ) -> None:
        """At the commit that begins another rollout and makes a chunk: of the most requests."""
        store = site.driver()
        store.acquire("a", "ann", 60, {})
        store.commit("a", 60, {"id": "r1", "n": 1}, [EVENT])
        crashing(store, at, after)
        try:
            store.commit("a", 60, {"id": "r2", "n": 2}, [{"n": 2}])
        except Crash:
            pass
        other = site.driver()
        done = other.load()["n"] == 2
        assert list(other.timeline("r1")) == [EVENT]
        assert list(other.timeline("r2")) == ([{"n": 2}] if done else [])
        held = other.lease()
        assert held is not None
        other.take_over(held, "b", "bob", 60, {})
        assert len(site.named()) == (2 if done else 1), "what was made in vain is removed"
        assert list(other.timeline("r1")) == [EVENT]
        other.commit("b", 60, {"id": "r2", "n": 3}, [{"n": 3}])
        assert [one["n"] for one in other.timeline("r2")] == ([2, 3] if done else [3])
        assert len(site.named()) == 2

    def test_a_holder_that_was_replaced_removes_nothing_of_the_next_one(self, site: Site) -> None:
        """It has listed what is there, is suspended, and then tidies up."""
        first = site.driver()
        first.acquire("a", "ann", 60, {})
        first.commit("a", 60, {"id": "r1"}, [EVENT])
        crashing(first, 3)
        with pytest.raises(Crash):
            first.commit("a", 60, {"id": "r1", "n": 2}, [{"n": 2}])
        late, listed = site.driver(), site.driver()
        held = late.lease()
        assert held is not None
        check = late._checked

        def suspended(work: t.Any) -> t.Any:
            done = check(work)
            if isinstance(done, list):
                now = listed.lease()
                assert now is not None
                listed.take_over(now, "c", "eve", 60, {})
                listed.commit("c", 60, {"id": "r2"}, [{"n": 3}])
            return done

        late._checked = suspended  # type: ignore[method-assign]
        with pytest.raises(LeaseHeld, match="held by eve"):
            late.take_over(held, "b", "bob", 60, {})
        assert site.driver().load() == {"id": "r2"}
        assert list(site.driver().timeline("r1")) == [EVENT]

    def test_a_lease_that_somebody_deletes_is_lost_and_the_journal_is_not(self, site: Site) -> None:
        store = site.driver()
        lease = store.acquire("a", "ann", 60, {})
        store.commit("a", 60, {"id": "r1"}, [EVENT])
        store.commit("a", 60, {"id": "r2"}, [{"n": 2}])
        site.cluster.delete(f"{site.leases}/rollout-shop")
        with pytest.raises(LeaseLost, match="no run holds it"):
            store.commit("a", 60, {"id": "r2", "late": True}, [{"n": 3}])
        other = site.driver()
        assert other.load() == {"id": "r2"}
        assert other.acquire("b", "bob", 60, {}).epoch > lease.epoch
        other.commit("b", 60, {"id": "r2", "by": "bob"}, [{"n": 3}])
        assert site.driver().load() == {"id": "r2", "by": "bob"}
        assert list(site.driver().timeline("r1")) == [EVENT]
        assert [one["n"] for one in site.driver().timeline("r2")] == [2, 3]

    def test_a_journal_that_somebody_deletes_is_named(self, site: Site) -> None:
        store = site.driver()
        store.acquire("a", "ann", 60, {})
        store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
        (name,) = site.named()
        site.cluster.delete(f"{site.maps}/{name}")
        fresh = site.driver()
        for asked in (fresh.load, lambda: fresh.timeline("r1")):
            with pytest.raises(StoreError, match=f"names the ConfigMap {name}.*kubectl") as told:
                asked()  # type: ignore[no-untyped-call]
            assert told.value.id == "PR-506"

    @pytest.mark.parametrize("kind", ["journal", "commands", "timeline", "lease"])
    def test_what_is_damaged_is_named(self, site: Site, kind: str) -> None:
        store = site.driver()
        store.acquire("a", "ann", 60, {})
        store.commit("a", 60, {"id": "r1"}, [EVENT])
        store.commit("a", 60, {"id": "r2"}, [{"n": 2}])
        store.post({"word": "pause"})
        if kind == "lease":
            notes = {"annotations": {"rollout.progressive/lease": "rubbish"}}
            site.cluster.patch(f"{site.leases}/rollout-shop", {"metadata": notes})
        for name, one in site.named().items():
            if one["metadata"]["labels"]["rollout.progressive/kind"] == kind:
                site.cluster.delete(f"{site.maps}/{name}")
                known = {"name": name, "labels": one["metadata"]["labels"]}
                body = {"metadata": known, "binaryData": {"record": "eJwD", "events": "eJwD"}}
                site.cluster.post(site.maps, body)
        fresh = site.driver()
        with pytest.raises(StoreError, match="rollout-shop") as told:
            _all = fresh.load(), fresh.lease(), fresh.commands(0), fresh.timeline("r1")
        assert told.value.id == "PR-506"

    def test_a_record_that_is_too_large_is_refused_before_it_is_sent(
        self, site: Site, dice: Random
    ) -> None:
        store = site.driver()
        store.acquire("a", "ann", 60, {})
        store.commit("a", 60, {"id": "r1"})
        with pytest.raises(StoreError, match="too large for Kubernetes") as told:
            store.commit("a", 60, {"id": "r1", "noise": dice.randbytes(1_500_000).hex()})
        assert told.value.id == "PR-509"
        assert site.driver().load() == {"id": "r1"}
        noise = dice.randbytes(450_000).hex()  # the largest that fits, nearly
        store.commit("a", 60, {"id": "r1", "noise": noise})
        assert site.driver().load()["noise"] == noise

    def test_a_chunk_keeps_the_order_of_the_events(self, site: Site) -> None:
        """Those of a rollout that was, too, when they come again, as in a move."""
        store = site.driver()
        store.acquire("a", "ann", 60, {})
        for number in range(12):
            pad = "x" * (_config_maps.LARGE // 3)
            store.commit("a", 60, {"id": f"r{number % 2}"}, [{"n": number, "pad": pad}])
        for number in range(12, 24):
            store.commit("a", 60, {"id": "r1"}, [{"n": number, "pad": pad}])
        seen = [one["n"] for one in site.driver().timeline("r1")]
        assert seen == [1, 3, 5, 7, 9, 11, *range(12, 24)]
        assert [one["n"] for one in site.driver().timeline("r0")] == [0, 2, 4, 6, 8, 10]

    def test_a_namespace_that_is_not_there(self, site: Site) -> None:
        store = driver(kubeconfig=site.options["kubeconfig"], namespace="nowhere-at-all")
        assert store.load() == {}
