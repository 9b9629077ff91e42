# SPDX-License-Identifier: GPL-3.0-or-later
"""Which refusals of a load balancer end a rollout early: those that never change."""

from __future__ import annotations

from itertools import accumulate

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.refusals import (
    ATTEMPTS,
    LONGEST,
    Refusal,
    repeated,
)
from hypothesis import given
from hypothesis import strategies as st

pauses = st.lists(st.floats(0.1, 60), min_size=1, max_size=200)


def after(texts: list[str], times: list[float]) -> list[Refusal]:
    """Return the refusal after each of these answers."""
    refusal: Refusal | None = None
    seen = []
    for text, at in zip(texts, times, strict=True):
        refusal = repeated(refusal, text, at)
        seen.append(refusal)
    return seen


@given(pauses)
def test_refusal_that_never_changes_is_final_in_time(pauses: list[float]) -> None:
    times = list(accumulate(pauses))
    for number, (refusal, now) in enumerate(
        zip(after(["invalid"] * len(times), times), times, strict=True), 1
    ):
        assert refusal.is_final(now) is (number >= ATTEMPTS and now - times[0] >= LONGEST)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0.1, 60)), min_size=1, max_size=200))
def test_refusal_that_changed_within_a_minute_is_not_final(
    answers: list[tuple[str, float]],
) -> None:
    texts, times = [text for text, _ in answers], list(accumulate(pause for _, pause in answers))
    for number, (refusal, now) in enumerate(zip(after(texts, times), times, strict=True)):
        recent = {
            text for text, at in zip(texts[: number + 1], times, strict=False) if now - at < LONGEST
        }
        if len(recent) > 1:
            assert not refusal.is_final(now)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_refusal_is_never_final_after_few_attempts(start: float, waited: float) -> None:
    refusal = Refusal("invalid", start, ATTEMPTS - 1)
    assert not refusal.is_final(start + waited)
