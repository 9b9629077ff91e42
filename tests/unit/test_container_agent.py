# SPDX-License-Identifier: GPL-3.0-or-later
"""How a container ended, as the agent on its host tells it."""

from __future__ import annotations

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import container

STARTED = "2026-11-25T10:00:00.500Z"


@pytest.mark.parametrize(
    ("finished", "ending"),
    [
        ("2026-11-25T10:00:02.000Z", "exit code 3 within 1.5 s of its start; its log is empty"),
        # docker notes the start of a container that ends at once after its end
        ("2026-11-25T10:00:00.400Z", "exit code 3 within 0.0 s of its start; its log is empty"),
        ("2026-11-25T09:00:00.000Z", "gone: the host was restarted"),
        ("0001-01-01T00:00:00Z", "gone: the host was restarted"),
    ],
)
def test_an_end_that_was_not_seen_is_told_from_a_short_life(
    monkeypatch: pytest.MonkeyPatch, finished: str, ending: str
) -> None:
    monkeypatch.setattr(container.Service, "call", lambda *_words, **_more: (0, "", ""))
    service = container.Service.__new__(container.Service)
    service.boot = "now"
    state = {"StartedAt": STARTED, "FinishedAt": finished, "ExitCode": 3}
    assert service.ending({"id": "shop-1", "boot": "now"}, state) == ending
