# SPDX-License-Identifier: GPL-3.0-or-later
"""A check is tried on what runs before it judges what is new, and a rollback judges stable
instances by the check that they were promoted with.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Sequence

import pytest
from ansible_collections.progressive.rollout.plugins.action import begin, plan, rollback
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.health import monitor
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.check import (
    HealthCheck,
    Probe,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Capabilities,
    PlatformDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.lease import Session
from ansible_collections.progressive.rollout.tests.support.memory import (
    Service,
    Traffic,
    World,
)

pytestmark = pytest.mark.usefixtures("virtual_time")

# the paths that instances of each revision answer
PATHS = {"1": ("/healthz", "/"), "2": ("/healthz", "/ready"), "3": ("/ready",)}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Every question: the revision, and the path. Instances answer at once."""
    questions: list[tuple[str, str]] = []

    class Worker:
        def __init__(
            self,
            health: HealthCheck,
            _transport: object,
            _forks: int,
            note: Callable[[t.Any, Probe], None],
        ) -> None:
            assert health.check.http
            self.path, self.rise, self.note = health.check.http.path, health.rise, note

        def replace(self, begun: Sequence[t.Any], gone: object) -> None:
            for watched in begun:
                revision = Worker.world.instances[watched.id].labels.revision
                questions.append((revision, self.path))
                passed = self.path in PATHS[revision]
                for _time in range(self.rise):
                    self.note(watched, Probe(passed, "" if passed else "404, expected 200-299"))

        def close(self) -> None:
            """There is no thread."""

        world: World

    monkeypatch.setattr(monitor, "_Worker", Worker)
    kept = Capabilities(host_options=())
    monkeypatch.setattr(PlatformDriver, "capabilities", kept)  # settings are kept
    Worker.world = World(most=4, fewest=3)
    questions.append(Worker)  # type: ignore[arg-type]
    return questions


@pytest.fixture
def shop(asked: list[t.Any]) -> Service:
    """Three instances of revision 1, promoted with /healthz."""
    world = asked.pop().world
    world.fewest = 0
    settings = {"replicas": 3, "failure_limit": 1, "progress_deadline": 4}
    service = Service(world, health=check("/healthz"), **settings)
    service.play(revision="1")
    world.fewest = 3
    asked.clear()
    return service


def check(path: str) -> dict[str, t.Any]:
    return {"http": path, "deadline": "1s"}


@pytest.mark.parametrize("step", [begin, plan])
def test_a_check_that_nothing_passes_is_refused_before_anything_is_touched(
    shop: Service, asked: list[t.Any], step: t.Any
) -> None:
    shop.world.calls.clear()
    with pytest.raises(InputError, match=r"0 of 3 instances of 1 pass GET /nope: 404") as refused:
        shop.step(step, revision="2", health=check("/nope"))
    assert refused.value.id == "PR-133" and "rollout_new_check" in str(refused.value)
    assert shop.journal.open is None and shop.running == {"1": 3}
    assert asked.count(("1", "/nope")) == 3


def test_a_check_that_stable_instances_pass_needs_no_more(shop: Service) -> None:
    shop.play(revision="2")
    shop.play(revision="3", health=check("/ready"))
    assert shop.running == {"3": 3} and shop.world.wrong == []


def test_the_same_check_is_not_tried_again(shop: Service, asked: list[t.Any]) -> None:
    shop.step(begin, revision="2")
    assert asked == [("1", "/healthz")] * 3


def test_a_check_that_only_the_new_revision_answers_is_no_error_for_it(shop: Service) -> None:
    shop.play(revision="3", health=check("/ready"), new_check=True)
    assert shop.running == {"3": 3} and shop.world.wrong == []


def test_not_where_the_load_balancers_ask_all_instances_by_it(
    shop: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Traffic, "shares_check", True)
    with pytest.raises(InputError, match="rollout_traffic asks all instances by it"):
        shop.step(begin, revision="3", health=check("/ready"), new_check=True)


def test_a_rollback_asks_stable_instances_as_they_were_promoted(
    shop: Service, asked: list[t.Any]
) -> None:
    with pytest.raises(RolloutFailed):
        shop.play(revision="2", health=check("/nope"), new_check=True)
    assert shop.running == {"1": 3} and shop.world.wrong == []
    assert ("1", "/nope") in asked  # tried
    assert shop.journal.rollout and shop.journal.rollout.outcome == "rolled_back"


def test_without_the_settings_of_the_stable_revision_a_rollback_asks_by_the_current_check(
    shop: Service, asked: list[t.Any]
) -> None:
    """As in a journal of a version that kept no settings."""
    shop.step(begin, revision="2")
    session = Session(shop.store, "shop", shop.identity, 60)
    session.acquire(lambda: None)
    session.record.settings.clear()
    session.commit()
    session.release()
    asked.clear()
    shop.step(rollback, health=check("/"))
    assert shop.running == {"1": 3} and {path for _revision, path in asked} == {"/"}


def test_the_corrected_command_goes_on_after_an_abort(shop: Service) -> None:
    wrong = {"health": check("/nope"), "new_check": True, "strategy": "canary"}
    shop.step(begin, revision="2", **wrong, steps=[{"set_weight": 20}])
    shop.say("abort")
    with pytest.raises(RolloutFailed, match="aborted"):
        shop.step(begin, revision="2", **wrong, steps=[{"set_weight": 20}])
    assert shop.running == {"1": 3} and shop.journal.open is None
    shop.play(revision="2")
    assert shop.running == {"2": 3}


def test_a_held_rollout_with_another_check_is_told_of_rollback_yml(shop: Service) -> None:
    wrong = {"health": check("/nope"), "new_check": True, "on_failure": "hold"}
    with pytest.raises(RolloutFailed):
        shop.play(revision="2", **wrong)
    with pytest.raises(RolloutFailed, match=r"rollback\.yml") as refused:
        shop.step(begin, revision="2", on_failure="hold")
    assert refused.value.id == "PR-603"
    shop.step(rollback, on_failure="hold")
    assert shop.running == {"1": 3}
