# SPDX-License-Identifier: GPL-3.0-or-later
"""The arguments of steps for a member of a release: templates get the member's variables."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.progressive.rollout.plugins.lookup.member import LookupModule

SHARED = {
    "rollout_service": "api",
    "rollout_revision": "7",
    "rollout_replicas": 2,
    "rollout_budget": {"max_surge": "{{ rollout_replicas }}"},
    "rollout_platform": {"command": ["/srv/{{ rollout_service }}/{{ version }}", "{{ port }}"]},
    "version": "{{ rollout_revision }}",
    "port": 80,
    "arguments": {
        "service": "{{ rollout_service }}",
        "revision": "{{ rollout_revision }}",
        "replicas": "{{ rollout_replicas }}",
        "budget": "{{ rollout_budget }}",
        "platform": "{{ rollout_platform }}",
    },
}


def arguments(own: Mapping[str, t.Any]) -> dict[str, t.Any]:
    variables = trusted({**SHARED, "own": own})
    lookup = LookupModule(loader=DataLoader(), templar=Templar(DataLoader(), variables))
    return lookup.run(["arguments"], variables, own="own")[0]


def trusted(value: t.Any) -> t.Any:
    """The value as Ansible reads it from a file."""
    if isinstance(value, dict):
        return {key: trusted(part) for key, part in value.items()}
    if isinstance(value, list):
        return [trusted(part) for part in value]
    return trust_as_template(value) if isinstance(value, str) else value


def test_a_member_without_variables_gets_the_shared_ones() -> None:
    assert arguments({}) == {
        "service": "api",
        "revision": "7",
        "replicas": 2,
        "budget": {"max_surge": 2},
        "platform": {"command": ["/srv/api/7", 80]},
    }


def test_shared_templates_get_what_a_member_has_of_its_own() -> None:
    own = {"rollout_replicas": 4, "port": "{{ first + 1 }}", "first": 8100, "rollout_revision": "8"}
    assert arguments(own) == {
        "service": "api",
        "revision": "8",
        "replicas": 4,
        "budget": {"max_surge": 4},
        "platform": {"command": ["/srv/api/8", 8101]},
    }


def test_a_revision_made_of_that_of_all_members_is_evaluated_once() -> None:
    made = arguments(
        {"rollout_revision": "{{ rollout_revision }}-{{ flavour }}", "flavour": "slim"}
    )
    assert made["revision"] == "7-slim" and made["platform"]["command"][0] == "/srv/api/7-slim"


def test_an_unknown_variable_of_a_rollout_becomes_an_argument() -> None:
    """So that the step refuses it."""
    assert arguments({"rollout_replcas": 4})["replcas"] == 4


def test_a_variable_that_is_undefined_is_named() -> None:
    with pytest.raises(AnsibleError, match="nowhere"):
        arguments({"port": "{{ nowhere }}"})
