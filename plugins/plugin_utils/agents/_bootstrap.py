# SPDX-License-Identifier: GPL-3.0-or-later
"""Run an agent on a host: the source arrives through standard input, the answer leaves as one line.

Agents import this module, too, for JSON. Needs Python 3.8. The modules json, signal and subprocess
are not imported: that would double the time to start.
"""

from __future__ import annotations

import marshal
import os
import sys

TYPE_CHECKING = False  # importing typing costs start-up time
if TYPE_CHECKING:
    import typing as t

scanner: t.Any = None
try:
    from _json import encode_basestring_ascii as quote
    from _json import make_scanner as scanner
    from _signal import ITIMER_REAL, setitimer  # type: ignore[import-not-found]
except ImportError:  # not CPython
    from json.encoder import py_encode_basestring_ascii as quote
    from signal import ITIMER_REAL, setitimer

SIGALRM = 14
SPACE = " \t\n\r"  # of JSON


def serve(
    source: str | bytes,
    name: str,
    request: t.Any,
    timeout: float,
    mark: str,
    folder: str = "",
    libraries: t.Sequence[tuple[str, str | bytes]] = (),
) -> None:
    """Answer the request in a process of its own, with one line `mark` + number + JSON.

    `libraries`, pairs of a name and a source, are what the agent imports from `folder`, its own
    package. A source is text, or bytes where the caller compiled it for this Python. The JSON is
    {"value": ...}, {"error": text} or {"late": true}. Before it comes the number of this Python's
    compiled code, with a colon. What an agent prints goes nowhere, so neither its noise nor a
    daemon it starts can hold up or spoil the answer.
    """
    scope: dict[str, t.Any] = {"__name__": name}
    try:
        package: t.Any = type(os)(folder)
        sys.modules[folder] = package
        package._bootstrap = sys.modules[__name__]
        for module, text in libraries:
            library = type(os)(module)
            exec(_code(text, module), library.__dict__)
            setattr(package, module, library)
        exec(_code(source, name), scope)
        line = _collect(*_start(scope["main"], request, timeout))
    except Exception as exc:
        line = _error(exc)
    data = ("\n" + mark + _magic() + line + "\n").encode("ascii")
    while data:
        data = data[os.write(1, data) :]


def _code(source: str | bytes, name: str) -> t.Any:
    return marshal.loads(source) if isinstance(source, bytes) else compile(source, name, "exec")


def _magic() -> str:
    """Return the number of this Python's compiled code, in hexadecimal, and a colon; no number
    where it could not be unpacked.
    """
    try:
        import binascii  # noqa: F401
        import zlib  # noqa: F401
    except ImportError:
        return ":"
    return getattr(sys.modules.get("_frozen_importlib_external"), "MAGIC_NUMBER", b"").hex() + ":"


def _start(main: t.Callable[[t.Any], t.Any], request: t.Any, timeout: float) -> tuple[int, int]:
    pipe, answer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(answer)
        return pid, pipe
    try:
        setitimer(ITIMER_REAL, timeout)  # not inherited by what the agent starts
        null = os.open("/dev/null", os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        try:
            line = dump({"value": main(request)})
        except BaseException as exc:
            line = _error(exc)
        data = (line + "\n").encode("ascii")
        while data:
            data = data[os.write(answer, data) :]
    finally:
        os._exit(0)


def _collect(pid: int, pipe: int) -> str:
    data = b""
    while not data.endswith(b"\n"):
        chunk = os.read(pipe, 1 << 20)
        if not chunk:
            break
        data += chunk
    else:
        return data.decode("ascii").rstrip()
    signal = os.waitpid(pid, 0)[1] & 127
    return dump(
        {"late": True}
        if signal == SIGALRM
        else {"error": "the agent was ended by signal %d" % signal}
    )


def _error(exc: BaseException) -> str:
    return dump({"error": "%s: %s" % (type(exc).__name__, " ".join(str(exc).split()))})


def dump(value: object) -> str:
    """Return the JSON of plain data, in ASCII, on one line.

    Python's own module is faster where it is imported anyway.
    """
    json = sys.modules.get("json")
    return json.dumps(value) if json else plain_dump(value)


def plain_dump(value: object) -> str:
    """Return the same without Python's module."""
    if isinstance(value, str):
        return quote(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(plain_dump, value)) + "]"
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join([quote(str(key)) + ": " + plain_dump(item) for key, item in value.items()])
            + "}"
        )
    raise TypeError("an agent cannot answer with " + type(value).__name__)


class _Decoding:
    """What Python's scanner of JSON wants to know."""

    strict = True
    object_hook = object_pairs_hook = array_hook = None
    parse_float, parse_int, parse_constant = float, int, float
    memo: t.ClassVar[dict[str, str]] = {}


scan = scanner(_Decoding) if scanner else None


def load(text: str | bytes) -> t.Any:
    """Return the data of a JSON text; raises ValueError, or RecursionError, for any other text."""
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    if scan is None:
        import json

        return json.loads(text)
    try:
        value, end = scan(text, len(text) - len(text.lstrip(SPACE)))
    except StopIteration:
        raise ValueError("not JSON") from None
    if text[end:].strip(SPACE):
        raise ValueError("more than one JSON value")
    return value
