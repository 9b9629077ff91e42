# SPDX-License-Identifier: GPL-3.0-or-later
"""What the documentation of every step shares: the options that each takes, in a sentence each."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  service:
    description: Name of the service.
    type: str
    required: true
  revision:
    description: The revision to roll out.
    type: str
  replicas:
    description: Number of instances, at least 1. M(progressive.rollout.begin) documents its options.
    type: raw
  strategy:
    description: How the new revision replaces the old one.
    type: str
    choices: [rolling, canary, blue_green]
    default: rolling
  budget:
    description: How many instances above and below O(replicas) a rollout may have while it runs. M(progressive.rollout.begin)
      documents its options.
    type: dict
    default: {max_surge: 25%, max_unavailable: 0}
  platform:
    description: 'Where instances run: C(driver) and its options. M(progressive.rollout.begin) documents its options.'
    type: dict
  traffic:
    description: 'What sends requests to the instances: C(driver) and its options. M(progressive.rollout.begin) documents
      its options.'
    type: dict
    default: {driver: none}
  health:
    description: How instances are checked for readiness. M(progressive.rollout.begin) documents its options.
    type: dict
    default: {}
  min_ready:
    description: How long an instance must have been ready before it counts as available. A duration.
    type: raw
    default: 0
  progress_deadline:
    description: How long a rollout may go without progress before it fails, counted from the last progress. A duration,
      at least 1s.
    type: raw
    default: 10m
  failure_limit:
    description: Number of new instances whose failure, without progress in between, ends the rollout. M(progressive.rollout.begin)
      documents its options.
    type: raw
    default: 3
  on_failure:
    description: What a failed rollout does.
    type: str
    choices: [rollback, hold, continue]
    default: rollback
  watch_new:
    description: How long a new instance is watched after it became ready. A duration.
    type: raw
    default: 2m
  on_stable_lost:
    description: What a canary or blue-green rollout does when no instance of the stable revision is in service any more
      and new ones are ready.
    type: str
    choices: [repair, promote, hold]
    default: repair
  headroom:
    description: How many times its usual requests an instance of the stable revision can take during a rollback. 1 or
      more, or V(0) for never more than usual.
    type: raw
    default: 1.25
  store:
    description: 'Where the journal and the lease are kept: C(driver) and its options. M(progressive.rollout.begin) documents
      its options.'
    type: dict
    default: {driver: file, path: /var/lib/rollout}
  lease:
    description: How long the right to change the service outlives its last use. A duration, at least 5s, at most 1h.
    type: raw
    default: 60
  targets:
    description: The parts that the fleet is divided into, such as regions, in the order in which they are rolled out.
      M(progressive.rollout.begin) documents its options.
    type: list
    elements: dict
    default: []
  steps:
    description: The steps of O(strategy=canary), a list. M(progressive.rollout.begin) documents its options.
    type: raw
    default: []
  gates:
    description: What must let a rollout pass, and when, with any O(strategy). M(progressive.rollout.begin) documents
      its options.
    type: dict
    default: {}
  analysis:
    description: What is measured from a given step on, and judged after each measurement. M(progressive.rollout.begin)
      documents its options.
    type: dict
  approval:
    description: How a rollout waits for an operator. M(progressive.rollout.begin) documents its options.
    type: dict
    default: {}
  auto_promote:
    description: With O(strategy=blue_green), whether the switch happens without an operator.
    type: bool
    default: true
  promote_delay:
    description: With O(strategy=blue_green) and O(auto_promote=true), how long the new set is ready before the switch.
      A duration.
    type: raw
    default: 0
  hold:
    description: How long old instances stay ready after the promotion, without requests. A duration.
    type: raw
  known_good:
    description: 'With O(strategy=canary), how long ago a revision may have been the stable one to be rolled out again
      without O(steps) and O(targets): all instances are replaced in one walk, which is watched as usual. A duration.'
    type: raw
    default: 0
  hold_replicas:
    description: With O(strategy=canary) and O(hold), how many old instances stay. A whole number or a percentage.
    type: raw
  autoscaler:
    description: 'What scales the service outside of rollouts: C(driver) and its options. M(progressive.rollout.begin)
      documents its options.'
    type: dict
  freeze:
    description: Times at which a rollout does not move. M(progressive.rollout.begin) documents its options.
    type: list
    elements: dict
    default: []
  window:
    description: The only times at which a rollout moves, a list like O(freeze). M(progressive.rollout.begin) documents
      its options.
    type: raw
  order:
    description: The position of the revision among all revisions, such as its commit time (V(1732300000)).
    type: int
  older:
    description: Whether a revision that is older by O(order) may be rolled out anyway.
    type: bool
    default: false
  new_check:
    description: Whether O(health) may be a check that no running instance passes, since only the new revision answers
      it.
    type: bool
    default: false
  adopt:
    description: What runs before the first rollout. M(progressive.rollout.begin) documents its options.
    type: dict
    default: {}
  supersede:
    description: Whether a rollout of another revision that is in progress gives way to this one.
    type: bool
    default: false
  wait:
    description: How long a run waits for an operator or the end of a freeze. A duration.
    type: raw
    default: 1h
  report:
    description: Where the rollout's report is written on the controller, and kept up to date while the rollout runs.
    type: str
  notify:
    description: 'Who is notified about the rollout: each receiver with C(driver), its options, and C(on), the events
      that it is notified of. M(progressive.rollout.begin) documents its options.'
    type: list
    elements: dict
    default: []
  metrics:
    description: Where the service's metrics are kept up to date, in OpenMetrics format, while its rollout runs. M(progressive.rollout.begin)
      documents its options.
    type: dict
    default: {}
  release:
    description: 'The release that the service is a member of: services that are promoted together, in order, or not at
      all. M(progressive.rollout.begin) documents its options.'
    type: dict
    default: {}
  restored_settings:
    description: What M(progressive.rollout.control) returned as RV(progressive.rollout.control#module:settings).
    type: dict
attributes:
  action:
    description: Runs on the controller, as an action plugin, and reaches hosts through their own connections.
    support: full
  action_group:
    description: Use C(group/progressive.rollout.steps) in C(module_defaults) to set the options of every step at once.
    support: full
    membership: [progressive.rollout.steps]
  async:
    description: Can be run with C(async).
    support: none
    details: The step runs on the controller and ends with its playbook.
  check_mode:
    description: Reports what it would do, and touches nothing.
    support: full
"""
