# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances on a Docker Swarm, each of which is a service with one replica.

Swarm cannot be told which task of a service to stop. As services of their own, instances are
started and stopped one by one, and Swarm still places and repairs them.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from ..base import clock
from ..base.errors import InputError, PlatformError
from ..base.text import clean
from ..engine.model import Process
from ..inputs.placeholders import Template
from ..interfaces.context import DriverContext
from ..interfaces.platform import (
    NOWHERE,
    Capabilities,
    Endpoint,
    Labels,
    PlatformDriver,
    Report,
    key_of,
)
from ..remote import inventory
from . import _settings, _swarm_spec, _swarm_tasks
from ._answers import Problems
from ._managers import Managers

OPTIONS = _swarm_spec.OPTIONS
ENOUGH = 10_000  # instances of a service; how many fit is for Swarm to find


class Checked(t.TypedDict):
    """The swarm that a manager belongs to."""

    swarm: str


class Recalled(t.TypedDict):
    """What is kept under a key."""

    settings: dict[str, t.Any] | None


class Driver(PlatformDriver):
    """The services of one rollout's service."""

    capabilities = Capabilities(has_hosts=False, host_options=_swarm_spec.HOST_OPTIONS)
    unsupported: t.ClassVar[Mapping[str, str]] = {
        "container_port": "use port, which Swarm publishes on the instance's node",
        "network": "use networks; Swarm publishes the port on the node itself",
        "pull": "each node pulls the image that Swarm tells it to run",
        "zone": "use constraints; Swarm places instances itself",
    }

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self.context, self._options = context, options
        transport = context.transport
        self._hosts = inventory.hosts(transport, options["hosts"], "rollout_platform.hosts")
        socket = Template(options["socket"], "rollout_platform.socket", ("host",))
        self._managers = Managers(
            transport, self._hosts, lambda host: socket.render({"host": host})
        )
        self._reading = _swarm_tasks.Reading(context.service)
        self._published: Counter[int] = Counter()  # how many instances have each port
        self._changed: dict[str, str] = {}  # by instance, an image that somebody else has given it
        self._said: dict[str, str] = {}  # by instance, what was last said of it
        self._on: dict[str, str] = {}  # by instance, the node it ran on last
        self._kept: dict[int, Mapping[str, t.Any]] = {}  # by generation, its options
        sample = Labels("sample-1", context.service, "1", 1, "", NOWHERE, 0)
        _swarm_spec.service(options, sample, 0)  # refuses what cannot be filled in

    # -- before anything is touched ----------------------------------------------------------------

    def hosts(self) -> Sequence[str]:
        """Return none: Swarm finds a node for an instance."""
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
        raise PlatformError("rollout_platform.driver: Swarm places instances itself", "PR-617")

    def check(self) -> None:
        _swarm_spec.check_name(self.context.service)
        if self.context.health.from_host:
            raise InputError(
                "rollout_health.from: host, but the nodes of a swarm are not inventory hosts;"
                " leave it out, and the controller asks the instances itself",
                "PR-107",
            )
        self._check_managers()

    def _check_managers(self) -> None:
        """Refuse hosts that are no managers of one swarm; one that is away may come back."""
        swarms: dict[str, list[str]] = {}
        silent = []
        for host in self._hosts:
            answer = self._managers.ask_one(host, Checked | Problems, {"check": {}})
            value = answer.value or {}
            if problems := value.get("problems"):
                raise InputError(
                    f"rollout_platform.hosts: {host} {clean(problems.get('hosts', ''))}; name"
                    " managers only",
                    "PR-251",
                )
            if "swarm" in value:
                swarms.setdefault(value["swarm"], []).append(host)
            else:
                why = value.get("away") or value.get("error") or answer.error
                silent.append(f"{host}: {clean(why)}")
        if not swarms:
            raise InputError(
                f"rollout_platform.hosts: no manager of the swarm answers ({'; '.join(silent)})",
                "PR-250",
            )
        if len(swarms) > 1:
            shown = "; ".join(", ".join(hosts) for hosts in swarms.values())
            raise InputError(
                f"rollout_platform.hosts: these belong to different swarms: {shown}; name the"
                " managers of one",
                "PR-251",
            )
        for line in silent:
            self.context.transport.print_line(
                f"a manager of the swarm does not answer: {line} [PR-250]"
            )

    def prepare(self, revision: str, generation: int | None = None) -> None:
        """Make sure that Swarm has the secrets, configs and networks of a revision."""
        options = self._of(generation)
        wanted = _swarm_spec.references(options, revision, self.context.service)
        answer = self._managers.ask(Problems, {"prepare": wanted})
        if problems := answer["problems"]:
            shown = "; ".join(
                f"rollout_platform.{clean(name)}: {clean(why)}" for name, why in problems.items()
            )
            raise PlatformError(f"{shown}; create them first", "PR-252")

    # -- the rollout -------------------------------------------------------------------------------

    def sync(
        self, start: Sequence[Labels] = (), stop: Sequence[str] = (), forget: Sequence[str] = ()
    ) -> Sequence[Report]:
        return self._work(start, stop, forget, {})

    def keep(self, key: str, content: Mapping[str, t.Any]) -> None:
        """Keep the secret settings of a generation in a config of Swarm."""
        self.context.secrets[key] = content
        self._work((), (), (), {key: content})

    def recall(self, key: str) -> Mapping[str, t.Any] | None:
        if key not in self.context.secrets:
            settings = self._managers.ask(Recalled, {"recall": key})["settings"]
            if settings is not None and key_of(settings) == key:
                self.context.secrets[key] = settings
        return self.context.secrets.get(key)

    def leave(self, dry: bool) -> Sequence[str]:
        from ..remote.leaving import Removed  # a service is removed once

        known = {"service": self.context.service, "epoch": self.context.known().epoch, "dry": dry}
        answer = self._managers.ask(Removed, {"leave": known})
        return [f"swarm: {clean(name)}" for name in answer["removed"]]

    def _work(
        self,
        start: Sequence[Labels],
        stop: Sequence[str],
        forget: Sequence[str],
        keep: Mapping[str, Mapping[str, t.Any]],
    ) -> list[Report]:
        """Do the work, and return what there is then."""
        request = {
            "service": self.context.service,
            "epoch": self.context.known().epoch,
            "start": [self._service(labels) for labels in start],
            "stop": list(stop),
            "forget": list(forget),
            "keep": dict(keep),
            "retain": self.context.known().secret_keys,
            "registry_auth": self._options["registry_auth"],
        }
        seen = t.cast(_swarm_tasks.Seen, self._managers.ask(_swarm_tasks.Seen, request))
        self._published = _published(seen)
        for service in seen["services"]:
            self._report_change(service)
        reports = self._reading.reports(seen, clock.now())
        for report in reports:
            self._note(report)
        return reports

    def _service(self, labels: Labels) -> dict[str, t.Any]:
        ports = self._options["ports"]
        published = min(ports, key=lambda port: self._published[port]) if ports else 0
        self._published[published] += 1
        return _swarm_spec.service(self._of(labels.generation), labels, published)

    def _of(self, generation: int | None) -> Mapping[str, t.Any]:
        """Return the options that a generation is started with."""
        kept = None if generation is None else self.context.settings_of(generation)
        if generation is None or kept is None:
            return self._options
        if generation not in self._kept:
            self._kept[generation] = _settings.as_kept(self, OPTIONS, self._options, kept)
        return self._kept[generation]

    def _report_change(self, service: _swarm_tasks.Service) -> None:
        """Tell the operator of an image that somebody else has given an instance."""
        name, image = clean(service["name"]), _swarm_tasks.changed_image(service)
        if image and image != self._changed.get(name):
            self.context.transport.print_line(
                f"{name}: somebody else has changed its image from"
                f" {clean(service['labels']['image'])} to {image} (docker service update), so it"
                " does not count as an instance of that revision, and is replaced [PR-255]"
            )
        self._changed[name] = image

    def _note(self, report: Report) -> None:
        """Tell the operator at once what Swarm says of an instance, and where it moved it."""
        name, host = report.labels.id, report.labels.host
        waits = report.process in (Process.STARTING, Process.UNREACHABLE)
        words = report.detail if waits else ""
        if words and words != self._said.get(name):
            self._said[name] = words
            self.context.transport.print_line(f"{name}: {words} [PR-253]")
        if report.process is Process.RUNNING:
            before = self._on.get(name, host)
            self._on[name] = host
            if before != host:
                self.context.transport.print_line(
                    f"{name}: Swarm has moved it from {before} to {host}"
                )


def _published(seen: _swarm_tasks.Seen) -> Counter[int]:
    """Return how many instances are published at each port."""
    given = [
        service["labels"].get("published", "")
        for service in seen["services"]
        if service["replicas"]
    ]
    return Counter(int(port) for port in given if port.isdecimal())
