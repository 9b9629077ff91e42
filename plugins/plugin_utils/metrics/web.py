# SPDX-License-Identifier: GPL-3.0-or-later
"""Measurements from a web service that answers with JSON; the result is at `path`.

A judge that compares needs a mapping there with `new` and `stable`. `{service}`, `{revision}`,
`{stable}`, `{previous}`, `{step}`, `{start}`, `{elapsed}` and `{id}` are placeholders in the URL
and the body.
"""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping
from functools import partial

from ..base.errors import InputError
from ..inputs.expressions import Path
from ..inputs.options import RAW, Field, Kind, Options, choice
from ..inputs.placeholders import OF_METRICS, QueryTemplate, Template
from ..interfaces.context import DriverContext
from ..interfaces.metric import MetricDriver, Question
from ..remote import http_client
from . import _source
from ._facts import facts

OPTIONS = Options(
    Field(
        "url",
        Kind("str", partial(http_client.url, names=OF_METRICS)),
        "URL of a service that answers with JSON. Judges that compare need a mapping with V(new)"
        " and V(stable) there.",
        required=True,
    ),
    Field("method", choice("GET", "POST"), "HTTP method.", default="GET"),
    Field("body", RAW, "What V(POST) sends: a text as it is, or anything else as JSON."),
    Field(
        "path",
        Kind("str", Path),
        "Path of the result in the answer (V(data.items[0].value)). V($) is all of it.",
        default="$",
    ),
    *_source.OPTIONS.fields,
)


class Driver(MetricDriver):
    """Measures by asking a web service."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._url = Template(options["url"], "metric.url", OF_METRICS)
        self._method, self._path = options["method"], options["path"]
        self._body, kind = _body(options["body"], self._method)
        self._source = _source.Source(options)
        self._headers = {
            "Accept": "application/json",
            **({"Content-Type": kind} if self._body else {}),
        }

    def measure(self, question: Question) -> t.Any:
        names = facts(question)
        address = self._url.render(names, quoted=True)
        body = self._body.render(names).encode() if self._body else None
        answer, _headers = self._source.ask(self._method, address, body, self._headers)
        return self._path.value(answer)


def _body(given: t.Any, method: str) -> tuple[QueryTemplate | None, str]:
    """Return what is sent, and its content type: a text as it is, anything else as JSON."""
    if given is None:
        return None, ""
    if method == "GET":
        raise InputError("metric.body: GET sends nothing; use method POST", "PR-107")
    text, kind = (
        (given, "text/plain") if isinstance(given, str) else (json.dumps(given), "application/json")
    )
    return QueryTemplate(text, "metric.body"), kind
