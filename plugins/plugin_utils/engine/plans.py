# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans that follow from the plan of a service: that of a revision known to be good, and that of a
rollback in steps. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from .strategy import Plan


def one_walk(plan: Plan) -> Plan:
    """Return the plan without steps and targets: all instances are replaced in one walk.

    It is watched as before, and what a person has to confirm stays.
    """
    return replace(plan, strategy="rolling", steps=(), opening=(), waves=(), standby=None)


def back_in_steps(plan: Plan) -> Plan:
    """Return the plan of a rollback that takes the steps of a canary.

    Nothing is asked that may end a rollback, and no instance of the revision left stays.
    """
    return Plan("canary", plan.steps, plan.opening, waves=plan.waves)
