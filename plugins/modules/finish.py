# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/finish.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: finish
short_description: End a rollout that was promoted
version_added: 0.1.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - With O(strategy=blue_green) keeps the old instances ready for O(hold), then takes them away.
  - Removes what is left of dead instances, writes the history, and gives the lease back.
  - Fails if the rollout was not promoted. Changes nothing if none is under way.
  - Of a service that is deployed in place (C(driver=static) of O(platform)) it promotes the revision itself, if it is on every host. If it is not,
    it fails and says why, but for hosts that were not to be worked on, which leave the rollout to the next run.
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
  description: Whether the run ended because there is nothing to do but wait for somebody. Run again, it goes on.
  returned: when it is true
  type: bool
msg:
  description: What is waited for.
  returned: when the rollout was parked
  type: str
"""
