# SPDX-License-Identifier: GPL-3.0-or-later
"""What is generated from the tables of options is up to date, and nothing is left out of them."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import (
    settings,
    step_options,
    variables,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.step.action import (
    StepAction,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import LISTS
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.options import Options

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import generate  # noqa: E402

PLUGINS = ROOT / "plugins"
STEPS = sorted(path.stem for path in (PLUGINS / "action").glob("*.py"))
DRIVERS = [(folder, name) for folder, names in generate.DRIVERS.items() for name in names]
PLATFORM = {"driver": "process", "hosts": "web", "command": ["/bin/shop"], "ports": "8100-8199"}
LEAST = {"service": "shop", "platform": PLATFORM}


def module(path: str) -> t.Any:
    return importlib.import_module(f"ansible_collections.progressive.rollout.plugins.{path}")


def test_what_is_generated_is_up_to_date() -> None:
    stale = [path for path, text in generate.files().items() if (ROOT / path).read_text() != text]
    assert not stale, "run make generate"


def test_the_documented_defaults_are_those_of_the_code() -> None:
    fragment = module("doc_fragments.rollout").ModuleDocFragment.DOCUMENTATION
    documented = yaml.safe_load(fragment)["options"]
    defaults = {
        name: option["default"] for name, option in documented.items() if "default" in option
    }
    assert settings.parse(LEAST) == settings.parse(defaults | LEAST)
    of_the_role = yaml.safe_load((ROOT / "roles/rolling/defaults/main.yml").read_text())
    assert (
        defaults.items()
        <= {name.removeprefix("rollout_"): value for name, value in of_the_role.items()}.items()
    )


# In an interpreter of its own, since Ansible's loader replaces how collections are imported.
RENDERED = """
import json, sys
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar, trust_as_template

given = json.load(sys.stdin)
init_plugin_loader()
rendered = {}
for name, expression in given["passed"].items():
    for value in ((), (trust_as_template("{{ nothing }}"),)):
        variables = given["defaults"] | {f"rollout_{name}": each for each in value}
        template = Templar(loader=DataLoader(), variables=variables)
        try:
            result = template.template(trust_as_template(expression))
        except AnsibleError as exc:
            result = str(exc)
        rendered.setdefault(name, []).append(result)
print(json.dumps(rendered))
"""


@pytest.mark.parametrize("role", ["rolling", "in_place"])
def test_a_variable_with_an_undefined_value_is_not_taken_for_one_that_is_not_given(
    role: str,
) -> None:
    """`rollout_window: "{{ team_window }}"`, misspelt, must not mean "at any time"."""
    passed = yaml.safe_load((ROOT / f"roles/{role}/vars/main/steps.yml").read_text())
    passed = passed[f"_{role}_main"]
    passed.pop("restored_settings", None)
    defaults = yaml.safe_load((ROOT / "roles/rolling/defaults/main.yml").read_text())
    done = subprocess.run(
        [sys.executable, "-c", RENDERED],
        input=json.dumps({"passed": passed, "defaults": defaults}),
        capture_output=True,
        text=True,
        check=True,
    )
    rendered = json.loads(done.stdout)
    assert rendered.keys() == passed.keys()
    for name, (missing, undefined) in rendered.items():
        assert missing == defaults.get(f"rollout_{name}", missing) and missing is not None
        assert "'nothing' is undefined" in str(undefined), name


def test_the_page_of_drivers_introduces_each_with_a_whole_sentence() -> None:
    page = generate.drivers_page()
    for folder, name in DRIVERS:
        heading = f"### {generate.TITLES[folder][0]}: {name}\n\n"
        sentence = page.partition(heading)[2].partition("\n")[0]
        assert sentence.endswith("."), (folder, name, sentence)


@pytest.mark.parametrize(("folder", "name"), DRIVERS)
def test_defaults_are_values_of_their_kind(folder: str, name: str) -> None:
    options: Options = module(f"plugin_utils.{folder}.{name}").OPTIONS
    for one in options.fields:
        if one.default is not None:
            assert one.kind.parse(one.default, one.name) is not None


@pytest.mark.parametrize(
    ("name", "given"),
    [
        (
            "process",
            {
                "command": ["shop"],
                "env": {"A": 1},
                "stop_timeout": "1m",
                "hooks": {"after_stop": ["rm", "x"]},
            },
        ),
        ("systemd", {"command": ["shop"], "user": "shop", "notify": "yes"}),
        (
            "podman",
            {
                "image": "shop:{revision}",
                "container_port": "80",
                "restart": False,
                "cpus": 1.5,
                "memory": "512m",
            },
        ),
        (
            "docker",
            {
                "image": "shop",
                "network": "host",
                "healthcheck": {"command": "true", "interval": "5s"},
                "labels": {"a": 1},
            },
        ),
    ],
)
def test_parsed_options_of_platforms_are_plain_data_that_parses_to_itself(
    name: str, given: dict[str, t.Any]
) -> None:
    """The journal keeps them, and drivers of earlier generations are made of them."""
    options: Options = module(f"plugin_utils.platforms.{name}").OPTIONS
    parsed = options.parse({"hosts": "web", "ports": "8100-8199", **given}, "rollout_platform.")
    kept = json.loads(json.dumps({key: value for key, value in parsed.items() if key != "ports"}))
    assert options.parse({**kept, "ports": parsed["ports"]}, "rollout_platform.") == parsed


@pytest.mark.parametrize("strategy", sorted(set(LISTS) - {"rolling"}))
def test_a_strategys_role_is_rolling_with_its_strategy(strategy: str) -> None:
    role = ROOT / "roles" / strategy
    (task,) = yaml.safe_load((role / "tasks/main.yml").read_text())
    assert task["ansible.builtin.include_role"] == {
        "name": "progressive.rollout.rolling",
        "rolespec_validate": False,
    }
    assert task["vars"] == {"rollout_strategy": strategy}
    specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]
    assert list(specs) == ["main"] and specs["main"]["options"] == {}, (
        "variables are documented in rolling alone"
    )


@pytest.mark.parametrize("role", ["rolling", "in_place", "awx"])
def test_roles_leave_the_checks_to_us(role: str) -> None:
    """Ansible refuses a value with 12 kB of the role's spec."""
    specs = yaml.safe_load((ROOT / f"roles/{role}/meta/argument_specs.yml").read_text())
    for entry in specs["argument_specs"].values():
        for option in entry["options"].values():
            assert set(option) <= {"description", "type", "default"}
            assert option["type"] in ("raw", "str")
    options = specs["argument_specs"]["main"]["options"]
    assert options["rollout_service"]["description"][-1] == "Required."
    if role == "awx":
        return
    choices = " ".join(options["rollout_on_failure"]["description"])
    assert all(f"V({one})" in choices for one in ("rollback", "hold", "continue"))


def test_roles_name_the_type_that_they_leave_unchecked() -> None:
    words = {
        "bool": "V(true) or V(false).",
        "dict": "A mapping.",
        "float": "A number.",
        "int": "A whole number.",
        "list": "A list.",
    }
    options = yaml.safe_load((ROOT / "roles/rolling/meta/argument_specs.yml").read_text())
    described = options["argument_specs"]["main"]["options"]
    typed = {
        field.name: words[field.kind.type]
        for field in variables.COMMON.fields
        if field.kind.type in words
    }
    assert {"budget", "older", "order", "targets"} <= typed.keys()
    for name, sentence in typed.items():
        lines = described.get(f"rollout_{name}", {}).get("description", [sentence])
        assert sentence in lines, name


def test_the_guides_name_every_variable() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    names = {*variables.COMMON, *step_options.OF_ROLES}
    assert not [name for name in names if not re.search(rf"\brollout_{name}\b", text)]


def test_the_action_group_holds_every_step() -> None:
    groups = yaml.safe_load((ROOT / "meta/runtime.yml").read_text())["action_groups"]
    assert (
        sorted(groups["steps"])
        == STEPS
        == sorted(path.stem for path in (PLUGINS / "modules").glob("*.py"))
    )


@pytest.mark.parametrize("step", STEPS)
def test_a_step_is_documented(step: str) -> None:
    assert issubclass(module(f"action.{step}").ActionModule, StepAction)
    documented = yaml.safe_load(module(f"modules.{step}").DOCUMENTATION)
    assert documented["module"] == step
    assert documented["extends_documentation_fragment"] == ["progressive.rollout.rollout"]
    assert all(isinstance(line, str) for line in documented["description"]), "quote the colon"
    returned = yaml.safe_load(module(f"modules.{step}").RETURN)
    assert all({"description", "returned", "type"} <= one.keys() for one in returned.values())


def test_an_option_of_all_gates_is_documented_beside_a_drivers_of_that_name() -> None:
    documented = yaml.safe_load(module("modules.gate").DOCUMENTATION)["options"]["gate"]
    interval = documented["suboptions"]["interval"]
    text = " ".join(interval["description"])
    assert "asked again" in text and "V(5s)" in text
    assert "I(analysis): How often each metric is measured." in text and "V(10s)" in text
    assert "default" not in interval


def test_options_are_documented_once() -> None:
    """What `analysis` documents, a gate of that driver refers to."""
    begin = yaml.safe_load(module("modules.begin").DOCUMENTATION)
    gate = yaml.safe_load(module("modules.gate").DOCUMENTATION)["options"]["gate"]
    of_analysis = begin["options"]["analysis"]["suboptions"]["metrics"]
    assert {"judge", "query", "of", "alpha"} <= of_analysis["suboptions"].keys()
    assert "suboptions" not in gate["suboptions"]["metrics"]
    assert "O(analysis)" in " ".join(gate["suboptions"]["metrics"]["description"])


def test_options_of_all_steps_are_in_full_in_one_step_and_short_in_the_others() -> None:
    fragment = yaml.safe_load(module("doc_fragments.rollout").ModuleDocFragment.DOCUMENTATION)
    begin = yaml.safe_load(module("modules.begin").DOCUMENTATION)["options"]
    for name, option in fragment["options"].items():
        assert "suboptions" not in option
        assert option.get("default") == begin[name].get("default")
        if "suboptions" in begin[name]:
            assert "M(progressive.rollout.begin)" in option["description"]
