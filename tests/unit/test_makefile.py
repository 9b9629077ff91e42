# SPDX-License-Identifier: GPL-3.0-or-later
"""The targets of the Makefile work in a fresh clone: the Python programs that a target runs import
nothing that its own set-up does not install, and each script can be read by its interpreter.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.tests.support.playbook import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

COLLECTION = "ansible_collections.progressive.rollout"
SCRIPTS = sorted(path for path in (ROOT / "scripts").iterdir() if path.is_file())
PYTHON = [path for path in SCRIPTS if path.suffix == ".py" or "python" in path.open().readline()]
SHELL = [path for path in SCRIPTS if "bash" in path.open().readline()]


def targets() -> dict[str, tuple[set[str], set[Path]]]:
    """What each target installs of requirements/*.txt, and the Python programs that it runs."""
    found: dict[str, tuple[set[str], set[Path]]] = {}
    for name, needs, recipe in re.findall(
        r"^([a-z-]+):([^#\n]*)##.*\n((?:\t.*\n)*)", (ROOT / "Makefile").read_text(), re.MULTILINE
    ):
        text = "@scripts/setup run\n" * ("setup" in needs) + recipe
        installed = {
            word
            for words in re.findall(r"^\t?@scripts/setup (.+)", text, re.MULTILINE)
            for word in words.split()
        }
        found[name] = installed, set(_programs(text))
    return found


def _programs(recipe: str) -> Iterator[Path]:
    """Yield the Python programs that a recipe runs, by itself or by a shell script that it runs."""
    run = [ROOT / word for word in re.findall(r"(?<![\w/.])scripts/[\w.-]+", recipe)]
    # which gates and what else `check` runs is said by its arguments
    shell = [path for path in run if path in SHELL and path.name != "check"]
    for text in (recipe, *(path.read_text() for path in shell)):
        code = re.sub(r"(?m)^\s*#.*$", "", text)
        yield from (ROOT / path for path in re.findall(r"\bpython (\S+\.py)", code))
    yield from (path for path in run if path in PYTHON)


@cache
def imported(path: Path) -> frozenset[str]:
    """The packages that a program imports as it starts, by itself or by what it imports of ours."""
    found, left, seen = set(), [path], {path}
    while left:
        here = left.pop()
        for name in _imports(here):
            inner = _ours(name, here)
            if not inner:
                found.add(name.partition(".")[0])
            for one in inner:
                if one not in seen:
                    seen.add(one)
                    left.append(one)
    known = sys.stdlib_module_names | {"ansible_collections"}
    return frozenset(found - known)


@cache
def _imports(path: Path) -> tuple[str, ...]:
    return tuple(_at_start(path))


def _at_start(path: Path) -> Iterator[str]:
    """Yield the modules that are imported wherever the file is; not in functions, nor for types."""
    statements: list[ast.stmt] = list(ast.parse(path.read_text()).body)
    while statements:
        one = statements.pop()
        if isinstance(one, ast.Import):
            yield from (alias.name for alias in one.names)
        elif isinstance(one, ast.ImportFrom):
            base = _absolute(one, path)
            yield base
            yield from (f"{base}.{alias.name}" for alias in one.names)
        elif isinstance(one, ast.With | ast.ClassDef):
            statements += one.body


def _absolute(one: ast.ImportFrom, path: Path) -> str:
    if not one.level:
        return one.module or ""
    package = path.relative_to(ROOT).parts[: -one.level]
    return ".".join([COLLECTION, *package, *([one.module] if one.module else [])])


def _ours(name: str, path: Path) -> list[Path]:
    """The files of this checkout that an import runs, if it is of this checkout."""
    if name.startswith(COLLECTION):
        base = ROOT.joinpath(*name.removeprefix(COLLECTION).strip(".").split("."))
    else:
        base = path.parent.joinpath(*name.split("."))
    return [one for one in (base.with_suffix(".py"), base / "__init__.py") if one.exists()]


@cache
def distributions(files: frozenset[str]) -> frozenset[str]:
    """What these files below requirements/ install, with all that it brings with it."""
    left = [one for name in files for one in _required(ROOT / f"requirements/{name}.txt")]
    found: set[str] = set()
    while left:
        name = canonicalize_name(left.pop().name)
        if name not in found:
            found.add(name)
            try:
                needs = metadata.requires(name) or ()
            except metadata.PackageNotFoundError:  # for another Python or system
                continue
            left += [one for one in map(Requirement, needs) if "extra" not in str(one.marker)]
    return frozenset(found)


def _required(path: Path) -> Iterator[Requirement]:
    for line in path.read_text().splitlines():
        text = line.partition("#")[0].strip()
        if text.startswith("-r "):
            yield from _required(path.with_name(text.removeprefix("-r ")))
        elif text and not text.startswith("-"):
            yield Requirement(text)


def missing(files: set[str], program: Path) -> set[str]:
    """The packages that a program imports and these files do not install."""
    installed = distributions(frozenset(files))
    return {
        package
        for package in imported(program)
        if not installed & {canonicalize_name(one) for one in providers().get(package, ())}
    }


providers = cache(metadata.packages_distributions)


CASES = [
    pytest.param(files, program, id=f"{name}-{program.relative_to(ROOT)}")
    for name, (files, programs) in sorted(targets().items())
    for program in sorted(programs)
]


@pytest.mark.parametrize(("files", "program"), CASES)
def test_a_target_installs_what_its_programs_import(files: set[str], program: Path) -> None:
    assert missing(files, program) == set()


def test_what_is_not_installed_is_noticed() -> None:
    """`make bench` needs the client of PostgreSQL, whose store it measures."""
    assert {"bench", "generate", "mutants"} <= {str(case.id).partition("-")[0] for case in CASES}
    assert missing({"run"}, ROOT / "tests/benchmarks/run.py") >= {"psycopg"}


@pytest.mark.parametrize("script", SHELL, ids=lambda path: path.name)
def test_each_script_can_be_read_by_bash(script: Path) -> None:
    done = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("script", PYTHON, ids=lambda path: path.name)
def test_each_python_script_can_be_read_and_imports_what_is_installed(script: Path) -> None:
    assert missing({"run", "test", "lint", "docs"}, script) == set()


def test_each_script_is_of_a_known_kind() -> None:
    assert {*SHELL, *PYTHON} == set(SCRIPTS)


def test_checkouts_of_a_machine_share_one_kubernetes(tmp_path: Path) -> None:
    script = ROOT / "scripts/kubernetes-build"
    version = re.search(r"^VERSION=(\S+)", script.read_text(), re.MULTILINE)
    number = re.search(r"kubernetes-\$VERSION-(\d+)", script.read_text())
    assert version and number
    built = tmp_path / f"progressive-rollout/kubernetes-{version[1]}-{number[1]}"
    built.mkdir(parents=True)
    (built / "complete").touch()
    done = subprocess.run(
        [script],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert (done.stdout.strip(), done.stderr) == (str(built), "")
