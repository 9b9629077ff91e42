# SPDX-License-Identifier: GPL-3.0-or-later
"""The shell commands of the pipelines in docs/examples/ci, in their order."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs/examples/ci"


def github_steps(job: str) -> list[dict[str, t.Any]]:
    """Return the steps of a job that run a command."""
    workflow = yaml.safe_load((EXAMPLE / "github.yml").read_text())
    return [step for step in workflow["jobs"][job]["steps"] if "run" in step]


def github() -> list[str]:
    return [
        step["run"].rstrip()
        for job in ("rollout", "promote", "abort")
        for step in github_steps(job)
    ]


def gitlab() -> list[str]:
    pipeline = yaml.safe_load((EXAMPLE / "gitlab-ci.yml").read_text())
    lines: list[str] = list(pipeline["default"]["before_script"])
    for job in ("rollout", "promote", "abort"):
        lines += pipeline[job]["script"]
    return lines


def jenkins() -> list[str]:
    return re.findall(r"^\s*sh '(.*)'$", (EXAMPLE / "Jenkinsfile").read_text(), re.M)
