# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/vacate.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vacate
short_description: Take the next hosts out of rotation, for your own tasks
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Takes as many of O(hosts) out of rotation at every load balancer as the budget currently allows, and waits for their requests.
    Hosts that are not ready come first, then those with an unknown revision, then the others.
  - Waits while too few others are available, for at most O(progress_deadline). Asks the gates of a stage before the next one begins.
  - While your tasks run, a background process renews the lease, and takes the hosts out again if a load balancer was reloaded.
  - Stops nothing. Your tasks follow, then M(progressive.rollout.settle). The role P(progressive.rollout.in_place#role) does all of this.
  - A failed rollout is held or rolled back, as O(on_failure) says. In a rollback (RV(back)), the hosts are those to roll back.
options:
  hosts:
    description: The hosts that may be worked on, which are the hosts of the play. Only for a service that is deployed
      in place (C(driver=static) of O(platform)).
    type: list
    elements: str
    required: true
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
  - module: progressive.rollout.settle
"""

EXAMPLES = r"""
- name: Find out which hosts can be reached
  ansible.builtin.raw: exit 0
  register: reached
  changed_when: false
  ignore_unreachable: true

- name: Take the next hosts out of rotation
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

- name: Deploy to these hosts
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
  description: The hosts that are out of rotation, to be deployed to now. Empty if there is nothing to do, or nothing may be done.
  returned: success
  type: list
  elements: str
left:
  description: The hosts that remain after these.
  returned: success
  type: list
  elements: str
revision:
  description: The revision to deploy to them.
  returned: when a rollout is in progress
  type: str
watch:
  description: The background process, for M(progressive.rollout.settle), which ends it. It also ends with the run.
  returned: when hosts are out
  type: dict
back:
  description: Whether this is a rollback.
  returned: success
  type: bool
"""
