# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks of steps in this process, without ansible-playbook: the real action plugins, and the tasks
of the role as they are written, on hosts that are directories here.

What only Ansible does is not here: several hosts, tags, loops, delegation, the callback.
"""

from __future__ import annotations

import importlib
import itertools
import json
import shutil
import typing as t
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from types import SimpleNamespace
from unittest import mock

from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task as AnsibleTask
from ansible.template import Templar, trust_as_template
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _service, process
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.step import action
from ansible_collections.progressive.rollout.tests.support.playbook import (
    ROOT,
    STEPS,
    Outcome,
    Playground,
    Task,
    Variables,
)

COLLECTION = "ansible_collections.progressive.rollout"
ROLE = ROOT / "roles" / "rolling"
OMITTED = "__omitted__"
_SENT = {"_rolling_sent": {"rollout": {"id": "shop-1"}}}  # what a command's step returned


@dataclass
class Screen:
    """What steps display."""

    verbosity: int = 0
    lines: list[str] = field(default_factory=list)

    def display(self, line: str) -> None:
        self.lines.append(line)

    def warning(self, line: str) -> None:
        self.lines.append(f"[WARNING]: {line}")

    vvv = display

    def output(self, tasks: t.Iterable[Task]) -> str:
        """Return what a run printed, with the messages of tasks that failed."""
        return "\n".join([*self.lines, *(task.msg for task in tasks if task.status == "failed")])


class Processes(process.Service):
    """The agent for processes, with processes that are only thought of: they run until stopped."""

    running: t.ClassVar[dict[int, dict[str, t.Any]]] = {}  # what was started, by pid
    _pids = itertools.count(1)

    def spawn(self, record: dict[str, t.Any], wanted: dict[str, t.Any]) -> str:
        record.update(command=wanted["argv"], pid=next(self._pids), ticks=1)
        self.save(record)
        self.running[record["pid"]] = wanted
        return ""

    def alive(self, record: dict[str, t.Any]) -> bool:
        if "ended" not in record and record["pid"] not in self.running:
            record["ended"] = round(_service.uptime() - record["uptime"], 3)
            self.save(record)
        return "ended" not in record

    def request_stop(self, record: dict[str, t.Any], kill: bool) -> None:
        self.running.pop(record["pid"], None)

    def settle(self, stopping: list[dict[str, t.Any]]) -> None:
        """They have ended."""

    def left(self, record: dict[str, t.Any]) -> str:
        return ""

    def remove(self, record: dict[str, t.Any]) -> None:
        """Nothing is left of them."""


class Tasks(Playground):
    """A playground whose steps run here, by the virtual clock, and whose instances are ready at
    once.
    """

    def __init__(self, hosts: int = 3, **given: t.Any) -> None:
        super().__init__(hosts, **given)
        self.variables["rollout_health"] = {}
        self._patches = ExitStack()

    def __enter__(self) -> t.Self:
        self._patches.enter_context(mock.patch.object(process, "Service", Processes))
        self._patches.enter_context(mock.patch.object(_service, "uptime", clock.monotonic))
        return self

    def close(self) -> None:
        self._patches.close()
        for record in self.living():
            Processes.running.pop(record["pid"])
        shutil.rmtree(self.home)

    def living(self) -> list[dict[str, t.Any]]:
        return [one for one in self.records() if one.get("pid") in Processes.running]

    def started(self) -> list[dict[str, t.Any]]:
        """What the living instances were started with."""
        return [Processes.running[record["pid"]] for record in self.living()]

    def steps(
        self,
        *tasks: Variables,
        variables: Variables | None = None,
        options: t.Sequence[str] = (),
    ) -> Outcome:
        """As with ansible-playbook: single steps, until one fails that has no `ignore_errors`."""
        assert not options
        given = self._given(variables)
        common = {key.removeprefix("rollout_"): value for key, value in given.items()}
        listed: list[Task] = []
        screen = Screen()
        for task in tasks:
            (step,) = task.keys() & set(STEPS)
            args = {**common, **dict(task[step])}
            result = self.perform(step, args, given, screen, bool(task.get("check_mode")))
            listed.append(task_of(str(task.get("name", step)), step, result))
            if result.get("failed") and not task.get("ignore_errors"):
                break
        failed = any(task.status == "failed" for task in listed)
        return Outcome(2 if failed else 0, screen.output(listed), listed)

    def rollout(self, *, check_mode: bool = False, **given: t.Any) -> Outcome:
        """As the playbook that rolls out."""
        return self.play("main.yml", check_mode=check_mode, **given)

    def rollback(self, **given: t.Any) -> Outcome:
        """As the playbook that rolls back."""
        return self.play("rollback.yml", **given)

    def command(self, word: str, **given: t.Any) -> Outcome:
        """As the playbook of a command, which continues the rollout where no run does."""
        return self.play("control.yml", rollout_command=word, **given)

    def play(self, tasks: str, *, check_mode: bool = False, **given: t.Any) -> Outcome:
        """A play of localhost with tasks of the role, each of which runs where its conditions
        hold.
        """
        run = RoleRun(self, self._given(given), check_mode)
        rc = 0 if run.do_all(_yaml(f"tasks/{tasks}")) else 2
        return Outcome(rc, run.screen.output(run.tasks), run.tasks)

    def expected(self, word: str) -> str:
        """Return what the playbook of a command expects of the rollout that it follows."""
        task = _yaml("tasks/control.yml")[-1]
        known = {**self.variables, "rollout_command": word}
        return str(self.finalized(task["vars"], known | _SENT)["_rolling_expected"])

    def templar(self, variables: Variables) -> Templar:
        """Return what renders the templates of the role."""
        known = {**self._hosts, **_defaults(), **_role_variables(), **variables, "omit": OMITTED}
        return Templar(self._loader, variables=known)

    def finalized(self, arguments: t.Any, variables: Variables) -> dict[str, t.Any]:
        templar = self.templar(variables)
        found = {
            name: templar.template(text) if _varies(text, variables) else _default(text)
            for name, text in arguments.items()
        }
        plain = t.cast("dict[str, t.Any]", action.plain(found))
        return {key: value for key, value in plain.items() if value != OMITTED}

    def _given(self, changes: Variables | None) -> dict[str, t.Any]:
        """Return the variables with changes, of which None takes one away."""
        known = {**self.variables, **(changes or {})}
        return {key: value for key, value in known.items() if value is not None}

    @cached_property
    def _loader(self) -> DataLoader:
        return DataLoader()

    @cached_property
    def _hosts(self) -> dict[str, t.Any]:
        """The variables of a task on localhost."""
        inventory = InventoryManager(self._loader, sources=[str(self.home / "hosts.json")])
        manager = VariableManager(self._loader, inventory)
        return manager.get_vars() | {
            "hostvars": HostVars(inventory, manager, self._loader),
            "groups": inventory.get_groups_dict(),
            "inventory_hostname": "localhost",
        }

    def perform(
        self,
        step: str,
        args: Mapping[str, t.Any],
        variables: Variables,
        screen: Screen,
        check_mode: bool = False,
    ) -> dict[str, t.Any]:
        """Run the action plugin of a task, as a worker of ansible-playbook does."""
        task = AnsibleTask()
        task.action, task.args, task.check_mode = f"progressive.rollout.{step}", args, check_mode
        connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=""))
        task_vars = {**self._hosts, **variables}
        plugin = importlib.import_module(f"{COLLECTION}.plugins.action.{step}").ActionModule(
            task, connection, PlayContext(), self._loader, Templar(self._loader, task_vars), None
        )
        with mock.patch.object(action, "display", screen):
            return t.cast("dict[str, t.Any]", plugin.run(task_vars=task_vars))


class RoleRun:
    """A run of the role's tasks: what they have registered, and what became of them."""

    def __init__(self, site: Tasks, variables: Variables, check_mode: bool) -> None:
        self._site, self._check_mode = site, check_mode
        self._known = {**variables, "ansible_check_mode": check_mode}
        self._common = ""  # the name of what all steps take
        self.screen = Screen()
        self.tasks: list[Task] = []

    def do_all(self, tasks: t.Iterable[Variables]) -> bool:
        """Do tasks until one fails; return whether none did."""
        return all(self._do(task) for task in tasks)

    def _do(self, task: Variables) -> bool:
        """Do a task unless its condition is false; return whether the play goes on."""
        before, common = self._known, self._common
        self._known = {**before, **task.get("vars", {})}
        self._common = _mapping_of(task) or common
        goes_on = self._done(task) if self._holds(task.get("when", True)) else self._skipped(task)
        registered = self._known.keys() - task.get("vars", {}).keys()
        self._known = {**before, **{name: self._known[name] for name in registered}}
        self._common = common
        return goes_on

    def _done(self, task: Variables) -> bool:
        if "block" in task:
            return self.do_all(task["block"]) or self._rescued(task)
        (name,) = (key for key in task if "." in key)
        step, arguments = name.rpartition(".")[2], task[name]
        if step in ("include_tasks", "import_tasks"):
            return self.do_all(_yaml(f"tasks/{self._rendered(arguments)}"))
        if step == "fail":
            result = {"failed": True, "msg": self._rendered(arguments["msg"])}
        else:
            common = _role_variables()[self._common] if self._common else {}
            args = self._site.finalized({**common, **(arguments or {})}, self._known)
            result = self._site.perform(step, args, self._known, self.screen, self._check_mode)
        return self._noted(task, step, result)

    def _rescued(self, task: Variables) -> bool:
        if "rescue" not in task:
            return False
        self._known["ansible_failed_result"] = self.tasks[-1].result
        return self.do_all(task["rescue"])

    def _skipped(self, task: Variables) -> bool:
        steps = [key for key in task if "." in key]
        result = {"skipped": True, "changed": False}
        return not steps or self._noted(task, steps[0].rpartition(".")[2], result)

    def _noted(self, task: Variables, step: str, result: dict[str, t.Any]) -> bool:
        if "register" in task:
            self._known[task["register"]] = result
        done = task_of(task["name"], step, result)
        failed = self._holds(task.get("failed_when", done.status == "failed"))
        if done.status == "failed" and not failed:
            done = replace(done, status="ok")
        self.tasks.append(done)
        return not failed

    def _holds(self, condition: str | bool) -> bool:
        """Return whether a condition of the role is true."""
        if isinstance(condition, bool):
            return condition
        return bool(self._rendered("{{ (%s) }}" % condition))

    def _rendered(self, text: str) -> t.Any:
        return action.plain(self._site.templar(self._known).template(trust_as_template(text)))


def task_of(name: str, step: str, result: dict[str, t.Any]) -> Task:
    """Return a task and its result, as it is written down for those who read it."""
    status = next((key for key in ("failed", "skipped") if result.get(key)), "ok")
    return Task(name, f"progressive.rollout.{step}", status, json.loads(json.dumps(result)), 0.0)


@cache
def _yaml(path: str) -> t.Any:
    """Return a file of the role, with templates in it."""
    # Only ansible-playbook, not a program that imports Ansible, finds its own plugins by this name.
    text = (ROLE / path).read_text().replace("'ansible.builtin.", "'")
    return DataLoader().load(trust_as_template(text))


def _mapping_of(task: Variables) -> str:
    """Return which mapping of the role has what all steps of a task take; "" if none does."""
    defaults = task.get("module_defaults", {}).get("group/progressive.rollout.steps", "")
    return str(defaults).strip("{} ")


def _varies(text: t.Any, variables: Variables) -> bool:
    """Return whether a template may become something else with these variables."""
    return isinstance(text, str) and any(
        name in text for name in ("query(", "ansible_", "_rolling_", *variables)
    )


@cache
def _default(text: t.Any) -> t.Any:
    """Return what a template becomes with the defaults of the role."""
    known = {**_defaults(), **_role_variables(), "omit": OMITTED}
    return Templar(DataLoader(), variables=known).template(text)


@cache
def _defaults() -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", _yaml("defaults/main.yml"))


@cache
def _role_variables() -> dict[str, t.Any]:
    return {**_yaml("vars/main/steps.yml"), **_yaml("vars/main/tasks.yml")}
