# SPDX-License-Identifier: GPL-3.0-or-later
"""Identity of the current ansible-playbook run, and of the worker that runs a step: the token and
holder of a lease.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import sys
import typing as t
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ansible import context


@dataclass(frozen=True)
class Identity:
    """The identity of a worker of a run."""

    token: str  # proves that a lease is this worker's
    run: str  # the same for all steps of one ansible-playbook
    holder: str  # for people
    details: Mapping[str, t.Any]  # shows to others whether the run lives
    request: str = ""  # what the play requests, the same for each of its hosts
    host: str = ""  # the host that this step runs for
    job: str = ""  # AWX's job, for people; "" outside of AWX
    # the variables of the service that another playbook has anyway
    known: Callable[[], Container[str]] = field(default=tuple, compare=False)

    def repeats(self, request: object, host: object) -> bool:
        """Return whether this repeats a request of the same play for another of its hosts."""
        return self.request != "" and self.request == request and self.host != host

    def command(self, command: str, service: str, more: Mapping[str, t.Any] | None = None) -> str:
        """Return how a person sends an operator command for this run's rollout, with `more`
        variables.
        """
        from .command_line import operator_command  # only where a person is told what to run

        return operator_command(
            command, service, context.CLIARGS, bool(self.job), more=more, known=self.known()
        )

    @property
    def at_rest(self) -> dict[str, t.Any]:
        """The details between two steps, without an active worker."""
        return {**self.details, "worker_pid": 0, "worker_ticks": 0}


def identity(
    main_pid: int,
    task_vars: Mapping[str, t.Any] | None = None,
    task: t.Any = None,
    asks: object = None,
) -> Identity:
    """Return the identity of a worker of the run whose main process (ansible-playbook) is
    `main_pid`.

    `task` is Ansible's; `asks` is plain data that distinguishes requests.
    """
    variables = task_vars or {}
    host = str(variables.get("inventory_hostname") or "")
    details = _machine() | {"pid": main_pid, "ticks": began(main_pid)}
    run = _digest(*details.values())
    details |= {"worker_pid": os.getpid(), "worker_ticks": began(os.getpid())}
    token = _digest(run, details["worker_pid"], details["worker_ticks"])
    request = _digest(run, play, json.dumps(asks)) if (play := _play(task)) else ""
    name = task.get_name() if task is not None else ""
    details |= {"run": run, "request": request, "host": host, "task": str(name)}
    job = _job(variables)
    holder = f"{_user()}@{details['hostname']} pid {main_pid} ({_command()}){job}"
    return Identity(token, run, holder, details, request, host, job)


def gone(details: Mapping[str, t.Any]) -> bool | None:
    """Return True if both processes of a holder have provably ended, False if one lives, None if
    unknown here.
    """
    living = _living(details)
    return None if living is None else not any(living)


def orphaned(details: Mapping[str, t.Any]) -> bool:
    """Return whether the holder's main process has ended while its worker completes the current
    action.
    """
    return _living(details) == (False, True)


def resting(details: Mapping[str, t.Any]) -> bool:
    """Return whether the holder has no active worker: its run is between two steps, or the worker
    has ended.
    """
    living = _living(details)
    return details.get("worker_pid") == 0 or (living is not None and not living[1])


def _living(details: Mapping[str, t.Any]) -> tuple[bool, bool] | None:
    """Return whether a holder's main process and its worker live; None if unknown here."""
    here = _machine()
    if not here["boot_id"] or any(details.get(key) != value for key, value in here.items()):
        return None
    try:
        main, worker = (
            (int(details[f"{who}pid"]), int(details[f"{who}ticks"])) for who in ("", "worker_")
        )
    except (KeyError, TypeError, ValueError):
        return None
    return lives(*main), worker[0] != 0 and lives(*worker)


def _machine() -> dict[str, t.Any]:
    """Return where a pid means the same process: containers share the boot id and may share the
    host name.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:  # not Linux
        boot = namespace = ""
    return {"hostname": os.uname().nodename, "boot_id": boot, "pid_namespace": namespace}


def _digest(*parts: object) -> str:
    return hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()[:32]


def _play(task: t.Any) -> str:
    """Return what distinguishes the plays of this run, the same for all hosts and batches; "" if
    unknown.
    """
    part = task
    while part is not None and not hasattr(part, "_play"):
        part = getattr(part, "_parent", None)
    return str(getattr(getattr(part, "_play", None), "_uuid", "") or "")


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat from the state on; empty if unreadable."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def began(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 if unknown."""
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def lives(pid: int, ticks: int) -> bool:
    """Return whether a process of this machine that started then (see `began`) lives."""
    try:
        os.kill(pid, 0)  # sees processes that a /proc mounted with hidepid does not show
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    fields = _stat(pid)
    if fields and fields[0] in "ZX":  # a zombie
        return False
    return not fields or not ticks or int(fields[19]) == ticks


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # containers may run as users without a name
        return f"uid {os.getuid()}"


def _command() -> str:
    """Return program and playbooks without options, which may hold secrets."""
    playbooks = context.CLIARGS.get("args", ())
    words = [
        os.path.basename(sys.argv[0]),
        *(playbooks if isinstance(playbooks, tuple | list) else ()),
    ]
    return " ".join(map(str, words))


def _job(task_vars: Mapping[str, t.Any]) -> str:
    """Return AWX's job and who launched it."""
    for prefix in ("awx", "tower"):
        if job := task_vars.get(f"{prefix}_job_id"):
            user = task_vars.get(f"{prefix}_user_name")
            return f", AWX job {job}" + (f" of {user}" if user else "")
    return ""
