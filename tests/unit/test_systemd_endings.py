# SPDX-License-Identifier: GPL-3.0-or-later
"""How an instance ended that systemd ran, by what systemd and its journal show of it.

On hosts: `tests/drivers/test_systemd.py`. Here is what those hosts cannot do.
"""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _service, systemd

RECORD = {"unit": "shop@0.service", "created": 1.0, "boot": "now"}
OVER = {
    "ExecMainStartTimestampMonotonic": "1000000",
    "ActiveExitTimestampMonotonic": "2000000",
    "ExecMainExitTimestampMonotonic": "3000000",
    "ExecMainCode": "2",
    "ExecMainStatus": "9",
    "StandardOutput": "journal",
}


def how(
    monkeypatch: pytest.MonkeyPatch,
    unit: dict[str, str],
    entries: list[dict[str, str]],
    sync: tuple[int, str] = (0, ""),
) -> str:
    """Return how it ended, with these entries in the journal; without a unit, it runs again."""

    def run(*words: str) -> tuple[int, str, str]:
        if "--sync" in words:
            return sync[0], "", sync[1]
        return 0, "".join(f"{json.dumps(entry)}\n" for entry in entries), ""

    monkeypatch.setattr(_service, "run", run)
    known: dict[str, t.Any] = {**RECORD}
    return systemd._how(known, unit or {"StandardOutput": "journal"}, "now", over=bool(unit))


def event(id: str, **more: str) -> dict[str, str]:
    return {"MESSAGE": "...", "MESSAGE_ID": id, **more}


EXITED = event(systemd.EXITED, EXIT_CODE="killed", EXIT_STATUS="9")
OOM = event(systemd.FAILED, UNIT_RESULT="oom-kill")
STARTED, STOPPING = event(systemd.STARTED), event(systemd.STOPPING)


def test_end_by_lack_of_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = how(monkeypatch, {**OVER, "Result": "oom-kill"}, [STARTED, EXITED, OOM])
    assert shown.startswith("the kernel killed it, since memory ran out (MemoryMax, or that of")
    assert "killed by signal 9 within 2.0 s of its start; its log is empty" in shown


def test_end_before_a_restart_is_read_in_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = how(monkeypatch, {}, [STARTED, EXITED, OOM, STARTED])
    assert shown.startswith("the kernel killed it, since memory ran out")
    assert shown.endswith(", killed by signal 9; its log is empty")


@pytest.mark.parametrize("result", ["success", "exit-code", "timeout"])
def test_stop_by_others_is_named_however_it_ended(
    monkeypatch: pytest.MonkeyPatch, result: str
) -> None:
    entries = [STARTED, STOPPING, event(systemd.FAILED, UNIT_RESULT=result)]
    assert how(monkeypatch, {**OVER, "Result": result}, entries) == (
        "unit shop@0.service was stopped outside the rollout; its log is empty"
    )


def test_stop_by_others_is_not_that_of_a_later_life(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [STARTED, STOPPING, STARTED, EXITED, OOM, STARTED]
    assert "outside the rollout" not in how(monkeypatch, {}, entries)
    assert "outside the rollout" in how(monkeypatch, {}, entries[:3])


def test_log_without_a_journal_is_not_called_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = how(monkeypatch, {**OVER, "Result": "signal"}, [], (1, "Failed to connect to journal"))
    assert shown.endswith("its log cannot be read (journalctl: Failed to connect to journal)")
