# SPDX-License-Identifier: GPL-3.0-or-later
"""ansible-playbook without the half second that importing Ansible takes: forked from a process that
has imported it.

A forked run has its own session, directory, environment, input, output and arguments, as a started
program has. Only its parent and its command line in /proc differ: a test to which these matter
starts the program itself.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import typing as t
from collections.abc import Mapping, Sequence
from pathlib import Path

STANDARD = (0, 1, 2)


class Forked:
    """A forked ansible-playbook, with the part of Popen's interface that tests use."""

    def __init__(self, server: socket.socket, request: Mapping[str, t.Any]) -> None:
        reader, writer = os.pipe()
        try:
            socket.send_fds(server, [json.dumps(request).encode()], [writer])
        finally:
            os.close(writer)
        self._told = open(reader)
        self.pid = int(self._told.readline())
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("ansible-playbook", timeout or 0)
            self.returncode = int(self._told.readline())
            self._told.close()
        return self.returncode

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


_servers: dict[str, socket.socket] = {}


def start(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: Path) -> Forked:
    """Start ansible-playbook in a new session, with its output in a file."""
    request = {"argv": list(argv), "cwd": str(cwd), "env": dict(env), "output": str(output)}
    return Forked(_server(env), request)


def _server(env: Mapping[str, str]) -> socket.socket:
    """Return the server for an environment: modules of Ansible keep settings from when they are
    imported.
    """
    settings = {
        key: value
        for key, value in env.items()
        if key.startswith("ANSIBLE_") and key != "ANSIBLE_HOME"
    }
    key = json.dumps(settings, sort_keys=True)
    if key not in _servers:
        _servers[key], theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [sys.executable, __file__, str(theirs.fileno())]
            subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, cwd="/", env=env, pass_fds=[theirs.fileno()]
            )
    return _servers[key]


# -- the server ------------------------------------------------------------------------------------


def serve(requests: socket.socket) -> dict[str, t.Any] | None:
    """Return each request in a new process; None when the tests are over."""
    # the processes that report the end of a run end by themselves
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        text, files, _flags, _address = socket.recv_fds(requests, 1_000_000, 1)
        if not text:
            return None
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _alone(json.loads(text), files[0])
        os.close(files[0])


def _alone(request: dict[str, t.Any], tell: int) -> dict[str, t.Any]:
    """Return the request in a new process, and tell of its beginning and end."""
    pid = os.fork()
    if pid == 0:
        os.close(tell)
        return request
    os.write(tell, b"%d\n" % pid)
    _pid, status = os.waitpid(pid, 0)
    os.write(tell, b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def become(request: Mapping[str, t.Any]) -> None:
    """Make this process what a program that is started would be."""
    os.setsid()
    os.chdir(request["cwd"])
    file = os.open(request["output"], os.O_WRONLY)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    tempfile.tempdir = None  # asked for once, and kept
    sys.argv = list(request["argv"])
    # settings that have directories and the pid in them
    importlib.reload(sys.modules["ansible.constants"])


def main() -> None:
    requests = socket.socket(fileno=int(sys.argv[1]))
    from ansible.cli import playbook

    gc.freeze()
    if request := serve(requests):
        become(request)
        sys.exit(playbook.main())


if __name__ == "__main__":
    sys.path.pop(0)  # this file's directory, which is not on a program's path
    main()
