# SPDX-License-Identifier: GPL-3.0-or-later
"""A service in several clusters of Kubernetes: a driver for each, and what they report together.

`several` joins them with hosts.

Instances have the name of their cluster before their own: `eu/shop-g7-x7x2p` on the host
`eu/node1`. Any cluster may hang or be gone; the others do not wait for it.
"""

from __future__ import annotations

import abc
import time
import typing as t
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from fractions import Fraction

from ..base import clock
from ..base.errors import InputError, LeaseLost, PlatformError, RolloutError
from ..engine.model import Composition
from ..engine.shares import share
from ..interfaces.context import DriverContext
from ..interfaces.platform import Endpoint, Labels, Notable, PlatformDriver, Report
from ..remote.deadline import begin
from ..remote.kubernetes import ApiError, each_cluster
from ._last_seen import LastSeen
from ._workload import ENOUGH, WorkloadDriver

VARIABLE = "rollout_platform"
FIRST = 20.0  # seconds that all others wait for a cluster, with the login, the first time
CLUSTER_TIMEOUT = 5.0  # and later
AGAIN = 2.0  # for one that did not answer an earlier run or step

Result = t.TypeVar("Result")


@dataclass
class _Member:
    """A cluster, which is asked one thing at a time."""

    driver: WorkloadDriver
    timeout: float = FIRST
    # What it is asked: it may have been given up waiting for.
    call: Future[Sequence[Report]] | None = None
    started: list[Labels] = field(default_factory=list)  # by this call

    def run(self, work: Callable[[WorkloadDriver], Result]) -> Future[Result]:
        """Begin something after the call that is under way."""
        call = self.call

        def ordered() -> Result:
            if call:
                call.exception()
            return work(self.driver)

        return begin(ordered)


class Together(PlatformDriver):
    """The pods of a workload in each of several clusters, or parts of a platform."""

    capabilities = WorkloadDriver.capabilities

    def _join(
        self,
        drivers: Mapping[str, WorkloadDriver],
        factors: Mapping[str, Fraction],
        context: DriverContext,
    ) -> None:
        """Take the drivers of the clusters, by name. `factors` has all that share the instances."""
        self.context = context
        self.clusters = {name: factors[name] for name in drivers}
        self.workloads = frozenset(name for each in drivers.values() for name in each.workloads)
        self._sharing = len(factors)
        self._members = {name: _Member(driver) for name, driver in drivers.items()}
        self._seen = LastSeen(context)
        self.away = self._seen.away

    def hosts(self) -> Sequence[str]:
        """Return none: the schedulers find nodes for pods."""
        return ()

    def capacity(self, among: Collection[str] | None = None) -> int:
        return ENOUGH

    def place(
        self,
        count: int,
        taken: Collection[Labels],
        generation: int,
        among: Collection[str] | None = None,
    ) -> Sequence[tuple[str, Endpoint, int]]:
        raise PlatformError(f"{VARIABLE}.driver: Kubernetes places pods itself", "PR-617")

    # -- before anything is touched ----------------------------------------------------------------

    def check(self) -> None:
        self._all(lambda driver: driver.check())
        option = self.capabilities.clusters_option
        clusters: dict[str, str] = {}
        for name, identity in self._all(lambda driver: driver._identity()).items():
            if (other := clusters.setdefault(identity, name)) != name:
                raise InputError(
                    f"{VARIABLE}.{option}: {name!r} and {other!r} lead to the same"
                    " workload, whose pods would count twice; name each once",
                    "PR-247",
                )

    def check_endpoints(self) -> None:
        self._all(lambda driver: driver.check_endpoints())

    def risks(self, replicas: int, least: int, most: int) -> Sequence[str]:
        lines: list[str] = []
        for name, factor in self.clusters.items():
            replicas_here = share(replicas, self._sharing, factor)
            numbers = (
                replicas_here,
                max(0, replicas_here - (replicas - least)),
                replicas_here + most - replicas,
            )
            lines_here = self._members[name].driver.risks(*numbers)
            lines += [f"cluster {name}: {line}" for line in lines_here]
        return lines

    def prepare(self, revision: str, generation: int | None = None) -> None:
        self._all(lambda driver: driver.prepare(revision, generation))

    def references(self, revision: str, generation: int) -> Mapping[str, str] | None:
        references = self._all(lambda driver: driver.references(revision, generation))
        return {
            f"{key} of cluster {name}": digest
            for name, digests in references.items()
            for key, digest in (digests or {}).items()
        }

    # -- the rollout -------------------------------------------------------------------------------

    def sync(
        self, start: Sequence[Labels] = (), stop: Sequence[str] = (), forget: Sequence[str] = ()
    ) -> Sequence[Report]:
        self._seen.restore(self._members)
        began = time.monotonic()
        problems = []
        for name, member in self._members.items():
            problems += self._take_late(name, member)
            self._ask(name, member, start, stop, forget)
        for name, member in self._members.items():
            timeout = self._timeout(name, member)
            problems += self._take(name, member, began + timeout - time.monotonic())
        raise_first(problems)
        return self._seen.reports(list(self._members))

    def changed(self) -> bool:
        return any(
            member.driver.changed() or (member.call is not None and member.call.done())
            for member in self._members.values()
        )

    def question(self) -> str:
        asked = {name: member.driver.question() for name, member in self._members.items()}
        return "; ".join(f"cluster {name}: {text}" for name, text in asked.items() if text)

    def note(self, event: Notable, text: str) -> None:
        for member in self._members.values():
            member.run(lambda driver: driver.note(event, text))  # nobody waits for a silent one

    def retry_silent_hosts(self) -> None:
        for member in self._members.values():
            member.timeout = FIRST

    def conclude(self, stable: Composition | None) -> str:
        remaining = self._all(lambda driver: driver.conclude(stable))
        return "; ".join(f"cluster {name}: {left}" for name, left in remaining.items() if left)

    def leave(self, dry: bool) -> Sequence[str]:
        removed = self._all(lambda driver: driver.leave(dry))
        return [f"cluster {name}: {what}" for name, whole in removed.items() for what in whole]

    def close(self) -> None:
        for member in self._members.values():
            member.driver.close()

    # -- helpers -----------------------------------------------------------------------------------

    def _timeout(self, name: str, member: _Member) -> float:
        return min(AGAIN, member.timeout) if name in self.away else member.timeout

    def _ask(
        self,
        name: str,
        member: _Member,
        start: Sequence[Labels],
        stop: Sequence[str],
        forget: Sequence[str],
    ) -> None:
        """Begin a call, unless one is under way: it would not be answered either."""
        if member.call:
            return
        member.started = [labels for labels in start if labels.host == name]
        works = [replace(labels, host="") for labels in member.started]
        stopping, gone = _of_cluster(name, stop), _of_cluster(name, forget)
        member.call = member.run(lambda driver: driver.sync(works, stopping, gone))

    def _take_late(self, name: str, member: _Member) -> list[RolloutError]:
        """Take the answer to an earlier call, if it has come meanwhile."""
        return self._take(name, member, 0) if member.call and member.call.done() else []

    def _take(self, name: str, member: _Member, seconds: float) -> list[RolloutError]:
        """Take the answer to a call that comes within this time; return what went wrong.

        Without one, the call goes on, and the cluster is one that does not answer.
        """
        if not member.call:
            return []
        try:
            reports = member.call.result(max(0.0, seconds))
        except TimeoutError:
            self._lose(name, member)
            return []
        except ApiError as exc:
            member.call = None
            if not exc.silent:
                return [_named(name, exc)]
            self._lose(name, member)
            return []
        except RolloutError as exc:
            member.call = None
            return [_named(name, exc)]
        member.call, member.timeout = None, CLUSTER_TIMEOUT
        self._seen.take(name, [_in_cluster(name, report) for report in reports])
        return []

    def _lose(self, name: str, member: _Member) -> None:
        """Note that a cluster does not answer, with the pods that it may have started since."""
        started = [
            replace(labels, id=f"{name}/ordered-{number}")
            for number, labels in enumerate(member.started, 1)
        ]
        member.started, member.timeout = [], 0.0
        self._seen.lose(name, started, clock.now())

    def _all(self, work: Callable[[WorkloadDriver], Result]) -> dict[str, Result]:
        """Return what all clusters answer; raises what is wrong once all have."""
        calls = {name: member.run(work) for name, member in self._members.items()}
        results, problems = {}, []
        for name, call in calls.items():
            try:
                results[name] = call.result()
            except RolloutError as exc:
                problems.append(_named(name, exc))
        raise_first(problems)
        return results


class ClustersDriver(Together):
    """The pods of one workload in each of several clusters."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self.context = context
        given = each_cluster(options, VARIABLE)
        drivers = {name: self._in_one(options) for name, options in given.items()}
        self._join(drivers, {name: options["factor"] for name, options in given.items()}, context)

    @abc.abstractmethod
    def _in_one(self, options: Mapping[str, t.Any]) -> WorkloadDriver:
        """Return the driver for one cluster."""


def _of_cluster(name: str, ids: Sequence[str]) -> list[str]:
    """Return the pods of a cluster among these instances, as it knows them."""
    return [id.removeprefix(f"{name}/") for id in ids if id.startswith(f"{name}/")]


def _in_cluster(name: str, report: Report) -> Report:
    """Return a report with the names that an instance has among those of all clusters."""
    labels = report.labels
    named = replace(labels, id=f"{name}/{labels.id}", host=f"{name}/{labels.host}")
    return replace(report, labels=named)


def _named(name: str, exc: RolloutError) -> RolloutError:
    """Return an error with the cluster that it comes from."""
    exc.args = (f"cluster {name}: {exc}",)
    return exc


def raise_first(problems: Sequence[RolloutError]) -> None:
    """Raise the error that matters most, if there is any: a lost lease ends the run."""
    for error in sorted(problems, key=lambda error: not isinstance(error, LeaseLost)):
        raise error
