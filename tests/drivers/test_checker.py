# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop that asks instances, against real sockets: from the controller, and from the
instances' host by its agent.
"""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import threading
import time
import typing as t
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import probe
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Health
from ansible_collections.progressive.rollout.plugins.plugin_utils.health import (
    monitor as checker_module,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.health.monitor import (
    HealthMonitor,
    HealthStatus,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.health.spec import parse
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.agents import Answer
from ansible_collections.progressive.rollout.tests.support.ports import free_port

DEADLINE = 20.0  # seconds: only a broken test gets there
CREATED = 1000.0
Handler = Callable[[socket.socket], None]


class Agents:
    """A transport whose hosts are all here: it runs the agents in this process."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, set[str]]] = []
        self.lost: set[str] = set()

    def ask(
        self, agent: str, requests: Mapping[str, Mapping[str, t.Any]], timeout: float
    ) -> dict[str, Answer]:
        assert agent == "probe"
        self.asked += [(host, set(request["targets"])) for host, request in requests.items()]
        return {host: self._answer(host, request) for host, request in requests.items()}

    def _answer(self, host: str, request: Mapping[str, t.Any]) -> Answer:
        if host in self.lost:
            return Answer(error="no route to host", unreachable=True)
        return Answer(value=probe.main(dict(request)))


class Server:
    """A listening socket whose connections are handled by `handler`, each in a thread."""

    def __init__(self, handler: Handler, context: ssl.SSLContext | None = None) -> None:
        self.handler = handler
        self.context = context
        self.count = 0
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.endpoint = Endpoint("127.0.0.1", self.socket.getsockname()[1])
        self.closing = threading.Event()
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self) -> None:
        while True:
            connection, _peer = self.socket.accept()
            if self.closing.is_set():
                connection.close()
                return
            self.count += 1
            self.threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self.threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(DEADLINE)
        try:
            with (
                connection
                if self.context is None
                else self.context.wrap_socket(connection, server_side=True)
            ) as secured:
                self.handler(secured)
        except OSError:
            connection.close()  # the other side went away, or refused the certificate

    def close(self) -> None:
        self.closing.set()
        socket.create_connection(self.socket.getsockname()).close()
        for thread in self.threads:
            thread.join(DEADLINE)
            assert not thread.is_alive()
        self.socket.close()


class App:
    """An HTTP handler that answers `status` and `body`."""

    def __init__(self, status: int = 200, body: str = "ok") -> None:
        self.status = status
        self.body = body

    def __call__(self, connection: socket.socket) -> None:
        request(connection)
        connection.sendall(
            f"HTTP/1.1 {self.status} x\r\nContent-Length: {len(self.body)}\r\n\r\n{self.body}".encode()
        )


def request(connection: socket.socket) -> bytes:
    """Read a request's head."""
    data = b""
    while b"\r\n\r\n" not in data:
        received = connection.recv(65536)
        if not received:
            raise ConnectionResetError
        data += received
    return data


def says(*parts: bytes, then: Handler | None = None) -> Handler:
    """A handler that reads a request, says `parts` one packet at a time, and then does `then` or
    closes.
    """

    def handler(connection: socket.socket) -> None:
        request(connection)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            connection.sendall(part)
        if then:
            then(connection)

    return handler


def waits(connection: socket.socket) -> None:
    """Stay until the other side is gone."""
    while connection.recv(65536):
        pass


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(handler: Handler, context: ssl.SSLContext | None = None) -> Server:
        servers.append(Server(handler, context))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def agents() -> Agents:
    return Agents()


@pytest.fixture
def make(agents: Agents) -> Iterator[Callable[..., HealthMonitor]]:
    made: list[HealthMonitor] = []

    def start(**health: t.Any) -> HealthMonitor:
        made.append(HealthMonitor(parse({"interval": "50ms", **health}), t.cast(t.Any, agents)))
        return made[-1]

    yield start
    for checker in made:
        checker.close()
        checker.close()  # twice does no harm
    assert not [thread for thread in threading.enumerate() if thread.name == "rollout-health"]


def watch(checker: HealthMonitor, *endpoints: Endpoint, known: bool = False) -> None:
    """Watch endpoints as instances "0", "1", ... of host h1."""
    checker.watch(
        {str(number): (endpoint, "h1", known, CREATED) for number, endpoint in enumerate(endpoints)}
    )


def until(checker: HealthMonitor, wanted: Health, name: str = "0") -> HealthStatus:
    """Sleep as the reconcile loop does, until an instance has the health wanted."""
    end = time.monotonic() + DEADLINE
    while (vital := checker.health(name)).health is not wanted:
        assert time.monotonic() < end, vital
        checker.wait(end - time.monotonic())
    return vital


origins = pytest.mark.parametrize("origin", ["controller", "host"])


@origins
def test_from_starting_to_serving_to_failing_and_back(
    serve: t.Any, make: t.Any, origin: str
) -> None:
    app = App(503)
    server = serve(app)
    checker = make(http="/healthz", **{"from": origin})
    watch(checker, server.endpoint)
    assert checker.health("0").health is Health.PENDING
    assert checker.settle(DEADLINE)
    assert checker.health("0").health is Health.PENDING
    assert checker.health("0").detail == "503, expected 200-299"
    before, app.status = time.time(), 200
    vital = until(checker, Health.PASSING)
    assert before <= vital.since <= time.time()
    assert vital.detail == ""
    app.status = 500
    assert until(checker, Health.FAILING).detail == "500, expected 200-299"
    app.status = 200
    assert until(checker, Health.PASSING).since > vital.since


@origins
@pytest.mark.parametrize(
    ("handler", "health", "detail"),
    [
        (
            lambda connection: None,
            {},
            "the connection was closed, 0 bytes received without what was expected",
        ),
        (waits, {}, "timed out after 0.2 s"),
        (
            lambda connection: connection.sendall(b"220 mail\r\n"),
            {},
            "not an HTTP/1 reply: b'220 mail\\r\\n'",
        ),
        (
            says(b"HTTP/1.1 200", b" OK\r\n", then=waits),
            {},
            "timed out after 0.2 s, 17 bytes received without what was expected",
        ),
        (
            says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nstill"),
            {"body": "up"},
            "the connection was closed, 43 bytes received without what was expected",
        ),
        (
            says(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 70000, then=waits),
            {"body": "up"},
            "the first 64 kB were read, 65536 bytes received without what was expected",
        ),
        (App(404), {}, "404, expected 200-299"),
        (App(body="down"), {"body": "up"}, "body has no 'up'"),
    ],
    ids=["closes", "silent", "other-protocol", "half-head", "cut-off", "endless", "status", "body"],
)
def test_failures_say_why(
    serve: t.Any, make: t.Any, origin: str, handler: Handler, health: dict[str, t.Any], detail: str
) -> None:
    checker = make(http="/", timeout="200ms", fall=1, **{"from": origin}, **health)
    watch(checker, serve(handler).endpoint, known=True)
    vital = until(checker, Health.FAILING)
    # closed with our request unread: TCP may say so
    if vital.detail.startswith("connection reset"):
        assert (
            "closes" in os.environ["PYTEST_CURRENT_TEST"]
            or "other-protocol" in os.environ["PYTEST_CURRENT_TEST"]
        )
    else:
        assert vital.detail == detail


@origins
@pytest.mark.parametrize("kind", [{"http": "/"}, {"tcp": True}, {"tcp": True, "tls": True}])
def test_nobody_listens(make: t.Any, origin: str, kind: dict[str, t.Any]) -> None:
    endpoint = Endpoint("127.0.0.1", free_port())
    checker = make(fall=1, **{"from": origin}, **kind)
    watch(checker, endpoint, known=True)
    assert "refused" in until(checker, Health.FAILING).detail


@origins
@pytest.mark.parametrize(
    ("handler", "health"),
    [
        (
            says(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"i", b"t ", b"up", then=waits),
            {"body": "it up"},
        ),
        (
            says(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                b"5\r\nit i",
                b"s\r\n3\r\n up\r\n",
                b"0\r\n\r\n",
            ),
            {"body": "it is up"},
        ),
        (says(b"HTTP/1.1 200 OK\r\n\r\n", b"all", b" is well"), {"body": "is well"}),
        (says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", then=waits), {}),
        (App(204, ""), {"status": [200, 204]}),
    ],
    ids=["slow", "chunked", "until-close", "keeps-open", "status"],
)
def test_passes(
    serve: t.Any, make: t.Any, origin: str, handler: Handler, health: dict[str, t.Any]
) -> None:
    checker = make(http="/", timeout="1s", rise=1, **{"from": origin}, **health)
    watch(checker, serve(handler).endpoint)
    until(checker, Health.PASSING)


@origins
def test_tcp_and_another_port(serve: t.Any, make: t.Any, origin: str) -> None:
    server = serve(waits)
    checker = make(tcp=True, port=server.endpoint.port, **{"from": origin})
    watch(checker, Endpoint("127.0.0.1", 1))
    until(checker, Health.PASSING)


# ---- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    names = ["-subj", "/CN=shop.test", "-addext", "subjectAltName=DNS:shop.test,IP:127.0.0.1"]
    subprocess.run(
        [*command, *names, "-keyout", str(path), "-out", str(path.with_suffix(".crt"))],
        check=True,
        capture_output=True,
    )
    path.write_bytes(path.read_bytes() + path.with_suffix(".crt").read_bytes())
    return path


@pytest.fixture
def secured(serve: t.Any, certificate: Path) -> Server:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server: Server = serve(App(), context)
    return server


@origins
@pytest.mark.parametrize("kind", [{"http": "/"}, {"tcp": True}])
def test_tls(
    secured: Server,
    make: t.Any,
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
    origin: str,
    kind: t.Any,
) -> None:
    strict = make(tls=True, fall=1, **{"from": origin}, **kind)
    watch(strict, secured.endpoint, known=True)
    assert until(strict, Health.FAILING).detail.startswith("certificate refused: self")
    strict.close()
    lax = make(tls=True, validate_certs=False, **{"from": origin}, **kind)
    watch(lax, secured.endpoint)
    until(lax, Health.PASSING)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    trusting = make(tls=True, **{"from": origin}, **kind)
    watch(trusting, secured.endpoint)
    until(trusting, Health.PASSING)


@origins
def test_tls_checks_the_name_asked_for(
    secured: Server, make: t.Any, certificate: Path, monkeypatch: pytest.MonkeyPatch, origin: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    right = make(http="/", tls=True, headers={"Host": "shop.test:8443"}, **{"from": origin})
    watch(right, secured.endpoint)
    until(right, Health.PASSING)
    wrong = make(http="/", tls=True, headers={"Host": "other.test"}, fall=1, **{"from": origin})
    watch(wrong, secured.endpoint, known=True)
    assert "other.test" in until(wrong, Health.FAILING).detail


@origins
def test_tls_to_a_plain_port(serve: t.Any, make: t.Any, origin: str) -> None:
    server = serve(
        lambda connection: connection.sendall(
            b"HTTP/1.1 400 Bad Request\r\n\r\n" + connection.recv(65536)[:0]
        )
    )
    checker = make(http="/", tls=True, fall=1, **{"from": origin})
    watch(checker, server.endpoint, known=True)
    assert until(checker, Health.FAILING).detail.startswith("TLS failed: ")


@origins
def test_a_name_that_tls_refuses_is_an_outcome(secured: Server, make: t.Any, origin: str) -> None:
    checker = make(http="/", tls=True, headers={"Host": ".shop.test"}, **{"from": origin})
    watch(checker, secured.endpoint, known=True)
    assert checker.settle(DEADLINE)
    assert until(checker, Health.FAILING).detail.startswith("invalid name or address: ")


# ---- the API


@origins
def test_known_instances(serve: t.Any, make: t.Any, origin: str) -> None:
    app = App()
    server = serve(app)
    checker = make(http="/", rise=5, **{"from": origin})
    watch(checker, server.endpoint, known=True)
    assert checker.settle(DEADLINE)
    # one pass, and it had passed since it was made
    assert checker.health("0") == HealthStatus(Health.PASSING, CREATED)
    app.status = 503
    checker.watch({"late": (server.endpoint, "h1", True, CREATED)})
    assert checker.settle(DEADLINE)
    app.status = 200
    assert until(checker, Health.PASSING, "late").since > CREATED  # it was seen failing


@origins
def test_what_was_ready_a_while_ago_has_to_pass_once_more(
    serve: t.Any, make: t.Any, origin: str
) -> None:
    app = App()
    server = serve(app)
    checker = make(http="/", rise=5, fall=100, **{"from": origin})
    watch(checker, server.endpoint)
    vital = until(checker, Health.PASSING)
    checker.renew()
    assert checker.settle(DEADLINE)
    assert checker.health("0") == vital, "one pass is enough, and it has been ready since then"
    app.status = 503
    asked = server.count
    while server.count < asked + 3:  # one was on its way
        checker.wait(0.01)
    assert checker.health("0").health is Health.PASSING
    checker.renew()
    assert checker.settle(DEADLINE)
    assert checker.health("0").health is Health.PENDING


def test_watch_replaces_the_set(serve: t.Any, make: t.Any) -> None:
    server, other = serve(App()), serve(App(503))
    checker = make(http="/")
    watch(checker, server.endpoint)
    vital = until(checker, Health.PASSING)
    watch(checker, server.endpoint, server.endpoint)
    assert checker.health("0") == vital  # goes on
    until(checker, Health.PASSING, "1")
    watch(checker, other.endpoint)  # "0" is another instance now, and "1" is gone
    assert checker.health("0").health is Health.PENDING
    assert checker.health("1").detail == ""
    assert checker.settle(DEADLINE)
    asked = server.count
    while other.count < 5:
        checker.wait(0.01)
    assert server.count <= asked + 1  # one was on its way
    checker.watch({})
    assert checker.settle(0)


def test_waiting(serve: t.Any, make: t.Any) -> None:
    app = App()
    server = serve(app)
    checker = make(http="/", rise=1)
    assert not checker.wait(0.01)
    watch(checker, server.endpoint)
    assert checker.wait(DEADLINE)
    assert checker.health("0").health is Health.PASSING
    asked = server.count
    while server.count < asked + 3:
        assert not checker.wait(0.01)  # passing again is no news
    app.status = 503
    assert checker.wait(DEADLINE)
    assert checker.health("0").health is Health.FAILING


@pytest.mark.parametrize("health", [{"http": "/"}, {}])
def test_a_signal_handler_ends_a_wait(serve: t.Any, make: t.Any, health: dict[str, t.Any]) -> None:
    checker = make(**health)
    before = signal.signal(signal.SIGUSR1, lambda number, frame: checker.wake())
    try:
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        assert checker.wait(DEADLINE)
        timer.join()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert checker.wait(DEADLINE)  # it came before the wait
        assert not checker.wait(0)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_settle_gives_up_after_its_timeout_and_when_woken(serve: t.Any, make: t.Any) -> None:
    server = serve(waits)
    checker = make(http="/", timeout="10s")
    watch(checker, server.endpoint)
    assert not checker.settle(0.05)
    checker.wake()
    assert not checker.settle(DEADLINE)


def test_no_check_no_thread(make: t.Any, agents: Agents) -> None:
    before = threading.active_count()
    checker = make()
    watch(checker, Endpoint("127.0.0.1", 1))
    assert checker.health("0") == HealthStatus(Health.NONE, CREATED)
    assert checker.settle(0)
    assert not checker.wait(0.01)
    assert threading.active_count() == before
    assert agents.asked == []


def test_many_at_once_with_bounded_sockets(
    serve: t.Any, make: t.Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker_module, "SOCKETS", 4)
    monkeypatch.setattr(probe, "AT_ONCE", 4)
    open_now, lock = 0, threading.Lock()
    four, go = threading.Event(), threading.Event()

    def handler(connection: socket.socket) -> None:
        nonlocal open_now
        with lock:
            open_now += 1
            if open_now == 4:
                four.set()
        go.wait(DEADLINE)
        request(connection)
        with lock:
            open_now -= 1
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    server = serve(handler)
    for origin in ("controller", "host"):
        four.clear()
        go.clear()
        checker = make(http="/", interval="10s", rise=1, timeout="10s", **{"from": origin})
        checker.watch(
            {str(number): (server.endpoint, "h1", False, CREATED) for number in range(50)}
        )
        assert four.wait(DEADLINE)
        time.sleep(0.2)  # in which a fifth would come
        assert open_now == 4
        go.set()
        assert checker.settle(DEADLINE)
        assert {checker.health(str(number)).health for number in range(50)} == {Health.PASSING}
        checker.close()


# ---- from the host


def test_a_host_is_asked_once_for_all_its_instances(
    serve: t.Any, make: t.Any, agents: Agents
) -> None:
    server = serve(App())
    checker = make(http="/", interval="10s", rise=1, **{"from": "host"})
    checker.watch(
        {
            f"{host}-{number}": (server.endpoint, host, False, CREATED)
            for host in ("h1", "h2")
            for number in range(3)
        }
    )
    assert checker.settle(DEADLINE)
    assert sorted(agents.asked) == [
        (host, {f"{host}-{number}" for number in range(3)}) for host in ("h1", "h2")
    ]


def test_a_lost_host_fails_its_instances_only(serve: t.Any, make: t.Any, agents: Agents) -> None:
    server = serve(App())
    checker = make(http="/", **{"from": "host"})
    checker.watch({host: (server.endpoint, host, True, CREATED) for host in ("h1", "h2")})
    until(checker, Health.PASSING, "h1")
    agents.lost.add("h1")
    assert until(checker, Health.FAILING, "h1").detail == "no route to host"
    assert checker.health("h2").health is Health.PASSING


def test_the_others_of_a_host_are_asked_when_the_next_to_be_asked_is_gone(
    serve: t.Any, make: t.Any, agents: Agents
) -> None:
    server, starting = serve(App()), serve(App(status=503))
    checker = make(http="/", interval="300ms", rise=1, **{"from": "host"})
    stays = (server.endpoint, "h1", True, CREATED)
    checker.watch({"stays": stays, "starts": (starting.endpoint, "h1", False, CREATED)})
    until(checker, Health.PASSING, "stays")
    while not any(names == {"starts"} for _host, names in agents.asked):
        checker.wait(0.02)  # from here on it is asked far more often than the other
    checker.watch({"stays": stays})
    agents.lost.add("h1")
    assert until(checker, Health.FAILING, "stays").detail == "no route to host"


def test_a_check_with_a_defect_is_an_outcome(serve: t.Any, make: t.Any) -> None:
    server = serve(App())
    checker = make(http="/")
    checker._health.check.payload = lambda endpoint: "not bytes"
    watch(checker, server.endpoint, known=True)
    assert "TypeError" in until(checker, Health.FAILING).detail
