# SPDX-License-Identifier: GPL-3.0-or-later
"""The example of somebody's own service that is tested with Molecule, as it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.tests.support import python_image
from ansible_collections.progressive.rollout.tests.support.pages import SNIPPETS
from ansible_collections.progressive.rollout.tests.support.playbook import ROOT, addresses

EXAMPLE = ROOT / "docs/examples/molecule"


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose path is short enough for HAProxy's socket."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="molecule-") as path:
        yield Path(path)


def molecule(project: Path, short: Path, scenario: str, **env: str) -> None:
    """Run the page's commands of a scenario. Only the address is another one, and the collection
    is not installed again.
    """
    shutil.copytree(EXAMPLE, project, ignore=shutil.ignore_patterns("collections"))
    (address,) = addresses(1)
    for path in project.rglob("*"):
        if path.is_file():
            path.write_text(path.read_text().replace("127.0.0.1", address))
    done = subprocess.run(
        ["bash", "-euc", SNIPPETS["docs/how-to/molecule.md"][scenario]],
        cwd=project,
        env={
            **{name: value for name, value in os.environ.items() if name != "ANSIBLE_CONFIG"},
            "PATH": f"{short}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "MOLECULE_EPHEMERAL_DIRECTORY": str(short / "state"),
            "ANSIBLE_NOCOLOR": "1",
            "NO_COLOR": "1",
            **env,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    output = done.stdout + done.stderr
    failed = "\n".join(re.findall(r"\[ERROR\]: .*|fatal: .*", output))
    assert done.returncode == 0, f"{output}\n{failed}"
    for step in ("idempotence", "side_effect", "verify"):
        assert re.search(rf"{scenario}.*{step}.*Successful", output), output
    assert not (short / "state/shop").exists()


@pytest.mark.long
@pytest.mark.essential
def test_the_example_rolls_out_and_back_without_a_failed_request(
    tmp_path: Path, short: Path
) -> None:
    molecule(tmp_path / "shop", short, "default")


@pytest.mark.long
def test_the_example_rolls_containers_out_and_back_without_a_failed_request(
    tmp_path: Path, short: Path
) -> None:
    """Instead of the registry's image of Python there is one of this machine's, by its name."""
    env = python_image.podman(short)
    try:
        python_image.load(short / "podman", {**os.environ, **env})
        molecule(tmp_path / "shop", short, "containers", **env)
        left = subprocess.run(
            [short / "podman", "ps", "--all", "--quiet"], capture_output=True, check=True
        )
        assert not left.stdout
    finally:
        subprocess.run([short / "podman", "rm", "--all", "--force", "--time", "1"], check=False)
