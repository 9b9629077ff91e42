# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is told of a rollout: the base class of notifier drivers."""

from __future__ import annotations

import abc
import typing as t
from dataclasses import asdict, dataclass

from .driver import BaseDriver

EVENTS = {
    "begun": "A rollout begins.",
    "waiting": "It waits for an operator, or for the end of a freeze.",
    "promoted": "The new revision is the stable one.",
    "rolled_back": "It failed, and the stable revision serves again.",
    "aborted": "An operator ended it, and the stable revision serves again.",
    "held": "It failed, and stays as it is until an operator decides.",
    "failed": "It failed, and there was no revision to return to, or none was asked for.",
    "refused": "A host lacks what it needs, and nothing of it was started.",
    "rejected": (
        "It was refused before it began, as by a wrong variable or another rollout in progress."
        " The journal has nothing of it."
    ),
}


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something that happened to a rollout, as others are told of it."""

    id: str  # the same however often the notice is sent
    event: str  # of EVENTS
    at: float  # seconds since the epoch
    service: str
    rollout: str  # its id; empty: none has begun
    revision: str
    previous: str  # the stable revision before; empty at the first deployment
    kind: str  # what the rollout is for: rollout, rollback, restart, scale, rebalance
    strategy: str
    replicas: int
    by: str  # who began it
    why: str  # the reason that they gave; one line
    reason: str  # why, or what it waits for; one line
    elapsed: float  # seconds since it began
    text: str  # all of it in a sentence, for people

    @property
    def facts(self) -> dict[str, t.Any]:
        """The notice as plain data, for templates and programs."""
        return asdict(self)


class NotifierDriver(BaseDriver):
    """Sends notices to one receiver. Whether, how often and which is decided elsewhere."""

    kind = "notifier"
    folder = "notifiers"

    timeout: float = 10.0
    """How many seconds `send` may take."""

    @abc.abstractmethod
    def send(self, notice: Notice, text: str) -> None:
        """Send a notice. `text` is what the user's own template made of it, or empty.

        Raises NotifyError, with `again` False where another attempt would fail alike. Called in a
        thread, one call at a time. The same notice may be sent again after a call that was cut off:
        a receiver tells by its id.
        """

    def cancel(self) -> None:
        """End a call in progress. Called from another thread."""
