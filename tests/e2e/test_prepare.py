# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks of one's own that prepare the hosts before a rollout (`rollout_prepare_tasks`)."""

from __future__ import annotations

import json

from ansible_collections.progressive.rollout.tests.support.playbook import Playground


def test_tasks_of_ones_own_prepare_the_hosts_first(playground: Playground) -> None:
    """On all of them, or nothing is touched."""
    tasks = playground.home / "prepare.yml"
    done = {
        "ansible.builtin.file": {
            "path": f"{playground.home}/{{{{ inventory_hostname }}}}-{{{{ rollout_revision }}}}",
            "state": "touch",
        }
    }
    tasks.write_text(json.dumps([done]))
    playground.variables["rollout_prepare_tasks"] = str(tasks)
    outcome = playground.run()
    assert outcome.rc == 0, outcome.output
    assert sorted(path.name for path in playground.home.glob("web*-1")) == [
        "web1-1",
        "web2-1",
        "web3-1",
    ]

    journal = playground.journal()
    fail = {"ansible.builtin.fail": {"msg": "no room"}, "when": "inventory_hostname == 'web2'"}
    for task in (
        fail,
        {"ansible.builtin.ping": {}, "vars": {"ansible_connection": "ssh", "ansible_port": 1}},
    ):
        tasks.write_text(json.dumps([done, task]))
        outcome = playground.run(variables={"rollout_revision": "2"})
        assert outcome.rc != 0 and playground.journal() == journal
    assert (
        "rollout_prepare_tasks: web1, web2, web3: not prepared, so nothing was touched"
        in outcome.failed.msg
    )
    assert playground.run("progressive.rollout.restart").rc == 0


def test_tasks_of_ones_own_are_found_beside_the_playbook_and_where_they_were_looked_for_is_told(
    playground: Playground,
) -> None:
    """Of an imported playbook `playbook_dir` is the collection's; and the inventory may be
    anywhere.
    """
    project = playground.home / "project"
    project.mkdir()
    (project / "rollout.yml").write_text(
        json.dumps([{"ansible.builtin.import_playbook": "progressive.rollout.rollout"}])
    )
    playground.variables["rollout_prepare_tasks"] = "prepare.yml"
    missing = playground.run(str(project / "rollout.yml"))
    assert missing.rc != 0 and not playground.files()
    assert (
        f"rollout_prepare_tasks: file prepare.yml not found: looked in {project}, /"
        in missing.output
    ), missing.output
    assert f", {playground.home}; correct the path [PR-113]" in missing.output
    (project / "prepare.yml").write_text(
        json.dumps([{"ansible.builtin.debug": {"msg": "ready"}, "name": "Mine"}])
    )
    for inventories in ((), ("-i", "other,")):
        found = playground.run(str(project / "rollout.yml"), {}, *inventories)
        assert found.rc == 0 and len(found.of("Mine")) == 3, found.output
