# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/plan.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: plan
short_description: Forecast a rollout
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Returns what a rollout of O(revision) would do with the current fleet. Reads only.
  - With O(fleet), plans with that fleet instead, and queries no host, load balancer or journal.
options:
  fleet:
    description: Instances to plan with, instead of the actual fleet. RV(rollout) and RV(unknown) are then not returned.
    type: list
    elements: dict
    suboptions:
      id:
        description: Name of the instance. If not given, its position in the list with four digits, V(0001).
        type: str
      revision:
        description: Its revision.
        type: str
        required: true
      state:
        description: Its state.
        type: str
        choices: [starting, ready, not_ready, draining, stopped, failed, unreachable]
        required: true
      age:
        description: How long ago it was started. A duration.
        type: raw
        default: 3600
      count:
        description: Number of such instances. Their names get V(.1), V(.2) and so on. 1 to 10000.
        type: int
        default: 1
      rotation:
        description: Its rotation at the load balancers. If not given, V(in) for ready instances and V(absent) for others.
        type: str
        choices: [absent, out, partial, in]
      active:
        description: Its requests in flight.
        type: int
        default: 0
      draining:
        description: How long ago it was taken out of rotation, if its state is V(draining). A duration.
        type: raw
        default: 0
  variables:
    description: Names of the variables that are defined. A name that begins with C(rollout_) and that no step takes is
      refused as misspelled. The roles pass all of them.
    type: list
    elements: str
  hosts:
    description: The hosts that may be worked on, which are the hosts of the play. Only for a service that is deployed
      in place (C(driver=static) of O(platform)).
    type: list
    elements: str
  show:
    description: Whether to also show the lines.
    type: bool
    default: false
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: full
seealso:
  - module: progressive.rollout.begin
  - module: progressive.rollout.info
"""

EXAMPLES = r"""
- name: Forecast a rollout of 2.4.1
  progressive.rollout.plan:
    service: shop
    revision: "2.4.1"
    replicas: 4
    budget: {max_surge: 2}
    platform: "{{ shop_platform }}"
    traffic: "{{ shop_traffic }}"
    health: {http: /healthz}
    store: "{{ shop_store }}"
  register: plan

- name: Show it
  ansible.builtin.debug:
    msg: >-
      {{ plan.peak_extra }} more at most, never less than {{ plan.minimum_available }}, about {{ plan.seconds }} s;
      unknown: {{ plan.unknown | join('; ') | default('nothing', true) }}

- name: Forecast a canary with an analysis
  progressive.rollout.plan:
    service: shop
    revision: "2.4.1"
    replicas: 4
    strategy: canary
    steps:
      - {set_weight: 25}
      - analysis: {interval: 10s, count: 30}
    platform: "{{ shop_platform }}"
    traffic: "{{ shop_traffic }}"
    health: {http: /healthz}
    store: "{{ shop_store }}"

- name: Plan for an assumed fleet
  progressive.rollout.plan:
    service: shop
    revision: "2.4.1"
    replicas: 4
    budget: {max_surge: 1}
    fleet:
      - {revision: "2.4.0", state: ready, age: 2d, count: 3}
      - {revision: "2.4.0", state: not_ready, age: 2d}
      - {revision: "2.4.1", state: ready, age: 10s}
  register: thought

- name: Check that the old instance that is not ready would be drained first
  ansible.builtin.assert:
    that: thought.next.drain[0] == "0002"
"""

RETURN = r"""
rollout:
  description: The rollout and the fleet after the step. As RV(progressive.rollout.info#module:rollout).
  returned: success, without O(fleet)
  type: dict
waypoints:
  description: The compositions of the fleet that the strategy goes through, in order.
  returned: success
  type: list
  elements: dict
  contains:
    name: {description: "Name of the stage that leads there.", type: str}
    step: {description: "The step that leads there, V(replace), V(promote) or V(finish).", type: str}
    new: {description: "Instances of the new revision.", type: int}
    old: {description: "Instances of other revisions.", type: int}
    fresh: {description: "Old instances that are replaced there by fresh ones of the stable revision, for comparison.", type: int}
    share:
      description: >-
        The new revision's share of the requests in percent. Null if the numbers of instances decide. V(0) for a new set that is ready without
        requests, and V(100) for an old one.
      type: int
    gates: {description: "The gates that the rollout waits for there.", type: list, elements: str}
lines:
  description: The plan as human-readable lines.
  returned: success, without O(fleet)
  type: list
  elements: str
revision:
  description: The revision that would be rolled out.
  returned: success, without O(fleet)
  type: str
previous:
  description: The stable revision. Null before the first deployment.
  returned: success, without O(fleet)
  type: str
strategy:
  description: The strategy.
  returned: success, without O(fleet)
  type: str
replicas:
  description: How many instances there will be.
  returned: success, without O(fleet)
  type: int
waits:
  description: The gates, in order, and what each one waits for.
  returned: success
  type: list
  elements: dict
  contains:
    gate: {description: "The gate, as in RV(waypoints).", type: str}
    driver: {description: "Its driver.", type: str}
    person: {description: "Whether it waits for an operator.", type: bool}
    seconds: {description: "How long a pause takes. Null where that is not known.", type: float}
measured:
  description: Whether RV(seconds) is based on how long instances took in the last rollout, and is not a guess.
  returned: success, without O(fleet)
  type: bool
orders:
  description: O(order) of the stable revision and of this one. Null where it is not known.
  returned: success, without O(fleet)
  type: list
  elements: int
excluded:
  description: The hosts that an operator left out of the rollout in progress (C(exclude)).
  returned: success, without O(fleet)
  type: list
  elements: str
stopped:
  description: The freeze, or the window that is not open yet, that the rollout would wait for now. Empty if there is none.
  returned: success, without O(fleet)
  type: str
watched:
  description: The background analysis and the rollback gates, which may end the rollout at any moment.
  returned: success, without O(fleet)
  type: list
  elements: str
requests:
  description: How many requests each analysis in the steps needs to detect an error rate nine times out of ten, if the stable revision
    has no errors. For metrics that count the errors of both revisions with the judge C(sequential), except in analyses with C(baseline).
  returned: success, without O(fleet)
  type: list
  elements: dict
  contains:
    gate: {description: "The analysis, as in RV(waypoints).", type: str}
    metric: {description: "The metric.", type: str}
    share: {description: "The new instances' share of the requests, in percent.", type: float}
    detect: {description: "The error rate, C(detect) of the metric.", type: float}
    new: {description: "Requests to the new instances. Null where no number is enough.", type: int}
    all: {description: "Requests to all instances, so that the new ones get that many.", type: int}
    seconds: {description: "How long that takes at the traffic of the last rollout. Null where that is not known.", type: float}
    lasts: {description: "How long the analysis measures, in seconds.", type: float}
shares:
  description: Whether the load balancers' weights or the numbers of instances divide the requests.
  returned: success, without O(fleet)
  type: str
surge:
  description: How many instances there may be beyond O(replicas).
  returned: success
  type: int
unavailable:
  description: How many of O(replicas) may be missing.
  returned: success
  type: int
order:
  description: The old instances, ordered by age.
  returned: success
  type: list
  elements: str
peak_extra:
  description: The most instances that there will be beyond O(replicas).
  returned: success
  type: int
minimum_available:
  description: The fewest instances that will be available.
  returned: success
  type: int
traffic_changes:
  description: How many instances will be put in rotation, and how many taken out.
  returned: success
  type: dict
  contains:
    enter: {description: "Put in rotation.", type: int}
    leave: {description: "Taken out.", type: int}
seconds:
  description: How long the rollout will take, based on how long instances took the last time. Null if that cannot be estimated.
  returned: success
  type: float
unknown:
  description: What could not be determined, one sentence each.
  returned: success, without O(fleet)
  type: list
  elements: str
unmanaged:
  description: >-
    The servers of the load balancers' pool that get requests and that no rollout manages: what they are servers of (C(pool)), their names
    (C(servers)), and their C(share) of new requests in percent at present. Empty if there are none.
  returned: success, without O(fleet)
  type: dict
risks:
  description: What may go wrong, as far as hosts and the platform show before anything is touched, one line each.
  returned: success, without O(fleet)
  type: list
  elements: str
settings:
  description:
    - How O(platform) and O(health) differ from those of the stable revision, one difference per line.
    - Of options that may be secret, only the names are shown.
  returned: success, without O(fleet)
  type: list
  elements: str
batches:
  description: The batches of hosts, in order, if nothing goes wrong. Apart from this, only RV(rollout) is returned.
  returned: with O(hosts)
  type: list
  elements: list
next:
  description: What the rollout would do now.
  returned: success
  type: dict
  contains:
    create:
      description: Number of instances to start.
      type: int
      sample: 1
    create_old:
      description: Number of instances of the stable revision to start, where it is kept.
      type: int
      sample: 0
    admit:
      description: Instances to put in rotation.
      type: list
      elements: str
      sample: [shop-7]
    shelve:
      description: Instances to take out of rotation and keep ready.
      type: list
      elements: str
      sample: []
    drain:
      description: Instances to take out of rotation.
      type: list
      elements: str
      sample: [shop-3]
    retire:
      description: Instances to stop.
      type: list
      elements: str
      sample: []
    reasons:
      description: The reasons, one sentence each.
      type: list
      elements: str
      sample:
        - 'drain shop-3: 5 available, 4 needed'
    reached:
      description: Whether the fleet is what the next stage leads to.
      type: bool
      sample: false
"""
