# SPDX-License-Identifier: GPL-3.0-or-later
"""The alpha of a rollout, which its analyses share: more of them alarm no more often. Pure."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..engine.strategy import Gate, Stage
from . import spec


def shared(stages: Sequence[Stage], background: Sequence[Gate]) -> tuple[Stage, ...]:
    """Return all stages of a rollout with analyses that together have the greatest alpha of any.

    Each is asked for anew at each of its stages; those in the `background` are asked for once, and
    have the `share` of each stage.
    """
    gates = [*(gate for stage in stages for gate in stage.gates), *background]
    alphas = [alpha for gate in gates if (alpha := alpha_of(gate))]
    share = max(alphas) / sum(alphas) if alphas else 1.0
    return tuple(
        replace(stage, gates=tuple(with_share(gate, share) for gate in stage.gates), share=share)
        for stage in stages
    )


def alpha_of(gate: Gate) -> float:
    """Return the alpha of the metrics that may fail the rollout by chance; 0: none may."""
    if gate.driver != "analysis" or gate.options["dry_run"]:
        return 0.0
    metrics = spec.parse(gate.options, gate.variable, spec.standard(("errors",), False)).metrics
    deciding = (metric for metric in metrics if metric.spends_alpha and metric.decides)
    return float(sum(metric.rules["alpha"] for metric in deciding))


def with_share(gate: Gate, share: float) -> Gate:
    """Return the gate; if it is an analysis, with this share of its alpha and its metrics'."""
    if gate.driver != "analysis" or share == 1:
        return gate
    options = dict(gate.options)
    options["alpha"] = share * options["alpha"]
    if options["metrics"] is not None:
        options["metrics"] = [_of_metric(metric, share) for metric in options["metrics"]]
    return replace(gate, options=options)


def _of_metric(given: Mapping[str, t.Any], share: float) -> Mapping[str, t.Any]:
    if given.get("alpha") is None:
        return given
    alpha = spec.OF_JUDGE[spec.SEQUENTIAL]["alpha"].parse(given["alpha"], "alpha")
    return {**given, "alpha": share * alpha}
