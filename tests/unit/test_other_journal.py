# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances belong to a journal: a run with another one, whose path is mistyped, does not act."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import process
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import Journal
from ansible_collections.progressive.rollout.tests.support.memory import Service, World

MINE = {"id": "aa", "place": "/var/lib/rollout/journal/shop.json on host lb1"}
MISTYPED = {"id": "bb", "place": "/var/lib/rolout/journal/shop.json on host lb1"}


class Host:
    """One host, asked by its agent."""

    def __init__(self, path: Path) -> None:
        self.path, self.epoch = path, 1

    def run(self, journal: dict[str, str] | None, start: bool = False) -> dict[str, t.Any]:
        """Let a run with this journal look, or start an instance that ends at once."""
        self.epoch += 1
        labels = {"id": f"shop-{self.epoch}", "service": "shop", "revision": "1", "generation": 1}
        place = {"host": "web1", "address": "127.0.0.1", "port": 0, "slot": 1}
        what = {"argv": ["true"], "cwd": None, "env": {}, "before_start": [], "after_stop": []}
        return process.main(
            {
                "service": "shop",
                "host": "web1",
                "path": str(self.path),
                "epoch": self.epoch,
                "stop": [],
                "forget": [],
                "retain": [],
                "stop_timeout": 5,
                "hook_timeout": 5,
                "stop_signal": "TERM",
                **({"journal": journal} if journal else {}),
                "start": [{**labels, **place, **what}] if start else [],
            }
        )

    def check(self) -> dict[str, t.Any]:
        """Ask what a run asks before it takes the lease."""
        what = {"path": str(self.path), "program": "", "search": "", "cwd": None}
        return process.main({"check": what, "service": "shop", "host": "web1"})

    def files(self) -> dict[str, str]:
        kept = (path for path in self.path.rglob("*") if path.is_file())
        return {str(path): path.read_text() for path in kept if path.suffix != ".log"}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def refuse(host: Host, journal: Journal) -> None:
    """As a run with this journal does before it takes the lease."""
    journal.refuse_others({"web1": host.check().get("journal")}, "instances", "journal")


def test_a_run_with_another_journal_is_refused_and_leaves_no_trace(host: Host) -> None:
    host.run(MINE, start=True)
    before = host.files()
    for start in (False, True):
        answer = host.run(MISTYPED, start)
        assert MINE["place"] in answer["stale"] and MISTYPED["place"] in answer["stale"]
    assert host.files() == before
    with pytest.raises(InputError, match=r"web1 to .*/rollout/journal/shop\.json") as caught:
        refuse(host, Journal(**MISTYPED))
    assert caught.value.id == "PR-515" and "/rolout/" in str(caught.value)


def test_an_empty_journal_elsewhere_is_refused(host: Host) -> None:
    host.run(MINE, start=True)
    with pytest.raises(InputError, match="correct rollout_store"):
        refuse(host, Journal("", MISTYPED["place"]))


@pytest.mark.parametrize(
    "later",
    [
        MINE,
        pytest.param({**MINE, "place": "elsewhere"}, id="moved, or a path of another container"),
        pytest.param({**MINE, "id": "cc"}, id="lost, and made anew in the same place"),
    ],
)
def test_the_same_journal_goes_on(host: Host, later: dict[str, str]) -> None:
    host.run(MINE, start=True)
    refuse(host, Journal(**later))
    assert "instances" in host.run(later, start=True)
    assert host.check()["journal"] == later


def test_a_host_of_an_earlier_version_is_taken_up_when_an_instance_starts(host: Host) -> None:
    host.run(None, start=True)
    assert "journal" not in host.check()
    host.run(MINE)
    assert "journal" not in host.check()  # a look does not claim it
    host.run(MINE, start=True)
    assert host.check()["journal"] == MINE


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": 1}', '{"id": "x", "place": null}'])
def test_a_damaged_mark_refuses_nobody(host: Host, text: str) -> None:
    host.run(MINE, start=True)
    (host.path / "web1" / "shop" / "journal").write_text(text)
    assert "journal" not in host.check() and "instances" in host.run(MISTYPED)


def test_a_journal_keeps_its_id() -> None:
    shop = Service(World(), replicas=1, revision="1")
    shop.world.fewest = 0
    shop.play()
    first = shop.journal.journal
    shop.play(revision="2")
    assert first and shop.journal.journal == first
