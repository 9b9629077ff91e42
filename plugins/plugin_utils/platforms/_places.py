# SPDX-License-Identifier: GPL-3.0-or-later
"""The places of a StatefulSet or a DaemonSet: which pods they have, and of which revision. Pure.

A pod has the generation and the revision that its template had as an annotation when it was made,
which is also in the workload's history (ControllerRevisions). Pods without it are from before the
first rollout.
"""

from __future__ import annotations

import json
import re
import typing as t
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..engine.model import Process
from ..interfaces.platform import Report
from . import _pod
from ._pod import Object
from ._pod_reports import LOST, Reading
from ._pods import ADOPTED, DOMAIN, MARK

HASH = "controller-revision-hash"  # label of pods: the template that they were made of
FIRST = f"{DOMAIN}/adopted"  # of the workload: the hash of the pods from before the first rollout
Mark = tuple[int, str]  # generation and revision


def marked(obj: Object) -> Mark | None:
    """Return the generation and the revision of a pod, or of a pod template; None without any."""
    try:
        mark = json.loads(_pod.notes_of(obj).get(MARK, "null"))
        return (int(mark["generation"]), str(mark["revision"])) if mark else None
    except (ValueError, KeyError, TypeError):
        return None


def mark(template: Object, generation: int, revision: str) -> dict[str, t.Any]:
    """Return a pod template whose pods are of this generation and revision."""
    note = json.dumps({"generation": generation, "revision": revision})
    notes = {**_pod.notes_of(template), MARK: note}
    return {**template, "metadata": {**template["metadata"], "annotations": notes}}


@dataclass(frozen=True)
class Places:
    """A StatefulSet or a DaemonSet, and its pods."""

    workload: Object
    all_pods: Sequence[Object]
    # whether each pod has a stable identity, as in a StatefulSet
    is_numbered: bool
    now: float = 0.0
    skew: float = 0.0  # seconds that our clock is ahead of the server's

    @cached_property
    def pods(self) -> Sequence[Object]:
        """Its pods of which something is left."""
        return [p for p in self.all_pods if _pod.owned_by(p, self.workload) and not _pod.gone(p)]

    @cached_property
    def lost(self) -> Sequence[Object]:
        """The pods that were to end long ago: their nodes do not answer."""
        ends = ((p, _pod.seconds(p["metadata"].get("deletionTimestamp"))) for p in self.pods)
        return [pod for pod, end in ends if end and self.now - end - self.skew > LOST]

    @property
    def _ordinals(self) -> range:
        """The numbers of a StatefulSet's pods."""
        spec = self.workload["spec"]
        start = int((spec.get("ordinals") or {}).get("start", 0))
        return range(start, start + int(spec.get("replicas", 1)))

    @property
    def number(self) -> int:
        """How many pods there are to be; none on a node of a DaemonSet that does not answer.

        There, a pod serves its node alone. A number of a StatefulSet stays missing until the node
        is back, or the pod is deleted by force.
        """
        if self.is_numbered:
            return len(self._ordinals)
        status = self.workload.get("status") or {}
        return max(0, int(status.get("desiredNumberScheduled", 0)) - len(self.lost))

    @property
    def is_observed(self) -> bool:
        """Whether its controller has seen the present template."""
        seen = int((self.workload.get("status") or {}).get("observedGeneration", 0))
        return seen >= int(self.workload["metadata"]["generation"])

    @cached_property
    def first(self) -> str:
        """The hash of the pods from before the first rollout; the most common one if unknown."""
        if known := _pod.notes_of(self.workload).get(FIRST):
            return known
        unmarked = Counter(_hash(pod) for pod in self.pods if marked(pod) is None)
        return max(unmarked, key=lambda id: (unmarked[id], id), default="")

    def generation(self, pod: Object) -> int:
        """Return the generation of a pod; 0 if no rollout and no journal can know it."""
        known = marked(pod)
        return known[0] if known else ADOPTED if _hash(pod) == self.first else 0

    @property
    def generations(self) -> list[tuple[Object, int]]:
        """Each pod that is not ending, with its generation."""
        living = [pod for pod in self.pods if not pod["metadata"].get("deletionTimestamp")]
        return [(pod, self.generation(pod)) for pod in living]

    def by_id(self) -> Mapping[str, Object]:
        """Return the pods by the ids of their instances."""
        return {self.id(pod): pod for pod in self.pods}

    def id(self, pod: Object) -> str:
        """Return the id of an instance: the next pod at its place is another one."""
        name, uid = str(pod["metadata"]["name"]), str(pod["metadata"]["uid"])
        return f"{name}/{uid[:8]}" if self.is_numbered else name

    def vacant(self) -> list[str]:
        """Return the ids of the places without a pod."""
        name = self.workload["metadata"]["name"]
        if self.is_numbered:
            names = {str(pod["metadata"]["name"]) for pod in self.pods}
            wanted = [f"{name}-{number}" for number in self._ordinals]
            return [f"{place}/vacant" for place in wanted if place not in names]
        missing = self.number - (len(self.pods) - len(self.lost))
        return [f"{name}/vacant-{number + 1}" for number in range(missing)]

    def reports(self, reading: Reading, since: float, why: str = "") -> Iterable[Report]:
        """Yield what is to be seen: each place once.

        `since` when a place has been without a pod, and why.
        """
        for pod in self.pods:
            if self.is_numbered or pod not in self.lost:
                yield self._report(reading, pod)
        known = marked(self.workload["spec"]["template"])
        coming = known or (ADOPTED, reading.imaged(self.workload["spec"]["template"]))
        for name in self.vacant():
            labels = reading.labels({}, name, coming)
            yield Report(labels, Process.STOPPING, since, why or "its next pod is not there yet")

    def _report(self, reading: Reading, pod: Object) -> Report:
        known, number = marked(pod), _number(pod)
        mine = (self.generation(pod), known[1] if known else reading.imaged(pod))
        mine = reading.running(pod, mine)
        extra = self.is_numbered and number not in self._ordinals
        report = reading.report(pod, self.id(pod), mine, leaving=extra)
        if report.process is Process.UNREACHABLE:
            # Its place is taken until it is gone, whatever becomes of the node.
            silent = f"node {report.labels.host} does not answer, so its pod does not end"
            report = replace(report, process=Process.STOPPING, detail=silent)
        return replace(report, precedence=number if self.is_numbered else 0)


def _hash(pod: Object) -> str:
    return str(_pod.labels_of(pod).get(HASH, ""))


def _number(pod: Object) -> int:
    match = re.search(r"-([0-9]+)$", str(pod["metadata"]["name"]))
    return int(match[1]) if match else 0


def template_of(
    history: Iterable[Object],
    places: Places,
    generation: int,
    revision: str,
    again: Callable[[Object], str] | None = None,
) -> dict[str, t.Any] | None:
    """Return the pod template that a generation was made of, by the workload's history.

    One with another mark, or of a generation that runs again without any, gets that of this one.
    `again` tells the revision of an unmarked template, where any generation of it will do: it ran
    before. None if it is not there: no pod was made of it yet, or it is too long ago.
    """
    hashes = (places.first, f"{places.workload['metadata']['name']}-{places.first}")
    templates: list[tuple[int, dict[str, t.Any]]] = []
    for revision_object in history:
        template = ((revision_object.get("data") or {}).get("spec") or {}).get("template")
        if not template or not _pod.owned_by(revision_object, places.workload):
            continue
        known = marked(template)
        first = generation == ADOPTED and revision_object["metadata"]["name"] in hashes
        mine = known[1] if known else again(template) if again else ""
        if first or known == (generation, revision) or (again and mine == revision):
            templates.append((int(revision_object.get("revision", 0)), template))
    if not templates:
        return None
    last = dict(max(templates, key=lambda entry: entry[0])[1])
    last.pop("$patch", None)
    unmarked = generation == ADOPTED and marked(last) is None
    return last if unmarked else mark(last, generation, revision)
