# SPDX-License-Identifier: GPL-3.0-or-later
"""When hosts are looked at: at once where something is expected, and nowhere too seldom."""

from __future__ import annotations

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.looks import (
    LONGEST,
    PAUSES,
    SHORTLY,
    SLOW,
    HostView,
    hosts_to_look_at,
    is_moving,
    next_look_at_stopping,
    slow_pace,
    usual_stop,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Health,
    Process,
)
from hypothesis import example, given
from hypothesis import strategies as st

NOW = 1000.0
times = st.floats(0, NOW)
views = st.builds(HostView, looked=times, silent=st.booleans(), moves=st.booleans(), failed=times)
hosts = st.dictionaries(st.sampled_from([f"web{n}" for n in range(30)]), views)
pauses = st.floats(1, 30)


@given(hosts, pauses)
def test_a_host_is_looked_at_at_once_where_something_changed_and_nowhere_too_seldom(
    hosts: dict[str, HostView], pause: float
) -> None:
    due = hosts_to_look_at(hosts, pause, NOW)
    assert len(set(due)) == len(due)
    for name, host in hosts.items():
        age = NOW - host.looked
        if host.silent or host.failed > host.looked:
            assert name in due
        elif host.moves:
            assert (name in due) is (age >= pause)
        else:
            assert name in due or age < SLOW[1]
            assert name not in due or age >= SLOW[0]


def test_a_host_that_nothing_is_known_of_is_looked_at() -> None:
    assert hosts_to_look_at({"web1": HostView()}, 30.0, NOW) == ["web1"]


def test_hosts_are_not_looked_at_together_for_ever() -> None:
    paces = [slow_pace(f"web{number}") for number in range(1000)]
    assert SLOW[0] <= min(paces) < SLOW[0] + 0.1
    assert SLOW[1] - 0.1 < max(paces) <= SLOW[1]


@pytest.mark.parametrize("process", Process)
@pytest.mark.parametrize("health", Health)
@pytest.mark.parametrize("own", Health)
def test_an_instance_is_left_alone_only_while_it_runs_and_a_check_would_notice_its_end(
    process: Process, health: Health, own: Health
) -> None:
    ended = process in (Process.STOPPED, Process.FAILED)
    passing = {health, own} in ({Health.PASSING}, {Health.PASSING, Health.NONE})
    assert is_moving(process, health, own) is not (
        ended or (process is Process.RUNNING and passing)
    )


@given(st.floats(0, 600), st.lists(st.floats(0.001, 600), max_size=20))
@example(30.0, [])
@example(0.3, [600.0] * 20)
def test_the_end_of_an_instance_is_seen_soon_however_long_the_others_took(
    takes: float, others: list[float]
) -> None:
    usual = SHORTLY
    for other in others:
        usual = usual_stop(usual, other)
    looked, looks = 0.0, 0
    while looked < takes:
        before, looked = looked, next_look_at_stopping(0.0, looked, usual)
        assert looked > before, "it comes to an end"
        looks += 1
    assert looked - takes <= max(LONGEST, PAUSES[1])
    assert looks <= 30 + takes / PAUSES[1]


def test_where_all_take_the_same_time_little_more_than_one_look_sees_each_end() -> None:
    usual, looks, late = SHORTLY, 0, 0.0
    for _instance in range(100):
        looked = 0.0
        while looked < 0.3:
            looked = next_look_at_stopping(0.0, looked, usual)
            looks += 1
        late += looked - 0.3
        usual = usual_stop(usual, looked)
    assert looks <= 150
    assert late / 100 <= 0.05
