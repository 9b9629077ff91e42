# SPDX-License-Identifier: GPL-3.0-or-later
"""What the checkout installs is what `scripts/lock` wrote down, down to the hash of each file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"
LOCKED = REQUIREMENTS / "locked"
NO_ENVIRONMENT = ("libs", "constraints")  # read by the other files, and by `scripts/lock`
FILES = sorted(f.stem for f in REQUIREMENTS.glob("*.txt") if f.stem not in NO_ENVIRONMENT)
AGAIN = "run scripts/lock, and commit what it writes"


def _pins(file: Path) -> set[str]:
    """The packages with their versions, without markers, as pip compares names."""
    pins = set()
    for line in file.read_text().splitlines():
        if line.startswith("-r "):
            pins |= _pins(file.parent / line[3:])
        elif pin := re.match(r"([\w.-]+)(?:\[[\w,]+\])?==([\w.+]+)", line):
            pins.add(f"{re.sub(r'[-_.]+', '-', pin[1]).lower()}=={pin[2]}")
    return pins


def test_each_file_is_locked() -> None:
    assert sorted(file.stem for file in LOCKED.iterdir()) == FILES, AGAIN


@pytest.mark.parametrize("name", FILES)
def test_what_is_pinned_is_locked(name: str) -> None:
    missing = _pins(REQUIREMENTS / f"{name}.txt") - _pins(LOCKED / f"{name}.txt")
    assert not missing, f"{name}: {', '.join(sorted(missing))} is not locked: {AGAIN}"


@pytest.mark.parametrize("name", FILES)
def test_no_file_is_installed_without_its_hash(name: str) -> None:
    text = re.sub(r"(?m)^#.*\n", "", (LOCKED / f"{name}.txt").read_text())
    blocks = re.split(r"\n(?=\S)", text.strip())
    without = [b for b in blocks if not re.search(r" \\\n    --hash=sha256:[0-9a-f]{64}\b", b)]
    assert blocks and not without, f"{name}: {AGAIN}"


def test_what_is_installed_together_agrees() -> None:
    together = _pins(REQUIREMENTS / "constraints.txt")
    for name in ("run", "test", "lint", "docs", "eda"):
        assert _pins(LOCKED / f"{name}.txt") <= together, f"{name}: {AGAIN}"
