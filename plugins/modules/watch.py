# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/watch.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: watch
short_description: Watch a service during a rollout, and after its promotion
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Follows the rollout in progress, as M(progressive.rollout.follow) does.
  - Then asks the background analysis and the rollback gates for O(watch) after the rollout's end. Ends when one of them calls for a rollback, or when
    another rollout begins.
  - If one of them calls for a rollback, rolls back to the previous revision, as M(progressive.rollout.rollback) does, and fails with the reason.
    Until then it only reads, and needs no lease.
  - Can be killed and run again. It then starts its measurements anew, for the time that is left.
options:
  watch:
    description: How long C(watch.yml) asks background gates and analysis, and rollback gates, after a promotion. If one
      of them calls for it, it rolls back to the previous revision. A duration.
    type: raw
    default: 0
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: none
    details: A rollback shows what it does as it goes.
seealso:
  - module: progressive.rollout.follow
  - module: progressive.rollout.rollback
"""

EXAMPLES = r"""
- name: Watch shop for an hour after its promotion
  progressive.rollout.watch:
    service: shop
    platform: "{{ shop_platform }}"
    traffic: "{{ shop_traffic }}"
    health: {http: /healthz}
    store: "{{ shop_store }}"
    analysis:
      metrics: [{name: errors, success_condition: result.new.error_rate < 0.02}]
    watch: 1h
"""

RETURN = r"""
rollout:
  description: The rollout and the fleet after the step. As RV(progressive.rollout.info#module:rollout).
  returned: success
  type: dict
msg:
  description: What was watched, and until when.
  returned: success
  type: str
"""
