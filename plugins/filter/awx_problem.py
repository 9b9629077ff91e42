# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check what the role `awx` is told."""

from __future__ import annotations

DOCUMENTATION = r"""
name: awx_problem
short_description: Say what is wrong with the settings of the role awx
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Returns in one line which key of C(rollout_awx) is unknown, missing or wrong. The role calls it before it makes anything in AWX.
positional: _input
options:
  _input:
    description: The value of C(rollout_awx).
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Check rollout_awx
  ansible.builtin.assert:
    that: problem == ''
    fail_msg: "{{ problem }}"
  vars:
    problem: "{{ rollout_awx | progressive.rollout.awx_problem }}"
"""

RETURN = r"""
_value:
  description: The problem, empty if there is none.
  type: str
"""

import typing as t
from collections.abc import Callable, Mapping

from ..plugin_utils.config.awx import problem
from ..plugin_utils.controller.step.action import plain


class FilterModule:
    """The filter."""

    def filters(self) -> Mapping[str, Callable[[t.Any], str]]:
        """Return the filters by name."""
        return {"awx_problem": lambda given: problem(plain(given))}
