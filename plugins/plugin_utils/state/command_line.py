# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a person sends an operator command for the rollout of this run."""

from __future__ import annotations

import shlex
import typing as t
from collections.abc import Mapping


def operator_command(
    command: str, service: str, arguments: Mapping[str, t.Any], job: bool = False
) -> str:
    """Return what a person types, or launches in AWX, to send a command.

    Args:
        command: As in `commands.COMMANDS`.
        service: Name of the service.
        arguments: The command line's arguments of this run, as Ansible has parsed them. Files of
            variables and inventories are repeated; single variables are not: they may hold secrets.
        job: Whether this run is a job of AWX.
    """
    if job:
        return f"launch the job template of {command}.yml for {service}"
    words = ["ansible-playbook", f"progressive.rollout.{command}"]
    for source in arguments.get("inventory") or ():
        words += ["-i", str(source)]
    for given in arguments.get("extra_vars") or ():
        if str(given).startswith("@"):
            words += ["-e", str(given)]
    return shlex.join([*words, "-e", f"rollout_service={service}"])
