# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is told of what, and that it holds no rollout up: whole rollouts in memory."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import typing as t
from collections.abc import Iterator
from dataclasses import replace

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.action import begin
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    Interrupted,
    NotifyError,
    RolloutFailed,
    TrafficError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import notify, remembered
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.notify import SAMPLE
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.background import (
    announcer,
    rejection,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.step.context import (
    StepContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.message_template import (
    LONGEST,
    MessageTemplate,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.notifier import (
    EVENTS,
    Notice,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.notifiers import webhook
from ansible_collections.progressive.rollout.plugins.plugin_utils.report.notices import Notices
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import identity as holder
from ansible_collections.progressive.rollout.tests.support.memory import Here, Service, World
from ansible_collections.progressive.rollout.tests.support.pages import SNIPPETS
from ansible_collections.progressive.rollout.tests.support.waiting import until
from ansible_collections.progressive.rollout.tests.support.web import Server
from hypothesis import given
from hypothesis import strategies as st

ALL = list(EVENTS)
APPROVED = {"confirm_promotion": [{"driver": "approval"}]}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcer, "PAUSE", 0.001)


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.close()


def receiver(server: Server, **changes: t.Any) -> dict[str, t.Any]:
    return {"driver": "webhook", "on": ALL, "url": f"{server.url}/t0ken-of-the-hook", **changes}


def shop(*receivers: dict[str, t.Any]) -> Service:
    given = {"replicas": 2, "notify": list(receivers)}
    return Service(World(fewest=0, most=9), **given)


def told(server: Server) -> list[tuple[str, str]]:
    """The event and the revision of each notice that a webhook got."""
    data = [json.loads(one.body)["data"]["customData"] for one in server.requests]
    return [(one["event"], one["revision"]) for one in data]


def notified(service: Service) -> list[tuple[str, str, str | None]]:
    rollout = service.journal.rollout
    assert rollout
    return [
        (one["event"], one["to"], one.get("error"))
        for one in service.timeline(rollout.id)
        if one["kind"] == "notified"
    ]


def with_token(service: Service) -> list[str]:
    """The texts of a service's journal that have the secret of its webhook."""
    texts = service.world.journals["shop"].texts
    assert any(name.startswith("timeline/") for name in texts), "there is a timeline"
    return [name for name, text in texts.items() if b"t0ken" in text]


# -- what is told ----------------------------------------------------------------------------------


def test_a_rollout_is_told_from_its_beginning_to_its_end(server: Server) -> None:
    service = shop(receiver(server))
    service.play(revision="1")
    service.play(revision="2", gates=APPROVED)
    service.say("promote")
    service.play(revision="2", gates=APPROVED)
    assert told(server) == [
        ("begun", "1"),
        ("promoted", "1"),
        ("begun", "2"),
        ("waiting", "2"),
        ("promoted", "2"),
    ]
    ids = [json.loads(one.body)["id"] for one in server.requests]
    assert len(set(ids)) == len(ids)
    assert ("waiting", "webhook 1", None) in notified(service)


def test_what_is_refused_before_it_begins_is_told(server: Server) -> None:
    service = shop(receiver(server))
    service.play(revision="1")
    service.play(revision="2", gates=APPROVED)
    timelines = len(service.world.journals["shop"].texts)
    with pytest.raises(RolloutFailed, match="in progress") as failed:
        service.play(revision="3", strategy="canary", steps=[{"set_weight": 50}])
    assert told(server)[-1] == ("rejected", "3")
    data = json.loads(server.requests[-1].body)["data"]
    facts = data["customData"]
    assert facts["reason"] == f"{failed.value} [{failed.value.id}]"
    assert facts["text"] == f"shop 3: the rollout was rejected before it began: {facts['reason']}"
    assert (facts["previous"], facts["strategy"], facts["replicas"]) == ("1", "canary", 2)
    assert data["subject"]["id"] and data["context"]["chainId"]
    assert len(service.world.journals["shop"].texts) == timelines, "nothing of it is recorded"


def test_rejected_rollouts_have_ids_of_their_own(server: Server) -> None:
    service = shop(receiver(server, on="rejected"))
    service.world.fails = lambda call: TrafficError("no") if call == "observe" else None
    for _ in range(2):
        with pytest.raises(TrafficError):
            service.play(revision="1")
    ids = [json.loads(one.body)["id"] for one in server.requests]
    assert len(set(ids)) == len(ids) == 2


def test_nobody_is_told_of_a_rejected_dry_run(server: Server) -> None:
    service = shop(receiver(server, on="rejected"))
    service.world.fails = lambda call: TrafficError("no") if call == "observe" else None
    with pytest.raises(TrafficError):
        service.step(begin, check_mode=True, revision="1")
    assert told(server) == []


def test_nobody_is_told_that_another_worker_does_the_step(server: Server) -> None:
    service = shop(receiver(server, on="rejected"))
    service.world.fails = lambda call: Interrupted("stopped") if call == "observe" else None
    with pytest.raises(Interrupted):
        service.play(revision="1")
    assert told(server) == []


def test_wrong_variables_are_told_as_far_as_they_can_be_read(server: Server) -> None:
    given = {"service": "shop", "revision": "2", "notify": [receiver(server)], "replicas": "many"}
    lines: list[str] = []
    error = InputError("rollout_replicas: 'many' is not a number", "PR-103")
    rejection.of_arguments(given, t.cast(t.Any, Here()), "ann on desk", error, lines.append)
    assert told(server) == [("rejected", "2")] and lines == []
    for wrong in ({"notify": "nobody"}, {"service": ["shop"]}, {"revision": None}):
        rejection.of_arguments({**given, **wrong}, t.cast(t.Any, Here()), "", error, lines.append)
    assert len(told(server)) == 1


def test_a_receiver_that_cannot_be_told_of_a_rejection_is_named(server: Server) -> None:
    service = shop(receiver(server, on="rejected", retries=0, url="http://127.0.0.1:1/x"))
    service.world.fails = lambda call: TrafficError("no") if call == "observe" else None
    with pytest.raises(TrafficError):
        service.play(revision="1")
    (line,) = [line for line in service.said if "PR-631" in line]
    assert "webhook 1 could not be notified (rejected)" in line and "continues" not in line


def test_only_what_is_asked_for_is_told(server: Server) -> None:
    with_template = receiver(server, on="promoted", template="{{ service }}: {{ event }} <b>")
    shop(with_template).play(revision="1")
    assert [one.body for one in server.requests] == [b"shop: promoted <b>"]


@pytest.mark.parametrize("on_failure", ["rollback", "hold"])
def test_a_failure_is_told_with_its_reason(server: Server, on_failure: str) -> None:
    service = shop(receiver(server))
    service.play(revision="1")
    failing = {"confirm_promotion": [{"driver": "command", "command": ["/nowhere"]}]}
    with pytest.raises(RolloutFailed):
        service.play(revision="2", gates=failing, on_failure=on_failure)
    event = {"rollback": "rolled_back", "hold": "held"}[on_failure]
    assert told(server)[2:] == [("begun", "2"), (event, "2")]
    data = json.loads(server.requests[-1].body)["data"]["customData"]
    assert "confirm_promotion" in data["reason"] and data["previous"] == "1"
    assert ("was rolled back to 1 after" in data["text"]) == (event == "rolled_back")


def test_an_abort_is_told_as_one(server: Server) -> None:
    service = shop(receiver(server))
    service.play(revision="1")
    service.play(revision="2", gates=APPROVED)
    service.say("abort")
    with pytest.raises(RolloutFailed):
        service.play(revision="2", gates=APPROVED)
    assert told(server)[2:] == [("begun", "2"), ("waiting", "2"), ("aborted", "2")]


# -- once, whatever happens ------------------------------------------------------------------------


def test_what_was_told_is_not_told_again_by_the_next_run(server: Server) -> None:
    service = shop(receiver(server))
    service.play(revision="1")
    for _run in range(3):  # each waits for a person, and is parked
        service.play(revision="2", gates=APPROVED)
    assert told(server)[2:] == [("begun", "2"), ("waiting", "2")]


def test_what_a_killed_run_did_not_tell_the_next_one_tells(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = shop(receiver(server))
    with monkeypatch.context() as killed:  # as if the process ended before any thread ran
        killed.setattr(announcer._Line, "send", lambda *_args: None)
        service.play(revision="1")
    assert told(server) == []
    service.step(begin, {}, revision="1")  # there is nothing to do, but to tell
    assert told(server) == [("begun", "1"), ("promoted", "1")]
    service.step(begin, {}, revision="1")
    assert len(server.requests) == 2
    first = [json.loads(one.body)["id"] for one in server.requests]
    rollout = service.journal.rollout
    assert rollout and first == [f"{rollout.id}-begun-1", f"{rollout.id}-promoted-1"]


def test_the_last_rollout_is_told_even_where_another_has_begun(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = shop(receiver(server))
    with monkeypatch.context() as away:
        away.setattr(announcer._Line, "send", lambda *_args: None)
        service.play(revision="1")
        service.step(begin, {}, revision="2")
    service.play(revision="2")
    assert [event for event, revision in told(server) if revision == "2"] == ["begun", "promoted"]
    assert [event for event, revision in told(server) if revision == "1"] == ["begun", "promoted"]


def test_a_receiver_that_is_new_is_not_told_of_the_past(server: Server) -> None:
    service = shop()
    service.play(revision="1")
    service.play(revision="2", gates=APPROVED)
    service.say("promote")
    service.play(revision="2", gates=APPROVED, notify=[receiver(server)])
    assert told(server) == [("promoted", "2")]


def test_a_rollout_of_last_week_is_not_told(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = shop(receiver(server))
    with monkeypatch.context() as away:
        away.setattr(announcer._Line, "send", lambda *_args: None)
        service.play(revision="1")
    monkeypatch.setattr(announcer, "RECENT", -1.0)
    service.step(begin, {}, revision="1")
    assert not server.requests


def test_nobody_is_told_in_check_mode(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    service = shop(receiver(server))
    with monkeypatch.context() as away:
        away.setattr(announcer._Line, "send", lambda *_args: None)
        service.play(revision="1")
    service.step(begin, {}, check_mode=True, revision="1")
    assert not server.requests
    service.step(begin, {}, revision="1")
    assert told(server) == [("begun", "1"), ("promoted", "1")]


# -- failures --------------------------------------------------------------------------------------


def test_a_receiver_that_fails_is_asked_again(server: Server) -> None:
    server.replies = [(500, ""), None, (429, ""), (200, "")]
    service = shop(receiver(server, on="promoted"))
    service.play(revision="1")
    assert told(server) == [("promoted", "1")] * 4
    assert len({json.loads(one.body)["id"] for one in server.requests}) == 1
    assert notified(service) == [("promoted", "webhook 1", None)]
    assert not any("PR-631" in line for line in service.said)


@pytest.mark.parametrize(("status", "attempts"), [(500, 3), (404, 1)])
def test_a_failure_is_told_and_holds_nothing_up(server: Server, status: int, attempts: int) -> None:
    server.replies = [(status, "no t0ken-of-the-hook here")]
    service = shop(receiver(server, on="begun", retries=2))
    service.play(revision="1")
    assert service.journal.rollout and service.journal.rollout.outcome == "promoted"
    assert len(server.requests) == attempts
    ((event, to, error),) = notified(service)
    assert (event, to) == ("begun", "webhook 1") and f"answered {status}" in str(error)
    (warning,) = [line for line in service.said if "PR-631" in line]
    assert "webhook 1" in warning
    assert "t0ken" not in f"{error} {service.said}"
    assert with_token(service) == []
    service.step(begin, {}, revision="1")
    assert len(server.requests) == attempts  # what failed for good is not sent again


def test_a_receiver_that_hangs_holds_nothing_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcer, "BETWEEN", 0.01)
    monkeypatch.setattr(announcer, "AT_END", 0.02)
    server.hangs.set()
    service = shop(receiver(server, on="begun"))
    service.play(revision="1")
    assert service.journal.rollout and service.journal.rollout.outcome == "promoted"
    assert notified(service) == []
    assert any("webhook 1" in line and "PR-631" in line for line in service.said)
    assert "shop: waiting for webhook 1 to be notified, at most 0.02 s" in service.said
    server.hangs.clear()
    server.released.set()
    monkeypatch.setattr(announcer, "AT_END", 30.0)
    server.requests.clear()
    service.step(begin, {}, revision="1")
    assert ("begun", "1") in told(server)
    assert notified(service)[0] == ("begun", "webhook 1", None)


def test_nobody_waits_for_a_run_that_waits_for_a_receiver(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is parked, gives its lease back at once, since it reads no more commands, and writes down
    later what was sent.
    """
    monkeypatch.setattr(announcer, "BETWEEN", 3600.0)
    service = shop(receiver(server, on="waiting"))
    service.play(revision="1")
    server.hangs.set()
    parked = threading.Thread(target=lambda: service.play(revision="2", gates=APPROVED))
    parked.start()
    until(lambda: len(server.requests) == 1 and not service.store.lease(), "the lease is free")
    assert parked.is_alive()
    assert service.say("promote")["running"] is False
    server.released.set()
    parked.join()
    assert notified(service) == [("waiting", "webhook 1", None)]
    assert service.store.lease() is None
    service.play(revision="2", gates=APPROVED)
    assert len(server.requests) == 1, "nobody is told twice"


def test_a_run_that_is_killed_while_it_writes_down_late_notices_holds_nobody_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has taken the lease again; the next run tells once more, under the same id."""

    def killed(step: StepContext) -> None:
        step.session.acquire(step.guard.check)
        raise SystemExit

    service = shop(receiver(server, on="promoted"))
    mine = service.identity
    with subprocess.Popen(["sleep", "60"]) as other:
        run = holder.identity(other.pid)
        worker = {"worker_pid": other.pid, "worker_ticks": run.details["ticks"]}
        service.identity = replace(run, details={**run.details, **worker})
        other.kill()
    server.hangs.set()
    with monkeypatch.context() as late:
        late.setattr(announcer, "BETWEEN", 0.01)
        late.setattr(announcer, "AT_END", 0.02)
        late.setattr(StepContext, "_note_late_notices", killed)
        with pytest.raises(SystemExit):
            service.play(revision="1")
    assert service.store.lease() and notified(service) == []
    server.hangs.clear()
    server.released.set()
    server.requests.clear()
    service.identity = mine
    service.step(begin, {}, revision="1")
    assert told(server) == [("promoted", "1")]
    assert notified(service) == [("promoted", "webhook 1", None)]
    assert service.store.lease() is None


def test_one_receiver_does_not_wait_for_another(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Server()
    try:
        other.hangs.set()
        service = shop(receiver(other), receiver(server))
        done = threading.Thread(target=lambda: service.play(revision="1"))
        monkeypatch.setattr(announcer, "AT_END", 0.5)
        monkeypatch.setattr(announcer, "BETWEEN", 0.01)
        done.start()
        until(lambda: ("promoted", "1") in told(server), "the healthy receiver")
        done.join()
    finally:
        other.close()


def test_a_driver_with_a_defect_is_told_without_its_words(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defect(*_args: object) -> None:
        raise ValueError("t0ken-of-the-hook")

    monkeypatch.setattr(webhook.Driver, "send", defect)
    service = shop(receiver(server, on="begun"))
    service.play(revision="1")
    assert notified(service) == [("begun", "webhook 1", "its driver failed: ValueError")]


# -- secrets ---------------------------------------------------------------------------------------


def test_the_journal_has_no_receiver(server: Server) -> None:
    service = shop(receiver(server))
    service.play(revision="1")
    service.play(revision="2", gates=APPROVED)
    kept = remembered.of_rollout(service.journal)
    assert kept and "notify" not in kept
    assert with_token(service) == []
    given = {"service": "shop", "notify": [receiver(server)]}
    assert remembered.restored(kept, given)["notify"] == given["notify"]
    assert "notify" not in remembered.restored(kept, {"service": "shop", "notify": []})


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words", "id"),
    [
        ([{"driver": "slack", "url": "https://x"}], r"notify\[0\]\.on: not given", "PR-102"),
        ([{"on": ["begun"]}], r"notify\[0\]\.driver: not given", "PR-102"),
        ([{"driver": "smoke", "on": ["begun"]}], r"notify\[0\]\.driver: .*smoke", "PR-108"),
        ([{"driver": "slack", "on": ["ended"], "url": "https://x"}], r"on: 'ended'", "PR-119"),
        ([{"driver": "slack", "on": [], "url": "https://x"}], r"on: must not be empty", "PR-125"),
        ([{"driver": "slack", "on": "begun", "uri": "x"}], r"uri: unknown option", "PR-101"),
        ({"driver": "slack"}, r"notify: expected a list", "PR-118"),
        ([{"driver": "slack", "on": "begun", "url": "https://x"}] * 21, r"at most 20", "PR-104"),
    ],
)
def test_wrong_receivers_are_refused(given: t.Any, words: str, id: str) -> None:
    with pytest.raises(InputError, match=words) as refused:
        notify.parse(given, "rollout_notify")
    assert refused.value.id == id


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{ service", "line 1"),
        ("{{ secret }}", "'secret' is undefined"),
        ("{{ service.__class__.__mro__ }}", "unsafe"),
        ("{% for i in range(10**9) %}{% endfor %}", "Range too big"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("x" * (LONGEST + 1), "use at most"),
    ],
)
def test_wrong_templates_are_refused(text: str, words: str) -> None:
    one = {"driver": "slack", "on": "begun", "url": "https://x", "template": text}
    with pytest.raises(InputError, match=words) as refused:
        notify.parse([one], "rollout_notify")
    assert str(refused.value).startswith("rollout_notify[0].template: ")


def test_wrong_options_are_refused_before_anything_is_touched() -> None:
    wrong = {"driver": "webhook", "on": "begun", "url": "https://x", "ca_path": "/nowhere"}
    service = shop(wrong)
    with pytest.raises(InputError, match=r"^rollout_notify\[0\]\.ca_path"):
        service.step(begin, {}, revision="1")
    assert service.journal.rollout is None


# -- templates -------------------------------------------------------------------------------------


def test_what_a_template_makes_is_bounded() -> None:
    endless = "{% for i in range(90000) %}{% for j in range(90000) %}ab{% endfor %}{% endfor %}"
    template = MessageTemplate(endless, "x", SAMPLE.facts)
    assert len(template.render(SAMPLE.facts)) == LONGEST


def test_a_template_that_fails_on_an_event_is_an_error_of_the_receiver() -> None:
    template = MessageTemplate("{{ 1 / replicas }}", "x", SAMPLE.facts)
    with pytest.raises(NotifyError, match="division") as failed:
        template.render(replace(SAMPLE, replicas=0).facts)
    assert not failed.value.again


# -- the timeline ----------------------------------------------------------------------------------

KINDS = st.sampled_from(
    [
        {"kind": "begin", "revision": "2", "rollout": "rollout", "by": "ann", "replicas": 2},
        {"kind": "wait", "what": "waiting at approval 1: for promote", "person": True},
        {"kind": "wait", "what": "paused by ann", "person": True},
        {"kind": "wait", "what": "waiting at pause 1: 3 s left"},
        {"kind": "phase", "phase": "progressing"},
        {"kind": "phase", "phase": "paused"},
        {"kind": "phase", "phase": "held", "reason": "shop-3 fails"},
        {"kind": "resume", "phase": "paused"},
        {"kind": "end", "outcome": "promoted", "reason": ""},
        {"kind": "end", "outcome": "superseded", "reason": ""},
        {"kind": "notified", "notice": "x", "to": "slack 1"},
        {"kind": "trouble", "message": "\u202e"},
        {},
    ]
)


@given(st.lists(KINDS), st.integers(0, 20))
def test_the_same_timeline_makes_the_same_notices(events: list[dict[str, t.Any]], cut: int) -> None:
    """Whichever run reads it, and wherever one run took over from another."""

    def read(*parts: list[dict[str, t.Any]]) -> list[Notice]:
        notices = Notices("shop", "shop-1")
        return [one for part in parts for event in part if (one := notices.take(event))]

    found = read(events)
    assert found == read(events[:cut], events[cut:])
    assert len({one.id for one in found}) == len(found)
    assert all(one.event in EVENTS and one.text.isprintable() for one in found)


def test_a_wait_is_told_once_until_the_rollout_moves_on() -> None:
    notices = Notices("shop", "shop-1")
    wait = {"kind": "wait", "what": "waiting at approval 1: for promote", "person": True}
    found = [notices.take(one) for one in (wait, {"kind": "resume"}, wait)]
    assert [bool(one) for one in found] == [True, False, False]
    assert notices.take({"kind": "phase", "phase": "progressing"}) is None
    assert notices.take(wait)


# -- the guide -------------------------------------------------------------------------------------


@pytest.mark.parametrize("snippet", ["notify.yml", "template.yml"])
def test_the_receivers_of_the_guide_are_right(snippet: str) -> None:
    text = SNIPPETS["docs/how-to/notify.md"][snippet].replace("!unsafe ", "")
    text = re.sub(r"\{\{ vault_\w+ \}\}", "https://example.org/hook", text)
    (given,) = yaml.safe_load(text).values()
    found = notify.parse(given, "rollout_notify")
    assert len(found) == len(given)
    for one in found:
        if one.template:
            assert "shop 2" in one.template.render(SAMPLE.facts)
