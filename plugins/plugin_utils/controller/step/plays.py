# SPDX-License-Identifier: GPL-3.0-or-later
"""The play that a step of an in-place rollout is in: settings that would break its batches are
refused.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible.plugins.loader import strategy_loader
from ansible.plugins.strategy import linear

from ...base.errors import InputError


def check(play: t.Any, task_vars: Mapping[str, t.Any]) -> None:
    """Refuse a play whose own settings decide the order of tasks, or which hosts are deployed
    together or have failed.
    """
    strategy = strategy_loader.get(play.strategy, class_only=True)
    if strategy is None or not issubclass(strategy, linear.StrategyModule):
        raise InputError(
            f"strategy: with {play.strategy} the hosts of a play do not wait for each other, but "
            "the hosts of a batch are deployed "
            "together; set strategy: linear in the play (ansible.cfg may set another one)",
            "PR-115",
        )
    if play.max_fail_percentage is not None:
        raise InputError(
            f"max_fail_percentage: is {play.max_fail_percentage:g} in the play, but "
            "rollout_failure_limit decides how many hosts may "
            "fail; remove max_fail_percentage from the play",
            "PR-115",
        )
    if set(task_vars["ansible_play_hosts"]) - set(task_vars["ansible_play_batch"]):
        raise InputError(
            "serial: the play has it, but rollout_budget.max_unavailable sets the size of batches;"
            " remove serial from the play",
            "PR-115",
        )
