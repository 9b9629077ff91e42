# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make tests/unit/public_names.yml: the names that users rely on (docs/reference/stability.md).

New names are added, so that a change shows them; none is removed here.
"""

from __future__ import annotations

import ast
import typing as t
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
FILE = "tests/unit/public_names.yml"
HEAD = """\
# Names that users rely on (docs/reference/stability.md). `make generate` adds new ones.
# None is removed without a major release; one that no release had yet may be taken out by hand.
"""
Names = dict[str, list[str]]
Drivers = Mapping[str, Iterable[str]]  # options by driver, such as `traffic.haproxy`


def present(drivers: Drivers) -> Names:
    """Return the public names of this checkout."""
    names = {
        "playbooks": [path.stem for path in (ROOT / "playbooks").glob("*.yml")],
        "steps": [path.stem for path in (ROOT / "plugins/modules").glob("*.py")],
        **_of_roles(),
        "results": _results(),
        "drivers": [*drivers, *(f"{name}.{key}" for name in drivers for key in drivers[name])],
        **_of_code(),
    }
    return {kind: sorted(set(all_names)) for kind, all_names in names.items()}


def known() -> Names:
    """Return the names that are written down."""
    return t.cast("Names", yaml.safe_load((ROOT / FILE).read_text()))


def page(drivers: Drivers) -> str:
    """Return the file with what is new."""
    written, now = known(), present(drivers)
    merged = {kind: sorted({*names, *written.get(kind, ())}) for kind, names in now.items()}
    return HEAD + yaml.dump(merged, Dumper=_Indented, sort_keys=False, width=100)


class _Indented(yaml.SafeDumper):
    """As yamllint wants lists."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, False)


def _of_roles() -> dict[str, Iterable[str]]:
    """Return the roles that users name, their entry points, and the variables of all of them."""
    roles: list[str] = []
    variables: dict[str, None] = {}
    for path in sorted((ROOT / "roles").glob("[!_]*/meta/argument_specs.yml")):
        specs = yaml.safe_load(path.read_text())["argument_specs"]
        role = path.parts[-3]
        roles += [role, *(f"{role}.{entry}" for entry in specs if entry != "main")]
        variables.update(dict.fromkeys(key for spec in specs.values() for key in spec["options"]))
    return {"roles": roles, "variables": variables}


def _results() -> list[str]:
    """Return the documented results of steps, such as `info.rollout.phase`."""
    results: list[str] = []
    for path in sorted((ROOT / "plugins/modules").glob("*.py")):
        tree = ast.parse(path.read_text())
        texts = {
            target.id: ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name)
        }
        results += _paths(path.stem, yaml.safe_load(texts["RETURN"]))
    return results


def _paths(prefix: str, fields: Mapping[str, t.Any]) -> Iterable[str]:
    for name, field in fields.items():
        yield f"{prefix}.{name}"
        yield from _paths(f"{prefix}.{name}", field.get("contains", {}))


def _of_code() -> dict[str, Iterable[str]]:
    """Return operator commands, message ids, and timeline events with their fields."""
    from ansible_collections.progressive.rollout.plugins.plugin_utils.base.messages import MESSAGES
    from ansible_collections.progressive.rollout.plugins.plugin_utils.state import commands, events

    return {
        "commands": commands.COMMANDS,
        "messages": MESSAGES,
        "events": [
            *events.KINDS,
            *(
                f"{kind}.{field}"
                for kind, event in events.KINDS.items()
                for field in events.documented(event)
            ),
        ],
    }
