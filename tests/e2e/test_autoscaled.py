# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/examples/autoscaled under load: its autoscaler is managed while instances move, and put
back however the rollout ends.

Its autoscaler, command and playbook are as they stand; hosts, load balancer and paths are local.
"""

from __future__ import annotations

import json
import sys
import threading
import typing as t
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import yaml
from ansible_collections.progressive.rollout.tests.support.playbook import ROOT
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindHAProxy,
    Load,
    Shop,
    failures,
    kill_all,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

EXAMPLE = ROOT / "docs/examples/autoscaled"
ORIGINAL = {"min": 2, "max": 12}
RATE = 100  # requests a second, of each kind of client
ROLLOUT = str(EXAMPLE / "rollout.yml")


class Site(Shop):
    """The example's service on hosts of this machine."""

    def __init__(self, front: BehindHAProxy) -> None:
        shop = yaml.safe_load((EXAMPLE / "group_vars/all.yml").read_text())
        given = {"rollout_autoscaler": shop["rollout_autoscaler"]}
        named = ("rollout_replicas", "rollout_budget", "rollout_min_ready")
        super().__init__(front, rollout_lease=5, **given, **{name: shop[name] for name in named})
        self.bounds, program = self.home / "autoscaler.json", self.home / "bounds.py"
        self.bounds.write_text(json.dumps(ORIGINAL))
        text = (EXAMPLE / "bounds.py").read_text().replace("/etc/shop", str(self.home))
        program.write_text(text)
        for name in ("get", "set"):
            words = given["rollout_autoscaler"][name]
            assert words[:2] == ["/usr/bin/python3", "/opt/shop/bin/bounds.py"]
            words[:2] = [sys.executable, str(program)]

    def read(self) -> dict[str, int]:
        return dict(json.loads(self.bounds.read_text()))

    @property
    def put_back(self) -> bool:
        return self.read() == ORIGINAL and not self.journal().get("autoscaler")


class Autoscaler:
    """It looks every 20 ms whether it may act: it would remove instances down to its minimum."""

    def __init__(self, site: Site) -> None:
        self.site, self.looks = site, 0
        self.acts: list[str] = []
        self._end, self._thread = threading.Event(), threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._end.wait(0.02):
            before, revisions, after = self.site.read(), self.site.revisions(), self.site.read()
            self.looks += len(set(revisions)) > 1
            if len(set(revisions)) > 1 and before["min"] < 6 > after["min"]:
                self.acts.append(f"{revisions} at {after}")

    def __enter__(self) -> Autoscaler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    with ExitStack() as stack:
        front = BehindHAProxy()
        stack.callback(front.close)
        made = stack.enter_context(Site(front))
        made.to("1")
        yield made


def changed(site: Site) -> t.Any:
    """Whether instances of two revisions live, with the autoscaler changed."""
    return site.read() != ORIGINAL and len(set(site.revisions())) > 1


def test_it_never_acts_on_a_rollout_and_is_put_back_on_every_exit(site: Site) -> None:
    with Load(site.fronts[0].url, connections=2, rate=RATE) as load, Autoscaler(site) as scaler:
        outcome = site.run(ROLLOUT, {"rollout_revision": "2"})
        assert outcome.rc == 0 and site.put_back, outcome.output
        site.settled("2")
        wrong = {"rollout_gates": {"post_rollout": [{"driver": "command", "command": ["false"]}]}}
        outcome = site.run(ROLLOUT, {"rollout_revision": "3", **wrong})
        assert outcome.rollout["outcome"] == "rolled_back" and site.put_back, outcome.output
        site.settled("2")
        run = site.start(ROLLOUT, {"rollout_revision": "4"})
        until(lambda: changed(site), "the rollout moves")
        kill_all(run, site)
        assert site.journal()["autoscaler"]["original"] == ORIGINAL != site.read()
        outcome = site.run(ROLLOUT, {"rollout_revision": "4"})
        assert outcome.rc == 0 and site.put_back, outcome.output
        site.settled("4")
        reports = load.stop()
    assert failures(reports) == []
    assert scaler.looks > 0 and scaler.acts == []
