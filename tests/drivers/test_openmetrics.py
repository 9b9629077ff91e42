# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics of rollouts in a real Prometheus, over a real node_exporter and Pushgateway, with the
dashboard and the alert rules of the documentation.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import typing as t
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.report.openmetrics import (
    HELP,
    exposition,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Record
from ansible_collections.progressive.rollout.tests.support.memory import Service, World
from ansible_collections.progressive.rollout.tests.support.pages import ROOT
from ansible_collections.progressive.rollout.tests.support.ports import free_port
from ansible_collections.progressive.rollout.tests.support.prometheus import Prometheus
from ansible_collections.progressive.rollout.tests.support.waiting import until

MONITORING = ROOT / "docs/examples/monitoring"
RECORDED = ROOT / "tests/support/recorded/rollout.json"
SERVICES = "cart|demo|shop"  # as Grafana sends a choice of several
PATHS = "/usr/bin:/usr/sbin:/usr/local/bin"


def program(name: str) -> str:
    found = shutil.which(name, path=PATHS)
    assert found, f"these tests need {name}: run scripts/system-packages"
    return found


@contextmanager
def served(name: str, *options: str) -> Iterator[str]:
    """Run a server with a web page at a free port; yield its address."""
    address = f"127.0.0.1:{free_port()}"
    command = [program(name), f"--web.listen-address={address}", *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: process.poll() is not None or answers(address), f"{name} at {address}")
        yield address
    finally:
        process.kill()
        process.wait()


def answers(address: str) -> bool:
    try:
        return requests.get(f"http://{address}/metrics", timeout=5).ok
    except requests.RequestException:
        return False


def promtool(*words: str, given: str | None = None) -> str:
    command = [program("promtool"), *words]
    ended = subprocess.run(command, capture_output=True, text=True, input=given, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def shop(tmp_path: Path, **options: t.Any) -> Service:
    """A service whose second rollout failed."""
    store = {"driver": "file", "path": str(tmp_path / "store")}
    given = {"replicas": 3, "store": store, "metrics": options}
    service = Service(World(fewest=0, most=9), **given)
    service.play(revision="1")
    failing = {"confirm_promotion": [{"driver": "command", "command": ["/nowhere"]}]}
    with pytest.raises(RolloutFailed):
        service.play(revision="2", gates=failing)
    assert not any("PR-632" in line for line in service.said), service.said
    return service


def test_prometheus_knows_a_rollout_by_node_exporter_and_by_a_pushgateway(tmp_path: Path) -> None:
    textfiles = tmp_path / "textfiles"
    textfiles.mkdir()
    alone = ["--collector.disable-defaults", "--collector.textfile"]
    with (
        served(
            "prometheus-node-exporter", *alone, f"--collector.textfile.directory={textfiles}"
        ) as node,
        served("prometheus-pushgateway") as gateway,
        Prometheus({"node": f"{node}/metrics", "push": f"{gateway}/metrics"}) as prometheus,
    ):
        shop(tmp_path, textfile=f"{textfiles}/shop.prom", pushgateway=f"http://{gateway}")
        for job in ("node", "push"):
            labels = f'job="{job}"' if job == "node" else 'exported_job="rollout"'
            back = prometheus.until(f'rollout_outcome{{{labels},outcome="rolled_back"}} == 1')
            assert back[0]["metric"].get("exported_service", back[0]["metric"]["service"]) == "shop"
            (info,) = prometheus.query(f"rollout_info{{{labels}}}")
            assert (info["metric"]["revision"], info["metric"]["previous"]) == ("2", "1")
            ready = f'rollout_instances{{{labels},side="old",state="ready"}}'
            assert prometheus.query(ready)[0]["value"][1] == "3"
        assert prometheus.query('node_textfile_scrape_error{job="node"}')[0]["value"][1] == "0"
    assert not [one for one in textfiles.iterdir() if one.suffix != ".prom"]


def queries() -> Iterator[tuple[str, str]]:
    """Every query of the dashboard, with what its legend shows."""
    dashboard = json.loads((MONITORING / "rollouts.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target.get("legendFormat", "")


def judged() -> str:
    """Return the metrics of a canary that was recorded, when an analysis has just decided."""
    found = json.loads(RECORDED.read_text())
    kinds = [event["kind"] for event in found["events"]]
    promoted = {**found["rollout"], "outcome": "promoted"}
    now = {
        **found["rollout"],
        "phase": "progressing",
        "asked": 20,
        "sent": {"new": 159, "all": 992},
    }
    record = Record.load(found["service"], {"rollout": now, "history": [promoted]})
    return exposition(record, found["events"][: kinds.index("verdict") + 1], None)


def test_each_panel_of_the_dashboard_shows_series(tmp_path: Path) -> None:
    (tmp_path / "rollout.prom").write_text(judged())
    alone = ["--collector.disable-defaults", "--collector.textfile"]
    textfile = f"--collector.textfile.directory={tmp_path}"
    with (
        served("prometheus-node-exporter", *alone, textfile) as node,
        Prometheus({"node": f"{node}/metrics"}) as prometheus,
    ):
        prometheus.until("rollout_info")
        for query, legend in queries():
            found = prometheus.query(query.replace("$service", SERVICES))
            assert found, query
            for label in re.findall(r"\{\{(\w+)\}\}", legend):
                assert all(label in series["metric"] for series in found), (query, label)
            assert not prometheus.query(query.replace("$service", "another"))


def test_what_the_dashboard_and_the_rules_ask_for_is_there() -> None:
    asked_for = [query for query, _legend in queries()]
    found = "\n".join([*asked_for, (MONITORING / "rollout-rules.yml").read_text()])
    asked = set(re.findall(r"\brollout_[a-z_]+", found))
    assert asked and not asked - HELP.keys()
    ids = [
        panel["id"] for panel in json.loads((MONITORING / "rollouts.json").read_text())["panels"]
    ]
    assert len(set(ids)) == len(ids)


def test_the_rules_do_what_they_say() -> None:
    assert "6 rules found" in promtool("check", "rules", str(MONITORING / "rollout-rules.yml"))
    promtool("test", "rules", str(MONITORING / "rollout-rules.test.yml"))


def test_promtool_finds_nothing_wrong_with_the_metrics(tmp_path: Path) -> None:
    service = shop(tmp_path)
    record = service.journal
    assert record.rollout
    text = exposition(record, service.timeline(record.rollout.id), None)
    promtool("check", "metrics", given=text)
