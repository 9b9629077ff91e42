# SPDX-License-Identifier: GPL-3.0-or-later
"""Fragments of the changelog, and the version, which several files have."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import yaml
from ansible_collections.progressive.rollout.tests.support.playbook import ROOT

FRAGMENTS = sorted((ROOT / "changelogs/fragments").glob("*.yml"))
VERSION = yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"]
PART = re.compile(r"[^:;]{1,70}? - \S")


def load(path: str | Path) -> t.Any:
    return yaml.safe_load((ROOT / path).read_text())


def test_the_part_of_each_change_is_named() -> None:
    """In fragments, and in what was released of them."""
    releases = load("changelogs/changelog.yaml")["releases"].values()
    sections = {name for name, _title in load("changelogs/config.yaml")["sections"]}
    for changes in (*map(load, FRAGMENTS), *(release["changes"] for release in releases)):
        for section, entries in changes.items():
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
