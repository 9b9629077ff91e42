# SPDX-License-Identifier: GPL-3.0-or-later
"""The demo's service and its load client, against each other and, where one has to misbehave, a
bare socket.
"""

from __future__ import annotations

import importlib.util
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import typing as t
from collections.abc import Callable, Iterator

import pytest
from ansible_collections.progressive.rollout.tests.support.ports import free_port
from ansible_collections.progressive.rollout.tests.support.waiting import PATIENCE, until

FILES = pathlib.Path(__file__).resolve().parents[2] / "playbooks" / "files"


def _module(name: str) -> t.Any:
    """One of the playbook's files, which are no package."""
    spec = importlib.util.spec_from_file_location(f"demo_{name}", FILES / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


app, load = _module("app"), _module("load")
sys.modules["load"] = load  # as demo.py, run as a script, finds it
demo = _module("demo")


def listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def ask(port: int, request: str, sock: socket.socket | None = None) -> str:
    """One request, the answer up to the end of its body."""
    client = sock or socket.create_connection(("127.0.0.1", port), timeout=10)
    client.sendall(request.encode())
    reply = b""
    while not reply.endswith(b"\n"):
        data = client.recv(65536)
        if not data:
            break
        reply += data
    if sock is None:
        client.close()
    return reply.decode()


def get(port: int, path: str) -> str:
    return ask(port, f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")


class Running(t.NamedTuple):
    process: subprocess.Popen[str]
    port: int


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    processes: list[subprocess.Popen[str]] = []

    def begin(wait: bool = True, **env: str) -> Running:
        port = int(env.setdefault("PORT", str(free_port())))
        command = [sys.executable, "-I", "-S", str(FILES / "app.py")]
        env = {"REVISION": "1", "INSTANCE": "shop-1", **env}
        process = subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        processes.append(process)
        if wait:
            until(lambda: listens(port))
        return Running(process, port)

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def in_background(
    url: str, **options: t.Any
) -> tuple[t.Any, threading.Thread, list[dict[str, t.Any]]]:
    reports: list[dict[str, t.Any]] = []
    client = load.Load(url, **options)
    thread = threading.Thread(target=lambda: reports.append(client.run()))
    thread.start()
    return client, thread, reports


# The service


def test_answers_with_revision_and_instance(start: Callable[..., Running]) -> None:
    port = start(REVISION="7", INSTANCE="shop-3").port
    reply = get(port, "/")
    assert (
        reply.startswith("HTTP/1.1 200 ")
        and "X-Revision: 7\r\n" in reply
        and reply.endswith("\r\n\r\n7 shop-3\n")
    )
    assert get(port, "/healthz").startswith("HTTP/1.1 200 ")
    assert get(port, "/nothing").startswith("HTTP/1.1 404 ")
    assert ask(port, "PUT / HTTP/1.1\r\n\r\n").startswith("HTTP/1.1 405 ")
    assert ask(port, "nonsense\r\n\r\n").startswith("HTTP/1.1 400 ")


def test_body_is_read_and_connection_kept(start: Callable[..., Running]) -> None:
    port = start().port
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab")
        assert "Connection: keep-alive" in ask(port, "cde", sock)
        assert "Connection: close" in ask(port, "GET / HTTP/1.1\r\nConnection: close\r\n\r\n", sock)
        assert sock.recv(1) == b""


def test_pipelined_requests_are_all_answered(start: Callable[..., Running]) -> None:
    port = start().port
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(
            b"GET / HTTP/1.1\r\n\r\n" * 2999 + b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"
        )
        reply = b"".join(iter(lambda: sock.recv(65536), b""))
    assert reply.count(b"1 shop-1\n") == 3000


def test_slow_request_blocks_nobody(start: Callable[..., Running]) -> None:
    port = start(LATENCY="0.01").port
    with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
        slow.sendall(b"GET /slow?s=1 HTTP/1.1\r\n\r\n")
        assert "200 OK" in get(port, "/")
        slow.setblocking(False)
        with pytest.raises(BlockingIOError):
            slow.recv(1)
        slow.settimeout(10)
        assert b"200 OK" in slow.recv(65536)


def test_readiness(start: Callable[..., Running]) -> None:
    began, never = time.monotonic(), start(HEALTH="fail").port
    later = start(START_READY_DELAY="1.5").port
    until(lambda: get(later, "/healthz").startswith("HTTP/1.1 200 "))
    assert time.monotonic() - began >= 1.5
    assert get(never, "/healthz").startswith("HTTP/1.1 503 ")
    assert get(never, "/").startswith("HTTP/1.1 200 ")


def test_it_is_not_ready_before_its_file_is_there(
    start: Callable[..., Running], tmp_path: pathlib.Path
) -> None:
    port = start(READY_FILE=str(tmp_path / "ready")).port
    assert get(port, "/healthz").startswith("HTTP/1.1 503 ")
    (tmp_path / "ready").touch()
    until(lambda: get(port, "/healthz").startswith("HTTP/1.1 200 "))
    (tmp_path / "ready").unlink()
    assert get(port, "/healthz").startswith("HTTP/1.1 200 ")


def test_every_so_manyth_answer_fails_while_its_file_is_there(
    start: Callable[..., Running], tmp_path: pathlib.Path
) -> None:
    def statuses(port: int) -> list[str]:
        return [get(port, "/")[9:12] for _request in range(4)]

    port = start(FAIL_EVERY="2", FAIL_FILE=str(tmp_path / "bad")).port
    assert statuses(port) == ["200"] * 4
    (tmp_path / "bad").touch()
    assert statuses(port) == ["200", "500", "200", "500"]
    (tmp_path / "bad").unlink()
    assert statuses(port) == ["200"] * 4
    assert statuses(start(FAIL_EVERY="2").port) == ["200", "500", "200", "500"]
    assert statuses(start(FAIL_EVERY="1", FAIL_STATUS="404").port) == ["404"] * 4


def test_drawn_start_delay_is_told_and_repeatable(start: Callable[..., Running]) -> None:
    drawn = app.duration("lognormal:0.05:0.4:42", "3")
    assert (
        drawn
        == app.duration("lognormal:0.05:0.4:42", "3")
        != app.duration("lognormal:0.05:0.4:42", "4")
    )
    process, port = start(START_DELAY="lognormal:0.05:0.4:42", SLOT="3")
    assert process.stdout
    told = re.fullmatch(
        rf"shop-1 revision 1: listening on 127\.0\.0\.1:{port} after (\S+) s, start delay (\S+) s,"
        r" ready in 0\.000 s\n",
        process.stdout.readline(),
    )
    assert told and told[2] == f"{drawn:.3f}" and float(told[1]) >= drawn - 0.01


def test_sigterm_finishes_the_request_in_flight(start: Callable[..., Running]) -> None:
    process, port = start()
    address = ("127.0.0.1", port)
    with (
        socket.create_connection(address, timeout=10) as idle,
        socket.create_connection(address, timeout=10) as slow,
    ):
        assert "keep-alive" in ask(port, "GET / HTTP/1.1\r\n\r\n", idle)
        slow.sendall(b"GET /slow?s=2 HTTP/1.1\r\n\r\n")
        get(port, "/")  # the slow one came before this one
        process.terminate()
        assert idle.recv(1) == b""
        assert not listens(port)
        reply = slow.recv(65536)
    assert b"200 OK" in reply and b"Connection: close" in reply
    assert process.wait(PATIENCE) == 0


def test_sigterm_while_starting_and_stop_delay(start: Callable[..., Running]) -> None:
    starting = start(wait=False, START_DELAY="60")
    stopping = start(STOP_DELAY="0.5")
    stopping.process.terminate()
    until(lambda: get(stopping.port, "/healthz").startswith("HTTP/1.1 503 "))
    assert get(stopping.port, "/").startswith("HTTP/1.1 200 ")
    assert stopping.process.wait(PATIENCE) == 0
    starting.process.terminate()  # by now it has long set up its handler
    assert starting.process.wait(PATIENCE) == 0


def test_ends_that_are_not_wanted(start: Callable[..., Running]) -> None:
    crashing, taken = start(CRASH_AFTER="0.1", wait=False), start().port
    assert crashing.process.wait(PATIENCE) == 3
    assert (
        crashing.process.stdout
        and "\nboom: shop-1 crashes after 0.1 s" in crashing.process.stdout.read()
    )
    in_service = start(CRASH_IN_SERVICE="0.1")
    assert in_service.process.poll() is None
    get(in_service.port, "/")
    assert in_service.process.wait(PATIENCE) == 3
    second = start(wait=False, PORT=str(taken))
    assert second.process.wait(PATIENCE) == 1
    complaint = f"shop-1: cannot listen on 127.0.0.1:{taken}: Address already in use\n"
    assert second.process.stdout and second.process.stdout.read() == complaint


# The load client


@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_counts_are_exact(start: Callable[..., Running], keep_alive: bool, method: str) -> None:
    port = start().port
    report = load.run(
        f"http://127.0.0.1:{port}/",
        connections=8,
        keep_alive=keep_alive,
        method=method,
        max_requests=500,
    )
    assert (report["requests"], report["served"], report["by_revision"], report["failed"]) == (
        500,
        500,
        {"1": 500},
        0,
    )
    assert sum(second["served"].get("1", 0) for second in report["per_second"]) == 500
    assert (
        report["reopened"] == 0 and report["ended_by"] == "max-requests" and not report["running"]
    )


def test_status_is_a_failure_with_its_number(start: Callable[..., Running]) -> None:
    report = load.run(
        f"http://127.0.0.1:{start(HEALTH='fail').port}/healthz", connections=2, max_requests=6
    )
    assert (report["served"], report["failed"], report["failures"]) == (0, 6, {"status 503": 6})


def test_rate_is_kept(start: Callable[..., Running]) -> None:
    report = load.run(f"http://127.0.0.1:{start().port}/", connections=4, rate=200, max_requests=50)
    assert report["served"] == 50 and report["seconds"] >= 49 / 200


def test_a_killed_server_is_counted(start: Callable[..., Running]) -> None:
    process, port = start(LATENCY="0.1")
    client, thread, reports = in_background(f"http://127.0.0.1:{port}/", connections=6)
    until(lambda: client.by_revision["1"] >= 12)
    process.kill()
    until(lambda: client.failures["connect: refused"] >= 12)
    client.stop()
    thread.join(10)
    (report,) = reports
    in_flight = sum(
        count
        for reason, count in report["failures"].items()
        if reason.endswith(" before the answer")
    )
    assert 0 < in_flight <= 6
    assert (
        report["failed"]
        == in_flight + report["failures"]["connect: refused"]
        == report["requests"] - report["served"]
    )
    assert report["first_failures"][0]["reason"] in (
        "closed before the answer",
        "reset before the answer",
    )


def test_a_graceful_restart_between_requests_fails_nothing(start: Callable[..., Running]) -> None:
    """Idle connections are closed by the server: they are opened anew, and nothing counts as
    failed.
    """
    process, port = start(REVISION="1")
    client, thread, reports = in_background(f"http://127.0.0.1:{port}/", connections=3, rate=0.5)
    until(lambda: client.by_revision["1"] >= 3)  # the next request is two seconds away
    process.terminate()
    assert process.wait(PATIENCE) == 0
    start(PORT=str(port), REVISION="2")
    until(lambda: client.by_revision["2"] >= 3)
    client.stop()
    thread.join(10)
    assert reports[0]["failed"] == 0 and reports[0]["reopened"] == 3


def _misbehave(answers: list[bytes | None]) -> tuple[int, threading.Thread]:
    """A server that gives each request the next of these bytes; None: it closes without a word,
    as after the last.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener:
            while answers:
                client, _peer = listener.accept()
                with client:
                    while answers and client.recv(65536):
                        answer = answers.pop(0)
                        if answer is None:
                            break
                        client.sendall(answer)
                        if b"close" in answer or b"Length: 9" in answer:
                            break

    thread = threading.Thread(target=serve)
    thread.start()
    return listener.getsockname()[1], thread


GOOD = b"HTTP/1.1 200 OK\r\nX-Revision: 1\r\nContent-Length: 1\r\n\r\n1"


def test_endings_of_a_connection_are_told_apart() -> None:
    announced = GOOD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    within = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1"
    port, thread = _misbehave([GOOD, announced, GOOD, None, GOOD, within, GOOD])
    report = load.run(f"http://127.0.0.1:{port}/", connections=1, max_requests=7)
    thread.join(10)
    assert report["served"] == 5
    assert report["failures"] == {"closed before the answer": 1, "closed within the answer": 1}
    assert report["reopened"] == 0


def test_no_answer_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        report = load.run(
            f"http://127.0.0.1:{listener.getsockname()[1]}/",
            connections=1,
            max_requests=1,
            timeout=0.1,
        )
    assert report["failures"] == {"no answer within 0.1 s": 1}


def test_command_writes_its_report_and_ends_on_a_signal(
    start: Callable[..., Running], tmp_path: pathlib.Path
) -> None:
    report, pid = tmp_path / "report.json", tmp_path / "pid"
    command = [
        sys.executable,
        str(FILES / "load.py"),
        "--url",
        f"http://localhost:{start().port}/",
        "--rate",
        "100",
    ]
    process = subprocess.Popen([*command, "--report", str(report), "--pid-file", str(pid)])
    try:
        until(lambda: report.exists() and json.loads(report.read_text())["served"] > 0)
        assert int(pid.read_text()) == process.pid
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
    final = json.loads(report.read_text())
    assert (
        final["ended_by"] == "signal"
        and not final["running"]
        and final["requests"] == final["served"]
    )
    assert list(tmp_path.iterdir()) == [report]


@pytest.mark.parametrize(
    "url", ["http://192.0.2.1/", "http://example.com/", "https://127.0.0.1/", "127.0.0.1:80"]
)
def test_only_loopback_is_loaded(url: str) -> None:
    with pytest.raises(ValueError, match="loopback"):
        load.loopback(url)


# The demo's helper


def test_ideal_times() -> None:
    assert demo.ideal([1.0, 3.0, 1.0, 1.0], 2, 0.5) == (4.5, 5.0)  # 1+1+1 beside 3; 3 then 1
    assert demo.ideal([2.0] * 6, 2, 1.0) == (9.0, 9.0)
    assert demo.ideal([1.0], 5, 0.0) == (1.0, 1.0)


def test_only_recorded_processes_are_ended(
    start: Callable[..., Running], tmp_path: pathlib.Path
) -> None:
    ours, reused = start().process, start().process
    (tmp_path / "ours.pid").write_text(json.dumps({"pid": ours.pid, "ticks": demo.ticks(ours.pid)}))
    (tmp_path / "reused.pid").write_text(
        json.dumps({"pid": reused.pid, "ticks": demo.ticks(reused.pid) - 1})
    )
    assert demo.end(tmp_path.glob("*.pid")) == 1
    assert ours.wait(PATIENCE) == 0 and reused.poll() is None
    assert demo.end(tmp_path.glob("*.pid")) == 0


def test_the_other_run_ends_with_the_demo(
    start: Callable[..., Running], tmp_path: pathlib.Path
) -> None:
    other = start().process
    (tmp_path / "elsewhere.pid").write_text(
        json.dumps({"pid": other.pid, "ticks": demo.ticks(other.pid)})
    )
    assert demo.end_all(tmp_path) == 1
    assert other.wait(PATIENCE) == 0


def told(**rollout: t.Any) -> dict[str, t.Any]:
    """A rollout as the journal has it."""
    common = {
        "revision": "2",
        "previous": "1",
        "stable": "2",
        "strategy": "canary",
        "outcome": "promoted",
        "replaced": 6,
    }
    return {**common, "started": 100.0, "updated": 112.5, "elapsed": 9.5, **rollout}


def test_how_the_summary_begins() -> None:
    assert demo.headline(told(), 2) == "6 instances of revision 1 replaced by revision 2"
    assert (
        demo.headline(told(strategy="rolling"), 2)
        == "6 instances of revision 1 replaced by revision 2, 2 at a time"
    )
    assert (
        demo.headline(told(outcome="rolled_back", stable="1"), 2)
        == "revision 2 rolled back to revision 1"
    )
    assert (
        demo.headline(told(outcome="aborted", stable="1"), 2)
        == "revision 2 aborted, and rolled back to revision 1"
    )


def test_times_shares_and_switches_are_those_of_the_timeline(tmp_path: pathlib.Path) -> None:
    canary = [
        {"at": 100.0, "kind": "stage", "stage": "step 1", "share": 20},
        {"at": 104.0, "kind": "share", "asked": 20, "new": 201, "all": 1000},
        {"at": 104.1, "kind": "stage", "stage": "promote", "share": 100},
        {"at": 110.0, "kind": "phase", "phase": "rolling_back"},
        {"at": 111.0, "kind": "share", "asked": 100, "new": 10, "all": 10},
    ]
    assert demo.duration(tmp_path, told(), canary[:3], 2, 1.4) == [
        ("time", "12.5 s (9.5 s of work)")
    ]
    assert demo.duration(tmp_path, told(), canary, 2, 1.4) == [
        ("time", "12.5 s (9.5 s of work), of which the rollback: 2.5 s")
    ]
    assert list(demo.shares(canary)) == [
        ("step 1", "asked for 20 %, measured 20.1 % of 1000 requests")
    ]
    assert not list(demo.switches(canary))
    switch = {"at": 105.0, "kind": "switch", "milliseconds": 12.34}
    assert list(demo.switches([switch])) == [("switch", "12.3 ms")]
    assert list(demo.switches([switch, switch])) == [
        ("switch", "12.3 ms"),
        ("switch back", "12.3 ms"),
    ]
