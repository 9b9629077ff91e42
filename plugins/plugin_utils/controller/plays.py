# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The play that a step is in, where the user's own tasks run beside it: what would break a rollout in place is refused."""

from __future__ import annotations

import typing as t

from ansible.plugins.loader import strategy_loader
from ansible.plugins.strategy import linear
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError


def check(play: t.Any) -> None:
    """Refuse a play that takes the order of its tasks, or who has failed, out of our hands; raises InputError."""
    strategy = strategy_loader.get(play.strategy, class_only=True)
    if strategy is None or not issubclass(strategy, linear.StrategyModule):
        raise InputError(
            f"strategy: the play has {play.strategy}, in which hosts do not wait for each other, and waves are deployed host by host "
            "together; write strategy: linear in the play (ansible.cfg may say otherwise)"
        )
    if play.max_fail_percentage is not None:
        raise InputError(
            f"max_fail_percentage: the play has {play.max_fail_percentage:g}, and rollout_failure_limit says how many may fail; "
            "take max_fail_percentage out of the play"
        )
