# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What platforms that run instances on inventory hosts have in common: where instances go, whom to
ask, what an answer means.

Each has an agent on the hosts that answers as `agents/_service.py` says.
"""

from __future__ import annotations

import abc
import signal
import typing as t
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain

from ..base import clock
from ..base.errors import (
    InputError,
    LeaseLost,
    PlatformError,
    RolloutError,
    RolloutFailed,
)
from ..base.text import clean
from ..engine.model import Process
from ..inputs import values
from ..inputs.options import (
    DURATION,
    PATH,
    TEXT,
    Field,
    Kind,
    Options,
    duration,
    group,
)
from ..inputs.placeholders import Template
from ..interfaces.context import Context
from ..interfaces.platform import (
    Endpoint,
    InstanceSettings,
    Labels,
    Machine,
    PlatformDriver,
    Report,
    key_of,
)
from ..remote import inventory
from ..remote.agents import Answer, shaped
from ._calls import Calls

# options that do not shape an instance
HOST_OPTIONS = ("hosts", "ports", "path", "prepare_timeout", "zone")
PLACEHOLDERS = ("revision", "port", "service", "host", "address", "slot", "instance")
ENOUGH = 5  # hosts that are asked at once for what each of them should have
# seconds for what is looked at before anything is touched; a hook may take half of that
TIMEOUT = 60.0
PROBLEMS = {"hosts": "PR-207", "image": "PR-205", "unit": "PR-208"}  # by the option that has one
MEND = "fix the host, or remove it from the inventory"

# Texts with placeholders ----------------------------------------------------------------------


def fill(text: str, variable: str, known: Mapping[str, str] | None = None) -> str:
    """Fill in the placeholders of `text`; without `known` only check them. `{{` and `}}` are
    braces.
    """
    return Template(text, variable, PLACEHOLDERS).render(known or {})


def fill_known(text: str, known: Mapping[str, str]) -> str:
    """Fill in the placeholders of `text`; return "" if it has others than those known."""
    template = Template(text, "", PLACEHOLDERS)
    return template.render(known) if template.names <= known.keys() else ""


def plain(value: t.Any, variable: str) -> str:
    """Return a text or a whole number; anything else that YAML makes would not be what was
    written.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InputError(
            f"{variable}: expected a text, got {type(value).__name__}; put it in quotes", "PR-100"
        )
    if "\0" in str(value):
        raise InputError(f"{variable}: a NUL character cannot be passed to a process", "PR-100")
    return str(value)


def template(value: t.Any, variable: str) -> str:
    """Return a text with placeholders."""
    text = plain(value, variable)
    fill(text, variable)
    return text


def directory(value: t.Any, variable: str) -> str:
    """Return an absolute path with placeholders."""
    return values.absolute(template(value, variable), variable)


def words(given: t.Any, variable: str, example: str = '["--verbose"]') -> list[str]:
    """Return a list of texts with placeholders."""
    return [template(word, variable) for word in values.sequence(given, variable, example)]


def command(given: t.Any, variable: str) -> list[str]:
    """Return a program and its arguments, with placeholders."""
    found = words(given, variable, '["/opt/shop/shop", "--port", "{port}"]')
    if not found or not found[0]:
        raise InputError(f"{variable}: its first word, the program, is empty", "PR-100")
    return found


def environment(given: t.Any, variable: str) -> dict[str, str]:
    """Return environment variables. Their values may be secrets: no message shows one."""
    found = values.mapping(given, variable, "a mapping of names to values")
    for name in found:
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise InputError(
                f"{variable}: {name!r} cannot be the name of an environment variable", "PR-100"
            )
    env = {name: plain(value, f"{variable}.{name}") for name, value in found.items()}
    for name, text in env.items():
        try:
            fill(text, f"{variable}.{name}")
        except InputError:
            names = ", ".join(PLACEHOLDERS)
            raise InputError(
                f"{variable}.{name}: its value has a brace that begins no known placeholder"
                f" ({names}); write {{{{ or }}}} for a brace",
                "PR-112",
            ) from None
    return env


def stop_signal(value: t.Any, variable: str) -> str:
    """Return a signal's name without SIG."""
    name = str(value).upper().removeprefix("SIG")
    if f"SIG{name}" not in signal.Signals.__members__:
        raise InputError(
            f"{variable}: {value!r} is not a signal; write a name like TERM, INT or QUIT", "PR-100"
        )
    return name


# Options --------------------------------------------------------------------------------------

COMMAND = Kind("list", command, elements="str")
SIGNAL = Kind("str", stop_signal)
DIRECTORY = Kind("str", directory, "An absolute path.")
ENVIRONMENT = Kind("dict", environment)
HOOKS = Options(
    Field(
        "before_start",
        COMMAND,
        "Command that runs before an instance is started. The instance fails if it does not exit"
        " with 0.",
    ),
    Field(
        "after_stop",
        COMMAND,
        "Command that runs when an instance is gone. Its errors are in the instance's log.",
    ),
    Field("timeout", duration(0.1, TIMEOUT / 2), "How long each of them may take.", default="10s"),
)
OPTIONS = Options(
    Field("hosts", TEXT, "Inventory pattern of the hosts that run instances.", required=True),
    Field(
        "ports",
        Kind("str", values.ports, "A port, or a range (V(8100-8199))."),
        "Ports that instances may listen on. All hosts together need enough for O(replicas) and the"
        " surge.",
        required=True,
    ),
    Field(
        "env",
        ENVIRONMENT,
        "Environment variables. C(SERVICE), C(REVISION), C(INSTANCE), C(SLOT), C(ADDRESS) and"
        " C(PORT) are always set.",
        default={},
        no_log=True,
    ),
    Field("path", PATH, "Directory of records and logs on each host.", default="/var/lib/rollout"),
    Field(
        "stop_timeout",
        DURATION,
        "How long after it was asked to stop an instance is killed.",
        default="10s",
    ),
    Field(
        "prepare_timeout",
        DURATION,
        "How long a host may take to get what a revision needs.",
        default="10m",
    ),
    Field(
        "zone",
        TEXT,
        "Name of a variable of the hosts (V(rack)). Instances are spread over its values first, and"
        " over hosts then.",
    ),
    Field(
        "hooks",
        group(HOOKS),
        "Commands on the instance's host, with its environment. They may run twice, after a run"
        " that was killed.",
        default={},
    ),
)


# What agents answer ---------------------------------------------------------------------------


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
    """A service's instances on the hosts of `rollout_platform.hosts`. A platform says how they
    are run.
    """

    _agent: str  # the program that does the work on the hosts
    _table: t.ClassVar[Options]  # the options of the driver
    host_options: t.ClassVar[Collection[str]] = HOST_OPTIONS

    def __init__(self, options: Mapping[str, t.Any], context: Context) -> None:
        self.context = context
        self._pattern = options["hosts"]
        self._env, self._ports, self._path = options["env"], options["ports"], options["path"]
        self._stop_timeout, self._prepare_timeout = (
            options["stop_timeout"],
            options["prepare_timeout"],
        )
        self._hosts = list(
            inventory.hosts(context.transport, self._pattern, "rollout_platform.hosts")
        )
        self._addresses = {host: context.transport.address(host) for host in self._hosts}
        self._hooks = {
            name: options["hooks"][name] or [] for name in ("before_start", "after_stop")
        }
        self._hook_timeout = options["hooks"]["timeout"]
        self._options = options
        self.machines: dict[str, Machine] = {}
        self._starters: dict[int, Hosts] = {}
        # by key, what every host is to keep from the next call on
        self._everywhere: dict[str, Mapping[str, t.Any]] = {}
        self._kept: dict[str, frozenset[str]] = {}  # by host, the keys it has
        self.zones = (
            {host: str(context.transport.variable(host, zone) or "") for host in self._hosts}
            if (zone := options["zone"])
            else {}
        )
        self._calls = Calls(context.transport, self._agent, Found | Stale | Failed)
        # by host, when it last answered, and what it was told to start since
        self._seen: dict[str, list[Report]] = {}
        self._created: dict[str, float] = {}
        self._restarted: dict[str, float] = {}

    # -- what each platform says for itself

    @abc.abstractmethod
    def _common(self) -> dict[str, t.Any]:
        """The agent's own settings, in every request."""

    @abc.abstractmethod
    def _order(self, labels: Labels, known: Mapping[str, str]) -> dict[str, t.Any]:
        """What the agent needs to start an instance, beside its labels; `known` fills
        placeholders.
        """

    @abc.abstractmethod
    def _needs(self) -> dict[str, t.Any]:
        """What the agent's `check` is to look for."""

    @abc.abstractmethod
    def _artefacts(self, known: Mapping[str, str]) -> dict[str, t.Any]:
        """What the agent's `prepare` is to bring to a host, or to look for; `known` fills the
        placeholders that are known by then.
        """

    # -- what is the same for all

    def hosts(self) -> Sequence[str]:
        return self._hosts

    def capacity(self) -> int:
        """Hosts that share an address (several names of one machine) share its ports."""
        return len(set(self._addresses.values())) * len(self._ports)

    def place(
        self, count: int, taken: Collection[Labels], generation: int
    ) -> Sequence[tuple[str, Endpoint, int]]:
        hosts = [host for host in self._hosts if host not in self.context.away]
        if not hosts:
            raise PlatformError(
                f"there is no room for {count} more instances: no host of rollout_platform.hosts"
                " answers",
                "PR-219",
            )
        places = place(hosts, self._addresses, self._ports, count, taken, generation, self.zones)
        return [one for one in places if one[0] not in self._calls.at_work]

    def check(self) -> None:
        left_out = self.context.transport.left_out(self._hosts)
        if left_out:
            raise InputError(
                f"rollout_platform.hosts: --limit leaves out {', '.join(left_out)}, whose instances"
                " would not be seen; run it without --limit, or name the hosts to use here",
                "PR-100",
            )
        request = {"check": {"path": self._path, **self._needs()}}
        answers = self._ask_all("look at", dict.fromkeys(self._hosts, request), TIMEOUT, InputError)
        self.machines = {
            host: answer["machine"] for host, answer in answers.items() if "machine" in answer
        }

    def prepare(self, revision: str, generation: int | None = None) -> None:
        self._starter(generation)._prepare(revision)

    def _prepare(self, revision: str) -> dict[str, dict[str, t.Any]]:
        """Return the answer of each host's agent."""
        requests = {}
        for host in self._hosts:
            known = {
                "revision": revision,
                "service": self.context.service,
                "host": host,
                "address": self._addresses[host],
            }
            requests[host] = {"prepare": self._artefacts(known)}
        return self._ask_all("prepare", requests, self._prepare_timeout, PlatformError)

    def _ask_all(
        self,
        what: str,
        requests: Mapping[str, Mapping[str, t.Any]],
        timeout: float,
        wrong: type[RolloutError],
    ) -> dict[str, dict[str, t.Any]]:
        """Return every host's answer; raise `wrong` with all problems that hosts have."""
        asked = self.context.transport.ask(self._agent, requests, timeout)
        answers = {host: shaped(answer, Problems | Failed) for host, answer in asked.items()}
        silent = [
            f"{host}: {answers[host].error}" for host in self._hosts if answers[host].value is None
        ]
        if silent:
            raise PlatformError(
                f"rollout_platform.hosts: cannot {what} {'; '.join(silent)}; {MEND}", "PR-200"
            )
        problems: dict[str, list[str]] = {}  # each problem once, with its hosts
        ids: list[str] = []
        for host in self._hosts:
            value = answers[host].value or {}
            for setting, why in value.get(
                "problems", {"hosts": value.get("error", "no answer")}
            ).items():
                problems.setdefault(
                    f"rollout_platform.{clean(setting)}: {clean(why, 2000)}", []
                ).append(host)
                ids.append(PROBLEMS.get(setting, "PR-204"))
        if problems:
            raise wrong(
                "; ".join(
                    f"{problem} (on {', '.join(hosts)})" for problem, hosts in problems.items()
                ),
                ids[0],
            )
        return {host: answers[host].value or {} for host in self._hosts}

    def retry_silent_hosts(self) -> None:
        self._calls.retry_silent()

    def sync(
        self, start: Sequence[Labels] = (), stop: Sequence[str] = (), forget: Sequence[str] = ()
    ) -> Sequence[Report]:
        wanted: dict[str, list[Labels]] = {host: [] for host in self._hosts}
        for labels in start:
            if labels.host not in wanted:
                where = f"rollout_platform.hosts ({self._pattern})"
                raise PlatformError(
                    f"instance {labels.id}: {labels.host} is not a host of {where}", "PR-223"
                )
            wanted[labels.host].append(labels)
        common = {
            "service": self.context.service,
            "path": self._path,
            "epoch": self.context.epoch,
            # ids name one instance of the service, wherever it is: hosts pass over others' ids
            "stop": list(stop),
            "forget": list(forget),
            "retain": sorted({kept.key for kept in self.context.settings.values() if kept.key}),
            "stop_timeout": self._stop_timeout,
            "hook_timeout": self._hook_timeout,
            **self._common(),
        }
        self._recall()
        asked = self._concerned(wanted, [*stop, *forget])
        requests = {
            host: {**common, "host": host, **self._starts(host, wanted[host])} for host in asked
        }
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
        """The secret part of a generation's settings, from a host that has it; None where no
        host has. Raises PlatformError while hosts that may have it do not answer.
        """
        if key not in self.context.secrets:
            holders = (
                [host for host in self._hosts if key in self._kept.get(host, ())]
                if self._kept
                else self._hosts
            )
            request = {"recall": key, "service": self.context.service, "path": self._path}
            asked = {host: {**request, "host": host} for host in holders[:ENOUGH]}
            answers = self.context.transport.ask(self._agent, asked, TIMEOUT) if asked else {}
            found = [
                answer.value.get("settings")
                for answer in answers.values()
                if answer.value is not None
            ]
            # As it was kept: a host cannot make up the settings that others start instances with.
            whole = [one for one in found if isinstance(one, Mapping) and key_of(one) == key]
            silent = [
                host
                for host in self._hosts
                if host in self.context.away or (host in answers and answers[host].value is None)
            ]
            if silent and not whole:
                raise PlatformError(
                    f"{', '.join(silent)} may have the settings that instances are to be started"
                    f" with; {MEND}",
                    "PR-222",
                )
            if whole:
                self.context.secrets[key] = whole[0]
        return self.context.secrets.get(key)

    def _starts(self, host: str, wanted: Sequence[Labels]) -> dict[str, t.Any]:
        """Return what a host needs to start these, and the settings it is to keep for them."""
        starts = [self._starter(labels.generation)._wanted(labels) for labels in wanted]
        kept = [self.context.settings.get(labels.generation) for labels in wanted]
        keys = {
            one.key for one in kept if one and one.key and one.key not in self._kept.get(host, ())
        }
        return {
            "start": starts,
            "keep": {
                **self._everywhere,
                **{key: self.context.secrets[key] for key in sorted(keys)},
            },
        }

    def _starter(self, generation: int | None) -> Hosts:
        """Return the driver with the settings of a generation; itself, if the journal has none."""
        kept = None if generation is None else self.context.settings.get(generation)
        if generation is None or kept is None:
            return self
        if generation not in self._starters:
            self._starters[generation] = type(self)(self._as_kept(kept), self.context)
        return self._starters[generation]

    def _as_kept(self, kept: InstanceSettings) -> dict[str, t.Any]:
        """Return the options, those that shape an instance as they were kept."""
        name = type(self).__module__.rpartition(".")[2]
        if kept.driver.rpartition(".")[2] != name:
            raise RolloutFailed(
                f"rollout_platform.driver: {kept.driver} ran the instances that are to be started"
                f" again, and {name} cannot start them; give the driver they had",
                "PR-222",
            )
        hidden = self.recall(kept.key) if kept.key else {}
        if hidden is None:
            lost = ", ".join(
                f"rollout_{option} ({', '.join(names)})" for option, names in kept.secret.items()
            )
            raise RolloutFailed(
                "cannot start instances with the settings they had: no host has the values of"
                f" {lost} any more; set these variables as they were, and roll that revision out"
                " again",
                "PR-222",
            )
        ours = {name: value for name, value in self._options.items() if name in self.host_options}
        return self._table.parse(
            {**ours, **kept.platform, **hidden.get("platform", {})}, "rollout_platform."
        )

    def _recall(self) -> None:
        """What runs before us have seen on hosts that did not answer them."""
        for host in list(self.context.away):
            if host in self._hosts:
                self._seen.setdefault(host, [_recalled(one) for one in self.context.away[host]])
            else:
                del self.context.away[host]  # it was taken out of the inventory

    def _concerned(
        self, wanted: Mapping[str, Sequence[Labels]], ids: Sequence[str]
    ) -> Sequence[str]:
        """The hosts to ask: those with something to do, or all of them when that is nothing or
        not known.
        """
        home = {
            report.labels.id: host for host, reports in self._seen.items() for report in reports
        }
        busy = {home.get(name, "") for name in ids} | {
            host for host, mine in wanted.items() if mine
        }
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
        own = {
            name.upper(): known[name]
            for name in ("service", "revision", "instance", "slot", "address", "port")
        }
        env = {
            name: fill(text, f"rollout_platform.env.{name}", known)
            for name, text in self._env.items()
        }
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
                name: [fill(word, f"rollout_platform.hooks.{name}", known) for word in argv]
                for name, argv in self._hooks.items()
            },
            **self._order(labels, known),
        }

    def _refuse(self, answers: Mapping[str, Answer]) -> None:
        """Raise the errors of hosts about the call as a whole; a lost lease comes first."""
        stale = [
            f"{host}: {a.value['stale']}"
            for host, a in answers.items()
            if a.value and "stale" in a.value
        ]
        if stale:
            raise LeaseLost("; ".join(stale))
        errors = [
            f"{host}: {a.error or (a.value or {}).get('error')}"
            for host, a in answers.items()
            if (not a.unreachable or host not in self._seen)
            and (a.value is None or "error" in a.value)
        ]
        if errors:
            mend = f"; {MEND}" if any(answer.unreachable for answer in answers.values()) else ""
            error = PlatformError(f"cannot know what runs on {'; '.join(errors)}{mend}")
            known = {
                host: (answer.value or {}).get("instances", ()) for host, answer in answers.items()
            }
            error.seen = [
                self._report(host, item, clock.now())
                for host, items in known.items()
                for item in items
            ]
            raise error

    def _reports(
        self, host: str, answer: Answer | None, now: float, wanted: Sequence[Labels]
    ) -> list[Report]:
        """What a host answered; of one that has not, what was last seen there and what it may
        have started since.
        """
        if answer and answer.value is not None:
            return [self._report(host, item, now) for item in answer.value["instances"]]
        seen = {report.labels.id for report in self._seen[host]}
        return self._seen[host] + [
            Report(labels, Process.STARTING, now) for labels in wanted if labels.id not in seen
        ]

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
        # By our clock, and the same in every turn: whom it is the turn of must not hang on a slow
        # answer.
        created = self._created.setdefault(labels.id, now - item["age"])
        restarted = (
            self._restarted.setdefault(labels.id, now - item["restarted"])
            if item.get("restarts")
            else None
        )
        return Report(
            labels,
            Process(item["process"]),
            created,
            clean(item["detail"], 1000),
            item.get("restarts", 0),
            restarted,
        )


def place(
    hosts: Sequence[str],
    addresses: Mapping[str, str],
    ports: range,
    count: int,
    taken: Collection[Labels],
    generation: int,
    zones: Mapping[str, str] | None = None,
) -> list[tuple[str, Endpoint, int]]:
    """Where the next `count` instances go: the zone and then the host with the fewest, the lowest
    free slots, the next free port.

    The fewest of the same generation, since all others are to go; of equal ones the least loaded.
    Ports go round: the one after the highest in use comes next, so that one just freed is not used
    again at once.
    """
    zones = zones or {}
    load = Counter(labels.host for labels in taken)
    alike = Counter(labels.host for labels in taken if labels.generation == generation)
    near = Counter(
        zones.get(labels.host, "") for labels in taken if labels.generation == generation
    )
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
                f"there is no room for {count} more instances beside {len(taken)}: {len(ports)}"
                f" ports (rollout_platform.ports, {ports[0]}-{ports[-1]}) at {len(used)} addresses;"
                " give more ports or more hosts",
                "PR-219",
            )
        # the first of several
        host = min(room, key=lambda host: (near[zones.get(host, "")], alike[host], load[host]))
        address = addresses[host]
        port = next(
            port
            for port in chain(range(latest[address] + 1, ports.stop), ports)
            if port not in used[address]
        )
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
