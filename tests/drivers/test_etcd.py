# SPDX-License-Identifier: GPL-3.0-or-later
"""The etcd store against real members."""

from __future__ import annotations

import base64
import json
import sys
import time
import typing as t
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    LeaseHeld,
    StoreAway,
    StoreError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.stores import etcd as stores
from ansible_collections.progressive.rollout.plugins.plugin_utils.stores._shared import Change
from ansible_collections.progressive.rollout.plugins.plugin_utils.stores.etcd import (
    OPTIONS,
    Driver,
)
from ansible_collections.progressive.rollout.tests.drivers.store_contract import (
    Make,
    StoreContract,
)
from ansible_collections.progressive.rollout.tests.support.etcd import Etcd, EtcdCluster
from ansible_collections.progressive.rollout.tests.support.proxy import Proxy
from ansible_collections.progressive.rollout.tests.support.waiting import until
from ansible_collections.progressive.rollout.tests.support.web import Server, certificate


def driver(*endpoints: str, service: str = "shop", **options: t.Any) -> Driver:
    given = {"endpoints": list(endpoints), **options}
    return Driver(
        OPTIONS.parse(given, "rollout_store."), DriverContext(service, t.cast(t.Any, None))
    )


@pytest.fixture(scope="module")
def member() -> Iterator[Etcd]:
    with Etcd() as made:
        yield made


@pytest.fixture
def etcd(member: Etcd) -> Etcd:
    member.clear()
    return member


class TestContract(StoreContract):
    @pytest.fixture
    def make(self, etcd: Etcd) -> Make:
        return lambda service="shop": driver(etcd.url, service=service)


ROOT = {"user": "root", "password": "s3cret-of-root"}
SHOP = {"user": "shop", "password": "s3cret-of-shop"}


@pytest.fixture
def proxy(etcd: Etcd) -> Iterator[Proxy]:
    with Proxy(etcd.port) as made:
        yield made


def through(proxy: Proxy, *others: str) -> Driver:
    return driver(f"http://127.0.0.1:{proxy.port}", *others)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is waited for as long as usual."""
    monkeypatch.setattr(stores, "TIMEOUT", 0.5)


def test_what_is_stored_can_be_read_with_etcdctl(etcd: Etcd) -> None:
    store = driver(etcd.url, prefix="/teams/web/")
    store.acquire("a", "ann", 60, {})
    store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
    store.commit("a", 60, None, [{"n": 2}])
    store.post({"word": "pause"})
    folder = "/teams/web/shop/"
    assert etcd.keys() == [
        folder + name
        for name in (
            "alive",
            "lease",
            "record",
            "timeline/r1/000000000001",
            "timeline/r1/000000000002",
            "timelines",
            "words",
        )
    ]
    assert json.loads(etcd.get(folder + "record"))["id"] == "r1"
    assert etcd.get(folder + "timeline/r1/000000000002") == '{"n": 2}\n'
    assert store.place == f"{folder}record in etcd at {etcd.url}"
    store.release("a")
    assert f"{folder}alive" not in etcd.keys()


def test_an_append_rewrites_nothing(etcd: Etcd) -> None:
    """The bytes that etcd gets for an event do not grow with the timeline."""
    store = driver(etcd.url)
    sizes = []
    send = store._client.ask

    def measured(method: str, address: str, body: bytes | None = None, headers: t.Any = None):
        sizes.append(len(body or b""))
        return send(method, address, body, headers)

    store._client.ask = measured  # type: ignore[method-assign]
    store.acquire("a", "ann", 60, {})
    store.commit("a", 60, {"id": "r1"}, [{"n": 0, "pad": "x" * 1000}])
    store.commit("a", 60, None, [{"n": 1, "pad": "x" * 1000}])
    first = sum(sizes)
    for _turn in range(30):
        store.commit("a", 60, None, [{"n": 1, "pad": "x" * 1000}])
    assert (sum(sizes) - first) / 30 < first


@pytest.mark.parametrize("key", ["lease", "record", "words", "timeline/r1/000000000001"])
def test_a_damaged_text_is_named(etcd: Etcd, key: str) -> None:
    store = driver(etcd.url)
    store.acquire("a", "ann", 60, {})
    store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
    store.post({"word": "pause"})
    etcd.put(f"/rollout/shop/{key}", "x\x00rubbish\n")
    with pytest.raises(StoreError, match=rf"/rollout/shop/{key.rpartition('/')[0] or key}") as told:
        _all = store.load(), store.lease(), store.commands(0), store.timeline("r1")
    assert told.value.id == "PR-506"


def test_a_newer_schema_is_refused(etcd: Etcd) -> None:
    etcd.put("/rollout/shop/record", '{"schema": 4}')
    with pytest.raises(StoreError, match="schema 4") as told:
        driver(etcd.url).load()
    assert told.value.id == "PR-507"


def test_a_record_that_is_too_large_is_refused(etcd: Etcd, dice: Random) -> None:
    store = driver(etcd.url)
    store.acquire("a", "ann", 60, {})
    with pytest.raises(StoreError, match="too large for etcd") as told:
        store.commit("a", 60, {"id": "r1", "noise": dice.randbytes(1_500_000).hex()})
    assert told.value.id == "PR-509"
    assert store.load() == {}


def test_what_would_not_be_read_again_is_not_written(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compressed it would fit into a request, but not into the limit of what is read."""
    store = driver(etcd.url)
    store.acquire("a", "ann", 60, {})
    store.commit("a", 60, {"id": "r1"})
    with pytest.raises(StoreError, match="too large for etcd") as told:
        store.commit("a", 60, {"id": "r1", "pad": "x" * (stores.MOST + 1)})
    assert told.value.id == "PR-509"
    assert store.load() == {"id": "r1"}


def test_a_page_of_the_largest_commits_of_a_timeline_is_within_what_is_read() -> None:
    assert stores.PAGE * stores.REQUEST * 4 / 3 < stores.MOST


def test_a_lost_answer_leaves_no_event_twice(etcd: Etcd, proxy: Proxy) -> None:
    """The write was done and its answer was lost: the same events come again, with new ones."""
    store = through(proxy)
    store.acquire("a", "ann", 60, {})
    sent = [{"n": 1}]
    store.commit("a", 60, {"id": "r1"}, sent)
    lost, transact = [0], store._transact

    def losing(change: Change) -> bool:
        lost[0] += 1
        if lost[0] < 3:
            transact(change)
            raise StoreAway("half an answer", "PR-508")
        return transact(change)

    store._transact = losing  # type: ignore[method-assign]
    events = [{"n": 2}]
    for number in (3, 4):
        with pytest.raises(StoreAway):
            store.commit("a", 60, None, events)
        events = [*events, {"n": number}]
    store.commit("a", 60)  # as the thread that renews the lease
    store.commit("a", 60, None, events)
    store.commit("a", 60, None, [{"n": 2}])  # the same words, later
    assert [event["n"] for event in store.timeline("r1")] == [1, 2, 3, 4, 2]


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("trouble", ["cut", "mute", "half"])
def test_a_member_that_does_not_answer_is_told_and_the_next_try_goes_on(
    etcd: Etcd, proxy: Proxy, trouble: str
) -> None:
    store = through(proxy)
    store.acquire("a", "ann", 60, {})
    proxy.cut() if trouble == "cut" else getattr(proxy, trouble).set()
    with pytest.raises(StoreAway, match=rf"127\.0\.0\.1:{proxy.port}"):
        store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
    proxy.mend()
    store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
    assert list(store.timeline("r1")) == [{"n": 1}]


@pytest.mark.usefixtures("hurried")
def test_another_member_is_asked_when_one_is_away(etcd: Etcd, proxy: Proxy) -> None:
    store = through(proxy, etcd.url)
    store.acquire("a", "ann", 60, {})
    for trouble in (proxy.cut, proxy.mute.set):
        proxy.mend()
        trouble()
        store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
    assert len(store.timeline("r1")) == 2


def test_a_member_that_is_killed_and_started_again_has_it_all(member: Etcd) -> None:
    member.clear()
    store = driver(member.url)
    lease = store.acquire("a", "ann", 60, {})
    store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
    member.kill()
    try:
        with pytest.raises(StoreAway, match="connection refused"):
            store.commit("a", 60, None, [{"n": 2}])
    finally:
        member.start()
    held = store.lease()
    assert held is not None and held.epoch == lease.epoch
    store.commit("a", 60, None, [{"n": 2}])
    assert list(store.timeline("r1")) == [{"n": 1}, {"n": 2}]


def test_a_full_etcd_is_told_and_the_lease_is_kept(tmp_path: Path) -> None:
    with Etcd("--quota-backend-bytes", str(2 << 20)) as small:
        store = driver(small.url)
        store.acquire("a", "ann", 10, {})
        store.commit("a", 10, {"id": "r1"}, [{"n": 1}])
        for number in range(40):
            small.put(f"/other/{number}", "x" * 200_000)
        with pytest.raises(StoreAway, match=r"database space exceeded.*alarm disarm"):
            store.commit("a", 10, {"id": "r1", "n": 2}, [{"n": 2}])
        assert store.load() == {"id": "r1"}
        deadline = time.monotonic() + 12
        while time.monotonic() < deadline:  # a lease of etcd is renewed nevertheless
            with pytest.raises(StoreAway):
                store.commit("a", 10)
            with pytest.raises(LeaseHeld):
                driver(small.url).acquire("b", "bob", 10, {})
        small.kill()
        small.start("--quota-backend-bytes", str(64 << 20))
        small.disarm()
        store.commit("a", 10, {"id": "r1", "n": 2}, [{"n": 2}])
        assert list(store.timeline("r1")) == [{"n": 1}, {"n": 2}]


def test_members_whose_leader_is_killed_again_and_again() -> None:
    """Nothing that was answered is lost, nothing is there twice, and the lease is kept."""
    with EtcdCluster() as cluster:
        store = driver(*cluster.urls)
        epoch = store.acquire("a", "ann", 60, {}).epoch
        number = 0
        for _turn in range(3):
            leader = cluster.leader()
            for moment in range(40):
                if moment == 10:
                    leader.kill()
                number += 1
                deadline = time.monotonic() + 60
                while True:
                    try:
                        store.commit("a", 60, {"id": "r1", "n": number}, [{"n": number}])
                        break
                    except StoreAway:
                        assert time.monotonic() < deadline, "two of three lead again"
            with pytest.raises(LeaseHeld, match="held by ann"):
                driver(*cluster.urls).acquire("b", "bob", 60, {})
            leader.start()
        held = driver(*reversed(cluster.urls)).lease()
        assert held is not None and held.epoch == epoch
        assert store.load()["n"] == number
        assert [event["n"] for event in store.timeline("r1")] == list(range(1, number + 1))


def test_without_a_majority_nothing_is_written() -> None:
    with EtcdCluster() as cluster:
        store = driver(*cluster.urls)
        store.acquire("a", "ann", 60, {})
        store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
        for member in cluster.members[:2]:
            member.kill()
        with pytest.raises(StoreAway):
            store.commit("a", 60, {"id": "r1"}, [{"n": 2}])
        for member in cluster.members[:2]:
            member.launch()
        for member in cluster.members:
            until(member.answers)
        store.commit("a", 60, {"id": "r1"}, [{"n": 2}])
        assert [event["n"] for event in store.timeline("r1")] == [1, 2]


def test_users_and_their_rights() -> None:
    with Etcd() as closed:
        for user in (ROOT, SHOP):
            closed.post("auth/user/add", name=user["user"], password=user["password"])
        closed.post("auth/role/add", name="root")
        closed.post("auth/role/add", name="web")
        closed.post("auth/user/grant", user="root", role="root")
        closed.post("auth/user/grant", user="shop", role="web")
        shop = {"key": _coded("/rollout/shop/"), "range_end": _coded("/rollout/shop0")}
        closed.post("auth/role/grant", name="web", perm={"permType": "READWRITE", **shop})
        closed.post("auth/enable")
        store = driver(closed.url, **SHOP)
        store.acquire("a", "ann", 60, {})
        store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
        store._token = "stale.1"  # as after the member's restart
        store.commit("a", 60, {"id": "r1"}, [{"n": 2}])
        assert len(store.timeline("r1")) == 2
        wrong = {**SHOP, "password": "not-this-one"}
        for other, reason in (
            (driver(closed.url, service="other", **SHOP), "permission denied"),
            (driver(closed.url), "user name is empty"),
            (driver(closed.url, **wrong), "authentication failed"),
        ):
            with pytest.raises(StoreError, match=reason) as told:
                other.acquire("a", "ann", 60, {})
            assert told.value.id == "PR-510" and "not-this-one" not in str(told.value)


def test_tls_with_an_own_authority_and_certificates_of_clients(tmp_path: Path) -> None:
    server, server_key = certificate(tmp_path)
    client, client_key = certificate(tmp_path, "client")
    known = tmp_path / "known.pem"  # the gateway itself logs in with the server's certificate
    known.write_text(server.read_text() + client.read_text())
    tls = {"cert-file": str(server), "key-file": str(server_key), "trusted-ca-file": str(known)}
    with Etcd("--client-cert-auth", tls=tls) as safe:
        mine = {"client_cert": str(client), "client_key": str(client_key)}
        store = driver(safe.url, ca_path=str(server), **mine)
        store.acquire("a", "ann", 60, {})
        store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
        assert store.load() == {"id": "r1"}
        with pytest.raises(StoreAway, match="certificate"):
            driver(safe.url, **mine).load()
        with pytest.raises(StoreAway):
            driver(safe.url, ca_path=str(server)).load()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"endpoints": []}, "rollout_store.endpoints: must not be empty"),
        ({"endpoints": "127.0.0.1:2379"}, r"rollout_store.endpoints: it is not a web URL"),
        ({"endpoints": "http://ann:pw@h:1"}, "rollout_store.endpoints: a name and password"),
        ({}, "rollout_store.endpoints: not given"),
        ({"user": "ann"}, "rollout_store.user, rollout_store.password: only one"),
        ({"password": "x"}, "rollout_store.user, rollout_store.password: only one"),
        ({"prefix": "rollout"}, "rollout_store.prefix: 'rollout' is not the beginning of keys"),
        ({"ca_path": "/nowhere"}, "rollout_store.ca_path: '/nowhere' is not"),
        ({"client_cert": "/etc/hosts"}, "rollout_store.client_key: only one"),
        ({"endpoint": "http://h:1"}, "rollout_store.endpoint: unknown option; did you mean"),
    ],
)
def test_what_is_wrong_is_refused(options: dict[str, t.Any], reason: str) -> None:
    usual = {} if "endpoints" in options or not options else {"endpoints": "http://h:1"}
    with pytest.raises(InputError, match=reason):
        Driver(
            OPTIONS.parse({**usual, **options}, "rollout_store."),
            DriverContext("shop", t.cast(t.Any, None)),
        )


@pytest.mark.parametrize(
    "reply",
    [
        (200, "[]"),
        (200, "{"),
        (200, "{}"),
        (200, '{"responses": [{}]}'),
        (200, '{"responses": [{"response_range": {"kvs": [{"key": "!", "value": "!"}]}}, {}]}'),
        (404, "nothing here"),
        (500, "{}"),
        (400, '{"error": {}, "code": "x"}'),
        None,
    ],
)
def test_an_answer_that_is_not_etcds_is_told(reply: tuple[int, str] | None) -> None:
    server = Server()
    server.replies = [reply]
    try:
        with pytest.raises(StoreAway, match=server.url):
            driver(server.url).load()
    finally:
        server.close()


def test_without_requests_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "requests", None)
    with pytest.raises(InputError, match=r"^rollout_store\.endpoints: .*pip install requests"):
        driver("http://127.0.0.1:1")


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
