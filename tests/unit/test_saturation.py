# SPDX-License-Identifier: GPL-3.0-or-later
"""What instances use of their hosts: how it is read, how it is compared, and what is a leak."""

from __future__ import annotations

import json
import os
import typing as t
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _usage
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis import judging, spec
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import MetricError
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges import saturation
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.saturation import (
    MIB,
    Saturation,
    Seen,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.threshold import (
    AnalysisPhase,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.verdict import Data
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.metric import Question
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    PlatformDriver,
    Usage,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.metrics.saturation import (
    OPTIONS,
    Driver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import (
    kubernetes,
    static,
    swarm,
)
from hypothesis import given
from hypothesis import strategies as st

LOOKS, EVERY = 30, 10.0
TOLERANCE = 1.2
Level = Callable[[float], float]  # of the time since the first look


def seen(host: str = "a", load: float | None = 5.0, warm: bool = True, **found: float) -> Seen:
    return Seen(host, warm, load, found)


def judged(
    new: Mapping[str, Level], stable: Mapping[str, Level], key: str = "memory", looks: int = LOOKS
) -> str:
    """Return what is found at any look; instances are `name@host`."""
    known = Saturation()
    for look in range(looks):
        at = look * EVERY
        sides = [
            {
                name: seen(name.partition("@")[2], **{key: max(0.0, level(at))})
                for name, level in side.items()
            }
            for side in (new, stable)
        ]
        known = known.after(1e9 + at, *sides)
        if (verdict := known.verdict(TOLERANCE)).worse:
            return verdict.sentence
    return ""


def flat(level: float) -> Level:
    return lambda _at: level


def level(level: Level) -> Level:
    return level


# The judge


def test_a_leak_is_found_by_its_slope() -> None:
    leak = judged({"n@a": lambda at: 100 * MIB + at * 0.2 * MIB}, {"s@a": flat(150 * MIB)})
    assert "n@a: resident memory grows by 12.0 MiB a minute, against 0.0 MiB of stable" in leak
    assert "on a" in leak
    for key in ("fds", "threads"):
        assert "grows by 12 a minute" in judged(
            {"n@a": lambda at: 10 + at / 5}, {"s@a": flat(60)}, key
        )


def test_what_grows_on_stable_as_well_is_no_leak_of_the_new_revision() -> None:
    grows = level(lambda at: 100 * MIB + at * MIB)
    assert not judged({"n@a": grows}, {"s@a": grows})


def test_a_cache_that_is_filled_by_and_by_is_no_leak() -> None:
    fills = level(lambda at: 100 * MIB + 60 * MIB * (1 - 0.5 ** (at / 40)))
    assert not judged({"n@a": fills}, {"s@a": flat(160 * MIB)})


def test_a_collector_that_frees_by_and_by_is_no_leak() -> None:
    saw = level(lambda at: 100 * MIB + 30 * MIB * ((at / 70) % 1))
    assert not judged({"n@a": saw}, {"s@a": flat(120 * MIB)})


def test_a_level_is_compared_on_the_same_host_first() -> None:
    stable = {"s@a": flat(400 * MIB), "t@b": flat(100 * MIB)}
    assert not judged({"n@a": flat(400 * MIB)}, stable)
    assert "at least 400.0 MiB, against 100.0 MiB of stable instances on b" in judged(
        {"n@b": flat(400 * MIB)}, stable
    )
    assert not judged({"n@c": flat(400 * MIB)}, stable)  # the largest of all


def test_small_differences_are_nothing() -> None:
    assert not judged({"n@a": flat(3)}, {"s@a": flat(2)}, "fds")
    assert not judged({"n@a": flat(12)}, {"s@a": flat(3)}, "threads")
    assert not judged({"n@a": flat(0.1)}, {"s@a": flat(0.02)}, "cpu")
    assert judged({"n@a": flat(0.9)}, {"s@a": flat(0.1)}, "cpu")


def test_more_requests_may_use_more() -> None:
    def compare(load: float | None, other: float | None) -> Saturation:
        known = Saturation()
        for look in range(LOOKS):
            new, old = seen(load=load, cpu=0.8), seen(load=other, cpu=0.2)
            known = known.after(look * EVERY, {"n": new}, {"s": old})
        return known

    assert compare(10, 10).verdict(TOLERANCE).worse
    assert compare(None, None).verdict(TOLERANCE).worse
    assert not compare(40, 10).verdict(TOLERANCE).worse
    assert compare(2, 10).verdict(TOLERANCE).worse  # fewer requests never lower the bar
    idle = compare(10, 0).verdict(TOLERANCE)
    assert not idle.worse and idle.data is Data.LACKING


def test_restarts_and_lack_of_memory_need_no_warm_up() -> None:
    for key in saturation.EVENTS:
        new, old = seen(warm=False, **{key: 1.0}), seen(**{key: 0.0})
        assert Saturation().after(0, {"n": new}, {"s": old}).verdict(TOLERANCE).worse
        assert not Saturation().after(0, {"n": new}, {"s": new}).verdict(TOLERANCE).worse
        assert not Saturation().after(0, {"n": new}, {}).verdict(TOLERANCE).worse


def test_restarts_of_stable_instances_count_while_they_are_down() -> None:
    stable = {name: seen("b", restarts=2.0) for name in ("s1", "s2")}
    known = Saturation().after(0, {"n": seen(restarts=0.0)}, stable)
    known = known.after(EVERY, {"n": seen(restarts=2.0)}, {})
    assert not known.verdict(TOLERANCE).worse
    known = Saturation.load(json.loads(json.dumps(known.dump())))
    known = known.after(2 * EVERY, {"n": seen(restarts=0.0)}, {"s3": seen("b", restarts=0.0)})
    assert not known.verdict(TOLERANCE).worse
    known = known.after(3 * EVERY, {"n": seen(restarts=1.0)}, stable | {"s3": seen("b")})
    assert not known.verdict(TOLERANCE).worse
    assert known.after(4 * EVERY, {"n": seen(restarts=4.0)}, stable).verdict(TOLERANCE).worse


def test_an_instance_that_is_down_keeps_its_place_among_many_for_a_while() -> None:
    many = {f"s{number:02}": seen("b") for number in range(2 * saturation.MOST)}
    down, rest = {"s00": seen("b", restarts=3.0)}, dict(list(many.items())[1:])
    known = Saturation().after(0, {"n": seen(restarts=0.0)}, many | down)
    known = known.after(EVERY, {"n": seen(restarts=3.0)}, rest)
    assert not known.verdict(TOLERANCE).worse
    for look in range(2, 3 + saturation.PATIENCE):
        known = known.after(look * EVERY, {"n": seen()}, rest)
        assert len(known.stable) == saturation.MOST
    assert "s00" not in known.stable


def test_new_instances_that_are_gone_are_not_judged_but_remembered() -> None:
    known = Saturation().after(0, {"n": seen(restarts=2.0)}, {"s": seen(restarts=0.0)})
    gone = known.after(EVERY, {}, {"s": seen(restarts=0.0)})
    assert not gone.verdict(TOLERANCE).worse
    back = gone.after(2 * EVERY, {"n": seen(restarts=0.0)}, {"s": seen(restarts=0.0)})
    assert back.verdict(TOLERANCE).worse


def test_a_stable_instance_that_the_new_one_replaced_is_not_all_there_is_to_compare_with() -> None:
    known = Saturation().after(0, {}, {"old": seen(memory=1e6), "s": seen("b", memory=1e6)})
    for look in range(1, LOOKS):
        new, stable = {"n": seen(memory=1e6)}, {"s": seen("b", memory=1e6)}
        known = known.after(look * EVERY, new, stable)
    assert known.verdict(TOLERANCE).data is not Data.LACKING


def test_events_alone_are_enough_after_a_while() -> None:
    known = Saturation()
    for look in range(LOOKS):
        assert (known.verdict(TOLERANCE).data is Data.LACKING) == (look < 12)
        known = known.after(look, {"n": seen(restarts=0.0)}, {"s": seen(restarts=0.0)})


def test_what_is_not_warm_is_not_compared() -> None:
    known = Saturation()
    for look in range(LOOKS):
        new = seen(warm=False, memory=1e12)
        known = known.after(look * EVERY, {"n": new}, {"s": seen(memory=1e6)})
    verdict = known.verdict(TOLERANCE)
    assert not verdict.worse and verdict.data is Data.LACKING


def test_nothing_to_compare_with_is_said() -> None:
    known = Saturation()
    for look in range(LOOKS):
        known = known.after(look * EVERY, {"n": seen(memory=1e12)}, {})
    assert known.verdict(TOLERANCE).data is Data.LACKING


levels = st.lists(st.floats(0, 1e12), min_size=1, max_size=120)


@given(levels=levels, key=st.sampled_from([*saturation.LEVELS]))
def test_an_instance_alike_is_never_worse(levels: list[float], key: str) -> None:
    known = Saturation()
    for look, level in enumerate(levels):
        alike = seen(**{key: level})
        known = known.after(look * EVERY, {"n": alike}, {"s": alike})
        assert not known.verdict(TOLERANCE).worse


@given(levels=levels, floor=st.floats(0, 1e9))
def test_one_that_never_has_more_than_stable_is_at_most_a_leak(
    levels: list[float], floor: float
) -> None:
    known = Saturation()
    for look, level in enumerate(levels):
        new, old = seen(cpu=level), seen(cpu=level + floor)
        known = known.after(look * EVERY, {"n": new}, {"s": old})
        assert not known.verdict(TOLERANCE).worse


@given(looks=st.integers(1, 400), slope=st.floats(0.05, 10))
def test_what_is_kept_is_bounded_and_plain(looks: int, slope: float) -> None:
    known = Saturation()
    for look in range(looks):
        side = {f"i{n}": seen(memory=look * slope * MIB) for n in range(saturation.MOST + 5)}
        known = known.after(look * EVERY, side, {})
    assert len(known.new) == saturation.MOST
    assert all(len(track.rows) <= saturation.KEPT for track in known.new.values())
    assert Saturation.load(json.loads(json.dumps(known.dump()))) == known
    older = json.loads(json.dumps(known.dump()))
    for track in (*older["new"].values(), *older["stable"].values()):
        track.pop()
    assert Saturation.load(older).new.keys() == known.new.keys()


@given(looks=st.integers(14, 400), slope=st.floats(0.2, 20))
def test_a_leak_is_found_however_long_it_lasts(looks: int, slope: float) -> None:
    """By the looks that are kept at that time, from 14 looks on."""
    known = Saturation()
    for look in range(looks):
        new, old = seen(memory=look * slope * MIB), seen(memory=1e6)
        known = known.after(look * EVERY, {"n": new}, {"s": old})
    grown = (looks * 2 / 3 - 3) * slope * MIB
    if grown > saturation.GROWTH["memory"]:
        assert known.verdict(TOLERANCE).worse


def noisy(dice: Random, kind: str) -> Level:
    """Return the memory of a good instance."""
    base = dice.uniform(180, 220) * MIB
    period, phase, depth = dice.uniform(20, 90), dice.random(), dice.uniform(10, 60) * MIB
    if kind == "noise":
        return lambda _at: base * dice.lognormvariate(0, 0.08)
    if kind == "collector":
        return lambda at: base + depth * ((at / period + phase) % 1)
    return lambda at: base + depth * (1 - 0.5 ** (at / period)) + dice.gauss(0, MIB)


@pytest.mark.parametrize("kind", ["noise", "collector", "cache"])
def test_good_ones_hardly_ever_alarm(dice: Random, kind: str) -> None:
    """Of 60 analyses with 30 looks each, whatever the seed."""
    alarms = sum(
        bool(
            judged(
                {"n@a": noisy(dice, kind)},
                {"s@a": noisy(dice, kind), "t@a": noisy(dice, kind)},
            )
        )
        for _analysis in range(60)
    )
    assert alarms <= 6  # of 60: one in a million where 1 % is the rate


# The metric


class Platform:
    """Says what it is told."""

    def __init__(self) -> None:
        self.told: dict[str, Usage] = {}

    def usage(self) -> dict[str, Usage]:
        return self.told


def driver(platform: t.Any, **options: t.Any) -> Driver:
    transport = t.cast(t.Any, SimpleNamespace(apart=lambda: None))
    context = DriverContext("shop", transport, platform=lambda _transport: platform)
    return Driver(OPTIONS.parse(options, "metric."), context)


def asked(found: Driver, now: float, counts: bool = True) -> t.Any:
    return found.measure(Question({"generation": 2}, 0.0, now, counts, counts))


def test_what_is_counted_is_of_the_time_in_between() -> None:
    platform = Platform()
    found = driver(platform)
    for now, cpu, restarts in ((10.0, 5.0, 1.0), (20.0, 8.0, 3.0), (30.0, 1.0, 3.0)):
        usage = {"cpu": cpu, "restarts": restarts, "memory": 7.0}
        platform.told = {"n": Usage("a", 2, now + 45, usage), "s": Usage("a", 1, 999, usage)}
        answer = asked(found, now)["usage"]
        if now == 10:
            assert answer["new"]["n"]["found"] == {"memory": 7.0}
            assert not answer["new"]["n"]["warm"] and answer["stable"]["s"]["warm"]
        elif now == 20:
            assert answer["new"]["n"]["found"] == {"memory": 7.0, "cpu": 0.3, "restarts": 2.0}
            assert answer["new"]["n"]["warm"]
        else:
            assert "cpu" not in answer["new"]["n"]["found"]  # it began again


def test_a_restart_is_counted_though_it_was_down_at_a_look() -> None:
    platform = Platform()
    found = driver(platform)
    for now, restarts in ((10.0, 0.0), (20.0, None), (30.0, 1.0), (40.0, 1.0)):
        usage = {"restarts": restarts, "cpu": now}
        told = {} if restarts is None else {"n": Usage("a", 2, 99, t.cast(t.Any, usage))}
        platform.told = {**told, "s": Usage("a", 1, 999, {"restarts": 0.0})}
        answer = asked(found, now)["usage"]["new"]
        if now == 30:
            assert answer["n"]["found"] == {"restarts": 1.0, "cpu": 1.0}
        elif now == 40:
            assert answer["n"]["found"]["restarts"] == 0.0


def test_for_conditions_it_is_a_mean() -> None:
    platform = Platform()
    platform.told = {f"n{i}": Usage("a", 2, 99, {"memory": 10.0 * i}) for i in (1, 2)}
    answer = asked(driver(platform), 1, counts=False)
    assert answer["new"]["memory"] == 15 and answer["stable"]["memory"] is None


@pytest.mark.parametrize("module", [kubernetes, swarm, static])
def test_other_platforms_say_that_they_do_not_know(module: t.Any) -> None:
    assert module.Driver.usage is PlatformDriver.usage
    with pytest.raises(MetricError, match="does not know what instances use") as error:
        asked(driver(module.Driver.__new__(module.Driver)), 1)
    assert error.value.id == "PR-429"


def test_a_judge_gets_what_the_metric_measures() -> None:
    (metric,) = spec.parse(
        spec.OPTIONS.parse({"metrics": [{"name": "m", "driver": "saturation"}]}, "gate."),
        "gate",
        (),
    ).metrics
    platform, state = Platform(), t.cast(dict[str, t.Any], {})
    found = driver(platform)
    phases = []
    for look in range(LOOKS):
        leak = {"memory": 1e8 + look * 4 * MIB}
        platform.told = {"n": Usage("a", 2, 99, leak), "s": Usage("a", 1, 99, {"memory": 1e8})}
        measured = judging.judge_result(metric, state, asked(found, look * EVERY))
        state = json.loads(json.dumps(state))
        phases.append(measured.phase)
    assert phases[0] is AnalysisPhase.SUCCESSFUL and phases[-1] is AnalysisPhase.FAILED


# What is read on a host


def test_the_folder_of_a_cgroup() -> None:
    folder = _usage.folder_of("0::/system.slice/shop@1.service\n")
    assert folder == "/sys/fs/cgroup/system.slice/shop@1.service"
    both = "12:cpu:/x\n0::/user.slice/libpod-1.scope/container\n"
    assert _usage.folder_of(both).endswith("/libpod-1.scope/container")
    for text in ("", "0::/\n", "12:cpu:/x\n", "0::/../../etc\n"):
        assert _usage.folder_of(text) == ""


def test_what_a_cgroup_counts(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text(
        "usage_usec 2500000\nuser_usec 1\nnr_throttled 4\nthrottled_usec 500000\n"
    )
    (tmp_path / "memory.events").write_text("low 0\nhigh 3\nmax 4\noom 2\noom_kill 1\n")
    found = _usage.counters(str(tmp_path))
    assert found == {"cpu": 2.5, "throttled": 0.5, "pressure": 7.0, "oom": 1.0}
    (tmp_path / "cpu.stat").write_text("usage_usec lots\n\0\0 \n" * 9)
    (tmp_path / "memory.events").unlink()
    assert _usage.counters(str(tmp_path)) == {}


def test_what_a_cgroup_of_version_1_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the unit alone: controllers that it shares with others have no folder of its own."""
    text = "9:name=systemd:/system.slice/shop@1.service\n1:cpu,cpuacct:/system.slice\n0::/x\n"
    monkeypatch.setattr(_usage, "CGROUPS", str(tmp_path))
    folder = _usage.old_folder_of(text)
    assert folder == f"{tmp_path}/systemd/system.slice/shop@1.service"
    for none in ("", "9:name=systemd:/\n", "9:name=systemd:/../etc\n", "8:cpu:/x\n"):
        assert _usage.old_folder_of(none) == ""
    assert _usage.old_counters(folder) == {}
    files = {
        "cpu/cpu.stat": "nr_periods 5\nnr_throttled 4\nthrottled_time 500000000\n",
        "cpuacct/cpuacct.usage": "2500000000\n",
        "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
        "memory/memory.failcnt": "7\n",
    }
    for name, content in files.items():
        controller, _slash, file = name.partition("/")
        (tmp_path / controller / "system.slice/shop@1.service").mkdir(parents=True, exist_ok=True)
        (tmp_path / controller / "system.slice/shop@1.service" / file).write_text(content)
    assert _usage.old_counters(folder) == {
        "cpu": 2.5,
        "throttled": 0.5,
        "pressure": 7.0,
        "oom": 1.0,
    }


def test_a_living_process_and_one_that_is_gone() -> None:
    found = _usage.of_processes([os.getpid()])
    assert found["memory"] > MIB and found["threads"] >= 1 and found["fds"] >= 3
    assert _usage.of_processes([]) == {} and _usage.of_processes([2**22 + 1]) == {}
    assert _usage.of_cgroup(0) == {}
