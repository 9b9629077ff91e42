# SPDX-License-Identifier: GPL-3.0-or-later
"""Start, stop and report containers of one service on this host, by podman or docker.

The request is what `_service.py` says, with program, keep_revisions, and for each instance to start
image, options, command, env and container_port (0: the host's network). A container's name is its
instance's id, and its labels are the instance's: one that is not recorded is found by them.

Requests {"check": {path, program, network, env_files, secrets}} and {"prepare": {program, image,
pull, env_files, secrets, timeout}}: answer {"problems": {setting: why}}; `check` also {"machine":
{memory, available, cpus}}, in bytes, where that is known, and "taken", as `_service.py` says;
`prepare` also {"image": {id, digests}}, and pulls if it is to.

Needs Python 3.8.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from calendar import timegm

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _service, _usage

TYPE_CHECKING = False  # importing typing takes longer than a look at twenty instances
if TYPE_CHECKING:
    import typing as t

    Record = t.Dict[str, t.Any]
    Container = t.Dict[str, t.Any]  # as the program's `inspect` shows it

LABEL = "progressive.rollout."
NUMBERS = ("generation", "port", "slot")
# the states in which its processes may be there
THERE = ("running", "paused", "restarting", "stopping")
NETWORKS = ("host", "bridge", "none", "private", "pasta", "slirp4netns")  # that need not be made
ANSWER = 50.0  # seconds for one command
SKEW = 5.0  # seconds: docker may note the end of a short-lived container before its start
LINES = 1000  # of the log that is kept when a container is removed
LARGEST = 1 << 20  # bytes of a log that are read: a line may be of any length
NOISE = re.compile(r"^(docker: |Error response from daemon: |Error: )+")
TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(?:Z|([+-])(\d\d):(\d\d))")


def main(request: dict[str, t.Any]) -> dict[str, t.Any]:
    """Answer a request."""
    try:
        if "check" in request:
            return {
                "problems": _problems(request["check"]),
                **_machine(),
                **_service.owner(request),
                **_ports_taken(request),
            }
        if "prepare" in request:
            return _prepare(request["prepare"])
    except _service.Refused as exc:
        return {"problems": {"driver": str(exc)}}
    return _service.serve(Service, request)


class Service(_service.Service):
    """Instances as containers."""

    def __init__(self, home: str, request: dict[str, t.Any]) -> None:
        super().__init__(home, request)
        self.program = request["program"]
        self.seen: dict[str, Container] = {}  # by instance
        self.begun: list[str] = []  # instances started since
        self.unheard: dict[str, str] = {}  # instances that could not be told to stop, and why

    def call(
        self, *words: str, data: str = "", together: bool = False, last: int = 0
    ) -> tuple[int, str, str]:
        return _run(self.program, *words, data=data, together=together, last=last)

    def must(self, *words: str) -> str:
        """Return what a command prints that has to work."""
        status, out, errors = self.call(*words)
        if status:
            raise _service.Refused(f"{self.program} {words[0]}: {_why(errors)}")
        return out

    def containers(self) -> dict[str, Container]:
        """Return all containers of the service that were started for this host."""
        mine = {"service": self.request["service"], "host": self.request["host"]}
        filters = [f"--filter=label={LABEL}{name}={value}" for name, value in mine.items()]
        return self.shown(self.must("ps", "--all", "--quiet", "--no-trunc", *filters).split())

    def shown(self, ids: t.Sequence[str]) -> dict[str, Container]:
        """Return those of these containers that are there, each by an id or its name."""
        if not ids:
            return {}
        _status, out, errors = self.call("inspect", "--type=container", *ids)
        try:
            inspected = json.loads(out)  # also when one was removed since
        except ValueError:
            raise _service.Refused(f"{self.program} inspect: {_why(errors)}") from None
        named = {container["Name"].lstrip("/"): container for container in inspected}
        return {
            name: container for name, container in named.items() if _label(container, "id") == name
        }

    def look(self, records: dict[str, Record]) -> None:
        """See all containers.

        With a lease, those that run and are not recorded are adopted, and those whose start was cut
        short are removed.
        """
        self.seen = self.containers()
        for name, container in list(self.seen.items()):
            state = container["State"]["Status"]
            if name not in records and state in THERE:
                records[name] = self.adopted(container)
                self.save(records[name])
            elif (
                name not in records
                and _seconds(container["State"]["StartedAt"]) <= 0
                and self.request["epoch"] > 0
            ):
                self.discard(name)
            elif name in records and state in THERE and records[name]["boot"] != self.boot:
                self.began(records[name], container)

    def adopted(self, container: Container) -> Record:
        """Return the record of a running container, from its labels."""
        record: Record = {name: _label(container, name) for name in _service.LABELS}
        try:
            record.update({name: int(record[name]) for name in NUMBERS})
        except ValueError:
            raise _service.Refused(
                f"the container {record['id']} has labels that are not ours; remove it or them"
            ) from None
        self.began(record, container)
        return record

    def began(self, record: Record, container: Container) -> None:
        """Note when a container began to run that another program started.

        What it was told before does not matter any more.
        """
        created = _seconds(container["State"]["StartedAt"])
        record.update(
            created=created,
            uptime=_service.uptime() - max(0.0, time.time() - created),
            boot=self.boot,
        )
        for name in ("stop_requested", "left", "restarts", "restarted", "crash", "began"):
            record.pop(name, None)

    def alive(self, record: Record) -> bool:
        container = self.seen.get(record["id"])
        return container is not None and container["State"]["Status"] in THERE

    def spawn(self, record: Record, wanted: dict[str, t.Any]) -> str:
        """Start a container. If this is killed in between, the next call finds it by its labels."""
        env = "".join(f"{name}={value}\n" for name, value in wanted["env"].items())
        if record["id"] in self.seen:
            self.discard(record["id"])  # kept, and of the same name: the journal was made anew
        labels = [f"--label={LABEL}{name}={record[name]}" for name in _service.LABELS]
        ports = _published(wanted) if wanted["container_port"] else []
        ours = ["--detach", f"--name={record['id']}", *labels, *ports, "--env-file=/dev/stdin"]
        status, _out, errors = self.call(
            "run", *wanted["options"], *ours, wanted["image"], *wanted["command"], data=env
        )
        if status:
            self.seen = self.containers()
        if status == 0 or self.alive(record):
            self.begun.append(record["id"])
            self.save(record)
            return ""
        if record["id"] in self.seen:
            self.discard(record["id"])
        elif self.call("inspect", "--type=container", record["id"])[0] == 0:
            raise _service.NameTaken(f"the container {record['id']} is there already, not ours")
        return f"{self.program} cannot start it: {_why(errors)}"

    def request_stop(self, record: Record, kill: bool) -> None:
        """Send the stop signal by the program's `stop`.

        After `kill`, podman does what its restart policy says. The end is not waited for here: the
        next look sees it.
        """
        seconds = 0 if kill else math.ceil(record.get("stop_timeout", self.request["stop_timeout"]))
        stop = (self.program, "stop", f"--time={seconds}", record["id"])
        status, _out, errors = (
            self.call(*stop[1:])
            if kill
            else _run("/bin/sh", "-c", '"$@" </dev/null >/dev/null 2>&1 &', "sh", *stop)
        )
        if status:
            self.unheard[record["id"]] = _why(errors)

    def settle(self, stopping: list[Record]) -> None:
        """Look at what was told or begun; raise Refused where that failed.

        One look takes about as long as a quick container needs to stop.
        """
        if stopping or self.begun:
            self.seen = self.shown([*self.seen, *self.begun])
        for record in stopping:
            if record["id"] in self.unheard and self.alive(record):
                raise _service.Refused(
                    f"instance {record['id']} cannot be told to stop: {self.unheard[record['id']]}"
                )

    def restarts(self, record: Record, container: Container) -> None:
        """Note when the container was started again.

        The program counts its own restarts; those of others show in since when it runs.
        """
        state = container["State"]
        count, between = container.get("RestartCount") or 0, state["Status"] == "restarting"
        began, known = state["StartedAt"], record.get("began")
        if count + between > record.get("restarts", 0) or known not in (None, began):
            record["began"] = began
            ago = time.time() - _seconds(state["FinishedAt"] if between else began)
            ended = f"exit code {state['ExitCode']}" if between else "it ended"
            how = f"{ended}; {self.last_output(record['id'])}"
            self.began_again(record, max(count + between, record.get("restarts", 0) + 1), ago, how)
        elif known is None:
            record["began"] = began
            self.save(record)

    def report(self, record: Record) -> Record:
        if "stop_requested" not in record and self.alive(record):
            self.restarts(record, self.seen[record["id"]])
        answer = super().report(record)
        if answer["process"] == "running":
            answer["process"], answer["detail"] = self.condition(record)
        return answer

    def condition(self, record: Record) -> tuple[str, str]:
        """Return whether a container is running, starting or unknown, and details."""
        container = self.seen[record["id"]]
        state = container["State"]
        if state["Status"] == "restarting":
            return "starting", record.get("crash", "")
        if state["Status"] != "running":
            return "unknown", f"it is {state['Status']}"
        health = state.get("Health") or state.get("Healthcheck") or {}
        errors = _service.last_lines(str((health.get("Log") or [{}])[-1].get("Output") or ""))
        if health.get("Status") == "starting":
            return (
                "starting",
                f"{self.program}'s check of it: starting{f' ({errors})' if errors else ''}",
            )
        if health.get("Status") == "unhealthy":
            return (
                "unknown",
                f"{self.program}'s check of it: unhealthy ({errors or 'without output'})",
            )
        return "running", record.get("crash", "")

    def detail(self, record: Record, asked: bool) -> str:
        """Return how a container ended; the program's `stop` may have killed it, too."""
        killed = asked and _killed(self.seen.get(record["id"]))
        return super().detail({**record, "killed": True} if killed else record, asked)

    def ended(self, record: Record) -> str:
        container = self.seen.get(record["id"])
        if container is None:
            return "its container was removed outside the rollout"
        when = container["State"]["FinishedAt"]
        if record.get("ended", ["", ""])[0] != when:
            record["ended"] = [when, self.ending(record, container["State"])]
            self.save(record)
        return str(record["ended"][1])

    def ending(self, record: Record, state: dict[str, t.Any]) -> str:
        lived = _seconds(state["FinishedAt"]) - _seconds(state["StartedAt"])
        if record["boot"] != self.boot or lived < -SKEW:  # its end was not seen
            return "gone: the host was restarted"
        code = state["ExitCode"]
        how = (
            "out of memory (rollout_platform.memory)"
            if state.get("OOMKilled")
            else f"exit code {code}"
        )
        if 128 < code <= 192:
            how += f", as if killed by signal {code - 128}"
        how += f" within {max(0.0, lived):.1f} s of its start"
        if state.get("Error"):
            how += f" ({state['Error']})"
        return f"{how}; {self.last_output(record['id'])}"

    def last_output(self, name: str) -> str:
        """Return the last lines that a container wrote, or why there are none, in words."""
        status, out, _errors = self.call("logs", "--tail=5", name, together=True)
        if status:
            return f"its log cannot be read ({self.program} logs: {_why(out)})"
        lines = _service.last_lines(out)
        return f"last log lines: {lines}" if lines else "its log is empty"

    def output(self, name: str, lines: int) -> str:
        """Return the last lines that a container wrote, as far as its log can be read."""
        words = "logs", f"--tail={lines}", name
        status, out, _errors = self.call(*words, together=True, last=LARGEST)
        return out if status == 0 else ""

    def usage(self, record: Record) -> dict[str, float]:
        return _usage.of_cgroup(int(self.seen[record["id"]]["State"].get("Pid") or 0))

    def remove(self, record: Record) -> None:
        """Keep the end of the log.

        A container that was stopped in good order may be kept by `prune`; any other is removed.
        """
        if record["id"] in self.seen:
            _service.write(self.log(record), self.output(record["id"], LINES))
            if "stop_requested" not in record:
                self.discard(record["id"])

    def prune(self, records: dict[str, Record]) -> None:
        """Keep a stopped container of each of the last `keep_revisions` revisions that ended."""
        super().prune(records)
        kept = {record["revision"] for record in records.values()}
        left = [name for name in self.seen if name not in records]
        ended = {name: _seconds(self.seen[name]["State"]["FinishedAt"]) for name in left}
        room = self.request["keep_revisions"]
        for name in sorted(left, key=lambda name: ended[name], reverse=True):
            revision = _label(self.seen[name], "revision")
            if room and revision not in kept:
                kept.add(revision)
                room -= 1
            else:
                self.discard(name)

    def discard(self, name: str) -> None:
        self.must("rm", "--force", "--volumes", name)
        del self.seen[name]


def _label(container: Container, name: str) -> str:
    return str((container["Config"].get("Labels") or {}).get(LABEL + name, ""))


def _killed(container: Container | None) -> bool:
    """Return whether a container ended by SIGKILL, which is not its own signal to stop."""
    if container is None:
        return False
    state, stop_signal = container["State"], str(container["Config"].get("StopSignal", "")).upper()
    killed = state.get("ExitCode") == 137 and not state.get("OOMKilled")
    return killed and stop_signal not in ("KILL", "SIGKILL", "9")


def _published(wanted: dict[str, t.Any]) -> list[str]:
    """Return where the container's port is published.

    At the instance's address, or everywhere if that is not the host's own (NAT).
    """
    import socket

    address = wanted["address"]
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        try:
            probe.bind((address, 0))
            where = f"[{address}]:" if ":" in address else f"{address}:"
        except OSError:
            where = ""
    return [f"--publish={where}{wanted['port']}:{wanted['container_port']}"]


def _problems(check: dict[str, t.Any]) -> dict[str, str]:
    """Return what keeps this host from running containers, by setting."""
    program, network, problems = check["program"], check["network"], {}
    status, _out, errors = _run(program, "ps", "--quiet")
    if status:
        problems["driver"] = f"{program} does not work: {_why(errors)}"
    elif (
        network
        and network not in NETWORKS
        and ":" not in network
        and _run(program, "network", "inspect", network)[0]
    ):
        problems["network"] = f"there is no network {network}"
    unusable = _service.unusable(check["path"])
    if unusable:
        problems["path"] = unusable
    return problems


def _ports_taken(request: dict[str, t.Any]) -> dict[str, t.Any]:
    """As `_service.ports_taken`: containers of the service are known by their labels, too."""
    taken = _service.ports_taken(request)
    if not taken:
        return {}
    mine = f"--filter=label={LABEL}service={request['service']}"
    return {} if _run(request["check"]["program"], "ps", "--quiet", mine)[1].strip() else taken


def _machine() -> dict[str, t.Any]:
    """Return the memory and CPUs of this host; nothing if they are not known."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            sizes = {
                name: int(size.split()[0]) * 1024
                for name, _colon, size in (line.partition(":") for line in file)
            }
        machine = {
            "memory": sizes["MemTotal"],
            "available": sizes["MemAvailable"],
            "cpus": os.cpu_count() or 0,
        }
    except (OSError, ValueError, IndexError, KeyError):
        return {}
    return {"machine": machine}


def _prepare(wanted: dict[str, t.Any]) -> dict[str, t.Any]:
    """Bring the image here, and look for what else a start needs."""
    program, problems = wanted["program"], {}
    image, why = _brought(program, wanted["image"], wanted["pull"], wanted["timeout"])
    if not image:
        problems["image"] = why
    for path in wanted["env_files"]:
        if not os.access(path, os.R_OK, effective_ids=True):
            problems["env_files"] = f"{path} is not there or cannot be read"
    for name in wanted["secrets"]:
        if _run(program, "secret", "inspect", name)[0]:
            problems["secrets"] = f"there is no secret {name}"
    return {"problems": problems, "image": image}


def _brought(program: str, image: str, pull: str, timeout: float) -> tuple[dict[str, t.Any], str]:
    """Return the image, pulled if it is to be, or why it is not here."""
    present = {} if pull == "always" else _image(program, image)
    if present or pull == "never":
        return present, f"{image} is not there, and is never pulled (rollout_platform.pull)"
    status, _out, errors = _run(program, "pull", image, timeout=timeout)
    return {} if status else _image(program, image), f"{image} cannot be pulled: {_why(errors)}"


def _image(program: str, image: str) -> dict[str, t.Any]:
    """Return what tells an image on this host from others; nothing if it is not here."""
    status, out, _errors = _run(program, "image", "inspect", image)
    if status:
        return {}
    (details,) = json.loads(out)
    digests = {name.rpartition("@")[2] for name in details.get("RepoDigests") or ()}
    return {"id": details["Id"].rpartition(":")[2], "digests": sorted(digests)}


def _run(
    program: str,
    *words: str,
    data: str = "",
    timeout: float = ANSWER,
    together: bool = False,
    last: int = 0,
) -> tuple[int, str, str]:
    try:
        return _service.run(
            program, *words, data=data, timeout=timeout, together=together, last=last
        )
    except FileNotFoundError:
        raise _service.Refused(f"{program} is not installed") from None


def _why(stderr: str) -> str:
    """Return the last line a command printed, without empty ones."""
    lines = [
        line.strip()
        for line in stderr.splitlines()
        if line.strip() and not re.match(r"(See|Run) '", line)
    ]
    return NOISE.sub("", lines[-1])[:500] if lines else "it said nothing"


def _seconds(when: str) -> float:
    """Return the seconds since the epoch of a time as the programs write it, in any zone."""
    match = TIME.match(when)
    if not match:
        return 0.0
    seconds = timegm(time.strptime(match[1], "%Y-%m-%dT%H:%M:%S")) + float(match[2] or 0)
    if match[3]:
        seconds -= (int(match[4]) * 3600 + int(match[5]) * 60) * (1 if match[3] == "+" else -1)
    return seconds
