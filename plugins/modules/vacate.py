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
    description:
      - The hosts that may be worked on, those of the play. Of a service that is deployed in place (C(driver=static) of O(platform)), and of no other.
    type: list
    elements: str
    required: true
  reached:
    description:
      - By host, the result of a task that has reached it, or has not (C(unreachable) and C(msg)), for example of M(ansible.builtin.raw).
      - Hosts that were not reached are not taken out, and count as failed.
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
  description:
    - The rollout and the fleet as they stand after the step. Also returned by a step that fails, once it has looked at the fleet.
  returned: success
  type: dict
  contains:
    id: {description: "The rollout's id, which names its timeline.", type: str}
    service: {description: "Name of the service.", type: str}
    revision: {description: "The revision that is, or was last, rolled out.", type: str}
    generation: {description: "Its number. Instances carry it beside their revision.", type: int}
    previous: {description: "The revision before it.", type: str}
    stable: {description: "The revision that a rollback of a rollout under way goes back to.", type: str}
    strategy: {description: "The strategy.", type: str}
    kind: {description: "What it is, V(rollout), V(restart), V(scale), V(rebalance) or V(rollback).", type: str}
    phase:
      description:
        - Where it stands. V(progressing), V(paused), V(awaiting_promotion), V(promoting), V(holding), V(held), V(rolling_back) or V(finished).
        - V(holding) is promoted, with the old instances kept ready. V(held) is stopped after a failure, for a person to decide.
      type: str
    outcome: {description: "How it ended, V(promoted), V(rolled_back), V(aborted), V(failed) or V(superseded); empty before.", type: str}
    reason: {description: "Why it is held, was rolled back or failed.", type: str}
    stage: {description: "The stage of the strategy that it walks to or waits at.", type: str}
    share:
      description: The new revision's share of the requests in percent. Empty where no rollout is under way.
      type: dict
      contains:
        asked: {description: "What the stage asks for. Null where it is what the number of instances comes to.", type: int}
        set: {description: "What the load balancers are set to now.", type: float}
        measured: {description: "What the load balancers counted since the stage was reached. Null before the first request.", type: float}
        requests: {description: "How many requests they counted.", type: int}
    waiting: {description: "The gates that it waits at, with what they said last.", type: list, elements: str}
    analysis: {description: "How each analysis stands that it is judged by now, in a sentence.", type: dict}
    paused: {description: "By whom, when and why it was paused, if an operator did. Otherwise empty.", type: dict}
    step: {description: "The last step that worked on it.", type: str}
    started: {description: "When it began, in seconds since the epoch.", type: float}
    updated: {description: "When it was last written down, in seconds since the epoch.", type: float}
    elapsed: {description: "Seconds spent walking.", type: float}
    replaced: {description: "Instances taken out in favour of others.", type: int}
    fleet: {description: "By revision, how many instances are in each state, and the share of new requests (RV(ignore:traffic)) in percent.", type: dict}
    changed: {description: "Whether this step changed anything.", type: bool}
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
