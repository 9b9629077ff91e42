# SPDX-License-Identifier: GPL-3.0-or-later
"""The autoscaler while a rollout lasts: it is held or raised in time, and put back on every exit."""

from __future__ import annotations

import contextlib
import typing as t
from collections.abc import Callable
from random import Random

import pytest
from ansible_collections.progressive.rollout.plugins.action import begin, finish, promote, rollback
from ansible_collections.progressive.rollout.plugins.action import replace as replaces
from ansible_collections.progressive.rollout.plugins.plugin_utils.autoscalers import hpa
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    AutoscalerError,
    InputError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop import timing
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.autoscaling import (
    measured,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Instance,
    State,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces import loader
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.autoscaler import (
    AutoscalerDriver,
    Managed,
)
from ansible_collections.progressive.rollout.tests.support import seeds
from ansible_collections.progressive.rollout.tests.support.memory import (
    MemoryRun,
    Scaler,
    Service,
    World,
)

pytestmark = pytest.mark.usefixtures("virtual_time")

ORIGINAL = {"min": 2, "max": 12, "off": False}


class Killed(BaseException):
    """As by kill -9: nothing of the run works any more."""


class Shop(Service):
    """Six instances of revision 1, and an autoscaler.

    `numbers` are the moments at which the fleet moved while it was free to act: none.
    """

    def __init__(self, **given: t.Any) -> None:
        world = World(most=8, fewest=0)
        budget = {"max_surge": 2, "max_unavailable": 0}
        super().__init__(world, **{"lease": 5, "budget": budget, "replicas": 6, **given})
        self.play(revision="1")
        world.scaler = dict(ORIGINAL)
        world.fails = self._happens
        self._fleet = {report.labels.id for report in world.alive()}, dict(world.servers)
        self.numbers: list[str] = []
        self.kill_at = 0
        self.happened = 0

    def _happens(self, call: str) -> Exception | None:
        """Note what moves while the autoscaler may act: that would be the worst moment."""
        world = self.world
        fleet = {report.labels.id for report in world.alive()}, dict(world.servers)
        kept = min(self.given["replicas"], world.scaler["max"])
        managed = world.scaler["min"] >= kept if world.mode == "raise" else world.scaler["off"]
        if fleet != self._fleet and not managed:
            self.numbers.append(f"{call}: {world.scaler}")
        self._fleet = fleet
        self.happened += 1
        if self.kill_at and self.happened >= self.kill_at:
            raise Killed(call)
        return None

    def lose_lease(self) -> None:
        """The run is dead, and its lease is over."""
        self.kill_at, self.world.fails = 0, self._happens
        self.store.release(self.identity.token)

    @property
    def put_back(self) -> bool:
        return self.world.scaler == ORIGINAL and self.journal.autoscaler is None

    def said_of(self, what: str) -> list[str]:
        return [line for line in self.said if what in line]


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setattr(timing, "AUTOSCALER", 0.02)  # rollouts here take less than ten seconds
    return Shop()


def seen(shop: Shop) -> list[dict[str, t.Any]]:
    """Collect what the autoscaler is set to."""
    found: list[dict[str, t.Any]] = []
    before = shop.world.fails

    def note(call: str) -> Exception | None:
        if call == "written":
            found.append(dict(shop.world.scaler))
        return before(call)

    shop.world.fails = note
    return found


# Every exit
# --------------------------------------------------------------------------------------------------


def promoted(shop: Shop) -> None:
    assert shop.play(revision="2")["rollout"]["outcome"] == "promoted"


def rolled_back(shop: Shop) -> None:
    shop.world.crashes = lambda labels: labels.revision == "2"
    with pytest.raises(RolloutFailed):
        shop.play(revision="2")
    assert shop.journal.rollout and shop.journal.rollout.outcome == "rolled_back"


def aborted(shop: Shop) -> None:
    waits = {"strategy": "canary", "steps": [{"set_replicas": 2}, {"pause": None}]}
    shop.play(revision="2", **waits)
    shop.say("abort", **waits)
    with pytest.raises(RolloutFailed):
        shop.step(replaces, revision="2", **waits)
    shop.step(rollback, revision="2", **waits)
    assert shop.journal.rollout and shop.journal.rollout.outcome == "aborted"


def failed(shop: Shop) -> None:
    shop.world.crashes = lambda labels: labels.revision == "2"
    with pytest.raises(RolloutFailed):
        shop.play(revision="2", on_failure="continue", progress_deadline=1)
    assert shop.journal.rollout and shop.journal.rollout.outcome == "failed"


def superseded(shop: Shop) -> None:
    waits = {"strategy": "canary", "steps": [{"set_replicas": 2}, {"pause": None}]}
    shop.play(revision="2", **waits)
    shop.step(begin, revision="3", supersede=True)
    assert shop.journal.history[-1]["outcome"] == "superseded"


def held(shop: Shop) -> None:
    shop.world.crashes = lambda labels: labels.revision == "2"
    with pytest.raises(RolloutFailed):
        shop.play(revision="2", on_failure="hold")
    assert shop.journal.open and shop.journal.open.phase == "held"


def parked(shop: Shop) -> None:
    waits = {"strategy": "canary", "steps": [{"set_replicas": 2}, {"pause": None}]}
    assert shop.play(revision="2", **waits)["parked"]


EXITS = (promoted, rolled_back, aborted, failed, superseded, held, parked)


@pytest.mark.parametrize("mode, told", [("hold", True), ("raise", True), ("none", False)])
def test_the_platform_knows_which_autoscaler_is_managed(shop: Shop, mode: str, told: bool) -> None:
    shop.world.mode = mode
    with MemoryRun(shop, {}, {}, check_mode=True) as run:
        managed = run.loop.context.autoscaler
    assert managed == (Managed(Scaler(shop.world).name, mode) if told else None)


@pytest.mark.parametrize("mode", ["hold", "raise", "follow"])
@pytest.mark.parametrize("leave", EXITS, ids=lambda leave: leave.__name__)
@pytest.mark.slow
def test_the_autoscaler_is_put_back_on_every_exit(
    shop: Shop, leave: Callable[[Shop], None], mode: str
) -> None:
    shop.world.mode, shop.world.wants = mode, 6
    changes = seen(shop)
    leave(shop)
    assert shop.put_back, shop.world.scaler
    assert any(change != ORIGINAL for change in changes), "it was changed in between"
    assert shop.numbers == [] or leave is aborted, "its first iteration waits for nothing"
    assert shop.said_of("put back to min 2, max 12")


def test_a_rollout_that_waits_for_long_puts_it_back_until_it_goes_on(shop: Shop) -> None:
    waits = {"strategy": "canary", "steps": [{"set_replicas": 2}, {"pause": "1s"}]}
    shop.world.limit = 0.3
    changes = seen(shop)
    shop.play(revision="2", wait=60, **waits)
    assert [change == ORIGINAL for change in changes] == [False, True, False, True]
    assert shop.put_back


# Killed in the middle
# --------------------------------------------------------------------------------------------------


def test_a_run_that_no_longer_has_the_autoscaler_in_its_variables_puts_it_back(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_in_the_middle(shop)
    given, world = shop.world.autoscaler(), shop.world
    assert given
    load = loader.load

    def found(kind: t.Any, name: str, variable: str) -> t.Any:
        return given.chosen.module if kind is AutoscalerDriver else load(kind, name, variable)

    monkeypatch.setattr(loader, "load", found)
    monkeypatch.setattr(world, "autoscaler", lambda: None)
    shop.play(revision="2")
    assert shop.put_back


def killed_in_the_middle(shop: Shop) -> None:
    """Killed with the autoscaler changed, and the new instances started."""

    def die(call: str) -> Exception | None:
        if shop.world.scaler != ORIGINAL and call == "sync after":
            shop.kill_at = 1
        return Shop._happens(shop, call)

    shop.world.fails = die
    with pytest.raises(Killed):
        shop.play(revision="2")
    shop.lose_lease()
    assert shop.world.scaler != ORIGINAL


def test_an_abort_after_a_kill_puts_it_back(shop: Shop) -> None:
    killed_in_the_middle(shop)
    shop.say("abort")
    with pytest.raises(RolloutFailed):
        shop.step(replaces, revision="2")
    shop.step(rollback, revision="2")
    assert shop.put_back and shop.running == {"1": 6}


def killed_at(shop: Shop, number: int) -> bool:
    """Roll revision 2 out, killed at this of its actions; return whether there are so many.

    They are the commits, the changes of the autoscaler, and whatever comes right after a commit.
    """
    left, committed = number, False

    def die(call: str) -> Exception | None:
        nonlocal left, committed
        left -= committed or call in ("commit", "write", "written")
        committed = call == "commit"
        if left < 0:
            raise Killed(call)
        return Shop._happens(shop, call)

    shop.world.fails = die
    with contextlib.suppress(Killed, RolloutFailed):
        shop.play(revision="2")
    shop.lose_lease()
    return left < 0


def goes_on(shop: Shop) -> dict[str, int]:
    shop.play(revision="2")
    return {"2": 3}


def goes_on_back(shop: Shop) -> dict[str, int]:
    with pytest.raises(RolloutFailed):
        shop.play(revision="2")
    return {"1": 3}


def gives_way(shop: Shop) -> dict[str, int]:
    shop.play(revision="3", supersede=True)
    return {"3": 3}


@pytest.mark.parametrize(
    ("then", "mode"),
    [
        (goes_on, "hold"),
        (goes_on, "raise"),
        (goes_on, "follow"),
        (goes_on_back, "raise"),
        (gives_way, "hold"),
    ],
)
@pytest.mark.slow
def test_after_a_kill_at_any_action_the_next_run_puts_it_back(
    dice: Random, then: Callable[[Shop], dict[str, int]], mode: str
) -> None:
    for number in seeds.every(5, dice):
        shop = Shop(replicas=3)
        shop.world.mode, shop.world.wants = mode, 3
        if then is goes_on_back:
            shop.world.crashes = lambda labels: labels.revision == "2"
        killed, held = killed_at(shop, number), shop.journal.autoscaler
        assert shop.world.scaler == ORIGINAL or (held and held.original == ORIGINAL)
        left = then(shop)
        assert shop.running == left and shop.put_back, number
        assert shop.numbers == [] and shop.world.wrong == []
        if not killed:
            break
        assert number < 200, "a rollout ends"
    assert number > 20, "a rollout has so many actions"


# Somebody else
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["hold", "raise"])
def test_what_somebody_else_changes_meanwhile_stays_and_is_told(shop: Shop, mode: str) -> None:
    waits = {"strategy": "canary", "steps": [{"set_replicas": 2}, {"pause": "1s"}]}
    shop.world.mode = mode
    shop.step(begin, revision="2", **waits)

    def change(call: str) -> Exception | None:
        if shop.world.scaler["min"] not in (2, 5):
            shop.world.scaler["min"] = 5
        return None

    shop.world.fails = change
    for step in (replaces, promote, finish):
        shop.step(step, revision="2", wait=60, **waits)
    assert shop.world.scaler == {**ORIGINAL, "min": 5}
    assert shop.journal.autoscaler is None
    (told,) = shop.said_of("PR-262")
    assert "somebody else has changed min of scaler, which stays: 5 (before the rollout: 2)" in told


def test_an_autoscaler_that_is_deleted_meanwhile_is_told(shop: Shop) -> None:
    shop.step(begin, revision="2")
    shop.step(replaces, revision="2")
    shop.world.scaler["gone"] = True
    for step in (promote, finish):
        shop.step(step, revision="2")
    assert shop.journal.autoscaler is None and shop.journal.open is None
    assert shop.said_of("nothing to put back: there is no scaler [PR-261]")


# Trouble
# --------------------------------------------------------------------------------------------------


def away(shop: Shop, *calls: str) -> None:
    def fail(call: str) -> Exception | None:
        return AutoscalerError("no answer") if call in calls else None

    shop.world.fails = fail


def test_without_the_autoscaler_the_share_does_not_rise(shop: Shop) -> None:
    away(shop, "write")
    with pytest.raises(RolloutFailed, match="no progress within"):
        shop.play(revision="2", progress_deadline=1)
    assert shop.running == {"1": 6}, "and nothing of the new revision was started"


def test_a_rollback_does_not_wait_for_the_autoscaler(shop: Shop) -> None:
    shop.step(begin, revision="2")
    shop.say("abort")
    with pytest.raises(RolloutFailed):
        shop.step(replaces, revision="2")
    away(shop, "read", "write")
    with pytest.raises(RolloutFailed, match="the autoscaler cannot be put back: no answer") as end:
        killed_or_not(shop)
    assert end.value.id == "PR-263"
    assert shop.running == {"1": 6}
    away(shop)
    shop.step(rollback, revision="2")
    assert shop.put_back and shop.journal.open is None


def killed_or_not(shop: Shop) -> None:
    """The rollback, of an autoscaler that an earlier run has changed."""
    shop.step(rollback, revision="2", progress_deadline=1)
    if shop.journal.open is None:
        raise RolloutFailed("the autoscaler cannot be put back: no answer", "PR-263")


def test_what_cannot_be_read_is_refused_before_anything_is_touched(shop: Shop) -> None:
    away(shop, "read")
    with pytest.raises(AutoscalerError, match="no answer"):
        shop.step(begin, revision="2")
    assert shop.journal.open is None


# Modes
# --------------------------------------------------------------------------------------------------


def test_the_minimum_rises_with_the_instances_that_carry_the_share(shop: Shop) -> None:
    shop.world.mode, changes = "raise", seen(shop)
    shop.play(revision="2", strategy="canary", steps=[{"set_replicas": 2}, {"set_replicas": 4}])
    assert [change["min"] for change in changes][-1] == 2
    assert max(change["min"] for change in changes) >= 6
    assert [c["min"] for c in changes[:-1]] == sorted(c["min"] for c in changes[:-1])


@pytest.mark.parametrize("mode", ["hold", "raise", "follow"])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"strategy": "canary", "steps": [{"set_weight": 10}, {"set_weight": 60}]},
        {"strategy": "blue_green", "hold": 0},
    ],
    ids=["rolling", "canary", "blue_green"],
)
def test_nothing_moves_before_the_autoscaler_keeps_it(
    shop: Shop, given: dict[str, t.Any], mode: str
) -> None:
    shop.world.mode, shop.world.wants, shop.world.most = mode, 6, 12
    shop.play(revision="2", **given)
    assert shop.running == {"2": 6} and shop.numbers == [] and shop.put_back


def test_the_minimum_is_capped_at_the_maximum(shop: Shop) -> None:
    shop.world.mode, changes = "raise", seen(shop)
    shop.world.scaler["max"] = 5
    promoted(shop)
    assert [change["min"] for change in changes] == [5, 2]
    assert shop.said_of("rollout_replicas 6 is more than the maximum of scaler, 5")


def test_a_rollout_follows_the_number_that_the_autoscaler_wants(shop: Shop) -> None:
    shop.world.mode, shop.world.wants, shop.world.most = "follow", 9, 11
    shop.play(revision="2")
    assert shop.running == {"2": 9}
    assert shop.put_back and shop.said_of("scaler wants 9 instances")


def test_a_wish_beyond_the_bounds_is_followed_to_them(shop: Shop) -> None:
    shop.world.mode, shop.world.wants, shop.world.most = "follow", 500, 14
    shop.play(revision="2")
    assert shop.running == {"2": 12}


def test_an_autoscaler_that_does_not_say_what_it_wants_is_not_followed(shop: Shop) -> None:
    shop.world.mode, shop.world.wants = "follow", None
    with pytest.raises(InputError, match="does not say how many instances it wants") as refused:
        shop.step(begin, revision="2")
    assert refused.value.id == "PR-261"


class AtTarget(hpa.Driver):
    """A HorizontalPodAutoscaler of a service with requests for six instances.

    Its metrics are late: they are of the instances that there were when it was asked before.
    """

    def __init__(self) -> None:
        self.present, self.asked = 6, 0

    def _get(self) -> dict[str, t.Any]:
        cpu = {"name": "cpu", "target": {"averageUtilization": 50}}
        used = {"name": "cpu", "current": {"averageUtilization": 50 * 6 // self.present}}
        status = {"currentMetrics": [{"type": "Resource", "resource": used}]}
        return {"spec": {"metrics": [{"type": "Resource", "resource": cpu}]}, "status": status}

    def wanted(self, present: int, replicas: int) -> int | None:
        wish = super().wanted(present, replicas)
        self.present, self.asked = present, self.asked + 1
        return wish


@pytest.mark.parametrize("given", [{}, {"strategy": "blue_green", "hold": 0}])
def test_the_instances_of_a_rollout_do_not_raise_the_number_that_is_followed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, given: dict[str, t.Any]
) -> None:
    monkeypatch.setattr(timing, "AUTOSCALER", 0)
    scaler = AtTarget()
    shop.world.mode, shop.world.wants, shop.world.most = "follow", scaler.wanted, 12
    revision = 1
    while scaler.asked < 50:
        revision, before = revision + 1, scaler.asked
        shop.play(revision=str(revision), **given)
        assert shop.running == {str(revision): 6} and scaler.asked > before
    assert shop.said_of("wants") == [] and shop.world.wrong == [] and shop.put_back


def test_a_lower_number_is_followed_when_it_lasts(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.world.mode, shop.world.wants = "follow", 4
    shop.play(revision="2")
    assert shop.running == {"2": 6} and shop.said_of("wants") == []
    monkeypatch.setattr(timing, "STEADY", 0.0)
    shop.play(revision="3")
    assert shop.running == {"3": 4} and shop.said_of("scaler wants 4 instances")


def test_what_starts_is_not_measured() -> None:
    fleet = [Instance(state.value, "1", 1, state) for state in State]
    assert measured(fleet) == len(State) - 3, "all but the one that starts, and two that ended"


def test_one_that_is_left_alone_is_named(shop: Shop) -> None:
    shop.world.mode = "none"
    changes = seen(shop)
    promoted(shop)
    assert changes == [] and shop.said_of("scaler is left alone (rollout_autoscaler.mode: none)")


def test_a_released_revision_keeps_its_autoscaler(shop: Shop) -> None:
    """Only a rollout in progress changes it: not one that is over, nor a run with nothing to do."""
    changes = seen(shop)
    promoted(shop)
    assert shop.put_back
    changes.clear()
    assert not shop.play(revision="2")["changed"]
    shop.step(begin, check_mode=True, revision="3")
    assert changes == [] and shop.put_back
