# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/control.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: control
short_description: Say an operator's word to a rollout under way
version_added: 0.1.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Writes a word into the journal, for the rollout under way. Whoever runs that obeys within two seconds; if nobody does,
    it is obeyed when the rollout is next run.
  - Needs O(service) and O(store) only, and no lease. It does not look at the fleet, so the C(fleet) of its result is empty, and
    it works while load balancers or hosts do not answer.
  - A word that makes no sense as the rollout stands is refused, with what would. The same word again, before it was obeyed,
    changes nothing.
options:
  command:
    description:
      - The word. Required, but for O(withdraw).
    type: str
    choices:
      pause: Stop before the next action, without a deadline, until told to go on.
      resume: Go on after a pause, or where it is held.
      promote: Let it pass where it waits for a person.
      promote_full: Go straight to the end, without any more pauses and gates.
      skip: Go on to the next stage without waiting for what keeps this one.
      abort: Go back to the revision before.
      retry: Go on where it stopped after a failure.
      hold: Stop it as it is, as after a failure.
      scale: Go on to O(replicas) instances. The gates of the stage are asked anew.
  why:
    description:
      - Why, for those who read the journal later. No secrets.
    type: str
  force:
    description:
      - With O(command=promote). Switch with however many new instances are ready. It is recorded.
    type: raw
    default: false
  withdraw:
    description:
      - The number of a word, as RV(number) has it. Takes that word back, unless it was obeyed. For who could not go on with the rollout, so that
        what ended red does not act later.
    type: int
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: none
    details: It does not look at the fleet.
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

- name: Go on with it
  progressive.rollout.control:
    service: shop
    store: "{{ shop_store }}"
    command: resume
"""

RETURN = r"""
rollout:
  description:
    - The rollout and the fleet as they stand after the step. Also returned by a step that fails, once it has looked at the fleet.
  returned: success
  type: dict
  contains:
    id: {description: "The rollout's id, which names its timeline.", type: str}
    service: {description: "Name of the service.", type: str}
    revision: {description: "The revision that is, or was last, rolled out.", type: str}
    generation: {description: "Its number. Instances carry it beside their revision.", type: int}
    previous: {description: "The revision before it.", type: str}
    stable: {description: "The revision that a rollback of a rollout under way goes back to.", type: str}
    strategy: {description: "The strategy.", type: str}
    kind: {description: "What it is, V(rollout), V(restart), V(scale), V(rebalance) or V(rollback).", type: str}
    phase:
      description:
        - Where it stands. V(progressing), V(paused), V(awaiting_promotion), V(promoting), V(holding), V(held), V(rolling_back) or V(finished).
        - V(holding) is promoted, with the old instances kept ready. V(held) is stopped after a failure, for a person to decide.
      type: str
    outcome: {description: "How it ended, V(promoted), V(rolled_back), V(aborted), V(failed) or V(superseded); empty before.", type: str}
    reason: {description: "Why it is held, was rolled back or failed.", type: str}
    stage: {description: "The stage of the strategy that it walks to or waits at.", type: str}
    share:
      description: The new revision's share of the requests in percent. Empty where no rollout is under way.
      type: dict
      contains:
        asked: {description: "What the stage asks for. Null where it is what the number of instances comes to.", type: int}
        set: {description: "What the load balancers are set to now.", type: float}
        measured: {description: "What the load balancers counted since the stage was reached. Null before the first request.", type: float}
        requests: {description: "How many requests they counted.", type: int}
    waiting: {description: "The gates that it waits at, with what they said last.", type: list, elements: str}
    analysis: {description: "How each analysis stands that it is judged by now, in a sentence.", type: dict}
    paused: {description: "By whom, when and why it was paused, if an operator did. Otherwise empty.", type: dict}
    step: {description: "The last step that worked on it.", type: str}
    started: {description: "When it began, in seconds since the epoch.", type: float}
    updated: {description: "When it was last written down, in seconds since the epoch.", type: float}
    elapsed: {description: "Seconds spent walking.", type: float}
    replaced: {description: "Instances taken out in favour of others.", type: int}
    fleet: {description: "By revision, how many instances are in each state, and the share of new requests (RV(ignore:traffic)) in percent.", type: dict}
    changed: {description: "Whether this step changed anything.", type: bool}
number:
  description: The word's number in the journal. Null in check mode.
  returned: success
  type: int
running:
  description: Whether somebody holds the lease, so is at work on the rollout and will obey.
  returned: success
  type: bool
walker:
  description: The host of the play whose tasks are to go on with it. What a play asks for is done once, whatever its hosts.
  returned: success
  type: str
elsewhere:
  description: Whether another host of the play was the first to ask for the same, and this one has nothing to do.
  returned: when it was
  type: bool
settings:
  description: What the rollout was given when it began, but for what is secret. To go on with it, for O(kept) of the other steps.
  returned: success
  type: dict
msg:
  description: What was said, and who obeys when.
  returned: success
  type: str
"""
