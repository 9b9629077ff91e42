# SPDX-License-Identifier: GPL-3.0-or-later
"""What steps return for playbooks: the `rollout` mapping of every step, and `next` of check mode.

Each field has its sentence, type and sample here and nowhere else. `documented` makes a RETURN
block of them.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from types import NoneType

from ..engine.evaluate import Decision
from ..inputs import shapes
from ..state.record import Record, Rollout

# by revision: the number of instances in each state, and `traffic` in percent
Fleet = Mapping[str, Mapping[str, t.Any]]
_TYPES: Mapping[type, str] = {
    str: "str",
    int: "int",
    float: "float",
    bool: "bool",
    list: "list",
    dict: "dict",
}


class FieldDoc(t.NamedTuple):
    """The documentation of a field."""

    description: str
    sample: object


@dataclass(frozen=True, kw_only=True)
class ShareView:
    """The new revision's share of the requests."""

    asked: t.Annotated[
        int | None,
        FieldDoc(
            "Percentage that the stage asks for. Null where it follows from the number of"
            " instances.",
            10,
        ),
    ]
    set: t.Annotated[
        float | None, FieldDoc("Percentage that the load balancers are set to now.", 10.0)
    ]
    measured: t.Annotated[
        float | None,
        FieldDoc(
            "Percentage that the load balancers counted since the stage was reached. Null before"
            " the first request.",
            9.84,
        ),
    ]
    requests: t.Annotated[
        int,
        FieldDoc(
            "Number of requests that the load balancers counted since the stage was reached.", 1829
        ),
    ]

    @classmethod
    def of(cls, rollout: Rollout, fleet: Fleet) -> ShareView:
        """Return the share of a rollout in progress."""
        new, every = rollout.sent.get("new", 0), rollout.sent.get("all", 0)
        return cls(
            asked=rollout.asked,
            set=fleet.get(rollout.revision, {}).get("traffic"),
            measured=round(100 * new / every, 2) if every else None,
            requests=every,
        )


@dataclass(frozen=True, kw_only=True)
class RolloutView:
    """The rollout and the fleet after the step."""

    id: t.Annotated[
        str | None,
        FieldDoc("The rollout's id, which names its timeline.", "shop-20261121T093012-4711"),
    ]
    service: t.Annotated[str, FieldDoc("Name of the service.", "shop")]
    revision: t.Annotated[
        str | None,
        FieldDoc("The revision of the rollout in progress, or of the last one.", "2.4.1"),
    ]
    generation: t.Annotated[
        int | None,
        FieldDoc("Number of the rollout. Its instances carry it along with their revision.", 7),
    ]
    baseline: t.Annotated[
        int | None,
        FieldDoc(
            "Generation of the fresh instances of the stable revision that an analysis compares"
            " with; 0 if there are none.",
            0,
        ),
    ]
    previous: t.Annotated[
        str | None,
        FieldDoc(
            "The stable revision when the rollout began. Null at the first deployment.", "2.4.0"
        ),
    ]
    stable: t.Annotated[
        str | None,
        FieldDoc("The revision that a rollback of a rollout in progress returns to.", "2.4.0"),
    ]
    strategy: t.Annotated[
        str | None, FieldDoc("The strategy, V(rolling), V(canary) or V(blue_green).", "canary")
    ]
    kind: t.Annotated[
        str | None,
        FieldDoc(
            "Kind of the rollout, V(rollout), V(restart), V(scale), V(rebalance) or V(rollback).",
            "rollout",
        ),
    ]
    phase: t.Annotated[
        str | None,
        FieldDoc(
            "V(progressing), V(paused), V(awaiting_promotion), V(promoting), V(holding), V(held),"
            " V(rolling_back) or V(finished). A V(holding) rollout is promoted and keeps the old"
            " instances ready. A V(held) rollout has stopped after a failure until an operator"
            " decides.",
            "awaiting_promotion",
        ),
    ]
    outcome: t.Annotated[
        str | None,
        FieldDoc(
            "How the rollout ended, V(promoted), V(rolled_back), V(aborted), V(failed),"
            " V(superseded) or V(refused); empty until then.",
            "",
        ),
    ]
    why: t.Annotated[
        str | None,
        FieldDoc("The reason (C(rollout_why)) that the rollout was begun with.", "ticket 42"),
    ]
    reason: t.Annotated[
        str | None, FieldDoc("Why the rollout is held, was rolled back or failed.", "")
    ]
    stage: t.Annotated[str | None, FieldDoc("The strategy's stage in progress.", "step 1")]
    share: t.Annotated[
        ShareView | None,
        FieldDoc(
            "The new revision's share of the requests. Empty unless a rollout is in progress.", None
        ),
    ]
    waiting: t.Annotated[
        list[str],
        FieldDoc(
            "The gates that the rollout waits for, each with its latest message.",
            ["step 2 approval (approval): no answer yet"],
        ),
    ]
    analysis: t.Annotated[
        dict[str, str],
        FieldDoc(
            "The state of each analysis, in a sentence.",
            {"background analysis": "errors: no difference after 1829 requests"},
        ),
    ]
    paused: t.Annotated[
        dict[str, t.Any],
        FieldDoc(
            "Who paused the rollout, when and why, if an operator did. Otherwise empty.",
            {
                "by": "ada@controller pid 4711 (pause.yml)",
                "why": "prices look wrong",
                "at": 1795253412.1,
            },
        ),
    ]
    excluded: t.Annotated[
        list[str],
        FieldDoc("The hosts that an operator left out of the rollout (V(exclude)).", ["web3"]),
    ]
    step: t.Annotated[str | None, FieldDoc("The last step that worked on the rollout.", "replace")]
    started: t.Annotated[
        float | None,
        FieldDoc("When the rollout began, in seconds since the epoch.", 1795253412.118),
    ]
    updated: t.Annotated[
        float | None,
        FieldDoc(
            "When the rollout was last written to the journal, in seconds since the epoch.",
            1795253431.9,
        ),
    ]
    elapsed: t.Annotated[
        float | None,
        FieldDoc("Seconds that steps spent on the rollout, without waiting at gates.", 19.7),
    ]
    replaced: t.Annotated[
        int | None, FieldDoc("Number of instances taken out of rotation in favor of others.", 3)
    ]
    fleet: t.Annotated[
        Fleet,
        FieldDoc(
            "By revision, the number of instances in each state, and the share of new requests"
            " (RV(ignore:traffic)) in percent.",
            {
                "2.4.1": {"ready": 1, "starting": 0, "traffic": 10.0},
                "2.4.0": {"ready": 9, "starting": 0, "traffic": 90.0},
            },
        ),
    ]
    changed: t.Annotated[bool, FieldDoc("Whether this step changed anything.", True)]

    @classmethod
    def of(cls, record: Record, fleet: Fleet, changed: bool) -> RolloutView:
        """Return the view of the rollout in progress, or else of the last one."""
        rollout = record.rollout
        derived: dict[str, t.Any] = {
            "service": record.service,
            "previous": rollout.previous.revision if rollout and rollout.previous else None,
            "stable": record.stable.revision if record.stable else None,
            "stage": rollout.name if rollout else None,
            "share": ShareView.of(rollout, fleet) if rollout and not rollout.over else None,
            "waiting": rollout.waiting if rollout else [],
            "analysis": rollout.analysis if rollout else {},
            "paused": rollout.paused if rollout else {},
            "excluded": list(rollout.excluded) if rollout else [],
            "fleet": fleet,
            "changed": changed,
        }
        names = [item.name for item in fields(cls) if item.name not in derived]
        copied: dict[str, t.Any] = {
            name: shapes.write(getattr(rollout, name, None)) for name in names
        }
        return cls(**copied, **derived)

    def to_dict(self) -> dict[str, t.Any]:
        """Return the mapping as playbooks get it."""
        return {**vars(self), "share": asdict(self.share) if self.share else {}}


@dataclass(frozen=True, kw_only=True)
class NextView:
    """What the rollout would do now."""

    create: t.Annotated[int, FieldDoc("Number of instances to start.", 1)]
    create_old: t.Annotated[
        int, FieldDoc("Number of instances of the stable revision to start, where it is kept.", 0)
    ]
    admit: t.Annotated[list[str], FieldDoc("Instances to put in rotation.", ["shop-7"])]
    shelve: t.Annotated[
        list[str], FieldDoc("Instances to take out of rotation and keep ready.", [])
    ]
    drain: t.Annotated[list[str], FieldDoc("Instances to take out of rotation.", ["shop-3"])]
    retire: t.Annotated[list[str], FieldDoc("Instances to stop.", [])]
    reasons: t.Annotated[
        list[str],
        FieldDoc("The reasons, one sentence each.", ["drain shop-3: 5 available, 4 needed"]),
    ]
    reached: t.Annotated[
        bool, FieldDoc("Whether the fleet is what the next stage leads to.", False)
    ]

    @classmethod
    def of(cls, decision: Decision) -> NextView:
        """Return a decision of the engine as data."""
        return cls(
            create=decision.create,
            create_old=decision.create_old,
            admit=list(decision.admit),
            shelve=list(decision.standby),
            drain=list(decision.drain),
            retire=list(decision.retire),
            reasons=list(decision.reasons),
            reached=decision.reached,
        )

    def to_dict(self) -> dict[str, t.Any]:
        """Return the mapping as playbooks get it."""
        return dict(vars(self))


def documented(view: type) -> dict[str, dict[str, t.Any]]:
    """Return the fields of a view as the `contains` of a module's RETURN block."""
    hints = t.get_type_hints(view, include_extras=True)
    return {name: _documented(*t.get_args(hint)) for name, hint in hints.items()}


def _documented(hint: t.Any, shown: FieldDoc) -> dict[str, t.Any]:
    kind = t.get_args(hint)[0] if NoneType in t.get_args(hint) else hint
    if is_dataclass(kind):
        return {
            "description": shown.description,
            "type": "dict",
            "contains": documented(t.cast(type, kind)),
        }
    documentation = {
        "description": shown.description,
        "type": _TYPES.get(t.get_origin(kind) or kind, "dict"),
    }
    if documentation["type"] == "list":
        documentation["elements"] = _TYPES[t.get_args(kind)[0]]
    return {**documentation, "sample": shown.sample}
