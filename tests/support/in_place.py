# SPDX-License-Identifier: GPL-3.0-or-later
"""A service that is deployed in place, without ansible-playbook: the role's steps over a real load
balancer and real processes, with the journal in memory.
"""

from __future__ import annotations

import typing as t
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ansible_collections.progressive.rollout.plugins.action import begin, finish, settle, vacate
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import haproxy as agent
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.settings import parse
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.interrupt import (
    Guard,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.step.context import (
    Result,
    StepContext,
    driver_context,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.health.monitor import (
    HealthMonitor,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.options import Options
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.loader import (
    DriverChoice,
    DriverModule,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.store import (
    StoreDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.agents import Answer
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import identity
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.lease import Session
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Record
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.store_retry import (
    StoreRetry,
)
from ansible_collections.progressive.rollout.tests.simulations.world.store import (
    Journal,
    MemoryStore,
)

MOST = 20  # batches


class Hosts:
    """A transport whose hosts are this machine, by their addresses; a balancer is none of them."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self.addresses = addresses
        self.print_line: t.Any = None

    def hosts(self, pattern: str) -> list[str]:
        return [name for name in self.addresses if pattern in ("web", name)] or (
            [pattern] if pattern.startswith("lb") else []
        )

    def address(self, host: str) -> str:
        return self.addresses[host]

    def ask(
        self, name: str, requests: Mapping[str, Mapping[str, t.Any]], _timeout: float
    ) -> dict[str, Answer]:
        assert name == "haproxy"
        return {host: Answer(agent.main(dict(request))) for host, request in requests.items()}

    def apart(self) -> Hosts:
        return self

    def close(self) -> None:
        """Nothing is open."""


class Run(StepContext):
    """One step of a run."""

    def __init__(
        self,
        service: InPlaceService,
        given: Mapping[str, t.Any],
        options: Mapping[str, t.Any],
        check_mode: bool,
    ) -> None:
        self.given, self.options, self.check_mode = given, options, check_mode
        made = {"__new__": lambda _class, _options, context: service.store(context.service)}
        journals = type("Driver", (StoreDriver,), made)
        memory = DriverChoice("memory", DriverModule(journals, Options()), {})
        self.settings = settings = replace(parse(given), store=memory)
        self.facts: Result = {}
        self._parked, self.print_line = False, service.lines.append
        self.transport = t.cast(t.Any, Hosts(service.addresses))
        self.checker = HealthMonitor(settings.checks, self.transport)
        made_with = driver_context(settings, self.transport, self._platform, self.checker.wake)
        self.context = replace(made_with, release=self._ask_release)
        self.guard = Guard(self.checker.wake)
        deadline = settings.rules.progress_deadline
        self.store_retry = StoreRetry(deadline, self.print_line, self.guard.check)
        self.session = Session(
            settings.store.make(self.context),
            settings.service,
            service.identity,
            settings.lease,
            self.store_retry,
        )


class InPlaceService:
    """`shop` on these hosts. `deploy` is what the user's tasks do: it gets a host and a revision,
    and returns why it failed, "" if it did not.
    """

    def __init__(
        self,
        addresses: Mapping[str, str],
        deploy: Callable[[str, str], str],
        **given: t.Any,
    ) -> None:
        self.addresses, self.deploy = addresses, deploy
        self.given = {
            "service": "shop",
            "budget": {"max_unavailable": 1},
            "progress_deadline": "20s",
            **given,
        }
        self.lines: list[str] = []  # what the operator reads
        self.journals: defaultdict[str, Journal] = defaultdict(Journal)
        self.identity = identity.identity(Guard().parent)

    def store(self, service: str) -> MemoryStore:
        return MemoryStore(service, self.journals[service])

    @property
    def journal(self) -> Record:
        """The record as it is."""
        return Session(self.store("shop"), "shop", self.identity, 60).read()

    def step(
        self, step: t.Any, check_mode: bool = False, in_play: bool = True, **given: t.Any
    ) -> Result:
        """One step, as its action plugin runs it; `in_play`: as of the role `in_place`."""
        table = step.ActionModule.options
        play = {"hosts": [*self.addresses], "reached": {}} if in_play and "hosts" in table else {}
        own = {name: given.pop(name) for name in ("results", "restart") if name in given}
        parsed = table.parse({**play, **own}, "rollout_")
        options = {name: value for name, value in parsed.items() if value is not None}
        with Run(self, {**self.given, **given}, options, check_mode) as run:
            result = step.ActionModule.__new__(step.ActionModule).perform(run)
            return t.cast(Result, result)

    def to(self, revision: str, **given: t.Any) -> Sequence[str]:
        """Roll a revision out, to its end; return the hosts in the order of their deployments."""
        asked = {"revision": revision, **given}
        result, deployed = self.step(begin, **asked), list[str]()
        if not result["changed"] and result["rollout"]["phase"] in (None, "finished"):
            return deployed
        for _batch in range(MOST):
            batch = self.step(vacate, **asked)
            if not batch["hosts"]:
                self.step(finish, **asked)
                return deployed
            results = {host: self.deploy(host, batch["revision"]) for host in batch["hosts"]}
            deployed += batch["hosts"]
            self.step(settle, results=results, **asked)
        raise AssertionError(f"more than {MOST} batches")
