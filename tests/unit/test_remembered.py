# SPDX-License-Identifier: GPL-3.0-or-later
"""What the journal keeps of what a rollout was given: all that it goes on with, and nothing
secret.
"""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import remembered, settings

WHERE = {"service": "shop", "store": {"driver": "file", "path": "/j"}}
HOOK = {
    "driver": "web",
    "url": "https://hooks.example/a",
    "headers": {"Authorization": "swordfish"},
    "secret": "swordfish",
}
METRIC = {
    "name": "p99",
    "driver": "prometheus",
    "address": "https://prometheus.example",
    "query": "x",
    "password": "swordfish",
    "username": "me",
}
GIVEN: dict[str, t.Any] = {
    **WHERE,
    "revision": "2",
    "replicas": 6,
    "strategy": "canary",
    "steps": [
        {"set_weight": 10},
        {"gate": HOOK, "name": "hook"},
        {"pause": {}},
        {
            "analysis": {
                "metrics": [{**METRIC, "success_condition": "result < 1"}],
                "probe": {"headers": {"Cookie": "swordfish"}},
            }
        },
    ],
    "gates": {
        "rollback": [
            {"driver": "web", "url": "https://alerts.example/a?key=swordfish", "method": "GET"}
        ]
    },
    "analysis": {
        "metrics": [
            {
                "name": "e",
                "driver": "web",
                "url": "https://m.example/?token=swordfish",
                "success_condition": "result < 1",
            }
        ]
    },
    "approval": {"url": "https://a.example/?token=swordfish", "timeout": "4h"},
    "platform": {
        "driver": "process",
        "hosts": "web",
        "ports": "8100-8199",
        "command": ["/bin/shop"],
        "env": {"TOKEN": "swordfish", "LOG_LEVEL": "info"},
    },
    "traffic": {
        "driver": "haproxy",
        "hosts": "lb",
        "socket": "/run/haproxy.sock",
        "backend": "shop",
    },
    "health": {"http": "/healthz", "headers": {"Authorization": "swordfish"}},
    "budget": {"max_surge": 2},
    "min_ready": "2s",
    "supersede": True,
    "freeze": [],
}


def test_nothing_secret_is_kept_and_all_else_is() -> None:
    settings.parse(GIVEN)  # it is what users may write
    found = remembered.of(GIVEN)
    assert "swordfish" not in json.dumps(found)
    assert found["platform"] == {**GIVEN["platform"], "env": remembered.SECRET}
    assert found["steps"][1] == {
        "gate": {**HOOK, "headers": remembered.SECRET, "secret": remembered.SECRET},
        "name": "hook",
    }
    same = ("strategy", "traffic", "budget", "min_ready")
    assert {name: found[name] for name in same} == {name: GIVEN[name] for name in same}
    assert not found.keys() & {"service", "store", "revision", "replicas", "supersede", "freeze"}


def test_no_analysis_is_kept_and_differs_from_none_given() -> None:
    none = {"service": "shop", "traffic": GIVEN["traffic"], "platform": GIVEN["platform"]}
    none |= {"analysis": {}, "health": GIVEN["health"]}
    assert remembered.restored(remembered.of(none), none)["analysis"] == {}
    assert not settings.parse(none).plan.background
    assert settings.parse({**none, "analysis": ""}).plan.background


def test_it_goes_on_with_what_was_kept_and_with_secrets_as_they_are_given() -> None:
    found = remembered.restored(
        json.loads(json.dumps(remembered.of(GIVEN))),
        {**GIVEN, "budget": {"max_surge": 5}, "strategy": "rolling"},
    )
    assert found == {
        name: value
        for name, value in GIVEN.items()
        if name not in ("revision", "replicas", "supersede", "freeze")
    }
    assert settings.parse(found).plan == settings.parse(GIVEN).plan


def test_without_the_secrets_it_says_which_variables_to_give() -> None:
    with pytest.raises(InputError) as caught:
        remembered.restored(remembered.of(GIVEN), WHERE)
    said = str(caught.value)
    for path in (
        "rollout_steps[1].gate.headers",
        "rollout_platform.env",
        "rollout_health.headers",
        "rollout_gates.rollback[0].url",
    ):
        assert path in said
    variables = ("steps", "gates", "analysis", "approval", "platform", "health")
    assert (
        caught.value.id == "PR-116"
        and " and ".join(f"rollout_{name}" for name in variables) in said
    )


def test_where_nothing_is_secret_the_service_and_the_journal_are_enough() -> None:
    plain = {
        name: value
        for name, value in GIVEN.items()
        if name in (*WHERE, "strategy", "traffic", "budget")
    }
    assert remembered.restored(remembered.of(plain), WHERE) == plain
    groups = {
        "group_size": 2,
        "acceptance": "checks",
        "gates": [{"driver": "command", "command": ["/bin/true"]}],
    }
    assert remembered.of({"steps": groups}) == {"steps": groups}


def test_how_long_a_run_waits_and_when_it_must_not_move_is_said_by_the_run_that_says_it() -> None:
    kept = remembered.of(
        {**WHERE, "wait": 0, "freeze": [{"from": "2020-01-01", "to": "2020-01-02"}]}
    )
    by_default = {**WHERE, "wait": "1h", "freeze": []}
    assert remembered.restored(kept, by_default) == {**WHERE, **kept}
    own = {"wait": "2m", "freeze": [{"from": "2021-01-01", "to": "2021-01-02"}]}
    assert remembered.restored(kept, {**WHERE, **own}) == {**WHERE, **own}
    assert remembered.restored({"wait": "2m"}, {**WHERE, "wait": 0})["wait"] == 0
