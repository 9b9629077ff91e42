# SPDX-License-Identifier: GPL-3.0-or-later
"""How a person sends an operator command for the rollout of this run."""

from __future__ import annotations

import json
import shlex
import typing as t
from collections.abc import Container, Iterator, Mapping

from ansible import constants

from .commands import COMMANDS

WITH_PLAYBOOK = ("pause", "resume", "promote", "abort", "scale")  # the others are sent by control

# How Ansible reads its files and logs in: its options, and what they are without being given.
ACCESS = {
    "vault_ids": ("--vault-id", None),
    "vault_password_files": ("--vault-password-file", None),
    "ask_vault_pass": ("--ask-vault-pass", "DEFAULT_ASK_VAULT_PASS"),
    "remote_user": ("--user", "DEFAULT_REMOTE_USER"),
    "private_key_file": ("--private-key", "DEFAULT_PRIVATE_KEY_FILE"),
    "connection": ("--connection", "DEFAULT_TRANSPORT"),
    "ask_pass": ("--ask-pass", "DEFAULT_ASK_PASS"),
    "connection_password_file": ("--connection-password-file", "CONNECTION_PASSWORD_FILE"),
    "become": ("--become", "DEFAULT_BECOME"),
    "become_method": ("--become-method", "DEFAULT_BECOME_METHOD"),
    "become_user": ("--become-user", None),
    "become_ask_pass": ("--ask-become-pass", "DEFAULT_BECOME_ASK_PASS"),
    "become_password_file": ("--become-password-file", "BECOME_PASSWORD_FILE"),
}


def operator_command(
    command: str,
    service: str,
    arguments: Mapping[str, t.Any],
    job: bool = False,
    *,
    more: Mapping[str, t.Any] | None = None,
    known: Container[str] = (),
) -> str:
    """Return what a person types, or launches in AWX, to send a command.

    Args:
        command: As in `commands.COMMANDS`.
        service: Name of the service.
        arguments: The command line's arguments of this run, as Ansible has parsed them. Files of
            variables, inventories and options for access are repeated; single variables are not:
            they may hold secrets.
        job: Whether this run is a job of AWX.
        more: Other variables that the command needs, without secrets: those of a play are not
            where another playbook finds them.
        known: Variables that another playbook has anyway, with the same inventories and files.
    """
    playbook = "control" if command in COMMANDS and command not in WITH_PLAYBOOK else command
    if job:
        how = f" with rollout_command={command}" if playbook != command else ""
        return f"launch the job template of {playbook}.yml for {service}{how}"
    words = ["ansible-playbook", f"progressive.rollout.{playbook}", *_access(arguments)]
    for source in arguments.get("inventory") or ():
        words += ["-i", str(source)]
    for variables in arguments.get("extra_vars") or ():
        if str(variables).startswith("@"):
            words += ["-e", str(variables)]
    given = {"rollout_service": service}
    given |= {"rollout_command": command} if playbook != command else {}
    for name, value in {**given, **(more or {})}.items():
        if name in known:
            continue
        written = f"{name}={value}" if isinstance(value, str) else json.dumps({name: value})
        words += ["-e", written]
    return shlex.join(words)


def _access(arguments: Mapping[str, t.Any]) -> Iterator[str]:
    """Yield the options for access that were given."""
    for name, (option, default) in ACCESS.items():
        given = arguments.get(name)
        if not given or (default and given == getattr(constants, default)):
            continue
        for value in given if isinstance(given, list | tuple) else [given]:
            yield from (option,) if value is True else (option, str(value))
