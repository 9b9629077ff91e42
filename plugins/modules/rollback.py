# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/rollback.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollback
short_description: Walk back to the revision before
version_added: 0.1.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Walks a rollout under way back to the stable revision, within O(budget). Where the budget has surge, old is back and in rotation before new goes.
  - With no rollout under way, rolls the service out to the revision before the stable one, or to the stable one if the last rollout was left where it
    failed. Once only, also where the last rollout was rolled back by itself. A rollback is never undone.
  - A first deployment has nothing to go back to. All of it goes, and it ends as failed.
  - While another run is at work on the rollout, tells that one to go back, which it does within two seconds.
options:
  to:
    description: The revision to return to, of those that were promoted and are known to the journal. The one before if
      not given.
    type: str
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: partial
    details: In check mode only. What a walk really did is told by its progress lines and the timeline.
seealso:
  - module: progressive.rollout.begin
  - module: progressive.rollout.promote
"""

EXAMPLES = r"""
- name: Go back to the revision before
  progressive.rollout.rollback:
    service: shop
    budget: {max_surge: 2}
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
walker:
  description: The host of the play whose tasks are to go on with it. What a play asks for is done once, whatever its hosts.
  returned: when it is another one
  type: str
elsewhere:
  description: Whether another host of the play was the first to ask for the same, and this one has nothing to do.
  returned: when it was
  type: bool
msg:
  description: Why there is nothing to roll back.
  returned: when there is nothing to roll back
  type: str
next:
  description: What the rollout would do now. As RV(progressive.rollout.plan#module:next).
  returned: in check mode, when something would be done
  type: dict
"""
