# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked, what an answer means, what follows from a row of answers, and which settings
are refused.
"""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.checks import http, tcp
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Health
from ansible_collections.progressive.rollout.plugins.plugin_utils.health.spec import parse
from ansible_collections.progressive.rollout.plugins.plugin_utils.health.streak import (
    Streak,
    advance,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.check import Probe
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
)
from hypothesis import given
from hypothesis import strategies as st

PENDING, PASSING, FAILING = Health.PENDING, Health.PASSING, Health.FAILING
SHORT = {Health.PENDING: ".", Health.PASSING: "P", Health.FAILING: "F"}


def check(**options: t.Any) -> http.Driver:
    return http.Driver(http.OPTIONS.parse({"http": "/healthz", **options}, "rollout_health."))


# ---- the row of outcomes


@pytest.mark.parametrize(
    ("known", "outcomes", "healths"),
    [
        (False, "++", ".P"),
        (False, "-----++", "......P"),
        (False, "+-+-++", ".....P"),
        (False, "++--+---+-++", ".PPPPPPFFFFP"),
        (False, "++-+-+-+", ".PPPPPPP"),
        (True, "+", "P"),
        (True, "--+", "..P"),
        (True, "---+-++", "..FFFFP"),
        (True, "+---", "PPPF"),
        (True, "+--+--+", "PPPPPPP"),
    ],
)
def test_rise_and_fall(known: bool, outcomes: str, healths: str) -> None:
    streak, seen = Streak(), ""
    for outcome in outcomes:
        streak = advance(streak, outcome == "+", rise=2, fall=3, known=known)
        seen += SHORT[streak.health]
    assert seen == healths


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_health_only_changes_after_a_full_row(
    outcomes: list[bool], rise: int, fall: int, known: bool
) -> None:
    streak = Streak()
    for turn, passed in enumerate(outcomes, 1):
        before, streak = streak, advance(streak, passed, rise, fall, known)
        if streak.health is before.health:
            continue
        needed = (
            fall if streak.health is FAILING else 1 if known and before.health is PENDING else rise
        )
        assert outcomes[:turn][-needed:] == [streak.health is PASSING] * needed
        assert known or (before.health, streak.health) != (PENDING, FAILING)


# ---- HTTP


def reply(status: str = "200 OK", body: str = "ok", headers: str = "") -> bytes:
    return (
        f"HTTP/1.1 {status}\r\n{headers or f'Content-Length: {len(body)}'}\r\n\r\n{body}".encode()
    )


CHUNKED = reply(headers="Transfer-Encoding: chunked", body="5\r\nstate\r\n4\r\n: up\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("options", "answer", "verdict"),
    [
        ({}, reply(), Probe(True)),
        ({}, reply("204 No Content", ""), Probe(True)),
        ({}, reply("302 Found"), Probe(False, "302, expected 200-299")),
        ({}, reply("503 Service Unavailable"), Probe(False, "503, expected 200-299")),
        (
            {"status": [200, "400-404"]},
            reply("418 I'm a teapot"),
            Probe(False, "418, expected 200, 400-404"),
        ),
        ({"status": [200, "400-404"]}, reply("404 Not Found"), Probe(True)),
        ({"status": 503}, reply("503 Service Unavailable"), Probe(True)),
        (
            {},
            b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + reply("500 Oops"),
            Probe(False, "500, expected 200-299"),
        ),
        ({}, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", None),
        ({}, b"HTTP/1.1 200", None),
        ({}, b"", None),
        ({}, b"SSH-2.0-OpenSSH", Probe(False, "not an HTTP/1 reply: b'SSH-2.0-OpenSSH'")),
        (
            {},
            b"HTTP/1.1 none\r\n\r\n",
            Probe(False, "not an HTTP/1 reply: b'HTTP/1.1 none\\r\\n\\r\\n'"),
        ),
        ({"body": "ok"}, reply(), Probe(True)),
        ({"body": "ok"}, reply(body="starting"), Probe(False, "body has no 'ok'")),
        ({"body": "ok"}, reply("503 Oops", "ok"), Probe(False, "503, expected 200-299")),
        ({"body": "ok"}, reply(headers="Content-Length: 20", body="not yet"), None),
        ({"body": "ok"}, reply(headers="Content-Length: 20", body="ok, and"), Probe(True)),
        ({"body": "ok"}, reply(headers="Server: x", body="until it closes"), None),
        ({"body": "ok"}, reply(headers="X-State: ok", body="no"), None),
        ({"body": "ok"}, reply(body=""), Probe(False, "body has no 'ok'")),
        ({"body": "state: up"}, CHUNKED, Probe(True)),
        ({"body": "state: up"}, CHUNKED[:-12], None),
        ({"body": "state: down"}, CHUNKED, Probe(False, "body has no 'state: down'")),
        ({"body": "grün"}, reply(headers="Server: x", body="grün"), Probe(True)),
    ],
)
def test_http_verdicts(options: dict[str, t.Any], answer: bytes, verdict: Probe | None) -> None:
    assert check(**options).judge(answer) == verdict


@given(
    st.binary(max_size=200),
    st.sampled_from(
        [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"]
    ),
)
def test_http_reads_anything(noise: bytes, before: bytes) -> None:
    verdict = check(body="a text that is not in it").judge(before + noise)
    assert verdict is None or not verdict.passed


@given(
    st.integers(0, len(CHUNKED) - 1),
    st.sampled_from([CHUNKED, reply(body="state: up"), reply("503 Oops", "no")]),
)
def test_a_verdict_on_a_part_holds_for_the_whole(length: int, answer: bytes) -> None:
    driver = check(body="state: up")
    assert driver.judge(answer[:length]) in (None, driver.judge(answer))


def test_http_request() -> None:
    assert check(headers={"X-Probe": 1}).payload(Endpoint("::1", 8100)).decode().split("\r\n") == [
        "GET /healthz HTTP/1.1",
        "Host: [::1]:8100",
        "User-Agent: progressive.rollout",
        "Accept: */*",
        "X-Probe: 1",
        "Connection: close",
        "",
        "",
    ]
    driver = check(headers={"host": "shop.example:443", "Accept": "text/plain"})
    lines = driver.payload(Endpoint("127.0.0.1", 80)).decode().split("\r\n")
    assert (lines[1], lines[3], driver.server_name) == (
        "Host: shop.example:443",
        "Accept: text/plain",
        "shop.example",
    )


def test_tcp_asks_nothing() -> None:
    driver = tcp.Driver({"tcp": True})
    assert (driver.payload(Endpoint("127.0.0.1", 80)), driver.judge(b"")) == (b"", Probe(True))


# ---- the settings


@pytest.mark.parametrize("given_", [{}, {"http": None}, {"tcp": False}, {"interval": "1s"}])
def test_no_check(given_: dict[str, t.Any]) -> None:
    assert not parse(given_).enabled


def test_defaults_and_all_settings() -> None:
    least = parse({"http": "/healthz"})
    assert (least.interval, least.timeout, least.rise, least.fall, least.port) == (
        0.5,
        2.0,
        2,
        3,
        0,
    )
    assert (least.from_host, least.validate_certs, least.tls) == (False, True, False)
    most = parse(
        {
            "http": "/h?x=%20",
            "interval": "1s",
            "rise": "1",
            "fall": 2,
            "timeout": "300ms",
            "status": ["200-204", 404],
            "body": "up",
        }
        | {
            "headers": {"Host": "shop"},
            "tls": "yes",
            "validate_certs": False,
            "port": "9000",
            "from": "host",
        }
    )
    assert (most.interval, most.timeout, most.rise, most.fall, most.port) == (1.0, 0.3, 1, 2, 9000)
    assert (most.from_host, most.validate_certs, most.tls, most.check.server_name) == (
        True,
        False,
        True,
        "shop",
    )
    plain = parse({"tcp": True, "tls": True})
    assert isinstance(plain.check, tcp.Driver) and plain.tls


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ("/healthz", "rollout_health: expected a mapping"),
        ({"htp": "/"}, "did you mean rollout_health.http?"),
        ({"http": "healthz"}, "rollout_health.http: 'healthz' is not a path"),
        ({"http": ""}, "rollout_health.http: not given"),
        ({"http": True}, "is not a path"),
        ({"http": "/a b"}, "percent-encode"),
        ({"http": "/a\r\nX: y"}, "is not a path"),
        ({"http": "/grün"}, "is not a path"),
        ({"http": "/", "tcp": True}, "rollout_health: http and tcp"),
        ({"tcp": True, "status": 200}, "rollout_health.status: goes with http"),
        ({"body": "ok"}, "rollout_health.body: goes with http"),
        ({"tcp": "perhaps"}, "rollout_health.tcp: 'perhaps' must be true or false"),
        ({"http": "/", "status": "2xx"}, "rollout_health.status: '2xx' is not an HTTP status"),
        ({"http": "/", "status": "299-200"}, "is not an HTTP status"),
        ({"http": "/", "status": [200, True]}, "True is not an HTTP status"),
        ({"http": "/", "status": 99}, "is not an HTTP status"),
        ({"http": "/", "status": []}, "rollout_health.status: must not be empty"),
        ({"http": "/", "body": 1}, "rollout_health.body: 1 is not a string"),
        ({"http": "/", "headers": "Host: x"}, "rollout_health.headers: 'Host: x' is not a mapping"),
        ({"http": "/", "headers": {"A:": "x"}}, "'A:' cannot be set"),
        ({"http": "/", "headers": {"A\r\nB": "x"}}, "cannot be set"),
        ({"http": "/", "headers": {"content-length": "5"}}, "'content-length' cannot be set"),
        (
            {"http": "/", "headers": {"A": "x\r\nB: y"}},
            "rollout_health.headers.A: its value is not",
        ),
        ({"http": "/", "headers": {"A": None}}, "rollout_health.headers.A: its value is not"),
        ({"http": "/", "rise": 0}, "rollout_health.rise: 0"),
        ({"http": "/", "fall": -1}, "rollout_health.fall: -1"),
        ({"http": "/", "fall": 1.5}, "rollout_health.fall: 1.5"),
        ({"http": "/", "rise": True}, "rollout_health.rise: True"),
        ({"http": "/", "timeout": 0}, "rollout_health.timeout: 0 is too short"),
        ({"http": "/", "interval": "0s"}, "rollout_health.interval: '0s' is too short"),
        ({"http": "/", "interval": "often"}, "rollout_health.interval: 'often' is not a duration"),
        ({"http": "/", "port": 70000}, "rollout_health.port: 70000 is not a port"),
        ({"http": "/", "from": "moon"}, "rollout_health.from: 'moon'"),
        ({"http": "/", "tls": "maybe"}, "rollout_health.tls: 'maybe' must be true or false"),
    ],
)
def test_refused(given_: t.Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(given_)
    assert words in str(caught.value)


def test_a_refused_header_is_not_shown() -> None:
    with pytest.raises(InputError) as caught:
        parse({"http": "/", "headers": {"Authorization": "secret\n"}})
    assert "secret" not in str(caught.value)
