# SPDX-License-Identifier: GPL-3.0-or-later
"""What real units and containers use of a real host, new ones against an old one beside them."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis import judging, spec
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis.judging import (
    Measurement,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.threshold import (
    AnalysisPhase,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.gates import analysis
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces import loader
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.metric import Question
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Labels,
    PlatformDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.metrics import saturation
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.transport import Transport
from ansible_collections.progressive.rollout.tests.support.connect import connect
from ansible_collections.progressive.rollout.tests.support.contexts import Knows
from ansible_collections.progressive.rollout.tests.support.hosts import Hosts

# What each new instance does beside a little work, as the old one does; and what is said of it. Of
# a leak either its slope or its level is found first.
KINDS = {
    "burns": "burns: CPU time is at least",
    "leaks": "leaks: resident memory ",
    "files": "files: number of open files ",
    "ends": "ends: number of restarts is",
    "held": "held: time held by the CPU limit is at least",
    "good": "no more than stable ones",
}
# Its work is done by a process of its own, as by many servers, and takes as much CPU time on a quick
# machine as on a slow one: what has nothing to do is compared with nothing.
PROGRAM = """
import os, sys, time
kind, kept, begun = sys.argv[1], [], time.monotonic()
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
while True:
    end = time.process_time() + 0.005
    while time.process_time() < end:
        pass
    if kind == "leaks":
        kept.append(b"x" * 2**20)
    if kind == "files":
        kept += [open(os.devnull) for _n in range(4)]
    if kind == "ends" and time.monotonic() > begun + 2:
        sys.exit(1)
    while kind in ("burns", "held") and time.monotonic() % 1 < 0.9:
        pass
    time.sleep(0.1)
"""
SHOP = {"image": "localhost/shop:1", "container_port": 8080}
UNHELD = [name for name in KINDS if name != "held"]
LOOK = 1.0  # s between two looks, so that CPU time is more than a few ticks of the kernel's clock
PATIENCE = 120.0  # s


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts("web1") as made:
        made.run("web1", "podman", "load", "--quiet", "--input", "/opt/shop/images.tar")
        yield made


@pytest.fixture(scope="module")
def transport(hosts: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transport]:
    variables = {"web1": {**hosts.variables("web1"), "ansible_become": True}}
    made = connect(variables, tmp_path_factory.mktemp("inventory") / "hosts.json")
    yield made
    made.close()


def platform(driver: str, transport: Transport, **options: t.Any) -> PlatformDriver:
    """A driver whose instances do what their ids say."""
    script = PROGRAM.replace("{", "{{").replace("}", "}}")
    command = ["-c", script, "{instance}"]
    own = {
        "systemd": {"command": ["/usr/bin/python3", *command]},
        "podman": {**SHOP, "args": ["--entrypoint=/usr/bin/python3"], "command": command},
    }
    module = loader.load(PlatformDriver, driver, "rollout_platform")
    given = {"hosts": "web1", "ports": "20100-20199", **own[driver], **options}
    context = DriverContext(f"used-{driver}", transport, known=Knows(epoch=1))
    return t.cast("PlatformDriver", module.driver(module.check(given, "rollout_platform"), context))


def begin(driver: PlatformDriver, *ids: str, taken: tuple[Labels, ...] = ()) -> tuple[Labels, ...]:
    """Start instances; the old one has the generation 1."""
    service = driver.context.service  # type: ignore[attr-defined]
    places = zip(ids, driver.place(len(ids), taken, 2), strict=True)
    started = tuple(
        Labels(name, service, "1", 1 if name == "old" else 2, host, endpoint, slot)
        for name, (host, endpoint, slot) in places
    )
    driver.sync(start=started)
    return started


def verdicts(driver: PlatformDriver, transport: Transport) -> dict[str, Measurement]:
    """Measure until all that is wrong is found, and there is enough of the one that is good."""
    metric = {"name": "saturation", "driver": "saturation", "warm_up": "3s"}
    (known,) = spec.parse(
        analysis.OPTIONS.parse({"metrics": [metric]}, "gate."), "gate", ()
    ).metrics
    asked = saturation.Driver(
        known.options, DriverContext("used", transport, platform=lambda _transport: driver)
    )
    states: dict[str, judging.State] = {name: {} for name in KINDS}
    found: dict[str, Measurement] = {}
    end, rollout = time.monotonic() + PATIENCE, {"generation": 2}
    while len(found) < len(KINDS):
        assert time.monotonic() < end, f"not found: {KINDS.keys() - found.keys()}"
        result = asked.measure(Question(rollout, 0.0, clock.now(), True, True))
        used = result["usage"]
        for name in KINDS:
            alone = {name: used["new"][name]} if name in used["new"] else {}
            judged = judging.judge_result(
                known, states[name], {**result, "usage": {**used, "new": alone}}
            )
            over = judged.phase is AnalysisPhase.FAILED
            if over or (name == "good" and not judged.lacking):
                found.setdefault(name, judged)
        time.sleep(LOOK)
    return found


def told(driver: PlatformDriver, transport: Transport) -> None:
    found = verdicts(driver, transport)
    driver.sync(stop=[*KINDS, "old"])  # they would take the CPU from others
    for name, words in KINDS.items():
        assert words in found[name].sentence, found[name]


def test_what_units_use(hosts: Hosts, transport: Transport) -> None:
    driver = platform("systemd", transport)
    folder = "/etc/systemd/system/used-systemd@5.service.d"
    limit = f"mkdir -p {folder}; printf '[Service]\\nCPUQuota=10%%\\n' >{folder}/cpu.conf"
    hosts.run("web1", "/bin/sh", "-ec", limit)
    taken = begin(driver, *UNHELD)
    assert max(one.slot for one in taken) == 4
    begin(driver, "held", "old", taken=taken)
    told(driver, transport)


def test_what_containers_use(transport: Transport) -> None:
    driver = platform("podman", transport, restart="always")
    taken = begin(driver, "old", *UNHELD)
    begin(platform("podman", transport, cpus="0.1"), "held", taken=taken)
    told(driver, transport)
