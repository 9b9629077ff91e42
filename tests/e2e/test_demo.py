# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The demo as it stands, only with instances that start at once: nothing fails, and nothing is
left.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from ansible_collections.progressive.rollout.tests.support.playbook import ROOT


def test_demo_of_blue_green(tmp_path: Path) -> None:
    state = tmp_path / "demo"
    quick = {"demo_env": {"LATENCY": "0.005"}, "rollout_min_ready": 0}
    variables = {"rollout_strategy": "blue_green", "demo_state": str(state), **quick}
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        *(
            "-i",
            "playbooks/files/demo-inventory.yml",
            "playbooks/demo.yml",
            "-e",
            json.dumps(variables),
        ),
    ]
    try:
        result = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
        )
    finally:
        helper = [sys.executable, "playbooks/files/demo.py", "stop", "--state", str(state)]
        left = subprocess.run(helper, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert result.returncode == 0, result.stdout + result.stderr
    assert not left
    assert re.findall(r"requests failed +(\d+)", result.stdout) == ["0", "0"]
    assert "6 instances of revision 1 replaced by revision 2" in result.stdout
    assert "revision 3 aborted, and rolled back to revision 2" in result.stdout
    assert re.findall(r"(switch(?: back)?) +[0-9.]+ ms", result.stdout) == [
        "switch",
        "switch",
        "switch back",
    ]
