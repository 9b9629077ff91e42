# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollback to a revision that cannot be started any more."""

from __future__ import annotations

import sys

from ansible_collections.progressive.rollout.tests.support.playbook import Playground


def test_a_rollback_to_what_cannot_be_started_any_more_is_refused_and_leaves_nothing(
    playground: Playground,
) -> None:
    """As where the image of the revision before was pruned on one host, and the registry does
    not have it.
    """
    for revision in ("1", "2"):
        (playground.home / f"shop-{revision}").symlink_to(sys.executable)
    _python, *rest = playground.variables["rollout_platform"]["command"]
    command = [f"{playground.home}/shop-{{revision}}", *rest]
    platform = {
        "rollout_platform": {**playground.variables["rollout_platform"], "command": command}
    }
    assert playground.run(variables=platform).rc == 0
    assert playground.run(variables={**platform, "rollout_revision": "2"}).rc == 0
    (playground.home / "shop-1").unlink()
    pids = [record["pid"] for record in playground.living()]

    refused = playground.run("progressive.rollout.rollback", platform)
    assert (
        refused.rc != 0
        and "shop cannot be rolled back to 1" in refused.failed.msg
        and "shop-1" in refused.failed.msg
    )
    assert "nothing was touched" in refused.failed.msg
    assert [record["pid"] for record in playground.living()] == pids and len(
        playground.records()
    ) == 3
    record = playground.journal()["rollout"]
    assert (record["phase"], record["revision"], record["outcome"]) == (
        "finished",
        "2",
        "promoted",
    ), "no rollout is left behind"

    (playground.home / "shop-1").symlink_to(sys.executable)
    again = playground.run("progressive.rollout.rollback", platform)
    assert again.rc == 0, again.output
    assert playground.revisions() == ["1"] * 3
