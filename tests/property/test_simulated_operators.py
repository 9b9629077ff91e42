# SPDX-License-Identifier: GPL-3.0-or-later
"""What operators do to a service when something is wrong already: playbooks twice, or in an order
that nobody planned.
"""

from __future__ import annotations

import math
import typing as t
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from unittest import mock

import pytest
from ansible_collections.progressive.rollout.plugins.action import begin, control, finish, promote
from ansible_collections.progressive.rollout.plugins.action import replace as replaces
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    RolloutError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop import timing
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout import (
    takeover,
)
from ansible_collections.progressive.rollout.tests.simulations.world.machine import Job
from ansible_collections.progressive.rollout.tests.simulations.world.runs import (
    DRIVERS,
    Run,
    journal,
    lease,
)
from ansible_collections.progressive.rollout.tests.simulations.world.store import MemoryStore
from ansible_collections.progressive.rollout.tests.simulations.world.world import (
    BALANCERS,
    Fault,
    Life,
)
from ansible_collections.progressive.rollout.tests.support.simulated_shop import (
    CANARY,
    GIVEN,
    SimulatedShop,
    life,
    simulated_shop,
)


@pytest.fixture
def shop() -> Iterator[SimulatedShop]:
    with simulated_shop() as made:
        yield made


def command(shop: SimulatedShop, word: str, host: str | None = None) -> None:
    """Send a command to the canary of revision 2, and continue it."""
    shop.send(word, host, **CANARY, revision="2")


def test_a_rollback_after_one_that_was_automatic_changes_nothing(shop: SimulatedShop) -> None:
    shop.to("1")
    shop.to("2")
    with pytest.raises(RolloutFailed, match="now rolled back to 2"):
        shop.to("broken")
    again = shop.rollback()
    assert not again["changed"] and "was already rolled back to 2" in again["msg"]
    assert shop.running == {"2": 3}


def test_a_rollback_after_a_restart_goes_to_the_revision_before(shop: SimulatedShop) -> None:
    shop.to("1")
    shop.to("2")
    shop.restart()
    shop.rollback()
    assert shop.running == {"1": 3}


def test_a_rollback_after_a_failure_that_was_left_goes_to_the_stable_revision(
    shop: SimulatedShop,
) -> None:
    shop.to("1")
    shop.to("2")
    with pytest.raises(RolloutFailed, match="left as it is"):
        shop.to("hangs", on_failure="continue")
    assert shop.running == {"2": 3, "hangs": 1}
    assert shop.rollback()["changed"] and shop.running == {"2": 3}
    assert not shop.rollback()["changed"]


def test_a_first_deployment_that_failed_and_was_left_is_the_stable_side(
    shop: SimulatedShop,
) -> None:
    """What of it serves must not go because the next revision fails, too."""
    shop.lives = lambda revision, number: life("hangs" if number == 1 else revision, number)
    with pytest.raises(RolloutFailed, match="left as it is"):
        shop.to("1", on_failure="continue")
    assert journal(shop.world).stable is None
    with pytest.raises(RolloutFailed):
        shop.to("broken")
    assert shop.running == {"1": 3}


def test_scaling_another_revision_leaves_the_stable_one_as_it_is(shop: SimulatedShop) -> None:
    shop.to("1")
    assert shop.scale("2", 1)["rollout"]["stable"] == "1"
    assert shop.running == {"1": 3, "2": 1}
    shop.rollback()
    assert shop.running == {"1": 3}


def test_scaling_the_stable_revision_within_a_rollout_starts_none_of_the_new_one(
    shop: SimulatedShop,
) -> None:
    shop.to("1")

    def play(run: Run) -> None:
        run.step(begin, {**GIVEN, "revision": "2"})
        run.scale({**GIVEN, "revision": "1", "replicas": 4})

    shop.play(play)
    assert shop.running == {"1": 4}


def test_a_step_does_not_continue_what_another_run_has_begun_since(shop: SimulatedShop) -> None:
    """Each of a run's steps takes the lease, and between two of them another run may have it."""
    shop.to("1")

    def play(run: Run) -> None:
        run.step(begin, {**GIVEN, "revision": "2"})
        run.step(begin, {**GIVEN, "revision": "3", "supersede": True})
        for step in (replaces, promote, finish):
            with pytest.raises(RolloutFailed, match="cannot continue 2: rollout of") as refused:
                run.step(step, {**GIVEN, "revision": "2"})
            assert refused.value.id == "PR-601"

    shop.play(play)
    assert shop.running == {"1": 3}
    shop.to("3")
    assert shop.running == {"3": 3}


def test_a_host_that_is_well_is_emptied_and_brought_back(shop: SimulatedShop) -> None:
    shop.to("1")
    shop.to("2", **CANARY)
    for word in ("exclude", "include"):
        command(shop, word, "web2")
        assert shop.on("web2") == 0 and len(shop.names) == 3
        with pytest.raises(RolloutError, match="left out") as refused:
            command(shop, word, "web2")
        assert refused.value.id == "PR-700"
    for host in ("web1", "web3"):
        command(shop, "exclude", host)
    with pytest.raises(RolloutError, match="no other host is left"):
        command(shop, "exclude", "web2")
    assert shop.on("web2") == 3
    command(shop, "promote")
    assert shop.running == {"2": 3}


def test_a_canary_goes_on_without_a_host_that_no_run_has_seen_hanging(shop: SimulatedShop) -> None:
    shop.to("1")
    shop.to("2", **CANARY)
    host = shop.world.hosts["web3"]
    before = {instance.labels.id for instance in host.instances.values() if not instance.gone}
    host.away = math.inf
    with pytest.raises(RolloutError, match="web3"):
        command(shop, "promote")
    command(shop, "exclude", "web3")
    command(shop, "promote")
    assert shop.world.recorded("rollout")["outcome"] == "promoted"
    elsewhere = Counter(
        instance.labels.revision
        for instance in shop.world.alive()
        if instance.labels.host != "web3"
    )
    assert elsewhere == {"2": 3}
    host.away = 0.0
    assert before <= shop.names, "what runs there is left alone"


def test_a_rollback_in_steps_goes_on_without_them_on_demand(shop: SimulatedShop) -> None:
    shop.to("1")
    shop.to("2")
    assert shop.rollback(**CANARY)["parked"] and shop.running == {"1": 1, "2": 2}
    with pytest.raises(RolloutError) as refused:
        shop.rollback(**{**CANARY, "steps": [{"set_replicas": 2}]})
    assert refused.value.id == "PR-602" and shop.running == {"1": 1, "2": 2}
    shop.rollback()
    assert shop.running == {"1": 3}


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([{"set_replicas": 1}, {"analysis": {"baseline": True}}], "rollout_steps: baseline"),
        ([{"set_replicas": 9}], "9 is more than the 3 replicas"),
    ],
)
def test_steps_that_a_rollback_cannot_take_are_refused(
    shop: SimulatedShop, steps: list[t.Any], message: str
) -> None:
    shop.to("1")
    shop.to("2")
    before = shop.world.texts["record"]
    with pytest.raises(RolloutError, match=message):
        shop.rollback(strategy="canary", steps=steps)
    assert shop.world.texts["record"] == before and shop.running == {"2": 3}


def test_a_run_that_is_refused_leaves_no_lease(shop: SimulatedShop) -> None:
    """Otherwise a command that is sent on another machine would be left to a run that is over."""
    shop.begin("1")
    with pytest.raises(RolloutFailed, match="rollout of shop 1 is in progress"):
        shop.begin("2")
    assert lease(shop.world) is None


def test_a_rollback_waits_for_a_load_balancer_that_restarts(shop: SimulatedShop) -> None:
    shop.to("1")
    shop.to("2")
    away = Fault("balancer away", 2.0, 15.0, BALANCERS[0])
    shop.machine.at(shop.machine.time + away.at, lambda: shop.world.strike(away))
    assert shop.rollback()["changed"] and shop.running == {"1": 3}
    assert any("retrying: lb1 does not answer" in line for line in shop.world.lines)


def test_a_restart_replaces_every_instance_by_one_of_the_same_revision(shop: SimulatedShop) -> None:
    shop.to("1")
    before = shop.names
    assert shop.restart()["rollout"]["outcome"] == "promoted"
    assert shop.running == {"1": 3} and not before & shop.names


def test_a_failure_that_is_left_is_told_and_recorded(shop: SimulatedShop) -> None:
    shop.to("1")
    with pytest.raises(RolloutFailed, match=r"rollout_progress_deadline \(20 s\)") as failed:
        shop.to("hangs", on_failure="continue")
    for words in ("shop hangs: ", "0 of 3 new", "shop-4", "left as it is"):
        assert words in str(failed.value)
    rollout = journal(shop.world).rollout
    assert rollout and rollout.outcome == "failed"


@pytest.mark.parametrize("revision", ["hangs", "broken"])
def test_a_first_deployment_that_fails_leaves_nothing(shop: SimulatedShop, revision: str) -> None:
    with pytest.raises(RolloutFailed, match="now failed, nothing of it is left"):
        shop.to(revision)
    record = journal(shop.world)
    assert shop.running == {} and record.stable is None
    assert record.rollout and record.rollout.outcome == "failed"
    shop.to("1")
    assert shop.running == {"1": 3}


@pytest.mark.parametrize("call", [30, 40, 50])
def test_a_first_rollout_that_is_killed_beside_servers_that_were_left(
    shop: SimulatedShop, call: int
) -> None:
    """They serve until instances do, in the run that continues, too, and then leave."""
    shop.world.floor = 3
    shop.world.leave_servers("shop", 3)
    shop.world.at_calls = {call: Fault("dies before", call)}
    assert shop.to("1") is None, "it was killed"
    shop.machine.sleep(61.0)
    shop.to("1")
    assert shop.running == {"1": 3}
    for balancer in shop.world.balancers.values():
        assert {entry.name for entry in balancer.entries.values()} == shop.names


@pytest.fixture
def held(shop: SimulatedShop) -> SimulatedShop:
    """Revision 1 runs, and a rollout is held, since its first instance is not ready."""
    shop.to("1")
    with pytest.raises(RolloutFailed, match="rollout held"):
        shop.to("hangs", on_failure="hold")
    assert shop.running == {"1": 3, "hangs": 1}
    return shop


def test_a_held_rollout_continues_once_it_can(held: SimulatedShop) -> None:
    held.mend()
    assert held.to("hangs", on_failure="hold")["rollout"]["outcome"] == "promoted"
    assert held.running == {"hangs": 3}


def test_a_held_rollout_is_not_continued_with_other_settings(held: SimulatedShop) -> None:
    """Half of its instances would run with the ones, half with the others."""
    held.mend()
    other = {"driver": DRIVERS["platform"]["driver"], "flavour": "other"}
    with pytest.raises(RolloutFailed, match="has changed since the rollout of shop hangs began"):
        held.to("hangs", on_failure="hold", platform=other)
    assert held.running == {"1": 3, "hangs": 1}
    done = held.to("hangs", on_failure="hold", platform=other, supersede=True)
    assert done["rollout"]["outcome"] == "promoted" and held.running == {"hangs": 3}


@pytest.mark.parametrize("seed", range(20))
def test_the_share_rises_by_commands_of_promotion_only(shop: SimulatedShop, seed: int) -> None:
    """Whatever else operators send to a canary that waits at a pause, and whichever run obeys."""
    dice = Random(seed)
    shop.to("1")
    shop.to("2", **CANARY)
    for _command in range(8):
        word = dice.choice(("pause", "resume", "hold", "retry", "exclude", "include"))
        host = dice.choice(("web1", "web2")) if word in ("exclude", "include") else None
        with suppress(RolloutError):
            command(shop, word, host)
        if dice.random() < 0.3:
            with suppress(RolloutError):
                shop.to("2", **CANARY)
        assert shop.running["2"] <= 1 and journal(shop.world).open, word
    for word in ("retry", "promote", "promote"):
        with suppress(RolloutError):
            command(shop, word)
    assert shop.running == {"2": 3}


def canary_beside(shop: SimulatedShop, **more: t.Any) -> Job:
    """Let a run work on a canary until it waits at its pause."""
    shop.to("1")
    given = {**GIVEN, **CANARY, "revision": "2", "wait": 600, **more}
    job = shop.beside(lambda run: run.rollout(given))
    shop.wait_until(lambda: shop.world.phase() == "paused")
    return job


def taken(shop: SimulatedShop) -> list[tuple[str, bool, bool]]:
    """Return each command in the timeline: whether it was refused, or had no effect."""
    rollout = journal(shop.world).rollout
    assert rollout
    return [
        (event["word"], bool(event["refused"]), "ineffective" in event)
        for event in MemoryStore("shop", shop.world.journals["shop"]).timeline(rollout.id)
        if event["kind"] == "word"
    ]


def test_a_sender_whose_command_is_obeyed_reads_so(shop: SimulatedShop) -> None:
    job = canary_beside(shop)
    sent = shop.play(lambda run: run.control("pause", GIVEN))
    assert "has obeyed; then resume would wait at " in sent["msg"]
    assert "has obeyed" in shop.play(lambda run: run.control("promote", GIVEN))["msg"]
    job.join()
    assert shop.running == {"2": 3}


@contextmanager
def overtaken(word: str) -> Iterator[None]:
    """Another operator is a moment faster: that command is sent just before the next one."""

    def send(step: t.Any, rollout: t.Any, asked: t.Mapping[str, t.Any]) -> int:
        takeover.post(step, rollout, word)
        return t.cast(int, sends(step, rollout, asked))

    sends = control.send
    with mock.patch.object(control, "send", send):
        yield


def test_a_sender_whose_command_the_run_refuses_fails(shop: SimulatedShop) -> None:
    job = canary_beside(shop)
    with overtaken("abort"), pytest.raises(RolloutError, match="set target 2: shop 2") as refused:
        shop.play(lambda run: run.control("set_target", GIVEN, count=2))
    assert refused.value.id == "PR-700"
    job.join()
    assert shop.running == {"1": 3}
    assert taken(shop) == [("abort", False, False), ("set_target", True, False)]


def test_a_resume_behind_a_promote_leaves_a_trace(shop: SimulatedShop) -> None:
    job = canary_beside(shop)
    shop.play(lambda run: run.control("pause", GIVEN))
    with overtaken("promote"):
        sent = shop.play(lambda run: run.control("resume", GIVEN))
    assert "without effect: the rollout continues already" in sent["msg"]
    job.join()
    assert shop.running == {"2": 3}
    assert taken(shop)[1:] == [("promote", False, False), ("resume", False, True)]


@pytest.mark.parametrize(
    ("words", "paused"),
    [(("hold", "retry"), False), (("hold", "resume"), False), (("pause", "hold", "retry"), True)],
)
def test_what_ends_a_hold_that_no_run_has_read_is_not_refused(
    shop: SimulatedShop, words: Sequence[str], paused: bool
) -> None:
    """The hold is, and the rollout waits where it did."""
    shop.to("1")
    shop.to("2", **CANARY)
    for word in words:
        command(shop, word)
    assert taken(shop)[-2:] == [("hold", True, False), (words[-1], False, True)]
    assert shop.world.phase() == "paused" and bool(journal(shop.world).rollout.paused) is paused


def ending(shop: SimulatedShop) -> Job:
    """Let a run end its rollout, with a host that falls silent before it has stopped an
    instance.
    """
    shop.to("1")
    job = shop.beside(lambda run: run.rollout({**GIVEN, "revision": "2"}))
    shop.wait_until(lambda: shop.world.phase() != "finished" and shop.running["1"] == 1)
    shop.world.hosts["web3"].away = math.inf
    shop.wait_until(lambda: shop.world.recorded("rollout")["step"] == "finish")
    return job


def test_a_host_is_left_out_while_a_rollout_ends(shop: SimulatedShop) -> None:
    job = ending(shop)
    began = shop.machine.time
    sent = shop.play(lambda run: run.control("exclude", GIVEN, host="web3"))
    assert "has obeyed" in sent["msg"]
    job.join()
    assert shop.machine.time - began < timing.LAST_LOOK / 2, "nothing waits for the host any more"
    assert taken(shop) == [("exclude", False, False)]
    assert shop.running == {"2": 3, "1": 1} and journal(shop.world).open is None


def test_an_abort_while_a_rollout_ends_fails_at_once(shop: SimulatedShop) -> None:
    job = ending(shop)
    with pytest.raises(RolloutError, match="the rollout was at its end") as refused:
        shop.play(lambda run: run.control("abort", GIVEN))
    assert refused.value.id == "PR-700"
    job.join()
    assert taken(shop) == [("abort", True, False)]


def test_a_fix_waits_for_the_rollout_that_goes_back(shop: SimulatedShop) -> None:
    shop.to("1")
    shop.lives = lambda revision, number: (
        Life(start=math.inf, stop=5.0) if revision == "2" else Life()
    )
    job = shop.beside(lambda run: run.rollout({**GIVEN, "revision": "2"}))
    shop.wait_until(lambda: shop.world.phase() == "rolling_back")
    assert shop.to("3", supersede=True)["rollout"]["outcome"] == "promoted"
    job.join()
    assert isinstance(job.result, RolloutFailed) and "back to 1" in str(job.result)
    assert shop.running == {"3": 3}
