# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal and the lease in etcd 3.4 or newer, through its JSON gateway.

A rollout's lease is alive as long as a key that hangs on a lease of etcd, so no clocks are
compared. https://etcd.io/docs/v3.5/dev-guide/api_grpc_gateway/
"""

from __future__ import annotations

import base64
import json
import math
import time
import typing as t
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime

from ..base import clock
from ..base.errors import InputError, StoreAway, StoreError
from ..inputs.options import TEXT, Field, Kind, Options, one_or_more
from ..interfaces.context import DriverContext
from ..remote import http_client
from ._shared import LEASE, Change, SharedStore, StoredTexts


def _address(value: t.Any, variable: str) -> str:
    """Return the URL of a member."""
    return http_client.url(value, variable, ()).rstrip("/")


def _prefix(value: t.Any, variable: str) -> str:
    """Return what the names of keys begin with."""
    text = str(value).rstrip("/")
    if not text.startswith("/") or not text.isascii() or not text.isprintable():
        raise InputError(
            f"{variable}: {value!r} is not the beginning of keys; write it like /rollout", "PR-120"
        )
    return text


OPTIONS = Options(
    Field(
        "endpoints",
        one_or_more(Kind("str", _address)),
        "URLs of the members. If one does not answer, the next one is asked.",
        required=True,
    ),
    Field("prefix", Kind("str", _prefix), "Prefix of all keys.", default="/rollout"),
    Field("user", TEXT, "etcd user, if authentication is enabled."),
    Field("password", TEXT, "The user's password.", no_log=True),
    Field(
        "ca_path",
        TEXT,
        "File on the controller with the CA certificates that the servers' certificates are"
        " verified against.",
    ),
    Field("client_cert", TEXT, "File on the controller with a client certificate."),
    Field("client_key", TEXT, "File on the controller with the key of C(client_cert)."),
)

TIMEOUT = 5.0  # seconds for one answer of a member; it takes milliseconds
MOST = 16 << 20  # bytes of an answer
REQUEST = 1_400_000  # bytes of a request; etcd's own limit is 1.5 MiB
LARGE = 100_000  # bytes from which a text is compressed
PAGE = 8  # texts of a timeline read at once: of the largest, an answer is less than MOST
ALIVE = "alive"  # the key that hangs on the lease
# Codes of gRPC: https://grpc.io/docs/guides/status-codes/
_NOT_FOUND, _DENIED, _FULL, _UNAVAILABLE, _UNAUTHENTICATED = 5, 7, 8, 14, 16


class _Refused(Exception):
    """A member refused a request."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Driver(SharedStore):
    """The journal in etcd."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        super().__init__(context.service)
        self._endpoints: list[str] = options["endpoints"]
        self._key = f"{options['prefix']}/{context.service}/"
        self._user, self._password = options["user"], options["password"]
        if bool(self._user) != bool(self._password):
            raise InputError(
                "rollout_store.user, rollout_store.password: only one of them is given; give both,"
                " or none",
                "PR-107",
            )
        self._client = http_client.Client(
            timeout=TIMEOUT,
            retries=0,
            secrets=[self._password or ""],
            verify=http_client.verify(True, options["ca_path"], "rollout_store"),
            certificate=_certificate(options["client_cert"], options["client_key"]),
            most=MOST,
            variable="rollout_store.endpoints",
            error=StoreAway,
            id="PR-508",
            keep=True,
        )
        self._token = ""  # of the user
        self._grant = ""  # the lease of etcd
        self._granted = 0.0  # for how many seconds
        self._renewed = 0.0  # when it was renewed
        self._now = 0.0  # by the clock of the member that answered last
        self.place = f"{self._key}record in etcd at {self._endpoints[0]}"

    # -- texts ---------------------------------------------------------------------------------

    def _read(self, names: Collection[str]) -> StoredTexts:
        wanted = [*names, ALIVE]
        asked = [{"requestRange": {"key": self._coded(name)}} for name in wanted]
        texts, versions = {}, {}
        with self._understood():
            answers = self._ask("kv/txn", {"success": asked})["responses"]
            for name, answer in zip(wanted, answers, strict=True):
                for pair in answer["response_range"].get("kvs", ()):
                    texts[name] = _decoded(pair.get("value", ""))
                    versions[name] = int(pair["mod_revision"])
        return StoredTexts(texts, versions, self._now, ALIVE in texts)

    def _write(self, change: Change) -> bool:
        try:
            try:
                return self._transact(change)
            except _Refused as exc:
                if exc.code != _NOT_FOUND or not change.ttl:
                    raise
                self._grant = ""  # it has expired meanwhile
                return self._transact(change)
        except _Refused as exc:
            raise self._store_error(exc) from None

    def _transact(self, change: Change) -> bool:
        if change.ttl:
            self._keep(change.ttl)
        unchanged = {
            "key": self._coded(change.guard),
            "target": "MOD",
            "result": "EQUAL",
            "modRevision": str(change.version),
        }
        done: list[t.Any] = [
            {"requestPut": {"key": self._coded(name), "value": _encoded(text)}}
            for name, text in change.texts.items()
        ]
        done += [{"requestDeleteRange": self._range(prefix)} for prefix in change.drop]
        if change.ttl:
            alive = {"key": self._coded(ALIVE), "value": _base64(b"1"), "lease": self._grant}
            done.append({"requestPut": alive})
        elif change.guard == LEASE:
            done.append({"requestDeleteRange": {"key": self._coded(ALIVE)}})
        answer = self._send("kv/txn", {"compare": [unchanged], "success": done})
        if change.guard == LEASE and not change.ttl:
            self._grant = ""
        return bool(answer.get("succeeded"))

    def _texts(self, prefix: str) -> Iterator[bytes]:
        asked = {**self._range(prefix), "limit": str(PAGE)}
        while True:
            with self._understood():
                answer = self._ask("kv/range", asked)
                kept = [_decoded(pair.get("value", "")) for pair in answer.get("kvs", ())]
                if answer.get("more"):
                    last = base64.b64decode(answer["kvs"][-1]["key"])
                    asked["key"] = _base64(last + b"\0")
            yield from kept
            if not answer.get("more"):
                return

    def _remove_all(self) -> None:
        self._ask("kv/deleterange", self._range(""))

    def _range(self, prefix: str) -> dict[str, str]:
        """Return the range of the keys that begin so."""
        first = (self._key + prefix).encode()
        return {"key": _base64(first), "range_end": _base64(first[:-1] + bytes([first[-1] + 1]))}

    def _coded(self, name: str) -> str:
        return _base64((self._key + name).encode())

    def _where(self, name: str) -> str:
        return f"{self._key}{name} in etcd at {self._endpoints[0]}"

    # -- etcd's lease --------------------------------------------------------------------------

    def _keep(self, ttl: float) -> None:
        """Have a lease of etcd that lives for so long, or nearly: it is not renewed each time."""
        seconds = math.ceil(ttl)
        if self._grant and self._granted == seconds:
            if time.monotonic() - self._renewed < ttl / 5:
                return
            with self._understood():
                answer = self._ask("lease/keepalive", {"ID": self._grant}).get("result", {})
                left = int(answer.get("TTL", 0))
            if left > 0:
                self._renewed = time.monotonic()
                return
        began = time.monotonic()
        with self._understood():
            self._grant = str(self._ask("lease/grant", {"TTL": str(seconds)})["ID"])
        self._granted, self._renewed = seconds, began

    # -- requests ------------------------------------------------------------------------------

    def _ask(self, what: str, body: t.Any) -> dict[str, t.Any]:
        """Return the answer to a request; raises StoreError."""
        try:
            return self._send(what, body)
        except _Refused as exc:
            raise self._store_error(exc) from None

    def _send(self, what: str, body: t.Any) -> dict[str, t.Any]:
        """Ask the members in turn, beginning with the one that answered last.

        Repeating a request does no harm: a write compares versions, and what the same run has
        written it finds again.
        """
        data = json.dumps(body).encode()
        _refuse_large(len(data) * 3 // 4, REQUEST)
        for _member in self._endpoints[1:]:
            try:
                return self._send_once(what, data)
            except StoreAway:
                self._endpoints = [*self._endpoints[1:], self._endpoints[0]]
        return self._send_once(what, data)

    def _send_once(self, what: str, data: bytes, again: bool = True) -> dict[str, t.Any]:
        """Ask a member, after logging in; once more if the log-in has expired."""
        if self._user and not self._token:
            named = {"name": self._user, "password": self._password}
            with self._understood():
                answer = self._post("auth/authenticate", json.dumps(named).encode())
                self._token = str(answer["token"])
        try:
            return self._post(what, data)
        except _Refused as exc:
            old = exc.code == _UNAUTHENTICATED or "revision" in str(exc)
            if not (self._user and again and old):
                raise
        self._token = ""
        return self._send_once(what, data, again=False)

    def _post(self, what: str, data: bytes) -> dict[str, t.Any]:
        url = f"{self._endpoints[0]}/v3/{what}"
        headers = {"Authorization": self._token} if self._token else {}
        reply = self._client.ask("POST", url, data, headers)
        self._now = _time(reply.headers.get("Date"))
        with self._understood():
            # what follows an error are trailers, which are not JSON
            answer, _end = json.JSONDecoder().raw_decode(reply.body.decode())
            if reply.status < 300:
                return dict(answer)
            code, text = int(answer["code"]), str(answer["error"])
        if code == _UNAVAILABLE or reply.status >= 500:  # no leader, or not heard by the others
            raise StoreAway(f"etcd at {self._endpoints[0]}: {reply.text}", "PR-508")
        raise _Refused(code, self._client.shown(text, url))

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Raise StoreAway for an answer that is not etcd's, such as that of a proxy."""
        try:
            yield
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise StoreAway(
                f"{self._endpoints[0]} gave no answer that is etcd's; check that the URL is that"
                " of a member, version 3.4 or newer",
                "PR-508",
            ) from None

    def _store_error(self, exc: _Refused) -> StoreError:
        where = f"etcd at {self._endpoints[0]}: {exc}"
        if exc.code == _FULL:
            return StoreAway(
                f"{where}; compact and defragment it, and end its alarm (etcdctl alarm disarm)",
                "PR-508",
            )
        if exc.code in (_DENIED, _UNAUTHENTICATED) or "user" in str(exc) or "auth" in str(exc):
            return StoreError(
                f"rollout_store.user: {where}; the user needs read and write access to all keys"
                f" that begin with {self._key}",
                "PR-510",
            )
        return StoreError(f"rollout_store: {where}", "PR-500")


def _certificate(certificate: str | None, key: str | None) -> tuple[str, str] | None:
    """Return the files of a client's certificate."""
    if bool(certificate) != bool(key):
        raise InputError(
            "rollout_store.client_cert, rollout_store.client_key: only one of them is given; give"
            " both, or none",
            "PR-107",
        )
    if not certificate or not key:
        return None
    return (
        http_client.file(certificate, "rollout_store.client_cert"),
        http_client.file(key, "rollout_store.client_key"),
    )


def _refuse_large(size: int, most: int) -> None:
    if size > most:
        raise StoreError(
            f"rollout_store: the journal of this service is too large for etcd ({size} bytes); keep"
            " it in a store of another kind",
            "PR-509",
        )


def _time(date: str | None) -> float:
    """Return the time of an answer, this machine's if it has none."""
    try:
        return parsedate_to_datetime(str(date)).timestamp()
    except (ValueError, TypeError):
        return clock.now()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _encoded(text: str) -> str:
    """Return a text as etcd takes it; a large one is compressed."""
    data = text.encode()
    _refuse_large(len(data), MOST)  # of what is read again
    return _base64(zlib.compress(data, 1) if len(data) > LARGE else data)


def _decoded(value: str) -> bytes:
    """Return a text; what cannot be read is damaged, which the caller says."""
    data = base64.b64decode(value)
    if data[:1] != b"\x78":
        return data
    try:
        reader = zlib.decompressobj()
        return reader.decompress(data, MOST)
    except zlib.error:
        return data
