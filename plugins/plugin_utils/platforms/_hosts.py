# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What platforms that run instances on inventory hosts have in common: where instances go, whom to ask, what an answer means.

Each has an agent on the hosts that answers as `agents/_service.py` says.
"""

from __future__ import annotations

import abc
import re
import signal
import typing as t
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain

from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    LeaseLost,
    PlatformError,
    RolloutError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.text import clean
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Process
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import Context
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    InstanceSettings,
    Labels,
    Machine,
    PlatformDriver,
    Report,
    key_of,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms._calls import Calls
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import Answer, shaped

OPTIONS: dict[str, t.Any] = {
    "hosts": {"type": "str", "required": True},
    "ports": {"type": "str", "required": True},
    "env": {"type": "raw", "default": {}, "no_log": True},
    "path": {"type": "str", "default": "/var/lib/rollout"},
    "stop_timeout": {"type": "str", "default": "10s"},
    "prepare_timeout": {"type": "str", "default": "10m"},
    "zone": {"type": "str"},
    "hooks": {"type": "dict", "default": {}},
}
HOST_OPTIONS = ("hosts", "ports", "path", "prepare_timeout", "zone")  # options that do not shape an instance
PLACEHOLDERS = ("revision", "port", "service", "host", "address", "slot", "instance")
HOOKS = ("before_start", "after_stop")
ENOUGH = 5  # hosts that are asked at once for what each of them should have
TIMEOUT = 60.0  # seconds for what is looked at before anything is touched; a hook may take half of that
MEND = "mend that, or take a host that is gone for good out of the inventory"
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class Item(t.TypedDict):
    """An instance as an agent sees it; its age in seconds."""

    id: str
    service: str
    revision: str
    generation: int
    address: str
    port: int
    slot: int
    process: t.Literal["starting", "running", "stopping", "stopped", "failed", "unknown"]
    age: float
    detail: str
    restarts: t.NotRequired[int]  # by somebody else, as systemd
    restarted: t.NotRequired[float]  # how long ago the first was


class Found(t.TypedDict):
    """The instances on a host, and the keys of the settings that are kept there."""

    instances: list[Item]
    kept: t.NotRequired[list[str]]


class Problems(t.TypedDict):
    """What is wrong on a host, by setting, and what it has."""

    problems: dict[str, str]
    machine: t.NotRequired[Machine]


class Stale(t.TypedDict):
    """That a newer lease holder has acted there."""

    stale: str


class Failed(t.TypedDict):
    """Why a host could not do what it was asked."""

    error: str


class Hosts(PlatformDriver):
    """A service's instances on the hosts of `rollout_platform.hosts`. A platform says how they are run."""

    agent: str  # that does the work on the hosts
    host_options: t.ClassVar[Collection[str]] = HOST_OPTIONS

    def __init__(self, options: Mapping[str, t.Any], context: Context) -> None:
        self.context = context
        self._pattern = str(options["hosts"])
        self._env = environment(options.get("env") or {})
        self._ports = values.ports(options["ports"], "rollout_platform.ports")
        self._path = directory(options["path"], "rollout_platform.path")
        self._stop_timeout = values.duration(options["stop_timeout"], "rollout_platform.stop_timeout")
        self._prepare_timeout = values.duration(options["prepare_timeout"], "rollout_platform.prepare_timeout")
        self._hosts = list(context.transport.hosts(self._pattern))
        if not self._hosts:
            raise InputError(f"rollout_platform.hosts: {self._pattern!r} matches no host of the inventory")
        self._addresses = {host: context.transport.address(host) for host in self._hosts}
        self._hooks, self._hook_timeout = _hooks(options["hooks"] or {})
        self._options = options
        self.machines: dict[str, Machine] = {}
        self._starters: dict[int, Hosts] = {}
        self._everywhere: dict[str, Mapping[str, t.Any]] = {}  # by key, what every host is to keep from the next call on
        self._kept: dict[str, frozenset[str]] = {}  # by host, the keys it has
        self.zones = (
            {host: str(context.transport.variable(host, zone) or "") for host in self._hosts}
            if (zone := options.get("zone"))
            else {}
        )
        self._calls = Calls(context.transport, self.agent, Found | Stale | Failed)
        self._seen: dict[str, list[Report]] = {}  # by host, when it last answered, and what it was told to start since
        self._created: dict[str, float] = {}
        self._restarted: dict[str, float] = {}

    # -- what each platform says for itself

    @abc.abstractmethod
    def _common(self) -> dict[str, t.Any]:
        """The agent's own settings, in every request."""

    @abc.abstractmethod
    def _order(self, labels: Labels, known: Mapping[str, str]) -> dict[str, t.Any]:
        """What the agent needs to start an instance, beside its labels; `known` fills placeholders."""

    @abc.abstractmethod
    def _needs(self) -> dict[str, t.Any]:
        """What the agent's `check` is to look for."""

    @abc.abstractmethod
    def _artefacts(self, known: Mapping[str, str]) -> dict[str, t.Any]:
        """What the agent's `prepare` is to bring to a host, or to look for; `known` fills the placeholders that are known by then."""

    # -- what is the same for all

    def hosts(self) -> Sequence[str]:
        return self._hosts

    def capacity(self) -> int:
        """Hosts that share an address (several names of one machine) share its ports."""
        return len(set(self._addresses.values())) * len(self._ports)

    def place(self, count: int, taken: Collection[Labels], generation: int) -> Sequence[tuple[str, Endpoint, int]]:
        hosts = [host for host in self._hosts if host not in self.context.away]
        if not hosts:
            raise PlatformError(f"there is no room for {count} more instances: no host of rollout_platform.hosts answers")
        places = place(hosts, self._addresses, self._ports, count, taken, generation, self.zones)
        return [one for one in places if one[0] not in self._calls.at_work]

    def check(self) -> None:
        left_out = self.context.transport.left_out(self._hosts)
        if left_out:
            raise InputError(
                f"rollout_platform.hosts: --limit leaves out {', '.join(left_out)}, whose instances would not be seen; run it without --limit, "
                "or name the hosts to use here"
            )
        request = {"check": {"path": self._path, **self._needs()}}
        answers = self._ask_all("look at", dict.fromkeys(self._hosts, request), TIMEOUT, InputError)
        self.machines = {host: answer["machine"] for host, answer in answers.items() if "machine" in answer}

    def prepare(self, revision: str, generation: int | None = None) -> None:
        self._starter(generation)._prepare(revision)

    def _prepare(self, revision: str) -> dict[str, dict[str, t.Any]]:
        """What each host's agent said of it."""
        requests = {}
        for host in self._hosts:
            known = {"revision": revision, "service": self.context.service, "host": host, "address": self._addresses[host]}
            requests[host] = {"prepare": self._artefacts(known)}
        return self._ask_all("prepare", requests, self._prepare_timeout, PlatformError)

    def _ask_all(
        self, what: str, requests: Mapping[str, Mapping[str, t.Any]], timeout: float, wrong: type[RolloutError]
    ) -> dict[str, dict[str, t.Any]]:
        """Ask every host for its problems; raises `wrong` with all of them, and returns the answers where there are none."""
        asked = self.context.transport.ask(self.agent, requests, timeout)
        answers = {host: shaped(answer, Problems | Failed) for host, answer in asked.items()}
        silent = [f"{host}: {answers[host].error}" for host in self._hosts if answers[host].value is None]
        if silent:
            raise PlatformError(f"rollout_platform.hosts: cannot {what} {'; '.join(silent)}; {MEND}")
        problems: dict[str, list[str]] = {}  # the same one is said once, with its hosts
        for host in self._hosts:
            value = answers[host].value or {}
            for setting, why in value.get("problems", {"hosts": value.get("error", "no answer")}).items():
                problems.setdefault(f"rollout_platform.{clean(setting)}: {clean(why, 2000)}", []).append(host)
        if problems:
            raise wrong("; ".join(f"{problem} (on {', '.join(hosts)})" for problem, hosts in problems.items()))
        return {host: answers[host].value or {} for host in self._hosts}

    def sync(self, start: Sequence[Labels] = (), stop: Sequence[str] = (), forget: Sequence[str] = ()) -> Sequence[Report]:
        wanted: dict[str, list[Labels]] = {host: [] for host in self._hosts}
        for labels in start:
            if labels.host not in wanted:
                where = f"rollout_platform.hosts ({self._pattern})"
                raise PlatformError(f"instance {labels.id}: {labels.host} is not a host of {where}")
            wanted[labels.host].append(labels)
        common = {
            "service": self.context.service,
            "path": self._path,
            "epoch": self.context.epoch,
            "stop": list(stop),  # ids name one instance of the service, wherever it is: hosts pass over others' ids
            "forget": list(forget),
            "retain": sorted({kept.key for kept in self.context.settings.values() if kept.key}),
            "stop_timeout": self._stop_timeout,
            "hook_timeout": self._hook_timeout,
            **self._common(),
        }
        self._recall()
        asked = self._concerned(wanted, [*stop, *forget])
        requests = {host: {**common, "host": host, **self._starts(host, wanted[host])} for host in asked}
        answers = self._calls.ask(requests, bool(start or stop or forget), self._seen)
        now = clock.now()
        self._refuse(answers)
        for host in {**requests, **answers}:
            self._seen[host] = self._reports(host, answers.get(host), now, wanted[host])
            self.context.away.pop(host, None)
            answer = answers.get(host)
            if answer and answer.value is not None:
                self._kept[host] = frozenset(map(str, answer.value.get("kept", ())))
            if answer and answer.unreachable:
                self.context.away[host] = [_noted(report) for report in self._seen[host]]
        return [
            replace(report, process=Process.UNREACHABLE) if host in self.context.away else report
            for host in self._hosts
            for report in self._seen[host]
        ]

    def keep(self, key: str, content: Mapping[str, t.Any]) -> None:
        """Bring the secret part of a generation's settings to every host that answers."""
        self.context.secrets[key] = content
        self._everywhere = {key: content}
        try:
            self.sync()
        finally:
            self._everywhere = {}

    def recall(self, key: str) -> Mapping[str, t.Any] | None:
        """The secret part of a generation's settings, from a host that has it; None where no host has. Raises PlatformError
        while hosts that may have it do not answer."""
        if key not in self.context.secrets:
            holders = [host for host in self._hosts if key in self._kept.get(host, ())] if self._kept else self._hosts
            request = {"recall": key, "service": self.context.service, "path": self._path}
            asked = {host: {**request, "host": host} for host in holders[:ENOUGH]}
            answers = self.context.transport.ask(self.agent, asked, TIMEOUT) if asked else {}
            found = [answer.value.get("settings") for answer in answers.values() if answer.value is not None]
            # As it was kept: a host cannot make up the settings that others start instances with.
            whole = [one for one in found if isinstance(one, Mapping) and key_of(one) == key]
            silent = [
                host for host in self._hosts if host in self.context.away or (host in answers and answers[host].value is None)
            ]
            if silent and not whole:
                raise PlatformError(f"{', '.join(silent)} may have the settings that instances are to be started with; {MEND}")
            if whole:
                self.context.secrets[key] = whole[0]
        return self.context.secrets.get(key)

    def _starts(self, host: str, wanted: Sequence[Labels]) -> dict[str, t.Any]:
        """What a host needs to start these, and what it is to keep of the settings that they are started with."""
        starts = [self._starter(labels.generation)._wanted(labels) for labels in wanted]
        kept = [self.context.settings.get(labels.generation) for labels in wanted]
        keys = {one.key for one in kept if one and one.key and one.key not in self._kept.get(host, ())}
        return {"start": starts, "keep": {**self._everywhere, **{key: self.context.secrets[key] for key in sorted(keys)}}}

    def _starter(self, generation: int | None) -> Hosts:
        """The driver with the settings of a generation, or with ours where the journal has none of it."""
        kept = None if generation is None else self.context.settings.get(generation)
        if generation is None or kept is None:
            return self
        if generation not in self._starters:
            self._starters[generation] = type(self)(self._as_kept(kept), self.context)
        return self._starters[generation]

    def _as_kept(self, kept: InstanceSettings) -> dict[str, t.Any]:
        """Our options, with those that shape an instance as they were kept."""
        name = type(self).__module__.rpartition(".")[2]
        if kept.driver.rpartition(".")[2] != name:
            raise RolloutFailed(
                f"rollout_platform.driver: {kept.driver} ran the instances that are to be started again, and {name} cannot start them; "
                "give the driver they had"
            )
        hidden = self.recall(kept.key) if kept.key else {}
        if hidden is None:
            lost = ", ".join(f"rollout_{option} ({', '.join(names)})" for option, names in kept.secret.items())
            raise RolloutFailed(
                f"cannot start instances with the settings they had: no host has the values of {lost} any more; "
                "set these variables as they were, and roll that revision out again"
            )
        ours = {name: value for name, value in self._options.items() if name in self.host_options}
        return {**ours, **kept.platform, **hidden.get("platform", {})}

    def _recall(self) -> None:
        """What runs before us have seen on hosts that did not answer them."""
        for host in list(self.context.away):
            if host in self._hosts:
                self._seen.setdefault(host, [_recalled(one) for one in self.context.away[host]])
            else:
                del self.context.away[host]  # it was taken out of the inventory

    def _concerned(self, wanted: Mapping[str, Sequence[Labels]], ids: Sequence[str]) -> Sequence[str]:
        """The hosts to ask: those with something to do, or all of them when that is nothing or not known."""
        home = {report.labels.id: host for host, reports in self._seen.items() for report in reports}
        busy = {home.get(name, "") for name in ids} | {host for host, mine in wanted.items() if mine}
        everywhere = not busy or not busy <= set(self._hosts) or len(self._seen) < len(self._hosts)
        return self._hosts if everywhere else [host for host in self._hosts if host in busy]

    def _wanted(self, labels: Labels) -> dict[str, t.Any]:
        """What the agent needs to start an instance."""
        endpoint = labels.endpoint
        known = {
            "revision": labels.revision,
            "port": str(endpoint.port),
            "service": labels.service,
            "host": labels.host,
            "address": endpoint.address,
            "slot": str(labels.slot),
            "instance": labels.id,
        }
        own = {name.upper(): known[name] for name in ("service", "revision", "instance", "slot", "address", "port")}
        env = {name: fill(text, f"rollout_platform.env.{name}", known) for name, text in self._env.items()}
        return {
            "id": labels.id,
            "service": labels.service,
            "revision": labels.revision,
            "generation": labels.generation,
            "host": labels.host,
            "address": endpoint.address,
            "port": endpoint.port,
            "slot": labels.slot,
            "env": {**env, **own},
            "stop_timeout": self._stop_timeout,
            **{
                name: [fill(word, f"rollout_platform.hooks.{name}", known) for word in argv] for name, argv in self._hooks.items()
            },
            **self._order(labels, known),
        }

    def _refuse(self, answers: Mapping[str, Answer]) -> None:
        """Raise what the hosts have to say against the call as a whole; losing the lease comes first."""
        stale = [f"{host}: {a.value['stale']}" for host, a in answers.items() if a.value and "stale" in a.value]
        if stale:
            raise LeaseLost("; ".join(stale))
        errors = [
            f"{host}: {a.error or (a.value or {}).get('error')}"
            for host, a in answers.items()
            if (not a.unreachable or host not in self._seen) and (a.value is None or "error" in a.value)
        ]
        if errors:
            mend = f"; {MEND}" if any(answer.unreachable for answer in answers.values()) else ""
            error = PlatformError(f"cannot know what runs on {'; '.join(errors)}{mend}")
            known = {host: (answer.value or {}).get("instances", ()) for host, answer in answers.items()}
            error.seen = [self._report(host, item, clock.now()) for host, items in known.items() for item in items]
            raise error

    def _reports(self, host: str, answer: Answer | None, now: float, wanted: Sequence[Labels]) -> list[Report]:
        """What a host answered; of one that has not, what was last seen there and what it may have started since."""
        if answer and answer.value is not None:
            return [self._report(host, item, now) for item in answer.value["instances"]]
        seen = {report.labels.id for report in self._seen[host]}
        return self._seen[host] + [Report(labels, Process.STARTING, now) for labels in wanted if labels.id not in seen]

    def _report(self, host: str, item: Mapping[str, t.Any], now: float) -> Report:
        labels = Labels(
            id=clean(item["id"]),
            service=item["service"],
            revision=clean(item["revision"]),
            generation=item["generation"],
            host=host,
            endpoint=Endpoint(item["address"], item["port"]),
            slot=item["slot"],
        )
        # By our clock, and the same in every turn: whom it is the turn of must not hang on a slow answer.
        created = self._created.setdefault(labels.id, now - item["age"])
        restarted = self._restarted.setdefault(labels.id, now - item["restarted"]) if item.get("restarts") else None
        return Report(labels, Process(item["process"]), created, clean(item["detail"], 1000), item.get("restarts", 0), restarted)


def place(
    hosts: Sequence[str],
    addresses: Mapping[str, str],
    ports: range,
    count: int,
    taken: Collection[Labels],
    generation: int,
    zones: Mapping[str, str] | None = None,
) -> list[tuple[str, Endpoint, int]]:
    """Where the next `count` instances go: the zone and then the host with the fewest, the lowest free slots, the next free port.

    The fewest of the same generation, since all others are to go; of equal ones the least loaded.
    Ports go round: the one after the highest in use comes next, so that one just freed is not used again at once.
    """
    zones = zones or {}
    load = Counter(labels.host for labels in taken)
    alike = Counter(labels.host for labels in taken if labels.generation == generation)
    near = Counter(zones.get(labels.host, "") for labels in taken if labels.generation == generation)
    slots = {labels.slot for labels in taken}
    used: dict[str, set[int]] = {addresses[host]: set() for host in hosts}
    for labels in taken:
        if labels.endpoint.address in used and labels.endpoint.port in ports:
            used[labels.endpoint.address].add(labels.endpoint.port)
    latest = {address: max(mine, default=ports[-1]) for address, mine in used.items()}
    places = []
    slot = 0
    for _dummy in range(count):
        room = [host for host in hosts if len(used[addresses[host]]) < len(ports)]
        if not room:
            raise PlatformError(
                f"there is no room for {count} more instances beside {len(taken)}: {len(ports)} ports "
                f"(rollout_platform.ports, {ports[0]}-{ports[-1]}) at {len(used)} addresses; give more ports or more hosts"
            )
        host = min(room, key=lambda host: (near[zones.get(host, "")], alike[host], load[host]))  # the first of several
        address = addresses[host]
        port = next(port for port in chain(range(latest[address] + 1, ports.stop), ports) if port not in used[address])
        while slot in slots:
            slot += 1
        load[host] += 1
        alike[host] += 1
        near[zones.get(host, "")] += 1
        slots.add(slot)
        used[address].add(port)
        latest[address] = port
        places.append((host, Endpoint(address, port), slot))
    return places


def _noted(report: Report) -> dict[str, t.Any]:
    """A report as plain data."""
    return {"labels": asdict(report.labels), "created": report.created}


def _recalled(noted: Mapping[str, t.Any]) -> Report:
    """The report that was noted, of an instance on a host that does not answer."""
    labels = {**noted["labels"], "endpoint": Endpoint(**noted["labels"]["endpoint"])}
    return Report(Labels(**labels), Process.UNREACHABLE, noted["created"])


def fill(text: str, variable: str, known: Mapping[str, str] | None = None) -> str:
    """`text` with its placeholders filled in; without `known` it is only checked. `{{` and `}}` are braces."""

    def one(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        if match[1] in PLACEHOLDERS:
            return known[match[1]] if known else ""
        names = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        raise InputError(f"{variable}: there is no placeholder {match[0]!r}; there are {names}; write {{{{ or }}}} for a brace")

    return _BRACES.sub(one, text)


def fill_known(text: str, known: Mapping[str, str]) -> str:
    """`text` with its placeholders filled in; empty if it has others than those known."""
    used = {match[1] for match in _BRACES.finditer(text) if match[1]}
    return fill(text, "", {**dict.fromkeys(PLACEHOLDERS, ""), **known}) if used <= known.keys() else ""


def _hooks(given: t.Any) -> tuple[dict[str, list[str]], float]:
    """The commands of each hook, and the seconds that one may take."""
    if not isinstance(given, Mapping):
        raise InputError(
            f"rollout_platform.hooks: {given!r} is no mapping; write {', '.join(HOOKS)} or timeout, each with its value"
        )
    values.refuse_unknown(given, (*HOOKS, "timeout"), "rollout_platform.hooks.")
    timeout = values.duration(given.get("timeout", "10s"), "rollout_platform.hooks.timeout", minimum=0.1)
    if timeout > TIMEOUT / 2:
        raise InputError(
            f"rollout_platform.hooks.timeout: {given['timeout']!r} is too long; a hook has at most {TIMEOUT / 2:g} s, so write 30s or less"
        )
    return {name: command(given[name], f"rollout_platform.hooks.{name}") if given.get(name) else [] for name in HOOKS}, timeout


def text(value: t.Any, variable: str) -> str:
    """A text or a whole number; anything else YAML may have made of it would not be what was written."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InputError(f"{variable}: a value of the type {type(value).__name__} is not text; put it in quotes")
    if "\0" in str(value):
        raise InputError(f"{variable}: a NUL character cannot be passed to a process")
    return str(value)


def environment(given: t.Any) -> dict[str, str]:
    """Its values may be secrets: no message may show one."""
    if not isinstance(given, Mapping):
        raise InputError("rollout_platform.env: write a mapping of names to values")
    for name in given:
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise InputError(f"rollout_platform.env: {name!r} cannot be the name of an environment variable")
    env = {name: text(value, f"rollout_platform.env.{name}") for name, value in given.items()}
    for name, given_text in env.items():
        try:
            fill(given_text, f"rollout_platform.env.{name}")
        except InputError:
            raise InputError(
                f"rollout_platform.env.{name}: its value has a brace that begins no known placeholder "
                f"({', '.join(PLACEHOLDERS)}); write {{{{ or }}}} for a brace"
            ) from None
    return env


def directory(value: t.Any, variable: str) -> str:
    path = text(value, variable)
    if not path.startswith("/"):
        raise InputError(f"{variable}: {value!r} is not an absolute path; begin it with /")
    return path


def command(given: t.Any, variable: str = "rollout_platform.command") -> list[str]:
    """The program and its arguments, with placeholders."""
    found = words(given, variable, '["/opt/shop/shop", "--port", "{port}"]', least=1)
    if not found[0]:
        raise InputError(f"{variable}: its first word, the program, is empty")
    return found


def words(given: t.Any, variable: str, example: str, least: int = 0) -> list[str]:
    """A list of texts, with placeholders."""
    if not isinstance(given, (list, tuple)) or len(given) < least:
        raise InputError(f"{variable}: {given!r} is not a list of words; write {example}")
    found = [text(word, variable) for word in given]
    for word in found:
        fill(word, variable)
    return found


def stop_signal(value: t.Any) -> str:
    """`rollout_platform.stop_signal`: a signal's name without SIG."""
    name = str(value).upper().removeprefix("SIG")
    if f"SIG{name}" not in signal.Signals.__members__:
        raise InputError(f"rollout_platform.stop_signal: {value!r} is not a signal; write a name like TERM, INT or QUIT")
    return name
