# SPDX-License-Identifier: GPL-3.0-or-later
"""What was left at a load balancer, by whomever."""

from __future__ import annotations

from ansible_collections.progressive.rollout.tests.support.playbook import ROLLOUT
from ansible_collections.progressive.rollout.tests.support.shop import (
    Reloadable,
    Shop,
)


def test_what_was_left_at_a_load_balancer_is_put_right_by_any_run() -> None:
    """A balancer keeps an entry at an address of no instance, in rotation or not."""
    front = Reloadable(prepared=True)
    try:
        with Shop(front, env={"START_DELAY": "0.1"}) as shop:
            shop.to("1")
            shop.settled("1")
            free = next(name for name, status in front.servers().items() if status == "MAINT")
            for state in ("ready", "drain"):
                front.ask(
                    f"set server shop/{free} addr 127.0.0.9 port 9;set server shop/{free} state"
                    f" {state}"
                )
                assert ("127.0.0.9", 9) in front.known()
                checked = shop.run(ROLLOUT, {"rollout_revision": "1"}, "--check")
                assert checked.one("begin").result["changed"], "what --check sees"
                shop.to("1")
                shop.settled("1")
            assert "nothing to do" in shop.to("1").output
    finally:
        front.close()
