# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of agents that run instances: files, lock, fence, and the order of the work.

An agent gives `serve` its kind of `Service`, which knows how an instance is started, told to stop,
and looked at. Nothing stays on the host but files, below `<path>/<inventory
host>/<service>/`: `instances/<id>.json` (one record an instance), `logs/<id>.log`,
`settings/<key>.json` (what is secret of the settings that instances are started with), `lock`,
`epoch` and `journal` (the journal that they belong to).

Request: service, host, path, epoch, journal (id and place of this run's), start (labels, env,
stop_timeout in seconds, the hooks before_start and after_stop, and what the agent needs; with
pass_over it is not started where its port is in use, which the answer's "occupied" has then), stop
(ids), wait (seconds for the end of those that are told to stop, if the agent can; else a moment),
forget (ids), keep (settings by key), retain (keys of all settings that are still wanted),
stop_timeout and hook_timeout (seconds), and the agent's own settings. With `usage`, reports of
running instances also have what they use.
Answer: {"instances": [labels, process, age in seconds, detail; of one
that another program has started again, restarts and how many seconds ago it was restarted first;
of one that was stopped, what is left alive of it], "kept": [keys], "occupied": [ports], "named":
[slot and why of each that was not started, since its name is another program's]}, or {"stale": why}
when a newer lease holder has acted here, or {"error": why}.
Request {"recall": key, service, host, path}: answer {"settings": what was kept, or None}.
Request {"check": what, service, host, address, ports (the first and the last)}: its answer has
{"taken": True} where other programs have every port.

Needs Python 3.8. Modules only some calls need are imported there: most calls only look.
"""

from __future__ import annotations

import errno
import os
import time

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _bootstrap, _files

TYPE_CHECKING = False  # importing typing takes longer than a look at twenty instances
if TYPE_CHECKING:
    import typing as t

    Record = t.Dict[str, t.Any]

Stale, Refused, unusable, write = _files.Stale, _files.Refused, _files.unusable, _files.write

SETTINGS = "settings"
JOURNAL = "journal"
KILLED = "did not stop in time and was killed"  # how an instance ended that was asked to
LABELS = ("id", "service", "revision", "generation", "host", "address", "port", "slot")
STOP_WAIT = 0.01  # seconds: quick instances stop within it, which saves the caller another call
STOP_POLL = 0.005
KEEP_LOGS = 20
TAIL = 4096  # bytes of a log that are looked at
# What there is in every record, and what there may be.
FIELDS: dict[str, t.Any] = {
    **dict.fromkeys(LABELS, str),
    **dict.fromkeys(("generation", "port", "slot"), int),
    "boot": str,
}
FIELDS.update(dict.fromkeys(("created", "uptime"), (int, float)))
OPTIONAL: dict[str, t.Any] = {
    "stop_requested": (int, float),
    "stop_timeout": (int, float),
    "after_stop": list,
    "error": str,
    "left": str,
}
# HUP, INT, QUIT, PIPE, TERM: a caller may ignore them, and what is run here may not
INHERITED_SIGNALS = (1, 2, 3, 13, 15)


class NameTaken(Exception):
    """What an instance would be named is there already, and is not ours: another name is free."""


def serve(kind: type[Service], request: dict[str, t.Any]) -> dict[str, t.Any]:
    """Do what the request says, under the service's lock, and report every instance."""
    try:
        return _serve(kind, request)
    except Stale as exc:
        return {"stale": str(exc)}
    except (OSError, Refused) as exc:
        return {"error": str(exc)}


def _serve(kind: type[Service], request: dict[str, t.Any]) -> dict[str, t.Any]:
    if "recall" in request:
        return {"settings": _recall(request)}
    start = request["start"]
    stop = request["stop"]
    forget = request["forget"]
    keep = request.get("keep", {})
    for name in [
        request["host"],
        request["service"],
        *(wanted["id"] for wanted in start),
        *stop,
        *forget,
        *keep,
    ]:
        if not name or "/" in name or "\0" in name or name.startswith("."):
            raise Refused(f"{name!r} cannot be part of a file's name")
    if (start or stop or forget or keep) and request["epoch"] <= 0:
        raise Refused(
            "nothing is started, stopped or forgotten without a lease (epoch 0 only looks)"
        )
    home = os.path.join(request["path"], request["host"], request["service"])
    if request["epoch"] <= 0 and not os.path.isdir(home):
        # what runs may be found without records
        return {"instances": _work(kind(home, request), request), "kept": [], "occupied": []}
    for folder in _folders(home):
        if not os.path.isdir(folder):  # most calls find them
            os.makedirs(folder, 0o750, exist_ok=True)
    with _files.Locked(os.path.join(home, "lock")):
        mark = _mark(home, request.get("journal") if request["epoch"] > 0 else None)
        mark.check()
        _fence(home, request["epoch"])
        if start:
            mark.claim()
        kept = _keep(home, keep, request.get("retain"), bool(start or forget))
        service = kind(home, request)
        reports = _work(service, request)
        passed = {"occupied": service.occupied, "named": service.named}
        return {"instances": reports, "kept": kept, **passed}


def _folders(home: str) -> tuple[str, ...]:
    return (
        home,
        os.path.join(home, "instances"),
        os.path.join(home, "logs"),
        os.path.join(home, SETTINGS),
    )


def _keep(
    home: str, keep: dict[str, t.Any], retain: t.Sequence[str] | None, tidy: bool
) -> list[str]:
    """Write settings, before anything is started with them; return the keys of those kept.

    `tidy` removes those that are not wanted any more.
    """
    folder = os.path.join(home, SETTINGS)
    recorded = {name[: -len(".json")] for name in os.listdir(folder) if name.endswith(".json")}
    for key in keep.keys() - recorded:
        write(os.path.join(folder, key + ".json"), _bootstrap.dump(keep[key]), 0o600)
    recorded.update(keep)
    for key in recorded.difference(retain, keep) if tidy and retain is not None else ():
        os.unlink(os.path.join(folder, key + ".json"))
        recorded.discard(key)
    return sorted(recorded)


def _recall(request: dict[str, t.Any]) -> t.Any:
    path = os.path.join(
        request["path"],
        request["host"],
        request["service"],
        SETTINGS,
        os.path.basename(request["recall"]) + ".json",
    )
    try:
        with open(path, encoding="utf-8") as file:
            return _bootstrap.load(file.read())
    except (FileNotFoundError, ValueError):
        return None


def owner(request: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the journal that the service's instances here belong to, if they belong to one."""
    if "service" not in request:
        return {}
    home = os.path.join(request["check"]["path"], request["host"], request["service"])
    return _mark(home).shown()


def _mark(home: str, mine: dict[str, str] | None = None) -> _files.JournalMark:
    """Return which journal instances belong to: that of the last run that started one."""
    return _files.JournalMark(os.path.join(home, JOURNAL), "the instances", mine)


def _fence(home: str, epoch: int) -> None:
    """Refuse an epoch older than the newest that acted here; remember a newer one.

    What a killed call was writing is removed.
    """
    path = os.path.join(home, "epoch")
    if _files.newer(path, epoch):
        for folder in _folders(home):
            for name in os.listdir(folder):
                if name.startswith(".") and name.endswith(_files.DRAFT):
                    os.unlink(os.path.join(folder, name))
        write(path, str(epoch))


def _work(service: Service, request: dict[str, t.Any]) -> list[Record]:
    """Stop, start, forget and look, in this order: stopping goes on while others start."""
    records = service.load()
    service.look(records)
    asked = [records[id] for id in request["stop"] if id in records]
    stopping = [record for record in asked if service.stop(record)]
    for wanted in request["start"]:
        if wanted["id"] in records:
            continue
        if wanted.get("pass_over") and service.in_use(wanted):
            service.occupied.append(wanted["port"])
        else:
            record = service.start(wanted)
            if record:
                records[wanted["id"]] = record
    service.settle(stopping)
    for id in request["forget"]:
        if id in records:
            service.forget(records.pop(id))
    if request["start"] or request["forget"]:
        service.prune(records)
    reports = [service.report(record) for record in records.values()]
    if request.get("usage"):
        for report in reports:
            if report["process"] == "running":
                report["usage"] = service.usage(records[report["id"]])
    return reports


class Service:
    """The instances of one service on this host; its lock is held.

    Each kind says how they are run.
    """

    # what its records have besides, once there was something to run,
    fields: t.ClassVar[dict[str, t.Any]] = {}
    optional: t.ClassVar[dict[str, t.Any]] = {}  # and what they may have

    def __init__(self, home: str, request: dict[str, t.Any]) -> None:
        self.request = request
        self.instances = os.path.join(home, "instances")
        self.logs = os.path.join(home, "logs")
        self.occupied: list[int] = []  # ports that were passed over
        self.named: list[Record] = []  # slots whose names were, and why
        with open("/proc/sys/kernel/random/boot_id") as file:
            self.boot = file.read().strip()

    # -- what each kind says for itself

    def look(self, records: dict[str, Record]) -> None:
        """Look at all instances at once, where that is cheaper than one by one."""

    def alive(self, record: Record) -> bool:
        """Return whether the instance is there; record it if it has just gone."""
        raise NotImplementedError

    def spawn(self, record: Record, wanted: dict[str, t.Any]) -> str:
        """Begin an instance, whose record is saved no later; return why that failed, or ""."""
        raise NotImplementedError

    def request_stop(self, record: Record, kill: bool) -> None:
        """Ask an instance to stop, or kill it; returns at once."""
        raise NotImplementedError

    def settle(self, stopping: list[Record]) -> None:
        """Wait a moment for the instances that were just told to stop."""

    def left(self, record: Record) -> str:
        """Return what is left alive of an instance that was stopped, or ""."""
        return ""

    def usage(self, record: Record) -> dict[str, float]:
        """Return what a running instance uses, as `_usage.py` reads it."""
        return {}

    def remove(self, record: Record) -> None:
        """Remove what is left of an instance that is gone, beside its record and its log."""

    def ended(self, record: Record) -> str:
        """Return how an instance ended that was not asked to stop, and its last log lines."""
        raise NotImplementedError

    # -- what is the same for all

    def load(self) -> dict[str, Record]:
        """Return every record, by id."""
        records = {}
        names = os.listdir(self.instances) if os.path.isdir(self.instances) else []
        for name in sorted(names):
            if name.endswith(".json") and not name.startswith("."):
                path = os.path.join(self.instances, name)
                with open(path) as file:
                    try:
                        record = _bootstrap.load(file.read())
                    except (ValueError, RecursionError):
                        record = None
                wrong = self.wrong(record, name[: -len(".json")])
                if wrong:
                    raise Refused(
                        f"{path} is damaged ({wrong}); end its process, if there is one, and remove"
                        " the file"
                    )
                records[record["id"]] = record
        return records

    def wrong(self, record: t.Any, id: str) -> str:
        """Return why a file cannot be the instance's record, or ""."""
        if not isinstance(record, dict):
            return "it is not a whole JSON object"
        needed = FIELDS if "error" in record else {**FIELDS, **self.fields}
        for name, kind in {**OPTIONAL, **self.optional, **needed}.items():
            value = record.get(name)
            odd = isinstance(value, bool) if kind is not bool else False
            if value is None and name in needed:
                return name + " is missing"
            if value is not None and (
                odd
                or not isinstance(value, kind)
                or (isinstance(value, (int, float)) and not abs(value) < 1e15)
            ):
                return name + " is wrong"
        return "" if record["id"] == id else "it is of " + record["id"]

    def save(self, record: Record) -> None:
        """Write the record.

        Without a lease, only one that is there already: a call that only looks adopts nothing.
        """
        path = os.path.join(self.instances, record["id"] + ".json")
        if self.request["epoch"] > 0 or os.path.exists(path):
            write(path, _bootstrap.dump(record))

    def log(self, record: Record) -> str:
        return os.path.join(self.logs, record["id"] + ".log")

    def stop(self, record: Record) -> bool:
        """Ask the instance to stop, or kill it after `stop_timeout`; return whether it did so."""
        if not self.alive(record):
            return False
        first = "stop_requested" not in record
        if first:
            record["stop_requested"] = uptime()
        elif uptime() - record["stop_requested"] >= record.get(
            "stop_timeout", self.request["stop_timeout"]
        ):
            record["killed"] = True
        else:
            return False
        self.save(record)
        self.request_stop(record, kill=not first)
        return True

    def start(self, wanted: dict[str, t.Any]) -> Record | None:
        """Start an instance. What keeps it from starting is its record's `error`.

        None where its name is another program's: the caller takes another one.
        """
        record = {label: wanted[label] for label in LABELS}
        record.update(created=time.time(), uptime=uptime(), boot=self.boot)
        record.update(
            {
                name: wanted[name]
                for name in ("after_stop", "stop_timeout", "stop_signal")
                if name in wanted
            }
        )
        error = taken(wanted["address"], wanted["port"]) or self.hook(
            "before_start", wanted["before_start"], wanted["env"]
        )
        try:
            error = error or self.spawn(record, wanted)
        except NameTaken as exc:
            self.named.append({"slot": wanted["slot"], "why": str(exc)})
            self.after_stop(record)
            return None
        except OSError as exc:
            error = f"cannot start it: {exc}"
        if error:
            record.update(error=error, ended=0)
            try:
                self.save(record)
            except OSError:
                pass  # the disk is full: nothing was started, and the caller knows from this answer
        return record

    def in_use(self, wanted: dict[str, t.Any]) -> bool:
        """Return whether another program listens at a port, or an instance of another service
        has it.

        One that is still starting is to listen there. To one that crashed, also in a reboot, load
        balancers may send requests until its own service forgets it.
        """
        place = wanted["address"], wanted["port"]
        return bool(taken(*place)) or any(
            (record.get("address"), record.get("port")) == place
            and "error" not in record
            and not (
                "stop_requested" in record
                and ("ended" in record or record.get("boot") != self.boot)
            )
            for record in neighbours(self.request["path"], self.request["service"])
        )

    def hook(self, name: str, argv: list[str], env: dict[str, str]) -> str:
        """Run a hook, which may be none; return why it failed, or ""."""
        try:
            status, output, _none = (
                run(*argv, timeout=self.request["hook_timeout"], together=True, env=env)
                if argv
                else (0, "", "")
            )
        except (OSError, Refused) as exc:
            return f"{name}: {argv[0]}: {exc}"
        return (
            f"{name}: {argv[0]} ended with {status}: {last_lines(output) or 'it said nothing'}"
            if status
            else ""
        )

    def forget(self, record: Record) -> None:
        """Remove the record of an instance that is gone, and what is left of it; its log stays."""
        if self.alive(record):
            raise Refused(f"instance {record['id']} is running: stop it before it is forgotten")
        self.remove(record)
        self.after_stop(record)
        os.unlink(os.path.join(self.instances, record["id"] + ".json"))

    def after_stop(self, record: Record) -> None:
        """Run the hook of an instance that is gone, or was not started after all."""
        env = {
            name.upper(): str(record[name])
            for name in ("service", "revision", "slot", "address", "port")
        }
        failed = self.hook(
            "after_stop", record.get("after_stop", []), {**env, "INSTANCE": record["id"]}
        )
        if failed:  # the instance is gone: the failure is reported, and nothing waits for it
            with open(self.log(record), "a") as log:
                log.write(f"{failed}\n")

    def prune(self, records: dict[str, Record]) -> None:
        """Remove what was kept of forgotten instances for a while: their logs but the newest."""
        paths = [
            os.path.join(self.logs, name)
            for name in os.listdir(self.logs)
            if name[: -len(".log")] not in records
        ]
        for path in sorted(paths, key=lambda path: (os.stat(path).st_mtime_ns, path), reverse=True)[
            KEEP_LOGS:
        ]:
            os.unlink(path)

    def report(self, record: Record) -> Record:
        """Return the instance as the caller sees it."""
        answer = {label: record[label] for label in LABELS}
        alive, asked = self.alive(record), "stop_requested" in record
        answer["process"] = (
            ("stopping" if asked else "running") if alive else ("stopped" if asked else "failed")
        )
        age = (
            uptime() - record["uptime"]
            if record["boot"] == self.boot
            else time.time() - record["created"]
        )
        answer["age"] = max(0.0, age)
        answer["detail"] = self.detail(record, asked) if not alive else ""
        if asked and not alive:
            if "left" not in record:
                record["left"] = self.left(record) if record["boot"] == self.boot else ""
                self.save(record)
            answer.update({"left": record["left"]} if record["left"] else {})
            answer.update({"killed": True} if answer["detail"] == KILLED else {})
        if "restarts" in record:
            answer.update(
                restarts=record["restarts"], restarted=max(0.0, uptime() - record["restarted"])
            )
            answer["detail"] = answer["detail"] or record["crash"]
        return answer

    def began_again(self, record: Record, count: int, ago: float, how: str) -> None:
        """Note that another program has started the instance again, how often, and how it ended.

        What follows from that is not decided here.
        """
        record.setdefault("restarted", uptime() - max(0.0, ago))
        record.update(
            restarts=count, crash=f"restarted {'once' if count == 1 else f'{count} times'}: {how}"
        )
        self.save(record)

    def detail(self, record: Record, asked: bool) -> str:
        """Return how an instance ended."""
        if asked:
            return KILLED if record.get("killed") else ""
        return str(record["error"]) if "error" in record else self.ended(record)


def taken(address: str, port: int) -> str:
    """Return why a port cannot be had: another program listens there.

    Connections that wind down (TIME_WAIT) do not count.
    """
    import socket

    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # the latter when the address is not the host's own (NAT)
    for where in (address, "::" if ":" in address else "0.0.0.0"):
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((where, port))
            except OSError as exc:
                if exc.errno == errno.EADDRNOTAVAIL:
                    continue
                if exc.errno == errno.EADDRINUSE:
                    return (
                        f"port {port} at {where} is taken by another program; end it, or change"
                        " rollout_platform.ports"
                    )
        break
    return ""


def holds_port(record: Record) -> str:
    """Return that the port of an instance that was stopped is still taken, or "".

    It was the instance's: a program of it has left what is stopped with it.
    """
    if "error" in record or not taken(record["address"], record["port"]):
        return ""
    return f"a program still listens at its port {record['port']}"


def ports_taken(request: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return whether other programs have all ports of a request, if it has any: {"taken": True}.

    Those of the service's own instances are given back during a rollout.
    """
    if "ports" not in request:
        return {}
    first, last = request["ports"]
    ports = range(first, last + 1)
    if not all(taken(request["address"], port) for port in ports):  # most often the first is free
        return {}
    path, service = request["check"]["path"], request["service"]
    own = {
        record.get("port")
        for home in _inside(path)
        for record in _readable(os.path.join(home, service))
    }
    return {} if own.intersection(ports) else {"taken": True}


def neighbours(path: str, service: str) -> t.Iterator[Record]:
    """Yield the records of all other services on this machine that can be read.

    Hosts that are one machine share the path, so the service's own records may be many.
    """
    for home in _inside(path):
        for of in _inside(home):
            if os.path.basename(of) != service:
                yield from _readable(of)


def _readable(home: str) -> t.Iterator[Record]:
    """Yield the records of a service on a host that can be read."""
    for name in _inside(os.path.join(home, "instances")):
        if not name.endswith(".json"):
            continue
        try:
            with open(name) as file:
                record = _bootstrap.load(file.read())
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record


def _inside(folder: str) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder)]
    except OSError:
        return []


def tail(path: str) -> str:
    """Return the last lines of a log, as `last_lines` gives them."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            return last_lines(file.read().decode(errors="replace"))
    except FileNotFoundError:
        return ""


def last_lines(text: str) -> str:
    """Return the last five lines on one line, at most 500 characters."""
    last = text[-TAIL:].splitlines()
    lines = ["".join(c for c in line if c.isprintable()).strip() for line in last]
    return " | ".join([line for line in lines if line][-5:])[-500:]


def missing(wanted: dict[str, t.Any]) -> dict[str, str]:
    """Return what of {program, search, cwd} is not there, by setting.

    Empty ones are not looked for.
    """
    problems = {}
    if wanted["cwd"] and not os.path.isdir(wanted["cwd"]):
        problems["cwd"] = f"{wanted['cwd']} is not a directory"
    program = wanted["program"]
    if program and (wanted["cwd"] or program.startswith("/") or "/" not in program):
        search = (wanted["search"] or os.environ.get("PATH") or os.defpath).split(":")
        places = [""] if "/" in program else search
        if not any(_runs(os.path.join(wanted["cwd"], place, program)) for place in places):
            problems["command"] = f"{program} is not there or cannot be executed"
    return problems


def _runs(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK, effective_ids=True)


def run(
    *argv: str,
    data: str = "",
    timeout: float = 0.0,
    together: bool = False,
    env: dict[str, str] | None = None,
    last: int = 0,
) -> tuple[int, str, str]:
    """Run a program to its end; return its exit code (-1: killed), its output and its errors.

    It reads `data`, which no other process sees. It is killed after `timeout` seconds; 0 raises
    Refused. The errors may be part of the output. `last`: how many bytes of each to return at most,
    those at its end; 0: all.
    """
    # Importing subprocess would take longer than most programs we run. Files in memory need nobody
    # to read at the same time.
    files = [os.memfd_create(name) for name in ("in", "out", "err")]
    try:
        os.pwrite(files[0], data.encode(errors="surrogateescape"), 0)
        shown = (files[0], files[1], files[1] if together else files[2])
        actions = [(os.POSIX_SPAWN_DUP2, file, number) for number, file in enumerate(shown)]
        around = {**os.environ, "LC_ALL": "C", **(env or {})}
        pid = os.posix_spawnp(
            argv[0],
            argv,
            around,
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=INHERITED_SIGNALS,
        )
        status = _wait(pid, timeout, argv)
        texts = [_read(file, last) for file in files[1:]]
    finally:
        for file in files:
            os.close(file)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1, texts[0], texts[1]


def _read(file: int, last: int) -> str:
    """Return the text of a file, or its last bytes."""
    size = os.fstat(file).st_size
    first = max(0, size - last) if last else 0
    return os.pread(file, size - first, first).decode(errors="replace")


def _wait(pid: int, timeout: float, argv: t.Sequence[str]) -> int:
    """Return the status a child ended with."""
    if not timeout:
        return os.waitpid(pid, 0)[1]
    deadline, pause = time.monotonic() + timeout, 0.001
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        time.sleep(pause)
        pause = min(2 * pause, 0.02)
    os.killpg(pid, 9)
    os.waitpid(pid, 0)
    raise Refused(f"{' '.join(argv[:2])} took longer than {timeout:g} s")


def uptime() -> float:
    """Return the seconds since boot: the clock of the day may be set while a process runs."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
