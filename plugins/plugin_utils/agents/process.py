# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts, stops and reports plain processes of one service on this host. Runs, answers, and is gone.

Nothing of ours stays on the host but files, below `<path>/<inventory host>/<service>/`:
`instances/<id>.json` (one record an instance), `logs/<id>.log`, `lock` and `epoch`.

Request: service, host, path, epoch, start (labels with argv, env, cwd), stop (ids), forget (ids), stop_signal,
stop_timeout (seconds), keep_logs. Answer: {"instances": [labels, process, age in seconds, detail]}, or {"stale": why}
when a newer lease holder has acted here, or {"error": why}.
Request {"check": {path, program, search, cwd}}: answers {"problems": {setting: why}} and touches nothing.

Needs Python 3.8 and Linux's /proc. Modules only some calls need are imported there: most calls only look.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import time
from collections import namedtuple

TYPE_CHECKING = False  # importing typing takes longer than a look at twenty instances
if TYPE_CHECKING:
    import typing as t

    Record = t.Dict[str, t.Any]

LABELS = ("id", "service", "revision", "generation", "host", "address", "port", "slot")
INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")  # no secrets of whoever runs us
STOP_WAIT = 0.01  # seconds: quick processes stop within it, which saves the caller another call
STOP_POLL = 0.005


# What /proc/<pid>/stat says. `living`: not a zombie. `ticks`: when it began, since boot; with pid and boot it is unmistakable.
Stat = namedtuple("Stat", ("living", "group", "session", "ticks"))


class Stale(Exception):
    """A newer lease holder has acted here."""


class Refused(Exception):
    """The request cannot be done as it stands."""


def main(request: dict[str, t.Any]) -> dict[str, t.Any]:
    """Do what the request says, under the service's lock, and report every instance."""
    try:
        if "check" in request:
            return {"problems": _problems(request["check"])}
        return _serve(request)
    except Stale as exc:
        return {"stale": str(exc)}
    except (OSError, Refused) as exc:
        return {"error": str(exc)}


def _serve(request: dict[str, t.Any]) -> dict[str, t.Any]:
    start, stop, forget = request["start"], request["stop"], request["forget"]
    for name in [request["host"], request["service"], *(wanted["id"] for wanted in start), *stop, *forget]:
        if not name or "/" in name or "\0" in name or name.startswith("."):
            raise Refused(f"{name!r} cannot be part of a file's name")
    if (start or stop or forget) and request["epoch"] <= 0:
        raise Refused("nothing is started, stopped or forgotten without a lease (epoch 0 only looks)")
    home = os.path.join(request["path"], request["host"], request["service"])
    if request["epoch"] <= 0 and not os.path.isdir(home):
        return {"instances": []}
    for folder in (home, os.path.join(home, "instances"), os.path.join(home, "logs")):
        os.makedirs(folder, 0o750, exist_ok=True)
    lock = os.open(os.path.join(home, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _fence(home, request["epoch"])
        return {"instances": _work(Service(home), request)}
    finally:
        os.close(lock)


def _fence(home: str, epoch: int) -> None:
    """Refuse an epoch older than the newest that acted here; remember a newer one."""
    path = os.path.join(home, "epoch")
    try:
        with open(path) as file:
            stored = int(file.read())
    except FileNotFoundError:
        stored = 0
    except ValueError:
        raise Refused(f"{path} does not hold a number; remove it") from None
    if 0 < epoch < stored:
        raise Stale(
            f"a newer lease holder has acted here (epoch {stored}, ours is {epoch}); "
            f"if nobody has and the store was made anew, remove {path}"
        )
    if epoch > stored:
        _write(path, str(epoch))


def _work(service: Service, request: dict[str, t.Any]) -> list[Record]:
    """Stop, start, forget, look; in this order, so that stopping goes on while others start."""
    records = service.load()
    number = getattr(signal, "SIG" + request["stop_signal"])
    asked = [records[id] for id in request["stop"] if id in records]
    told = [record for record in asked if service.stop(record, number, request["stop_timeout"])]
    for wanted in request["start"]:
        if wanted["id"] not in records:
            records[wanted["id"]] = service.start(wanted)
    deadline = time.monotonic() + STOP_WAIT
    while any(service.alive(record) for record in told) and time.monotonic() < deadline:
        time.sleep(STOP_POLL)
    for id in request["forget"]:
        if id in records:
            service.forget(records.pop(id))
    if request["start"] or request["forget"]:
        service.prune_logs(records, request["keep_logs"])
    return [service.report(record) for record in records.values()]


class Service:
    """The instances of one service on this host; its lock is held."""

    def __init__(self, home: str) -> None:
        self.instances = os.path.join(home, "instances")
        self.logs = os.path.join(home, "logs")
        with open("/proc/sys/kernel/random/boot_id") as file:
            self.boot = file.read().strip()

    def load(self) -> dict[str, Record]:
        """Every record, by id."""
        records = {}
        names = os.listdir(self.instances) if os.path.isdir(self.instances) else []
        for name in sorted(names):
            if name.endswith(".json") and not name.startswith("."):
                path = os.path.join(self.instances, name)
                with open(path) as file:
                    try:
                        record = json.load(file)
                    except ValueError:
                        raise Refused(f"{path} is damaged; end its process, if there is one, and remove the file") from None
                records[record["id"]] = record
        return records

    def save(self, record: Record) -> None:
        _write(os.path.join(self.instances, record["id"] + ".json"), json.dumps(record))

    def log(self, record: Record) -> str:
        return os.path.join(self.logs, record["id"] + ".log")

    def leader(self, record: Record) -> Stat | None:
        """The process started for the instance, if it is still there; another one with its pid is not it."""
        stat = _stat(record["pid"]) if record["boot"] == self.boot else None
        return stat if stat and stat.ticks == record["ticks"] and stat.living else None

    def alive(self, record: Record) -> bool:
        """Whether the instance is there; when it has just gone, that is recorded.

        One that was asked to stop is there until the last of its processes is gone.
        """
        if "ended" in record:
            return False
        if self.leader(record) or ("stop_requested" in record and self.left_over(record)):
            return True
        record["ended"] = round(_uptime() - record["uptime"], 3) if record["boot"] == self.boot else -1
        record["status"] = _reap(record["pid"])
        self.save(record)
        return False

    def left_over(self, record: Record) -> bool:
        """Whether processes of the instance's session outlive their leader.

        While they do, the kernel gives its number to no other process; if it has one again, they are gone.
        """
        first = _stat(record["pid"])
        if record["boot"] != self.boot or not record["pid"] or (first and first.ticks != record["ticks"]):
            return False
        try:
            os.killpg(record["pid"], 0)  # the usual case: no such group, no need to search
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        stats = (_stat(int(name)) for name in os.listdir("/proc") if name.isdigit())
        ours = [stat for stat in stats if stat and stat.session == stat.group == record["pid"] and stat.living]
        return bool(ours) and all(stat.ticks >= record["ticks"] for stat in ours)

    def send(self, record: Record, number: int) -> None:
        """Signal the instance's process group; its process alone when that has left the group."""
        leader = self.leader(record)
        try:
            if leader and leader.group != record["pid"]:
                os.kill(record["pid"], number)
            elif leader or self.left_over(record):
                os.killpg(record["pid"], number)
        except ProcessLookupError:
            pass
        except PermissionError:
            raise Refused(f"instance {record['id']}: this user may not signal its process {record['pid']}") from None

    def stop(self, record: Record, number: int, timeout: float) -> bool:
        """Ask the instance to stop the first time, kill it after `timeout`; whether anything was sent."""
        if not self.alive(record):
            return False
        first = "stop_requested" not in record
        if first:
            record["stop_requested"] = _uptime()
        elif _uptime() - record["stop_requested"] >= timeout:
            record["killed"] = True
        else:
            return False
        self.save(record)
        self.send(record, number if first else signal.SIGKILL)
        return True

    def start(self, wanted: dict[str, t.Any]) -> Record:
        """Start an instance. What keeps it from starting is its record's `error`."""
        record = {label: wanted[label] for label in LABELS}
        record.update(command=wanted["argv"], created=time.time(), uptime=_uptime(), boot=self.boot, pid=0, ticks=0)
        error = _taken(wanted["address"], wanted["port"]) or self.spawn(record, wanted)
        if error:
            record.update(error=error, ended=0, pid=0, ticks=0)
            self.save(record)
        return record

    def spawn(self, record: Record, wanted: dict[str, t.Any]) -> str:
        """Fork, record the process, and only then let it run the command; why that failed, or nothing.

        If we are killed in between, the child finds the end of `go` and leaves: no process without a record.
        """
        env = {name: os.environ[name] for name in INHERITED if name in os.environ}
        env.update(wanted["env"])
        ignored = [number for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_IGN]
        log = os.open(self.log(record), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        told, tell = os.pipe()
        ready, go = os.pipe()
        pid = os.fork()
        if pid == 0:
            _become(wanted["argv"], env, wanted["cwd"], ignored, log, ready, tell)
        for fd in (log, ready, tell):
            os.close(fd)
        try:
            stat = _stat(pid)
            record.update(pid=pid, ticks=stat.ticks if stat else 0)
            self.save(record)
            os.write(go, b"!")
        finally:
            os.close(go)
            with open(told, "rb") as file:
                error = file.read().decode()  # ends with exec (close on exec) or with the child
        if error:
            os.waitpid(pid, 0)
        return error

    def forget(self, record: Record) -> None:
        """Remove the record of an instance that is gone, and what is left of its processes; its log stays."""
        if self.alive(record):
            raise Refused(f"instance {record['id']} is running (pid {record['pid']}): stop it before it is forgotten")
        self.send(record, signal.SIGKILL)
        os.unlink(os.path.join(self.instances, record["id"] + ".json"))

    def prune_logs(self, records: dict[str, Record], keep: int) -> None:
        """Remove the logs of forgotten instances but the newest `keep`."""
        paths = [os.path.join(self.logs, name) for name in os.listdir(self.logs) if name[: -len(".log")] not in records]
        for path in sorted(paths, key=lambda path: (os.stat(path).st_mtime_ns, path), reverse=True)[keep:]:
            os.unlink(path)

    def report(self, record: Record) -> Record:
        """The instance as the caller sees it."""
        answer = {label: record[label] for label in LABELS}
        alive, asked = self.alive(record), "stop_requested" in record
        answer["process"] = ("stopping" if asked else "running") if alive else ("stopped" if asked else "failed")
        age = _uptime() - record["uptime"] if record["boot"] == self.boot else time.time() - record["created"]
        answer["age"] = max(0.0, age)
        answer["detail"] = self.detail(record, asked) if not alive else ""
        return answer

    def detail(self, record: Record, asked: bool) -> str:
        """How an instance ended."""
        if asked:
            return "did not stop in time and was killed" if record.get("killed") else ""
        if "error" in record:
            return str(record["error"])
        if record["ended"] < 0:
            return "gone: the host was restarted"
        how = f"{record.get('status') or 'exited'} within {record['ended']:.1f} s of its start"
        lines = _tail(self.log(record))
        return f"{how}; last log lines: {lines}" if lines else f"{how}; its log is empty"


def _stat(pid: int) -> Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # the command's name before it may hold anything
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Stat(fields[0] not in (b"Z", b"X"), int(fields[2]), int(fields[3]), int(fields[19]))


def _reap(pid: int) -> str:
    """How our own child ended; nothing when it is not ours (then init collects it)."""
    try:
        status = os.waitpid(pid, os.WNOHANG)[1] if pid else -1
    except ChildProcessError:
        return ""
    if status >= 0 and os.WIFSIGNALED(status):
        return f"killed by signal {os.WTERMSIG(status)}"
    return f"exit code {os.WEXITSTATUS(status)}" if status >= 0 else ""


def _become(argv: list[str], env: dict[str, str], cwd: str, ignored: list[t.Any], log: int, ready: int, tell: int) -> t.NoReturn:
    """In the child: cut every tie, wait for the word, run the command. Tells why it could not.

    Our caller may have threads, so nothing here but system calls.
    """
    what = "cannot prepare"
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
            if fd > 2 and fd not in (ready, tell):
                try:
                    os.close(fd)
                except OSError:
                    pass  # the listing's own
        for number in ignored:  # ignored and blocked signals outlive exec: `nohup ansible-playbook &` would leave its mark
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if os.read(ready, 1):
            what = f"cannot enter {cwd} (rollout_platform.cwd)"
            os.chdir(cwd)
            what = f"cannot run {argv[0]} (rollout_platform.command)"
            os.execvpe(argv[0], argv, env)
    except OSError as exc:
        os.write(tell, f"{what}: {exc.strerror} (errno {exc.errno})".encode())
    except BaseException as exc:
        os.write(tell, f"{what}: {type(exc).__name__}".encode())
    finally:
        os._exit(127)


def _taken(address: str, port: int) -> str:
    """Why the port cannot be had: somebody listens there. Connections that wind down (TIME_WAIT) do not count."""
    import socket

    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for where in (address, "::" if ":" in address else "0.0.0.0"):  # the latter when the address is not the host's own (NAT)
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((where, port))
            except OSError as exc:
                if exc.errno == errno.EADDRNOTAVAIL:
                    continue
                if exc.errno == errno.EADDRINUSE:
                    return f"port {port} at {where} is taken by another program; end it, or change rollout_platform.ports"
        break
    return ""


def _tail(path: str) -> str:
    """The last five lines of a log on one line, at most 500 characters."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    lines = ["".join(c for c in line if c.isprintable()).strip() for line in text.splitlines()]
    return " | ".join([line for line in lines if line][-5:])[-500:]


def _write(path: str, text: str) -> None:
    """Replace a file in one step."""
    folder, name = os.path.split(path)
    draft = os.path.join(folder, f".{name}.tmp")  # one writer at a time: the lock is held
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def _uptime() -> float:
    """Seconds since boot: the clock of the day may be set while a process runs."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _problems(check: dict[str, t.Any]) -> dict[str, str]:
    """What keeps this host from running instances, by setting."""
    problems = {}
    if not os.path.exists("/proc/self/stat"):
        problems["hosts"] = "the host has no /proc: plain processes need Linux"
    folder = check["path"]
    while not os.path.lexists(folder) and folder != "/":
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        problems["path"] = f"{folder} is not a directory"
    elif not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        problems["path"] = f"{folder} cannot be written by the user with the id {os.geteuid()}"
    if check["cwd"] and not os.path.isdir(check["cwd"]):
        problems["cwd"] = f"{check['cwd']} is not a directory"
    program = check["program"]
    if program:
        search = (check["search"] or os.environ.get("PATH") or os.defpath).split(":")
        places = [""] if "/" in program else search
        if not any(_runs(os.path.join(check["cwd"], place, program)) for place in places):
            problems["command"] = f"{program} is not there or cannot be executed"
    return problems


def _runs(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK, effective_ids=True)
