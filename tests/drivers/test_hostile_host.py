# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that answers, but not as our agent does: whatever it sends, the host is named, and the
others are seen.
"""

from __future__ import annotations

import resource
import sys
import time
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import PlatformError
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms.process import (
    OPTIONS,
    Driver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote import pool
from ansible_collections.progressive.rollout.tests.support.connect import connect
from ansible_collections.progressive.rollout.tests.support.sshd import Sshd
from ansible_collections.progressive.rollout.tests.support.waiting import PATIENCE, until

# Reads the program, finds the mark in it, and answers what is in a file.
EVIL = """\
#!{python} -IS
import os, re, sys
program = sys.stdin.read()
answer = {home!r} + "/answer"
if not os.path.exists(answer):
    os.execv({python!r}, [{python!r}, "-I", "-S", "-c", program])
mark = re.findall("ROLLOUT-[0-9a-f]+:", program)[-1]
said = open(answer).read()
if said == "flood":
    while True:
        os.write(1, mark.encode() + b"x" * 1000000)
print(mark + ":" + said.replace("MARK", mark))
"""
ITEM = (
    '{"id": "a", "service": "shop", "revision": "1", "generation": 1, "address": "::1", "port": 1,'
    ' "slot": 0, "age": 1, '
)
NONSENSE = {
    "[]": "its answer is not that of an agent",
    "5": "its answer is not that of an agent",
    "{bad": "its answer is not that of an agent",
    "": "its answer is not that of an agent",
    "[" * 100000: "its answer is not that of an agent",
    '{"value": ' + "9" * 5000 + "}": "its answer is not that of an agent",
    '{"value": []}': "answer.value is list, not a mapping",
    '{"value": {}}': "answer.instances is missing",
    '{"value": {"instances": 5}}': "answer.instances is 5, not a list",
    '{"value": {"instances": [5]}}': r"answer.instances\[0\] is 5, not a mapping",
    '{"value": {"instances": [{"id": 3}]}}': r"answer.instances\[0\].id is 3, not text",
    '{"value": {"instances": [' + ITEM + '"process": "fine", "detail": ""}]}}': (
        r"answer.instances\[0\].process is text, not one of"
    ),
    '{"value": {"instances": ['
    + ITEM.replace('"age": 1', '"age": NaN')
    + '"process": "running", "detail": ""}]}}': r"answer.instances\[0\].age is float, not a number",
    '{"value": {"stale": 5}}': "answer.instances is missing",
    '{"error": "\\u001b[31mEVIL\\u001b]0;owned\\u0007"}': r"\?\[31mEVIL\?\]0;owned\?$",
}


class Fleet:
    """A host of ours, and one that may become hostile."""

    def __init__(self, sshd: Sshd, home: Path) -> None:
        self.answer = home / "answer"
        python = home / "python"
        python.write_text(EVIL.format(python=sys.executable, home=str(home)))
        python.chmod(0o755)
        good, evil = (sshd.variables(address) for address in sshd.addresses)
        self.transport = connect(
            {"good": good, "evil": {**evil, "ansible_python_interpreter": str(python)}},
            home / "hosts.json",
        )
        self.context = DriverContext("shop", self.transport)
        self.home = home

    def driver(self) -> Driver:
        given = {
            "hosts": "all",
            "command": ["/bin/true"],
            "ports": "20100-20199",
            "path": str(self.home / "state"),
        }
        return Driver(OPTIONS.parse(given, "rollout_platform."), self.context)


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    with Sshd(2) as server:
        yield server


@pytest.fixture
def fleet(sshd: Sshd, tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(sshd, tmp_path)
    yield made
    made.transport.close()


def test_nonsense_is_refused_by_the_name_of_its_host(fleet: Fleet) -> None:
    assert fleet.driver().sync() == []
    for said, why in NONSENSE.items():
        fleet.answer.write_text(said)
        with pytest.raises(
            PlatformError, match=f"^cannot know what runs on evil: .*{why}"
        ) as caught:
            fleet.driver().sync()
        assert (
            str(caught.value).isprintable()
            and len(str(caught.value)) < 3000
            and "good:" not in str(caught.value)
        )


def test_a_host_that_was_seen_and_then_talks_nonsense_counts_as_one_that_does_not_answer(
    fleet: Fleet,
) -> None:
    driver = fleet.driver()
    driver.sync()
    for said in ("[]", '{"value": {}}'):
        fleet.answer.write_text(said)
        driver.sync()
        assert list(driver.away) == ["evil"]
        fleet.answer.unlink()
        until(lambda: driver.sync() == [] and not driver.away, "it answers as it should")


def test_what_is_looked_at_before_anything_is_touched(fleet: Fleet) -> None:
    fleet.answer.write_text('{"value": {"problems": ["a"]}}')
    with pytest.raises(
        PlatformError, match=r"cannot look at evil: .*answer.problems is list, not a mapping"
    ):
        fleet.driver().check()


def test_a_flood_ends_soon_and_takes_little_memory(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "LIMIT", 4 << 20)
    fleet.answer.write_text("flood")
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(PlatformError, match=r"evil: the answer is longer than 4 MB"):
        fleet.driver().sync()
    assert time.monotonic() - began < PATIENCE
    grown: t.Any = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200 << 10  # kB
