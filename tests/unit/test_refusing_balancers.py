# SPDX-License-Identifier: GPL-3.0-or-later
"""A load balancer that answers, and refuses the same change each time, with the same words."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    RolloutFailed,
    TrafficError,
)
from ansible_collections.progressive.rollout.tests.support.memory import Service, World

pytestmark = pytest.mark.usefixtures("virtual_time")

WORDS = "lb1: HTTP 500: invalid upstream name"
MINUTE = 60.0


def refuses(
    words: Callable[[], str], until: float = float("inf")
) -> Callable[[str], Exception | None]:
    """Return how a balancer refuses each change, up to a time."""

    def fails(call: str) -> Exception | None:
        return TrafficError(words()) if call == "apply before" and clock.now() < until else None

    return fails


def deployed(world: World, **given: object) -> Service:
    service = Service(world, replicas=3, wait=60)
    service.play(revision="1", **given)
    return service


def test_first_deployment_that_is_always_refused_ends_early() -> None:
    world = World(fewest=0, fails=refuses(lambda: WORDS))
    began = clock.now()
    with pytest.raises(RolloutFailed, match=r"refused .* times .* HTTP 500: invalid") as failed:
        deployed(world, progress_deadline=600)
    assert failed.value.id == "PR-350"
    assert MINUTE <= clock.now() - began < 2 * MINUTE
    assert not world.alive()


def test_refusal_with_nothing_replaced_ends_early() -> None:
    service = deployed(World(fewest=0))
    service.world.fewest = 3
    service.world.fails = refuses(lambda: WORDS)
    began = clock.now()
    with pytest.raises(RolloutFailed, match="refused the same change"):
        service.play(revision="2", progress_deadline=600)
    assert clock.now() - began < 2 * MINUTE
    assert service.running == {"1": 3} and service.world.serving() == 3


def test_refusal_that_passes_in_half_a_minute_is_waited_out() -> None:
    until = clock.now() + MINUTE / 2
    service = deployed(
        World(fewest=0, fails=refuses(lambda: WORDS, until=until)),
        progress_deadline=600,
    )
    assert service.running == {"1": 3}


def test_balancer_that_does_not_answer_is_waited_for() -> None:
    until: list[float] = []

    def fails(call: str) -> Exception | None:
        if call == "apply before" and not until:
            until.append(clock.now() + 5 * MINUTE)
        away = until and call in ("apply before", "observe") and clock.now() < until[0]
        return TrafficError(WORDS) if away else None

    service = deployed(World(fewest=0, fails=fails), progress_deadline=600)
    assert service.running == {"1": 3}


def test_refusals_before_and_after_a_restart_are_not_added_up() -> None:
    began: list[float] = []

    def fails(call: str) -> Exception | None:
        if call == "apply before" and not began:
            began.append(clock.now())
        waited = clock.now() - began[0] if began else 0.0
        restarts = 30 < waited < 60
        refuses = call == "apply before" and waited < 90
        away = restarts and call == "observe"
        return TrafficError(WORDS) if began and (refuses or away) else None

    service = deployed(World(fewest=0, fails=fails), progress_deadline=600)
    assert service.running == {"1": 3}


def test_refusal_in_other_words_each_time_is_waited_out() -> None:
    until, number = clock.now() + 5 * MINUTE, itertools.count()
    words = refuses(lambda: f"{next(number)} left to do", until=until)
    service = deployed(World(fewest=0, fails=words), progress_deadline=600)
    assert service.running == {"1": 3}


def test_refusal_amid_replaced_instances_is_waited_out() -> None:
    service = deployed(World(fewest=0))
    service.world.fewest = 3
    until: list[float] = []

    def fails(call: str) -> Exception | None:
        if call != "apply before" or service.running.get("2", 0) < 2:
            return None
        if not until:
            until.append(clock.now() + 5 * MINUTE)
        return TrafficError(WORDS) if clock.now() < until[0] else None

    service.world.fails = fails
    service.play(revision="2", progress_deadline=600)
    assert service.running == {"2": 3} and until
