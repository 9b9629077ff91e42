# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/rollback.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollback
short_description: Roll back to the previous revision
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Rolls back a rollout in progress to the stable revision, within O(budget). If the budget has surge, old instances are in rotation
    before new ones leave.
  - A step that decides a rollback carries it out itself. So this is for what a killed run has left, and for failures of your own tasks
    between the steps. Otherwise it changes nothing.
  - If no rollout is in progress, returns to the revision before the stable one, or to the stable one if the last rollout stayed where it
    failed. Does so only once, even if the last rollout was already rolled back. A rollback is never undone.
  - A first deployment has no previous revision. All of its instances are removed, and it ends as failed.
  - If another run is active, sends it the command to roll back, which that run obeys within two seconds.
options:
  to:
    description: The revision to return to, one that was promoted and that the journal knows. The previous one if not
      given.
    type: str
  why:
    description: Reason, for readers of the journal. No secrets.
    type: str
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: partial
    details: In check mode only. Progress lines and the timeline show what was really done.
seealso:
  - module: progressive.rollout.begin
  - module: progressive.rollout.promote
"""

EXAMPLES = r"""
- name: Roll back to the previous revision
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
  description: The play's host whose tasks continue the rollout. The rollout is done once, whatever the play's hosts.
  returned: when it is another one
  type: str
elsewhere:
  description: Whether another host of the play does this, so that this one has nothing to do.
  returned: when it is so
  type: bool
sent:
  description: Whether another run is working on the rollout, and was sent the command.
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
