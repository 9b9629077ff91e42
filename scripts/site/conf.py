# SPDX-License-Identifier: GPL-3.0-or-later
"""How Sphinx makes the site of these pages: `make docs`."""

from __future__ import annotations

import posixpath
import re
import typing as t
from pathlib import Path

from docutils import nodes
from pygments.lexers.special import TextLexer

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/progressive-rollout/progressive.rollout/tree/main/"
ANSIBLE = "https://docs.ansible.com/ansible/latest/"
LABELS = {  # of Ansible's own pages, which antsibull-docs refers to
    "action_plugins": "plugins/action.html",
    "ansible_configuration_settings": "reference_appendices/config.html",
    "common_return_values": "reference_appendices/common_return_values.html",
}
# by scripts/docs, beside what the index lists
MADE = {"Reference": ["Every option of every step <reference/collection/index>"]}

project = "progressive.rollout"
author = copyright = "the progressive.rollout authors"
extensions = ["myst_parser", "sphinx_antsibull_ext", "sphinx_copybutton"]
exclude_patterns = ["docsite"]
nitpicky = True
myst_heading_anchors = 3
html_theme = "furo"
html_title = "progressive.rollout"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False


def read(_app: t.Any, name: str, source: list[str]) -> None:
    """Make the lists of an index page the site's contents, and links to folders and out of docs/
    links to the repository.
    """
    # the theme has one
    source[0] = source[0].replace(".. contents::\n   :local:\n   :depth: 1\n", "")
    source[0] = re.sub(
        r"\]\(((?:\.\./)+[^)]*)\)", lambda link: f"]({_outside(name, link[1])})", source[0]
    )
    if posixpath.basename(name) == "index" and not name.endswith("collection/index"):
        source[0] += "".join(_contents(title, text) for title, text in _sections(source[0]))


def _outside(name: str, target: str) -> str:
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(name), target))
    page = path.startswith("docs/") and not (ROOT / path).is_dir()
    return target if page else REPOSITORY + path


def _sections(text: str) -> list[tuple[str, str]]:
    """The sections of a page, each with its title and text; a page without any is one."""
    parts = re.split(r"^##+ (.*)$", text, flags=re.M)
    return list(zip(parts[1::2], parts[2::2], strict=True)) or [("", text)]


def _contents(title: str, text: str) -> str:
    pages = re.findall(r"^- \[.*\]\((?!https?:)([^)#]*)\.md\)", text, re.M) + MADE.get(title, [])
    if not pages:
        return ""
    caption = [f":caption: {title}"] if title else []
    return "\n".join(["", "```{toctree}", ":hidden:", *caption, "", *pages, "```", ""])


def link_to_ansible(_app: t.Any, _env: t.Any, node: t.Any, content: t.Any) -> t.Any:
    """Resolve a reference to a page of Ansible's own, without asking the network."""
    target = node["reftarget"]
    module = re.fullmatch(r"ansible_collections\.ansible\.builtin\.(\w+_module)", target)
    page = f"collections/ansible/builtin/{module[1]}.html" if module else LABELS.get(target)
    return nodes.reference("", "", content, refuri=ANSIBLE + page, internal=False) if page else None


def setup(app: t.Any) -> None:
    app.add_lexer("haproxy", TextLexer)
    app.connect("source-read", read)
    app.connect("missing-reference", link_to_ansible)
