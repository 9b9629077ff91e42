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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from ansible import constants as C
from ansible import context
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.loader import become_loader, connection_loader, lookup_loader
from ansible.template import Templar
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _serve
from ansible_collections.progressive.rollout.plugins.plugin_utils.drivers import HERE
from ansible_collections.progressive.rollout.plugins.plugin_utils.errors import RolloutError, TransportError

_LOCAL = ("local", "ansible.builtin.local", "ansible.legacy.local")
HERE_AT_ONCE = 4  # agents in threads of this process; more would only wait for each other
CONTROLLER = ""  # the host name that means "here, in this process"

_KEYWORDS = ("become", "become_exe", "become_flags", "become_method", "become_user", "remote_user")
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


@dataclass(frozen=True)
class Answer:
    """What an agent answered: a value, or an error (the host's, when `unreachable`)."""

    value: dict[str, t.Any] | None = None
    error: str = ""
    unreachable: bool = False


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
                        return Result(-1, unreachable=_why(exc))
                except Exception as exc:  # a wrong password, no such ssh program, ...: nothing ran
                    hint = "; check ansible_become_password" if self.connection.become and "password" in str(exc) else ""
                    return Result(-1, unreachable=_line(exc) + hint)
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
        self._at_work: set[threading.Thread] = set()  # on a command each

    @classmethod
    def from_action(cls, action: t.Any, task_vars: Mapping[str, t.Any]) -> Transport:
        """The transport of an action plugin's task."""
        keywords = {key: getattr(action._task, key, None) for key in _KEYWORDS}
        forks = max(50, int(task_vars.get("ansible_forks") or 0))
        return cls(task_vars, action._play_context, action._loader, keywords, forks)

    def apart(self) -> Transport:
        """One like this with connections of its own: what takes long there keeps nobody waiting here."""
        other = copy.copy(self)  # with the same lock: plugins are loaded by one thread at a time
        other._links, other._at_work = {}, set()
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
        return self._run(commands, timeout, 0.0)

    def ask(self, agent: str, requests: Mapping[str, Mapping[str, t.Any]], timeout: float) -> dict[str, Answer]:
        """Run `agents/<agent>.py`'s `main(request)` on each of the hosts; every host is in the answer.

        The agent and its request travel through standard input. It has `timeout` seconds, then it is ended.
        Hosts with a local connection and nothing to become are this machine and this user: our own agents, which are
        made for it, run there in threads of this process; others' get a process of their own as everywhere.
        """
        module = _agent(agent)
        answers: dict[str, Answer] = {}
        here: dict[str, Callable[[], Answer]] = {}
        commands: dict[str, Command] = {}
        mark = f"ROLLOUT-{secrets.token_hex(8)}:"
        for host, request in requests.items():
            plain = _json(request)
            if host == CONTROLLER:
                answers[host] = _here(module, plain)
                continue
            try:
                link = self._link(host, connect=False)
                if link.local and not link.becomes and "." not in agent:
                    here[host] = functools.partial(_here, module, plain)
                    continue
                link = self._link(host)
            except RolloutError as exc:
                answers[host] = Answer(error=str(exc), unreachable=True)
            else:
                commands[host] = Command([*link.python, "-I", "-S", "-"], _program(module, plain, timeout, mark))
        if here:
            with ThreadPoolExecutor(min(len(here), HERE_AT_ONCE)) as pool:
                answers |= dict(zip(here, pool.map(lambda call: call(), here.values()), strict=True))
        for host, result in self._run(commands, timeout, _GRACE).items():
            answers[host] = _answer(result, host, mark, shlex.join(commands[host].argv[:-3]), timeout)
        return {host: answers[host] for host in requests}

    def abandon(self) -> None:
        """Kill the commands under way, where that can be done from here; called by another thread than the one they keep."""
        for thread in list(self._at_work):
            _kill_children(thread)

    def close(self) -> None:
        """Close the connections (those ssh keeps open for itself end by its own ControlPersist)."""
        for link in self._links.values():
            with contextlib.suppress(Exception):  # also where there is none
                link.connection.close()
        self._links.clear()

    def _run(self, commands: Mapping[str, Command], timeout: float, grace: float) -> dict[str, Result]:
        results: dict[str, Result] = {}
        jobs: dict[str, Callable[[], Result]] = {}
        for host, command in commands.items():
            try:
                jobs[host] = functools.partial(self._link(host).run, command)
            except RolloutError as exc:
                results[host] = Result(-1, unreachable=str(exc))
        for host, result in self._at_once(jobs, timeout + grace).items():
            if result is None:
                self._links.pop(host, None)  # the thread may keep it for ever: the next command gets a new one
            results[host] = result or Result(-1, unreachable=f"no answer in {timeout:g} s")
        return {host: results[host] for host in commands}

    def _at_once(self, jobs: Mapping[str, Callable[[], Result]], timeout: float) -> dict[str, Result | None]:
        """Do the jobs of many hosts at the same time, as many as `forks`; None for one that took too long."""
        results: dict[str, Result | None] = {}
        waiting = deque(jobs.items())
        done: queue.SimpleQueue[tuple[str, Result]] = queue.SimpleQueue()
        running: dict[str, tuple[threading.Thread, float]] = {}  # in the order of their deadlines
        while waiting or running:
            while waiting and len(running) < self._forks:
                host, job = waiting.popleft()
                # Daemons: an abandoned one must not keep this process from ending.
                thread = threading.Thread(target=lambda h=host, j=job: done.put((h, j())), daemon=True)
                running[host] = (thread, time.monotonic() + timeout)
                self._at_work.add(thread)
                thread.start()
            oldest, (thread, deadline) = next(iter(running.items()))
            try:
                host, result = done.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                _kill_children(thread)
                results[oldest] = None
                del running[oldest]
                self._at_work.discard(thread)
                continue
            if known := running.pop(host, None):  # otherwise the late end of an abandoned one
                results[host] = result
                self._at_work.discard(known[0])
        return results

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
    return f"{_source(_serve)}\nserve(*{arguments!a})\n".encode("ascii")


def _libraries(module: ModuleType, folder: str) -> list[ModuleType]:
    """What a module imports from a folder, and what that imports there, which comes first."""
    found: list[ModuleType] = []
    for item in vars(module).values():
        if isinstance(item, ModuleType) and item.__name__.startswith(folder):
            found += [one for one in [*_libraries(item, folder), item] if one not in found]
    return found


def _answer(result: Result, host: str, mark: str, python: str, timeout: float) -> Answer:
    """The answer in what a process printed; noise around it is not looked at."""
    if result.unreachable:
        return Answer(error=result.unreachable, unreachable=True)
    found = [json.loads(line.removeprefix(mark)) for line in result.stdout.split("\n") if line.startswith(mark)]
    if len(found) != 1:
        said = (result.stderr.strip() or result.stdout.strip() or "it said nothing").splitlines()[-1]
        text = f"ansible_python_interpreter {python!r} cannot run our agents (rc {result.rc}: {said}); set it to a Python >= 3.8"
        return Answer(error=f"{host}: {text}")
    if found[0].get("late"):
        return Answer(error=f"no answer in {timeout:g} s", unreachable=True)
    return Answer(found[0].get("value"), found[0].get("error", ""))


def _agent(name: str) -> ModuleType:
    collection, _dot, short = name.rpartition(".")
    return importlib.import_module(f"ansible_collections.{collection or HERE}.plugins.plugin_utils.agents.{short}")


def _here(module: ModuleType, request: t.Any) -> Answer:
    try:
        return Answer(module.main(request))
    except Exception as exc:
        return Answer(error=f"{type(exc).__name__}: {_line(exc)}")


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
