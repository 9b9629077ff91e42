# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts in racks, under load: a canary has instances in each, and each has enough servers."""

from __future__ import annotations

import threading
from collections import Counter

from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindHAProxy,
    Load,
    Shop,
    failures,
)

RACKS = {
    f"rack_{name}": {"hosts": {host: {"rack": name} for host in hosts}}
    for name, hosts in {"a": ["web1", "web2"], "b": ["web3", "web4"]}.items()
}

RACK = {"web1": "a", "web2": "a", "web3": "b", "web4": "b"}
CANARY = {
    "rollout_strategy": "canary",
    "rollout_steps": [{"set_replicas": "50%"}, {"pause": {}}],
    "rollout_wait": 0,
}


class Racks:
    """Watches how many servers of each rack get requests."""

    def __init__(self, shop: Shop, front: BehindHAProxy) -> None:
        self._front, self._over = front, threading.Event()
        self._racks = {shop.addresses[host]: rack for host, rack in RACK.items()}
        self.least = self._now()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _now(self) -> Counter[str]:
        return Counter(self._racks[host] for host, _port in self._front.serving())

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            now = self._now()
            self.least = Counter({rack: min(self.least[rack], now[rack]) for rack in "ab"})

    def stop(self) -> Counter[str]:
        self._over.set()
        self._thread.join()
        return self.least


def test_one_instance_on_each_host_at_one_port() -> None:
    """A canary of half of the hosts has one in each rack; a host that is added gets one. Half of
    all may be missing, but only one in each rack.
    """
    front = BehindHAProxy()
    try:
        with Shop(front, machines=4, inventory=RACKS, rollout_replicas="per_host") as shop:
            platform = shop.variables["rollout_platform"]
            shop.variables |= {
                "rollout_platform": {**platform, "zone": "rack", "ports": "8100"},
                "rollout_budget": {
                    "max_surge": 0,
                    "max_unavailable": "50%",
                    "max_unavailable_per_zone": 1,
                },
            }
            without = {**shop.variables["rollout_platform"], "hosts": "web:!web4"}
            shop.to("1", rollout_platform=without)
            shop.to("1")
            assert hosts(shop, "1") == ["web1", "web2", "web3", "web4"]
            with Load(front.url, connections=4) as load:
                racks = Racks(shop, front)
                shop.to("2", **CANARY)
                new = hosts(shop, "2")
                assert sorted(RACK[host] for host in new) == ["a", "b"]
                promoted = shop.run("progressive.rollout.promote")
                assert promoted.rc == 0, promoted.output
                assert hosts(shop, "2") == ["web1", "web2", "web3", "web4"]
                assert racks.stop() == {"a": 1, "b": 1}
                reports = load.stop()
            assert failures(reports) == []
    finally:
        front.close()


def hosts(shop: Shop, revision: str) -> list[str]:
    return sorted(one["host"] for one in shop.living() if one["revision"] == revision)
