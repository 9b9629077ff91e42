# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clock that decisions are made by: it goes on evenly when somebody sets the machine's."""

from __future__ import annotations

import time

_BEGAN = time.time() - time.monotonic()


def now() -> float:
    """Seconds since the epoch, as the machine's clock had it when this process began."""
    return _BEGAN + time.monotonic()
