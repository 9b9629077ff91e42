# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/settle.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: settle
short_description: Put hosts back that were deployed, if they work
version_added: 0.1.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Puts the hosts that M(progressive.rollout.vacate) took out in rotation again once they are ready, at every load balancer.
  - A host whose tasks failed, or that does not become ready in C(deadline) of O(health), stays out of rotation, and is recorded.
    As many as O(failure_limit) end the rollout, as O(on_failure) says.
options:
  hosts:
    description:
      - The hosts that may be worked on, those of the play. Of a service that is deployed in place (C(driver=static) of O(platform)), and of no other.
    type: list
    elements: str
    required: true
  results:
    description:
      - Each host that was taken out, with why its tasks failed. An empty text says that they did not.
    type: dict
    required: true
  watch:
    description:
      - What M(progressive.rollout.vacate) returned as RV(progressive.rollout.vacate#module:watch).
    type: dict
  reached:
    description:
      - By host, the result of a task that has reached it, or has not (C(unreachable) and C(msg)), for example of M(ansible.builtin.raw).
      - On hosts that were not reached no task has run. They are put back as they were, and count as failed.
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
  - module: progressive.rollout.vacate
"""

EXAMPLES = r"""
- name: Put them back
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
failed_hosts:
  description: The hosts that stay out, each with the reason.
  returned: success
  type: dict
"""
