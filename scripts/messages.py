# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make docs/reference/messages.md from the table of base/messages.py."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/reference/messages.md"
HEAD = """\
# Messages

<!-- Made from plugins/plugin_utils/base/messages.py by scripts/messages.py. Do not edit. -->

Every message that asks something of you ends with an id, such as `[PR-104]`.
The id stays the same when the wording changes.
A message names the variable, host or instance that it is about; this page says what kind of trouble it is, and what to do.
"""


def page() -> str:
    """Return the page as Markdown."""
    from ansible_collections.progressive.rollout.plugins.plugin_utils.base.messages import MESSAGES, SECTIONS

    text = HEAD
    for digit, title in SECTIONS.items():
        text += f"\n## {title}\n"
        for name, message in MESSAGES.items():
            if name.startswith(f"PR-{digit}"):
                text += f"\n### {name}\n\n{message.meaning}\n\n*What to do:* {message.remedy}\n"
    return text


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / ".cache/collections"))
    PAGE.write_text(page())
