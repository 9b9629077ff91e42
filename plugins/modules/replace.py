# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/replace.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: replace
short_description: Replace old instances with new ones
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - First makes sure that every host has what the revision needs. Nothing is touched before then.
  - Replaces the instances of the fleet as O(strategy) says, with a sliding window, within O(budget).
  - Waits at the gates between stages, and for the end of a freeze. Obeys operator commands (M(progressive.rollout.control)).
  - Starts new instances, and puts them in rotation once they are ready and every load balancer's own check has passed.
    Takes old instances out of rotation at every load balancer, waits for their requests, and stops them.
  - If that fails, the rollout ends as O(on_failure) says. The step that decides a rollback carries it out, then fails with the reason,
    so that M(progressive.rollout.rollback) has nothing left to do. The same holds for M(progressive.rollout.promote),
    M(progressive.rollout.finish) and M(progressive.rollout.scale).
  - If the step is killed, it continues when it is run again.
  - Changes nothing if no rollout is in progress.
options:
  through:
    description: The last step to do in this task. With V(promote) or V(finish), the steps M(progressive.rollout.promote)
      and M(progressive.rollout.finish) follow without a task of their own, which saves about half a second each.
    type: str
    choices: [replace, promote, finish]
    default: replace
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: partial
    details: In check mode only. Progress lines and the timeline show what was really done.
seealso:
  - module: progressive.rollout.begin
  - module: progressive.rollout.promote
  - module: progressive.rollout.scale
"""

EXAMPLES = r"""
- name: Replace the running instances
  progressive.rollout.replace:
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
