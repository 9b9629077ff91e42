# SPDX-License-Identifier: GPL-3.0-or-later
"""A release of an API on a real Kubernetes and a front end on hosts, under load: promoted in order,
or taken back together.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.progressive.rollout.tests.support.namespaces import (
    IMAGE,
    KUBECONFIG,
    Client,
    Namespace,
)
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindHAProxy,
    Load,
    Shop,
    failures,
)

MEMBERS: dict[str, t.Any] = {"api": {}, "web": {"after": ["api"], "soak": "1s"}}
KINDS = [("GET", True), ("POST", False)]


class Site(Shop):
    """The front end of the release behind HAProxy; its API is the namespace's Deployment."""

    def __init__(self, front: BehindHAProxy, namespace: Namespace) -> None:
        super().__init__(front, rollout_service=None, rollout_revision=None)
        self.namespace = namespace
        own = {"platform", "traffic", "health", "replicas"}
        web = {f"rollout_{name}": self.variables.pop(f"rollout_{name}") for name in own}
        deployment = {
            "driver": "kubernetes",
            "kubeconfig": str(KUBECONFIG),
            "namespace": namespace.name,
            "workload": "deployment/shop",
            "image": IMAGE,
        }
        self.members = {"api": {"rollout_platform": deployment}, "web": web}

    def release(self, revision: str) -> tuple[int, dict[str, t.Any], str]:
        """Release a revision of all members (`web`: of the front end); return how it ended."""
        members = {name: dict(given) for name, given in self.members.items()}
        members["api"]["rollout_revision"] = revision
        members["web"]["rollout_revision"] = revision
        given = {
            "rollout_release": {"name": revision, "members": MEMBERS},
            "rollout_members": members,
            "rollout_failure_limit": 1,
        }
        outcome = self.run("progressive.rollout.release", given)
        known = self.journal("all.releases")["releases"][revision]
        return outcome.rc, known, outcome.output

    def runs(self, revision: str) -> None:
        """All members run the revision, and nothing else."""
        assert set(self.revisions()) == {revision}
        self.namespace.is_ordinary(revision, 3)


@pytest.fixture
def site(namespace: Namespace) -> Iterator[Site]:
    namespace.deploy(3, start=0)
    front = BehindHAProxy()
    with Site(front, namespace) as made:
        yield made
    front.close()


def test_members_on_kubernetes_and_on_hosts_are_promoted_in_order_or_taken_back(
    site: Site,
) -> None:
    front = t.cast(BehindHAProxy, site.fronts[0])
    assert site.release("1")[0] == 0, "the Deployment runs it already"
    site.runs("1")
    with Client(site.namespace) as client, Load(front.url, KINDS, rate=50) as load:
        rc, known, output = site.release("2")
        assert (rc, known["phase"]) == (0, "promoted"), output
        site.runs("2")
        log = [note["text"] for note in known["log"]]
        assert log.index("api: promoted") < log.index("web: moving"), log

        site.members["web"]["rollout_platform"] |= {"command": ["false"]}
        rc, known, output = site.release("3")
        assert rc != 0 and known["phase"] == "back", output
        assert {member["place"] for member in known["members"].values()} == {"back"}
        site.runs("2")
        log = [note["text"] for note in known["log"]]
        places = [text.split(":")[:2] for text in log]
        assert places.index(["web", " back"]) < places.index(["api", " going back"]), log
        assert "3" in client.answers, "the API served the revision that was taken back"
        reports = load.stop()
    assert failures(reports) == [] and client.failed == []
