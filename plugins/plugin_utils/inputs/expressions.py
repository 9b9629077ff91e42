# SPDX-License-Identifier: GPL-3.0-or-later
"""Conditions on results of measurements, and paths into them. Pure.

A condition is a Jinja2 expression in its sandbox, further restricted: `.` and `[]` only find keys
of mappings and elements of lists, only the functions and filters listed here can be called, and
arithmetic is for numbers. So an expression reaches nothing but the result, and its time is bounded
by its length and that of the result.
"""

from __future__ import annotations

import math
import re
import typing as t
from collections.abc import Mapping

from jinja2 import (
    Environment,
    TemplateError,
    TemplateSyntaxError,
    Undefined,
    nodes,
    pass_environment,
)
from jinja2.environment import TemplateExpression
from jinja2.filters import make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context, StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from ..base.errors import InputError, MetricError
from ..base.text import clean

_LONGEST = 1000  # characters of an expression
_SHOWN = 200  # characters of a wrong expression in a message
_FILTERS = (
    *(
        "abs",
        "count",
        "default",
        "first",
        "float",
        "int",
        "last",
        "length",
        "list",
        "map",
        "max",
        "min",
    ),
    *("reject", "rejectattr", "select", "selectattr", "sort", "sum"),
)
_ELSEWHERE = {  # operators of Argo's expressions, and what to write instead
    "&&": "and",
    "||": "or",
    "!": "not",
    "?": "a if condition else b",
    "#": "min(result) >= 0.99",
    "nil": "none",
}
_FOREIGN = re.compile(r"&&|\|\||!(?!=)|\?|#|\bnil\b")
_PATH = re.compile(r"""\.?([A-Za-z_][\w-]*)|\[(-?\d+)\]|\[(['"])((?:(?!\3).)+)\3\]""")


class Expression:
    """An expression over `result`, as `result[0] >= 0.99`.

    Raises InputError, which begins with `variable`.
    """

    def __init__(self, text: t.Any, variable: str) -> None:
        self._text = str(text)
        self._variable = variable
        wrong = _refused(text)
        if not wrong:
            try:
                self._compiled = _compiled(self._text)
            except (TemplateError, SyntaxError, RecursionError, MemoryError) as exc:
                if isinstance(exc, TemplateSyntaxError):
                    exc.translated = True  # without the number of the line, which is always 1
                wrong = f"{_line(exc)}; write it like result[0] >= 0.99"
        if wrong:
            raise InputError(
                f"{variable}: {self._text[:_SHOWN]!r} is not an expression: {wrong}", "PR-111"
            )

    @property
    def handles_nan(self) -> bool:
        """Whether the expression handles a NaN itself."""
        return bool(re.search(r"\b(is_nan|isNaN)\b", self._text))

    def value(self, result: t.Any) -> t.Any:
        """Return the value for a result. Raises MetricError if the expression fails on it."""
        try:
            value = self._compiled(result=result)
            if isinstance(value, Undefined):
                str(value)  # a strict one raises
            return value
        except Exception as exc:  # comparisons and divisions may raise anything
            raise MetricError(
                f"{self._variable}: `{self._text}` fails on {_kind(result)}: {_line(exc)}", "PR-423"
            ) from None

    def holds(self, result: t.Any) -> bool:
        """Whether the condition is true.

        Raises MetricError if it fails, or is neither true nor false.
        """
        value = self.value(result)
        if not isinstance(value, bool):
            raise MetricError(
                f"{self._variable}: `{self._text}` is {_kind(value)}, neither true nor false;"
                " compare it",
                "PR-423",
            )
        return value


class Path:
    """A path into a result: `data.items[0].value`, `$.data['error-rate']`, Argo's `{$.data.value}`.

    Raises InputError, which begins with `variable`.
    """

    def __init__(self, text: t.Any, variable: str) -> None:
        self._text = str(text)
        self._variable = variable
        rest = self._text.strip()
        if rest.startswith("{") and rest.endswith("}"):
            rest = rest[1:-1].strip()
        rest = rest.removeprefix("$")
        self._keys: list[str | int] = []
        while rest and (match := _PATH.match(rest)):
            self._keys.append(int(match[2]) if match[2] else match[1] or match[4])
            rest = rest[match.end() :]
        if rest or not self._text.strip():
            raise InputError(
                f"{variable}: {self._text!r} is not a path; write it like data.items[0].value or"
                " data['error-rate']",
                "PR-111",
            )

    def value(self, result: t.Any) -> t.Any:
        """Return what the path leads to. Raises MetricError if that does not exist."""
        for key in self._keys:
            item = _look(result, key)
            if item is _NOTHING:
                raise MetricError(
                    f"{self._variable}: `{self._text}`: {key!r} not found in {_kind(result)}",
                    "PR-423",
                )
            result = item
        return result


def has_nan(result: t.Any) -> bool:
    """Whether a result has a NaN, at any depth of lists and mappings."""
    left = [result]
    while left:
        part = left.pop()
        if isinstance(part, float) and math.isnan(part):
            return True
        left += (
            part.values()
            if isinstance(part, Mapping)
            else part
            if isinstance(part, (list, tuple))
            else ()
        )
    return False


def _refused(text: t.Any) -> str:
    """Return why an expression is refused, and what to do; empty if it is not."""
    if not isinstance(text, str) or not text.strip():
        return "expected a string such as result[0] >= 0.99"
    if len(text) > _LONGEST:
        return f"longer than {_LONGEST} characters"
    if match := re.search(r"\{\{|\{%|\}\}", text):
        return f"remove {match[0]}; write it like result[0] >= 0.99"
    if match := _FOREIGN.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", text)):
        return f"unknown operator {match[0]}; write `{_ELSEWHERE[match[0]]}`"
    try:
        tree = nodes.Output([Parser(_SANDBOX, text, state="variable").parse_expression()])
    except (TemplateError, RecursionError, MemoryError):
        return ""  # compiling it raises a better message
    for name in tree.find_all(nodes.Name):
        if name.name not in ("result", *_SANDBOX.globals):
            return (
                f"unknown name {name.name!r}; known: result,"
                f" {', '.join(map(str, _SANDBOX.globals))}"
            )
    return "unknown operator ~; add numbers with +" if tree.find(nodes.Concat) else ""


class _Equality(NodeTransformer):
    """Makes `==` and `!=` tests of Jinja, which refuse values of different kinds."""

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        operators = [operand.op for operand in node.ops]
        if not {"eq", "ne"} & set(operators):
            return node
        if len(operators) > 1:
            raise TemplateSyntaxError("compare two values at a time, joined by `and`", node.lineno)
        test = nodes.Test(node.expr, operators[0], [node.ops[0].expr], [], None, None)
        test.set_lineno(node.lineno)
        test.set_environment(_SANDBOX)
        return test


def _compiled(text: str) -> TemplateExpression:
    """Compile an expression as `Environment.compile_expression` does, with our `==`."""
    tree = Parser(_SANDBOX, text, state="variable")
    expression = tree.parse_expression()
    if not tree.stream.eos:
        raise TemplateSyntaxError("chunk after expression", tree.stream.current.lineno)
    expression.set_environment(_SANDBOX)
    body = [nodes.Assign(nodes.Name("result", "store"), _Equality().visit(expression), lineno=1)]
    template = _SANDBOX.from_string(nodes.Template(body, lineno=1))
    return TemplateExpression(template, undefined_to_none=False)


_NOTHING: t.Any = object()


def _look(obj: t.Any, key: t.Any) -> t.Any:
    """Return the element of a mapping or list, or `_NOTHING`."""
    try:
        if isinstance(obj, Mapping) or (isinstance(obj, (list, tuple)) and isinstance(key, int)):
            return obj[key]
    except (LookupError, TypeError):
        pass
    return _NOTHING


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja2's sandbox, with elements instead of attributes, and arithmetic for numbers only."""

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def getitem(self, obj: t.Any, argument: t.Any) -> t.Any:
        if isinstance(obj, Undefined):
            str(obj)  # raises, with what is missing
        item = _look(obj, argument)
        return (
            self.undefined(f"{argument!r} not found in {_kind(obj)}") if item is _NOTHING else item
        )

    def getattr(self, obj: t.Any, attribute: str) -> t.Any:
        return self.getitem(obj, attribute)

    def is_safe_callable(self, obj: t.Any) -> bool:
        return obj in _FUNCTIONS.values()

    def call_binop(self, context: Context, operator: str, left: t.Any, right: t.Any) -> t.Any:
        for value in (left, right):
            if not isinstance(value, (int, float)):
                raise TypeError(f"{operator} needs numbers, got {_kind(value)}")
        if operator == "**":
            return math.pow(left, right)  # 10**10**10 would not end in whole numbers
        return self.binop_table[operator](left, right)


def _default(value: t.Any, other: t.Any) -> t.Any:
    return other if value is None or isinstance(value, Undefined) else value


def _sum(values: t.Iterable[t.Any], start: t.Any = 0) -> t.Any:
    """Add numbers; lists would be copied once for each, which takes minutes."""
    terms = [start, *values]
    for value in terms:
        if not isinstance(value, (int, float)):
            raise TypeError(f"sum needs numbers, got {_kind(value)}")
    return sum(terms)


@pass_environment
def _sum_of(
    environment: Environment, values: t.Iterable[t.Any], attribute: t.Any = None, start: t.Any = 0
) -> t.Any:
    """Add numbers, or those at `attribute` of mappings: Jinja's filter, for numbers only."""
    of = make_attrgetter(environment, attribute) if attribute is not None else None
    return _sum(map(of, values) if of else values, start)


_KINDS: tuple[tuple[type, ...], ...] = ((int, float), (str,), (list, tuple), (Mapping,))


def _equal(left: t.Any, right: t.Any) -> bool:
    """Compare two numbers, texts, lists or mappings, or anything with nothing.

    Different kinds are never equal, so that a condition with them would always be the same.
    """
    for value in (left, right):
        if isinstance(value, Undefined):
            str(value)  # raises, with what is missing
    if left is not None and right is not None:
        if not any(isinstance(left, kind) and isinstance(right, kind) for kind in _KINDS):
            raise TypeError(
                f"== compares {_kind(left)} with {_kind(right)}; compare the same kinds"
            )
    return bool(left == right)


def _unequal(left: t.Any, right: t.Any) -> bool:
    return not _equal(left, right)


_FUNCTIONS: dict[str, t.Callable[..., t.Any]] = {
    "is_nan": math.isnan,
    "is_inf": math.isinf,
    "default": _default,
    "len": len,
    "all": all,
    "any": any,
    "sum": _sum,
    "min": min,
    "max": max,
    "abs": abs,
    "float": float,
    "int": int,
    # as Argo calls them
    "isNaN": math.isnan,
    "isInf": math.isinf,
    "asFloat": float,
    "asInt": int,
}
_SANDBOX = _Sandbox(undefined=StrictUndefined, optimized=False, autoescape=False)
_SANDBOX.globals = dict(_FUNCTIONS)
_SANDBOX.filters = {name: _SANDBOX.filters[name] for name in _FILTERS} | {"sum": _sum_of}
_SANDBOX.tests |= dict.fromkeys(("eq", "==", "equalto"), _equal)
_SANDBOX.tests |= dict.fromkeys(("ne", "!="), _unequal)


def _kind(value: t.Any) -> str:
    """Describe a value's type for an error message, without its contents."""
    if value is None or isinstance(value, (bool, int, float)):
        return str(value)
    if isinstance(value, Mapping):
        return (
            "a mapping with"
            f" {', '.join(clean(key, 60) for key in sorted(map(str, value))[:5]) or 'nothing'}"
        )
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    return "a text" if isinstance(value, str) else f"a {type(value).__name__}"


def _line(exc: BaseException) -> str:
    return " ".join(str(exc).split()) or type(exc).__name__
