# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the load balancers' counters say of each instance, added up over all of them. Pure.

A balancer's counter begins again when it is restarted, or when an instance takes the address of another one: then it is
lower than it was, and what it shows is what came since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import Endpoint, Labels
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import WINDOW, Served, Server, Table

_LOST = 1 - 1 / WINDOW  # the part of a sliding mean that one more request leaves of it


class Counters:
    """Adds up what balancers count. `served` has it by instance, and is replaced whole: any thread may read it."""

    def __init__(self) -> None:
        self.served: Mapping[str, Served] = {}
        self._last: dict[tuple[str, Endpoint], Server] = {}

    def take(self, table: Table, there: Iterable[Labels]) -> None:
        """What the balancers show now; `there` are the instances that may be sent requests."""
        at = {labels.endpoint: labels for labels in there}
        found = {name: replace(one, serving=False) for name, one in self.served.items()}
        last, self._last = self._last, {}
        for balancer, servers in table.items():
            for endpoint, server in servers.items():
                self._last[balancer, endpoint] = server
                if labels := at.get(endpoint):
                    known = found.get(labels.id)
                    if known is None or known.generation != labels.generation:  # in place an instance becomes a new one
                        known = Served(labels.revision, labels.generation, labels.host, labels.endpoint)
                    # What was counted before we looked is nobody's business.
                    found[labels.id] = _more(known, last.get((balancer, endpoint), server), server)
        self.served = found


def _more(served: Served, before: Server, now: Server) -> Served:
    """With what one balancer has counted between two looks."""
    if now.requests < before.requests or now.answered < before.answered:
        before = Server(before.rotation, before.lb_healthy, 0)  # it has begun again
    answered = now.answered - before.answered if now.mean is not None else 0
    return replace(
        served,
        serving=served.serving or now.rotation is Rotation.IN,
        requests=served.requests + now.requests - before.requests,
        errors=served.errors + max(0, now.errors - before.errors),
        answered=served.answered + answered,
        seconds=served.seconds + (_seconds(before, now) if answered else 0.0),
    )


def _seconds(before: Server, now: Server) -> float:
    """How long the answers between two looks took in all, of means over all requests so far or, of many, a sliding window.

    Each answer moves a window's mean by 1/WINDOW of its difference. Balancers round: a few answers may come to any time, even a negative one,
    and many of them to the right one, since what is rounded away in one look comes in with the next.
    """
    old, new, answered = before.mean or 0.0, now.mean or 0.0, now.answered - before.answered
    if now.answered <= WINDOW or not before.answered:
        return new * now.answered - old * before.answered
    return answered * (old + (new - old) / (1 - _LOST**answered))
