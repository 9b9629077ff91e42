# SPDX-License-Identifier: GPL-3.0-or-later
"""What the analyses of a past rollout would have said under other settings. Pure.

The results are in its timeline, as the judges got them, and are judged again.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..base.errors import InputError, MetricError
from ..base.text import clean, columns, count, printable, span
from ..inputs import values
from ..interfaces.gate import FAIL, PASS, PERSON, WAIT
from . import samples, spec
from .progress import MetricProgress, decide
from .spec import Analysis

VARIABLE = "rollout_try"
# of a metric: what is fixed by how it was measured
_MEASURED = ("driver", "judge", "interval", "initial_delay")
_METRIC = {
    name
    for table in (spec.METRIC, *spec.OF_JUDGE.values())
    for name in table
    if name not in _MEASURED
}
_ANALYSIS = {"metrics", *spec.JUDGING} - {"interval"}
COLUMNS = ("analysis", "metric", "then", "when", "now", "when", "e-value")
WORDS = {
    PASS: "pass",
    FAIL: "fail",
    PERSON: "ask an operator",
    WAIT: "no verdict",
}
Event = Mapping[str, t.Any]
Json = dict[str, t.Any]


@dataclass
class Verdict:
    """What an analysis or a metric of it said, and after which measurements."""

    verdict: str = WAIT  # or a phase, of a metric
    look: int | None = None  # how many measurements led to it; of an analysis, of one metric
    at: float | None = None  # when, in seconds since the epoch
    message: str = ""


@dataclass
class Replay:
    """An analysis whose results are judged again."""

    gate: str
    overall: Verdict = field(default_factory=Verdict)
    metrics: dict[str, Verdict] = field(default_factory=dict)
    progress: dict[str, MetricProgress] = field(default_factory=dict)
    looks: int = 0
    began: float | None = None  # when the first result came
    whole: bool = True  # whether all results were kept

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to judge."""
        return self.overall.verdict in (PASS, FAIL) or not self.whole


def replayed(events: Iterable[Event], change: Mapping[str, t.Any]) -> list[Json]:
    """Return what each analysis of a timeline said then, and would say with these changes.

    Raises InputError for changes that cannot be.
    """
    check(change)
    analyses = _apart(events)
    named = {name for analysis in analyses for name in _names(analysis)}
    for given in change.get("metrics") or () if analyses else ():
        if given["name"] not in named:
            known = ", ".join(sorted(named))
            raise InputError(
                f"{VARIABLE}.metrics: the rollout measured no {printable(str(given['name']))!r}; it"
                f" measured {known}",
                "PR-132",
            )
    return [_replayed(analysis, change) for analysis in analyses]


def check(change: Mapping[str, t.Any]) -> None:
    """Raise InputError for changes of an unknown form."""
    values.refuse_unknown(change, _ANALYSIS, f"{VARIABLE}.")
    listed = values.sequence(
        change.get("metrics") or [], f"{VARIABLE}.metrics", "[{name: errors, tolerance: 1.5}]"
    )
    for index, given in enumerate(listed):
        variable = f"{VARIABLE}.metrics[{index}]"
        given = values.mapping(given, variable, "a metric: {name: errors, tolerance: 1.5}")
        values.refuse_unknown(given, _METRIC, f"{variable}.")
        spec.METRIC["name"].parse(given.get("name"), f"{variable}.name")


def replay(events: Sequence[Event], change: Mapping[str, t.Any]) -> Replay:
    """Judge the results of one analysis again, with the settings then and these changes."""
    replayed = Replay(str(events[0]["gate"]))
    analysis: Analysis | None = None
    for event in events:
        if event.get("kind") != "look" or replayed.ended:
            continue
        if isinstance(event.get("settings"), Mapping):
            analysis = _changed(event["settings"], change)
            _begin(replayed, analysis)
        if analysis is not None:
            _look(replayed, analysis, event)
    return replayed


def _begin(replayed: Replay, analysis: Analysis) -> None:
    """Judge by these settings from now on; a run that resumes a rollout may bring others."""
    before, replayed.progress = replayed.progress, {}
    for metric in analysis.metrics:
        replayed.progress[metric.name] = now = MetricProgress(metric)
        if metric.name in before:
            now.restore(before[metric.name].memory)


def _look(replayed: Replay, analysis: Analysis, event: Event) -> None:
    """Judge the results that were judged together then."""
    results = event.get("results")
    results = results if isinstance(results, Mapping) else {"": None}
    read = {name: samples.unpacked(coded) for name, coded in results.items()}
    at = 0.0
    for name, result in read.items():
        if result is None:
            replayed.whole = False
            return
        at = max(at, result["at"])
        if name in replayed.progress and replayed.progress[name].measures:
            error = MetricError(str(result["error"]), "PR-420") if "error" in result else None
            replayed.progress[name].judge(result.get("result"), error, result["at"])
    replayed.looks = max((metric.measurements for metric in replayed.progress.values()), default=0)
    replayed.began = at if replayed.began is None else replayed.began
    verdict, sentence = decide([*replayed.progress.values()], analysis)
    if verdict == PERSON and event.get("by_default"):
        verdict = WAIT
    _note(replayed.overall, Verdict(verdict, replayed.looks, at, sentence))
    for name, progress in replayed.progress.items():
        phase = progress.phase.value if progress.phase.over else WAIT
        known = replayed.metrics.setdefault(name, Verdict())
        _note(known, Verdict(phase, progress.measurements, at, progress.summary))


def _note(known: Verdict, now: Verdict) -> None:
    """Take in a verdict; one that stays keeps the moment of the first."""
    if known.verdict != now.verdict:
        decided = now.verdict != WAIT
        known.verdict = now.verdict
        known.look, known.at = (now.look, now.at) if decided else (None, None)
    known.message = now.message


def _changed(settings: Mapping[str, t.Any], change: Mapping[str, t.Any]) -> Analysis:
    """Return the settings then, with these changes."""
    given = {metric["name"]: metric for metric in change.get("metrics") or ()}
    metrics = [{**metric, **given.get(metric["name"], {})} for metric in settings["metrics"]]
    own_rules = {name: value for name, value in change.items() if name != "metrics"}
    known = {name: value for name, value in settings.items() if value is not None}
    options = spec.OPTIONS.parse({**known, **own_rules, "metrics": metrics}, f"{VARIABLE}.")
    return spec.parse(options, VARIABLE, (), again=True)


def _apart(events: Iterable[Event]) -> list[list[Event]]:
    """Return the looks and verdicts of each analysis, also where a gate was asked twice."""
    parts: list[list[Event]] = []
    current: dict[str, list[Event]] = {}
    for event in events:
        gate = str(event.get("gate"))
        if event.get("kind") == "look":
            if (event.get("settings") and not event.get("resumed")) or gate not in current:
                current[gate] = []
                parts.append(current[gate])
            current[gate].append(event)
        elif event.get("kind") == "verdict" and gate in current:
            current[gate].append(event)
    return [part for part in parts if isinstance(part[0].get("settings"), Mapping)]


def _names(events: Sequence[Event]) -> set[str]:
    return {
        metric["name"]
        for event in events
        if isinstance(event.get("settings"), Mapping)
        for metric in event["settings"]["metrics"]
    }


def _replayed(events: Sequence[Event], change: Mapping[str, t.Any]) -> Json:
    """Return what one analysis said then, and would say."""
    then, now = replay(events, {}), replay(events, change)
    verdicts = [event for event in events if event.get("kind") == "verdict"]
    return {
        "gate": clean(now.gate),
        "looks": max(then.looks, now.looks),
        "whole": then.whole and now.whole,
        "then": _plain(then.overall, then) | (_verdict(verdicts[-1]) if verdicts else {}),
        "now": _plain(now.overall, now),
        "metrics": [
            {
                "name": name,
                "then": _plain(then.metrics.get(name, Verdict()), then),
                "now": _plain(verdict, now),
                **_evidence(now.progress[name]),
            }
            for name, verdict in now.metrics.items()
        ],
    }


def _verdict(event: Event) -> Json:
    """Return the verdict that the timeline has, whatever a replay says."""
    return {"verdict": clean(event.get("verdict")), "message": clean(event.get("message"), 1000)}


def _plain(verdict: Verdict, of: Replay) -> Json:
    seconds = round(verdict.at - of.began, 1) if verdict.at and of.began else None
    return {**vars(verdict), "seconds": seconds}


def _evidence(progress: MetricProgress) -> Json:
    last = progress.recent[-1] if progress.recent else {}
    return {"evidence": last.get("evidence"), "threshold": last.get("threshold")}


def lines(rollout: str, analyses: Sequence[Mapping[str, t.Any]]) -> list[str]:
    """Return the verdicts then and now as a table, and why."""
    if not analyses:
        return [f"{rollout}: no analysis judged anything in this rollout"]
    rows = [COLUMNS]
    for analysis in analyses:
        rows.append((analysis["gate"], "", *_cells(analysis["then"]), *_cells(analysis["now"]), ""))
        for metric in analysis["metrics"]:
            cells = (*_cells(metric["then"]), *_cells(metric["now"]))
            rows.append(("", clean(metric["name"]), *cells, _weighed(metric)))
    return [printable(line) for line in (*columns(rows), *map(_sentence, analyses))]


def _cells(verdict: Mapping[str, t.Any]) -> tuple[str, str]:
    """Return a verdict, and after how many measurements."""
    when = (
        "" if verdict["look"] is None else f"{verdict['look']} ({span(verdict['seconds'] or 0.0)})"
    )
    return WORDS.get(verdict["verdict"], verdict["verdict"]), when


def _weighed(metric: Mapping[str, t.Any]) -> str:
    evidence, threshold = metric["evidence"], metric["threshold"]
    if evidence is None or threshold is None:
        return ""
    return f"{evidence:,.4g} {'>=' if evidence >= threshold else '<'} {threshold:,.4g}"


def _sentence(analysis: Mapping[str, t.Any]) -> str:
    """Return what would have happened."""
    now, looks = analysis["now"], count(analysis["looks"], "measurement")
    if now["verdict"] == WAIT:
        outcome = f"would not have decided by the end of {looks}: {now['message']}"
    else:
        outcome = f"would {WORDS[now['verdict']]}: {now['message']}"
    rest = "" if analysis["whole"] else f"; results after {looks} are not kept"
    return f"{analysis['gate']} {outcome}{rest}"
