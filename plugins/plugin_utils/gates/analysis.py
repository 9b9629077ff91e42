# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An analysis: a rollout passes when measurements show that the new revision is not worse.

Metrics are measured at the same time, each at its own interval, and judged after each measurement.
The first failure ends the analysis. A metric that cannot be measured, or is inconclusive at the
end, leaves the decision to a person.
"""

from __future__ import annotations

import math
import queue
import threading
import time
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from ..analysis import judging, spec
from ..analysis.spec import KAYENTA, SEQUENTIAL, THRESHOLD, Metric
from ..base import clock
from ..base.errors import InputError, MetricError
from ..base.text import clean
from ..engine.judges.threshold import AnalysisPhase, MeasurementCounts, assess, due, worst
from ..health.probe_traffic import Prober
from ..interfaces.context import Context
from ..interfaces.gate import FAIL, PASS, PERSON, WAIT, Answer, GateDriver
from ..interfaces.metric import MetricDriver, Question

OPTIONS = spec.OPTIONS

# seconds to wait for measurements together; those that take longer are judged when they come
PATIENCE = 0.5
KEPT = 10  # last measurements of each metric that are kept (Argo's measurementRetention)
LONGEST = 400  # characters of a message about all metrics, or of an error of one


class Driver(GateDriver):
    """Passes when measurements show that the new revision is not worse."""

    def __init__(self, options: Mapping[str, t.Any], context: Context) -> None:
        self._analysis = spec.parse(options, "gate", "latency" in context.counted)
        probe = options["probe"]
        self._prober = Prober(probe, context, "gate.probe") if probe else None
        if self._prober:
            context = replace(context, served=self._prober.served)
        self._metrics = [_Measured(metric, context) for metric in self._analysis.metrics]
        self._results: queue.SimpleQueue[_Result] = queue.SimpleQueue()
        self._asked = 0  # measurements in progress

    def restore(self, memory: Mapping[str, t.Any]) -> None:
        """Continue from earlier measurements."""
        for metric in self._metrics:
            metric.restore(memory.get(metric.name) or {})

    def cancel(self) -> None:
        """End the measurements in progress."""
        for metric in self._metrics:
            metric.cancel()

    def close(self) -> None:
        """End all measurements and synthetic requests."""
        self.cancel()
        if self._prober:
            self._prober.close()

    def ask(self, rollout: Mapping[str, t.Any], waited: float) -> Answer:
        now = clock.now()
        start = now - waited
        if self._prober:
            self._prober.look(rollout["generation"])
        for metric in self._metrics:
            metric.begin(start, now)
            if metric.due(start) <= now:
                metric.ask(rollout, start, now, self._results)
                self._asked += 1
        judged = self._judge()
        phase, sentence = self._verdict()
        memory = {metric.name: metric.memory for metric in self._metrics} if judged else None
        if not phase.over:
            soonest = min(metric.due(start) for metric in self._metrics) - clock.now()
            return Answer(WAIT, sentence, memory, again=0.0 if self._asked else max(0.05, soonest))
        self.close()
        samples = {metric.name: metric.recent for metric in self._metrics}
        verdict = (
            FAIL
            if phase is AnalysisPhase.FAILED
            else PASS
            if phase is AnalysisPhase.SUCCESSFUL
            else PERSON
        )
        return Answer(verdict, sentence, memory, samples)

    def _judge(self) -> bool:
        """Judge finished measurements; return whether there were any.

        A slow one does not hold up the others.
        """
        any_judged, until = False, time.monotonic() + PATIENCE
        while self._asked:
            try:
                result = self._results.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            self._asked -= 1
            result.metric.judge(result)
            any_judged = True
        return any_judged

    def _verdict(self) -> tuple[AnalysisPhase, str]:
        """Return the phase of the analysis, and a sentence.

        The sentence is about the metrics that decide the phase, or about all.
        """
        counted = [metric for metric in self._metrics if not metric.metric.dry_run]
        phase = worst(metric.phase for metric in counted)
        over = all(metric.phase.over for metric in self._metrics)  # also those of a dry run
        together = [metric for metric in counted if metric.metric.judge == KAYENTA]
        if not phase.bad and together and all(metric.phase.over for metric in together):
            found, score = judging.judge_by_kayenta(
                {metric.name: (metric.metric, metric.state) for metric in together}, self._analysis
            )
            if found.bad or over:
                return worst((phase, found)), _joined(
                    [score] if found.bad else [score, *self._sentences(self._metrics, KAYENTA)]
                )
        if phase.bad:
            return phase, _joined(metric.summary for metric in counted if metric.phase is phase)
        return (phase if over else AnalysisPhase.RUNNING), _joined(self._sentences(self._metrics))

    def _sentences(self, metrics: Sequence[_Measured], without: str = "") -> list[str]:
        return [metric.summary for metric in metrics if metric.metric.judge != without]


@dataclass(frozen=True)
class _Result:
    """The result of one measurement, `at` seconds since the epoch."""

    metric: _Measured
    question: Question
    found: t.Any
    error: MetricError | None
    at: float


class _Measured:
    """A metric with its measurements so far."""

    def __init__(self, metric: Metric, context: Context) -> None:
        self.metric, self.name = metric, metric.name
        try:
            self._driver: MetricDriver = metric.module.driver(metric.options, context)
        except InputError as exc:  # drivers do not know which option defines them
            raise InputError(metric.variable + str(exc).removeprefix("metric"), exc.id) from None
        self._counting: float | None = None  # since when this run counts
        self._counts = MeasurementCounts()
        self._finished: float | None = None
        self._last: AnalysisPhase | None = None
        self._result: t.Any = None  # the last result, if the driver adds to it
        self._reason = self._sentence = ""
        self._short = self._asked = False
        self.state: judging.State = {}
        self.phase = AnalysisPhase.PENDING
        self.recent: list[dict[str, t.Any]] = []

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
            "result": self._result,
            "short": self._short,
            "state": self.state,
            "recent": self.recent,
        }

    def restore(self, memory: Mapping[str, t.Any]) -> None:
        """Continue from the `memory` of an earlier run."""
        if not memory:
            return
        self._counts = MeasurementCounts(**memory["tally"])
        self._finished, self._result, self._short = (
            memory["finished"],
            memory["result"],
            memory["short"],
        )
        self._last = memory["last"] and AnalysisPhase(memory["last"])
        self.phase, self.state, self.recent = (
            AnalysisPhase(memory["phase"]),
            dict(memory["state"]),
            list(memory["recent"]),
        )
        self._sentence, self._reason = memory["sentence"], memory["reason"]

    def begin(self, start: float, now: float) -> None:
        """Let a driver that counts itself begin, once the initial delay is over."""
        if (
            self._driver.counting
            and self._counting is None
            and now >= start + self.metric.limits.initial_delay
        ):
            self._driver.begin()
            self._counting = now

    def cancel(self) -> None:
        """End a measurement in progress."""
        if self._asked:
            self._driver.cancel()

    def due(self, start: float) -> float:
        """When to measure next. A driver that counts itself first needs an interval to count in."""
        if self._asked or self.phase.over:
            return math.inf
        limits = self.metric.limits
        soonest = due(limits, start, self._finished, self._last)
        return (
            soonest
            if self._counting is None
            else max(soonest, self._counting + (limits.interval or 0.0))
        )

    def ask(
        self,
        rollout: Mapping[str, t.Any],
        start: float,
        now: float,
        results: queue.SimpleQueue[_Result],
    ) -> None:
        """Start a measurement in a daemon thread.

        If it hangs, the process can end nevertheless.
        """
        judge = self.metric.judge
        question = Question(
            rollout, start, now, judge != THRESHOLD, judge == SEQUENTIAL, self._result
        )
        self._asked = True
        threading.Thread(
            target=self._measure, args=(question, results), name="metric", daemon=True
        ).start()

    def _measure(self, question: Question, results: queue.SimpleQueue[_Result]) -> None:
        found: t.Any = None
        error: MetricError | None = None
        try:
            found = self._driver.measure(question)
        except MetricError as exc:
            error = exc
        # a third party's driver; even SystemExit would end the thread without a result
        except BaseException as exc:
            error = MetricError(f"its driver failed: {type(exc).__name__}: {exc}", "PR-420")
        results.put(_Result(self, question, found, error, clock.now()))

    def judge(self, result: _Result) -> None:
        """Judge one measurement."""
        try:
            if result.error is not None:
                raise result.error
            measured = judging.judge_result(
                self.metric, self.state, result.found, _stratum(result.question.rollout)
            )
            phase, value = measured.phase, measured.value
            self._sentence, self._short = measured.sentence, measured.lacking
            self._result = (
                result.found if self._driver.counting and result.question.counts else None
            )
        except MetricError as exc:  # the metric's name is shown, so its option need not be
            text = str(exc).removeprefix(f"{self.metric.variable}.")
            phase, value = AnalysisPhase.ERROR, clean(text, LONGEST)
        except Exception as exc:  # a result of an unexpected form
            phase, value = (
                AnalysisPhase.ERROR,
                clean(f"the result cannot be judged: {type(exc).__name__}: {exc}", LONGEST),
            )
        self._asked, self._finished, self._last = False, result.at, phase
        self._counts = self._counts.add(phase)
        self.recent = [
            *self.recent,
            {"at": round(result.at, 3), "phase": phase.value, "value": value},
        ][-KEPT:]
        self.phase, self._reason = assess(self.metric.limits, self._counts)
        if self.phase is AnalysisPhase.SUCCESSFUL and self._short:
            self.phase = AnalysisPhase.INCONCLUSIVE
        if phase is AnalysisPhase.ERROR:
            self._reason = f"{self._reason}: {value}"

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


def _stratum(rollout: Mapping[str, t.Any]) -> str:
    """Name a time in which the share of the requests stays the same."""
    return f"{rollout.get('stage')} {(rollout.get('share') or {}).get('set')}"


def _joined(sentences: Iterable[str]) -> str:
    text = ". ".join(sentences)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
