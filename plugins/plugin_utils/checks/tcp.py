# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ready when the port accepts a connection (and, with `tls`, completes the handshake). Pure."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.check import Probe
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import Endpoint

OPTIONS: dict[str, t.Any] = {"tcp": {"type": "bool"}}


class Driver:
    """Connects, says nothing, waits for nothing."""

    server_name = ""  # whom the certificate must be for: the address
    enough = b""

    def __init__(self, options: Mapping[str, t.Any], tls: bool, variable: str) -> None:
        self.tls = tls

    def payload(self, endpoint: Endpoint) -> bytes:
        return b""

    def judge(self, reply: bytes) -> Probe | None:
        return Probe(True)
