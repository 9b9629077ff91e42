# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse `rollout_notify`: who is told of what."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from ..base.errors import InputError
from ..inputs import values
from ..inputs.options import TEXT, Field, Options, choice, one_or_more, whole
from ..interfaces import loader
from ..interfaces.context import DriverContext
from ..interfaces.loader import DriverChoice
from ..interfaces.notifier import EVENTS, Notice, NotifierDriver

if t.TYPE_CHECKING:
    from ..inputs.message_template import MessageTemplate

MOST = 20  # receivers
SAMPLE = Notice(
    id="shop-20260102T030405-1-begun-1",
    event="begun",
    at=1767323045.0,
    service="shop",
    rollout="shop-20260102T030405-1",
    revision="2",
    previous="1",
    kind="rollout",
    strategy="canary",
    replicas=6,
    by="ann on deploy1",
    why="",
    reason="",
    elapsed=0.0,
    text="shop 2: its rollout begins",
)
NOTIFY = Options(
    Field("driver", TEXT, "Name of the driver.", required=True),
    Field(
        "on",
        one_or_more(choice(**EVENTS)),
        "The events that the receiver is notified of.",
        required=True,
    ),
    Field(
        "template",
        TEXT,
        "A Jinja2 template for the message, in place of the driver's own, of at most 10,000"
        " characters. It gets C(event), C(service), C(revision), C(previous), C(reason), C(by),"
        " C(text) and others; see the guide. Mark it with C(!unsafe), so that Ansible does not"
        " render it.",
    ),
    Field(
        "retries",
        whole(0, 10),
        "How many times a failed attempt is repeated, after 1 s, 2 s, 4 s, ..., at most 30 s.",
        default=4,
    ),
)


@dataclass(frozen=True)
class Receiver:
    """Who is told of some events, and how."""

    name: str  # in the timeline and in messages; has no secret
    variable: str
    on: frozenset[str]
    template: MessageTemplate | None
    retries: int
    driver: DriverChoice[NotifierDriver]

    def make(self, context: DriverContext) -> NotifierDriver:
        """Make its driver. Raises InputError for options that it refuses."""
        try:
            return self.driver.make(context)
        except InputError as exc:
            raise InputError(self.variable + str(exc).removeprefix("notify"), exc.id) from None


def parse(given: t.Any, variable: str) -> tuple[Receiver, ...]:
    """Return the receivers; raise InputError."""
    if given in (None, ""):
        return ()
    listed = values.sequence(given, variable, "[{driver: slack, on: [promoted], url: ...}]")
    if len(listed) > MOST:
        raise InputError(
            f"{variable}: it has {len(listed)} receivers; give at most {MOST}", "PR-104"
        )
    return tuple(
        _receiver(receiver, n, f"{variable}[{n - 1}]") for n, receiver in enumerate(listed, 1)
    )


def _receiver(given: t.Any, number: int, variable: str) -> Receiver:
    if isinstance(given, Mapping) and True in given:  # YAML 1.1 reads the key `on` as true
        given = {"on" if name is True else name: value for name, value in given.items()}
    given = values.mapping(given, variable)
    common = NOTIFY.part(given)
    known = NOTIFY.parse(common, f"{variable}.")
    name, template = known["driver"], known["template"]
    module = loader.load(NotifierDriver, name, variable)
    values.refuse_unknown(given, {*module.options, *NOTIFY}, f"{variable}.")
    options = module.check({key: given[key] for key in given if key not in common}, variable)
    if template is not None:
        from ..inputs.message_template import MessageTemplate  # with Jinja's sandbox

        template = MessageTemplate(template, f"{variable}.template", SAMPLE.facts)
    return Receiver(
        f"{name} {number}",
        variable,
        frozenset(known["on"]),
        template,
        known["retries"],
        DriverChoice(name, module, options),
    )
