# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the guides of docs/docsite, which docs.ansible.com shows, from the tutorial: docs.ansible.com takes reStructuredText only."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = "https://github.com/progressive-rollout/progressive.rollout/blob/main/"
GUIDES = ("first-rollout", "first-canary", "rollback-in-anger")
UNDERLINES = "=-~"


def guide(name: str) -> str:
    """Return a page of the tutorial as reStructuredText. The pages have headings, paragraphs, lists and fences."""
    page = f"docs/tutorial/{name}.md"
    text = re.sub(r"<!--.*?-->\n", "", (ROOT / page).read_text(), flags=re.S)
    blocks = [_block(part.strip(), page) for part in re.findall(r"^```(?s:.*?)^```$|^(?:.+\n?)+", text, re.M)]
    head = f".. Made from {page} by scripts/guides.py. Do not edit.\n\n.. _{_label(name)}:\n\n"
    return head + "\n\n".join(blocks) + "\n"


def _block(text: str, page: str) -> str:
    if fence := re.fullmatch(r"```(\w*)\n(.*?)\n?```", text, re.S):
        language = {"haproxy": "text", "sh": "bash"}.get(fence[1], fence[1])
        lines = [f"   {line}" if line else "" for line in fence[2].splitlines()]
        return "\n".join([f".. code-block:: {language}", "", *lines])
    if heading := re.fullmatch(r"(#+) (.*)", text):
        title = _inline(heading[2], page)
        return f"{title}\n{UNDERLINES[len(heading[1]) - 1] * len(title)}"
    return _inline(text, page)


def _inline(text: str, page: str) -> str:
    """Literals get two backticks, and links lead to a guide here or to the page in the repository."""
    text = re.sub(r"`([^`]+)`", r"``\1``", text)
    return re.sub(r"\[([^\]]+)\]\(([^)]+)\)", lambda link: _link(link[1], link[2], page), text)


def _link(title: str, target: str, page: str) -> str:
    if "://" in target:
        return f"`{title} <{target}>`__"
    path, _hash, anchor = target.partition("#")
    name = Path(path).stem
    if not anchor and name in GUIDES:
        return f":ref:`{title} <{_label(name)}>`"
    where = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    return f"`{title} <{REPOSITORY}{where}{_hash}{anchor}>`__"


def _label(name: str) -> str:
    return f"ansible_collections.progressive.rollout.docsite.{name.replace('-', '_')}"


if __name__ == "__main__":
    for name in GUIDES:
        (ROOT / f"docs/docsite/rst/{name.replace('-', '_')}.rst").write_text(guide(name))
