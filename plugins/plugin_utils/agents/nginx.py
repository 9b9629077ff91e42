# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On an nginx's host: write the file it includes, have it read, and find out what its workers really serve.

Runs on Python 3.8 and later, on Linux. `main` returns {"entries": [...]}, {"stale": "..."} where a newer lease holder has
acted here, or {"error": "...", "field": "..."}, where `field` is the option to look at; an entry is {address, port, in,
weight, name} and, as nginx has it, active.

In the directory `path` each upstream has two files. NAME.conf is what nginx reads: the entries that are in, and a tiny
server that recites them, so that a worker says itself what it serves. NAME.json is what nginx need not know: all
entries, those that are out with `since`, the kernel's clock when they went out. Workers begun before know them as in.
NAME.lock and NAME.epoch fence what is done for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import time

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _files, _talk

ANSWER = 5.0  # seconds nginx may take to recite
TEST = 30.0  # seconds `nginx -t` may take
PATIENCE = 15.0  # seconds until a new configuration is served; it takes 0.15
QUIT = 0.2  # seconds in which nginx tells its old workers to quit, once new ones are there; it takes half of it
POLL = 0.01
TOKEN = 3000  # bytes; the longest text in a configuration is 4096
SOCK_DIAG, BY_FAMILY, REQUEST_DUMP = 4, 20, 0x301  # what the kernel is asked
ERROR, DONE = 2, 3  # kinds of what it answers
LISTENS, LIVE = 10, 0xFFF & ~(1 << 6)  # a state of sockets, and all of them but TIME_WAIT
MARK = "# Written by progressive.rollout"
KEYS = ("address", "port", "weight", "name", "since")


class Failed(Exception):
    """What is wrong, as text for the operator, and the option to look at."""

    def __init__(self, text, field=""):
        super().__init__(text)
        self.field = field


def main(request):
    """`op` is check, observe or apply; see the functions of these names."""
    try:
        epoch = 0 if request["op"] == "check" else request["epoch"]
        with _files.Fenced(os.path.join(request["path"], request["upstream"]), epoch):
            return {"entries": {"check": check, "observe": observe, "apply": apply}[request["op"]](request)}
    except _files.Stale as exc:
        return {"stale": str(exc)}
    except _files.Refused as exc:
        return {"error": str(exc), "field": ""}
    except Failed as exc:
        return {"error": str(exc), "field": exc.field}
    except OSError as exc:
        return {"error": "%s: %s" % (exc.filename or "the system", exc.strerror or exc), "field": ""}


# --- its processes ---


def master(request):
    """The pid of nginx's master process, which we may signal."""
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
        raise Failed("this user may not signal it; become root, or the user it runs as", "pid") from None
    return pid


def title(pid):
    """How a process calls itself."""
    return (read("/proc/%s/cmdline" % pid) or "").replace("\0", " ")


def workers(pid):
    """The workers of a master, by pid: when they began, in ticks since boot, and whether they were told to quit."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):  # its list of children may leave some out while one ends
        with contextlib.suppress(OSError, IndexError):
            fields = (read("/proc/%s/stat" % name) or "").rpartition(")")[2].split()
            if int(fields[1]) == pid and title(name).startswith("nginx: worker process"):
                found[int(name)] = int(fields[19]), "shutting down" in title(name)
    return found


def ticks():
    """The kernel's clock that tells when processes began."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def count(pid, entries):
    """Set `active` of entries: the requests in flight. Each has a connection of its own, since our upstream keeps none.

    One that is out may get another from an old worker, out of a connection whose request is still to be read or sent.
    """
    crew = workers(pid)
    far, listening = sockets()
    ours = {far_end(entry) for entry in entries}
    held = {}  # by worker: the far ends of its connections, and how many of its clients have none to go with them
    if ours & {end for _port, end in far.values()} or any(quits for _began, quits in crew.values()):
        for worker in crew:
            its = [far[link] for link in links(worker) if link in far]
            clients = sum(port in listening for port, _end in its)
            held[worker] = [end for port, end in its if port not in listening], max(0, 2 * clients - len(its))
    for entry in entries:
        entry["active"] = sum(ends.count(far_end(entry)) for ends, _waiting in held.values())
        for worker, (_ends, waiting) in held.items():
            began, quits = crew[worker]
            entry["active"] += waiting if quits and not entry["in"] and began <= entry["since"] else 0


def sockets():
    """Of each TCP connection of this host the near port and the far end, and the ports that are listened at.

    Asked of the kernel as `ss` does, without those in TIME_WAIT: /proc/net/tcp takes seconds where there are many.
    """
    far, listening = {}, set()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as kernel:
        kernel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        for family, size in ((socket.AF_INET, 4), (socket.AF_INET6, 16)):
            body = struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, 0, 0, LIVE)
            kernel.send(struct.pack("=IHHII", 16 + len(body), BY_FAMILY, REQUEST_DUMP, 0, 0) + body)
            for message in replies(kernel):
                state, near, port = struct.unpack_from("!xB2xHH", message)
                if state == LISTENS:
                    listening.add(near)
                else:
                    inode = struct.unpack_from("=I", message, 68)[0]
                    far["socket:[%d]" % inode] = near, (message[24 : 24 + size], port)
    return far, listening


def replies(kernel):
    """The bodies of the messages that answer a question."""
    while True:
        data = kernel.recv(1 << 18)
        while data:
            length, kind = struct.unpack_from("=IH", data)
            if kind == DONE:
                return
            if kind == ERROR:
                code = -struct.unpack_from("=i", data, 16)[0]
                raise Failed("the kernel does not list its connections (%s); load its module tcp_diag" % os.strerror(code), "pid")
            yield data[16:length]
            data = data[(length + 3) & ~3 :]


def links(pid):
    """What the open files of a process are."""
    folder = "/proc/%d/fd" % pid
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                yield os.readlink(os.path.join(folder, name))


def far_end(entry):
    """Address and port as the kernel tells them."""
    return socket.inet_pton(socket.AF_INET6 if ":" in entry["address"] else socket.AF_INET, entry["address"]), entry["port"]


# --- the files ---


def names(request):
    """The paths of NAME.conf and NAME.json."""
    stem = os.path.join(request["path"], request["upstream"])
    return stem + ".conf", stem + ".json"


def read(name):
    """The text of a file; None when there is none."""
    try:
        with open(name, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return None


def write(name, text):
    """Replace a file at once and for good; without text there shall be none."""
    if text is None:
        os.unlink(name)
        return
    _files.write(name, text, 0o644)


def recorded(request):
    """The entries of NAME.json, by place."""
    name = names(request)[1]
    try:
        return {place(entry): entry for entry in json.loads(read(name) or "[]")}
    except (ValueError, TypeError, KeyError):
        raise Failed("%s is not what a rollout wrote; restore it, or remove it and roll out again" % name, "path") from None


def record(entries):
    """The text of NAME.json."""
    return json.dumps([{key: entry[key] for key in KEYS} for entry in entries], indent=1) + "\n"


def render(request, entries):
    """The text of NAME.conf. Without an entry that is in there is one that is down: nginx wants one."""
    upstream = request["upstream"]
    servers = ["server %s weight=%d max_fails=%d;" % (where(one), one["weight"], request["fall"]) for one in entries if one["in"]]
    texts = recital(entries)
    lines = [
        "%s. Do not change it." % MARK,
        "upstream %s {" % upstream,
        "    zone rollout_%s %dk;" % (upstream, 64 + len(servers)),
        *("    " + server for server in servers or ["server 127.0.0.1:9 down;"]),
        "}",
        "server {",
        "    listen %s;" % where(dict(zip(("address", "port"), request["status"]))),
        "    server_name %s;" % upstream,
        "    access_log off;",
        *("    set $rollout_%d '%s';" % (number, text) for number, text in enumerate(texts)),
        "    return 200 'rollout %s;%s';" % (upstream, "".join("$rollout_%d" % number for number in range(len(texts)))),
        "}",
    ]
    return "\n".join(lines) + "\n"


def recital(entries):
    """What a worker says of the entries that are in, in texts that are short enough."""
    texts = []
    for entry in entries:
        if entry["in"]:
            said = "%(address)s %(port)d %(weight)d %(name)s;" % entry
            if texts and len(texts[-1]) + len(said) <= TOKEN:
                texts[-1] += said
            else:
                texts.append(said)
    return texts


def where(entry):
    """Address and port as nginx reads them."""
    return ("[%s]:%d" if ":" in entry["address"] else "%s:%d") % (entry["address"], entry["port"])


# --- what it serves ---


def told(request):
    """What is answered at the status address under our upstream's name; None when nobody listens there."""
    try:
        question = "GET / HTTP/1.0\r\nHost: %s\r\n\r\n" % request["upstream"]
        data = _talk.ask(request["status"], question.encode(), ANSWER)
    except ConnectionRefusedError:
        return None
    except OSError as exc:
        raise Failed("nothing is answered there: %s" % exc, "status") from None
    return data.partition(b"\r\n\r\n")[2].decode("latin-1")


def recited(request):
    """The entries that a worker says it serves; None when it serves nothing of ours."""
    name, _semicolon, said = (told(request) or "").partition(";")
    return said if name == "rollout " + request["upstream"] else None


def look(request, pid):
    """The entries: those that are in as nginx serves them, the others as we wrote them down."""
    said = recited(request)
    if said is None and (read(names(request)[0]) or "").startswith(MARK):
        raise Failed("nginx has %s, and does not answer there as it says; reload it" % names(request)[0], "status")
    entries = recorded(request)
    for entry in entries.values():
        entry["in"] = False
    for line in filter(None, (said or "").split(";")):
        try:
            address, port, weight, name = line.split(" ")
            entry = {"address": address, "port": int(port), "in": True, "weight": int(weight), "name": name, "since": 0}
        except ValueError:
            raise Failed("what is answered there was not written by a rollout: %s" % _talk.shown(line), "status") from None
        entries[place(entry)] = entry
    count(pid, list(entries.values()))
    return entries


def place(entry):
    """What an entry is known by."""
    return entry["address"], entry["port"]


# --- changing it ---


def nginx(request, pid, option):
    """What the very program that runs says of its configuration; raises Failed when it refuses it."""
    import subprocess  # only who changes something pays for it

    argv = ["/proc/%d/exe" % pid, option, "-q", "-c", request["config"]]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=TEST, check=False)
    except subprocess.TimeoutExpired:
        raise Failed("nginx %s did not end within %g s" % (option, TEST), "config") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        complaints = [line for line in said if "[emerg]" in line] or said[-1:]
        raise Failed("nginx %s refuses it: %s" % (option, _talk.shown("; ".join(complaints)) or "it does not say why"), "config")
    return done.stdout.decode("utf-8", "replace")


def publish(request, pid, entries):
    """Write both files and have them read; they are put back when nginx refuses them or does not serve them."""
    before = {name: read(name) for name in names(request)}
    conf, known = before
    try:
        write(known, record(entries))  # first: who dies here has written nothing that is not so
        write(conf, render(request, entries))
        nginx(request, pid, "-t")
        reload(request, pid, "".join(recital(entries)))
    except (Failed, OSError) as exc:
        for name, text in before.items():
            if read(name) != text:
                write(name, text)
        if isinstance(exc, Failed):
            raise Failed("%s; the files are as they were before" % exc, exc.field) from None
        raise


def reload(request, pid, wanted):
    """Have nginx read its configuration, and wait until no worker takes new connections with another one."""
    before = workers(pid)
    os.kill(pid, signal.SIGHUP)
    until = time.monotonic() + PATIENCE
    await_(until, lambda: workers(pid).keys() - before.keys() and serves(request, wanted), "does not serve it")
    if not old(pid, before):  # somebody else had it reloaded at the same time: what began in between quits in a moment
        time.sleep(QUIT)
    await_(until, lambda: not old(pid, before), "has old workers that do not quit")


def serves(request, wanted):
    """Whether a worker serves this."""
    with contextlib.suppress(Failed):
        return recited(request) == wanted
    return False


def old(pid, before):
    """Whether any of these workers still takes connections."""
    return any(not quits for worker, (_began, quits) in workers(pid).items() if worker in before)


def await_(until, happened, what):
    """Return when it has happened; raises Failed when the time is over."""
    while not happened():
        if time.monotonic() > until:
            raise Failed("it was reloaded and %s within %g s; its error log says why" % (what, PATIENCE))
        time.sleep(POLL)


# --- what is asked of us ---


def check(request):
    """Raise Failed unless nginx runs, its configuration is right and includes our file, and we may change both."""
    pid = master(request)
    name = names(request)[0]
    if not os.path.isdir(request["path"]) or not os.access(request["path"], os.W_OK | os.X_OK):
        raise Failed("it is not a directory that can be written to", "path")
    files = [
        line[len("# configuration file ") : -1]
        for line in nginx(request, pid, "-T").splitlines()
        if line.startswith("# configuration file ")
    ]
    if os.path.realpath(name) not in map(os.path.realpath, files):
        raise Failed(
            "%s does not include %s; create it with `upstream %s { server 127.0.0.1:9 down; }`, and include it in `http`"
            % (request["config"], name, request["upstream"]),
            "path",
        )
    text = read(name) or ""
    bare = "".join(line.partition("#")[0] for line in text.splitlines())
    if not text.startswith(MARK) and bare.count("server ") != bare.count(" down;"):
        raise Failed("%s has servers that a rollout would replace; have it hold `server 127.0.0.1:9 down;` alone" % name, "path")
    try:
        for worker in workers(pid):
            list(links(worker))
    except PermissionError:
        raise Failed("this user may not see its connections; become root, or the user it runs as", "pid") from None
    answer = told(request)
    if answer is not None and not answer.startswith("rollout "):
        raise Failed("something else answers there; give an address and a port that nothing uses", "status")
    return observe(request)


def observe(request):
    """Every entry."""
    return list(look(request, master(request)).values())


def apply(request):
    """Bring the entries to what is asked, and return them as they then are. What is new of entries that are out is
    written down only: nginx is reloaded when it has to serve something else. One that is to go stays, out, until nothing
    needs it."""
    if request["epoch"] <= 0:
        raise Failed("nothing is changed without a lease (epoch 0 only looks)")
    with _files.Locked(request["path"]):  # other services' rollouts reload the same nginx
        pid = master(request)
        now = look(request, pid)
        entries = planned(request, now)
        conf, known = names(request)
        if recital(entries) != recital(ordered(now)) or render(request, entries) != read(conf):
            publish(request, pid, entries)
        elif record(entries) != read(known):
            write(known, record(entries))
        return list(look(request, pid).values())


def planned(request, now):
    """The entries as they shall be."""
    wanted = {place(entry): entry for entry in request["entries"]}
    for spot, entry in now.items():
        if spot not in wanted and (entry["in"] or entry["active"]):
            wanted[spot] = dict(entry, **{"in": False})
    for spot, entry in wanted.items():
        was = now.get(spot, {"in": False, "since": 0})
        entry["since"] = 0 if entry["in"] else ticks() if was["in"] else was["since"]
    return ordered(wanted)


def ordered(entries):
    """Entries, always in the same order."""
    return [entries[spot] for spot in sorted(entries)]
