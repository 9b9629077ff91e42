# SPDX-License-Identifier: GPL-3.0-or-later
"""A transport as an action plugin has one, without a playbook."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping
from pathlib import Path

from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import (
    Connections,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.transport import Transport

Hosts = Mapping[str, Mapping[str, t.Any]]


def connect(
    hosts: Hosts, file: Path, keywords: Mapping[str, t.Any] | None = None, forks: int = 50
) -> Transport:
    """To hosts with these variables; each second one is in the group `odd`. The inventory is
    written to `file`, *.json.
    """
    odd = {name: None for number, name in enumerate(hosts) if number % 2}
    # json is yaml
    file.write_text(json.dumps({"all": {"hosts": hosts, "children": {"odd": {"hosts": odd}}}}))
    loader = DataLoader()
    inventory = InventoryManager(loader, sources=[str(file)])
    manager = VariableManager(loader, inventory)
    hostvars = HostVars(inventory, manager, loader)
    task_vars = manager.get_vars() | {"hostvars": hostvars, "groups": inventory.get_groups_dict()}
    return Transport(Connections(task_vars, PlayContext(), loader, keywords), forks)
