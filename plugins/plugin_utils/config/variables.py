# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables that every step and role takes, such as `rollout_service`."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping
from fractions import Fraction

from ..base.errors import InputError
from ..engine.budget import Amount, Bounds, Budget, PerHost
from ..health import spec
from ..inputs import values
from ..inputs.options import (
    AMOUNT,
    DURATION,
    FLAG,
    Field,
    Kind,
    Options,
    choice,
    duration,
    whole,
)
from ..interfaces.platform import PlatformDriver
from ..interfaces.store import StoreDriver
from ..interfaces.traffic import TrafficDriver
from . import strategy
from .drivers import driver

if t.TYPE_CHECKING:
    from .adoption import Adoption
    from .autoscaler import Autoscaler
    from .freeze import Window
    from .notify import Receiver

PREFIX = "rollout_"  # messages name variables as playbooks do

# Replicas, budget and failures ----------------------------------------------------------------

_REPLICAS = Options(
    Field("min", whole(0, values.MOST), "The lowest number of instances.", default=1),
    Field("max", whole(1, values.MOST), "The highest number of instances. Unbounded if not given."),
)
_BUDGET = Options(
    Field(
        "max_surge",
        AMOUNT,
        "Instances beyond O(replicas), including those in progress. Rounds up. V(25%) if not"
        " given.",
    ),
    Field(
        "max_unavailable",
        AMOUNT,
        "How many of O(replicas) instances may be missing. Rounds down. V(0) if not given. Must not"
        " be 0 if C(max_surge) is 0. If both round to 0, one instance may be unavailable.",
    ),
    Field(
        "max_in_flight",
        AMOUNT,
        "Replaces the other two: that many extra instances, none unavailable, and at most that many"
        " new instances in progress at a time.",
    ),
    Field(
        "max_unavailable_per_zone",
        whole(1, values.MOST),
        "How many instances may be missing in a zone (C(zone) of O(platform)) of those that an even"
        " spread gives it. No more are taken out there, even if the rest of the budget allows it."
        " Not limited if not given.",
    ),
)
_FAILURES = Options(
    Field("in_a_row", whole(1), "The same as a plain number.", default=3),
    Field(
        "total",
        AMOUNT,
        "New instances that may fail in the whole rollout. Rounds up. Unbounded if not given.",
    ),
)


def replicas(given: t.Any, variable: str) -> int | Bounds | PerHost:
    """Return the number of replicas, or what it follows: a number, `current`, `per_host`, or
    `{min, max}`.
    """
    if given == "current":
        return Bounds()
    if given == "per_host":
        return PerHost()
    if not isinstance(given, Mapping):
        example = "write one (6), current, per_host, or {min: 4, max: 40}"
        return values.whole(given, variable, 1, example, values.MOST)
    if not given:
        raise InputError(f"{variable}: must not be empty; write {{min: 4, max: 40}}", "PR-125")
    bounds = _REPLICAS.parse(given, f"{variable}.")
    least, most = bounds["min"], bounds["max"]
    if most is not None and least > most:
        raise InputError(
            f"{variable}: min {least} is more than max {most}; lower it, or raise max", "PR-106"
        )
    if not least and most is None:
        raise InputError(
            f"{variable}.min: 0 starts with as many as max, which is not given; give it, or a min"
            " of 1 or more",
            "PR-106",
        )
    return Bounds(least, most)


def budget(given: t.Any, variable: str) -> Budget:
    """Return the budget of `{max_surge, max_unavailable}` or `{max_in_flight}`."""
    parsed = _BUDGET.parse(values.mapping(given, variable), f"{variable}.")
    surge, unavailable, flight = (
        parsed[name] for name in ("max_surge", "max_unavailable", "max_in_flight")
    )
    zone = parsed["max_unavailable_per_zone"]
    if flight is not None:
        if surge is not None or unavailable is not None:
            raise InputError(
                f"{variable}: max_in_flight replaces max_surge and max_unavailable; remove one or"
                " the other",
                "PR-107",
            )
        flight = _positive(flight, f"{variable}.max_in_flight")
        return Budget(max_in_flight=flight, max_unavailable_per_zone=zone)
    surge = values.amount("25%", variable) if surge is None else surge
    unavailable = 0 if unavailable is None else unavailable
    if _is_zero(surge) and _is_zero(unavailable):
        raise InputError(
            f"{variable}: max_surge 0 with max_unavailable 0 leaves no room to replace anything;"
            " allow at least 1 of either",
            "PR-105",
        )
    return Budget(surge, unavailable, max_unavailable_per_zone=zone)


def failures(given: t.Any, variable: str) -> tuple[int, Amount | None]:
    """Return how many new instances may fail in a row, and in all.

    Given is a number, or `{in_a_row, total}`.
    """
    if not isinstance(given, Mapping):
        return values.whole(given, variable, 1, "write one (3), or {in_a_row: 3, total: 25%}"), None
    limits = _FAILURES.parse(given, f"{variable}.")
    total = limits["total"]
    return limits["in_a_row"], None if total is None else _positive(total, f"{variable}.total")


def _positive(value: Amount, variable: str) -> Amount:
    if _is_zero(value):
        raise InputError(f"{variable}: {value} is too small; must be at least 1", "PR-105")
    return value


def _is_zero(value: Amount) -> bool:
    return (value if isinstance(value, int) else value.value) == 0


def order(given: t.Any, variable: str) -> int:
    """Return the place of a revision among all."""
    if isinstance(given, (bool, float)) or not re.fullmatch(r"[0-9]{1,18}", str(given).strip()):
        raise InputError(
            f"{variable}: {values.shown(given)} is not a whole number of at most 18 digits; write"
            " the time of the commit (git log -1 --format=%ct), or the number of the build",
            "PR-118",
        )
    return int(str(given).strip())


def headroom(given: t.Any, variable: str) -> Fraction:
    """Return how many times its usual requests a stable instance can take.

    With 0 it never gets more than usual.
    """
    if isinstance(given, bool) or not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3})?", str(given)):
        raise InputError(
            f"{variable}: {given!r} is not a number like 1.25; write 1 or more, or 0", "PR-118"
        )
    if 0 < Fraction(str(given)) < 1:
        raise InputError(
            f"{variable}: {given} is less than the usual requests; write 1 or more, or 0", "PR-104"
        )
    return Fraction(str(given))


# Metrics of rollouts --------------------------------------------------------------------------


def _textfile(value: t.Any, variable: str) -> str:
    """Return the path of a file that node_exporter's textfile collector reads."""
    path = values.absolute(value, variable)
    if not path.endswith(".prom"):
        raise InputError(
            f"{variable}: {path!r} does not end with .prom, so node_exporter would not read it;"
            " rename it",
            "PR-123",
        )
    return path


def _pushgateway(value: t.Any, variable: str) -> str:
    from ..remote import http_client  # few services push metrics

    return http_client.url(value, variable, ())


_METRICS = Options(
    Field(
        "textfile",
        Kind("str", _textfile, "An absolute path that ends with V(.prom)."),
        "File on the controller for node_exporter's textfile collector. Each service needs a"
        " separate file.",
    ),
    Field(
        "pushgateway",
        Kind("str", _pushgateway),
        "URL of a Pushgateway. The grouping key is C(job=rollout) with C(service).",
    ),
)


def metrics(given: t.Any, variable: str) -> dict[str, t.Any] | None:
    """Return where metrics go, None for nowhere."""
    options = _METRICS.parse(values.mapping(given, variable), f"{variable}.")
    return options if any(options.values()) else None


# What few services have, parsed by modules of its own -----------------------------------------


def _autoscaler(given: t.Any, variable: str) -> Autoscaler | None:
    if given == {}:
        return None
    from . import autoscaler

    return autoscaler.parse(given, variable)


def _of_autoscaler() -> Options:
    from . import autoscaler

    return autoscaler.FIELDS


def _freeze(given: t.Any, variable: str) -> tuple[Window, ...]:
    if not given:
        return ()
    from . import freeze

    return freeze.parse(given, variable)


def _window(given: t.Any, variable: str) -> tuple[Window, ...]:
    from . import freeze

    return freeze.parse_open(given, variable)


def _of_window() -> Options:
    from . import freeze

    return freeze.WINDOW


def _notify(given: t.Any, variable: str) -> tuple[Receiver, ...]:
    if given == []:
        return ()
    from . import notify

    return notify.parse(given, variable)


def _of_notify() -> Options:
    from . import notify

    return notify.NOTIFY


def _adopt(given: t.Any, variable: str) -> Adoption | None:
    if given == {}:
        return None
    from . import adoption

    return adoption.parse(values.mapping(given, variable))


def _of_adopt() -> Options:
    from . import adoption

    return adoption.OPTIONS


def _of_release() -> Options:
    from . import release

    return release.OPTIONS


# The table ------------------------------------------------------------------------------------

COMMON = Options(
    Field(
        "service",
        Kind("str", values.service),
        "Name of the service. Lower-case letters, digits, V(-) and V(_), at most 63, beginning and"
        " ending with a letter or digit. It becomes part of file and server names.",
        required=True,
    ),
    Field(
        "revision",
        Kind("str", values.revision),
        "The revision to roll out. Letters, digits and V(.), V(_), V(+), V(-), at most 128,"
        ' beginning with a letter or digit.\nQuote it (V("2.10")): YAML would read V(2.10) as'
        " V(2.1), which is refused.\nIf it is not given, restarts and steps that do not begin a"
        " rollout use the revision in progress or the stable one.",
    ),
    Field(
        "replicas",
        Kind("raw", replicas, fields=_REPLICAS),
        "Number of instances, at least 1. V(current) for as many as there are. V(per_host) for"
        " exactly one on each host of O(platform), as agents and proxies need (drivers docker,"
        " podman, process and systemd).\nOr a mapping, for"
        " as many as there are within bounds. If nothing is deployed, that is C(min), or C(max)"
        " with a C(min) of 0.\nIf fewer are requested than are running, the others leave at the"
        " promotion.",
    ),
    Field(
        "strategy",
        choice(
            rolling="One stage with a sliding window, from all old to all new.",
            canary="Follows O(steps), with gates between them.",
            blue_green=(
                "A full new set without requests, then one switch. The old set stays for O(hold)."
            ),
        ),
        "How the new revision replaces the old one.",
        default="rolling",
    ),
    Field(
        "budget",
        Kind("dict", budget, fields=_BUDGET),
        "How many instances above and below O(replicas) a rollout may have while it runs."
        " Percentages are of O(replicas).",
        default={"max_surge": "25%", "max_unavailable": 0},
    ),
    Field(
        "platform",
        driver(PlatformDriver),
        "Where instances run: C(driver) and its options. Required, except for"
        " M(progressive.rollout.control), and for M(progressive.rollout.plan) with its option"
        " C(fleet).\nIn strings, V({revision}), V({port}), V({service}), V({host}), V({address}),"
        " V({slot}) and V({instance}) are replaced by their values. Write V({{) or V(}}) for a"
        " literal brace.",
    ),
    Field(
        "traffic",
        driver(TrafficDriver, "none"),
        "What sends requests to the instances: C(driver) and its options.",
        default={"driver": "none"},
    ),
    Field(
        "health",
        Kind("dict", values.mapping, fields=spec.OPTIONS, drivers="checks"),
        "How instances are checked for readiness. Give C(http) or C(tcp). Without either, an"
        " instance is ready once it is running.\nThe load balancers' own checks are set up from the"
        " same values.",
        default={},
    ),
    Field(
        "min_ready",
        DURATION,
        "How long an instance must have been ready before it counts as available.\nDurations are"
        " seconds (V(90)) or a number with V(ms), V(s), V(m), V(h) or V(d) (V(10m)).",
        default=0,
    ),
    Field(
        "progress_deadline",
        duration(1),
        "How long a rollout may go without progress before it fails, counted from the last"
        " progress.",
        default="10m",
    ),
    Field(
        "failure_limit",
        Kind("raw", failures, fields=_FAILURES),
        "Number of new instances whose failure, without progress in between, ends the rollout.\nOr"
        " a mapping, to also bound the failures of the whole rollout.",
        default=3,
    ),
    Field(
        "on_failure",
        choice(
            rollback="Return to the previous revision.",
            hold="Stop where it is until an operator decides.",
            **{
                "continue": (
                    "Ignore failing instances until the progress deadline, then leave the fleet as"
                    " it is."
                )
            },
        ),
        "What a failed rollout does.",
        default="rollback",
    ),
    Field(
        "watch_new",
        DURATION,
        "How long a new instance is watched after it became ready. If it fails during that time,"
        " others that have just become ready do not compensate for it, so that a revision that"
        " keeps starting and crashing is recognized.",
        default="2m",
    ),
    Field(
        "on_stable_lost",
        choice(
            repair="Start instances of the stable revision again.",
            promote="Promote at once, without further pauses or gates.",
            hold="Stop where it is until an operator decides.",
        ),
        "What a canary or blue-green rollout does when no instance of the stable revision is in"
        " service any more and new ones are ready. As long as one is in service, those that fail"
        " are replaced.",
        default="repair",
    ),
    Field(
        "headroom",
        Kind("raw", headroom, "1 or more, or V(0) for never more than usual."),
        "How many times its usual requests an instance of the stable revision can take during a"
        " rollback. As soon as the stable instances in service can carry all requests on that"
        " basis, the new revision gets none. With V(0), the new revision keeps its requests until"
        " the budget releases it.",
        default=1.25,
    ),
    Field(
        "store",
        driver(StoreDriver, "file"),
        "Where the journal and the lease are kept: C(driver) and its options.",
        default={"driver": "file", "path": "/var/lib/rollout"},
    ),
    Field(
        "lease",
        duration(5, 3600),
        "How long the right to change the service outlives its last use. Another run waits at most"
        " that long for a run that died.",
        default=60,
    ),
    *strategy.VARIABLES.fields,
    Field(
        "autoscaler",
        Kind("dict", _autoscaler, fields=_of_autoscaler, drivers="autoscalers"),
        "What scales the service outside of rollouts: C(driver) and its options. It is changed"
        " while a rollout lasts, and restored at its end. None if not given.",
    ),
    Field(
        "freeze",
        Kind("list", _freeze, elements="dict", fields=_of_window),
        "Times at which a rollout does not move. What is in progress is finished, then the rollout"
        " waits. A rollback does not wait.\nEach is either a range (C(from) and C(to)) or recurring"
        " (C(cron) and C(duration)).",
        default=[],
    ),
    Field(
        "window",
        Kind("raw", _window, fields=_of_window),
        "The only times at which a rollout moves, a list like O(freeze). If both are given, a"
        " freeze takes precedence. V(always) lifts the limit for this run, and the timeline shows"
        " that.\nA rollback moves at any time.",
    ),
    Field(
        "order",
        Kind("int", order),
        "The position of the revision among all revisions, such as its commit time (V(1732300000))."
        " A revision with a lower number than the stable one, or than that of the rollout in"
        " progress, is refused. Rollbacks are not.",
    ),
    Field(
        "older",
        FLAG,
        "Whether a revision that is older by O(order) may be rolled out anyway.",
        default=False,
    ),
    Field(
        "new_check",
        FLAG,
        "Whether O(health) may be a check that no running instance passes, since only the new"
        " revision answers it. If V(false), such a check is refused before anything is touched.",
        default=False,
    ),
    Field(
        "adopt",
        Kind("dict", _adopt, fields=_of_adopt),
        "What runs before the first rollout. The first rollout replaces it as any other would"
        " replace the stable revision; later ones do not read this. None if not given.",
        default={},
    ),
    Field(
        "supersede",
        FLAG,
        "Whether a rollout of another revision that is in progress gives way to this one. A run"
        " that is working on it is told to give way, and this run waits for it for at most"
        " O(progress_deadline). If V(false), this rollout is refused.",
        default=False,
    ),
    Field(
        "wait",
        DURATION,
        "How long a run waits for an operator or the end of a freeze. After that it ends"
        " successfully with the rollout parked (RV(ignore:parked)). The next run continues it.",
        default="1h",
    ),
    Field(
        "report",
        Kind("str", values.report),
        "Where the rollout's report is written on the controller, and kept up to date while the"
        " rollout runs. An absolute path that ends with V(.html), V(.md) (Markdown) or V(.xml)"
        " (JUnit), or with V(/) for a directory: it must exist, and its subdirectory with the name"
        " of the service gets all formats and an index of the service's rollouts. None if not"
        " given.",
    ),
    Field(
        "notify",
        Kind("list", _notify, elements="dict", fields=_of_notify, drivers="notifiers"),
        "Who is notified about the rollout: each receiver with C(driver), its options, and C(on),"
        " the events that it is notified of. Notifications never hold up a rollout. The journal"
        " does not keep the receivers, so each run needs them.",
        default=[],
    ),
    Field(
        "metrics",
        Kind("dict", metrics, fields=_METRICS),
        "Where the service's metrics are kept up to date, in OpenMetrics format, while its rollout"
        " runs. Give C(textfile), C(pushgateway), or both.",
        default={},
    ),
    Field(
        "release",
        Kind("dict", values.mapping, fields=_of_release),
        "The release that the service is a member of: services that are promoted together, in"
        " order, or not at all. None if not given.",
        default={},
    ),
)
