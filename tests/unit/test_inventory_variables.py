# SPDX-License-Identifier: GPL-3.0-or-later
"""A printed command leaves out what the same inventories and files say anyway."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.utils.vars import load_extra_vars
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.step import (
    inventory_variables,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.command_line import (
    operator_command,
)

STORE = {"driver": "file", "host": "lb1", "path": "/srv/journals"}
WRITTEN = "rollout_service: shop\nrollout_store: {driver: file, host: lb1, path: /srv/journals}\n"


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Any:
    """What is known with these files beside the inventory and the playbook, and these -e."""

    def asked(files: dict[str, str], *extra: str, store: t.Any = STORE) -> frozenset[str]:
        for name, text in {"site/hosts.yml": "all: {hosts: {lb1: }}\n", **files}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        loader = DataLoader()
        loader.set_basedir(str(tmp_path / "playbooks"))
        inventory = InventoryManager(loader, [str(tmp_path / "site/hosts.yml")])
        given = {"service": "shop", "store": store}
        single = {"rollout_store": STORE} if any("rollout_store" in text for text in extra) else {}
        of_files = {} if not extra else {"rollout_service": "shop", "rollout_store": STORE}
        monkeypatch.setattr(
            load_extra_vars, "extra_vars", {**of_files, **single, "rollout_revision": "2"}
        )
        variables = VariableManager(loader, inventory)
        hostvars = HostVars(inventory, variables, loader)
        arguments = {"extra_vars": [*extra, "rollout_revision=2"]}
        return inventory_variables.already_known(
            inventory_variables.FINDING, given, {"hostvars": hostvars}, loader, arguments
        )

    return asked


BOTH = {"rollout_service", "rollout_store"}


@pytest.mark.parametrize(
    "path", ["site/group_vars/all.yml", "site/host_vars/localhost.yml", "site/group_vars/all/a.yml"]
)
def test_variables_beside_the_inventory_are_known(known: t.Any, path: str) -> None:
    assert known({path: WRITTEN}) == BOTH


def test_variables_in_the_inventory_itself_are_known(known: t.Any) -> None:
    inside = "".join(f"    {line}\n" for line in WRITTEN.splitlines())
    assert known({"site/hosts.yml": f"all:\n  hosts: {{lb1: }}\n  vars:\n{inside}"}) == BOTH


def test_variables_in_a_template_are_compared_by_value(known: t.Any) -> None:
    text = WRITTEN.replace("/srv/journals", '"{{ base }}/journals"') + "base: /srv\n"
    assert known({"site/group_vars/all.yml": text}) == BOTH


def test_variables_of_another_value_are_not_known(known: t.Any) -> None:
    files = {"site/group_vars/all.yml": WRITTEN}
    assert known(files, store={**STORE, "path": "/elsewhere"}) == {"rollout_service"}


def test_variables_beside_a_playbook_are_not_known(known: t.Any) -> None:
    assert known({"playbooks/group_vars/all.yml": WRITTEN}) == frozenset()


def test_variables_of_hosts_are_not_those_of_localhost(known: t.Any) -> None:
    assert known({"site/host_vars/lb1.yml": WRITTEN}) == frozenset()


def test_variables_of_a_repeated_file_are_known(known: t.Any) -> None:
    assert known({}, "@shop.yml") == BOTH


def test_single_variables_are_not_repeated(known: t.Any) -> None:
    assert known({}, "@shop.yml", '{"rollout_store": {"path": "/x"}}') == {"rollout_service"}


def test_command_leaves_out_what_is_known() -> None:
    given = {"inventory": ["inventory.yml"]}
    more = {"rollout_store": STORE, "rollout_revision": "2"}
    told = operator_command("abort", "shop", given, more=more, known=BOTH)
    assert told == (
        "ansible-playbook progressive.rollout.abort -i inventory.yml -e rollout_revision=2"
    )
