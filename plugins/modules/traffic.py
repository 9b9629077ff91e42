# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/traffic.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: traffic
short_description: Put ready instances in rotation, or divide the requests
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Puts the ready instances of O(revision), or of the stable one, in rotation at every load balancer.
  - Waits until they have passed the load balancers' own checks, for at most O(progress_deadline).
  - With O(share), gives the new revision that share of the requests instead, if enough of its instances are ready to carry it.
options:
  share:
    description: Percentage of requests for the revision that is being rolled out. 1 to 100.
    type: int
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: none
    details: The composition of the fleet does not change.
seealso:
  - module: progressive.rollout.drain
  - module: progressive.rollout.health
"""

EXAMPLES = r"""
- name: Put ready instances in rotation
  progressive.rollout.traffic:
    service: shop
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
"""
