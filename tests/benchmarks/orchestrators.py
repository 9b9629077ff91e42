# SPDX-License-Identifier: GPL-3.0-or-later
"""The same pods replaced by a Deployment's own rolling update, and by a rollout.

On the cluster of `scripts/kubernetes up`. Alone: scripts/run python tests/benchmarks/orchestrators.py
"""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
import typing as t
from collections.abc import Callable
from pathlib import Path

import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.forecast import ideal
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import (
    _pod,
    _rights,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import (
    ApiError,
    Cluster,
    Expired,
)
from ansible_collections.progressive.rollout.tests.support.namespaces import (
    KUBECONFIG,
    ROOT,
    Namespace,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

PODS, SURGE, START = 20, 2, 2.0
AUDIT = KUBECONFIG.with_name("audit.log")  # the requests of the user `rollout`
Row = tuple[str, str, str]
Times = dict[str, float]  # when a pod was made, ready, asked to stop, gone


def rows(folder: Path) -> list[Row]:
    """Measure both, where a cluster is up."""
    what = f"Kubernetes, {PODS} pods, start-up {START:g} s, surge {SURGE}"
    if not KUBECONFIG.exists():
        return [(what, "not measured", "needs scripts/kubernetes up")]
    cluster = Cluster(str(KUBECONFIG))
    namespace = Namespace(cluster, f"bench-{os.getpid()}")
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace.name}}
    cluster.post("/api/v1/namespaces", body)
    try:
        namespace.deploy(PODS, start=START, stop=0, surge=SURGE)
        return [*_native(what, namespace), *_ours(what, namespace, folder)]
    finally:
        cluster.delete(f"/api/v1/namespaces/{namespace.name}")


def _native(what: str, namespace: Namespace) -> list[Row]:
    with Watch(namespace) as watch:
        namespace.kubectl("set", "image", "deployment/shop", "shop=docker.io/local/shop:2")
        watch.replaced("2")
    starts, stops = watch.starts("2"), watch.stops("1")
    shortest = ideal(starts, [], SURGE)
    return [
        (f"{what}: median of created to ready", f"{statistics.median(starts):.1f} s", ""),
        (
            "by a Deployment's own rolling update: until all new ones are ready, over the ideal",
            f"{watch.took('2', 'ready') / shortest:.2f}",
            "",
        ),
        (
            "until the old ones are gone, over the ideal",
            f"{watch.took('1', 'gone') / (shortest + stops[-1]):.2f}",
            "",
        ),
        ("most pods at once, those that are ending included", f"{watch.most()}", ""),
    ]


def _ours(what: str, namespace: Namespace, folder: Path) -> list[Row]:
    bind(namespace)
    variables = {
        "rollout_service": "shop",
        "rollout_revision": "3",
        "rollout_budget": {"max_surge": SURGE},
        "rollout_platform": {
            "driver": "kubernetes",
            "kubeconfig": str(KUBECONFIG.with_name("rollout.kubeconfig")),
            "namespace": namespace.name,
            "workload": "deployment/shop",
            "image": "docker.io/local/shop:{revision}",
        },
        "rollout_store": {"driver": "file", "path": str(folder / "kubernetes")},
    }
    extra = folder / "kubernetes.yml"
    extra.write_text(yaml.safe_dump(variables))
    asked, before = requests(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with Watch(namespace) as watch:
        began = time.monotonic()
        done = subprocess.run(
            ["ansible-playbook", str(ROOT / "playbooks/rollout.yml"), "-e", f"@{extra}"],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        wall = time.monotonic() - began
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        watch.replaced("3")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    starts, stops = watch.starts("3"), watch.stops("2")
    shortest = ideal(starts, stops, SURGE)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [
        (
            f"{what}, by a rollout: median of created to ready",
            f"{statistics.median(starts):.1f} s",
            "",
        ),
        ("median of asked to stop to gone", f"{statistics.median(stops):.1f} s", ""),
        (
            "until the old ones are gone, over the ideal with those that are ending in the budget",
            f"{watch.took('2', 'gone') / shortest:.2f}",
            "at most 1.10",
        ),
        (
            "wall time over that ideal, Ansible's start and the hand-back included",
            f"{wall / shortest:.2f}",
            "",
        ),
        (
            "most pods at once, those that are ending included",
            f"{watch.most()}",
            f"at most {PODS + SURGE}",
        ),
        (
            "from a ready pod to the stop of an old one, from its end to the next one: medians",
            " / ".join(f"{pause:.2f} s" for pause in watch.pauses("3", "2")),
            "",
        ),
        ("controller CPU", f"{cpu:.1f} s", ""),
        ("requests to the API server", f"{requests() - asked}", ""),
    ]


def bind(namespace: Namespace) -> None:
    """Give the user `rollout` what rollouts need."""
    cluster = namespace.cluster
    needed = _rights.NEEDED if _rights.costs(cluster) else (*_rights.NEEDED, *_rights.NO_COSTS)
    role = _rights.role(namespace.name, needed)
    bound = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "rollout"},
        "roleRef": {"kind": "Role", "name": role["metadata"]["name"], "apiGroup": ""},
        "subjects": [{"kind": "User", "name": "rollout"}],
    }
    for one in (role, bound):
        namespace.kubectl("apply", "-f", "-", given=one)


def requests() -> int:
    """How many requests of rollouts the API server has answered."""
    return len(AUDIT.read_text().splitlines()) if AUDIT.exists() else 0


class Watch:
    """Notes when each pod of a namespace does what, by this machine's clock."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._pods: dict[str, Times] = {}
        self._revisions: dict[str, str] = {}
        self._most = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        until(lambda: len(self._pods) >= PODS, "the pods are seen")
        self.began = time.monotonic()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._end.set()

    def replaced(self, revision: str) -> None:
        """Wait until there are only pods of this revision, and all of them are ready."""
        until(lambda: self._left() == {revision: PODS} and self._ready(revision), "replaced", 300)

    def starts(self, revision: str) -> list[float]:
        """How long each pod took from being made to being ready, in the order of their making."""
        return [one["ready"] - one["made"] for one in self._of(revision)]

    def stops(self, revision: str) -> list[float]:
        """How long each pod took from being asked to stop to being gone, in this order."""
        return [one["gone"] - one["asked"] for one in self._of(revision, "asked")]

    def took(self, revision: str, what: str) -> float:
        """How long it took until the last pod of a revision was so, from the first change on."""
        changes = [one["made"] for one in self._pods.values() if one["made"] > self.began]
        return max(one[what] for one in self._of(revision)) - min(changes)

    def pauses(self, new: str, old: str) -> tuple[float, float]:
        """The medians from a ready pod to the stop of an old one, and from its end to the next."""
        ready, gone = (
            sorted(one[what] for one in self._of(of))
            for of, what in ((new, "ready"), (old, "gone"))
        )
        asked, made = (
            sorted(one[what] for one in self._of(of))
            for of, what in ((old, "asked"), (new, "made"))
        )
        stops = [later - earlier for earlier, later in zip(ready, asked, strict=True)]
        starts = [later - earlier for earlier, later in zip(gone, made[SURGE:], strict=False)]
        return statistics.median(stops), statistics.median(starts)

    def most(self) -> int:
        """How many pods there were at most."""
        return self._most

    def _of(self, revision: str, order: str = "made") -> list[Times]:
        mine = [one for uid, one in self._pods.items() if self._revisions[uid] == revision]
        return sorted(mine, key=lambda one: one[order])

    def _left(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for uid, one in list(self._pods.items()):
            if "gone" not in one:
                found[self._revisions[uid]] = found.get(self._revisions[uid], 0) + 1
        return found

    def _ready(self, revision: str) -> bool:
        return all("ready" in one for one in self._of(revision))

    def _run(self) -> None:
        cluster, path = self._namespace.cluster, f"{self._namespace.core}/pods"
        found = cluster.get(path)
        for one in found["items"]:
            self._note("ADDED", one)
        version = found["metadata"]["resourceVersion"]
        while not self._end.is_set():
            with contextlib.suppress(ApiError, Expired):
                for kind, one in cluster.watch(path, version):
                    version = one["metadata"]["resourceVersion"]
                    if kind != "BOOKMARK":
                        self._note(kind, one)

    def _note(self, kind: str, pod: t.Any) -> None:
        uid, now = pod["metadata"]["uid"], time.monotonic()
        self._revisions[uid] = pod["spec"]["containers"][0]["image"].rpartition(":")[2]
        times = self._pods.setdefault(uid, {"made": now})
        states: dict[str, Callable[[], bool]] = {
            "ready": lambda: _pod.condition(pod, "Ready").get("status") == "True",
            "asked": lambda: "deletionTimestamp" in pod["metadata"],
            "gone": lambda: kind == "DELETED" or _pod.gone(pod),
        }
        for what, is_so in states.items():
            if what not in times and is_so():
                times[what] = now
        self._most = max(self._most, sum(self._left().values()))


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for row in rows(Path(folder)):
            print(*row, sep=" | ")
    print("load", *os.getloadavg())
