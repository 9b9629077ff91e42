# SPDX-License-Identifier: GPL-3.0-or-later
"""The service `shop` behind a real load balancer, under load, and watched by ways that are not
the collection's own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import typing as t
import urllib.request
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from ansible_collections.progressive.rollout.tests.support.envoy import Envoy
from ansible_collections.progressive.rollout.tests.support.haproxy import HAProxy
from ansible_collections.progressive.rollout.tests.support.nginx import Nginx
from ansible_collections.progressive.rollout.tests.support.playbook import (
    ROOT,
    Outcome,
    Playground,
    Run,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

LOAD = ROOT / "playbooks" / "files" / "load.py"
HAPROXY = (
    shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin") or "haproxy"
)
Place = tuple[str, int]


class Front(t.Protocol):
    """A load balancer: where clients come in, what its users write, and whom it sends requests
    to.
    """

    @property
    def url(self) -> str: ...

    @property
    def traffic(self) -> dict[str, t.Any]: ...

    def serving(self) -> set[Place]:
        """The instances it would send the next request to."""

    def known(self) -> set[Place]:
        """Every instance it has an entry for."""

    def close(self) -> None: ...


class BehindHAProxy(HAProxy):
    """With the strictest configuration: no retry, no redispatch."""

    @property
    def url(self) -> str:
        return f"http://{self.front[0]}:{self.front[1]}/"

    @property
    def access_log(self) -> str:
        return str(self.directory / "log")

    @property
    def traffic(self) -> dict[str, t.Any]:
        own = {"path": str(self.directory / "rollout")}  # of locks and epochs
        return {
            "driver": "haproxy",
            "backend": "shop",
            "socket": self.api,
            "drain_timeout": "10s",
            **own,
        }

    def refused(self) -> list[str]:
        """The lines of the log about requests that got a 5xx: server, status, times and HAProxy's
        reason.
        """
        lines = Path(self.access_log).read_text(errors="replace").splitlines()
        return [line for line in lines if re.search(r"\|5\d\d\|", line)]

    def _rows(self, column: str = "status") -> dict[Place, str]:
        lines = [line.split(",") for line in self.ask("show stat shop 4 -1").splitlines()]
        head = lines[0]
        address, shown = head.index("addr"), head.index(column)
        rows = {}
        for line in lines[1:]:
            if len(line) > address and line[address]:
                host, _colon, port = line[address].rpartition(":")
                rows[host, int(port)] = line[shown]
        return rows

    def weights(self) -> dict[Place, int]:
        """The weight of each server that gets requests."""
        rows = self._rows("weight")
        return {place: int(rows[place]) for place in self.serving() & set(rows)}

    def serving(self) -> set[Place]:
        return {place for place, status in self._rows().items() if status.startswith("UP")}

    def known(self) -> set[Place]:
        return {place for place, status in self._rows().items() if not status.startswith("MAINT")}


SLOTS = "".join(
    f"    server slot{n} localhost:1 check inter 200ms fall 2 rise 1 disabled init-addr"
    " last,127.0.0.1\n"
    for n in range(8)
)
RESTORE = "    load-server-state-from-file local\n    server-state-file-name {directory}/state\n"


class Reloadable(BehindHAProxy):
    """A master and its worker, as systemd runs them; with `prepared` servers, and a file that
    keeps their state; or with `servers` of the configuration.
    """

    def __init__(self, prepared: bool = False, servers: str = "") -> None:
        self.prepared = prepared
        super().__init__(SLOTS + RESTORE if prepared else servers)

    @property
    def traffic(self) -> dict[str, t.Any]:
        kept = {
            "hosts": "lb1",
            "socket": self.socket,
            "slots": "slot",
            "state_file": str(self.directory / "state"),
        }
        return {**super().traffic, **(kept if self.prepared else {})}

    def start(self) -> None:
        text = self.config.read_text().replace("level admin\n", "level admin expose-fd listeners\n")
        if "idle-close-on-response" not in text:
            # Without it the old worker closes connections on which a request may be on its way.
            text = text.replace(
                "    retries 0\n", "    retries 0\n    option idle-close-on-response\n"
            )
        self.config.write_text(text)
        argv = [HAPROXY, "-Ws", "-db", "-f", str(self.config)]
        notified = self.directory / "notify"
        notified.unlink(missing_ok=True)
        self.notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notices.bind(str(notified))
        self.notices.settimeout(20)
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "NOTIFY_SOCKET": str(notified)},
            )
        self._is_ready()
        until(self.worker, f"{argv} answers")

    def _is_ready(self) -> None:
        """Wait until the master says, as it does to systemd, that it listens to signals again."""
        while not re.match(rb"READY=1\n(?!RELOADING)", self.notices.recv(4096)):
            pass

    def worker(self) -> str:
        """The pid of the worker that answers; nothing while none does."""
        try:
            return next(
                (line for line in self.ask("show info").splitlines() if line.startswith("Pid: ")),
                "",
            )
        except OSError:
            return ""

    def reload(self) -> None:
        assert self.process
        before = self.worker()
        self.process.send_signal(signal.SIGUSR2)
        self._is_ready()
        until(lambda: self.worker() not in ("", before), "a new worker answers")

    def restart(self) -> None:
        self.stop()
        self.start()

    def stop(self) -> None:
        """With its workers, old ones too."""
        if self.process is not None:
            task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}")
            workers = [int(pid) for pid in (task / "children").read_text().split()]
            self.process.kill()
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
            self.notices.close()


class BehindEnvoy(Envoy):
    """With the strictest configuration: no retry."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listen}/"

    @property
    def access_log(self) -> str:
        return str(self.home / "access.log")

    @property
    def traffic(self) -> dict[str, t.Any]:
        return {
            "driver": "envoy",
            "path": str(self.path),
            "admin": f"127.0.0.1:{self.admin}",
            "listen": f"127.0.0.1:{self.listen}",
            "drain_timeout": "10s",
            "retry": 0,
        }

    def _hosts(self) -> dict[Place, dict[str, t.Any]]:
        clusters = json.loads(self.get("/clusters?format=json"))["cluster_statuses"]
        hosts = [
            host
            for one in clusters
            if one["name"] == "shop"
            for host in one.get("host_statuses", [])
        ]
        places = [host["address"]["socket_address"] for host in hosts]
        return {
            (place["address"], place["port_value"]): host["health_status"]
            for place, host in zip(places, hosts, strict=True)
        }

    def serving(self) -> set[Place]:
        healthy = {"eds_health_status": "HEALTHY"}
        return {place for place, health in self._hosts().items() if health == healthy}

    def known(self) -> set[Place]:
        return set(self._hosts())


class BehindNginx(Nginx):
    """With the strictest configuration: no retry. Clients keep no connections, which is what it
    needs.
    """

    @property
    def url(self) -> str:
        return f"http://{self.front[0]}:{self.front[1]}/"

    @property
    def access_log(self) -> str:
        return str(self.home / "access.log")

    @property
    def traffic(self) -> dict[str, t.Any]:
        own = {
            "path": self.path,
            "config": self.config,
            "pid": self.pid,
            "status": f"127.0.0.1:{self.status}",
        }
        return {
            "driver": "nginx",
            **{name: str(value) for name, value in own.items()},
            "drain_timeout": "10s",
        }

    def serving(self) -> set[Place]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.status}/", headers={"Host": "shop"}
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            servers = [one.split() for one in response.read().decode().split(";")[1:] if one]
        return {(server[0], int(server[1])) for server in servers}

    def known(self) -> set[Place]:
        entries = json.loads((self.path / "shop.json").read_text())
        return self.serving() | {(entry["address"], entry["port"]) for entry in entries}


class RetryingHAProxy(BehindHAProxy):
    """With the retries that the documentation has."""

    def __init__(self) -> None:
        super().__init__("    http-request disable-l7-retry unless METH_GET\n")

    def start(self) -> None:
        retries = (
            "    retries 5\n    option redispatch 1\n    retry-on conn-failure empty-response\n"
        )
        self.config.write_text(self.config.read_text().replace("    retries 0\n", retries))
        super().start()


class RetryingEnvoy(BehindEnvoy):
    """With the retries that are the default."""

    @property
    def traffic(self) -> dict[str, t.Any]:
        return {key: value for key, value in super().traffic.items() if key != "retry"}


RETRYING: dict[str, t.Callable[[], RetryingHAProxy | RetryingEnvoy]] = {
    "haproxy": RetryingHAProxy,
    "envoy": RetryingEnvoy,
}
FRONTS: dict[str, t.Callable[[], Front]] = {"haproxy": BehindHAProxy, "envoy": BehindEnvoy}


class Load:
    """Clients in processes of their own, each of its kind, from `start` to `stop`. A closed
    loop, nothing repeated.
    """

    KINDS = (("GET", True), ("GET", False), ("POST", True), ("POST", False))  # method, keep-alive

    def __init__(
        self,
        url: str,
        kinds: t.Sequence[tuple[str, bool]] = KINDS,
        connections: int = 6,
        rate: float = 0,
    ) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="load", dir="/tmp")
        self._reports = [Path(self._home.name) / f"{number}.json" for number in range(len(kinds))]
        self._processes = []
        for report, (method, keep) in zip(self._reports, kinds, strict=True):
            argv = [
                sys.executable,
                "-I",
                str(LOAD),
                "--url",
                url,
                "--method",
                method,
                "--connections",
                str(connections),
            ]
            argv += [
                "--keep-alive" if keep else "--no-keep-alive",
                "--report",
                str(report),
                "--max-seconds",
                "1200",  # longer than a test: whatever becomes of it, the load ends
            ]
            self._processes.append(
                subprocess.Popen([*argv, "--rate", str(rate)], stdin=subprocess.DEVNULL)
            )
        until(
            lambda: all(report["served"] for report in self.reports()),
            "every kind of client is served",
        )

    def reports(self) -> list[dict[str, t.Any]]:
        """Return the reports; they are up to half a second old while the load runs."""
        return [
            json.loads(path.read_text()) if path.exists() else {"served": 0}
            for path in self._reports
        ]

    def served(self, since: float, until_: float) -> Counter[str]:
        """How many requests each revision answered in the whole seconds between two moments."""
        found: Counter[str] = Counter()
        for report in self.reports():
            for second in report.get("per_second", ()):
                begins = report["started"] + second["second"]
                if since <= begins and begins + 1 <= until_:
                    found.update(second["served"])
        return found

    def stop(self) -> list[dict[str, t.Any]]:
        """End it when the answers under way have come, and return the last reports."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            assert process.wait(30) == 0
        reports = self.reports()
        assert all(
            not report["running"] and report["ended_by"] == "signal" for report in reports
        ), reports
        self._home.cleanup()
        self._processes = []
        return reports

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self._home.cleanup()


def failures(reports: t.Sequence[t.Mapping[str, t.Any]]) -> list[t.Any]:
    """Every kind of client that had a failed request, and which; nothing is left uncounted."""
    for report in reports:
        assert report["requests"] == report["served"] + report["failed"]
    return [
        (
            r["method"],
            "keep-alive" if r["keep_alive"] else "close",
            r["failures"],
            r["first_failures"],
        )
        for r in reports
        if r["failed"]
    ]


class Watch:
    """Looks every 50 ms at the processes and the load balancer, and keeps what would break a
    promise.
    """

    def __init__(self, playground: Playground, *fronts: Front) -> None:
        self._playground, self._fronts = playground, fronts
        self.most = 0  # instances alive at once
        self.fewest = 1_000_000  # instances in rotation, of those at any one load balancer
        self.wrong: list[str] = []
        self.looks = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._end.wait(0.05):
            try:
                self._look()
            except Exception as exc:
                self.wrong.append(f"{type(exc).__name__}: {exc}")

    def _look(self) -> None:
        records = self._playground.records()
        living = {record["id"] for record in self._playground.living()}
        self.most = max(self.most, len(living))
        stopped = {
            (r["address"], r["port"]): r["id"]
            for r in records
            if "stop_requested" in r or "error" in r
        }
        for record in records:  # a port may be another's by now
            if "stop_requested" not in record:
                stopped.pop((record["address"], record["port"]), None)
        for front in self._fronts:
            serving = front.serving()
            self.fewest = min(self.fewest, len(serving))
            self.wrong += [
                f"{stopped[place]} was stopped while in rotation"
                for place in serving & stopped.keys()
            ]
        self.looks += 1

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


class Shop(Playground):
    """Six instances behind load balancers, replaced with a surge of two."""

    def __init__(
        self,
        *fronts: Front,
        env: t.Mapping[str, str] | None = None,
        inventory: t.Mapping[str, t.Any] | None = None,
        machines: int = 3,
        **variables: t.Any,
    ) -> None:
        super().__init__(
            hosts=machines, inventory={"lb": _balancers(len(fronts)), **(inventory or {})}
        )
        self.fronts = fronts
        self.variables |= {
            "rollout_replicas": 6,
            "rollout_budget": {"max_surge": 2, "max_unavailable": 0},
            "rollout_health": {"http": "/healthz", "interval": "500ms", "rise": 1},
            "rollout_traffic": fronts[0].traffic,
            **variables,
        }
        self.set_env(**{"LATENCY": "0.01", "START_DELAY": "lognormal:0.4:0.5:1", **(env or {})})

    def _environment(self) -> dict[str, str]:
        """What a killed ansible-playbook leaves in its temporary directory goes with ours."""
        return super()._environment() | {"TMPDIR": str(self.home)}

    def set_env(self, **env: str) -> None:
        platform = self.variables["rollout_platform"]
        self.variables["rollout_platform"] = {**platform, "env": {**platform.get("env", {}), **env}}

    def __enter__(self) -> Shop:
        return self

    def to(self, revision: str, **variables: t.Any) -> Outcome:
        """Roll a revision out, and check that it ends well."""
        outcome = self.run(variables={"rollout_revision": revision, **variables})
        assert outcome.rc == 0, outcome.output
        return outcome

    def commands(self) -> list[dict[str, t.Any]]:
        """Return the commands that operators sent, oldest first."""
        return [
            json.loads(line)
            for line in (self.store / "journal" / "shop.words.jsonl").read_text().splitlines()
        ]

    def settled(self, revision: str) -> None:
        """All its instances are of the revision and in rotation; no others, no entry, no lease,
        no temporary file.
        """
        assert self.revisions() == [revision] * self.variables["rollout_replicas"]
        places = {(record["address"], record["port"]) for record in self.living()}
        for front in self.fronts:
            until(
                partial(lambda front: front.serving() == places, front),
                f"{front.traffic} sends to {places}",
            )
            assert front.known() == places
        assert len(self.records()) == self.variables["rollout_replicas"]
        assert self.lease() is None
        assert not [name for name in self.files() if name.endswith(".tmp")]
        assert self.journal()["rollout"]["phase"] == "finished"

    def lease(self) -> dict[str, t.Any] | None:
        """Return the lease if a run holds it."""
        found = json.loads((self.store / "journal" / "shop.lease.json").read_text())
        return found if "token" in found else None


def _balancers(count: int) -> dict[str, t.Any]:
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    return {"hosts": {f"lb{number}": dict(local) for number in range(1, count + 1)}}


def walked(outcome: Outcome, shop: Shop) -> tuple[float, float]:
    """When the walk of a rollout began and when it ended."""
    events = shop.timeline(outcome.rollout["id"])
    begin = next(event["at"] for event in events if event["kind"] == "begin")
    return begin, events[-1]["at"]


def descendants(pid: int) -> list[int]:
    """The process and all that came of it. Ansible's workers have their own sessions; so have
    instances, which no longer have a parent among them by then.
    """
    try:
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except FileNotFoundError:
        return []
    return [pid, *(one for child in children for one in descendants(child))]


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_all(run: Run, shop: Shop) -> None:
    """As when a container or a machine with the controller ends: everything but the instances,
    at once.
    """
    instances = {record["pid"] for record in shop.living()}
    stopped: list[int] = []
    # First none of them goes on: a worker that outlives its parent for a moment begins to clean up.
    while left := set(descendants(run.process.pid)) - instances - set(stopped):
        _signal(left, signal.SIGSTOP)
        stopped += left
    _signal(stopped, signal.SIGKILL)
    run.process.wait()


def stood(shop: Shop) -> str:
    return ", ".join(
        f"{record['revision']}{' stopping' if 'stop_requested' in record else ''}"
        for record in shop.records()
    )
