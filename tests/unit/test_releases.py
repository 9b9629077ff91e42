# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases in a store: what several runs change at the same time, and what a damaged journal is."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import StoreError
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.gate_runner import (
    GateRunner,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.release import (
    Member,
    Passage,
    Place,
    Release,
    ReleasePhase,
    abort,
    arrive,
    declared,
    join,
    noted,
    pass_step,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.release_plan import (
    member_plan,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    RELEASE,
    Plan,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import (
    Connections,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.transport import Transport
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import releases
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.releases import (
    JOURNAL,
    Releases,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.stores.file import OPTIONS, Driver


def store(path: Path) -> Driver:
    transport = Transport(
        Connections({}, SimpleNamespace(timeout=10, password=None, become_pass=None), None)
    )
    options = OPTIONS.parse({"path": str(path)}, "rollout_store.")
    return Driver(options, DriverContext(JOURNAL, transport))


def of_run(path: Path, token: str) -> Releases:
    return Releases(store(path), token, f"run {token}")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    members = {
        "schema": Member("schema", "schema", reversible=False),
        "api": Member("api", "shop-api", ("schema",), 600.0),
    }
    release = join(declared(Release("2026.47", members, True), 1.0), "api", "2", ("step 1",), 2.0)
    release = pass_step(release, "api", "step 1", 3.0)
    release = arrive(release, "api", Place.BACK, 4.0, "500s")
    first = of_run(tmp_path, "a")
    assert first.read() == {}
    first.change(lambda known: {**known, release.name: release})
    assert of_run(tmp_path, "b").read() == {"2026.47": release}


def test_runs_that_change_a_release_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    release = declared(Release("1", {"a": Member("a", "a")}), 0.0)
    of_run(tmp_path, "0").change(lambda known: {"1": release})

    def change(run: str) -> None:
        mine = of_run(tmp_path, run)
        for number in range(5):

            def one_more(
                known: Mapping[str, Release], text: str = f"{run} {number}"
            ) -> dict[str, Release]:
                return {"1": noted(known["1"], text, 1.0)}

            mine.change(one_more)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(change, "xyz"))
    texts = [note.text for note in of_run(tmp_path, "0").read()["1"].log[1:]]
    assert sorted(texts) == [f"{run} {number}" for run in "xyz" for number in range(5)]


def test_a_change_of_nothing_takes_no_lease(tmp_path: Path) -> None:
    held = store(tmp_path)
    held.acquire("other", "a run that was killed", 60.0, {})
    assert of_run(tmp_path, "a").change(lambda known: known) == {}


@pytest.mark.slow
def test_the_lease_of_a_killed_run_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = declared(Release("1", {"a": Member("a", "a")}), 0.0)
    store(tmp_path).acquire("other", "a run that was killed", 1.0, {})
    of_run(tmp_path, "a").change(lambda known: {"1": release})
    assert of_run(tmp_path, "b").read() == {"1": release}
    monkeypatch.setattr(releases, "LONGEST", 0.1)
    store(tmp_path).acquire("other", "a run that goes on", 60.0, {})
    with pytest.raises(StoreError, match="busy"):
        of_run(tmp_path, "a").change(lambda known: {})


def test_a_change_that_is_refused_leaves_all_as_it_is_and_gives_the_lease_back(
    tmp_path: Path,
) -> None:
    release = declared(Release("1", {"a": Member("a", "a")}), 0.0)
    mine = of_run(tmp_path, "a")
    mine.change(lambda known: {"1": release})

    def refused(known: Mapping[str, Release]) -> Mapping[str, Release]:
        raise StoreError("no")

    with pytest.raises(StoreError, match="no"):
        mine.change(refused)
    assert mine.read() == {"1": release} and store(tmp_path).lease() is None


def test_only_the_last_releases_that_have_ended_are_kept(tmp_path: Path) -> None:
    mine = of_run(tmp_path, "a")
    going = declared(Release("going", {"a": Member("a", "a")}), 0.0)
    ended = [
        abort(declared(Release(str(number), {"a": Member("a", "a")}), 0.0), "no", 1.0)
        for number in range(releases.KEPT + 3)
    ]
    assert all(release.phase is ReleasePhase.BACK for release in ended)
    mine.change(lambda known: {release.name: release for release in (going, *ended)})
    assert list(mine.read()) == ["going", *[release.name for release in ended[3:]]]


def test_a_service_that_is_removed_takes_its_releases_along(tmp_path: Path) -> None:
    mine = of_run(tmp_path, "a")
    services = {"1": ("shop", "web"), "2": ("web",)}
    members = {
        name: {service: Member(service, service) for service in given}
        for name, given in services.items()
    }
    mine.change(lambda known: {name: Release(name, given) for name, given in members.items()})
    before = {str(path) for path in tmp_path.rglob("*")}
    assert mine.forget("shop", dry=True) == ["1"]
    assert {str(path) for path in tmp_path.rglob("*")} == before
    assert mine.forget("shop", dry=False) == ["1"] and list(mine.read()) == ["2"]
    assert mine.forget("shop", dry=False) == []
    assert mine.forget("web", dry=False) == ["2"]
    assert list(tmp_path.rglob("*")) == [], "the journal went with the last release"


def test_a_damaged_journal_is_refused(tmp_path: Path) -> None:
    held = store(tmp_path)
    held.acquire("a", "a", 5.0, {})
    held.commit("a", 5.0, {"releases": {"1": {"name": 5}}, "id": ""})
    with pytest.raises(StoreError, match="is damaged") as refused:
        of_run(tmp_path, "a").read()
    assert refused.value.id == "PR-506"


def test_no_command_lets_a_member_pass_its_release(tmp_path: Path) -> None:
    gates = [gate for gate in member_plan(Plan(), False).gates if gate.driver == RELEASE]
    transport = store(tmp_path)._transport
    passage = Passage(False, "for the promotion of api")
    context = DriverContext("worker", transport, release=lambda _point, _step: passage)
    runner = GateRunner(gates, context, {})
    assert gates and runner.bound
    assert runner.pass_(None, "ann") == [] and not runner.poll(dict).passed
    runner.close()
