# SPDX-License-Identifier: GPL-3.0-or-later
"""Start, stop and report plain processes of one service on this host.

The request is what `_service.py` says, with argv, env and cwd for each instance to start, and
stop_signal. Requests {"check": {path, program, search, cwd}} and {"prepare": {program, search,
cwd}}: answer {"problems": {setting: why}}, and touch nothing.

Needs Python 3.8 and Linux's /proc.
"""

from __future__ import annotations

import os
import time

try:
    import _signal as signal  # type: ignore[import-not-found] # without enums, whose import takes longer than a look
except ImportError:  # not CPython
    import signal

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _service, _usage

TYPE_CHECKING = False  # importing typing takes longer than a look at twenty instances
if TYPE_CHECKING:
    import typing as t

    Record = t.Dict[str, t.Any]

# no secrets of whoever runs us
INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")


class Stat:
    """What /proc/<pid>/stat says.

    `living`: not a zombie. `ticks`: when it began, since boot; with pid and boot it is
    unmistakable.
    """

    __slots__ = ("group", "living", "session", "ticks")

    def __init__(self, living: bool, group: int, session: int, ticks: int) -> None:
        self.living, self.group, self.session, self.ticks = living, group, session, ticks


def main(request: dict[str, t.Any]) -> dict[str, t.Any]:
    """Answer a request."""
    if "check" in request:
        problems = _problems(request["check"])
        return {
            "problems": problems,
            **_service.owner(request),
            **_service.ports_taken(request),
        }
    if "prepare" in request:
        return {"problems": _service.missing(request["prepare"])}
    return _service.serve(Service, request)


class Service(_service.Service):
    """Instances as processes, each the leader of a session of its own."""

    fields: t.ClassVar[dict[str, t.Any]] = {"pid": int, "ticks": int}
    optional: t.ClassVar[dict[str, t.Any]] = {"ended": (int, float)}

    def leader(self, record: Record) -> Stat | None:
        """Return the process started for the instance, if it is still there.

        Another one with its pid is not it.
        """
        stat = _stat(record["pid"]) if record["boot"] == self.boot else None
        return stat if stat and stat.ticks == record["ticks"] and stat.living else None

    def alive(self, record: Record) -> bool:
        """Return whether the instance is there; record it if it has just gone.

        An instance that was asked to stop is there until the last of its processes is gone.
        """
        if "ended" in record:
            return False
        if self.leader(record) or ("stop_requested" in record and self.left_over(record)):
            return True
        record["ended"] = (
            round(_service.uptime() - record["uptime"], 3) if record["boot"] == self.boot else -1
        )
        record["status"] = _reap(record["pid"])
        self.save(record)
        return False

    def left_over(self, record: Record) -> bool:
        """Return whether processes of the instance's session outlive their leader.

        While they do, the kernel gives its number to no other process; if another process has it,
        they are gone.
        """
        first = _stat(record["pid"])
        if (
            record["boot"] != self.boot
            or not record["pid"]
            or (first and first.ticks != record["ticks"])
        ):
            return False
        try:
            os.killpg(record["pid"], 0)  # the usual case: no such group, no need to search
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        members = [
            stat for stat in _group(record["pid"]) if stat.session == record["pid"] and stat.living
        ]
        return bool(members) and all(stat.ticks >= record["ticks"] for stat in members)

    def send(self, record: Record, number: int) -> None:
        """Signal the instance's process group; its process alone if that has left the group."""
        leader = self.leader(record)
        try:
            if leader and leader.group != record["pid"]:
                os.kill(record["pid"], number)
            elif leader or self.left_over(record):
                os.killpg(record["pid"], number)
        except ProcessLookupError:
            pass
        except PermissionError:
            raise _service.Refused(
                f"instance {record['id']}: this user may not signal its process {record['pid']}"
            ) from None

    def spawn(self, record: Record, wanted: dict[str, t.Any]) -> str:
        """Fork, record the process, and only then let it run the command; return why that failed.

        If this process is killed in between, the child finds the end of `go` and leaves: no process
        without a record.
        """
        record.update(command=wanted["argv"], pid=0, ticks=0)
        env = {name: os.environ[name] for name in INHERITED if name in os.environ}
        env.update(wanted["env"])
        ignored = [
            number
            for number in signal.valid_signals()
            if signal.getsignal(number) == signal.SIG_IGN
        ]
        log = os.open(
            self.log(record), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640
        )
        reader, writer = os.pipe()
        ready, go = os.pipe()
        pid = os.fork()
        if pid == 0:
            _become(
                wanted["argv"], env, wanted["cwd"], ignored, log=log, ready=ready, errors=writer
            )
        for fd in (log, ready, writer):
            os.close(fd)
        try:
            stat = _stat(pid)
            record.update(pid=pid, ticks=stat.ticks if stat else 0)
            self.save(record)
            os.write(go, b"!")
        finally:
            os.close(go)
            with open(reader, "rb") as file:
                error = file.read().decode()  # ends with exec (close on exec) or with the child
        if error:
            os.waitpid(pid, 0)
            record.update(pid=0, ticks=0)
        return error

    def request_stop(self, record: Record, kill: bool) -> None:
        self.send(
            record,
            (
                signal.SIGKILL
                if kill
                else getattr(signal, "SIG" + record.get("stop_signal", self.request["stop_signal"]))
            ),
        )

    def settle(self, stopping: list[Record]) -> None:
        deadline = time.monotonic() + self.request.get("wait", _service.STOP_WAIT)
        while any(self.alive(record) for record in stopping) and time.monotonic() < deadline:
            time.sleep(_service.STOP_POLL)

    def left(self, record: Record) -> str:
        return _service.holds_port(record)

    def usage(self, record: Record) -> dict[str, float]:
        return _usage.of_processes([record["pid"], *_others(record["pid"])])

    def remove(self, record: Record) -> None:
        if record.get("pid"):
            self.send(record, signal.SIGKILL)  # to processes it left behind

    def ended(self, record: Record) -> str:
        if record["ended"] < 0:
            return "gone: the host was restarted"
        # only its parent learns how a process ended, which is init once the agent is over
        how = record.get("status") or "ended (how is not known)"
        how += f" within {record['ended']:.1f} s of its start"
        lines = _service.tail(self.log(record))
        return f"{how}; last log lines: {lines}" if lines else f"{how}; its log is empty"


def _stat(pid: int) -> Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # the command's name before it may hold anything
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Stat(fields[0] not in (b"Z", b"X"), int(fields[2]), int(fields[3]), int(fields[19]))


def _group(number: int) -> list[Stat]:
    """Find the processes of a group.

    Asking the kernel for the group of every process is far cheaper than reading every process's
    file, and stopping an instance takes several such searches.
    """
    members = []
    for name in os.listdir("/proc"):
        try:
            stat = _stat(int(name)) if name.isdigit() and os.getpgid(int(name)) == number else None
        except ProcessLookupError:
            continue
        if stat and stat.group == number:
            members.append(stat)
    return members


def _others(leader: int) -> list[int]:
    """Return the other processes of a leader's session."""
    others = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and int(name) != leader and os.getsid(int(name)) == leader:
                others.append(int(name))
        except (ProcessLookupError, PermissionError):
            continue
    return others


def _reap(pid: int) -> str:
    """Return how a child of this process ended; nothing if it is another's (init collects it)."""
    try:
        status = os.waitpid(pid, os.WNOHANG)[1] if pid else -1
    except ChildProcessError:
        return ""
    if status >= 0 and os.WIFSIGNALED(status):
        return f"killed by signal {os.WTERMSIG(status)}"
    return f"exit code {os.WEXITSTATUS(status)}" if status >= 0 else ""


def _become(
    argv: list[str],
    env: dict[str, str],
    cwd: str,
    ignored: list[t.Any],
    *,
    log: int,
    ready: int,
    errors: int,
) -> t.NoReturn:
    """In the child: cut every tie, wait for the word, run the command.

    Tell why it could not. The caller may have threads, so there are nothing but system calls here.
    """
    what = "cannot prepare"
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
            if fd > 2 and fd not in (ready, errors):
                try:
                    os.close(fd)
                except OSError:
                    pass  # the listing's own
        # ignored and blocked signals outlive exec: `nohup ansible-playbook &` would leave its mark
        for number in ignored:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if os.read(ready, 1):
            what = f"cannot enter {cwd} (rollout_platform.cwd)"
            os.chdir(cwd)
            what = f"cannot run {argv[0]} (rollout_platform.command)"
            os.execvpe(argv[0], argv, env)
    except OSError as exc:
        os.write(errors, f"{what}: {exc.strerror} (errno {exc.errno})".encode())
    except BaseException as exc:
        os.write(errors, f"{what}: {type(exc).__name__}".encode())
    finally:
        os._exit(127)


def _problems(check: dict[str, t.Any]) -> dict[str, str]:
    """Return what keeps this host from running instances, by setting."""
    problems = {
        "hosts": (
            ""
            if os.path.exists("/proc/self/stat")
            else "the host has no /proc: plain processes need Linux"
        ),
        "path": _service.unusable(check["path"]),
        **_service.missing(check),
    }
    return {setting: why for setting, why in problems.items() if why}
