# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that an operator may send to a rollout in progress, and the phases in which each one
fits. Pure.

Journals and timelines have had the name of a command under `word` from the beginning, and keep it.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Iterator, Mapping

from ..engine.model import Phase

if t.TYPE_CHECKING:
    from .lease import Session
    from .record import Rollout

COMMANDS: Mapping[str, str] = {
    "pause": (
        "Stop before the next action, at a gate, too, without a deadline, until V(resume) or"
        " V(promote)."
    ),
    "resume": "Undo V(pause), or continue where the rollout is held. Lets it pass no gate.",
    "promote": "Let the rollout continue where it waits for an operator.",
    "promote_full": "Continue to the end, without further pauses or gates.",
    "skip": "Continue with the next stage without waiting for this one's gates.",
    "abort": "Roll back.",
    "retry": "Continue where the rollout stopped after a failure.",
    "hold": "Stop the rollout as it is, as after a failure.",
    "scale": "Continue to O(replicas) instances. The gates of the stage are asked again.",
    "set_target": (
        "Let a canary by number have O(count) new instances at its stage, more or fewer. The gates"
        " of the stage are asked again."
    ),
    "exclude": (
        "Leave O(host) out of the rollout: its instances leave the load balancers at once, are"
        " replaced on other hosts and stopped when the host answers."
    ),
    "include": "Place instances on O(host) again, which was left out.",
}
OF_HOSTS = ("exclude", "include")
CHANGING = ("pause", "abort", "hold", "scale", "set_target", *OF_HOSTS)  # not only continuing
GIVE_WAY = "give_way"  # sent by a run that supersedes this rollout: leave it as it is
WITHDRAW = "withdraw"  # withdraws the command whose number is in `of`, unless it was obeyed

# The commands that fit each phase; `resume` fits those of PAUSABLE, too, after a `pause`.
FITTING: Mapping[Phase, tuple[str, ...]] = {
    Phase.PROGRESSING: (
        "pause",
        "promote_full",
        "skip",
        "abort",
        "hold",
        "scale",
        "set_target",
        *OF_HOSTS,
    ),
    Phase.PAUSED: (
        "pause",
        "promote",
        "promote_full",
        "skip",
        "abort",
        "hold",
        "scale",
        "set_target",
        *OF_HOSTS,
    ),
    Phase.AWAITING_PROMOTION: (
        "promote",
        "promote_full",
        "skip",
        "pause",
        "abort",
        "hold",
        "scale",
        *OF_HOSTS,
    ),
    Phase.PROMOTING: ("pause", "abort", "hold", "scale", *OF_HOSTS),
    Phase.HOLDING: ("pause", "promote_full", "skip", "abort", "hold", "scale", *OF_HOSTS),
    Phase.HELD: ("resume", "retry", "abort", "scale", *OF_HOSTS),
    Phase.ROLLING_BACK: ("hold", *OF_HOSTS),
    Phase.FINISHED: (),
}

PAUSABLE = (Phase.PAUSED, Phase.PROMOTING, Phase.HOLDING)  # the phases of a paused rollout

# Why other commands do not fit, and which do.
_IN_PHASE: Mapping[Phase, str] = {
    Phase.PROGRESSING: (
        "it is not waiting; use promote_full to skip all steps, or pause to stop here"
    ),
    Phase.PAUSED: (
        "it waits, and has not failed; use promote to continue where it waits, or abort to roll"
        " back"
    ),
    Phase.AWAITING_PROMOTION: (
        "it waits to switch traffic; use promote to switch it, or abort to roll back"
    ),
    Phase.PROMOTING: "it is being promoted; use hold to stop here, or abort to roll back",
    Phase.HOLDING: (
        "it keeps the old instances for a while; use skip to stop them, or abort to roll back"
    ),
    Phase.HELD: "it stopped after a failure; use resume to continue, or abort to roll back",
    Phase.ROLLING_BACK: "it is being rolled back; use hold to stop here",
    Phase.FINISHED: "no rollout is in progress; start one with rollout.yml or restart.yml",
}
_FOR_COMMAND: Mapping[tuple[Phase, str], str] = {
    (
        Phase.PROGRESSING,
        "resume",
    ): "no operator has paused it; use pause to stop here, or abort to roll back",
    (Phase.PAUSED, "resume"): (
        "no operator has paused it, and resume passes no gate; use promote to continue where it"
        " waits, or pause to stay there"
    ),
    (Phase.PROMOTING, "promote"): "it is already being promoted; use abort to roll back",
    (Phase.PROMOTING, "promote_full"): "it is already being promoted; use abort to roll back",
    (
        Phase.HOLDING,
        "promote",
    ): "it is already promoted; use skip to stop the old instances now, or abort to roll back",
    (Phase.HELD, "hold"): "it is already held; use resume to continue, or abort to roll back",
    (
        Phase.ROLLING_BACK,
        "scale",
    ): "it is being rolled back to the number of instances before; use hold to stop here",
    (Phase.ROLLING_BACK, "abort"): "it is already being rolled back; use hold to stop here",
    (
        Phase.ROLLING_BACK,
        "retry",
    ): "a rollback cannot be undone; roll the revision out again (rollout.yml) after it",
    (
        Phase.FINISHED,
        "exclude",
    ): "no rollout is in progress; run rollout.yml without the host in rollout_platform.hosts",
    (
        Phase.FINISHED,
        "include",
    ): "no rollout is in progress; the next one, as by rollout.yml, has all hosts",
    (
        Phase.FINISHED,
        "scale",
    ): "no rollout is in progress; run rollout.yml with another rollout_replicas",
    (
        Phase.FINISHED,
        "abort",
    ): "no rollout is in progress; use rollback.yml to return to the previous revision",
    (
        Phase.FINISHED,
        "retry",
    ): "no rollout is in progress; roll the revision out again (rollout.yml)",
}

# The phase that a pending command leads to, where that matters to the next command.
_AHEAD: Mapping[str, Phase] = {
    "hold": Phase.HELD,
    "abort": Phase.ROLLING_BACK,
}


def not_withdrawn(sent: Iterable[Mapping[str, t.Any]]) -> list[Mapping[str, t.Any]]:
    """Return the commands that were not withdrawn."""
    listed = list(sent)
    withdrawn = {command.get("of") for command in listed if command["word"] == WITHDRAW}
    return [
        command
        for command in listed
        if command["word"] != WITHDRAW and command["number"] not in withdrawn
    ]


def pending(rollout: Rollout, sent: Iterable[Mapping[str, t.Any]]) -> list[Mapping[str, t.Any]]:
    """Return the commands of operators for a rollout, of those that no run has obeyed yet."""
    return [
        command
        for command in not_withdrawn(sent)
        if command["rollout"] == rollout.id and command["word"] != GIVE_WAY
    ]


def overtaken(command: Mapping[str, t.Any], sent: Iterable[Mapping[str, t.Any]]) -> str:
    """Return why a hold is not obeyed, though it fits: a command that was sent after it ends it."""
    if command["word"] != "hold":
        return ""
    ends = [
        sentence(later)
        for later in sent
        if later["number"] > command["number"]
        and later["rollout"] == command["rollout"]
        and later["word"] in ("abort", "resume", "retry")
    ]
    return f"{ends[0]} after it" if ends else ""


def left_out(rollout: Rollout, sent: Iterable[Mapping[str, t.Any]]) -> list[str]:
    """Return the hosts that are left out of a rollout once it has obeyed these commands."""
    hosts = dict.fromkeys(rollout.excluded)
    for command in not_withdrawn(sent):
        if command["rollout"] == rollout.id and command["word"] == "exclude":
            hosts[command["place"]] = None
        elif command["rollout"] == rollout.id and command["word"] == "include":
            hosts.pop(command["place"], None)
    return list(hosts)


def pending_abort(session: Session) -> Mapping[str, t.Any] | None:
    """Return the command to abort the rollout in progress that no run has obeyed yet."""
    rollout = session.record.open
    if rollout is None or refusal(rollout.phase, "abort"):
        return None
    sent = not_withdrawn(session.commands())
    aborts = (
        command
        for command in sent
        if (command["word"], command["rollout"]) == ("abort", rollout.id)
    )
    return next(aborts, None)


def refusal(phase: Phase, command: str, force: bool = False, paused: bool = False) -> str:
    """Return why a command does not fit a rollout in `phase` (finished: there is none), and which
    does; "" if it fits.

    With `force`, promote fits before all instances are ready. `paused`: by an operator.
    """
    if command == "resume" and paused and phase in PAUSABLE:
        return ""
    if command == GIVE_WAY and phase not in (Phase.ROLLING_BACK, Phase.FINISHED):
        return ""
    if command in FITTING[phase] or (force and (phase, command) == (Phase.PROGRESSING, "promote")):
        return ""
    return _FOR_COMMAND.get((phase, command)) or _IN_PHASE[phase]


def ahead(phase: Phase, command: str, paused: bool = False) -> tuple[Phase, bool]:
    """Return the phase by which to judge the next command, and whether an operator has paused the
    rollout then, while `command` was sent in `phase` and is still pending.
    """
    if command in ("scale", "set_target", *OF_HOSTS):
        return phase, paused
    ending = phase in (Phase.PROMOTING, Phase.HOLDING)
    if command == "pause":
        return phase if ending else Phase.PAUSED, True
    return _AHEAD.get(command) or (Phase.PROMOTING if ending else Phase.PROGRESSING), False


def ways_out(rollout: Rollout) -> Iterator[tuple[str, str]]:
    """Yield what `resume`, `promote` and `abort` do to a paused rollout: effect and command."""
    gate = next(iter(rollout.waiting), "").partition(":")[0] if rollout.phase.waits else ""
    if rollout.phase in (Phase.PROMOTING, Phase.HOLDING):
        yield "undo the pause", "resume"
        if rollout.phase == Phase.HOLDING:
            yield "stop the old instances now", "skip"
    elif gate:
        yield f"wait at {gate} as before", "resume"
        yield f"pass {gate} and continue", "promote"
    else:
        yield "continue", "resume"
    yield "roll back", "abort"


def outcome(command: Mapping[str, t.Any], refused: str, ineffective: str) -> str:
    """Return a command and what became of it, for people."""
    sent = sentence(command)
    if refused:
        return f"{sent}; refused: {refused} [PR-700]"
    return f"{sent}; without effect: {ineffective}" if ineffective else sent


def sentence(command: Mapping[str, t.Any]) -> str:
    """Return a command, who sent it and why, for people."""
    number = f" to {command['replicas']}" if command.get("replicas") else ""
    place = f" {command['place']}" if command.get("place") else ""
    why = f": {command['why']}" if command.get("why") else ""
    return f"{command['word']}{place}{number} sent by {command['by']}{why}"
