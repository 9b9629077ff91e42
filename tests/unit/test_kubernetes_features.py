# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts on servers of today, as far as they differ from the one of `tests/engines`."""

from __future__ import annotations

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutFailed
from ansible_collections.progressive.rollout.tests.support import kubernetes as api
from ansible_collections.progressive.rollout.tests.support import kubernetes_features
from ansible_collections.progressive.rollout.tests.support.kubernetes_features import FEATURES
from ansible_collections.progressive.rollout.tests.support.playbook import ROOT
from ansible_collections.progressive.rollout.tests.support.waiting import until
from ansible_collections.progressive.rollout.tests.unit.test_kubernetes import Shop, is_ordinary

CHOICES = [(), *((name,) for name in FEATURES), tuple(FEATURES)]
NAMES = ["none", *(name.replace(" ", "-") for name in FEATURES), "all"]


def server_with(*features: str) -> kubernetes_features.Server:
    server = kubernetes_features.Server(*features)
    server.create(f"{api.APPS}/deployments", api.deployment("1", 4))
    return server


def is_over(server: kubernetes_features.Server, revision: str) -> None:
    """The Deployment is ordinary once what is ending has ended."""
    until(lambda: not server._ends, "all pods have ended")
    if "in-place resize" in server.features or "sidecar containers" in server.features:
        assert server.counts() == {revision: 4}, "pods are other than their template by now"
    is_ordinary(server, revision, 4)


@pytest.mark.slow
@pytest.mark.parametrize("features", CHOICES, ids=NAMES)
def test_a_rollout_on_a_server_with_this(features: tuple[str, ...]) -> None:
    server = server_with(*features)
    shop = Shop(server)
    shop.play(revision="2")
    is_over(server, "2")
    assert shop.least == 4
    assert server.most == 5, "with the pods that are ending"


@pytest.mark.slow
@pytest.mark.parametrize("features", CHOICES, ids=NAMES)
def test_a_rollback_on_a_server_with_this(features: tuple[str, ...]) -> None:
    server = server_with(*features)
    server.starts = lambda pod: not pod["spec"]["containers"][0]["image"].endswith("broken")
    shop = Shop(server, progress_deadline="1s")
    with pytest.raises(RolloutFailed):
        shop.play(revision="broken")
    is_over(server, "1")
    assert (shop.least, server.most) == (4, 5)


def test_the_page_says_how_each_was_tried() -> None:
    page = (ROOT / "docs/how-to/kubernetes.md").read_text()
    table = page.partition("## Tested versions")[2]
    for name, feature in FEATURES.items():
        (row,) = [line for line in table.splitlines() if f"[{name}]" in line]
        assert feature.document in row and f"| {feature.since} |" in row
        assert "on the model" in row
