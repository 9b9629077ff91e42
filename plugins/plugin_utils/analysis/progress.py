# SPDX-License-Identifier: GPL-3.0-or-later
"""The progress of an analysis: its metrics as judged so far, and what follows from them. Pure.

A gate measures and judges; a replay judges again what was kept.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace

from ..base.errors import MetricError
from ..base.text import clean, span
from ..engine.judges.counts import Counts
from ..engine.judges.threshold import AnalysisPhase, MeasurementCounts, assess, worst
from ..interfaces.gate import FAIL, PASS, PERSON, WAIT
from .spec import KAYENTA, SEQUENTIAL, THRESHOLD, Analysis, Metric

if t.TYPE_CHECKING:
    from . import judging

MORE = 6  # measurements after the last one, while a verdict waits; at most as many again
KEPT = 10  # last measurements of each metric that are kept (Argo's measurementRetention)
LONGEST = 400  # characters of a message about all metrics, or of an error of one
# From this e-value on the new side looks worse. Fewer than one good revision in thirty looks so at
# the end of a rollout, and three errors on the new side alone are enough.
SUSPECT = 3.0
_VERDICTS = {AnalysisPhase.FAILED: FAIL, AnalysisPhase.SUCCESSFUL: PASS}
_WOULD = {PASS: "would pass", FAIL: "would fail", PERSON: "would ask an operator"}


class MetricProgress:
    """A metric with its measurements so far."""

    def __init__(self, metric: Metric) -> None:
        self.metric, self.name = metric, metric.name
        self._counts = MeasurementCounts()
        self._finished: float | None = None
        self._last: AnalysisPhase | None = None
        self._reason = self._sentence = ""
        self._short = self._waits = False
        self.watched = False  # whether it is measured on while a person decides
        self.person = False  # whether a person was ever asked
        self.state: judging.State = {}
        self.phase = AnalysisPhase.PENDING
        self.recent: list[dict[str, t.Any]] = []
        self.kept = 0  # characters of results in the timeline

    @property
    def measures(self) -> bool:
        """Whether it is measured on, also where a person decides and more could tell."""
        kayenta = self.metric.judge == KAYENTA and self.phase is not AnalysisPhase.ERROR
        more = self.watched and not kayenta and self.phase is not AnalysisPhase.FAILED
        return more or not self.phase.over

    @property
    def measurements(self) -> int:
        """How many there were, with those that failed."""
        return self._counts.count + self._counts.error

    @property
    def doubt(self) -> str:
        """By what the new side looks worse, where that is not enough for a failure."""
        last = self.recent[-1] if self.recent else {}
        bad = self.state.get("reached", 1) > 0  # and not below `at_least`
        open_ = self.metric.decides and last.get("phase") == AnalysisPhase.SUCCESSFUL.value
        suspect = self._waits or last.get("evidence", 0.0) >= SUSPECT
        return self._sentence if open_ and bad and suspect else ""

    def judge(self, result: t.Any, error: MetricError | None, at: float) -> None:
        """Judge one measurement."""
        evidence: dict[str, float | None] = {}
        missing = 0
        try:
            if error is not None:
                raise error
            from . import judging  # with all judges, which are for results alone

            measured = judging.judge_result(self.metric, self.state, result)
            phase, value = measured.phase, measured.value
            evidence = {"evidence": measured.evidence, "threshold": measured.threshold}
            self._sentence, self._short = measured.sentence, measured.lacking
            self._waits, missing = measured.waits, measured.missing
        except MetricError as exc:  # the metric's name is shown, so its option need not be
            text = str(exc).removeprefix(f"{self.metric.variable}.")
            phase, value = AnalysisPhase.ERROR, clean(text, LONGEST)
        except Exception as exc:  # a result of an unexpected form
            phase, value = (
                AnalysisPhase.ERROR,
                clean(f"the result cannot be judged: {type(exc).__name__}: {exc}", LONGEST),
            )
        self._finished, self._last = at, phase
        self._counts = self._counts.add(phase)
        taken = {"at": round(at, 3), "phase": phase.value, "value": value}
        taken |= {name: number for name, number in evidence.items() if number is not None}
        self.recent = [*self.recent, taken][-KEPT:]
        if missing:
            self._sentence += self._takes(missing)
        limits = self.metric.limits
        self.phase, self._reason = assess(limits, self._counts)
        if self.phase is AnalysisPhase.INCONCLUSIVE:  # a failure is a failure while a person sleeps
            decisive = assess(replace(limits, inconclusive_limit=-1), self._counts)
            if decisive[0] is AnalysisPhase.FAILED:
                self.phase, self._reason = decisive
        if self.phase is AnalysisPhase.SUCCESSFUL and self._short:
            more = self._more if self._waits else 0
            self.phase = AnalysisPhase.RUNNING if more > 0 else AnalysisPhase.INCONCLUSIVE
            self._reason = f"at most {more} more measurements" if more > 0 else self._reason
        if phase is AnalysisPhase.ERROR:
            self._reason = f"{self._reason}: {value}"

    def _takes(self, missing: int) -> str:
        """Return how long so many requests take if they come as in the last measurements."""
        counted = [
            (taken["at"], taken["value"]["new"]["requests"])
            for taken in self.recent
            if taken["phase"] == AnalysisPhase.SUCCESSFUL.value
            and isinstance(taken["value"].get("new"), Mapping)
            and "requests" in taken["value"]["new"]
        ]
        if len(counted) < 2 or counted[-1][1] <= counted[0][1]:
            return ""
        (began, before), (ended, after) = counted[0], counted[-1]
        return f", about {span(missing * (ended - began) / (after - before))} at this rate"

    @property
    def _more(self) -> int:
        """How many more measurements there may be while a verdict waits."""
        planned = self.metric.limits.measurements or 0
        over = max(0, self._counts.count - planned)
        return min(MORE, planned) - over if self.metric.limits.interval else 0

    @property
    def left_open(self) -> str:
        """The errors of both sides, where the new one has more without being failed for that."""
        measured = [look for look in self.recent if isinstance(look.get("value"), Mapping)]
        last = measured[-1] if measured else {}
        sides = [last.get("value", {}).get(side) for side in ("new", "stable")]
        if not all(isinstance(side, Mapping) and "errors" in side for side in sides):
            return ""
        new, stable = (Counts(side["requests"], side["errors"]) for side in sides)
        rules = self.metric.rules
        more = new.rate > max(rules["tolerance"] * stable.rate, rules["at_least"])
        chance = stable.requests > 0 and last.get("evidence", 0.0) <= 1
        return f"{self.name} {new} against {stable}" if more and not chance else ""

    @property
    def memory(self) -> dict[str, t.Any]:
        """What is kept for the next run, as plain data."""
        return {
            "tally": asdict(self._counts),
            "finished": self._finished,
            "last": self._last and self._last.value,
            "phase": self.phase.value,
            "sentence": self._sentence,
            "reason": self._reason,
            "short": self._short,
            "waits": self._waits,
            "watched": self.watched,
            "person": self.person,
            "state": self.state,
            "recent": self.recent,
            "kept": self.kept,
        }

    def restore(self, memory: Mapping[str, t.Any]) -> None:
        """Continue from the `memory` of an earlier run."""
        if not memory:
            return
        self._counts = MeasurementCounts(**memory["tally"])
        self._finished, self._short = memory["finished"], memory["short"]
        self._waits = memory.get("waits", False)
        self.watched, self.person = memory.get("watched", False), memory.get("person", False)
        self._last = memory["last"] and AnalysisPhase(memory["last"])
        self.phase, self.state, self.recent = (
            AnalysisPhase(memory["phase"]),
            dict(memory["state"]),
            list(memory["recent"]),
        )
        self._sentence, self._reason = memory["sentence"], memory["reason"]
        self.kept = memory.get("kept", 0)

    @property
    def summary(self) -> str:
        """The phase of the metric in a sentence."""
        of_limits = self.metric.judge == THRESHOLD or self._last is AnalysisPhase.ERROR
        text = "; ".join(
            part
            for part in (self._sentence, self._reason if of_limits or not self.phase.over else "")
            if part
        )
        name = "" if self._sentence.startswith(f"{self.name} ") else f"{self.name} "
        prefix = "inconclusive: " if self.phase is AnalysisPhase.INCONCLUSIVE else ""
        return f"{prefix}{name}{text}{' (dry run)' if self.metric.dry_run else ''}"


def doubts(metrics: Sequence[MetricProgress], analysis: Analysis) -> str:
    """Return by what the new side looks worse, where that is not enough for a failure."""
    return "" if analysis.dry_run else _joined(metric.doubt for metric in metrics if metric.doubt)


def left_open(analysis: Analysis, memory: Mapping[str, t.Any]) -> str:
    """Return the metrics by which more requests to the new side failed, without a verdict.

    Args:
        analysis: What was measured, to the end of the rollout.
        memory: What its driver has kept of each metric.
    """
    texts = []
    for metric in () if analysis.dry_run else analysis.metrics:
        if metric.judge != SEQUENTIAL or not metric.decides or metric.name not in memory:
            continue
        known = MetricProgress(metric)
        known.restore(memory[metric.name])
        texts.append(known.left_open)
    return ", ".join(text for text in texts if text)


def unmeasured(analysis: Analysis, memory: Mapping[str, t.Any]) -> str:
    """Return the metrics that decide and never had a measurement, with the arguments of
    `left_open`.
    """
    names = [
        metric.name
        for metric in (() if analysis.dry_run else analysis.metrics)
        if metric.decides and not memory.get(metric.name, {}).get("tally", {}).get("count")
    ]
    return f"no measurement of {', '.join(names)}" if names else ""


def uncompared(new: Counts, old: Counts) -> str:
    """Return the errors of both sides of a rollout that nothing compared, if the new one has more.

    More by three standard deviations, so that a single error among thousands says nothing.
    """
    expected = old.rate * new.requests
    more = new.errors > expected + 3 * math.sqrt(expected + 1)
    return f"errors {new} against {old}" if more else ""


def decide(metrics: Sequence[MetricProgress], analysis: Analysis) -> tuple[str, str]:
    """Return PASS, FAIL, PERSON or WAIT, and a sentence; note whether a person is asked."""
    phase, sentence = _phase(metrics, analysis)
    verdict = _VERDICTS.get(phase, PERSON) if phase.over else WAIT
    asked = any(metric.person for metric in metrics)
    if verdict == PASS and asked and not analysis.passes_late:
        verdict, sentence = PERSON, f"enough has been measured, and all is well: {sentence}"
    if analysis.dry_run and verdict != WAIT:
        verdict, sentence = PASS, f"dry run, {_WOULD[verdict]}: {sentence}"
    for metric in metrics:
        metric.watched, metric.person = verdict == PERSON, asked or verdict == PERSON
    return verdict, sentence


def _phase(metrics: Sequence[MetricProgress], analysis: Analysis) -> tuple[AnalysisPhase, str]:
    """Return the phase of the analysis, and a sentence.

    The sentence is about the metrics that decide the phase, or about all.
    """
    from . import judging  # as above

    counted = [metric for metric in metrics if metric.metric.decides]
    phase = worst(metric.phase for metric in counted)
    over = all(metric.phase.over for metric in metrics)  # also those of a dry run
    together = [metric for metric in counted if metric.metric.judge == KAYENTA]
    if not phase.bad and together and all(metric.phase.over for metric in together):
        judged, score = judging.judge_by_kayenta(
            {metric.name: (metric.metric, metric.state) for metric in together}, analysis
        )
        if judged.bad or over:
            return worst((phase, judged)), _joined(
                [score] if judged.bad else [score, *_sentences(metrics, KAYENTA)]
            )
    if phase.bad:
        failing = [metric for metric in counted if metric.phase is phase]
        others = [metric for metric in metrics if metric not in failing]
        failing += [metric for metric in others if judging.has_new_messages(metric.state)]
        return phase, _joined(metric.summary for metric in failing)
    return (phase if over else AnalysisPhase.RUNNING), _joined(_sentences(metrics))


def _sentences(metrics: Sequence[MetricProgress], without: str = "") -> list[str]:
    return [metric.summary for metric in metrics if metric.metric.judge != without]


def _joined(sentences: Iterable[str]) -> str:
    text = ". ".join(sentences)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
