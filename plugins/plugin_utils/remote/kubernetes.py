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
import time
import typing as t
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path

from ..base import clock
from ..base.errors import InputError, RolloutError, TransportError
from ..base.text import clean, size
from ..inputs import values
from ..inputs.options import FACTOR, NAME, PATH, TEXT, Field, Kind, Options, unparsed
from .deadline import within


def _namespace(value: t.Any, variable: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", str(value)):
        raise InputError(f"{variable}: {clean(value)!r} is not the name of a namespace", "PR-120")
    return str(value)


CLUSTER = (
    Field("namespace", Kind("str", _namespace), "The namespace, by default that of the context."),
    Field(
        "context",
        TEXT,
        "The kubeconfig context, by default the current one. Without a kubeconfig, the service"
        " account of the pod that the playbook runs in is used.",
    ),
    Field(
        "kubeconfig",
        PATH,
        "The kubeconfig file, by default the one in the environment variable C(KUBECONFIG).",
    ),
)
ONE_OF_SEVERAL = Options(
    Field("name", NAME, "The name of the cluster, in messages and for targets.", required=True),
    *CLUSTER,
    Field(
        "factor",
        FACTOR,
        "Multiplier for its even share of O(replicas): O(replicas) divided by the number of"
        " clusters and rounded up, times this factor, rounded up again.",
        default=1,
    ),
)
CLUSTERS = Field(
    "clusters",
    Kind("list", unparsed, elements="dict", fields=ONE_OF_SEVERAL),
    "Several clusters, each with what differs there. What is not given is taken from the options"
    " next to this list. Platform and load balancers need the same clusters, and can share the same"
    " list.",
    default=[],
)
Object = Mapping[str, t.Any]  # of the API, as JSON
MERGE = "application/merge-patch+json"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
ACCEPTED = "application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
HERE = "progressive.rollout"  # who asks, in the server's audit log
MANAGER = {"fieldManager": "progressive-rollout"}  # whose fields they are (`managedFields`)
BUSY = frozenset({429, 500, 502, 503, 504})  # a read is repeated, after the time that is asked for
REPEATS = 3
CONNECT, READ = 5.0, 30.0  # seconds that a connection, and each part of an answer, may take
ANSWER = 60.0  # seconds that a request may take, with the plugin that logs in
LARGEST, LINE = 256 * 2**20, 16 * 2**20  # bytes of an answer, and of a line of a watch
WATCH = 20  # seconds after which a watch is begun again: what is between hangs up idle ones
STALE = WATCH + 15.0  # seconds after which a list whose watch says nothing is not current any more
PAUSE, LONGEST = 0.2, 10.0  # seconds before a watch that failed is begun again, doubled each time
_IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def each_cluster(options: Mapping[str, t.Any], variable: str) -> dict[str, dict[str, t.Any]]:
    """Return the options for each of several clusters, by name; raises InputError."""
    clusters: dict[str, dict[str, t.Any]] = {}
    logins: dict[tuple[t.Any, ...], str] = {}
    where = f"{variable}.clusters"
    given = values.sequence(options["clusters"], where, "clusters, as in [{name: eu, context: eu}]")
    for number, entry in enumerate(given):
        parsed = ONE_OF_SEVERAL.parse(values.mapping(entry, where), f"{where}[{number}].")
        name, login = parsed["name"], {f.name: parsed[f.name] or options[f.name] for f in CLUSTER}
        same = logins.setdefault(tuple(login.values()), name)
        if name in clusters or same != name:
            raise InputError(
                f"{where}[{number}]: {name!r} is the same cluster as {same!r}, with the same name"
                " or the same login; name each once",
                "PR-247",
            )
        if "/" in name:
            raise InputError(f"{where}[{number}].name: {name!r} must not have a slash", "PR-120")
        clusters[name] = {**options, **login, "factor": parsed["factor"]}
    return clusters


class ApiError(TransportError):
    """The API server refused a request (`status`), or could not be reached (0)."""

    id = "PR-240"

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status

    @property
    def silent(self) -> bool:
        """Whether the server does not answer, or cannot now."""
        return self.status in (0, 429) or self.status >= 500


class Expired(Exception):
    """A watch cannot go on from where it was: list again."""


class Cluster:
    """An API server. Any thread may ask it."""

    def __init__(
        self,
        kubeconfig: str | None = None,
        context: str | None = None,
        variable: str = "context",
        timeout: float = READ,
    ) -> None:
        """Find the cluster by kubeconfig and context, or else where this runs, and log in.

        Each part of an answer may take as long as `timeout`. Raises InputError, beginning with
        `variable`.
        """
        self._kubeconfig, self._context, self._variable = kubeconfig, context, variable
        self._timeout = timeout
        self._lock = threading.Lock()
        self._impersonated: Sequence[tuple[str, str]] = ()  # headers
        self.skew = 0.0  # seconds that this machine's clock is ahead of the server's
        self.now = clock.now()  # by the server's clock, when it last answered: whole seconds
        try:
            self._client, self.namespace = within(ANSWER, self._log_in)
        except TimeoutError:
            raise InputError(
                f"{variable}: logging in takes longer than {ANSWER:g} s; see which plugin for"
                " credentials the kubeconfig names, and whether it waits for somebody",
                "PR-241",
            ) from None

    def get(self, path: str, **query: str) -> Object:
        """Return an object, or a list of them."""
        began = time.monotonic()
        try:
            return self._ask("GET", path, query=query)
        except ApiError as exc:
            if exc.status or time.monotonic() - began > CONNECT:
                raise
        return self._ask("GET", path, query=query)  # a connection that was closed meanwhile

    def metadata(self, path: str) -> Object:
        """Return the metadata of an object; what else it has does not leave the server.

        https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches
        """
        meta: Object = self._ask("GET", path, accept=METADATA)["metadata"]
        return meta

    def post(self, path: str, body: Object, **query: str) -> Object:
        """Create an object, and return it."""
        return self._ask("POST", path, body, "application/json", {**query, **MANAGER})

    def patch(self, path: str, body: Object | Sequence[Object], **query: str) -> Object:
        """Change an object, by a JSON patch (a list) or by merging, and return it."""
        content = MERGE if isinstance(body, Mapping) else JSON
        return self._ask("PATCH", path, body, content, {**query, **MANAGER})

    def patch_by_keys(self, path: str, body: Object, **query: str) -> Object:
        """Change an object by a strategic merge patch, as `kubectl patch` does: lists of containers
        or variables are merged by their keys.

        https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/
        """
        return self._ask("PATCH", path, body, STRATEGIC, {**query, **MANAGER})

    def delete(self, path: str, body: Object | None = None) -> None:
        """Delete an object; that it is gone already is no error."""
        try:
            self._ask("DELETE", path, body or {}, "application/json")
        except ApiError as exc:
            if exc.status != 404:
                raise

    def may(self, namespace: str, group: str, resource: str, verb: str) -> bool:
        """Return whether the account has a right."""
        name, _slash, sub = resource.partition("/")
        asked = {"namespace": namespace, "verb": verb, "group": group, "resource": name}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {**asked, "subresource": sub}},
        }
        return bool(self.post(REVIEWS, review).get("status", {}).get("allowed"))

    def version(self) -> tuple[int, int]:
        """Return the server's version, as far as its features depend on it."""
        answer = self.get("/version")
        major, minor = (re.match(r"\d*", str(answer.get(part, ""))) for part in ("major", "minor"))
        return int((major and major[0]) or 0), int((minor and minor[0]) or 0)

    def watch(self, path: str, version: str, **query: str) -> Iterator[tuple[str, Object]]:
        """Yield what happens after this version, until the server ends it; raises Expired."""
        asked = {**query, "watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version}
        asked["timeoutSeconds"] = str(WATCH)
        reply = self._send(
            "GET", path, None, {"Accept": ACCEPTED}, asked, WATCH + CONNECT, repeats=0
        )
        try:
            for line in _lines(reply):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise Expired(clean(event["object"].get("message")))
                yield event["type"], event["object"]
        except _failures() as exc:
            raise ApiError(f"{path}: the watch was broken: {clean(exc)}") from None
        finally:
            with suppress(Exception):  # only tidies up
                reply.close()

    # -- helpers -----------------------------------------------------------------------------------

    def _ask(
        self,
        method: str,
        path: str,
        body: t.Any = None,
        content: str = "",
        query: Mapping[str, str] | None = None,
        *,
        accept: str = ACCEPTED,
    ) -> Object:
        """Return the answer to a request, within bounds; raises ApiError."""
        headers = {"Accept": accept} | ({"Content-Type": content} if content else {})
        try:
            return within(ANSWER, lambda: self._answer(method, path, body, headers, query or {}))
        except TimeoutError:
            raise ApiError(f"{method} {path}: no answer within {ANSWER:g} s") from None

    def _answer(
        self,
        method: str,
        path: str,
        body: t.Any,
        headers: Mapping[str, str],
        query: Mapping[str, str],
    ) -> Object:
        reply = self._send(method, path, body, headers, query, self._timeout)
        try:
            content = json.loads(_body(reply) or b"{}")
            if not isinstance(content, Mapping):
                raise ValueError("an answer that is not an object")
        except _failures() as exc:
            raise ApiError(f"{method} {path}: {clean(exc)}") from None
        return content

    def _send(
        self,
        method: str,
        path: str,
        body: t.Any,
        headers: Mapping[str, str],
        query: Mapping[str, str],
        timeout: float,
        *,
        again: bool = True,
        repeats: int = REPEATS,
    ) -> t.Any:
        """Send a request and return the answer, its body unread; raises ApiError.

        Of a server that is busy, a read is asked again up to `repeats` times.
        """
        client = self._client
        url = client.configuration.host.rstrip("/") + path
        if query:
            url += "?" + urllib.parse.urlencode(query)
        sent = importlib.import_module("urllib3").HTTPHeaderDict(headers)
        sent.update({"User-Agent": HERE, **_credentials(client)})
        for header, value in self._impersonated:
            sent.add(header, value)
        try:
            reply = client.rest_client.pool_manager.request(
                method,
                url,
                body=None if body is None else json.dumps(body).encode(),
                headers=sent,
                preload_content=False,
                redirect=False,
                retries=_repeats(repeats) if method == "GET" else False,
                timeout=importlib.import_module("urllib3").Timeout(connect=CONNECT, read=timeout),
            )
            self._note_time(reply.headers.get("Date"))
            if 200 <= reply.status < 300:
                return reply
            text = _message(_body(reply))
        except _failures() as exc:
            raise ApiError(
                f"the API server {client.configuration.host} does not answer: {clean(exc)}"
            ) from None
        if reply.status == 401 and again:
            self._log_in_again(client)
            return self._send(method, path, body, headers, query, timeout, again=False)
        if reply.status == 401:
            text += ", also after another login; see whether kubectl auth can-i works there"
        raise ApiError(f"{method} {path}: {text} ({reply.status})", reply.status)

    def _log_in_again(self, refused: t.Any) -> None:
        """Log in anew after a refusal, unless another thread has: plugins issue another token."""
        with self._lock:
            if self._client is refused:
                try:
                    self._client = self._log_in()[0]
                except InputError as exc:  # what worked before may work again
                    raise ApiError(str(exc), 401) from None

    def _note_time(self, date: str | None) -> None:
        """Compare the clocks; the server's answers have whole seconds."""
        here = server_time = clock.now()
        with suppress(ValueError, TypeError, OverflowError):
            server_time = parsedate_to_datetime(str(date)).timestamp()
            self.skew = here - server_time if abs(here - server_time) > 2 else 0.0
        self.now = server_time

    def _log_in(self) -> tuple[t.Any, str]:
        """Return the official client, and the namespace of the context."""
        config = _official(self._variable)
        try:
            if self._kubeconfig or self._context or _has_kubeconfig(config):
                client = config.new_client_from_config(self._kubeconfig, self._context)
                places = self._kubeconfig or config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION
                contexts, active = config.list_kube_config_contexts(self._kubeconfig)
                chosen = next((c for c in contexts if c["name"] == self._context), active)
                given = chosen["context"].get("namespace") or "default"
                users = config.kube_config.KubeConfigMerger(str(places)).config["users"]
                user = users.get_with_name(chosen["context"].get("user"), safe=True)
                self._impersonated = _impersonation(user.value.get("user") or {} if user else {})
                return client, _namespace(given, self._variable)
            config.load_incluster_config()
            api = importlib.import_module("kubernetes.client").ApiClient()
            return api, _namespace(_IN_CLUSTER.read_text().strip(), self._variable)
        except (RolloutError, KeyboardInterrupt):
            raise
        except Exception as exc:  # the client's own, YAML's, and those of exec plugins
            name = self._context or self._kubeconfig or "KUBECONFIG"
            raise InputError(
                f"{self._variable}: cannot log in with {name!r}: {clean(exc)}; name a kubeconfig"
                " and one of its contexts",
                "PR-241",
            ) from None


def _impersonation(given: Mapping[str, t.Any]) -> list[tuple[str, str]]:
    """Return the headers by which a user of a kubeconfig acts as another one.

    The official client does not know them:
    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
    """
    headers = [("Impersonate-User", given.get("as")), ("Impersonate-Uid", given.get("as-uid"))]
    headers += [("Impersonate-Group", name) for name in given.get("as-groups") or ()]
    for key, extra in (given.get("as-user-extra") or {}).items():
        name = urllib.parse.quote(str(key).lower(), safe="")
        headers += [(f"Impersonate-Extra-{name}", value) for value in extra]
    return [(header, str(value)) for header, value in headers if value]


def _repeats(number: int) -> t.Any:
    """Return how often an answer that says that the server is busy is asked for again."""
    return importlib.import_module("urllib3").Retry(
        total=None,
        connect=False,
        read=False,
        redirect=False,
        status=number,
        status_forcelist=BUSY,
        backoff_factor=0.1,
        raise_on_status=False,
    )


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
        self._beginning = threading.Lock()  # for the first look
        self._current = 0.0  # until when what is kept counts as such, without news
        self._at = 0  # the version that the watch, or the last list, has told of
        self._noted: dict[str, Object] = {}  # changes of ours that are newer
        self.changes = 0  # counted, so that another look can tell whether there were any

    def list(self, fresh: bool = False) -> Sequence[Object]:
        """Return the objects; the first time, they are listed and the watch begins.

        They are listed where they are to be `fresh`, and each time while the watch is broken, or
        says nothing for too long.
        """
        with self._beginning:
            if self._thread is None:
                version = self._relist()
                self._thread = threading.Thread(target=self._run, args=(version,), daemon=True)
                self._thread.start()
        with self._lock:
            if time.monotonic() < self._current and not fresh:
                return list({**self._objects, **self._noted}.values())
        return list(self._listed()[0].values())

    def note(self, obj: Object) -> None:
        """Take in an object as a change of ours has left it, before the watch tells of it."""
        with self._lock:
            if _version(obj) > self._at:
                self._noted[_name(obj)] = obj

    def close(self) -> None:
        """End the watch, at the next news or when the server ends it."""
        self._stop.set()

    def _listed(self) -> tuple[dict[str, Object], str]:
        """Return the objects by name, and the version that a watch can go on from."""
        listed = self._cluster.get(self._path, **self._query)
        return {_name(obj): obj for obj in listed["items"]}, listed["metadata"]["resourceVersion"]

    def _relist(self) -> str:
        objects, version = self._listed()
        with self._lock:
            self._objects = objects
            self._current = time.monotonic() + STALE
            self._reach(version)
            self.changes += 1
        return version

    def _run(self, version: str) -> None:
        """Watch until it is closed. Whatever fails, it begins again with a list.

        Only this thread changes what is kept: a list that came late could undo newer news.
        """
        pause, broken = PAUSE, False
        while not self._stop.is_set():
            try:
                if broken:
                    version, broken = self._relist(), False
                    self._wake()
                for kind, obj in self._cluster.watch(self._path, version, **self._query):
                    if self._stop.is_set():
                        return
                    version = self._take(kind, obj)
                    pause = PAUSE
                self._current = time.monotonic() + STALE
            except Exception:  # an end of the thread would be silence that nobody notices
                self._current, broken = 0.0, True
                pause = min(LONGEST, 2 * pause)
            self._stop.wait(pause)

    def _take(self, kind: str, obj: Object) -> str:
        """Take in what has happened, and return its version."""
        version = str(obj["metadata"]["resourceVersion"])
        with self._lock:
            self._current = time.monotonic() + STALE
            if kind == "DELETED":
                self._objects.pop(_name(obj), None)
            elif kind != "BOOKMARK":
                self._objects[_name(obj)] = obj
            self._reach(version)
            self.changes += kind != "BOOKMARK"
        if kind != "BOOKMARK":
            self._wake()
        return version

    def _reach(self, version: str) -> None:
        """Forget the changes of ours that have been told of."""
        self._at = _number(version)
        self._noted = {name: obj for name, obj in self._noted.items() if _version(obj) > self._at}


def _official(variable: str) -> t.Any:
    """Return the official client's module of configurations, imported when it is needed."""
    try:
        return importlib.import_module("kubernetes.config")
    except ImportError:
        raise InputError(
            f"{variable}: it needs the Python package kubernetes; install it alongside ansible-core"
            " (pip install kubernetes)",
            "PR-117",
        ) from None


def _has_kubeconfig(config: t.Any) -> bool:
    """Whether there is a kubeconfig where kubectl looks for it."""
    places = str(config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION).split(":")
    return any(Path(place).expanduser().is_file() for place in places if place)


def _failures() -> tuple[type[Exception], ...]:
    """Return what may be raised where the network, the server or an answer of it is bad."""
    urllib3 = importlib.import_module("urllib3")
    bad = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
    return urllib3.exceptions.HTTPError, OSError, *bad


def _credentials(client: t.Any) -> Mapping[str, str]:
    """Return the headers that log in; plugins and rotating tokens may be read for them."""
    try:
        settings = client.configuration.auth_settings().values()
        return {setting["key"]: setting["value"] for setting in settings}
    except Exception as exc:  # the client's own, and those of plugins
        raise ApiError(
            f"no credentials for the API server {client.configuration.host}: {clean(exc)}"
        ) from None


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _body(reply: t.Any) -> bytes:
    """Return the body of an answer; raises ValueError if it is too large."""
    content = bytearray()
    for part in reply.stream(65536, decode_content=True):
        content += part
        if len(content) > LARGEST:
            reply.close()
            raise ValueError(f"an answer of more than {size(LARGEST)}")
    return bytes(content)


def _version(obj: Object) -> int:
    """Return the version of an object, which grows with every change of the cluster.

    https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/5504-comparable-resource-version
    """
    return _number(obj["metadata"].get("resourceVersion"))


def _number(version: t.Any) -> int:
    return int(version) if str(version).isdecimal() else 0


def _lines(reply: t.Any) -> Iterator[bytes]:
    """Yield the lines of an answer as they come; raises ValueError if one is too large."""
    rest = b""
    for part in reply.stream(65536, decode_content=True):
        *whole, rest = (rest + part).split(b"\n")
        yield from filter(None, whole)
        if len(rest) > LINE:
            raise ValueError(f"a line of more than {size(LINE)}")


def _message(body: bytes) -> str:
    """Return what the server says of a request that it refused."""
    try:
        return clean(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return clean(body.decode(errors="replace")) or "refused"
