# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Live progress: few lines that read well in a terminal, in AWX and in a log file. No I/O of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.text import span
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Instance, State
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Waypoint

WIDTH = 20


class Lines:
    """Says how a walk stands: when something changed, and ever more rarely the longer it takes."""

    def __init__(self, say: Callable[[str], None], title: str, started: float) -> None:
        self._say = say
        self._title = title
        self._started = started
        self._next = started
        self._last = ""

    def show(self, fleet: Iterable[Instance], waypoint: Waypoint, now: float, force: bool = False) -> None:
        """One line on the fleet, if one is due; `force` for the last one of a walk that had any, unless it was said."""
        if not self._last if force else now < self._next:
            return
        text, done = standing(fleet, waypoint)
        if text == self._last and (force or now < self._next + 15):
            return
        elapsed = now - self._started
        ahead = f" of about {span(elapsed / done)}" if waypoint.weight is None and 0.3 <= done < 1 and elapsed > 1 else ""
        self._say(f"{self._title} {progress_bar(done)} {text}, {span(elapsed)}{ahead}")
        self._last = text
        self._next = now + max(1.0, elapsed / 10)

    def tell(self, text: str) -> None:
        """One line that is not about counts."""
        self._say(f"{self._title} {text}")


def standing(fleet: Iterable[Instance], waypoint: Waypoint) -> tuple[str, float]:
    """The counts in words, and which part of the walk is done (0 to 1)."""
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
    parts = [f"{new[State.READY]}/{waypoint.new} {what} ready"]
    parts += [
        f"{count} {word}" for word, count in (("starting", new[State.STARTING]), ("not ready", new[State.NOT_READY])) if count
    ]
    parts += [f"{new[State.FAILED]} failed"] if new[State.FAILED] else []
    parts += [f"{left} old left"]
    lost = new[State.UNREACHABLE] + old[State.UNREACHABLE]
    parts += [f"{lost} unreachable"] if lost else []
    parts += [f"{round(100 * new_serving / serving)} % of traffic to {what}"] if serving else []
    todo = waypoint.new + left
    # Of several waypoints each is a part of the way.
    whole = waypoint.new if waypoint.weight is None else waypoint.desired
    done = min(1.0, (new[State.READY] if waypoint.new_idle else in_rotation) / whole) if whole else 0.0 if left else 1.0
    return ", ".join(parts), done if todo else 1.0


def progress_bar(done: float) -> str:
    """`[#####...............]`, in ASCII: logs and old terminals show nothing else for sure."""
    filled = int(done * WIDTH)
    return f"[{'#' * filled}{'.' * (WIDTH - filled)}]"
