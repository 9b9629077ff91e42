# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/promote.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: promote
short_description: Make the new revision the stable one
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Checks once more that all instances of the new revision are ready, replaces those that are not, and makes the revision the stable one.
  - With O(strategy=blue_green) this is the switch. It is verified at all load balancers, and undone if one fails.
  - Waits at the gates of this stage, such as O(progressive.rollout.begin#module:gates.post_rollout).
  - After this, a rollback returns to the previous revision.
  - Changes nothing if no rollout is in progress.
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: partial
    details: In check mode only. Progress lines and the timeline show what was really done.
seealso:
  - module: progressive.rollout.replace
  - module: progressive.rollout.finish
  - module: progressive.rollout.rollback
"""

EXAMPLES = r"""
- name: Make 2.4.1 the stable revision
  progressive.rollout.promote:
    service: shop
    revision: "2.4.1"
    replicas: 4
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
