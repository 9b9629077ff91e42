# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/vacate.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vacate
short_description: Take the next hosts out, for tasks of your own
version_added: 0.1.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Takes as many of O(hosts) out of rotation, at every load balancer, as the budget lets be missing now, and waits for their requests.
    Those that are of no use come first, then those of which nobody knows what they run, then the old ones.
  - Waits where too few others are available, at most as long as O(progress_deadline) says. Asks the gates of the stage before it begins the next one.
  - While your tasks run, a process that it leaves behind takes them out again where a load balancer was reloaded, and renews the lease.
  - Stops nothing. What comes then is yours, and M(progressive.rollout.settle) after it. The role P(progressive.rollout.in_place#role) does it all.
  - A rollout that has failed is held or taken back, as O(on_failure) says. The hosts are then those that are taken back, see RV(back).
options:
  hosts:
    description: The hosts that may be worked on, those of the play. Only for a service that is deployed in place (C(driver=static)
      of O(platform)).
    type: list
    elements: str
    required: true
  reached:
    description: By host, the result of a task that has reached it, or has not (C(unreachable) and C(msg)), for example
      of M(ansible.builtin.raw). Hosts that were not reached are left as they are, and count as failed.
    type: dict
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: none
    details: M(progressive.rollout.plan) says what would be done.
seealso:
  - module: progressive.rollout.plan
  - module: progressive.rollout.settle
"""

EXAMPLES = r"""
- name: Reach them
  ansible.builtin.raw: exit 0
  register: reached
  changed_when: false
  ignore_unreachable: true

- name: Take the next hosts out
  progressive.rollout.vacate:
    service: shop
    platform: {driver: static, hosts: shop, port: 8080}
    traffic: "{{ shop_traffic }}"
    health: {http: /healthz}
    store: "{{ shop_store }}"
    hosts: "{{ ansible_play_hosts_all }}"
    reached: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'reached'))) }}"
  register: wave
  run_once: true

- name: Deploy them
  ansible.builtin.include_tasks: deploy.yml
  vars:
    revision: "{{ wave.revision }}"
  when: inventory_hostname in wave.hosts
"""

RETURN = r"""
rollout:
  description: The rollout and the fleet after the step. As RV(progressive.rollout.info#module:rollout).
  returned: success
  type: dict
hosts:
  description: The hosts that are out, to be deployed now. None where there is nothing to do, or nothing may be done.
  returned: success
  type: list
  elements: str
left:
  description: The hosts that wait for their turn after these.
  returned: success
  type: list
  elements: str
revision:
  description: What to deploy on them.
  returned: when a rollout is under way
  type: str
watch:
  description: The process that watches the load balancers meanwhile, for M(progressive.rollout.settle), which ends it. It ends with the run, too.
  returned: when hosts are out
  type: dict
back:
  description: Whether that is the revision before.
  returned: success
  type: bool
"""
