# SPDX-License-Identifier: GPL-3.0-or-later
"""Which instances have clients of their own, and which part of all clients."""

from __future__ import annotations

import typing as t
from types import SimpleNamespace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.validation import (
    balancers_of,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import Target
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic import _cohorts as cohorts

IN, OUT = Rotation.IN, Rotation.OUT
A, B, C = (Endpoint("127.0.0.1", port) for port in (1, 2, 3))


def test_the_side_that_comes_is_apart_and_stays_so_on_the_way_back() -> None:
    forward = {A: Target(IN, new=False), B: Target(IN, new=True), C: Target(OUT, new=True)}
    assert cohorts.apart(forward, (), ()) == {B, C}
    assert cohorts.apart(forward, {B}, {B, C}) == {B, C}
    back = {A: Target(IN, new=True), B: Target(IN, new=False), C: Target(OUT, new=False)}
    assert cohorts.apart(back, {B}, {B, C}) == {B, C}
    assert cohorts.apart(back, (), {C}) == {A}, "nobody was apart any more"


def test_without_a_side_each_stays_where_it_is() -> None:
    assert cohorts.apart({A: Target(IN), B: Target(OUT)}, {B}, {B}) == {B}
    assert cohorts.apart({A: Target(IN), B: Target(OUT)}, (), ()) == set()


@pytest.mark.parametrize(
    ("new", "old", "share"),
    [(1, 4, 2000), (1, 1, 5000), (256, 1, 9961), (1, 256, 39), (3, 6, 3333)],
)
def test_a_share_is_that_of_the_weights(new: int, old: int, share: int) -> None:
    targets = {A: Target(IN, old), B: Target(IN, new)}
    assert cohorts.share(targets, {B}) == share


def test_a_side_alone_needs_no_share() -> None:
    assert cohorts.share({A: Target(OUT), B: Target(IN)}, {B}) == 0
    assert cohorts.share({A: Target(IN), B: Target(OUT)}, {B}) == 0
    assert cohorts.share({}, {B}) == 0


def test_a_side_alone_has_the_whole_part() -> None:
    assert cohorts.part({A: Target(OUT), B: Target(IN)}, {B}) == cohorts.WHOLE
    assert cohorts.part({A: Target(IN), B: Target(OUT)}, {B}) == 0
    assert cohorts.part({A: Target(IN), B: Target(IN)}, {B}) == 5000
    assert cohorts.part({A: Target(OUT)}, {A}) == cohorts.part({}, {A}) == 0


@pytest.mark.parametrize("share", [1, 40, 100, 2000, 3333, 5000, 9000, 9999])
@pytest.mark.parametrize(("new", "old"), [(1, 1), (2, 10), (10, 2)])
def test_weights_give_the_share(share: int, new: int, old: int) -> None:
    each, other = cohorts.weights(share, new, old)
    assert 1 <= min(each, other) and max(each, other) <= 256
    given = each * new / (each * new + other * old)
    assert abs(given - share / cohorts.WHOLE) < 0.03


def test_a_rollout_of_a_version_without_cohorts_keeps_its_load_balancers() -> None:
    def settings(**options: object) -> t.Any:
        return SimpleNamespace(traffic=SimpleNamespace(name="haproxy", options=options))

    before = balancers_of(settings(backend="shop"))
    assert balancers_of(settings(backend="shop", cohort=None)) == before
    assert balancers_of(settings(backend="shop", cohort={"backend": "shop-new"})) != before
