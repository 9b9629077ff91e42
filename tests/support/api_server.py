# SPDX-License-Identifier: GPL-3.0-or-later
"""An API server of Kubernetes for the store: Leases and ConfigMaps, on a free loopback port.

It answers as the real one does, which the same tests are run against (`tests/engines`).
"""

from __future__ import annotations

import copy
import json
import tempfile
import threading
import typing as t
import urllib.parse
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from .kubernetes import _merged
from .ports import free_port
from .web import _Quiet

Object = dict[str, t.Any]
REVIEWS = "selfsubjectaccessreviews"


class _Refusal(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class ApiServer:
    """A server that can be killed, and started again with what it has stored."""

    def __init__(self) -> None:
        self.port = free_port()
        self.objects: dict[str, Object] = {}  # by path
        self.requests: list[str] = []
        self.before: Callable[[str, str], None] = lambda method, path: None  # may raise or change
        self.after: Callable[[str, str], None] = lambda method, path: None  # its answer is lost
        self.full = ""  # what is said to every write
        self.forbidden: set[tuple[str, str]] = set()  # verb, resource
        self._version = 0
        self._lock = threading.Lock()
        self._directory = tempfile.TemporaryDirectory(prefix="api")
        self.server: _Quiet | None = None
        self.start()

    def kubeconfig(self, port: int = 0) -> str:
        """A kubeconfig for it, or for what forwards to it from another port."""
        path = Path(self._directory.name) / str(port or self.port)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [
                {"name": "any", "cluster": {"server": f"http://127.0.0.1:{port or self.port}"}}
            ],
            "users": [{"name": "me", "user": {"token": "s3cr3t"}}],
            "contexts": [
                {"name": "here", "context": {"cluster": "any", "user": "me", "namespace": "web"}}
            ],
        }
        path.write_text(json.dumps(config))
        return str(path)

    def start(self) -> None:
        test = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                test._serve(self)

            do_GET = do_PATCH = do_DELETE = do_POST

            def log_message(self, format: str, *args: t.Any) -> None:
                pass

        self.server = _Quiet(("127.0.0.1", self.port), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def kill(self) -> None:
        """Let no request be answered from now on."""
        assert self.server
        with self._lock:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    def close(self) -> None:
        if self.server:
            self.kill()
        self._directory.cleanup()

    def __enter__(self) -> ApiServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- requests ------------------------------------------------------------------------------

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        given = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        where = urllib.parse.urlsplit(handler.path)
        query = dict(urllib.parse.parse_qsl(where.query))
        method, status = handler.command, 200
        self.before(method, where.path)
        with self._lock:
            if self.server is None:
                handler.close_connection = True
                return
            self.requests.append(f"{method} {where.path}")
            try:
                found = self._do(method, where.path, json.loads(given or b"{}"), query)
            except _Refusal as exc:
                found, status = {"kind": "Status", "message": str(exc)}, exc.status
            body = json.dumps(found).encode()
        try:
            self.after(method, where.path)
        except ConnectionError:
            handler.close_connection = True
            return
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def _do(self, method: str, path: str, body: Object, query: Mapping[str, str]) -> Object:
        if path.endswith(REVIEWS):
            asked = body["spec"]["resourceAttributes"]
            return {"status": {"allowed": (asked["verb"], asked["resource"]) not in self.forbidden}}
        name = path.rpartition("/")[2]
        listed = name in ("configmaps", "leases")
        resource = name if listed else path.split("/")[-2]
        verb = {"GET": "list" if listed else "get", "POST": "create"}.get(method, method.lower())
        if (verb, resource) in self.forbidden:
            raise _Refusal(403, f'{resource} is forbidden: User "me" cannot {verb} it')
        if self.full and method != "GET":
            raise _Refusal(500, self.full)
        return {"GET": self._get, "POST": self._create, "PATCH": self._patch}.get(
            method, self._delete
        )(path, body, query)

    def _get(self, path: str, body: Object, query: Mapping[str, str]) -> Object:
        if path.rpartition("/")[2] in ("configmaps", "leases"):
            pairs = [pair.split("=") for pair in query.get("labelSelector", "").split(",") if pair]
            items = [
                one
                for where, one in self.objects.items()
                if where.startswith(f"{path}/")
                and dict(pairs).items() <= one["metadata"].get("labels", {}).items()
            ]
            return {"metadata": {"resourceVersion": str(self._version)}, "items": items}
        if path not in self.objects:
            raise _Refusal(404, f'"{path}" not found')
        return self.objects[path]

    def _create(self, path: str, body: Object, query: Mapping[str, str]) -> Object:
        where = f"{path}/{body['metadata']['name']}"
        if where in self.objects:
            raise _Refusal(409, f'"{where}" already exists')
        return self._put(where, copy.deepcopy(body))

    def _patch(self, path: str, body: Object, query: Mapping[str, str]) -> Object:
        before = self._get(path, {}, {})
        version = body.get("metadata", {}).get("resourceVersion")
        if version not in (None, before["metadata"]["resourceVersion"]):
            raise _Refusal(409, f'"{path}": the object has been modified')
        after = _merged(before, body)
        if after == before:  # as the real one: nothing changes, and all seems well
            return before
        if before.get("immutable") and any(
            before.get(key) != after.get(key) for key in ("data", "binaryData", "immutable")
        ):
            raise _Refusal(422, f'"{path}" is invalid: field is immutable when `immutable` is set')
        return self._put(path, after)

    def _delete(self, path: str, body: Object, query: Mapping[str, str]) -> Object:
        self._get(path, {}, {})
        self._version += 1
        return self.objects.pop(path)

    def _put(self, path: str, one: Object) -> Object:
        texts = [*one.get("data", {}).values(), *one.get("binaryData", {}).values()]
        if sum(map(len, texts)) > 4 * (1 << 20) // 3:
            raise _Refusal(422, f'"{path}" is invalid: Too long: must have at most 1048576 bytes')
        self._version += 1
        one["metadata"]["resourceVersion"] = str(self._version)
        self.objects[path] = one
        return one
