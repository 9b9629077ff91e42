# SPDX-License-Identifier: GPL-3.0-or-later
"""The reconcile loop over drivers that fail at every call there is, one after the other; the
journal is the real one.

The drivers are of a kind of their own, as a third party's would be: instances and a load balancer
in memory.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    LeaseLost,
    PlatformError,
    RolloutFailed,
    StoreError,
    TrafficError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.settings import parse
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop import (
    conclusion,
    draining,
    stage_run,
    timing,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.gate_runner import (
    GateRunner,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.interrupt import (
    Guard,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.observer import (
    Observer,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.reconcile_loop import (
    ReconcileLoop,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.stage_run import (
    run_stage,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout import stages
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Composition,
    Health,
    Phase,
    Process,
    Rotation,
    State,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    Gate,
    Plan,
    Stage,
    Waypoint,
    rolling,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.health.monitor import (
    HealthMonitor,
    HealthStatus,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.check import (
    HealthCheck,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    InstanceSettings,
    Labels,
    PlatformDriver,
    Report,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import (
    Server,
    TrafficDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.transport import Transport
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import identity
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.lease import Session
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Rollout
from ansible_collections.progressive.rollout.tests.simulations.world.machine import Machine
from ansible_collections.progressive.rollout.tests.support.memory import (
    Here,
    Previewed,
    Store,
    Traffic,
    World,
    choice,
)

pytestmark = pytest.mark.usefixtures("virtual_time")

ARGS = {
    "service": "shop",
    "revision": "2",
    "replicas": 3,
    "budget": {"max_surge": 1, "max_unavailable": 0},
}


@dataclass
class Walk:
    """A rollout from three instances of revision 1 to three of revision 2."""

    loop: ReconcileLoop
    session: Session
    rollout: Rollout
    world: World

    def run(self) -> None:
        run_stage(self.loop, Stage("replace", rolling(2, 3)), "2", self.rollout, dict)


@pytest.fixture
def walking() -> t.Iterator[Callable[..., Walk]]:
    made: list[HealthMonitor | Session] = []

    def make(world: World, preview: bool = False, **args: t.Any) -> Walk:
        for number in (1, 2, 3) if not world.instances else ():
            labels = Labels(
                f"shop-{number}", "shop", "1", 1, "web", Endpoint("127.0.0.1", number), number
            )
            world.instances[labels.id] = Report(labels, Process.RUNNING, clock.now() - 60)
            world.servers[labels.endpoint] = Server(Rotation.IN, True, 0)
        context = DriverContext("shop", t.cast(Transport, Here()))
        settings = replace(
            parse({**ARGS, **args}, drivers=False),
            platform=choice(PlatformDriver, world.platform),
            traffic=choice(TrafficDriver, lambda: (Previewed if preview else Traffic)(world)),
        )
        guard = Guard()
        store = Store(world, "shop")
        session = Session(store, "shop", identity.identity(guard.parent), settings.lease)
        session.acquire(guard.check)
        checker = HealthMonitor(HealthCheck(), context.transport)
        made.extend((checker, session))
        record = session.record
        if record.rollout is None:
            record.stable, record.generation, record.serial = Composition("1", 1, 3), 2, 3
            record.rollout = Rollout("shop-x", "2", 2, 3, "rolling", record.stable, clock.now())
            session.commit()
            world.calls.clear()
        return Walk(
            ReconcileLoop(settings, context, session, guard, checker, lambda line: None),
            session,
            record.rollout,
            world,
        )

    yield make
    for one in made:
        one.close()


def done(world: World) -> None:
    assert world.wrong == []
    assert sorted(report.labels.revision for report in world.alive()) == ["2"] * 3
    assert {report.labels.endpoint for report in world.alive()} == set(world.servers)
    assert all(server.rotation is Rotation.IN for server in world.servers.values())


ERRORS = {
    "sync": PlatformError,
    "observe": TrafficError,
    "apply": TrafficError,
    "commit": StoreError,
}


def calls(walking: Callable[..., Walk]) -> list[str]:
    """Every call of a walk without trouble."""
    world = World()
    walking(world).run()
    done(world)
    return world.calls


def nth(world: World, number: int, exc: Exception) -> None:
    """Let one call fail."""
    world.fails = lambda _call: exc if len(world.calls) == number else None


@pytest.mark.parametrize("part", range(4))  # for as many workers
@pytest.mark.slow
def test_an_error_at_any_call_costs_a_turn_and_nothing_else(
    walking: Callable[..., Walk], part: int
) -> None:
    # As many as it takes to replace two of the three; the third is no news.
    every = list(enumerate(calls(walking), 1))
    for number, call in every[: len(every) * 2 // 3][part::4]:
        world = World()
        walk = walking(world)
        nth(world, number, ERRORS[call.partition(" ")[0]]("no"))
        walk.run()
        done(world)
        assert walk.rollout.replaced == 3, call


def test_a_stable_instance_that_fails_while_it_is_waited_is_replaced_told_and_recorded(
    walking: Callable[..., Walk],
) -> None:
    world = World()
    walk = walking(world)
    lines: list[str] = []
    walk.loop.print_line = lines.append

    def fails(call: str) -> None:
        there = world.instances["shop-3"]
        if (
            call == "observe"
            and world.serving() == 4
            and there.process is Process.RUNNING
            and not lines[1:]
        ):
            world.instances["shop-3"] = replace(there, process=Process.FAILED, detail="exit code 3")
            lines.append("killed")

    world.fails = fails
    waits = Gate("pause", "pause", {"duration": 1.0})
    run_stage(
        walk.loop, Stage("one", Waypoint(2, 1, 3, 3, stable=1), (waits,)), "2", walk.rollout, dict
    )
    assert world.wrong == []
    assert Counter((r.labels.revision, r.labels.generation) for r in world.alive()) == {
        ("1", 1): 3,
        ("2", 2): 1,
    }
    (line,) = [line for line in lines if "stable:" in line]
    assert line == "shop 2 stable: shop-3 on web (exit code 3) failed; 2 left, starting 1"
    (event,) = [
        event for event in walk.session.store.timeline("shop-x") if event["kind"] == "repair"
    ]
    assert (event["failed"], event["started"], event["there"], event["wanted"]) == (
        ["shop-3"],
        1,
        2,
        3,
    )


def test_time_at_a_gate_is_no_lack_of_progress_for_what_is_repaired_after_it(
    walking: Callable[..., Walk],
) -> None:
    world = World()
    walk = walking(world, progress_deadline="10s")
    began = clock.now()
    killed: list[str] = []

    def fails(call: str) -> None:
        if call == "observe" and not killed and clock.now() > began + 25:
            (new,) = (r for r in world.alive() if r.labels.revision == "2")
            world.instances[new.labels.id] = replace(new, process=Process.FAILED)
            killed.append(new.labels.id)

    world.fails = fails
    waits = Gate("pause", "pause", {"duration": 30.0})
    point = Waypoint(2, 1, 3, 3, stable=1)
    run_stage(walk.loop, Stage("one", point, (waits,)), "2", walk.rollout, dict)
    assert killed and [r.labels.revision for r in world.alive()].count("2") == 1


def test_a_failed_stable_instance_is_reported_in_one_stage_and_not_again_in_the_next(
    walking: Callable[..., Walk],
) -> None:
    world = World()
    walk = walking(world)
    lines: list[str] = []
    walk.loop.print_line = lines.append
    doomed: list[str] = []

    def fails(call: str) -> None:
        if call == "observe" and world.serving() == 4 and doomed:
            name = doomed.pop()
            world.instances[name] = replace(world.instances[name], process=Process.FAILED)

    world.fails = fails
    for stage, name in (("one", "shop-3"), ("two", "shop-2")):
        doomed.append(name)
        waits = Gate(f"{stage} pause", "pause", {"duration": 1.0})
        point = Waypoint(2, 1, 3, 3, stable=1)
        run_stage(walk.loop, Stage(stage, point, (waits,)), "2", walk.rollout, dict)
    assert doomed == []
    failed = [line.partition("stable: ")[2].split()[0] for line in lines if " failed; " in line]
    assert failed == ["shop-3", "shop-2"]
    repairs = [e["failed"] for e in walk.session.store.timeline("shop-x") if e["kind"] == "repair"]
    assert repairs == [["shop-3"], ["shop-2"]]


def test_each_stage_gives_entries_of_instances_that_are_gone_the_same_time(
    walking: Callable[..., Walk],
) -> None:
    walk = walking(World())
    actuator, now = walk.loop.actuator, 0.0
    actuator._now = lambda: now
    tidy = walk.loop.observe()
    shown = (tidy.table or {})["lb"]
    gone = {Endpoint("127.0.0.1", 50): Server(Rotation.OUT, True, 1)}
    untidy = replace(tidy, table={"lb": {**shown, **gone}})
    assert not actuator.is_tidy(untidy, 30.0)
    now = 20.0
    assert actuator.is_tidy(tidy, 30.0)
    now = 40.0
    assert not actuator.is_tidy(untidy, 30.0), "another entry, in another stage"
    now = 71.0
    assert actuator.is_tidy(untidy, 30.0)


def test_nothing_is_done_once_the_lease_is_lost(
    walking: Callable[..., Walk],
) -> None:
    commits = calls(walking).count("commit")
    assert commits > 6, "each change is written down before it is made"
    for number in range(1, commits - 2):
        world = World()
        walk = walking(world)

        def fails(call: str, world: World = world, number: int = number) -> Exception | None:
            return (
                LeaseLost("gone")
                if call == "commit" and world.calls.count("commit") == number
                else None
            )

        world.fails = fails
        with pytest.raises(LeaseLost):
            walk.run()
        assert world.calls[-1] == "commit"


def test_a_run_that_waits_for_a_load_balancer_ends_once_its_lease_is_lost(
    walking: Callable[..., Walk],
) -> None:
    world = World()
    walk = walking(world)

    def fails(call: str) -> Exception | None:
        if call == "commit" and "observe" in world.calls:
            return LeaseLost("gone")
        walk.session._renewed = 0.0  # long ago
        return TrafficError("down") if call == "observe" else None

    world.fails = fails
    with pytest.raises(LeaseLost):
        walk.run()


@pytest.mark.slow
def test_the_lease_is_kept_while_something_does_not_answer(walking: Callable[..., Walk]) -> None:
    """For longer than it lives: who waits for a load balancer still holds it."""
    world = World()
    walk = walking(world, lease="5s", progress_deadline="40s")
    walk.session.ttl = 0.6
    down = clock.monotonic() + 1.5
    lost: list[float] = []

    def fails(call: str) -> Exception | None:
        if call != "observe" or clock.monotonic() > down:
            return None
        if walk.session.store.lease() is None:
            lost.append(clock.monotonic())
        clock.sleep(0.05)
        return TrafficError("down")

    world.fails = fails
    walk.session.commit()
    walk.run()
    done(world)
    assert lost == []


@pytest.mark.slow
def test_the_lease_is_kept_while_one_call_takes_longer_than_it_lives(
    walking: Callable[..., Walk],
) -> None:
    world = World()
    walk = walking(world)
    walk.session.ttl = 1.5
    walk.session.acquire(lambda: None)
    lost: list[str] = []

    def fails(call: str) -> Exception | None:
        if world.calls.count(call) == 2 and call != "commit":
            hung = clock.monotonic() + 1.3 * walk.session.ttl
            while clock.monotonic() < hung:
                lost.extend([call] if walk.session.store.lease() is None else [])
                clock.sleep(0.01)
        return None

    world.fails = fails
    walk.run()
    done(world)
    assert lost == []
    walk.session.release()
    clock.sleep(walk.session.ttl)
    assert walk.session.store.lease() is None, "what was given back is not taken again"


def test_a_journal_that_cannot_be_written_for_longer_than_the_lease_lives_is_waited_for(
    walking: Callable[..., Walk],
) -> None:
    """Nothing is done meanwhile; and where another run has taken the lease, it is found out with
    the first write.
    """
    world = World()
    walk = walking(world, progress_deadline="40s")
    walk.session.ttl = 0.3
    full = clock.monotonic() + 1.0
    done_meanwhile: list[str] = []

    def fails(call: str) -> Exception | None:
        if clock.monotonic() > full:
            return None
        done_meanwhile.extend([call] if call in ("apply before",) else [])
        return StoreError("No space left on device") if call == "commit" else None

    world.fails = fails
    walk.run()
    done(world)
    assert done_meanwhile == [] and clock.monotonic() > full


@pytest.mark.parametrize("jump", [-86400.0, 86400.0])
def test_a_clock_that_is_set_changes_nothing(
    walking: Callable[..., Walk], virtual_time: Machine, jump: float
) -> None:
    world = World()
    walk = walking(world, min_ready="200ms", progress_deadline="5s")

    def fails(_call: str) -> Exception | None:
        if len(world.calls) == 12:
            virtual_time.jump = jump
        return None

    world.fails = fails
    walk.run()
    done(world)


def test_the_new_ones_are_shown_to_the_end_and_on_the_way_back_no_more(
    walking: Callable[..., Walk],
) -> None:
    world = World()
    walk = walking(world, preview=True)
    walk.loop.rules = replace(walk.loop.rules, drain_timeout=30)
    walk.run()
    done(world)
    assert world.preview == world.servers
    world.fails = lambda call: (
        TrafficError("away") if call == "preview observe" and world.calls.count(call) % 3 else None
    )
    conclusion.empty_previews(walk.loop)
    assert world.preview == {}
    walk.run()  # another run that goes on
    assert world.preview == world.servers

    again = walking(world, preview=True)
    again.loop.rules = walk.loop.rules
    again.rollout.turn_to(Phase.ROLLING_BACK, "", 0.0)
    run_stage(again.loop, Stage("back", rolling(1, 3)), "1", again.rollout, dict)
    assert world.wrong == [] and world.preview == {}
    assert [report.labels.revision for report in world.alive()] == ["1"] * 3


def test_the_counters_are_read_whenever_the_share_of_the_requests_changes(
    walking: Callable[..., Walk],
) -> None:
    """So that an analysis compares each share apart: three came into rotation, and three left."""
    world = World()
    walk = walking(world)
    walk.run()
    done(world)
    assert len(walk.loop.observer.counters.cuts) >= 6


def test_a_baseline_is_of_the_stable_revision_and_not_shown_as_new(
    walking: Callable[..., Walk],
) -> None:
    world = World()
    walk = walking(world, preview=True)
    fresh = Stage("baseline", Waypoint(3, 2, 1, 3, stable=1, baseline=3))
    run_stage(
        walk.loop, fresh, stages.revision_of(walk.rollout, fresh.waypoint), walk.rollout, dict
    )
    assert world.wrong == [] and "preview apply" not in world.calls
    assert sorted((r.labels.generation, r.labels.revision) for r in world.alive()) == [
        (1, "1"),
        (3, "1"),
        (3, "1"),
    ]
    assert walk.rollout.replaced == 0
    walk.run()
    assert walk.rollout.replaced == 3
    assert (
        world.wrong == []
        and [r.labels.revision for r in world.alive()] == ["2"] * 3
        and world.preview == world.servers
    )


def test_what_is_asked_all_along_is_asked_by_one_keeper(
    walking: Callable[..., Walk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stage with one of its own would measure nothing in a stage that is shorter than the
    interval.
    """
    made: list[GateRunner] = []

    class Noted(GateRunner):
        def __init__(self, gates: t.Any, *args: t.Any, **kwargs: t.Any) -> None:
            super().__init__(gates, *args, **kwargs)
            made.extend([self] if gates else [])

    monkeypatch.setattr(stage_run, "GateRunner", Noted)
    walk = walking(World())
    hour = Gate("analysis", "pause", {"duration": 3600})
    walk.loop.settings = replace(
        walk.loop.settings, asked=Plan(background=(hour,)), default_analysis=False
    )
    run_stage(walk.loop, Stage("begin", Waypoint(2, 0, 3, 3)), "2", walk.rollout, dict)
    assert made == [] and walk.rollout.background == {}
    for new in (1, 2, 3):
        run_stage(
            walk.loop,
            Stage(f"step {new}", Waypoint(2, new, 3 - new, 3), watched=True),
            "2",
            walk.rollout,
            dict,
        )
    assert len(made) == 1 and list(walk.rollout.background) == ["analysis"]


def test_copies_of_requests_are_for_a_dark_set_alone(
    walking: Callable[..., Walk], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    monkeypatch.setattr(world, "check", lambda: None)  # two sets are more than it lets
    walk = walking(world, preview=True, budget={"max_surge": 3, "max_unavailable": 0})
    walk.loop.rules = replace(walk.loop.rules, drain_timeout=30)
    pair = Waypoint(2, 3, 3, 3, weight=0)
    run_stage(walk.loop, Stage("prepare", pair), "2", walk.rollout, dict)
    assert len(world.mirror) == 3 and world.mirror == world.preview
    assert not [e for e in world.mirror if world.servers[e].rotation is Rotation.IN]
    run_stage(walk.loop, Stage("switch", replace(pair, weight=100)), "2", walk.rollout, dict)
    assert world.mirror == {} and len(world.preview) == 3 and world.wrong == []


def test_a_switch_that_fails_half_way_is_undone_forward_and_made_again_in_a_rollback(
    walking: Callable[..., Walk], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    monkeypatch.setattr(world, "check", lambda: None)  # two sets are more than it lets
    walk = walking(world, budget={"max_surge": 3, "max_unavailable": 0})

    def run(name: str, generation: int, weight: int, trouble: bool = False) -> None:
        began = len(world.calls)

        def fails(call: str) -> Exception | None:
            half = call == "apply between" and world.calls[began:].count(call) == 2
            return TrafficError("half") if trouble and half else None

        world.fails = fails
        point = Waypoint(generation, 3, 3, 3, weight=weight)
        run_stage(walk.loop, Stage(name, point), str(generation), walk.rollout, dict)

    def serving() -> set[int]:
        return {
            report.labels.generation
            for report in world.alive()
            if world.servers[report.labels.endpoint].rotation is Rotation.IN
        }

    run("prepare", 2, 0)
    with pytest.raises(RolloutFailed, match="was undone at all load balancers: half") as failed:
        run("switch", 2, 100, trouble=True)
    assert failed.value.id == "PR-309" and serving() == {1}
    run("switch", 2, 100)
    assert serving() == {2}
    walk.rollout.turn_to(Phase.ROLLING_BACK, "", 0.0)
    run("switch back", 1, 100, trouble=True)
    assert serving() == {1}


def test_an_instance_has_its_time_from_when_it_is_out_of_rotation_and_not_from_the_decision(
    walking: Callable[..., Walk],
) -> None:
    world = World()
    walk = walking(world)
    walk.loop.rules = replace(walk.loop.rules, drain_timeout=30.0, settle=5.0)
    decided: dict[str, float] = {}
    out: dict[str, float] = {}
    stopped: dict[str, float] = {}

    def fails(call: str) -> Exception | None:
        for name in walk.session.record.draining:
            decided.setdefault(name, clock.now())
        for report in list(world.instances.values())[:3]:
            name, entry = report.labels.id, world.servers.get(report.labels.endpoint)
            if entry and entry.rotation is Rotation.OUT:
                out.setdefault(name, clock.now())
            if report.process is Process.STOPPED:
                stopped.setdefault(name, clock.now())
        late = any(clock.now() < since + 10 for name, since in decided.items() if name not in out)
        return TrafficError("busy") if call == "apply before" and late else None

    world.fails = fails
    walk.run()
    done(world)
    assert stopped.keys() == out.keys() == {"shop-1", "shop-2", "shop-3"}
    for name, since in out.items():
        assert since >= decided[name] + 10 and stopped[name] >= since + 5


def test_an_instance_that_a_killed_run_started_is_still_starting_and_an_old_one_is_not(
    walking: Callable[..., Walk],
) -> None:
    world = World(fewest=0)
    walk = walking(world)
    labels = Labels("shop-4", "shop", "2", 2, "web", Endpoint("127.0.0.1", 4), 4)
    world.instances[labels.id] = Report(labels, Process.RUNNING, clock.now())
    walk.loop.checker.health = lambda _name: HealthStatus(Health.PENDING, 0.0)
    walk.loop.observer.generation = 2
    states = {i.id: i.state for i in walk.loop.observe_fleet()}
    assert states == {
        "shop-1": State.NOT_READY,
        "shop-2": State.NOT_READY,
        "shop-3": State.NOT_READY,
        "shop-4": State.STARTING,
    }


def test_a_place_where_an_instance_has_failed_is_used_again_if_there_is_no_other(
    walking: Callable[..., Walk], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(crashes=lambda labels: labels.id == "shop-4")
    walk = walking(world)
    place, full = walk.loop.platform.place, []

    def crowded(count: int, taken: t.Any, generation: int) -> t.Any:
        failed = [r for r in world.instances.values() if r.process is Process.FAILED]
        if any(report.labels in taken for report in failed):
            full.append(count)
            raise PlatformError("no room")
        return place(count, taken, generation)

    monkeypatch.setattr(walk.loop.platform, "place", crowded)
    walk.run()
    assert full
    done(world)


def test_an_instance_that_a_step_drains_leaves_the_preview_and_the_others_stay(
    walking: Callable[..., Walk], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    monkeypatch.setattr(world, "check", lambda: None)  # two sets are more than it lets
    walk = walking(world, preview=True, budget={"max_surge": 3, "max_unavailable": 0})
    run_stage(walk.loop, Stage("prepare", Waypoint(2, 3, 3, 3, weight=0)), "2", walk.rollout, dict)
    ports = {report.labels.id: report.labels.endpoint for report in world.alive()}
    again = walking(world, preview=True)
    draining.drain(again.loop, ["shop-4"])
    assert world.wrong == [] and "shop-4" not in {r.labels.id for r in world.alive()}
    assert set(world.preview) == set(world.mirror) == {ports["shop-5"], ports["shop-6"]}


def test_room_that_is_left_is_used_without_a_rest(
    walking: Callable[..., Walk], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(asks=3)
    walk = walking(world)
    wait = walk.loop.checker.wait
    rests = [(3, False)]  # how many were alive at each, and whether it was cut short

    def rest(timeout: float) -> bool:
        rests.append((len(world.alive()), wait(timeout)))
        return rests[-1][1]

    monkeypatch.setattr(walk.loop.checker, "wait", rest)
    walk.run()
    done(world)
    fewer = [short for (before, _short), (alive, short) in pairwise(rests) if alive < before]
    assert fewer == [True] * 3


def test_a_preview_that_does_not_answer_does_not_keep_a_rollout_from_its_end(
    walking: Callable[..., Walk],
) -> None:
    world = World()
    walk = walking(world, preview=True)
    walk.run()
    world.fails = lambda call: TrafficError("away") if call.startswith("preview") else None
    conclusion.empty_previews(walk.loop)
    walk.loop.commit()
    assert "the preview is not empty" in walk.session.store.timeline(walk.rollout.id)[-1]["message"]


def test_a_stage_does_not_end_by_what_was_seen_a_while_ago(
    walking: Callable[..., Walk], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    walk = walking(world)
    killed: list[str] = []

    def catch_up(observer: Observer) -> bool:
        """One of the new instances has ended meanwhile."""
        observer.refresh()
        new = next(r for r in world.alive() if r.labels.revision == "2")
        if not killed:
            killed.append(new.labels.id)
            world.instances[new.labels.id] = replace(new, process=Process.FAILED)
            world.fewest = 2
        return True

    monkeypatch.setattr(Observer, "catch_up", catch_up)
    walk.run()
    assert len(killed) == 1
    done(world)


def test_after_a_slow_look_the_next_is_not_long_in_coming() -> None:
    assert timing.platform_pause(0.01) == 1.0
    assert timing.platform_pause(0.1) == pytest.approx(2.0)
    # one host that hung must not blind us for 20 minutes
    assert timing.platform_pause(60.0) == 30.0


def test_an_entry_of_no_instance_is_left_over_unless_it_only_finishes_its_requests(
    walking: Callable[..., Walk],
) -> None:
    world = World()
    walk = walking(world)
    gone = Endpoint("127.0.0.9", 9)
    for server, left in (
        (Server(Rotation.IN, True, 3), True),
        (Server(Rotation.OUT, False, 0), True),
        (Server(Rotation.OUT, True, 1), False),
        (Server(Rotation.IN, True, 0, ours=False), False),
    ):
        assert not walk.loop.observe_fleet() or not walk.loop.has_orphaned_entries()
        world.servers[gone] = server
        walk.loop.observe_fleet()
        assert walk.loop.has_orphaned_entries() == left, server
        del world.servers[gone]
        walk.loop.observe_fleet()


@pytest.mark.parametrize("doubted", [True, False])
def test_the_last_old_instance_stays_for_a_verdict_where_the_new_side_looks_worse(
    walking: Callable[..., Walk], monkeypatch: pytest.MonkeyPatch, doubted: bool
) -> None:
    """With nothing that decides it stays for 15 s, and not a moment where all is well."""
    world, served = World(), []

    def at() -> None:
        alive = {r.labels.endpoint: r.labels.revision for r in world.alive()}
        shown = {e: one for e, one in world.servers.items() if one.rotation is Rotation.IN}
        served.append((clock.now(), sorted(alive.get(endpoint, "") for endpoint in shown)))

    world.fails = lambda _call: at()
    walk = walking(world)
    monkeypatch.setattr(GateRunner, "doubt", "errors 4 of 240" if doubted else "")
    began = clock.now()
    run_stage(walk.loop, Stage("replace", rolling(2, 3), watched=True), "2", walk.rollout, dict)
    done(world)
    last = max(when for when, revisions in served if "1" in revisions) - began
    assert (15 <= last < 17) if doubted else last < 5
    assert not [revisions for _when, revisions in served if not revisions]
    assert walk.rollout.elapsed < 5


# What drivers know
# --------------------------------------------------------------------------------------------------


def test_drivers_know_the_lease_and_the_journal_as_they_are(walking: Callable[..., Walk]) -> None:
    """Also before anything was observed: an autoscaler may have to be put back first."""
    walk = walking(World())
    context, session = walk.loop.context, walk.session
    assert context.known().epoch == session.epoch > 0
    assert context.settings_of(2) is None
    session.record.settings = {2: InstanceSettings("process", {"command": "/opt/shop"}, {})}
    assert context.settings_of(2) == session.record.settings[2]
    walk.loop.observe()
    assert context.counters.served == walk.loop.observer.counters.served != {}
    session.release()
    assert context.known().epoch == 0


def test_the_journal_has_the_silent_hosts_also_where_others_fail(
    walking: Callable[..., Walk],
) -> None:
    walk = walking(World())
    silent: dict[str, list[dict[str, t.Any]]] = {"web": []}
    walk.loop.platform.away = silent
    walk.world.fails = lambda call: PlatformError("no answer") if call == "sync before" else None
    with pytest.raises(PlatformError):
        walk.loop.observer.sync()
    assert walk.session.record.away == walk.loop.context.known().away == silent
