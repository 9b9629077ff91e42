# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/report.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: report
short_description: Write the report of a rollout
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Writes what happened in a rollout to a page that needs no network and no scripts, to Markdown or to JUnit XML. Also returns the
    history of the service.
  - Needs only O(service) and O(store), and no lease. It reads only the journal, so it works even if load balancers and hosts do not
    answer, and C(fleet) in its result is empty.
options:
  id:
    description: Id of a rollout that C(history.yml) shows. The last one if not given.
    type: str
  show:
    description: What to also show.
    type: str
    choices:
      report: The files written, or without O(report) the Markdown.
      history: The history of the service.
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: none
    details: It does not observe the fleet.
seealso:
  - module: progressive.rollout.info
"""

EXAMPLES = r"""
- name: Write the report of the last rollout of shop
  progressive.rollout.report:
    service: shop
    store: "{{ shop_store }}"
    report: "{{ shop_reports }}/shop.html"

- name: Keep reports in every form, and an index of all rollouts
  progressive.rollout.report:
    service: shop
    store: "{{ shop_store }}"
    report: "{{ shop_reports }}/"
  register: shop

- name: Show it, for example in a merge request
  ansible.builtin.debug:
    msg: "{{ shop.markdown }}"
"""

RETURN = r"""
rollout:
  description: The rollout and the fleet after the step. As RV(progressive.rollout.info#module:rollout).
  returned: success
  type: dict
files:
  description: The files of the report. Empty without O(report), and before the first rollout.
  returned: success
  type: list
  elements: str
  sample:
    - /srv/reports/shop.html
markdown:
  description: The report as Markdown. Empty before the first rollout.
  returned: success
  type: str
history:
  description: The rollouts in the journal, newest first.
  returned: success
  type: list
  elements: dict
  contains:
    id: {description: "The rollout's id.", type: str}
    revision: {description: "The revision that was rolled out.", type: str}
    previous: {description: "The previous revision. Null for the first deployment.", type: str}
    kind: {description: "What the rollout was for.", type: str}
    outcome: {description: "How it ended. Empty while it is in progress.", type: str}
    order: {description: "O(progressive.rollout.begin#module:order) of the revision. Null if not given.", type: int}
    began: {description: "When it began, in seconds since the epoch.", type: float}
    seconds: {description: "How long it took.", type: float}
    by: {description: "Who began it. Empty in journals of earlier versions.", type: str}
    why: {description: "The reason that it was begun with. Empty if none was given.", type: str}
    reason: {description: "Why it was held, rolled back or failed.", type: str}
lines:
  description: The same as a table, and the revisions that O(progressive.rollout.rollback#module:to) accepts.
  returned: success
  type: list
  elements: str
"""
