# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/finish.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: finish
short_description: End a rollout that was promoted
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - With O(strategy=blue_green) keeps the old instances ready for O(hold), then removes them.
  - Removes the records of dead instances, writes the history, and releases the lease.
  - Fails if the rollout was not promoted. Changes nothing if no rollout is in progress.
  - For a service that is deployed in place (C(driver=static) of O(platform)), promotes the revision if every host has it, and otherwise
    fails with the reason. If hosts were not in the play, the rollout is left to the next run.
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: none
    details: It changes the journal, not the fleet.
seealso:
  - module: progressive.rollout.promote
  - module: progressive.rollout.info
"""

EXAMPLES = r"""
- name: End the rollout
  progressive.rollout.finish:
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
"""
