# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes every task's result as a line of JSON to the file named in RESULTS, for
`tests/playbook.py`.
"""

from __future__ import annotations

import json
import os
import time
import typing as t

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: results
type: notification
short_description: Task results as lines of JSON
description: [Task results as lines of JSON, for tests.]
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "results"
    CALLBACK_NEEDS_ENABLED = True

    def _write(self, status: str, result: t.Any) -> None:
        task = result.task if hasattr(result, "task") else result._task
        data = result.result if hasattr(result, "result") else result._result
        line = {
            "task": task.name or task.action,
            "action": task.action,
            "status": status,
            "result": data,
            "at": time.time(),
        }
        with open(os.environ["RESULTS"], "a") as file:
            file.write(json.dumps(line, default=str) + "\n")

    def v2_runner_on_ok(self, result: t.Any) -> None:
        self._write("ok", result)

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        self._write("failed", result)

    def v2_runner_on_skipped(self, result: t.Any) -> None:
        self._write("skipped", result)

    def v2_runner_on_unreachable(self, result: t.Any) -> None:
        self._write("unreachable", result)
