# SPDX-License-Identifier: GPL-3.0-or-later
"""Any autoscaler, through two commands of your own: `get` prints its bounds, `set` changes them.

They run on the controller, or on one inventory host over a connection of their own, without a
shell. `get` prints JSON, `{"min": 4, "max": 12}`, and to be followed also `"desired"`, the number
of instances that the autoscaler wants. `{min}`, `{max}` and `{service}` are placeholders in the
arguments of `set`, `{service}` in those of `get`. `set` also gets the service and the epoch of the
run's lease as JSON on its standard input, so that it can refuse a late command of an older run.
"""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping

from ..base.errors import AutoscalerError, InputError
from ..inputs import values
from ..inputs.options import Field, Kind, Options, duration
from ..inputs.placeholders import Template
from ..interfaces.autoscaler import AutoscalerDriver, State
from ..interfaces.context import DriverContext
from ..remote import command

_VARIABLE = "rollout_autoscaler"
_GET, _SET = ("service",), ("service", "min", "max")
_LONGEST = 10_000  # characters of an answer


def _sets(given: t.Any, variable: str) -> list[str]:
    words: list[str] = command.argv(_SET).parse(given, variable)
    placeholders = {name for word in words for name in Template(word, variable, _SET).names}
    if missing := [f"{{{name}}}" for name in ("min", "max") if name not in placeholders]:
        raise InputError(
            f"{variable}: has no {' and no '.join(missing)}, so it would always set the same; write"
            ' ["/opt/scaler", "set", "{min}", "{max}"]',
            "PR-112",
        )
    return words


OPTIONS = Options(
    Field("get", command.argv(_GET), "The command that prints the bounds as JSON.", required=True),
    Field(
        "set",
        Kind("list", _sets, elements="str"),
        "The command that sets the bounds, with the placeholders V({min}) and V({max}).",
        required=True,
    ),
    command.HOST,
    Field("answer_within", duration(0.01), "How long each command may take.", default="10s"),
)


class Driver(AutoscalerDriver):
    """Runs the operator's commands."""

    follows = True

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        def program(name: str, placeholders: t.Collection[str]) -> command.Program:
            given = {**options, "command": options[name]}
            return command.Program(
                given, context.transport, _VARIABLE, placeholders, AutoscalerError
            )

        self._get, self._set = program("get", _GET), program("set", _SET)
        self._context, self._service = context, context.service
        self._program = options["get"][0]

    @property
    def name(self) -> str:
        return f"the autoscaler of {self._program}"

    def check(self) -> None:
        try:
            self.read()
        except AutoscalerError as exc:
            raise InputError(f"{_VARIABLE}.get: {exc}", "PR-261") from None

    def read(self) -> State:
        numbers = self._ask()
        return {"min": numbers["min"], "max": numbers["max"]}

    def write(self, before: State, after: State) -> None:
        self._expect(before, "was changed by somebody else meanwhile")
        lease = {"service": self._service, "epoch": self._context.known().epoch}
        ended = self._set.run(self._facts(after), lease)
        if ended.code:
            raise AutoscalerError(ended.text, "PR-260")
        self._expect(after, f"does not show what it was set to; {ended.text}")

    def held(self, state: State, replicas: int) -> State:
        number = min(replicas, state["max"])
        return {"min": number, "max": number}

    def wanted(self, present: int, replicas: int) -> int | None:
        numbers = self._ask()
        return numbers["desired"] if "desired" in numbers else None

    def _expect(self, state: State, otherwise: str) -> None:
        if (state_now := self.read()) != state:
            raise AutoscalerError(
                f"{self.name} {otherwise}: min {state_now['min']}, max {state_now['max']}, not min"
                f" {state['min']}, max {state['max']}",
                "PR-260",
            )

    def _facts(self, state: State) -> dict[str, str]:
        return {"service": self._service, **{name: str(value) for name, value in state.items()}}

    def _ask(self) -> dict[str, int]:
        """Return what `get` prints: numbers, in order."""
        ended = self._get.run({"service": self._service}, {"service": self._service})
        if ended.code:
            raise AutoscalerError(ended.text, "PR-260")
        numbers = _numbers(ended.stdout)
        if numbers is None:
            raise AutoscalerError(
                f'{ended.text}; it has to print JSON like {{"min": 4, "max": 12}}, whole numbers up'
                f" to {values.MOST}, with min not more than max",
                "PR-260",
            )
        return numbers


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= values.MOST


def _numbers(text: str) -> dict[str, int] | None:
    """Return the numbers of an answer; None for any other answer."""
    try:
        answer = json.loads(text) if len(text) <= _LONGEST else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, Mapping):
        return None
    known = {name: answer[name] for name in ("min", "max", "desired") if name in answer}
    if (
        not all(map(_is_count, known.values()))
        or not {"min", "max"} <= set(known)
        or known["min"] > known["max"]
    ):
        return None
    return known
