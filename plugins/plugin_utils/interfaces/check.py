# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How an instance is asked whether it is ready: the interface of a check driver."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import Endpoint


@dataclass(frozen=True)
class Probe:
    """The outcome of asking one instance once."""

    passed: bool
    detail: str = ""  # why not, in a few words: "503, expected 200", "connection refused"


class Check(t.Protocol):
    """How an instance is asked whether it is ready. Pure: who carries the bytes is not its business."""

    tls: bool

    def payload(self, endpoint: Endpoint) -> bytes:
        """What to send once connected; empty to send nothing."""

    def judge(self, reply: bytes) -> Probe | None:
        """The verdict on the bytes received so far; None while more are needed. Called once more at the end of
        the stream with everything, when None means failed."""
