# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/release.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release
short_description: Begin, show or abort a release of several services
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Begins a release, whose members are promoted together, in order, or not at all, says which member is next, shows it, or
    takes it back.
  - Moves no member. Their rollouts do that, with the same O(release).
  - Needs no lease of a service, and neither hosts nor load balancers.
options:
  command:
    description: What to do with the release.
    type: str
    choices:
      check: Only check the variables of a member.
      begin: Begin the release, or continue it.
      next: Return the member whose turn it is.
      end: Fail if the release is held or was taken back.
      taken_back: Fail unless the release was taken back, but for members that cannot go back.
      abort: Take the release back. Its members do so when they are run.
      show: Return the release.
    default: show
  turn:
    description: With V(next) and V(end), what the last turn returned as RV(turn). With V(next), also C(failed) if that
      turn failed.
    type: dict
    default: {}
  why:
    description: Reason, for readers of the journal. No secrets.
    type: str
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
    details: It changes no fleet.
seealso:
  - module: progressive.rollout.begin
  - module: progressive.rollout.control
"""

EXAMPLES = r"""
- name: Begin a release in which the worker comes after the shop
  progressive.rollout.release:
    service: shop
    store: "{{ shop_store }}"
    release:
      name: "2026.47"
      members:
        shop:
        worker: {after: [shop], soak: 10m}
    command: begin

- name: Show where its members are
  progressive.rollout.release:
    service: shop
    store: "{{ shop_store }}"
    release: {name: "2026.47"}
    show: true

- name: Take it back
  progressive.rollout.release:
    service: shop
    store: "{{ shop_store }}"
    release: {name: "2026.47"}
    command: abort
    why: wrong prices
"""

RETURN = r"""
rollout:
  description: The rollout and the fleet after the step. As RV(progressive.rollout.info#module:rollout).
  returned: success
  type: dict
release:
  description: The release, with its C(phase), the C(reason) why it is held or goes back, its C(members), each with its C(place),
    and its C(log). Empty if there is none of this name.
  returned: success
  type: dict
turn:
  description: With O(command=next), the C(member) whose turn it is, empty if it is nobody's, and what the next call of the
    step needs to know.
  returned: success
  type: dict
lines:
  description: The release for people.
  returned: success
  type: list
  elements: str
  sample:
    - "release 2026.47 is progressing (began 2026-11-21 09:30:12)"
"""
