# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/scale.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: scale
short_description: Bring one revision to a number of instances
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Brings O(revision), or the stable one, to O(replicas) instances. Those of other revisions stay as they are.
  - Within a rollout, it is part of that rollout. Otherwise it is a rollout itself, with an entry in the history.
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: partial
    details: In check mode only. Progress lines and the timeline show what was really done.
seealso:
  - module: progressive.rollout.replace
  - module: progressive.rollout.health
"""

EXAMPLES = r"""
- name: Have 6 instances of the stable revision
  progressive.rollout.scale:
    service: shop
    replicas: 6
    budget: {max_surge: 2}
    platform: "{{ shop_platform }}"
    traffic: "{{ shop_traffic }}"
    health: {http: /healthz}
    store: "{{ shop_store }}"
"""

RETURN = r"""
rollout:
  description: The rollout and the fleet after the step. As RV(progressive.rollout.info#module:rollout).
  returned: success
  type: dict
parked:
  description: Whether the run ended because the rollout is waiting for an operator. Run again to continue.
  returned: when it is true
  type: bool
msg:
  description: What the rollout is waiting for.
  returned: when the rollout was parked
  type: str
next:
  description: What the rollout would do now. As RV(progressive.rollout.plan#module:next).
  returned: in check mode
  type: dict
"""
