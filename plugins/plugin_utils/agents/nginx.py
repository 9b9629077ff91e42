# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the file that an nginx includes, have it read, and find out what its workers serve.

Needs Python 3.8 and Linux. `main` returns {"entries": [...]} (and of `check` the "journal" that
they belong to), {"stale": "..."} where a newer lease holder has acted here, or a run with another
journal, or {"error": "...", "field": "..."}, where `field` is the option to look at.
An entry is {address, port, in, weight, name} and, as nginx has it, active, and the service that the
upstream belongs to ("" if that is not known). Its two files in the
directory `path` are those of `_nginx_config.py`; NAME.lock and NAME.epoch fence what is done for
it, and NAME.journal names its journal.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import (
    _files,
    _nginx_config,
    _sockdiag,
    _talk,
)

TYPE_CHECKING = False  # importing typing costs start-up time
if TYPE_CHECKING:
    import typing as t

    Request = t.Dict[str, t.Any]
    Entry = t.Dict[str, t.Any]
    Key = t.Tuple[str, int]
    # by pid: when they began, and whether they were told to quit
    Workers = t.Dict[int, t.Tuple[int, bool]]

ANSWER = 5.0  # seconds that the status response may take
TEST = 30.0  # seconds `nginx -t` may take
RELOAD_TIMEOUT = 15.0  # seconds until a new configuration is served; it takes 0.15
# seconds in which nginx tells its old workers to quit, once new ones are there; it takes half of it
QUIT = 0.2
POLL = 0.01


class Failed(Exception):
    """What is wrong, as text for the operator, and the option to look at."""

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text)
        self.field = field


def main(request: Request) -> dict[str, t.Any]:
    """Do `op`: check, observe or apply; see the functions of these names."""
    try:
        epoch = 0 if request["op"] == "check" else request["epoch"]
        stem = os.path.join(request["path"], request["upstream"])
        with _files.Fenced(stem, epoch, mark(request), _nginx_config.paths(request)):
            if request["op"] == "check":
                answer = {**check(request), **mark(request).shown()}
            else:
                answer = {"entries": {"observe": observe, "apply": apply}[request["op"]](request)}
        service = (mark(request).owner() or {}).get("service", "")
        return {**answer, "entries": [dict(entry, service=service) for entry in answer["entries"]]}
    except _files.Stale as exc:
        return {"stale": str(exc)}
    except _files.Refused as exc:
        return {"error": str(exc), "field": ""}
    except _sockdiag.Unlisted as exc:
        return {
            "error": (
                "the kernel does not list its connections (%s); load its module tcp_diag" % exc
            ),
            "field": "pid",
        }
    except Failed as exc:
        return {"error": str(exc), "field": exc.field}
    except OSError as exc:
        return {
            "error": "%s: %s" % (exc.filename or "the system", exc.strerror or exc),
            "field": "",
        }


def mark(request: Request) -> _files.JournalMark:
    """Return which journal the entries belong to."""
    path = os.path.join(request["path"], request["upstream"] + ".journal")
    what = "the entries of %s" % request["upstream"]
    return _files.JournalMark(path, what, request["journal"], request["service"])


# --- its processes ---


def master(request: Request) -> int:
    """Return the pid of nginx's master process, which this user may signal."""
    try:
        pid = int(read(request["pid"]) or 0)
        running = title(pid).startswith("nginx: master process")
    except (OSError, ValueError):
        running = False
    if not running:
        raise Failed("it does not run: the file has no pid of an nginx", "pid")
    try:
        os.kill(pid, 0)
    except PermissionError:
        raise Failed(
            "this user may not signal it; become root, or the user it runs as", "pid"
        ) from None
    return pid


def title(pid: int) -> str:
    """Return the title that a process gave itself."""
    return (read("/proc/%s/cmdline" % pid) or "").replace("\0", " ")


def workers(pid: int) -> Workers:
    """Return the workers of a master; they began at these ticks since boot."""
    pids = {}
    # its list of children may leave some out while one ends
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError):
            fields = (read("/proc/%s/stat" % name) or "").rpartition(")")[2].split()
            if int(fields[1]) == pid and title(int(name)).startswith("nginx: worker process"):
                pids[int(name)] = int(fields[19]), "shutting down" in title(int(name))
    return pids


def ticks() -> int:
    """Return the time of the kernel's clock that tells when processes began."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def count(pid: int, entries: list[Entry]) -> None:
    """Set `active` of entries: the requests in flight.

    Each request has a separate connection, since the upstream keeps none open. An entry out of
    rotation may get one more from an old worker that has not read or forwarded that request yet.
    """
    crew = workers(pid)
    far, listening = _sockdiag.connections()
    ends = {_sockdiag.end(*_nginx_config.key(entry)) for entry in entries}
    # by worker: the far ends of its connections, and how many of its clients have none to go with
    # them
    held = {}
    if ends & {end for _port, end in far.values()} or any(quits for _began, quits in crew.values()):
        for worker in crew:
            links = [far[link] for link in _sockdiag.open_files(worker) if link in far]
            clients = sum(port in listening for port, _end in links)
            held[worker] = (
                [end for port, end in links if port not in listening],
                max(0, 2 * clients - len(links)),
            )
    for entry in entries:
        end = _sockdiag.end(*_nginx_config.key(entry))
        entry["active"] = sum(far_ends.count(end) for far_ends, _waiting in held.values())
        for worker, (_ends, waiting) in held.items():
            began, quits = crew[worker]
            entry["active"] += (
                waiting if quits and not entry["in"] and began <= entry["since"] else 0
            )


# --- the files ---


def read(name: str) -> str | None:
    """Return the text of a file; None when there is none."""
    try:
        with open(name, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return None


def write(name: str, text: str | None) -> None:
    """Replace a file in one step; remove it where there is no text."""
    if text is None:
        os.unlink(name)
    else:
        _files.write(name, text, 0o644)


def recorded(request: Request) -> dict[Key, Entry]:
    """Return the entries of NAME.json, by key."""
    name = _nginx_config.paths(request)[1]
    try:
        return _nginx_config.load(read(name) or "")
    except (ValueError, TypeError, KeyError):
        raise Failed(
            "%s is not what a rollout wrote; restore it, or remove it and roll out again" % name,
            "path",
        ) from None


# --- what it serves ---


def status(request: Request) -> str | None:
    """Return the response at the status address under the upstream's name; None without one."""
    try:
        question = "GET / HTTP/1.0\r\nHost: %s\r\n\r\n" % request["upstream"]
        data = _talk.ask(request["status"], question.encode(), ANSWER)
    except ConnectionRefusedError:
        return None
    except OSError as exc:
        raise Failed("nothing is answered there: %s" % exc, "status") from None
    return data.partition(b"\r\n\r\n")[2].decode("latin-1")


def served(request: Request) -> str | None:
    """Return the entries that a worker serves, as text; None if it serves no rollout's upstream."""
    name, _semicolon, text = (status(request) or "").partition(";")
    return text if name == "rollout " + request["upstream"] else None


def look(request: Request, pid: int) -> dict[Key, Entry]:
    """Return the entries: those in rotation as nginx serves them, the others as recorded."""
    text, conf = served(request), _nginx_config.paths(request)[0]
    written = read(conf) or ""
    if text is None and written.startswith(_nginx_config.MARK):
        # perhaps of a rollout with another status address
        text = served({**request, "status": _nginx_config.listens(written) or request["status"]})
        if text is None:
            raise Failed(
                "nginx has %s, and does not answer there as it says; reload it" % conf, "status"
            )
    entries = recorded(request)
    for entry in entries.values():
        entry["in"] = False
    if text is None:
        entries.update(by_hand(request))
    try:
        entries.update(
            (_nginx_config.key(entry), entry) for entry in _nginx_config.status_entries(text or "")
        )
    except ValueError as exc:
        raise Failed(
            "what is answered there was not written by a rollout: %s" % _talk.shown(exc), "status"
        ) from None
    count(pid, list(entries.values()))
    return entries


def by_hand(request: Request) -> dict[Key, Entry]:
    """Return the servers of the file, by key, if no rollout wrote it."""
    conf = _nginx_config.paths(request)[0]
    try:
        return _nginx_config.by_hand(read(conf) or "", request["upstream"])
    except _nginx_config.Unlike as exc:
        todo = "take it out"
        if str(exc).startswith("server "):  # without it, what it leads to would get no requests
            todo = "give the server an address, a port, and no options but %s" % ", ".join(
                sorted(_nginx_config.KEPT)
            )
        raise Failed(
            "%s has `%s`, which a rollout would not keep: it writes an upstream whose servers have"
            " addresses and get requests in turn; %s" % (conf, _talk.shown(exc), todo),
            "path",
        ) from None


# --- changing it ---


def run_nginx(request: Request, pid: int, option: str) -> str:
    """Return what the very program that runs prints of its configuration.

    Raises Failed when it refuses it.
    """
    import subprocess  # only who changes something pays for it

    argv = ["/proc/%d/exe" % pid, option, "-q", "-c", request["config"]]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=TEST, check=False
        )
    except subprocess.TimeoutExpired:
        raise Failed("nginx %s did not end within %g s" % (option, TEST), "config") from None
    if done.returncode:
        printed = done.stderr.decode("utf-8", "replace").strip().splitlines()
        complaints = [line for line in printed if "[emerg]" in line] or printed[-1:]
        raise Failed(
            "nginx %s refuses it: %s"
            % (option, _talk.shown("; ".join(complaints)) or "it does not say why"),
            "config",
        )
    return done.stdout.decode("utf-8", "replace")


def publish(request: Request, pid: int, entries: list[Entry]) -> None:
    """Write both files and have them read.

    They are put back when nginx refuses them or does not serve them.
    """
    conf, known = _nginx_config.paths(request)
    before = {name: read(name) for name in (conf, known)}
    try:
        # first: a writer that dies here has written nothing that is not so
        write(known, _nginx_config.dump(entries))
        write(conf, _nginx_config.render(request, entries))
        run_nginx(request, pid, "-t")
        reload(request, pid, "".join(_nginx_config.status_texts(entries)))
    except (Failed, OSError) as exc:
        for name, text in before.items():
            if read(name) != text:
                write(name, text)
        if isinstance(exc, Failed):
            raise Failed("%s; the files are as they were before" % exc, exc.field) from None
        raise


def reload(request: Request, pid: int, wanted: str) -> None:
    """Have nginx read its configuration.

    Wait until no worker takes new connections with another configuration.
    """
    before = workers(pid)
    os.kill(pid, signal.SIGHUP)
    until = time.monotonic() + RELOAD_TIMEOUT
    await_(
        until,
        lambda: bool(workers(pid).keys() - before.keys()) and serves(request, wanted),
        "does not serve it",
    )
    # another program had it reloaded at the same time: what began in between quits in a moment
    if not accepting(pid, before):
        time.sleep(QUIT)
    await_(until, lambda: not accepting(pid, before), "has old workers that do not quit")


def serves(request: Request, wanted: str) -> bool:
    """Return True if a worker serves these entries."""
    with contextlib.suppress(Failed):
        return served(request) == wanted
    return False


def accepting(pid: int, before: Workers) -> bool:
    """Return True if any of these workers still takes connections."""
    return any(not quits for worker, (_began, quits) in workers(pid).items() if worker in before)


def await_(until: float, happened: t.Callable[[], bool], what: str) -> None:
    """Return when it has happened; raises Failed when the time is over."""
    while not happened():
        if time.monotonic() > until:
            raise Failed(
                "it was reloaded and %s within %g s; its error log says why"
                % (what, RELOAD_TIMEOUT)
            )
        time.sleep(POLL)


# --- the requests ---


def check(request: Request) -> dict[str, t.Any]:
    """Raise Failed unless nginx runs, its configuration is right and this user may change it.

    It has to include the service's file. Return the entries, and how long nginx keeps idle
    connections of clients.
    """
    pid = master(request)
    name = _nginx_config.paths(request)[0]
    if not os.path.isdir(request["path"]) or not os.access(request["path"], os.W_OK | os.X_OK):
        raise Failed("it is not a directory that can be written to", "path")
    start = "# configuration file "
    text = run_nginx(request, pid, "-T")
    files = [line[len(start) : -1] for line in text.splitlines() if line.startswith(start)]
    if os.path.realpath(name) not in map(os.path.realpath, files):
        raise Failed(
            "%s does not include %s; create it with `upstream %s { server 127.0.0.1:9 down; }`, and"
            " include it in `http`. If the service runs behind nginx already, move its upstream"
            " there as it is" % (request["config"], name, request["upstream"]),
            "path",
        )
    use = "http://$" + _nginx_config.variable(request["upstream"])
    if request.get("cohort") and not re.search(re.escape(use) + r"\b", text):
        raise Failed(
            "%s does not send requests to %s; write `proxy_pass %s;` instead of http://%s"
            % (request["config"], use, use, request["upstream"]),
            "cohort",
        )
    other = namesake(request) if request.get("cohort") else ""
    if other:
        raise Failed(
            "upstream %s has the same variable, %s: all clients of one would get the other; give"
            " one of them another name" % (other, use[len("http://") :]),
            "upstream",
        )
    try:
        for worker in workers(pid):
            list(_sockdiag.open_files(worker))
    except PermissionError:
        raise Failed(
            "this user may not see its connections; become root, or the user it runs as", "pid"
        ) from None
    answer = status(request)
    if answer is not None and not answer.startswith("rollout "):
        raise Failed(
            "something else answers there; give an address and a port that nothing uses", "status"
        )
    entries = look(request, pid)
    foreign = unadopted(request, {**entries, **by_hand(request)}, request["adopting"])
    if foreign and not request["in_place"]:
        raise Failed(
            "%s has servers that no rollout wrote: %s; to have the next rollout replace them, name"
            " them and what they run in rollout_adopt: {revision: ..., servers: [%s]}"
            % (name, ", ".join(foreign), ", ".join(foreign)),
            "path",
        )
    idle = _nginx_config.idle(text, request["upstream"])
    return {"entries": list(entries.values()), "idle": idle}


def unadopted(
    request: Request, entries: dict[Key, Entry], adopting: t.Collection[str]
) -> list[str]:
    """Return the names of servers in rotation that people wrote, and that are none of the
    service's.
    """
    mine = {*request["adopted"], *adopting}
    return [
        str(entry["name"])
        for entry in entries.values()
        if entry["in"] and _nginx_config.is_by_hand(entry) and entry["name"] not in mine
    ]


def namesake(request: Request) -> str:
    """Return another upstream with the same variable, "" if there is none.

    nginx does not tell upper from lower case there.
    """
    mine = _nginx_config.variable(request["upstream"]).lower()
    for file in sorted(os.listdir(request["path"])):
        other, ending = os.path.splitext(file)
        if ending != ".conf" or other == request["upstream"]:
            continue
        theirs = _nginx_config.variable(other)
        text = read(os.path.join(request["path"], file)) or ""
        if theirs.lower() == mine and " $%s {" % theirs in text:
            return other
    return ""


def observe(request: Request) -> list[Entry]:
    """Return every entry."""
    return list(look(request, master(request)).values())


def apply(request: Request) -> list[Entry]:
    """Bring the entries to what is asked, and return them as they then are.

    What is new of entries that are out is written down only: nginx is reloaded when it has to serve
    something else. An entry that is to go stays, out, until nothing needs it.
    """
    if request["epoch"] <= 0:
        raise Failed("nothing is changed without a lease (epoch 0 only looks)")
    with _files.Locked(request["path"]):  # other services' rollouts reload the same nginx
        pid = master(request)
        now = look(request, pid)
        wanted = {_nginx_config.key(entry) for entry in request["entries"]}
        left = {known: entry for known, entry in now.items() if known not in wanted}
        if foreign := unadopted(request, left, ()):
            raise Failed(
                "it has servers that no rollout wrote: %s; they would get no more requests"
                % ", ".join(foreign),
                "path",
            )
        entries = planned(request, now)
        conf, known = _nginx_config.paths(request)
        same = _nginx_config.status_texts(entries) == _nginx_config.status_texts(
            _nginx_config.ordered(now)
        )
        mark(request).claim()
        if not same or _nginx_config.render(request, entries) != read(conf):
            publish(request, pid, entries)
        elif _nginx_config.dump(entries) != read(known):
            write(known, _nginx_config.dump(entries))
        return list(look(request, pid).values())


def planned(request: Request, now: dict[Key, Entry]) -> list[Entry]:
    """Return the entries as they shall be."""
    wanted = {_nginx_config.key(entry): entry for entry in request["entries"]}
    for key, entry in now.items():
        if key not in wanted and (entry["in"] or entry["active"]):
            wanted[key] = dict(entry, **{"in": False})
    for key, entry in wanted.items():
        was = now.get(key, {"in": False, "since": 0})
        entry["since"] = 0 if entry["in"] else ticks() if was["in"] else was["since"]
    return _nginx_config.ordered(wanted)
