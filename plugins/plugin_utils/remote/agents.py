# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask an agent: what travels to a host, and how the answer is read. The agents themselves are in
`agents/`.
"""

from __future__ import annotations

import binascii
import functools
import importlib
import json
import marshal
import re
import secrets
import shlex
import typing as t
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import ModuleType

from ..agents import _bootstrap
from ..base.names import HERE
from ..base.text import clean
from ..inputs import shapes
from .connections import Command, Link, Result, one_line

if t.TYPE_CHECKING:
    from importlib.abc import InspectLoader


@dataclass(frozen=True)
class Answer:
    """What an agent answered: a value, or an error (the host's, when `unreachable`) with the id
    of its message.
    """

    value: dict[str, t.Any] | None = None
    error: str = ""
    unreachable: bool = False
    id: str = field(default="PR-200", compare=False)
    took: float = field(default=0.0, compare=False)  # seconds
    # Where the call goes on: the answer, or None as long as there is none.
    later: Callable[[], Answer | None] | None = field(default=None, compare=False)

    @property
    def summary(self) -> str:
        """Return in a few words how it ended; "" if well."""
        return self.error


def load(name: str) -> ModuleType:
    """Return the module of an agent: `process`, or `namespace.collection.agent` of another
    collection.
    """
    collection, _dot, short = name.rpartition(".")
    return importlib.import_module(
        f"ansible_collections.{collection or HERE}.plugins.plugin_utils.agents.{short}"
    )


def plain(request: Mapping[str, t.Any]) -> t.Any:
    """Return the request without Ansible's tags and lazy containers; anything but plain data is
    refused.
    """
    return json.loads(json.dumps(request, allow_nan=False))


def run_here(module: ModuleType, request: t.Any) -> Answer:
    """Run an agent in this process."""
    try:
        value = module.main(request)
        return (
            Answer(value)
            if isinstance(value, dict)
            else Answer(error=f"the agent answered with a {type(value).__name__}")
        )
    except Exception as exc:
        return Answer(error=f"{type(exc).__name__}: {one_line(exc)}")


def run_there(link: Link, module: ModuleType, request: t.Any, timeout: float, host: str) -> Answer:
    """Run an agent in a process of its own on a host."""
    mark = f"ROLLOUT-{secrets.token_hex(8)}:"
    text = program(module, request, timeout, mark, compiled=link.magic == MAGIC_NUMBER.hex())
    result = link.run(Command([*link.python, "-I", "-S", "-"], text))
    answer, link.magic = _answer(result, host, mark, shlex.join(link.python), timeout)
    return answer


def program(
    module: ModuleType, request: t.Any, timeout: float, mark: str, compiled: bool = False
) -> bytes:
    """Return what the host's Python reads: the bootstrap and one call of it, with the sources of
    the agent and of the modules that it imports from its own folder. ASCII, whatever the agent is
    written in.

    A host whose Python runs the same compiled code as this one gets all of it `compiled`, which
    saves it a third of its work.
    """
    folder, _dot, name = module.__name__.rpartition(".")
    arguments = (f"agents/{name}.py", request, timeout, mark, folder)
    call = f"serve(agent, *{arguments!a}, libraries)"
    return f"{_code(module, compiled)}\n{call}\n".encode("ascii")


@functools.cache
def _code(module: ModuleType, compiled: bool) -> str:
    """Return the text that defines `serve`, and the `agent` and `libraries` that it takes.

    Each command carries it: what is compiled is packed, or it would be four times as long.
    """
    made = code if compiled else source
    folder = module.__name__.rpartition(".")[0]
    libraries = [
        (item.__name__.rpartition(".")[2], made(item)) for item in _libraries(module, f"{folder}.")
    ]
    if not compiled:
        return f"{source(_bootstrap)}\nagent, libraries = {source(module)!a}, {libraries!a}"
    packed = zlib.compress(marshal.dumps((code(_bootstrap), code(module), libraries)))
    return (
        "import binascii, marshal, zlib\n"
        f"packed = binascii.a2b_base64({binascii.b2a_base64(packed, newline=False)!a})\n"
        "bootstrap, agent, libraries = marshal.loads(zlib.decompress(packed))\n"
        "exec(marshal.loads(bootstrap))"
    )


def _libraries(module: ModuleType, folder: str) -> list[ModuleType]:
    """Return the modules that a module imports from a folder, each after what it imports there
    itself.
    """
    libraries: list[ModuleType] = []
    for item in vars(module).values():
        if (
            isinstance(item, ModuleType)
            and item.__name__.startswith(folder)
            and item is not _bootstrap
        ):
            libraries += [
                library for library in [*_libraries(item, folder), item] if library not in libraries
            ]
    return libraries


@functools.cache
def source(module: ModuleType) -> str:
    """Return the text of a module."""
    # get_source() of Ansible's own loader gives bytes
    return Path(str(module.__file__)).read_text(encoding="utf-8")


@functools.cache
def code(module: ModuleType) -> bytes:
    """Return a module as this Python has compiled it to import it."""
    loader = t.cast("InspectLoader", module.__loader__)
    return marshal.dumps(loader.get_code(module.__name__))


def _answer(
    result: Result, host: str, mark: str, python: str, timeout: float
) -> tuple[Answer, str]:
    """Find the answer in what a process printed, and the number of its compiled code; noise
    around it is passed over.
    """
    if result.unreachable:
        return Answer(error=result.unreachable, unreachable=True, id=result.id), ""
    lines = [line.removeprefix(mark) for line in result.stdout.split("\n") if line.startswith(mark)]
    if len(lines) != 1:
        return Answer(error=f"{host}: {_no_answer(result, python)}", id="PR-210"), ""
    magic, _colon, line = lines[0].partition(":")
    return _read(_decoded(line), timeout), magic


def _no_answer(result: Result, python: str) -> str:
    """Return why a process has not answered, as far as what it printed says, and a remedy."""
    output = result.stderr.strip() or result.stdout.strip() or "no output"
    printed = f"rc {result.rc}: {clean(output.splitlines()[-1])}"
    if _NEEDS_TTY.search(output):
        return (
            f"sudo wants a terminal, which commands of rollouts have not ({printed}); write the"
            " line `Defaults !requiretty` after the one with requiretty in its sudoers, or"
            " `Defaults:USER !requiretty` for the user that logs in"
        )
    if _NO_PYTHON.search(output):
        return (
            f"ansible_python_interpreter {python!r} cannot run the agents ({printed}); set it to a"
            " Python >= 3.8"
        )
    return (
        f"{python!r} ended without an answer ({printed}); run it there as the same user to see why,"
        " or set ansible_python_interpreter to another Python >= 3.8"
    )


_NEEDS_TTY = re.compile(r"must have a tty|no tty present|a terminal is required")
# what shells, sudo and other versions of Python print
_NO_PYTHON = re.compile(
    r"not found|No such file|Permission denied|SyntaxError|[Uu]nknown option|No module named"
)


def _read(answer: dict[str, t.Any], timeout: float) -> Answer:
    if answer.get("late") is True:
        return Answer(error=f"no answer in {timeout:g} s", unreachable=True, id="PR-221")
    if isinstance(answer.get("error"), str):
        return Answer(error=clean(answer["error"], 2000))
    if isinstance(answer.get("value"), dict):
        return Answer(answer["value"])
    return shaped(Answer(answer), _Framed)


class _Framed(t.TypedDict):
    """What follows the mark."""

    value: dict[str, t.Any]


def _decoded(text: str) -> dict[str, t.Any]:
    """Return the JSON object that a text is, or else an empty one."""
    try:
        decoded = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


def shaped(answer: Answer, kind: t.Any) -> Answer:
    """Return the answer, its value read as a type (see `inputs/shapes.py`).

    A host whose answer is anything else counts as unreachable: nothing is known of it, either.
    """
    if answer.value is None:
        return answer
    try:
        return replace(answer, value=shapes.read(kind, answer.value, "answer"))
    except shapes.Misshapen as exc:
        why = (
            f"its answer is not that of an agent ({clean(exc)}); see what"
            " ansible_python_interpreter runs there"
        )
        return replace(answer, value=None, error=why, unreachable=True, id="PR-212")
