# SPDX-License-Identifier: GPL-3.0-or-later
"""`rollout_health`, parsed. Everything that asks instances, or sets up who does, is made of the
result.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ..base.errors import InputError
from ..inputs import values
from ..inputs.options import FLAG, PORT, TEXT, Field, Options, choice, duration, whole
from ..interfaces import loader
from ..interfaces.check import CheckDriver, HealthCheck
from ..interfaces.loader import DriverModule

OPTIONS = Options(
    Field(
        "driver", TEXT, "A check from another collection (V(acme.shop.grpc)), with its own options."
    ),
    Field(
        "interval",
        duration(0.01),
        "Time between two checks. New instances are checked more often until they are ready.",
        default="500ms",
    ),
    Field("timeout", duration(0.01), "How long an answer may take.", default="2s"),
    Field(
        "rise", whole(1), "Passes in a row that make an instance ready.", default=HealthCheck.rise
    ),
    Field("fall", whole(1), "Failures in a row that make it unhealthy.", default=HealthCheck.fall),
    Field(
        "deadline",
        duration(1),
        "How long a new instance may take to become ready. As long as O(progress_deadline) if not"
        " given.",
    ),
    Field("port", PORT, "A port other than the instance's own."),
    Field(
        "from",
        choice(
            controller="The controller.",
            host="The instance's own host, for services that only listen there.",
        ),
        "Where the checks are sent from.",
        default="controller",
    ),
    Field("tls", FLAG, "Whether instances use TLS on that port.", default=False),
    Field("validate_certs", FLAG, "Whether their certificate must be valid.", default=True),
)
BUILT_IN = ("http", "tcp")  # checks that the option of their own name asks for


def parse(given: t.Any, variable: str = "rollout_health") -> HealthCheck:
    """Parse a health check. Raises InputError."""
    given = values.mapping(given, variable, "{http: /healthz} or {tcp: true}")
    name = _driver(given, variable)
    module = _load(name, variable) if name else None
    _refuse_unknown(given, module, variable)
    common = OPTIONS.parse(OPTIONS.part(given), f"{variable}.")
    settings: dict[str, t.Any] = {
        key: common[key]
        for key in ("interval", "timeout", "rise", "fall", "deadline", "tls", "validate_certs")
    }
    settings |= {"port": common["port"] or 0, "from_host": common["from"] == "host"}
    if module is None:
        return HealthCheck(**settings)
    options = module.options.part(given)
    return HealthCheck(enabled=True, check=_check(module, options, variable), **settings)


def table(given: Mapping[str, t.Any]) -> Options:
    """Return the option tables of all that a health check may have, to tell which options are
    secret.
    """
    names = [str(given["driver"])] if given.get("driver") else BUILT_IN
    return Options(
        *(field for name in names for field in _load(name, "rollout_health").options.fields),
        *OPTIONS.fields,
    )


def _driver(given: Mapping[str, t.Any], variable: str) -> str:
    """Return the name of the check that is asked for, "" if there is none."""
    http, tcp = given.get("http"), given.get("tcp")
    asked = {
        "driver": bool(given.get("driver")),
        "http": http is not None,
        "tcp": tcp not in (None, "") and values.boolean(tcp, f"{variable}.tcp"),
    }
    named = [name for name, wanted in asked.items() if wanted]
    if len(named) > 1:
        raise InputError(
            f"{variable}: {' and '.join(named)} are both set; keep one of them", "PR-107"
        )
    return str(given["driver"]) if named == ["driver"] else "".join(named)


def _load(name: str, variable: str) -> DriverModule[CheckDriver]:
    return loader.load(CheckDriver, name, variable)


def _refuse_unknown(
    given: Mapping[str, t.Any], module: DriverModule[CheckDriver] | None, variable: str
) -> None:
    """Refuse options that no check has, and those of another check than the one asked for."""
    if given.keys() <= {*OPTIONS, *(module.options if module else ())}:
        return  # so that no other check is imported
    others = {key: name for name in BUILT_IN for key in _load(name, variable).options}
    options = module.options if module else {}
    values.refuse_unknown(given, {*OPTIONS, *others, *options}, f"{variable}.")
    for key in sorted(given.keys() & others.keys() - options.keys() - {*BUILT_IN}):
        if given[key]:
            raise InputError(
                f"{variable}.{key}: goes with {others[key]}, which is not set; remove it or set"
                f" {variable}.{others[key]}",
                "PR-107",
            )


def _check(
    module: DriverModule[CheckDriver], check_options: Mapping[str, t.Any], variable: str
) -> CheckDriver:
    options = module.check(check_options, variable)
    try:
        return module.driver(options)
    except InputError as exc:  # a check does not know where it was written
        raise InputError(variable + str(exc).removeprefix("health"), exc.id) from None
