# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that accepts connections and then hangs, over SSH and behind HAProxy: the others are
rolled out in their usual time.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.progressive.rollout.tests.support.haproxy import HAProxy
from ansible_collections.progressive.rollout.tests.support.playbook import (
    Outcome,
    Playground,
    Run,
)
from ansible_collections.progressive.rollout.tests.support.sshd import Sshd
from ansible_collections.progressive.rollout.tests.support.waiting import until

pytestmark = pytest.mark.long
PYTHON = """\
#!/bin/sh
while [ -e {home}/{host}.hangs ]; do sleep 0.1; done
exec {python} "$@"
"""


class Site(Playground):
    """The service on three hosts over SSH, of which any may hang; its lease lives for no longer
    than it may.
    """

    def __init__(self, sshd: Sshd, front: HAProxy) -> None:
        super().__init__()
        self.front = front
        known = {}
        for name, address in zip(self.hosts, sshd.addresses, strict=True):
            python = self.home / f"python-{name}"
            python.write_text(PYTHON.format(home=self.home, host=name, python=sys.executable))
            python.chmod(0o755)
            known[name] = {**sshd.variables(address), "ansible_python_interpreter": str(python)}
        (self.home / "hosts.json").write_text(
            json.dumps({"all": {"children": {"web": {"hosts": known}}}})
        )
        self.variables |= {
            "rollout_lease": "5s",
            "rollout_replicas": 6,
            "rollout_traffic": {
                "driver": "haproxy",
                "socket": front.api,
                "backend": "shop",
                "drain_timeout": "2s",
            },
        }

    def hang(self, host: str) -> None:
        (self.home / f"{host}.hangs").touch()

    def mend(self, host: str) -> None:
        (self.home / f"{host}.hangs").unlink()

    def to(self, revision: str) -> Run:
        return self.start(variables={"rollout_revision": revision})

    def serving(self) -> int:
        return list(self.front.servers().values()).count("UP")


class Lease:
    """Watches the lease of a run, from when it is first taken: the least that was left of it."""

    def __init__(self, site: Site, run: Run) -> None:
        self.path, self.run, self.left = site.store / "journal" / "shop.lease.json", run, 5.0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while self.run.process.poll() is None:
            held = json.loads(self.path.read_text())
            if "until" in held:
                self.left = min(self.left, held["until"] - time.time())
            time.sleep(0.02)


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    with Sshd(3) as server:
        yield server


@pytest.fixture
def site(sshd: Sshd) -> Iterator[Site]:
    front = HAProxy()
    with Site(sshd, front) as made:
        yield made
        for host in made.hosts:
            (made.home / f"{host}.hangs").unlink(missing_ok=True)
    front.close()


def promoted(run: Run) -> Outcome:
    outcome = run.wait()
    assert outcome.rc == 0 and outcome.rollout["outcome"] == "promoted", outcome.output
    return outcome


def of(site: Site, revision: str) -> list[dict[str, t.Any]]:
    return [record for record in site.records() if record["revision"] == revision]


def test_the_others_are_rolled_out_while_one_hangs(site: Site) -> None:
    """Where a new instance is there already, it serves until others replace it."""
    site.variables["rollout_progress_deadline"] = "20s"
    promoted(site.to("1"))
    run = site.to("3")
    lease = Lease(site, run)
    until(
        lambda: "web3" in {record["host"] for record in of(site, "3")}, "a new instance is started"
    )
    site.hang("web3")
    outcome = promoted(run)
    assert re.search(r"waiting for [^:\n]*web3: no answer for ", outcome.output), outcome.output
    assert "its last known state is used until it does [PR-221]" in outcome.output
    assert lease.left > 1, "the lease of a run that is alive never comes near its end"
    assert site.serving() == 6
    assert {record["host"] for record in of(site, "3") if "ended" not in record} >= {"web1", "web2"}
    site.mend("web3")
    promoted(site.to("3"))
    assert site.revisions() == ["3"] * 6


def test_a_host_that_hangs_after_the_switch_is_named_and_waited_for(site: Site) -> None:
    """In the one task that replaces, promotes and finishes: no old instance is left there."""
    site.variables |= {
        "rollout_replicas": 3,
        "rollout_strategy": "blue_green",
        "rollout_hold": "2s",
    }
    promoted(site.to("1"))
    run = site.to("2")
    until(lambda: site.journal()["rollout"]["phase"] == "holding", "the requests are switched")
    site.hang("web3")
    until(lambda: "web3 does not answer" in run.output, "the host is named")
    until(lambda: "unreachable 2" in run.output, "what it has is not forgotten")
    until(lambda: site.revisions() == ["1", "2", "2", "2"], "the other hosts are finished")
    site.mend("web3")
    outcome = promoted(run)
    assert "not stopped" not in outcome.output and site.revisions() == ["2"] * 3
