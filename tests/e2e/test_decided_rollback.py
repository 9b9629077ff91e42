# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollback that was decided is done by whoever comes next, also when the run that decided it is gone."""

from __future__ import annotations

from ansible_collections.progressive.rollout.tests.playbook import Playground


def test_the_next_run_does_the_rollback_that_was_decided(playground: Playground) -> None:
    assert playground.run().rc == 0
    broken = {
        "rollout_revision": "2",
        "rollout_platform": {**playground.variables["rollout_platform"], "command": ["/bin/false"]},
    }
    # A run that ends right after the decision, as if it had been killed there.
    failed = playground.steps({"begin": {}}, {"replace": {}}, variables=broken)
    assert failed.rc != 0 and playground.journal()["rollout"]["phase"] == "rolling_back"

    again = playground.run(variables=broken)
    assert again.rc != 0 and "now rolled back to 1" in again.failed.msg
    assert playground.journal()["rollout"]["outcome"] == "rolled_back"
    assert playground.revisions() == ["1"] * 3
