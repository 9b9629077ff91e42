# SPDX-License-Identifier: GPL-3.0-or-later
"""The load balancers' counters of each instance, added up over all load balancers. Pure.

A counter restarts with its load balancer, and when an instance takes the address of another: then
it is lower than before, and counts what came since.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping

from ..engine.model import Rotation
from ..interfaces.platform import Endpoint, Labels
from ..interfaces.traffic import COUNTS, WINDOW, Cut, Served, Server, Table

Raw = Mapping[tuple[str, Endpoint], Server]  # by load balancer, what it shows of an entry

MOST = 500  # entries whose counters are kept between two steps
_LARGEST = 2**53  # a counter beyond that is kept as this, as JSON may hold no larger one
_FIELDS = ("requests", "answered", *COUNTS)
_LONGEST = 86400.0  # seconds to an answer that can be
_CUTS = 20  # changes of the share that are kept, for who measures less often
_REST = 1 - 1 / WINDOW  # the part of a sliding mean that remains after one more request


class Counters:
    """Adds up what load balancers count.

    `served`, by instance, and `cuts` are replaced as a whole, so any thread may read them.
    """

    def __init__(self, last: Raw | None = None) -> None:
        """Begin with the first observation, or count from the `last` one of an earlier step."""
        self.served: Mapping[str, Served] = {}
        self.cuts: tuple[Cut, ...] = ()
        self.beside = 0  # requests to entries of no instance
        self.base: Raw = last or {}  # what is counted from, where that is known
        self.raw: Raw = self.base  # of the last observation
        # by id and generation, when instances first had requests, in this step or an earlier one
        self.first: dict[tuple[str, int], float] = {}

    def take(self, table: Table, instances: Iterable[Labels], now: float = 0.0) -> None:
        """Take in the counters of `now`; `instances` are those that may get requests."""
        at = {labels.endpoint: labels for labels in instances}
        served = dict(self.served)
        last = self.raw
        self.raw = {
            (balancer, endpoint): server
            for balancer, servers in table.items()
            for endpoint, server in servers.items()
        }
        changes: dict[str, list[tuple[Server, Server]]] = {}
        for key, server in self.raw.items():
            if labels := at.get(key[1]):
                known = served.get(labels.id)
                # in place an instance becomes a new one
                if known is None or known.generation != labels.generation:
                    served[labels.id] = Served(
                        labels.revision,
                        labels.generation,
                        labels.host,
                        labels.endpoint,
                        first=self.first.get((labels.id, labels.generation), 0.0),
                    )
                # Counts from before the first observation are ignored.
                changes.setdefault(labels.id, []).append((last.get(key, server), server))
            elif before := last.get(key):
                again = server.requests < before.requests
                self.beside += server.requests - (0 if again else before.requests)
        for name, counts in served.items():
            if observed := changes.get(name):
                served[name] = _more(counts, observed, now)
            elif counts.serving:
                served[name] = counts._replace(serving=False)
            if first := served[name].first:
                self.first[name, counts.generation] = first
        self.served = served

    def cut(self) -> None:
        """Note that the share of the requests changes now."""
        number = self.cuts[-1].number + 1 if self.cuts else 1
        self.cuts = (*self.cuts, Cut(number, self.served))[-_CUTS:]


def dump(raw: Raw) -> dict[str, dict[str, t.Any]] | None:
    """Return counters as plain data for the journal; None where there are too many."""
    if len(raw) > MOST:
        return None
    entries: dict[str, dict[str, t.Any]] = {}
    for (balancer, endpoint), server in raw.items():
        counts: dict[str, t.Any] = {
            name: min(value, _LARGEST) for name in _FIELDS if (value := getattr(server, name)) > 0
        }
        if server.mean is not None and 0 <= server.mean < _LONGEST:
            counts["mean"] = server.mean
        entries.setdefault(balancer, {})[f"{endpoint.address} {endpoint.port}"] = counts
    return entries


def load(dumped: Mapping[str, Mapping[str, Mapping[str, t.Any]]]) -> Raw:
    """Return the counters that `dump` made plain data of."""
    raw = {}
    for balancer, entries in dumped.items():
        for where, counts in entries.items():
            address, _space, port = where.rpartition(" ")
            endpoint = Endpoint(address, int(port) if port.isascii() and port.isdecimal() else 0)
            known = {name: counts[name] for name in (*_FIELDS, "mean") if name in counts}
            raw[balancer, endpoint] = Server(Rotation.OUT, False, 0, **known)
    return raw


def _more(served: Served, observed: Iterable[tuple[Server, Server]], at: float) -> Served:
    """Add what load balancers have counted between two observations, of which each has a pair; the
    later is of `at`.
    """
    counts = {name: getattr(served, name) for name in ("requests", "answered", "seconds", *COUNTS)}
    serving = False
    for before, now in observed:
        if now.requests < before.requests or now.answered < before.answered:
            before = Server(before.rotation, before.lb_healthy, 0)  # the counter has restarted
        serving = serving or now.rotation is Rotation.IN
        counts["requests"] += now.requests - before.requests
        if now.mean is not None and now.answered != before.answered:
            counts["answered"] += now.answered - before.answered
            counts["seconds"] += _seconds(before, now)
        for name in COUNTS:
            counts[name] += max(0, getattr(now, name) - getattr(before, name))
    first = served.first or (at if counts["requests"] else 0.0)
    return served._replace(serving=serving, first=first, **counts)


def _seconds(before: Server, now: Server) -> float:
    """Return the total time of the answers between two observations.

    It follows from means, over all answers so far or, if there are many, over a sliding window:
    each answer moves that mean by 1/WINDOW of its difference. Load balancers round, so a few
    answers may give any time, even a negative one; over many it is right, since rounded parts
    appear in the next.
    """
    old, new, answered = before.mean or 0.0, now.mean or 0.0, now.answered - before.answered
    if now.answered <= WINDOW or not before.answered:
        return new * now.answered - old * before.answered
    return answered * (old + (new - old) / (1 - _REST**answered))
