# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make docs/reference/timeline-events.md from the events of state/events.py."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/reference/timeline-events.md"
HEAD = """\
# Timeline events

<!-- Made from plugins/plugin_utils/state/events.py by scripts/timeline.py. Do not edit. -->

The timeline of a rollout is a file of JSON lines in the journal, `journal/SERVICE/ROLLOUT.jsonl` below `rollout_store.path` on `rollout_store.host`.
It is for people and their tools: no decision is based on it, except the estimate of `plan`.
Every event has `at` (seconds since the epoch) and `kind`.
Optional fields without a value are left out.
"""


def page() -> str:
    """Return the page as Markdown."""
    from ansible_collections.progressive.rollout.plugins.plugin_utils.state.events import KINDS, documented

    text = HEAD
    for kind, event in KINDS.items():
        text += f"\n## {kind}\n\n{event.__doc__}\n\n"
        text += "".join(f"- `{name}`: {sentence}\n" for name, sentence in documented(event).items())
    return text


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / ".cache/collections"))
    PAGE.write_text(page())
