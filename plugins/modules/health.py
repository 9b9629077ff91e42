# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/health.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: health
short_description: Wait until instances are ready
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Waits until O(replicas) instances of O(revision), or of the stable one, are ready, for at most O(progress_deadline).
  - Reads only. In check mode it observes once and does not wait.
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: none
    details: It reads only.
seealso:
  - module: progressive.rollout.scale
  - module: progressive.rollout.info
"""

EXAMPLES = r"""
- name: Wait until 4 instances of the stable revision are ready
  progressive.rollout.health:
    service: shop
    replicas: 4
    platform: "{{ shop_platform }}"
    traffic: "{{ shop_traffic }}"
    health: {http: /healthz}
    store: "{{ shop_store }}"
"""

RETURN = r"""
rollout:
  description: The rollout and the fleet after the step. As RV(progressive.rollout.info#module:rollout).
  returned: success
  type: dict
ready:
  description: How many instances are ready.
  returned: success
  type: int
"""
