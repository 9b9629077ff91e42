# SPDX-License-Identifier: GPL-3.0-or-later
"""How rollouts log in to a real Kubernetes: a token that is taken back in the middle of one."""

from __future__ import annotations

import json
import sys
import typing as t
from pathlib import Path

import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import _rights
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import (
    ApiError,
    Cluster,
)
from ansible_collections.progressive.rollout.tests.support.namespaces import (
    KUBECONFIG,
    Namespace,
)
from ansible_collections.progressive.rollout.tests.support.playbook import Playground
from ansible_collections.progressive.rollout.tests.support.waiting import until

PLUGIN = """
import json, pathlib
home = pathlib.Path({home!r})
with (home / "asked").open("a") as asked:
    asked.write("x")
status = {{"token": (home / "token").read_text()}}
version = "client.authentication.k8s.io/v1beta1"
print(json.dumps({{"apiVersion": version, "kind": "ExecCredential", "status": status}}))
"""


class Account:
    """A service account with the rights of a rollout, and a kubeconfig whose plugin logs it in."""

    def __init__(self, namespace: Namespace, home: Path) -> None:
        self.namespace, self.home = namespace, home
        self._create("v1", "ServiceAccount", "rollout", "serviceaccounts")
        role = _rights.role(namespace.name, [*_rights.NEEDED, *_rights.NO_COSTS])
        namespace.kubectl("apply", "-f", "-", given=role)
        bound = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "rollout"},
            "roleRef": {"kind": "Role", "name": role["metadata"]["name"], "apiGroup": ""},
            "subjects": [{"kind": "ServiceAccount", "name": "rollout"}],
        }
        namespace.kubectl("apply", "-f", "-", given=bound)
        program = home / "plugin.py"
        program.write_text(PLUGIN.format(home=str(home)))
        plugin = {
            "apiVersion": "client.authentication.k8s.io/v1beta1",
            "command": sys.executable,
            "args": [str(program)],
        }
        self.kubeconfig = self._written("plugin", {"exec": plugin})

    def issue(self, name: str) -> str:
        """A token that is good as long as the secret of this name is there."""
        secret = self._create("v1", "Secret", name, "secrets")
        bound = {"apiVersion": "v1", "kind": "Secret", "name": name}
        bound["uid"] = secret["metadata"]["uid"]
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        spec = {"audiences": ["https://kubernetes.default.svc"], "boundObjectRef": bound}
        path = f"{self.namespace.core}/serviceaccounts/rollout/token"
        token = str(self.namespace.cluster.post(path, {**asked, "spec": spec})["status"]["token"])
        (self.home / "token").write_text(token)
        return token

    def take_back(self, name: str, token: str) -> None:
        self.namespace.cluster.delete(f"{self.namespace.core}/secrets/{name}")
        until(lambda: self.refuses(token), "the token is refused")

    def refuses(self, token: str) -> bool:
        try:
            Cluster(self._written("token", {"token": token})).get(f"{self.namespace.core}/pods")
        except ApiError as exc:
            assert exc.status == 401
            return True
        return False

    def _written(self, name: str, user: t.Any) -> str:
        config = yaml.safe_load(KUBECONFIG.read_text())
        config["users"][0]["user"] = user
        path = self.home / f"{name}.kubeconfig"
        path.write_text(json.dumps(config))
        return str(path)

    def _create(self, version: str, kind: str, name: str, plural: str) -> t.Any:
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}}
        return self.namespace.cluster.post(f"{self.namespace.core}/{plural}", body)


def test_a_token_that_is_taken_back_in_the_middle(
    playground: Playground, namespace: Namespace, tmp_path: Path
) -> None:
    namespace.deploy(4, start=0)
    account = Account(namespace, tmp_path)
    first = account.issue("first")
    mine = {**playground.variables["rollout_platform"], "kubeconfig": account.kubeconfig}
    run = playground.start(variables={"rollout_revision": "2", "rollout_platform": mine})
    until(lambda: namespace.ready().get("2", 0) >= 1, "the first new pod")
    before = len((tmp_path / "asked").read_text())
    account.issue("second")
    account.take_back("first", first)
    assert run.process.poll() is None, "it was in progress"
    outcome = run.wait()
    assert outcome.rc == 0, outcome.output
    assert len((tmp_path / "asked").read_text()) > before
    namespace.is_ordinary("2", 4)
