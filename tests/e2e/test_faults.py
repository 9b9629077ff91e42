# SPDX-License-Identifier: GPL-3.0-or-later
"""What befalls hosts: how each rollout ends then, and what it says. Units of systemd on real hosts,
over SSH, behind HAProxy.

A load balancer that is restarted: tests/e2e/test_zero_failed.py.
"""

from __future__ import annotations

import json
import typing as t
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from ansible_collections.progressive.rollout.tests.support.host_image import KNOWN_HOSTS
from ansible_collections.progressive.rollout.tests.support.hosts import Hosts
from ansible_collections.progressive.rollout.tests.support.playbook import (
    Outcome,
    Playground,
    Run,
)
from ansible_collections.progressive.rollout.tests.support.shared import Shared
from ansible_collections.progressive.rollout.tests.support.shop import BehindHAProxy, Load, failures
from ansible_collections.progressive.rollout.tests.support.waiting import LONG, until

pytestmark = pytest.mark.long
STRANGER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8bGHmgKGp0nYQ9r1XqAwKxzXkGmZsB8T4dA0kH0v0o"
READY = "/run/shop-{revision}"  # a new instance is not ready before there is this file on its host
SSH = (
    "iptables --{} INPUT --protocol tcp --destination-port 22 --jump REJECT --reject-with tcp-reset"
)


class Site(Playground):
    """The service `shop` on three hosts, one instance on each, and room for one more."""

    def __init__(self, hosts: Hosts, front: BehindHAProxy) -> None:
        super().__init__()
        self.machines, self.front = hosts, front
        self.inventory()
        self.revision = 0  # the last one rolled out
        self.off: set[str] = set()  # hosts that are switched off
        self.variables |= {
            "rollout_platform": {
                "driver": "systemd",
                "hosts": "shop",
                "ports": "8100-8199",
                "command": ["/usr/bin/python3", "-I", "-S", "/opt/shop/app.py"],
                "env": {"READY_FILE": READY},
                "stop_timeout": "5s",
            },
            "rollout_traffic": front.traffic,
            "rollout_health": {"http": "/healthz", "interval": "200ms", "rise": 1},
        }

    def inventory(self, **other: dict[str, t.Any]) -> None:
        """Write it, with other variables of some hosts."""
        common = {"ansible_become": True, "ansible_ssh_timeout": 5}
        known = {
            name: {**self.machines.variables(name), **common, **other.get(name, {})}
            for name in self.machines.names
        }
        (self.home / "hosts.json").write_text(
            json.dumps({"all": {"children": {"shop": {"hosts": known}}}})
        )

    def sh(self, name: str, script: str) -> str:
        return self.machines.run(name, "/bin/sh", "-ec", script)

    def make_ready(self, *names: str) -> None:
        """Let the last revision's instances become ready."""
        for name in names or self.machines.names:
            self.sh(name, f"touch {READY.format(revision=self.revision)}")

    def begin(self, **variables: t.Any) -> Run:
        """Begin the rollout of the next revision, up to where the first new instance waits to be
        ready.
        """
        self.revision += 1
        before = len(self.front.known())
        run = self.start(variables={"rollout_revision": str(self.revision), **variables})
        until(
            lambda: len(self.front.known()) > before or run.process.poll() is not None,
            "a new instance is started",
            LONG,
        )
        assert run.process.poll() is None, run.output
        return run

    def says(self, run: Run, text: str) -> None:
        """Wait until a run has said it."""
        try:
            until(lambda: text in run.output or run.process.poll() is not None, text, LONG)
        except AssertionError:
            raise AssertionError(f"not said: {text}\n{run.output}") from None
        assert text in run.output, run.output

    def promoted(self, run: Run) -> Outcome:
        outcome = run.wait()
        assert outcome.rc == 0 and outcome.rollout["outcome"] == "promoted", outcome.output
        return outcome

    def refused(self, **variables: t.Any) -> str:
        """What a rollout says that is refused, with nothing touched."""
        before = self.units(), self.journal()
        outcome = self.run(variables={"rollout_revision": "refused", **variables})
        assert outcome.rc != 0 and outcome.failed.action.endswith("begin"), outcome.output
        assert (self.units(), self.journal()) == before
        return outcome.failed.msg

    def units(self) -> Counter[str]:
        """How many units of each revision run, on all hosts that are switched on."""
        found: Counter[str] = Counter()
        for name in set(self.machines.names) - self.off:
            lines = self.sh(name, "cat /var/lib/rollout/env/* 2>&1 || true").splitlines()
            running = self.sh(
                name, "systemctl list-units --plain --no-legend 'shop@*'"
            ).splitlines()
            revisions = [
                line.partition("=")[2].strip('"') for line in lines if line.startswith("REVISION=")
            ]
            assert len(running) == len(revisions), (name, running, lines)
            found.update(revisions)
        return found

    def settled(self) -> None:
        """There are three instances of the last revision, in rotation, and nothing else
        anywhere.
        """
        assert self.units() == {str(self.revision): 3}
        assert len(self.front.serving()) == 3 and self.front.known() == self.front.serving()


@contextmanager
def made_site() -> Iterator[Site]:
    front = BehindHAProxy()
    try:
        with Hosts("web1", "web2", "web3") as hosts, Site(hosts, front) as made:
            run = made.begin()
            made.make_ready()
            made.promoted(run)
            made.settled()
            yield made
    finally:
        front.close()


@pytest.fixture(scope="module")
def sites() -> Iterator[Shared[Site]]:
    with Shared(made_site) as sites:
        yield sites


@pytest.fixture
def site(sites: Shared[Site], request: pytest.FixtureRequest) -> Iterator[Site]:
    with sites.lend(request) as site:
        yield site


@contextmanager
def no_request_fails(site: Site) -> Iterator[None]:
    with Load(site.front.url, (("GET", True), ("POST", False)), connections=2, rate=40) as load:
        yield
        assert failures(load.stop()) == []


def test_hosts_that_do_not_let_us_in_are_named_with_the_reason(site: Site) -> None:
    """A wrong password for sudo, and a host key that changed."""
    known = site.home / "known_hosts"
    known.write_text(f"* {STRANGER}\n")
    clerk = {**site.machines.variables("web1", "clerk"), "ansible_become_password": "not this one"}
    arguments = site.machines.variables("web2")["ansible_ssh_common_args"].replace(
        str(KNOWN_HOSTS), str(known)
    )
    site.inventory(
        web1=clerk,
        web2={"ansible_ssh_common_args": arguments, "ansible_control_path_dir": str(site.home)},
    )
    message = site.refused()
    site.inventory()
    assert "web1: Incorrect sudo password; check ansible_become_password" in message
    assert (
        f"web2: its host key is not the known one ({known}:1); if the host was installed anew,"
        " remove the old" in message
    )
    assert "web3" not in message and "not this one" not in message


def test_ssh_refused_for_a_while(site: Site) -> None:
    with no_request_fails(site):
        run = site.begin()
        site.sh("web2", SSH.format("append"))
        site.says(run, "  unreachable ")
        site.make_ready()
        site.sh("web2", SSH.format("delete"))
        site.promoted(run)
    site.settled()


@contextmanager
def small_disk(site: Site, host: str) -> Iterator[None]:
    """What is recorded on a host is on a disk of its own meanwhile."""
    site.sh(
        host,
        "mount -t tmpfs -o size=512k rollout /mnt; cp -a /var/lib/rollout/. /mnt; mount --bind /mnt"
        " /var/lib/rollout",
    )
    yield
    site.sh(
        host,
        "umount /var/lib/rollout; cp -a /mnt /var/lib/new; umount /mnt; rm -r /var/lib/rollout; mv"
        " /var/lib/new /var/lib/rollout",
    )


def test_a_disk_that_is_full(site: Site) -> None:
    """An instance that cannot be started there is started elsewhere. One that cannot be stopped
    is waited for.
    """
    serving = {address for address, _port in site.front.serving()}
    host = next(name for name, address in site.machines.addresses.items() if address in serving)
    fill = "cat /dev/zero >/var/lib/rollout/full || true"
    with small_disk(site, host), no_request_fails(site):
        run = site.begin()
        site.sh(host, fill)
        site.make_ready()
        site.says(
            run,
            f"retrying: cannot know what runs on {host}: [Errno 28] No space left on device:"
            f" '/var/lib/rollout/{host}/",
        )
        site.sh(host, "rm /var/lib/rollout/full")
        site.promoted(run)
        site.settled()
        site.sh(host, fill)
        assert (
            "rollout_platform.path: the file system of /var/lib/rollout is full; make room (on"
            f" {host})" in site.refused()
        )
        site.sh(host, "rm /var/lib/rollout/full")


def test_a_host_that_is_switched_off_in_the_middle_is_gone_on_without(site: Site) -> None:
    """It is off at the moment when a new instance on it is to become ready. What is promised of
    requests begins when the load balancer has noticed: those that it sent there before are lost.
    """
    run = site.begin(rollout_budget={"max_surge": 3, "max_unavailable": 0})
    until(lambda: len(site.front.known()) == 6, "new instances are started everywhere", LONG)
    site.machines.kill("web3")
    site.off = {"web3"}
    off = site.machines.addresses["web3"]
    until(
        lambda: all(address != off for address, _port in site.front.serving()),
        "the load balancer notices",
        60,
    )
    with no_request_fails(site):
        site.make_ready("web1", "web2")
        outcome = site.promoted(run)
        assert (
            "on web3 not stopped: host unreachable" in outcome.output
            and "[PR-610]" in outcome.output
        )
        assert len(site.front.serving()) == 3 and all(
            address != off for address, _port in site.front.serving()
        )
        message = site.refused()
        assert "rollout_platform.hosts: cannot look at web3: " in message and "[PR-200]" in message
        assert site.units() == {str(site.revision): 3}
        site.machines.start("web3")
        site.off = set()
        again = site.run(variables={"rollout_revision": str(site.revision)})
        assert again.rc == 0, again.output
    site.settled()
