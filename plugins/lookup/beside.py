# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find a file of the user that a playbook or role of the collection reads."""

from __future__ import annotations

DOCUMENTATION = r"""
name: beside
short_description: Find a file of yours that a playbook of the collection reads
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Looks for a file next to the playbooks on the command line, next to the current playbook unless it belongs to a collection, in the
    working directory, and next to the inventory, in this order. The playbooks on the command line themselves are skipped.
options:
  _terms:
    description: Paths. An absolute path is used as it is.
    required: true
    type: list
    elements: str
  variable:
    description: The variable that the paths come from, for messages.
    type: str
    default: path
"""

EXAMPLES = r"""
- name: Include the user's own tasks
  ansible.builtin.include_tasks:
    file: "{{ lookup('progressive.rollout.beside', rollout_prepare_tasks, variable='rollout_prepare_tasks') }}"
"""

RETURN = r"""
_raw:
  description: The absolute path of each file.
  type: list
  elements: str
"""

import os
import typing as t
from collections.abc import Iterator, Mapping
from pathlib import Path

from ansible import context
from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):
    """The lookup."""

    def run(
        self, terms: list[t.Any], variables: Mapping[str, t.Any] | None = None, **kwargs: t.Any
    ) -> list[str]:
        """Return the absolute path of each file; raise AnsibleLookupError for a missing one."""
        places = list(dict.fromkeys(os.path.abspath(place) for place in _places(variables or {})))
        return [_find(str(term), places, kwargs.get("variable", "path")) for term in terms]


def _find(path: str, places: list[str], variable: str) -> str:
    if not path:
        raise AnsibleLookupError(f"{variable}: not given, but required [PR-102]")
    path = os.path.expanduser(path)
    playbooks = {os.path.abspath(playbook) for playbook in context.CLIARGS.get("args") or ()}
    candidates = (whole for place in places if os.path.isfile(whole := os.path.join(place, path)))
    project_file = next(
        (whole for whole in candidates if os.path.abspath(whole) not in playbooks), None
    )
    if project_file is None:
        looked = "it is absolute" if os.path.isabs(path) else f"looked in {', '.join(places)}"
        raise AnsibleLookupError(
            f"{variable}: file {path} not found: {looked}; correct the path [PR-113]"
        )
    return project_file


def _places(variables: Mapping[str, t.Any]) -> Iterator[str]:
    """Yield the directories in which a file may be, the likeliest first."""
    for playbook in context.CLIARGS.get("args") or ():
        if os.path.isfile(playbook):  # others are named by their collection
            yield os.path.dirname(playbook)
    here = str(variables.get("playbook_dir") or "")
    if here and "ansible_collections" not in Path(here).parts:
        yield here
    yield os.getcwd()
    for source in context.CLIARGS.get("inventory") or ():
        if os.path.exists(source):  # others are lists of hosts
            yield source if os.path.isdir(source) else os.path.dirname(source)
    if beside := variables.get("inventory_dir"):
        yield str(beside)
