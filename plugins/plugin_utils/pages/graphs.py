# SPDX-License-Identifier: GPL-3.0-or-later
"""The charts of a rollout's report. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .charts import Chart, Scale, Series, Tick, clock, every, figure, ticks, top_of
from .numbers import Counted
from .report_model import ReportModel

ROWS = 60  # of the table behind a chart, at most
LEAST = 0.5  # percent, and milliseconds: the smallest end of an axis


def of(report: ReportModel) -> list[Chart]:
    """Return the charts for which there are numbers."""
    made = [rotation(report), shares(report), errors(report), latency(report), *evidence(report)]
    return [chart for chart in made if chart and any(series.path for series in chart.series)]


def rotation(report: ReportModel) -> Chart | None:
    """Return the numbers of new and old instances against the budget."""
    points = report.points
    if not points:
        return None
    most = [*(point.total for point in points), *(bound.ceiling for bound in report.bounds)]
    scale = Scale(report.length, top_of(max(most)))
    chart = Chart("rotation", "Instances in rotation", _rotation_summary(report))
    old = [(point.at, float(point.old)) for point in points]
    serving = [(point.at, float(point.serving)) for point in points]
    total = [(point.at, float(point.total)) for point in points]
    floor = [(bound.at, bound.until, float(bound.floor)) for bound in report.bounds]
    ceiling = [(bound.at, bound.until, float(bound.ceiling)) for bound in report.bounds]
    chart.series = [
        Series("area new", "new, in rotation", scale.area(serving)),
        Series("area old", "old, in rotation", scale.area(old)),
        Series("line total", "all instances", scale.steps(total)),
        Series("line ceiling", "ceiling", scale.bars(ceiling)),
        Series("line floor", "floor", scale.bars(floor)),
    ]
    chart.ticks = ticks(scale.top)
    chart.head = ("Time", "New in rotation", "Old in rotation", "All instances")
    chart.rows = [(clock(p.at), str(p.new), str(p.old), str(p.total)) for p in every(points, ROWS)]
    return chart


def _rotation_summary(report: ReportModel) -> str:
    last = report.points[-1]
    when = "At the end" if report.outcome else "Now"
    sentences = [f"{when} {last.new:,} new and {last.old:,} old instances are in rotation."]
    if report.fewest:
        serving, floor = report.fewest
        kept = "never below" if serving >= floor else "below"
        way = "On the way there were" if report.outcome else "So far there were"
        sentences.append(f"{way} at least {serving:,}, {kept} the floor of {floor:,}.")
    if report.fewest_back is not None:
        sentences.append(f"In the rollback there were at least {report.fewest_back:,}.")
    return " ".join(sentences)


def shares(report: ReportModel) -> Chart | None:
    """Return the share of the requests that was asked for, set and counted."""
    numbers, scale = report.numbers, Scale(report.length, 100.0)
    asked = [(at, share) for at, share in numbers.asked if share is not None]
    if not numbers.set:
        return None
    chart = Chart("share", "Share of requests to the new revision", _share_summary(report))
    chart.series = [
        Series("line set", "set at the load balancers", scale.steps(numbers.set)),
        Series("line asked", "asked for", scale.steps(asked)),
        Series("line counted", "counted", scale.bars(numbers.counted)),
    ]
    chart.ticks = ticks(100.0, " %")
    chart.head = ("Time", "What", "Share")
    rows = [
        *((at, "asked for", f"{share:g} %") for at, share in asked),
        *((at, "set", f"{share:g} %") for at, share in numbers.set),
        *((until, "counted", f"{share:.1f} %") for _since, until, share in numbers.counted),
    ]
    chart.rows = [(clock(at), *more) for at, *more in every(sorted(rows), ROWS)]
    return chart


def _share_summary(report: ReportModel) -> str:
    most = max(share for _at, share in report.numbers.set)
    last = report.numbers.set[-1][1]
    if not report.outcome:
        return f"{last:g} % of the requests are sent to it now, at most {most:g} % so far."
    return f"At most {most:g} % of the requests were sent to it; {last:g} % at the end."


def errors(report: ReportModel) -> Chart | None:
    """Return the error rates of new and stable."""
    numbers = report.numbers
    rates = [counted.rate for counted in (*numbers.new, *numbers.old) if counted.rate is not None]
    if not rates:
        return None
    new, old = _failed(numbers.new), _failed(numbers.old)
    chart = Chart("errors", "Errors", f"New: {new}. Stable: {old}.")
    return _sides(report, chart, "rate", top_of(max(LEAST, *rates)), " %")


def latency(report: ReportModel) -> Chart | None:
    """Return the mean latencies of new and stable."""
    numbers = report.numbers
    latencies = [
        1000 * counted.latency
        for counted in (*numbers.new, *numbers.old)
        if counted.latency is not None
    ]
    if not latencies:
        return None
    new, old = _mean(numbers.new), _mean(numbers.old)
    summary = f"Mean time to the answer. New: {new}. Stable: {old}."
    chart = Chart("latency", "Latency", summary)
    return _sides(report, chart, "milliseconds", top_of(max(LEAST, *latencies)), " ms")


def _sides(report: ReportModel, chart: Chart, what: str, top: float, unit: str) -> Chart:
    """Add a line and the numbers of each side."""
    scale = Scale(report.length, top)
    for look, title, side in (
        ("old", "stable", report.numbers.old),
        ("new", "new", report.numbers.new),
    ):
        spans = [
            (counted.since, counted.until, value)
            for counted in side
            if (value := _value(counted, what)) is not None
        ]
        chart.series.append(Series(f"line {look}", title, scale.bars(spans)))
    chart.ticks = ticks(top, unit)
    chart.head = ("Until", "New: requests", f"New:{unit}", "Stable: requests", f"Stable:{unit}")
    pairs = list(zip(report.numbers.new, report.numbers.old, strict=True))
    chart.rows = [
        (clock(new.until), *_cells(new, what), *_cells(old, what))
        for new, old in every(pairs, ROWS)
    ]
    return chart


def _value(counted: Counted, what: str) -> float | None:
    if what == "rate":
        return counted.rate
    return None if counted.latency is None else 1000 * counted.latency


def _cells(counted: Counted, what: str) -> tuple[str, str]:
    value = _value(counted, what)
    return f"{counted.requests:,}", "–" if value is None else figure(value)


def _failed(side: Sequence[Counted]) -> str:
    failed, every_one = (
        sum(counted.errors for counted in side),
        sum(counted.requests for counted in side),
    )
    rate = f" ({100 * failed / every_one:.2g} %)" if every_one else ""
    return f"{failed:,} of {every_one:,} requests failed{rate}"


def _mean(side: Sequence[Counted]) -> str:
    timed = [counted for counted in side if counted.latency is not None]
    answers = sum(counted.requests for counted in timed)
    if not answers:
        return "not measured"
    seconds = sum((counted.latency or 0) * counted.requests for counted in timed)
    return f"{figure(1000 * seconds / answers)} ms"


def evidence(report: ReportModel) -> list[Chart]:
    """Return the evidence of each analysis against its threshold, on a logarithmic scale."""
    return [
        _evidence(report, name, number, taken)
        for number, (name, taken) in enumerate(report.numbers.evidence.items(), 1)
    ]


def _evidence(
    report: ReportModel, name: str, number: int, taken: Sequence[tuple[float, float, float]]
) -> Chart:
    points = sorted(taken)
    threshold = points[-1][2]
    greatest = max(evidence for _at, evidence, _threshold in points)
    when = "at the end" if report.outcome else "now"
    reached = "reached" if greatest >= threshold else "never reached"
    summary = (
        f"Evidence that the new revision is worse: {figure(points[-1][1])} {when}. The threshold of"
        f" {figure(threshold)} was {reached}."
    )
    top = math.log10(max(greatest, threshold)) + 0.3
    scale = Scale(report.length, top)
    chart = Chart(f"evidence-{number}", f"Evidence of {name}", summary)
    drawn = [(at, math.log10(max(1.0, evidence))) for at, evidence, _threshold in points]
    limit = math.log10(max(1.0, threshold))
    chart.series = [
        Series("line threshold", "threshold", f"M0 {scale.y(limit)}H1000"),
        Series("line evidence", "evidence", scale.line(drawn)),
        Series(
            "dots evidence", "measurement", "".join(scale.line([point]) + "h0" for point in drawn)
        ),
    ]
    chart.ticks = [
        Tick(0, "1"),
        Tick(round(100 * limit / top, 1), figure(threshold)),
    ]
    chart.head = ("Time", "Evidence", "Threshold")
    chart.rows = [
        (clock(at), figure(evidence), figure(limit_))
        for at, evidence, limit_ in every(points, ROWS)
    ]
    return chart
