# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that hangs is left out of a rollout by a command, under load, and comes back with the
next rollout.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.progressive.rollout.tests.e2e.test_hung_host import Site, of, promoted
from ansible_collections.progressive.rollout.tests.support.playbook import Outcome, Playground
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindHAProxy,
    Load,
    failures,
)
from ansible_collections.progressive.rollout.tests.support.sshd import Sshd
from ansible_collections.progressive.rollout.tests.support.waiting import until

pytestmark = pytest.mark.long
CONTROL = "progressive.rollout.control"


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    with Sshd(3) as server:
        yield server


@pytest.fixture
def site(sshd: Sshd) -> Iterator[Site]:
    """Where a rollout would wait for a hung host for minutes."""
    front = BehindHAProxy()
    with Site(sshd, front) as made:
        made.variables |= {
            "rollout_progress_deadline": "20m",
            "rollout_traffic": front.traffic,
        }
        yield made
        for host in made.hosts:
            (made.home / f"{host}.hangs").unlink(missing_ok=True)
    front.close()


def command(shop: Playground, name: str, host: str) -> Outcome:
    return shop.run(CONTROL, {"rollout_command": name, "rollout_host": host})


def hosts(site: Site, revision: str) -> set[str]:
    return {record["host"] for record in of(site, revision) if "ended" not in record}


def test_a_host_that_hangs_is_left_out(site: Site) -> None:
    promoted(site.to("1"))
    front = t.cast(BehindHAProxy, site.front)
    with Load(front.url, connections=4) as load:
        run = site.to("2")
        until(lambda: "web3" in hosts(site, "2"), "a new instance is started there")
        site.hang("web3")
        until(lambda: "web3 does not answer" in run.output, "the host is named")
        sent = command(site, "exclude", "web3")
        assert sent.rc == 0, sent.output
        outcome = promoted(run)
        assert "exclude web3 sent by " in outcome.output
        assert outcome.rollout["excluded"] == ["web3"] and " without web3" in outcome.output
        assert site.serving() == 6 and len(front.serving()) == 6
        site.mend("web3")
        promoted(site.to("2"))
        assert site.revisions() == ["2"] * 6 and "web3" not in hosts(site, "2")
        promoted(site.to("3"))
        assert site.revisions() == ["3"] * 6 and "web3" in hosts(site, "3")
        reports = load.stop()
    assert failures(reports) == []
