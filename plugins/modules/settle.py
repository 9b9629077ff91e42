# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/settle.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: settle
short_description: Put deployed hosts back in rotation, if they are ready
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Puts the hosts that M(progressive.rollout.vacate) took out back in rotation at every load balancer, once they are ready.
  - A host whose tasks failed, or that is not ready within C(deadline) of O(health), stays out of rotation, and is recorded.
    O(failure_limit) such hosts end the rollout, as O(on_failure) says.
options:
  hosts:
    description: The hosts that may be worked on, which are the hosts of the play. Only for a service that is deployed
      in place (C(driver=static) of O(platform)).
    type: list
    elements: str
    required: true
  results:
    description: Each host that was taken out, with the reason why its tasks failed. An empty string means that they did
      not fail.
    type: dict
    required: true
  watch:
    description: What M(progressive.rollout.vacate) returned as RV(progressive.rollout.vacate#module:watch).
    type: dict
  reached:
    description: By host, the result of a task that reached it or failed to (C(unreachable) and C(msg)), for example of
      M(ansible.builtin.raw). Hosts that were not reached are left as they are, and count as failed.
    type: dict
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: none
    details: M(progressive.rollout.plan) returns what would be done.
seealso:
  - module: progressive.rollout.plan
  - module: progressive.rollout.vacate
"""

EXAMPLES = r"""
- name: Put the hosts back in rotation
  progressive.rollout.settle:
    service: shop
    platform: {driver: static, hosts: shop, port: 8080}
    traffic: "{{ shop_traffic }}"
    health: {http: /healthz}
    store: "{{ shop_store }}"
    hosts: "{{ ansible_play_hosts_all }}"
    results: "{{ dict(wave.hosts | product([''])) }}"
    reached: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'reached'))) }}"
    watch: "{{ wave.watch }}"
  run_once: true
"""

RETURN = r"""
rollout:
  description: The rollout and the fleet after the step. As RV(progressive.rollout.info#module:rollout).
  returned: success
  type: dict
failed_hosts:
  description: The hosts that stay out of rotation, each with the reason.
  returned: success
  type: dict
"""
