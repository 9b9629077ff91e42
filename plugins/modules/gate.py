# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation only; the code is in plugins/action/gate.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gate
short_description: Wait until something lets the rollout pass
version_added: 0.1.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Keeps the fleet of the rollout under way as it is, and in repair, until a gate lets it pass, an operator says so (M(progressive.rollout.control)),
    or the C(timeout) of the gate is over.
  - Where the gate fails it ends as O(on_failure) says.
  - Changes nothing if no rollout is under way.
options:
  gate:
    description:
      - What has to let the rollout pass. See O(gates) for what a gate takes.
    type: dict
    required: true
  label:
    description: What the gate is called in messages and in the journal.
    type: str
    default: gate
extends_documentation_fragment:
  - progressive.rollout.rollout
attributes:
  diff_mode:
    description: Returns the composition of the fleet before and after.
    support: partial
    details: In check mode only. What a walk really did is told by its progress lines and the timeline.
seealso:
  - module: progressive.rollout.control
  - module: progressive.rollout.promote
"""

EXAMPLES = r"""
- name: Let the new revision serve for a moment before going on
  progressive.rollout.gate:
    service: shop
    revision: "2.4.1"
    replicas: 4
    gate: {driver: pause, duration: 1s}
    platform: "{{ shop_platform }}"
    traffic: "{{ shop_traffic }}"
    health: {http: /healthz}
    store: "{{ shop_store }}"
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
parked:
  description: Whether the run ended because there is nothing to do but wait for somebody. Run again, it goes on.
  returned: when it is true
  type: bool
msg:
  description: What is waited for.
  returned: when the rollout was parked
  type: str
next:
  description: What would be done now.
  returned: in check mode
  type: dict
  contains:
    create: {description: "How many instances to start.", type: int}
    admit: {description: "Instances to put in rotation.", type: list, elements: str}
    shelve: {description: "Instances to take out of rotation and keep ready.", type: list, elements: str}
    drain: {description: "Instances to take out of rotation.", type: list, elements: str}
    retire: {description: "Instances to stop.", type: list, elements: str}
    reasons: {description: "Why, a sentence each.", type: list, elements: str}
    reached: {description: "Whether there is nothing left to do.", type: bool}
"""
