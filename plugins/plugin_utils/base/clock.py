# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A clock for decisions: seconds since the epoch that setting the machine's clock does not move."""

from __future__ import annotations

import time

_BEGAN = time.time() - time.monotonic()


def now() -> float:
    """Return the seconds since the epoch, by the machine's clock when this process began."""
    return _BEGAN + time.monotonic()
