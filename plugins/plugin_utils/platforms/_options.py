# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of platforms that run instances on hosts; their values are texts with placeholders."""

from __future__ import annotations

import signal
import typing as t
from collections.abc import Mapping

from ..base.errors import InputError
from ..inputs import values
from ..inputs.options import DURATION, PATH, TEXT, Field, Kind, Options, duration, group
from ..inputs.placeholders import BRACES, Template

# options that do not shape an instance
HOST_OPTIONS = ("hosts", "ports", "path", "prepare_timeout", "zone")
PLACEHOLDERS = ("revision", "port", "service", "host", "address", "slot", "instance")
HOOK = 30.0  # seconds that a hook may take at most

# Texts with placeholders ----------------------------------------------------------------------


def fill(text: str, variable: str, known: Mapping[str, str] | None = None) -> str:
    """Fill in the placeholders of `text`; without `known` only check them.

    `{{` and `}}` are braces.
    """
    return Template(text, variable, PLACEHOLDERS).render(known or {})


def fill_known(text: str, known: Mapping[str, str]) -> str:
    """Fill in the placeholders of `text`; return "" if it has others than those known."""
    template = Template(text, "", PLACEHOLDERS)
    return template.render(known) if template.names <= known.keys() else ""


def plain(value: t.Any, variable: str) -> str:
    """Return a text or a whole number.

    Anything else that YAML makes would not be what was written.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InputError(
            f"{variable}: expected a string, got {type(value).__name__}; put it in quotes", "PR-118"
        )
    if "\0" in str(value):
        raise InputError(f"{variable}: a NUL character cannot be passed to a process", "PR-127")
    return str(value)


def template(value: t.Any, variable: str) -> str:
    """Return a text with placeholders."""
    text = plain(value, variable)
    fill(text, variable)
    return text


def directory(value: t.Any, variable: str) -> str:
    """Return an absolute path with placeholders."""
    return values.absolute(template(value, variable), variable)


def words(given: t.Any, variable: str, example: str = '["--verbose"]') -> list[str]:
    """Return a list of texts with placeholders."""
    return [template(word, variable) for word in values.sequence(given, variable, example)]


def command(given: t.Any, variable: str) -> list[str]:
    """Return a program and its arguments, with placeholders."""
    words_of_command = words(given, variable, '["/opt/shop/shop", "--port", "{port}"]')
    if not words_of_command or not words_of_command[0]:
        raise InputError(f"{variable}: its first word, the program, is empty", "PR-125")
    return words_of_command


def environment(given: t.Any, variable: str) -> dict[str, str]:
    """Return environment variables. Their values may be secrets: no message shows one."""
    mapping = values.mapping(given, variable, "a mapping of names to values")
    for name in mapping:
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise InputError(
                f"{variable}: {name!r} cannot be the name of an environment variable", "PR-120"
            )
    env = {name: plain(value, f"{variable}.{name}") for name, value in mapping.items()}
    for name, text in env.items():
        try:
            fill(text, f"{variable}.{name}")
        except InputError:
            names = ", ".join(PLACEHOLDERS)
            raise InputError(
                f"{variable}.{name}: its value has a brace that begins no known placeholder"
                f" ({names}); {BRACES}",
                "PR-112",
            ) from None
    return env


def stop_signal(value: t.Any, variable: str) -> str:
    """Return a signal's name without SIG."""
    name = str(value).upper().removeprefix("SIG")
    if f"SIG{name}" not in signal.Signals.__members__:
        raise InputError(
            f"{variable}: {value!r} is not a signal; write a name like TERM, INT or QUIT", "PR-120"
        )
    return name


# Options --------------------------------------------------------------------------------------

COMMAND = Kind("list", command, elements="str")
SIGNAL = Kind("str", stop_signal)
DIRECTORY = Kind("str", directory, "An absolute path.")
ENVIRONMENT = Kind("dict", environment)
HOOKS = Options(
    Field(
        "before_start",
        COMMAND,
        "Command that runs before an instance is started. The instance fails if it does not exit"
        " with 0.",
    ),
    Field(
        "after_stop",
        COMMAND,
        "Command that runs when an instance is gone. Its errors are in the instance's log.",
    ),
    Field("timeout", duration(0.1, HOOK), "How long each command may take.", default="10s"),
)
OPTIONS = Options(
    Field("hosts", TEXT, "Inventory pattern of the hosts that run instances.", required=True),
    Field(
        "ports",
        Kind("str", values.ports, "A port, or a range (V(8100-8199))."),
        "Ports that instances may listen on. All hosts together need enough for O(replicas) and the"
        " surge. A port that another program or another service uses is passed over.",
        required=True,
    ),
    Field(
        "env",
        ENVIRONMENT,
        "Environment variables. C(SERVICE), C(REVISION), C(INSTANCE), C(SLOT), C(ADDRESS) and"
        " C(PORT) are always set.",
        default={},
        no_log=True,
    ),
    Field("path", PATH, "Directory for records and logs on each host.", default="/var/lib/rollout"),
    Field(
        "stop_timeout",
        DURATION,
        "How long an instance has to stop before it is killed.",
        default="10s",
    ),
    Field(
        "prepare_timeout",
        DURATION,
        "How long a host may take to get what a revision needs.",
        default="10m",
    ),
    Field(
        "zone",
        TEXT,
        "Name of a host variable (V(rack)). Instances are spread over its values first, then over"
        " hosts.",
    ),
    Field(
        "hooks",
        group(HOOKS),
        "Commands on the instance's host, with the instance's environment. They may run a second"
        " time if a run was killed.",
        default={},
    ),
)
