# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a host's Python gave no answer, as what it printed says, and what to do about that."""

from __future__ import annotations

import subprocess
import sys

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote import agents
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import Result

SET = "set it to a Python >= 3.8"
MORE = {  # what programs print that this machine does not have
    "Unknown option: -I": SET,
    "SyntaxError: invalid syntax": SET,
    "sudo: /opt/python9: command not found": SET,
    "sudo: sorry, you must have a tty to run sudo": "`Defaults !requiretty`",
    "sudo: no tty present and no askpass program specified": "`Defaults !requiretty`",
    "MemoryError": "run it there as the same user to see why",
    "Killed": "run it there as the same user to see why",
}


def shown(result: Result, python: str = "python3") -> str:
    answer, _magic = agents._answer(result, "web1", "MARK:", python, 10.0)
    assert answer.id == "PR-210"
    return answer.error


@pytest.mark.parametrize("words", MORE)
def test_printed_words_choose_the_remedy(words: str) -> None:
    text = shown(Result(1, "", f"a warning\n{words}\n"))
    assert text.startswith("web1: ") and f"(rc 1: {words})" in text and MORE[words] in text
    assert all(other not in text for other in {*MORE.values()} - {MORE[words]})


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        (["/nowhere/python3", "-I", "-S", "-"], SET),
        (["/etc/passwd", "-I", "-S", "-"], SET),
        ([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], "as the same user"),
        ([sys.executable, "-c", "raise MemoryError"], "as the same user"),
        ([sys.executable, "-c", "from __future__ import nothing"], SET),
    ],
)
def test_real_programs_get_the_remedy_of_what_they_print(command: list[str], remedy: str) -> None:
    line = " ".join(f"'{word}'" for word in command)
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)
    text = shown(Result(done.returncode, done.stdout, done.stderr), command[0])
    assert f"(rc {done.returncode}: " in text and remedy in text
