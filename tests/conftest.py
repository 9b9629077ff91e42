# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all tests share: Hypothesis without clocks, and its files below .cache."""

from __future__ import annotations

from pathlib import Path

import hypothesis
from hypothesis.configuration import set_hypothesis_home_dir

set_hypothesis_home_dir(str(Path(__file__).parent.parent / ".cache" / "hypothesis"))
# No deadline for one example: a busy machine is no failure. The same examples in every run: a failure comes back.
hypothesis.settings.register_profile("checkout", deadline=None, derandomize=True)
hypothesis.settings.load_profile("checkout")
