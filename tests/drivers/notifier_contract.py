# SPDX-License-Identifier: GPL-3.0-or-later
"""What every notifier has to do, against a real receiver. Derive from `NotifierContract`."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import NotifyError
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.notifier import (
    EVENTS,
    Notice,
    NotifierDriver,
)

NOTICE = Notice(
    id="shop-20260102T030405-1-rolled_back-1",
    event="rolled_back",
    at=1767323045.25,
    service="shop",
    rollout="shop-20260102T030405-1",
    revision="2.4.3+b7",
    previous="2.4.2",
    kind="rollout",
    strategy="canary",
    replicas=6,
    by="ann on deploy1",
    why="ticket 42",
    reason="shop-12 fails: <!channel> @all [press](http://evil) & \u202e\u00e9",
    elapsed=72.0,
    text="shop 2.4.3+b7: the rollout was rolled back: <!channel> @all [press](http://evil) & é",
)


class Receiver(t.Protocol):
    """The other side of a notifier."""

    secrets: t.Sequence[str]

    def made(self) -> NotifierDriver:
        """Return the driver for this receiver."""

    def got(self) -> list[str]:
        """Return what the receiver got, each message as text, as people or programs read it."""

    def refuse(self, again: bool) -> None:
        """Refuse from now on, for the moment or for good."""


class NotifierContract:
    """Tests that each driver has to pass. A subclass has the fixture `receiver`."""

    calls: t.ClassVar[tuple[str, ...]] = ()  # what would call people, or lead them elsewhere
    for_good: t.ClassVar[bool] = True  # whether it can tell a refusal for good from another

    def test_each_event_arrives(self, receiver: Receiver) -> None:
        driver = receiver.made()
        for event in EVENTS:
            driver.send(replace(NOTICE, event=event, text=f"it is {event}"), "")
        got = receiver.got()
        assert len(got) == len(EVENTS)
        for event, text in zip(EVENTS, got, strict=True):
            assert NOTICE.service in text and event in text.replace("\\", "")

    def test_a_template_replaces_the_message(self, receiver: Receiver) -> None:
        receiver.made().send(NOTICE, "my own words, \u00e9")
        (text,) = receiver.got()
        assert "my own words, \u00e9" in text and NOTICE.text not in text

    def test_nothing_of_what_is_sent_calls_people(self, receiver: Receiver) -> None:
        receiver.made().send(NOTICE, "")
        (text,) = receiver.got()
        for call in self.calls:
            assert call not in text

    def test_a_refusal_is_told_without_secrets(self, receiver: Receiver) -> None:
        for again in (True, False)[: 1 + self.for_good]:
            receiver.refuse(again)
            with pytest.raises(NotifyError) as refused:
                receiver.made().send(NOTICE, "")
            assert refused.value.again is again and refused.value.id == "PR-631"
            assert "no thanks" in str(refused.value)
            for secret in receiver.secrets:
                assert secret not in str(refused.value)

    def test_it_says_how_long_it_takes_at_most(self, receiver: Receiver) -> None:
        assert 0 < receiver.made().timeout <= 65
