# SPDX-License-Identifier: GPL-3.0-or-later
"""Admission webhooks that refuse what a rollout makes, on a real Kubernetes."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import Cluster
from ansible_collections.progressive.rollout.tests.support.namespaces import Namespace
from ansible_collections.progressive.rollout.tests.support.playbook import Playground

HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


class Handler(BaseHTTPRequestHandler):
    """Refuses what has an image of revision 2."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        refused = "docker.io/local/shop:2" in json.dumps(asked["request"]["object"])
        answer = {"uid": asked["request"]["uid"], "allowed": not refused}
        if refused:
            answer["status"] = {"message": "shop:2 is not signed"}
        body = json.dumps({**asked, "response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def refuse(
    own: None, cluster: Cluster, namespace: Namespace, tmp_path: Path
) -> Iterator[Callable[[str, str], None]]:
    """Have a webhook asked about these objects of the namespace; the API server is on this
    machine.
    """
    words = ["-subj", "/CN=webhook", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1"]
    files = ["-keyout", f"{tmp_path}/key", "-out", f"{tmp_path}/cert"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *words, *files]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def asked(group: str, resource: str) -> None:
        rule = {
            "apiGroups": [group],
            "apiVersions": ["v1"],
            "resources": [resource],
            "operations": ["CREATE"],
        }
        certificate = base64.b64encode((tmp_path / "cert").read_bytes()).decode()
        url = f"https://127.0.0.1:{server.server_address[1]}/"
        hook = {
            "name": "signed.example.com",
            "rules": [rule],
            "clientConfig": {"url": url, "caBundle": certificate},
            "namespaceSelector": {"matchLabels": {"tests": namespace.name}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        labels = {"metadata": {"labels": {"tests": namespace.name}}}
        cluster.patch(f"/api/v1/namespaces/{namespace.name}", labels)
        cluster.post(HOOKS, {"metadata": {"name": namespace.name}, "webhooks": [hook]})

    yield asked
    cluster.delete(f"{HOOKS}/{namespace.name}")
    server.shutdown()
    server.server_close()


def test_one_that_refuses_the_set_is_told_before_anything_is_touched(
    playground: Playground, namespace: Namespace, refuse: Callable[[str, str], None]
) -> None:
    namespace.deploy(2, start=0)
    refuse("apps", "replicasets")
    before, uids = namespace.deployment["spec"], namespace.uids()
    outcome = playground.run(variables={"rollout_revision": "2"})
    assert outcome.rc != 0
    wanted = 'admission webhook "signed.example.com" denied the request: shop:2 is not signed'
    assert wanted in outcome.failed.msg, outcome.output
    assert namespace.deployment["spec"] == before
    assert (len(namespace.sets()), namespace.uids()) == (1, uids)


def test_one_that_refuses_pods_is_told_at_once_and_rolled_back(
    playground: Playground, namespace: Namespace, refuse: Callable[[str, str], None]
) -> None:
    namespace.deploy(2, start=0)
    refuse("", "pods")
    given = {"rollout_revision": "2", "rollout_progress_deadline": "8s"}
    outcome = playground.run(variables=given)
    assert outcome.rc != 0
    assert "no more pods of shop-g2: " in outcome.output, outcome.output
    wanted = 'admission webhook "signed.example.com" denied the request: shop:2 is not signed'
    assert wanted in outcome.output
    assert outcome.rollout["outcome"] == "rolled_back"
    namespace.is_ordinary("1", 2)
