# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what a metric's driver found to what its judge makes of it. The arithmetic is `engine/verdict`; here is who is asked what.

A judge keeps what it needs from one measurement to the next in `state`, which is plain data and goes into the journal.
"""

from __future__ import annotations

import math
import numbers
import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis.spec import (
    KAYENTA,
    SEQUENTIAL,
    THRESHOLD,
    Analysis,
    Metric,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import MetricError
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.text import clean
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges import kayenta, sequential
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.sequential import (
    Apart,
    Chapter,
    Counts,
    Finding,
    Ledger,
    Samples,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.threshold import AnalysisPhase, measured
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.expressions import has_nan

State = dict[str, t.Any]
MOST = 1000  # samples of each side that Kayenta's judge keeps


@dataclass(frozen=True)
class Taken:
    """What one measurement has come to, and what is known by now in a sentence."""

    phase: AnalysisPhase
    sentence: str
    value: t.Any  # what was measured, briefly
    short: bool = False  # there is not enough yet to say that all is well


def take(metric: Metric, state: State, result: t.Any, stratum: str) -> Taken:
    """Take in a result; raises MetricError where the judge can make nothing of it. Requests are divided in one way in each `stratum`."""
    return _TAKE[metric.judge](metric, state, result, stratum)


def _threshold(metric: Metric, state: State, result: t.Any, stratum: str) -> Taken:
    """By the conditions. A NaN is no measurement that says anything, unless they handle it themselves."""
    if result is None or result in ([], {}, ""):
        raise MetricError("nothing was found")
    conditions = [one for one in (metric.success, metric.failure) if one is not None]
    shown = _shown(result)
    if has_nan(result) and not any(one.handles_nan for one in conditions):
        return Taken(AnalysisPhase.INCONCLUSIVE, f"{shown}: not a number", shown)
    success, failure = (one.holds(result) if one is not None else None for one in (metric.success, metric.failure))
    phase = measured(success, failure)
    said = {AnalysisPhase.FAILED: "failed", AnalysisPhase.SUCCESSFUL: "ok", AnalysisPhase.INCONCLUSIVE: "neither good nor bad"}[
        phase
    ]
    return Taken(phase, f"{shown}: {said}", shown)


def _sequential(metric: Metric, state: State, result: t.Any, stratum: str) -> Taken:
    sides = _pair(result)
    if all(isinstance(side, Mapping) for side in sides.values()):
        return _errors(metric, state, result, stratum)
    samples = {side: Samples.load(state.get(side, {})).more(_numbers(found)) for side, found in sides.items()}
    state.update({side: of.dump() for side, of in samples.items()})
    rules = metric.rules
    finding = sequential.slower(samples["new"], samples["stable"], rules["quantile"], rules["alpha"], rules["tolerance"])
    return _found(finding, {side: _plain(round(one, 6) for one in _numbers(found)) for side, found in sides.items()})


def _errors(metric: Metric, state: State, result: Mapping[str, t.Any], stratum: str) -> Taken:
    """By counts, of both sides and of each new instance."""
    new, stable = _count(result["new"]), _count(result["stable"])
    ledger = Ledger.load(state.get("strata", ())).counted(stratum, new, stable, metric.rules["tolerance"])
    state["strata"] = ledger.dump()
    rules = metric.rules
    finding = sequential.errors(ledger, rules["alpha"], rules["tolerance"], rules["detect"])
    instances = {name: _count(one) for name, one in (result.get("instances") or {}).items()}
    if instances:
        apart = _apart(metric, state, instances, stable, stratum)
        if apart.names and not finding.worse:
            finding = Finding(True, apart.sentence)
    return _found(finding, {"new": _both(new), "stable": _both(stable)})


def _apart(metric: Metric, state: State, instances: Mapping[str, Counts], stable: Counts, stratum: str) -> Apart:
    """Which of the new instances are worse than all others."""
    rules, known = metric.rules, state.get("chapter")
    chapter = Chapter.load(known) if known else Chapter(stratum, dict.fromkeys(instances, Counts()), Counts(), {})
    chapter = chapter.after(stratum, instances, stable, rules["tolerance"])
    state["chapter"] = chapter.dump()
    if len(instances) < 2:
        return Apart((), "")  # it is the whole new side
    counted = chapter.of(instances), stable.since(chapter.stable, Counts())
    return sequential.apart(*counted, rules["alpha"], rules["tolerance"], chapter.evidence)


def _found(finding: Finding, value: t.Any) -> Taken:
    return Taken(AnalysisPhase.FAILED if finding.worse else AnalysisPhase.SUCCESSFUL, finding.sentence, value, finding.needs != 0)


def _kayenta(metric: Metric, state: State, result: t.Any, stratum: str) -> Taken:
    """Only kept: Kayenta's judge is asked once, at the end."""
    sides = {side: _numbers(found) for side, found in _pair(result).items()}
    for side, found in sides.items():
        state[side] = [*state.get(side, ()), *_plain(found)][-MOST:]
    said = f"{len(state['new'])} samples against {len(state['stable'])} on stable"
    return Taken(AnalysisPhase.SUCCESSFUL, said, {side: _plain(found[-10:]) for side, found in sides.items()})


def together(metrics: Mapping[str, tuple[Metric, State]], analysis: Analysis) -> tuple[AnalysisPhase, str]:
    """What Kayenta's judge makes of all its metrics, by the samples they kept."""
    listed = [_of_kayenta(metric) for metric, _state in metrics.values()]
    samples = {
        name: ([float(one) for one in state.get("new", ())], [float(one) for one in state.get("stable", ())])
        for name, (_metric, state) in metrics.items()
    }
    found = kayenta.judge(listed, samples, analysis.weights, analysis.passing, analysis.marginal)
    return _LABELS[found.label], found.sentence


def _of_kayenta(metric: Metric) -> kayenta.Metric:
    rules = dict(metric.rules)
    return kayenta.Metric(metric.name, effect=rules.pop("effect_size"), groups=(rules.pop("group"),), **rules)


_LABELS = {
    kayenta.Label.PASS: AnalysisPhase.SUCCESSFUL,
    kayenta.Label.MARGINAL: AnalysisPhase.INCONCLUSIVE,
    kayenta.Label.ERROR: AnalysisPhase.ERROR,
    kayenta.Label.FAIL: AnalysisPhase.FAILED,
}
_TAKE = {THRESHOLD: _threshold, SEQUENTIAL: _sequential, KAYENTA: _kayenta}


def _pair(result: t.Any) -> dict[str, t.Any]:
    if not isinstance(result, Mapping) or not {"new", "stable"} <= set(result):
        raise MetricError(f"{_shown(result)} has no new and stable to compare")
    return {"new": result["new"], "stable": result["stable"]}


def _count(found: t.Any) -> Counts:
    if not isinstance(found, Mapping) or not all(_number(found.get(key)) for key in ("requests", "errors")):
        raise MetricError(f"{_shown(found)} has no requests and errors to compare")
    return Counts.of(float(found["requests"]), float(found["errors"]))


def _both(counts: Counts) -> dict[str, float]:
    return {"requests": counts.requests, "errors": counts.errors}


def _numbers(found: t.Any) -> list[float]:
    """The samples of one side: a number, or a list of them."""
    listed = found if isinstance(found, (list, tuple)) else [found]
    if not all(_number(one) for one in listed):
        raise MetricError(f"{_shown(found)} is neither a number nor a list of them")
    return [float(one) for one in listed]


def _plain(found: Iterable[float]) -> list[t.Any]:
    """As JSON has numbers: NaN and infinity are none there."""
    return [one if math.isfinite(one) else str(one) for one in found]


def _number(value: t.Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _shown(result: t.Any) -> str:
    """A result in a few words."""
    if _number(result):
        return f"{float(result):.4g}" if math.isfinite(result) else str(float(result))
    if isinstance(result, (list, tuple)) and all(_number(one) for one in result):
        return f"[{', '.join(_shown(one) for one in result[:5])}{', ...' if len(result) > 5 else ''}]"
    if isinstance(result, Mapping):
        text = ", ".join(f"{clean(key, 60)}: {_shown(value)}" for key, value in list(result.items())[:5])
        return f"{{{text}}}"[:200]
    return clean(result, 60)
