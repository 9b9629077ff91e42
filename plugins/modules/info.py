# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: info
short_description: Return the rollout, the fleet and the history
version_added: 0.1.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Returns how a service stands, as data. Reads only, and needs no lease.
options:
  timeline:
    description:
      - Whether to return the events of the rollout as well. They may be many.
    type: raw
    default: false
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: none
    details: It reads only.
seealso:
  - module: progressive.rollout.plan
"""

EXAMPLES = r"""
- name: See how shop stands
  progressive.rollout.info:
    service: shop
    platform: "{{ shop_platform }}"
    traffic: "{{ shop_traffic }}"
    health: {http: /healthz}
    store: "{{ shop_store }}"
    timeline: true
  register: shop

- name: Show how it stands
  ansible.builtin.debug:
    msg: "{{ shop.lines }}"

- name: Show how many instances of which revision run, and the events of the last rollout
  ansible.builtin.debug:
    msg: "{{ shop.rollout.fleet }}, {{ shop.timeline | length }} events"
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
instances:
  description: Every instance, oldest first.
  returned: success
  type: list
  elements: dict
  contains:
    id: {description: "Its name.", type: str}
    revision: {description: "Its revision.", type: str}
    generation: {description: "The number of the rollout that made it.", type: int}
    state: {description: "V(starting), V(ready), V(not_ready), V(draining), V(stopped), V(failed) or V(unreachable).", type: str}
    rotation: {description: "V(absent), V(out), V(partial) or V(in), over all load balancers. Null without any, or while one does not say.", type: str}
    active: {description: "Its requests in flight.", type: int}
    host: {description: "Its host.", type: str}
    age: {description: "Seconds since it was started.", type: float}
    detail: {description: "Why it is not ready, or how it ended.", type: str}
history:
  description: The last 20 rollouts that ended, oldest first.
  returned: success
  type: list
  elements: dict
lease:
  description: Who may change the service now. Null if nobody is about to.
  returned: success
  type: dict
  contains:
    holder: {description: "User, machine, process and AWX job.", type: str}
    since: {description: "Since when, in seconds since the epoch.", type: float}
    until: {description: "Until when, in seconds since the epoch.", type: float}
troubles:
  description: What could not be looked at, and why; a load balancer or a host that is down. What is in the journal is told all the same.
  returned: success
  type: list
  elements: str
lines:
  description: The rollout, the lease and the instances once more, as lines for people.
  returned: success
  type: list
  elements: str
timeline:
  description: The events of the rollout, oldest first, if O(timeline) asks for them.
  returned: success
  type: list
  elements: dict
"""
