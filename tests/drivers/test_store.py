# SPDX-License-Identifier: GPL-3.0-or-later
"""The file store with real files and real processes, in this process and through its agent as a
script on stdin.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import typing as t
from collections.abc import Mapping
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import store as agent
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    LeaseHeld,
    LeaseLost,
    StoreError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.agents import (
    Answer,
    program,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import (
    Command,
    Result,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.stores.file import OPTIONS, Driver
from ansible_collections.progressive.rollout.tests.drivers.store_contract import (
    Make,
    StoreContract,
    fork,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until


class Here:
    """Asks the agent in this process, or as a script on the standard input of a bare Python, as
    over ssh.
    """

    def __init__(self, shipped: bool = False) -> None:
        self.shipped = shipped

    def hosts(self, pattern: str) -> list[str]:
        return {"lb1": ["lb1"], "load_balancers": ["lb1", "lb2"]}.get(pattern, [])

    def address(self, host: str) -> str:
        return "127.0.0.1"

    def run(self, commands: Mapping[str, Command], timeout: float) -> dict[str, Result]:
        raise NotImplementedError

    def ask(
        self, agent_name: str, requests: Mapping[str, Mapping[str, t.Any]], timeout: float
    ) -> dict[str, Answer]:
        assert agent_name == "store"
        return {
            host: Answer(self._ship(request) if self.shipped else agent.main(dict(request)))
            for host, request in requests.items()
        }

    @staticmethod
    def _ship(request: Mapping[str, t.Any]) -> dict[str, t.Any]:
        script, mark = program(agent, dict(request), 30.0, "ANSWER:"), b"ANSWER:"
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-"],
            input=script,
            capture_output=True,
            timeout=30,
            check=True,
        )
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(mark)]
        _magic, _colon, answer = line.removeprefix(mark).partition(b":")
        return t.cast("dict[str, t.Any]", json.loads(answer)["value"])


class Cut(Here):
    """A host that cannot be reached."""

    def ask(
        self, agent_name: str, requests: Mapping[str, Mapping[str, t.Any]], timeout: float
    ) -> dict[str, Answer]:
        return {
            host: Answer(
                error="ssh: connect to host lb1 port 22: No route to host", unreachable=True
            )
            for host in requests
        }


def driver(
    path: Path, service: str = "shop", transport: Here | None = None, host: str | None = None
) -> Driver:
    return Driver(
        OPTIONS.parse({"path": str(path), "host": host}, "rollout_store."),
        DriverContext(service, t.cast(t.Any, transport or Here())),
    )


@pytest.fixture(params=[False, True], ids=["in-process", "shipped"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Driver:
    return driver(
        tmp_path / "rollout", transport=Here(request.param), host="lb1" if request.param else None
    )


class TestContract(StoreContract):
    kills = 30

    @pytest.fixture
    def make(self, tmp_path: Path) -> Make:
        return lambda service="shop": driver(tmp_path, service)


def test_looking_touches_nothing(store: Driver, tmp_path: Path) -> None:
    assert store.load() == {}
    assert store.lease() is None
    assert list(store.timeline("r1")) == []
    assert list(store.commands(0)) == []
    store.release("a")
    with pytest.raises(LeaseLost, match="no run holds it"):
        store.commit("a", 60, {"id": "r1"})
    assert list(tmp_path.iterdir()) == []


def test_a_rollout_from_begin_to_finish(store: Driver, tmp_path: Path) -> None:
    lease = store.acquire("a", "ann@desk pid 1", 60, {"pid": 1})
    assert (lease.token, lease.holder, lease.details) == ("a", "ann@desk pid 1", {"pid": 1})
    assert lease.until - lease.since == 60
    record = {"id": "r1", "phase": "progressing", "note": "ü \udcff"}
    store.commit("a", 60, record, [{"n": 1}, {"n": 2}])
    store.commit("a", 60, events=[{"n": 3}])
    assert store.load() == record
    assert list(store.timeline("r1")) == [{"n": 1}, {"n": 2}, {"n": 3}]
    renewed = store.acquire("a", "ann@desk pid 1", 60, {"pid": 2})
    assert (renewed.epoch, renewed.since, renewed.details) == (lease.epoch, lease.since, {"pid": 2})
    assert renewed.until > lease.until
    store.release("a")
    assert store.lease() is None
    assert store.acquire("b", "bob", 60, {}).epoch > lease.epoch
    journal = tmp_path / "rollout" / "journal"
    files = [journal / "shop.json", journal / "shop.lease.json", journal / "shop" / "r1.jsonl"]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3
    assert stat.S_IMODE(journal.stat().st_mode) == 0o700
    assert json.loads(files[0].read_text())["schema"] == 3


def test_a_store_made_anew_outranks_the_one_that_was_lost(store: Driver, tmp_path: Path) -> None:
    """However many leases were taken in the second before: one for each command of an operator
    and each step of a play.
    """
    began = time.time()
    for number in range(5):
        lost = store.acquire(f"a{number}", "ann", 60, {})
        store.release(f"a{number}")
    shutil.rmtree(tmp_path / "rollout")
    until(lambda: time.time() > began + 0.05)
    assert store.acquire("b", "bob", 60, {}).epoch > lost.epoch


def test_a_torn_last_line_is_no_event_and_is_mended(store: Driver, tmp_path: Path) -> None:
    store.acquire("a", "ann", 60, {})
    store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
    path = tmp_path / "rollout" / "journal" / "shop" / "r1.jsonl"
    path.write_text(path.read_text() + '{"n": 2, "te')
    assert list(store.timeline("r1")) == [{"n": 1}]
    store.commit("a", 60, events=[{"n": 3}])
    assert path.read_text() == '{"n": 1}\n{"n": 3}\n'


def test_what_a_killed_write_left_is_gone_after_the_next_acquire(tmp_path: Path) -> None:
    store = driver(tmp_path)
    store.acquire("a", "ann", 60, {})
    drafts = (".shop.json.tmp", ".shop.lease.json.tmp", ".shop.words.jsonl.tmp")
    for name in (*drafts, "shop.json.tmp"):  # as versions before called it
        (tmp_path / "journal" / name).write_text('{"ha')
    store.acquire("a", "ann", 60, {})
    assert sorted(os.listdir(tmp_path / "journal")) == ["shop.lease.json", "shop.lock"]


def test_a_removed_service_leaves_nothing_beside_another(tmp_path: Path) -> None:
    driver(tmp_path, "other").acquire("o", "olga", 60, {})
    store = driver(tmp_path)
    store.acquire("a", "ann", 60, {})
    store.erase("a")
    store.release("a")
    with pytest.raises(LeaseLost):
        store.commit("a", 60, {"id": "r1"})
    with pytest.raises(LeaseLost):
        store.erase("a")
    assert not [name for name in os.listdir(tmp_path / "journal") if "shop" in name]


@pytest.mark.parametrize("damage", ['{"id": "r', "", "[]", "\xff"])
def test_damaged_files_are_named_with_what_to_do(tmp_path: Path, damage: str) -> None:
    store = driver(tmp_path)
    store.acquire("a", "ann", 60, {})
    store.commit("a", 60, {"id": "r1"}, [{"n": 1}])
    (tmp_path / "journal" / "shop.json").write_text(damage, encoding="latin-1")
    with pytest.raises(
        StoreError, match=r"journal/shop\.json is damaged .*restore it, or move it away"
    ) as caught:
        store.load()
    assert caught.value.id == "PR-506"
    (tmp_path / "journal" / "shop.lease.json").write_text(damage, encoding="latin-1")
    with pytest.raises(
        StoreError, match=r'journal/shop\.lease\.json is damaged .*write {"epoch": N} into it'
    ):
        store.acquire("b", "bob", 60, {})
    (tmp_path / "journal" / "shop.lease.json").write_text('{"epoch": 41}')  # as the message says
    assert store.acquire("b", "bob", 60, {}).epoch > 41
    (tmp_path / "journal" / "shop" / "r1.jsonl").write_text('{"n": 1}\nrubbish\n{"n": 2}\n')
    with pytest.raises(StoreError, match=r"r1\.jsonl: line 2 is not a JSON object"):
        store.timeline("r1")


def test_a_lease_with_a_field_missing_or_a_newer_schema_is_refused(tmp_path: Path) -> None:
    store = driver(tmp_path)
    store.acquire("a", "ann", 60, {})
    path = tmp_path / "journal" / "shop.lease.json"
    path.write_text('{"epoch": 1, "token": "a"}')
    with pytest.raises(StoreError, match=r"shop\.lease\.json: holder is missing or wrong"):
        store.lease()
    path.write_text('{"schema": 2, "epoch": 1}')
    with pytest.raises(
        StoreError, match=r"lease\.json .* \(schema 2; this version reads up to 1\)"
    ) as caught:
        store.lease()
    assert caught.value.id == "PR-507"


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        StoreError,
        match=(
            r"rollout_store\.path: .*/file/journal on the controller: Not a directory; uid \d+ must"
            r" be able"
        ),
    ):
        driver(tmp_path / "file").acquire("a", "ann", 60, {})
    with pytest.raises(StoreError, match=r"rollout_store\.path: .*on host lb1"):
        driver(Path("/proc/rollout"), host="lb1").acquire("a", "ann", 60, {})


def test_a_full_disk_leaves_all_as_it_was(tmp_path: Path) -> None:
    store = driver(tmp_path)
    store.acquire("a", "ann", 60, {})
    store.commit("a", 60, {"id": "r1", "n": 1}, [{"n": 1}])
    before = store.lease()

    # a file may not grow past 100 bytes here: the event still fits, the record does not
    def fill() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        with pytest.raises(
            StoreError, match=r"rollout_store\.path: .*File too large.*room on the disk"
        ):
            store.commit("a", 60, {"id": "r1", "n": 2, "much": "x" * 1000}, [{"n": 2}])

    child = fork.Process(target=fill)
    child.start()
    child.join(20)
    assert child.exitcode == 0
    assert store.load() == {"id": "r1", "n": 1}
    assert list(store.timeline("r1")) == [{"n": 1}]
    assert store.lease() == before


def test_the_host_is_named_when_it_is_wrong_or_away(tmp_path: Path) -> None:
    with pytest.raises(
        StoreError,
        match=r"rollout_store\.host: host lb1, which keeps the journal, cannot be reached: ssh:",
    ):
        driver(tmp_path, transport=Cut(), host="lb1").load()
    with pytest.raises(InputError, match=r"rollout_store\.host: 'load_balancers' names 2 hosts"):
        driver(tmp_path, host="load_balancers")
    with pytest.raises(InputError, match=r"rollout_store\.host: 'lb9' is not in the inventory"):
        driver(tmp_path, host="lb9")
    with pytest.raises(InputError, match=r"rollout_store\.path: 'rollout' is not an absolute path"):
        driver(Path("rollout"))
    assert sorted(OPTIONS) == ["host", "path"]


def test_numbers_of_words_that_were_obeyed_are_not_used_again(tmp_path: Path) -> None:
    store = driver(tmp_path)
    store.acquire("a", "ann", 60, {})
    store.commit("a", 60, {"id": "r1", "obeyed": store.post({"word": "pause"})})
    (tmp_path / "journal" / "shop.words.jsonl").unlink()
    assert store.post({"word": "resume"}) == 2


def test_a_torn_last_word_is_none_and_a_damaged_one_is_named(store: Driver, tmp_path: Path) -> None:
    store.post({"word": "pause"})
    path = tmp_path / "rollout" / "journal" / "shop.words.jsonl"
    path.write_text(path.read_text() + '{"word": "abo')
    assert [command["word"] for command in store.commands(0)] == ["pause"]
    assert store.post({"word": "resume"}) == 2
    assert [command["word"] for command in store.commands(0)] == ["pause", "resume"]
    path.write_text("rubbish\n" + path.read_text())
    with pytest.raises(
        StoreError, match=r"shop\.words\.jsonl: line 1 is not a JSON object; delete that line"
    ):
        store.commands(0)
    path.write_text('{"word": "pause"}\n')
    with pytest.raises(
        StoreError,
        match=r"shop\.words\.jsonl: line 1: number is missing or wrong; delete that line",
    ):
        store.post({"word": "pause"})


def test_a_stopped_process_that_holds_the_lock_is_named_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = driver(tmp_path)
    store.acquire("a", "ann", 60, {})
    monkeypatch.setattr(agent, "LOCK_WAIT", 0.05)
    command = [
        sys.executable,
        "-c",
        (
            "import"
            " fcntl,sys,time;f=open(sys.argv[1]);fcntl.flock(f,2);print('locked',flush=True);time.sleep(60)"
        ),
    ]
    with subprocess.Popen(
        [*command, str(tmp_path / "journal" / "shop.lock")], stdout=subprocess.PIPE, text=True
    ) as other:
        try:
            assert other.stdout and other.stdout.readline() == "locked\n"
            with pytest.raises(StoreError, match=r"shop\.lock has been locked for 0\.05 s"):
                store.commit("a", 60)
        finally:
            other.kill()
    store.commit("a", 60)


@pytest.mark.parametrize(
    "line",
    [
        "5",
        '{"at": "x"}',
        '{"kind": 1}',
        '{"kind": "state", "state": []}',
        '{"at": NaN}',
        "[" * 9999,
    ],
)
def test_a_damaged_event_or_word_is_named(tmp_path: Path, line: str) -> None:
    store = driver(tmp_path)
    store.acquire("a", "ann", 60, {})
    store.commit("a", 60, {"id": "r1"}, [{"at": 1.0, "kind": "phase"}])
    path = tmp_path / "journal" / "shop" / "r1.jsonl"
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(
        StoreError,
        match=(
            rf"{path}: line 2: .*delete that line or move|{path}: line 2 is not a JSON object;"
            r" delete"
        ),
    ):
        store.timeline("r1")
    store.post({"word": "pause"})
    commands = tmp_path / "journal" / "shop.words.jsonl"
    commands.write_text(
        commands.read_text() + line.replace("kind", "word").replace("state", "rollout") + "\n"
    )
    with pytest.raises(
        StoreError, match=rf"{commands}: line 2( is not a JSON object|: .*); delete that line"
    ):
        store.commands(0)


def test_a_lease_that_a_clock_running_ahead_has_taken_is_over_when_it_has_lived_for_as_long_as_it_may(
    tmp_path: Path,
) -> None:
    store = driver(tmp_path)
    store.acquire("a", "ann", 0.5, {})
    path = tmp_path / "journal" / "shop.lease.json"
    ahead = json.loads(path.read_text())
    path.write_text(
        json.dumps({**ahead, "until": ahead["until"] + 3600, "since": ahead["since"] + 3600})
    )
    with pytest.raises(LeaseHeld, match=r"until .* \(another 1 s\)"):
        store.acquire("b", "bob", 60, {})
    until(lambda: store.lease() is None)
    assert store.acquire("b", "bob", 60, {}).holder == "bob"


def test_a_lease_whose_holder_is_alive_and_ahead_is_kept(tmp_path: Path) -> None:
    store = driver(tmp_path)
    store.acquire("a", "ann", 60, {})
    path = tmp_path / "journal" / "shop.lease.json"
    for _turn in range(3):
        ahead = json.loads(path.read_text())
        path.write_text(json.dumps({**ahead, "until": ahead["until"] + 3600}))
        with pytest.raises(LeaseHeld, match=r"\(another (59|60) s\)"):
            store.acquire("b", "bob", 60, {})
        store.commit("a", 60)
