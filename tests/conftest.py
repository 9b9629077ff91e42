# SPDX-License-Identifier: GPL-3.0-or-later
"""What all tests share: Hypothesis without clocks, seeds, the tiers' marks, and how tests are
divided among workers.
"""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from random import Random

import hypothesis
import pytest
from ansible_collections.progressive.rollout.tests.support import seeds
from hypothesis.configuration import set_hypothesis_home_dir
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

TESTS = Path(__file__).parent
FAST = ("tests/unit/", "tests/property/")  # what `make quick` runs, and nothing else

set_hypothesis_home_dir(str(TESTS.parent / ".cache" / "hypothesis"))
hypothesis.settings.register_profile("checkout", seeds.examples(100))
hypothesis.settings.load_profile("checkout")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "essential: one real path of its kind, run by `make test`, as all of tests/unit and"
        " tests/property; all others are run by `make test-everything`",
    )
    config.addinivalue_line("markers", "slow: left out by `make quick`")
    config.addinivalue_line("markers", "long: takes half a minute or more, so it begins first")
    config.addinivalue_line(
        "markers",
        "seeded: draws at random; `make soak` runs it with other seeds (set by conftest.py)",
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    plugins = session.config.pluginmanager
    if terminal := plugins.get_plugin("terminalreporter"):
        plugins.register(Failures(terminal))


class Failures:
    """Names a failure at once: the summary comes at the end, half an hour later."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.ensure_newline()
            self._terminal.write_line(f"FAILED {report.nodeid} ({report.when})")


def pytest_report_header() -> str:
    return f"seed {seeds.SEED}, examples: {seeds.PROFILE}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many recordings of real servers were replayed, and of which versions."""
    replayed = Counter(
        value
        for report in terminalreporter.stats.get("passed", ())
        for key, value in report.user_properties
        if key == "replayed"
    )
    for server, count in sorted(replayed.items()):
        terminalreporter.write_line(f"{count} recordings of {server} were replayed")


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> Random:
    """Return the test's own source of random numbers."""
    return seeds.dice(request.node.name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(FAST):
            item.add_marker(pytest.mark.essential)
        if "dice" in item.fixturenames or hypothesis.is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.seeded)
    # The longest first, or all workers wait for the last of them at the end.
    items.sort(key=lambda item: (item.get_closest_marker("long") is None, not _shares(item.nodeid)))


class ByFixtures(LoadScopeScheduling):
    """Runs a file with a module's fixture in one worker, and each other test in any that is free."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0] if _shares(nodeid) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFixtures:
    return ByFixtures(config, log)


def _shares(nodeid: str) -> bool:
    """Return whether a test's file has a fixture that is made once for the whole file."""
    return _has_module_fixture(nodeid.partition("::")[0])


@functools.cache
def _has_module_fixture(file: str) -> bool:
    return 'scope="module"' in (TESTS.parent / file).read_text()
