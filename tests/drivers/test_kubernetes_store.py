# SPDX-License-Identifier: GPL-3.0-or-later
"""The Kubernetes store over an API server in memory; `tests/engines` has the same on a real one."""

from __future__ import annotations

import sys
import typing as t
from collections.abc import Iterator
from contextlib import suppress

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    LeaseHeld,
    StoreAway,
    StoreError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.stores import kubernetes as stores
from ansible_collections.progressive.rollout.tests.drivers.kubernetes_store_contract import (
    KubernetesStoreContract,
    Site,
    driver,
)
from ansible_collections.progressive.rollout.tests.support.api_server import ApiServer
from ansible_collections.progressive.rollout.tests.support.proxy import Proxy


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as made:
        yield made


class TestContract(KubernetesStoreContract):
    @pytest.fixture
    def site(self, server: ApiServer) -> Site:
        return Site(server.kubeconfig(), "web")


@pytest.fixture
def proxy(server: ApiServer) -> Iterator[Proxy]:
    with Proxy(server.port) as made:
        yield made


@pytest.mark.parametrize("trouble", ["cut", "mute"])
def test_a_server_that_does_not_answer_is_told_and_the_next_try_goes_on(
    server: ApiServer, proxy: Proxy, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "TIMEOUT", 0.5)
    store = driver(kubeconfig=server.kubeconfig(proxy.port))
    store.acquire("a", "ann", 60, {})
    proxy.cut() if trouble == "cut" else proxy.mute.set()
    with pytest.raises(StoreAway, match=rf"127\.0\.0\.1:{proxy.port}") as told:
        store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
    assert told.value.id == "PR-508"
    proxy.mend()
    store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
    assert list(store.timeline("r1")) == [{"n": 1}]


def test_an_answer_that_breaks_off_leaves_no_event_twice(server: ApiServer, proxy: Proxy) -> None:
    store = driver(kubeconfig=server.kubeconfig(proxy.port))
    store.acquire("a", "ann", 60, {})
    for number in range(5):
        proxy.half.set()
        with suppress(StoreAway):
            store.commit("a", 60, {"id": "r1"}, [{"n": number}])
            continue
        store.commit("a", 60, {"id": "r1"}, [{"n": number}])
    assert [one["n"] for one in store.timeline("r1")] == list(range(5))


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
def test_a_lost_answer_leaves_no_event_twice(server: ApiServer, method: str) -> None:
    store = driver(kubeconfig=server.kubeconfig())
    store.acquire("a", "ann", 60, {})
    store.commit("a", 60, {"id": "r1"}, [{"n": 1}])

    def lost(done: str, path: str) -> None:
        if done == method:
            server.after = lambda method, path: None
            raise ConnectionError

    server.after = lost
    events = [{"n": 2}]
    try:
        store.commit("a", 60, {"id": "r1"}, events)
    except StoreAway:
        store.commit("a", 60, {"id": "r1"}, [*events, {"n": 3}])
    else:
        assert method == "DELETE", "tidying up is not waited for"
        store.commit("a", 60, {"id": "r1"}, [{"n": 3}])
    assert [one["n"] for one in store.timeline("r1")] == [1, 2, 3]


@pytest.mark.parametrize("method", ["post", "patch", "delete"])
def test_a_change_that_is_sent_twice_by_what_is_between_is_done_once(
    server: ApiServer, method: str
) -> None:
    """A proxy repeats it: the second is refused, and the first was done."""
    store = driver(kubeconfig=server.kubeconfig())
    store.acquire("a", "ann", 60, {})
    send = getattr(store._cluster, method)

    def twice(*args: t.Any, **query: str) -> t.Any:
        send(*args, **query)
        return send(*args, **query)

    setattr(store._cluster, method, twice)
    store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
    assert store.load() == {"id": "r1"}
    assert list(driver(kubeconfig=server.kubeconfig()).timeline("r1")) == [{"n": 1}]


@pytest.mark.parametrize("trouble", ["removal", "answers"])
def test_what_could_not_be_removed_is_removed_later(server: ApiServer, trouble: str) -> None:
    store = driver(kubeconfig=server.kubeconfig())
    store.acquire("a", "ann", 60, {})
    store.commit("a", 60, {"id": "r1"}, [{"n": 1}])

    def lost(method: str, path: str) -> None:
        if method == "PATCH":
            raise ConnectionError

    if trouble == "removal":
        server.forbidden = {("delete", "configmaps")}
        store.commit("a", 60, {"id": "r1"}, [{"n": 2}])
    else:
        server.after = lost
        with pytest.raises(StoreAway):
            store.commit("a", 60, {"id": "r1"}, [{"n": 2}])
    assert len(_maps(server)) == 2
    server.forbidden, server.after = set(), lambda method, path: None
    store.commit("a", 60, {"id": "r1"}, [{"n": 2}, {"n": 3}] if trouble == "answers" else [])
    assert len(_maps(server)) == 1


def _maps(server: ApiServer) -> list[str]:
    return [path for path in server.objects if "/configmaps/" in path]


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ("etcdserver: mvcc: database space exceeded", "space exceeded"),
        ("etcdserver: request timed out", "timed out"),
    ],
)
def test_a_server_that_cannot_write_now_is_waited_for(
    server: ApiServer, said: str, match: str
) -> None:
    store = driver(kubeconfig=server.kubeconfig())
    store.acquire("a", "ann", 60, {})
    server.full = said
    with pytest.raises(StoreAway, match=match) as told:
        store.commit("a", 60, {"id": "r1"})
    assert told.value.id == "PR-508" and "s3cr3t" not in str(told.value)
    server.full = ""
    store.commit("a", 60, {"id": "r1"})


@pytest.mark.parametrize(
    "missing", [("get", "leases"), ("patch", "leases"), ("list", "configmaps")]
)
def test_rights_that_are_missing_are_named_with_the_role(
    server: ApiServer, missing: tuple[str, str]
) -> None:
    server.forbidden = {missing}
    store = driver(kubeconfig=server.kubeconfig())
    with pytest.raises(InputError, match=f"may not {missing[0]} {missing[1]}; apply this") as told:
        store.check()
    assert told.value.id == "PR-244"
    fresh = driver(kubeconfig=server.kubeconfig())
    with pytest.raises(StoreError, match=r"cannot.*apply this Role") as refused:
        fresh.acquire("a", "ann", 60, {})
        driver(kubeconfig=server.kubeconfig()).release("a")
    assert refused.value.id in ("PR-510", "PR-508")
    server.forbidden = set()
    store.check()


def test_rights_that_go_in_the_middle_are_waited_for(server: ApiServer) -> None:
    """An API server that starts knows no roles yet."""
    store = driver(kubeconfig=server.kubeconfig())
    store.acquire("a", "ann", 60, {})
    server.forbidden = {("patch", "leases")}
    with pytest.raises(StoreAway, match="apply this Role"):
        store.commit("a", 60, {"id": "r1"})
    server.forbidden = set()
    store.commit("a", 60, {"id": "r1"})


@pytest.mark.parametrize("skew", [-100.0, 100.0])
def test_the_clock_of_the_server_decides(
    server: ApiServer, skew: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not those of the controllers, which may differ."""
    held = driver(kubeconfig=server.kubeconfig()).acquire("a", "ann", 60, {})
    now = clock.now
    monkeypatch.setattr(clock, "now", lambda: now() + skew)
    other = driver(kubeconfig=server.kubeconfig())
    with pytest.raises(LeaseHeld, match=r"another \d\d s"):
        other.acquire("b", "bob", 60, {})
    renewed = other.acquire("a", "ann", 60, {})
    assert renewed.until - held.until < 10


@pytest.mark.parametrize(
    ("service", "options", "reason"),
    [
        ("shop_api", {}, "rollout_service: 'shop_api' cannot be in the name of an object"),
        ("shop", {"namespace": "No"}, "rollout_store.namespace: 'No' is not the name of a names"),
        ("shop", {"endpoints": "x"}, "rollout_store.endpoints: unknown option"),
    ],
)
def test_what_is_wrong_is_refused(service: str, options: dict[str, t.Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        driver(service, **options)


def test_without_the_client_it_says_what_to_install(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes.config", None)
    with pytest.raises(InputError, match=r"^rollout_store\.context: .*pip install kubernetes"):
        driver(kubeconfig=server.kubeconfig()).load()
