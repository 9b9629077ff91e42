# SPDX-License-Identifier: GPL-3.0-or-later
"""Open source nginx, through a file that it includes.

Every change of the instances in rotation is a reload.

An instance in rotation is a server of the service's upstream; one out of rotation is not there at
all. nginx does not check instances, so they are asked from its own host, as `rollout_health` says:
that shows that it reaches them. It does not count requests either. Those in flight are known from
its connections, since the upstream keeps none open.

A reload keeps requests in flight, and closes the idle connections of clients: one that sends its
next request at that moment loses it. So nginx has to be set to `keepalive_timeout 0`, or, from
1.27.4 on, to a `keepalive_min_timeout`.
"""

from __future__ import annotations

import re
import time
import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ..base.errors import InputError, TrafficError
from ..base.text import clean
from ..engine.model import Health, Rotation
from ..health import agent as probes
from ..health.streak import Streak, advance
from ..inputs import values
from ..inputs.options import LISTEN, PATH, TEXT, Field, Kind, Options
from ..interfaces.context import DriverContext
from ..interfaces.platform import Endpoint
from ..interfaces.traffic import Server, Table, Target, TrafficDriver
from ..remote import inventory
from ..remote.inventory import label
from . import _agents as agents
from . import _cohorts as cohorts
from . import _options as shared

UNSUPPORTED = {
    "preview": "nginx has no pool for new instances; use HAProxy or Envoy, or remove the option",
    "match": "nginx has no pool for new instances; use HAProxy or Envoy, or remove the option",
    "mirror": "nginx has no pool for new instances; use Envoy, or remove the option",
    "sticky": (
        "nginx distributes requests in turn and binds no client to an instance; use HAProxy or"
        " Envoy, or remove the option"
    ),
}
_UPSTREAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def _upstream(value: t.Any, variable: str) -> str:
    if not _UPSTREAM.fullmatch(str(value)):
        raise InputError(
            f"{variable}: {value!r} is not a name; use letters, digits and . _ -", "PR-120"
        )
    return str(value)


OPTIONS = Options(
    Field(
        "hosts",
        TEXT,
        "Inventory pattern of the nginx hosts. Without it, nginx is on the controller.",
    ),
    Field(
        "path", PATH, "Directory for the files that nginx includes.", default="/etc/nginx/rollout"
    ),
    Field(
        "upstream",
        Kind("str", _upstream),
        "Name of the service's upstream in nginx's configuration, and of its file. The service's"
        " name if not given.",
    ),
    Field("config", PATH, "nginx's configuration file.", default="/etc/nginx/nginx.conf"),
    Field("pid", PATH, "File with the pid of the master process.", default="/run/nginx.pid"),
    Field(
        "status",
        LISTEN,
        "Address and port that nothing else uses. nginx reports there what it serves.",
        default="127.0.0.1:9180",
    ),
    shared.COHORT,
    shared.DRAIN_TIMEOUT,
    shared.ACCESS_LOG,
)
TIMEOUT = 60.0  # seconds for one call of the agent; it gives up on nginx long before
ENTRY = {**agents.ENTRY, "apart": bool}
NEW = Streak(), 0.0  # of an entry that was not asked yet
_NUMBERED = re.compile(r"-\d+$")  # ends the id of an instance that a rollout placed on a host
_INSTANCE = re.compile(r"[A-Za-z0-9._:\[\]-]{0,200}")
Entry = dict[str, t.Any]  # in the agent's words
Place = tuple[str, Endpoint, str]


class Driver(TrafficDriver):
    """The nginxes of one service, kept in the same state."""

    unsupported = UNSUPPORTED
    shares_check = True
    keeps_adopted = False

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self.context, self.transport = context, context.transport
        self.options = {**options, "upstream": options["upstream"] or context.service}
        self.hosts = inventory.hosts_or_controller(
            self.transport, options["hosts"], "rollout_traffic.hosts"
        )
        self.drain_timeout = options["drain_timeout"]
        self.pool_name = f"upstream {self.options['upstream']}"
        self.health = context.health
        self.key = _key(options["cohort"])
        # what asking came to, and when it was asked last
        self.streaks: dict[Place, tuple[Streak, float]] = {}
        self.common = {
            **{
                name: self.options[name] for name in ("path", "config", "pid", "upstream", "status")
            },
            "fall": self.health.fall,
            "cohort": self._cohort(0),
            "adopting": [*context.adopting],
            "in_place": context.in_place,
            "service": context.service,
        }
        self.adopts = not self.key
        if self.key:
            self.instead_of_adopting = " with a cohort; give it a cohort after the first rollout"

    def check(self) -> None:
        """Raise unless every nginx runs, includes the file, and can be reloaded with it.

        Touch nothing.
        """
        answers = self._ask({host: {"op": "check"} for host in self.hosts})
        owners = {label(host): value.get("journal") for host, value in answers.items()}
        files = f"{self.options['path']}/{self.options['upstream']}.journal"
        self.context.known().journal.refuse_others(owners, "entries at nginxes", files)
        for host, value in answers.items():
            if idle := clean(value.get("idle", "")):
                self.transport.print_line(
                    f"nginx on {label(host)}: keepalive_timeout {idle}: at each reload it closes"
                    " idle connections, and a client that sends a request at that moment loses it;"
                    " set keepalive_timeout 0"
                )

    def leave(self, dry: bool) -> Sequence[str]:
        from ..remote import leaving  # a service is removed once

        stem = f"{self.options['path']}/{self.options['upstream']}"
        places = {host: [leaving.at_stem(stem, [f"{stem}.json"])] for host in self.hosts}
        run = {**self.context.known().fencing, "dry": dry}
        return leaving.leave(self.transport, places, run, TrafficError)

    def observe(self) -> Table:
        """Return every entry of the service, at every nginx."""
        return self._look(self.hosts)

    def apply(self, targets: Mapping[str, Mapping[Endpoint, Target]]) -> Table:
        """Bring every nginx that has targets to them.

        Each is looked at, and every refusal raised, before the first is changed. The others are
        left alone: an nginx can be put back while another does not answer.
        """
        asked = {host: targets[label(host)] for host in self.hosts if label(host) in targets}
        for wanted in asked.values():
            for endpoint in sorted(wanted):
                entry(endpoint, wanted[endpoint])
        seen = self._proven(asked)
        before = self._table(seen)
        for host, wanted in asked.items():
            for endpoint, target in wanted.items():
                refuse(label(host), endpoint, target, before[label(host)].get(endpoint))
        return self._table(
            self._entries({host: self._work(wanted, seen[host]) for host, wanted in asked.items()})
        )

    def _work(self, wanted: Mapping[Endpoint, Target], seen: Sequence[Entry]) -> dict[str, t.Any]:
        """Return what one nginx is asked for."""
        known = {endpoint(entry): entry["in"] for entry in seen if entry["apart"]}
        serving = [where for where, is_in in known.items() if is_in]
        chosen = cohorts.apart(wanted, serving, known) if self.key else set()
        return {
            "op": "apply",
            "entries": [entry(where, wanted[where], where in chosen) for where in sorted(wanted)],
            "cohort": self._cohort(cohorts.share(wanted, chosen)),
        }

    def _cohort(self, share: int) -> dict[str, t.Any] | None:
        return {"key": self.key, "share": share} if self.key else None

    def _look(self, hosts: Iterable[str]) -> Table:
        return self._table(self._proven(hosts))

    def _proven(self, hosts: Iterable[str]) -> dict[str, list[Entry]]:
        entries = self._entries({host: {"op": "observe"} for host in hosts})
        self._prove(entries)
        return entries

    def _table(self, entries_by_host: Mapping[str, Sequence[Entry]]) -> Table:
        return {
            label(host): {endpoint(entry): self._server(host, entry) for entry in entries}
            for host, entries in entries_by_host.items()
        }

    def _server(self, host: str, entry: Entry) -> Server:
        streak, _asked = self.streaks.get(place(host, entry), NEW)
        lb_healthy = streak.health is Health.PASSING
        adopted = entry["name"] in self.context.known().adopted
        return Server(
            Rotation.IN if entry["in"] else Rotation.OUT,
            lb_healthy,
            entry["active"],
            entry["weight"],
            ours=adopted or entry["name"] != str(endpoint(entry)),
            name=entry["name"],
            service=self.context.service
            if adopted
            else str(entry.get("service") or "") or _service(entry["name"]),
        )

    def _prove(self, entries_by_host: Mapping[str, Sequence[Entry]]) -> None:
        """Ask instances from the nginxes' hosts.

        Those that pass are asked every `interval`, the others at every look.
        """
        now = time.monotonic()
        due: dict[str, dict[str, Entry]] = {}
        for host, entries in entries_by_host.items():
            for entry in entries:
                streak, asked = self.streaks.get(place(host, entry), NEW)
                if streak.health is not Health.PASSING or now - asked >= self.health.interval:
                    due.setdefault(host, {})[str(endpoint(entry))] = entry
        requests = {
            host: probes.request(
                self.health, {name: endpoint(entry) for name, entry in entries.items()}
            )
            for host, entries in due.items()
        }
        answers = (
            self.transport.ask("probe", requests, self.health.timeout + probes.REACH)
            if requests
            else {}
        )
        rules = self.health.rise, self.health.fall
        for host, asked_there in due.items():
            value = answers[host].value
            if value is None:
                raise TrafficError(
                    f"nginx on {label(host)}: instances cannot be reached from there:"
                    f" {answers[host].error}",
                    answers[host].id,
                )
            for name, probe in probes.probes(self.health.check, value).items():
                entry = asked_there[name]
                streak, _asked = self.streaks.get(place(host, entry), NEW)
                self.streaks[place(host, entry)] = (
                    advance(streak, probe.passed, *rules, entry["in"]),
                    now,
                )

    def _entries(self, requests: Mapping[str, Mapping[str, t.Any]]) -> dict[str, list[Entry]]:
        """Return the entries that each agent answers."""
        return {host: value["entries"] for host, value in self._ask(requests).items()}

    def _ask(self, requests: Mapping[str, Mapping[str, t.Any]]) -> dict[str, dict[str, t.Any]]:
        """Return what each agent answers; raise for all that answer with an error."""
        known = self.context.known()
        common = {**self.common, **known.fencing, "adopted": [*known.adopted]}
        asked = {host: {**common, **request} for host, request in requests.items()}
        answers = agents.read(self.transport.ask("nginx", asked, TIMEOUT), "nginx", ENTRY)
        errors = []
        for host, value in answers.items():
            if "error" in value:
                field = value.get("field")
                what = f"rollout_traffic.{field}: {str(self.options[field])!r}: " if field else ""
                errors.append(f"{what}nginx on {label(host)}: {value['error']}")
        if errors:
            raise TrafficError("; ".join(errors), agents.id_of(answers))
        return answers


def _service(name: str) -> str:
    """Return whose instance has the name, "" if it does not say: an earlier version kept no mark of
    the service that an upstream belongs to.
    """
    return _NUMBERED.sub("", name) if _NUMBERED.search(name) else ""


def endpoint(entry: Entry) -> Endpoint:
    """Return where the instance of an entry listens."""
    return Endpoint(entry["address"], entry["port"])


def place(host: str, entry: Entry) -> Place:
    """Return what is asked: with its name, since another instance there has to pass as well."""
    return host, endpoint(entry), entry["name"]


def _key(identity: tuple[str, str] | None) -> str:
    """Return nginx's variable of what identifies a client, "" without."""
    if identity is None:
        return ""
    kind, name = identity
    if kind == "header":
        return f"http_{name.lower().replace('-', '_')}"
    if "-" in name:
        raise InputError(
            f"rollout_traffic.cohort.cookie: {name!r}: nginx has no variable for it; use a cookie"
            " whose name has letters, digits and _ only, or a header",
            "PR-310",
        )
    return f"cookie_{name}"


def entry(endpoint: Endpoint, target: Target, apart: bool = False) -> Entry:
    """Return a target in the agent's terms; all of it becomes part of nginx's configuration."""
    if not 1 <= target.weight <= 256 or not _INSTANCE.fullmatch(target.name):
        raise TrafficError(
            f"{endpoint} ({target.name!r}, weight {target.weight}) cannot be written to nginx's"
            " configuration: weights are 1 to 256, and names have letters, digits and . _ - only",
            "PR-310",
        )
    return {
        "address": values.address(endpoint.address, "the address of an instance"),
        "port": endpoint.port,
        "in": target.rotation is Rotation.IN,
        "weight": target.weight,
        "name": target.name,
        "apart": apart,
    }


def refuse(balancer: str, endpoint: Endpoint, target: Target, shown: Server | None) -> None:
    """Raise for an instance that would be put in rotation without being reached from there."""
    if target.rotation is not Rotation.IN:
        return
    # one that people wrote has its address for a name until it is written for the first time
    known = shown is not None and shown.name in (target.name, str(endpoint))
    if shown is None or not known or (shown.rotation is not Rotation.IN and not shown.lb_healthy):
        raise TrafficError(
            f"nginx on {balancer}: {endpoint} is not put in rotation:"
            f" {'its check has not passed from' if known else 'it has no entry'} there; put it"
            " there out of rotation first, and wait until it is proven",
            "PR-308",
        )
