# SPDX-License-Identifier: GPL-3.0-or-later
"""A route with the generations of pods behind it, for its clients' requests and for previews."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..base import clock
from ..base.errors import InputError, TrafficError
from ..interfaces.context import DriverContext
from ..interfaces.platform import Endpoint
from ..remote.kubernetes import Object
from . import _gateway_route as routes
from . import _options as shared
from ._gateway_objects import Objects
from ._gateway_route import Split
from ._service_pods import HASH, Pod, selector

HASHES = 16  # characters that a generation adds to the name of the Service, at most


@dataclass(frozen=True)
class Seen:
    """The route and the pods behind it, at one moment."""

    route: Object
    service: Object
    split: Split
    pods: Sequence[Pod]

    @property
    def ready(self) -> list[str]:
        """The generation of each pod that is ready, by its hash."""
        return [pod.hash for pod in self.pods if pod.ready]


class Gateway:
    """Looks at a route and its pods, and has the route divide their requests."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self.objects = Objects(options, context)
        self._context = context
        self._settle: float = options["settle"]
        # by generation, since when its Service has pods; None: not looked yet
        self._listed: dict[str, float] | None = None

    def check(self) -> None:
        """Raise InputError for a route whose requests cannot be divided. Touch nothing."""
        self.objects.check_rights()
        seen = self.seen(self.objects.route())
        for wrong, why in (*_obstacles(seen), *_obstacles_to_match(seen, self.objects.match)):
            if wrong:
                raise InputError(f"rollout_traffic.route: {self.objects.where} {why}", "PR-304")
        self.objects.check_mirror(seen.route, seen.split)
        self.objects.check_slices()
        try:
            self.objects.accepted(seen.route)
        except TrafficError as exc:
            raise InputError(f"rollout_traffic.route: {exc}", exc.id) from None

    def look(self, accepted: bool = True) -> Seen:
        """Return what is there; under a lease, once every Gateway has `accepted` it."""
        route = self.objects.route()
        if self._context.known().epoch:
            route = self.objects.fence(route)
            route = self.objects.accepted(route) if accepted else route
        return self.seen(route)

    def name(self, seen: Seen, hashes: Collection[str]) -> Seen:
        """Have the route name the Services of these generations."""
        if missing := set(hashes) - set(seen.split.shares):
            self.objects.make_services(seen.service, sorted(missing))
        return self.write(seen, seen.split.naming(hashes))

    def write(self, seen: Seen, split: Split) -> Seen:
        """Have the route divide requests like this."""
        return replace(seen, route=self.objects.write(seen.route, split), split=split)

    def proven(self, seen: Seen) -> set[Endpoint]:
        """Return the pods that their generation's Service may send requests to."""
        split, now = seen.split, clock.now()
        listed = self.objects.listed(split.shares)
        before = self._before(seen, now) if self._listed is None else self._listed
        self._listed = {name: before.get(name, now) for name in split.shares if listed[name]}
        settled = {
            name
            for name, share in split.shares.items()
            if share or now - self._listed.get(name, now) >= self._settle
        }
        return {
            pod.endpoint
            for pod in seen.pods
            if pod.hash in settled and pod.ready and pod.endpoint.address in listed[pod.hash]
        }

    def _before(self, seen: Seen, now: float) -> dict[str, float]:
        """Return since when generations have had pods, which a run before may have waited for."""
        skew, moments = self.objects.cluster.skew, dict[str, float]()
        for name, made in self.objects.services().items():
            ready = [pod.since + skew for pod in seen.pods if pod.hash == name and pod.ready]
            if ready:
                moments[name] = min(now, max(made, min(ready)))
        return moments

    def await_proven(self, seen: Seen) -> None:
        """Wait until the Services of generations have all ready pods; raises TrafficError."""
        ready = {pod.endpoint for pod in seen.pods if pod.ready}
        deadline = clock.now() + self._settle + self.objects.timeout
        while not ready <= self.proven(seen):
            if clock.now() > deadline:
                names = ", ".join(sorted(set(seen.ready)))
                raise TrafficError(
                    f"{self.objects.where}: the Services of {names} have not all of their pods yet",
                    "PR-307",
                )
            clock.sleep(self.objects.poll)

    def seen(self, route: Object) -> Seen:
        """Return what is there, whoever accepts it."""
        service, split = self.objects.owner(), self.objects.split(route)
        return Seen(route, service, split, self.objects.pods(service, split))


def _obstacles(seen: Seen) -> Iterable[tuple[bool, str]]:
    """Yield what keeps requests from being divided by weights, and why."""
    name, service = seen.split.service, seen.service["spec"]
    rules = [rule for rule in seen.split.rules if routes.serves(rule, name)]
    named = [ref for rule in rules for ref in routes.named(rule, name)]
    ports = [port["port"] for port in service.get("ports") or ()]
    yield not rules, f"has no rule that sends requests to the Service {name}"
    yield len(named) > len(rules), f"names the Service {name} twice in a rule; name it once"
    yield (
        any(len(routes.refs(rule)) + 2 > routes.REFS for rule in rules),
        f"has a rule with more than {routes.REFS - 2} backends, and two more are needed",
    )
    yield (
        any(ref.get("port") not in ports for ref in named),
        f"names a port that the Service {name} does not have",
    )
    yield not selector(seen.service), f"names the Service {name}, which selects no pods"
    yield (
        HASH in (service.get("selector") or {}),
        f"names the Service {name}, which selects a single generation (by {HASH}); remove that",
    )
    yield (
        not all(re.fullmatch(r"[a-z0-9][-a-z0-9]{0,14}[a-z0-9]", pod.hash) for pod in seen.pods),
        f"names the Service {name}, which selects pods that are not a Deployment's (no {HASH})",
    )
    yield len(name) + 1 + HASHES > 63, f"names the Service {name}, whose name is too long"


def _obstacles_to_match(seen: Seen, matches: Sequence[shared.Match]) -> Iterable[tuple[bool, str]]:
    """Yield what keeps matching requests from having a rule of their own, and why."""
    rules = [rule for rule in seen.split.rules if routes.serves(rule, seen.split.service)]
    if matches:
        headers = [
            header["name"].lower()
            for rule in rules
            for condition in rule.get("matches") or ()
            for header in condition.get("headers") or ()
        ]
        for match in matches:
            yield match.header in headers, f"has a rule that looks at {match.name} already"
        conditions = max((len(rule.get("matches") or ({},)) for rule in rules), default=1)
        yield (
            conditions * len(matches) > routes.MATCHES,
            f"has a rule with {conditions} conditions, and each is needed {len(matches)} times for"
            f" rollout_traffic.match; there can be {routes.MATCHES}",
        )
        yield (
            len(seen.split.rules) + len(rules) > routes.RULES,
            f"has {len(seen.split.rules)} rules, and match needs {len(rules)} more; there can be"
            f" {routes.RULES}",
        )
