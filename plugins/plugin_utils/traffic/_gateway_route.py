# SPDX-License-Identifier: GPL-3.0-or-later
"""How the rules of a route divide requests between generations, and what its Gateways report.

Pure. https://gateway-api.sigs.k8s.io/reference/spec/
"""

from __future__ import annotations

import json
import math
import typing as t
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from ..base.text import clean
from ..engine.model import Rotation
from ..engine.weights import EVEN
from ..interfaces.traffic import Target
from ..remote.kubernetes import Object
from ._options import Match

NOTE = "rollout.progressive/split"  # annotation of the route: what its owner's weights are
MOST = 1_000_000  # the highest weight of a backend
REFS, RULES = 16, 16  # backends of a rule, and rules of a route, at most
MATCHES = 64  # conditions of a rule, at most
MIRROR = "RequestMirror"  # a filter that copies requests
CONDITIONS = ("Accepted", "ResolvedRefs")  # have to be True for every parent


@dataclass(frozen=True)
class Split:
    """The rules of a route: as its owner wrote them, and how a rollout divides their requests.

    Each generation has a Service of its own, named after the Service and the generation's hash.
    Where all shares are 0, those Services are named, and the owner's gets the requests.
    """

    service: str  # the owner's
    rules: Sequence[Object]  # the owner's, with the owner's weights
    shares: Mapping[str, int] = field(default_factory=dict)  # by the hash of a generation
    preview: str = ""  # the hash of the generation that matching requests go to
    mirror: str = ""  # the hash of the generation that gets copies of requests

    @property
    def divided(self) -> bool:
        """Whether generations get requests, and not the owner's Service."""
        return any(self.shares.values())

    def naming(self, hashes: Iterable[str]) -> Split:
        """Return the same with these generations named, too."""
        return replace(self, shares={**dict.fromkeys(hashes, 0), **self.shares})

    def dividing(self, shares: Mapping[str, int]) -> Split:
        """Return the same with these shares; other generations that are named get nothing."""
        least = math.gcd(*shares.values()) or 1
        mine = {name: share // least for name, share in shares.items()}
        return replace(self, shares={**dict.fromkeys(self.shares, 0), **mine})

    def note(self) -> str | None:
        """Return the route's annotation; None: nothing has to be remembered."""
        if not self.shares:
            return None
        weights = [[weight(ref) for ref in refs(rule)] for rule in self.rules]
        return json.dumps({"generations": sorted(self.shares), "weights": weights})

    def render(self, match: Sequence[Match], percent: int = 0) -> list[Object]:
        """Return the rules of the route; of its requests, `percent` are copied."""
        previews = [
            _preview(rule, self.service, self.preview, match)
            for rule in self.rules
            if match and self.preview and serves(rule, self.service)
        ]
        rules = [self._mirrored(rule, percent) for rule in self.rules]
        return previews + [self._rendered(rule) for rule in rules]

    def _mirrored(self, rule: Object, percent: int) -> Object:
        """Return a rule that also sends copies of requests to a generation."""
        if not (percent and self.mirror and serves(rule, self.service)):
            return rule
        backend = {**_named(rule, self.service), "name": f"{self.service}-{self.mirror}"}
        backend.pop("weight", None)
        copies = {"backendRef": backend, **({"percent": percent} if percent < 100 else {})}
        added = {"type": MIRROR, "requestMirror": copies}
        return {**rule, "filters": [*(rule.get("filters") or ()), added]}

    def _rendered(self, rule: Object) -> Object:
        """Return a rule whose requests to the owner's Service go to the generations instead."""
        if not self.shares or not serves(rule, self.service):
            return rule
        total, mine = sum(self.shares.values()), _named(rule, self.service)
        backends = [
            {**ref, "weight": weight(ref) * (total or 1) if ref is not mine or not total else 0}
            for ref in refs(rule)
        ]
        for name, share in sorted(self.shares.items()):
            backend = {"name": f"{self.service}-{name}", "weight": weight(mine) * share}
            backends.append({**mine, **backend})
        return {**rule, "backendRefs": _lowered(backends) if total else backends}


def read(route: Object, service: str) -> Split:
    """Return how a route divides the requests to a Service now."""
    generations, weights = _noted(route)
    ours = {f"{service}-{name}": name for name in generations}
    rules: list[Object] = []
    shares: dict[str, int] = {}
    preview = mirror = ""
    for rule in route["spec"].get("rules") or ():
        copied = [part for part in rule.get("filters") or () if _mirrors(part) in ours]
        if copied:
            mirror = ours[_mirrors(copied[0])]
            rule = _without(rule, copied)
        mine = [ref for ref in refs(rule) if _local(ref) and ref["name"] in ours]
        rest = [ref for ref in refs(rule) if ref not in mine]
        if mine and not rest:
            preview = ours[mine[0]["name"]]
            continue
        if mine:
            shares = shares or {ours[ref["name"]]: weight(ref) for ref in mine}
            kept = weights[len(rules)] if len(rules) < len(weights) else []
            rule = {**rule, "backendRefs": _as_written(rest, service, kept)}
        rules.append(rule)
    split = Split(service, rules, shares, preview, mirror)
    return split.dividing(shares) if split.divided else split


def percent(given: Object) -> int | None:
    """Return the percentage of requests that a filter copies; None: all, or it copies none."""
    return (given.get("requestMirror") or {}).get("percent")


def _mirrors(given: Object) -> str:
    """Return the Service that a filter sends copies of requests to, if it does."""
    backend = (given.get("requestMirror") or {}).get("backendRef") or {}
    return str(backend.get("name", "")) if given.get("type") == MIRROR else ""


def _without(rule: Object, filters: Sequence[Object]) -> Object:
    """Return a rule without some of its filters."""
    left = [part for part in rule["filters"] if part not in filters]
    rest = {key: value for key, value in rule.items() if key != "filters"}
    return {**rest, "filters": left} if left else rest


def _noted(route: Object) -> tuple[Sequence[str], Sequence[Sequence[int]]]:
    """Return the generations that a rollout has named, and the owner's weights, rule by rule."""
    text = (route["metadata"].get("annotations") or {}).get(NOTE, "{}")
    try:
        note = json.loads(text)
        weights = [[int(value) for value in rule] for rule in note.get("weights", ())]
        return [str(value) for value in note.get("generations", ())], weights
    except (ValueError, TypeError, AttributeError):
        return [], []


def _as_written(backends: Sequence[Object], service: str, weights: Sequence[int]) -> list[Object]:
    """Return the owner's backends with the owner's weights; they may have been edited since."""
    if len(weights) != len(backends):
        weights = [
            1 if ref["name"] == service and not weight(ref) else weight(ref) for ref in backends
        ]
    return [{**ref, "weight": number} for ref, number in zip(backends, weights, strict=True)]


def _preview(rule: Object, service: str, name: str, wanted: Sequence[Match]) -> Object:
    """Return a rule for the requests of another that carry a header, which are more specific."""
    headers = [
        {
            "type": "RegularExpression" if condition.pattern else "Exact",
            "name": condition.name,
            "value": condition.value,
        }
        for condition in wanted
    ]
    given: Sequence[Object] = rule.get("matches") or ({},)
    matches = [
        {**match, "headers": [*(match.get("headers") or ()), header]}
        for match in given
        for header in headers
    ]
    backend = {**_named(rule, service), "name": f"{service}-{name}", "weight": 1}
    rest = {key: value for key, value in rule.items() if key != "name"}
    return {**rest, "matches": matches, "backendRefs": [backend]}


def _lowered(backends: Sequence[Object]) -> list[Object]:
    """Return backends with the lowest weights of the same ratio; none that gets requests gets 0."""
    least = math.gcd(*(ref["weight"] for ref in backends)) or 1
    highest = max(ref["weight"] for ref in backends) // least
    scale = Fraction(1, least) * min(Fraction(1), Fraction(MOST, max(1, highest)))
    return [
        {**ref, "weight": max(1, int(ref["weight"] * scale)) if ref["weight"] else 0}
        for ref in backends
    ]


# -- what rules say --------------------------------------------------------------------------------


def refs(rule: Object) -> Sequence[Object]:
    """Return the backends of a rule."""
    return rule.get("backendRefs") or ()


def weight(ref: Object) -> int:
    """Return the weight of a backend."""
    return int(ref.get("weight", 1))


def named(rule: Object, service: str) -> list[Object]:
    """Return the backends of a rule that are the Service."""
    return [ref for ref in refs(rule) if _local(ref) and ref["name"] == service]


def serves(rule: Object, service: str) -> bool:
    """Return whether a rule sends requests to the Service."""
    return any(weight(ref) for ref in named(rule, service))


def _named(rule: Object, service: str) -> Object:
    return next(ref for ref in named(rule, service) if weight(ref))


def _local(ref: Object) -> bool:
    """Whether a backend is a Service of the route's own namespace."""
    kind = (ref.get("group") or "", ref.get("kind", "Service"))
    return kind == ("", "Service") and not ref.get("namespace")


# -- what Gateways report --------------------------------------------------------------------------


@dataclass(frozen=True)
class Reported:
    """What the parents of a route report of its present generation; empty: all accept it."""

    refused: str = ""
    late: str = ""


def reported(route: Object) -> Reported:
    """Return whether every parent accepts the route as it is now, and has found its backends."""
    namespace = str(route["metadata"].get("namespace") or "")
    parents: Sequence[Object] = (route.get("status") or {}).get("parents") or ()
    wanted = [_parent(ref, namespace) for ref in route["spec"].get("parentRefs") or ()]
    if wanted:  # what the route does not name any more is a rest of a Gateway that is gone
        parents = [
            parent for parent in parents if _parent(parent.get("parentRef"), namespace) in wanted
        ]
    if not parents:
        return Reported(late="no Gateway reports about it")
    refused: list[str] = []
    reporting = [_parent(parent.get("parentRef"), namespace) for parent in parents]
    late = [
        f"{kind} {name} has not reported about it"
        for kind, name, *_rest in wanted
        if (kind, name, *_rest) not in reporting
    ]
    for parent in parents:
        _judge(parent, int(route["metadata"].get("generation", 0)), refused, late)
    return Reported("; ".join(refused), "; ".join(late))


def _parent(given: t.Any, namespace: str) -> tuple[t.Any, ...]:
    """Return which parent a reference is of, with the defaults filled in."""
    ref: Object = given or {}
    return (
        ref.get("kind") or "Gateway",
        ref.get("name"),
        ref.get("group", "gateway.networking.k8s.io"),
        ref.get("namespace") or namespace,
        ref.get("sectionName"),
        ref.get("port"),
    )


def _judge(parent: Object, generation: int, refused: list[str], late: list[str]) -> None:
    """Add what a parent refuses, or has not said yet."""
    ref = parent.get("parentRef") or {}
    section = f", {ref['sectionName']}" if ref.get("sectionName") else ""
    who = (
        f"{ref.get('kind', 'Gateway')} {ref.get('name')}{section} ({parent.get('controllerName')})"
    )
    conditions = {condition.get("type"): condition for condition in parent.get("conditions") or ()}
    for kind in CONDITIONS:
        condition = conditions.get(kind) or {}
        seen = int(condition.get("observedGeneration") or 0)
        if seen < generation or condition.get("status") not in ("True", "False"):
            last = f" (its last report is of generation {seen})" if seen else ""
            late.append(f"{who} has not reported {kind} of generation {generation}{last}")
        elif condition["status"] == "False":
            refused.append(_condition_text(who, condition))
    part = conditions.get("PartiallyInvalid") or {}
    if part.get("status") == "True" and int(part.get("observedGeneration") or 0) >= generation:
        refused.append(_condition_text(who, part))


def _condition_text(who: str, condition: Object) -> str:
    words = [condition.get("type"), condition.get("reason"), condition.get("message")]
    return clean(f"{who}: {': '.join(str(word) for word in words if word)}")


# -- between pods and generations ------------------------------------------------------------------


def fold(targets: Iterable[tuple[str, Target]]) -> dict[str, int]:
    """Return the share of each generation: the sum of the weights of its pods in rotation.

    This is all that a load balancer needs which weighs groups of instances.
    """
    weights: Counter[str] = Counter()
    for name, target in targets:
        if target.rotation is Rotation.IN:
            weights[name] += target.weight
    return dict(weights)


def weights(shares: Mapping[str, int], serving: Collection[str]) -> dict[str, int]:
    """Return the weight of each pod of a generation; `serving` has the hash of each pod.

    The reverse of `fold`.
    """
    counts = Counter(serving)
    parts = {
        name: Fraction(share, counts[name])
        for name, share in shares.items()
        if share and counts[name]
    }
    if len(set(parts.values())) < 2:
        return dict.fromkeys(parts, EVEN)
    scale = Fraction(
        math.lcm(*(part.denominator for part in parts.values())),
        math.gcd(*(part.numerator for part in parts.values())),
    )
    return {name: int(part * scale) for name, part in parts.items()}


def in_ratio(pairs: Iterable[tuple[int, int]]) -> bool:
    """Return whether the first number is the same multiple of the second in all pairs."""
    return len({Fraction(first, other) for first, other in pairs}) < 2
