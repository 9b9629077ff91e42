# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What docs/reference/stability.md promises: a name that was public stays, and a new one is seen."""

from __future__ import annotations

import sys

from ansible_collections.progressive.rollout.tests.support.playbook import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import generate
import public_names

NOW = public_names.present(generate.options_of_drivers())
KNOWN = public_names.known()


def only_in(names: public_names.Names, others: public_names.Names) -> list[str]:
    return [
        f"{kind}: {name}"
        for kind in names
        for name in sorted(set(names[kind]) - set(others.get(kind, ())))
    ]


def test_a_public_name_stays() -> None:
    gone = only_in(KNOWN, NOW)
    assert not gone, (
        f"removed without a deprecation and a major release: {gone}; what no release had yet may be"
        f" taken out of {public_names.FILE}"
    )


def test_a_new_public_name_is_written_down() -> None:
    assert not only_in(NOW, KNOWN), "run make generate, and see that these names are meant to stay"


def test_all_kinds_of_names_are_there() -> None:
    for kind, name in (
        ("variables", "rollout_known_good"),
        ("variables", "rollout_count"),
        ("commands", "set_target"),
        ("playbooks", "remove"),
        ("roles", "rolling.control"),
        ("drivers", "traffic.haproxy.slots"),
        ("results", "info.rollout.phase"),
        ("events", "begin.revision"),
    ):
        assert name in NOW[kind], (kind, name)
