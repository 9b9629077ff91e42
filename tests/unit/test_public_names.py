# SPDX-License-Identifier: GPL-3.0-or-later
"""What docs/reference/stability.md promises: a name that was public stays."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.messages import MESSAGES
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.variables import COMMON
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import events
from ansible_collections.progressive.rollout.tests.support.playbook import ROOT

KNOWN = Path(__file__).with_name("public_names.yml")


def present() -> dict[str, list[str]]:
    kinds = [
        kind
        for kind in vars(events).values()
        if isinstance(kind, type) and issubclass(kind, events.Event) and kind is not events.Event
    ]
    fields = [
        f"{kind.__name__}.{field.name}" for kind in kinds for field in dataclasses.fields(kind)
    ]
    names = {
        "playbooks": [path.stem for path in (ROOT / "playbooks").glob("*.yml")],
        "steps": [path.stem for path in (ROOT / "plugins/modules").glob("*.py")],
        "variables": [field.name for field in COMMON.fields],
        "messages": list(MESSAGES),
        "events": [*(kind.__name__ for kind in kinds), *fields],
    }
    return {kind: sorted(all_names) for kind, all_names in names.items()}


def test_a_public_name_stays() -> None:
    known = yaml.safe_load(KNOWN.read_text())
    now = present()
    gone = {kind: sorted(set(names) - set(now[kind])) for kind, names in known.items()}
    assert not any(gone.values()), f"removed without a deprecation and a major release: {gone}"
