# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tutorial, from its first to its last snippet, with a user who must not see an error."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.tests.support.pages import SNIPPETS
from ansible_collections.progressive.rollout.tests.support.playbook import Playground
from ansible_collections.progressive.rollout.tests.support.waiting import LONG, until

FIRST, CANARY, ANGER = (
    f"docs/tutorial/{name}.md" for name in ("first-rollout", "first-canary", "rollback-in-anger")
)


class Reader:
    """Somebody who does what the pages say, in a directory and at an address of their own."""

    def __init__(self, playground: Playground) -> None:
        self.playground, self.home = playground, playground.home / "shop"
        self.address = playground.addresses["web1"]
        self.home.mkdir()

    def text(self, page: str, name: str) -> str:
        return (
            SNIPPETS[page][name]
            .replace("/tmp/shop", str(self.home))
            .replace("127.0.0.1", self.address)
        )

    def write(self, page: str, *names: str) -> None:
        for name in names:
            (self.home / name).parent.mkdir(exist_ok=True)
            (self.home / name).write_text(self.text(page, name))

    def run(self, page: str, name: str, rc: int = 0) -> str:
        """What a shell snippet prints."""
        # no sbin: it is not in the PATH of a Debian user
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        result = subprocess.run(
            ["bash", "-uc", self.text(page, name)],
            cwd=self.home,
            env={**self.playground._environment(), "RESULTS": os.devnull, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONG,
            check=False,
        )
        assert result.returncode == rc, result.stdout + result.stderr
        return result.stdout


def ended(pid: int) -> bool:
    """Whether a process is over, or a zombie at most."""
    line = Path(f"/proc/{pid}/cmdline")
    return not line.exists() or not line.read_bytes()


class User:
    """The loop of the second terminal."""

    def __init__(self, address: str) -> None:
        self.url, self.over = f"http://{address}:8080/", threading.Event()
        self.seen: list[str] = []
        self.errors: list[str] = []
        self.thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        while not self.over.wait(0.05):
            try:
                with urllib.request.urlopen(self.url, timeout=10) as answer:
                    self.seen.append(answer.read().decode().strip())
            except OSError as exc:
                self.errors.append(str(exc))

    def sees(self) -> set[str]:
        """What 30 more requests show."""
        before = len(self.seen)
        while len(self.seen) < before + 30 and not self.errors:
            self.over.wait(0.05)
        return set(self.seen[before:])


@pytest.fixture
def reader() -> Iterator[Reader]:
    with Playground(1) as playground:
        reader = Reader(playground)
        yield reader
        if (reader.home / "haproxy.pid").exists():
            os.kill(int((reader.home / "haproxy.pid").read_text()), 9)


@pytest.mark.long
@pytest.mark.essential
def test_the_tutorial(reader: Reader) -> None:
    reader.run(FIRST, "releases")
    reader.write(FIRST, "haproxy.cfg", "inventory.yml", "group_vars/all.yml")
    reader.run(FIRST, "haproxy")
    assert "revision 1" in reader.run(FIRST, "deploy")

    user = User(reader.address)
    user.thread.start()
    try:
        assert "+shop 2: 3" in reader.run(FIRST, "rollout")
        assert user.sees() == {"revision 2"}

        reader.write(CANARY, "canary.yml")
        assert "parked" in reader.run(CANARY, "start")
        assert user.sees() == {"revision 2", "revision 3"}
        reader.run(CANARY, "promote")
        assert user.sees() == {"revision 3"}

        missing = reader.run(ANGER, "missing", rc=2)
        assert re.search("cwd.*releases/4", missing)
        assert "refused: nothing was started" in missing and "rolled back" not in missing
        assert "shop-" in reader.run(ANGER, "broken", rc=2)
        assert user.sees() == {"revision 3"}
        reader.run(ANGER, "abort")
        assert user.sees() == {"revision 3"} and "revision 6" in user.seen
        reader.run(ANGER, "rollback")
        assert user.sees() == {"revision 2"}
        reader.run(ANGER, "killed")
        reader.run(ANGER, "resume")
        assert user.sees() == {"revision 3"}
    finally:
        user.over.set()
        user.thread.join()
    assert not user.errors and set(user.seen) <= {f"revision {number}" for number in (1, 2, 3, 6)}
    records = [
        json.loads(path.read_text()) for path in reader.home.glob("platform/*/shop/instances/*")
    ]
    reader.run(ANGER, "clean")
    assert not reader.home.exists()
    assert records
    for record in records:
        until(functools.partial(ended, record["pid"]), "the instance is stopped")
