# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is printed for people to type is what they would have typed."""

from __future__ import annotations

from ansible_collections.progressive.rollout.plugins.plugin_utils.state.command_line import (
    operator_command,
)


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


def test_a_job_of_awx_has_no_command_line() -> None:
    assert operator_command("resume", "shop", {"inventory": ["/runner/inventory"]}, job=True) == (
        "launch the job template of resume.yml for shop"
    )
