# SPDX-License-Identifier: GPL-3.0-or-later
"""What is found in instances' logs: errors, which of them are alike, and no secrets; and which of
them only new instances have.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import typing as t
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import (
    _templates,
    instance_log,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis import judging, spec
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    MetricError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.messages import (
    KNOWN,
    NEW,
    Look,
    Message,
    Messages,
)
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
    instance_log as driver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.agents import Answer
from ansible_collections.progressive.rollout.tests.support.seeds import examples
from hypothesis import given
from hypothesis import strategies as st


def errors(*lines: str | bytes, ignored: t.Sequence[str] = ()) -> dict[str, int]:
    """Return the errors among lines: an example of each, and how often it came."""
    templates = _templates.Templates(ignored)
    for line in lines:
        templates.take(line if isinstance(line, bytes) else line.encode())
    templates.end()
    return {one["example"]: one["times"] for one in templates.found.values()}


# Which lines are errors
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-22 23:24:39,123 ERROR shop.cart: no stock",
        "ERROR:root:no stock",
        "2026/11/22 23:24:39 [error] 7#7: *1 connect() failed",
        "E1122 23:24:39.123456       7 main.go:12] no stock",
        'time=2026-11-22T23:24:39Z level=error msg="no stock"',
        '{"level":"error","msg":"no stock"}',
        '{"time":1,"level":50,"msg":"no stock"}',
        '{"msg":"no stock of ERROR","severity":"CRITICAL"}',
        "\x1b[31mERROR\x1b[0m no stock",
        "panic: runtime error: index out of range",
        'Exception in thread "main" java.lang.NullPointerException',
        "shop: error: no stock",
        "Segmentation fault (core dumped)",
        "FATAL out",
    ],
)
def test_a_line_with_an_error_level_is_one(line: str) -> None:
    assert _templates.is_error(line.encode())


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-22 23:24:39,123 INFO done without error",
        "WARN retry after ERROR 503",
        '10.0.0.1 - - "GET /error.html HTTP/1.1" 200',
        "GET /error?error=1 200",
        '{"level":"info","msg":"no error"}',
        '{"level":30,"msg":"error budget is well"}',
        'level=info msg="error rate 0"',
        "0 errors, 0 warnings",
        "no error so far",
        "water level: 80, pressure fatalistic",
        "",
        "{",
    ],
)
def test_any_other_line_is_none(line: str) -> None:
    assert not _templates.is_error(line.encode())


# What is alike
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2026-11-22T23:24:39Z ERROR order 17 failed", "2027-01-02T03:04:05Z ERROR order 8 failed"),
        ("ERROR no route to 10.0.0.1:80", "ERROR no route to [fd00::1]:8080"),
        ("ERROR cannot open /srv/a", "ERROR cannot open /var/lib/shop/b.txt"),
        ('ERROR no item "red shoe"', 'ERROR no item "hat"'),
        ("ERROR user=bob denied", "ERROR user=alice denied"),
        ("ERROR id deadbeefcafe is gone", "ERROR id 0badc0ffee00 is gone"),
        ("ERROR ids 1, 2, 3", "ERROR ids 4, 5"),
        ("ERROR mail to a@example.org", "ERROR mail to bob@example.com"),
        (
            "ERROR job 3b241101-e2bb-4255-8caf-4136c566a962",
            "ERROR job 9c858901-8a57-4791-81fe-4c455b099bc9",
        ),
    ],
)
def test_messages_that_differ_in_values_are_alike(one: str, other: str) -> None:
    assert list(errors(one, other).values()) == [2]


def test_messages_with_other_words_are_not() -> None:
    assert len(errors("ERROR cannot open a", "ERROR cannot close a")) == 2


def test_a_stack_trace_belongs_to_the_line_before_and_says_what_it_is_about() -> None:
    trace = ["Traceback (most recent call last):", '  File "a.py", line 7, in f', "    f()"]
    found = errors("ERROR request failed", *trace, "KeyError: 'cart'", "INFO error is over")
    assert found == {"ERROR request failed | KeyError: 'cart'": 1}
    assert errors(*trace, "shop.NoStock: none", "INFO") == {"shop.NoStock: none": 1}
    java = ["ERROR failed", "java.lang.IllegalStateException: x", "\tat shop.Cart.add(Cart.java:7)"]
    assert errors(*java, "Caused by: java.io.IOException: y", "\t... 3 more") == {
        "ERROR failed | java.lang.IllegalStateException: x | Caused by: java.io.IOException: y": 1
    }
    # the same message with another exception is another
    assert (
        len(errors("ERROR failed", *trace, "KeyError: 1", "ERROR failed", *trace, "OSError")) == 2
    )


def test_exceptions_in_a_row_are_errors_of_their_own() -> None:
    assert errors("ValueError: a", "ValueError: b") == {"ValueError: a": 1, "ValueError: b": 1}


def test_the_message_is_taken_out_of_json() -> None:
    line = json.dumps({"stack": "x" * 5000, "level": "error", "msg": "no stock", "error": "E7"})
    assert errors(line) == {"no stock | E7": 1}


def test_what_is_to_be_ignored_is_not_counted() -> None:
    assert errors("ERROR Connection Reset by peer", "ERROR b", ignored=["connection reset"]) == {
        "ERROR b": 1
    }


# What is shown
# --------------------------------------------------------------------------------------------------

SECRET = "s3cr3tHunter"


@pytest.mark.parametrize(
    "text",
    [
        f"password={SECRET}",
        f"db_password: {SECRET}, host db",
        f'"password": "{SECRET} and more"',
        f"{{'api_key': '{SECRET}'}}",
        f'{{\\"token\\":\\"{SECRET}\\"}}',
        f"Authorization: Bearer {SECRET}",
        f"sent bearer {SECRET}",
        f"postgres://shop:{SECRET}@db/shop",
        f"https://shop:a/b@{SECRET}@db/shop",
        f"psql --password {SECRET}",
        f"SHOP_SECRET_KEY={SECRET}",
        f"Cookie: a=1; b={SECRET}",
        f'{{"authorization": "Own {SECRET}, more={SECRET}"}}',
        f"eyJhbGciOi.{SECRET}.{SECRET}",
        "key AKIA" + SECRET * 2,
        "digest " + "0123456789abcdef" * 4,
        "GET /reset/" + "0123456789abcdef" * 2,
        "key aB/" + SECRET + "/" + "x" * 20,
    ],
)
def test_secrets_are_masked(text: str) -> None:
    (found,) = errors(f"ERROR cannot connect: {text}")
    assert SECRET not in found and "0123456789abcdef" not in found
    assert found.startswith("ERROR cannot connect: ") and "***" in found


def test_words_and_paths_are_no_secrets() -> None:
    text = (
        "ERROR tests passed, /usr/lib/python3/dist-packages/shop/handlers.py is misunderstandable"
    )
    assert list(errors(text)) == [text]


KEYS = st.sampled_from(["password", "api_key", "DB_PASSWORD", "client_secret", "token", "passwd"])
VALUES = st.from_regex(r"[A-Za-z0-9!#$%^*()_+./~-]{6,60}", fullmatch=True)
WRITTEN = st.sampled_from(
    ["{}={}", "{}: {}", '"{}": "{}"', "'{}': '{}'", '{{"{}":"{}"}}', "{} = {}", "--{}={}", "&{}={}"]
)


@examples(200)
@given(KEYS, VALUES, WRITTEN, st.text(max_size=50))
def test_no_value_of_a_secret_key_is_ever_shown(
    key: str, value: str, written: str, around: str
) -> None:
    text = f"{around} {written.format(key, value)} {around}"
    if value not in around:
        assert value not in _templates.example(_templates.text_of(text.encode("utf-8", "replace")))


@examples(200)
@given(st.lists(st.one_of(st.binary(max_size=300), st.sampled_from([b"ERROR x", b"Traceback"]))))
def test_whatever_is_logged_what_is_found_is_bounded_and_printable(lines: list[bytes]) -> None:
    templates = _templates.Templates([])
    for line in [*lines, b"ERROR " + b"".join(lines)]:
        templates.take(line)
    templates.end()
    assert templates.found
    for key, one in templates.found.items():
        assert re.fullmatch("[0-9a-f]{12}", key) and one["times"] > 0
        assert one["example"].isprintable() and len(one["example"]) <= _templates.SHOWN


@pytest.mark.parametrize(
    "line",
    [
        b"ERROR " + b"a" * (1 << 20),
        b"ERROR " + b"\xff\xfe" * 500_000,
        b'ERROR "' * 100_000,
        b"ERROR '" + b"' '" * 300_000,
        b"ERROR " + b"password" * 100_000,
        b"ERROR " + b"://" * 300_000,
        b"ERROR " + b"\x1b[" * 500_000,
        b'{"level":"error","msg":"' + b'\\"' * 500_000,
        b'{"error":' * 100_000,
        b'{"error":1,' + b'"msg":"x' * 100_000,
        b"ERROR " + b"a." * 500_000 + b"error",
        b"ERROR " + b"* " * 500_000,
    ],
)
def test_a_hostile_line_costs_little_and_is_cut(line: bytes) -> None:
    templates = _templates.Templates(["x y"])
    for _time in range(20):
        templates.take(line)
    templates.end()
    assert len(templates.found) == 1
    one = next(iter(templates.found.values()))
    assert one["times"] == 20 and one["example"].isprintable()
    assert len(one["example"]) <= _templates.SHOWN


def test_there_are_so_many_templates_at_most() -> None:
    templates = _templates.Templates([])
    words = ["".join(chr(ord("g") + int(digit)) for digit in str(n)) for n in range(300)]
    for word in words:
        templates.take(f"ERROR {word}".encode())
    templates.end()
    assert len(templates.found) == _templates.MOST and templates.left_out == 300 - _templates.MOST


# A file
# --------------------------------------------------------------------------------------------------


class Log:
    """The log of an instance, and who reads it from time to time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "shop-1.log"
        self.path.write_text("")
        self.mark: t.Any = None
        self.skipped = False

    def write(self, text: str, age: float = 60) -> None:
        with self.path.open("a") as file:
            file.write(text)
        then = os.stat(self.path).st_mtime - age
        os.utime(self.path, (then, then))

    def read(self) -> dict[str, int]:
        logs = {"shop-1": {"source": {"file": str(self.path)}, "mark": self.mark}}
        found = instance_log.main({"logs": logs, "ignored": []})["logs"]["shop-1"]
        assert "error" not in found, found
        self.mark, self.skipped = json.loads(json.dumps(found["mark"])), found["skipped"]
        return {one["example"]: one["times"] for one in found["found"].values()}


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_what_came_since_the_last_call_is_counted_once(log: Log) -> None:
    log.write("ERROR begin\n")
    assert log.read() == {"ERROR begin": 1}
    log.write("ERROR a\nINFO b\nERR")
    assert log.read() == {"ERROR a": 1}
    log.write("OR c\n")
    assert log.read() == {"ERROR c": 1}
    assert log.read() == {}


def test_an_error_whose_lines_may_still_come_is_counted_when_it_is_whole(log: Log) -> None:
    log.write("ERROR a\nINFO b\n", age=0)
    assert log.read() == {"ERROR a": 1}
    log.write('ERROR c\nTraceback (most recent call last):\n  File "x"\n', age=0)
    assert log.read() == {}
    log.write("KeyError: 7\n")
    assert log.read() == {"ERROR c | KeyError: 7": 1}


def test_a_log_that_is_rotated_loses_nothing(log: Log) -> None:
    log.write("ERROR a\n")
    log.read()
    log.write("ERROR b\n")
    log.path.rename(log.path.with_suffix(".log.1"))
    log.write("ERROR c\n")
    assert log.read() == {"ERROR b": 1, "ERROR c": 1}


def test_a_log_that_is_copied_and_truncated_is_read_from_its_beginning(log: Log) -> None:
    log.write("ERROR a\n" * 10)
    log.read()
    shutil.copy(log.path, log.path.with_suffix(".log.1"))
    os.truncate(log.path, 0)
    log.write("ERROR c\n")
    assert log.read() == {"ERROR c": 1}


def test_a_log_that_grows_too_fast_is_read_at_its_end(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance_log, "EACH", 1 << 16)
    log.write("ERROR early\n" + "INFO x\n" * 20_000 + "ERROR late\n")
    assert log.read() == {"ERROR late": 1} and not log.skipped  # of the past
    log.write("ERROR early\n" + "INFO x\n" * 20_000 + "ERROR late\n")
    assert log.read() == {"ERROR late": 1} and log.skipped


@pytest.mark.parametrize(
    "source", [{"file": "/nowhere"}, {"file": "/dev"}, {"record": "/dev/null"}]
)
def test_a_log_that_cannot_be_read_is_named(source: dict[str, str]) -> None:
    found = instance_log.main({"logs": {"a": {"source": source}}, "ignored": []})
    assert found["logs"]["a"].keys() == {"error"}


def test_lines_of_containers_are_known_again_by_their_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed = "".join(f"2026-11-22T23:24:0{n}.000000000Z ERROR a\n" for n in range(3))
    asked: list[tuple[str, ...]] = []

    def run(together: bool, *argv: str) -> str:
        asked.append(argv)
        return printed

    monkeypatch.setattr(instance_log, "_run", run)
    source = {"program": "podman", "container": "shop-1"}
    request: dict[str, t.Any] = {"logs": {"shop-1": {"source": source}}, "ignored": []}
    first = instance_log.main(request)["logs"]["shop-1"]
    assert [one["times"] for one in first["found"].values()] == [3]
    printed += "2026-11-22T23:24:09.000000000Z ERROR a\n"
    request["logs"]["shop-1"]["mark"] = first["mark"]
    second = instance_log.main(request)["logs"]["shop-1"]
    assert [one["times"] for one in second["found"].values()] == [1]
    assert f"--since={first['mark']}" in asked[-1] and "--since" not in str(asked[0])


# Which are new
# --------------------------------------------------------------------------------------------------


def look(new: dict[str, int] | None = None, old: str = "", compared: bool = True) -> Look:
    found = {key: Message(times, f"ERROR {key}", ("shop-7",)) for key, times in (new or {}).items()}
    return Look(found, frozenset(old), compared)


def after(*looks: Look) -> Messages:
    known = Messages()
    for one in looks:
        known = Messages.load(json.loads(json.dumps(known.after(one).dump())))  # as the journal
    return known


def test_a_message_that_old_instances_log_too_is_not_new() -> None:
    assert not after(look({"a": 9}, "a")).new
    assert not after(look({}, "a"), look({"a": 9})).new
    assert not after(look({"a": 9}), look({"a": 9}), look({"a": 9}, "a")).new
    assert after(look({"a": 9})).new.keys() == {"a"}


def test_a_message_is_a_failure_once_it_came_often_and_the_old_ones_had_time() -> None:
    assert not after(look({"a": 9}), look({"a": 9})).failures
    assert after(look({"a": 9}), look({"a": 9}), look({"a": 9})).failures
    assert not after(look({"a": 1}), *3 * [look({"a": 1})]).failures
    assert after(look({"a": 1}), look({"a": 2}), look({"a": 2})).failures


def test_a_log_that_is_read_anew_counts_nothing_twice() -> None:
    known = after(look({"a": 2}), look({"a": 1}), look({"a": 2}), look({"a": 2}))
    assert known.new["a"].times == 2 and known.new["a"].looks == 1 and not known.failures


def test_without_old_instances_nothing_is_new() -> None:
    known = after(look({"a": 9}, compared=False))
    assert not known.new and "no old instance" in known.sentence


def test_where_old_instances_log_too_much_nothing_fails() -> None:
    crowded = Look(look({"a": 9}).new, frozenset(), True, crowded=True)
    assert not after(crowded, look({"a": 9}), look({"a": 9})).failures
    many = Look({}, frozenset(str(n) for n in range(KNOWN + 1)), True)
    known = after(many, look({"a": 9}), look({"a": 9}), look({"a": 9}))
    assert not known.failures and len(known.known) == KNOWN


def test_what_the_journal_keeps_is_bounded() -> None:
    known = after(look({str(n): 1 for n in range(1000)}))
    assert len(known.new) == NEW


def test_the_sentence_names_what_fails_first() -> None:
    known = after(look({"a": 5}), look({"a": 5}), look({"a": 5, "b": 900}))
    assert known.sentence == (
        '2 error messages of new instances only: "ERROR a" (5 times on shop-7) and 1 more'
    )


METRIC: dict[str, t.Any] = {"name": "new-errors", "driver": "instance_log"}


def parsed(**more: t.Any) -> spec.Metric:
    options = spec.OPTIONS.parse({"metrics": [{**METRIC, **more}]}, "gate.")
    return spec.parse(options, "gate", []).metrics[0]


def test_messages_are_reported_and_fail_only_where_asked() -> None:
    result = {
        "new": {"a": {"times": 9, "example": "ERROR a", "instances": ["shop-7"]}},
        "old": [],
        "compared": True,
        "crowded": False,
        "skipped": False,
    }
    for metric, phase in (
        (parsed(), AnalysisPhase.SUCCESSFUL),
        (parsed(failure="any"), AnalysisPhase.FAILED),
    ):
        state: dict[str, t.Any] = {}
        found = [judging.judge_result(metric, state, result) for _look in range(3)]
        assert [one.phase for one in found[:2]] == 2 * [AnalysisPhase.SUCCESSFUL]
        assert found[2].phase is phase and "ERROR a" in found[2].sentence
        assert judging.has_new_messages(state) and not judging.has_new_messages({})
        assert metric.decides == (phase is AnalysisPhase.FAILED)


def test_no_other_judge_can_judge_messages() -> None:
    with pytest.raises(InputError, match="judge"):
        parsed(judge="sequential")
    with pytest.raises(InputError, match="judge"):
        parsed(driver="load_balancer", judge="new_messages")
    with pytest.raises(InputError, match="ignore"):
        parsed(ignore=["a"])


# The driver
# --------------------------------------------------------------------------------------------------


class World:
    """Instances with logs on this machine, which is several hosts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.instances: dict[str, Served] = {}
        self.answers: dict[str, Answer] = {}
        context = DriverContext(
            "shop",
            t.cast(t.Any, self),
            platform=lambda _transport: t.cast(t.Any, self),
            counters=t.cast(t.Any, self),
        )
        self.driver = driver.Driver(driver.OPTIONS.parse({}, "metric."), context)

    @property
    def served(self) -> dict[str, Served]:
        return self.instances

    def apart(self) -> World:
        return self

    def log_source(self, id: str, host: str) -> dict[str, str]:
        return {"file": str(self.folder / host / f"{id}.log")}

    def ask(self, agent: str, requests: dict[str, t.Any], timeout: float) -> dict[str, Answer]:
        return {
            host: self.answers.get(host) or Answer(instance_log.main(request))
            for host, request in requests.items()
        }

    def logs(self, name: str, generation: int, *lines: str, serving: bool = True) -> None:
        host = f"web{name[-1]}"
        path = self.folder / host / f"{name}.log"
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
        os.utime(path, (1, 1))
        self.instances[name] = Served(
            str(generation), generation, host, Endpoint("10.0.0.1", 80), serving=serving
        )

    def look(self) -> t.Any:
        return self.driver.measure(Question({"generation": 2}, 0, 0, paired=True))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_both_sides_are_read_from_their_beginning_and_added_up(world: World) -> None:
    world.logs("shop-1", 1, "ERROR a 1")
    world.logs("shop-2", 2, "ERROR a 2", "ERROR b 1")
    world.logs("shop-3", 2, "ERROR b 2")
    world.logs("shop-4", 2, "ERROR c", serving=False)
    world.look()
    world.logs("shop-2", 2, "ERROR b 3")
    found = world.look()
    (key,) = found["old"]
    new = {one["example"]: one for name, one in found["new"].items() if name != key}
    assert list(new) == ["ERROR b 1"] and new["ERROR b 1"]["times"] == 3
    assert new["ERROR b 1"]["instances"] == ["shop-2", "shop-3"]
    assert found["compared"] and not found["crowded"] and not found["skipped"]


def test_a_log_that_cannot_be_read_is_an_error_and_no_verdict(world: World) -> None:
    world.logs("shop-1", 1)
    world.logs("shop-2", 2, "ERROR a")
    (world.folder / "web1" / "shop-1.log").unlink()
    with pytest.raises(MetricError, match="shop-1") as raised:
        world.look()
    assert raised.value.id == "PR-434"


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"logs": {}},
        {"logs": {"shop-2": 1}},
        {"logs": {"shop-2": {"error": "\x1b[2J" + "x" * 9999}}},
        {
            "logs": {
                "shop-2": {
                    "mark": 1,
                    "found": {"k": {"times": -1, "example": ""}},
                    "left_out": 0,
                    "skipped": False,
                }
            }
        },
    ],
)
def test_a_host_is_not_believed(world: World, value: dict[str, t.Any]) -> None:
    world.logs("shop-2", 2)
    world.answers["web2"] = Answer(value)
    with pytest.raises(MetricError) as raised:
        world.look()
    assert "\x1b" not in str(raised.value) and len(str(raised.value)) < 600


def test_what_a_host_shows_is_cleaned_and_cut(world: World) -> None:
    world.logs("shop-2", 2)
    found = {"k": {"times": 1, "example": "\x1b]0;x\x07" + "y" * 9999}}
    log = {"mark": 1, "found": found, "left_out": 0, "skipped": False}
    world.answers["web2"] = Answer({"logs": {"shop-2": log}})
    (one,) = world.look()["new"].values()
    assert one["example"].isprintable() and len(one["example"]) <= 300


def test_a_platform_that_does_not_know_where_logs_are_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(World, "log_source", lambda *_labels: {})
    with pytest.raises(InputError, match="instance_log") as raised:
        World(world.folder)
    assert raised.value.id == "PR-434"
