# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a user's own file is looked for, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible import context
from ansible.errors import AnsibleLookupError
from ansible.module_utils.common.collections import ImmutableDict
from ansible_collections.progressive.rollout.plugins.lookup.beside import LookupModule

PLACES = ("project", "play", "working", "sources", "inventory")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A playbook, one that it imports, a working directory, and two sources of an inventory,
    each in a directory of its own.
    """
    for place in PLACES:
        (tmp_path / place).mkdir()
    for path in ("project/rollout.yml", "sources/hosts", "inventory/hosts.yml"):
        (tmp_path / path).touch()
    monkeypatch.chdir(tmp_path / "working")
    given = {
        "args": ["progressive.rollout.rollout", str(tmp_path / "project/rollout.yml")],
        "inventory": [
            "web1,web2,",
            str(tmp_path / "sources"),
            str(tmp_path / "inventory/hosts.yml"),
        ],
    }
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(given))
    return tmp_path


def find(home: Path, path: str, play: str = "play") -> str:
    variables = {"playbook_dir": str(home / play), "inventory_dir": str(home / "inventory")}
    return LookupModule().run([path], variables, variable="rollout_prepare_tasks")[0]


def test_the_places_in_their_order(home: Path) -> None:
    for place in reversed(PLACES):
        (home / place / "prepare.yml").touch()
        assert find(home, "prepare.yml") == str(home / place / "prepare.yml")
    assert find(home, "../sources/prepare.yml") == str(home / "project/../sources/prepare.yml")
    assert find(home, str(home / "working/prepare.yml")) == str(home / "working/prepare.yml")


def test_a_collections_own_playbooks_are_no_place_for_the_users_files(home: Path) -> None:
    play = "ansible_collections/progressive/rollout/playbooks"
    (home / play).mkdir(parents=True)
    for place in (play, "inventory"):
        (home / place / "prepare.yml").touch()
    assert find(home, "prepare.yml", play) == str(home / "inventory/prepare.yml")


def test_a_playbook_is_no_file_of_its_own(home: Path) -> None:
    (home / "inventory/rollout.yml").touch()
    assert find(home, "rollout.yml") == str(home / "inventory/rollout.yml")


def test_where_it_is_not_found_the_message_lists_the_places(home: Path) -> None:
    looked = ", ".join(str(home / place) for place in PLACES)
    with pytest.raises(AnsibleLookupError) as caught:
        find(home, "prepare.yml")
    assert (
        str(caught.value)
        == f"rollout_prepare_tasks: file prepare.yml not found: looked in {looked}; correct the"
        " path [PR-113]"
    )
    with pytest.raises(
        AnsibleLookupError,
        match=r"file /nowhere/x\.yml not found: it is absolute; correct the path \[PR-113\]",
    ):
        find(home, "/nowhere/x.yml")
