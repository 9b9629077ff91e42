# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that agents keep on a host."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _files


def test_a_file_is_replaced_at_once_with_the_mode_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "shop.json"
    path.write_text("old")
    before = os.umask(0o077)
    try:
        _files.write(str(path), "new", 0o644)
    finally:
        os.umask(before)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o644)
    assert [file.name for file in tmp_path.iterdir()] == ["shop.json"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_in_the_place_of_the_draft_or_the_file_is_not_followed(
    tmp_path: Path, there: bool
) -> None:
    victim, path = tmp_path / "victim", tmp_path / "shop.json"
    if there:
        victim.write_text("untouched")
        victim.chmod(0o600)
    Path(_files.draft(str(path))).symlink_to(victim)
    path.symlink_to(victim)
    _files.write(str(path), "new", 0o644)
    assert path.read_text() == "new" and not path.is_symlink()
    assert victim.exists() == there
    assert not there or (victim.read_text(), stat.S_IMODE(victim.stat().st_mode)) == (
        "untouched",
        0o600,
    )


def test_a_draft_that_cannot_be_written_is_removed_and_the_file_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as raised:
        _files.write(str(tmp_path / "shop.json"), "new")
    assert raised.value.filename == str(tmp_path / "shop.json") and not list(tmp_path.iterdir())


def test_a_new_holder_removes_the_drafts_that_a_killed_one_left(tmp_path: Path) -> None:
    stem, path = str(tmp_path / "shop"), str(tmp_path / "state")
    for epoch, removed in ((0, False), (7, True), (7, False), (8, True)):
        _files.stage(path, "half")
        with _files.Fenced(stem, epoch, written=[path]):
            assert Path(_files.draft(path)).exists() != removed


def test_an_older_epoch_is_refused_and_a_newer_one_is_kept(tmp_path: Path) -> None:
    stem = str(tmp_path / "new" / "shop")
    for epoch in (3, 3, 5):
        with _files.Fenced(stem, epoch):
            pass
    with pytest.raises(_files.Stale, match=r"epoch 5, ours is 4"), _files.Fenced(stem, 4):
        pytest.fail("it acts")
    with _files.Fenced(stem, 5):
        assert Path(stem + ".epoch").read_text() == "5"


def test_who_only_looks_leaves_nothing_behind_and_waits_for_nobody(tmp_path: Path) -> None:
    stem = str(tmp_path / "new" / "shop")
    with _files.Fenced(stem, 0):
        pass
    assert not list(tmp_path.iterdir())
    with _files.Fenced(stem, 1), _files.Fenced(stem, 0):
        pass


def test_a_lock_that_is_held_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_files, "LOCK_WAIT", 0.05)
    stem = str(tmp_path / "shop")
    with _files.Fenced(stem, 1):
        with (
            pytest.raises(
                _files.Refused, match=r"shop.lock has been locked for 0.05 s; `fuser -v "
            ),
            _files.Fenced(stem, 2),
        ):
            pytest.fail("it acts")
    with _files.Fenced(stem, 2):
        pass


def test_a_lock_or_an_epoch_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    for name in ("lock", "epoch"):
        stem, victim = str(tmp_path / name / "shop"), tmp_path / f"victim-{name}"
        os.mkdir(os.path.dirname(stem))
        victim.write_text("7")
        os.symlink(victim, f"{stem}.{name}")
        with pytest.raises(OSError, match="symbolic links"), _files.Fenced(stem, 9):
            pytest.fail("it acts")
        assert victim.read_text() == "7"


def test_a_damaged_epoch_is_named(tmp_path: Path) -> None:
    (tmp_path / "shop.epoch").write_text("rubbish")
    with (
        pytest.raises(_files.Refused, match="does not hold a number; remove it"),
        _files.Fenced(str(tmp_path / "shop"), 9),
    ):
        pytest.fail("it acts")
