# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of action plugins: arguments in, one step, a result out; errors fail the task."""

from __future__ import annotations

import os
import sys
import traceback
import typing as t
from collections.abc import Mapping, Sequence

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ...base import clock
from ...base.errors import InputError, Parked, RolloutError
from ...base.text import printable
from ...base.trace import shown
from ...config import settings
from ...config.step_options import CONTINUED, DIGEST, OF_ROLES, OF_STEPS, RESTORED_SETTINGS
from ...config.variables import COMMON, PREFIX
from ...inputs import values
from ...inputs.options import Options
from ...inputs.yaml_numbers import refuse_odd_numbers
from .context import Result, StepContext
from .output import forgive_readers

display = Display()
LOADED = clock.wall()  # in Ansible's main process, at the first step of a run
# Ansible's main process imports an action plugin before it forks the task's worker.
forgive_readers()


class StepAction(ActionBase):
    """An action plugin that runs one step; subclasses implement it and name its options."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    options: t.ClassVar[Options] = Options()  # of this step alone, besides `COMMON`
    moves: t.ClassVar[bool] = True  # whether it may change the fleet
    waits: t.ClassVar[bool] = True  # whether it waits for a store that is away
    opens: t.ClassVar[bool] = False  # whether runs begin with it
    follows: t.ClassVar[bool] = False  # whether it continues what `begin` has opened or resumed

    def needs_platform(self, args: Mapping[str, t.Any]) -> bool:
        """Return whether the step, with these arguments, works with a platform."""
        return True

    def perform(self, step: StepContext) -> Result:
        """Do the step."""
        raise NotImplementedError

    def run(
        self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None
    ) -> dict[str, t.Any]:
        """Run the task: the one place where an error becomes a failed task."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        try:
            with shown(_detail if display.verbosity >= 3 else None):
                result.update(
                    {"skipped": True}
                    if self._left_out(task_vars or {})
                    else self._run(task_vars or {})
                )
        except RolloutError as exc:
            result.update(_failed(exc))
        except Exception as exc:
            display.vvv(traceback.format_exc())
            id, what = _unexpected(exc)
            result.update(failed=True, failure=id, msg=f"{what} [{id}]")
        return result

    def _run(self, task_vars: dict[str, t.Any]) -> Result:
        opened = self._open(task_vars)
        try:
            with opened as step:
                try:
                    return self.perform(step)
                except Parked as exc:
                    return step.parked(str(exc))
        except RolloutError as exc:
            return {**_failed(exc), **opened.facts}

    def _open(self, task_vars: dict[str, t.Any], outlives: bool = False) -> StepContext:
        """Make the step's context from its arguments. `outlives`: see `interrupt.Guard`."""
        for name, value in self._task.args.items():
            refuse_odd_numbers(values.data(value), PREFIX + name)
        mine = Options(*self.options.fields, RESTORED_SETTINGS)
        texts = {
            option.name for option in (*COMMON.fields, *mine.fields) if option.kind.type == "str"
        }
        args = {
            name: value if name in texts else values.data(value)
            for name, value in plain(self._task.args).items()
        }
        values.refuse_unknown(args, (*COMMON, *mine), PREFIX)
        given = {name: args.pop(name) for name in mine if name in args}
        arguments = {
            name: value for name, value in mine.parse(given, PREFIX).items() if value is not None
        }
        self._check_spelling(arguments.pop("variables", ()))
        known = dict(arguments.pop("restored_settings", {}))
        continues, digest = str(known.pop(CONTINUED, "")), str(known.pop(DIGEST, ""))
        if known:
            from ...config import remembered  # of runs that obey a command

            args = remembered.restored(known, args)
        drivers = self.needs_platform({**args, **arguments})
        parsed = settings.parse(args, drivers, self.moves)
        step = StepContext(
            self,
            parsed,
            args,
            arguments,
            task_vars,
            lambda line: display.display(printable(line)),
            outlives=outlives,
        )
        step.restored, step.continues, step.digest = bool(known), continues, digest
        step.follows = self.follows
        step.warn = lambda line: display.warning(printable(line))
        return step

    def _left_out(self, task_vars: Mapping[str, t.Any]) -> bool:
        """Return whether --tags or --skip-tags leave out the other steps of the role.

        One step of each role has the tag `always` to find that out. A tag at the role asks for
        that; without a tag nothing would be done, and InputError is raised.
        """
        tags = set(self._task.tags)
        if "always" not in tags:
            return False
        of_step = tags - {"always"}
        of_step = of_step | {"tagged"} if of_step else {"untagged"}
        only, skip = (set(task_vars.get(f"ansible_{kind}_tags") or ()) for kind in ("run", "skip"))
        wanted = bool(only & of_step) or ("all" in only and "never" not in of_step)
        if wanted and not skip & of_step:
            return False
        if of_step == {"untagged"}:
            raise InputError(
                "--tags, --skip-tags: exclude every step of the rollout, so nothing would be done;"
                " run without them, or tag the role in your playbook (with include_role under"
                " apply, too)",
                "PR-114",
            )
        return True

    def _check_spelling(self, variables: Sequence[t.Any]) -> None:
        """Refuse a `rollout_` variable that no step reads: it is misspelt."""
        given = [
            str(name).removeprefix(PREFIX) for name in variables if str(name).startswith(PREFIX)
        ]
        values.refuse_unknown(given, (*COMMON, *OF_ROLES, *OF_STEPS), PREFIX)


def _detail(line: str) -> None:
    display.vvv(printable(line))


def _unexpected(exc: Exception) -> tuple[str, str]:
    """Return the id and the message for an error that is none of ours."""
    if is_replaced():
        return (
            "PR-901",
            "another version of progressive.rollout was installed on this controller while the run"
            " was under way, which cannot go on with parts of each; the service stays as it is, and"
            " the new version continues a rollout in progress when the playbook is run again",
        )
    what = f"{type(exc).__name__}: {exc}"
    return (
        "PR-900",
        f"internal error in progressive.rollout (please report): {what} (traceback with -vvv)",
    )


def is_replaced() -> bool:
    """Return whether files of the collection have changed since they were loaded.

    What a run does not use is loaded when it is used, so a new version mixes with the old one.
    """
    ours = __name__.partition(".plugins.")[0]
    files = [
        getattr(module, "__file__", None)
        for name, module in list(sys.modules.items())
        if name.startswith(f"{ours}.")
    ]
    try:
        return any(os.stat(file).st_ctime > LOADED for file in files if file)
    except OSError:
        return True


def _failed(exc: RolloutError) -> Result:
    return {"failed": True, "failure": exc.id, "msg": f"{printable(str(exc))} [{exc.id}]"}


def plain(value: t.Any) -> t.Any:
    """Return plain data: since ansible-core 2.19 values are tagged and lazily templated."""
    if isinstance(value, Mapping):
        return {
            str.__str__(key) if isinstance(key, str) else key: plain(item)
            for key, item in value.items()
        }
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    return str(value)
