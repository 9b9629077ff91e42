# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fragments of the changelog, and the version, which several files have."""

from __future__ import annotations

import re
import typing as t

import pytest
import yaml
from ansible_collections.progressive.rollout.tests.support.playbook import ROOT

FRAGMENTS = sorted((ROOT / "changelogs/fragments").glob("*.yml"))
VERSION = yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"]
PART = re.compile(r"[^:;]{1,70}? - \S")


def load(path: str) -> t.Any:
    return yaml.safe_load((ROOT / path).read_text())


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=[path.stem for path in FRAGMENTS])
def test_a_fragment_names_the_part_of_each_change(fragment: t.Any) -> None:
    sections = {name for name, _title in load("changelogs/config.yaml")["sections"]}
    for section, entries in yaml.safe_load(fragment.read_text()).items():
        if section == "release_summary":
            continue
        assert section in sections
        for entry in entries:
            assert PART.match(entry), f"write the part first, as in 'haproxy - ...': {entry}"


def test_the_installation_names_the_version() -> None:
    readme = (ROOT / "README.md").read_text()
    assert set(re.findall(r"progressive-rollout-([\d.]+)\.tar\.gz", readme)) == {VERSION}


def test_what_is_documented_was_added_in_a_version() -> None:
    versions = {VERSION, *load("changelogs/changelog.yaml")["releases"]}
    for path in (ROOT / "plugins").glob("*/*.py"):
        for added in re.findall(r"^version_added: (\S+)$", path.read_text(), re.MULTILINE):
            assert added in versions, path
