# SPDX-License-Identifier: GPL-3.0-or-later
"""Ready when the port accepts a connection (and, with `tls`, completes the handshake). Pure."""

from __future__ import annotations

from ..inputs.options import FLAG, Field, Options
from ..interfaces.check import Connect

OPTIONS = Options(Field("tcp", FLAG, "Whether an accepted connection is enough.", required=True))


class Driver(Connect):
    """Connect, and send nothing."""
