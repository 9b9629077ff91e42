# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the pictures of the documentation, in light and dark, from what was recorded.

As a program, record it again: run the demo and a job of AWX, and photograph the report.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import typing as t
from html import escape
from pathlib import Path
from textwrap import wrap

import yaml

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "tests/support/recorded"
HOW_TO = "docs/how-to"
TERMINALS = {  # by picture: what was recorded, and its title
    "docs/demo.svg": ("demo.txt", "make demo STRATEGY=canary"),
    f"{HOW_TO}/awx-job.svg": ("awx-job.txt", "AWX: job shop rollout"),
}
WIDTH = 120  # characters
COOL = ((9, 80, 174), (120, 40, 160), (20, 105, 115), (80, 88, 96))  # on a light page: blue to grey


def pictures() -> dict[str, str]:
    """Return every SVG picture by its path."""
    terminals = {
        path: terminal(RECORDED / name, title) for path, (name, title) in TERMINALS.items()
    }
    drawn = {
        f"{HOW_TO}/awx.svg": awx(),
        "docs/explanation/parts.svg": parts(),
        "docs/reference/phases.svg": phases(),
    }
    return terminals | drawn


# What a terminal shows ----------------------------------------------------------------------------

TERMINAL = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>TITLE</title>
<style>
text {{ font: {char_height}px monospace; white-space: pre }}
.{unique_id}-title {{ font: bold 16px sans-serif }}
{styles}
LIGHT
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g>{matrix}</g>
</g>
</svg>
"""


def terminal(recorded: Path, title: str) -> str:
    """Return what a terminal showed, with its colours."""
    from rich.terminal_theme import DIMMED_MONOKAI, TerminalTheme

    light = TerminalTheme(
        (246, 248, 250),
        (31, 35, 40),
        [(31, 35, 40), (180, 30, 30), (17, 99, 41), (125, 78, 0), *COOL],
    )
    text = recorded.read_text()
    picture = _exported(text, title, light)
    rules = "\n".join(re.findall(r"^\s*(\.t-r\d+ .*)$", picture, re.M))
    page, ink = light.background_color.hex, light.foreground_color.hex
    lit = f"svg > rect {{ fill: {page} }} .t-title {{ fill: {ink} }}\n{rules}"
    scheme = f"@media (prefers-color-scheme: light) {{\n{lit}\n}}"
    return _tidy(_exported(text, title, DIMMED_MONOKAI).replace("LIGHT", scheme))


def _exported(text: str, title: str, theme: t.Any) -> str:
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"{text.rstrip()}\n"))
    return console.export_svg(
        title=title, theme=theme, unique_id="t", code_format=TERMINAL.replace("TITLE", title)
    )


def _tidy(text: str) -> str:
    return "".join(f"{line.strip()}\n" for line in text.splitlines() if line.strip())


# Diagrams ------------------------------------------------------------------------------------

DIAGRAM = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"
height="{height}" role="img">
<title>{title}</title>
<style>
svg {{ --ink: #1f2328; --page: #fff; --box: #f6f8fa; --line: #59636e; --good: #116329;
--bad: #b41e1e; --person: #7828a0 }}
@media (prefers-color-scheme: dark) {{ svg {{ --ink: #e6edf3; --page: #14171a; --box: #22272e;
--line: #9198a1; --good: #6fd59a; --bad: #ff8a7a; --person: #c9a0ff }} }}
text {{ font: 14px sans-serif; fill: var(--ink) }}
.name {{ font-weight: bold }}
.group {{ fill: var(--line); font-weight: bold }}
.page {{ fill: var(--page) }}
.box {{ fill: var(--box); stroke: var(--line) }}
.person {{ stroke: var(--person); stroke-width: 2.5 }}
.arrow {{ fill: none; stroke: var(--line); stroke-width: 2 }}
.good {{ stroke: var(--good) }}
.bad {{ stroke: var(--bad); stroke-dasharray: 6 4 }}
</style>
<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"
markerUnits="userSpaceOnUse" orient="auto">
<path d="M0 0 L8 4 L0 8 z" fill="context-stroke"/></marker></defs>
<rect class="page" width="{width}" height="{height}"/>
{body}
</svg>
"""
LEFT, RIGHT, BOX = 20, 260, 220  # two columns, so that a phone shows the letters large enough
GAP = 10  # half of what is between the columns


def _diagram(title: str, height: int, body: t.Iterable[str]) -> str:
    width = RIGHT + BOX + LEFT
    return DIAGRAM.format(title=escape(title), width=width, height=height, body="\n".join(body))


def awx() -> str:
    """Return what is made in AWX for the example, with the workflow of its steps."""
    example = yaml.safe_load((ROOT / "docs/examples/awx/group_vars/all.yml").read_text())
    service = example["rollout_service"]
    waits = [n for n, step in enumerate(example["rollout_steps"], 1) if step.get("pause") == {}]
    body = [*_resources(example["rollout_awx"]), *_templates(service), *_workflow(service, waits)]
    title = (
        "What progressive.rollout.awx makes: a project, an inventory, an execution environment,"
        " job templates with surveys, and a workflow with an approval for each wait for an operator"
    )
    return _diagram(title, 522 + 152 * len(waits), body)


def _resources(made: dict[str, t.Any]) -> list[str]:
    return [
        _text(LEFT, 32, "group", "Your repository and hosts, as AWX knows them"),
        _box(LEFT, 46, "Project", "your repository"),
        _box(RIGHT, 46, "Inventory", "its hosts and group_vars"),
        _box(LEFT, 110, "Execution environment", made["image"].rpartition("/")[2]),
        _box(RIGHT, 110, "Credential", made["credentials"][0]),
        _arrow(LEFT + 110, 162, LEFT + 110, 190),
        _arrow(RIGHT + 110, 162, RIGHT + 110, 190),
    ]


def _templates(service: str) -> list[str]:
    surveys = yaml.safe_load((ROOT / "roles/awx/vars/main.yml").read_text())["_awx_surveys"]
    asking = ", ".join(name for name, questions in surveys.items() if questions)
    others = ", ".join(name for name, questions in surveys.items() if not questions)
    lines = [*wrap(f"With a survey: {asking}", 56), *wrap(f"Without: {others}", 56)]
    return [
        f'<rect class="box" x="{LEFT}" y="192" width="460" height="104" rx="6"/>',
        _text(LEFT + 12, 216, "name", f"{len(surveys)} job templates: {service} …"),
        *(_text(LEFT + 12, 240 + 20 * at, "", line) for at, line in enumerate(lines)),
    ]


def _workflow(service: str, waits: list[int]) -> list[str]:
    body = [
        _text(LEFT, 340, "group", f"Workflow: {service} workflow"),
        _box(LEFT, 354, f"{service} rollout", "asks for the revision"),
    ]
    for at, wait in enumerate(waits):
        y = 430 + 152 * at
        body += [
            _arrow(LEFT + 110, y - 24, LEFT + 110, y - 1, "good"),
            _box(LEFT, y, f"Approval {at + 1}", f"an operator, at step {wait}", "person"),
            _arrow(LEFT + BOX, y + 26, RIGHT - 1, y + 26, "bad"),
            _box(RIGHT, y, f"{service} abort", "the old revision again"),
            _arrow(LEFT + 110, y + 52, LEFT + 110, y + 75, "good"),
            _box(LEFT, y + 76, f"{service} promote", "continues the rollout"),
        ]
    y = 464 + 152 * len(waits)
    return [
        *body,
        _arrow(LEFT, y, LEFT + 40, y, "good"),
        _text(LEFT + 50, y + 5, "", "approved, or successful"),
        _arrow(LEFT, y + 26, LEFT + 40, y + 26, "bad"),
        _text(LEFT + 50, y + 31, "", "denied, or too late"),
    ]


def parts() -> str:
    """Return what a run of the playbook talks to."""
    rows = [
        (("Hosts", "start, look at, stop"), ("Load balancers", "add, drain, remove, count")),
        (("Journal and lease", "a file or a database"), ("Kubernetes, Swarm", "their API instead")),
        (
            ("Health checks", "http or tcp, each instance"),
            ("Metrics", "balancers, logs, Prometheus"),
        ),
    ]
    middle, bottom = LEFT + BOX + GAP, 46 + 76 * len(rows)
    body = [
        f'<rect class="box person" x="{LEFT}" y="14" width="460" height="52" rx="6"/>',
        _text(LEFT + 12, 36, "name", "ansible-playbook, or a job of AWX"),
        _text(LEFT + 12, 56, "", "one task: observe, decide, record, act, and again"),
        f'<path class="arrow" d="M{middle} 66 L{middle} {bottom - 10}"/>',
    ]
    for at, (left, right) in enumerate(rows):
        y = 86 + 76 * at
        body += [_box(LEFT, y, *left), _box(RIGHT, y, *right)]
        body += [_arrow(middle, y + 26, x, y + 26) for x in (middle - GAP, middle + GAP)]
    title = (
        "A run of the playbook talks to hosts, load balancers, the journal, Kubernetes or Swarm,"
        " health checks and metrics"
    )
    return _diagram(title, bottom + 30, body)


def phases() -> str:
    """Return the phases of a rollout, and what leads from one to another."""
    names = [
        ("progressing", "instances are replaced"),
        ("awaiting_promotion", "blue-green: ready"),
        ("promoting", "it gets all traffic"),
        ("holding", "the old set is kept ready"),
        ("finished", "over, with an outcome"),
    ]
    body = [_box(LEFT, 14 + 90 * at, *words) for at, words in enumerate(names)]
    center, edge, middle = LEFT + 110, LEFT + BOX, LEFT + BOX + GAP
    body += [_arrow(center, 66 + 90 * at, center, 103 + 90 * at, "good") for at in range(4)]
    body += [
        _box(RIGHT, 14, "paused", "by a command, or a pause", "person"),
        _arrow(edge, 32, RIGHT - 1, 32),
        _arrow(RIGHT, 50, edge + 1, 50, "good"),
        _box(RIGHT, 104, "held", "an operator decides", "person"),
        f'<path class="arrow good" d="M{RIGHT} 130 L{middle} 130 L{middle} 60 L{edge + 1} 60"'
        ' marker-end="url(#end)"/>',
        _box(RIGHT, 194, "rolling_back", "from any phase, on a failure"),
        _arrow(edge, 220, RIGHT - 1, 220, "bad"),
        _arrow(RIGHT + 90, 194, RIGHT + 90, 157, "bad"),
        _arrow(RIGHT + 130, 156, RIGHT + 130, 193, "bad"),
        f'<path class="arrow" d="M{RIGHT + 110} 246 L{RIGHT + 110} 400 L{edge + 1} 400"'
        ' marker-end="url(#end)"/>',
    ]
    title = (
        "A rollout progresses, may be paused or held, is promoted and finishes, or rolls back from"
        " any phase and finishes"
    )
    return _diagram(title, 440, body)


def _box(x: int, y: int, name: str, note: str, kind: str = "") -> str:
    words = _text(x + 12, y + 22, "name", name) + "\n" + _text(x + 12, y + 42, "", note)
    return f'<rect class="box {kind}" x="{x}" y="{y}" width="{BOX}" height="52" rx="6"/>\n{words}'


def _text(x: int, y: int, kind: str, words: str) -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(words)}</text>'


def _arrow(x: int, y: int, to_x: int, to_y: int, kind: str = "") -> str:
    path = f"M{x} {y} L{to_x} {to_y}"
    return f'<path class="arrow {kind}" d="{path}" marker-end="url(#end)"/>'


# Recording ----------------------------------------------------------------------------------------

CHROMIUM = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]


def record() -> None:
    """Run what the pictures show, and keep what it printed."""
    (RECORDED / "demo.txt").write_text(_demo())
    (RECORDED / "awx-job.txt").write_text(_job())
    page = ROOT / HOW_TO / "report-example"
    photo = [f"--screenshot={page}.png", "--window-size=1000,1250", f"file://{page}.html"]
    subprocess.run([*CHROMIUM, *photo], check=True, capture_output=True)


def _demo() -> str:
    wanted = {"ANSIBLE_FORCE_COLOR": "1", "STRATEGY": "canary", "BALANCER": "haproxy"}
    shown = subprocess.run(
        [str(ROOT / "scripts/demo")],
        env=os.environ | wanted,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    shown = re.sub(r"\S+@\S+ pid", "ann@deploy1 pid", shown)
    return shown.replace(str(ROOT), "/home/ann/rollout")


def _job() -> str:
    """Return the output of a rollout that ansible-runner runs, up to its wait for an operator."""
    from ansible_collections.progressive.rollout.tests.e2e.test_runner import Controller, deploy
    from ansible_collections.progressive.rollout.tests.support.playbook import Playground

    with Playground() as playground:
        steps = [{"set_replicas": 1}, {"pause": {}}, {"set_replicas": 2}, {"pause": "10m"}]
        playground.variables |= {
            "rollout_strategy": "canary",
            "rollout_steps": steps,
            "rollout_wait": 0,
        }
        controller = Controller(playground)
        controller.environment["ANSIBLE_FORCE_COLOR"] = "1"
        try:
            deploy(controller, "2.4.2")
            job = controller.launch("rollout", {"rollout_revision": "2.4.3"}, verbosity=0)
            assert job.wait() == "successful", job.output
        finally:
            controller.close()
        shown = "PLAY [Roll" + job.runner.stdout.read().partition("PLAY [Roll")[2]
        shown = re.sub(r"\S*/ansible_collections/", "/runner/collections/", shown)
        return re.sub(r"\n{3,}", "\n\n", shown.replace("\r", ""))


if __name__ == "__main__":
    record()
