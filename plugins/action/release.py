# SPDX-License-Identifier: GPL-3.0-or-later
"""Begin a release of several services, say whose turn it is, show it, or take it back."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ..plugin_utils.base import clock
from ..plugin_utils.base.errors import InputError, RolloutFailed
from ..plugin_utils.config.release import Membership
from ..plugin_utils.config.step_options import SHOW, WHY
from ..plugin_utils.controller.step import reason
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.engine import release as engine
from ..plugin_utils.engine.release import Release, ReleasePhase
from ..plugin_utils.inputs.options import MAPPING, Field, Options, choice
from ..plugin_utils.report import release as report

COMMANDS = {
    "check": "Only check the variables of a member.",
    "begin": "Begin the release, or continue it.",
    "next": "Return the member whose turn it is.",
    "end": "Fail if the release is held or was taken back.",
    "taken_back": "Fail unless the release was taken back, but for members that cannot go back.",
    "abort": "Take the release back. Its members do so when they are run.",
    "show": "Return the release.",
}


class ActionModule(StepAction):
    opens = True
    options = Options(
        Field("command", choice(**COMMANDS), "What to do with the release.", default="show"),
        Field(
            "turn",
            MAPPING,
            "With V(next) and V(end), what the last turn returned as RV(turn). With V(next), also"
            " C(failed) if that turn failed.",
            default={},
        ),
        WHY,
        SHOW,
    )

    def needs_platform(self, args: Mapping[str, t.Any]) -> bool:
        return str(args.get("command")) == "check"

    def perform(self, step: StepContext) -> Result:
        membership, command = step.settings.release, step.options["command"]
        if membership is None:
            raise InputError("rollout_release: not given, but required", "PR-102")
        if command == "check":
            step.session.read()
            step.release.check(membership)
            return step.report(False)
        if command == "begin" and not membership.members:
            raise InputError(
                "rollout_release.members: not given, and release.yml needs all members", "PR-102"
            )
        changed, release = _obey(step, membership)
        if release is None:
            return step.report(False, release={}, lines=[], turn={})
        given = step.options["turn"]
        turn = next_turn(release, given, clock.wall()) if command == "next" else {}
        lines = report.lines(release, clock.wall())
        if changed and step.check_mode:
            step.show(["check mode: nothing is changed; the release would be as follows", *lines])
        if failure := _failure(command, release, given):
            step.show(lines)
            raise RolloutFailed(failure, "PR-636")
        done = command == "begin" and release.phase is ReleasePhase.PROMOTED
        known = {"msg": f"release {release.name} is promoted; nothing to do"} if done else {}
        return step.report(changed, release=report.data(release), lines=lines, turn=turn, **known)


def _obey(step: StepContext, membership: Membership) -> tuple[bool, Release | None]:
    """Begin or abort the release, or read it; return whether it changed."""
    link, command, name = step.release, step.options["command"], membership.release
    before = after = link.releases.read().get(name)
    if command == "begin":
        after = link.begin(membership)
    elif command == "abort":
        if before is None:
            raise RolloutFailed(f"rollout_release: there is no release {name}", "PR-633")
        why = reason.given(step.options)
        after = link.abort(name, f"abort sent by {step.session.identity.holder}", why)
    return after != before, after


def _failure(command: str, release: Release, turn: Mapping[str, t.Any]) -> str:
    """Return why the playbook fails at its end; empty: it does not."""
    if command == "taken_back" and release.phase is not ReleasePhase.BACK:
        return report.not_taken_back(release)
    bad = (ReleasePhase.HELD, ReleasePhase.GOING_BACK, ReleasePhase.BACK)
    failed = list(turn.get("failed_before") or ())
    if command == "end" and (release.phase in bad or failed):
        return report.ended(release, failed)
    return ""


def next_turn(release: Release, last: Mapping[str, t.Any], now: float) -> dict[str, t.Any]:
    """Return whose turn it is; `member` is empty where nobody's is.

    A turn that changed nothing is not repeated before something has changed.
    """
    stuck, failed = list(last.get("stuck") or ()), list(last.get("failed_before") or ())
    if member := last.get("member"):
        same = last.get("updated") == release.updated
        stuck = [*stuck, member] if same else []
        failed += [member] if last.get("failed") else []
    listed = [m.name for m in engine.ordered(release.members.values())]
    if release.phase is ReleasePhase.GOING_BACK:
        listed.reverse()
    due = (
        name
        for name in listed
        if name not in (*stuck, *failed) and engine.has_turn(release, name, now)
    )
    return {
        "member": next(due, ""),
        "updated": release.updated,
        "stuck": stuck,
        "failed_before": failed,
    }
