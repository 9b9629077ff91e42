# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Agents read and write JSON as Python's own module does, without its imports."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _bootstrap
from hypothesis import given
from hypothesis import strategies as st

plain: st.SearchStrategy[t.Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(plain)
def test_plain_data_comes_back(data: t.Any) -> None:
    assert _bootstrap.plain_dump(data) == json.dumps(data) == _bootstrap.dump(data)
    for text in (json.dumps(data), json.dumps(data, indent=1), json.dumps(data, ensure_ascii=False).encode()):
        assert _bootstrap.load(text) == data


@given(st.text('{}[]:,"\\ \n0123456789.-+eEtrufalsn', max_size=12) | st.binary(max_size=6))
def test_any_other_text_is_refused(text: str | bytes) -> None:
    try:
        expected = json.loads(text.decode() if isinstance(text, bytes) else text)
    except ValueError:
        with pytest.raises(ValueError):
            _bootstrap.load(text)
    else:
        assert _bootstrap.load(text) == expected


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_none_are_read_as_python_does(number: str) -> None:
    assert repr(_bootstrap.load(f"[{number}]")) == repr(json.loads(f"[{number}]"))
