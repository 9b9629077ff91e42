# SPDX-License-Identifier: GPL-3.0-or-later
"""How often systemd has started a unit again, whenever its agent looks."""

from __future__ import annotations

import itertools
import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import systemd

FIRST = {"SubState": "running", "NRestarts": "0", "InvocationID": "a", "Job": "0"}
WAITING = {"SubState": "auto-restart", "NRestarts": "0", "InvocationID": "a", "Job": "0"}
# systemd counts when it enqueues the start, which is a state of its own from version 254 on:
# https://github.com/systemd/systemd/blob/v252/src/core/service.c (service_enter_restart)
QUEUED = {"SubState": "auto-restart", "NRestarts": "1", "InvocationID": "a", "Job": "77"}
QUEUED_254 = {**QUEUED, "SubState": "auto-restart-queued"}
SECOND = {"SubState": "running", "NRestarts": "1", "InvocationID": "b", "Job": "0"}


def looks(*units: dict[str, str]) -> int:
    """How many restarts are known after these looks."""
    service = systemd.Service.__new__(systemd.Service)
    service.boot = "boot"
    service.save = lambda record: None  # type: ignore[method-assign]
    record: dict[str, t.Any] = {"invocation": "a"}
    for unit in units:
        service.restarts(record, unit)
    return t.cast(int, record.get("restarts", 0))


@pytest.fixture(autouse=True)
def no_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "_how", lambda *_, **_more: "killed by signal 9")


@pytest.mark.parametrize("queued", [QUEUED, QUEUED_254])
def test_a_restart_counts_once_whichever_of_its_states_are_seen(queued: dict[str, str]) -> None:
    states = (WAITING, queued, SECOND)
    for number in range(1, 4):
        for seen in itertools.combinations(states, number):
            assert looks(FIRST, *seen) == 1, [unit["SubState"] for unit in seen]


def test_one_that_somebody_else_started_counts() -> None:
    assert looks(FIRST, {**SECOND, "NRestarts": "0"}) == 1
