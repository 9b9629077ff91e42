# SPDX-License-Identifier: GPL-3.0-or-later
"""Which tests `make test-changed` runs: what is loaded by its name, or as a text, is followed, too."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.progressive.rollout.tests.support.playbook import ROOT

UTILS = "plugins/plugin_utils"


@pytest.fixture(scope="module")
def selection() -> t.Any:
    """The script, as a module."""
    spec = importlib.util.spec_from_file_location(
        "changed_tests", ROOT / "scripts" / "changed_tests.py"
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["changed_tests"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("path", "runs", "leaves"),
    [
        (
            f"{UTILS}/traffic/nginx.py",
            ["drivers/test_nginx", "drivers/test_nginx_cohort", "e2e/test_tls", "unit/test_names"],
            ["drivers/test_haproxy", "drivers/test_systemd", "e2e/test_strategies"],
        ),
        (
            f"{UTILS}/agents/nginx.py",  # a text on its host
            ["drivers/test_nginx", "e2e/test_tls"],
            ["drivers/test_haproxy", "drivers/test_postgresql"],
        ),
        (
            f"{UTILS}/agents/_sockdiag.py",  # what the agent of nginx has in a module of its own
            ["drivers/test_nginx", "e2e/test_tls"],
            ["drivers/test_haproxy", "drivers/test_postgresql"],
        ),
        (
            f"{UTILS}/traffic/_haproxy_plan.py",  # of a driver that all playbooks of tests use
            ["drivers/test_haproxy", "e2e/test_strategies"],
            ["drivers/test_nginx", "drivers/test_etcd"],
        ),
        (
            f"{UTILS}/notifiers/webhook.py",
            ["drivers/test_notifiers", "e2e/test_notify"],
            ["drivers/test_haproxy", "e2e/test_strategies"],
        ),
        (
            f"{UTILS}/engine/budget.py",
            [
                "property/test_invariants",
                "property/test_simulated_strategies",  # by what its steps import
                "unit/test_vectors",
                "e2e/test_strategies",
            ],
            [],
        ),
        (
            f"{UTILS}/metrics/load_balancer.py",
            ["property/test_simulated_analyses", "e2e/test_analysis"],
            ["property/test_invariants"],
        ),
        (
            "roles/rolling/tasks/main.yml",
            ["e2e/test_strategies", "e2e/test_plays"],
            ["drivers/test_haproxy", "property/test_invariants"],
        ),
        (f"{UTILS}/pages/templates/report.html.j2", ["unit/test_report"], []),
        ("docs/how-to/nginx.md", ["e2e/test_docs", "unit/test_pages"], ["drivers/test_nginx"]),
        ("tests/unit/test_weights.py", ["unit/test_weights"], ["unit/test_vectors"]),
        ("tests/drivers/traffic_contract.py", ["drivers/test_envoy"], ["drivers/test_etcd"]),
    ],
)
def test_a_change_selects_the_tests_it_can_make_fail(
    selection: t.Any, path: str, runs: list[str], leaves: list[str]
) -> None:
    tests = selection.tests_of([path])
    assert {f"tests/{name}.py" for name in runs} <= tests
    assert not {f"tests/{name}.py" for name in leaves} & tests


@pytest.mark.parametrize("path", ["Makefile", "tests/conftest.py", "requirements/test.txt"])
def test_what_all_tests_rest_on_selects_all(selection: t.Any, path: str) -> None:
    assert selection.tests_of([path, f"{UTILS}/traffic/nginx.py"]) is None


def test_every_file_that_ships_selects_tests_or_all(selection: t.Any) -> None:
    command = ["git", "ls-files", "plugins", "roles", "playbooks", "docs"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    for path in listed.stdout.split():
        assert selection.tests_of([path]) != set(), path
