# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all tests share: Hypothesis without clocks, seeds, the tiers' marks, and who runs beside
whom.
"""

from __future__ import annotations

import functools
from pathlib import Path
from random import Random

import hypothesis
import pytest
from ansible_collections.progressive.rollout.tests.support import seeds
from hypothesis.configuration import set_hypothesis_home_dir
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

TESTS = Path(__file__).parent
FAST = ("unit", "property")  # folders that `make quick` runs whole

set_hypothesis_home_dir(str(TESTS.parent / ".cache" / "hypothesis"))
hypothesis.settings.register_profile("checkout", seeds.examples(100))
hypothesis.settings.load_profile("checkout")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "quick: also run by `make quick`, as all of tests/unit and tests/property"
    )
    config.addinivalue_line(
        "markers",
        "seeded: draws at random; `make soak` runs it with other seeds (set by conftest.py)",
    )


def pytest_report_header() -> str:
    return f"seed {seeds.SEED}, examples: {seeds.PROFILE}"


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> Random:
    """Random numbers of the test's own."""
    return seeds.dice(request.node.name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(TESTS).parts[0] in FAST:
            item.add_marker(pytest.mark.quick)
        if "dice" in item.fixturenames or hypothesis.is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.seeded)
    # they take longest: first, or all wait for them
    items.sort(key=lambda item: not _shares(item.nodeid))


class ByFixtures(LoadScopeScheduling):
    """Tests of a file with a fixture for all of them go to one worker, others wherever one is free.

    Groups of `--dist loadgroup` depend on internals of pytest that are gone.
    """

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0] if _shares(nodeid) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFixtures:
    return ByFixtures(config, log)


def _shares(nodeid: str) -> bool:
    """Whether a test shares a fixture with others of its file, which is made once."""
    return _has_module_fixture(TESTS.parent / nodeid.partition("::")[0])


@functools.cache
def _has_module_fixture(file: Path) -> bool:
    return 'scope="module"' in file.read_text()
