# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The load balancers' counters of each instance, added up over all load balancers. Pure.

A counter restarts with its load balancer, and when an instance takes the address of another: then
it is lower than before, and counts what came since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..engine.model import Rotation
from ..interfaces.platform import Endpoint, Labels
from ..interfaces.traffic import COUNTS, WINDOW, Cut, Served, Server, Table

_CUTS = 20  # changes of the share that are kept, for who measures less often
_REST = 1 - 1 / WINDOW  # the part of a sliding mean that remains after one more request


class Counters:
    """Adds up what load balancers count.

    `served`, by instance, and `cuts` are replaced as a whole, so any thread may read them.
    """

    def __init__(self) -> None:
        self.served: Mapping[str, Served] = {}
        self.cuts: tuple[Cut, ...] = ()
        self._last: dict[tuple[str, Endpoint], Server] = {}

    def take(self, table: Table, there: Iterable[Labels]) -> None:
        """Take in the counters of now; `there` are the instances that may get requests."""
        at = {labels.endpoint: labels for labels in there}
        found = {name: replace(one, serving=False) for name, one in self.served.items()}
        last, self._last = self._last, {}
        for balancer, servers in table.items():
            for endpoint, server in servers.items():
                self._last[balancer, endpoint] = server
                if labels := at.get(endpoint):
                    known = found.get(labels.id)
                    # in place an instance becomes a new one
                    if known is None or known.generation != labels.generation:
                        known = Served(
                            labels.revision, labels.generation, labels.host, labels.endpoint
                        )
                    # Counts from before the first observation are ignored.
                    found[labels.id] = _more(known, last.get((balancer, endpoint), server), server)
        self.served = found

    def cut(self) -> None:
        """Note that the share of the requests changes now."""
        number = self.cuts[-1].number + 1 if self.cuts else 1
        self.cuts = (*self.cuts, Cut(number, self.served))[-_CUTS:]


def _more(served: Served, before: Server, now: Server) -> Served:
    """Add what one load balancer has counted between two observations."""
    if now.requests < before.requests or now.answered < before.answered:
        before = Server(before.rotation, before.lb_healthy, 0)  # the counter has restarted
    answered = now.answered - before.answered if now.mean is not None else 0
    return replace(
        served,
        serving=served.serving or now.rotation is Rotation.IN,
        requests=served.requests + now.requests - before.requests,
        answered=served.answered + answered,
        seconds=served.seconds + (_seconds(before, now) if answered else 0.0),
        **{
            name: getattr(served, name) + max(0, getattr(now, name) - getattr(before, name))
            for name in COUNTS
        },
    )


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
