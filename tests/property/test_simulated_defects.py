# SPDX-License-Identifier: GPL-3.0-or-later
"""Defects that simulated stories found: each with the fewest faults that showed it."""

from __future__ import annotations

import math
import typing as t

from ansible_collections.progressive.rollout.tests.simulations.world import by_hand, draws, stories
from ansible_collections.progressive.rollout.tests.simulations.world.draws import Story
from ansible_collections.progressive.rollout.tests.simulations.world.in_place import PLATFORM
from ansible_collections.progressive.rollout.tests.simulations.world.runs import DRIVERS
from ansible_collections.progressive.rollout.tests.simulations.world.world import Fault, Life

GIVEN: dict[str, t.Any] = {
    **DRIVERS,
    "replicas": 3,
    "budget": {"max_surge": 1, "max_unavailable": 0},
    "strategy": "rolling",
    "wait": 0,
    "lease": draws.LEASE,
    "progress_deadline": 120,
    "min_ready": 0,
    "on_failure": "rollback",
    "failure_limit": 3,
    "watch_new": 0,
    "headroom": 0,
}


def check(
    *faults: Fault,
    bad: t.Sequence[Life] = (Life(),),
    follows: t.Sequence[str] = (),
    differ: bool = False,
    seed: int = 2040,
    tasks: float = 1.0,
    next_replicas: int | None = None,
    quiet: bool = False,
    again: float = 0.0,
    left: str = "",
    machines: int = 1,
    receiving: t.Sequence[str] = ("gets it",),
    adopts: int = 0,
    **given: t.Any,
) -> stories.End:
    """Every promise is kept in this story, which is returned."""
    variables = {**GIVEN, **given}
    variables |= {"adopt": by_hand.given(adopts)} if adopts else {}
    replicas = next_replicas or variables["replicas"]
    later = {**variables, "supersede": True, "replicas": replicas}
    story = Story(
        seed,
        variables,
        faults,
        bad,
        follows,
        next_given=later,
        tasks=tasks,
        differ=differ,
        quiet=quiet,
        again=again,
        left=left,
        machines=machines,
        receiving=receiving,
        by_hand=adopts,
    )
    end = stories.run(story)
    assert not end.wrong, f"\n{end.text()}"
    assert len(faults) <= end.faults, "each fault has happened"
    return end


def test_a_canary_that_is_continued_gives_no_instance_more_than_its_part() -> None:
    """A run ends after the first of two new instances, and hosts are prepared once more."""
    steps = [{"set_weight": 50}, {"pause": {}}]
    for call in range(50, 75, 5):
        check(Fault("is interrupted", call), strategy="canary", steps=steps)


def test_instances_of_a_superseded_rollout_are_asked_by_their_own_check() -> None:
    """By the check of the next revision none of them is ready, so that nothing may be drained."""
    for call in range(40, 53, 2):  # the last instance is killed while a call of one of them waits
        check_superseded(Fault("instance killed", 53.8, 1.0), Fault("is slow", call, 1.0))


def check_superseded(*faults: Fault) -> None:
    person = {"driver": "simulated", "after": 9, "answer": "person"}
    check(
        *faults,
        bad=[Life(2.0, 2.0, 0), Life(0.5, 2.0, 1), Life(2.0, 2.0, 1)],
        follows=("next",),
        differ=True,
        replicas=5,
        headroom=1.25,
        gates={"confirm_promotion": [person]},
        targets=[
            {"name": "eu", "hosts": "web1", "soak": 5},
            {"name": "us", "hosts": "web2,web3"},
        ],
        autoscaler={"driver": "simulated", "mode": "raise"},
    )


def test_a_set_whose_gate_has_not_passed_gets_no_requests_when_it_is_superseded() -> None:
    """While hosts are prepared for the next revision, what runs is kept in repair."""
    person = {"driver": "simulated", "after": 2, "answer": "person"}
    gates = {"confirm_promotion": [person]}
    check(follows=("next",), strategy="blue_green", gates=gates)


def test_a_host_that_is_away_for_long_is_left_out() -> None:
    """Nothing waits for it, in the run that obeys and in one that continues after a kill."""
    away, out = Fault("host away", 3.0, 400.0, "web1"), Fault("command", 5.0, 0.0, "exclude")
    check(away, out)
    for call in range(60, 90, 10):
        check(away, out, Fault("dies before", call), follows=("same",))
    check(Fault("command", 2.0, 0.0, "exclude"), Fault("command", 4.0, 0.0, "include"))


def test_a_second_set_with_an_instance_on_each_host_is_kept_in_repair() -> None:
    """What dies of the old set is started beside the new one, before the switch and after it."""
    gates = {"confirm_promotion": [{"driver": "simulated", "after": 10, "answer": "pass"}]}
    given = {"strategy": "blue_green", "replicas": "per_host", "hold": "15s", "gates": gates}
    for at in (5.0, 16.0):
        check(Fault("instance killed", at), **given)


def test_what_was_decided_before_a_long_wait_for_the_journal_is_decided_again() -> None:
    """The old set, to which the requests were to go back, dies meanwhile."""
    deaths = [Fault("instance killed", 12.0 + number / 10, number) for number in range(3)]
    for call in range(110, 114):
        frozen = Fault("freezes", call, 25.0)
        check(
            Fault("command", 5.0, 0.0, "abort"), frozen, *deaths, strategy="blue_green", hold="15s"
        )


def test_an_instance_keeps_its_requests_once_its_host_answers_again() -> None:
    """It is asked anew whether it is ready, and was before."""
    gates = {"confirm_promotion": [{"driver": "simulated", "after": 7, "answer": "person"}]}
    for host in ("web1", "web2", "web3"):
        check(Fault("host away", 13.7, 1.0, host), gates=gates, wait=20, replicas="per_host")


def test_what_fails_its_checks_and_never_passed_gets_no_requests_from_an_older_state() -> None:
    """In place the new instance has the name and the entry of the one before."""
    check(
        Fault("balancer restores", 47.3, 0.0, "lb2"),
        bad=[Life(0.5), Life(5.0), Life(2.0)],
        tasks=45.0,
        platform=PLATFORM,
        budget={"max_surge": 0, "max_unavailable": 2},
    )


def test_hosts_that_are_not_deployed_yet_are_put_back_when_another_is_lost() -> None:
    """A host is cut off, and a balancer restored, while a batch in place waits for the journal."""
    check(
        Fault("balancer restores", 18.1, 0.0, "lb1"),
        Fault("host away", 30.4, 150.0, "web3"),
        Fault("answers late", 28, 70.0),
        platform=PLATFORM,
        budget={"max_surge": 0, "max_unavailable": 1},
    )


def test_balancers_that_all_lose_their_state_on_a_way_back() -> None:
    """What stable instances cannot carry goes to the others again, and is not theirs alone."""
    for kind, headroom in (("balancer restores", 0), ("balancer forgets", 1.25)):
        lost = [Fault(kind, 5.3 + number / 20, 0.0, f"lb{number}") for number in (1, 2)]
        check(Fault("command", 5.0, 0.0, "abort"), *lost, headroom=headroom)


def test_a_balancer_with_an_older_state_is_not_emptied() -> None:
    """It sends requests to a drained instance again, and to no other that answers."""
    check(
        Fault("balancer restores", 4.2, 0.0, "lb1"),
        Fault("host reboots", 5.3, 150.0, "web3"),
        Fault("is slow", 81, 10.0),
        bad=[
            Life(5.0, 2.0, 0, crash=30.0),
            Life(5.0, 2.0, 4, crash=30.0),
            Life(0.5, 2.0, 4),
            Life(0.5, 2.0, 4),
        ],
        replicas=2,
        seed=500148,
        budget={"max_surge": 3, "max_unavailable": 1},
        wait=20,
    )


def test_a_load_balancer_keeps_what_drains_until_others_serve_there() -> None:
    """It has an older state again, in which what drains is in rotation, on a host that has been away
    or restarted by its platform, and what is new is not.
    """
    check(
        Fault("host away", 12.8, 5.0, "web2"),
        Fault("balancer restores", 16.4, 0.0, "lb1"),
        Fault("dies after", 38),
        bad=[Life(0.5, 0.2, 1.0), Life(5.0, 2.0, 1.0, flap=(10.0, 20.0))],
        follows=("same",),
        seed=77000308,
        quiet=True,
        replicas=2,
        budget={"max_surge": "10%", "max_unavailable": "10%"},
    )
    check(
        Fault("balancer restores", 7.5, 0.0, "lb1"),
        Fault("instance killed", 10.0),
        Fault("balancer restores", 11.8, 0.0, "lb1"),
        seed=78000259,
        quiet=True,
        again=0.1,
        replicas=4,
        budget={"max_surge": 1, "max_unavailable": 1},
        min_ready=2,
        on_failure="hold",
        failure_limit=1,
        targets=[
            {"name": "eu", "hosts": "web1", "load_balancers": ["lb1"]},
            {"name": "us", "hosts": "web2,web3", "load_balancers": ["lb2"]},
        ],
    )


def test_load_balancers_get_back_what_they_lost_where_there_is_no_room_for_another() -> None:
    """The only host of a target is away for long, and a load balancer has an older state again."""
    check(
        Fault("host away", 10.2, 150.0, "web1"),
        Fault("balancer restores", 18.5, 0.0, "lb1"),
        bad=[Life(5.0, 0.2, 4.0)],
        follows=("rollback",),
        seed=80110173,
        replicas=2,
        budget={"max_in_flight": 2},
        wait=20,
        on_failure="hold",
        headroom=1.25,
        targets=[{"name": "eu", "hosts": "web1"}, {"name": "us", "hosts": "web2,web3"}],
    )


def test_what_starts_at_the_endpoint_of_another_does_not_serve_for_it() -> None:
    """A load balancer has an older state again, and sends requests to an instance that starts."""
    check(
        Fault("balancer restores", 25.8, 0.0, "lb1"),
        bad=[
            Life(2.0, 0.2, 1.0, flap=(10.0, 20.0)),
            Life(5.0, 2.0, 0.0, crash=8.0),
            Life(0.5, 0.2, 4.0),
            Life(2.0, 0.2, 1.0),
        ],
        seed=5068,
        quiet=True,
        replicas=4,
        budget={"max_surge": 0, "max_unavailable": 1},
        min_ready=2,
        on_failure="hold",
        headroom=1.25,
    )


def test_a_load_balancer_of_one_target_has_no_peer_at_another_on_a_way_back() -> None:
    """It has lost its state, and bad instances get what the stable ones there cannot carry."""
    check(
        Fault("command", 21.4, 0.0, "abort"),
        Fault("balancer restores", 31.4, 0.0, "lb2"),
        bad=[Life(0.5, 2.0, 1.0), Life(0.5, math.inf, 0.0)],
        seed=5378,
        quiet=True,
        strategy="canary",
        steps=[{"set_weight": 10}],
        replicas=6,
        budget={"max_surge": 1, "max_unavailable": 1},
        targets=[
            {"name": "eu", "hosts": "web1", "load_balancers": ["lb1"]},
            {"name": "us", "hosts": "web2,web3", "load_balancers": ["lb2"]},
        ],
    )


def test_what_is_left_of_an_instance_is_removed_once_its_host_answers() -> None:
    """The host is cut off from before the rollout ends."""
    check(
        Fault("balancer forgets", 7.3, 0.0, "lb2"),
        Fault("host away", 40.2, 150.0, "web2"),
        Fault("is slow", 255, 70.0),
        bad=[Life(5.0, 0.2, 1, errors=0.3)],
        seed=700000525,
        replicas=2,
        budget={"max_surge": 1, "max_unavailable": 1},
        strategy="blue_green",
        hold="15s",
        on_failure="hold",
        failure_limit=1,
        headroom=1.25,
    )


def test_a_host_that_a_balancer_sends_requests_to_again_is_not_taken_out_while_another_is_down() -> (
    None
):
    """In place: it was taken out for tasks that have not begun, and another host died since."""
    check(
        Fault("instance killed", 1.1, 5.0),
        Fault("balancer restores", 7.0, 0.0, "lb1"),
        Fault("command", 16.9, 0.0, "skip"),
        Fault("balancer away", 18.9, 150.0, "lb1"),
        Fault("is slow", 30, 70.0),
        platform=PLATFORM,
        budget={"max_surge": 0, "max_unavailable": 1},
        seed=12000018,
    )


def test_a_rollout_in_place_is_aborted_after_its_last_stage() -> None:
    """Its run ends before the promotion, and the next one reads the command first."""
    for call in (282, 286, 290):
        check(
            Fault("is interrupted", call),
            follows=("abort",),
            platform=PLATFORM,
            budget={"max_surge": 0, "max_unavailable": 1},
        )


def test_a_change_of_an_autoscaler_that_is_late_is_refused_once_a_newer_run_put_it_back() -> None:
    """A run is frozen before its first change, and the rollout is aborted meanwhile."""
    for call in (31, 32):
        check(
            Fault("command", 55.9, 0.0, "abort"),
            Fault("freezes", call, 70.0),
            autoscaler={"driver": "simulated", "mode": "raise"},
        )


def test_no_tasks_work_after_a_step_that_lost_its_lease_at_its_end() -> None:
    """The run is frozen there, and another one supersedes its rollout meanwhile."""
    batches = {"max_unavailable": 2, "max_surge": 0}
    for call in (49, 50):
        for at, tasks in ((38.0, 45.0), (32.0, 1.0)):  # it is at work then, or has ended
            second, frozen = Fault("second run", at, 0.0, "next"), Fault("freezes", call, 70.0)
            check(second, frozen, platform=PLATFORM, budget=batches, wait=20, tasks=tasks)


def test_a_command_that_comes_at_the_end_of_a_rollout_is_answered() -> None:
    """The old set is stopping, and commands are read once a second."""
    for at in (31.2, 31.3, 31.4):
        for command in ("scale", "hold", "exclude"):
            check(Fault("command", at, 0.0, command), strategy="blue_green")


def test_a_run_that_is_killed_before_its_last_write_has_refused_nothing() -> None:
    """The next run obeys what came late, or refuses it."""
    late = Fault("command", 31.3, 0.0, "abort")
    for call in (280, 281, 282, 283):
        story = check(late, Fault("dies before", call), follows=("same",), strategy="blue_green")
        answers = [line for line in story.lines if "shop 2: abort sent by" in line]
        assert len(answers) == 1, story.text()


def test_a_host_in_place_stays_where_too_few_serve_while_a_balancer_is_ill() -> None:
    """Its checks fail everywhere, longer than a host has to become available, and another host is
    down.
    """
    check(
        Fault("stable dies", 11.1, 1.0),
        Fault("balancer is blind", 15.0, 150.0, "lb2"),
        platform=PLATFORM,
        budget={"max_surge": 0, "max_unavailable": 1},
        on_failure="hold",
        min_ready=2,
        bad=[Life(5.0, 0.2, 4), Life(2.0, 0.2, 0)],
        seed=60000005,
    )


def test_of_two_instances_on_a_host_the_superseded_one_leaves() -> None:
    """Of another host, the only instance has not become ready, and stays until it is replaced."""
    check(
        Fault("is interrupted", 111),
        follows=("next",),
        replicas="per_host",
        budget={"max_surge": 3, "max_unavailable": 1},
        bad=[Life(2.0, 0.2, 1), Life(math.inf, 0.2, 4)],
        headroom=1.25,
        min_ready=2,
        on_failure="hold",
        seed=60010098,
        wait=20,
    )


def test_a_stable_instance_that_is_started_again_gets_the_part_of_the_one_that_died() -> None:
    """It is the only one of its side, and half of the requests are to stay there. No run is at work
    when it dies, so that the balancers have forgotten it.
    """
    check(
        Fault("host away", 16.0, 40.0, "web2"),
        Fault("stable dies", 31.1, 10.0),
        follows=("next",),
        strategy="canary",
        steps=[{"set_weight": 50}, {"pause": {}}],
        budget={"max_surge": 0, "max_unavailable": 1},
        seed=50021287,
        wait=20,
    )


def test_a_set_before_its_gate_serves_only_where_the_budget_asks_for_more() -> None:
    """A host is lost while the next revision supersedes it: the headroom of a way back does not
    count.
    """
    person = {"driver": "simulated", "after": 5, "answer": "person"}
    check(
        Fault("host away", 28.2, 5.0, "web1"),
        follows=("next",),
        strategy="blue_green",
        replicas=6,
        gates={"confirm_promotion": [person]},
        next_replicas=7,
        headroom=1.25,
        watch_new=30,
        seed=60040060,
    )


def test_what_does_not_become_ready_at_one_target_waits_for_its_wave() -> None:
    """It was left by a superseded rollout, and another target is rolled out first."""
    check(
        follows=("next", "same"),
        bad=[Life(0.5, 2.0, 0), Life(0.5, 0.2, 0), Life(math.inf, 0.2, 4), Life(0.5, 0.2, 0)],
        replicas=1,
        budget={"max_surge": 3, "max_unavailable": 1},
        targets=[
            {"name": "eu", "hosts": "web1", "soak": 5},
            {"name": "us", "hosts": "web2,web3"},
        ],
        on_failure="hold",
        on_stable_lost="promote",
        watch_new=30,
        seed=50031492,
        wait=20,
    )


def test_a_hold_lasts_from_when_it_was_entered() -> None:
    """The run is frozen between that and the write that says so."""
    for call in range(101, 106):
        check(
            Fault("freezes", call, 1.0),
            strategy="blue_green",
            hold="15s",
            bad=[Life(0.5, 0.2, 4), Life(2.0, 0.2, 4), Life(0.5, 0.2, 0)],
            budget={"max_surge": 0, "max_unavailable": 1},
            next_replicas=4,
            seed=50051042,
            wait=20,
        )


def test_in_place_a_host_on_which_the_way_back_failed_is_deployed_by_the_next() -> None:
    """It was away, and came back with what it had: the revision that failed. Then comes abort."""
    bad = [Life(2.0, 0.2, 1, flap=(10.0, 1.0)), Life(0.5, 2.0, 0, crash=0.0)]
    check(
        Fault("host reboots", 47.9, 150.0, "web2"),
        bad=[Life(math.inf, 0.2, 1), *bad, Life(2.0, 0.2, 4)],
        follows=("abort",),
        seed=50071814,
        platform={"driver": "static", "hosts": "web1,web2,web3", "port": 7000},
        replicas=3,
        budget={"max_surge": 0, "max_unavailable": 1},
    )


def test_in_place_balancers_stay_as_they_are_while_tasks_work() -> None:
    """One has an older state again, in which a host gets requests that left an earlier batch."""
    check(
        Fault("host away", 44.3, 5.0, "web1"),
        Fault("balancer restores", 51.1, 0.0, "lb2"),
        budget={"max_surge": 0, "max_unavailable": 2},
        failure_limit=1,
        platform=PLATFORM,
        tasks=45.0,
        seed=50070205,
    )


def test_in_place_a_balancer_that_lost_its_state_sends_requests_while_tasks_work() -> None:
    """It does so meanwhile, or before."""
    lost = Fault("balancer forgets", 20.0, 0.0, "lb2"), Fault("balancer forgets", 59.9, 0.0, "lb2")
    away = Fault("balancer away", 33.6, 150.0, "lb2")
    for faults in ((lost[0],), (away, lost[1])):
        check(
            *faults,
            budget={"max_surge": 0, "max_unavailable": 1},
            platform=PLATFORM,
            tasks=45.0,
            seed=70000167,
        )


def test_in_place_a_host_on_which_tasks_have_worked_stays_out_though_no_other_serves() -> None:
    """A load balancer has an older state again, and sends it requests."""
    check(
        Fault("balancer is blind", 7.4, 150.0, "lb1"),
        Fault("host reboots", 34.6, 40.0, "web1"),
        Fault("stable dies", 43.1, 10.0),
        Fault("balancer restores", 49.7, 0.0, "lb2"),
        budget={"max_surge": 0, "max_unavailable": 2},
        failure_limit=1,
        platform=PLATFORM,
        tasks=45.0,
        wait=20,
        seed=70000314,
    )


def test_an_instance_that_a_busy_host_is_yet_to_stop_does_not_come_back() -> None:
    """Its rollout is aborted before the host has the time: it would be stopped in rotation."""
    busy = Fault("host is busy", 2.5, 30.0, "web2")
    for at in (5.0, 8.0, 12.0):
        check(busy, Fault("command", at, 0.0, "abort"))


def test_a_balancer_with_an_older_state_is_not_emptied_while_its_own_checks_fail() -> None:
    """After a switch; what it sends requests to drains, and still runs."""
    check(
        Fault("balancer is blind", 4.9, 5.0, "lb1"),
        Fault("balancer restores", 7.9, 0.0, "lb1"),
        Fault("is slow", 2, 1.0),
        bad=[Life(2.0, 2.0, 1), Life(2.0, 0.2, 0)],
        seed=70010540,
        budget={"max_surge": 1, "max_unavailable": 1},
        strategy="blue_green",
        hold="0s",
        quiet=True,
    )


def test_what_was_drained_is_not_stopped_by_a_late_look_at_the_balancers() -> None:
    """Before the answer arrives, one of them has an older state again and sends it requests."""
    check(
        Fault("balancer restores", 19.8, 0.0, "lb1"),
        Fault("answers late", 102, 70.0),
        replicas=6,
        budget={"max_surge": 0, "max_unavailable": 1},
        strategy="blue_green",
        hold="0s",
    )


def test_a_target_of_a_canary_by_number_is_reached_before_its_new_instances_get_requests() -> None:
    """It has load balancers of its own, which have a share for it, and none yet."""
    check(
        replicas=4,
        budget={"max_in_flight": "50%"},
        strategy="canary",
        steps=[{"set_replicas": 2}, {"pause": {"duration": "2s"}}, {"set_weight": 40}],
        targets=[
            {"name": "eu", "hosts": "web1", "load_balancers": ["lb1"]},
            {"name": "us", "hosts": "web2,web3", "load_balancers": ["lb2"]},
        ],
    )


def test_what_a_late_update_takes_out_again_has_its_time_to_finish_its_requests() -> None:
    """A run is frozen between a look and the update that follows from it. Meanwhile a balancer
    has sent requests to what drains again.
    """
    budget = {"max_surge": 1, "max_unavailable": 1}
    for call in range(42, 47):
        restored = Fault("balancer restores", 9.5, what="lb1")
        check(restored, Fault("freezes", call, 9.9), budget=budget)


def test_what_tasks_were_to_deploy_on_a_lost_host_gets_no_requests_before_it_is_ready() -> None:
    """Its tasks were cut off, and nobody kept a balancer from returning to an older state."""
    check(
        Fault("host away", 14.7, 40.0, "web1"),
        Fault("balancer restores", 43.7, what="lb2"),
        Fault("dies after", 101),
        platform=PLATFORM,
        budget={"max_surge": 0, "max_unavailable": "67%"},
        on_failure="hold",
        failure_limit=1,
        headroom=1.25,
        tasks=45.0,
    )


def test_what_a_restored_balancer_sends_requests_to_before_its_gate_leaves_rotation_again() -> None:
    """It has the endpoint of a stable instance that died. The next rollout would put it in rotation
    everywhere.
    """
    check(
        Fault("stable dies", 0.2),
        Fault("is slow", 8, 2.0),
        Fault("balancer restores", 18.6, what="lb1"),
        replicas=2,
        next_replicas=3,
        budget={"max_surge": 1, "max_unavailable": 1},
        strategy="blue_green",
        gates={"confirm_promotion": [{"driver": "simulated", "after": 9, "answer": "fail"}]},
        follows=("same", "next"),
        on_failure="hold",
    )


def test_in_place_what_fails_its_check_leaves_a_balancer_that_another_contradicts() -> None:
    """A run is killed once it has deployed the last host, which never becomes ready. A balancer
    with an older state sends it requests again, while the other one sends it none.
    """
    check(
        Fault("stable dies", 8.1, 10.0),
        Fault("balancer restores", 32.2, 0.0, "lb1"),
        Fault("dies before", 352),
        bad=[
            Life(math.inf, 0.2, 0),
            Life(0.5, 2.0, 0, flap=(3.0, 60.0)),
            Life(2.0, 2.0, 4),
        ],
        follows=("abort", "next"),
        platform=PLATFORM,
        budget={"max_surge": 0, "max_unavailable": 1},
        on_failure="hold",
        wait=20,
        headroom=1.25,
        seed=84171943,
    )


def test_what_fails_its_check_for_a_while_stays_where_balancers_disagree() -> None:
    """A load balancer has an older state again, in which it gets no requests, and the other one
    finds it well.
    """
    check(
        *(Fault("balancer restores", at, 0.0, "lb1") for at in (5.2, 8.3, 16.5)),
        bad=[Life(0.5, 0.2, 4), Life(0.5, 0.2, 4), Life(0.5, 2.0, 1, flap=(10.0, 20.0))],
        strategy="blue_green",
        replicas=6,
        budget={"max_surge": 0, "max_unavailable": 1},
        min_ready=2,
        failure_limit=1,
        headroom=1.25,
        hold="0s",
        wait=20,
        quiet=True,
        seed=85301162,
    )


def test_a_run_that_begins_with_a_command_to_leave_a_host_out_looks_at_the_fleet_first() -> None:
    """The only instance in rotation is on that host, so the command is refused."""
    person = {"driver": "simulated", "after": 6, "answer": "person"}
    check(
        Fault("command", 10.9, 0.0, "exclude"),
        Fault("is interrupted", 94),
        follows=("rollback",),
        strategy="blue_green",
        replicas=1,
        budget={"max_in_flight": "50%"},
        gates={"confirm_promotion": [person]},
        wait=20,
        seed=85400824,
    )


def test_a_command_continues_no_other_rollout_than_the_one_it_was_sent_to() -> None:
    """Its run is frozen while it looks at the journal, and the rollout is superseded by one with
    other settings, whose run ends before its rollout.
    """
    check(
        Fault("second run", 68.5, 0.0, "next"),
        Fault("dies before", 8),
        Fault("freezes", 16, 70.0),
        Fault("is interrupted", 146),
        follows=("abort",),
        left="f6ccc42-killed",
        autoscaler={"driver": "simulated", "mode": "raise"},
        failure_limit=1,
        headroom=1.25,
        wait=20,
        seed=85402283,
    )


def test_a_rollout_that_another_run_wanted_to_supersede_is_resumed() -> None:
    """That run was killed while it waited for this one to give way."""
    check(
        Fault("command", 4.5, 0.0, "hold"),
        Fault("dies after", 39),
        Fault("dies before", 86),
        follows=("same", "restart", "next"),
        strategy="blue_green",
        replicas=6,
        on_failure="hold",
        machines=2,
        seed=85501520,
    )


def test_what_drains_goes_on_to_while_only_a_restored_preview_has_its_endpoint() -> None:
    """A load balancer has an older state again, its preview, too, and sends requests to too few."""
    check(
        Fault("balancer restores", 9.6, 0.0, "lb1"),
        Fault("balancer restores", 10.4, 0.0, "lb1"),
        bad=[Life(0.5, 0.2, 0, crash=1.0), Life(0.5, 0.2, 0), Life(5.0, math.inf, 1)],
        traffic={"driver": "simulated", "preview": True},
        replicas=5,
        budget={"max_surge": 1, "max_unavailable": 1},
        headroom=1.25,
        quiet=True,
        seed=85701493,
    )


def test_what_was_ready_before_a_run_stays_in_rotation_while_its_checks_fail() -> None:
    """The run that continues finds none of the new instances ready, and some are again sooner."""
    check(
        Fault("is interrupted", 113),
        bad=[Life(5.0, 0.2, 0, flap=(10.0, 20.0))],
        follows=("same",),
        strategy="blue_green",
        replicas=6,
        budget={"max_surge": 0, "max_unavailable": "29.5%"},
        headroom=1.25,
        hold="30s",
        wait=20,
        seed=85908392,
    )


def test_in_place_a_balancer_that_answers_late_while_tasks_work_is_asked_once_more() -> None:
    check(
        *(Fault("balancer restores", at, 0.0, "lb1") for at in (2.9, 11.9, 16.2)),
        Fault("answers late", 131, 70.0),
        platform=PLATFORM,
        strategy="canary",
        steps=[{"set_weight": 10}],
        budget={"max_surge": 0, "max_unavailable": 1},
        on_failure="hold",
        gates={"confirm_promotion": [{"driver": "simulated", "after": 5, "answer": "person"}]},
        tasks=45.0,
        quiet=True,
        seed=85913258,
    )


def test_in_place_what_tasks_deployed_anew_has_not_been_ready() -> None:
    """The revision before was, on the same hosts. A load balancer has an older state again."""
    check(
        Fault("stable dies", 21.0, 1.0),
        Fault("balancer restores", 48.1, 0.0, "lb2"),
        bad=[Life(math.inf, 0.2, 4, errors=0.3)],
        platform=PLATFORM,
        budget={"max_surge": 0, "max_unavailable": 2},
        on_failure="hold",
        wait=20,
        seed=87004343,
    )


def test_what_its_host_was_silent_about_from_the_start_was_never_ready() -> None:
    """A load balancer that has an older state again sends requests to it, and others are ready."""
    check(
        Fault("stable dies", 2.0),
        Fault("instance killed", 12.3, 1.0),
        Fault("host away", 14.5, 5.0, "web1"),
        Fault("balancer restores", 18.5, 0.0, "lb1"),
        Fault("is interrupted", 99),
        bad=[
            Life(math.inf, 0.2, 4),
            Life(0.5, 0.2, 1, flap=(10.0, 20.0)),
            Life(5.0, 2.0, 1, crash=30.0),
        ],
        follows=("same",),
        again=2.0,
        receiving=("refuses", "is late", "hangs"),
        replicas=4,
        next_replicas=3,
        budget={"max_surge": "50%", "max_unavailable": "34%"},
        notify=draws.NOTIFY,
        autoscaler={"driver": "simulated", "mode": "raise"},
        watch_new=30,
        seed=87002670,
    )


def test_no_run_promotes_what_was_ready_before_it() -> None:
    """The run that saw the new set ready is frozen before it promotes it, and an instance ends."""
    check(
        Fault("command", 45.3, 0.0, "skip"),
        Fault("is slow", 113, 70.0),
        bad=[
            Life(0.5, 2.0, 1, crash=30.0),
            Life(0.5, math.inf, 4),
            Life(5.0, 0.2, 1),
        ],
        strategy="blue_green",
        replicas=4,
        budget={"max_surge": 2, "max_unavailable": 0},
        failure_limit=1,
        headroom=1.25,
        wait=20,
        seed=87107366,
    )


def test_the_stable_revision_is_repaired_whatever_the_steps_to_the_next_one_need() -> None:
    """One replica without surge cannot be old and new at once, which its first rollout did not
    ask for either.
    """
    check(
        Fault("instance killed", 4.0, 4.0),
        Fault("answers late", 1, 70.0),
        strategy="canary",
        steps=[{"set_weight": 20}, {"pause": {"duration": "10s"}}, {"set_weight": 60}],
        replicas=1,
        budget={"max_surge": 0, "max_unavailable": 1},
        wait=20,
        seed=87702438,
    )


def test_what_returns_for_a_broken_one_stays_where_a_balancer_has_its_endpoint_in_rotation() -> (
    None
):
    """The rollout is continued, and prepares hosts, while the new one of its first target fails."""
    check(
        Fault("host is busy", 7.0, 8.0, "web1"),
        Fault("balancer restores", 14.9, 0.0, "lb1"),
        Fault("dies before", 142),
        bad=[Life(5.0, 2.0, 0), Life(0.5, 2.0, 0, crash=8.0), Life(0.5, 2.0, 1)],
        follows=("restart",),
        on_failure="hold",
        replicas=2,
        targets=[
            {"name": "eu", "hosts": "web1", "soak": 5, "load_balancers": ["lb1"]},
            {"name": "us", "hosts": "web2,web3", "load_balancers": ["lb2"]},
        ],
        autoscaler={"driver": "simulated", "mode": "follow"},
        quiet=True,
        seed=87605091,
    )


def test_in_place_a_run_that_was_frozen_takes_nothing_in_for_the_rollout_of_another() -> None:
    """Another run has superseded its rollout; what keeps the lease of that one is killed while
    tasks work.
    """
    check(
        Fault("second run", 41.0, what="next"),
        Fault("freezes", 117, 70.0),
        Fault("is interrupted", 223),
        platform=PLATFORM,
        budget={"max_surge": 0, "max_unavailable": "20%"},
        strategy="canary",
        steps=[{"set_weight": 50}, {"pause": {}}],
        wait=20,
        failure_limit=1,
        notify=draws.NOTIFY,
        receiving=("is late", "is late", "gets it"),
        tasks=45.0,
        seed=89102732,
    )


def test_a_command_continues_a_rollout_of_an_earlier_version_without_an_autoscaler() -> None:
    """The run that brings one in ends before it has resumed the rollout."""
    check(
        Fault("command", 3.4, what="promote"),
        Fault("is lost", 17),
        traffic={"driver": "simulated", "preview": True},
        strategy="canary",
        steps=[{"set_weight": 50}, {"pause": {}}],
        on_failure="hold",
        headroom=1.25,
        autoscaler={"driver": "simulated", "mode": "follow"},
        follows=("abort",),
        left="f6ccc42-parked",
        seed=89103608,
    )


def test_in_place_what_was_ready_may_be_admitted_before_enough_of_its_checks_fail() -> None:
    """Its host has just rebooted."""
    check(
        Fault("host reboots", 26.0, 1.0, "web2"),
        Fault("answers late", 193, 10.0),
        Fault("second run", 27.0, what="cart bad"),
        bad=[Life(5.0, 0.2, 4, errors=0.3), Life(2.0, 0.2, 1, errors=0.3)],
        platform=PLATFORM,
        budget={"max_surge": 0, "max_unavailable": 1},
        on_failure="hold",
        notify=draws.NOTIFY,
        receiving=("hangs", "refuses", "is late"),
        seed=89006780,
    )


def test_what_died_on_a_host_that_is_back_late_is_left_to_the_next_rollout() -> None:
    """While another host takes its time to remove what died there."""
    check(
        Fault("stable dies", 0.4, 1.0),
        Fault("host reboots", 3.3, 40.0, "web1"),
        Fault("host is busy", 17.3, 70.0, "web2"),
        bad=[Life(2.0, 2.0, 4), Life(2.0, 2.0, 0)],
        replicas=2,
        next_replicas=1,
        on_failure="hold",
        headroom=1.25,
        seed=89300319,
    )


def test_what_died_is_left_to_the_next_rollout_where_a_load_balancer_may_still_have_it() -> None:
    """It does not answer when the rollout ends."""
    check(
        Fault("at the switch", 0.0, what="abort"),
        Fault("command", 3.4, what="force"),
        Fault("balancer away", 49.2, 150.0, "lb2"),
        Fault("is half done", 1),
        Fault("answers late", 22, 1.0),
        Fault("answers late", 86, 10.0),
        Fault("answers late", 280, 70.0),
        bad=[Life(0.5, 2.0, 4), Life(5.0, 2.0, 1), Life(5.0, 2.0, 1), Life(20.0, 2.0, 1)],
        replicas=5,
        budget={"max_surge": 0, "max_unavailable": 1},
        strategy="blue_green",
        failure_limit=1,
        seed=89303333,
    )


def test_a_switch_that_a_load_balancer_has_forgotten_stays_half_done_while_paused() -> None:
    """What it sends requests to again does not take those of the other one."""
    check(
        Fault("command", 1.7, what="force"),
        Fault("balancer away", 12.5, 40.0, "lb1"),
        Fault("balancer restores", 17.8, what="lb1"),
        Fault("instance killed", 22.7),
        Fault("command", 53.2, what="pause"),
        bad=[Life(5.0, 2.0, 0), Life(0.5, 0.2, 4), Life(0.5, 2.0, 1), Life(math.inf, 0.2, 1)],
        replicas=5,
        next_replicas=3,
        budget={"max_surge": "10%", "max_unavailable": "10%"},
        strategy="blue_green",
        wait=20,
        failure_limit=1,
        seed=89608898,
    )


def test_what_a_busy_host_was_never_told_to_stop_serves_again_on_a_rollback() -> None:
    check(
        Fault("balancer restores", 17.4, what="lb1"),
        Fault("host is busy", 18.0, 30.0, "web1"),
        Fault("is slow", 22, 10.0),
        bad=[
            Life(0.5, 0.2, 1),
            Life(2.0, 2.0, 4),
            Life(5.0, 2.0, 0, crash=30.0),
            Life(5.0, 2.0, 0),
        ],
        replicas=4,
        next_replicas=5,
        budget={"max_surge": 3, "max_unavailable": 1},
        min_ready=2,
        wait=20,
        failure_limit=1,
        targets=[{"name": "eu", "hosts": "web1"}, {"name": "us", "hosts": "web2,web3"}],
        quiet=True,
        seed=89608121,
    )


def test_what_was_never_ready_leaves_a_restored_balancer_although_too_few_others_serve_there() -> (
    None
):
    """It has the endpoint of a stable instance that died, and belongs to what is superseded."""
    check(
        Fault("instance killed", 8.5, 1.0),
        Fault("balancer restores", 25.1, what="lb1"),
        Fault("second run", 64.0, what="next"),
        Fault("is slow", 21, 10.0),
        Fault("freezes", 101, 70.0),
        bad=[Life(math.inf, 2.0, 1)],
        replicas=4,
        next_replicas=2,
        budget={"max_surge": 2, "max_unavailable": 0},
        strategy="blue_green",
        wait=20,
        failure_limit=1,
        seed=89701578,
    )


def test_what_drains_and_was_never_ready_leaves_a_restored_balancer_once_another_one_serves() -> (
    None
):
    """All of the stable set died, and what replaced it is rolled back."""
    check(
        Fault("stable dies", 4.6, 1.0),
        Fault("balancer restores", 19.5, what="lb1"),
        bad=[Life(math.inf, 0.2, 0)],
        replicas=4,
        budget={"max_surge": 2, "max_unavailable": 0},
        on_failure="hold",
        seed=89903597,
    )


def test_with_one_instance_a_host_a_canary_replaces_the_host_whose_old_instance_drains_first() -> (
    None
):
    """Otherwise that host had none, and the others had two, so that all old instances drained."""
    for surge in (1, 3):
        check(
            replicas="per_host",
            budget={"max_surge": surge, "max_unavailable": 1},
            strategy="canary",
            steps=[{"set_weight": 50}, {"pause": {}}],
            on_failure="hold",
            failure_limit=1,
            headroom=1.25,
            on_stable_lost="hold",
            seed=90105423,
        )


def test_a_run_that_only_closes_a_rollout_looks_at_the_load_balancers_first() -> None:
    """The one before ended when it had passed the last stage, and one has an older state since."""
    check(
        Fault("balancer restores", 17.4, what="lb1"),
        Fault("dies before", 195),
        bad=[Life(5.0, 2.0, 1), Life(5.0, 0.2, 0)],
        follows=("same", "restart"),
        machines=2,
        replicas=6,
        budget={"max_surge": 3, "max_unavailable": 1},
        strategy="blue_green",
        wait=20,
        failure_limit=1,
        headroom=1.25,
        hold="0s",
        quiet=True,
        seed=90105287,
    )


def test_what_answers_again_may_leave_before_its_checks_pass() -> None:
    check(
        Fault("second run", 62.6, what="same"),
        Fault("is interrupted", 1),
        Fault("freezes", 38, 70.0),
        bad=[Life(0.5, 2.0, 4, flap=(3.0, 20.0))],
        follows=("rollback", "same", "rollback"),
        replicas=6,
        next_replicas=7,
        budget={"max_surge": 3, "max_unavailable": 1},
        on_failure="hold",
        failure_limit=1,
        wait=20,
        gates={"confirm_promotion": [{"driver": "simulated", "after": 9, "answer": "pass"}]},
        notify=draws.NOTIFY,
        seed=90106774,
    )


def test_what_a_host_that_is_back_runs_may_leave_before_its_checks_pass() -> None:
    check(
        Fault("balancer forgets", 15.6, what="lb2"),
        Fault("host away", 17.5, 40.0, what="web3"),
        Fault("dies after", 22),
        bad=(),
        follows=("same", "next"),
        machines=2,
        platform={"driver": "static", "hosts": "web1,web2,web3", "port": 7000},
        budget={"max_surge": 0, "max_unavailable": 2},
        strategy="canary",
        steps=[{"set_weight": 30}, {"analysis": {"interval": "5s"}}],
        wait=0,
        lease=30.0,
        on_failure="rollback",
        seed=91000572,
    )


def test_what_is_just_ready_again_may_leave_before_its_checks_pass() -> None:
    check(
        Fault("second run", 17.7, what="rollback"),
        Fault("balancer forgets", 31.2, what="lb1"),
        Fault("stable dies", 57.8),
        Fault("second run", 59.2, what="same"),
        Fault("freezes", 18, 70.0),
        bad=(),
        differ=True,
        again=2.0,
        replicas="per_host",
        budget={"max_surge": 1, "max_unavailable": 1},
        strategy="blue_green",
        wait=20,
        seed=92000650,
    )


def test_tasks_are_kept_from_nothing_while_what_watches_them_is_frozen_past_its_lease() -> None:
    check(
        Fault("balancer away", 47.5, 5.0, what="lb2"),
        Fault("second run", 66.4, what="next"),
        Fault("fails", 17),
        Fault("is lost", 27),
        Fault("is slow", 57, 70.0),
        Fault("freezes", 134, 70.0),
        bad=(),
        platform={"driver": "static", "hosts": "web1,web2,web3", "port": 7000},
        budget={"max_surge": 0, "max_unavailable": 1},
        wait=20,
        min_ready=2,
        seed=92000945,
    )


def test_a_host_that_gets_busy_again_may_remove_dead_instances_after_the_end() -> None:
    check(
        Fault("host is busy", 15.1, 30.0, what="web1"),
        Fault("host is busy", 32.2, 70.0, what="web1"),
        bad=[
            Life(2.0, 0.2, 0),
            Life(5.0, 2.0, 0),
            Life(2.0, 2.0, 4, crash=0.0),
            Life(5.0, 2.0, 1),
        ],
        follows=("same",),
        budget={"max_surge": 1, "max_unavailable": 1},
        wait=20,
        on_failure="hold",
        failure_limit=1,
        headroom=1.25,
        targets=[
            {"name": "eu", "hosts": "web1", "load_balancers": ["lb1"]},
            {"name": "us", "hosts": "web2,web3", "load_balancers": ["lb2"]},
        ],
        seed=92101026,
    )


def test_a_stage_is_not_passed_while_something_has_to_go() -> None:
    """An old instance of a target that has enough fails its checks, and another is too few to go."""
    check(
        Fault("balancer restores", 6.4, what="lb1"),
        Fault("instance killed", 50.0),
        Fault("is half done", 134),
        Fault("answers late", 139, 70.0),
        bad=[Life(0.5, 2.0, 0, crash=1.0)],
        follows=("same",),
        replicas=1,
        on_failure="hold",
        failure_limit=1,
        headroom=1.25,
        targets=[
            {"name": "eu", "hosts": "web1", "soak": 5},
            {"name": "us", "hosts": "web2,web3"},
        ],
        autoscaler={"driver": "simulated", "mode": "raise"},
        quiet=True,
        seed=93102498,
    )


def test_what_a_rollback_waits_for_in_vain_is_replaced_when_it_is_tried_again() -> None:
    """A stable revision that was promoted by hand has an instance that never starts."""
    check(
        Fault("command", 2.4, what="promote_full"),
        Fault("is interrupted", 108),
        bad=[
            Life(math.inf, 0.2, 0),
            Life(5.0, 2.0, 0),
            Life(5.0, 0.2, 4),
            Life(5.0, 2.0, 0, crash=8.0),
        ],
        follows=("next",),
        replicas="per_host",
        budget={"max_surge": 3, "max_unavailable": 1},
        strategy="blue_green",
        gates={"confirm_promotion": [{"driver": "simulated", "after": 8, "answer": "fail"}]},
        seed=93101703,
    )


def test_what_no_gate_has_passed_leaves_once_stable_instances_serve_again() -> None:
    """A superseded set serves while they are started again. The next rollout asks for one replica
    more, for which one of that set was kept until the promotion.
    """
    check(
        Fault("stable dies", 41.0),
        follows=("next",),
        next_replicas=4,
        budget={"max_surge": "50%", "max_unavailable": "34%"},
        strategy="blue_green",
        wait=20,
        on_failure="hold",
        gates={"confirm_promotion": [{"driver": "simulated", "after": 3, "answer": "person"}]},
        seed=94002045,
    )


def test_what_is_dead_stays_while_a_preview_may_have_it() -> None:
    """One has returned to an older state after it was emptied."""
    check(
        Fault("balancer restores", 19.6, what="lb1"),
        Fault("host is busy", 21.2, 70.0, what="web3"),
        Fault("freezes", 21, 1.0),
        bad=[Life(0.5, 0.2, 0, errors=0.3), Life(5.0, 2.0, 0, errors=0.3)],
        traffic={"driver": "simulated", "preview": True},
        replicas=2,
        strategy="blue_green",
        min_ready=2,
        headroom=1.25,
        gates={"confirm_promotion": [{"driver": "simulated", "after": 8, "answer": "fail"}]},
        seed=94102382,
    )


def test_what_was_told_to_stop_is_no_capacity_although_its_busy_host_has_not_heard_of_it() -> None:
    check(
        Fault("host is busy", 1.1, 8.0, what="web3"),
        Fault("balancer restores", 9.8, what="lb1"),
        budget={"max_surge": "50%", "max_unavailable": "34%"},
        headroom=1.25,
        seed=96101906,
    )


def test_a_drain_is_cancelled_in_a_journal_that_was_away_while_the_balancer_forgot() -> None:
    """It had returned to an older state before, in which the instance got requests."""
    check(
        Fault("store away", 14.7, 40.0),
        Fault("balancer restores", 15.0, what="lb1"),
        Fault("balancer forgets", 24.7, what="lb1"),
        bad=[Life(0.5, 2.0, 4), Life(2.0, 0.2, 4), Life(5.0, 2.0, 0)],
        targets=[{"name": "eu", "hosts": "web1"}, {"name": "us", "hosts": "web2,web3"}],
        replicas=6,
        budget={"max_in_flight": 2},
        strategy="rolling",
        wait=20,
        failure_limit=3,
        gates={"confirm_promotion": [{"driver": "simulated", "after": 1, "answer": "pass"}]},
        quiet=True,
        seed=100102833,
    )


def test_with_one_instance_a_host_the_baseline_leaves_after_the_new_ones_on_a_way_back() -> None:
    """A host is silent meanwhile, so that only one of both may go."""
    steps = [{"set_weight": 30}, {"analysis": {"interval": "5s", "baseline": True}}]
    check(
        Fault("host away", 8.7, 150.0, "web2"),
        Fault("is interrupted", 23),
        bad=[Life(2.0, 0.2, 0)],
        follows=("same", "same", "restart", "rollback"),
        strategy="canary",
        steps=[*steps, {"set_weight": 60}],
        replicas="per_host",
        failure_limit=1,
        seed=1134235027000237,
    )


def test_a_command_goes_on_with_the_settings_of_the_last_run_though_it_was_frozen() -> None:
    """A run that filled a preview pool has resumed the rollout since the command read them."""
    for call in (7, 8):
        check(
            Fault("second run", 51.8, what="same"),
            Fault("dies after", 2),
            Fault("freezes", call, 70.0),
            follows=("abort",),
            left="f6ccc42-parked",
            traffic={"driver": "simulated", "preview": True},
            strategy="canary",
            steps=[{"set_weight": 50}, {"pause": {}}],
            on_failure="hold",
            seed=222000081,
        )


def test_a_look_that_is_late_once_more_after_a_freeze_is_acted_on() -> None:
    """Balancers that always answer late would stall a rollout otherwise."""
    check(
        Fault("host away", 27.4, 40.0, "web1"),
        Fault("second run", 48.2, what="next"),
        Fault("freezes", 55, 70.0),
        Fault("answers late", 62, 10.0),
        left="9a6312c-killed",
        wait=20,
        traffic={"driver": "simulated", "preview": True},
        autoscaler={"driver": "simulated", "mode": "follow"},
        seed=30318,
    )


def test_a_canary_with_more_replicas_than_adopted_servers_starts_none_of_these() -> None:
    """The old side has as many as there are, since nothing can start more of them."""
    check(adopts=2, strategy="canary", steps=[{"set_weight": 30}])
    check(adopts=2, strategy="blue_green")


def test_adopted_servers_that_a_balancer_has_again_stay_until_instances_serve_there() -> None:
    """It returns to the state from before the rollout, after the promotion."""
    check(
        Fault("balancer restores", 20.0, what="lb1"),
        adopts=3,
        notify=draws.NOTIFY,
        receiving=("hangs",),
    )


def test_an_adopted_server_that_a_balancer_has_again_stays_as_it_comes_back_in_a_rollback() -> None:
    """No other serves there, and it was out for good when the run observed the fleet."""
    check(
        Fault("host reboots", 4.4, 40.0, "web1"),
        *(Fault("balancer restores", at, what="lb1") for at in (7.1, 8.6, 12.3)),
        Fault("host reboots", 12.6, 1.0, "web3"),
        Fault("balancer restores", 17.1, what="lb1"),
        bad=[Life(2.0, 0.2, 0)],
        follows=("same", "rollback", "same", "next"),
        quiet=True,
        adopts=2,
        replicas=2,
        budget={"max_surge": 1, "max_unavailable": 1},
        traffic={"driver": "simulated", "preview": True},
        min_ready=2,
        on_failure="hold",
        failure_limit=1,
        seed=5134,
    )


def test_adopted_servers_come_back_in_a_rollback() -> None:
    check(Fault("command", 1.5, what="abort"), adopts=3)
    check(bad=[Life(start=math.inf)], adopts=3, failure_limit=1)
