# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/drain.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: drain
short_description: Take instances out and stop them
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Takes instances out of rotation at every load balancer, waits for their requests for at most C(drain_timeout) of O(traffic), and stops
    them.
  - Does not start others in their place; M(progressive.rollout.scale) does.
  - Ignores instances that do not exist.
options:
  instances:
    description: The instances, by the names that M(progressive.rollout.info) shows.
    type: list
    elements: str
    required: true
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: none
    details: The instances are those that O(instances) names.
seealso:
  - module: progressive.rollout.traffic
  - module: progressive.rollout.scale
  - module: progressive.rollout.info
"""

EXAMPLES = r"""
- name: Find out what runs
  progressive.rollout.info:
    service: shop
    platform: "{{ shop_platform }}"
    traffic: "{{ shop_traffic }}"
    health: {http: /healthz}
    store: "{{ shop_store }}"
  register: shop

- name: Empty the host web2
  progressive.rollout.drain:
    service: shop
    platform: "{{ shop_platform }}"
    traffic: "{{ shop_traffic }}"
    health: {http: /healthz}
    store: "{{ shop_store }}"
    instances: "{{ shop.instances | selectattr('host', 'eq', 'web2') | map(attribute='id') }}"
  when: shop.instances | selectattr('host', 'eq', 'web2') | length > 0
"""

RETURN = r"""
rollout:
  description: The rollout and the fleet after the step. As RV(progressive.rollout.info#module:rollout).
  returned: success
  type: dict
"""
