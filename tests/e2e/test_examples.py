# SPDX-License-Identifier: GPL-3.0-or-later
"""The EXAMPLES of every step are run, as they stand, against local processes behind a real
HAProxy.
"""

from __future__ import annotations

import importlib
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces import loader
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.store import (
    StoreDriver,
)
from ansible_collections.progressive.rollout.tests.support.haproxy import HAProxy
from ansible_collections.progressive.rollout.tests.support.playbook import (
    ROLLOUT,
    ROOT,
    STEPS,
    Outcome,
    Playground,
)

# In an order in which each finds what it is about; and whether each task changes something when run
# for the first time.
ORDER = {
    "plan": [False, False, False, False, False],
    "begin": [True, True, True, True, True],
    "control": [True, True],
    "gate": [False],
    "replace": [True],
    "promote": [True],
    "finish": [True],
    "follow": [False, False],
    "watch": [False],
    "health": [False],
    "scale": [True],
    "drain": [False, True],
    "traffic": [False],
    "rollback": [True],
    "info": [False, False, False],
    "report": [True, True, False],
    "judge": [False, False],
    "release": [True, False, True],
}
LONG = {"watch": "1s"}  # what takes long, and what the tests take in its place
# of a play over the hosts that are deployed in place: test_in_place.py runs the role's
WAVES = ("vacate", "settle")


class Shop:
    """What the examples take for granted: the variables `shop_...`."""

    def __init__(self, playground: Playground, balancer: HAProxy) -> None:
        self.playground, self.balancer = playground, balancer
        self.variables = {
            "shop_platform": playground.variables["rollout_platform"],
            "shop_traffic": {
                "driver": "haproxy",
                "socket": balancer.api,
                "backend": "shop",
                "path": str(playground.home / "fences"),
            },
            "shop_store": playground.variables["rollout_store"],
            "shop_reports": str(playground.home / "reports"),
        }
        (playground.home / "reports").mkdir()

    def run(self, steps: t.Iterable[str], *options: str) -> Outcome:
        tasks = [_shortened(task) for step in steps for task in examples(step)]
        play = {"hosts": "localhost", "gather_facts": False, "vars": self.variables, "tasks": tasks}
        outcome = self.playground.run([play], None, *options)
        assert outcome.rc == 0, outcome.output
        return outcome

    def roll_out(self, revision: str) -> None:
        """Another revision, so that there is one to go back from."""
        variables = {
            "rollout_revision": revision,
            "rollout_replicas": 4,
            "rollout_traffic": self.variables["shop_traffic"],
        }
        outcome = self.playground.run(
            ROLLOUT, {**variables, "rollout_health": {"http": "/healthz"}}
        )
        assert outcome.rc == 0, outcome.output

    def traces(self) -> tuple[t.Any, ...]:
        """What a step would leave: instances, servers at the balancer, the journal."""
        return (
            self.playground.records(),
            self.balancer.servers(),
            self.playground.files(),
            self.playground.journal(),
        )


def examples(step: str) -> list[dict[str, t.Any]]:
    module = importlib.import_module(
        f"ansible_collections.progressive.rollout.plugins.modules.{step}"
    )
    return t.cast("list[dict[str, t.Any]]", yaml.safe_load(module.EXAMPLES))


def _shortened(task: dict[str, t.Any]) -> dict[str, t.Any]:
    return {
        name: {**args, **{key: LONG[key] for key in args if key in LONG}}
        if isinstance(args, dict)
        else args
        for name, args in task.items()
    }


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with Playground() as playground:
        balancer = HAProxy()
        yield Shop(playground, balancer)
        balancer.close()


def test_every_step_has_examples_that_are_run() -> None:
    assert sorted([*ORDER, *WAVES, "move", "remove"]) == sorted(STEPS)


@pytest.mark.parametrize("step", WAVES)
def test_the_examples_of_waves_are_what_the_role_does(step: str) -> None:
    """Its arguments are those of the role's task, and of the play's common ones."""
    name = f"progressive.rollout.{step}"
    (example,) = (task[name] for task in examples(step) if name in task)
    (task,) = (
        task[name]
        for task in yaml.safe_load((ROOT / "roles/in_place/tasks/batch.yml").read_text())
        if name in task
    )
    assert set(example) - {"service", "platform", "traffic", "health", "store"} == set(task)


def test_the_example_of_move_is_what_its_store_takes_and_moves(tmp_path: Path) -> None:
    """From files to etcd, which is files here."""
    (task,) = examples("move")
    args = task["progressive.rollout.move"]
    driver = dict(args["to_store"])
    loader.load(StoreDriver, driver.pop("driver"), "to_store").check(driver, "to_store")
    with Playground() as playground:
        assert playground.run().rc == 0
        args |= {"store": playground.variables["rollout_store"]}
        args |= {"to_store": {"driver": "file", "path": str(tmp_path)}}
        play = {"hosts": "localhost", "gather_facts": False, "tasks": [task]}
        outcome = playground.run([play], None)
        assert outcome.rc == 0 and [one.changed for one in outcome.tasks] == [True], outcome.output
        assert list(tmp_path.glob("**/*.json*"))


@pytest.mark.parametrize("step", list(ORDER))
def test_the_examples_do_what_they_say(shop: Shop, step: str) -> None:
    if step == "rollback":
        shop.roll_out("2.4.2")
    outcome = shop.run([step])
    assert [task.changed for task in outcome.tasks] == ORDER[step], outcome.output


def test_check_mode_touches_nothing(shop: Shop) -> None:
    """On the fleet that the examples have left."""
    before = shop.traces()
    # there is no rollout to say anything to, and the release has ended
    left_out = ("control", "release")
    shop.run([step for step in ORDER if step not in left_out], "--check", "--diff")
    assert shop.traces() == before


def test_the_example_of_remove_leaves_nothing_to_remove(shop: Shop) -> None:
    """On the same fleet, which nothing follows."""
    for left in (True, False):
        outcome = shop.run(["remove"])
        assert [task.changed for task in outcome.tasks] == [left], outcome.output
