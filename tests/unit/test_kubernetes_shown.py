# SPDX-License-Identifier: GPL-3.0-or-later
"""What people see of a rollout in the cluster: Events, labels of pods, the cause of a change."""

from __future__ import annotations

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import _pod, _pods
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms._hand_back import CAUSE
from ansible_collections.progressive.rollout.tests.support import kubernetes as api
from ansible_collections.progressive.rollout.tests.support.statefulsets import Server
from ansible_collections.progressive.rollout.tests.unit.test_kubernetes import (
    Shop,
    cluster,
    pause,
)
from ansible_collections.progressive.rollout.tests.unit.test_kubernetes_in_place import (
    Shop as InPlace,
)


def roles(server: api.Server) -> dict[tuple[str, str], int]:
    """How many pods there are, by image tag and role."""
    found: dict[tuple[str, str], int] = {}
    for pod in server.living():
        tag = pod["spec"]["containers"][0]["image"].rpartition(":")[2]
        key = (tag, _pod.labels_of(pod).get(_pods.ROLE, ""))
        found[key] = found.get(key, 0) + 1
    return found


def test_a_rollout_is_shown_by_events_on_the_deployment() -> None:
    server = cluster()
    Shop(server).play(revision="2")
    told = [(one["reason"], one["type"]) for one in server.told]
    assert (told[0], told[-1]) == (("RolloutBegun", "Normal"), ("RolloutPromoted", "Normal"))
    assert {one["message"].partition(":")[0] for one in server.told} == {"shop 2"}
    uid = server.objects[api.SHOP]["metadata"]["uid"]
    (involved,) = {one["involvedObject"]["uid"] for one in server.told}
    assert involved == uid
    assert len({one["metadata"]["name"] for one in server.told}) == len(server.told)


@pytest.mark.slow
def test_a_rollout_that_fails_is_shown_as_a_warning() -> None:
    server = cluster()
    server.starts = lambda pod: not pod["spec"]["containers"][0]["image"].endswith("broken")
    with pytest.raises(RolloutFailed):
        Shop(server, progress_deadline="1s").play(revision="broken")
    last = server.told[-1]
    assert (last["type"], last["reason"]) == ("Warning", "RolloutEnded")
    assert "rolled back" in last["message"]


def test_without_the_right_to_make_events_the_rollout_goes_on() -> None:
    server = cluster()
    server.refuses = lambda path: path.endswith("/events")
    Shop(server).play(revision="2")
    assert server.counts() == {"2": 4}
    assert server.requests.count(f"POST {api.CORE}/events") < 6, "a step asks once"


def test_pods_have_their_role_as_a_label_which_no_template_has() -> None:
    server = cluster(8)
    shop = Shop(server, strategy="canary", steps=[{"set_replicas": 2}, {"pause": {}}])
    shop.play(revision="2")
    assert roles(server) == {("1", "stable"): 6, ("2", "canary"): 2}
    shop.say("promote")
    shop.play(revision="2")
    assert roles(server) == {("2", "stable"): 8}
    sets = [one for path, one in server.objects.items() if path.startswith(api.SETS)]
    for one in [server.objects[api.SHOP], *sets]:
        assert _pods.ROLE not in one["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize("given", [{"number": 8}, {"nodes": 8}], ids=["statefulset", "daemonset"])
def test_pods_that_are_replaced_at_their_places_have_their_role(given: dict[str, int]) -> None:
    server = Server(**given)
    steps = [{"set_replicas": 2}, {"pause": {}}]
    shop = InPlace(server, strategy="canary", steps=steps)
    shop.play(revision="2")
    assert roles(server) == {("1", "stable"): 6, ("2", "canary"): 2}
    shop.say("abort")
    with pytest.raises(RolloutFailed):
        shop.play(revision="2")
    assert roles(server) == {("1", "stable"): 8}
    shop.play(revision="3")
    assert roles(server) == {("1", "stable"): 6, ("3", "canary"): 2}
    shop.say("promote")
    shop.play(revision="3")
    assert roles(server) == {("3", "stable"): 8}
    assert _pods.ROLE not in server.objects[server.path]["spec"]["template"]["metadata"]["labels"]


def test_why_the_template_has_changed_stands_in_the_history() -> None:
    server = cluster()
    shop = Shop(server)
    shop.play(revision="2")
    assert _pod.notes_of(server.objects[api.SHOP])[CAUSE] == "progressive.rollout: shop 2"


def test_the_cause_of_a_template_that_the_owner_wrote_is_left_to_the_owner() -> None:
    server = cluster()
    pause(server, "2")
    server.patch(api.SHOP, {"metadata": {"annotations": {CAUSE: "mine"}}})
    Shop(server).play(revision="2")
    assert _pod.notes_of(server.objects[api.SHOP])[CAUSE] == "mine"
