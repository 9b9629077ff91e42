# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of platforms that run instances on inventory hosts.

Each has an agent on the hosts that answers as `agents/_service.py` says.
"""

from __future__ import annotations

import abc
import typing as t
from collections.abc import Collection, Iterator, Mapping, Sequence

from ..base import clock
from ..base.errors import InputError, PlatformError, RolloutError
from ..base.text import clean
from ..engine.model import Process
from ..inputs.options import Options
from ..interfaces.context import DriverContext
from ..interfaces.platform import (
    Capabilities,
    Endpoint,
    InstanceSettings,
    Labels,
    Machine,
    PlatformDriver,
    Report,
    Usage,
)
from ..remote import inventory
from ..remote.agents import Answer, shaped
from ._answers import (
    MEND,
    Failed,
    Found,
    Problems,
    Stale,
    refuse_problems,
    refuse_silent,
    refuse_stale,
)
from ._calls import LOOK, UNTIL_END, Calls
from ._last_seen import LastSeen
from ._options import HOST_OPTIONS, fill
from ._placement import Place, place
from ._secrets import Secrets

TIMEOUT = 60.0  # seconds for what is checked before anything is touched
SHOWN = 5  # hosts that a message names
MOST_KILLED = 3  # instances killed after their stop timeout that are printed, one a line


class Hosts(PlatformDriver):
    """A service's instances on the hosts of `rollout_platform.hosts`.

    A platform says how they are run.
    """

    _agent: str  # the program that does the work on the hosts
    _tells_ends: t.ClassVar[bool] = False  # whether its agent can wait until instances have ended
    _table: t.ClassVar[Options]  # the options of the driver
    capabilities = Capabilities(host_options=HOST_OPTIONS)

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self.context, self._options = context, options
        self._pattern = options["hosts"]
        self._env, self._ports, self._path = options["env"], options["ports"], options["path"]
        self._stop_timeout = options["stop_timeout"]
        self._prepare_timeout = options["prepare_timeout"]
        self._hooks = {
            name: options["hooks"][name] or [] for name in ("before_start", "after_stop")
        }
        self._hook_timeout = options["hooks"]["timeout"]
        transport = context.transport
        self._hosts = list(inventory.hosts(transport, self._pattern, "rollout_platform.hosts"))
        self._addresses = {host: transport.address(host) for host in self._hosts}
        self.zones = (
            {host: str(transport.variable(host, zone) or "") for host in self._hosts}
            if (zone := options["zone"])
            else {}
        )
        self.machines: dict[str, Machine] = {}
        self._starters: dict[int, Hosts] = {}  # by generation
        self._occupied: dict[str, set[int]] = {}  # by address: ports that others have
        self._beside: dict[str, list[str]] = {}  # by host, what no rollout has started, of `check`
        self._named: set[int] = set()  # slots whose names others have
        self._killed: set[str] = set()  # instances that did not stop in time, as told
        self._left: set[str] = set()  # stopped instances that have left something, as told
        self._calls = Calls(transport, self._agent, Found | Stale | Failed)
        self._seen = LastSeen(context)
        self.away = self._seen.away
        self._secrets = Secrets(context, self._agent, self._hosts, self.away)

    # -- what each platform says for itself

    @abc.abstractmethod
    def _common(self) -> dict[str, t.Any]:
        """Return the agent's own settings, which each request has."""

    @abc.abstractmethod
    def _order(self, labels: Labels, known: Mapping[str, str]) -> dict[str, t.Any]:
        """Return what the agent needs to start an instance, beside its labels.

        `known` fills the placeholders.
        """

    @abc.abstractmethod
    def _needs(self) -> dict[str, t.Any]:
        """Return what the agent's `check` is to look for."""

    @abc.abstractmethod
    def _artefacts(self, known: Mapping[str, str]) -> dict[str, t.Any]:
        """Return what the agent's `prepare` is to bring to a host, or to look for.

        `known` fills the placeholders that are known by then.
        """

    # -- hosts and places

    def hosts(self) -> Sequence[str]:
        return self._hosts

    def _included(self) -> list[str]:
        """Return the hosts that are not left out of the rollout in progress."""
        excluded = self.context.known().excluded
        return [host for host in self._hosts if host not in excluded]

    def capacity(self, among: Collection[str] | None = None) -> int:
        """Return how many instances fit; hosts that share an address share its ports."""
        hosts = [host for host in self._hosts if among is None or host in among]
        return len({self._addresses[host] for host in hosts}) * len(self._ports)

    def place(
        self,
        count: int,
        taken: Collection[Labels],
        generation: int,
        among: Collection[str] | None = None,
    ) -> Sequence[Place]:
        wanted = [host for host in self._hosts if among is None or host in among]
        hosts = [host for host in wanted if host not in self.away]
        if not hosts:
            raise PlatformError(
                f"there is no room for {count} more instances: none of {', '.join(wanted[:5])}"
                " (rollout_platform.hosts) answers",
                "PR-219",
            )
        known = hosts, self._addresses, self._ports, count, taken, generation
        try:
            places = place(*known, zones=self.zones, occupied=self._occupied, slots=self._named)
        except PlatformError:  # perhaps one of the ports is free again
            places = place(*known, zones=self.zones, slots=self._named)
        return [place for place in places if place[0] not in self.at_work]

    # -- before anything is touched

    def check(self) -> None:
        left_out = self.context.transport.left_out(self._hosts)
        if left_out:
            raise InputError(
                f"rollout_platform.hosts: --limit leaves out {', '.join(left_out)}, whose instances"
                " would not be seen; run it without --limit, or name the hosts to use here",
                "PR-128",
            )
        request = {
            "check": {"path": self._path, **self._needs()},
            "service": self.context.service,
            "ports": [self._ports[0], self._ports[-1]],
        }
        requests = {
            host: {**request, "host": host, "address": self._addresses[host]}
            for host in self._included()
        }
        answers = self._ask_all("look at", requests, TIMEOUT, InputError)
        self._refuse_taken(answers)
        owners = {host: answer.get("journal") for host, answer in answers.items()}
        files = f"{self._path}/HOST/SERVICE/journal"
        self.context.known().journal.refuse_others(owners, "instances", files)
        self._beside = {
            host: answer["beside"] for host, answer in answers.items() if answer.get("beside")
        }
        self.machines = {
            host: answer["machine"] for host, answer in answers.items() if "machine" in answer
        }

    def _refuse_taken(self, answers: Mapping[str, Mapping[str, t.Any]]) -> None:
        """Refuse ports that other programs have on every host: no instance could start."""
        if not answers or not all(answer.get("taken") for answer in answers.values()):
            return
        first, last = self._ports[0], self._ports[-1]
        which = f"{first}: taken by another program"
        if last > first:
            which = f"{first}-{last}: all taken by other programs"
        hosts = ", ".join([*answers][:SHOWN]) + (", …" if len(answers) > SHOWN else "")
        raise InputError(
            f"rollout_platform.ports: {which} on each of {hosts}, so that no instance could start;"
            f" see what listens there (ss -ltnp 'sport = :{first}'), end it, or give other ports",
            "PR-227",
        )

    def risks(self, replicas: int, least: int, most: int) -> Sequence[str]:
        return [
            f"on {host}, {', '.join(map(clean, names[:5]))}"
            f"{f' and {len(names) - 5} more' if len(names) > 5 else ''} run beside the instances:"
            " no rollout has started them, so none counts or stops them"
            for host, names in self._beside.items()
        ]

    def prepare(self, revision: str, generation: int | None = None) -> None:
        self._starter(generation)._prepare(revision)

    def _prepare(self, revision: str) -> dict[str, dict[str, t.Any]]:
        """Return the answer of each host's agent."""
        known = {"revision": revision, "service": self.context.service}
        requests = {
            host: {
                "prepare": self._artefacts(
                    {**known, "host": host, "address": self._addresses[host]}
                )
            }
            for host in self._included()
        }
        return self._ask_all("prepare", requests, self._prepare_timeout, PlatformError)

    def _ask_all(
        self,
        what: str,
        requests: Mapping[str, Mapping[str, t.Any]],
        timeout: float,
        wrong: type[RolloutError],
    ) -> dict[str, dict[str, t.Any]]:
        """Return the answer of every host asked; raise `wrong` with all problems that they have."""
        asked = self.context.transport.ask(self._agent, requests, timeout)
        answers = {host: shaped(answer, Problems | Failed) for host, answer in asked.items()}
        refuse_silent(what, list(requests), answers)
        refuse_problems(list(requests), answers, wrong)
        return {host: answers[host].value or {} for host in requests}

    # -- instances

    @property
    def at_work(self) -> Collection[str]:
        return self._calls.at_work

    def retry_silent_hosts(self) -> None:
        self._calls.retry_silent()

    def sync(
        self, start: Sequence[Labels] = (), stop: Sequence[str] = (), forget: Sequence[str] = ()
    ) -> Sequence[Report]:
        return self._sync(start, stop, forget, {})

    def look(self, hosts: Collection[str]) -> Sequence[Report]:
        return self._sync((), (), (), {}, hosts)

    def keep(self, key: str, content: Mapping[str, t.Any]) -> None:
        """Bring the secret settings of a generation to every host that answers."""
        self.context.secrets[key] = content
        self._sync((), (), (), {key: content})

    def recall(self, key: str) -> Mapping[str, t.Any] | None:
        return self._secrets.recall(key, self._path)

    def _sync(
        self,
        start: Sequence[Labels],
        stop: Sequence[str],
        forget: Sequence[str],
        keep: Mapping[str, Mapping[str, t.Any]],
        look: Collection[str] | None = None,
    ) -> list[Report]:
        """Do the work, and keep these secret settings on every host that is asked.

        Without any work, `look` has the hosts to ask; None: all.
        """
        self._seen.restore(self._hosts)
        starts = self._by_host(start)
        common = self._request(self.context.known().epoch)
        stops, forgets = self._by_home(stop), self._by_home(forget)
        requests = {
            host: {
                **common,
                "host": host,
                "stop": stops[host],
                "forget": forgets[host],
                "start": [
                    {
                        **self._starter(labels.generation)._wanted(labels),
                        "pass_over": not self._is_occupied(labels.endpoint),
                    }
                    for labels in starts[host]
                ],
                "keep": {**keep, **self._secrets.wanted(host, starts[host])},
            }
            for host in self._concerned(starts, [*stop, *forget], look)
        }
        if self._tells_ends:
            for host in self._calls.free_to_wait(self._ending(requests, stop), len(self._hosts)):
                requests[host]["wait"] = UNTIL_END
        answers = self._calls.ask(requests, bool(start or stop or forget), self._seen.hosts)
        now = clock.now()
        refuse_stale(answers)
        lost = self._lose_excluded(answers, now)
        self._refuse_unknown(answers, now)
        for host in {**requests, **answers}.keys() - lost:
            answer = answers.get(host)
            self._seen.update(host, answer, starts[host], stops[host], now)
            if answer and answer.value is not None:
                self._tell_left(host, answer.value["instances"])
                self._tell_killed(host, answer.value["instances"])
                self._secrets.kept(host, answer.value.get("kept", ()))
                self._occupied.setdefault(self._addresses[host], set()).update(
                    answer.value.get("occupied", ())
                )
                self._pass_over(host, answer.value.get("named", ()))
        return self._seen.reports(self._hosts)

    def changed(self) -> bool:
        return self._calls.answered_late

    def _pass_over(self, host: str, named: Sequence[Mapping[str, t.Any]]) -> None:
        """Pass over slots whose names other programs have, and say so."""
        for item in named:
            self._named.add(item["slot"])
            self.context.transport.print_line(
                f"{host}: {clean(item['why'], 300)}; an instance of another name is started"
            )

    def _tell_left(self, host: str, items: Sequence[Mapping[str, t.Any]]) -> None:
        """Tell once what stopped instances have left alive."""
        for item in items:
            if (left := item.get("left")) and item["id"] not in self._left:
                self._left.add(item["id"])
                self.context.transport.print_line(
                    f"{clean(item['id'])} on {host} was stopped, and {clean(left, 300)}; end that"
                    " there [PR-259]"
                )

    def _tell_killed(self, host: str, items: Sequence[Mapping[str, t.Any]]) -> None:
        """Tell once which instances did not stop in time, the first of them one by one."""
        for item in items:
            if not item.get("killed") or item["id"] in self._killed:
                continue
            self._killed.add(item["id"])
            if len(self._killed) <= MOST_KILLED:
                self.context.transport.print_line(
                    f"{clean(item['id'])} on {host} did not stop in time and was killed: requests"
                    " that it still had may have failed; have the program end at its stop signal,"
                    " or raise rollout_platform.stop_timeout [PR-228]"
                )
            elif len(self._killed) == MOST_KILLED + 1:
                self.context.transport.print_line(
                    "others did not stop in time, too; the timeline names them [PR-228]"
                )

    def _ending(
        self, requests: Mapping[str, Mapping[str, t.Any]], stop: Collection[str]
    ) -> Iterator[str]:
        """Yield the hosts that are asked for nothing but to stop instances that run."""
        running = self._seen.homes(Process.RUNNING)
        concerned = {running.get(name) for name in stop}
        for host, request in requests.items():
            if host in concerned and not request["start"] and not request["keep"]:
                yield host

    def _is_occupied(self, endpoint: Endpoint) -> bool:
        """Return whether another program had this port: a start there fails if it still has."""
        return endpoint.port in self._occupied.get(endpoint.address, ())

    def _request(self, epoch: int) -> dict[str, t.Any]:
        """Return what each host is asked, beside its own work."""
        return {
            "service": self.context.service,
            "path": self._path,
            "epoch": epoch,
            "journal": self.context.known().journal.named(),
            "retain": self.context.known().secret_keys,
            "stop_timeout": self._stop_timeout,
            "hook_timeout": self._hook_timeout,
            **self._common(),
        }

    def usage(self) -> dict[str, Usage]:
        nothing: dict[str, t.Any] = {"start": [], "stop": [], "forget": [], "keep": {}}
        common = {**self._request(epoch=0), **nothing, "usage": True}
        requests = {host: {**common, "host": host} for host in self._hosts}
        asked = self.context.transport.ask(self._agent, requests, LOOK)
        answers = {host: shaped(answer, Found | Stale | Failed) for host, answer in asked.items()}
        values = {
            host: answer.value for host, answer in answers.items() if answer.value is not None
        }
        instances_by_host = {
            host: value["instances"] for host, value in values.items() if "instances" in value
        }
        if not instances_by_host:
            raise PlatformError("no host says what its instances use", "PR-225")
        return {
            instance["id"]: Usage(
                host,
                instance["generation"],
                instance["age"],
                {**instance["usage"], "restarts": float(instance.get("restarts", 0))},
            )
            for host, instances in instances_by_host.items()
            for instance in instances
            if instance.get("usage")
        }

    def _by_host(self, start: Sequence[Labels]) -> dict[str, list[Labels]]:
        """Return by host what is to be started there."""
        starts: dict[str, list[Labels]] = {host: [] for host in self._hosts}
        for labels in start:
            if labels.host not in starts:
                where = f"rollout_platform.hosts ({self._pattern})"
                raise PlatformError(
                    f"instance {labels.id}: {labels.host} is not a host of {where}", "PR-223"
                )
            starts[labels.host].append(labels)
        return starts

    def _by_home(self, ids: Sequence[str]) -> dict[str, list[str]]:
        """Return by host the ids of its instances.

        Those of instances that were seen on none are every host's, and passed over by the others.
        """
        homes = self._seen.homes() if ids else {}
        ids_by_host: dict[str, list[str]] = {host: [] for host in self._hosts}
        for name in ids:
            home = homes.get(name, "")
            for host in [home] if home in ids_by_host else self._hosts:
                ids_by_host[host].append(name)
        return ids_by_host

    def _concerned(
        self,
        starts: Mapping[str, Sequence[Labels]],
        ids: Sequence[str],
        look: Collection[str] | None,
    ) -> Sequence[str]:
        """Return the hosts with something to do, or to look at; all, if these are not known."""
        homes = self._seen.homes()
        busy = {homes.get(name, "") for name in ids} | {host for host in starts if starts[host]}
        if look is None and not busy:
            return self._hosts
        busy.update(look or ())
        if not busy <= set(self._hosts) or len(self._seen.hosts) < len(self._hosts):
            return self._hosts
        return [host for host in self._hosts if host in busy]

    def _lose_excluded(self, answers: dict[str, Answer], now: float) -> set[str]:
        """Take hosts that are left out, and do not say what they have, for silent; return them."""
        excluded = self.context.known().excluded
        lost = {
            host
            for host, answer in answers.items()
            if host in excluded and (answer.value is None or "error" in answer.value)
        }
        for host in lost:
            self._seen.lose(host, (), now)
            del answers[host]
        return lost

    def _refuse_unknown(self, answers: Mapping[str, Answer], now: float) -> None:
        """Raise PlatformError if it is not known what runs on a host."""
        unknown = {
            host: answer
            for host, answer in answers.items()
            if (not answer.unreachable or host not in self._seen.hosts)
            and (answer.value is None or "error" in answer.value)
        }
        if not unknown:
            return
        shown = [
            f"{host}: {a.error or (a.value or {}).get('error')}" for host, a in unknown.items()
        ]
        first = next(iter(unknown.values()))
        id = "PR-216" if first.value else first.id
        mend = f"; {MEND}" if any(answer.unreachable for answer in answers.values()) else ""
        error = PlatformError(f"cannot know what runs on {'; '.join(shown)}{mend}", id)
        error.hosts = list(unknown)
        error.seen = [
            report
            for host, answer in answers.items()
            for report in self._seen.read(host, (answer.value or {}).get("instances", ()), now)
        ]
        raise error

    def _wanted(self, labels: Labels) -> dict[str, t.Any]:
        """Return what the agent needs to start an instance."""
        endpoint = labels.endpoint
        shown = {
            "service": labels.service,
            "revision": labels.revision,
            "instance": labels.id,
            "slot": str(labels.slot),
            "address": endpoint.address,
            "port": str(endpoint.port),
        }
        known = {**shown, "host": labels.host}
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
            "env": {**env, **{name.upper(): text for name, text in shown.items()}},
            "stop_timeout": self._stop_timeout,
            **{
                name: [fill(word, f"rollout_platform.hooks.{name}", known) for word in argv]
                for name, argv in self._hooks.items()
            },
            **self._order(labels, known),
        }

    def leave(self, dry: bool) -> Sequence[str]:
        from ..remote import leaving  # a service is removed once

        service = self.context.service
        places = {host: [leaving.of_host(self._path, host, service)] for host in self._hosts}
        run = {**self.context.known().fencing, "dry": dry}
        return leaving.leave(self.context.transport, places, run, PlatformError)

    # -- settings of a generation

    def _starter(self, generation: int | None) -> Hosts:
        """Return the driver with the settings of a generation; itself, if the journal has none."""
        kept = None if generation is None else self.context.settings_of(generation)
        if generation is None or kept is None:
            return self
        if generation not in self._starters:
            self._starters[generation] = type(self)(self._as_kept(kept), self.context)
        return self._starters[generation]

    def _as_kept(self, kept: InstanceSettings) -> dict[str, t.Any]:
        """Return the options, those that shape an instance as they were kept."""
        from . import _settings  # of a rollback or repair

        return _settings.as_kept(self, self._table, self._options, kept, part=self.context.part)
