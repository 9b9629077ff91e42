# SPDX-License-Identifier: GPL-3.0-or-later
"""An analysis: a rollout passes when measurements show that the new revision is not worse.

Metrics are measured at the same time, each at its own interval, and judged after each measurement.
The first failure ends the analysis. A metric that cannot be measured, or is inconclusive at the
end, leaves the decision to a person, and is measured on meanwhile: a failure is still a failure,
and enough data that shows nothing passes (`on_enough`).
"""

from __future__ import annotations

import contextlib
import math
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty, SimpleQueue

from ..analysis import samples, spec
from ..analysis.progress import KEPT, MetricProgress, decide, doubts
from ..analysis.spec import SEQUENTIAL, THRESHOLD, Metric
from ..base import clock
from ..base.errors import InputError, MetricError
from ..engine.judges.threshold import AnalysisPhase, due
from ..interfaces.context import DriverContext
from ..interfaces.gate import FAIL, PASS, PERSON, WAIT, Answer, GateDriver
from ..interfaces.metric import MetricDriver, Question

if t.TYPE_CHECKING:
    from ..health.probe_traffic import Prober

OPTIONS = spec.OPTIONS

# seconds to wait for measurements together; those that take longer are judged when they come
TOGETHER = 0.5
LONG = 60.0  # seconds until the next question where nothing is measured any more


class Driver(GateDriver):
    """Passes when measurements show that the new revision is not worse."""

    waiting = "measuring for {key}"
    unanswered = "no measurement yet"

    watches = True

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        usual = spec.standard(context.counted, bool(context.access_log))
        self._analysis = spec.parse(options, "gate", usual)
        # for the timeline, with the first results; None: they are there
        self._settings: dict[str, t.Any] | None = {"settings": spec.recorded(options, usual)}
        probe = options["probe"]
        self._prober: Prober | None = None
        if probe:
            from ..health.probe_traffic import Prober  # few analyses probe

            self._prober = Prober(probe, context, "gate.probe")
            context = replace(context, counters=self._prober)
        self._metrics = [_Measured(metric, context) for metric in self._analysis.metrics]
        self._results: SimpleQueue[_Result] = clock.queue()
        self._asked = 0  # measurements in progress

    def restore(self, memory: Mapping[str, t.Any]) -> None:
        """Continue from earlier measurements."""
        if self._settings:
            self._settings["resumed"] = True
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
        verdict, sentence = decide(self._metrics, self._analysis)
        memory = {metric.name: metric.memory for metric in self._metrics} if judged else None
        if verdict in (PASS, FAIL):
            self.close()
        again = None
        if verdict in (WAIT, PERSON):
            soonest = min(metric.due(start) for metric in self._metrics) - clock.now()
            again = 0.0 if self._asked and verdict == WAIT else min(max(0.05, soonest), LONG)
        last = -1 if verdict == WAIT else -KEPT
        shown = {m.name: m.recent[last:] for m in self._metrics if judged or verdict != WAIT}
        doubt = doubts(self._metrics, self._analysis)
        return Answer(verdict, sentence, memory, shown, again, self._looked(), doubt)

    def _looked(self) -> dict[str, t.Any]:
        """Return the results that were judged, for the timeline; empty if there are none."""
        results = {metric.name: metric.sample for metric in self._metrics if metric.looked}
        for metric in self._metrics:
            metric.looked = False
        if not results:
            return {}
        about, self._settings = self._settings or {}, None
        return {**about, "results": results}

    def _judge(self) -> bool:
        """Judge finished measurements; return whether there were any.

        A slow one does not hold up the others.
        """
        any_judged, until = False, clock.monotonic() + TOGETHER
        while self._asked:
            try:
                result = self._results.get(timeout=max(0.0, until - clock.monotonic()))
            except Empty:
                break
            self._asked -= 1
            result.metric.take(result)
            any_judged = True
        return any_judged


@dataclass(frozen=True)
class _Result:
    """The result of one measurement, `at` seconds since the epoch."""

    metric: _Measured
    question: Question
    found: t.Any
    error: MetricError | None
    at: float


class _Measured(MetricProgress):
    """A metric that is measured."""

    def __init__(self, metric: Metric, context: DriverContext) -> None:
        super().__init__(metric)
        try:
            self._driver: MetricDriver = metric.module.driver(metric.options, context)
        except InputError as exc:  # drivers do not know which option defines them
            raise InputError(metric.variable + str(exc).removeprefix("metric"), exc.id) from None
        self._counting: float | None = None  # since when this run counts
        self._asked = False
        self.looked = False  # whether a result was judged that is not in the timeline yet
        self.sample: str | None = None  # that result

    def begin(self, start: float, now: float) -> None:
        """Let a driver that counts itself begin, once the initial delay is over.

        One that cannot yet fails to measure, too, and begins later.
        """
        if (
            self._driver.counting
            and self._counting is None
            and now >= start + self.metric.limits.initial_delay
        ):
            with contextlib.suppress(MetricError):
                self._driver.begin()
                self._counting = now

    def cancel(self) -> None:
        """End a measurement in progress."""
        if self._asked:
            self._driver.cancel()

    def due(self, start: float) -> float:
        """When to measure next. A driver that counts itself first needs an interval to count in."""
        if self._asked or not self.measures:
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
        results: SimpleQueue[_Result],
    ) -> None:
        """Start a measurement in a daemon thread.

        If it hangs, the process can end nevertheless.
        """
        judge = self.metric.judge
        question = Question(rollout, start, now, judge != THRESHOLD, judge == SEQUENTIAL)
        self._asked = True
        clock.alongside(partial(self._measure, question, results), "metric")

    def _measure(self, question: Question, results: SimpleQueue[_Result]) -> None:
        measured: t.Any = None
        error: MetricError | None = None
        try:
            measured = self._driver.measure(question)
        except MetricError as exc:
            error = exc
        # a third party's driver; even SystemExit would end the thread without a result
        except BaseException as exc:
            error = MetricError(f"its driver failed: {type(exc).__name__}: {exc}", "PR-420")
        results.put(_Result(self, question, measured, error, clock.now()))

    def take(self, result: _Result) -> None:
        """Judge the measurement that was asked for."""
        self._asked, self.looked = False, True
        self.judge(result.found, result.error, result.at)
        last = self.recent[-1]
        failed = last["phase"] == AnalysisPhase.ERROR
        measured = {"error": last["value"]} if failed else {"result": result.found}
        self.sample, self.kept = samples.packed(measured, result.at, self.kept)
