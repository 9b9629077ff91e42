# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of the playbooks in a simulated world: the real steps, in the order of the role."""

from __future__ import annotations

import itertools
import os
import secrets
import typing as t
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

from ansible_collections.progressive.rollout.plugins.action import (
    begin,
    control,
    info,
    plan,
    release,
    rollback,
    scale,
)
from ansible_collections.progressive.rollout.plugins.action import replace as replaces
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _journal
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    Parked,
    RolloutError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import remembered
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.settings import parse
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.step_options import (
    CONTINUED,
    DIGEST,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop import stage_run
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.interrupt import (
    GONE,
    Guard,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.step.context import (
    Result,
    StepContext,
    driver_context,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Phase
from ansible_collections.progressive.rollout.plugins.plugin_utils.health import monitor
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import identity
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.lease import Session
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Record
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.store_retry import (
    StoreRetry,
)

from . import drivers
from .machine import Process
from .world import ADDRESSES, HOSTS, World

DRIVERS: Mapping[str, t.Any] = {
    "service": "shop",
    "platform": {"driver": drivers.NAME},
    "traffic": {"driver": drivers.NAME},
    "store": {"driver": drivers.NAME},
    "health": {"http": "/healthz", "interval": "500ms"},
}
_HERE = {"hostname": "controller", "boot_id": "boot", "pid_namespace": "pid:[1]"}


@contextmanager
def inside(world: World, seed: int) -> Iterator[None]:
    """Let the product run on the world's machine."""
    drivers.install()
    numbers = itertools.count(seed)
    before = clock.install(world.machine)
    drivers.worlds.append(world)
    try:
        with (
            mock.patch.object(monitor, "_Worker", drivers.Worker),
            mock.patch.object(stage_run, "evaluate", world.decided.evaluate),
            mock.patch.object(identity, "lives", lambda pid, _ticks: world.machine.lives(pid)),
            mock.patch.object(os, "kill", lambda pid, _number: world.machine.signal(pid)),
            mock.patch.object(identity, "_machine", lambda: dict(_HERE)),
            mock.patch.object(secrets, "token_hex", lambda n=8: f"{next(numbers):0{2 * n}x}"),
        ):
            yield
    finally:
        drivers.worlds.pop()
        clock.install(before)


class SimulatedGuard(Guard):
    """The signals of a simulated process."""

    def __init__(self, process: Process, parent: Process) -> None:
        self.parent, self._process, self._run = parent.pid, process, parent

    def __enter__(self) -> SimulatedGuard:
        return self

    def __exit__(self, *_exc: object) -> None:
        """No handler was set."""

    @property
    def stopped(self) -> str:
        return self._process.interrupted if self._run.alive else GONE


class Transport:
    """Of drivers that need none."""

    print_line: t.Any = None

    def address(self, host: str) -> str:
        return ADDRESSES[host]

    def hosts(self, pattern: str) -> list[str]:
        """Return the hosts of a pattern, which is their names."""
        return [name for name in HOSTS if name in pattern.split(",")]

    def apart(self) -> Transport:
        return self

    def close(self) -> None:
        """Nothing is open."""


class Step(StepContext):
    """One step of a run."""

    def __init__(
        self,
        run: Run,
        given: Mapping[str, t.Any],
        options: Mapping[str, t.Any],
        worker: Process | None = None,
        drivers: bool = True,
    ) -> None:
        """`worker`: a process that the run left behind, in place of its own."""
        self.given, self.options, self.check_mode = given, options, False
        self.settings = settings = parse(given, drivers=drivers)
        self.facts: Result = {}
        self._parked, self.print_line = False, run.say
        self.transport = t.cast(t.Any, Transport())
        self.checker = monitor.HealthMonitor(settings.checks, self.transport)
        made = driver_context(settings, self.transport, self._platform, self.checker.wake)
        self.context = replace(made, release=self._ask_release)
        process = worker or run.process
        process.on_signal = self.checker.wake
        self.guard = SimulatedGuard(process, run.process)
        store = settings.store.make(replace(self.context, transport=self.transport))
        deadline = settings.rules.progress_deadline
        self.store_retry = StoreRetry(deadline, self.print_line, self.guard.check)
        me = run.identity(process)
        self.session = Session(store, settings.service, me, settings.lease, self.store_retry)


class Run:
    """One ansible-playbook, in a process."""

    def __init__(self, world: World, process: Process, machine: str) -> None:
        """`machine`: the controller that it runs on."""
        self.world, self.process, self._machine = world, process, machine
        self._steps = 0
        self.told: list[str] = []  # what the operator reads

    def identity(self, worker: Process) -> identity.Identity:
        """Return the identity of the next step's worker."""
        self._steps += 1
        pid = self.process.pid
        details = {**_HERE, "hostname": self._machine, "pid": pid, "ticks": 1}
        details |= {"worker_pid": worker.pid, "worker_ticks": 1, "run": f"run {pid}"}
        details |= {"request": "", "host": "", "task": ""}
        token = f"{pid} step {self._steps}"
        return identity.Identity(token, f"run {pid}", f"{self.process.name}", details)

    def say(self, line: str) -> None:
        """Show a line to the operator."""
        self.told.append(line)
        self.world.tell(line)

    def step(
        self,
        step: t.Any,
        given: Mapping[str, t.Any],
        kept: Mapping[str, t.Any] | None = None,
        **options: t.Any,
    ) -> Result:
        """One step, as its action plugin runs it; `kept`: what a command continues with."""
        parsed = step.ActionModule.options.parse(options, "rollout_")
        kept = dict(kept or {})
        continues, digest = kept.pop(CONTINUED, ""), kept.pop(DIGEST, "")
        given = remembered.restored(kept, given) if kept else given
        asked = {name: value for name, value in parsed.items() if value is not None}
        plugin = step.ActionModule.__new__(step.ActionModule)
        needed = plugin.needs_platform({**given, **options})
        with Step(self, given, asked, drivers=needed) as context:
            context.restored, context.continues, context.digest = bool(kept), continues, digest
            context.follows = plugin.follows
            try:
                return t.cast(Result, plugin.perform(context))
            except Parked as exc:
                return context.parked(str(exc))

    def rollout(
        self,
        given: Mapping[str, t.Any],
        kept: Mapping[str, t.Any] | None = None,
        **options: t.Any,
    ) -> Result:
        """`rollout.yml`, or `restart.yml`."""
        result = self.step(begin, given, kept, **options)
        if not result["changed"] and result["rollout"]["phase"] in (None, "finished"):
            return result
        try:
            return self.step(replaces, given, kept, through="finish")
        except RolloutError:
            rollout = journal(self.world, given["service"]).open
            if rollout and rollout.phase == Phase.ROLLING_BACK:
                self.step(rollback, given, kept)
            raise

    def rollback(self, given: Mapping[str, t.Any]) -> Result:
        """`rollback.yml`."""
        return self.step(rollback, given)

    def scale(self, given: Mapping[str, t.Any]) -> Result:
        """The step `scale`, in a playbook of its own."""
        return self.step(scale, given)

    def release(self, members: Mapping[str, Mapping[str, t.Any]], command: str = "begin") -> None:
        """`release.yml`: one member after the other, as far as it comes."""
        first = next(iter(members.values()))
        if command != "abort":
            for given in members.values():
                self.step(release, given, command="check")
        self.step(release, first, command=command)
        turn: Mapping[str, t.Any] = {}
        while True:
            turn = self.step(release, first, command="next", turn=turn)["turn"]
            if not turn["member"]:
                break
            failed = False
            try:
                self.rollout({**members[turn["member"]], "wait": 0})
            except RolloutError:
                failed = True
            turn = {**turn, "failed": failed}
        self.step(release, first, command="taken_back" if command == "abort" else "end")

    def look(self, what: str, given: Mapping[str, t.Any]) -> Result:
        """`status.yml` or `plan.yml`."""
        return self.step(info if what == "status" else plan, given, show=True)

    def control(
        self,
        word: str,
        given: Mapping[str, t.Any],
        host: str | None = None,
        force: bool | None = None,
        count: int | None = None,
        **options: t.Any,
    ) -> Result:
        """`control.yml`: where no run obeys, this one continues the rollout."""
        journal = {name: given[name] for name in ("service", "store")}
        sent = self.step(
            control,
            {**journal, **options},
            command=word,
            host=host,
            force=force,
            count=count,
            continues=True,
        )
        if not sent["continues"]:
            return sent
        try:
            return self.rollout(given, kept=sent["settings"])
        except RolloutError:
            if sent["changed"]:
                with suppress(RolloutError):  # why the rollout failed is what to say
                    self.step(control, journal, withdraw=sent["number"])
            raise


def journal(world: World, service: str = "shop") -> Record:
    """Return the record as it is in the world, without a call."""
    text = world.journals[service].texts.get("record")
    return Record.load(service, _journal.record(text, "memory"), "memory")


def lease(world: World) -> SimpleNamespace | None:
    """Return the lease that is held, expired or not."""
    held, _kept = _journal.held(world.texts.get("lease"), "memory", "shop")
    return SimpleNamespace(**held) if held else None
