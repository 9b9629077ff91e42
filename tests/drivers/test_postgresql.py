# SPDX-License-Identifier: GPL-3.0-or-later
"""The PostgreSQL store against a real server."""

from __future__ import annotations

import sys
import typing as t
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    LeaseHeld,
    LeaseLost,
    StoreAway,
    StoreError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.stores import (
    postgresql as stores,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.stores._shared import (
    LEASE,
    Change,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.stores.postgresql import (
    OPTIONS,
    Driver,
)
from ansible_collections.progressive.rollout.tests.drivers.store_contract import (
    Make,
    StoreContract,
)
from ansible_collections.progressive.rollout.tests.support.postgresql import PASSWORD, PostgreSQL
from ansible_collections.progressive.rollout.tests.support.proxy import Proxy
from ansible_collections.progressive.rollout.tests.support.waiting import until
from ansible_collections.progressive.rollout.tests.support.web import certificate


def driver(*ports: int, service: str = "shop", **options: t.Any) -> Driver:
    servers = [f"127.0.0.1:{port}" for port in ports]
    given = {"servers": servers, "password": PASSWORD, "tls": False, **options}
    return Driver(
        OPTIONS.parse(given, "rollout_store."), DriverContext(service, t.cast(t.Any, None))
    )


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    with PostgreSQL() as made:
        yield made


@pytest.fixture
def database(server: PostgreSQL) -> PostgreSQL:
    server.sql("DROP TABLE IF EXISTS rollout_journal")
    return server


class TestContract(StoreContract):
    @pytest.fixture
    def make(self, database: PostgreSQL) -> Make:
        return lambda service="shop": driver(database.port, service=service)


@pytest.fixture
def proxy(database: PostgreSQL) -> Iterator[Proxy]:
    with Proxy(database.port) as made:
        yield made


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is waited for as long as usual."""
    monkeypatch.setattr(stores, "TIMEOUT", 1.0)


@pytest.mark.usefixtures("hurried")
def test_a_controller_that_freezes_in_the_middle_of_a_write_holds_nobody_up(
    database: PostgreSQL,
) -> None:
    """Its transaction has the lock of a row; the server ends it."""
    frozen, other = driver(database.port), driver(database.port)
    frozen.acquire("a", "ann", 0.2, {})
    connection = frozen._connected()
    connection.execute("BEGIN")
    connection.execute("UPDATE rollout_journal SET version = version WHERE name = 'lease'")

    def acquired() -> bool:
        try:
            other.acquire("b", "bob", 60, {})
        except (LeaseHeld, StoreAway):
            return False
        return True

    until(acquired)
    assert other.lease()
    with pytest.raises((LeaseLost, StoreAway)):
        frozen.commit("a", 60, {"id": "r1"}, [])


def test_what_is_stored_can_be_read_with_psql(database: PostgreSQL) -> None:
    database.sql("CREATE SCHEMA IF NOT EXISTS web")
    store = driver(database.port, schema="web")
    assert store.load() == {} and store.lease() is None
    assert database.sql("SELECT to_regclass('web.rollout_journal')") == [(None,)]
    store.acquire("a", "ann", 60, {})
    store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
    store.commit("a", 60, None, [{"n": 2}])
    store.post({"word": "pause"})
    rows = database.sql(
        'SELECT service, name, version FROM web.rollout_journal ORDER BY service, name COLLATE "C"'
    )
    assert rows == [
        ("", "schema", 1),
        ("shop", "lease", 3),
        ("shop", "record", 1),
        ("shop", "timeline/r1/000000000001", 1),
        ("shop", "timeline/r1/000000000002", 1),
        ("shop", "timelines", 1),
        ("shop", "words", 1),
    ]
    found = database.sql("SELECT body::json->>'id' FROM web.rollout_journal WHERE name = 'record'")
    assert found == [("r1",)]
    assert store.place.startswith(
        "record of shop in web.rollout_journal of database rollout at 127."
    )
    database.sql("DROP SCHEMA web CASCADE")


@pytest.mark.parametrize("name", ["lease", "record", "words", "timeline/r1/000000000001"])
def test_a_damaged_text_is_named(database: PostgreSQL, name: str) -> None:
    store = driver(database.port)
    store.acquire("a", "ann", 60, {})
    store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
    store.post({"word": "pause"})
    database.sql(f"UPDATE rollout_journal SET body = E'rubbish\n' WHERE name = '{name}'")
    with pytest.raises(
        StoreError, match=rf"{name.rpartition('/')[0] or name}.* of shop in"
    ) as told:
        _all = store.load(), store.lease(), store.commands(0), store.timeline("r1")
    assert told.value.id == "PR-506"


def test_a_table_of_a_newer_version_is_refused_and_an_older_one_brought_up(
    database: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(database.port).acquire("a", "ann", 60, {})
    more = "ALTER TABLE {table} ADD COLUMN more text"
    with monkeypatch.context() as newer:
        newer.setattr(stores, "MIGRATIONS", (*stores.MIGRATIONS, more))
        store = driver(database.port)
        assert store.lease() is not None
        store.commit("a", 60, {"id": "r1"})
        assert database.sql("SELECT count(more) FROM rollout_journal") == [(0,)]
        assert store.load() == {"id": "r1"}
    with pytest.raises(
        StoreError, match=r"has version 2, this progressive\.rollout knows up to 1"
    ) as told:
        driver(database.port).load()
    assert told.value.id == "PR-507"


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("trouble", ["cut", "mute"])
def test_a_server_that_does_not_answer_is_told_and_the_next_try_goes_on(
    database: PostgreSQL, proxy: Proxy, trouble: str
) -> None:
    store = driver(proxy.port)
    store.acquire("a", "ann", 60, {})
    for _again in range(2):  # on an open connection, and on a new one
        proxy.cut() if trouble == "cut" else getattr(proxy, trouble).set()
        with pytest.raises(StoreAway, match=rf"127\.0\.0\.1:{proxy.port}"):
            store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
    proxy.mend()
    store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
    assert list(store.timeline("r1")) == [{"n": 1}]


def test_an_answer_that_breaks_off_is_asked_for_again(database: PostgreSQL, proxy: Proxy) -> None:
    store = driver(proxy.port)
    store.acquire("a", "ann", 60, {})
    for number in range(5):
        proxy.half.set()
        store.commit("a", 60, {"id": "r1"}, [{"n": number}])
    assert [event["n"] for event in store.timeline("r1")] == list(range(5))


def test_a_server_that_is_killed_and_started_again_has_it_all(database: PostgreSQL) -> None:
    store = driver(database.port)
    lease = store.acquire("a", "ann", 60, {})
    store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
    idle = driver(database.port)
    assert idle.load() == {"id": "r1"}
    database.kill()
    try:
        for _turn in range(2):  # on the open connection, and on a new one
            with pytest.raises(StoreAway):
                store.commit("a", 60, None, [{"n": 2}])
    finally:
        database.start()
    assert idle.load() == {"id": "r1"}
    held = store.lease()
    assert held is not None and held.epoch == lease.epoch
    store.commit("a", 60, None, [{"n": 2}])
    assert list(store.timeline("r1")) == [{"n": 1}, {"n": 2}]


def test_a_server_that_takes_no_writes_is_passed_by(database: PostgreSQL) -> None:
    """As a former primary is, or a standby: another one of the list takes them, or none does."""
    with PostgreSQL() as standby:
        standby.sql("ALTER SYSTEM SET default_transaction_read_only = on")
        standby.sql("SELECT pg_reload_conf()")
        store = driver(standby.port, database.port)
        store.acquire("a", "ann", 60, {})
        store.commit("a", 60, {"id": "r1"})
        assert driver(database.port).load() == {"id": "r1"}
        database.sql("ALTER SYSTEM SET default_transaction_read_only = on")
        database.sql("SELECT pg_reload_conf()")
        try:
            until(lambda: _refused(store))
        finally:
            database.sql("ALTER SYSTEM RESET ALL")
            database.sql("SELECT pg_reload_conf()")
        until(lambda: not _refused(store))
        assert store.load() == {"id": "r1", "n": 2}


def _refused(store: Driver) -> bool:
    try:
        store.commit("a", 60, {"id": "r1", "n": 2})
    except StoreAway as exc:
        assert "read-only" in str(exc)
        return True
    return False


def test_a_command_whose_answer_is_lost_is_not_given_twice(database: PostgreSQL) -> None:
    store = driver(database.port)
    store.post({"word": "pause"})
    once = store._once

    def losing(work: t.Any) -> t.Any:
        done = once(work)
        if done is True:
            store._once = once  # type: ignore[method-assign]
            raise StoreAway("the connection was closed", "PR-508")
        return done

    store._once = losing  # type: ignore[method-assign]
    assert store.post({"word": "skip"}) == 2
    assert [command["word"] for command in store.commands(0)] == ["pause", "skip"]


def test_a_lost_connection_after_the_commit_leaves_no_event_twice(database: PostgreSQL) -> None:
    store = driver(database.port)
    store.acquire("a", "ann", 60, {})
    work = store._work

    def losing(*args: t.Any, **more: t.Any) -> t.Any:
        done = work(*args, **more)
        if done is True:
            store._work = work  # type: ignore[method-assign]
            raise StoreAway("the connection was closed", "PR-508")
        return done

    store._work = losing  # type: ignore[method-assign]
    with pytest.raises(StoreAway):
        store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
    store.commit("a", 60, {"id": "r1"}, [{"n": 1}, {"n": 2}])
    assert list(store.timeline("r1")) == [{"n": 1}, {"n": 2}]


def test_users_rights_and_databases(
    database: PostgreSQL, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    database.sql("CREATE ROLE reader LOGIN PASSWORD 'x'")
    driver(database.port).acquire("a", "ann", 60, {})
    for options, reason in (
        ({"password": "not-this-one"}, "password authentication failed"),
        ({"database": "nowhere"}, 'database "nowhere" does not exist'),
        ({"user": "reader", "password": "x"}, "permission denied for table rollout_journal"),
        ({"schema": "nowhere"}, 'schema "nowhere" does not exist'),
    ):
        with pytest.raises(StoreError, match=reason) as told:
            driver(database.port, **options).acquire("b", "bob", 60, {})
        assert told.value.id == "PR-510" and "not-this-one" not in str(told.value)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    assert driver(database.port, password=None).lease() is not None
    monkeypatch.delenv("PGPASSWORD")
    file = tmp_path / "pgpass"
    file.write_text(f"127.0.0.1:{database.port}:rollout:rollout:{PASSWORD}\n")
    file.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(file))
    assert driver(database.port, password=None).lease() is not None


def test_tls_with_an_own_authority(tmp_path: Path) -> None:
    server = certificate(tmp_path)
    other, _key = certificate(tmp_path, "other")
    with PostgreSQL(tls=server) as safe:
        store = driver(safe.port, tls=True, ca_path=str(server[0]))
        store.acquire("a", "ann", 60, {})
        assert safe.sql(
            "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
            " WHERE application_name = 'progressive.rollout'"
        ) == [(True,)]
        with pytest.raises(StoreAway, match="certificate verify failed"):
            driver(safe.port, tls=True, ca_path=str(other)).load()
        with pytest.raises(StoreAway, match="certificate verify failed"):
            driver(safe.port, tls=True).load()
    with PostgreSQL() as plain, pytest.raises(StoreAway, match="does not support SSL"):
        driver(plain.port, tls=True, ca_path=str(server[0])).load()


def test_a_write_over_a_row_that_is_gone_is_refused(database: PostgreSQL) -> None:
    """An administrator has removed the journal between the look and the write of a run."""
    store = driver(database.port)
    store.acquire("a", "ann", 60, {})
    version = store._read([LEASE]).version(LEASE)
    database.sql("DELETE FROM rollout_journal WHERE service = 'shop'")
    assert store._write(Change(LEASE, version, {LEASE: "{}\n"})) is False
    assert store.lease() is None and store.load() == {}


def test_a_full_disk_is_told_and_waited_for(dice: Random) -> None:
    with PostgreSQL() as small:
        small.confine(600)
        store = driver(small.port)
        store.acquire("a", "ann", 60, {})
        store.commit("a", 60, {"id": "r1"}, [{"n": 0}])
        small.fill()
        told: list[StoreAway] = []
        number = 0
        while not told:
            number += 1
            assert number < 100, "it goes into what is free of the table's own pages at first"
            try:
                pad = dice.randbytes(4_000).hex()
                store.commit("a", 60, {"id": "r1", "pad": pad}, [{"n": number}])
            except StoreAway as exc:
                told.append(exc)
        assert "No space left on device" in str(told[0]), told
        assert "make room on its disk" in str(told[0])
        assert [event["n"] for event in store.timeline("r1")] == list(range(number))
        small.free()
        store.commit("a", 60, {"id": "r1", "pad": pad}, [{"n": number}])
        assert store.load()["pad"] == pad
        assert [event["n"] for event in store.timeline("r1")] == list(range(number + 1))


def test_a_certificate_of_the_user_instead_of_a_password(tmp_path: Path) -> None:
    server = certificate(tmp_path)
    mine, key = certificate(tmp_path, "shop")  # the name of the user
    other, other_key = certificate(tmp_path, "other")
    with PostgreSQL(tls=server, clients=mine) as safe:
        safe.sql("CREATE ROLE shop LOGIN")
        safe.sql("GRANT ALL ON SCHEMA public TO shop")
        given = {"tls": True, "ca_path": str(server[0]), "user": "shop", "password": None}
        store = driver(safe.port, **given, client_cert=str(mine), client_key=str(key))
        store.acquire("a", "ann", 60, {})
        store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
        assert store.load() == {"id": "r1"}
        for wrong in ({}, {"client_cert": str(other), "client_key": str(other_key)}):
            with pytest.raises(StoreError) as told:
                driver(safe.port, **given, **wrong).load()
            assert "PRIVATE" not in str(told.value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"servers": []}, "rollout_store.servers: must not be empty"),
        ({"servers": "db 1"}, "rollout_store.servers: 'db 1' is not an address and a port"),
        ({"servers": "db1 password=x"}, "rollout_store.servers"),
        ({"servers": None}, "rollout_store.servers: not given"),
        ({"schema": "a.b; DROP"}, "rollout_store.schema: 'a.b; DROP' is not a name"),
        ({"ca_path": "/nowhere"}, "rollout_store.ca_path: '/nowhere' is not"),
        ({"tls": False, "ca_path": "/etc/hosts"}, "rollout_store.tls: false"),
        ({"password": ""}, "rollout_store.password: must not be empty"),
    ],
)
def test_what_is_wrong_is_refused(options: dict[str, t.Any], reason: str) -> None:
    given = {"servers": "db1", **options}
    with pytest.raises(InputError, match=reason):
        Driver(OPTIONS.parse(given, "rollout_store."), DriverContext("shop", t.cast(t.Any, None)))


def test_without_psycopg_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InputError, match=r"pip install 'psycopg\[binary\]'") as told:
        driver(1)
    assert told.value.id == "PR-117"
