# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent that counts access logs: nothing is counted twice or lost, and nothing is believed."""

from __future__ import annotations

import gzip
import math
import os
import typing as t
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import access_log as agent
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis import judging, spec
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.threshold import (
    AnalysisPhase,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.metric import Question
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import Served
from ansible_collections.progressive.rollout.plugins.plugin_utils.metrics import (
    access_log as driver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote import agents
from ansible_collections.progressive.rollout.tests.support.contexts import Counted

A, B = "10.0.0.1:8001", "10.0.0.2:8002"


def bucket(seconds: float) -> str:
    return str(math.ceil(32 * math.log2(seconds)))


def haproxy(
    address: str = A, status: t.Any = 200, ms: t.Any = 20, ended: str = "--", path: str = "/"
) -> str:
    return f"Nov 22 20:00:01 lb1 haproxy[7]: rollout-haproxy|{address}|{status}|{ms}|{ms}|{ended}|{path}\n"


class Log:
    """A log, and who reads it from time to time."""

    def __init__(self, path: Path) -> None:
        self.path = path / "access.log"
        self.path.write_text("")
        self.mark: t.Any = None
        self.last: dict[str, t.Any] = {}

    def write(self, *lines: str) -> None:
        with self.path.open("a") as file:
            file.write("".join(lines))

    def read(self, **request: t.Any) -> dict[str, t.Any]:
        common = {"addresses": [A, B], "errors": ["5"], "path": "/", "whole": False, "sizes": False}
        self.last = agent.main({"file": str(self.path), "mark": self.mark, **common, **request})
        assert "error" not in self.last, self.last
        self.mark = self.last["mark"]
        return t.cast("dict[str, t.Any]", self.last["found"])

    def requests(self) -> int:
        return sum(one["requests"] for one in self.read().values())


@pytest.fixture
def log(tmp_path: Path) -> Log:
    found = Log(tmp_path)
    found.write(haproxy())
    assert found.read() == {}  # what was there before is not counted
    return found


# Its lines
# --------------------------------------------------------------------------------------------------


def test_the_lines_of_haproxy_are_counted(log: Log) -> None:
    log.write(haproxy(), haproxy(ms=200), haproxy(status=503, ms=-1), haproxy(B, 404))
    assert log.read() == {
        A: {"requests": 3, "errors": 1, "buckets": {bucket(0.02): 1, bucket(0.2): 1}},
        B: {"requests": 1, "errors": 0, "buckets": {bucket(0.02): 1}},
    }


def test_the_lines_of_envoy_are_counted(log: Log) -> None:
    log.write(f"rollout-envoy|{A}|200|20|30|-|/\n", f"rollout-envoy|{A}|503|-|30|UF|/\n")
    assert log.read() == {A: {"requests": 2, "errors": 1, "buckets": {bucket(0.02): 1}}}


def test_each_try_of_nginx_is_counted_for_its_own_instance(log: Log) -> None:
    log.write(f"rollout-nginx|{A}, {B}|502, 200|-, 0.020|0.001, 0.030|200|/\n")
    assert log.read() == {
        A: {"requests": 1, "errors": 1, "buckets": {}},
        B: {"requests": 1, "errors": 0, "buckets": {bucket(0.02): 1}},
    }


def test_the_end_of_an_answer_is_counted_where_that_is_asked(log: Log) -> None:
    log.write(f"rollout-envoy|{A}|200|20|80|-|/\n")
    assert log.read(whole=True)[A]["buckets"] == {bucket(0.08): 1}


def test_sizes_of_answers_200_are_counted_where_that_is_asked(log: Log) -> None:
    """What is not sent to the client has none, and neither have lines of an older format."""
    log.write(
        haproxy(ended="-- 2048"),
        haproxy(status=404, ended="-- 90"),
        haproxy(ended="CD 12"),
        haproxy(ended="-- 0"),
        haproxy(ended="-- x"),
        haproxy(),
        f"rollout-envoy|{B}|200|20|80|- 0|/\n",
        f"rollout-nginx|{A}, {B}|200, 200|-, 0.020|0.001, 0.030|200 4096|/\n",
    )
    assert log.read(sizes=True) == {
        A: {"requests": 7, "errors": 0, "buckets": {bucket(2048): 1, "0": 1}},
        B: {"requests": 2, "errors": 0, "buckets": {"0": 1, bucket(4096): 1}},
    }


@pytest.mark.parametrize(
    "line",
    [
        haproxy(status=-1, ms=-1, ended="CD"),
        f"rollout-nginx|{A}|-|-|0.5|499 0|/\n",
        f"rollout-envoy|{A}|0|-|30|DC|/\n",
    ],
)
def test_a_client_that_leaves_is_no_error(log: Log, line: str) -> None:
    log.write(line)
    assert log.read() == {A: {"requests": 1, "errors": 0, "buckets": {}}}


def test_no_answer_is_an_error(log: Log) -> None:
    log.write(haproxy(status=-1, ms=-1, ended="SH"), f"rollout-envoy|{A}|0|-|30|UR|/\n")
    assert log.read()[A]["errors"] == 2


def test_statuses_and_paths_are_those_asked_for(log: Log) -> None:
    log.write(haproxy(status=404, path="/shop/a"), haproxy(status=404), haproxy(status=500))
    assert log.read(errors=["404"], path="/shop")[A] == {
        "requests": 1,
        "errors": 1,
        "buckets": {bucket(0.02): 1},
    }


def test_an_address_with_brackets_is_the_same_one(log: Log) -> None:
    log.write("rollout-envoy|[fd00::1]:80|200|20|30|-|/\n", haproxy("fd00::1:80"))
    assert log.read(addresses=["fd00::1:80"])["fd00::1:80"]["requests"] == 2


def test_lines_of_anything_else_are_not_counted(log: Log) -> None:
    log.write(
        "GET / 200\n", "\n", "rollout-haproxy|short\n", "rollout-other|a|b|c|d|e|f\n", haproxy()
    )
    assert log.requests() == 1
    assert (log.last["lines"], log.last["unread"]) == (5, 4)


def test_a_path_cannot_pass_for_fields(log: Log) -> None:
    log.write(haproxy(path=f"/|rollout-haproxy|{B}|500|1|1|--|/"))
    assert set(log.read()) == {A}


@pytest.mark.parametrize("time", ["nan", "inf", "1e999", "-5", "", "x", "9" * 400])
def test_a_time_that_is_none_is_left_out(log: Log, time: str) -> None:
    log.write(haproxy(ms=time))
    assert log.read()[A]["buckets"] == {}


def test_other_addresses_are_not_counted(log: Log) -> None:
    log.write(*(haproxy(f"10.1.{number // 250}.{number % 250}:80") for number in range(1000)))
    assert log.read() == {}


# Its file
# --------------------------------------------------------------------------------------------------


def test_each_line_is_counted_once(log: Log) -> None:
    log.write(haproxy(), haproxy()[:30])
    assert log.requests() == 1
    log.write(haproxy()[30:], haproxy())
    assert log.requests() == 2
    assert log.requests() == 0


def test_what_is_logged_while_the_log_is_read_is_counted_by_the_next_call(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = agent.Counter.read

    def slow(counter: agent.Counter, *part: t.Any, **cut: t.Any) -> None:
        read(counter, *part, **cut)
        log.write(haproxy())

    log.write(haproxy())
    with monkeypatch.context() as patched:
        patched.setattr(agent.Counter, "read", slow)
        assert log.requests() == 1
    assert log.requests() == 1


def test_a_rotated_file_is_read_to_its_end(log: Log) -> None:
    log.write(haproxy())
    log.path.rename(f"{log.path}.1")
    log.write(haproxy(), haproxy())
    assert log.requests() == 3
    assert log.requests() == 0


def test_a_file_that_was_compressed_is_lost_and_the_new_one_is_read(log: Log) -> None:
    log.write(haproxy())
    Path(f"{log.path}.1.gz").write_bytes(gzip.compress(log.path.read_bytes()))
    log.path.unlink()
    log.write(haproxy(path="/new"), haproxy())
    assert log.requests() == 2


def test_a_truncated_file_is_read_from_its_beginning(log: Log) -> None:
    log.write(*[haproxy()] * 5)
    assert log.requests() == 5
    os.truncate(log.path, 0)
    log.write(haproxy())
    assert log.requests() == 1


def test_a_truncated_file_that_has_grown_since_is_read_from_its_beginning(log: Log) -> None:
    os.truncate(log.path, 0)
    log.write(*[haproxy(B)] * 9)
    assert log.requests() == 9


def test_too_much_is_skipped(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    line = haproxy()
    monkeypatch.setattr(agent, "MOST", 10 * len(line) + 5)
    log.write(*[line] * 100)
    assert log.requests() == 10
    assert log.last["skipped"] == 90 * len(line) - 5
    assert log.requests() == 0


def test_chunks_do_not_cut_lines(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "CHUNK", 150)
    log.write(*[haproxy()] * 50)
    assert log.requests() == 50


def test_a_line_without_an_end_is_bounded(log: Log) -> None:
    log.write("x" * 200_000)
    assert log.requests() == 0
    log.write("\n", haproxy())
    assert log.requests() == 1


@pytest.mark.parametrize("kind", ["missing", "fifo", "folder"])
def test_what_is_no_log_is_an_error_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "log"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    common = {"addresses": [], "errors": ["5"], "path": "/", "whole": False, "sizes": False}
    assert agent.main({"file": str(path), "mark": None, **common})["error"].startswith(f"{path}: ")


# The driver
# --------------------------------------------------------------------------------------------------


class Here:
    """A transport that runs agents in this process."""

    def apart(self) -> Here:
        return self

    def ask(self, name: str, asked: t.Any, _timeout: float) -> dict[str, agents.Answer]:
        module = agents.load(name)
        return {host: agents.run_here(module, request) for host, request in asked.items()}


class Looks:
    """The default watch's metric of small answers, measured and judged look by look."""

    def __init__(self, log: Log) -> None:
        self.log = log
        (self.metric,) = spec.parse(
            spec.OPTIONS.parse({"alpha": 0.002}, "analysis."),
            "analysis",
            [metric for metric in spec.refusals((), True) if metric["name"] == "size"],
        ).metrics
        self.served = {
            name: Served("", int(name == "new"), "web1", Endpoint(*address.split(":")))  # type: ignore[arg-type]
            for name, address in (("new", A), ("stable", B))
        }
        context = DriverContext("shop", t.cast(t.Any, Here()), counters=Counted(self))
        options = {**self.metric.options, "file": str(log.path)}
        self.driver = driver.Driver(options, context)
        self.driver.begin()
        self.state: judging.State = {}

    def judge(self, *lines: str) -> judging.Measurement:
        self.log.write(*lines)
        question = Question({"generation": 1}, 0.0, 0.0, paired=True, counts=True)
        return judging.judge_result(self.metric, self.state, self.driver.measure(question))


def answers(address: str, size: int, number: int = 10) -> list[str]:
    return [haproxy(address, ended=f"-- {size}")] * number


@pytest.mark.parametrize("size", [0, 100, 150])
def test_answers_without_content_are_found_within_ten_looks(log: Log, size: int) -> None:
    looks, usual = Looks(log), [*answers(B, 2000, 18), *answers(B, 40, 2)]
    judged = [looks.judge(*usual, *answers(A, size, 20)) for _look in range(10)]
    assert judged[-1].phase is AnalysisPhase.FAILED
    assert judged[-1].sentence.startswith("small answers 200 of 200 (100 %) against 20 of 200 ")


@pytest.mark.parametrize("size", [250, 2000, 10**6])
def test_answers_of_another_size_are_no_fault(log: Log, size: int) -> None:
    """Nor is one in three without content, where stable has such, too."""
    looks, usual = Looks(log), [*answers(B, 2000), *answers(B, 40, 5)]
    new = [*answers(A, size), *answers(A, 40, 5)]
    judged = [looks.judge(*usual, *new) for _look in range(30)]
    assert {judgment.phase for judgment in judged} == {AnalysisPhase.SUCCESSFUL}


def test_a_log_without_sizes_tells_nothing(log: Log) -> None:
    looks = Looks(log)
    judged = [looks.judge(*[haproxy(A)] * 10, *[haproxy(B)] * 10) for _look in range(30)]
    assert judged[-1].phase is AnalysisPhase.SUCCESSFUL and judged[-1].lacking


# Its options
# --------------------------------------------------------------------------------------------------


def test_statuses_are_classes_or_single_ones() -> None:
    assert driver.OPTIONS.parse({"statuses": ["5xx", 404]}, "metric.")["statuses"] == ("5", "404")


@pytest.mark.parametrize("status", [5, "5", 99, "6xx", "xx", True, "40x", None, "²xx", "٥xx"])
def test_what_is_no_status_is_refused(status: t.Any) -> None:
    with pytest.raises(InputError, match=r"metric.statuses: .* is not a status; write 404, or 5xx"):
        driver.OPTIONS.parse({"statuses": [status]}, "metric.")
