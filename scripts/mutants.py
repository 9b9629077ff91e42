"""Changes the engine in one small way after the other, and shows the changes that no test notices.

    scripts/run python scripts/mutants.py [FILE ...] [--sample NUMBER]

FILE is below plugins/plugin_utils/engine, as budget.py; without one it is all of them. A change is
made in a fork of this process, in the code of functions that are imported already; then the tests
of the engine run there until one fails. A survivor that cannot matter is explained in
tests/mutants.txt, by its line and what became of it.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import os
import random
import signal
import sys
import time
import types
import typing as t
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENGINE = ROOT / "plugins" / "plugin_utils" / "engine"
PACKAGE = "ansible_collections.progressive.rollout.plugins.plugin_utils.engine"
EXPLAINED = ROOT / "tests" / "mutants.txt"
LONGEST = 300  # seconds of CPU for the tests of one change: more, and it made a loop endless
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Return the node in each of the ways in which it may be wrong."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        yield ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif (
        isinstance(node, ast.BinOp)
        and type(node.op) in OPERATORS
        and not isinstance(node.left, ast.JoinedStr)
    ):
        yield ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        yield ast.Constant(node.value + 1)
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in NAMES
        and len(node.args) > 1
    ):
        yield ast.Call(ast.Name(NAMES[node.func.id], ast.Load()), node.args, node.keywords)
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)


class Change(t.NamedTuple):
    """One changed place: `index` of a node of the file's tree, and `way` of the ways to change
    it.
    """

    file: Path
    index: int
    way: int
    line: int
    text: str  # the line as it is, and what became of the node

    def tree(self) -> ast.Module:
        """Return the file's tree with the change."""
        tree = ast.parse(self.file.read_text())
        nodes = list(ast.walk(tree))
        node = nodes[self.index]
        changed = ast.copy_location(list(changes(node))[self.way], node)
        for parent in nodes:
            for name, value in ast.iter_fields(parent):
                if value is node:
                    setattr(parent, name, changed)
                elif isinstance(value, list) and any(item is node for item in value):
                    value[[item is node for item in value].index(True)] = changed
        return ast.fix_missing_locations(tree)


def found(file: Path) -> Iterator[Change]:
    """Return every change of what functions of a file do. Annotations and messages are left
    alone.
    """
    text = file.read_text()
    tree, lines = ast.parse(text), text.splitlines()
    inside = {
        id(n)
        for f in ast.walk(tree)
        if isinstance(f, ast.FunctionDef)
        for part in f.body
        for n in ast.walk(part)
    }
    spared = {
        id(n)
        for j in ast.walk(tree)
        if isinstance(j, (ast.JoinedStr, ast.AnnAssign))
        for n in ast.walk(getattr(j, "annotation", j))
    }
    for index, node in enumerate(ast.walk(tree)):
        if id(node) not in inside or id(node) in spared:
            continue
        for way, changed in enumerate(changes(node)):
            became = (
                f"{ast.unparse(node)} ->"
                f" {ast.unparse(ast.fix_missing_locations(copy.deepcopy(changed)))}"
            )
            line = t.cast(ast.expr, node).lineno
            yield Change(file, index, way, line, f"{lines[line - 1].strip()}  |  {became}")


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Return the code of all functions in a module's, also of those in classes and functions."""
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield part
            yield from codes(part)


def put_in(change: Change) -> None:
    """Give the imported functions of a file the code that they have with the change."""
    name = ".".join([PACKAGE, *change.file.relative_to(ENGINE).with_suffix("").parts])
    module = importlib.import_module(name)
    changed = {
        code.co_qualname: code
        for code in codes(compile(change.tree(), str(module.__file__), "exec"))
    }
    # A function is found by its name in its module or class; what is nested in it comes with its
    # code.
    holders = [
        module,
        *(
            value
            for value in vars(module).values()
            if isinstance(value, type) and value.__module__ == name
        ),
    ]
    for holder in holders:
        for value in vars(holder).values():
            plain = (
                getattr(value, "fget", None)
                or getattr(value, "__func__", None)
                or getattr(value, "__wrapped__", None)
                or value
            )
            if (
                isinstance(plain, types.FunctionType)
                and plain.__module__ == name
                and plain.__qualname__ in changed
            ):
                plain.__code__ = changed[plain.__qualname__]


def tests(file: Path) -> tuple[list[str], list[str]]:
    """Return the tests that are about a file, and the others of the engine."""
    texts = {
        path: path.read_text()
        for folder in ("unit", "property")
        for path in sorted(ROOT.glob(f"tests/{folder}/test_*.py"))
    }
    module = f"engine.{'judges.' if file.parent != ENGINE else ''}{file.stem}"
    about = [str(path) for path, text in texts.items() if module in text]
    rest = [
        str(path)
        for path, text in texts.items()
        if "plugin_utils.engine" in text and str(path) not in about
    ]
    return about, [path for path in rest if not path.endswith(("test_specs.py", "test_pages.py"))]


def survives(change: Change | None, file: Path) -> bool:
    """Run the tests of a file of the engine with a change, in a new process."""
    import pytest

    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    signal.alarm(10 * LONGEST)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    if change:
        put_in(change)
    options = ["-q", "-x", "-p", "no:xdist"]
    return all(pytest.main([*options, *paths]) == 0 for paths in tests(file) if paths)


def passes(file: Path) -> bool:
    """Whether the tests pass without a change: otherwise they would notice everything."""
    if not (pid := os.fork()):
        os._exit(0 if survives(None, file) else 1)
    return os.waitpid(pid, 0)[1] == 0


def run(wanted: list[Change], at_once: int) -> Iterator[Change]:
    """Return the changes that survive, as they are found."""
    under_way: dict[int, Change] = {}
    left = iter(wanted)
    done = 0
    while True:
        while len(under_way) < at_once and (change := next(left, None)):
            if not (pid := os.fork()):
                os._exit(1 if survives(change, change.file) else 0)
            under_way[pid] = change
        if not under_way:
            return
        pid, status = os.wait()
        change, done = under_way.pop(pid), done + 1
        print(f"\r{done} of {len(wanted)} ", end="", file=sys.stderr, flush=True)
        if os.waitstatus_to_exitcode(status) == 1:
            yield change


def main() -> int:
    parser = argparse.ArgumentParser(description="see above")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--sample", type=int, help="so many of them, drawn at random")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 2)
    given = parser.parse_args()
    os.chdir(ROOT)
    os.environ.setdefault("HYPOTHESIS_PROFILE", "quick")
    files = [ENGINE / name for name in given.files] or sorted(ENGINE.rglob("*.py"))
    wanted = [change for file in files for change in found(file)]
    if given.sample:
        wanted = random.sample(wanted, min(given.sample, len(wanted)))
    for file in files:
        importlib.import_module(
            ".".join([PACKAGE, *file.relative_to(ENGINE).with_suffix("").parts]).removesuffix(
                ".__init__"
            )
        )
    if not passes(files[0]):
        print("the tests fail without a change; mend that first: make quick", file=sys.stderr)
        return 2
    explained = EXPLAINED.read_text().splitlines() if EXPLAINED.exists() else []
    began, survivors = time.monotonic(), 0
    for change in run(wanted, given.at_once):
        name = change.file.relative_to(ENGINE)
        if f"{name}: {change.text}" in explained:
            continue
        survivors += 1
        print(f"\r{name}:{change.line}: {change.text}", flush=True)
    print(f"\n{len(wanted)} changes, {survivors} unnoticed, {time.monotonic() - began:.0f} s")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
