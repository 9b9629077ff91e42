# SPDX-License-Identifier: GPL-3.0-or-later
"""What is in a load balancer's pool beside the servers of the rollout."""

from __future__ import annotations

import os
import signal
import typing as t

from ansible_collections.progressive.rollout.tests.support.playbook import ROLLOUT
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindHAProxy,
    Load,
    Reloadable,
    Shop,
    failures,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

QUICK = {"START_DELAY": "0.1"}
STATUS = "progressive.rollout.status"


def test_a_second_service_with_slots_on_one_backend_is_refused() -> None:
    front = Reloadable(prepared=True)
    try:
        with Shop(front, env=QUICK, rollout_replicas=2) as shop:
            shop.to("1")
            before = front.servers()
            platform = {**shop.variables["rollout_platform"], "ports": "8200-8299"}
            refused = shop.run(
                ROLLOUT,
                {"rollout_service": "shop2", "rollout_platform": platform, "rollout_revision": "9"},
            )
            assert refused.rc != 0 and "[PR-314]" in refused.output, refused.output
            assert "2 servers of service shop (slot0 " in refused.output
            assert front.servers() == before and len(shop.living()) == 2
    finally:
        front.close()


def test_what_runs_at_the_only_port_keeps_its_requests() -> None:
    """And status names a server by hand."""
    front = BehindHAProxy()
    running: list[dict[str, t.Any]] = []
    per_host = {
        "rollout_replicas": "per_host",
        "rollout_budget": {"max_surge": 0, "max_unavailable": 1},
    }
    try:
        with Shop(front, env=QUICK, machines=2, **per_host) as shop:
            platform = {**shop.variables["rollout_platform"], "ports": "8100"}
            shop.variables["rollout_platform"] = platform
            shop.to("1")
            places, running = front.serving(), shop.living()
            assert shop.run("progressive.rollout.remove").rc == 0
            record = shop.files()
            refused = shop.run(ROLLOUT, {"rollout_revision": "2"})
            assert refused.rc != 0 and "[PR-227]" in refused.output, refused.output
            assert "rollout_platform.ports: 8100: taken by another program" in refused.output
            assert (shop.files(), front.serving()) == (record, places), "nothing is touched"
            freed = running.pop()
            os.killpg(freed["pid"], signal.SIGKILL)
            places = places - {(freed["address"], freed["port"])}
            until(lambda: front.serving() == places, "one of two is left")
            with Load(front.url, rate=50) as load:
                failed = shop.run(ROLLOUT, {"rollout_revision": "2", "rollout_failure_limit": 1})
                assert failed.rc != 0 and "taken by another program" in failed.output
                assert failures(load.stop()) == []
            assert front.serving() == places and len(places) == 1
            front.ask("add server shop/app1 127.0.0.1:9 weight 50;set server shop/app1 state ready")
            shown = shop.run(STATUS)
            assert "1 server of backend shop that no rollout manages: app1" in shown.output
    finally:
        for record in running:  # nothing else keeps records of them any more
            os.killpg(record["pid"], signal.SIGKILL)
        front.close()
