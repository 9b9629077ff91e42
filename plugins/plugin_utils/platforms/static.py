# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances on fixed ports of inventory hosts, deployed in place by the user's own tasks.

Nothing is asked of the hosts. What was deployed where is in the journal; whether it works, the
checks say.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Collection, Mapping, Sequence

from ..base import clock
from ..base.errors import InputError, PlatformError
from ..engine.model import UNKNOWN, Process
from ..inputs.options import PORT, TEXT, Field, Options, one_or_more
from ..interfaces.context import DriverContext
from ..interfaces.platform import Capabilities, Endpoint, Labels, PlatformDriver, Report
from ..remote import inventory

OPTIONS = Options(
    Field(
        "hosts",
        TEXT,
        "Inventory pattern of the hosts. Each has an instance on each port.",
        required=True,
    ),
    Field(
        "port",
        one_or_more(PORT),
        "The port that instances listen on, or a list of ports.",
        required=True,
    ),
)


class Driver(PlatformDriver):
    """A service's instances, one for each of the hosts and ports."""

    capabilities = Capabilities(starts_instances=False)

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self.context = context
        pattern, ports = options["hosts"], options["port"]
        self._hosts = list(inventory.hosts(context.transport, pattern, "rollout_platform.hosts"))
        places = [
            (host, Endpoint(context.transport.address(host), port))
            for host in self._hosts
            for port in ports
        ]
        self._places = {
            _name(context.service, host, endpoint.port, len(ports)): (host, endpoint)
            for host, endpoint in places
        }
        if len(self._places) < len(places) or len({endpoint for _host, endpoint in places}) < len(
            places
        ):
            raise InputError(
                f"rollout_platform.hosts: two hosts of {pattern!r} have one name or address; each"
                " needs its own",
                "PR-126",
            )
        self._since = clock.now()

    def hosts(self) -> Sequence[str]:
        return self._hosts

    def capacity(self, among: Collection[str] | None = None) -> int:
        """Return the number of instances, which is fixed."""
        return len(self._places)

    def place(
        self,
        count: int,
        taken: Collection[Labels],
        generation: int,
        among: Collection[str] | None = None,
    ) -> Sequence[tuple[str, Endpoint, int]]:
        raise PlatformError(
            "rollout_platform.driver: static has no place for more instances than there are",
            "PR-219",
        )

    def check(self) -> None:
        """Check nothing: the user's own tasks find out whether hosts can be reached."""

    def sync(
        self, start: Sequence[Labels] = (), stop: Sequence[str] = (), forget: Sequence[str] = ()
    ) -> Sequence[Report]:
        if start or stop:
            raise PlatformError(
                "rollout_platform.driver: static neither starts nor stops instances; use the role"
                " in_place",
                "PR-617",
            )
        return [self._report(slot, name) for slot, name in enumerate(self._places)]

    def _report(self, slot: int, name: str) -> Report:
        host, endpoint = self._places[name]
        known = self.context.known().deployed.get(name)
        revision, generation = (known.revision, known.generation) if known else (UNKNOWN, 0)
        labels = Labels(name, self.context.service, revision, generation, host, endpoint, slot)
        return Report(
            labels,
            Process.RUNNING,
            known.at if known else self._since,
            known.failed if known else "",
        )


def _name(service: str, host: str, port: int, ports: int) -> str:
    """Return the name of an instance, which load balancers' entries have, too.

    What follows the last `-` is the instance's own.
    """
    escaped = re.sub(r"[^A-Za-z0-9_.]", "_", host)
    return f"{service}-{escaped}" if ports == 1 else f"{service}-{escaped}:{port}"
