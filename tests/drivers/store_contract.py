# SPDX-License-Identifier: GPL-3.0-or-later
"""What every store must do, against the real thing.

A store's tests derive from `StoreContract` and give it a fixture `make`: a function that returns a
new driver of a service, as another controller has one, over the same store, which is empty at first.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import re
import time
import typing as t
from collections.abc import Callable
from random import Random

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    LeaseHeld,
    LeaseLost,
    StoreError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.release import (
    Member,
    Place,
    Release,
    arrive,
    declared,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.store import (
    StoreDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.releases import (
    JOURNAL,
    Releases,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

fork = multiprocessing.get_context("fork")
Make = Callable[..., StoreDriver]  # takes the service, `shop` if not given


class StoreContract:
    """What every store must do."""

    kills = 10

    @pytest.fixture
    def make(self) -> Make:
        raise NotImplementedError

    def test_looking_at_what_is_not_there(self, make: Make) -> None:
        store = make()
        assert store.load() == {}
        assert store.lease() is None
        assert list(store.timeline("r1")) == []
        assert list(store.commands(0)) == []
        store.release("a")
        with pytest.raises(LeaseLost, match="no run holds it"):
            store.commit("a", 60, {"id": "r1"})

    def test_what_there_is_of_a_service_is_removed_by_the_holder_alone(self, make: Make) -> None:
        store, other = make(), make("web")
        for one, token in ((store, "a"), (other, "b")):
            one.acquire(token, "ann", 60, {})
            one.commit(token, 60, {"id": "r1"}, [{"n": 1}])
            one.post({"word": "abort", "rollout": "r1", "by": "ann"})
        with pytest.raises(LeaseLost):
            make().erase("c")
        store.erase("a")
        assert (make().load(), make().lease()) == ({}, None)
        assert list(make().timeline("r1")) == list(make().commands(0)) == []
        assert other.load() == {"id": "r1"}, "another service's"
        assert len(list(other.timeline("r1"))) == len(other.commands(0)) == 1
        store.release("a")  # leaves nothing, either
        assert make().acquire("c", "bob", 60, {}).token == "c", "a first run may come"

    def test_a_rollout_from_begin_to_finish(self, make: Make) -> None:
        store = make()
        lease = store.acquire("a", "ann@desk pid 1", 60, {"pid": 1})
        assert (lease.token, lease.holder, lease.details) == ("a", "ann@desk pid 1", {"pid": 1})
        assert lease.until - lease.since == 60
        record = {"id": "r1", "phase": "progressing", "note": "ü \udcff \0"}
        store.commit("a", 60, record, [{"n": 1}, {"n": 2}])
        store.commit("a", 60, events=[{"n": 3}])
        for seen in (store, make()):
            assert seen.load() == record
            assert list(seen.timeline("r1")) == [{"n": 1}, {"n": 2}, {"n": 3}]
        renewed = store.acquire("a", "ann@desk pid 1", 60, {"pid": 2})
        assert (renewed.epoch, renewed.since) == (lease.epoch, lease.since)
        assert renewed.details == {"pid": 2} and renewed.until >= lease.until
        store.release("a")
        assert store.lease() is None
        assert make().acquire("b", "bob", 60, {}).epoch > lease.epoch

    def test_services_know_nothing_of_each_other(self, make: Make) -> None:
        for service in ("shop", "shop-api", "sho"):
            store = make(service)
            store.acquire("a", service, 60, {})
            store.commit("a", 60, {"id": "r1", "of": service}, [{"of": service}])
            store.post({"word": "pause", "by": service})
        for service in ("shop", "shop-api", "sho"):
            store = make(service)
            assert store.load()["of"] == service
            assert list(store.timeline("r1")) == [{"of": service}]
            assert [command["by"] for command in store.commands(0)] == [service]

    def test_releases_are_kept_beside_the_services(self, make: Make) -> None:
        make().acquire("a", "ann", 60, {})
        release = declared(Release("2026.47", {"shop": Member("shop", "shop")}), 1.0)
        moved = arrive(release, "shop", Place.MOVING, 2.0)
        releases = Releases(make(JOURNAL), "a", "ann")
        releases.change(lambda known: {release.name: release})
        Releases(make(JOURNAL), "b", "bob").change(lambda known: {release.name: moved})
        assert releases.read() == {"2026.47": moved}
        assert make().load() == {} and make(JOURNAL).lease() is None

    def test_an_epoch_is_above_the_one_asked_for(self, make: Make) -> None:
        """Hosts remember the epochs of a journal that was elsewhere before."""
        above = 10**13
        assert make().acquire("a", "ann", 60, {}, above=above).epoch > above

    def test_epochs_begin_with_the_clock(self, make: Make) -> None:
        """So a store that is made anew outranks the one that was lost."""
        before = int(time.time() * 1000) - 2000  # whole seconds, where a store has no other clock
        assert make().acquire("a", "ann", 60, {}).epoch > before

    def test_who_comes_second_is_told_who_holds_it(self, make: Make) -> None:
        store = make()
        store.acquire("a", "ann@desk pid 7 (ansible-playbook rollout.yml)", 60, {})
        with pytest.raises(LeaseHeld) as caught:
            make().acquire("b", "bob", 60, {})
        form = (
            r"service shop: the lease is held by ann@desk pid 7 \(ansible-playbook rollout\.yml\)"
            r" since "
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ until \d\d:\d\d:\d\dZ \(another \d\d s\); wait"
            r" for its end"
        )
        assert re.fullmatch(form, str(caught.value))
        make().release("b")
        held = make().lease()
        assert held is not None and held.token == "a"

    def test_an_expired_lease_is_taken_over_and_the_late_writer_is_fenced(self, make: Make) -> None:
        store = make()
        first = store.acquire("a", "ann", 0.2, {"pid": 7})
        until(lambda: store.lease() is None)
        # expired, but nobody else's: still ours, and renewed
        store.commit("a", 0.2, {"id": "r1", "by": "ann"})
        until(lambda: store.lease() is None)
        lease = make().acquire("b", "bob", 60, {})
        assert lease.epoch > first.epoch
        previous = lease.details["previous"]
        assert (previous["holder"], previous["details"]) == ("ann", {"pid": 7})
        for late in (store, make()):
            with pytest.raises(LeaseLost, match="held by bob since"):
                late.commit("a", 60, {"id": "r1", "by": "late"}, [{"late": True}])
            late.release("a")
        held = store.lease()
        assert held is not None and held.token == "b"
        assert store.load() == {"id": "r1", "by": "ann"}
        assert list(store.timeline("r1")) == []

    def test_a_lease_that_is_renewed_does_not_expire(self, make: Make) -> None:
        store, other, ttl = make(), make(), 3.0
        store.acquire("a", "ann", ttl, {})
        end = time.monotonic() + 4 / 3 * ttl
        while time.monotonic() < end:
            renewed = time.monotonic()
            store.commit("a", ttl)
            time.sleep(ttl / 6)
            try:
                other.acquire("b", "bob", 60, {})
            except LeaseHeld:
                continue
            assert time.monotonic() - renewed > 0.7 * ttl  # we were held up ourselves
            return

    def test_taking_over_replaces_exactly_the_lease_that_was_looked_at(self, make: Make) -> None:
        store, other = make(), make()
        store.acquire("a", "ann", 60, {})
        seen = other.lease()
        assert seen is not None
        store.commit("a", 60)
        with pytest.raises(LeaseHeld, match="held by ann"):  # it was renewed: somebody lives
            other.take_over(seen, "b", "bob", 60, {})
        now = other.lease()
        assert now is not None
        lease = other.take_over(now, "b", "bob", 60, {})
        assert (lease.token, lease.details["previous"]["holder"]) == ("b", "ann")
        assert lease.epoch > seen.epoch
        with pytest.raises(LeaseHeld, match="held by bob"):
            other.take_over(now, "c", "eve", 60, {})
        with pytest.raises(LeaseLost):
            store.commit("a", 60, {"id": "r1"})

    def test_of_two_that_come_at_once_exactly_one_gets_it(self, make: Make) -> None:
        rounds, barrier, results = 30, fork.Barrier(2, timeout=60), fork.SimpleQueue()

        def contend(name: str) -> None:
            store = make()
            for number in range(rounds):
                barrier.wait()
                try:
                    lease = store.acquire(f"{name}{number}", name, 60, {})
                except LeaseHeld:
                    lease = None
                barrier.wait()
                if lease:
                    results.put((number, lease.epoch))
                    store.release(lease.token)

        children = [fork.Process(target=contend, args=(name,)) for name in ("ann", "bob")]
        for child in children:
            child.start()
        won = sorted(results.get() for _time in range(rounds))
        for child in children:
            child.join(60)
        assert [child.exitcode for child in children] == [0, 0]
        assert [number for number, _epoch in won] == list(range(rounds))
        epochs = [epoch for _number, epoch in won]
        assert epochs == sorted(set(epochs))

    def test_killed_at_any_moment_the_journal_is_whole(self, make: Make, dice: Random) -> None:
        store, epochs = make(), []
        for kill in range(self.kills):
            reader, writer = os.pipe()
            child = fork.Process(target=_commit_for_ever, args=(make, f"run{kill}", writer))
            child.start()
            os.close(writer)
            try:
                assert os.read(reader, 4096)  # it has committed once
                time.sleep(dice.uniform(0, 0.02))
            finally:
                child.kill()
                child.join(20)
            with open(reader, "rb") as acknowledgements:
                rest = acknowledgements.read()
            record = store.load()
            acknowledged = int(rest.split()[-1]) if rest else record["n"]
            assert record["n"] in (acknowledged, acknowledged + 1)
            assert len(record["pad"]) == 20_000
            seen = [event["n"] for event in store.timeline("r1")]
            assert all(after - before in (0, 1) for before, after in itertools.pairwise(seen))
            assert set(seen) >= set(range(1, record["n"] + 1))
            assert seen[-1] in (record["n"], record["n"] + 1)
            epochs.append(record["epoch"])
        assert epochs == sorted(set(epochs))

    def test_the_newest_50_timelines_are_kept(self, make: Make) -> None:
        store = make()
        store.acquire("a", "ann", 60, {})
        for number in range(53):
            store.commit("a", 60, {"id": f"r{number}"}, [{"n": number}])
        store.commit("a", 60, events=[{"n": 53}])
        kept = [number for number in range(53) if store.timeline(f"r{number}")]
        assert kept == list(range(3, 53))
        assert list(store.timeline("r52")) == [{"n": 52}, {"n": 53}]
        assert list(store.timeline("r5")) == [{"n": 5}]  # not that of r50

    @pytest.mark.parametrize("rollout", ["../shop", "", ".hidden", "a/b", None, 7])
    def test_a_rollout_id_that_is_no_name_is_refused_before_anything_is_touched(
        self, make: Make, rollout: t.Any
    ) -> None:
        store = make()
        store.acquire("a", "ann", 60, {})
        with pytest.raises(StoreError, match="cannot be a rollout's id"):
            store.commit("a", 60, {"id": rollout}, [{"n": 1}])
        assert store.load() == {}

    def test_a_long_timeline_is_read_whole(self, make: Make) -> None:
        store = make()
        store.acquire("a", "ann", 60, {})
        for number in range(250):
            store.commit("a", 60, {"id": "r1"} if not number else None, [{"n": number}])
        assert [event["n"] for event in store.timeline("r1")] == list(range(250))

    def test_a_large_record(self, make: Make) -> None:
        """Of the largest service, deployed in place."""
        deployed = {f"shop-{n}": {"host": f"web{n}", "revision": "1"} for n in range(20_000)}
        store = make()
        store.acquire("a", "ann", 60, {})
        store.commit("a", 60, {"id": "r1", "deployed": deployed})
        assert make().load()["deployed"] == deployed

    def test_an_operators_word_needs_no_lease_and_is_read_by_its_number(self, make: Make) -> None:
        store, said = make(), {"rollout": "r1", "by": "ann"}
        # the first that is ever written
        assert store.post({**said, "word": "pause", "why": "ü"}) == 1
        store.acquire("a", "ann", 60, {})
        assert make().post({**said, "word": "resume"}) == 2
        assert list(store.commands(0)) == [
            {**said, "word": "pause", "why": "ü", "number": 1},
            {**said, "word": "resume", "number": 2},
        ]
        assert list(store.commands(1)) == [{**said, "word": "resume", "number": 2}]
        assert list(store.commands(2)) == []
        held = store.lease()
        assert held is not None and held.token == "a"

    def test_a_word_that_lacks_a_field_is_nobodys_and_may_be_shown(self, make: Make) -> None:
        store = make()
        store.post({"word": "pause", "rollout": "r1", "by": "\x1b]0;owned\x07"})
        store.post({})
        assert [(one["rollout"], one["word"], one["by"]) for one in store.commands(0)] == [
            ("r1", "pause", "?]0;owned?"),
            ("", "", "somebody"),
        ]

    def test_a_play_for_many_hosts_asks_once(self, make: Make) -> None:
        store = make()
        asked = {"word": "pause", "request": "r"}
        assert [store.post({**asked, "host": host}) for host in ("web1", "web2")] == [1, 1]
        assert len(store.commands(0)) == 1

    def test_the_last_50_words_are_kept_and_their_numbers_go_on(self, make: Make) -> None:
        store = make()
        assert [store.post({"word": "pause"}) for _time in range(53)] == list(range(1, 54))
        assert [command["number"] for command in store.commands(0)] == list(range(4, 54))

    def test_of_many_that_speak_at_once_each_is_heard(self, make: Make) -> None:
        def speak(name: str) -> None:
            for number in range(10):
                make().post({"word": "pause", "by": f"{name}{number}"})

        children = [fork.Process(target=speak, args=(name,)) for name in ("ann", "bob", "eve")]
        for child in children:
            child.start()
        for child in children:
            child.join(60)
        assert [child.exitcode for child in children] == [0, 0, 0]
        heard = make().commands(0)
        assert [command["number"] for command in heard] == list(range(1, 31))
        assert {command["by"] for command in heard} == {
            f"{name}{number}" for name in ("ann", "bob", "eve") for number in range(10)
        }


def _commit_for_ever(make: Make, token: str, acknowledge: int) -> None:
    """Replace whoever was killed before us and go on where the record says."""
    store = make()
    before = store.lease()
    lease = (
        store.take_over(before, token, token, 60, {})
        if before
        else store.acquire(token, token, 60, {})
    )
    number = store.load().get("n", 0)
    while True:
        number += 1
        store.commit(
            token,
            60,
            {"id": "r1", "n": number, "epoch": lease.epoch, "pad": "x" * 20_000},
            [{"n": number, "pad": "x" * 2_000}],
        )
        os.write(acknowledge, b"%d\n" % number)
