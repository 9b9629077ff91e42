# SPDX-License-Identifier: GPL-3.0-or-later
"""ConfigMaps and Secrets that pods read: a part of what a revision runs with."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.action import (
    begin,
    finish,
    plan,
    promote,
    rollback,
)
from ansible_collections.progressive.rollout.plugins.action import replace as replaces
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Capabilities,
    PlatformDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import _references
from ansible_collections.progressive.rollout.tests.support import kubernetes as api
from ansible_collections.progressive.rollout.tests.unit.test_kubernetes import Shop, cluster

CONFIG, SECRET = f"{api.CORE}/configmaps/shop", f"{api.CORE}/secrets/login"


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the journal keeps settings, as it does for the drivers that playbooks name."""
    monkeypatch.setattr(PlatformDriver, "capabilities", Capabilities(host_options=()))


def server_with_references() -> api.Server:
    server = cluster()
    for path, name in ((CONFIG, "shop"), (SECRET, "login")):
        server.create(
            path.rpartition("/")[0], {"metadata": {"name": name}, "data": {"a": "s3cr3t"}}
        )
    source = [{"configMapRef": {"name": "shop"}}, {"secretRef": {"name": "login"}}]
    path = "/spec/template/spec/containers/0/envFrom"
    server.patch(api.SHOP, [{"op": "add", "path": path, "value": source}])
    return server


def write(server: api.Server, path: str, value: str) -> None:
    server._put(path, {**server.objects[path], "data": {"a": value}})


def lines(shop: Shop, said: str) -> list[str]:
    return [line for line in shop.said if said in line]


@pytest.mark.parametrize(("path", "name"), [(CONFIG, "ConfigMap shop"), (SECRET, "Secret login")])
def test_what_pods_read_and_was_changed_is_said_until_a_restart(path: str, name: str) -> None:
    server = server_with_references()
    shop, changed = Shop(server), f"{name} has changed since 2 was rolled out"
    shop.play(revision="2")
    assert not shop.play(revision="2")["changed"]
    assert not lines(shop, "has changed")
    write(server, path, "other")
    assert not shop.play(revision="2")["changed"]
    (line,) = lines(shop, changed)
    assert "restart.yml" in line
    assert changed in shop.step(plan, revision="2")["settings"]
    shop.said.clear()
    shop.play(revision="3")
    (line,) = lines(shop, changed)
    assert "[PR-265]" in line, "a rollback would not bring it back"
    shop.said.clear()
    assert not shop.play(revision="3")["changed"]
    assert not lines(shop, "has changed"), "3 has read what is there now"
    shop.step(rollback)
    assert lines(shop, f"{changed}: instances of it"), "2 runs with another one than it had"


def test_a_restart_reads_what_is_there_now() -> None:
    server = server_with_references()
    shop = Shop(server)
    shop.play(revision="2")
    before = {pod["metadata"]["uid"] for pod in server.living()}
    write(server, CONFIG, "other")
    shop.step(begin, {"restart": True}, revision="2")
    for step in (replaces, promote, finish):
        shop.step(step, revision="2")
    assert not before & {pod["metadata"]["uid"] for pod in server.living()}
    shop.said.clear()
    assert not shop.play(revision="2")["changed"]
    assert not lines(shop, "has changed")


def test_the_journal_has_digests_and_never_what_is_in_them(tmp_path: Path) -> None:
    shop = Shop(server_with_references())
    shop.play(revision="2")
    (found,) = [one.references for one in shop.journal.settings.values()]
    assert set(found) == {"ConfigMap shop", "Secret login"}
    assert not [
        path for path in tmp_path.rglob("*") if path.is_file() and b"s3cr3t" in path.read_bytes()
    ]


def test_objects_that_may_not_be_read_are_not_known() -> None:
    server = server_with_references()
    server.refuses = lambda path: "/secrets/" in path
    shop = Shop(server)
    shop.play(revision="2")
    assert lines(shop, "not known: whether configmaps and secrets that the pods of"), shop.said
    write(server, CONFIG, "other")
    assert not shop.play(revision="2")["changed"]
    assert not lines(shop, "has changed")


def test_an_object_that_is_not_there_is_one_that_may_come() -> None:
    server = server_with_references()
    gone = server.objects.pop(CONFIG)
    shop = Shop(server)
    shop.play(revision="2")
    server.objects[CONFIG] = gone
    shop.play(revision="2")
    assert lines(shop, "ConfigMap shop has changed since 2 was rolled out")


def test_where_a_pod_template_names_objects() -> None:
    projected = {"sources": [{"configMap": {"name": "d"}}, {"secret": {"name": "e"}}]}
    container = {
        "env": [
            {"name": "A", "value": "1"},
            {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "k"}}},
            {"name": "C", "valueFrom": {"secretKeyRef": {"name": "b", "key": "k"}}},
        ]
    }
    first = {"envFrom": [{"secretRef": {"name": "c"}}]}
    volumes = [
        {"projected": projected},
        {"secret": {"secretName": "f"}},
        {"configMap": {"name": "a"}},
        {"emptyDir": {}},
    ]
    spec = {"containers": [container], "initContainers": [first], "volumes": volumes}
    kinds = {"a": "ConfigMap", "b": "Secret", "c": "Secret"}
    kinds |= {"d": "ConfigMap", "e": "Secret", "f": "Secret"}
    found = _references.of_template({"spec": spec})
    assert sorted((name, kind) for kind, name in found) == sorted(kinds.items())
