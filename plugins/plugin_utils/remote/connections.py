# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands on many inventory hosts at once, over their own Ansible connections."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import ipaddress
import json
import math
import os
import queue
import re
import secrets
import shlex
import signal
import socket
import sys
import threading
import time
import typing as t
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

from ansible import constants as C
from ansible import context
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.loader import become_loader, connection_loader, lookup_loader
from ansible.template import Templar
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _bootstrap
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutError, TransportError
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.names import HERE
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.text import clean
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.trace import trace
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import shapes

_LOCAL = ("local", "ansible.builtin.local", "ansible.legacy.local")
HERE_AT_ONCE = 4  # agents in threads of this process; more would only wait for each other
CONTROLLER = ""  # the host name that means "here, in this process"
_KEYWORDS = ("become", "become_exe", "become_flags", "become_method", "become_user", "remote_user")
TELL = 3.0  # seconds after which a host that is waited for is named
LIMIT = 32 << 20  # bytes that a command may print; the timeline of a long rollout is a few MB

_TICK = 0.1  # seconds between two looks at commands under way
_GRACE = 1.0  # s the answer of an agent that used all of its time may still take to arrive
_SILENCES = 2  # questions of ssh that a host may leave unanswered
# What ssh says when it did not get as far as a session, so that the command cannot have run.
_NEVER_RAN = re.compile(
    r"(?:^|ssh: )(ssh: connect to host |kex_exchange_identification: |mux_client_hello_exchange: "
    r"|Connection timed out during banner exchange|Connection (closed|reset) by \S+ port \d+)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Command:
    """An argument vector and what it reads from standard input."""

    argv: Sequence[str]
    stdin: bytes = b""


@dataclass(frozen=True)
class Result:
    """How a command ended, or why the host was not reached (then `unreachable` says so and rc is -1)."""

    rc: int
    stdout: str = ""
    stderr: str = ""
    unreachable: str = ""

    @property
    def summary(self) -> str:
        """Return in a few words how it ended."""
        return self.unreachable or f"ended with {self.rc}"


@dataclass(frozen=True)
class Answer:
    """What an agent answered: a value, or an error (the host's, when `unreachable`)."""

    value: dict[str, t.Any] | None = None
    error: str = ""
    unreachable: bool = False
    took: float = field(default=0.0, compare=False)  # seconds
    # Where the call goes on: what it came to, None while it has not.
    later: Callable[[], Answer | None] | None = field(default=None, compare=False)

    @property
    def summary(self) -> str:
        """Return in a few words how it ended; "" if well."""
        return self.error


_Outcome = t.TypeVar("_Outcome", Answer, Result)


class _Job(t.Generic[_Outcome]):
    """One host's part of a call, in a thread of its own. It has `timeout` seconds; then `lost` makes its outcome."""

    def __init__(
        self, what: str, work: Callable[[], _Outcome], lost: Callable[[str], _Outcome], timeout: float, grace: float = 0.0
    ) -> None:
        self._what = what  # for people
        self._work: Callable[[], _Outcome] = work
        self._lost: Callable[[str], _Outcome] = lost
        self._timeout, self._grace = timeout, grace
        self.outcome: _Outcome | None = None
        self.began = self.took = 0.0  # seconds
        # A daemon: an abandoned one must not keep this process from ending.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ended: queue.SimpleQueue[_Job[_Outcome]]

    def start(self, ended: queue.SimpleQueue[_Job[_Outcome]]) -> None:
        """Begin; at its end it is put into `ended`."""
        self.began, self._ended = time.monotonic(), ended
        self._thread.start()

    def _run(self) -> None:
        with trace(self._what) as call:
            outcome = self._work()
            call.outcome = outcome.summary
        if self.outcome is None:  # it was not given up
            self.took, self.outcome = self.age, outcome
        self._ended.put(self)

    @property
    def age(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.began

    def over(self) -> bool:
        """Whether there is an outcome. One that takes too long, or whose host sends without end, is ended here."""
        if self.outcome is None and self.age > self._timeout + self._grace:
            self._give_up(f"no answer in {self._timeout:g} s")
        elif self.outcome is None and _received(self._thread) > LIMIT:
            self._give_up(f"it answers with more than {LIMIT >> 20} MB")
        return self.outcome is not None

    def _give_up(self, why: str) -> None:
        self.outcome, self.took = self._lost(why), self.age
        self.kill()

    def kill(self) -> None:
        """Kill what it has started, where that can be done from here."""
        _kill_children(self._thread)


@dataclass
class _Link:
    """One host's connection, used by one thread at a time."""

    kind: str  # of connection
    variables: _Variables
    name: str  # ansible_host, or the host's own name
    python: Sequence[str]
    local: bool
    becomes: bool  # somebody else
    connection: t.Any = None  # made when the first command needs it
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, command: Command) -> Result:
        """Run a command; once more when the connection failed before the command can have started."""
        with self.lock:
            for attempt in (1, 2):
                connected = False
                try:
                    if not self.connection.connected:
                        self.connection._connect()
                    connected = True
                    result = self._exec(command)
                    if result.rc < 0:  # killed, because it took too long
                        self._reset()
                    return result
                except AnsibleConnectionFailure as exc:
                    self._reset()
                    if attempt == 2 or (connected and not _NEVER_RAN.search(str(exc))):
                        return Result(-1, unreachable=clean(_why(exc)))
                except Exception as exc:  # a wrong password, no such ssh program, ...: nothing ran
                    hint = "; check ansible_become_password" if self.connection.become and "password" in str(exc) else ""
                    return Result(-1, unreachable=clean(exc) + hint)
        raise AssertionError

    def _reset(self) -> None:
        """The next command is to connect anew: ssh would go on with a connection it has kept, to a host that is off or was restarted."""
        with contextlib.suppress(Exception):
            self.connection.reset()

    def _exec(self, command: Command) -> Result:
        line = shlex.join(command.argv)
        if not command.stdin:
            line += " </dev/null"  # with nothing to send, ssh would leave the command's input open
        become = self.connection.become
        if become:
            line = become.build_become_command(line, self.connection._shell)
        rc, stdout, stderr = self.connection.exec_command(line, in_data=command.stdin or None, sudoable=bool(become))
        return Result(rc, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"))


class Transport:
    """Runs commands on hosts.

    In an action plugin::

        transport = Transport.from_action(self, task_vars)
        answers = transport.ask("ping", {host: {} for host in transport.hosts("web")}, timeout=10)

    Settings come from each host's own variables; become, remote user and passwords not set there come from the
    task's keywords and the command line, as for a task delegated to the host. No thread loads a plugin or reads variables.
    """

    def __init__(
        self,
        task_vars: Mapping[str, t.Any],
        play_context: t.Any,
        loader: t.Any,
        keywords: Mapping[str, t.Any] | None = None,
        forks: int = 50,
    ) -> None:
        self._vars = task_vars
        self._context = play_context
        self._loader = loader
        self._forks = forks
        self._keywords = {key: value for key, value in (keywords or {}).items() if key in _KEYWORDS}
        self._keywords |= {"timeout": play_context.timeout}
        self._keywords |= {"password": play_context.password} if play_context.password else {}
        self._keywords |= {"become_pass": play_context.become_pass} if play_context.become_pass else {}
        self._links: dict[str, _Link] = {}
        self._addresses: dict[str, str] = {}
        self._opening = threading.RLock()
        self._at_work: set[_Job[t.Any]] = set()
        self._apart: list[Transport] = []  # made from this one
        self.say: Callable[[str], None] = lambda line: None  # where hosts are named that are waited for
        self._named: set[str] = set()  # of those

    @classmethod
    def from_action(cls, action: t.Any, task_vars: Mapping[str, t.Any]) -> Transport:
        """The transport of an action plugin's task."""
        keywords = {key: getattr(action._task, key, None) for key in _KEYWORDS}
        forks = max(50, int(task_vars.get("ansible_forks") or 0))
        return cls(task_vars, action._play_context, action._loader, keywords, forks)

    def apart(self) -> Transport:
        """One like this with connections of its own: what takes long there keeps nobody waiting here."""
        other = copy.copy(self)  # with the same lock: plugins are loaded by one thread at a time
        other._links, other._at_work, other._apart, other._named = {}, set(), [], set()
        self._apart.append(other)
        return other

    def hosts(self, pattern: str) -> list[str]:
        """The inventory hosts of a pattern, in inventory order; empty when there are none."""
        if not pattern:
            return []
        lookup = lookup_loader.get("inventory_hostnames", loader=self._loader, templar=None)
        found = {_plain(name) for name in lookup.run([pattern], self._vars)}
        known = [_plain(name) for name in self._vars["groups"]["all"]]
        return [name for name in known if name in found] + sorted(found.difference(known))  # last: the implicit localhost

    def left_out(self, hosts: Sequence[str]) -> list[str]:
        """Those of the hosts that `--limit` leaves out of this run."""
        limit = self._vars.get("ansible_limit")
        within = set(self.hosts(_plain(limit))) if limit else set(hosts)
        return [host for host in hosts if host not in within]

    def variable(self, host: str, name: str) -> t.Any:
        """What a host's variable says; None if it has none of that name."""
        try:
            return _Variables(self._raw(host), self._loader).get(name)
        except AnsibleError as exc:
            raise TransportError(f"{host}: {name}: {_line(exc)}") from None

    def address(self, host: str) -> str:
        """The IP address the host is known by: its `ansible_host`, or 127.0.0.1 with a local connection."""
        if host not in self._addresses:
            link = self._link(host, connect=False)
            self._addresses[host] = _address(host, link.name, link.local)
        return self._addresses[host]

    def run(self, commands: Mapping[str, Command], timeout: float) -> dict[str, Result]:
        """Run one command on each of the hosts, at the same time; every host is in the answer.

        `timeout` is of each host, in seconds, from when its command starts. A command that takes longer is
        killed where that can be done from here, and its host reported as unreachable.
        """
        results: dict[str, Result] = {}
        jobs: dict[str, _Job[Result]] = {}
        for host, command in commands.items():
            try:
                work = functools.partial(self._link(host).run, command)
            except RolloutError as exc:
                results[host] = Result(-1, unreachable=str(exc))
            else:
                jobs[host] = _Job(
                    f"{host or 'controller'}: {command.argv[0]}", work, functools.partial(self._lost, host), timeout
                )
        self._at_once(jobs, self._forks, {})
        results |= {host: job.outcome for host, job in jobs.items() if job.outcome}
        return {host: results[host] for host in commands}

    def ask(
        self, agent: str, requests: Mapping[str, Mapping[str, t.Any]], timeout: float, patience: Mapping[str, float] | None = None
    ) -> dict[str, Answer]:
        """Run `agents/<agent>.py`'s `main(request)` on each of the hosts; every host is in the answer.

        The agent and its request travel through standard input. It has `timeout` seconds, then it is ended.
        Hosts with a local connection and nothing to become are this machine and this user: our own agents, which are
        made for it, run there in threads of this process; others' get a process of their own as everywhere.

        A host with a `patience` is waited for no longer than that many seconds. If it has not answered by then, its answer is
        that of an unreachable host, with `Answer.later` to come back to.
        """
        module = _agent(agent)
        answers: dict[str, Answer] = {}
        here: dict[str, _Job[Answer]] = {}
        there: dict[str, _Job[Answer]] = {}
        for host, request in requests.items():
            plain = _json(request)
            lost = functools.partial(self._unanswered, host)
            what = f"{host or 'controller'}: {agent} {plain.get('op', '')}".rstrip()
            try:
                if host == CONTROLLER or ("." not in agent and self._is_here(host)):
                    here[host] = _Job(what, functools.partial(_here, module, plain), lost, timeout)
                    continue
                work = functools.partial(_there, self._link(host), module, plain, timeout, host)
                there[host] = _Job(what, work, lost, timeout, _GRACE)
            except RolloutError as exc:
                answers[host] = Answer(error=str(exc), unreachable=True)
        self._at_once(here, HERE_AT_ONCE, patience or {})
        self._at_once(there, self._forks, patience or {})
        for host, job in (here | there).items():
            answers[host] = replace(job.outcome, took=job.took) if job.outcome else _not_yet(job)
        return {host: answers[host] for host in requests}

    def abandon(self) -> None:
        """Kill the commands under way, where that can be done from here; called by another thread than the one they keep."""
        for job in list(self._at_work):
            job.kill()

    def close(self) -> None:
        """Close the connections (those ssh keeps open for itself end by its own ControlPersist)."""
        self.abandon()
        for link in self._links.values():
            with contextlib.suppress(Exception):  # also where there is none
                link.connection.close()
        self._links.clear()
        for other in self._apart:
            other.close()

    def _lost(self, host: str, why: str) -> Result:
        """The outcome of a command that was given up."""
        self._links.pop(host, None)  # its thread may keep it for ever: the next command gets a new one
        return Result(-1, unreachable=why)

    def _unanswered(self, host: str, why: str) -> Answer:
        return Answer(error=self._lost(host, why).unreachable, unreachable=True)

    def _at_once(self, jobs: Mapping[str, _Job[_Outcome]], forks: int, patience: Mapping[str, float]) -> None:
        """Do the jobs of many hosts at the same time, until each has its outcome or has been waited for long enough."""
        waiting = deque(jobs.items())
        running: dict[_Job[_Outcome], str] = {}
        ended: queue.SimpleQueue[_Job[_Outcome]] = queue.SimpleQueue()
        tick = time.monotonic() + _TICK
        while waiting or running:
            while waiting and len(running) < forks:
                host, job = waiting.popleft()
                running[job] = host
                self._at_work.add(job)
                job.start(ended)
            with contextlib.suppress(queue.Empty):
                job = ended.get(timeout=max(0.0, tick - time.monotonic()))
                self._named.discard(running.pop(job, ""))
            if time.monotonic() >= tick:
                tick = time.monotonic() + _TICK
                self._tell(running)
                running = {
                    job: host for job, host in running.items() if not job.over() and job.age < patience.get(host, math.inf)
                }
        self._at_work.difference_update([job for job in jobs.values() if job.outcome])

    def _tell(self, running: Mapping[_Job[_Outcome], str]) -> None:
        """Name the hosts that are waited for, each once."""
        late = [host for job, host in running.items() if job.age > TELL and host not in self._named]
        if late:
            self._named.update(late)
            self.say(f"waiting for {', '.join(host or 'the controller' for host in late)}: no answer for {TELL:g} s")

    def _link(self, host: str, connect: bool = True) -> _Link:
        """What leads to a host; its connection is made on first use, in this thread. Raises TransportError."""
        with self._opening:
            try:
                if host not in self._links:
                    self._links[host] = self._read(host)
                link = self._links[host]
                if connect and link.connection is None:
                    link.connection = self._connection(host, link)
            except AnsibleError as exc:
                raise TransportError(f"{host}: {_line(exc)}") from None
            return link

    def _is_here(self, host: str) -> bool:
        """Whether a host is this machine and this user."""
        link = self._link(host, connect=False)
        return link.local and not link.becomes

    def _read(self, host: str) -> _Link:
        """What the host's variables say."""
        variables = _Variables(self._raw(host), self._loader)
        kind = _plain(
            variables.get("ansible_connection")
            or context.CLIARGS.get("connection")
            or C.config.get_config_value("DEFAULT_TRANSPORT")
        )
        local = kind in _LOCAL
        python = variables.get("ansible_python_interpreter")
        if not python or str(python).startswith("auto"):
            python = sys.executable if local else "python3"
        name = variables.get("ansible_host") or variables.get("ansible_ssh_host") or host
        become = variables.get("ansible_become")
        becomes = bool(self._keywords.get("become") if become is None else boolean(become))
        return _Link(kind, variables, _plain(name), shlex.split(_plain(python)), local, becomes)

    def _connection(self, host: str, link: _Link) -> t.Any:
        variables = link.variables
        play_context = self._context.copy()
        play_context.remote_addr, play_context.port, play_context.remote_user = host, None, self._keywords.get("remote_user")
        for attribute, names in C.MAGIC_VARIABLE_MAPPING.items():
            value = next((variables.get(name) for name in names if name in variables.raw), None)
            if value is not None:
                setattr(play_context, attribute, value)
        play_context.connection = link.kind
        connection = connection_loader.get(link.kind, play_context, new_stdin=None)
        if connection is None:
            raise TransportError(f"{host}: there is no connection plugin {link.kind!r}; check ansible_connection")
        options = connection._resolve_option_variables(variables.raw, variables.templar)
        connection.set_options(task_keys=self._keywords, var_options=options)
        for option, setting in (("pipelining", True), ("use_tty", False)):  # our standard input is the agent, not a terminal
            if connection.has_option(option):
                connection.set_option(option, setting)
        if connection.has_option("ssh_extra_args"):
            connection.set_option("ssh_extra_args", _alive(connection))
        self._configure(connection._shell, "shell", variables)
        connection.set_become_plugin(self._become(host, variables) if link.becomes else None)
        return connection

    def _raw(self, host: str) -> dict[str, t.Any]:
        """The host's variables, not templated: that would take 10 s for 1,000 hosts."""
        if host == CONTROLLER:
            return {"ansible_connection": "local", "ansible_become": False}
        if host not in self._vars["hostvars"]:
            raise TransportError(f"{host}: there is no such host in the inventory")
        return {**self._vars["hostvars"].raw_get(host), "hostvars": self._vars["hostvars"]}

    def _become(self, host: str, variables: _Variables) -> t.Any:
        method = (
            variables.get("ansible_become_method")
            or self._keywords.get("become_method")
            or C.config.get_config_value("DEFAULT_BECOME_METHOD")
        )
        plugin = become_loader.get(method)
        if plugin is None:
            raise TransportError(f"{host}: there is no become plugin {method!r}; check ansible_become_method")
        self._configure(plugin, "become", variables)
        return plugin

    def _configure(self, plugin: t.Any, kind: str, variables: _Variables) -> None:
        names = C.config.get_plugin_vars(kind, plugin._load_name)
        plugin.set_options(
            task_keys=self._keywords, var_options={name: variables.get(name) for name in names if name in variables.raw}
        )


class _Variables:
    """A host's variables, templated one by one as they are asked for."""

    def __init__(self, raw: dict[str, t.Any], loader: t.Any) -> None:
        self.raw = raw
        self.templar = Templar(loader=loader, variables=raw)

    def get(self, name: str) -> t.Any:
        return self.templar.template(self.raw[name]) if name in self.raw else None


def _alive(connection: t.Any) -> str:
    """The extra arguments of ssh, with its own check whether the host is still there: one that was switched off says nothing, and has
    as long as a connection may take to be made. What the user's own arguments say of it comes first, and goes before this."""
    interval = max(1, int(connection.get_option("timeout")) // (_SILENCES + 1))
    given = connection.get_option("ssh_extra_args") or ""
    return f"{given} -o ServerAliveInterval={interval} -o ServerAliveCountMax={_SILENCES}".lstrip()


def _address(host: str, name: str, local: bool) -> str:
    with contextlib.suppress(ValueError):
        if not local or name != host:
            return str(ipaddress.ip_address(name))
    if local:
        return "127.0.0.1"
    try:
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as exc:
        raise TransportError(
            f"{host}: {name!r} does not resolve ({exc.strerror}); set ansible_host of {host} to its IP address"
        ) from None


def _program(module: ModuleType, request: t.Any, timeout: float, mark: str) -> bytes:
    """What the host's Python reads: the serving code, and one call of it, with what the agent imports from its own folder.

    ASCII, whatever the agent is written in.
    """
    folder, _dot, name = module.__name__.rpartition(".")
    libraries = [(item.__name__.rpartition(".")[2], _source(item)) for item in _libraries(module, f"{folder}.")]
    arguments = (_source(module), f"agents/{name}.py", request, timeout, mark, folder, libraries)
    return f"{_source(_bootstrap)}\nserve(*{arguments!a})\n".encode("ascii")


def _libraries(module: ModuleType, folder: str) -> list[ModuleType]:
    """What a module imports from a folder, and what that imports there, which comes first."""
    found: list[ModuleType] = []
    for item in vars(module).values():
        if isinstance(item, ModuleType) and item.__name__.startswith(folder) and item is not _bootstrap:
            found += [one for one in [*_libraries(item, folder), item] if one not in found]
    return found


def _answer(result: Result, host: str, mark: str, python: str, timeout: float) -> Answer:
    """The answer in what a process printed; noise around it is not looked at. A host that answers with nonsense counts as one that
    does not answer: nothing is known of it, either."""
    if result.unreachable:
        return Answer(error=result.unreachable, unreachable=True)
    lines = [line.removeprefix(mark) for line in result.stdout.split("\n") if line.startswith(mark)]
    if len(lines) != 1:
        said = (result.stderr.strip() or result.stdout.strip() or "it said nothing").splitlines()[-1]
        text = f"ansible_python_interpreter {python!r} cannot run our agents (rc {result.rc}: {clean(said)}); set it to a Python >= 3.8"
        return Answer(error=f"{host}: {text}")
    found = _decoded(lines[0])
    if found.get("late") is True:
        return Answer(error=f"no answer in {timeout:g} s", unreachable=True)
    if isinstance(found.get("error"), str):
        return Answer(error=clean(found["error"], 2000))
    if isinstance(found.get("value"), dict):
        return Answer(found["value"])
    return shaped(Answer(found), _Framed)


class _Framed(t.TypedDict):
    """What comes behind the mark."""

    value: dict[str, t.Any]


def _decoded(text: str) -> dict[str, t.Any]:
    """The JSON object, or an empty one where it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _agent(name: str) -> ModuleType:
    collection, _dot, short = name.rpartition(".")
    return importlib.import_module(f"ansible_collections.{collection or HERE}.plugins.plugin_utils.agents.{short}")


def _here(module: ModuleType, request: t.Any) -> Answer:
    try:
        value = module.main(request)
        return Answer(value) if isinstance(value, dict) else Answer(error=f"the agent answered with a {type(value).__name__}")
    except Exception as exc:
        return Answer(error=f"{type(exc).__name__}: {_line(exc)}")


def _there(link: _Link, module: ModuleType, request: t.Any, timeout: float, host: str) -> Answer:
    mark = f"ROLLOUT-{secrets.token_hex(8)}:"
    result = link.run(Command([*link.python, "-I", "-S", "-"], _program(module, request, timeout, mark)))
    return _answer(result, host, mark, shlex.join(link.python), timeout)


def shaped(answer: Answer, kind: t.Any) -> Answer:
    """The answer, if its value is of this kind (see `shapes.py`). A host that answers with anything else counts as one that does not
    answer: nothing is known of it, either."""
    if answer.value is None:
        return answer
    try:
        return replace(answer, value=shapes.read(kind, answer.value, "answer"))
    except shapes.Misshapen as exc:
        why = f"its answer is not that of our agent ({clean(exc)}); see what ansible_python_interpreter runs there"
        return replace(answer, value=None, error=why, unreachable=True)


def _not_yet(job: _Job[Answer]) -> Answer:
    """The answer of a host that is waited for no longer, and may answer yet."""

    def later() -> Answer | None:
        return replace(job.outcome, took=job.took) if job.over() and job.outcome else None

    return Answer(error=f"no answer in {job.age:.0f} s", unreachable=True, took=job.age, later=later)


@functools.cache
def _source(module: ModuleType) -> str:
    return Path(str(module.__file__)).read_text(encoding="utf-8")  # get_source() of Ansible's own loader gives bytes


def _json(request: Mapping[str, t.Any]) -> t.Any:
    """The request as plain data: without Ansible's tags and lazy containers, and refused when it is anything else."""
    return json.loads(json.dumps(request, allow_nan=False))


def _plain(text: t.Any) -> str:
    """A string without Ansible's tags."""
    return str(text).encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _line(exc: Exception) -> str:
    return " ".join(str(exc).split())


def _why(exc: AnsibleConnectionFailure) -> str:
    """Why a connection failed, in a line; ssh has twenty for a host key that changed."""
    said = _line(exc)
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" not in said:
        return said
    known = re.search(r"Offending .*? key in (\S+)", said)
    return (
        f"its host key is not the one that is known{f' ({known[1]})' if known else ''}; if it was installed anew, remove the old one there, "
        "otherwise find out who answers in its place"
    )


def _received(thread: threading.Thread) -> int:
    """The bytes that a thread has read so far. Linux; elsewhere 0."""
    try:
        with open(f"/proc/self/task/{thread.native_id}/io", "rb") as stream:
            return int(stream.readline().split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _kill_children(thread: threading.Thread) -> None:
    """Kill the processes a thread has started, and theirs. Linux; elsewhere they are left to themselves."""
    children = [f"/proc/self/task/{thread.native_id}/children"]
    pids: list[int] = []
    for path in children:  # grows while we walk: all are found before the first is killed
        with contextlib.suppress(OSError), open(path, encoding="ascii") as stream:
            found = [int(pid) for pid in stream.read().split()]
            pids += found
            children += [f"/proc/{pid}/task/{pid}/children" for pid in found]
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
