# SPDX-License-Identifier: GPL-3.0-or-later
"""A host all of whose packets are dropped while a canary waits, under load: it is left out by a
command, answers again, and is brought back.
"""

from __future__ import annotations

import csv
import io
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from ansible_collections.progressive.rollout.tests.e2e.test_exclusion import command, hosts
from ansible_collections.progressive.rollout.tests.e2e.test_hung_host import Site, promoted
from ansible_collections.progressive.rollout.tests.support.shop import BehindHAProxy, Load
from ansible_collections.progressive.rollout.tests.support.sshd import Sshd
from ansible_collections.progressive.rollout.tests.support.waiting import until

pytestmark = pytest.mark.long
SILENT = "web3"
CANARY = {
    "rollout_strategy": "canary",
    "rollout_steps": [{"set_replicas": 3}, {"pause": {}}],
    "rollout_wait": "10m",
}


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    with Sshd(3) as server:
        yield server


@contextmanager
def dropped(address: str) -> Iterator[None]:
    """Drop all packets from and to an address of the loopback interface."""
    rules = [("INPUT", way, address, "-j", "DROP") for way in ("-s", "-d")]
    done = []
    try:
        for rule in rules:
            subprocess.run(["iptables", "-w", "-I", *rule], check=True)
            done.append(rule)
        yield
    finally:
        for rule in done:
            subprocess.run(["iptables", "-w", "-D", *rule], check=True)


class Front(BehindHAProxy):
    """It gives a request that was sent to a silent host up soon."""

    def start(self) -> None:
        text = self.config.read_text()
        self.config.write_text(text.replace("timeout server 30s", "timeout server 3s"))
        super().start()

    def open_at(self, address: str) -> int:
        """Return how many requests wait for an answer from an address."""
        rows = csv.DictReader(io.StringIO(self.ask("show stat shop 4 -1").lstrip("# ")))
        return sum(int(row["scur"]) for row in rows if row["addr"].startswith(f"{address}:"))


def failed(load: Load) -> int:
    return sum(report["failed"] for report in load.reports())


def test_a_silent_host_is_left_out_and_comes_back(sshd: Sshd) -> None:
    front = Front()
    try:
        with Site(sshd, front) as site:
            site.variables |= {"rollout_traffic": front.traffic, **CANARY}
            address = sshd.addresses[site.hosts.index(SILENT)]
            promoted(site.start(variables={"rollout_revision": "1"}))
            with Load(front.url, kinds=[("GET", False)], connections=4, rate=50) as load:
                run = site.to("2")
                until(lambda: site.journal()["rollout"]["phase"] == "paused", "it waits")
                assert failed(load) == 0
                with dropped(address):
                    until(lambda: f"{SILENT} does not answer" in run.output, "the host is named")
                    sent = command(site, "exclude", SILENT)
                    assert sent.rc == 0 and "has obeyed" in sent.output, sent.output
                    until(
                        lambda: (
                            len(front.serving()) == 6
                            and all(place[0] != address for place in front.serving())
                        ),
                        "others serve in place of those there",
                    )
                    until(lambda: not front.open_at(address), "no request waits for the host")
                    while_silent = failed(load)
                    served = sum(report["served"] for report in load.reports())
                    until(
                        lambda: sum(report["served"] for report in load.reports()) > served + 100,
                        "requests are served",
                    )
                    assert failed(load) == while_silent, "none is sent there any more"
                back = command(site, "include", SILENT)
                assert back.rc == 0 and "has obeyed" in back.output, back.output
                assert site.run("progressive.rollout.promote").rc == 0
                outcome = promoted(run)
                assert outcome.rollout["excluded"] == []
                assert site.revisions() == ["2"] * 6 and SILENT in hosts(site, "2")
                reports = load.stop()
            requests = sum(report["requests"] for report in reports)
            print(f"{requests} requests, {while_silent} lost before its silence was known")
            assert sum(report["failed"] for report in reports) == while_silent
    finally:
        front.close()
