"""Print the test files that a change can make fail, one a line; "all" where nothing less is sure.

    scripts/run python scripts/changed_tests.py BASE

What has changed is asked of git: since the commit at which BASE was left, and what is not
committed. Python is followed by its imports. What is loaded by its name (drivers, agents) or read
as text (roles, pages) is followed by the table below, which tests/unit/test_changed_tests.py holds.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
COLLECTION = "ansible_collections.progressive.rollout"
UTILS = "plugins/plugin_utils"
DRIVERS = "platforms traffic autoscalers gates metrics stores checks notifiers".split()
BY_NAME = re.compile(rf"{UTILS}/(?:{'|'.join(DRIVERS)}|agents)/([a-z]\w*)\.py")
# Drivers that a playbook of tests/e2e uses unless it names others.
USUAL = {"process", "haproxy", "file", "store", "instances", "probe"}
PLAYBOOK = f"{COLLECTION}.tests.support.playbook"  # what a test imports that runs playbooks
ROLLOUT = ("plugins/", "roles/", "playbooks/")  # what a playbook runs
TEXTS = ("docs/", "roles/", "playbooks/", "changelogs/", "extensions/", "meta/")
TEMPLATES, READER = f"{UTILS}/pages/templates/", f"{UTILS}/pages/render.py"
TOP = re.compile(r"[A-Z]+\.(md|toml)|LICENSE|galaxy\.yml")  # pages beside docs/


def changed(base: str) -> list[str]:
    """Return the paths that differ from the commit at which `base` was left."""
    start = _git("merge-base", base, "HEAD")[0]
    return [
        *_git("diff", "--name-only", start),
        *_git("ls-files", "--others", "--exclude-standard"),
    ]


def tests_of(paths: Iterable[str]) -> set[str] | None:
    """Return the test files that these changes can make fail; None: any of them."""
    selected: set[str] = set()
    for path in paths:
        tests = _tests_of(path)
        if tests is None:
            return None
        selected |= tests
    return selected


def _tests_of(path: str) -> set[str] | None:
    if path.startswith(("tests/engines/", "tests/benchmarks/")):
        return set()  # not run by the tests of a checkout
    if path.endswith("conftest.py"):
        return None
    tests = set(_reading(path))
    if path.startswith(TEMPLATES):
        path = READER
    if path.endswith(".py") and path.startswith(("plugins/", "tests/")):
        modules = _affected(path)
        tests |= {_path(name) for name in modules if _is_test(name)}
        tests |= _playing(path, modules)
    elif path.startswith(ROLLOUT):
        tests |= _importing(PLAYBOOK)
    elif not path.startswith(TEXTS) and not TOP.fullmatch(path):
        return None
    return tests or None


def _affected(path: str) -> set[str]:
    """Return the modules that import this one, or ask an agent by its name, and so on."""
    affected, more = set[str](), {_module(path)}
    while more:
        affected |= more
        further = {other for name in more for other in _importing_modules(name)}
        further |= {other for name in more for other in _asking(name)}
        more = further - affected
    return affected


def _playing(path: str, modules: set[str]) -> set[str]:
    """Return the tests that run playbooks in which one of these modules is loaded."""
    if not path.startswith("plugins/"):
        return set()
    names = {match[1] for name in modules if (match := BY_NAME.fullmatch(_path(name)))}
    if not BY_NAME.fullmatch(path) and not _helper(path):
        return _importing(PLAYBOOK)  # what every rollout uses
    if names & USUAL:
        return _importing(PLAYBOOK)
    return {test for name in names for test in _all_tests() if _names(test, name)}


def _names(test: str, driver: str) -> bool:
    """Return whether a test says the name of a driver, with which it is loaded."""
    quoted = rf"[\"']{driver}[\"']|: {driver}\b"
    word = rf"\b{driver}\b" if test.startswith("tests/e2e/") else quoted
    return re.search(word, _text(test), re.IGNORECASE) is not None


def _helper(path: str) -> bool:
    """Return whether it is a module that drivers, or agents, share."""
    return Path(path).name.startswith("_") and Path(path).parent.name in {*DRIVERS, "agents"}


def _asking(module: str) -> Iterator[str]:
    """Yield the modules that name an agent, which is loaded on hosts as a text."""
    agent = re.fullmatch(rf"{UTILS}/agents/([a-z]\w*)\.py", _path(module))
    if agent:
        asks = re.compile(rf'(?<!NAME = )"{agent[1]}"')
        for path in _git("ls-files", *(f"{UTILS}/{folder}" for folder in (*DRIVERS, "remote"))):
            if path.endswith(".py") and asks.search(_text(path)):
                yield _module(path)


def _reading(path: str) -> Iterator[str]:
    """Yield the tests that name a file, or its folder where it is one of texts."""
    words = {Path(path).name} - {"__init__.py", "main.yml"}
    folder = path.partition("/")[0]
    words.add(f'"{folder}"')  # of all that it has
    if path.startswith(TEXTS):
        words.add(f"{folder}/")
    for test in _all_tests():
        if any(word in _text(test) for word in words):
            yield test


@functools.cache
def _all_tests() -> list[str]:
    return [path for path in _git("ls-files", "tests") if _is_test(_module(path))]


@functools.cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph("ansible_collections", cache_dir=str(ROOT / ".cache" / "imports"))


@functools.cache
def _importing_modules(module: str) -> frozenset[str]:
    graph = _graph()
    return frozenset(graph.find_downstream_modules(module) if module in graph.modules else ())


def _importing(module: str) -> set[str]:
    return {_path(name) for name in _importing_modules(module) if _is_test(name)}


def _is_test(module: str) -> bool:
    return re.search(r"\.tests\.(unit|property|drivers|e2e)\.test_\w+$", module) is not None


def _module(path: str) -> str:
    return f"{COLLECTION}." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _path(module: str) -> str:
    return module.removeprefix(f"{COLLECTION}.").replace(".", "/") + ".py"


@functools.cache
def _text(path: str) -> str:
    file = ROOT / path
    return file.read_text(encoding="utf-8") if file.is_file() else ""


@functools.cache
def _git(*arguments: str) -> tuple[str, ...]:
    command = ["git", *arguments]
    answer = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return tuple(answer.stdout.splitlines())


if __name__ == "__main__":
    tests = tests_of(changed(sys.argv[1]))
    print("all" if tests is None else "\n".join(sorted(tests)))
