# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/judge.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: judge
short_description: Replay the analyses of a past rollout under other settings
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Judges once more the results that the analyses of a rollout measured, and returns what they would have decided with O(try).
  - Needs only O(service) and O(store), and no lease. It reads only the journal and changes nothing, and C(fleet) in its result is
    empty.
options:
  id:
    description: Id of a rollout that C(history.yml) shows. The last one if not given.
    type: str
  try:
    description: 'Settings that replace those of a past rollout''s analyses: C(alpha), C(count), C(on_enough), C(pass),
      C(marginal), C(weights) and C(dry_run) of an analysis, and C(metrics) with a C(name) and the options of its judge,
      such as C(tolerance) and C(detect).'
    type: dict
  show:
    description: Whether to also show the lines.
    type: bool
    default: false
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: none
    details: It does not observe the fleet.
seealso:
  - module: progressive.rollout.report
"""

EXAMPLES = r"""
- name: See whether the last rollout of shop would have passed with more tolerance
  progressive.rollout.judge:
    service: shop
    store: "{{ shop_store }}"
    try:
      alpha: 0.05
      on_enough: ask
  register: shop

- name: Show it
  ansible.builtin.debug:
    msg: "{{ shop.lines }}"
"""

RETURN = r"""
rollout:
  description: The rollout and the fleet after the step. As RV(progressive.rollout.info#module:rollout).
  returned: success
  type: dict
id:
  description: The id of the rollout whose analyses were replayed. Empty before the first rollout.
  returned: success
  type: str
analyses:
  description: The analyses of the rollout, in the order in which they began.
  returned: success
  type: list
  elements: dict
  contains:
    gate: {description: "The analysis, as in the timeline.", type: str}
    looks: {description: "How many times results were judged.", type: int}
    whole: {description: "Whether all results were kept. If not, the replay ends early.", type: bool}
    then:
      description: What it said in the rollout.
      type: dict
      contains: &verdict
        verdict: {description: "V(pass), V(fail), V(person) or V(wait). Of a metric its phase, or V(wait).", type: str}
        look: {description: "After how many measurements. Null without a verdict.", type: int}
        at: {description: "When, in seconds since the epoch. Null without a verdict.", type: float}
        seconds: {description: "Seconds since the first measurement. Null without a verdict.", type: float}
        message: {description: "Why.", type: str}
    now:
      description: What it would have said with O(try).
      type: dict
      contains: *verdict
    metrics:
      description: Each metric.
      type: list
      elements: dict
      contains:
        name: {description: "Its name.", type: str}
        then: {description: "What it said in the rollout.", type: dict, contains: *verdict}
        now: {description: "What it would have said.", type: dict, contains: *verdict}
        evidence: {description: "The e-value at the end of the replay. Null if its judge has none.", type: float}
        threshold: {description: "The e-value from which it fails. Null if its judge has none.", type: float}
lines:
  description: The same as a table, with the reasons.
  returned: success
  type: list
  elements: str
"""
