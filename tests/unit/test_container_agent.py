# SPDX-License-Identifier: GPL-3.0-or-later
"""What the agent of containers tells of those on its host."""

from __future__ import annotations

import socket
from pathlib import Path

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


@pytest.mark.parametrize(("listed", "taken"), [("", True), ("8f14e45fceea\n", False)])
def test_ports_of_containers_without_records_are_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, listed: str, taken: bool
) -> None:
    """After remove.yml they are known by their labels alone."""
    monkeypatch.setattr(container, "_run", lambda *_words: (0, listed, ""))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check = {"path": str(tmp_path), "program": "podman", "network": "host"}
        request = {"check": check, "service": "shop", "host": "web1", "address": "127.0.0.1"}
        answer = container.main({**request, "ports": [port, port]})
    assert answer.get("taken", False) is taken
