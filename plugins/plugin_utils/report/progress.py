# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Live progress: few lines, for a terminal, AWX or a log file. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..base.text import span
from ..engine.model import Instance, State
from ..engine.strategy import Waypoint

WIDTH = 20


class Lines:
    """Shows the progress of a stage: when something changed, and less often the longer it takes."""

    def __init__(self, say: Callable[[str], None], title: str, started: float) -> None:
        self._say = say
        self._title = title
        self._started = started
        self._next = started
        self._last = ""

    def show(
        self,
        fleet: Iterable[Instance],
        waypoint: Waypoint,
        failed: int,
        now: float,
        force: bool = False,
    ) -> None:
        """Show one line on the fleet if one is due; with `force`, the last line of a stage that had
        any.

        `failed` is the number of failed starts since the rollout began, or was resumed after a
        hold.
        """
        if not self._last if force else now < self._next:
            return
        text, done = describe(fleet, waypoint, failed)
        if text == self._last and (force or now < self._next + 15):
            return
        elapsed = now - self._started
        ahead = (
            f" / ~{span(elapsed / done)}"
            if waypoint.weight is None and 0.3 <= done < 1 and elapsed > 1
            else ""
        )
        self._say(f"{self._title} {progress_bar(done)} {text}, {span(elapsed)}{ahead}")
        self._last = text
        self._next = now + max(1.0, elapsed / 10)

    def tell(self, text: str) -> None:
        """Show one line that is not about counts."""
        self._say(f"{self._title} {text}")


def describe(fleet: Iterable[Instance], waypoint: Waypoint, failed: int = 0) -> tuple[str, float]:
    """Return the counts in words, and which part of the stage is done (0 to 1)."""
    what = "baseline" if waypoint.is_baseline else "new"
    new = dict.fromkeys(State, 0)
    old = dict(new)
    serving = new_serving = in_rotation = 0
    for instance in fleet:
        is_new = instance.generation == waypoint.generation
        (new if is_new else old)[instance.state] += 1
        if instance.in_rotation and instance.state is not State.DRAINING:
            in_rotation += is_new
            serving += instance.weight
            new_serving += instance.weight * is_new
    left = sum(count for state, count in old.items() if state.counted)
    counts = [
        (new[State.STARTING], "starting"),
        (new[State.NOT_READY], "not ready"),
        (min(new[State.FAILED], failed), "failed"),
    ]
    parts = [
        f"{new[State.READY]}/{waypoint.new} {what} ready",
        *(f"{count} {state}" for count, state in counts if count),
    ]
    parts += [f"{left} old left"]
    unreachable = new[State.UNREACHABLE] + old[State.UNREACHABLE]
    parts += [f"{unreachable} unreachable"] if unreachable else []
    parts += [f"{round(100 * new_serving / serving)} % of traffic to {what}"] if serving else []
    if not waypoint.new + left:
        return ", ".join(parts), 1.0
    # With several waypoints, each one is a part of the whole.
    whole = waypoint.new if waypoint.weight is None else waypoint.desired
    done = (
        min(1.0, (new[State.READY] if waypoint.new_idle else in_rotation) / whole)
        if whole
        else 0.0
        if left
        else 1.0
    )
    return ", ".join(parts), done


def progress_bar(done: float) -> str:
    """Return `[#####...............]`, in ASCII for logs and old terminals."""
    filled = int(done * WIDTH)
    return f"[{'#' * filled}{'.' * (WIDTH - filled)}]"
