# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Talk to the API server of a Kubernetes cluster.

The official client finds the cluster and logs in: kubeconfig, contexts, exec plugins, in-cluster
tokens that rotate. What is sent and answered is plain JSON.
"""

from __future__ import annotations

import importlib
import json
import re
import threading
import typing as t
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path

from ..base import clock
from ..base.errors import InputError, RolloutError, TransportError
from ..base.text import clean
from ..inputs.options import NAME, PATH, TEXT, Field

CLUSTER = (
    Field("namespace", NAME, "The namespace, that of the context if not given."),
    Field(
        "context",
        TEXT,
        "The context of the kubeconfig, the current one if not given. Without a kubeconfig, the"
        " service account of the pod that the playbook runs in is used.",
    ),
    Field(
        "kubeconfig",
        PATH,
        "The kubeconfig, that of the environment variable C(KUBECONFIG) if not given.",
    ),
)
Object = Mapping[str, t.Any]  # of the API, as JSON
MERGE = "application/merge-patch+json"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
JSON = "application/json-patch+json"
CONNECT, READ = 5.0, 30.0  # seconds that a connection and an answer may take
WATCH = 240  # seconds after which a watch is begun again
PAUSE, LONGEST = 0.2, 10.0  # seconds before a watch that failed is begun again, doubled each time
_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class ApiError(TransportError):
    """The API server refused a request (`status`), or could not be reached (0)."""

    id = "PR-240"

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class Expired(Exception):
    """A watch cannot go on from where it was: list again."""


class Cluster:
    """An API server. Any thread may ask it."""

    def __init__(
        self, kubeconfig: str | None = None, context: str | None = None, variable: str = "context"
    ) -> None:
        """Find the cluster by kubeconfig and context, or else where this runs; ask it nothing.

        Raises InputError, beginning with `variable`.
        """
        self._kubeconfig, self._context, self._variable = kubeconfig, context, variable
        self._lock = threading.Lock()
        self.skew = 0.0  # seconds that this machine's clock is ahead of the server's
        self._client, self.namespace = self._log_in()

    def get(self, path: str, **query: str) -> Object:
        """Return an object, or a list of them."""
        try:
            return self._ask("GET", path, query=query)
        except ApiError as exc:
            if exc.status:
                raise
        return self._ask("GET", path, query=query)  # a connection that was closed meanwhile

    def post(self, path: str, body: Object, **query: str) -> Object:
        """Create an object, and return it."""
        return self._ask("POST", path, body, "application/json", query)

    def patch(self, path: str, body: Object | Sequence[Object], **query: str) -> Object:
        """Change an object, by a JSON patch (a list) or by merging, and return it."""
        content = MERGE if isinstance(body, Mapping) else JSON
        return self._ask("PATCH", path, body, content, query)

    def delete(self, path: str, body: Object | None = None) -> None:
        """Delete an object; that it is gone already is no error."""
        try:
            self._ask("DELETE", path, body or {}, "application/json")
        except ApiError as exc:
            if exc.status != 404:
                raise

    def may(self, namespace: str, group: str, resource: str, verb: str) -> bool:
        """Return whether the account has a right."""
        asked = {"namespace": namespace, "verb": verb, "group": group, "resource": resource}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        return bool(self.post(REVIEWS, review).get("status", {}).get("allowed"))

    def version(self) -> tuple[int, int]:
        """Return the server's version, as far as its features depend on it."""
        found = self.get("/version")
        major, minor = (re.match(r"\d*", str(found.get(part, ""))) for part in ("major", "minor"))
        return int((major and major[0]) or 0), int((minor and minor[0]) or 0)

    def watch(self, path: str, version: str, **query: str) -> Iterator[tuple[str, Object]]:
        """Yield what happens after this version, until the server ends it; raises Expired."""
        asked = {**query, "watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version}
        reply = self._send(
            "GET", path, None, "", {**asked, "timeoutSeconds": str(WATCH)}, WATCH + READ
        )
        try:
            for line in _lines(reply):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise Expired(clean(event["object"].get("message")))
                yield event["type"], event["object"]
        except self._failures as exc:
            raise ApiError(f"{path}: the watch was broken: {clean(exc)}") from None
        finally:
            with suppress(Exception):  # only tidies up
                reply.close()

    # -- helpers -----------------------------------------------------------------------------------

    @property
    def _failures(self) -> tuple[type[Exception], ...]:
        """What may be raised where the network or the server fails."""
        urllib3 = importlib.import_module("urllib3")
        return urllib3.exceptions.HTTPError, OSError, ValueError

    def _ask(
        self,
        method: str,
        path: str,
        body: t.Any = None,
        content: str = "",
        query: Mapping[str, str] | None = None,
    ) -> Object:
        reply = self._send(method, path, body, content, query or {}, READ)
        try:
            found = json.loads(reply.data or b"{}")
        except self._failures as exc:
            raise ApiError(f"{method} {path}: {clean(exc)}") from None
        return t.cast(Object, found)

    def _send(
        self,
        method: str,
        path: str,
        body: t.Any,
        content: str,
        query: Mapping[str, str],
        timeout: float,
        again: bool = True,
    ) -> t.Any:
        """Send a request and return the answer, its body unread; raises ApiError."""
        client = self._client
        url = client.configuration.host.rstrip("/") + path
        if query:
            url += "?" + urllib.parse.urlencode(query)
        headers = {"Accept": "application/json"} | ({"Content-Type": content} if content else {})
        try:
            for one in client.configuration.auth_settings().values():
                headers[one["key"]] = one["value"]
            reply = client.rest_client.pool_manager.request(
                method,
                url,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                preload_content=False,
                redirect=False,
                retries=False,
                timeout=importlib.import_module("urllib3").Timeout(connect=CONNECT, read=timeout),
            )
            self._note_time(reply.headers.get("Date"))
            if reply.status < 300:
                return reply
            text = _message(reply.data)
        except self._failures as exc:
            raise ApiError(
                f"the API server {client.configuration.host} does not answer: {clean(exc)}"
            ) from None
        if reply.status == 401 and again:
            with self._lock:  # a token that has expired; exec plugins issue another
                if self._client is client:
                    self._client = self._log_in()[0]
            return self._send(method, path, body, content, query, timeout, again=False)
        raise ApiError(f"{method} {path}: {text} ({reply.status})", reply.status)

    def _note_time(self, date: str | None) -> None:
        """Compare the clocks; the server's answers have whole seconds."""
        with suppress(ValueError, TypeError):
            skew = clock.now() - parsedate_to_datetime(str(date)).timestamp()
            self.skew = skew if abs(skew) > 2 else 0.0

    def _log_in(self) -> tuple[t.Any, str]:
        """Return the official client, and the namespace of the context."""
        config = _official(self._variable)
        try:
            if self._kubeconfig or self._context or _has_kubeconfig(config):
                client = config.new_client_from_config(self._kubeconfig, self._context)
                contexts, active = config.list_kube_config_contexts(self._kubeconfig)
                chosen = next((c for c in contexts if c["name"] == self._context), active)
                return client, str(chosen["context"].get("namespace") or "default")
            config.load_incluster_config()
            api = importlib.import_module("kubernetes.client").ApiClient()
            return api, _NAMESPACE.read_text().strip()
        except (RolloutError, KeyboardInterrupt):
            raise
        except Exception as exc:  # the client's own, YAML's, and those of exec plugins
            found = self._context or self._kubeconfig or "KUBECONFIG"
            raise InputError(
                f"{self._variable}: cannot log in with {found!r}: {clean(exc)}; name a kubeconfig"
                " and one of its contexts",
                "PR-241",
            ) from None


class Reflector:
    """The objects of one list, kept up to date by a watch.

    `wake` is called from the watching thread after each change.
    """

    def __init__(self, cluster: Cluster, path: str, wake: Callable[[], None], **query: str) -> None:
        self._cluster, self._path, self._wake, self._query = cluster, path, wake, query
        self._objects: dict[str, Object] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._broken = False  # what is kept may be old
        self.changes = 0  # counted, so that another look can tell whether there were any

    def list(self) -> Sequence[Object]:
        """Return the objects; the first time, they are listed and the watch begins.

        While the watch is broken, they are listed each time.
        """
        if self._thread is None:
            version = self._relist()
            self._thread = threading.Thread(target=self._run, args=(version,), daemon=True)
            self._thread.start()
        elif self._broken:
            self._relist()
        with self._lock:
            return list(self._objects.values())

    def close(self) -> None:
        """End the watch; what is under way ends with the process."""
        self._stop.set()

    def _relist(self) -> str:
        found = self._cluster.get(self._path, **self._query)
        with self._lock:
            self._objects = {_name(one): one for one in found.get("items", ())}
            self.changes += 1
        return str(found["metadata"]["resourceVersion"])

    def _run(self, version: str) -> None:
        """Watch, and begin again, until it is closed."""
        pause = PAUSE
        while not self._stop.is_set():
            before = self.changes
            try:
                for kind, one in self._cluster.watch(self._path, version, **self._query):
                    if self._stop.is_set():
                        return
                    version = one["metadata"]["resourceVersion"]
                    self._take(kind, one)
                self._broken = False
            except (Expired, RolloutError) as exc:
                self._broken = True
                if isinstance(exc, Expired) or getattr(exc, "status", 0) == 410:
                    version = self._listed_again(version)
            pause = PAUSE if self.changes != before or not self._broken else min(LONGEST, 2 * pause)
            self._stop.wait(pause)

    def _listed_again(self, version: str) -> str:
        """List, since the watch cannot go on, and return the version from where it can."""
        try:
            version = self._relist()
        except RolloutError:
            return version  # tried again after a while
        self._broken = False
        self._wake()
        return version

    def _take(self, kind: str, one: Object) -> None:
        if kind == "BOOKMARK":
            return
        with self._lock:
            if kind == "DELETED":
                self._objects.pop(_name(one), None)
            else:
                self._objects[_name(one)] = one
            self.changes += 1
            self._broken = False
        self._wake()


def _official(variable: str) -> t.Any:
    """Return the official client's module of configurations, imported when it is needed."""
    try:
        return importlib.import_module("kubernetes.config")
    except ImportError:
        raise InputError(
            f"{variable}: it needs the Python package kubernetes; install it beside ansible-core"
            " (pip install kubernetes)",
            "PR-117",
        ) from None


def _has_kubeconfig(config: t.Any) -> bool:
    """Whether there is a kubeconfig where kubectl looks for it."""
    places = str(config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION).split(":")
    return any(Path(place).expanduser().is_file() for place in places if place)


def _name(one: Object) -> str:
    return str(one["metadata"]["name"])


def _lines(reply: t.Any) -> Iterator[bytes]:
    """Yield the lines of an answer as they come."""
    rest = b""
    for part in reply.stream(65536, decode_content=True):
        *whole, rest = (rest + part).split(b"\n")
        yield from filter(None, whole)


def _message(body: bytes) -> str:
    """Return what the server says of a request that it refused."""
    try:
        return clean(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return clean(body.decode(errors="replace")) or "refused"
