# SPDX-License-Identifier: GPL-3.0-or-later
"""How pods are reported to a rollout: state, health and labels of each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..base.text import clean
from ..engine.model import UNKNOWN, Health, Process
from ..interfaces.platform import NOWHERE, Endpoint, Labels, Report
from ._pod import Object, condition, containers, ended, reason, seconds
from ._pods import Group

LOST = 60.0  # seconds after its time to end from which a pod's node is taken for lost


@dataclass(frozen=True)
class Reading:
    """How pods are read: whose they are, where they listen, and what time it is."""

    service: str
    container: str
    image: str  # of an instance, with a placeholder
    port: int  # 0: the container's first one
    now: float
    skew: float = 0.0  # seconds that our clock is ahead of the server's
    # by generation that the journal has settings of, its image with a placeholder
    images: Mapping[int, str] = field(default_factory=dict)

    def reports(self, group: Group, ordered: float) -> Iterable[Report]:
        """Yield what is to be seen of a group, whose missing pods are `ordered` since then."""
        for pod in group.pods:
            yield self._report(group, pod)
        for name in group.ordered:
            labels = self.labels({}, name, (group.generation, self.revision(group)))
            yield Report(labels, Process.STARTING, ordered, group.refusal)

    def revision(self, group: Group) -> str:
        """Return the revision of a group: marked, or that of its image."""
        known = group.marked or group.inherited
        if known and known[1]:
            return known[1]
        return self.imaged(group.obj["spec"]["template"])

    def imaged(self, pod: Object) -> str:
        """Return the revision of a pod, or of a pod template, by its image."""
        image = self._image_of(pod)
        tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
        return _filled(self.image, image) or clean(tag) or UNKNOWN

    def running(self, pod: Object, mark: tuple[int, str]) -> tuple[int, str]:
        """Return the generation and the revision of a pod with this mark: another revision where
        somebody has changed its image.

        An image that is written otherwise than a rollout does, as by a webhook that adds its digest
        or names a mirror, says nothing.
        """
        generation, revision = mark
        image, pattern = self._image_of(pod), self.images.get(generation, "")
        shown = [_filled(pattern, image), _filled(pattern, image.partition("@")[0])]
        others = [other for other in shown if other]
        return mark if revision in shown or not others else (generation, clean(others[-1]))

    def _image_of(self, pod: Object) -> str:
        images = [
            str(c.get("image", ""))
            for c in pod["spec"]["containers"]
            if self.container in ("", c["name"])
        ]
        return images[0] if images else ""

    def _report(self, group: Group, pod: Object) -> Report:
        name = str(pod["metadata"]["name"])
        known, mark = group.ids.get(name, name), (group.generation, self.revision(group))
        ran = self.running(pod, mark)
        return self.report(pod, known, ran, leaving=known in group.leaving)

    def report(
        self, pod: Object, name: str, mark: tuple[int, str], *, leaving: bool = False
    ) -> Report:
        """Return what is to be seen of a pod, with the instance's id, generation and revision.

        `leaving`: its controller is about to delete it.
        """
        process = self._process(pod)
        if leaving and process in (Process.STARTING, Process.RUNNING):
            process = Process.STOPPING
        health, since = self._health(pod) if process is Process.RUNNING else (Health.NONE, 0.0)
        restarts, restarted = self._restarts(pod)
        return Report(
            self.labels(pod, name, mark),
            process,
            self._at(pod["metadata"].get("creationTimestamp")),
            reason(pod),
            restarts,
            restarted,
            health,
            since,
        )

    def labels(self, pod: Object, name: str, mark: tuple[int, str]) -> Labels:
        """Return the labels of an instance; of one that is not seen yet, the pod is empty."""
        host = str((pod.get("spec") or {}).get("nodeName") or "")
        address = str((pod.get("status") or {}).get("podIP") or "")
        port = self.port or next(
            (
                int(port["containerPort"])
                for c in (pod.get("spec") or {}).get("containers", ())
                if self.container in ("", c["name"])
                for port in c.get("ports") or ()
            ),
            0,
        )
        where = Endpoint(address, port) if address and port else NOWHERE
        generation, revision = mark
        return Labels(name, self.service, revision, generation, host, where, 0)

    def _process(self, pod: Object) -> Process:
        if gone := pod["metadata"].get("deletionTimestamp"):
            return Process.UNREACHABLE if self.now - self._at(gone) > LOST else Process.STOPPING
        if ended(pod):
            return Process.FAILED
        phase = (pod.get("status") or {}).get("phase")
        return {"Running": Process.RUNNING, "Pending": Process.STARTING}.get(
            str(phase), Process.UNKNOWN
        )

    def _health(self, pod: Object) -> tuple[Health, float]:
        """Return the health by the pod's own probes and gates, and since when."""
        ready = condition(pod, "Ready")
        since = self._at(ready.get("lastTransitionTime"))
        if ready.get("status") == "True":
            # The server counts whole seconds: what has just become ready may have been for one.
            return Health.PASSING, min(self.now, since + 1)
        was_ready = any(since > begun for begun in self._begun(pod))
        return (Health.FAILING if was_ready else Health.PENDING), since

    def _begun(self, pod: Object) -> Iterable[float]:
        """Yield when the pod's containers were started last."""
        for status in (pod.get("status") or {}).get("containerStatuses") or ():
            running = (status.get("state") or {}).get("running")
            last = running or (status.get("lastState") or {}).get("terminated") or {}
            if begun := self._at(last.get("startedAt")):
                yield begun

    def _restarts(self, pod: Object) -> tuple[int, float | None]:
        statuses = containers(pod)
        count = sum(int(status.get("restartCount", 0)) for status in statuses)
        ends = [
            self._at(((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt"))
            for status in statuses
            if status.get("restartCount")
        ]
        return count, min(ends) if count and ends else None

    def _at(self, stamp: str | None) -> float:
        timestamp = seconds(stamp)
        return timestamp + self.skew if timestamp else 0.0


def _filled(pattern: str, image: str) -> str:
    """Return what an image has in the place of the revision; "" if it has another form."""
    before, _placeholder, after = pattern.partition("{revision}")
    fits = image.startswith(before) and image.endswith(after) and len(image) > len(before + after)
    return image[len(before) : len(image) - len(after)] if pattern and fits else ""
