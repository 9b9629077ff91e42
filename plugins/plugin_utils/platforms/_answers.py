# SPDX-License-Identifier: GPL-3.0-or-later
"""What the agents of platforms answer, and which answers are refused. Pure."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ..base.errors import LeaseLost, PlatformError, RolloutError
from ..base.text import clean
from ..interfaces.platform import Machine
from ..remote.agents import Answer

MEND = "fix the host, or remove it from the inventory"
PROBLEMS = {"hosts": "PR-207", "image": "PR-205", "unit": "PR-208"}  # by option; others: PR-204


class Item(t.TypedDict):
    """An instance as an agent sees it; its age in seconds."""

    id: str
    service: str
    revision: str
    generation: int
    address: str
    port: int
    slot: int
    process: t.Literal["starting", "running", "stopping", "stopped", "failed", "unknown"]
    age: float
    detail: str
    restarts: t.NotRequired[int]  # by a supervisor of the host, as systemd
    restarted: t.NotRequired[float]  # how long ago the first was
    killed: t.NotRequired[bool]  # a stopped one that did not stop in time
    left: t.NotRequired[str]  # what is left alive of a stopped one
    usage: t.NotRequired[dict[str, float]]  # where it was asked for


class Named(t.TypedDict):
    """A slot at which nothing was started, since its instance's name is another program's."""

    slot: int
    why: str


class Found(t.TypedDict):
    """The instances on a host, and the keys of the settings that are kept there."""

    instances: list[Item]
    kept: t.NotRequired[list[str]]
    occupied: t.NotRequired[list[int]]  # ports at which nothing was started: others have them
    named: t.NotRequired[list[Named]]


class Owner(t.TypedDict):
    """The journal that the service's instances on a host belong to."""

    id: str
    place: str


class Problems(t.TypedDict):
    """What is wrong on a host, by setting, and what it has."""

    problems: dict[str, str]
    machine: t.NotRequired[Machine]
    beside: t.NotRequired[list[str]]  # what runs as instances do, and no rollout has started
    journal: t.NotRequired[Owner]
    taken: t.NotRequired[bool]  # whether other programs have every port there


class Stale(t.TypedDict):
    """That a newer lease holder has acted there."""

    stale: str


class Failed(t.TypedDict):
    """Why a host could not do what it was asked."""

    error: str


def refuse_stale(answers: Mapping[str, Answer]) -> None:
    """Raise LeaseLost where a newer lease holder has acted."""
    stale = [
        f"{host}: {answer.value['stale']}"
        for host, answer in answers.items()
        if answer.value and "stale" in answer.value
    ]
    if stale:
        raise LeaseLost("; ".join(stale), "PR-503")


def refuse_silent(what: str, hosts: Sequence[str], answers: Mapping[str, Answer]) -> None:
    """Raise PlatformError with the hosts that did not answer."""
    silent = [host for host in hosts if answers[host].value is None]
    if silent:
        shown = "; ".join(f"{host}: {answers[host].error}" for host in silent)
        # where the agent cannot run, the error itself says what to do
        lost = any(answers[host].id != "PR-210" for host in silent)
        mend, id = (f"; {MEND}", "PR-200") if lost else ("", "PR-210")
        raise PlatformError(f"rollout_platform.hosts: cannot {what} {shown}{mend}", id)


def refuse_problems(
    hosts: Sequence[str], answers: Mapping[str, Answer], wrong: type[RolloutError]
) -> None:
    """Raise `wrong` with all problems that hosts have, each once with its hosts."""
    problems: dict[str, list[str]] = {}
    ids: list[str] = []
    for host in hosts:
        value = answers[host].value or {}
        by_host = value.get("problems", {"hosts": value.get("error", "no answer")})
        for setting, why in by_host.items():
            text = f"rollout_platform.{clean(setting)}: {clean(why, 2000)}"
            problems.setdefault(text, []).append(host)
            ids.append(PROBLEMS.get(setting, "PR-204"))
    if problems:
        shown = [f"{problem} (on {', '.join(where)})" for problem, where in problems.items()]
        raise wrong("; ".join(shown), ids[0])
