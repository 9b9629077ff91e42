# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of `in_place.yml` in a simulated world: the role's steps, and between them the user's own
tasks on each host of a batch.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ansible_collections.progressive.rollout.plugins.action import begin, finish, settle, vacate
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutError
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop import draining
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.interrupt import (
    GONE,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.step.context import (
    Result,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Process as Sees,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    Labels,
)

from .drivers import Traffic
from .machine import Job
from .runs import Run, Step
from .world import ADDRESSES, HOSTS, IN_PLACE, Host, World

PORT = IN_PLACE
PLATFORM = {"driver": "static", "hosts": ",".join(HOSTS), "port": PORT}
MOST = 20  # batches of a run
UNREACHABLE = "cannot be reached any more"
UNWATCHED = "the process that kept the lease was killed"


class InPlaceRun(Run):
    """One ansible-playbook with the role `in_place`."""

    def rollout(
        self,
        given: Mapping[str, t.Any],
        kept: Mapping[str, t.Any] | None = None,
        **options: t.Any,
    ) -> Result:
        result = self.step(begin, given, kept, hosts=[*HOSTS], reached=self._reached(), **options)
        if not result["changed"] and result["rollout"]["phase"] in (None, "finished"):
            return result
        for _batch in range(MOST):
            batch = self.step(vacate, given, hosts=[*HOSTS], reached=self._reached())
            if batch.get("parked"):
                return batch
            if not batch["hosts"]:
                return self.step(finish, given)
            looked = self.world.looked[self.process.run]
            watch = self._watch(given)
            results = self._deploy(batch["hosts"], batch["revision"], looked)
            settled = self.step(
                settle,
                given,
                hosts=[*HOSTS],
                results=results,
                reached=self._reached(),
                watch=watch,
            )
            if settled.get("parked"):
                return settled
        raise AssertionError(f"more than {MOST} batches")

    def _reached(self) -> dict[str, t.Any]:
        """Return what a task on each host comes to."""
        return {
            name: {"unreachable": True, "msg": "no route to host"} if away(self.world, host) else {}
            for name, host in self.world.hosts.items()
        }

    def _watch(self, given: Mapping[str, t.Any]) -> dict[str, int]:
        """Leave a process behind that keeps the hosts out of rotation, as `vacate` does."""
        process = self.world.machine.process(f"watch {self.process.name}", self.process)

        def work() -> None:
            try:
                with Step(self, given, {"hosts": [*HOSTS]}, process) as step:
                    with suppress(RolloutError):
                        step.session.acquire(step.guard.check)
                        draining.hold_drained(step.loop)
                    if step.guard.stopped == GONE:
                        step.session.release()
            finally:
                process.kill()

        self.world.machine.start(process, work, "main")
        return {"pid": process.pid, "began": 1}

    def _deploy(self, hosts: Sequence[str], revision: str, looked: float) -> dict[str, str]:
        """Run the user's tasks on these hosts, side by side; return why they failed, by host.

        `looked`: when the balancers were last looked at before that. Tasks are kept from nothing
        that is seen later.
        """
        machine = self.world.machine
        tasks: dict[str, Job] = {}
        for name in hosts:
            host = self.world.hosts[name]
            tasks[name] = machine.start(
                self.process,
                lambda host=host: deploy(self.world, host, revision, looked),
                f"task {name}",
            )
        for task in tasks.values():
            task.join()
        for task in tasks.values():
            if isinstance(task.result, BaseException):
                raise task.result
        return {name: task.result for name, task in tasks.items()}


def deploy(world: World, host: Host, revision: str, looked: float) -> str:
    """The user's tasks on a host: the old revision ends, and the new one begins.

    Return why they failed.
    """
    world.tell(f"deploy {revision} on {host.name}")
    try:
        with world.call(f"tasks on {host.name}", TaskFailed):
            return _tasks(world, host, revision, looked)
    except TaskFailed as exc:
        return str(exc)


def _tasks(world: World, host: Host, revision: str, looked: float) -> str:
    if away(world, host):
        return UNREACHABLE
    run = world.machine.current.process.run
    if run in world.unwatched and world.holder != run:
        return UNWATCHED  # they would be kept from nothing
    for instance in host.instances.values():
        if instance.labels.service == "shop" and not instance.gone:
            world.check_stop(instance, Traffic.drain_timeout, looked)
            world.end(instance, Sees.STOPPED)
    world.machine.sleep(world.tasks)
    world.check_vacated(host, run)
    if away(world, host):
        return UNREACHABLE
    world.begin(labels(host.name, revision))
    return ""


class TaskFailed(Exception):
    """A user's task fails."""


def labels(host: str, revision: str) -> Labels:
    """Return the labels of the instance of a host, by the name that the platform gives it."""
    return Labels(f"shop-{host}", "shop", revision, 0, host, Endpoint(ADDRESSES[host], PORT), 0)


def away(world: World, host: Host) -> bool:
    """Return whether a host does not answer."""
    return host.away > world.now
