# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The demo's output: what tasks say and what fails, without the names of the tasks."""

from __future__ import annotations

import typing as t

from ansible.executor.task_result import CallbackTaskResult
from ansible.plugins.callback.default import CallbackModule as Default

DOCUMENTATION = """
name: brief
type: stdout
short_description: What tasks say and what fails, without the names of the tasks
description: Progress lines, messages of C(debug), and failures.
extends_documentation_fragment: [default_callback, result_format_callback]
"""


class CallbackModule(Default):  # type: ignore[misc]  # ansible-core has no types
    CALLBACK_NAME = "brief"

    def v2_playbook_on_play_start(self, play: t.Any) -> None:
        self._play = play  # as the default does, without its banner

    def v2_playbook_on_include(self, included_file: t.Any) -> None:
        """Say nothing."""

    def v2_runner_item_on_ok(self, result: CallbackTaskResult) -> None:
        """Say nothing."""

    def v2_runner_on_failed(self, result: CallbackTaskResult, ignore_errors: bool = False) -> None:
        """Leave out the reason of a rollout that failed: the lines before say it."""
        if result.task.name != "Fail with the reason":
            super().v2_runner_on_failed(result, ignore_errors)

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        """Say nothing."""

    def v2_runner_on_ok(self, result: CallbackTaskResult) -> None:
        if result.task.action == "ansible.builtin.debug":
            said = result.result.get("msg", "")
            self._display.display("\n".join(said) if isinstance(said, list) else str(said))
