# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands and agents on many inventory hosts at once, over their own Ansible connections."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Callable, Mapping
from dataclasses import replace

from ..base.errors import RolloutError
from . import agents
from .agents import Answer
from .connections import CONTROLLER, KEYWORDS, Command, Connections, Result
from .pool import Job, Pool, SilentHosts

HERE_AT_ONCE = 4  # agents in threads of this process; more would only wait for each other
_GRACE = 1.0  # s the answer of an agent that used all of its time may still take to arrive


class Transport:
    """Runs commands and agents on hosts.

    In an action plugin::

        transport = Transport.from_action(self, task_vars)
        answers = transport.ask("ping", {host: {} for host in transport.hosts("web")}, timeout=10)

    Settings come from each host's own variables; become, remote user and passwords not set there
    come from the task's keywords and the command line, as for a task delegated to the host. No
    thread loads a plugin or reads variables.
    """

    def __init__(
        self, connections: Connections, forks: int = 50, silent: SilentHosts | None = None
    ) -> None:
        """`silent` names hosts that are waited for; by default in lines of `print_line`."""
        self._connections = connections
        self._forks = forks
        self._apart: list[Transport] = []  # made from this one
        # where hosts are named that are waited for
        self.print_line: Callable[[str], None] = lambda line: None
        # called, in any thread, when a late answer comes
        self.wake: Callable[[], None] = lambda: None
        self._silent = silent or SilentHosts(self._print)
        self._pool = Pool(self._silent, self._wake)
        self.hosts = connections.hosts
        self.left_out = connections.left_out
        self.variable = connections.variable
        self.address = connections.address
        self.is_here = connections.is_here

    def _print(self, line: str) -> None:
        self.print_line(line)

    def _wake(self) -> None:
        self.wake()

    @classmethod
    def from_action(cls, action: t.Any, task_vars: Mapping[str, t.Any]) -> Transport:
        """Return the transport of an action plugin's task."""
        keywords = {key: getattr(action._task, key, None) for key in KEYWORDS}
        connections = Connections(task_vars, action._play_context, action._loader, keywords)
        return cls(connections, max(50, int(task_vars.get("ansible_forks") or 0)))

    def apart(self) -> Transport:
        """Return a transport with connections of its own, so that what takes long there delays
        nothing here.
        """
        other = Transport(self._connections.apart(), self._forks, self._silent)
        self._apart.append(other)
        return other

    def run(self, commands: Mapping[str, Command], timeout: float) -> dict[str, Result]:
        """Run one command on each of the hosts, at the same time; every host is in the answer.

        `timeout` is of each host, in seconds, from when its command starts. A command that takes
        longer is killed where that can be done from here, and its host reported as unreachable.
        """
        results: dict[str, Result] = {}
        jobs: dict[str, Job[Result]] = {}
        for host, command in commands.items():
            try:
                work = functools.partial(self._connections.link(host).run, command)
            except RolloutError as exc:
                results[host] = Result(-1, unreachable=str(exc), id=exc.id)
            else:
                what = f"{host or 'controller'}: {command.argv[0]}"
                jobs[host] = Job(what, work, functools.partial(self._lost, host), timeout)
        self._pool.run(jobs, self._forks)
        results |= {host: job.outcome for host, job in jobs.items() if job.outcome}
        return {host: results[host] for host in commands}

    def ask(
        self,
        agent: str,
        requests: Mapping[str, Mapping[str, t.Any]],
        timeout: float,
        wait_limits: Mapping[str, float] | None = None,
    ) -> dict[str, Answer]:
        """Run `agents/<agent>.py`'s `main(request)` on each of the hosts; every host is in the
        answer.

        The agent and its request travel through standard input. It has `timeout` seconds, then it
        is ended. Hosts with a local connection and nothing to become are this machine and this
        user: the collection's agents, which are made for it, run there in threads of this process;
        others' get a process of their own as everywhere.

        A host in `wait_limits` is waited for no longer than that many seconds. If it has not
        answered by then, its answer is that of an unreachable host, with `Answer.later` to come
        back to. Below 0, it is not waited for.
        """
        module = agents.load(agent)
        answers: dict[str, Answer] = {}
        local: dict[str, Job[Answer]] = {}
        remote: dict[str, Job[Answer]] = {}
        for host, request in requests.items():
            plain = agents.plain(request)
            lost = functools.partial(self._unanswered, host)
            what = f"{host or 'controller'}: {agent} {plain.get('op', '')}".rstrip()
            try:
                if host == CONTROLLER or ("." not in agent and self._connections.is_here(host)):
                    local[host] = Job(
                        what, functools.partial(agents.run_here, module, plain), lost, timeout
                    )
                    continue
                link = self._connections.link(host)
                work = functools.partial(agents.run_there, link, module, plain, timeout, host)
                remote[host] = Job(what, work, lost, timeout, _GRACE)
            except RolloutError as exc:
                answers[host] = Answer(error=str(exc), unreachable=True, id=exc.id)
        self._pool.run(local, HERE_AT_ONCE, wait_limits)
        self._pool.run(remote, self._forks, wait_limits)
        for host, job in (local | remote).items():
            answers[host] = replace(job.outcome, took=job.took) if job.outcome else _not_yet(job)
        return {host: answers[host] for host in requests}

    def abandon(self) -> None:
        """Kill the commands under way, where that can be done from here; another thread than the
        one that waits may call this.
        """
        self._pool.abandon()

    def close(self) -> None:
        """Close the connections (those ssh keeps open for itself end by its own ControlPersist)."""
        self.abandon()
        self._connections.close()
        for other in self._apart:
            other.close()

    def _lost(self, host: str, why: str) -> Result:
        """Return the outcome of a command that was given up."""
        # its thread may keep it for ever: the next command gets another
        self._connections.drop(host)
        return Result(-1, unreachable=why, id="PR-221")

    def _unanswered(self, host: str, why: str) -> Answer:
        return Answer(error=self._lost(host, why).unreachable, unreachable=True, id="PR-221")


def _not_yet(job: Job[Answer]) -> Answer:
    """Return the answer of a host that is waited for no longer, and may answer yet."""

    def later() -> Answer | None:
        return replace(job.outcome, took=job.took) if job.over() and job.outcome else None

    return Answer(
        error=f"no answer in {job.age:.0f} s",
        unreachable=True,
        id="PR-221",
        took=job.age,
        later=later,
    )
