# SPDX-License-Identifier: GPL-3.0-or-later
"""The reports of rollouts: pages that say what happened, whatever was in the timeline."""

from __future__ import annotations

import html.parser
import json
import re
import typing as t
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.action import report, rollback
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    MetricsError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.background import (
    beside,
    reports,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.background.reports import (
    LiveReport,
    Reports,
    replace_file,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.pages import (
    charts,
    graphs,
    junit,
    render,
    report_model,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.pages.fleet import natural
from ansible_collections.progressive.rollout.plugins.plugin_utils.report import history
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Record
from ansible_collections.progressive.rollout.tests.support.memory import Service, World
from ansible_collections.progressive.rollout.tests.support.pages import SNIPPETS
from ansible_collections.progressive.rollout.tests.support.timelines import (
    START,
    Event,
    rollout,
    timeline,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until
from hypothesis import given
from hypothesis import strategies as st

RECORDED = json.loads((Path(__file__).parents[1] / "support/recorded/rollout.json").read_text())
VOID = {"meta", "br", "path"}
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "p", "span", "h1", "h2", "h3"),
    *("strong", "dl", "div", "dt", "dd", "nav", "ul", "ol", "li", "a", "main", "section", "figure"),
    *("figcaption", "svg", "g", "path", "details", "summary", "table", "caption", "thead", "tbody"),
    *("tr", "th", "td", "footer"),
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "title", "style"),
    *("scope", "d", "role", "viewbox", "preserveaspectratio", "aria-hidden", "aria-label"),
    *("aria-labelledby", "data-label"),
}


class Page(html.parser.HTMLParser):
    """A page as a browser reads it; raises where its tags are not in pairs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.titles: Counter[str] = Counter()  # by the element that has one
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag == "title":
            self.titles[self._open[-1]] += 1
        if tag not in VOID or tag == "path":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.texts.append(data)

    def of(self, tag: str, name: str = "") -> list[dict[str, str]]:
        return [
            attrs
            for name_of_tag, attrs in self.elements
            if name_of_tag == tag and (not name or name in attrs.get("class", "").split())
        ]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def report_of(
    events: list[Event], count: int = 6, **changes: t.Any
) -> tuple[report_model.ReportModel, list[Event]]:
    return report_model.from_timeline("shop", rollout(count, **changes), events), events


def written(events: list[Event], count: int = 6, **changes: t.Any) -> str:
    report, events = report_of(events, count, **changes)
    return render.html(report, events, START)


# Its structure
# --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[6, 70, 400, 1000])
def sized(request: pytest.FixtureRequest) -> tuple[int, str]:
    return request.param, written(timeline(request.param), request.param)


def test_every_instance_has_a_lane_and_is_in_the_table(sized: tuple[int, str]) -> None:
    count, text = sized
    page = Page(text)
    lanes = page.of("g")
    assert len(lanes) == len({lane["id"] for lane in lanes}) == page.titles["g"] == 2 * count + 1
    targets = Counter(link["href"] for link in page.of("a"))
    assert all(targets[f"#{lane['id']}"] for lane in lanes)


def test_a_report_is_small(sized: tuple[int, str]) -> None:
    count, text = sized
    assert len(text.encode()) < (100_000 if count == 6 else 1_000_000)


def test_times_of_the_axis_stay_on_one_line(sized: tuple[int, str]) -> None:
    (rule,) = re.findall(r"\.axis span \{([^}]*)\}", sized[1])[:1]
    assert "white-space: nowrap" in rule


def test_it_needs_nothing_else(sized: tuple[int, str]) -> None:
    page = Page(sized[1])
    there = [attrs["id"] for _tag, attrs in page.elements if "id" in attrs]
    assert len(there) == len(set(there))
    assert {link["href"] for link in page.of("a")} <= {f"#{name}" for name in there}
    assert {tag for tag, _attrs in page.elements} <= TAGS
    assert {name for _tag, attrs in page.elements for name in attrs} <= ATTRIBUTES
    style = sized[1].partition("<style>")[2].partition("</style>")[0]
    assert not re.search(r"url\(|@import|//|expression", style)
    (policy,) = [m for m in page.of("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_every_picture_is_named_and_has_its_numbers_as_text(sized: tuple[int, str]) -> None:
    page = Page(sized[1])
    pictures = [svg for svg in page.of("svg") if "aria-hidden" not in svg]
    assert pictures and all(svg["role"] == "img" and svg["aria-label"] for svg in pictures)
    assert len(page.of("figure")) == 5 and len(page.of("details")) == 7
    drawn = [p for look in ("line", "area", "dots", "rule") for p in page.of("path", look)]
    hidden = [p for p in drawn if p["d"] in ("M0 1H28V13H0Z", "M2 7H26", "M14 7h0")]  # legends
    assert page.titles["path"] == len(drawn) - len(hidden)


def test_every_mark_says_what_it_is_and_leads_to_why(sized: tuple[int, str]) -> None:
    page = Page(sized[1])
    marks = [link for link in page.of("a") if link["href"].startswith("#m")]
    assert marks
    strip = [link for link in marks if "title" in link]
    assert strip and all(link["title"] for link in strip)
    assert "bob@desk" in page.text and "looks good" in page.text and "exit code 1" in page.text


def test_times_and_paths_stay_within_the_picture(sized: tuple[int, str]) -> None:
    for path in Page(sized[1]).of("path", "line"):
        numbers = [float(n) for n in re.findall(r"-?[0-9.]+", path["d"])]
        assert all(0 <= number <= 1000 for number in numbers)


def luminance(colour: str) -> float:
    """As https://www.w3.org/TR/WCAG21/#dfn-relative-luminance defines it."""
    digits = colour if len(colour) == 6 else "".join(2 * digit for digit in colour)
    parts = [int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
def test_colours_can_be_told_from_the_page(mode: int) -> None:
    """WCAG AA: 4.5 for text, 3 for pictures."""
    style = (Path(render.__file__).parent / "templates/style.css").read_text()
    colours = dict(re.findall(r"--(\w+): #(\w+)", style.split("prefers-color-scheme")[mode]))
    texts = ("text", "muted", "new", "good", "bad", "warn", "busy", "person")
    for page in ("page", "soft"):
        assert not [name for name in texts if contrast(colours[name], colours[page]) < 4.5]
        assert not [n for n in ("old", "baseline") if contrast(colours[n], colours[page]) < 3]


# What it says
# --------------------------------------------------------------------------------------------------


def test_the_outcome_and_its_cause_come_first_and_once() -> None:
    report = report_model.from_timeline(
        RECORDED["service"], RECORDED["rollout"], RECORDED["events"]
    )
    reason = RECORDED["rollout"]["reason"]
    page = Page(render.html(report, RECORDED["events"], START))
    heading = "Rolled back: shop 1 → 2 ✕ Rolled back shop 1 → 2 Why: "
    assert page.text.startswith(f"{heading}{reason} Next: Fix the revision. [PR-422]")
    message = reason.partition(": ")[2]
    assert page.text.count(message) == 3  # in the heading, the list and the table of verdicts
    facts = dict(render.facts(report))
    assert facts["Failed requests"] == "13 of 3,396 counted (0.38 %)"
    assert facts["Decided by"] == "Analysis failed: step 2 analysis"
    assert facts["Serves now"] == "1"
    assert facts["Fewest in rotation"] == "6, where 6 are needed"


def test_thousands_are_told_apart() -> None:
    report, _events = report_of(timeline(1000))
    assert dict(render.facts(report))["Fewest in rotation"] == "1,000, where 1,000 are needed"
    chart = graphs.rotation(report)
    assert chart and "At the end 1,000 new and 0 old" in chart.summary
    assert [tick.text for tick in chart.ticks] == ["0", "750", "1,500"]


def test_who_decided_is_named() -> None:
    report, _events = report_of(timeline(6))
    assert dict(render.facts(report))["Decided by"] == "Command promote, by bob@desk"
    refused = [e | {"refused": "too early"} if e["kind"] == "word" else e for e in timeline(6)]
    assert "the rollout itself" in dict(render.facts(report_of(refused)[0]))["Decided by"]


def test_a_fleet_below_the_floor_is_told() -> None:
    events = timeline(6)
    gone = {"at": START + 1.0, "kind": "rotation", "instance": "shop-3", "serving": False}
    assert report_of(events)[0].fewest == (6, 6)
    assert report_of(sorted([*events, gone], key=lambda event: event["at"]))[0].fewest == (5, 6)


def test_a_rollback_is_not_held_to_the_floor() -> None:
    """It may give up instances that were judged bad at once."""
    events = timeline(6)
    back = {"at": START + 20.5, "kind": "phase", "phase": "rolling_back", "reason": "no"}
    gone = {"at": START + 21.0, "kind": "rotation", "instance": "shop-n1", "serving": False}
    report, _events = report_of(sorted([*events, back, gone], key=lambda event: event["at"]))
    assert (report.fewest, report.fewest_back) == ((6, 6), 5)
    assert "In the rollback there were at least 5." in render.html(report, events, START)


def test_an_instance_that_failed_is_not_in_rotation() -> None:
    """Whatever its load balancers still have."""
    failed = {"kind": "state", "state": "failed", "generation": 6, "instance": "shop-3"}
    events = [*timeline(6), {"at": START + 1.0, **failed}]
    report, _events = report_of(sorted(events, key=lambda event: event["at"]))
    (lane,) = [lane for lane in report.lanes if lane.name == "shop-3"]
    assert [span.look for span in lane.spans][:2] == ["serving", "failed"]
    assert report.fewest == (5, 6)


def test_requests_that_were_not_counted_are_told() -> None:
    events = [{**e, "gap": True} if e["kind"] == "requests" else e for e in timeline(6)]
    report, _events = report_of(events)
    lost = dict(render.facts(report))["Failed requests"]
    assert lost.endswith("; those between two steps were not counted")


def test_timelines_of_earlier_versions_can_be_read() -> None:
    old = [e for e in timeline(6) if e["kind"] not in ("rotation", "requests", "plan")]
    old = [{k: v for k, v in e.items() if k not in ("floor", "ceiling")} for e in old]
    report, _events = report_of(old)
    assert report.points[-1].new == 6 and report.fewest is None
    assert [stage.name for stage in report.stages] == ["step 1"]
    assert dict(render.facts(report))["Failed requests"] == "not counted"
    assert "Instances in rotation" in written(old)


def test_without_a_timeline_the_record_is_shown() -> None:
    page = Page(written([], outcome="failed", reason="too few hosts"))
    assert "Failed" in page.text and "too few hosts" in page.text


def test_a_rollout_in_progress_says_what_it_waits_for_and_reloads() -> None:
    gates = {"ask": {"state": "waiting", "message": "waits for ada"}, "done": {"state": "passed"}}
    changes = {"outcome": "", "phase": "awaiting_promotion", "name": "step 1", "gates": gates}
    text = written(timeline(6)[:-1], **changes)
    assert "In progress: awaiting promotion at step 1" in text
    assert "ask: waits for ada" in text and 'http-equiv="refresh"' in text
    assert 'http-equiv="refresh"' not in written(timeline(6))


def test_stages_that_were_not_reached_are_in_the_plan() -> None:
    report, _events = report_of(timeline(6))
    assert [(one.name, one.reached) for one in report.stages] == [
        ("step 1", 0.0),
        ("promote", None),
    ]
    suite = ET.fromstring(junit.xml(report))[0]
    assert suite.find("testcase[@name='stage promote']/skipped") is not None


def test_an_instance_deployed_in_place_becomes_a_new_one() -> None:
    both = {"host": "web1", "kind": "state", "instance": "shop-1", "state": "ready"}
    events = [
        {"at": START, "revision": "2.4.2", "generation": 6, **both},
        {"at": START, "kind": "begin", "generation": 7},
        {"at": START + 5, "revision": "2.4.3", "generation": 7, **both},
        {"at": START + 9, "kind": "end", "outcome": "promoted", "reason": ""},
    ]
    report, _events = report_of(events)
    (lane,) = report.lanes
    assert [(span.side, span.since, span.until) for span in lane.spans] == [
        ("old", 0.0, 5.0),
        ("new", 5.0, 9.0),
    ]
    assert [(p.at, p.old, p.new) for p in report.points] == [(0.0, 1, 0), (5.0, 0, 1)]


@pytest.mark.parametrize(
    ("outcome", "failures", "skipped"),
    [("promoted", 0, 1), ("aborted", 1, 1), ("rolled_back", 1, 1), ("", 0, 2)],
)
def test_junit_fails_where_the_rollout_did(outcome: str, failures: int, skipped: int) -> None:
    report, _events = report_of(timeline(6), outcome=outcome, reason="no")
    suite = ET.fromstring(junit.xml(report))[0]
    assert (suite.get("failures"), suite.get("skipped")) == (str(failures), str(skipped))
    assert suite.get("tests") == str(len(suite.findall("testcase"))) == "4"


def test_junit_has_the_analysis_that_failed() -> None:
    report = report_model.from_timeline(
        RECORDED["service"], RECORDED["rollout"], RECORDED["events"]
    )
    suite = ET.fromstring(junit.xml(report))[0]
    failure = suite.find("testcase[@name='analysis step 2 analysis']/failure")
    assert failure is not None and "e-value" in failure.attrib["message"]
    assert suite.get("failures") == "2"


def test_the_index_links_to_the_reports_there_are() -> None:
    text = render.index("shop", [rollout(6), rollout(6, id="b")], {"b": "b.html"}, START)
    page = Page(text)
    assert [link["href"] for link in page.of("a")] == ["b.html"]
    assert page.text.count("Promoted") == 2 and page.text.count("ada@deploy1") == 2


# Whatever there is
# --------------------------------------------------------------------------------------------------

HOSTILE = st.one_of(
    st.sampled_from(
        [
            "</title></style><script>alert(1)</script>",
            '"><img src=x onerror=alert(1)>',
            "' onload='x",
            "]]>&lt;{{ 7 * 7 }}{% raw %}",
            "|a|b|\n# x\n@all #1 `x` [a](javascript:x)",
            "\x1b[2J\x00\u202e\ud800\ufffe",
            "\n/close",
        ]
    ),
    st.text(),
)


def poisoned(text: str) -> list[Event]:
    """A timeline that has a text wherever there is one."""

    def poison(value: t.Any, key: str = "") -> t.Any:
        if isinstance(value, dict):
            return {name: poison(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [poison(one) for one in value]
        kept = ("kind", "state", "phase", "verdict")
        return text if isinstance(value, str) and key not in kept else value

    return [poison(event) for event in timeline(2, 1)]


@given(HOSTILE)
def test_no_text_becomes_markup(text: str) -> None:
    names = {"revision": text, "id": text, "reason": text, "by": text, "cause": text, "name": text}
    previous = {"revision": text, "generation": 6}
    report, events = report_of(
        poisoned(text), 2, **names, previous=previous, outcome=text or "failed"
    )
    page = Page(render.html(report, events, START))
    assert {tag for tag, _attrs in page.elements} <= TAGS
    assert {name for _tag, attrs in page.elements for name in attrs} <= ATTRIBUTES
    assert all(link["href"].startswith("#") for link in page.of("a"))
    render.index(text, [dict(report.rollout)], {}, START).encode(errors="replace")

    suite = ET.fromstring(junit.xml(report).encode())
    assert {one.tag for one in suite.iter()} <= {
        *("testsuites", "testsuite", "testcase", "failure", "skipped")
    }
    lines = render.markdown(report).splitlines()
    cells = [len(re.findall(r"(?<!\\)\|", line)) for line in lines if line.startswith("|")]
    assert set(cells) <= {3, 5, 8}
    assert all(line[:1] in "#*|" for line in lines)
    assert not re.search(r"<|(?<!\\)[`\[]|@\w", "\n".join(lines))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
FIELDS = sorted({name for event in timeline(2) for name in event} - {"at", "kind"})
EVENTS = st.fixed_dictionaries(
    {
        "at": st.floats(0, 1e10),
        "kind": st.sampled_from(sorted({event["kind"] for event in timeline(2)})),
    },
    optional=dict.fromkeys(FIELDS, JSON),
)


@given(st.lists(EVENTS, max_size=8), st.dictionaries(st.sampled_from(FIELDS), JSON))
@pytest.mark.slow
def test_damaged_timelines_can_be_shown(events: list[Event], odd: dict[str, t.Any]) -> None:
    report = report_model.from_timeline("shop", rollout(2) | odd, events)
    Page(render.html(report, events, START))
    ET.fromstring(junit.xml(report))
    render.markdown(report)


@given(st.floats(0.001, 1e8))
def test_an_axis_has_a_few_ticks_of_its_length(length: float) -> None:
    ticks = charts.time_ticks(length)
    assert 1 <= len(ticks) <= charts.TICKS + 1
    assert all(0 <= tick.percent <= 100 for tick in ticks)


@given(st.floats(0, 1e9))
def test_an_axis_ends_above_its_values(most: float) -> None:
    assert most <= charts.top_of(most) <= max(1.0, 2.1 * most)


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 50)), min_size=1))
def test_thinning_keeps_the_extremes(points: list[tuple[float, int]]) -> None:
    points.sort(key=lambda point: point[0])
    scale = charts.Scale(100.0, 50.0)
    path = scale.steps([(at, float(value)) for at, value in points])
    drawn = {float(y) for y in re.findall(r"(?:V|M\S+ )([0-9.]+)", path)}
    extremes = {min(v for _at, v in points), max(v for _at, v in points), points[-1][1]}
    assert {float(scale.y(value)) for value in extremes} <= drawn


def test_hosts_are_in_their_natural_order() -> None:
    names = ["web10", "web²", "web2", "db1", ""]
    assert sorted(names, key=natural) == ["", "db1", "web²", "web2", "web10"]


# Files
# --------------------------------------------------------------------------------------------------


def test_a_file_is_replaced_in_one_step_and_only_if_it_changes(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "a.html", tmp_path / "b"
    elsewhere.write_text("not ours")
    path.symlink_to(elsewhere)
    assert replace_file(str(path), "one")
    assert not path.is_symlink() and elsewhere.read_text() == "not ours"
    assert not replace_file(str(path), "one") and replace_file(str(path), "two")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.html", "b"]
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        replace_file(str(tmp_path / "folder"), "x")
    assert len(list(tmp_path.iterdir())) == 3, "a draft is left"


@pytest.mark.parametrize("path", ["/srv/report.pdf", "/srv/reports", "report.html"])
def test_a_path_whose_form_is_not_clear_is_refused(path: str) -> None:
    with pytest.raises(InputError) as refused:
        values.report(path, "rollout_report")
    assert refused.value.id == "PR-123" and path in str(refused.value)


def test_the_page_shows_a_path_that_is_accepted() -> None:
    given = yaml.safe_load(SNIPPETS["docs/how-to/report.md"]["report.yml"])
    assert values.report(given["rollout_report"], "rollout_report") == "/srv/reports/shop.html"


def shop(tmp_path: Path, to: str) -> Service:
    path = tmp_path / "store"
    store = {"driver": "file", "path": str(path)}
    service = Service(World(fewest=0, most=9), replicas=3, report=to, store=store)
    service.play(revision="1")
    return service


def test_a_rollout_leaves_its_reports(tmp_path: Path) -> None:
    service = shop(tmp_path, f"{tmp_path}/")
    service.play(revision="2")
    # two rollouts of one process within a second have the same id
    ids = list(dict.fromkeys(one["id"] for one in reversed(service.journal.history)))
    made = {path.name for path in (tmp_path / "shop").iterdir()}
    assert made == {"index.html"} | {f"{id}.{form}" for id in ids for form in reports.FORMS}
    page = Page((tmp_path / "shop" / f"{ids[0]}.html").read_text())
    assert "Promoted shop 1 → 2" in page.text and len(page.of("g")) == 6
    links = [link["href"] for link in Page((tmp_path / "shop/index.html").read_text()).of("a")]
    assert links == [f"{id}.html" for id in ids]


def test_a_rollout_whose_id_is_no_file_name_has_no_report() -> None:
    """A journal may be anybody's: its ids must not lead out of the directory."""
    service = Service(World(fewest=0, most=9), replicas=3)
    service.play(revision="1")
    record = service.journal
    record.history = [record.history[0] | {"id": id} for id in ("../x", "a/b", ".x", "", "ok\n")]
    assert list(Reports(record, service.store).rollouts) == [record.rollout and record.rollout.id]


def test_the_history_says_what_a_rollback_may_lead_to() -> None:
    service = Service(World(fewest=0, most=9), replicas=3)
    assert history.lines(service.journal, history.entries(service.journal)) == [
        "shop: no rollout so far"
    ]
    for revision in ("1", "2", "3"):
        service.play(revision=revision)
    result = service.step(report)
    assert [(one["previous"], one["revision"]) for one in result["history"]] == [
        ("2", "3"),
        ("1", "2"),
        (None, "1"),
    ]
    assert all(one["by"] == service.identity.holder for one in result["history"])
    assert result["lines"][-1] == "rollback.yml returns to 2, 1 (rollout_to)"
    assert result["files"] == [] and not result["changed"]
    service.step(rollback, {"to": "1"})
    assert service.journal.stable and service.journal.stable.revision == "1"
    with pytest.raises(InputError) as refused:
        service.step(report, {"id": "shop-x"})
    assert refused.value.id == "PR-130" and "shop-x" in str(refused.value)


def test_a_report_that_cannot_be_written_is_told_once_and_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a step, however often it is tried, and by the path that the user wrote."""
    monkeypatch.setattr(beside, "FIRST", 0.0)
    monkeypatch.setattr(beside, "EVERY", 0.001)
    monkeypatch.setattr(beside, "PART", 0)
    tries: list[str] = []
    monkeypatch.setattr(reports, "replace_file", _counted(reports.replace_file, tries))
    path = f"{tmp_path}/missing/shop.html"
    service = shop(tmp_path, path)
    service.said.clear()
    tries.clear()
    service.play(revision="2")
    assert service.journal.rollout and service.journal.rollout.outcome == "promoted"
    lines = [line for line in service.said if "PR-630" in line]
    assert len(lines) == 4 < len(tries), "once a step"
    assert all(f" {path}: No such file or directory" in line for line in lines)


def _counted(write: Callable[[str, str], bool], tries: list[str]) -> Callable[[str, str], bool]:
    def counted(path: str, text: str) -> bool:
        tries.append(path)
        return write(path, text)

    return counted


def test_trouble_that_reads_differently_each_time_is_told_once_until_the_work_succeeds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(beside, "FIRST", 0.0)
    monkeypatch.setattr(beside, "EVERY", 0.001)
    monkeypatch.setattr(beside, "PART", 0)
    lines: list[str] = []
    works = Flaky("shop", shop(tmp_path, "").store, lines.append)
    until(lambda: works.tries > 5, "several failures")
    works.well = True
    until(lambda: works.successes > 0, "a success")
    works.well = False
    until(lambda: len(lines) == 2, "another failure")
    works.close()
    assert [line.partition(" ")[0] for line in lines] == ["shop:"] * 2 and "request 1" in lines[0]


class Flaky(beside.Beside):
    """Work that a server refuses with a number of its own."""

    what, failure = "flaky", "not done: {}"
    tries = successes = 0
    well = False

    def work(self, record: Record) -> None:
        self.tries += 1
        self.successes += self.well
        if not self.well:
            raise MetricsError(f"request {self.tries} refused", "PR-632")


def test_a_report_in_progress_is_refreshed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "FIRST", 0.0)
    monkeypatch.setattr(beside, "EVERY", 0.01)
    monkeypatch.setattr(beside, "PART", 0)
    service = shop(tmp_path, "")
    service.play(revision="2", gates={"confirm_promotion": [{"driver": "approval"}]})
    lines: list[str] = []
    path = tmp_path / "shop.html"
    live = LiveReport("shop", str(path), service.store, lines.append)
    try:
        until(lambda: path.exists() and "In progress" in path.read_text(), "the first report")
        service.say("promote")
        service.play(revision="2", gates={"confirm_promotion": [{"driver": "approval"}]})
        until(lambda: "Promoted" in path.read_text(), "the report of the end")
    finally:
        live.close()
    assert not lines


def test_a_store_that_fails_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "FIRST", 0.0)
    monkeypatch.setattr(beside, "EVERY", 0.01)
    lines: list[str] = []
    service = shop(tmp_path, "")
    store = service.store
    monkeypatch.setattr(type(store), "load", lambda _store: {"rollout": 3})
    live = LiveReport("shop", str(tmp_path / "x.html"), store, lines.append)
    until(lambda: bool(lines), "the trouble")
    live.close()
    assert len(lines) == 1 and "PR-630" in lines[0]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-11-23T19:03:11Z", "2026-11-23T19:03:11Z"),
        ("canary (2.4.1-rc.1+b7), not_ready: 5 %.", "canary (2.4.1-rc.1+b7), not_ready: 5 %."),
        ("a|b [c](https://d) *e* _f_ `g`", "a\\|b \\[c\\](https\\://d) \\*e\\* \\_f\\_ \\`g\\`"),
        ("#12 !34 $5 ~x @ann :smile:", "\\#12 \\!34 \\$5 \\~x @\u200bann \\:smile:"),
        ("<b>&", "&lt;b&gt;&amp;"),
    ],
)
def test_markdown_escapes_only_what_it_needs(text: str, shown: str) -> None:
    assert render.escaped(text) == shown


def test_a_terminal_shows_names_without_what_keeps_them_from_being_mentions() -> None:
    assert report.shown(f"by {render.escaped('ann@ci')}\n") == ["by ann@ci"]
