# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of the collection itself."""

from __future__ import annotations

HERE = "progressive.rollout"
