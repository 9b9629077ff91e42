# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal and the lease in one PostgreSQL table, through psycopg 3.

The server's clock says when a lease ends.
"""

from __future__ import annotations

import importlib
import os
import re
import socket
import threading
import typing as t
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from ..base.errors import InputError, StoreAway, StoreError
from ..base.text import clean
from ..base.trace import trace
from ..inputs import values
from ..inputs.options import FLAG, TEXT, Field, Kind, Options, one_or_more
from ..interfaces.context import DriverContext
from ..remote import http_client
from ._shared import Change, SharedStore, StoredTexts

PORT = 5432


def _server(value: t.Any, variable: str) -> tuple[str, int]:
    """Return the host and the port of a server."""
    text = str(value)
    if re.fullmatch(r"/[!-~]*|[A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\]", text):  # a socket's directory
        return text.strip("[]"), PORT
    address = values.socket_address(value, variable)
    return address.host, address.port


def _name(value: t.Any, variable: str) -> str:
    """Return the name of a schema."""
    text = values.text(value, variable)
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", text):
        raise InputError(
            f"{variable}: {values.shown(text)} is not a name; use lower-case letters, digits and _",
            "PR-120",
        )
    return text


OPTIONS = Options(
    Field(
        "servers",
        one_or_more(Kind("raw", _server)),
        "The servers, each a name or an address with or without a port, or the directory of a"
        " socket. The first one that accepts writes is used.",
        required=True,
    ),
    Field("database", TEXT, "The database.", default="rollout"),
    Field("schema", Kind("str", _name), "The schema of the table.", default="public"),
    Field("user", TEXT, "PostgreSQL user.", default="rollout"),
    Field(
        "password",
        TEXT,
        "The user's password. If not given, the one in the environment variable C(PGPASSWORD) or in"
        " C(~/.pgpass).",
        no_log=True,
    ),
    Field(
        "tls",
        FLAG,
        "Whether connections must be encrypted, and the server's certificate valid for its name.",
        default=True,
    ),
    Field(
        "ca_path",
        TEXT,
        "File on the controller with the CA certificates that the server's certificate is verified"
        " against, those of the system if not given.",
    ),
    Field("client_cert", TEXT, "File on the controller with a client certificate."),
    Field("client_key", TEXT, "File on the controller with the key of C(client_cert)."),
)

TIMEOUT = 5.0  # seconds for one operation, or for connecting to one server
TABLE = "rollout_journal"
# What makes each version of the table from the one before; the table itself has the version.
MIGRATIONS = (
    """CREATE TABLE {table} (
        service text NOT NULL,
        name text NOT NULL,
        version bigint NOT NULL,
        body text NOT NULL,
        PRIMARY KEY (service, name)
    )""",
)
_VERSION = ("", "schema")  # the row with the version; no service has an empty name
_READ = """SELECT extract(epoch FROM clock_timestamp())::float8, name, version, body
    FROM (VALUES (1)) AS once LEFT JOIN {table} ON service = %s AND name = ANY(%s)"""
_MAKE = """INSERT INTO {table} (body, service, name, version) VALUES (%s, %s, %s, %s + 1)
    ON CONFLICT (service, name) DO NOTHING"""  # there is none yet: its version is 0
_SWAP = """UPDATE {table} SET version = version + 1, body = %s
    WHERE service = %s AND name = %s AND version = %s"""
_PUT = """INSERT INTO {table} AS old (service, name, version, body) VALUES (%s, %s, 1, %s)
    ON CONFLICT (service, name) DO UPDATE SET version = old.version + 1, body = excluded.body"""
_DROP = "DELETE FROM {table} WHERE service = %s AND starts_with(name, %s)"
_RANGE = """SELECT body FROM {table} WHERE service = %s AND starts_with(name, %s)
    ORDER BY name COLLATE "C" """
# Not on the standby only in memory: a lease must outlive the server that gave it.
_DURABLE = """SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') IN ('off', 'local')"""
# Not to_regclass(), which may remember that there was none.
_THERE = "SELECT count(*) FROM pg_tables WHERE schemaname = %s AND tablename = %s"
_LOCK = 0x726F6C6C  # of migrations
_DENIED = ("28", "42501", "3D", "3F", "42P06")  # SQLSTATEs: user, rights, database, schema

# What libpq, which has no SQLSTATE, says of a user that may not connect.
_LOCKED_OUT = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|(role|database) \S+ does not"
    r" exist|permission denied"
)
R = t.TypeVar("R")


class _NoTable(Exception):
    """The table is not there yet."""


class Driver(SharedStore):
    """The journal in PostgreSQL."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        super().__init__(context.service)
        self._psycopg = _psycopg()
        self._table = f"{options['schema']}.{TABLE}"
        self._settings = _settings(options)
        self._schema = options["schema"]
        self._connection: t.Any = None
        self._lock = threading.Lock()
        servers = ", ".join(_shown(host, port) for host, port in options["servers"])
        self._at = f"database {options['database']} at {servers}"
        self.place = self._where("record")

    # -- texts ---------------------------------------------------------------------------------

    def _read(self, names: Collection[str]) -> StoredTexts:
        def read(run: t.Any) -> StoredTexts:
            rows = run(_READ, self._service, list(names)).fetchall()
            present = [row for row in rows if row[1] is not None]
            return StoredTexts(
                {name: body.encode() for _now, name, _version, body in present},
                {name: version for _now, name, version, _body in present},
                rows[0][0],
            )

        try:
            return self._work(read)
        except _NoTable:
            return StoredTexts({}, {}, self._work(_now))

    def _write(self, change: Change) -> bool:
        def write(run: t.Any) -> bool:
            texts = dict(change.texts)
            body, swap = texts.pop(change.guard), _SWAP if change.version else _MAKE
            if not run(swap, body, self._service, change.guard, change.version).rowcount:
                return False
            for name, text in texts.items():
                run(_PUT, self._service, name, text)
            for prefix in change.drop:
                run(_DROP, self._service, prefix)
            return True

        try:
            return self._work(write)
        except _NoTable:
            self._work(self._migrate)
            return self._work(write)

    def _texts(self, prefix: str) -> Iterable[bytes]:
        try:
            rows = self._work(lambda run: list(run(_RANGE, self._service, prefix).fetchall()))
        except _NoTable:
            return []
        return [row[0].encode() for row in rows]

    def _remove_all(self) -> None:
        self._work(lambda run: run(_DROP, self._service, ""))

    def _where(self, name: str) -> str:
        return f"{name} of {self._service} in {self._table} of {self._at}"

    # -- the table -----------------------------------------------------------------------------

    def _migrate(self, run: t.Any) -> None:
        """Make the table, or what is new in it; others that do so wait meanwhile."""
        run("SELECT pg_advisory_xact_lock(%s)", _LOCK)
        version = self._version(run)
        for statement in MIGRATIONS[version:]:
            run(statement)
        if version < len(MIGRATIONS):
            run(_PUT, *_VERSION, str(len(MIGRATIONS)))

    def _version(self, run: t.Any) -> int:
        """Return the version of the table, 0 where there is none; refuse one that is newer."""
        if not run(_THERE, self._schema, TABLE).fetchone()[0]:
            return 0
        result = run("SELECT body FROM {table} WHERE service = %s AND name = %s", *_VERSION)
        row = result.fetchone()
        version = int(row[0]) if row and row[0].isdecimal() else 0
        if not 0 < version <= len(MIGRATIONS):
            raise StoreError(
                f"{self._table} of {self._at} has version {version or '?'}, this"
                f" progressive.rollout knows up to {len(MIGRATIONS)}: install a newer one",
                "PR-507",
            )
        return version

    # -- the connection ------------------------------------------------------------------------

    def _work(self, work: Callable[[t.Any], R]) -> R:
        """Do it in a transaction, with a function that runs SQL; raises StoreError.

        Once more on a new connection, if that of an earlier operation is broken: writes compare
        versions, so what was done is not done again.
        """
        with self._lock:
            fresh = self._connection is None
            try:
                return self._once(work)
            except StoreAway:
                if fresh:
                    raise
            return self._once(work)

    def _once(self, work: Callable[[t.Any], R]) -> R:
        try:
            with trace(f"postgresql: {self._service}") as call:
                call.outcome = "no answer"
                connection = self._connected()
                with _limited(connection), connection.transaction():
                    done = work(self._runner(connection))
                call.outcome = ""
            return done
        except self._psycopg.errors.UndefinedTable:
            raise _NoTable from None
        except self._psycopg.Error as exc:
            raise self._store_error(exc) from None
        except UnicodeError:
            self._close()
            raise StoreAway(f"{self._at} gave no answer that can be read", "PR-508") from None

    def _runner(self, connection: t.Any) -> t.Any:
        """Return a function that runs SQL over the table."""

        def run(sql: str, *values: t.Any) -> t.Any:
            return connection.execute(sql.format(table=self._table), values or None)

        return run

    def _connected(self) -> t.Any:
        """Return the connection, made anew where it is broken."""
        if self._connection is None or self._connection.closed:
            connection = self._psycopg.connect(**self._settings, autocommit=True)
            connection.prepare_threshold = None  # there may be a pooler between
            self._connection = connection
            with _limited(connection):
                limit = int(TIMEOUT * 800)
                connection.execute(f"SET statement_timeout = {limit}")
                # a controller that freezes in the middle of a write must not hold up the next one
                connection.execute(f"SET idle_in_transaction_session_timeout = {limit}")
                connection.execute(_DURABLE)
                run = self._runner(connection)
                if 0 < self._version(run) < len(MIGRATIONS):
                    with connection.transaction():
                        self._migrate(run)
        return self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def _store_error(self, exc: t.Any) -> StoreError:
        """Return what became of an operation, without what the connection was given."""
        state = str(getattr(exc, "sqlstate", None) or "")
        text = clean(getattr(getattr(exc, "diag", None), "message_primary", None) or exc, 300)
        if self._settings.get("password"):
            text = text.replace(self._settings["password"], "***")
        if state.startswith(_DENIED) or _LOCKED_OUT.search(text):
            self._close()
            return StoreError(
                f"rollout_store.user: {self._at}: {text}; the user needs to read and write"
                f" {self._table}, and to create it the first time",
                "PR-510",
            )
        if state[:2] not in ("", "08", "25", "40", "53", "55", "57", "58"):
            return StoreError(f"rollout_store: {self._at}: {text} ({state})", "PR-500")
        self._close()  # another server may take writes by now
        room = "; make room on its disk" if state == "53100" else ""
        return StoreAway(f"rollout_store.servers: {self._at}: {text}{room}", "PR-508")


@contextmanager
def _limited(connection: t.Any) -> Iterator[None]:
    """Cut the connection where an answer takes too long.

    What takes longer than the server's own timeout is a network that swallows everything.
    """
    timer = threading.Timer(TIMEOUT, _cut, [connection])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _cut(connection: t.Any) -> None:
    """End a connection whose answer another thread waits for."""
    with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


def _now(run: t.Any) -> float:
    seconds: float = run("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()[0]
    return seconds


def _settings(options: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return what libpq connects with."""
    files = {
        name: http_client.file(options[option], f"rollout_store.{option}")
        for name, option in (
            ("sslrootcert", "ca_path"),
            ("sslcert", "client_cert"),
            ("sslkey", "client_key"),
        )
        if options[option]
    }
    if files and not options["tls"]:
        raise InputError(
            "rollout_store.tls: false, so certificates have no effect; remove them, or it", "PR-107"
        )
    encrypted = {"sslmode": "verify-full", "sslrootcert": "system", **files}
    return {
        "host": ",".join(host for host, _port in options["servers"]),
        "port": ",".join(str(port) for _host, port in options["servers"]),
        "dbname": options["database"],
        "user": options["user"],
        "password": options["password"],
        "target_session_attrs": "read-write",
        "connect_timeout": int(TIMEOUT),
        "tcp_user_timeout": int(TIMEOUT * 1000),
        "application_name": "progressive.rollout",
        **(encrypted if options["tls"] else {"sslmode": "disable"}),
    }


def _shown(host: str, port: int) -> str:
    return host if host.startswith("/") else str(values.SocketAddress(host, port))


def _psycopg() -> t.Any:
    """Return the package, imported when it is needed."""
    try:
        return importlib.import_module("psycopg")
    except ImportError:
        raise InputError(
            "rollout_store.driver: postgresql needs the Python package psycopg, version 3; install"
            " it alongside ansible-core (pip install 'psycopg[binary]')",
            "PR-117",
        ) from None
