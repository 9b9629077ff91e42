# SPDX-License-Identifier: GPL-3.0-or-later
"""What is printed for people to type is what they would have typed."""

from __future__ import annotations

import json
import shlex
import typing as t
from pathlib import Path

import pytest
from ansible.cli.playbook import PlaybookCLI
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.settings import parse
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import commands
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.command_line import (
    operator_command,
)

ROOT = Path(__file__).resolve().parents[2]


def test_inventories_and_files_of_variables_are_repeated() -> None:
    given = {"inventory": ["hosts.yml"], "extra_vars": ["@shop.yml", "@my files/canary.yml"]}
    assert operator_command("promote", "shop", given) == (
        "ansible-playbook progressive.rollout.promote -i hosts.yml -e @shop.yml"
        " -e '@my files/canary.yml' -e rollout_service=shop"
    )


def test_single_variables_may_hold_secrets() -> None:
    given = {"inventory": None, "extra_vars": ["token=hunter2", '{"rollout_revision": "2"}']}
    assert operator_command("abort", "shop", given) == (
        "ansible-playbook progressive.rollout.abort -e rollout_service=shop"
    )


@pytest.mark.parametrize(
    "typed",
    [
        "--vault-id prod@vault.sh --vault-id dev@prompt --vault-password-file /etc/vault",
        "-J -K -k -b -u deploy --private-key /key",
        "-c local --become-user app --become-method su --become-password-file /become",
        "--connection-password-file /login",
    ],
)
def test_options_for_access_are_repeated(typed: str) -> None:
    """Without them the next command cannot read the inventory, or not reach the hosts."""
    given = parsed([*typed.split(), "site.yml"])
    again = parsed(shlex.split(operator_command("abort", "shop", given))[1:])
    assert {name for name in given if again[name] != given[name]} == {"args", "extra_vars"}


def test_options_for_access_are_left_out_where_ansible_has_them() -> None:
    given = parsed(["site.yml", "--forks", "20"])
    assert operator_command("abort", "shop", given) == operator_command("abort", "shop", {})


def parsed(words: list[str]) -> dict[str, t.Any]:
    cli = PlaybookCLI(["ansible-playbook"])
    cli.init_parser()
    return vars(cli.parser.parse_args(words))


def test_a_job_of_awx_has_no_command_line() -> None:
    assert operator_command("resume", "shop", {"inventory": ["/runner/inventory"]}, job=True) == (
        "launch the job template of resume.yml for shop"
    )


def test_a_command_without_a_playbook_is_sent_by_control() -> None:
    assert operator_command("skip", "shop", {}) == (
        "ansible-playbook progressive.rollout.control -e rollout_service=shop"
        " -e rollout_command=skip"
    )
    for name in commands.COMMANDS:
        playbook = operator_command(name, "shop", {}).split()[1].rpartition(".")[2]
        assert (ROOT / f"playbooks/{playbook}.yml").exists()


def test_the_line_carries_where_the_journal_is() -> None:
    store = {"driver": "file", "host": "lb1", "path": "/srv/my journals"}
    words = shlex.split(operator_command("abort", "shop", {}, more={"rollout_store": store}))
    assert json.loads(words[-1]) == {"rollout_store": store}


@pytest.mark.parametrize(
    ("store", "found"),
    [
        ({}, {}),
        ({"driver": "file", "path": "/var/lib/rollout"}, {}),
        ({"path": "/j"}, {"rollout_store": {"driver": "file", "path": "/j"}}),
        ({"driver": "postgresql", "servers": ["db"], "password": "hunter2"}, {}),
    ],
)
def test_what_finds_the_journal_is_no_secret(
    store: dict[str, str], found: dict[str, object]
) -> None:
    settings = parse({"service": "shop", "store": store}, drivers=False)
    assert settings.to_find == found
