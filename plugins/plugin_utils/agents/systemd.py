# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs instances of one service as units of a systemd template on this host: `shop@<slot>.service`.

The template is ours, rendered by the caller, or the user's own. What tells instances apart is in
`<path>/env/<unit>`, which the template reads: the environment of the instance in this slot,
INSTANCE first. Values may be secrets, so only root can read it. The template has the settings given
last. A unit that was started with others has them in a drop-in of its own, `SHAPE`, which drop-ins
of the user's for the template override. Units are enabled while they are wanted, so instances come
back with their host. Nothing is waited for: systemd starts and stops, and each call looks at what
has become of it.

The request is what `_service.py` says, with `template` (shop@.service) and its `text` (empty: the
user's own), and for each instance to start its template, env and, for our template, command (for
the shell), cwd and shape (lines of the unit). Requests {"check": what} and {"prepare": what} have
path, home, template, text, user, program, search and cwd. They answer {"problems": {setting: why}}.
The first touches nothing, and also answers "beside": units of the template that run, and that no
rollout has started. The second writes our template.

Needs Python 3.8 and systemd 240.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import time

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import (
    _bootstrap,
    _service,
    _usage,
)

TYPE_CHECKING = False  # importing typing takes longer than a look at twenty instances
if TYPE_CHECKING:
    import typing as t

    Record = t.Dict[str, t.Any]
    Unit = t.Dict[str, str]  # what systemd shows of one

UNITS = "/etc/systemd/system"
SHAPE = "00-rollout.conf"  # the first of a unit's drop-ins
OURS = "# Written by progressive.rollout"  # how templates of rollouts begin
SHOWN = """
    LoadState FragmentPath EnvironmentFiles NeedDaemonReload Job ActiveState SubState Result
    NRestarts InvocationID MainPID ControlGroup
    ExecMainCode ExecMainStatus StandardOutput
    ExecMainStartTimestampMonotonic ExecMainExitTimestampMonotonic
    ActiveExitTimestampMonotonic""".split()
RUNNING = ("active", "reloading", "refreshing")
ALIVE = (*RUNNING, "activating", "deactivating", "maintenance")
# results that the exit code or the signal says, too
PLAIN = ("success", "exit-code", "signal", "core-dump")
# what systemd ended a unit for, by its result
RESULTS = {
    "watchdog": "systemd killed it, since it did not report to its watchdog in time (WatchdogSec)",
    "oom-kill": "the kernel killed it, since memory ran out (MemoryMax, or that of the host)",
    "timeout": "systemd ended it at a time limit (RuntimeMaxSec, or TimeoutStartSec)",
    "start-limit-hit": "systemd starts it no more, since it failed too often (StartLimitBurst)",
}
# ids of systemd's messages: a unit is told to stop, its main process has ended, it starts, it has
# started, and it is over, with or without an error
STOPPING = "de5b426a63be47a7b6ac3eaac82e2f6f"
EXITED = "98e322203f7a4ed290d09fe03c09fe15"
STARTING = "7d4958e842da4a758f6c1cdc7b36dcc5"
STARTED = "39f53479d3a045ac8e11786248231fbf"
FAILED = "d9b373ed55a64feb8242e02dbe79a49c"
SUCCEEDED = "7ad2d189f7e94e70a38c781354912448"
LOGGED = ("journal", "journal+console", "kmsg", "kmsg+console", "inherit", "syslog", "")
STOP_WAIT = 0.05  # seconds; looking takes some of it


def main(request: dict[str, t.Any]) -> dict[str, t.Any]:
    """Answer a request."""
    if "check" in request:
        problems = _problems(request["check"])
        beside = [] if problems else _beside(request)
        return {
            "problems": problems,
            "beside": beside,
            **_service.owner(request),
            **_service.ports_taken(request),
        }
    if "prepare" in request:
        return {"problems": _prepare(request["prepare"])}
    return _service.serve(Service, request)


class Service(_service.Service):
    """Instances as units.

    What has to be done is seen from records and units, so what a killed call left is done by the
    next.
    """

    fields: t.ClassVar[dict[str, t.Any]] = {"unit": str, "begun": bool}

    def __init__(self, home: str, request: dict[str, t.Any]) -> None:
        super().__init__(home, request)
        with open("/proc/1/stat", "rb") as file:  # a container is restarted without its kernel
            self.boot += "." + file.read().rpartition(b")")[2].split()[19].decode()
        self.environment = os.path.join(request["path"], "env")
        self.records: dict[str, Record] = {}
        self.units: dict[str, Unit] = {}

    # -- looking

    def look(self, records: dict[str, Record]) -> None:
        self.records = records
        known = (record["unit"] for record in records.values() if "unit" in record)
        self.units = _show({*known, *map(self.unit, self.request["start"])})

    def unit(self, labels: Record) -> str:
        return str(labels.get("template") or self.request["template"]).replace(
            "@", f"@{labels['slot']}"
        )

    def owns(self, record: Record) -> bool:
        """Return whether the unit is still the instance's: slots are used again."""
        begins = _environment({"INSTANCE": record["id"]})
        return "unit" in record and _read(
            os.path.join(self.environment, record["unit"])
        ).startswith(begins)

    def alive(self, record: Record) -> bool:
        if "error" in record:
            return False
        if not record["begun"]:
            return "stop_requested" not in record
        unit = self.units[record["unit"]]
        owned = self.owns(record)
        if owned and _there(unit):
            self.lives(record, unit)
            return True
        if "ended" not in record:
            self.end(record, unit if owned else {})
        return False

    def lives(self, record: Record, unit: Unit) -> None:
        """Return whether the unit runs, which may have been started again, or with its host."""
        if unit["ActiveState"] in RUNNING and (record["boot"] != self.boot or "ended" in record):
            for name in ("ended", "left", "restarts", "restarted", "crash", "invocation"):
                record.pop(name, None)
            record.update(boot=self.boot, uptime=_service.uptime())
            self.save(record)

    def end(self, record: Record, unit: Unit) -> None:
        """Record how an instance ended, while systemd knows it."""
        if "stop_requested" not in record:
            record["ended"] = _how(record, unit, self.boot)
        else:
            record.update(
                ended="", killed=record.get("killed", False) or unit.get("Result") == "timeout"
            )
        self.save(record)

    def ended(self, record: Record) -> str:
        return str(record["ended"])

    def restarts(self, record: Record, unit: Unit) -> None:
        """Note when the instance was started again.

        systemd counts what it starts; another program's start makes another invocation. A unit
        that is about to be started again counts as restarted: systemd itself counts it once the
        start is enqueued.
        """
        between = unit["SubState"].startswith("auto-restart")
        counted = int(unit["NRestarts"] or 0)
        count, invocation = counted + (between and not _has_job(unit)), unit["InvocationID"]
        known = record.get("invocation", "")
        if count > record.get("restarts", 0) or (not between and known not in ("", invocation)):
            count = max(count, record.get("restarts", 0) + 1)
            ago = time.monotonic() - _seconds(unit, "ExecMainExit" if between else "ExecMainStart")
            record["invocation"] = "" if between else invocation
            self.began_again(record, count, ago, _how(record, unit, self.boot, over=between))
        elif not between and not known and invocation:
            record["invocation"] = invocation
            self.save(record)

    def report(self, record: Record) -> Record:
        if record.get("begun") and "stop_requested" not in record and self.alive(record):
            self.restarts(record, self.units[record["unit"]])
        answer = super().report(record)
        if answer["process"] == "running":
            answer["process"], answer["detail"] = self.living(record)
        return answer

    def living(self, record: Record) -> tuple[str, str]:
        """Return the state of an instance that was not asked to stop, and details."""
        if not record["begun"]:
            return "starting", ""
        state, detail = self.units[record["unit"]]["ActiveState"], record.get("crash", "")
        if state in RUNNING:
            return "running", detail
        return {"deactivating": "stopping", "maintenance": "unknown"}.get(state, "starting"), detail

    # -- doing

    def spawn(self, record: Record, wanted: dict[str, t.Any]) -> str:
        """Write what the instance needs.

        `settle` starts it, in this call or, if that is killed, in the next.
        """
        name = self.unit(wanted)
        record.update(unit=name, begun=False, shape=wanted.get("shape", []))
        if _there(self.units[name]):
            raise _service.NameTaken(f"the unit {name} runs already, and is not ours")
        os.makedirs(self.environment, 0o700, exist_ok=True)
        env = {"INSTANCE": wanted["id"], **wanted["env"]}
        if wanted["command"]:
            env.update(ROLLOUT_COMMAND=wanted["command"], ROLLOUT_CWD=wanted["cwd"])
        _service.write(os.path.join(self.environment, name), _environment(env), 0o600)
        self.save(record)
        return ""

    def request_stop(self, record: Record, kill: bool) -> None:
        """Do nothing: `settle` tells all units at once."""

    def settle(self, stopping: list[Record]) -> None:
        """Do all there is to do, with one command for each kind of work, and look at the result."""
        if self.request["epoch"] <= 0:
            return
        living = [record for record in self.records.values() if self.alive(record)]
        begin = [record for record in living if not record["begun"]]
        stop = [record for record in living if record["begun"] and self.leaves(record)]
        kill = [record for record in stopping if record.get("killed")]
        forgotten = [record for id, record in self.records.items() if id in self.request["forget"]]
        dead = [record for record in forgotten if record not in living and self.owns(record)]
        self.retire(_units(stop), _units(kill), _units(dead))
        if begin:
            self.begin(begin)
        if begin or stop or kill:
            self.look(self.records)
        deadline = time.monotonic() + STOP_WAIT
        while any(self.alive(record) for record in stop) and time.monotonic() < deadline:
            time.sleep(_service.STOP_POLL)
            self.look(self.records)

    def leaves(self, record: Record) -> bool:
        """Return whether a unit has to be told to stop."""
        return (
            "stop_requested" in record
            and self.units[record["unit"]]["ActiveState"] != "deactivating"
        )

    def retire(self, stop: list[str], kill: list[str], dead: list[str]) -> None:
        if stop:
            _service.run("systemctl", "stop", "--no-block", *stop)
        if kill:
            _service.run("systemctl", "kill", "--signal=KILL", *kill)
        if stop or dead:
            _systemctl("disable", "--quiet", "--no-reload", *stop, *dead)
        if dead:
            # refused of those that have not failed
            _service.run("systemctl", "reset-failed", *dead)

    def begin(self, records: list[Record]) -> None:
        if self.request["text"]:
            stale = any(unit["NeedDaemonReload"] == "yes" for unit in self.units.values())
            shaped = _shape(self.records.values(), self.request["text"])
            problem = _install(self.request["template"], self.request["text"], stale or shaped)
            if problem:
                raise _service.Refused(problem)
        names = _units(records)
        # it had the slot before
        failed = [name for name in names if self.units[name]["ActiveState"] == "failed"]
        if failed:
            _systemctl("reset-failed", *failed)
        _systemctl("enable", "--quiet", "--no-reload", *names)
        status, _out, stderr = _service.run("systemctl", "start", "--no-block", *names)
        if status and not any(name in stderr for name in names):
            raise _service.Refused(f"systemctl start: {_service.last_lines(stderr)}")
        for record in records:
            record["begun"] = True
            refused = [line for line in stderr.splitlines() if record["unit"] in line]
            if refused:
                record.update(error=refused[0], ended=refused[0])
            self.save(record)

    def left(self, record: Record) -> str:
        """Return which processes a stopped unit still has, or that another one has its port."""
        unit = self.units.get(record.get("unit", ""), {}) if self.owns(record) else {}
        pids = _members(unit.get("ControlGroup", ""))
        if not pids:
            return _service.holds_port(record)
        named = ", ".join(f"{pid} ({_command(pid)})" for pid in pids[:3])
        return f"{len(pids)} of its processes still run: {named}"

    def usage(self, record: Record) -> dict[str, float]:
        return _usage.of_cgroup(int(self.units[record["unit"]].get("MainPID") or 0))

    def remove(self, record: Record) -> None:
        if self.owns(record):
            os.unlink(os.path.join(self.environment, record["unit"]))
            _drop_in(record["unit"], "")


def _units(records: t.Iterable[Record]) -> list[str]:
    return [record["unit"] for record in records]


def _show(names: t.Iterable[str], shown: t.Sequence[str] = SHOWN) -> dict[str, Unit]:
    """Return what systemd knows of units, by name.

    A property that it shows several times has several lines.
    """
    names = sorted(names)
    if not names:
        return {}
    out = _systemctl("show", f"--property={','.join(shown)}", *names)
    units: dict[str, Unit] = {}
    for name, block in zip(names, out.split("\n\n")):
        unit = units[name] = {}
        for line in block.strip("\n").split("\n"):
            key, _is, value = line.partition("=")
            unit[key] = f"{unit[key]}\n{value}" if key in unit else value
    if len(units) < len(names):
        raise _service.Refused(
            f"systemctl show: asked for {len(names)} units, it shows {len(units)}"
        )
    return units


def _there(unit: Unit) -> bool:
    """Return whether a unit runs, or is about to."""
    return unit["ActiveState"] in ALIVE or _has_job(unit)


def _members(group: str) -> list[int]:
    """Return the processes in a cgroup and those below, by the path that systemd shows of it."""
    places = ("", "systemd", "unified") if group else ()
    for place in places:
        pids = []
        for folder, _folders, files in os.walk(os.path.join(_usage.CGROUPS, place) + group):
            try:
                text = (
                    _read(os.path.join(folder, "cgroup.procs")) if "cgroup.procs" in files else ""
                )
            except OSError:
                continue  # a threaded one, or it has just gone
            pids += [int(pid) for pid in text.split()]
        if pids:
            return sorted(pids)
    return []


def _command(pid: int) -> str:
    return "".join(c for c in _read(f"/proc/{pid}/comm").strip() if c.isprintable())


def _has_job(unit: Unit) -> bool:
    """Return whether systemd has enqueued a start or a stop of a unit."""
    return unit.get("Job", "0") not in ("", "0")


def _systemctl(*argv: str) -> str:
    status, out, stderr = _service.run("systemctl", *argv)
    if status:
        raise _service.Refused(f"systemctl {argv[0]}: {_service.last_lines(stderr)}")
    return out


def _seconds(unit: Unit, event: str) -> float:
    """Return when something happened, in seconds of the monotonic clock.

    0 if it did not, or is not known any more.
    """
    return int(unit.get(f"{event}TimestampMonotonic") or 0) / 1e6


def _how(record: Record, unit: Unit, boot: str, over: bool = True) -> str:
    """Return how an instance ended that was not asked to, and its last log lines.

    Of a unit that is not `over`, since it was started again, or is over without an error, systemd
    has forgotten all; its journal has not.
    """
    present = unit if over else {}
    started, ended = _seconds(present, "ExecMainStart"), _seconds(present, "ExecMainExit")
    if not started and record["boot"] != boot:
        return "gone: the host was restarted"
    log = Log(record)
    result, asked = log.result, log.asked
    if started:
        result = present.get("Result", "success")
        # systemd stops a unit itself, too, at a time limit for example
        asked = log.asked if result not in PLAIN else 0 < _seconds(unit, "ActiveExit") < ended
    if asked:
        how = f"unit {record['unit']} was stopped outside the rollout"
    else:
        codes = {"1": "exit code", "2": "killed by signal", "3": "killed by signal"}
        code = codes.get(present.get("ExecMainCode", ""))
        parts = (
            "" if result in PLAIN else RESULTS.get(result, result),
            f"{code} {present['ExecMainStatus']}" if code else log.exit,
        )
        how = ", ".join(filter(None, parts)) or "exited"
        how += f" within {ended - started:.1f} s of its start" if 0 < started < ended else ""
    return f"{how}; {log.described(unit.get('StandardOutput', ''))}"


class Log:
    """What the host's journal has of an instance: its last lines, and how it ended last."""

    def __init__(self, record: Record) -> None:
        """Read it; of systemd, why it could not start the unit, or ended it."""
        status, _out, stderr = _service.run("journalctl", "--sync")
        self.unreadable = _service.last_lines(stderr) if status else ""
        name, lines = record["unit"], []
        wanted = [f"_SYSTEMD_UNIT={name}"]
        for level in (3, 4):
            wanted += ["+", f"UNIT={name}", f"PRIORITY={level}"]
        for id in (STOPPING, EXITED, STARTING, STARTED, FAILED, SUCCEEDED):
            wanted += ["+", f"UNIT={name}", f"MESSAGE_ID={id}"]
        shown = (
            "--output=json",
            "--output-fields=MESSAGE,MESSAGE_ID,UNIT_RESULT,EXIT_CODE,EXIT_STATUS",
            f"--since=@{int(record['created'])}",
            "--lines=30",
        )
        out = _service.run("journalctl", "--quiet", "--no-pager", *shown, *wanted)[1]
        self.asked, self.result, self.exit = False, "success", ""
        lives = False  # whether it has started since it ended last
        for line in out.splitlines():
            entry = _bootstrap.load(line)
            id, text = entry.get("MESSAGE_ID"), entry.get("MESSAGE") or ""
            if id in (STARTING, STARTED):
                lives = True
            elif id in (STOPPING, EXITED, FAILED, SUCCEEDED):
                if lives or id == STOPPING:
                    self.asked, self.result, self.exit, lives = False, "success", "", False
                self._take(id, entry)
            else:  # a list: not printable
                lines.append(
                    text if isinstance(text, str) else bytes(text).decode(errors="replace")
                )
        self.lines = _service.last_lines("\n".join(lines))

    def _take(self, id: str, entry: dict[str, t.Any]) -> None:
        """Take an event of an end."""
        if id == STOPPING:
            self.asked = True
        elif id == FAILED:
            self.result = str(entry.get("UNIT_RESULT") or self.result)
        elif id == EXITED and entry.get("EXIT_STATUS"):
            code = "exit code" if entry.get("EXIT_CODE") == "exited" else "killed by signal"
            self.exit = f"{code} {entry['EXIT_STATUS']}"

    def described(self, output: str) -> str:
        """Return the last lines, or why there are none; `output`: where systemd sends them."""
        if self.lines:
            return f"last log lines: {self.lines}"
        if output not in LOGGED:
            return f"its log is not in the journal (StandardOutput={output})"
        if self.unreadable:
            return f"its log cannot be read (journalctl: {self.unreadable})"
        return "its log is empty"


def _environment(env: dict[str, str]) -> str:
    """Return an environment file as systemd reads it."""
    lines = []
    for name, value in env.items():
        for char in '\\"$`':
            value = value.replace(char, "\\" + char)
        lines.append(f'{name}="{value}"\n')
    return "".join(lines)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _install(template: str, text: str, stale: bool) -> str:
    """Write the rollout's template if it has changed; return why that cannot be, or "".

    `stale`: systemd has yet to read it.
    """
    path = os.path.join(UNITS, template)
    folder = os.open(UNITS, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # one writer at a time, whichever service it is for
        fcntl.flock(folder, fcntl.LOCK_EX)
        if _read(path) != text:
            problem = _foreign(template)
            if problem:
                return problem
            _service.write(path, text, 0o644)
            stale = True
        if stale:
            _systemctl("daemon-reload")
    finally:
        os.close(folder)
    return ""


def _shape(records: t.Iterable[Record], text: str) -> bool:
    """Give units whose settings are not the template's a drop-in; return whether any changed."""
    changed = False
    for record in records:
        if record.get("shape") and "ended" not in record:
            other = not set(record["shape"]) <= set(text.splitlines())
            lines = [f"{OURS}: what this unit was started with", "[Service]", *record["shape"], ""]
            changed = _drop_in(record["unit"], "\n".join(lines) if other else "") or changed
    return changed


def _drop_in(unit: str, text: str) -> bool:
    """Write a unit's drop-in, or remove it where there is no text; return whether it changed."""
    folder = os.path.join(UNITS, f"{unit}.d")
    path = os.path.join(folder, SHAPE)
    if _read(path) == text:
        return False
    if text:
        os.makedirs(folder, 0o755, exist_ok=True)
        _service.write(path, text, 0o644)
        return True
    os.unlink(path)
    if not os.listdir(folder):
        os.rmdir(folder)
    return True


def _foreign(template: str) -> str:
    """Return why the rollout's template cannot be written: another one has the name."""
    path = os.path.join(UNITS, template)
    known = _show([template.replace("@", "@0")])[template.replace("@", "@0")]["FragmentPath"]
    ours = not os.path.islink(path) and _read(path).startswith(OURS)
    if (known and known != path) or (os.path.lexists(path) and not ours):
        return (
            f"{known or path} is not ours, and would be replaced; name it as rollout_platform.unit,"
            " or rename the service"
        )
    return ""


def _problems(check: dict[str, t.Any]) -> dict[str, str]:
    """Return what keeps this host from running instances, by setting."""
    if not os.path.isdir("/run/systemd/system"):
        return {"hosts": "the host was not started by systemd"}
    if os.geteuid():
        return {
            "hosts": (
                f"units are root's, and this is the user with the id {os.geteuid()}; set"
                " ansible_become"
            )
        }
    problems = {
        "path": _service.unusable(check["path"]),
        "unit": (
            (_foreign(check["template"]) if check["text"] else _unfit(check))
            or _unsupervised(check["template"])
        ),
    }
    return {setting: why for setting, why in {**problems, **_missing(check)}.items() if why}


def _unfit(check: dict[str, t.Any]) -> str:
    """Return why a template of the user's own cannot be used."""
    name = check["template"].replace("@", "@0")
    unit = _show([name])[name]
    if unit["LoadState"] != "loaded":
        return f"systemd cannot load {check['template']} ({unit['LoadState']})"
    if os.path.join(check["path"], "env", name) not in unit.get("EnvironmentFiles", ""):
        return (
            f"{check['template']} does not read what makes it one revision or another; add"
            f" EnvironmentFile={check['path']}/env/%n"
        )
    return ""


def _unsupervised(template: str) -> str:
    """Return why a stop of a unit would leave its programs running, or their end would not be seen;
    "" if neither is so.

    https://www.freedesktop.org/software/systemd/man/latest/systemd.kill.html
    """
    name = template.replace("@", "@0")
    unit = _show([name], ("KillMode", "Type", "RemainAfterExit"))[name]
    if unit.get("KillMode") in ("process", "none"):
        return (
            f"{template} has KillMode={unit['KillMode']}, with which a stop leaves the programs of"
            " an instance running, and their port taken; remove that line, or write KillMode=mixed"
        )
    if unit.get("Type") == "oneshot" or unit.get("RemainAfterExit") == "yes":
        line = "Type=oneshot" if unit.get("Type") == "oneshot" else "RemainAfterExit=yes"
        return f"{template} has {line}, so that the end of its program would not be seen; remove it"
    return ""


def _beside(request: dict[str, t.Any]) -> list[str]:
    """Return the units of the template that run here, and that no rollout has started."""
    check = request["check"]
    units = check["template"].replace("@.", "@*.")
    shown = ("--plain", "--no-legend", "--full", "--type=service", "--state=active,activating")
    lines = _service.run("systemctl", "list-units", *shown, units)[1].splitlines()
    records = list(_service.neighbours(check["path"], request["service"]))
    hosts = os.listdir(check["path"]) if lines and os.path.isdir(check["path"]) else ()
    for host in hosts:  # several may be this machine
        records += _records(os.path.join(check["path"], host, request["service"]))
    started = {record.get("unit") for record in records}
    return sorted({line.split()[0] for line in lines if line.strip()} - started)


def _prepare(wanted: dict[str, t.Any]) -> dict[str, str]:
    """Write the template; return what a revision needs that is not there, by setting."""
    shaped = bool(wanted["text"]) and _shape(_records(wanted["home"]), wanted["text"])
    problem = _install(wanted["template"], wanted["text"], shaped) if wanted["text"] else ""
    return {**({"unit": problem} if problem else {}), **_missing(wanted)}


def _records(home: str) -> list[Record]:
    """Return the records of the service's instances on this host."""
    folder, records = os.path.join(home, "instances"), []
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name.endswith(".json") and not name.startswith("."):
            records.append(_bootstrap.load(_read(os.path.join(folder, name)) or "{}"))
    return records


def _missing(wanted: dict[str, t.Any]) -> dict[str, str]:
    """Return what of the user, the program and its directory is not there, by setting."""
    problems = _service.missing(wanted)
    if wanted["user"]:
        try:
            pwd.getpwnam(wanted["user"])
        except KeyError:
            problems["user"] = f"there is no user {wanted['user']}"
    return problems
