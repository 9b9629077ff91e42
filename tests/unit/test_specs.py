# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The same names and defaults wherever they are written: in the code, the documentation, the role and the action group."""

from __future__ import annotations

import importlib
import re
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.doc_fragments.rollout import ModuleDocFragment
from ansible_collections.progressive.rollout.plugins.plugin_utils.checks import http, tcp
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import settings, variables
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import LISTS
from ansible_collections.progressive.rollout.plugins.plugin_utils.health import spec
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import commands

ROOT = Path(__file__).resolve().parent.parent.parent
FRAGMENT = yaml.safe_load(ModuleDocFragment.DOCUMENTATION)["options"]
SPECS = yaml.safe_load((ROOT / "roles/rolling/meta/argument_specs.yml").read_text())["argument_specs"]
DEFAULTS = yaml.safe_load((ROOT / "roles/rolling/defaults/main.yml").read_text())
OWN = {
    ("control", "rollout_command"),
    ("control", "rollout_why"),
    ("control", "rollout_force"),
    ("control", "rollout_replicas"),
    ("rollback", "rollout_to"),
}  # of one entry point alone
OF_INSTANCES = (
    *("replicas", "rebalance", "prepare_tasks", "auto_promote", "promote_delay"),
    *("hold", "watch_new", "on_stable_lost", "headroom"),
)
STEPS = sorted(path.stem for path in (ROOT / "plugins/action").glob("*.py"))


def module(folder: str, name: str) -> t.Any:
    return importlib.import_module(f"ansible_collections.progressive.rollout.plugins.{folder}.{name}")


def given_defaults(options: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {name: option["default"] for name, option in options.items() if "default" in option}


def documentation(step: str) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", yaml.safe_load(module("modules", step).DOCUMENTATION))


def test_the_fragment_documents_what_every_step_takes() -> None:
    assert sorted(FRAGMENT) == sorted([*variables.COMMON, "kept"])


def test_the_role_takes_what_every_step_takes() -> None:
    options = {name.removeprefix("rollout_"): option for name, option in SPECS["main"]["options"].items()}
    assert sorted(options) == sorted([*variables.COMMON, "restart", "rebalance", "prepare_tasks"])
    for name in variables.COMMON:
        role, step = options[name], FRAGMENT[name]
        assert role["type"] == step["type"], name
        assert role.get("default") == step.get("default"), name
        assert list(role.get("choices", [])) == list(step.get("choices", [])), name


@pytest.mark.parametrize("entry", sorted(SPECS))
def test_every_entry_point_of_the_role_has_the_same_defaults(entry: str) -> None:
    options = {name: option for name, option in SPECS[entry]["options"].items() if (entry, name) not in OWN}
    assert options.items() <= SPECS["main"]["options"].items()
    stated = {name: value for name, value in DEFAULTS.items() if name in options}
    assert given_defaults(options) == stated


def test_the_role_in_place_takes_what_the_others_take() -> None:
    """But for what is of instances that are started there, and two defaults of its own."""
    options = yaml.safe_load((ROOT / "roles/in_place/meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    theirs = SPECS["main"]["options"]
    elsewhere = {f"rollout_{name}" for name in OF_INSTANCES}
    assert options.keys() == theirs.keys() - elsewhere | {"rollout_deploy_tasks", "rollout_rollback_tasks", "rollout_check_tasks"}
    own = {"rollout_budget": {"max_unavailable": 1}, "rollout_rollback_tasks": "", "rollout_check_tasks": False}
    defaults = yaml.safe_load((ROOT / "roles/in_place/defaults/main.yml").read_text())
    assert given_defaults(options) == defaults
    assert defaults == {name: value for name, value in DEFAULTS.items() if name in options} | own
    for name in options.keys() & theirs.keys():
        assert options[name]["type"] == theirs[name]["type"], name
        assert set(options[name].get("choices", [])) <= set(theirs[name].get("choices", [])), name


@pytest.mark.parametrize("strategy", sorted(set(LISTS) - {"rolling"}))
def test_a_strategys_role_is_rolling_with_its_strategy(strategy: str) -> None:
    role = ROOT / "roles" / strategy
    (task,) = yaml.safe_load((role / "tasks/main.yml").read_text())
    assert task["ansible.builtin.include_role"] == {"name": "progressive.rollout.rolling"}
    assert task["vars"] == {"rollout_strategy": strategy}
    specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]
    assert list(specs) == ["main"] and specs["main"]["options"] == {}, "variables are documented in rolling alone"


def test_the_defaults_file_holds_every_default() -> None:
    assert given_defaults(SPECS["main"]["options"]) == DEFAULTS


def test_the_documented_defaults_are_those_of_the_code() -> None:
    least = {"service": "shop", "platform": {"driver": "process", "hosts": "web", "command": ["/bin/shop"], "ports": "8100-8199"}}
    assert settings.parse(least) == settings.parse(given_defaults(FRAGMENT) | least)


def test_the_operators_words_are_those_of_the_code() -> None:
    assert tuple(documentation("control")["options"]["command"]["choices"]) == commands.COMMANDS
    assert tuple(SPECS["control"]["options"]["rollout_command"]["choices"]) == commands.COMMANDS


def test_the_health_options_are_those_of_the_checks() -> None:
    code = {**spec.OPTIONS, **http.OPTIONS, **tcp.OPTIONS}
    documented = FRAGMENT["health"]["suboptions"]
    assert sorted(documented) == sorted(code)
    for name, field in code.items():
        assert documented[name]["type"] == field.kind.type, name
        assert documented[name].get("default") == field.default, name
        assert list(documented[name].get("choices", [])) == list(field.kind.choices), name


def test_the_guides_name_every_variable() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    assert not [name for name in variables.COMMON if not re.search(rf"\brollout_{name}\b", text)]


def test_the_action_group_holds_every_step() -> None:
    groups = yaml.safe_load((ROOT / "meta/runtime.yml").read_text())["action_groups"]
    assert sorted(groups["steps"]) == STEPS


@pytest.mark.parametrize("step", STEPS)
def test_a_step_is_documented_with_its_own_options(step: str) -> None:
    action = module("action", step).ActionModule
    assert issubclass(action, StepAction)
    documented = documentation(step)
    assert documented["module"] == step
    assert sorted(documented.get("options", {})) == sorted(action.own)
    assert documented["extends_documentation_fragment"] == ["progressive.rollout.rollout"]


def test_no_step_is_documented_that_is_not_there() -> None:
    assert sorted(path.stem for path in (ROOT / "plugins/modules").glob("*.py")) == STEPS


@pytest.mark.parametrize("step", STEPS)
def test_what_a_step_returns_is_documented_alike(step: str) -> None:
    returned = yaml.safe_load(module("modules", step).RETURN)
    assert returned["rollout"]["contains"] == yaml.safe_load(module("modules", "info").RETURN)["rollout"]["contains"]
