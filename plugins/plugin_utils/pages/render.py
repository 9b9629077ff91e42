# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages: a rollout's report as HTML and Markdown, and the index of a service. Pure, but for the
templates, which are files beside this one.
"""

from __future__ import annotations

import functools
import re
import typing as t
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2

from ..base.text import count, moment, printable, span
from . import graphs, swimlanes
from .annotation import decisions
from .charts import HEIGHT, WIDTH, Scale, clock, time_ticks
from .fleet import LOOKS, by_host
from .report_model import ReportModel, number, text

DECISIONS = 200  # of the loop, the last ones
NAMED = 60  # instances whose names are beside their lanes, at most
SYMBOLS = {"good": "✓", "bad": "✕", "warn": "!", "busy": "…", "person": "☞"}


@functools.cache
def _environment(autoescape: bool) -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=autoescape,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"clock": clock, "moment": moment, "span": span, "markdown": escaped}
    made.filters["person"] = person
    made.globals |= {"symbols": SYMBOLS, "count": count}
    return made


def _render(template: str, **data: t.Any) -> str:
    """Fill a template in. Everything in HTML is escaped, whatever it is."""
    return _environment(template.endswith(".html.j2")).get_template(template).render(data)


def html(report: ReportModel, events: Sequence[Mapping[str, t.Any]], now: float) -> str:
    """Return the report as one HTML file that needs nothing else. `now`: when it is made."""
    scale = Scale(report.length, 1.0, HEIGHT)
    return _render(
        "report.html.j2",
        report=report,
        facts=facts(report),
        now=now,
        charts=graphs.of(report),
        ticks=time_ticks(report.length),
        groups=swimlanes.grouped(report.annotations, report.length),
        rules=swimlanes.rules(report.annotations, scale),
        hosts=swimlanes.by_hosts(report.lanes, report.length),
        lane_height=swimlanes.lane_height(len(report.lanes)),
        named=len(report.lanes) <= NAMED,
        table=[lane for of_host in by_host(report.lanes).values() for lane in of_host],
        looks=LOOKS,
        decisions=list(decisions(events, report.start, DECISIONS)),
        width=WIDTH,
        height=HEIGHT,
    )


def markdown(report: ReportModel) -> str:
    """Return the report as Markdown, for a merge request."""
    return _render("report.md.j2", report=report, facts=facts(report))


def index(
    service: str, rollouts: Sequence[Mapping[str, t.Any]], files: Mapping[str, str], now: float
) -> str:
    """Return the page of a service's history. `files`: by rollout, the file of its report."""
    reports = [ReportModel(service, rollout, **_revisions(rollout)) for rollout in rollouts]
    return _render("index.html.j2", service=service, reports=reports, files=files, now=now)


def _revisions(rollout: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return what the index needs of a rollout's record."""
    before = rollout.get("previous")
    started, updated = number(rollout.get("started")) or 0.0, number(rollout.get("updated")) or 0.0
    return {
        "revision": text(rollout.get("revision")),
        "previous": text(before.get("revision")) if isinstance(before, Mapping) else "",
        "start": started,
        "length": max(0.0, updated - started),
        "by": text(rollout.get("by")),
    }


def person(by: str) -> str:
    """Return who began a rollout, without the process."""
    return by.partition(" pid ")[0]


def facts(report: ReportModel) -> list[tuple[str, str]]:
    """Return what a reader wants to know first."""
    failed = report.rollout.get("failed")
    fewest = report.fewest
    rows = {
        "Took" if report.outcome else "Takes so far": span(report.length),
        "Failed requests": _lost(report),
        "Fewest in rotation": f"{fewest[0]:,}, where {fewest[1]:,} are needed" if fewest else "",
        "Failed instances": f"{failed:,}" if isinstance(failed, int) and failed else "",
        **_serving(report),
        "Managed by no rollout": report.numbers.unmanaged,
        "Decided by": _decided(report),
        "Began": moment(report.start),
        "Begun by": report.by,
        "Begun for": report.why,
    }
    return [(name, value) for name, value in rows.items() if value]


def _lost(report: ReportModel) -> str:
    """Return how many requests failed, of those that were counted."""
    if report.numbers.lost is None:
        return "not counted"
    failed, every = report.numbers.lost
    rate = f" ({100 * failed / every:.2g} %)" if failed and every else ""
    missing = "; those between two steps were not counted" if report.numbers.gaps else ""
    return f"{failed:,} of {every:,} counted{rate}{missing}"


def _decided(report: ReportModel) -> str:
    """Return what decided how it ended, and who; why is said above."""
    decided = report.decided
    if decided is None:
        return "the rollout itself: no person, no failed gate" if report.outcome else ""
    return f"{decided.title}{f', by {decided.who}' if decided.who else ''}"


def _serving(report: ReportModel) -> dict[str, str]:
    """Return what serves now."""
    if report.outcome == "promoted":
        return {"Serves now": report.revision}
    if report.outcome in ("rolled_back", "aborted", "refused") and report.previous:
        return {"Serves now": report.previous}
    if report.points:
        point = report.points[-1]
        return {"In rotation now": f"{point.new} new, {point.old} old"}
    return {}


# What means something within a line of Markdown, as hosts of repositories extend it. Lists and
# headings begin a line, which no text of ours does, and _ means nothing within a word.
SPECIAL = re.compile(r"[\\`*\[\]|~^$]|(?<![^\W_])_|_(?![^\W_])|[#!%](?=\w)|:(?=//|[A-Za-z]\w*:)|==")
MENTION = "@\u200b"  # no mention
INSTEAD = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", MENTION))


def escaped(value: t.Any) -> str:
    """Return a text in which Markdown, HTML, mentions and references mean nothing."""
    kept = SPECIAL.sub(lambda match: f"\\{match[0]}", _line(value))
    for char, instead in INSTEAD:
        kept = kept.replace(char, instead)
    return kept


def _line(value: t.Any) -> str:
    return " ".join(printable(str(value)).split())
