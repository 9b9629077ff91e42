# SPDX-License-Identifier: GPL-3.0-or-later
"""The gates with a real web server, real files and real commands."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import ssl
import sys
import threading
import time
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    GateError,
    InputError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.gate_runner import (
    GateRunner,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Gate
from ansible_collections.progressive.rollout.plugins.plugin_utils.gates import (
    approval,
    command,
    pause,
    web,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.gate import (
    FAIL,
    PASS,
    WAIT,
    Answer,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote import http_client
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import Command
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.transport import Transport
from ansible_collections.progressive.rollout.tests.support.connect import connect
from ansible_collections.progressive.rollout.tests.support.ports import free_port
from ansible_collections.progressive.rollout.tests.support.processes import running
from ansible_collections.progressive.rollout.tests.support.waiting import until
from ansible_collections.progressive.rollout.tests.support.web import Server, certificate

ROLLOUT = {
    "id": "r1",
    "service": "shop",
    "revision": "2.4.1+a",
    "previous": None,
    "fleet": {"2.4.1+a": {"ready": 1}},
}
SECRET = "s3cret-of-the-hook"


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "PAUSE", 0.001)


@pytest.fixture
def transport(tmp_path: Path) -> Iterator[Transport]:
    one = connect(
        {name: {"ansible_connection": "local"} for name in ("h1", "h2")},
        tmp_path / "inventory.json",
    )
    yield one
    one.close()


def make(module: t.Any, transport: Transport | None = None, **options: t.Any) -> t.Any:
    """A driver with its options checked and completed, as a rollout makes it."""
    checked = module.OPTIONS.parse(options, "gate.")
    return module.Driver(checked, DriverContext("shop", t.cast(t.Any, transport)))


def ask(driver: t.Any, waited: float = 12.5) -> Answer:
    answer: Answer = driver.ask(ROLLOUT, waited)
    return answer


# pause
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("duration", ["10m", 600, 600.0])
def test_time(duration: object) -> None:
    gate = make(pause, duration=duration)
    assert not gate.blocking
    assert ask(gate, 0) == Answer(WAIT, "10 min 00 s left")
    assert ask(gate, 599.99) == Answer(WAIT, "1 s left")
    assert ask(gate, 600) == Answer(PASS, "10 min 00 s over")


# approval
# --------------------------------------------------------------------------------------------------


def test_a_person_is_waited_for_without_asking_anybody() -> None:
    gate = make(approval)
    assert not gate.blocking
    assert ask(gate, 1e9) == Answer(WAIT, "for promote")


@pytest.mark.parametrize(
    ("content", "verdict", "message"),
    [
        ("yes\n", PASS, "approved by "),
        ("nothing to object", PASS, "approved by "),
        ("no\n", FAIL, "rejected by "),
        ("Rejected: errors in\nthe log\n", FAIL, "rejected: errors in the log"),
    ],
)
def test_a_file_says_it(tmp_path: Path, content: str, verdict: str, message: str) -> None:
    gate = make(approval, file=f"{tmp_path}/{{service}}-{{id}}")
    assert gate.blocking
    assert ask(gate) == Answer(WAIT, f"for promote, or for the file {tmp_path}/shop-r1")
    (tmp_path / "shop-r1").write_text(content)
    answer = ask(gate)
    assert answer.verdict == verdict and answer.message.startswith(message)


def test_an_empty_file_says_yes_once_nothing_can_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ok"
    gate = make(approval, file=str(file))
    file.touch()
    made = file.stat().st_mtime
    for now, verdict in [(made, WAIT), (made + 0.9, WAIT), (made + 1, PASS), (made - 60, PASS)]:
        monkeypatch.setattr(time, "time", lambda now=now: now)
        assert ask(gate).verdict == verdict


def test_a_file_that_cannot_be_read_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(GateError, match="is not a regular file"):
        ask(make(approval, file=str(tmp_path)))
    (tmp_path / "file").write_text("")
    with pytest.raises(GateError, match="cannot be read: Not a directory"):
        ask(make(approval, file=str(tmp_path / "file" / "deeper")))


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, PASS),
        (204, PASS),
        (202, WAIT),
        (404, WAIT),
        (409, WAIT),
        (425, WAIT),
        (403, FAIL),
        (302, FAIL),
        (500, FAIL),
    ],
)
def test_a_service_says_it(server: Server, status: int, verdict: str) -> None:
    server.replies = [(status, "" if status == 204 else "because")]
    answer = ask(make(approval, url=server.url + "/approvals/{revision}?key=" + SECRET))
    assert answer.verdict == verdict
    assert f"{server.url} " in answer.message or f"{server.url} (" in answer.message
    assert SECRET not in answer.message
    assert {(one.method, one.path) for one in server.requests} == {
        ("GET", f"/approvals/2.4.1%2Ba?key={SECRET}")
    }


def test_a_file_goes_before_the_service(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "ok"
    gate = make(approval, url=server.url, file=str(file))
    file.write_text("no: not on Fridays")
    assert ask(gate) == Answer(FAIL, "rejected: not on Fridays")
    assert not server.requests
    file.unlink()
    assert ask(gate).verdict == PASS


# web
# --------------------------------------------------------------------------------------------------


def test_a_hook_is_told_of_the_rollout(server: Server) -> None:
    before = time.time() - 0.001
    assert ask(
        make(web, url=server.url + "/{service}", headers={"X-Team": "shop", "X-Level": 3})
    ) == Answer(PASS, "200")
    (request,) = server.requests
    body = json.loads(request.body)
    assert before <= body.pop("sent") <= time.time() + 0.001
    assert body == {"rollout": ROLLOUT, "waited": 12.5}
    assert (request.method, request.path, request.headers["Content-Type"]) == (
        "POST",
        "/shop",
        "application/json",
    )
    assert (request.headers["X-Team"], request.headers["X-Level"]) == ("shop", "3")
    assert "X-Rollout-Signature" not in request.headers


def test_by_get_nothing_is_sent(server: Server) -> None:
    assert ask(make(web, url=server.url + "/?revision={revision}", method="GET")).verdict == PASS
    assert [(one.method, one.path, one.body) for one in server.requests] == [
        ("GET", "/?revision=2.4.1%2Ba", b"")
    ]


@pytest.mark.parametrize(
    ("status", "verdict"),
    [(201, PASS), (409, WAIT), (425, WAIT), (202, PASS), (404, FAIL), (418, FAIL)],
)
def test_what_its_status_means(server: Server, status: int, verdict: str) -> None:
    server.replies = [(status, "tests\n  run \x1b[31m" + "x" * 300)]
    answer = ask(make(web, url=server.url))
    shown = f"{status}: tests run ?[31m"
    assert answer == Answer(verdict, shown + "x" * (200 + len(f"{status}: ") - len(shown)))
    assert len(server.requests) == 1


def test_the_signature_is_of_what_was_sent(server: Server) -> None:
    gate = make(web, url=server.url, secret=SECRET)
    ask(gate)
    ask(gate)
    for request in server.requests:
        expected = "sha256=" + hmac.new(SECRET.encode(), request.body, hashlib.sha256).hexdigest()
        assert hmac.compare_digest(request.headers["X-Rollout-Signature"], expected)
        # The time is signed, too: with another one the signature is another.
        later = json.dumps(json.loads(request.body) | {"sent": 0}).encode()
        assert hmac.new(SECRET.encode(), later, hashlib.sha256).hexdigest() not in expected


def test_failures_that_pass_are_tried_again(server: Server) -> None:
    server.replies = [None, (503, "starting"), (200, "")]
    assert ask(make(web, url=server.url)).verdict == PASS
    assert len(server.requests) == 3


def test_retries_come_to_an_end(server: Server) -> None:
    server.replies = [(503, "broken")]
    assert ask(make(web, url=server.url, retries=3)) == Answer(FAIL, "503: broken")
    assert len(server.requests) == 4
    server.requests.clear()
    server.replies = [None]
    with pytest.raises(
        GateError, match=r"^http://127\.0\.0\.1:\d+: request failed: .*closed.* \(asked 2 times\)$"
    ):
        ask(make(web, url=server.url, retries=1))
    assert len(server.requests) == 2


def test_pauses_grow_within_bounds(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(http_client, "PAUSE", 0.5)
    monkeypatch.setattr(time, "sleep", pauses.append)
    server.replies = [(500, "")]
    ask(make(web, url=server.url, retries=6))
    assert pauses == [0.5, 1, 2, 4, 5, 5]


def test_nobody_there_is_not_a_no() -> None:
    with pytest.raises(
        GateError, match=r"^http://127\.0\.0\.1:\d+: request failed: connection refused$"
    ):
        ask(make(web, url=f"http://127.0.0.1:{free_port()}/?key={SECRET}", retries=0))
    with pytest.raises(
        GateError,
        match=r"^http://no-such-name\.invalid: request failed: its name does not resolve$",
    ):
        ask(make(web, url=f"http://no-such-name.invalid/{SECRET}", retries=0))


def test_an_answer_that_drips_is_bounded(server: Server) -> None:
    server.hangs.set()
    with pytest.raises(GateError, match=r"request failed: no answer in 0\.2 s \(asked 2 times\)$"):
        ask(make(web, url=server.url, answer_within="200ms", retries=1))


def test_no_secret_is_shown(server: Server) -> None:
    token = base64.b64encode(b"ann:pass word").decode()
    headers = {"Authorization": f"Basic {token}", "X-Key": "k3y-with words"}
    server.replies = [(403, f"who is {token}, with {headers['X-Key']} and {SECRET}?")]
    answer = ask(make(web, url=f"{server.url}/?key={SECRET}", headers=headers, secret=SECRET))
    assert answer == Answer(FAIL, "403: who is ***, with *** and ***?")
    assert {name for name, option in web.OPTIONS.items() if option.no_log} == {"headers", "secret"}


def test_a_url_that_is_repeated_in_the_answer_is_not_shown(server: Server) -> None:
    """As many servers do on a page that says what was not found."""
    token = "xoxb-0123456789abcdef"
    path = f"/hooks/{token}?channel=rollouts&key={token}%21"
    server.replies = [(410, f"Cannot GET {path} with {token}!: no hook {token} for rollouts")]
    for module in (web, approval):
        answer = ask(make(module, url=server.url + path))
        assert answer.message.endswith("410: Cannot GET *** with ***: no hook *** for rollouts")


@pytest.mark.parametrize("module", [web, approval])
def test_a_redirect_is_not_followed_and_says_so(server: Server, module: t.Any) -> None:
    server.replies = [(302, "<html>Moved</html>")]
    answer = ask(make(module, url=server.url))
    assert answer.verdict == FAIL and "302: redirects are not followed" in answer.message
    assert len(server.requests) == 1


def test_of_an_answer_without_end_only_the_beginning_is_read(server: Server) -> None:
    server.replies = [(200, "x" * 50_000_000)]
    assert ask(make(web, url=server.url)).message == "200: " + "x" * 200


def test_netrc_does_not_replace_what_was_given(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("NETRC", str(netrc))
    ask(make(web, url=server.url, headers={"Authorization": "Bearer ours"}))
    assert server.requests[0].headers["Authorization"] == "Bearer ours"


def test_certificates(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    own, key = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own, key)
    server = Server(context)
    try:
        with pytest.raises(GateError, match="certificate refused: self-signed certificate"):
            ask(make(web, url=server.url, retries=0))
        assert not server.requests
        assert ask(make(web, url=server.url, ca_path=str(own))).verdict == PASS
        assert ask(make(web, url=server.url, validate_certs=False)).verdict == PASS
    finally:
        server.close()
    assert not recwarn.list


# command
# --------------------------------------------------------------------------------------------------


def python(code: str, *words: str) -> list[str]:
    return [sys.executable, "-c", code, *words]


@pytest.mark.parametrize("host", [None, "h2"])
@pytest.mark.parametrize(("code", "verdict"), [(0, PASS), (75, WAIT), (1, FAIL), (127, FAIL)])
def test_what_its_exit_code_means(
    transport: Transport, host: str | None, code: int, verdict: str
) -> None:
    answer = ask(
        make(
            command,
            transport,
            host=host,
            command=["sh", "-c", f"echo some; echo words >&2; exit {code}"],
        )
    )
    assert answer == Answer(verdict, f"sh ended with {code}: some words")


def test_an_argument_is_one_argument_and_the_rollout_is_on_its_standard_input(
    transport: Transport, tmp_path: Path
) -> None:
    code = (
        "import json, sys; json.dump([sys.argv[2:], json.load(sys.stdin)], open(sys.argv[1], 'w'))"
    )
    words = [
        "{service} {revision}",
        "$HOME",
        "it's",
        "*",
        "",
        "[{previous}]",
        "{{id}}",
        "{id}; true",
        8,
    ]
    assert (
        ask(make(command, transport, command=python(code, str(tmp_path / "out"), *words))).verdict
        == PASS
    )  # type: ignore[arg-type]
    argv, rollout = json.loads((tmp_path / "out").read_text())
    assert argv == ["shop 2.4.1+a", "$HOME", "it's", "*", "", "[]", "{id}", "r1; true", "8"]
    assert rollout == ROLLOUT


def test_the_end_of_the_output_is_shown(transport: Transport) -> None:
    answer = ask(
        make(
            command,
            transport,
            command=python("import sys; print('a' * 500, 'why\\a'); sys.exit(3)"),
        )
    )
    assert answer.verdict == FAIL and answer.message.endswith("a" * 195 + " why?")
    assert len(answer.message) == len(f"{sys.executable} ended with 3: ") + 200


def test_a_command_that_takes_too_long_is_not_a_no(transport: Transport) -> None:
    long = f"300.{os.getpid()}{time.time_ns()}"
    with pytest.raises(GateError, match=r"^sleep on the controller: no answer in 1 s$"):
        ask(make(command, transport, answer_within="1s", command=["sleep", long]))
    until(lambda: not running(long))


def test_a_command_that_nobody_waits_for_any_more_is_ended(transport: Transport) -> None:
    """The run was killed, or told to go on or back: a load test must not go on after it."""
    long = f"300.{os.getpid()}{time.time_ns()}"
    options = {"command": ["sh", "-c", f"sleep {long}; true"], "answer_within": "1h"}
    keeper = GateRunner(
        [Gate("g", "command", command.OPTIONS.parse(options, "gate."))],
        DriverContext("shop", transport),
        {},
    )
    keeper.poll(lambda: ROLLOUT)
    until(lambda: running(f"sleep\0{long}"))
    keeper.close()
    until(lambda: not running(long))


def test_others_need_the_host_meanwhile(transport: Transport, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    gate = make(
        command,
        transport,
        host="h1",
        command=["sh", "-c", f"read line < '{fifo}'; test $line = well"],
    )
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(ask(gate)))
    thread.start()
    with open(fifo, "w") as stream:  # from here on the command runs: both sides have to be there
        assert transport.run({"h1": Command(["echo", "here"])}, 20)["h1"].stdout == "here\n"
        stream.write("well\n")
    thread.join(20)
    assert [answer.verdict for answer in answers] == [PASS]


# What is refused
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (pause, {"duration": "soon"}, r"^gate\.duration: 'soon' is not a duration"),
        (pause, {}, r"^gate\.duration: not given, but required"),
        (approval, {"file": "ok"}, r"^gate\.file: 'ok' is not an absolute path"),
        (approval, {"file": "/{version}"}, r"^gate\.file: unknown placeholder '\{version\}'"),
        (approval, {"url": "shop/ok"}, r"^gate\.url: it is not a web URL"),
        (web, {"url": "ftp://h"}, r"^gate\.url: it is not a web URL"),
        (web, {"url": "http://h:99999"}, r"^gate\.url: it is not a web URL"),
        (web, {"url": "http://h/a b"}, r"^gate\.url: it is not a web URL"),
        (web, {"url": f"http://ann:{SECRET}@h/"}, r"^gate\.url: a name and password in a URL"),
        (
            web,
            {"url": "http://h", "headers": {"X Y": SECRET}},
            r"^gate\.headers: 'X Y' is not the name",
        ),
        (
            web,
            {"url": "http://h", "headers": {"Content-Length": SECRET}},
            r"^gate\.headers: 'Content-Length' is not",
        ),
        (
            web,
            {"url": "http://h", "headers": {"X": f"{SECRET}\nY: z"}},
            r"^gate\.headers\.X: its value must be one line",
        ),
        (web, {"url": "http://h", "secret": ""}, r"^gate\.secret: must not be empty"),
        (
            web,
            {"url": "http://h", "secret": SECRET, "method": "GET"},
            r"^gate\.secret: GET sends nothing",
        ),
        (web, {"url": "http://h", "answer_within": 0}, r"^gate\.answer_within: 0 is too short"),
        (
            web,
            {"url": "http://h", "retries": 11},
            r"^gate\.retries: 11 is too large; must be at most 10",
        ),
        (web, {"url": "http://h", "retries": -1}, r"^gate\.retries: -1 is too small"),
        (
            web,
            {"url": "http://h", "ca_path": "/no/such"},
            r"^gate\.ca_path: '/no/such' is not the absolute path",
        ),
        (
            web,
            {"url": "http://h", "ca_path": "/", "validate_certs": False},
            r"^gate\.ca_path: '/' has no effect",
        ),
        (command, {"command": "/bin/true now"}, r"^gate\.command: expected a list"),
        (command, {"command": []}, r"^gate\.command: (not given|its first word)"),
        (command, {"command": [""]}, r"^gate\.command: its first word"),
        (command, {"command": ["true", None]}, r"^gate\.command: expected a string, got NoneType"),
        (command, {"command": ["true", "\0"]}, r"^gate\.command: a NUL character"),
        (
            command,
            {"command": ["true", "{port}"]},
            r"^gate\.command: unknown placeholder '\{port\}'",
        ),
        (
            command,
            {"command": ["true"], "answer_within": "never"},
            r"^gate\.answer_within: 'never' is not a duration",
        ),
        (
            command,
            {"command": ["true"], "host": "h9"},
            r"^gate\.host: 'h9' is not in the inventory",
        ),
        (command, {"command": ["true"], "host": "all"}, r"^gate\.host: 'all' names 2 hosts"),
    ],
)
def test_bad_options_are_refused(
    transport: Transport, module: t.Any, options: dict[str, t.Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make(module, transport, **options)
    assert SECRET not in str(caught.value)


def test_without_requests_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "requests", None)
    constructors: list[Callable[[], t.Any]] = [
        lambda: make(web, url="http://h"),
        lambda: make(approval, url="http://h"),
    ]
    for construct in constructors:
        with pytest.raises(
            InputError, match=r"^gate\.url: it needs the Python package requests; install it"
        ):
            construct()
    make(approval, file="/ok")
