# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/remove.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: remove
short_description: Remove what rollouts of a service have left
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Removes the journal of a service, and all that rollouts have noted on its hosts, load balancers and clusters.
  - No instance is stopped, and no load balancer changes where it sends requests. What instances and load balancers need to go on stays.
  - Fails while a rollout of the service, or a release that it is a member of, is in progress.
  - Can be killed and run again. The journal is removed last.
options:
  show:
    description: Whether to print what is removed, a line each.
    type: bool
    default: false
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: none
    details: The fleet stays as it is. Check mode returns what would be removed.
seealso:
  - module: progressive.rollout.info
"""

EXAMPLES = r"""
- name: Remove what rollouts of shop have left
  progressive.rollout.remove:
    service: shop
    platform: "{{ shop_platform }}"
    traffic: "{{ shop_traffic }}"
    store: "{{ shop_store }}"
"""

RETURN = r"""
removed:
  description: What was removed, or in check mode would be, each with its place.
  returned: success
  type: list
  elements: str
lines:
  description: The same, as it is printed.
  returned: success
  type: list
  elements: str
rollout:
  description: The rollout and the fleet after the step. As RV(progressive.rollout.info#module:rollout).
  returned: success
  type: dict
"""
