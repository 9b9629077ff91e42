# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prometheus, or what answers like it: an instant query, at the moment of the server's own clock, one request a measurement.

For conditions the result is a number (of a scalar) or a list of numbers (of a vector, also of one element). A judge that compares
gets those of both revisions of the same query, told apart by `label`, so that both are of the same moment.

`errors` and `requests`, instead of `query`, are what was counted since the analysis began, of each revision; both go as one query.
A revision that has requests and no series of errors has had no error: most programs make that series with their first error.

`{service}`, `{revision}`, `{stable}`, `{previous}`, `{step}`, `{start}`, `{elapsed}` (with its unit) and `{id}` are filled in; every
other brace is PromQL's. They go where PromQL has a string, `{revision="{revision}"}`, and into ranges, `[{elapsed}]`. After `=~` they
are regular expressions, in which the `.` and `+` of a revision mean something else. `{start}` is by the clock here, not the server's.
"""

from __future__ import annotations

import base64
import email.utils
import re
import typing as t
import urllib.parse
from collections.abc import Mapping, Sequence

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError, MetricError
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.options import TEXT, Field, Kind, Options
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.placeholders import insert
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import Context
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.metric import MetricDriver, Question
from ansible_collections.progressive.rollout.plugins.plugin_utils.metrics import _source
from ansible_collections.progressive.rollout.plugins.plugin_utils.metrics._facts import facts
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote import http


def _address(given: t.Any, variable: str) -> str:
    """Return where Prometheus is, perhaps below a path."""
    address = http.url(given, variable, ())
    if re.search(r"[?#{}]", address):
        raise InputError(f"{variable}: must not have ? or #; write https://host:9090")
    return address


def _label(given: t.Any, variable: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*", str(given)):
        raise InputError(f"{variable}: {given!r} is not the name of a label; use letters, digits and _")
    return str(given)


def _promql(given: t.Any, variable: str) -> str:
    text = values.text(given, variable).strip()
    if not text:
        raise InputError(f"{variable}: must not be empty; write PromQL")
    insert(text, variable)
    return text


_PROMQL = Kind("str", _promql)
OPTIONS = Options(
    Field("address", Kind("str", _address), "URL of Prometheus (V(https://prometheus:9090)).", required=True),
    Field("query", _PROMQL, "Expression in PromQL, for the present value."),
    Field(
        "errors",
        _PROMQL,
        "Expression in PromQL for the errors since the analysis began. Goes with C(requests), instead of C(query).",
    ),
    Field("requests", _PROMQL, "Expression in PromQL for the requests since the analysis began."),
    Field("label", Kind("str", _label), "Label that tells the revisions apart.", default="revision"),
    Field("username", TEXT, "User for basic authentication. Goes with C(password)."),
    Field("password", TEXT, "Password of the user.", no_log=True),
    Field("bearer_token", TEXT, "Token, instead of a user.", no_log=True),
    *_source.OPTIONS.fields,
)

STALE = 60.0  # s that an answer may be older than the response it comes in
_PART = "rollout_part"  # the label that tells errors from requests in one answer
_COUNTS = ("errors", "requests")

Series = Sequence[tuple[Mapping[str, str], float]]


class Driver(MetricDriver):
    """A `drivers.MetricDriver`."""

    def __init__(self, options: Mapping[str, t.Any], context: Context) -> None:
        self._origin = http.origin(options["address"])
        self._address = options["address"].rstrip("/") + "/api/v1/query"
        self._counts, self._query = _query(options)
        self._label = options["label"]
        self._source = _source.Source(options, _authorization(options), [options["password"] or ""])

    def measure(self, question: Question) -> t.Any:
        form = {"query": insert(self._query, "metric.query", facts(question)), "timeout": f"{self._source.timeout:.3f}"}
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        answer, headers = self._source.ask("POST", self._address, urllib.parse.urlencode(form).encode(), kind)
        result = self._read(answer, headers)
        if self._counts:
            return self._counted(result, question)
        if question.paired:
            found = self._sides(result, question)
            return {side: one[0] if len(one) == 1 else one for side, one in found.items()}
        return result if isinstance(result, float) else [value for _labels, value in result]

    def _read(self, answer: t.Any, headers: Mapping[str, str]) -> float | Series:
        """The number of a scalar, or the series of a vector, of now. Raises MetricError."""
        try:
            if answer["status"] != "success" or answer.get("warnings"):
                text = self._source.client.shown(str(answer.get("error") or answer.get("warnings")), self._address)
                raise MetricError(f"{self._origin} answered in part, or not at all: {text}")
            kind, result = answer["data"]["resultType"], answer["data"]["result"]
            if kind not in ("scalar", "vector"):
                raise MetricError(f"metric.query: its result is a {kind}; let it come to a number or an instant vector")
            samples = [({}, result)] if kind == "scalar" else [(one["metric"], one["value"]) for one in result]
            series = [(dict(labels), float(number)) for labels, (_moment, number) in samples]
            age = max((_age(float(moment), headers) for _labels, (moment, _number) in samples), default=0.0)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise MetricError(f"{self._origin} answered with JSON that is not Prometheus'") from None
        if age > STALE:
            raise MetricError(
                f"{self._origin} gave an answer of a moment {age:.0f} s away; is there a cache, or has its clock jumped?"
            )
        if not series:
            raise MetricError(f"metric.{'requests' if self._counts else 'query'}: it found no series at {self._origin}")
        return series[0][1] if kind == "scalar" else series

    def _counted(self, result: float | Series, question: Question) -> dict[str, dict[str, float]]:
        """Requests and errors of both sides."""
        series = [] if isinstance(result, float) else result
        parts = {part: [one for one in series if one[0].get(_PART) == part] for part in _COUNTS}
        requests = self._sides(parts["requests"], question)
        errors = self._sides(parts["errors"], question, missing=True)
        found = {side: {"requests": sum(requests[side]), "errors": sum(errors[side])} for side in requests}
        for side, one in found.items():
            if one["errors"] > 1.1 * one["requests"] + 1:  # `increase` is an estimate
                raise MetricError(
                    f"metric.errors: on the {side} side there are {one['errors']:g} errors of {one['requests']:g} requests;"
                    " let both expressions count the same requests"
                )
        return found

    def _sides(self, result: float | Series, question: Question, missing: bool = False) -> dict[str, list[float]]:
        """The numbers of the new and the stable revision; `missing`: there may be none."""
        revisions = {"new": question.rollout.get("revision"), "stable": question.rollout.get("stable")}
        if not revisions["stable"] or revisions["new"] == revisions["stable"]:
            raise MetricError(f"metric.label: the rollout has no two revisions that {self._label} could tell apart")
        series = [] if isinstance(result, float) else result
        found = {side: [value for labels, value in series if labels.get(self._label) == name] for side, name in revisions.items()}
        for side, one in found.items():
            if not one and not missing:
                there = sorted({labels.get(self._label, "") for labels, _value in series} - {""})
                raise MetricError(
                    f"metric.label: no series has {self._label}={revisions[side]!r}; there are {', '.join(there[:5]) or 'none with it'}"
                )
        return found


def _query(options: Mapping[str, t.Any]) -> tuple[bool, str]:
    """Whether it is errors and requests that are asked for, and the PromQL that does."""
    given = {name: options[name] for name in ("query", *_COUNTS) if options[name] is not None}
    if sorted(given) not in (["query"], ["errors", "requests"]):
        raise InputError(f"metric: it has {' and '.join(given) or 'no query'}; give either query, or errors and requests")
    if "query" in given:
        return False, given["query"]
    # The line ends where a comment would go on.
    return True, " or ".join(f'label_replace(({given[part]}\n), "{_PART}", "{part}", "", "")' for part in _COUNTS)


def _authorization(options: Mapping[str, t.Any]) -> dict[str, str]:
    """The header that says who asks."""
    user, password, token = (options[name] for name in ("username", "password", "bearer_token"))
    named = any(str(name).lower() == "authorization" for name in options["headers"])
    if (user is None) != (password is None):
        raise InputError("metric.username: it goes with password; give both, or none")
    if (user is not None) + (token is not None) + named > 1:
        raise InputError(
            "metric.username: username, bearer_token and a header Authorization exclude each other; give one of them"
        )
    if user is not None and ":" in user:
        raise InputError(f"metric.username: {user!r} has a colon, which ends a name; correct it")
    if token is not None:
        return http.headers({"Authorization": f"Bearer {token}"}, "metric.bearer_token")
    if user is not None:
        return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
    return {}


def _age(moment: float, headers: Mapping[str, str]) -> float:
    """How many seconds an answer is away from its response, both by the server's clock; 0 where it does not say."""
    kept = float(headers.get("Age") or 0)
    sent = headers.get("Date")
    return abs(email.utils.parsedate_to_datetime(sent).timestamp() - moment) + kept if sent else kept
