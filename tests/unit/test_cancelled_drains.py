# SPDX-License-Identifier: GPL-3.0-or-later
"""A drain that is not carried out yet is cancelled when too few others serve, or postponed where
too few do at one load balancer.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.instances import (
    drains_to_cancel,
    drains_to_postpone,
    to_idle,
    to_leave,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Instance,
    Rotation,
    State,
)


def make(name: str, state: State, rotation: Rotation, **more: t.Any) -> Instance:
    return Instance(name, "1", 1, state, rotation=rotation, lb_healthy=True, **more)


SERVING = make("s-1", State.READY, Rotation.IN)
RESTORED = make("s-2", State.DRAINING, Rotation.PARTIAL, created=1.0)
DRAINED = make("s-3", State.DRAINING, Rotation.OUT)
NEWER = make("s-4", State.DRAINING, Rotation.IN, created=2.0)
ALL = ("s-2", "s-3", "s-4")


def test_a_drain_is_carried_out_while_enough_others_serve() -> None:
    assert drains_to_cancel([SERVING, RESTORED, NEWER], ALL, 1) == ()


def test_as_many_stay_as_are_missing_the_newest_first() -> None:
    assert drains_to_cancel([SERVING, RESTORED, NEWER], ALL, 2) == ("s-4",)
    assert drains_to_cancel([SERVING, RESTORED, NEWER], ALL, 4) == ("s-4", "s-2")


def test_an_instance_stays_where_another_load_balancer_has_lost_it() -> None:
    lost = replace(RESTORED, lb_healthy=False, served=True)
    assert drains_to_cancel([SERVING, lost], ALL, 2) == ("s-2",)
    assert drains_to_cancel([SERVING, lost, replace(SERVING, id="s-5")], ALL, 2) == ()
    assert drains_to_cancel([replace(lost, state=State.READY), lost], ALL, 1) == ("s-2",)


def test_an_instance_stays_where_a_load_balancer_finds_none_healthy() -> None:
    """The load balancer may be ill; what it finds healthy stays first."""
    ill = replace(NEWER, lb_healthy=False)
    assert drains_to_cancel([ill], ALL, 1) == ("s-4",)
    assert drains_to_cancel([RESTORED, ill], ALL, 1) == ("s-2",)


def test_an_instance_stays_where_others_get_requests_that_they_do_not_answer() -> None:
    """As at a load balancer with an older state: one that starts has the endpoint of another."""
    for state in (State.STARTING, State.NOT_READY):
        assert drains_to_cancel([make("s-5", state, Rotation.PARTIAL), RESTORED], ALL, 1) == (
            "s-2",
        )
    silent = make("s-5", State.UNREACHABLE, Rotation.IN)
    assert drains_to_cancel([silent, RESTORED], ALL, 1) == (), "only we cannot reach its host"
    assert drains_to_cancel([replace(silent, was_unready=True), RESTORED], ALL, 1) == ("s-2",)
    assert drains_to_cancel([replace(silent, draining_since=3.0), RESTORED], ALL, 1) == ("s-2",)


def test_an_instance_that_gets_no_requests_or_was_told_to_stop_does_not_stay() -> None:
    assert drains_to_cancel([SERVING, RESTORED, DRAINED], ("s-3",), 3) == ()


LEAVING = make("s-6", State.DRAINING, Rotation.PARTIAL, created=1.0, draining_since=3.0)
SILENT = make("s-7", State.UNREACHABLE, Rotation.PARTIAL, created=2.0, draining_since=3.0)
BACK = ("s-6", "s-7")


def test_what_drains_stays_at_a_load_balancer_until_enough_others_serve_there() -> None:
    assert drains_to_postpone([LEAVING, SILENT], BACK, 1) == ("s-7",)
    assert drains_to_postpone([LEAVING, SILENT], BACK, 2) == ("s-7", "s-6")
    assert drains_to_postpone([LEAVING, SILENT, SERVING], BACK, 2) == ("s-7",)
    assert drains_to_postpone([LEAVING, SILENT, SERVING], BACK, 1) == ()


def test_what_may_not_be_ready_is_none_of_the_others_at_a_load_balancer() -> None:
    for state in (State.STARTING, State.NOT_READY):
        early = make("s-8", state, Rotation.PARTIAL)
        assert drains_to_postpone([early, LEAVING], BACK, 1) == ("s-6",)
    unseen = make("s-8", State.UNREACHABLE, Rotation.PARTIAL)
    assert drains_to_postpone([unseen, LEAVING], BACK, 1) == ()


def test_what_was_told_to_stop_or_is_not_needed_leaves_a_load_balancer_at_once() -> None:
    assert drains_to_postpone([LEAVING, SILENT], ("s-6",), 2) == ("s-6",)
    assert drains_to_postpone([LEAVING], (), 1) == ()
    assert drains_to_postpone([LEAVING], BACK, 0) == ()


def test_what_is_to_get_no_requests_yet_leaves_a_load_balancer_where_enough_others_serve() -> None:
    new, newer = (replace(SERVING, id=f"s-{at}", generation=2, created=at) for at in (8.0, 9.0))
    assert to_idle([new, newer, SERVING], 2, 1) == ("s-9.0", "s-8.0")
    assert to_idle([new, newer, SERVING], 2, 2) == ("s-8.0",)
    assert to_idle([new, newer, replace(SERVING, draining_since=3.0)], 2, 0) == ("s-8.0",)
    assert to_idle([new, SERVING], 3, 1) == ()


def test_what_no_check_has_passed_leaves_a_balancer_that_another_contradicts() -> None:
    """Only where enough others answer."""
    older, newer = (
        replace(make("s", State.NOT_READY, Rotation.PARTIAL), id=f"s-{at}", created=at)
        for at in (8.0, 9.0)
    )
    names = {older.id, newer.id}
    assert to_leave([newer, older, SERVING], names, 0) == ("s-9.0", "s-8.0")
    assert to_leave([newer, older, SERVING], names, 2) == ("s-8.0",)
    assert to_leave([older], names, 0) == ()
    assert to_leave([newer, older, SERVING], {older.id}, 0) == ("s-8.0",)
