# SPDX-License-Identifier: GPL-3.0-or-later
"""What a commit to each store takes: a record and one event, to a server that syncs to the disk.

The API server of Kubernetes is one in memory, or that of `scripts/kubernetes up` if it runs.
"""

from __future__ import annotations

import os
import statistics
import time
import typing as t
from pathlib import Path

from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.store import (
    StoreDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.stores import (
    etcd,
    file,
    kubernetes,
    postgresql,
)
from ansible_collections.progressive.rollout.tests.support.api_server import ApiServer
from ansible_collections.progressive.rollout.tests.support.connect import connect
from ansible_collections.progressive.rollout.tests.support.etcd import Etcd
from ansible_collections.progressive.rollout.tests.support.playbook import ROOT
from ansible_collections.progressive.rollout.tests.support.postgresql import PASSWORD, PostgreSQL

COMMITS = 200
CLUSTER = ROOT / ".cache/kubernetes" / os.environ.get("CLUSTER", "0") / "kubeconfig"
RECORD = {"id": "r1", "pad": "x" * 20_000}  # as of a service with some hundred instances


def rows(folder: Path) -> list[tuple[str, str, str]]:
    """Return how long a commit takes, and how much longer the last ones take than the first."""
    here = connect({"web1": {"ansible_connection": "local"}}, folder / "hosts.json")
    found = []
    with (
        Etcd("--unsafe-no-fsync=false") as member,
        PostgreSQL("fsync=on") as server,
        ApiServer() as memory,
    ):
        cluster = str(CLUSTER) if CLUSTER.exists() else memory.kubeconfig()
        context = DriverContext("bench", here)
        own = {"servers": f"127.0.0.1:{server.port}", "password": PASSWORD, "tls": False}
        options: dict[str, tuple[t.Any, dict[str, t.Any]]] = {
            "file": (file, {"path": str(folder / "journal")}),
            "etcd": (etcd, {"endpoints": member.url}),
            "postgresql": (postgresql, own),
            "kubernetes": (kubernetes, {"kubeconfig": cluster, "namespace": "default"}),
        }
        took = {
            name: _commits(module.Driver(module.OPTIONS.parse(given, "rollout_store."), context))
            for name, (module, given) in options.items()
        }
    here.close()
    least = statistics.median(took["file"])
    if not CLUSTER.exists():
        took["kubernetes, in memory"] = took.pop("kubernetes")
    for name, times in took.items():
        middle = statistics.median(times)
        tenth = COMMITS // 10
        growth = statistics.median(times[-tenth:]) / statistics.median(times[:tenth])
        found.append((f"a commit to the store {name}", f"{1000 * middle:.1f} ms", ""))
        if name != "file":
            found.append((f"as a multiple of one to a file ({name})", f"{middle / least:.1f}", ""))
        found.append(
            (f"commit {COMMITS} of a rollout over its first ({name})", f"{growth:.2f}", "about 1")
        )
    return found


def _commits(store: StoreDriver) -> list[float]:
    """Return the seconds that each of some commits took."""
    store.acquire("bench", "bench", 60, {})
    times = []
    for number in range(COMMITS):
        began = time.perf_counter()
        store.commit("bench", 60, RECORD, [{"at": 1.0, "kind": "decision", "n": number}])
        times.append(time.perf_counter() - began)
    store.release("bench")
    return times
