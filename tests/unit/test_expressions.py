# SPDX-License-Identifier: GPL-3.0-or-later
"""Conditions and paths: what they find, what they refuse, and that nothing else is reached by
them.
"""

from __future__ import annotations

import math
import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    MetricError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.expressions import (
    Expression,
    Path,
    has_nan,
)
from hypothesis import given
from hypothesis import strategies as st

NAN = math.nan
DATA = {
    "data": {"items": [{"value": 3, "error-rate": 0.5}, {"value": 1}], "keys": None, "is": "up"}
}


def expression(text: t.Any) -> Expression:
    return Expression(text, "metric.success_condition")


@pytest.mark.parametrize(
    ("text", "result", "holds"),
    [
        ("result >= 0.99", 0.99, True),
        ("result >= 0.99", NAN, False),
        ("result[0] >= 0.99 and result[1] < 3", [1, 3], False),
        ("not (result < 1 or result > 2)", 1.5, True),
        ("result.data.items[0].value == 3", DATA, True),  # a key, where Python would find a method
        ("result['data']['items'][1]['value'] == 1", DATA, True),
        ("result.data.keys is none", DATA, True),
        ("result.data['is'] == 'up && running!'", DATA, False),
        ("is_nan(result) or is_inf(result)", math.inf, True),
        ("isNaN(result[0]) or isInf(result[0])", [1.0], False),
        ("asFloat(result) > 0.5 and asInt(asFloat(result)) == 0", "0.75", True),
        ("default(result.missing, 0) == 0", {}, True),
        ("default(result[0], 1) == 1", [], True),
        (
            "len(result) == 3 and sum(result) == 6 and min(result) == 1 and max(result) == 3",
            [1, 2, 3],
            True,
        ),
        ("any(result) and not all(result)", [True, False], True),
        (
            "abs(result.new - result.stable) / result.stable <= 0.1",
            {"new": 95, "stable": 100},
            True,
        ),
        ("result | select('ge', 0.9) | list | length == 2", [0.9, 0.8, 1], True),
        ("sum(result.data.items | map(attribute='value')) == 4", DATA, True),
        ("(1 if result else 2) == 2", 0, True),
        ("2 ** result == 1024", 10, True),
    ],
)
def test_conditions(text: str, result: t.Any, holds: bool) -> None:
    assert expression(text).holds(result) is holds


@pytest.mark.parametrize(
    ("text", "result", "why"),
    [
        ("result[0] > 1", [], r"fails on a list of 0: 0 not found in a list of 0"),
        ("result > 1", [2], r"fails on a list of 1: '>' not supported between"),
        ("result > 1", "2", r"fails on a text: '>' not supported"),
        (
            "result.new.errors > 1",
            {"stable": 1, "other": 2},
            r"fails on a mapping with other, stable: 'new' not found in",
        ),
        ("result.errors / result.requests > 0", {"errors": 0, "requests": 0}, "division by zero"),
        ("result", 0.97, r"`result` is 0\.97, neither true nor false"),
        ("result[0]", [None], r"is None, neither true nor false"),
        ("is_nan(result)", "x", "must be real number"),
        ("max(result) > 1", [], "empty"),
        ("asFloat(result) > 1", "soon", "could not convert"),
    ],
)
def test_what_cannot_be_said_of_a_result_is_an_error(text: str, result: t.Any, why: str) -> None:
    with pytest.raises(MetricError, match=rf"^metric\.success_condition: .*{why}"):
        expression(text).holds(result)


@pytest.mark.parametrize(
    ("text", "what_to_do"),
    [
        ("result >= 0.99 && result < 1", "unknown operator &&; write `and`"),
        ("result < 1 || result > 2", "unknown operator ||; write `or`"),
        ("!isNaN(result)", "unknown operator !; write `not`"),
        ("result == nil", "unknown operator nil; write `none`"),
        ("all(result, {# > 0.99})", "unknown operator #; write `min(result) >= 0.99`"),
        ("result ? true : false", "unknown operator ?; write `a if condition else b`"),
        ("{{ result > 1 }}", "remove {{; write it like"),
        ("{% if result %}", "remove {%; write it like"),
        ("results > 1", "unknown name 'results'; known: result, is_nan"),
        ("result >", "unexpected 'end of template'; write it like"),
        ("result > 1 2", "chunk after expression; write it like"),
        ("result | tojson", "No filter named 'tojson'.; write it like"),
        ("result ~ result", "unknown operator ~; add numbers with +"),
        ("", "expected a string such as"),
        (True, "expected a string such as"),
        ("result > " + "1" * 1000, "longer than 1000 characters"),
    ],
)
def test_what_is_no_condition_is_refused_with_what_to_do(text: t.Any, what_to_do: str) -> None:
    with pytest.raises(
        InputError, match=r"^metric\.success_condition: .* is not an expression: "
    ) as caught:
        expression(text)
    assert (
        caught.value.id == "PR-111"
        and what_to_do in str(caught.value)
        and len(str(caught.value)) < 500
    )


@pytest.mark.parametrize(
    "text",
    [
        "result.__class__.__mro__[1].__subclasses__()",
        "''.__class__",
        "result.text.format(result)",
        "result.text.format_map(result)",
        "result | attr('__class__')",
        "result.list | map(attribute='__class__') | first > 1",
        "result.list | map('attr', '__class__') | list",
        "result.list | sum(start=max.__self__)",
        "min.__self__.open('/etc/passwd')",
        "is_nan.__globals__",
        "result.list.append(1)",
        "result.update({'a': 1})",
        "result.text()",
        "self",
        "self._TemplateReference__context",
        "context",
        "environment",
        "cycler.__init__.__globals__",
        "lipsum.__globals__.os.popen('id')",
        "namespace()",
        "joiner()",
        "range(3)",
        "dict(a=1)",
        "super()",
        "caller()",
        "varargs",
        "().__class__",
        "(1).to_bytes(9)",
        "result.text % result",
    ],
)
def test_nothing_is_reached_but_the_result(text: str) -> None:
    result = {"text": "{0.__class__}", "list": [1]}
    with pytest.raises((InputError, MetricError)):
        expression(text).value(result)
    assert result == {"text": "{0.__class__}", "list": [1]}


@pytest.mark.parametrize(
    "text",
    [
        "len(range(10**9))",
        "'x' * 10**10",
        "result * 10**10",
        "[0] * 10**10",
        "10 ** 400",
        "10 ** (10 ** (10 ** 10))",
        "'%10000000000d' % 1",
        "'x'.ljust(10**10)",
        "'{:>10000000000}'.format(1)",
        "1.5 | round(10**9, 'ceil') > 1",
        "result | center(10**10)",
        "result | batch(10**10, 'x') | list",
        "lipsum(10**9)",
        "(" * 450 + "result" + ")" * 450,
        "not " * 200 + "result",
        "-" * 900 + "1",
    ],
)
def test_nothing_takes_without_end(text: str) -> None:
    """Where one of these did, the suite would hang here, or use up the memory."""
    with pytest.raises((InputError, MetricError)):
        expression(text).holds([1])


@given(st.text(alphabet="result.0129[](){}'\"|+-*/%<>=~!&?#, andotifelsmpu_\n", max_size=40))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    try:
        expression(text).holds([0.5, {"a": NAN}])
    except (InputError, MetricError):
        pass


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("data.items[0].value", 3),
        ("$.data.items[1].value", 1),
        ("{$.data.items[-1].value}", 1),
        ("data.items[0].error-rate", 0.5),
        ("""$['data']["items"][0]['error-rate']""", 0.5),
        ("data.is", "up"),
        ("data.keys", None),
        ("$", DATA),
    ],
)
def test_paths(text: str, value: t.Any) -> None:
    assert Path(text, "metric.path").value(DATA) == value


def test_a_path_may_begin_with_a_list() -> None:
    assert Path("[0].value", "metric.path").value([{"value": 7}]) == 7


@pytest.mark.parametrize(
    "text",
    ["data.missing", "data.items.value", "data.items[2]", "data.is[0]", "data.is.upper", "[0]"],
)
def test_a_path_that_leads_nowhere_is_an_error(text: str) -> None:
    with pytest.raises(
        MetricError, match=r"^metric\.path: `.*`: .* not found in a (mapping|list|text)"
    ):
        Path(text, "metric.path").value(DATA)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "data..value",
        "data[*]",
        "$..value",
        "data[?(@.x)]",
        "data.",
        "data items",
        "data[0",
        None,
    ],
)
def test_what_is_no_path_is_refused(text: t.Any) -> None:
    with pytest.raises(
        InputError, match=r"^metric\.path: .* is not a path; write it like data\.items\[0\]\.value"
    ):
        Path("" if text is None else text, "metric.path")


@pytest.mark.parametrize(
    ("result", "found"),
    [
        (NAN, True),
        (1.0, False),
        ("NaN", False),
        ([1, [NAN]], True),
        ({"new": {"a": [0, NAN]}}, True),
        ({"a": [1]}, False),
        (None, False),
    ],
)
def test_nan_is_found_in_any_depth(result: t.Any, found: bool) -> None:
    assert has_nan(result) is found


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("result == 0", [0]),
        ("result == 0", "0"),
        ("result != '0'", 0),
        ("result.a == 'x'", {"a": ["x"]}),
        ("result == {}", []),
        ("(result|select('gt', 5)) == [9]", [9]),
        ("result|select('==', '5')|list == []", [5]),
        ("result is eq('5')", 5),
    ],
)
def test_values_of_different_kinds_are_not_compared(text: str, result: t.Any) -> None:
    """They are never equal, and `failure_condition: result == 0` of a list would never fail."""
    with pytest.raises(MetricError, match=r"== compares .* with .*; compare the same kinds"):
        Expression(text, "condition").value(result)


@pytest.mark.parametrize(
    ("text", "result", "value"),
    [
        ("result == 0", 0.0, True),
        ("result != 0", 1, True),
        ("result == none", [], False),
        ("result.a == none", {"a": None}, True),
        ("result == true", True, True),
        ("result[0] == 'up' and result[1] != 'up'", ["up", "down"], True),
        ("result|select('==', 5)|list == [5]", [5, 6], True),
        ("result == {'a': 1}", {"a": 1}, True),
    ],
)
def test_values_of_one_kind_are_compared(text: str, result: t.Any, value: bool) -> None:
    assert Expression(text, "condition").value(result) is value


def test_two_values_are_compared_at_a_time() -> None:
    with pytest.raises(InputError, match="compare two values at a time"):
        Expression("0 == result == 0", "condition")


@pytest.mark.parametrize("text", ["sum(result, [])", "result|sum(start=[])", "sum(result)"])
def test_only_numbers_are_added(text: str) -> None:
    """Lists would be copied once for each, and hold up everything else for minutes."""
    with pytest.raises(MetricError, match="sum needs numbers, got a list"):
        Expression(text, "condition").value([[0]] * 40_000)
    assert Expression("sum(result)", "c").value([1, 2.5]) == 3.5
    assert Expression("result|sum(attribute='a')", "c").value([{"a": 1}, {"a": 2}]) == 3
