# SPDX-License-Identifier: GPL-3.0-or-later
"""The Kubernetes store against a real API server: the contract, rights, and bad days."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import typing as t
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    StoreAway,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote import kubernetes_rights
from ansible_collections.progressive.rollout.plugins.plugin_utils.stores.kubernetes import (
    NEEDED,
    ROLE,
    SERVICE,
)
from ansible_collections.progressive.rollout.tests.drivers.kubernetes_store_contract import (
    KubernetesStoreContract,
    Site,
)
from ansible_collections.progressive.rollout.tests.support.namespaces import (
    KUBECONFIG,
    ROOT,
    Client,
    Namespace,
)
from ansible_collections.progressive.rollout.tests.support.playbook import Playground, Run, suspend
from ansible_collections.progressive.rollout.tests.support.processes import stopped
from ansible_collections.progressive.rollout.tests.support.waiting import until

WITHOUT_RIGHTS = KUBECONFIG.with_name("rollout.kubeconfig")


class TestContract(KubernetesStoreContract):
    @pytest.fixture
    def site(self, namespace: Namespace) -> Site:
        return Site(str(KUBECONFIG), namespace.name)


@pytest.mark.usefixtures("own")
def test_the_role_of_the_message_is_enough(namespace: Namespace) -> None:
    store = Site(str(WITHOUT_RIGHTS), namespace.name).driver()
    with pytest.raises(InputError, match=r"may not get leases, create leases.*this Role") as told:
        store.check()
    assert told.value.id == "PR-244"
    role = kubernetes_rights.role(ROLE, namespace.name, NEEDED)
    namespace.kubectl("apply", "-f", "-", given=role)
    namespace.kubectl("create", "rolebinding", "store", f"--role={ROLE}", "--user=rollout")
    until(lambda: _granted(store.check), "the rights are there", 20)
    store.acquire("a", "ann", 60, {})
    for number in range(3):
        store.commit("a", 60, {"id": f"r{number}"}, [{"n": number}])
    store.post({"word": "pause"})
    store.post({"word": "resume"})
    assert [one["word"] for one in store.commands(0)] == ["pause", "resume"]
    assert list(store.timeline("r0")) == [{"n": 0}]
    store.release("a")


def _granted(check: Callable[[], None]) -> bool:
    try:
        check()
    except InputError:
        return False
    return True


def test_a_quota_that_is_used_up_is_waited_for(namespace: Namespace) -> None:
    store = Site(str(KUBECONFIG), namespace.name).driver()
    store.acquire("a", "ann", 60, {})
    store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
    _fill(namespace)
    until(partial(_refused, store), "the quota is enforced", 20)
    _free(namespace)
    until(lambda: not _refused(store), "the quota is gone", 20)


def _refused(store: t.Any) -> bool:
    try:
        store.commit("a", 60, {"id": "r1"})
    except StoreAway as exc:
        assert "exceeded quota" in str(exc), exc
        return True
    return False


def _fill(namespace: Namespace) -> None:
    namespace.kubectl("create", "quota", "none", "--hard=count/configmaps=0")


def _free(namespace: Namespace) -> None:
    namespace.kubectl("delete", "quota", "none")


def _api_server() -> int:
    return int(KUBECONFIG.with_name("apiserver.pid").read_text())


@contextmanager
def _killed(namespace: Namespace) -> Iterator[None]:
    os.kill(_api_server(), signal.SIGKILL)
    yield
    subprocess.run([str(ROOT / "scripts/kubernetes"), "restart"], check=True, timeout=120)


@contextmanager
def _hung(namespace: Namespace) -> Iterator[None]:
    with stopped(_api_server()):
        yield


@contextmanager
def _full(namespace: Namespace) -> Iterator[None]:
    _fill(namespace)
    yield
    _free(namespace)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("trouble", [_killed, _hung, _full])
def test_a_rollout_whose_journal_is_away_waits_and_goes_on(
    playground: Playground, namespace: Namespace, trouble: t.Any
) -> None:
    """The pods stay as they are, and no request is lost."""
    namespace.deploy(4, start=0)
    store = {"driver": "kubernetes", "kubeconfig": str(KUBECONFIG), "namespace": namespace.name}
    variables = {"rollout_revision": "2", "rollout_store": store}
    with Client(namespace) as client:
        run = playground.start(variables=variables)
        until(lambda: namespace.ready().get("2", 0) >= 1, "the first new pod")
        with trouble(namespace):
            _says(run, "waiting for the journal, up to")
            if trouble is _full:
                pods = namespace.uids()
                time.sleep(3)
                assert namespace.uids() == pods
        outcome = run.wait()
        assert outcome.rc == 0 and outcome.rollout["outcome"] == "promoted", outcome.output
        assert "the journal is back after" in outcome.output
    # A node that is not heard of for 20 s, as while the API server is away, is given up by
    # Kubernetes itself: the Service has no endpoints then.
    assert [one for one in client.failed if trouble is _full or "empty" not in one] == []
    namespace.is_ordinary("2", 4)
    found = namespace.kubectl("get", "configmap", "-l", f"{SERVICE}=shop", "-o", "name")
    assert len(found.splitlines()) == 1, "what was made in vain is gone"


def _says(run: Run, commands: str) -> None:
    until(lambda: commands in run.output or run.process.poll() is not None, commands)
    assert run.process.poll() is None, run.output


def test_another_controller_goes_on_where_the_first_was_killed(
    playground: Playground, namespace: Namespace, tmp_path: Path
) -> None:
    namespace.deploy(4, start=0)
    store = {"driver": "kubernetes", "kubeconfig": str(KUBECONFIG), "namespace": namespace.name}
    variables = {"rollout_revision": "2", "rollout_store": store, "rollout_lease": "5s"}
    site = Site(str(KUBECONFIG), namespace.name)
    with Client(namespace) as client:
        run = playground.start(variables=variables, machine="awx-1")
        until(lambda: namespace.ready().get("2", 0) >= 1, "the first new pod")
        held = site.driver().lease()
        assert held is not None
        worker = int(held.details["worker_pid"])
        suspend(worker)
        try:
            run.process.kill()
            run.process.wait()
            killed = site.driver().load()["rollout"]["id"]
            until(lambda: site.driver().lease() is None, "the lease ends", 30)
            env = {"HOME": str(tmp_path), "ANSIBLE_HOME": str(tmp_path / "ansible")}
            second = playground.start(variables=variables, machine="awx-2", env=env).wait()
            assert second.rc == 0 and second.rollout["id"] == killed, second.output
            before = site.driver().load(), list(site.driver().timeline(killed)), namespace.uids()
        finally:
            os.kill(worker, signal.SIGCONT)
        until(lambda: not run.left(), "the worker has ended", 30)
        after = site.driver().load(), list(site.driver().timeline(killed)), namespace.uids()
        assert after == before
    assert client.failed == []
    namespace.is_ordinary("2", 4)
