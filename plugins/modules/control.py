# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/control.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: control
short_description: Send a command to a rollout in progress
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Writes a command for the rollout in progress to the journal. The active run obeys it within two seconds. Without an active run,
    the next run obeys it.
  - Needs only O(service) and O(store), and no lease. It does not observe the fleet, so it works even if load balancers or hosts do not
    answer, and C(fleet) in its result is empty.
  - A command that does not fit the phase of the rollout is refused; the message names those that do. Sending a command again before it
    was obeyed changes nothing.
options:
  command:
    description: The command. Required, except with O(withdraw).
    type: str
    choices:
      pause: Stop before the next action, at a gate, too, without a deadline, until V(resume) or V(promote).
      resume: Undo V(pause), or continue where the rollout is held. Lets it pass no gate.
      promote: Let the rollout continue where it waits for an operator.
      promote_full: Continue to the end, without further pauses or gates.
      skip: Continue with the next stage without waiting for this one's gates.
      abort: Roll back.
      retry: Continue where the rollout stopped after a failure.
      hold: Stop the rollout as it is, as after a failure.
      scale: Continue to O(replicas) instances. The gates of the stage are asked again.
      set_target: Let a canary by number have O(count) new instances at its stage, more or fewer. The gates of the stage
        are asked again.
      exclude: 'Leave O(host) out of the rollout: its instances leave the load balancers at once, are replaced on other
        hosts and stopped when the host answers.'
      include: Place instances on O(host) again, which was left out.
  why:
    description: Reason, for readers of the journal. No secrets.
    type: str
  force:
    description: With O(command=promote), switch with however many new instances are ready. The journal records this.
    type: bool
    default: false
  count:
    description: With O(command=set_target), how many new instances the canary is to have. 1 to 10000.
    type: int
  host:
    description: With O(command=exclude) and O(command=include), the inventory host to leave out or to bring back. It
      is not left out of the next rollout.
    type: str
  withdraw:
    description: Number of a command, as in RV(number). Withdraws that command, unless it was already obeyed, so that
      the command of a failed run does not take effect later. At least 1.
    type: int
  continues:
    description: Whether the playbook continues the rollout itself if no run is active, as those of this collection do
      after other commands than V(pause) and V(hold). A service that is deployed in place is never continued.
    type: bool
    default: false
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: none
    details: It does not observe the fleet.
seealso:
  - module: progressive.rollout.info
  - module: progressive.rollout.rollback
"""

EXAMPLES = r"""
- name: Stop the rollout of shop where it is
  progressive.rollout.control:
    service: shop
    store: "{{ shop_store }}"
    command: pause
    why: the cache is being moved

- name: Continue it
  progressive.rollout.control:
    service: shop
    store: "{{ shop_store }}"
    command: resume
"""

RETURN = r"""
rollout:
  description: The rollout and the fleet after the step. As RV(progressive.rollout.info#module:rollout).
  returned: success
  type: dict
number:
  description: The command's number in the journal. Null in check mode.
  returned: success
  type: int
running:
  description: Whether a run holds the lease, and will therefore obey.
  returned: success
  type: bool
continues:
  description: Whether the playbook continues the rollout itself; see O(continues).
  returned: success
  type: bool
acting_host:
  description: The play's host whose tasks continue the rollout. The rollout is done once, whatever the play's hosts.
  returned: success
  type: str
elsewhere:
  description: Whether another host of the play does this, so that this one has nothing to do.
  returned: when it is so
  type: bool
settings:
  description: >-
    The options that the rollout began with, without secrets, with its id as C(rollout) and a C(digest) of them as they were read.
    Other steps take them as O(restored_settings).
  returned: success
  type: dict
msg:
  description: Which command was sent, and when it takes effect.
  returned: success
  type: str
"""
