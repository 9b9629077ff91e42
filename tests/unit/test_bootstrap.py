# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that runs agents on hosts: its JSON, and code that is compiled for the host where
that is possible.
"""

from __future__ import annotations

import json
import subprocess
import sys
import typing as t
from importlib.util import MAGIC_NUMBER

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _bootstrap
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote import agents
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import (
    Command,
    Link,
    Result,
)
from hypothesis import given
from hypothesis import strategies as st

plain: st.SearchStrategy[t.Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(plain)
def test_plain_data_comes_back(data: t.Any) -> None:
    assert _bootstrap.plain_dump(data) == json.dumps(data) == _bootstrap.dump(data)
    for text in (
        json.dumps(data),
        json.dumps(data, indent=1),
        json.dumps(data, ensure_ascii=False).encode(),
    ):
        assert _bootstrap.load(text) == data


@given(st.text('{}[]:,"\\ \n0123456789.-+eEtrufalsn', max_size=12) | st.binary(max_size=6))
def test_any_other_text_is_refused(text: str | bytes) -> None:
    try:
        expected = json.loads(text.decode() if isinstance(text, bytes) else text)
    except ValueError:
        with pytest.raises(ValueError):
            _bootstrap.load(text)
    else:
        assert _bootstrap.load(text) == expected


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_none_are_read_as_python_does(number: str) -> None:
    assert repr(_bootstrap.load(f"[{number}]")) == repr(json.loads(f"[{number}]"))


class Host(Link):
    """A process of this machine for each command; `other`: its Python compiles to other code
    than the controller's.
    """

    def __init__(self, other: bool = False) -> None:
        super().__init__(
            "local", t.cast(t.Any, None), "host", [sys.executable], local=True, becomes=False
        )
        self.other = other
        self.programs: list[bytes] = []

    def run(self, command: Command) -> Result:
        self.programs.append(command.stdin)
        done = subprocess.run(command.argv, input=command.stdin, capture_output=True, check=False)
        magic = "0a0b0c0d" if self.other else MAGIC_NUMBER.hex()
        return Result(
            done.returncode,
            done.stdout.decode().replace(f":{MAGIC_NUMBER.hex()}:", f":{magic}:"),
            done.stderr.decode(),
        )


@pytest.mark.parametrize("other", [False, True])
def test_a_host_with_the_same_python_gets_the_agent_compiled_from_the_second_call_on(
    other: bool,
) -> None:
    host, module = Host(other), agents.load("process")
    request = {"check": {"path": "/", "program": "/bin/sh", "search": "", "cwd": "/"}}

    answers = [agents.run_there(host, module, request, 20.0, "h") for _call in range(2)]

    assert [answer.value for answer in answers] == [module.main(request)] * 2, answers
    assert [b"def left_over" in program for program in host.programs] == [True, other]


@pytest.mark.parametrize("name", ["process", "systemd", "container", "haproxy"])
def test_a_compiled_agent_is_hardly_longer_than_its_text(name: str) -> None:
    """Each command carries it to its host."""
    text, compiled = (
        len(agents.program(agents.load(name), {}, 20.0, "MARK:", compiled=how))
        for how in (False, True)
    )
    assert compiled < 1.2 * text


def test_a_host_that_cannot_unpack_gets_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _bootstrap._magic() == f"{MAGIC_NUMBER.hex()}:"
    monkeypatch.setitem(sys.modules, "zlib", None)
    assert _bootstrap._magic() == ":"
