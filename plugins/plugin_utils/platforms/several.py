# SPDX-License-Identifier: GPL-3.0-or-later
"""Several platforms as parts of one, such as virtual machines and Kubernetes.

Each part has a driver of its own, and its share of the instances. Parts with hosts keep the names
of hosts and instances; pods have the name of their part before their own, as those of several
clusters have.
"""

from __future__ import annotations

import functools
import re
import typing as t
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ..base.errors import InputError, PlatformError, RolloutError
from ..engine.model import Composition
from ..engine.shares import cluster_of
from ..inputs import values
from ..inputs.options import FACTOR, Field, Kind, Options
from ..interfaces import loader
from ..interfaces.context import DriverContext
from ..interfaces.loader import DriverChoice
from ..interfaces.platform import (
    PARTS,
    Capabilities,
    Endpoint,
    Labels,
    Machine,
    Notable,
    PlatformDriver,
    Report,
    Usage,
)
from ..remote.deadline import begin
from ._clusters import Together, raise_first
from ._workload import WorkloadDriver

VARIABLE = "rollout_platform"
NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
Result = t.TypeVar("Result")
EACH = Options(
    Field("factor", FACTOR, "Multiplier for a part's even share of O(replicas).", default=1)
)


@dataclass(frozen=True)
class Part:
    """A part as it is given: its driver, and how many times its even part it has."""

    choice: DriverChoice[PlatformDriver]
    factor: Fraction


def _parts(given: t.Any, variable: str) -> dict[str, Part]:
    parts = values.mapping(given, variable)
    if len(parts) < 2:
        raise InputError(
            f"{variable}: {', '.join(parts) or 'none'}; a platform of several has two parts at"
            " least: give the options of the only one in rollout_platform itself",
            "PR-248",
        )
    for name in parts:
        if not NAME.fullmatch(name):
            raise InputError(
                f"{variable}: {name!r} is not the name of a part; use letters, digits, _ and -",
                "PR-120",
            )
    return {name: _part(options, f"{variable}.{name}") for name, options in parts.items()}


def _part(given: t.Any, variable: str) -> Part:
    options = values.mapping(given, variable)
    factor = EACH.parse({"factor": options.pop("factor", None)}, f"{variable}.")["factor"]
    driver = options.pop("driver", None)
    if not isinstance(driver, str) or not driver:
        raise InputError(f"{variable}.driver: not given; give one, as systemd", "PR-108")
    module: loader.DriverModule[PlatformDriver] = loader.load(PlatformDriver, driver, variable)
    choice = DriverChoice(driver, module, module.check(options, variable))
    _refuse(choice, variable)
    return Part(choice, factor)


def _refuse(choice: DriverChoice[PlatformDriver], variable: str) -> None:
    """Refuse a platform that cannot be a part."""
    chosen, why = choice.driver, ""
    can = chosen.capabilities
    if issubclass(chosen, Driver):
        why = "has parts itself; list them all beside each other"
    elif issubclass(chosen, Together):
        why = "has several clusters; make a part of each"
    elif not can.starts_instances:
        why = "is deployed in place, by your own tasks; use systemd or process, or a service apart"
    elif can.refills_places:
        why = "replaces pods at their places; roll it out as a service apart, or use a Deployment"
    elif not can.has_hosts and not issubclass(chosen, WorkloadDriver):
        why = "is an orchestrator that cannot be a part yet; roll it out as a service apart"
    if why:
        raise InputError(f"{variable}.driver: {choice.name} {why}", "PR-248")


OPTIONS = Options(
    Field(
        PARTS,
        Kind("dict", _parts),
        "The parts, by name, each with C(driver), that driver's options, and C(factor), a"
        " multiplier for its even share of O(replicas): O(replicas) divided by the number of parts"
        " and rounded up, times this factor (1 if not given), rounded up again. A part is either on"
        " hosts (C(process), C(systemd), C(podman), C(docker)), or a Deployment of C(kubernetes) in"
        " one cluster.",
        required=True,
    ),
)


class Pods(Together):
    """The parts that are Deployments."""

    capabilities = replace(Together.capabilities, has_parts=True)

    def __init__(
        self,
        drivers: Mapping[str, WorkloadDriver],
        factors: Mapping[str, Fraction],
        context: DriverContext,
    ) -> None:
        self._join(drivers, factors, context)


class Driver(PlatformDriver):
    """The instances of all parts."""

    capabilities = Capabilities(
        has_parts=True, unmarked_generation=Together.capabilities.unmarked_generation
    )

    @classmethod
    def shaping(
        cls, options: Mapping[str, t.Any], table: Options
    ) -> tuple[dict[str, t.Any], dict[str, t.Any]] | None:
        """Return the options of all parts, named `parts.PART.OPTION`."""
        shown: dict[str, t.Any] = {}
        secret: dict[str, t.Any] = {}
        for name, part in options[PARTS].items():
            shaped = part.choice.driver.shaping(part.choice.options, part.choice.module.options)
            for all_, kept in zip((shown, secret), shaped or ({}, {}), strict=True):
                all_.update({f"{PARTS}.{name}.{option}": value for option, value in kept.items()})
            shown[f"{PARTS}.{name}.driver"] = part.choice.name
        return shown, secret

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self.context = context
        given: Mapping[str, Part] = options[PARTS]
        self.clusters = {name: part.factor for name, part in given.items()}
        self._hosted: dict[str, PlatformDriver] = {}
        pods: dict[str, WorkloadDriver] = {}
        for name, part in given.items():
            made = _as_part(name, functools.partial(part.choice.make, replace(context, part=name)))
            if isinstance(made, WorkloadDriver):
                pods[name] = made
            else:
                self._hosted[name] = made
        self._pods = Pods(pods, self.clusters, context)
        self.workloads = self._pods.workloads
        self._within = {name: frozenset(driver.hosts()) for name, driver in self._hosted.items()}
        self._refuse_shared_hosts()
        hosted = self._hosted.values()
        self.zones = {host: zone for driver in hosted for host, zone in driver.zones.items()}
        self._last: dict[str, Sequence[Report]] = {}  # by part with hosts

    def _refuse_shared_hosts(self) -> None:
        """Refuse a host that is in two parts, or has the name of a part."""
        owner: dict[str, str] = {name: name for name in self._pods.clusters}
        for name, hosts in self._within.items():
            for host in sorted(hosts):
                if (other := owner.setdefault(host, name)) != name:
                    raise InputError(
                        f"{VARIABLE}.{PARTS}.{name}.hosts: {host} is in part {other} as well, or"
                        " has its name; leave each host in one part",
                        "PR-248",
                    )

    # -- which part --------------------------------------------------------------------------------

    def at(self, among: Collection[str]) -> PlatformDriver:
        """Return the part of these hosts, or that of all pods."""
        for name, hosts in self._within.items():
            if not hosts.isdisjoint(among):
                return self._hosted[name]
        if any(host in self._pods.clusters or self._of_pod(host) for host in among):
            return self._pods
        return self

    def within(self, cluster: str) -> frozenset[str]:
        return self._within.get(cluster, frozenset({cluster}))

    def _of_pod(self, name: str) -> bool:
        """Return whether this is the id of a pod, or its node."""
        return cluster_of(name) in self._pods.clusters

    def hosts(self) -> Sequence[str]:
        return [host for driver in self._hosted.values() for host in driver.hosts()]

    @property
    def away(self) -> Mapping[str, list[dict[str, t.Any]]]:  # type: ignore[override]
        """The hosts and clusters of all parts that do not answer."""
        parts = (*self._hosted.values(), self._pods)
        return {name: seen for driver in parts for name, seen in driver.away.items()}

    @property
    def machines(self) -> Mapping[str, Machine]:  # type: ignore[override]
        """The hosts of all parts, as their checks found them."""
        return {
            host: machine
            for driver in self._hosted.values()
            for host, machine in driver.machines.items()
        }

    def capacity(self, among: Collection[str] | None = None) -> int:
        pods = [cluster for cluster in self._pods.clusters if among is None or cluster in among]
        return sum(driver.capacity(among) for driver in self._hosted.values()) + (
            self._pods.capacity() if pods else 0
        )

    def place(
        self,
        count: int,
        taken: Collection[Labels],
        generation: int,
        among: Collection[str] | None = None,
    ) -> Sequence[tuple[str, Endpoint, int]]:
        part = self.at(among or ())
        if part is self:
            raise PlatformError(f"{VARIABLE}.{PARTS}: instances are placed part by part", "PR-248")
        here = [labels for labels in taken if not self._of_pod(labels.host)]
        return part.place(count, here, generation, among)

    # -- before anything is touched ----------------------------------------------------------------

    def check(self) -> None:
        if self.context.autoscaler:
            raise InputError(
                "rollout_autoscaler: given, and rollout_platform has several parts, of which it"
                " scales one at most; remove it, and pause the autoscaler by hand",
                "PR-248",
            )
        if self.context.health.from_host and self._pods.clusters:
            raise InputError(
                "rollout_health.from: host, but pods have no host of the inventory; remove it, so"
                " that instances are asked from the controller",
                "PR-248",
            )
        self._each(lambda part: part.check())

    def check_endpoints(self) -> None:
        self._each(lambda part: part.check_endpoints())

    def risks(self, replicas: int, least: int, most: int) -> Sequence[str]:
        return [
            *(
                f"part {name}: {line}"
                for name, driver in self._hosted.items()
                for line in driver.risks(replicas, least, most)
            ),
            *self._pods.risks(replicas, least, most),
        ]

    def prepare(self, revision: str, generation: int | None = None) -> None:
        self._each(lambda part: part.prepare(revision, generation))

    # -- the rollout -------------------------------------------------------------------------------

    @property
    def at_work(self) -> Collection[str]:
        return {host for driver in self._hosted.values() for host in driver.at_work}

    def sync(
        self, start: Sequence[Labels] = (), stop: Sequence[str] = (), forget: Sequence[str] = ()
    ) -> Sequence[Report]:
        return self._of_all(
            functools.partial(self._sync_pods, start, stop, forget),
            functools.partial(self._sync_part, start=start, stop=stop, forget=forget),
        )

    def look(self, hosts: Collection[str]) -> Sequence[Report]:
        """Look at these hosts, and at all clusters."""
        return self._of_all(
            functools.partial(self._sync_pods, (), (), ()),
            functools.partial(self._look_at_part, hosts=hosts),
        )

    def _of_all(
        self, ask_pods: Callable[[], Sequence[Report]], ask: Callable[[str], Sequence[Report]]
    ) -> Sequence[Report]:
        """Ask all parts; the error of one does not keep the others from their work."""
        asked = begin(ask_pods)
        reports: list[Report] = []
        problems: list[RolloutError] = []
        for name in self._hosted:
            try:
                reports += ask(name)
            except RolloutError as exc:
                problems.append(exc)
        try:
            reports += asked.result()
        except RolloutError as exc:
            problems.append(exc)
        for error in problems:
            if isinstance(error, PlatformError):
                error.seen = [*error.seen, *reports]
        raise_first(problems)
        return reports

    def _look_at_part(self, name: str, hosts: Collection[str]) -> Sequence[Report]:
        look = functools.partial(
            self._hosted[name].look, [host for host in hosts if host in self._within[name]]
        )
        self._last[name] = _as_part(name, look)
        return self._last[name]

    def _sync_pods(
        self, start: Sequence[Labels], stop: Sequence[str], forget: Sequence[str]
    ) -> Sequence[Report]:
        if not self._pods.clusters:
            return ()
        works = [labels for labels in start if labels.host in self._pods.clusters]
        return self._pods.sync(works, *(_only(ids, self._of_pod) for ids in (stop, forget)))

    def _sync_part(
        self, name: str, start: Sequence[Labels], stop: Sequence[str], forget: Sequence[str]
    ) -> Sequence[Report]:
        """Have a part with hosts do its work.

        Where others have work, it is as last seen without any, as hosts without any are.
        """
        others = {
            report.labels.id
            for other, reports in self._last.items()
            if other != name
            for report in reports
        }

        def mine(id: str) -> bool:
            return not self._of_pod(id) and id not in others

        works = [labels for labels in start if labels.host in self._within[name]]
        ids, dead = _only(stop, mine), _only(forget, mine)
        busy = bool(start or stop or forget)
        if name not in self._last or works or ids or dead or not busy:
            sync = functools.partial(self._hosted[name].sync, works, ids, dead)
            self._last[name] = _as_part(name, sync)
        return self._last[name]

    def changed(self) -> bool:
        return self._pods.changed() or any(driver.changed() for driver in self._hosted.values())

    def question(self) -> str:
        return self._pods.question()

    def note(self, event: Notable, text: str) -> None:
        self._pods.note(event, text)

    def references(self, revision: str, generation: int) -> Mapping[str, str] | None:
        return self._pods.references(revision, generation)

    def retry_silent_hosts(self) -> None:
        for driver in (*self._hosted.values(), self._pods):
            driver.retry_silent_hosts()

    def conclude(self, stable: Composition | None) -> str:
        lines = [
            _as_part(name, functools.partial(driver.conclude, stable))
            for name, driver in self._hosted.items()
        ]
        return "; ".join(filter(None, [*lines, self._pods.conclude(stable)]))

    def close(self) -> None:
        for driver in (*self._hosted.values(), self._pods):
            driver.close()

    # -- what is known of instances ----------------------------------------------------------------

    def log_of(self, id: str, host: str) -> str:
        part = self.at((host,))
        return "" if part is self else part.log_of(id, host)

    def log_source(self, id: str, host: str) -> Mapping[str, str]:
        part = self.at((host,))
        return {} if part is self else part.log_source(id, host)

    def usage(self) -> Mapping[str, Usage]:
        """Return what instances use, of the parts that know it."""
        used: dict[str, Usage] = {}
        problems: list[RolloutError] = []
        for name, driver in self._hosted.items():
            try:
                used |= _as_part(name, driver.usage)
            except RolloutError as exc:
                problems.append(exc)
        if not used:
            raise_first(problems)
            return super().usage()
        return used

    # -- settings of a generation ------------------------------------------------------------------

    def keep(self, key: str, content: Mapping[str, t.Any]) -> None:
        """Keep them on the hosts of all parts; pods have no secrets but those of checks."""
        if not self._hosted:
            super().keep(key, content)
        for name, driver in self._hosted.items():
            _as_part(name, functools.partial(driver.keep, key, content))

    def recall(self, key: str) -> Mapping[str, t.Any] | None:
        problems: list[RolloutError] = []
        for name, driver in self._hosted.items():
            try:
                if kept := _as_part(name, functools.partial(driver.recall, key)):
                    return kept
            except RolloutError as exc:
                problems.append(exc)
        raise_first(problems)
        return None

    def leave(self, dry: bool) -> Sequence[str]:
        removed: list[str] = []

        def work(part: PlatformDriver) -> None:
            removed.extend(part.leave(dry))

        self._each(work)
        return removed

    def _each(self, work: Callable[[PlatformDriver], None]) -> None:
        """Do something in all parts; raise what is wrong once all have."""
        problems: list[RolloutError] = []
        for name, driver in self._hosted.items():
            try:
                _as_part(name, functools.partial(work, driver))
            except RolloutError as exc:
                problems.append(exc)
        try:
            work(self._pods)
        except RolloutError as exc:
            problems.append(exc)
        raise_first(problems)


def _only(ids: Sequence[str], mine: Callable[[str], bool]) -> list[str]:
    return [id for id in ids if mine(id)]


def _as_part(name: str, work: Callable[[], Result]) -> Result:
    """Return what a part answers; an error names the part."""
    try:
        return work()
    except RolloutError as exc:
        exc.args = (f"part {name}: {exc}",)
        raise
