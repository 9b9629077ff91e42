# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/follow.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: follow
short_description: Show a rollout that another run is working on, until it ends
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Shows a rollout's progress, as the run that is working on it does, until the rollout ends or waits for an operator.
  - Fails if the rollout does not end as expected, or if no run is working on it.
  - Reads only the journal. Needs no lease, and neither hosts nor load balancers.
options:
  id:
    description: Id of a rollout that C(history.yml) shows. The last one if not given.
    type: str
  expected:
    description: What the rollout is expected to become. The step fails if it becomes something else. A rollout that waits
      for an operator is not a failure.
    type: str
    choices:
      promoted: It is expected to be promoted.
      rolled_back: It is expected to be rolled back, as after an abort.
      held: It is expected to be held.
    default: promoted
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: none
    details: It reads only.
seealso:
  - module: progressive.rollout.info
  - module: progressive.rollout.control
"""

EXAMPLES = r"""
- name: Show the rollout of shop that is in progress, until it ends
  progressive.rollout.follow:
    service: shop
    store: "{{ shop_store }}"
  register: shop

- name: Ask for a decision
  ansible.builtin.debug:
    msg: shop waits for a person
  when: shop.waiting
"""

RETURN = r"""
rollout:
  description: The rollout and the fleet after the step. As RV(progressive.rollout.info#module:rollout).
  returned: success
  type: dict
outcome:
  description: How the rollout ended. Empty if it waits for an operator, is held, or there was none to follow.
  returned: success
  type: str
  sample: promoted
waiting:
  description: Whether the rollout waits for an operator.
  returned: success
  type: bool
  sample: false
msg:
  description: The same in a sentence.
  returned: success
  type: str
"""
