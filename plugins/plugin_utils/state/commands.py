# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an operator may say to a rollout under way, and in which phase it makes sense. Pure."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Phase

WORDS = ("pause", "resume", "promote", "promote_full", "skip", "abort", "retry", "hold", "scale")
GIVE_WAY = "give_way"  # said by a run that supersedes this rollout: leave it as it is
WITHDRAW = "withdraw"  # takes back the word whose number it has in `of`, if that was not obeyed yet

# The words that make sense in each phase.
_WALKING = ("pause", "promote_full", "skip", "abort", "hold", "scale")
SENSE: Mapping[Phase, tuple[str, ...]] = {
    Phase.PROGRESSING: _WALKING,
    Phase.PAUSED: ("resume", "promote", "promote_full", "skip", "abort", "hold", "scale"),
    Phase.AWAITING_PROMOTION: ("promote", "promote_full", "skip", "pause", "abort", "hold", "scale"),
    Phase.PROMOTING: ("abort", "hold", "scale"),
    Phase.HOLDING: ("promote_full", "skip", "abort", "hold", "scale"),
    Phase.HELD: ("resume", "retry", "abort"),
    Phase.ROLLING_BACK: ("hold",),
    Phase.FINISHED: (),
}

# Why any other word makes none, and what would.
_OTHERWISE: Mapping[Phase, str] = {
    Phase.PROGRESSING: "it is not waiting for anybody; promote_full goes straight to the end, pause stops it here",
    Phase.PAUSED: "it is paused, not stopped by a failure; resume goes on with it, abort goes back",
    Phase.AWAITING_PROMOTION: "the new instances are ready and wait for their traffic; promote gives it to them, abort takes them away",
    Phase.PROMOTING: "the new revision is just being given all traffic; hold stops it as it is, abort goes back",
    Phase.HOLDING: "the new revision has all traffic and the old one is kept for a while; skip ends that, abort goes back",
    Phase.HELD: "it stopped after a failure; retry goes on from here, abort goes back",
    Phase.ROLLING_BACK: "it is on its way back; hold stops it as it is",
    Phase.FINISHED: "no rollout is under way; rollout.yml begins one, restart.yml replaces what runs by the same revision",
}
_ESPECIALLY: Mapping[tuple[Phase, str], str] = {
    (Phase.PAUSED, "pause"): "it is paused already; resume goes on with it",
    (Phase.PROMOTING, "promote"): "it is being promoted already; abort goes back",
    (Phase.PROMOTING, "promote_full"): "it is being promoted already; abort goes back",
    (Phase.HOLDING, "promote"): "it is promoted already; skip takes the old instances away now, abort goes back to them",
    (Phase.HELD, "hold"): "it is held already; retry goes on from here, abort goes back",
    (Phase.HELD, "scale"): "it stopped after a failure; retry goes on from here, abort goes back, and either can be scaled then",
    (Phase.ROLLING_BACK, "scale"): "it is on its way back to as many as there were; hold stops it as it is",
    (
        Phase.FINISHED,
        "scale",
    ): "no rollout is under way; rollout.yml with the revision that runs and another rollout_replicas scales it",
    (Phase.ROLLING_BACK, "abort"): "it is on its way back already; hold stops it as it is",
    (
        Phase.ROLLING_BACK,
        "retry",
    ): "there is never a rollback of a rollback; roll the revision out again (rollout.yml) once this is over",
    (Phase.FINISHED, "abort"): "no rollout is under way; rollback.yml goes back to the revision before",
    (Phase.FINISHED, "retry"): "no rollout is under way; roll the revision out again (rollout.yml)",
}

# Where a word that is said and not obeyed yet leads, as far as it matters to the next word.
_AHEAD: Mapping[str, Phase] = {"pause": Phase.PAUSED, "hold": Phase.HELD, "abort": Phase.ROLLING_BACK}


def standing(found: Iterable[Mapping[str, t.Any]]) -> list[Mapping[str, t.Any]]:
    """The words among those found that were not taken back."""
    listed = list(found)
    withdrawn = {word.get("of") for word in listed if word["word"] == WITHDRAW}
    return [word for word in listed if word["word"] != WITHDRAW and word["number"] not in withdrawn]


def refusal(phase: Phase, word: str, force: bool = False) -> str:
    """Why `word` makes no sense to a rollout in `phase` (Phase.FINISHED where there is none), and what would; "" if it does.

    With `force` nobody waits for all to be ready, so promote makes sense before they are.
    """
    if word == GIVE_WAY and phase not in (Phase.ROLLING_BACK, Phase.FINISHED):
        return ""
    if word in SENSE[phase] or (force and (phase, word) == (Phase.PROGRESSING, "promote")):
        return ""
    return _ESPECIALLY.get((phase, word)) or _OTHERWISE[phase]


def ahead(phase: Phase, word: str) -> Phase:
    """The phase in which to judge the next word, while `word` was said in `phase` and is not obeyed yet."""
    if word == "scale":
        return phase
    return _AHEAD.get(word) or (Phase.PROMOTING if phase in (Phase.PROMOTING, Phase.HOLDING) else Phase.PROGRESSING)
