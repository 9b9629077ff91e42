# SPDX-License-Identifier: GPL-3.0-or-later
"""The judge of error messages: which are logged by new instances only? Pure.

A message that any old instance has logged is not new, whenever it did. A new one is told at once.
It is a failure once it came often enough and the old instances had time to log it as well: what
both depend on may reach the new ones first.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

OFTEN = 3  # times that a message came, or
LOOKS = 2  # looks in which it came, so that it may be a failure
WAIT = 2  # looks after its first in which the old instances may log it, too
KNOWN = 1000  # messages of old instances that are kept
NEW = 50  # messages of new ones that are kept
NAMED = 160  # characters of an example in a sentence


@dataclass(frozen=True)
class Message:
    """A message of new instances, by all that was seen so far."""

    times: int
    example: str
    instances: tuple[str, ...]
    looks: int = 0  # in which it came
    first: int = 0  # the look in which it first came

    def __str__(self) -> str:
        times = "once" if self.times == 1 else f"{self.times:,} times"
        others = f" and {len(self.instances) - 1} more" if len(self.instances) > 1 else ""
        where = f" on {self.instances[0]}{others}" if self.instances else ""
        text = self.example
        text = text if len(text) <= NAMED else f"{text[: NAMED - 3]}..."
        return f'"{text}" ({times}{where})'


@dataclass(frozen=True)
class Look:
    """What both sides have logged so far."""

    new: Mapping[str, Message]  # by template
    old: frozenset[str]  # templates
    compared: bool  # there are old instances
    crowded: bool = False  # old instances have logged more templates than were counted
    skipped: bool = False  # there was more than could be read


@dataclass(frozen=True)
class Messages:
    """The messages of both sides."""

    looks: int = 0
    known: tuple[str, ...] = ()  # the templates of old instances
    new: Mapping[str, Message] = field(default_factory=dict)
    compared: bool = False
    crowded: bool = False
    skipped: bool = False

    def after(self, look: Look) -> Messages:
        """Return what is known after one more look.

        Without old instances there is nothing to compare with, and nothing is new.
        """
        known = tuple(dict.fromkeys((*self.known, *sorted(look.old))))
        number = self.looks + 1
        new = {key: message for key, message in self.new.items() if key not in look.old}
        for key, message in look.new.items() if look.compared else ():
            before = new.get(key)
            if key not in known and (before or len(new) < NEW):
                new[key] = _after(before, message, number)
        return Messages(
            number,
            known[:KNOWN],
            new,
            self.compared or look.compared,
            self.crowded or look.crowded or len(known) > KNOWN,
            self.skipped or look.skipped,
        )

    @property
    def failures(self) -> Sequence[Message]:
        """The new messages that are a failure."""
        if self.crowded:
            return []
        return [
            message
            for message in self._listed
            if (message.times >= OFTEN or message.looks >= LOOKS)
            and self.looks >= message.first + WAIT
        ]

    @property
    def sentence(self) -> str:
        """What is known, with one of the messages."""
        if not self.compared:
            return "no old instance whose log the new ones' could be compared with"
        messages = self._listed
        remarks = [
            *(["old instances log too many kinds of errors to tell them apart"] * self.crowded),
            *(["some lines were too many to be read"] * self.skipped),
        ]
        if not messages:
            return "; ".join(["no error message that only new instances log", *remarks])
        kinds = "1 error message" if len(messages) == 1 else f"{len(messages)} error messages"
        more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
        return "; ".join([f"{kinds} of new instances only: {messages[0]}{more}", *remarks])

    @property
    def value(self) -> dict[str, t.Any]:
        """What was found, briefly."""
        messages = self._listed
        return {"new": len(messages), "messages": [str(message) for message in messages[:3]]}

    @property
    def _listed(self) -> list[Message]:
        """The new messages, what is a failure first."""
        return sorted(
            self.new.values(),
            key=lambda message: (
                self.looks < message.first + WAIT,
                -message.times,
                message.example,
            ),
        )

    def dump(self) -> dict[str, t.Any]:
        """Return plain data, for the journal."""
        return asdict(self)

    @classmethod
    def load(cls, state: Mapping[str, t.Any]) -> Messages:
        """Return what `dump` made plain data of."""
        new = {
            key: Message(**{**message, "instances": tuple(message["instances"])})
            for key, message in state["new"].items()
        }
        return cls(**{**state, "known": tuple(state["known"]), "new": new})


def _after(before: Message | None, now: Message, number: int) -> Message:
    """Return a message after a look; its count falls where a log is read anew, and is kept then."""
    if before is None:
        return replace(now, looks=1, first=number)
    if now.times <= before.times:
        return before
    instances = tuple(dict.fromkeys((*before.instances, *now.instances)))
    return replace(before, times=now.times, instances=instances[:10], looks=before.looks + 1)
