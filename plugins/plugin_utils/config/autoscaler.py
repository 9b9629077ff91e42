# SPDX-License-Identifier: GPL-3.0-or-later
"""What an operator writes of the service's autoscaler."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..base.errors import InputError
from ..inputs import values
from ..inputs.options import DURATION, Field, Options, choice
from ..interfaces.autoscaler import AutoscalerDriver
from ..interfaces.loader import DriverChoice
from .drivers import driver

HOLD, RAISE, FOLLOW, NONE = "hold", "raise", "follow", "none"
_DRIVER = driver(AutoscalerDriver)
_OWN = Options(
    Field(
        "mode",
        choice(
            hold="It changes no numbers while the rollout lasts.",
            **{
                "raise": (
                    "Before the share of requests rises, the autoscaler's minimum is raised to the"
                    " number of instances that carry that share, up to its maximum."
                )
            },
            follow="It changes no numbers itself, and the rollout goes on to the number it wants.",
            none="It is left alone.",
        ),
        "What happens to the autoscaler.",
        default="hold",
    ),
    Field(
        "limit",
        DURATION,
        "How long the autoscaler stays changed while the rollout waits for an operator, a freeze or"
        " a pause. After that it is restored until the rollout continues. It is restored at once if"
        " the run ends before the rollout does.",
        default="1h",
    ),
)
FIELDS = Options(*_DRIVER.documented.fields, *_OWN.fields)


@dataclass(frozen=True)
class Autoscaler:
    """The autoscaler of a service, and what happens to it."""

    chosen: DriverChoice[AutoscalerDriver]
    mode: str
    limit: float  # seconds


def parse(given: t.Any, variable: str) -> Autoscaler | None:
    """Return the autoscaler of a mapping with the name of a driver and its options.

    Empty, as roles pass it on where it is not given: None.
    """
    options = values.mapping(given, variable)
    if not options:
        return None
    general = _OWN.parse(_OWN.part(options), f"{variable}.")
    rest = {name: value for name, value in options.items() if name not in _OWN}
    chosen = _DRIVER.parse(rest, variable)
    if general["mode"] == FOLLOW and not chosen.driver.follows:
        raise InputError(
            f"{variable}.mode: {chosen.name} cannot say what it wants while it is held; use hold",
            "PR-107",
        )
    return Autoscaler(chosen, general["mode"], general["limit"])
