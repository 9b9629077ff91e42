# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/begin.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: begin
short_description: Begin a rollout, or go on with one
version_added: 0.1.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Checks every setting, that the hosts and the load balancers can be reached, and that the budget fits on the platform. Then takes the lease.
  - Opens a rollout of O(revision). Goes on with the one under way if it is of O(revision), and refuses any other while it is, unless O(supersede=true).
    Goes on, too, where it was held or parked. Changes nothing if O(revision) already runs with O(replicas).
  - The steps that follow do the work. They end at once if there is no rollout under way.
options:
  restart:
    description:
      - Replace the instances even though they run this revision. Without O(revision) or O(replicas), those that run.
    type: raw
    default: false
  rebalance:
    description:
      - Where O(revision) already runs, move instances from crowded hosts to emptier ones until the hosts differ by one instance at most
        (zones first, where the platform has them). Each is replaced by one of the same revision, generation and settings, within O(budget).
      - Changes nothing where they are spread evenly, and in a rollout of another revision or a restart, which spread their instances anyway.
    type: raw
    default: false
  variables:
    description:
      - Names of variables that are defined. One that begins with C(rollout_) and that no step takes is refused as misspelt.
        The roles pass all of them.
    type: list
    elements: str
  hosts:
    description:
      - The hosts that may be worked on, those of the play. Of a service that is deployed in place (C(driver=static) of O(platform)), and of no other.
    type: list
    elements: str
  reached:
    description:
      - By host, the result of a task that has reached it, or has not (C(unreachable) and C(msg)), for example of M(ansible.builtin.raw).
      - Hosts that were not reached are left as they are. As many as O(failure_limit) are refused, before anything is touched.
    type: dict
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: partial
    details: In check mode only. What a walk really did is told by its progress lines and the timeline.
seealso:
  - module: progressive.rollout.replace
  - module: progressive.rollout.promote
  - module: progressive.rollout.finish
  - module: progressive.rollout.rollback
"""

EXAMPLES = r"""
- name: Roll 2.4.1 out, step by step, and back if it fails
  module_defaults:
    group/progressive.rollout.steps:
      service: shop
      revision: "2.4.1"
      replicas: 4
      budget: {max_surge: 2}
      platform: "{{ shop_platform }}"
      traffic: "{{ shop_traffic }}"
      health: {http: /healthz}
      store: "{{ shop_store }}"
  block:
    - name: Begin
      progressive.rollout.begin:

    - name: Replace
      progressive.rollout.replace:

    - name: Promote
      progressive.rollout.promote:

    - name: Finish
      progressive.rollout.finish:
  rescue:
    - name: Roll back
      progressive.rollout.rollback:

- name: Begin to replace every instance by one of the revision that runs
  progressive.rollout.begin:
    service: shop
    budget: {max_surge: 2}
    platform: "{{ shop_platform }}"
    traffic: "{{ shop_traffic }}"
    health: {http: /healthz}
    store: "{{ shop_store }}"
    restart: true
  register: restart
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
msg:
  description: What was found, where no new rollout was opened.
  returned: when there is nothing to do, or a rollout is gone on with
  type: str
walker:
  description: The host of the play whose tasks are to go on with it. A rollout is walked once, whatever the hosts of the play.
  returned: success
  type: str
elsewhere:
  description: Whether another host of the play was the first to ask for the same, and this one has nothing to do.
  returned: when it was
  type: bool
next:
  description: What would be done now.
  returned: in check mode, when something would be done
  type: dict
  contains:
    create: {description: "How many instances to start.", type: int}
    admit: {description: "Instances to put in rotation.", type: list, elements: str}
    shelve: {description: "Instances to take out of rotation and keep ready.", type: list, elements: str}
    drain: {description: "Instances to take out of rotation.", type: list, elements: str}
    retire: {description: "Instances to stop.", type: list, elements: str}
    reasons: {description: "Why, a sentence each.", type: list, elements: str}
    reached: {description: "Whether there is nothing left to do.", type: bool}
"""
