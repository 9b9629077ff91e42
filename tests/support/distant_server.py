# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that is the hosts of distant.py: it runs each command in a process, and collects all
that end, orphans too. The standard library only: it forks a lot.

    python3 -I -S distant_server.py SOCKET COUNT

A byte is added to the file COUNT for each command. What comes for a Python of its own (an agent)
runs in a fork of this one, which has started already: the hosts are not what is measured.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
import sys
import typing as t

# as `remote/agents.py` runs agents; without what a shell adds
PYTHON = f"{sys.executable} -I -S -"
_PR_SET_CHILD_SUBREAPER = 36
_TICK = 0.05  # seconds between two looks for processes that have ended


def serve(path: str, count: str) -> None:
    """Answer until this process is ended."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    counted = os.open(count, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path + ".new")
        listener.listen(4096)
        listener.settimeout(_TICK)
        os.rename(path + ".new", path)
        while True:
            with contextlib.suppress(TimeoutError):
                stream, _address = listener.accept()
                os.write(counted, b".")
                if os.fork() == 0:
                    listener.close()
                    _answer(stream)
                stream.close()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _answer(stream: socket.socket) -> t.NoReturn:
    """Run one command, in a process of its own: its output, and after a zero how it ended."""
    try:
        stream.setblocking(True)
        with stream.makefile("rb") as request:
            command, _null, given = request.read().partition(b"\0")
        if command.decode() == PYTHON:
            os.dup2(stream.fileno(), 1)
            ended = _python(given)
        else:
            words = ["/bin/sh", "-c", command]
            done = subprocess.run(
                words, input=given, stdout=stream, stderr=subprocess.PIPE, check=False
            )
            ended = b"%d %s" % (done.returncode, done.stderr)
        stream.sendall(b"\0" + ended)
    finally:
        os._exit(0)


def _python(program: bytes) -> bytes:
    """Run a program as if this Python had read it from its standard input."""
    main = type(sys)("__main__")
    sys.modules["__main__"] = main
    try:
        exec(compile(program, "<stdin>", "exec"), main.__dict__)
    except Exception as exc:
        return f"1 {type(exc).__name__}: {exc}".encode()
    return b"0 "


if __name__ == "__main__":
    serve(*sys.argv[1:])
