# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/begin.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: begin
short_description: Begin a rollout, or continue one
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Checks every setting, that hosts and load balancers can be reached, and that the budget fits on the platform. Then takes the lease.
  - Opens a rollout of O(revision), or continues one that is in progress, held or parked. While a rollout of another revision is in
    progress, the new one is refused, unless O(supersede=true). Changes nothing if O(revision) already runs with O(replicas).
  - The steps that follow do the work. They end at once if no rollout is in progress.
  - If it finds a command to abort that no run has obeyed yet, it rolls back, and then fails with the reason.
  - The L(quick reference,https://github.com/progressive-rollout/progressive.rollout/blob/main/docs/reference/quick-reference.md) has everything on a page;
    L(troubleshooting,https://github.com/progressive-rollout/progressive.rollout/blob/main/docs/how-to/troubleshoot.md) goes by what you see.
options:
  restart:
    description: Replace the instances even if they already run this revision. O(revision) and O(replicas) default to
      what is running.
    type: bool
    default: false
  rebalance:
    description:
      - If O(revision) already runs, move instances from crowded hosts to emptier ones until the hosts differ by at most
        one instance (zones first, if the platform has them). Each is replaced by an instance of the same revision and
        settings, within O(budget).
      - Has no effect if instances are spread evenly, or in a rollout of another revision or a restart, which spread their
        instances anyway.
    type: bool
    default: false
  why:
    description: Reason, for readers of the journal. No secrets.
    type: str
  variables:
    description: Names of the variables that are defined. A name that begins with C(rollout_) and that no step takes is
      refused as misspelled. The roles pass all of them.
    type: list
    elements: str
  unprepared:
    description: Hosts on which the tasks that prepare them have not run, so that nothing is begun. The roles pass them
      where V(rollout_prepare_tasks) is given.
    type: list
    elements: str
  hosts:
    description: The hosts that may be worked on, which are the hosts of the play. Only for a service that is deployed
      in place (C(driver=static) of O(platform)).
    type: list
    elements: str
  reached:
    description: By host, the result of a task that reached it or failed to (C(unreachable) and C(msg)), for example of
      M(ansible.builtin.raw). Hosts that were not reached are left as they are, and count as failed.
    type: dict
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: partial
    details: In check mode only. Progress lines and the timeline show what was really done.
seealso:
  - module: progressive.rollout.replace
  - module: progressive.rollout.promote
  - module: progressive.rollout.finish
  - module: progressive.rollout.rollback
"""

EXAMPLES = r"""
- name: Roll out 2.4.1 step by step, and roll back if it fails
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
  description: The rollout and the fleet after the step. As RV(progressive.rollout.info#module:rollout).
  returned: success
  type: dict
msg:
  description: What was found, if no new rollout was opened.
  returned: when there is nothing to do, or a rollout is continued
  type: str
walker:
  description: The play's host whose tasks continue the rollout. The rollout is done once, whatever the play's hosts.
  returned: success
  type: str
elsewhere:
  description: Whether another host of the play does this, so that this one has nothing to do.
  returned: when it is so
  type: bool
next:
  description: What the rollout would do now. As RV(progressive.rollout.plan#module:next).
  returned: in check mode, when something would be done
  type: dict
"""
