# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests to an API server, and lists that are kept up to date by a watch."""

from __future__ import annotations

import json
import sys
import threading
import time
import typing as t
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote import kubernetes
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import (
    ApiError,
    Cluster,
    Expired,
    Object,
    Reflector,
)
from ansible_collections.progressive.rollout.tests.support import web
from ansible_collections.progressive.rollout.tests.support.waiting import until

PODS = "/api/v1/namespaces/web/pods"


@pytest.fixture
def server() -> Iterator[web.Server]:
    made = web.Server()
    yield made
    made.close()


def kubeconfig(path: Path, url: str, user: object = None) -> str:
    """A kubeconfig with the contexts `here`, which is the current one, and `there`."""
    named = {"cluster": "any", "user": "me"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "any", "cluster": {"server": url}}],
        "users": [{"name": "me", "user": user or {"token": "s3cr3t"}}],
        "contexts": [
            {"name": "here", "context": {**named, "namespace": "web"}},
            {"name": "there", "context": named},
        ],
    }
    (path / "config").write_text(yaml.safe_dump(config))
    return str(path / "config")


@pytest.fixture
def cluster(tmp_path: Path, server: web.Server) -> Cluster:
    return Cluster(kubeconfig(tmp_path, server.url))


def refused(message: str) -> str:
    return json.dumps({"kind": "Status", "message": message})


# Requests
# --------------------------------------------------------------------------------------------------


def test_what_is_sent(cluster: Cluster, server: web.Server) -> None:
    server.replies = [(200, '{"items": []}')]
    assert cluster.get(PODS, labelSelector="app=shop") == {"items": []}
    cluster.post(PODS, {"a": 1}, dryRun="All")
    cluster.patch(f"{PODS}/one", {"b": 2})
    cluster.patch(f"{PODS}/one", [{"op": "test"}])
    cluster.patch_by_keys(f"{PODS}/one", {"c": 3}, dryRun="All")
    cluster.delete(f"{PODS}/one")
    sent = [
        (one.method, one.path, one.headers.get("Content-Type"), one.body.decode())
        for one in server.requests
    ]
    mine, strategic = "fieldManager=progressive-rollout", "application/strategic-merge-patch+json"
    assert sent == [
        ("GET", f"{PODS}?labelSelector=app%3Dshop", None, ""),
        ("POST", f"{PODS}?dryRun=All&{mine}", "application/json", '{"a": 1}'),
        ("PATCH", f"{PODS}/one?{mine}", "application/merge-patch+json", '{"b": 2}'),
        ("PATCH", f"{PODS}/one?{mine}", "application/json-patch+json", '[{"op": "test"}]'),
        ("PATCH", f"{PODS}/one?dryRun=All&{mine}", strategic, '{"c": 3}'),
        ("DELETE", f"{PODS}/one", "application/json", "{}"),
    ]
    assert {one.headers["authorization"] for one in server.requests} == {"Bearer s3cr3t"}
    assert {one.headers["User-Agent"] for one in server.requests} == {"progressive.rollout"}


def test_of_a_secret_only_the_metadata_is_asked_for(cluster: Cluster, server: web.Server) -> None:
    """https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches"""
    server.replies = [(200, '{"metadata": {"uid": "1", "resourceVersion": "7"}}')]
    assert cluster.metadata(f"{PODS}/one") == {"uid": "1", "resourceVersion": "7"}
    accepted = server.requests[-1].headers["Accept"]
    assert accepted == "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


def test_requests_are_made_as_whom_the_kubeconfig_says(tmp_path: Path, server: web.Server) -> None:
    """https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation"""
    user = {
        "token": "s3cr3t",
        "as": "deployer",
        "as-uid": "7",
        "as-groups": ["web", "all"],
        "as-user-extra": {"Acme.com/Team": ["shop"]},
    }
    Cluster(kubeconfig(tmp_path, server.url, user)).get(PODS)
    sent = {
        name.lower(): value
        for name, value in server.requests[-1].pairs
        if name.lower().startswith("impersonate")
    }
    groups = [v for name, v in server.requests[-1].pairs if name.lower() == "impersonate-group"]
    assert groups == ["web", "all"], "a header each"
    assert (sent["impersonate-user"], sent["impersonate-uid"]) == ("deployer", "7")
    assert sent["impersonate-extra-acme.com%2fteam"] == "shop"
    Cluster(kubeconfig(tmp_path, server.url)).get(PODS)
    assert not [n for n, _v in server.requests[-1].pairs if n.lower().startswith("impersonate")]


def test_the_namespace_is_that_of_the_context(tmp_path: Path) -> None:
    config = kubeconfig(tmp_path, "http://127.0.0.1:1")
    assert Cluster(config).namespace == "web"
    assert Cluster(config, "there").namespace == "default"


def test_a_refusal_is_told_in_the_servers_words(cluster: Cluster, server: web.Server) -> None:
    server.replies = [(403, refused('pods is forbidden: User "ci"\n cannot list'))]
    with pytest.raises(
        ApiError, match=r'pods is forbidden: User "ci" cannot list \(403\)'
    ) as found:
        cluster.get(PODS)
    assert (found.value.status, found.value.id) == (403, "PR-240")
    assert "s3cr3t" not in str(found.value)


@pytest.mark.parametrize(
    "reply",
    [(200, "<html>"), (200, '{"items": '), (200, "[1]"), (200, "null"), (200, "[" * 100_000)],
    ids=["html", "half", "list", "null", "deep"],
)
def test_what_is_no_answer_of_an_api_server(
    cluster: Cluster, server: web.Server, reply: tuple[int, str]
) -> None:
    server.replies = [reply]
    with pytest.raises(ApiError) as found:
        cluster.get(PODS)
    assert found.value.status == 0


def test_a_server_that_does_not_answer(cluster: Cluster, server: web.Server) -> None:
    server.replies = [None, (200, '{"items": []}')]
    assert cluster.get(PODS) == {"items": []}, "a connection may have been closed meanwhile"
    server.replies = [None]
    with pytest.raises(ApiError, match=rf"the API server {server.url} does not answer: ") as found:
        cluster.get(PODS)
    assert found.value.status == 0


def test_an_answer_that_never_ends(
    cluster: Cluster, server: web.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "ANSWER", 0.2)
    monkeypatch.setattr(kubernetes, "CONNECT", 0.1)
    server.hangs.set()
    with pytest.raises(ApiError, match=f"GET {PODS}: no answer within 0.2 s") as found:
        cluster.get(PODS)
    assert found.value.status == 0


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.slow
def test_an_answer_that_is_too_large(
    cluster: Cluster, server: web.Server, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(kubernetes, "LARGEST", 2**20)
    server.replies = [(status, json.dumps({"message": "x" * 2**20}))]
    with pytest.raises(ApiError, match="more than 1 MiB"):
        cluster.get(PODS)
    monkeypatch.setattr(kubernetes, "LINE", 2**20)
    server.replies = [(200, "x" * 2**21)]
    with pytest.raises(ApiError, match="a line of more than 1 MiB"):
        list(cluster.watch(PODS, "4"))


@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.slow
def test_a_read_is_repeated_when_the_server_asks_for_it(
    cluster: Cluster, server: web.Server, status: int
) -> None:
    busy = (status, refused("too many requests"), {"Retry-After": "1"})
    server.replies = [busy, (200, '{"items": []}')]
    began = time.monotonic()
    assert cluster.get(PODS) == {"items": []}
    assert time.monotonic() - began >= 1, "not before the time that the server names"
    server.replies = [(status, refused("etcdserver: request timed out"))]
    with pytest.raises(ApiError, match=rf"etcdserver: request timed out \({status}\)"):
        cluster.get(PODS)
    assert len(server.requests) == 2 + 1 + kubernetes.REPEATS


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_change_and_a_watch_are_not_repeated(
    cluster: Cluster, server: web.Server, status: int
) -> None:
    server.replies = [(status, refused("too many requests"))]
    with pytest.raises(ApiError):
        cluster.patch(f"{PODS}/one", {})
    with pytest.raises(ApiError):
        list(cluster.watch(PODS, "4"))
    assert len(server.requests) == 2


def test_a_change_is_not_sent_twice(cluster: Cluster, server: web.Server) -> None:
    server.replies = [None, (200, "{}")]
    with pytest.raises(ApiError):
        cluster.patch(f"{PODS}/one", {})
    assert len(server.requests) == 1


def test_what_is_gone_need_not_be_deleted(cluster: Cluster, server: web.Server) -> None:
    server.replies = [(404, refused("not found"))]
    cluster.delete(f"{PODS}/one")
    server.replies = [(409, refused("conflict"))]
    with pytest.raises(ApiError, match="conflict"):
        cluster.delete(f"{PODS}/one")


def plugin(path: Path, before: str = "") -> object:
    """A user whose tokens are `token-1`, `token-2`, ... of a program, after these lines of it."""
    program = f"""
import json, pathlib, sys, time
count = pathlib.Path({str(path / "count")!r})
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
{before}
kind = "ExecCredential"
status = {{"token": f"token-{{number}}"}}
version = "client.authentication.k8s.io/v1"
print(json.dumps({{"apiVersion": version, "kind": kind, "status": status}}))
"""
    call = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", program],
        "interactiveMode": "Never",
    }
    return {"exec": call}


def test_a_token_that_has_expired_is_asked_for_again_once(
    tmp_path: Path, server: web.Server
) -> None:
    """By the plugin that issues it."""
    cluster = Cluster(kubeconfig(tmp_path, server.url, plugin(tmp_path)))
    server.replies = [(401, refused("Unauthorized")), (200, '{"items": []}')]
    assert cluster.get(PODS) == {"items": []}
    assert [one.headers["authorization"] for one in server.requests] == [
        "Bearer token-1",
        "Bearer token-2",
    ]
    server.replies = [(401, refused("Unauthorized"))]
    with pytest.raises(ApiError, match="Unauthorized") as found:
        cluster.get(PODS)
    assert (found.value.status, len(server.requests)) == (401, 4)


def test_a_plugin_that_fails_in_the_middle_is_asked_again(
    tmp_path: Path, server: web.Server
) -> None:
    user = plugin(tmp_path, "number == 1 or number > 2 or sys.exit('s3cr3t is not known')")
    cluster = Cluster(kubeconfig(tmp_path, server.url, user))
    server.replies = [(401, refused("Unauthorized"))]
    with pytest.raises(ApiError, match="Unauthorized, also after another login") as found:
        cluster.get(PODS)
    assert (found.value.status, "s3cr3t" in str(found.value)) == (401, False)
    server.replies = [(401, refused("Unauthorized")), (200, "{}")]
    cluster.get(PODS)
    assert server.requests[-1].headers["authorization"] == "Bearer token-3"


def test_a_plugin_that_hangs(
    tmp_path: Path, server: web.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "ANSWER", 0.5)
    user = plugin(tmp_path, "time.sleep(5)")
    with pytest.raises(InputError, match=r"logging in takes longer than 0\.5 s"):
        Cluster(kubeconfig(tmp_path, server.url, user))


def test_credentials_that_cannot_be_renewed(cluster: Cluster, server: web.Server) -> None:
    def fails(_configuration: object) -> None:
        raise RuntimeError("the token file is gone")

    cluster._client.configuration.refresh_api_key_hook = fails
    with pytest.raises(ApiError, match=r"no credentials for .*: the token file is gone"):
        cluster.get(PODS)
    assert server.requests == []


@pytest.mark.parametrize("name", ["../kube-system", "Web", "a" * 64, "", "web\n"])
def test_what_is_no_namespace(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="is not the name of a namespace"):
        kubernetes._namespace(name, "rollout_platform.namespace")
    path = kubeconfig(tmp_path, "http://127.0.0.1:1")
    Path(path).write_text(Path(path).read_text().replace("namespace: web", f"namespace: {name!r}"))
    if name.strip():
        with pytest.raises(InputError, match="is not the name of a namespace"):
            Cluster(path)


def test_what_cannot_be_logged_in_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = kubeconfig(tmp_path, "http://127.0.0.1:1")
    for given in ({"kubeconfig": str(tmp_path / "none")}, {"kubeconfig": config, "context": "c"}):
        with pytest.raises(InputError, match=r"^rollout_x: cannot log in with ") as found:
            Cluster(**given, variable="rollout_x")
        assert found.value.id == "PR-241"
    (tmp_path / "config").write_text("{")
    with pytest.raises(InputError, match="cannot log in"):
        Cluster(config)
    monkeypatch.setitem(sys.modules, "kubernetes.config", None)
    with pytest.raises(InputError, match="pip install kubernetes"):
        Cluster(config)


def test_clocks_that_differ(cluster: Cluster, server: web.Server) -> None:
    server.replies = [(200, "{}")]
    cluster.get(PODS)
    assert cluster.skew == 0.0
    server.replies = [(200, "{}", {"Date": "Thu, 01 Jan 2026 00:00:00 GMT"})]
    cluster.get(PODS)
    assert abs(cluster.skew - (time.time() - 1767225600)) < 5


def test_the_version(cluster: Cluster, server: web.Server) -> None:
    server.replies = [(200, '{"major": "1", "minor": "27+"}')]
    assert cluster.version() == (1, 27)


# Watches
# --------------------------------------------------------------------------------------------------


def event(kind: str, name: str, version: int) -> str:
    metadata = {"name": name, "resourceVersion": str(version)}
    return json.dumps({"type": kind, "object": {"metadata": metadata}}) + "\n"


def test_what_a_watch_tells(cluster: Cluster, server: web.Server) -> None:
    server.replies = [(200, event("ADDED", "a", 5) + event("DELETED", "a", 6))]
    seen = [(kind, one["metadata"]["name"]) for kind, one in cluster.watch(PODS, "4")]
    assert seen == [("ADDED", "a"), ("DELETED", "a")]
    assert "watch=1" in server.requests[0].path and "resourceVersion=4" in server.requests[0].path
    gone = {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}
    server.replies = [(200, json.dumps(gone) + "\n")]
    with pytest.raises(Expired, match="too old"):
        list(cluster.watch(PODS, "4"))
    server.replies = [(200, "<html>\n")]
    with pytest.raises(ApiError, match="the watch was broken"):
        list(cluster.watch(PODS, "4"))


Tell = Iterator[tuple[str, Object]]


class Script:
    """A cluster whose lists and watches are as scripted; watches that are not do not end."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.lists = 0
        self.watched: list[str] = []
        self.tells: list[Callable[[], Tell]] = []
        self.ended = threading.Event()

    def get(self, path: str, **query: str) -> Object:
        self.lists += 1
        items = [{"metadata": {"name": name}} for name in self.names]
        return {"metadata": {"resourceVersion": str(100 * self.lists)}, "items": items}

    def watch(self, path: str, version: str, **query: str) -> Tell:
        self.watched.append(version)
        if self.tells:
            yield from self.tells.pop(0)()
        else:
            self.ended.wait()


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    monkeypatch.setattr(kubernetes, "PAUSE", 0.01)
    made = Script()
    yield made
    made.ended.set()


def reflector(script: Script) -> tuple[Reflector, threading.Event]:
    woken = threading.Event()
    return Reflector(t.cast(t.Any, script), PODS, woken.set), woken


def names(reflected: Reflector) -> set[str]:
    return {str(one["metadata"]["name"]) for one in reflected.list()}


def told(*events: tuple[str, str, int]) -> Callable[[], Tell]:
    def tell() -> Tell:
        for kind, name, version in events:
            yield kind, {"metadata": {"name": name, "resourceVersion": str(version)}}

    return tell


def broken(exc: Exception) -> Callable[[], Tell]:
    class Broken:
        def __iter__(self) -> Tell:
            return self

        def __next__(self) -> tuple[str, Object]:
            raise exc

    return Broken


def test_a_list_follows_what_the_watch_tells(script: Script) -> None:
    script.names = ["a", "b"]
    changes = [("ADDED", "c", 101), ("DELETED", "a", 102), ("BOOKMARK", "", 110)]
    script.tells = [told(*changes)]
    reflected, woken = reflector(script)
    reflected.list()
    until(lambda: len(script.watched) == 2)
    assert names(reflected) == {"b", "c"}
    assert (woken.is_set(), script.lists, script.watched) == (True, 1, ["100", "110"])


def test_two_that_ask_first_begin_one_watch(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, get = threading.Barrier(2), script.get

    def meet(path: str, **query: str) -> Object:
        with suppress(threading.BrokenBarrierError):
            together.wait(0.5)
        return get(path, **query)

    monkeypatch.setattr(script, "get", meet)
    reflected, _woken = reflector(script)
    threads = [threading.Thread(target=reflected.list) for _number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert script.lists == 1
    until(lambda: script.watched == ["100"])


@pytest.mark.parametrize(
    "failure",
    [Expired("too old"), ApiError("gone", 410), ApiError("no answer"), KeyError("metadata")],
    ids=repr,
)
def test_whatever_breaks_a_watch_it_begins_again_with_a_list(
    script: Script, failure: Exception
) -> None:
    script.names = ["a"]
    script.tells = [broken(failure)] * 3 + [told(("ADDED", "z", 901))]
    reflected, woken = reflector(script)
    reflected.list()
    script.names = ["b"]
    assert woken.wait(10)
    until(lambda: len(script.watched) == 5)
    assert names(reflected) == {"b", "z"}
    assert script.watched[-1] == "901", "it goes on from there"
    lists = script.lists
    reflected.list()
    assert script.lists == lists, "the watch is enough again"


def test_news_without_a_name_break_a_watch(script: Script) -> None:
    script.names = ["a"]
    script.tells = [lambda: iter([("ADDED", {"metadata": {}})])]
    reflected, woken = reflector(script)
    reflected.list()
    script.names = ["b"]
    assert woken.wait(10)
    assert names(reflected) == {"b"}


def test_while_the_watch_is_broken_each_look_is_a_list_that_undoes_no_news(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.names, script.tells = ["a"], [broken(ApiError("no answer"))]
    monkeypatch.setattr(kubernetes, "PAUSE", 1000)
    reflected, _woken = reflector(script)
    reflected.list()
    until(lambda: not reflected._current)
    for now in ("b", "c"):
        script.names = [now]
        assert names(reflected) == {now}, "as it is now, not as it was"
    assert set(reflected._objects) == {"a"}, "only the watching thread keeps anything"
    reflected.close()


def test_a_watch_that_says_nothing_for_too_long_is_not_trusted(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is between may have forgotten the connection."""
    script.names = ["a"]
    monkeypatch.setattr(kubernetes, "STALE", 0.0)
    reflected, _woken = reflector(script)
    reflected.list()
    script.names = ["b"]
    assert names(reflected) == {"b"}


def versioned(name: str, version: int) -> Object:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


def test_a_change_of_ours_is_seen_before_the_watch_tells_of_it(script: Script) -> None:
    script.names = ["a"]
    tell = threading.Event()

    def late() -> Tell:
        tell.wait()
        for kind, version in (("MODIFIED", 101), ("MODIFIED", 105), ("MODIFIED", 106)):
            yield kind, versioned("a", version)

    script.tells = [late]
    reflected, _woken = reflector(script)
    reflected.list()
    seen: list[str] = []
    took = reflected._take

    def taken(kind: str, one: Object) -> str:
        version = took(kind, one)
        seen.extend(one["metadata"]["resourceVersion"] for one in reflected.list())
        return version

    reflected._take = taken  # type: ignore[method-assign]
    reflected.note(versioned("a", 105))
    assert reflected.list() == [versioned("a", 105)]
    tell.set()
    until(lambda: len(script.watched) == 2)
    assert seen == ["105", "105", "106"], "the number never goes back"
    reflected.note(versioned("a", 105))
    reflected.note(versioned("gone", 104))
    assert reflected.list() == [versioned("a", 106)], "the watch had told of these before"


def test_a_fresh_list_does_not_wait_for_the_watch(script: Script) -> None:
    script.names = ["a"]
    reflected, _woken = reflector(script)
    reflected.list()
    script.names = ["b"]
    assert reflected.list(fresh=True) == [{"metadata": {"name": "b"}}]
    assert names(reflected) == {"a"}


def test_it_ends(script: Script) -> None:
    reflected, _woken = reflector(script)
    reflected.list()
    until(lambda: bool(script.watched))
    reflected.close()
    script.ended.set()
    thread = t.cast(threading.Thread, reflected._thread)
    thread.join(10)
    assert not thread.is_alive()
