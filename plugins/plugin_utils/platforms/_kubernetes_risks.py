# SPDX-License-Identifier: GPL-3.0-or-later
"""What may go wrong with the pods of a rollout, as far as the cluster's objects tell before it.

Each function is given objects of the API and returns lines for the operator.
"""

from __future__ import annotations

import math
import re
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from ..base.text import count
from ..remote.kubernetes import Object
from ._pod_needs import amount, needs

GRACE = 30  # seconds that Kubernetes gives a pod to end, where nothing is said


@dataclass(frozen=True)
class Numbers:
    """How many pods there are, and will be."""

    replicas: int
    least: int  # available at any moment
    most: int  # at once
    present: int


def of_template(template: Object) -> Iterable[str]:
    """Yield what requests are lost by when a pod ends."""
    spec = template["spec"]
    grace = int(spec.get("terminationGracePeriodSeconds", GRACE))
    for container in spec["containers"]:
        hook = (container.get("lifecycle") or {}).get("preStop") or {}
        if container.get("ports") and not hook:
            yield (
                f"container {container['name']} has no preStop: requests that are still sent to a"
                " pod when it is told to end are lost; add lifecycle: {preStop: {exec: {command:"
                ' [sleep, "5"]}}} to it'
            )
        elif hook and grace <= (waits := _pause(hook)):
            yield (
                f"the preStop of container {container['name']} takes {waits} s, and"
                f" terminationGracePeriodSeconds is {grace}: pods are killed before they have"
                f" ended; set it to {waits + GRACE}"
            )


def of_history(deployment: Object) -> Iterable[str]:
    """Yield what cannot be undone later."""
    if deployment["spec"].get("revisionHistoryLimit") == 0:
        yield (
            "revisionHistoryLimit is 0: after the rollout, kubectl rollout undo has nothing to go"
            " back to; set it to 1 or more"
        )


def of_budgets(
    budgets: Iterable[Object], labels: Mapping[str, str], numbers: Numbers
) -> Iterable[str]:
    """Yield the PodDisruptionBudgets that promise more pods than the rollout keeps available."""
    for budget in budgets:
        spec, name = budget["spec"], budget["metadata"]["name"]
        if not selects(spec.get("selector") or {}, labels):
            continue
        if spec.get("minAvailable") is not None:
            promised = _share(spec["minAvailable"], numbers.replicas)
        else:
            promised = numbers.replicas - _share(spec.get("maxUnavailable"), numbers.replicas)
        if numbers.least < promised:
            yield (
                f"PodDisruptionBudget {name} promises {promised} available pods, and rollout_budget"
                f" lets there be {numbers.least}: rollouts do not ask it; lower max_unavailable of"
                " rollout_budget"
            )


def of_quotas(quotas: Iterable[Object], template: Object, numbers: Numbers) -> Iterable[str]:
    """Yield the ResourceQuotas that have no room for the most pods at once."""
    needed = needs(template)
    extra = max(0, numbers.most - numbers.present)
    for quota in quotas:
        spec, status = quota.get("spec") or {}, quota.get("status") or {}
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue
        for resource, hard in (status.get("hard") or {}).items():
            each, used = needed.get(resource, Decimal(0)), (status.get("used") or {}).get(resource)
            room = amount(hard) - amount(used or "0")
            if each * extra > room:
                fits, name = max(0, math.floor(room / each)), quota["metadata"]["name"]
                yield (
                    f"ResourceQuota {name} has room for {count(fits, 'more pod')}"
                    f" ({resource}: {used} of {hard} used), and the rollout needs {extra} more at"
                    " once; raise it, or lower max_surge of rollout_budget"
                )


def of_nodes(nodes: Iterable[Object], template: Object, numbers: Numbers) -> Iterable[str]:
    """Yield what the nodes together have too little of, even if they were empty."""
    open_ones = [node for node in nodes if not (node.get("spec") or {}).get("unschedulable")]
    needed = needs(template)
    for resource in ("cpu", "memory", "pods"):
        room = sum(
            (
                amount(node["status"].get("allocatable", {}).get(resource, "0"))
                for node in open_ones
            ),
            Decimal(0),
        )
        if open_ones and needed.get(resource, Decimal(0)) * numbers.most > room:
            yield (
                f"{count(len(open_ones), 'node')} together have too little {resource} for"
                f" {count(numbers.most, 'pod')} at once; add nodes, or lower max_surge of"
                " rollout_budget"
            )


def selects(selector: Object, labels: Mapping[str, str]) -> bool:
    """Return whether a selector of labels finds these."""
    wanted = selector.get("matchLabels") or {}
    return wanted.items() <= labels.items() and all(
        _meets(expression, labels) for expression in selector.get("matchExpressions") or ()
    )


def _meets(expression: Object, labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    return {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }.get(expression["operator"], False)


def _share(value: t.Any, total: int) -> int:
    """Return a number, or a percentage of the total, rounded up as Kubernetes does."""
    text = str(value or 0)
    if text.endswith("%"):
        return math.ceil(amount(text[:-1]) * total / 100)
    return int(amount(text))


def _pause(hook: Object) -> int:
    """Return how many seconds a preStop hook sleeps, as far as it can be told."""
    if native := hook.get("sleep"):
        return int(native.get("seconds", 0))
    command: Sequence[str] = (hook.get("exec") or {}).get("command") or ()
    words = " ".join(str(word) for word in command)
    match = re.search(r"\bsleep ([0-9]{1,6})\b", words)
    return int(match[1]) if match else 0
