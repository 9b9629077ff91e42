# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: info
short_description: Return the rollout, the fleet and the history
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Returns the state of a service. Reads only, and needs no lease.
options:
  timeline:
    description: Whether to return the events of the rollout as well. There can be many.
    type: bool
    default: false
  show:
    description: Whether to also show the lines.
    type: bool
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
- name: Get the state of shop
  progressive.rollout.info:
    service: shop
    platform: "{{ shop_platform }}"
    traffic: "{{ shop_traffic }}"
    health: {http: /healthz}
    store: "{{ shop_store }}"
    timeline: true
  register: shop

- name: Show it
  ansible.builtin.debug:
    msg: "{{ shop.lines }}"

- name: Show how many instances of which revision run, and the events of the last rollout
  ansible.builtin.debug:
    msg: "{{ shop.rollout.fleet }}, {{ shop.timeline | length }} events"
"""

RETURN = r"""
rollout:
  description: The rollout and the fleet after the step.
  returned: success
  type: dict
  contains:
    id:
      description: The rollout's id, which names its timeline.
      type: str
      sample: shop-20261121T093012-4711
    service:
      description: Name of the service.
      type: str
      sample: shop
    revision:
      description: The revision of the rollout in progress, or of the last one.
      type: str
      sample: 2.4.1
    generation:
      description: Number of the rollout. Its instances carry it along with their revision.
      type: int
      sample: 7
    baseline:
      description: Generation of the fresh instances of the stable revision that an analysis compares with; 0 if there
        are none.
      type: int
      sample: 0
    previous:
      description: The stable revision when the rollout began. Null at the first deployment.
      type: str
      sample: 2.4.0
    stable:
      description: The revision that a rollback of a rollout in progress returns to.
      type: str
      sample: 2.4.0
    strategy:
      description: The strategy, V(rolling), V(canary) or V(blue_green).
      type: str
      sample: canary
    kind:
      description: Kind of the rollout, V(rollout), V(restart), V(scale), V(rebalance) or V(rollback).
      type: str
      sample: rollout
    phase:
      description: V(progressing), V(paused), V(awaiting_promotion), V(promoting), V(holding), V(held), V(rolling_back)
        or V(finished). A V(holding) rollout is promoted and keeps the old instances ready. A V(held) rollout has stopped
        after a failure until an operator decides.
      type: str
      sample: awaiting_promotion
    outcome:
      description: How the rollout ended, V(promoted), V(rolled_back), V(aborted), V(failed), V(superseded) or V(refused);
        empty until then.
      type: str
      sample: ''
    why:
      description: The reason (C(rollout_why)) that the rollout was begun with.
      type: str
      sample: ticket 42
    reason:
      description: Why the rollout is held, was rolled back or failed.
      type: str
      sample: ''
    stage:
      description: The strategy's stage in progress.
      type: str
      sample: step 1
    share:
      description: The new revision's share of the requests. Empty unless a rollout is in progress.
      type: dict
      contains:
        asked:
          description: Percentage that the stage asks for. Null where it follows from the number of instances.
          type: int
          sample: 10
        set:
          description: Percentage that the load balancers are set to now.
          type: float
          sample: 10.0
        measured:
          description: Percentage that the load balancers counted since the stage was reached. Null before the first request.
          type: float
          sample: 9.84
        requests:
          description: Number of requests that the load balancers counted since the stage was reached.
          type: int
          sample: 1829
    waiting:
      description: The gates that the rollout waits for, each with its latest message.
      type: list
      elements: str
      sample:
        - 'step 2 approval (approval): no answer yet'
    analysis:
      description: The state of each analysis, in a sentence.
      type: dict
      sample:
        background analysis: 'errors: no difference after 1829 requests'
    paused:
      description: Who paused the rollout, when and why, if an operator did. Otherwise empty.
      type: dict
      sample:
        by: ada@controller pid 4711 (pause.yml)
        why: prices look wrong
        at: 1795253412.1
    excluded:
      description: The hosts that an operator left out of the rollout (V(exclude)).
      type: list
      elements: str
      sample: [web3]
    step:
      description: The last step that worked on the rollout.
      type: str
      sample: replace
    started:
      description: When the rollout began, in seconds since the epoch.
      type: float
      sample: 1795253412.118
    updated:
      description: When the rollout was last written to the journal, in seconds since the epoch.
      type: float
      sample: 1795253431.9
    elapsed:
      description: Seconds that steps spent on the rollout, without waiting at gates.
      type: float
      sample: 19.7
    replaced:
      description: Number of instances taken out of rotation in favor of others.
      type: int
      sample: 3
    fleet:
      description: By revision, the number of instances in each state, and the share of new requests (RV(ignore:traffic))
        in percent.
      type: dict
      sample:
        2.4.1: {ready: 1, starting: 0, traffic: 10.0}
        2.4.0: {ready: 9, starting: 0, traffic: 90.0}
    changed:
      description: Whether this step changed anything.
      type: bool
      sample: true
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
    rotation:
      description: >-
        V(absent), V(out), V(partial) or V(in), over all load balancers, as the rollout set it: V(in) also while a load balancer finds the
        instance unhealthy. Null without any, or while one does not answer.
      type: str
    active: {description: "Its requests in flight.", type: int}
    host: {description: "Its host.", type: str}
    age: {description: "Seconds since it was started.", type: float}
    restarts: {description: "How many times a supervisor on the host, such as systemd, has restarted it.", type: int}
    runs: {description: "Its image or command, without secrets, as in the journal. Empty if the journal has none.", type: str}
    detail: {description: "Why it is not ready, or how it ended.", type: str}
history:
  description: The last 20 rollouts that ended, oldest first.
  returned: success
  type: list
  elements: dict
lease:
  description: The run that may change the service now. Null if none may.
  returned: success
  type: dict
  contains:
    holder: {description: "User, machine, process and AWX job.", type: str}
    since: {description: "Since when, in seconds since the epoch.", type: float}
    until: {description: "Until when, in seconds since the epoch.", type: float}
unmanaged:
  description: >-
    The servers of the load balancers' pool that get requests and that no rollout manages, such as those that somebody has written by hand. Empty if
    there are none.
  returned: success
  type: dict
  contains:
    pool: {description: "What they are servers of, as C(backend shop).", type: str}
    servers: {description: "Their names.", type: list, elements: str}
    share: {description: "Their share of new requests in percent.", type: float}
troubles:
  description: What could not be observed, and why, such as a load balancer or host that is down. What the journal has is returned anyway.
  returned: success
  type: list
  elements: str
progress:
  description: How far the rollout in progress is. Empty if there is none.
  returned: success
  type: dict
  contains:
    strategy: {description: "Its strategy.", type: str}
    stage: {description: "The stage in progress.", type: str}
    step: {description: "The step of a canary and the number of the last one, as C(step 1/4). Empty for any other stage.", type: str}
    budget: {description: "The budget, as it was given.", type: dict}
    bounds: {description: "The fewest available (C(floor)) and the most instances (C(ceiling)) in the stage. Empty in a rollback.", type: dict}
    asked: {description: "The percentage of requests that the stage asks for. Null where it follows from the number of instances.", type: int}
    measured: {description: "The percentage of requests that was counted. Null before the first request.", type: float}
    requests: {description: "The number of requests that were counted since the stage was reached.", type: int}
    deadline_left: {description: "Seconds that it may continue without progress. Null while no deadline is running.", type: float}
    gates:
      description: The gates of the stage and those in the background, each with C(gate), C(state), C(message) and who decided (C(by)).
      type: list
      elements: dict
lines:
  description: The rollout, the lease and the instances as human-readable lines.
  returned: success
  type: list
  elements: str
timeline:
  description: The events of the rollout, oldest first, if O(timeline) asks for them.
  returned: success
  type: list
  elements: dict
"""
