# SPDX-License-Identifier: GPL-3.0-or-later
"""The sources of measurements: a real Prometheus that scrapes a real HAProxy, a real web server,
real commands.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import socket
import ssl
import sys
import time
import typing as t
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from email.utils import formatdate
from pathlib import Path

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis import judging, spec
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    MetricError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.gate_runner import (
    GateRunner,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Gate
from ansible_collections.progressive.rollout.plugins.plugin_utils.gates import analysis
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.gate import (
    FAIL,
    PASS,
    WAIT,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.metric import Question
from ansible_collections.progressive.rollout.plugins.plugin_utils.metrics import (
    command,
    prometheus,
    web,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.transport import Transport
from ansible_collections.progressive.rollout.tests.support.connect import connect
from ansible_collections.progressive.rollout.tests.support.haproxy import HAProxy
from ansible_collections.progressive.rollout.tests.support.processes import running, stopped
from ansible_collections.progressive.rollout.tests.support.prometheus import LOGIN, Prometheus
from ansible_collections.progressive.rollout.tests.support.waiting import until
from ansible_collections.progressive.rollout.tests.support.web import Server, certificate

ROLLOUT = {
    "id": "r1",
    "service": "shop",
    "revision": "2.5.0",
    "stable": "2.4.0",
    "previous": "2.4.0",
    "stage": "step 1",
}
ASKED = Question(ROLLOUT, start=1_700_000_000.0, now=1_700_000_600.4)
PAIRED = replace(ASKED, paired=True)
FIRST = replace(PAIRED, rollout={**ROLLOUT, "stable": None, "previous": None})
SECRET = "s3cret-of-the-metric"
USER, PASSWORD = LOGIN
REVISIONS = ("2.4.0", "2.5.0")  # stable and new
EACH = 20  # requests to each revision; those to the new one fail


def make(module: t.Any, transport: Transport | None = None, **options: t.Any) -> t.Any:
    """A driver with its options checked and completed, as an analysis makes it."""
    checked = module.OPTIONS.parse(options, "metric.")
    return module.Driver(checked, DriverContext("shop", t.cast(t.Any, transport)))


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.close()


@pytest.fixture
def transport(tmp_path: Path) -> Iterator[Transport]:
    one = connect(
        {name: {"ansible_connection": "local"} for name in ("h1", "h2")},
        tmp_path / "inventory.json",
    )
    yield one
    one.close()


# prometheus: a real one
# -----------------------------------------------------------------------------------------------

# What HAProxy answered by revision, which is the name of the server there; with the placeholders'
# braces among PromQL's own. Over some time, as a busy machine may be late for a scrape, and then
# nothing is there for a second.
ANSWERED = (
    "sum by (revision)"
    ' (label_replace(last_over_time(haproxy_server_http_responses_total{proxy="{service}"%s}[10m]),'
    ' "revision", "$1", "server", "(.*)"))'
)
UP = 'max_over_time(up{job="balancer"}[10m])'
REQUESTS, ERRORS = ANSWERED % ', code=~"[1-5]x{2}"', ANSWERED % ', code="5xx"'


@dataclass
class World:
    prometheus: Prometheus
    certificate: Path
    other: Path  # certificate, of somebody else


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A Prometheus that has scraped an HAProxy with two servers, of which the new one fails."""
    folder = tmp_path_factory.mktemp("world")
    own, other = certificate(folder), certificate(folder, "other")
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(contextlib.closing(Server())) for _name in REVISIONS]
        servers[1].replies = [(500, "")]
        lines = [
            f"server {name} 127.0.0.1:{one.server.server_port}"
            for name, one in zip(REVISIONS, servers, strict=True)
        ]
        haproxy = stack.enter_context(contextlib.closing(HAProxy("\n    ".join(lines))))
        one = stack.enter_context(Prometheus({"balancer": haproxy.metrics}, own, login=True))
        one.scraped("balancer")
        for _number in range(EACH * len(REVISIONS)):  # in turn
            with socket.create_connection(haproxy.front) as connection:
                connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                assert connection.makefile("rb").read().startswith(b"HTTP/1.")
        one.scraped("balancer")
        yield World(one, own[0], other[0])


def real(world: World, **options: t.Any) -> t.Any:
    given = {
        "address": world.prometheus.url,
        "username": USER,
        "password": PASSWORD,
        "ca_path": str(world.certificate),
    }
    return make(prometheus, **{**given, **options})


@pytest.mark.parametrize(
    ("query", "result"),
    [
        ("scalar(vector(0.97))", 0.97),
        ("0.5 + 0.47 # success rate", 0.97),
        ("vector(3)", [3.0]),
        (UP, [1.0]),
        ("1 / 0", math.inf),
        ("-vector(1) / 0", [-math.inf]),
        ('sort(label_replace(vector(1), "a", "b", "", "") or vector(2))', [1.0, 2.0]),
        (f"sort({ERRORS} / {REQUESTS})", [0.0, 1.0]),
        (
            f"sum({ANSWERED % ''} == {EACH}) and on() vector({{start}}) == {int(ASKED.start)}",
            [2.0 * EACH],
        ),
        ('label_replace(vector(7), "r", "${rev}", "", "(?P<rev>)"){}', None),
    ],
)
def test_what_an_expression_comes_to(world: World, query: str, result: t.Any) -> None:
    driver = real(world, query=query)
    if result is None:
        with pytest.raises(MetricError, match="parse error"):
            driver.measure(ASKED)
    else:
        assert driver.measure(ASKED) == result


@pytest.mark.parametrize("query", ["scalar(vector(0) / 0)", "vector(0) / vector(0)"])
def test_nothing_divided_by_nothing_is_nan(world: World, query: str) -> None:
    found = real(world, query=query).measure(ASKED)
    assert math.isnan(found if isinstance(found, float) else found[0])


def test_both_revisions_are_told_apart_in_one_query(world: World) -> None:
    assert real(world, query=REQUESTS).measure(PAIRED) == {
        "new": float(EACH),
        "stable": float(EACH),
    }
    each = (
        ANSWERED.removeprefix("sum by (revision) ").replace('"revision"', '"to"')
        % ', code=~"[25]xx"'
    )
    found = real(world, query=each, label="to").measure(PAIRED)
    assert {side: sorted(found[side]) for side in found} == {
        "new": [0.0, EACH],
        "stable": [0.0, EACH],
    }


def test_errors_and_requests_are_counted_in_one_query(world: World) -> None:
    expected = {
        "new": {"requests": EACH, "errors": EACH},
        "stable": {"requests": EACH, "errors": 0},
    }
    for question in (ASKED, PAIRED):
        assert (
            real(world, requests=REQUESTS + " # all", errors=ERRORS).measure(question) == expected
        )


def test_a_revision_without_a_series_of_errors_has_had_none(world: World) -> None:
    """As with programs that make that series with their first error."""
    counted = real(world, requests=REQUESTS, errors=ERRORS + " > 0").measure(PAIRED)
    assert counted == {
        "new": {"requests": EACH, "errors": EACH},
        "stable": {"requests": EACH, "errors": 0},
    }


def test_what_came_since_the_analysis_began(world: World) -> None:
    """By `increase`, which is an estimate: its window is not the moments of the first and the
    last scrape.
    """
    since = (
        "sum by (revision)"
        ' (label_replace(increase(haproxy_server_http_responses_total{%s}[{elapsed}]), "revision",'
        ' "$1", "server", "(.*)"))'
    )
    counted = real(
        world, requests=since % 'proxy="shop"', errors=since % 'proxy="shop", code="5xx"'
    ).measure(PAIRED)
    assert (
        counted["new"]["errors"] == counted["new"]["requests"] > EACH / 2
        and counted["stable"]["errors"] == 0
    )


def test_whose_clock_is_wrong_does_not_matter(world: World) -> None:
    for moment in (0.0, 4_000_000_000.0):
        assert real(world, query=REQUESTS).measure(
            replace(PAIRED, start=moment, now=moment + 5)
        ) == {"new": EACH, "stable": EACH}


def test_the_guides_examples_are_promql(world: World) -> None:
    """Of series that this Prometheus does not have."""
    guide = (Path(__file__).parents[2] / "docs/how-to/analysis.md").read_text()
    text = guide.partition("<!-- test: metrics.yml -->\n```yaml\n")[2].partition("```")[0]
    found = [one for one in yaml.safe_load(text)["metrics"] if one.get("driver") == "prometheus"]
    for metric in found:
        given = {name: metric[name] for name in ("query", "requests", "errors") if name in metric}
        with pytest.raises(MetricError, match="no series found"):
            real(world, **given).measure(ASKED)
    assert len(found) == 3


@pytest.mark.parametrize(
    ("options", "question", "why"),
    [
        (
            {"query": "no_such_metric"},
            ASKED,
            r"^metric\.query: no series found at https://127\.0\.0\.1:\d+$",
        ),
        ({"query": "no_such_metric"}, PAIRED, r"^metric\.query: no series found"),
        (
            {"query": "up[1m]"},
            ASKED,
            r"^metric\.query: the result is a matrix; it must be a scalar or an instant vector",
        ),
        ({"query": "'text'"}, ASKED, r"^metric\.query: the result is a string"),
        ({"query": "sum(up"}, ASKED, r"returned 400: .*parse error: unclosed left parenthesis"),
        (
            {"query": "max_over_time({job='balancer'}[10m])"},
            ASKED,
            r"returned 422: .*same labelset",
        ),
        (
            {"query": f"sum({UP})"},
            PAIRED,
            r"^metric\.label: no series has revision='2\.5\.0'; found: none$",
        ),
        (
            {"query": "scalar(vector(1))"},
            PAIRED,
            r"^metric\.label: no series has revision='2\.5\.0'; found: none$",
        ),
        ({"query": UP, "label": "job"}, PAIRED, r"no series has job='2\.5\.0'; found: balancer$"),
        (
            {"query": UP},
            FIRST,
            (
                r"^metric\.label: needs a stable and a new revision to compare; a first deployment"
                r" or restart has only one$"
            ),
        ),
        (
            {"query": 'up{job="{stable}"}'},
            FIRST,
            r"^metric\.query: the rollout has no value for \{stable\}$",
        ),
        (
            {"requests": "no_such_metric", "errors": ERRORS},
            PAIRED,
            r"^metric\.label: no series has revision='2\.5\.0'",
        ),
        (
            {"requests": "no_such_metric", "errors": "no_such_metric"},
            PAIRED,
            r"^metric\.requests: no series found",
        ),
        (
            {"requests": ERRORS, "errors": f"{REQUESTS}"},
            PAIRED,
            r"^metric\.errors: the stable side has 20 errors in 0 requests",
        ),
        (
            {"requests": REQUESTS, "errors": "1"},
            PAIRED,
            r"returned 400: .*expected type instant vector",
        ),
        ({"query": "up", "password": "wrong-" + SECRET}, ASKED, r"returned 401: Unauthorized$"),
        (
            {"query": "up", "username": None, "password": None},
            ASKED,
            r"returned 401: Unauthorized$",
        ),
        (
            {"query": "up", "ca_path": None},
            ASKED,
            r"request failed: certificate refused: self-signed certificate",
        ),
    ],
)
def test_what_cannot_be_measured_is_an_error(
    world: World, options: dict[str, t.Any], question: Question, why: str
) -> None:
    with pytest.raises(MetricError, match=why) as caught:
        real(world, **options).measure(question)
    assert PASSWORD not in str(caught.value) and SECRET not in str(caught.value)


def test_another_ca_is_refused_and_none_asked_for_is_not(world: World) -> None:
    with pytest.raises(MetricError, match="request failed: certificate refused"):
        real(world, query=UP, ca_path=str(world.other)).measure(ASKED)
    assert real(world, query=UP, ca_path=None, validate_certs=False).measure(ASKED) == [1.0]


def test_one_that_hangs_is_not_waited_for(world: World) -> None:
    driver = real(world, query=UP, answer_within="300ms")
    with (
        stopped(world.prometheus.process.pid),
        pytest.raises(MetricError, match=r"request failed: no answer in 0\.3 s$"),
    ):
        driver.measure(ASKED)
    assert real(world, query=UP).measure(ASKED) == [1.0]


# prometheus: values of the past
# -----------------------------------------------------------------------------------------------

MINUTES = 120  # of the past; the new revision is 40 minutes old
YOUNG, GAP, UNKNOWN = 40, range(20, 30), 35  # minutes ago


def seconds_of(instance: str, minute: int, factor: float) -> float:
    """The seconds of a service that go up and down, and that no two instances agree on."""
    return factor * (0.2 + 0.05 * math.sin(minute) + 0.01 * ((instance == "a") + minute % 7))


@pytest.fixture(scope="module")
def past() -> Iterator[Prometheus]:
    """A Prometheus with samples of two hours: of two old instances, and two new ones."""
    ended = time.time() // 60 * 60
    lines = []
    for name, factor in (("seconds", 1.0), ("slow", 1.5)):
        lines.append(f"# TYPE {name} gauge")
        for revision, instance in itertools.product(REVISIONS, "ab"):
            new = revision == REVISIONS[1]
            for ago in reversed(range(MINUTES)):
                if new and (ago >= YOUNG or ago in GAP):
                    continue
                value = seconds_of(instance, ago, factor if new else 1.0)
                shown = "NaN" if new and ago == UNKNOWN else f"{value:.6f}"
                labels = f'revision="{revision}",instance="{instance}"'
                lines.append(f"{name}{{{labels}}} {shown} {ended - 60 * ago:.0f}")
    with Prometheus({}, past="\n".join([*lines, "# EOF\n"])) as one:
        yield one


def test_values_of_the_past_are_of_the_same_moments(past: Prometheus) -> None:
    """A gap is left out of both sides, and a NaN is none."""
    query = "max by (revision) (last_over_time(seconds[59s]))"
    found = make(prometheus, address=past.url, query=query, range="1h", step="1m").measure(PAIRED)
    sides = [found[side] for side in ("new", "stable")]
    assert found["past"] and [len(side) for side in sides] == [YOUNG - len(GAP)] * 2, found
    assert [math.isnan(one) for one in sides[0]].count(True) == 1
    assert all(a == b or math.isnan(a) for a, b in zip(*sides, strict=True)), found


def test_all_instances_have_values_of_the_past(past: Prometheus) -> None:
    given = {"address": past.url, "query": "seconds", "range": "30m", "step": "30s"}
    found = make(prometheus, **given).measure(PAIRED)
    assert len(found["new"]) == len(found["stable"]) and len(found["new"]) % 2 == 0
    assert len(found["new"]) > 2 * 2 * 20


@pytest.mark.parametrize(
    ("name", "verdict", "why"),
    [("seconds", PASS, r"score 100"), ("slow", FAIL, r"score 0, fail; m high: mean")],
)
def test_kayenta_has_the_past_at_the_first_look(
    past: Prometheus, name: str, verdict: str, why: str
) -> None:
    metric = {
        "name": "m",
        "driver": "prometheus",
        "address": past.url,
        "query": name,
        "range": "1h",
        "judge": "kayenta",
        "direction": "increase",
    }
    gate = analysis.OPTIONS.parse({"metrics": [metric], "count": 1}, "gate.")
    driver = analysis.Driver(gate, DriverContext("shop", t.cast(t.Any, None)))
    while (answer := driver.ask(ROLLOUT, 1.0)).verdict == WAIT:
        pass  # it waits for the answer of Prometheus, which is the only one
    assert answer.verdict == verdict, answer
    assert re.search(why, answer.message), answer


def test_a_second_look_at_the_past_counts_nothing_twice(past: Prometheus) -> None:
    options = {"driver": "prometheus", "judge": "kayenta", "name": "m", "query": "seconds"}
    given = {"metrics": [{**options, "address": past.url, "range": "1h"}]}
    (metric,) = spec.parse(analysis.OPTIONS.parse(given, "gate."), "gate", ()).metrics
    driver, state = make(prometheus, **metric.options), {}
    for _look in range(2):
        found = driver.measure(PAIRED)
        judging.judge_result(metric, state, found)
        assert [len(state[side]) for side in ("new", "stable")] == [
            len(found[side]) for side in ("new", "stable")
        ]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"query": "seconds", "label": "instance"},
            r"no series has instance='2\.5\.0'; found: a, b",
        ),
        ({"query": "no_such_metric"}, "no series found at"),
        (
            {"query": "seconds and on() (vector(time()) < 0)"},
            "no series found at",
        ),
        (
            {"query": "seconds offset 35m"},
            r"both revisions have values at \d moments of the last 1h, a step of 1m apart;",
        ),
        ({"query": "seconds[1m]"}, r"returned 400: .*parse error"),
        ({"query": "1"}, r"returned 400: .*subquery is only allowed on instant vector"),
    ],
)
def test_what_cannot_be_told_from_the_past(past: Prometheus, options: t.Any, why: str) -> None:
    with pytest.raises(MetricError, match=why):
        make(prometheus, address=past.url, range="1h", **options).measure(PAIRED)


# prometheus: what lies, or is no Prometheus
# ---------------------------------------------------------------------------


NOW = 1_700_000_000.0  # by the server's clock


def answer(*series: t.Any, kind: str = "vector", moment: t.Any = NOW, **more: t.Any) -> str:
    """A document as Prometheus makes them, of values or of pairs of labels and a value."""
    pairs = [one if isinstance(one, tuple) else ({}, one) for one in series]
    result: t.Any = [{"metric": labels, "value": [moment, value]} for labels, value in pairs]
    result = result[0]["value"] if kind == "scalar" else result
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}, **more})


def now(body: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    """A reply that is made now."""
    return 200, body, {"Date": formatdate(NOW, usegmt=True), **headers}


HOUR = {"range": "1h", "step": "1m", "query": "up"}


def series(revision: str, *points: t.Any) -> dict[str, t.Any]:
    return {"metric": {"revision": revision}, "values": list(points)}


def matrix(*found: t.Any) -> tuple[int, str, dict[str, str]]:
    data = {"resultType": "matrix", "result": list(found)}
    return now(json.dumps({"status": "success", "data": data}))


def points(count: int, value: t.Any = "1") -> list[t.Any]:
    return [[NOW - 60 * ago, value] for ago in reversed(range(count))]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (now(answer("1")), r"^metric\.query: the result is a vector; it must be"),
        (matrix(), r"^metric\.query: no series found"),
        (matrix(series("2.5.0")), r"^metric\.query: no series found"),
        (matrix(series("2.5.0", *points(60))), r"no series has revision='2\.4\.0'; found: 2\.5\.0"),
        (matrix("x"), "response is not that of a Prometheus query"),
        (matrix({"metric": {}}), "response is not that of a Prometheus query"),
        (matrix(series("2.5.0", 1)), "response is not that of a Prometheus query"),
        (matrix(series("2.5.0", [NOW, "x"])), "response is not that of a Prometheus query"),
        (matrix(series("2.5.0", [math.nan, "1"])), "response is not that of a Prometheus query"),
        (matrix(series("2.5.0", [-math.inf, "1"])), "response is not that of a Prometheus query"),
        (
            matrix(series("2.5.0", [0, "1"], [NOW, "1"])),
            "response is not that of a Prometheus query",
        ),
        (matrix(series("2.5.0", [NOW - 150, "1"])), r"the samples are 150 s older or newer"),
        (matrix(series("2.5.0", [math.inf, "1"])), "response is not that of a Prometheus query"),
        (
            matrix(series("2.5.0", *points(9)), series("2.4.0", *points(60))),
            r"^metric\.range: both revisions have values at 9 moments of the last 1h",
        ),
    ],
)
def test_what_is_no_past(server: Server, reply: t.Any, message: str) -> None:
    server.replies = [reply]
    with pytest.raises(MetricError, match=message):
        make(prometheus, address=server.url, **HOUR).measure(PAIRED)


def test_the_past_is_asked_for_by_the_servers_clock(server: Server) -> None:
    server.replies = [matrix(*(series(one, *points(60, "Inf")) for one in REVISIONS))]
    given = {**HOUR, "query": "up # {revision}"}
    found = make(prometheus, address=server.url, **given).measure(PAIRED)
    assert found == {"new": [math.inf] * 60, "stable": [math.inf] * 60, "past": True}
    form = urllib.parse.parse_qs(server.requests[0].body.decode())
    assert form["query"] == ["(up # 2.5.0\n)[3600000ms:60000ms]"]


def test_no_more_of_the_past_than_the_judge_keeps(server: Server) -> None:
    """Of both sides the same moments, the last one among them."""
    found = [series("2.5.0", *points(60, str(n))) for n in range(3)]
    server.replies = [matrix(*found, *(series("2.4.0", *points(60)) for _n in range(70)))]
    sides = make(prometheus, address=server.url, **HOUR).measure(PAIRED)
    assert len(sides["new"]) == 12 * 3 and len(sides["stable"]) == 12 * 70 <= judging.MOST


def test_what_it_is_asked(server: Server) -> None:
    server.replies = [now(answer("1"))]
    query = 'sum(rate(http{revision="{revision}",code!~"5.."}[1m]))' + " # " + "x" * 10_000
    make(
        prometheus,
        address=server.url + "/below/",
        query=query,
        bearer_token=SECRET,
        headers={"X-Scope-OrgID": 7},
    ).measure(ASKED)
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/below/api/v1/query")
    form = urllib.parse.parse_qs(request.body.decode())
    assert form == {
        "query": [query.replace("{revision}", "2.5.0", 1).replace("{revision=", "{revision=")],
        "timeout": ["10.000"],
    }
    assert (
        request.headers["Authorization"] == f"Bearer {SECRET}"
        and request.headers["X-Scope-OrgID"] == "7"
    )


def test_every_placeholder(server: Server) -> None:
    server.replies = [now(answer("1"))]
    query = (
        "{service} {revision} {stable} {previous} {step} {id} @ {start} [{elapsed}] {} { a }"
        " ${name} {2}"
    )
    make(prometheus, address=server.url, query=query).measure(ASKED)
    sent = urllib.parse.parse_qs(server.requests[0].body.decode())["query"]
    assert sent == ["shop 2.5.0 2.4.0 2.4.0 step 1 r1 @ 1700000000 [600s] {} { a } ${name} {2}"]


NOT_PROMETHEUS = "response is not that of a Prometheus query"


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ((200, "<html>Sign in</html>"), r"response is not JSON: <html>Sign in</html>"),
        ((200, ""), r"response is not JSON: empty"),
        ((200, "[" * 100_000), r"response is not JSON: \[\["),
        (now(answer("1")[:-5]), "response is not JSON"),
        (
            now(answer("1"), **{"Content-Length": "999"}),
            r"request failed: the connection failed \(IncompleteRead\)",
        ),
        (None, "request failed: .*closed"),
        ((503, "no healthy upstream"), r"returned 503: no healthy upstream"),
        ((302, ""), r"returned 302: redirects are not followed"),
        ((429, "slow down"), r"returned 429: slow down"),
        ((200, "x" * 2_000_000), r"response exceeds 1 MiB"),
        (now(answer(kind="vector")), r"^metric\.query: no series found"),
        ((200, "3"), NOT_PROMETHEUS),
        ((200, "[]"), NOT_PROMETHEUS),
        ((200, "{}"), NOT_PROMETHEUS),
        ((200, '{"status": "success"}'), NOT_PROMETHEUS),
        ((200, '{"status": "success", "data": null}'), NOT_PROMETHEUS),
        (
            (200, '{"status": "success", "data": {"resultType": "vector", "result": 3}}'),
            NOT_PROMETHEUS,
        ),
        (
            (
                200,
                (
                    '{"status": "success", "data": {"resultType": "vector", "result": [{"metric":'
                    ' {}, "value": 1}]}}'
                ),
            ),
            NOT_PROMETHEUS,
        ),
        (
            (
                200,
                (
                    '{"status": "success", "data": {"resultType": "vector", "result": [{"metric":'
                    ' {}, "value": [1]}]}}'
                ),
            ),
            NOT_PROMETHEUS,
        ),
        (now(answer("soon")), NOT_PROMETHEUS),
        (now(answer(None)), NOT_PROMETHEUS),
        (now(answer("1", moment="now")), NOT_PROMETHEUS),
        (now(answer("1"), Date="yesterday"), NOT_PROMETHEUS),
        (now(answer(10**400)), NOT_PROMETHEUS),
        (now(answer("1", moment=10**400)), NOT_PROMETHEUS),
        (now(answer("1", moment="NaN")), "older or newer"),
        (now(answer(({"revision": ["2"]}, "1"))), NOT_PROMETHEUS),
        (now(answer("1", kind="\x1b[2J" * 1000)), r"the result is a \?\[2J.{,80}; it must be"),
        (
            (200, '{"status": "error", "errorType": "timeout", "error": "query timed out"}'),
            r"could not answer completely: query timed out",
        ),
        (
            now(answer("1", warnings=["a store is away"])),
            r"could not answer completely: .*a store is away",
        ),
        (now(answer("1", moment=NOW - 300)), r"300 s older or newer"),
        (now(answer("1", moment=NOW + 300)), r"300 s older or newer"),
        (now(answer("1", kind="scalar", moment=NOW - 300)), "older or newer"),
        (now(answer("1"), Age="120"), r"120 s older or newer"),
    ],
)
def test_what_is_no_answer_is_an_error(server: Server, reply: t.Any, why: str) -> None:
    server.replies = [reply]
    with pytest.raises(MetricError, match=why):
        make(prometheus, address=server.url, query="up").measure(ASKED)
    assert len(server.requests) == 1


def test_labels_are_shown_clean_and_short(server: Server) -> None:
    server.replies = [now(answer(({"revision": "\x1b[2J" * 1000}, "1")))]
    with pytest.raises(MetricError, match=r"no series has revision='2\.5\.0'") as caught:
        make(prometheus, address=server.url, query="up").measure(PAIRED)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 500


def test_an_answer_is_of_now_by_the_servers_own_clock(server: Server) -> None:
    """Which is years away from ours here."""
    for moment in (NOW - 59, NOW, NOW + 59):
        server.replies = [now(answer("0.97", moment=moment))]
        assert make(prometheus, address=server.url, query="up").measure(ASKED) == [0.97]
    server.replies = [now(answer("1", "NaN", "+Inf", "-Inf"))]
    one, nan, *infinite = make(prometheus, address=server.url, query="up").measure(ASKED)
    assert one == 1 and math.isnan(nan) and infinite == [math.inf, -math.inf]


def test_an_answer_that_drips_is_bounded(server: Server) -> None:
    server.hangs.set()
    with pytest.raises(MetricError, match=r"request failed: no answer in 0\.2 s$"):
        make(prometheus, address=server.url, query="up", answer_within="200ms").measure(ASKED)


def test_one_that_is_not_there(server: Server) -> None:
    driver = make(prometheus, address=server.url, query="up", username=USER, password=SECRET)
    server.close()
    with pytest.raises(
        MetricError, match=r"^http://127\.0\.0\.1:\d+: request failed: connection refused$"
    ):
        driver.measure(ASKED)


def test_a_clients_certificate(tmp_path: Path) -> None:
    own, key = certificate(tmp_path)
    mine, my_key = certificate(tmp_path, "client")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own, key)
    context.load_verify_locations(mine)
    context.verify_mode = ssl.CERT_REQUIRED
    both = tmp_path / "both.pem"
    both.write_text(mine.read_text() + my_key.read_text())
    with contextlib.closing(Server(context)) as server:
        server.replies = [now(answer("1"))]
        known: dict[str, t.Any] = {"address": server.url, "query": "up", "ca_path": str(own)}
        for mine_too in (
            {"client_cert": str(mine), "client_key": str(my_key)},
            {"client_cert": str(both)},
        ):
            assert make(prometheus, **{**known, **mine_too}).measure(ASKED) == [1.0]
        with pytest.raises(MetricError, match="request failed: "):
            make(prometheus, **known).measure(ASKED)
        with pytest.raises(MetricError, match="request failed: "):
            make(prometheus, **known, client_cert=str(own), client_key=str(key)).measure(ASKED)


def test_no_secret_is_shown(server: Server) -> None:
    told = f"who is ann:{SECRET}?"
    for reply in ((403, told), (200, told), (200, json.dumps({"status": "error", "error": told}))):
        server.replies = [reply]
        for options in (
            {"username": "ann", "password": SECRET},
            {"bearer_token": SECRET},
            {"headers": {"X-Key": SECRET}},
        ):
            with pytest.raises(MetricError, match=r"who is ann:\*\*\*\?") as caught:
                make(prometheus, address=server.url, query="up", **options).measure(ASKED)
            assert SECRET not in str(caught.value)
    assert {name for name, option in prometheus.OPTIONS.items() if option.no_log} == {
        "headers",
        "password",
        "bearer_token",
    }


# web
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "path", "result"),
    [
        ("0.97", None, 0.97),
        ('{"data": {"items": [{"value": 3}]}}', "data.items[0].value", 3),
        ('{"data": {"items": [{"value": 3}]}}', "{$.data.items}", [{"value": 3}]),
        ('{"new": 1, "stable": [2, 3]}', "$", {"new": 1, "stable": [2, 3]}),
    ],
)
def test_a_service_says_it(server: Server, body: str, path: str | None, result: t.Any) -> None:
    server.replies = [(200, body)]
    url = server.url + "/{service}?revision={revision}&step={step}&since={start}"
    assert make(web, url=url, path=path, headers={"X-Key": SECRET}).measure(ASKED) == result
    (request,) = server.requests
    assert (request.method, request.path) == (
        "GET",
        "/shop?revision=2.5.0&step=step%201&since=1700000000",
    )
    assert request.headers["X-Key"] == SECRET


@pytest.mark.parametrize(
    "body",
    [{"of": ["{revision}", "{stable}"], "n": 3}, '{"of": ["{revision}", "{stable}"], "n": 3}'],
)
def test_a_service_is_sent_a_document(server: Server, body: t.Any) -> None:
    server.replies = [(200, "[1]")]
    assert make(web, url=server.url, method="POST", body=body).measure(ASKED) == [1]
    (request,) = server.requests
    assert json.loads(request.body) == {"of": ["2.5.0", "2.4.0"], "n": 3}
    assert request.headers["Content-Type"] == (
        "text/plain" if isinstance(body, str) else "application/json"
    )


def test_a_service_that_compares(server: Server) -> None:
    server.replies = [
        (
            200,
            (
                '{"data": {"new": {"requests": 9, "errors": 1}, "stable": {"requests": 90,'
                ' "errors": 1}}}'
            ),
        )
    ]
    assert make(web, url=server.url, path="data").measure(PAIRED)["new"] == {
        "requests": 9,
        "errors": 1,
    }


@pytest.mark.parametrize(
    ("reply", "path", "why"),
    [
        ((404, f"no {SECRET} here"), "$", r"returned 404: no \*\*\* here$"),
        ((204, ""), "$", "response is not JSON: empty"),
        ((200, "<html>"), "$", "response is not JSON: <html>"),
        ((200, '{"value": 3}'), "value.of", r"^metric\.path: `value\.of`: 'of' not found in 3$"),
        ((200, "[" + "1," * 600_000 + "1]"), "$", "response exceeds 1 MiB"),
    ],
)
def test_a_service_that_does_not_say_it(server: Server, reply: t.Any, path: str, why: str) -> None:
    server.replies = [reply]
    with pytest.raises(MetricError, match=why):
        make(web, url=server.url, path=path, headers={"X-Key": SECRET}).measure(ASKED)
    assert len(server.requests) == 1


# command
# --------------------------------------------------------------------------------------------------


def python(code: str, *words: str) -> list[str]:
    return [sys.executable, "-c", code, *words]


@pytest.mark.parametrize("host", [None, "h2"])
def test_a_command_prints_it(transport: Transport, host: str | None) -> None:
    code = "import json, sys; print(json.dumps([json.load(sys.stdin)['id'], sys.argv[1:]]))"
    words = python(
        code, "{service} {revision}", "{stable}", "$HOME", "{elapsed}", "{{start}}", "{start}"
    )
    driver = make(command, transport, host=host, command=words)
    assert driver.measure(ASKED) == [
        "r1",
        ["shop 2.5.0", "2.4.0", "$HOME", "600s", "{start}", "1700000000"],
    ]


@pytest.mark.parametrize(
    ("printed", "result"),
    [("0.97\n", 0.97), ('{{"new": 1, "stable": 2}}', {"new": 1, "stable": 2}), ("[]", [])],
)
def test_a_number_or_json(transport: Transport, printed: str, result: t.Any) -> None:
    assert make(command, transport, command=["printf", printed]).measure(ASKED) == result


@pytest.mark.parametrize(
    ("words", "question", "why"),
    [
        (["sh", "-c", "echo 0.97; echo why >&2; exit 3"], ASKED, r"^sh ended with 3: 0\.97 why$"),
        (["echo", "fine"], ASKED, r"^echo ended with 0: fine, which is not JSON$"),
        (["true"], ASKED, r"^true ended with 0, which is not JSON$"),
        (["sleep", "300"], ASKED, r"^sleep on the controller: no answer in 0\.3 s$"),
        (["/no/such/program"], ASKED, r"^/no/such/program ended with 127"),
    ],
)
def test_a_command_that_does_not_say_it(
    transport: Transport, words: list[str], question: Question, why: str
) -> None:
    with pytest.raises(MetricError, match=why):
        make(
            command,
            transport,
            command=words,
            answer_within="300ms" if words[0] == "sleep" else "20s",
        ).measure(question)


# as parts of an analysis
# ----------------------------------------------------------------------------------------------


def test_the_judge_is_told_by_prometheus(world: World) -> None:
    """Which of both revisions fails; a single look is no verdict yet."""
    given = {
        "address": world.prometheus.url,
        "username": USER,
        "password": PASSWORD,
        "ca_path": str(world.certificate),
    }
    failures = {
        **given,
        "name": "failures",
        "driver": "prometheus",
        "requests": REQUESTS,
        "errors": ERRORS,
    }
    gate = {"metrics": [failures], "interval": "100ms"}
    answer = analysis.Driver(
        analysis.OPTIONS.parse(gate, "gate."), DriverContext("shop", t.cast(t.Any, None))
    ).ask(ROLLOUT, 600)
    assert answer.verdict == WAIT, answer
    assert f"errors {EACH} of {EACH} (100 %) against 0 of {EACH} on stable" in answer.message, (
        answer
    )
    assert PASSWORD not in repr(answer)


def test_twenty_metrics_cost_one_request_each_an_interval(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.replies = [(200, "1")]
    judged = {"driver": "web", "success_condition": "result == 1"}
    metrics = [
        {**judged, "name": f"m{number}", "url": f"{server.url}/{number}"} for number in range(20)
    ]
    gate = analysis.OPTIONS.parse({"metrics": metrics, "interval": "10s", "count": 3}, "gate.")
    driver = analysis.Driver(gate, DriverContext("shop", t.cast(t.Any, None)))
    seconds = 0.0
    monkeypatch.setattr(clock, "now", lambda: 1_700_000_000.0 + seconds)
    asked = []
    while (answer := driver.ask(ROLLOUT, seconds)).verdict == WAIT:
        asked.append(Counter(request.path for request in server.requests))
        seconds += answer.again or 0.0
    assert answer.verdict == PASS and seconds >= 20
    assert Counter(request.path for request in server.requests) == {
        f"/{number}": 3 for number in range(20)
    }
    assert all(max(seen.values()) - min(seen.values()) <= 1 for seen in asked)


def test_a_command_that_nobody_waits_for_any_more_is_ended(transport: Transport) -> None:
    long = f"300.{os.getpid()}{time.time_ns()}"
    metric = {
        "name": "slow",
        "driver": "command",
        "command": ["sh", "-c", f"sleep {long}; true"],
        "answer_within": "1h",
    }
    options = {"metrics": [{**metric, "failure_condition": "result > 0"}]}
    keeper = GateRunner(
        [Gate("g", "analysis", analysis.OPTIONS.parse(options, "gate."))],
        DriverContext("shop", transport),
        {},
    )
    keeper.poll(lambda: ROLLOUT)
    until(lambda: running(f"sleep\0{long}"))
    keeper.close()
    until(lambda: not running(long))


# What is refused
# --------------------------------------------------------------------------------------------------

HERE = {"address": "http://h:9090"}


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (prometheus, {}, r"^metric\.address: not given, but required"),
        (
            prometheus,
            {"adress": "http://h"},
            r"^metric\.adress: unknown option; did you mean metric\.address\?",
        ),
        (
            prometheus,
            {"address": "h:9090", "query": "up"},
            r"^metric\.address: it is not a web URL",
        ),
        (
            prometheus,
            {"address": "http://h/?a=b", "query": "up"},
            r"^metric\.address: must not have",
        ),
        (
            prometheus,
            {"address": "http://h/{service}", "query": "up"},
            r"^metric\.address: unknown placeholder",
        ),
        (
            prometheus,
            {"address": f"http://ann:{SECRET}@h/", "query": "up"},
            r"^metric\.address: a name and password in a URL",
        ),
        (prometheus, HERE, r"^metric: has no query; give either query, or errors and requests"),
        (
            prometheus,
            {**HERE, "query": "up", "errors": "up"},
            r"^metric: has query and errors; give either",
        ),
        (prometheus, {**HERE, "errors": "up"}, r"^metric: has errors; give either"),
        (prometheus, {**HERE, "query": " "}, r"^metric\.query: must not be empty; write PromQL"),
        (prometheus, {**HERE, "query": "up", "step": "1m"}, r"^metric\.step: needs range"),
        (prometheus, {**HERE, "query": "up", "range": "9s"}, r"^metric\.range: "),
        (
            prometheus,
            {**HERE, "query": "up", "range": "1h", "step": "7m"},
            r"^metric\.step: 1h in steps of 7m are 9 values; choose a step with 10 to 1000",
        ),
        (
            prometheus,
            {**HERE, "query": "up", "range": "1d", "step": "1m"},
            r"^metric\.step: 1d in steps of 1m are 1440 values",
        ),
        (
            prometheus,
            {**HERE, "errors": "up", "requests": "up", "range": "1h"},
            r"^metric\.range: is for query, and not for errors and requests",
        ),
        (
            prometheus,
            {**HERE, "errors": "", "requests": "up"},
            r"^metric: has requests; give either",
        ),
        (
            prometheus,
            {**HERE, "query": 'up{a="{revison}"}'},
            r"^metric\.query: unknown placeholder '\{revison\}'; .*\{service",
        ),
        (
            prometheus,
            {**HERE, "query": "up", "label": "a-b"},
            r"^metric\.label: 'a-b' is not the name of a label",
        ),
        (
            prometheus,
            {**HERE, "query": "up", "username": "ann"},
            r"^metric\.username: needs password",
        ),
        (
            prometheus,
            {**HERE, "query": "up", "password": SECRET},
            r"^metric\.username: needs password",
        ),
        (
            prometheus,
            {**HERE, "query": "up", "bearer_token": SECRET, "headers": {"authorization": SECRET}},
            (
                r"^metric\.username: username, bearer_token and a header Authorization exclude each"
                r" other"
            ),
        ),
        (
            prometheus,
            {**HERE, "query": "up", "username": "a:b", "password": SECRET},
            r"^metric\.username: 'a:b' has a colon",
        ),
        (
            prometheus,
            {**HERE, "query": "up", "bearer_token": f"{SECRET}\n"},
            r"^metric\.bearer_token\.Authorization: its value must be",
        ),
        (
            prometheus,
            {**HERE, "query": "up", "answer_within": "soon"},
            r"^metric\.answer_within: 'soon' is not a duration",
        ),
        (
            prometheus,
            {**HERE, "query": "up", "ca_path": "/no/such"},
            r"^metric\.ca_path: '/no/such' is not the absolute path",
        ),
        (
            prometheus,
            {**HERE, "query": "up", "client_key": "/no/such"},
            r"^metric\.client_key: '/no/such' needs client_cert",
        ),
        (
            prometheus,
            {**HERE, "query": "up", "client_cert": "/no/such"},
            r"^metric\.client_cert: '/no/such' is not the absolute path",
        ),
        (web, {}, r"^metric\.url: not given, but required"),
        (
            web,
            {"url": "http://h/{version}"},
            r"^metric\.url: unknown placeholder '\{version\}'; .*\{elapsed\}",
        ),
        (web, {"url": "http://h", "path": "a..b"}, r"^metric\.path: 'a\.\.b' is not a path"),
        (
            web,
            {"url": "http://h", "body": {"a": 1}},
            r"^metric\.body: GET sends nothing; use method POST",
        ),
        (
            web,
            {"url": "http://h", "method": "PUT"},
            r"^metric\.method: 'PUT' must be one of GET, POST",
        ),
        (
            web,
            {"url": "http://h", "headers": {"X": f"{SECRET}\nY: z"}},
            r"^metric\.headers\.X: its value must be one line",
        ),
        (
            command,
            {"command": "/bin/true now"},
            r"^metric\.command: expected a list, got str; write .*\{revision\}",
        ),
        (
            command,
            {"command": ["true", "{port}"]},
            r"^metric\.command: unknown placeholder '\{port\}'",
        ),
        (
            command,
            {"command": ["true"], "host": "h9"},
            r"^metric\.host: 'h9' is not in the inventory",
        ),
    ],
)
def test_bad_options_are_refused(
    transport: Transport, module: t.Any, options: Mapping[str, t.Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make(module, transport, **options)
    assert SECRET not in str(caught.value)
