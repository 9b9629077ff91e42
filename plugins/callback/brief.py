# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of a rollout: what tasks say and what fails, without the names of the tasks."""

from __future__ import annotations

DOCUMENTATION = r"""
name: brief
type: stdout
short_description: Show what tasks say and what fails, without the names of the tasks
version_added: 1.0.0
author:
  - The progressive.rollout authors (@progressive-rollout)
description:
  - Shows the lines of rollouts, the messages of C(ansible.builtin.debug), changes with C(--diff),
    and failures. It leaves out plays, tasks that succeed or are skipped, and the recap.
  - Of a step, C(ansible.builtin.fail) and C(ansible.builtin.assert) it shows the whole message of a
    failure. Of any other task, and with C(-v), it shows the whole result.
requirements:
  - Set C(stdout_callback=progressive.rollout.brief) in C(ansible.cfg), or
    C(ANSIBLE_STDOUT_CALLBACK).
extends_documentation_fragment:
  - default_callback
  - result_format_callback
seealso:
  - plugin: ansible.builtin.default
    plugin_type: callback
    description: The callback that shows everything.
"""

EXAMPLES = r"""
stdout_callback: |
  # ansible.cfg
  [defaults]
  stdout_callback = progressive.rollout.brief
"""

import typing as t

from ansible import constants
from ansible.plugins.callback.default import CallbackModule as Default

if t.TYPE_CHECKING:
    from ansible.executor.task_result import CallbackTaskResult

SAY = ("ansible.builtin.debug", "debug")
FAIL = ("ansible.builtin.fail", "fail", "ansible.builtin.assert", "assert")
OURS = "progressive.rollout."


class CallbackModule(Default):  # type: ignore[misc]  # ansible-core has no types
    """The callback."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "progressive.rollout.brief"
    _last_failure = ""

    def v2_runner_on_failed(self, result: CallbackTaskResult, ignore_errors: bool = False) -> None:
        """Show the message for people, or the whole result."""
        action = str(result.task.action)
        known = action in FAIL or action.startswith(OURS)
        if result.task.loop or ignore_errors or self._display.verbosity or not known:
            super().v2_runner_on_failed(result, ignore_errors)
            return
        self._handle_warnings(result.result)
        host = self.host_label(result)
        message = f"failed: [{host}]: {result.result.get('msg', '')}"
        if message == self._last_failure:  # a rescue fails with the reason of its block
            return
        self._last_failure = message
        self._display.display(
            message, color=constants.COLOR_ERROR, stderr=self.get_option("display_failed_stderr")
        )

    def v2_runner_on_ok(self, result: CallbackTaskResult) -> None:
        """Show warnings, and the message of a `debug`."""
        self._handle_warnings(result.result)
        if result.task.action in SAY and not result.task.loop:
            self._print_result(result.result)

    def v2_runner_item_on_ok(self, result: CallbackTaskResult) -> None:
        """Show the message of a `debug` in a loop."""
        if result.task.action in SAY:
            self._print_result(result.result)

    def _print_result(self, result: t.Mapping[str, t.Any]) -> None:
        message = result.get("msg")
        lines = message if isinstance(message, list) else [message]
        shown = [str(line) for line in lines] if "msg" in result else [self._dump_results(result)]
        self._display.display("\n".join(shown))

    def v2_playbook_on_play_start(self, play: t.Any) -> None:
        """Remember the play, as the default does, without its banner."""
        self._play = play

    def v2_playbook_on_task_start(self, task: t.Any, is_conditional: bool) -> None:
        """Remember the name of the task, for failures."""
        self._last_task_name = task.get_name().strip()

    def v2_playbook_on_handler_task_start(self, task: t.Any) -> None:
        """Remember the name of the handler, for failures."""
        self._last_task_name = task.get_name().strip()

    def v2_playbook_on_cleanup_task_start(self, task: t.Any) -> None:
        """Say nothing."""

    def v2_playbook_on_no_hosts_matched(self) -> None:
        """Say nothing."""

    def v2_playbook_on_include(self, included_file: t.Any) -> None:
        """Say nothing."""

    def v2_runner_on_skipped(self, result: CallbackTaskResult) -> None:
        """Say nothing."""

    def v2_runner_item_on_skipped(self, result: CallbackTaskResult) -> None:
        """Say nothing."""

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        """Say nothing."""
