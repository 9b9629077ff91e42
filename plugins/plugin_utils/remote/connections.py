# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory hosts: what their variables say, and their connections. The only file that uses
Ansible's private API.
"""

from __future__ import annotations

import contextlib
import copy
import ipaddress
import re
import shlex
import socket
import sys
import threading
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ansible import constants as C
from ansible import context
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.loader import become_loader, connection_loader, lookup_loader
from ansible.template import Templar

from ..base.errors import TransportError
from ..base.text import clean

CONTROLLER = ""  # the host name that means "here, in this process"
# of a task
KEYWORDS = ("become", "become_exe", "become_flags", "become_method", "become_user", "remote_user")

_LOCAL = ("local", "ansible.builtin.local", "ansible.legacy.local")
_SILENCES = 2  # questions of ssh that a host may leave unanswered
# What ssh prints when it did not get as far as a session, so that the command cannot have run.
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
    """How a command ended, or why the host was not reached: then `unreachable` is the reason,
    with the id of its message, and rc is -1.
    """

    rc: int
    stdout: str = ""
    stderr: str = ""
    unreachable: str = ""
    id: str = field(default="PR-200", compare=False)

    @property
    def summary(self) -> str:
        """Return in a few words how it ended."""
        return self.unreachable or f"ended with {self.rc}"


class Variables:
    """A host's variables, templated one by one as they are asked for."""

    def __init__(self, raw: dict[str, t.Any], loader: t.Any) -> None:
        self.raw = raw
        self.templar = Templar(loader=loader, variables=raw)

    def get(self, name: str) -> t.Any:
        return self.templar.template(self.raw[name]) if name in self.raw else None


@dataclass
class Link:
    """One host's connection, used by one thread at a time."""

    kind: str  # of connection
    variables: Variables
    name: str  # ansible_host, or the host's own name
    python: Sequence[str]
    local: bool
    becomes: bool  # another user
    connection: t.Any = None  # made when the first command needs it
    magic: str = ""  # of the code that its Python compiles, once an agent ran there
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, command: Command) -> Result:
        """Run a command; once more when the connection failed before the command can have
        started.
        """
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
                        return _failed(exc)
                except Exception as exc:  # a wrong password, no such ssh program, ...: nothing ran
                    if self.connection.become and "password" in str(exc):
                        return Result(
                            -1,
                            unreachable=f"{clean(exc)}; check ansible_become_password",
                            id="PR-213",
                        )
                    return Result(-1, unreachable=clean(exc))
        raise AssertionError

    def _reset(self) -> None:
        """Connect anew for the next command: ssh would go on with a kept connection, to a host
        that is off or was restarted.
        """
        with contextlib.suppress(Exception):
            self.connection.reset()

    def _exec(self, command: Command) -> Result:
        line = shlex.join(command.argv)
        if not command.stdin:
            line += " </dev/null"  # with nothing to send, ssh would leave the command's input open
        become = self.connection.become
        if become:
            line = become.build_become_command(line, self.connection._shell)
        rc, stdout, stderr = self.connection.exec_command(
            line, in_data=command.stdin or None, sudoable=bool(become)
        )
        return Result(rc, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"))


class Connections:
    """The inventory's hosts. All but `Link.run` is called by one thread at a time."""

    def __init__(
        self,
        task_vars: Mapping[str, t.Any],
        play_context: t.Any,
        loader: t.Any,
        keywords: Mapping[str, t.Any] | None = None,
    ) -> None:
        self._vars = task_vars
        self._context = play_context
        self._loader = loader
        self._keywords = {key: value for key, value in (keywords or {}).items() if key in KEYWORDS}
        self._keywords |= {"timeout": play_context.timeout}
        self._keywords |= {"password": play_context.password} if play_context.password else {}
        self._keywords |= (
            {"become_pass": play_context.become_pass} if play_context.become_pass else {}
        )
        self._links: dict[str, Link] = {}
        self._addresses: dict[str, str] = {}
        self._opening = threading.RLock()

    def apart(self) -> Connections:
        """Return the same hosts, with connections of their own."""
        other = copy.copy(self)  # with the same lock: plugins are loaded by one thread at a time
        other._links = {}
        return other

    # -- the inventory

    def hosts(self, pattern: str) -> list[str]:
        """Return the inventory hosts of a pattern, in inventory order; empty when there are
        none.
        """
        if not pattern:
            return []
        lookup = lookup_loader.get("inventory_hostnames", loader=self._loader, templar=None)
        matching = {_plain(name) for name in lookup.run([pattern], self._vars)}
        known = [_plain(name) for name in self._vars["groups"]["all"]]
        # last: the implicit localhost
        return [name for name in known if name in matching] + sorted(matching.difference(known))

    def left_out(self, hosts: Sequence[str]) -> list[str]:
        """Return those of the hosts that `--limit` leaves out of this run."""
        limit = self._vars.get("ansible_limit")
        within = set(self.hosts(_plain(limit))) if limit else set(hosts)
        return [host for host in hosts if host not in within]

    def variable(self, host: str, name: str) -> t.Any:
        """Return the value of a host's variable; None if it has none of that name."""
        try:
            return Variables(self._raw(host), self._loader).get(name)
        except AnsibleError as exc:
            raise TransportError(f"{host}: {name}: {one_line(exc)}", "PR-209") from None

    def address(self, host: str) -> str:
        """Return the IP address of a host: its `ansible_host`, or 127.0.0.1 with a local
        connection.
        """
        if host not in self._addresses:
            link = self.link(host, connect=False)
            self._addresses[host] = _address(host, link.name, link.local)
        return self._addresses[host]

    def is_here(self, host: str) -> bool:
        """Return True if a host is this machine and this user."""
        link = self.link(host, connect=False)
        return link.local and not link.becomes

    def _raw(self, host: str) -> dict[str, t.Any]:
        """Return a host's variables, not templated: that would take 10 s for 1,000 hosts."""
        if host == CONTROLLER:
            return {"ansible_connection": "local", "ansible_become": False}
        if host not in self._vars["hostvars"]:
            raise TransportError(f"{host}: there is no such host in the inventory", "PR-110")
        return {**self._vars["hostvars"].raw_get(host), "hostvars": self._vars["hostvars"]}

    # -- the connections

    def link(self, host: str, connect: bool = True) -> Link:
        """Return what leads to a host. Its connection is made on first use, in this thread.
        Raises TransportError.
        """
        with self._opening:
            try:
                if host not in self._links:
                    self._links[host] = self._read(host)
                link = self._links[host]
                if connect and link.connection is None:
                    link.connection = self._connection(host, link)
            except AnsibleError as exc:
                raise TransportError(f"{host}: {one_line(exc)}", "PR-209") from None
            return link

    def drop(self, host: str) -> None:
        """Forget a host's connection, which a thread may keep for ever."""
        self._links.pop(host, None)

    def close(self) -> None:
        """Close the connections."""
        for link in self._links.values():
            with contextlib.suppress(Exception):  # also where there is none
                link.connection.close()
        self._links.clear()

    def _read(self, host: str) -> Link:
        """Read what the host's variables say of its connection."""
        variables = Variables(self._raw(host), self._loader)
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
        return Link(kind, variables, _plain(name), shlex.split(_plain(python)), local, becomes)

    def _connection(self, host: str, link: Link) -> t.Any:
        """Make a host's connection as Ansible does for a task."""
        variables = link.variables
        play_context = self._context.copy()
        play_context.remote_addr = host
        play_context.port = None
        play_context.remote_user = self._keywords.get("remote_user")
        for attribute, names in C.MAGIC_VARIABLE_MAPPING.items():
            value = next((variables.get(name) for name in names if name in variables.raw), None)
            if value is not None:
                setattr(play_context, attribute, value)
        play_context.connection = link.kind
        connection = connection_loader.get(link.kind, play_context, new_stdin=None)
        if connection is None:
            raise TransportError(
                f"{host}: there is no connection plugin {link.kind!r}; check ansible_connection",
                "PR-209",
            )
        options = connection._resolve_option_variables(variables.raw, variables.templar)
        connection.set_options(task_keys=self._keywords, var_options=options)
        # standard input is the agent, not a terminal
        for option, setting in (("pipelining", True), ("use_tty", False)):
            if connection.has_option(option):
                connection.set_option(option, setting)
        if connection.has_option("ssh_extra_args"):
            connection.set_option("ssh_extra_args", _alive(connection))
        self._configure(connection._shell, "shell", variables)
        connection.set_become_plugin(self._become(host, variables) if link.becomes else None)
        return connection

    def _become(self, host: str, variables: Variables) -> t.Any:
        method = (
            variables.get("ansible_become_method")
            or self._keywords.get("become_method")
            or C.config.get_config_value("DEFAULT_BECOME_METHOD")
        )
        plugin = become_loader.get(method)
        if plugin is None:
            raise TransportError(
                f"{host}: there is no become plugin {method!r}; check ansible_become_method",
                "PR-209",
            )
        self._configure(plugin, "become", variables)
        return plugin

    def _configure(self, plugin: t.Any, kind: str, variables: Variables) -> None:
        names = C.config.get_plugin_vars(kind, plugin._load_name)
        plugin.set_options(
            task_keys=self._keywords,
            var_options={name: variables.get(name) for name in names if name in variables.raw},
        )


def _alive(connection: t.Any) -> str:
    """Return the extra arguments of ssh, with its own check whether the host is still there.

    A host that was switched off sends nothing; it has as long as a connection may take to be made.
    What the user's own arguments say of this comes first, and goes before it.
    """
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
            f"{host}: {name!r} does not resolve ({exc.strerror}); set ansible_host of {host} to its"
            " IP address",
            "PR-209",
        ) from None


def _failed(exc: AnsibleConnectionFailure) -> Result:
    """Return why a connection failed, in a line; ssh prints twenty for a host key that changed."""
    text = one_line(exc)
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" not in text:
        return Result(-1, unreachable=clean(text))
    known = re.search(r"Offending .*? key in (\S+)", text)
    why = (
        f"its host key is not the known one{f' ({known[1]})' if known else ''}; if the host was"
        " installed anew, remove the old key there, otherwise find out which machine answers"
    )
    return Result(-1, unreachable=clean(why), id="PR-214")


def _plain(text: t.Any) -> str:
    """Return a string without Ansible's tags."""
    return str(text).encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def one_line(exc: Exception) -> str:
    """Return an exception's text on one line."""
    return " ".join(str(exc).split())
