# SPDX-License-Identifier: GPL-3.0-or-later
"""What another playbook knows of a service without being told, from the same inventories."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping

from ansible.errors import AnsibleError
from ansible.inventory.helpers import sort_groups
from ansible.template import Templar
from ansible.utils.vars import combine_vars, load_extra_vars
from ansible.vars.plugins import get_vars_from_inventory_sources

from ...config.variables import PREFIX
from ...inputs import values

FINDING = ("service", "store")  # by which commands find the journal
STAGES = ("inventory", "task")  # when Ansible asks its plugins for variables


def already_known(
    names: Collection[str],
    given: Mapping[str, t.Any],
    task_vars: Mapping[str, t.Any],
    loader: t.Any,
    arguments: Mapping[str, t.Any],
) -> frozenset[str]:
    """Return which of these variables another playbook on localhost has with the same value.

    Args:
        names: Without the prefix.
        given: The values in use.
        task_vars: The variables of this task.
        loader: Ansible's.
        arguments: Those of the command line, as Ansible has parsed them.
    """
    try:
        raw = {
            **_of_inventory(task_vars["hostvars"]._inventory, loader),
            **_of_files(loader, arguments),
        }
        templar = Templar(loader=loader, variables={**task_vars, **raw})
        shared = {
            name: values.data(templar.template(raw[PREFIX + name]))
            for name in names
            if PREFIX + name in raw
        }
    except (AnsibleError, AttributeError, KeyError):  # the commands are longer then
        return frozenset()
    return frozenset(PREFIX + name for name, value in shared.items() if value == given.get(name))


def _of_inventory(inventory: t.Any, loader: t.Any) -> dict[str, t.Any]:
    """Return the variables that localhost has in the inventories, and in files beside them. Those
    beside a playbook are that playbook's.
    """
    host = inventory.get_host("localhost")
    groups = [inventory.groups["all"], *sort_groups(host.get_groups())]
    known: dict[str, t.Any] = {}
    for entity in (*groups, host):
        known = combine_vars(known, entity.get_vars())
        for stage in STAGES:
            more = get_vars_from_inventory_sources(loader, inventory._sources, [entity], stage)
            known = combine_vars(known, more)
    return known


def _of_files(loader: t.Any, arguments: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the variables of the files on the command line, which commands repeat."""
    single = [text for text in map(str, arguments.get("extra_vars") or ()) if text[:1] != "@"]
    return {
        name: value
        for name, value in load_extra_vars(loader).items()
        if not any(name in text for text in single)
    }
