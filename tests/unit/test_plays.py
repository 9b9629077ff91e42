# SPDX-License-Identifier: GPL-3.0-or-later
"""Plays in which a rollout in place would break, and tags that leave out its steps."""

from __future__ import annotations

import typing as t
from types import SimpleNamespace

import pytest
from ansible_collections.progressive.rollout.plugins.action import begin
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.step import plays

HOSTS = ["web1", "web2", "web3", "web4"]


def check(batch: list[str] = HOSTS, **settings: t.Any) -> None:
    """Check a play with these settings, which works on a batch of its hosts."""
    play = SimpleNamespace(**{"strategy": "linear", "max_fail_percentage": None, **settings})
    plays.check(play, {"ansible_play_hosts": HOSTS, "ansible_play_batch": batch})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch": HOSTS[:2]}, "remove serial from the play"),
        ({"strategy": "free"}, "strategy: with free "),
        ({"strategy": "host_pinned"}, "strategy: with host_pinned "),
        ({"strategy": "none_of_ansible"}, "strategy: with none_of_ansible "),
        ({"max_fail_percentage": 0}, "max_fail_percentage: is 0 in the play"),
        ({"max_fail_percentage": 12.5}, "max_fail_percentage: is 12.5 in the play"),
    ],
)
def test_a_play_that_would_break_batches_is_refused(
    settings: dict[str, t.Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as refused:
        check(**settings)
    assert refused.value.id == "PR-115"


@pytest.mark.parametrize("strategy", ["linear", "debug"])
def test_a_play_whose_hosts_wait_for_each_other_is_accepted(strategy: str) -> None:
    check(strategy=strategy)


def left_out(tags: list[str], run: list[str], skip: list[str]) -> bool:
    """Return whether a step with these tags is left out by those of the command line."""
    action = begin.ActionModule.__new__(begin.ActionModule)
    action._task = SimpleNamespace(tags=tags)
    return action._left_out({"ansible_run_tags": run, "ansible_skip_tags": skip})


@pytest.mark.parametrize(
    ("tags", "run", "skip", "out"),
    [
        (["always"], ["all"], [], False),
        (["always", "shop"], ["all"], [], False),
        (["always", "shop"], ["shop"], [], False),
        (["always", "shop"], ["tagged"], [], False),
        (["always", "shop"], ["other"], [], True),
        (["always", "shop"], ["untagged"], [], True),
        (["always", "shop"], ["all"], ["shop"], True),
        (["always", "shop"], ["all"], ["tagged"], True),
        (["always", "never"], ["all"], [], True),
        (["always"], ["untagged"], [], False),
        ([], ["code"], [], False),  # Ansible itself leaves it out
    ],
)
def test_a_role_with_a_tag_is_run_or_left_out_by_it(
    tags: list[str], run: list[str], skip: list[str], out: bool
) -> None:
    assert left_out(tags, run, skip) == out


@pytest.mark.parametrize(("run", "skip"), [(["code"], []), (["all"], ["untagged"])])
def test_tags_that_leave_out_a_role_without_any_are_refused(
    run: list[str], skip: list[str]
) -> None:
    with pytest.raises(InputError, match="exclude every step of the rollout") as refused:
        left_out(["always"], run, skip)
    assert refused.value.id == "PR-114"
