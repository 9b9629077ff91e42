# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the next instances go, and the labels that they carry."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from ...base.errors import PlatformError
from ...engine.budget import Budget
from ...engine.evaluate import Decision
from ...engine.model import Phase, Process
from ...engine.shares import Target
from ...engine.strategy import Waypoint
from ...interfaces.platform import NOWHERE, Endpoint, Labels, PlatformDriver
from ...state.lease import Session
from ...state.record import Rollout
from .observer import Observer, Snapshot


class Placement:
    """Places the instances of one service."""

    def __init__(
        self, platform: PlatformDriver, observer: Observer, session: Session, budget: Budget
    ) -> None:
        self._platform = platform
        self._observer = observer
        self._session = session
        self._budget = budget

    def with_leaving(self, snapshot: Snapshot, waypoint: Waypoint) -> Snapshot:
        """Return the snapshot with the instances that leave crowded hosts for this waypoint."""
        from ...engine.rebalance import instances_to_move  # few runs rebalance

        place = partial(self._next_hosts, waypoint.generation)
        return replace(
            snapshot,
            leaving=instances_to_move(snapshot.fleet, waypoint, place, self._platform.zones),
        )

    def starts(
        self,
        decision: Decision,
        waypoint: Waypoint,
        revision: str,
        rollout: Rollout,
        leaving: Collection[str] | None,
    ) -> list[Labels]:
        """Return labels for the instances to start: stable ones to repair, then new ones.

        A target without room waits while anything else can be done. Raises PlatformError then.
        """
        labels: list[Labels] = []
        without_room: list[PlatformError] = []
        for start in decision.starts:
            wanted = [(start.create, revision, waypoint.generation)]
            if rollout.previous:
                wanted.insert(0, (start.create_old, rollout.previous.revision, waypoint.stable))
            try:
                for count, revision_of_count, generation in wanted:
                    labels += self._labels(
                        start.target,
                        count,
                        revision_of_count,
                        generation,
                        labels,
                        leaving,
                        drain=decision.drain,
                    )
            except PlatformError as exc:
                if start.target:
                    exc.args = (f"target {start.target.name}: {exc}",)
                without_room.append(exc)
        if without_room and not labels and not decision.moves:
            raise without_room[0]
        return labels

    def _labels(
        self,
        target: Target | None,
        count: int,
        revision: str,
        generation: int,
        others: Sequence[Labels],
        leaving: Collection[str] | None,
        *,
        drain: Collection[str],
    ) -> list[Labels]:
        """Return labels for the next instances, beside `others`; their numbers are never reused."""
        record, labels = self._session.record, []
        if record.is_adopted(generation):
            return self._observer.adopted.put_back(count)  # no others can be started
        platform = self._platform.at(target.hosts) if target else self._platform
        if platform.capabilities.names_instances:
            cluster = target.name if target else ""
            if cluster in record.away:
                return []
            return [Labels("", record.service, revision, generation, cluster, NOWHERE, 0)] * count
        places: Sequence[tuple[str, Endpoint, int]] = [("", NOWHERE, 0)] * count
        if count and platform.capabilities.has_hosts:
            places = self._places(target, count, generation, others, leaving, drain)
        for host, endpoint, slot in places:
            record.serial += 1
            name = f"{record.service}-{record.serial}"
            labels.append(Labels(name, record.service, revision, generation, host, endpoint, slot))
        return labels

    def _places(
        self,
        target: Target | None,
        count: int,
        generation: int,
        others: Sequence[Labels],
        leaving: Collection[str] | None,
        drain: Collection[str] = (),
    ) -> Sequence[tuple[str, Endpoint, int]]:
        """Return where the next instances go, while these drain.

        While instances leave crowded hosts, neither these nor draining ones count for the spread.
        """
        living = [*self._observer.living(), *others]
        among = {"among": target.hosts} if target else {}
        if rollout := self._session.record.open:
            if rollout.per_host:
                return self._one_a_host(rollout, count, generation, living, drain)
            if rollout.excluded:
                hosts = target.hosts if target else self._platform.hosts()
                among = {"among": frozenset(hosts).difference(rollout.excluded)}
        if leaving is not None:
            from ...engine.rebalance import LEAVING  # as above

            gone = {*leaving, *self._session.record.draining}
            living = [
                replace(labels, generation=LEAVING) if labels.id in gone else labels
                for labels in living
            ]
        failed = [
            r.labels
            for r in self._observer.reports
            if r.process is Process.FAILED and r.labels.generation == generation
        ]
        try:  # avoid the places where instances have failed, as long as there are others
            return self._platform.place(count, [*living, *failed], generation, **among)
        except PlatformError:
            return self._platform.place(count, living, generation, **among)

    def _one_a_host(
        self,
        rollout: Rollout,
        count: int,
        generation: int,
        living: Sequence[Labels],
        drain: Collection[str],
    ) -> Sequence[tuple[str, Endpoint, int]]:
        """Return where the next instances go, at most one on each host: first where nothing runs,
        then where what runs leaves.

        There are fewer than asked for while old instances have not left their hosts, or hosts do
        not answer.
        """
        from ...engine.per_host import free_hosts  # few services have one instance a host

        stable = rollout.previous.generation if rollout.previous else 0
        repaired = generation == stable and rollout.phase != Phase.ROLLING_BACK
        # Without a second set, what is repaired goes where nothing runs.
        surge = 0 if repaired else self._budget.resolve(rollout.replicas).surge
        beside = rollout.strategy == "blue_green" or surge > 0
        out = {*rollout.excluded, *self._session.record.away}
        hosts = [host for host in self._platform.hosts() if host not in out]
        taken = [(labels.host, labels.generation) for labels in living]
        leaves = {*drain, *self._session.record.draining}
        stays = {labels.host for labels in living if labels.id not in leaves}
        empty, others = free_hosts(hosts, taken, generation, beside)
        left = [host for host in others if host not in stays]
        placed: list[tuple[str, Endpoint, int]] = []
        for among in map(set, (empty, left, others)):
            among -= {place[0] for place in placed}
            while among and len(placed) < count:
                here = [*living, *(_label(place, generation) for place in placed)]
                wanted = min(count - len(placed), len(among))
                places = self._platform.place(wanted, here, generation, frozenset(among))
                first = {place[0]: place for place in reversed(places)}
                if not first:
                    break
                placed += first.values()
                among -= first.keys()
        return placed

    def _next_hosts(
        self, generation: int, target: Target | None, count: int, leaving: Collection[str]
    ) -> list[str]:
        """Return the hosts of the next instances once these have left; none without room."""
        try:
            return [
                host
                for host, _endpoint, _slot in self._places(target, count, generation, (), leaving)
            ]
        except PlatformError:
            return []


def _label(place: tuple[str, Endpoint, int], generation: int) -> Labels:
    """Return what takes a place that was chosen just now."""
    host, endpoint, slot = place
    return Labels("", "", "", generation, host, endpoint, slot)
