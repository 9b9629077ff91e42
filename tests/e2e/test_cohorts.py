# SPDX-License-Identifier: GPL-3.0-or-later
"""Users who stay in the canary, under load: each changes sides once at most, and no request fails."""

from __future__ import annotations

import http.client
import itertools
import tempfile
import threading
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.tests.drivers.test_haproxy_cohort import (
    RULES,
    SECOND,
)
from ansible_collections.progressive.rollout.tests.support import nginx as lab
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindEnvoy,
    BehindHAProxy,
    BehindNginx,
    Front,
    Place,
    Shop,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

USERS = 240
STEPS = [{"set_weight": 20}, {"pause": {}}, {"set_weight": 50}, {"pause": "1s"}]


class CohortHAProxy(BehindHAProxy):
    """With the second backend, and the rules of the guide."""

    def __init__(self) -> None:
        with tempfile.NamedTemporaryFile("w", prefix="map", delete=False) as file:
            file.write("shop 0\n")
        self.map = Path(file.name)
        super().__init__(SECOND, RULES.replace("{map}", file.name))

    @property
    def traffic(self) -> dict[str, t.Any]:
        cohort = {"backend": "shop-new", "map": str(self.map)}
        return {**super().traffic, "cohort": cohort}

    def serving(self) -> set[Place]:
        second = self.ask("show stat shop-new 4 -1").splitlines()
        column = second[0].split(",").index("addr")
        places = [line.split(",") for line in second[1:] if ",UP," in line]
        apart = [place[column].rpartition(":") for place in places]
        return super().serving() | {(host, int(port)) for host, _colon, port in apart}

    def close(self) -> None:
        super().close()
        self.map.unlink()


class Users:
    """Users with a cookie each, who come again and again; and what each of them has seen."""

    def __init__(self, front: tuple[str, int], threads: int = 6) -> None:
        self.seen: list[list[str]] = [[] for _n in range(USERS)]
        self.rounds = [0] * threads
        self.failed: list[str] = []
        self._front, self._end = front, threading.Event()
        self._threads = [
            threading.Thread(target=self._come, args=(number, range(number, USERS, threads)))
            for number in range(threads)
        ]

    def _come(self, thread: int, users: range) -> None:
        connection = http.client.HTTPConnection(*self._front, timeout=20)
        for user in itertools.cycle(users):
            if self._end.is_set():
                break
            try:
                connection.request("GET", "/", headers={"Cookie": f"user=u{user}"})
                response = connection.getresponse()
                status, text = response.status, response.read().decode()
            except (OSError, http.client.HTTPException) as exc:
                status, text = 0, repr(exc)
                connection.close()
            if status == 200:
                revision = text.split()[0]
                if self.seen[user][-1:] != [revision]:
                    self.seen[user].append(revision)
            else:
                self.failed.append(f"{status} {text[:80]}")
            self.rounds[thread] += user == users[-1]
        connection.close()

    def come_again(self) -> None:
        """Wait until each has come once more from now on: twice, as a round is under way."""
        before = list(self.rounds)
        until(
            lambda: all(now >= was + 2 for now, was in zip(self.rounds, before, strict=True)),
            "every user comes again",
        )

    def at(self, revision: str) -> float:
        """The share of the users whose last answer was of a revision."""
        return sum(seen[-1] == revision for seen in self.seen) / USERS

    def __enter__(self) -> Users:
        for thread in self._threads:
            thread.start()
        self.come_again()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()


class CohortNginx(BehindNginx):
    """As the guide says."""

    def __init__(self) -> None:
        super().__init__(proxy=lab.COHORT_PROXY, more=lab.COHORT_PLACEHOLDER)

    @property
    def traffic(self) -> dict[str, t.Any]:
        return {**super().traffic, "cohort": {"cookie": "user"}}


class CohortEnvoy(BehindEnvoy):
    """As the guide says."""

    @property
    def traffic(self) -> dict[str, t.Any]:
        return {**super().traffic, "cohort": {"cookie": "user"}}

    @property
    def front(self) -> tuple[str, int]:
        return "127.0.0.1", self.listen


FRONTS: dict[str, Callable[[], Front]] = {
    "envoy": CohortEnvoy,
    "haproxy": CohortHAProxy,
    "nginx": CohortNginx,
}


@pytest.fixture(params=sorted(FRONTS))
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    front = FRONTS[request.param]()
    given: dict[str, t.Any] = {
        "rollout_replicas": 4,
        "rollout_health": {"http": "/healthz", "interval": "100ms", "rise": 1},
        "rollout_strategy": "canary",
        "rollout_steps": STEPS,
    }
    shop = Shop(front, env={"START_DELAY": "0.2"}, **given)
    yield shop
    shop.close()
    front.close()


@pytest.mark.long
def test_users_go_forward_once_and_back_at_once(shop: Shop) -> None:
    shop.to("1")
    (front,) = shop.fronts
    with Users(t.cast("t.Any", front).front) as users:
        assert users.at("1") == 1
        run = shop.start(variables={"rollout_revision": "2"})
        _stands_at(shop, users, 0.2)
        seen = [list(revisions) for revisions in users.seen]
        assert {tuple(revisions) for revisions in seen} == {("1",), ("1", "2")}
        assert shop.run("progressive.rollout.abort").rc == 0
        run.wait()
        users.come_again()
        assert [[*revisions, "1"][: len(revisions) + 1] for revisions in seen if revisions[1:]] == [
            revisions for revisions in users.seen if revisions[1:]
        ], "all are back, and nobody else has moved"
        shop.settled("1")
        before = [revisions[-1:] for revisions in users.seen]
        users.seen[:] = before
        run = shop.start(variables={"rollout_revision": "3"})
        _stands_at(shop, users, 0.2)
        assert shop.run("progressive.rollout.promote").rc == 0
        outcome = run.wait()
        assert outcome.rc == 0, outcome.output
        users.come_again()
    assert users.failed == []
    assert {tuple(revisions) for revisions in users.seen} == {("1", "3")}, "each has moved once"
    shop.settled("3")


def _stands_at(shop: Shop, users: Users, share: float) -> None:
    """Wait for the pause after a share; it is that of the users, and the one that is counted."""

    def paused() -> bool:
        rollout = shop.journal()["rollout"]
        return bool(rollout["phase"] == "paused" and rollout["name"] == "step 1")

    until(paused, f"the pause at {share}")
    users.come_again()
    revision = shop.journal()["rollout"]["revision"]
    assert abs(users.at(revision) - share) < 0.1, users.at(revision)
