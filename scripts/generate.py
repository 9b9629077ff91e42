# SPDX-License-Identifier: GPL-3.0-or-later
"""Write what is made from the tables of options, results and messages; with --check, say which
files are stale.
"""

from __future__ import annotations

import importlib
import re
import sys
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / ".cache/collections"))
PLUGINS = "ansible_collections.progressive.rollout.plugins"
if t.TYPE_CHECKING:
    from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.options import (
        Field,
        Kind,
        Options,
    )

HERE = "scripts/generate.py"
FOLDERS = (
    "platforms",
    "traffic",
    "checks",
    "gates",
    "metrics",
    "stores",
    "autoscalers",
    "notifiers",
)
DRIVERS = {
    folder: sorted(path.stem for path in (ROOT / "plugins/plugin_utils" / folder).glob("[!_]*.py"))
    for folder in FOLDERS
}
Docs = dict[str, t.Any]


def module(path: str) -> t.Any:
    """Import a module of the collection."""
    return importlib.import_module(f"{PLUGINS}.{path}")


# Documentation of options ---------------------------------------------------------------------


def sentences(field: Field) -> list[str]:
    """Return the paragraphs of a field's description."""
    first, *others = field.text.split("\n")
    return [f"{first} {field.kind.note}".strip(), *others]


def documented(field: Field) -> Docs:
    """Return an option as Ansible documents it."""
    kind, text = field.kind, sentences(field)
    docs: Docs = {"description": text if len(text) > 1 else text[0], "type": kind.type}
    if kind.elements:
        docs["elements"] = kind.elements
    if kind.choices:
        with_sentences = any(kind.choices.values())
        docs["choices"] = dict(kind.choices) if with_sentences else list(kind.choices)
    if field.required:
        docs["required"] = True
    elif field.default is not None:
        docs["default"] = field.default
    below = (
        of_drivers(kind.drivers, kind.documented)
        if kind.drivers
        else {name: documented(option) for name, option in (kind.documented).items()}
    )
    if below:
        docs["suboptions"] = below
    return docs


@dataclass(frozen=True)
class Shared:
    """An option that some drivers have alike."""

    field: Field
    drivers: Sequence[str]  # none: all of them


def driver_options(folder: str, name: str) -> Mapping[str, Field]:
    """Return the options of a driver, without those that it refuses."""
    loaded = module(f"plugin_utils.{folder}.{name}")
    return {
        key: field for key, field in loaded.OPTIONS.items() if key not in loaded.Driver.unsupported
    }


def of_drivers(folder: str, common: Mapping[str, Field]) -> Docs:
    """Return the options that all drivers in a folder take, and those of some, by name; each of
    these says whose it is.
    """
    drivers = {name: driver_options(folder, name) for name in DRIVERS[folder]}
    options_by_name: Docs = {}
    for name in dict.fromkeys(name for options in (common, *drivers.values()) for name in options):
        variants: dict[str, Shared] = {}
        if name in common:
            variants[""] = Shared(common[name], ())
        for driver, options in drivers.items():
            if name in options:
                field = referring(options[name])
                key = repr(
                    (field.text, field.kind.type, field.kind.note, field.default, field.required)
                )
                variants[key] = Shared(
                    field, [*(variants[key].drivers if key in variants else ()), driver]
                )
        options_by_name[name] = merged(folder, list(variants.values()), len(drivers))
    return options_by_name


def referring(field: Field) -> Field:
    """Return a driver's option that itself takes options of drivers with a reference to them."""
    if not field.kind.drivers:
        return field
    kind = replace(field.kind, fields=None, drivers="")
    return replace(field, kind=kind, text=f"{field.text}\nAs C({field.name}) of O(analysis).")


def merged(folder: str, shared: Sequence[Shared], everyone: int) -> Docs:
    """Return one option as several drivers have it."""
    if len(shared) == 1:
        docs = documented(shared[0].field)
        if 0 < len(shared[0].drivers) < everyone:
            text = docs["description"]
            first, *others = [text] if isinstance(text, str) else text
            docs["description"] = [f"{whose(folder, shared[0])}: {first}", *others]
            if docs.pop("required", False) and folder != "checks":
                docs["description"][0] += " Required."
        return unlisted(docs)
    lines, kinds = [], {variant.field.kind.type for variant in shared}
    for variant in shared:
        first, *others = sentences(variant.field)
        default = "Required." if variant.field.required else ""
        if variant.field.default not in (None, {}, []):
            default = f"V({shown(variant.field.default)}) if not given."
        whom = f"{whose(folder, variant)}: " if variant.drivers else ""
        lines += [f"{whom}{first} {default}".strip(), *others]
    docs: Docs = {"description": lines, "type": kinds.pop() if len(kinds) == 1 else "raw"}
    if docs["type"] == "list":
        elements = {variant.field.kind.elements for variant in shared}
        docs["elements"] = elements.pop() if len(elements) == 1 else "raw"
    return docs


def unlisted(docs: Docs) -> Docs:
    text = docs["description"]
    return {**docs, "description": text[0] if isinstance(text, list) and len(text) == 1 else text}


def whose(folder: str, shared: Shared) -> str:
    """Return which drivers have an option."""
    if folder == "checks":
        return " or ".join(f"With C({name})" for name in shared.drivers)
    return f"I({', '.join(shared.drivers)})"


def shown(value: t.Any) -> str:
    """Return a default as users write it."""
    if isinstance(value, list):
        return ", ".join(map(shown, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


# YAML -----------------------------------------------------------------------------------------


class Dumper(yaml.SafeDumper):
    """Indents lists in mappings, as ansible-lint wants it."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: t.Any) -> bool:
        return True


def flow(dumper: Dumper, data: t.Any) -> yaml.Node:
    """Write small mappings and lists of scalars in one line."""
    node = dumper.represent_mapping("tag:yaml.org,2002:map", data, flow_style=False)
    values = list(data.values())
    if all(
        not isinstance(item, (dict, list)) and (not isinstance(item, str) or len(item) < 40)
        for item in values
    ):
        node.flow_style = not values or (
            "description" not in data and "type" not in data and len(str(data)) < 80
        )
    return node


def row(dumper: Dumper, data: t.Any) -> yaml.Node:
    short = all(not isinstance(item, (dict, list)) for item in data) and len(str(data)) < 100
    plain = all(not isinstance(item, str) or " " not in item for item in data)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=short and plain)


Dumper.add_representer(dict, flow)
Dumper.add_representer(list, row)


def dumped(data: t.Any, indent: int = 0) -> str:
    """Return YAML, every line indented."""
    text = yaml.dump(data, Dumper=Dumper, sort_keys=False, width=116 - indent, allow_unicode=True)
    return "".join(f"{' ' * indent}{line}".rstrip() + "\n" for line in text.splitlines())


# Modules and their fragment -------------------------------------------------------------------


FULL = "begin"  # the step that documents the options of all steps in full


def common_fields() -> Sequence[Field]:
    """Return the options that all steps take."""
    restored = module("plugin_utils.config.step_options").RESTORED_SETTINGS
    return (*module("plugin_utils.config.variables").COMMON.fields, restored)


def brief(field: Field) -> Docs:
    """Return an option of all steps in a sentence, with a reference to where it is in full."""
    option = documented(field)
    text = f"{first_sentence(field.text)} {field.kind.note}".strip()
    if option.pop("suboptions", None):
        text += f" M(progressive.rollout.{FULL}) documents its options."
    if field.kind.choices:
        option["choices"] = list(field.kind.choices)
    return {**option, "description": text}


def fragment() -> str:
    """Return plugins/doc_fragments/rollout.py with the options that all steps take."""
    options = {field.name: brief(field) for field in common_fields()}
    text = (ROOT / "plugins/doc_fragments/rollout.py").read_text()
    start, end = text.index("options:\n"), text.index("attributes:\n")
    return text[:start] + dumped({"options": options}) + text[end:]


def modules() -> dict[str, str]:
    """Return the modules, with their own options and the results that all steps return."""
    files = {}
    for path in sorted((ROOT / "plugins/modules").glob("*.py")):
        name, text = path.stem, path.read_text()
        fields = module(f"action.{name}").ActionModule.options.fields
        if name == FULL:
            fields = (*fields, *common_fields())
        own = {field.name: documented(field) for field in fields}
        head, _return, results = text.partition('RETURN = r"""\n')
        head = re.sub(
            r"^options:\n.*?(?=^extends_documentation_fragment:)", "", head, flags=re.M | re.S
        )
        options = dumped({"options": own}) if own else ""
        head = head.replace(
            "extends_documentation_fragment:", f"{options}extends_documentation_fragment:"
        )
        for view, home in (("rollout", "info"), ("next", "plan")):
            results = with_view(results, view, home, name)
        files[f"plugins/modules/{name}.py"] = head + _return + results
    return files


def with_view(results: str, view: str, home: str, name: str) -> str:
    """Return a RETURN block with a result that steps share, in full in its home and by reference
    elsewhere.
    """
    block = re.search(rf"^{view}:\n(?:[ \n].*\n?)*?(?=^[a-z\"])", results, flags=re.M)
    if block is None:
        return results
    returned = yaml.safe_load(block[0])[view]["returned"]
    views = module("plugin_utils.report.view")
    shape = {"rollout": views.RolloutView, "next": views.NextView}[view]
    text = shape.__doc__.strip().partition("\n")[0]
    new: Docs = {
        "description": f"{text} As RV(progressive.rollout.{home}#module:{view}).",
        "returned": returned,
        "type": "dict",
    }
    if name == home:
        new |= {"description": text, "contains": views.documented(shape)}
    return results[: block.start()] + dumped({view: new}) + results[block.end() :]


# Roles ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """An entry point of a role."""

    name: str
    title: str
    text: str
    options: Options


def roles() -> dict[str, str]:
    """Return the argument specs and defaults of the roles."""
    files = {}
    for role, entries in role_entries().items():
        text = f"---\n# Generated by {HERE}. Do not edit.\nargument_specs:\n"
        written: dict[str, str] = {}
        for number, entry in enumerate(entries):
            text += (
                "\n" if number else ""
            ) + f"  {entry.name}:\n    short_description: {entry.title}\n"
            text += f"    description:\n{dumped([entry.text], 6)}    options:\n"
            for field in entry.options.fields:
                text += _role_option(field, written, len(entries) > 1)
        defaults = {
            f"rollout_{option.name}": option.default
            for option in entries[0].options.fields
            if option.default is not None
        }
        files[f"roles/{role}/meta/argument_specs.yml"] = text
        files[f"roles/{role}/vars/main/steps.yml"] = step_options(role, entries)
        files[f"roles/{role}/defaults/main.yml"] = (
            f"---\n# Generated by {HERE}. Do not edit.\n{_shared_names(dumped(defaults))}"
        )
    return files


def awx_spec() -> str:
    """Return the argument specs of the role `awx`, which checks its options itself, too."""
    service = module("plugin_utils.config.variables").COMMON["service"]
    lines = ["What AWX needs to know in addition to the service's variables. Required. It has:"]
    lines += _in_lines(module("plugin_utils.config.awx").AWX, "")
    text = (ROOT / "roles/awx/meta/argument_specs.yml").read_text()
    head = text[: text.index("    options:\n")]
    options = {
        "rollout_service": {
            "description": ["Name of the service, with which all names in AWX begin.", "Required."],
            "type": service.kind.type,
        },
        "rollout_awx": {"description": lines, "type": "raw"},
    }
    return head + dumped({"options": options}, 4)


def _in_lines(options: Mapping[str, Field], prefix: str) -> list[str]:
    """Return a line for each option, each followed by those of its own options."""
    lines = []
    for name, field in options.items():
        of = ", ".join(f"V({choice})" for choice in field.kind.choices)
        more = (f" One of {of}." if of else "") + (" Required." if field.required else "")
        lines.append(f"C({prefix}{name}) - {' '.join(sentences(field))}{more}")
        items = "[]" if field.kind.elements else ""
        lines += _in_lines(field.kind.documented, f"{prefix}{name}{items}.")
    return lines


def _shared_names(text: str) -> str:
    """Return the defaults of a role, with leave for names that all roles share.

    ansible-lint of a user's playbook reads the roles of installed collections, too.
    """
    return re.sub(r"(?m)^(rollout_.*)$", r"\1 # noqa: var-naming[no-role-prefix]", text)


def step_options(role: str, entries: Sequence[Entry]) -> str:
    """Return what each entry point of a role passes to the steps, as variables for
    `module_defaults`.
    """
    text = f"---\n# Generated by {HERE}. Do not edit.\n"
    options = {*module("plugin_utils.config.variables").COMMON}
    for entry in entries:
        passed = {
            option.name: f"{{{{ {_value(option)} }}}}"
            for option in entry.options.fields
            if option.name in options
        }
        if entry.name == "main" and "replicas" in passed:
            passed["restored_settings"] = f"{{{{ _{role}_restored | default({{}}) }}}}"
        if entry.name == "rollback":
            passed["to"] = f"{{{{ {_or_empty('to')} }}}}"
            passed["why"] = f"{{{{ {_or_empty('why')} }}}}"
        if entry.name != "control":
            text += f"_{role}_{entry.name}:\n" + "".join(
                f'  {name}: "{value}"\n' for name, value in passed.items()
            )
    return text


def _value(field: Field) -> str:
    """Return the expression for a variable, which may be missing where it has no default."""
    if field.default is not None:
        return f"rollout_{field.name}"
    empty = field.kind.type == "dict" and field.name != "analysis"  # there, {} is none
    return _or_empty(field.name, "{}" if empty else "''")


def _or_empty(name: str, empty: str = "''") -> str:
    """Return the expression for a variable that may be missing, but not undefined within: that
    fails, where the filter `default` would make nothing of a misspelt name.
    """
    return f"lookup('ansible.builtin.vars', 'rollout_{name}', default={empty})"


def _role_option(field: Field, written: dict[str, str], anchors: bool) -> str:
    spec = dumped(as_variable(field), 8)
    if written.get(field.name) == spec:
        return f"      rollout_{field.name}: *{field.name}\n"
    anchor = f" &{field.name}" if anchors and field.name not in written else ""
    written.setdefault(field.name, spec)
    return f"      rollout_{field.name}:{anchor}\n{spec}"


TYPES = {  # of those that roles take as anything
    "bool": "V(true) or V(false).",
    "dict": "A mapping.",
    "float": "A number.",
    "int": "A whole number.",
    "list": "A list.",
}


def as_variable(field: Field) -> Docs:
    """Return an option as the spec of a role's variable.

    A survey of AWX answers with texts, and with an empty one for no answer. The steps take both,
    and check everything themselves, in one line: Ansible would refuse a wrong or missing value
    with the whole spec. So what it would check, the type included, is said in the description only.
    """
    docs = documented(field)
    real = docs["type"]
    if real != "str":  # Ansible takes anything for one
        docs["type"] = "raw"
        docs.pop("elements", None)
    required, below = docs.pop("required", False), docs.pop("suboptions", None)
    allowed = docs.pop("choices", ())
    text = docs["description"]
    lines = [as_variables(line) for line in ([text] if isinstance(text, str) else text)]
    if real in TYPES:
        lines.append(TYPES[real])
    if below:
        lines.append(f"C(ansible-doc progressive.rollout.{FULL}) shows its options.")
    if isinstance(allowed, dict):
        lines += [f"V({name}) - {as_variables(sentence)}" for name, sentence in allowed.items()]
    elif allowed:
        lines.append(f"One of {', '.join(f'V({name})' for name in allowed)}.")
    if required:
        lines.append("Required.")
    return {**docs, "description": lines if len(lines) > 1 else lines[0]}


def as_variables(text: str) -> str:
    """Return a text in which options are named as variables."""
    return re.sub(r"\bO\(([^)]*)\)", r"C(rollout_\1)", text)


def role_entries() -> dict[str, list[Entry]]:
    """Return the entry points of the roles."""
    options = module("plugin_utils.inputs.options")
    common = module("plugin_utils.config.variables").COMMON
    of_roles = module("plugin_utils.config.step_options").OF_ROLES
    every = {**common, **of_roles}

    def some(*names: str, **changes: t.Any) -> Options:
        return options.Options(*(replace(every[name], **changes.get(name, {})) for name in names))

    platform = {
        "platform": {"required": True, "text": "Where instances run: C(driver) and its options."}
    }
    known_platform = {"platform": {"text": platform["platform"]["text"]}}
    command = {"command": {"required": True, "text": "The command."}}
    of_release = {
        "release": {"required": True},
        "command": {
            "kind": options.choice("abort"),
            "text": "V(abort) takes the release back.",
        },
    }
    away = (
        "replicas",
        "auto_promote",
        "promote_delay",
        "hold",
        "watch_new",
        "on_stable_lost",
        "headroom",
    )
    in_place = {
        **platform,
        "budget": {
            "default": {"max_unavailable": 1},
            "text": (
                "How many hosts may be unavailable (C(max_unavailable)). A batch is never larger"
                " than that."
            ),
        },
        "strategy": {
            "kind": options.choice("rolling", "canary"),
            "text": (
                "How the new revision replaces the old one. V(canary) deploys as O(steps) says,"
                " where C(set_weight) is a percentage of hosts instead of requests."
            ),
        },
    }
    rolling = [
        Entry(
            "main",
            "Roll a revision out with a sliding window",
            "Replaces the running instances of a service with a new revision, within a budget, and"
            " rolls back if that fails.",
            some(*common, "restart", "rebalance", "why", "prepare_tasks", **platform),
        ),
        Entry(
            "rollback",
            "Roll back",
            "Returns to the stable revision, or, if no rollout is in progress, to the one before"
            " it. Asks no gates, but for those of the steps if C(rollout_strategy=canary) is given"
            " with C(-e).",
            some(
                *(
                    "service",
                    "replicas",
                    "budget",
                    "platform",
                    "traffic",
                    "health",
                    "min_ready",
                    "progress_deadline",
                ),
                *("failure_limit", "on_failure", "watch_new", "headroom", "store", "lease", "to"),
                *("report", "why", "follow", "notify", "metrics"),
                *("strategy", "steps", "approval", "wait"),
                **platform,
            ),
        ),
        Entry(
            "plan",
            "Show what a rollout would do",
            "Reads only.",
            some(*common, **platform),
        ),
        Entry(
            "status",
            "Show the rollout, the fleet and the lease",
            "Reads only. The service and the store are enough: a rollout in progress is shown with"
            " the variables that it began with, and otherwise the journal alone is shown.",
            some("service", "platform", "traffic", "health", "store", "follow", **known_platform),
        ),
        Entry(
            "remove",
            "Remove what rollouts of a service have left",
            "No instance is stopped. See M(progressive.rollout.remove).",
            some("service", "platform", "traffic", "health", "store", "lease", **platform),
        ),
        Entry(
            "watch",
            "Watch a service during a rollout and after it",
            "Shows a rollout that another run is working on until it ends or waits for an operator."
            " Then asks the service's background gates and analysis for C(rollout_watch) after the"
            " promotion, without the lease, and rolls back if one of them calls for it."
            " Can be run repeatedly.",
            some(*common, "watch", **platform),
        ),
        Entry(
            "report",
            "Write the report of a rollout",
            "Reads only the journal, so hosts and load balancers may be down. Without"
            " C(rollout_report), shows the report as Markdown.",
            some("service", "store", "report", "id"),
        ),
        Entry(
            "judge",
            "Replay the analyses of a rollout under other settings",
            "Reads only the journal, and changes nothing.",
            some("service", "store", "id", "try"),
        ),
        Entry(
            "history",
            "Show the rollouts of a service",
            "Reads only the journal. Shows what C(rollout_to) accepts.",
            some("service", "store"),
        ),
        Entry(
            "control",
            "Send a command to the rollout in progress",
            "Writes the command to the journal. The run that holds the lease obeys it. If there is"
            " none, this play continues the rollout, unless the command is to stop.",
            some(
                *("service", "command", "why", "replicas", "count", "force", "store", "follow"),
                **command,
            ),
        ),
        Entry(
            "release",
            "Release several services together",
            "Rolls the members of a release out one after the other, or together step by step, and"
            " takes all back if one fails. Can be run repeatedly.",
            some("release", "members", "command", "why", "store", **of_release),
        ),
    ]
    in_batches = Entry(
        "main",
        "Deploy a revision in batches, with your own tasks",
        "Takes the hosts of a play out of rotation in batches, includes a task file on them, and"
        " puts them back once they are ready. If that fails, it rolls back. Runs on the hosts of"
        " the service, in a play without C(serial). C(--limit) leaves the other hosts to a later"
        " run.",
        some(
            *(name for name in common if name not in away),
            "deploy_tasks",
            "rollback_tasks",
            "restart",
            "why",
            "check_tasks",
            **in_place,
        ),
    )
    return {"rolling": rolling, "in_place": [in_batches]}


# The reference --------------------------------------------------------------------------------


def markdown(text: str) -> str:
    """Return Ansible's markup as Markdown."""
    text = re.sub(r"\bO\(([^)]*)\)", r"`rollout_\1`", text)
    text = re.sub(r"\bM\(progressive\.rollout\.(\w+)\)", r"the step `\1`", text)
    text = re.sub(r"\bRV\((?:ignore:|[\w.]+#module:)?([^)]*)\)", r"`\1`", text)
    return re.sub(r"\b[VCM]\(((?:[^()]|\([^)]*\))*)\)", r"`\1`", text).replace("|", "\\|")


def option_rows(options: Mapping[str, Field], prefix: str = "") -> Iterable[str]:
    """Return the rows of a table of options, those of mappings below them."""
    for name, field in options.items():
        default = (
            "required"
            if field.required
            else ""
            if field.default in (None, {}, [], "")
            else f"`{shown_yaml(field.default)}`"
        )
        text = " ".join(sentences(field))
        if field.kind.choices:
            text += " " + choices(field.kind)
        kind = (
            f"{field.kind.type} of {field.kind.elements}"
            if field.kind.elements
            else field.kind.type
        )
        yield f"| `{prefix}{name}` | {kind} | {default} | {markdown(text)} |\n"
        if field.kind.fields and not field.kind.drivers:
            yield from option_rows(field.kind.documented, f"{prefix}{name}.")


def choices(kind: Kind) -> str:
    """Return the choices of a kind, as a sentence."""
    clauses = [
        f"V({name}): {text[0].lower()}{text[1:].rstrip('.')}" if text else f"V({name})"
        for name, text in kind.choices.items()
    ]
    return "; ".join(clauses) + "."


def shown_yaml(value: t.Any) -> str:
    """Return a default in YAML."""
    return (
        yaml.safe_dump(value, default_flow_style=True, width=1000)
        .removesuffix("\n")
        .removesuffix("\n...")
        .strip()
    )


TABLE = "| option | type | default | meaning |\n|---|---|---|---|\n"
TITLES = {
    "platforms": ("Platforms", "`rollout_platform`"),
    "traffic": ("Load balancers", "`rollout_traffic`"),
    "checks": (
        "Health checks",
        "`rollout_health`; the option named after a check selects it",
    ),
    "gates": ("Gates", "`rollout_gates`, and of `gate` in `rollout_steps`"),
    "metrics": ("Metrics", "`metrics` of an analysis"),
    "autoscalers": ("Autoscalers", "`rollout_autoscaler`"),
    "stores": ("Stores", "`rollout_store`"),
    "notifiers": ("Notifiers", "a receiver of `rollout_notify`"),
}


def drivers_page() -> str:
    """Return docs/reference/drivers.md."""
    text = f"# Drivers\n\n<!-- Generated by {HERE}. Do not edit. -->\n\n"
    text += "The options of each driver, in addition to `driver` itself, which names it.\n"
    text += (
        "A driver from another collection is named `namespace.collection.driver`; [write"
        " one](../how-to/write-a-driver.md).\n"
    )
    for folder, (title, variable) in TITLES.items():
        text += f"\n## {title}\n\nOptions of {variable}.\n"
        if folder == "gates":
            gate = module("plugin_utils.config.gates").GATE
            text += f"\nAll gates have these options.\n\n{TABLE}{''.join(option_rows(gate))}"
        if folder == "notifiers":
            common = module("plugin_utils.config.notify").NOTIFY
            text += f"\nAll notifiers have these options.\n\n{TABLE}{''.join(option_rows(common))}"
        shared = shared_rows(folder)
        for names, rows in shared.items():
            text += f"\n### {title}: {', '.join(names)}\n\nOptions that these have in common.\n"
            text += f"\n{TABLE}{''.join(rows)}"
        for name in DRIVERS[folder]:
            text += driver_section(folder, name, title, shared)
    return text


LEAST_SHARED = 3  # options that drivers have in common, from which on they are a table of their own


def rows_of(folder: str, name: str) -> list[str]:
    """Return the rows of a driver's options, each with those of the options below it."""
    return [
        "".join(option_rows({key: field})) for key, field in driver_options(folder, name).items()
    ]


def shared_rows(folder: str) -> dict[tuple[str, ...], list[str]]:
    """Return the rows that several drivers have alike, by the names of the drivers."""
    drivers: dict[str, list[str]] = {}
    for name in DRIVERS[folder]:
        for row in rows_of(folder, name):
            drivers.setdefault(row, []).append(name)
    shared: dict[tuple[str, ...], list[str]] = {}
    for row, names in drivers.items():
        if len(names) > 1:
            shared.setdefault(tuple(names), []).append(row)
    return {names: rows for names, rows in shared.items() if len(rows) >= LEAST_SHARED}


def driver_section(
    folder: str, name: str, title: str, shared: Mapping[tuple[str, ...], Sequence[str]]
) -> str:
    """Return the section of one driver, with a link to each table that it shares with others."""
    driver = module(f"plugin_utils.{folder}.{name}")
    text = f"\n### {title}: {name}\n\n{first_sentence(driver.__doc__)}\n"
    groups = [names for names in shared if name in names]
    elsewhere = [row for names in groups for row in shared[names]]
    anchor = title.lower().replace(" ", "-")
    links = [f"[{', '.join(names)}](#{anchor}-{'-'.join(names)})" for names in groups]
    if links:
        *others, last = links
        of = f"{', of '.join(others)} and of {last}" if others else last
        text += f"It also has the options of {of}.\n"
    if rows := "".join(row for row in rows_of(folder, name) if row not in elsewhere):
        text += f"\n{TABLE}{rows}"
    for key, why in driver.Driver.unsupported.items():
        text += f"\n`{key}` is refused: {why}.\n"
    return text


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring, in one line."""
    return re.split(r"(?<=\.) ", " ".join(text.split()), maxsplit=1)[0]


def options_of_drivers() -> dict[str, list[str]]:
    """Return the names of the options of each driver, such as `traffic.haproxy`."""
    return {
        f"{folder}.{name}": list(driver_options(folder, name))
        for folder, names in DRIVERS.items()
        for name in names
    }


# Files ----------------------------------------------------------------------------------------


def files() -> dict[str, str]:
    """Return every generated file with its content."""
    import guides
    import limits
    import messages
    import pictures
    import public_names
    import report_example
    import timeline

    return {
        "plugins/doc_fragments/rollout.py": fragment(),
        **modules(),
        **roles(),
        "roles/awx/meta/argument_specs.yml": awx_spec(),
        "docs/how-to/report-example.html": report_example.page(),
        **pictures.pictures(),
        "docs/reference/drivers.md": drivers_page(),
        "docs/reference/messages.md": messages.page(),
        "docs/reference/timeline-events.md": timeline.page(),
        limits.PAGE: limits.page(),
        public_names.FILE: public_names.page(options_of_drivers()),
        **{
            f"docs/docsite/rst/{name.replace('-', '_')}.rst": guides.guide(name)
            for name in guides.GUIDES
        },
    }


def main() -> int:
    stale = [
        path
        for path, text in files().items()
        if not (ROOT / path).exists() or (ROOT / path).read_text() != text
    ]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path} is stale: run make generate")
        return bool(stale)
    for path in stale:
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(files()[path])
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
