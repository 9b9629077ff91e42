# SPDX-License-Identifier: GPL-3.0-or-later
"""What operators write of canary and blue-green: what it becomes, and what is refused with which
words.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis import judging, spec
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import settings
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.fingerprint import (
    fingerprint,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.gates import DAY
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.strategy import parse
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Percent
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.threshold import (
    AnalysisPhase,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    Gate,
    Groups,
    Plan,
    Step,
)

WEB = {"driver": "web", "url": "http://127.0.0.1:9/go"}
COMPARES = {"driver": "analysis", "baseline": True}


def canary(*steps: t.Any, **others: t.Any) -> Plan:
    return parse({"strategy": "canary", "steps": list(steps), **others})


def steps_of(plan: Plan) -> tuple[Step, ...]:
    assert isinstance(plan.steps, tuple)
    return plan.steps


def pause(key: str, seconds: float) -> Gate:
    return Gate(key, "pause", {"duration": seconds})


def person(
    key: str, timeout: float | None = DAY, on_timeout: str | None = None, **options: str
) -> Gate:
    return Gate(key, "approval", options, timeout=timeout, on_timeout=on_timeout)


# What it becomes
# --------------------------------------------------------------------------------------------------


def test_nothing_given_is_rolling() -> None:
    assert (
        parse({})
        == parse({"strategy": "rolling", "steps": None, "gates": "", "approval": None})
        == Plan(hold=(pause("hold", 30.0),))
    )


def test_argos_list() -> None:
    plan = canary(
        {"pause": "30s"},
        {"set_replicas": "10%"},
        {"set_weight": "20", "name": "a few", "on_failure": "hold"},
        {"pause": {"duration": "10m"}},
        {"pause": {}, "name": "look at the graphs"},
        {"set_weight": 50},
        {"pause": None},
        {"pause": {"timeout": "2h", "on_timeout": "promote"}},
        {"pause": 5, "reversible": False},
    )
    assert plan.opening == (pause("step 1 pause", 30.0),)
    assert steps_of(plan) == (
        Step("step 2", replicas=Percent(Decimal(10))),
        Step(
            "step 3 a few",
            weight=20,
            on_failure="hold",
            gates=(pause("step 4 pause", 600.0), person("step 5 look at the graphs")),
        ),
        Step(
            "step 6",
            weight=50,
            gates=(person("step 7 pause"), person("step 8 pause", 7200.0, "promote")),
        ),
        Step("step 9", gates=(pause("step 9 pause", 5.0),), reversible=False),
    )


def test_instance_weight_waits_for_a_person_unless_a_pause_follows() -> None:
    plan = canary(
        {"instance_weight": 20}, {"instance_weight": 20}, {"pause": "1m"}, {"instance_weight": 100}
    )
    assert steps_of(plan) == (
        Step("step 1", instances=20, gates=(person("step 1 pause"),)),
        Step("step 2", instances=20, gates=(pause("step 3 pause", 60.0),)),
        Step("step 4", instances=100, gates=(person("step 4 pause"),)),
    )


def test_gates_have_their_drivers_options_and_our_bounds() -> None:
    given = {
        **WEB,
        "interval": "2s",
        "timeout": "unlimited",
        "on_timeout": "hold",
        "on_error": "ignore",
    }
    (step,) = steps_of(canary({"set_weight": 20}, {"gate": given}, {"gate": WEB, "name": "hook"}))
    first, second = step.gates
    assert (
        first.key,
        first.driver,
        first.interval,
        first.timeout,
        first.on_timeout,
        first.on_error,
    ) == (
        "step 2 gate",
        "web",
        2.0,
        None,
        "hold",
        "ignore",
    )
    # Nothing waits without end unless it is asked for.
    assert (second.key, second.timeout, second.on_timeout, second.on_error) == (
        "step 3 hook",
        DAY,
        None,
        "fail",
    )
    assert first.options["url"] == WEB["url"] and not {
        "driver",
        "interval",
        "on_timeout",
        "on_error",
    } & set(first.options)


def test_every_wait_for_a_person_is_as_the_approval_says() -> None:
    approval = {"timeout": "unlimited", "on_timeout": "rollback", "file": "/run/approved"}
    plan = canary(
        {"set_weight": 20},
        {"pause": {}},
        {"gate": {"driver": "approval", "timeout": "1h", "file": "/run/other"}},
        approval=approval,
    )
    by_hand = parse({"strategy": "blue_green", "auto_promote": False, "approval": approval})
    assert steps_of(plan)[0].gates == (
        person("step 2 pause", None, "rollback", file="/run/approved"),
        person("step 3 gate", 3600.0, "rollback", file="/run/other"),
    )
    assert by_hand.promotion == (
        person("promotion approval", None, "rollback", file="/run/approved"),
    )


def test_blue_green_is_promoted_by_itself_after_a_delay_or_by_a_person() -> None:
    assert parse({"strategy": "blue_green"}).promotion == ()
    auto = parse(
        {"strategy": "blue_green", "auto_promote": "yes", "promote_delay": "1m", "hold": 0}
    )
    assert (auto.promotion, auto.hold) == ((pause("promotion delay", 60.0),), ())
    by_hand = parse({"strategy": "blue_green", "auto_promote": False, "hold": "1h"})
    assert (by_hand.promotion, by_hand.hold) == (
        (person("promotion approval"),),
        (pause("hold", 3600.0),),
    )


def test_gates_go_by_when_they_are_asked() -> None:
    calls = (
        "confirm_rollout",
        "confirm_traffic_increase",
        "confirm_promotion",
        "post_rollout",
        "rollback",
    )
    plan = parse(
        {"gates": {call: [WEB, {"driver": "command", "command": ["true"]}] for call in calls}}
    )
    for call, gates in zip(
        calls,
        (
            plan.confirm_rollout,
            plan.confirm_traffic_increase,
            plan.confirm_promotion,
            plan.post_rollout,
            plan.rollback_gates,
        ),
        strict=True,
    ):
        assert [gate.key for gate in gates] == [f"{call} 1", f"{call} 2"]
        assert [gate.driver for gate in gates] == ["web", "command"]


def groups(**given: t.Any) -> Groups:
    plan = parse({"strategy": "canary", "steps": given})
    assert isinstance(plan.steps, Groups)
    return plan.steps


def test_singularitys_mapping() -> None:
    assert groups(group_size="2") == Groups(2, 3, (), 1)
    assert groups(cycles=0, acceptance="timed", wait="30s") == Groups(
        1, 0, (pause("wait", 30.0),), 1
    )
    assert groups(acceptance="timed", wait=0, allowed_failures=1) == Groups(1, 3, (), 2)
    assert [gate.key for gate in groups(acceptance="checks", gates=[WEB]).gates] == ["gate 1"]
    assert groups(acceptance="checks") == Groups(1, 3, (), 1)  # none given: nothing to wait for


# What is refused
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("group_size", 0),
        ("group_size", -1),
        ("cycles", -1),
        ("wait", "-1s"),
        ("wait", -1),
        ("allowed_failures", -1),
    ],
)
def test_groups_that_cannot_be(key: str, value: object) -> None:
    with pytest.raises(InputError, match=f"rollout_steps.{key}: {value!r}"):
        groups(acceptance="timed", **{key: value})


@pytest.mark.parametrize(
    "key",
    [
        "deployInstanceCountPerStep",
        "deployStepWaitTimeMs",
        "autoAdvanceDeploySteps",
        "maxTaskRetries",
    ],
)
def test_there_are_no_older_names_that_could_mean_something_else(key: str) -> None:
    with pytest.raises(InputError, match=f"rollout_steps.{key}: unknown option"):
        groups(**{key: 1})


@pytest.mark.parametrize("steps", [[], {}, None, ""])
def test_a_canary_without_steps(steps: object) -> None:
    with pytest.raises(InputError, match=r"rollout_steps: must not be empty"):
        parse({"strategy": "canary", "steps": steps})


REFUSED: list[tuple[list[t.Any], tuple[str, ...]]] = [
    ([20], ("rollout_steps[0]", "int", "mapping")),
    ([{"set_weight": 20}, {}], ("rollout_steps[1]", "none", "exactly one")),
    ([{"set_weight": 20, "pause": {}}], ("rollout_steps[0]", "set_weight and pause")),
    (
        [{"set_wieght": 20}],
        ("rollout_steps[0].set_wieght", "did you mean rollout_steps[0].set_weight?"),
    ),
    ([{"set_weight": 0}], ("rollout_steps[0].set_weight: 0", "must be at least 1")),
    ([{"set_weight": 101}], ("rollout_steps[0].set_weight: 101", "at most 100")),
    ([{"set_weight": 12.5}], ("rollout_steps[0].set_weight: 12.5", "whole number")),
    ([{"set_weight": True}], ("rollout_steps[0].set_weight: True",)),
    (
        [{"set_weight": 20}, {"pause": {}}, {"set_weight": 20}],
        ("step 3", "weight 20 after 20", "higher"),
    ),
    ([{"set_weight": 100}, {"set_replicas": 2}], ("step 2", "after the weight 100")),
    ([{"set_replicas": 0}], ("rollout_steps[0].set_replicas: 0", "must be at least 1")),
    ([{"set_replicas": "0%"}], ("rollout_steps[0].set_replicas: '0%'", "must be at least 1")),
    ([{"set_replicas": "101%"}], ("rollout_steps[0].set_replicas: '101%'",)),
    ([{"instance_weight": 40}, {"instance_weight": 20}], ("step 2", "instance_weight 20 after 40")),
    ([{"instance_weight": 40}, {"set_weight": 50}], ("mixed",)),
    ([{"pause": {}}], ("rollout_steps:", "set_weight: 20")),
    ([{"set_weight": 20}, {"pause": "soon"}], ("rollout_steps[1].pause: 'soon'", "duration")),
    (
        [{"set_weight": 20}, {"pause": {"duration": "1m", "timeout": "1h"}}],
        ("rollout_steps[1].pause", "have no effect with a duration"),
    ),
    (
        [{"set_weight": 20}, {"pause": {"durtion": "1m"}}],
        ("rollout_steps[1].pause.durtion", "pause.duration?"),
    ),
    (
        [{"set_weight": 20}, {"pause": {"on_timeout": "wait"}}],
        ("rollout_steps[1].pause.on_timeout: 'wait'", "promote"),
    ),
    ([{"set_weight": 20}, {"gate": "web"}], ("rollout_steps[1].gate", "str", "mapping")),
    ([{"set_weight": 20}, {"gate": {"url": "x"}}], ("rollout_steps[1].gate.driver", "required")),
    ([{"set_weight": 20}, {"gate": {"driver": "wbe"}}], ("rollout_steps[1].gate.driver", "'wbe'")),
    (
        [{"set_weight": 20}, {"gate": {**WEB, "intervall": 1}}],
        ("rollout_steps[1].gate.intervall", "gate.interval?"),
    ),
    (
        [{"set_weight": 20}, {"gate": {**WEB, "interval": 0}}],
        ("rollout_steps[1].gate.interval: 0",),
    ),
    (
        [{"set_weight": 20}, {"gate": {**WEB, "on_error": "retry"}}],
        ("rollout_steps[1].gate.on_error: 'retry'", "ignore"),
    ),
    ([{"set_weight": 20}, {"gate": {**WEB, "timeout": 0}}], ("rollout_steps[1].gate.timeout: 0",)),
    ([{"set_weight": 20}, {"gate": {"driver": "pause"}}], ("rollout_steps[1].gate", "duration")),
    (
        [{"analysis": {"baseline": True}}, {"set_weight": 20}],
        ("rollout_steps[0].analysis.baseline", "nothing to compare"),
    ),
    (
        [{"set_weight": 20}, {"analysis": {"count": 0}}],
        ("rollout_steps[1].analysis.count", "0", "must be at least 1"),
    ),
    (
        [{"set_weight": 20, "on_failure": "retry"}],
        ("rollout_steps[0].on_failure: 'retry'", "rollback, hold, continue"),
    ),
    ([{"set_weight": 20, "reversible": "maybe"}], ("rollout_steps[0].reversible: 'maybe'",)),
    ([{"set_weight": 20, "name": "a\nb"}], ("rollout_steps[0].name",)),
]


@pytest.mark.parametrize(("steps", "words"), REFUSED)
def test_lists_that_are_refused(steps: list[t.Any], words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        canary(*steps)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"strategy": "canari"}, ("rollout_strategy: 'canari'", "canary")),
        ({"steps": [{"set_weight": 20}]}, ("rollout_steps", "rolling", "rollout_strategy: canary")),
        ({"strategy": "blue_green", "steps": {"group_size": 1}}, ("rollout_steps", "blue_green")),
        ({"strategy": "canary", "steps": "set_weight: 20"}, ("rollout_steps", "str", "list")),
        (
            {"strategy": "canary", "steps": {"acceptance": "yes"}},
            ("rollout_steps.acceptance: 'yes'", "checks"),
        ),
        (
            {"strategy": "canary", "steps": {"wait": "30s"}},
            ("rollout_steps.wait", "only with timed"),
        ),
        (
            {"strategy": "canary", "steps": {"gates": [WEB]}},
            ("rollout_steps.gates", "only with checks"),
        ),
        (
            {"strategy": "canary", "steps": {"group_sise": 1}},
            ("rollout_steps.group_sise", "group_size?"),
        ),
        ({"gates": [WEB]}, ("rollout_gates", "list", "mapping")),
        ({"gates": {"confirm": [WEB]}}, ("rollout_gates.confirm",)),
        ({"gates": {"rollback": WEB}}, ("rollout_gates.rollback", "dict", "list")),
        (
            {"gates": {"rollback": [WEB, {"driver": "pause", "duration": "1m"}]}},
            ("rollout_gates.rollback[1].driver: 'pause'", "web, command"),
        ),
        (
            {"gates": {"confirm_promotion": [COMPARES]}},
            ("rollout_gates.confirm_promotion[0].baseline", "an analysis of rollout_steps"),
        ),
        (
            {"analysis": {"baseline": True}},
            ("rollout_analysis.baseline", "an analysis of rollout_steps"),
        ),
        (
            {"strategy": "canary", "steps": {"acceptance": "checks", "gates": [COMPARES]}},
            ("rollout_steps.gates[0].baseline", "an analysis of rollout_steps"),
        ),
        (
            {"gates": {"rollback": [{"driver": "analysis"}]}},
            ("rollout_gates.rollback[0].driver: 'analysis'", "rollout_analysis"),
        ),
        (
            {
                "strategy": "canary",
                "steps": [{"set_weight": 9}, {"analysis": {"interval": "1h", "count": 48}}],
            },
            ("rollout_steps[1].analysis.timeout", "24 h 00 min", "takes 2 d 0 h", "raise it"),
        ),
        (
            {"gates": {"post_rollout": [{"driver": "analysis", "count": 12, "timeout": "2m"}]}},
            ("rollout_gates.post_rollout[0].timeout", "takes 2 min 00 s", "lower count"),
        ),
        (
            {
                "analysis": {
                    "bake": "5m",
                    "metrics": [
                        {"name": "rate", "success_condition": "result < 1", "dry_run": True}
                    ],
                }
            },
            ("rollout_analysis.bake", "success_condition"),
        ),
        ({"analysis": {"bake": "5m"}}, ("rollout_analysis.bake", "success_condition")),
        ({"gates": {"rollback": [WEB, "x"]}}, ("rollout_gates.rollback[1]", "mapping")),
        ({"approval": {"timeout": "never"}}, ("rollout_approval.timeout: 'never'",)),
        (
            {"approval": {"on_timeout": "continue"}},
            ("rollout_approval.on_timeout: 'continue'", "rollback, hold, promote"),
        ),
        ({"approval": {"timeuot": 1}}, ("rollout_approval.timeuot", "timeout?")),
        ({"auto_promote": "perhaps"}, ("rollout_auto_promote: 'perhaps'",)),
        ({"promote_delay": "later"}, ("rollout_promote_delay: 'later'",)),
        ({"hold": -1}, ("rollout_hold: -1",)),
        (
            {"hold": "10m"},
            ("rollout_hold: has no effect with rollout_strategy rolling", "remove it"),
        ),
        (
            {"strategy": "canary", "steps": [{"set_replicas": 1}], "hold": "5m"},
            ("rollout_hold: the requests switch", "set_weight"),
        ),
        (
            {"strategy": "canary", "steps": [{"set_weight": 100}], "hold": "5m"},
            ("rollout_hold: the requests switch", "below 100"),
        ),
        (
            {"strategy": "canary", "steps": [{"set_weight": 9}], "hold_replicas": "50%"},
            ("rollout_hold_replicas: has no effect",),
        ),
        (
            {"strategy": "blue_green", "hold_replicas": 2},
            ("rollout_hold_replicas: has no effect",),
        ),
        (
            {
                "strategy": "canary",
                "steps": [{"set_weight": 9}],
                "hold": "5m",
                "hold_replicas": 0,
            },
            ("rollout_hold_replicas: must be at least 1",),
        ),
        ({"auto_promote": False}, ("rollout_auto_promote: has no effect", "rolling")),
        ({"promote_delay": "5m"}, ("rollout_promote_delay: has no effect", "rolling")),
        (
            {"strategy": "blue_green", "auto_promote": False, "promote_delay": "5m"},
            ("rollout_promote_delay: has no effect with rollout_auto_promote: false",),
        ),
    ],
)
def test_what_else_is_refused(args: dict[str, t.Any], words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        parse(args)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("strategy", ["rolling", "blue_green"])
def test_what_roles_give_by_default_is_not_given(strategy: str) -> None:
    usual = yaml.safe_load(
        (Path(__file__).parents[2] / "roles/rolling/defaults/main.yml").read_text()
    )
    given = {name: usual[f"rollout_{name}"] for name in ("auto_promote", "promote_delay")}
    given["hold"] = "30s"  # the default of earlier versions
    assert parse({"strategy": strategy, **given}) == parse({"strategy": strategy})


@pytest.mark.parametrize("marked", [{}, {"name": "judged"}, {"on_failure": "hold"}])
def test_a_baseline_is_for_the_step_that_is_judged(marked: dict[str, str]) -> None:
    plan = canary(
        {"set_weight": 20},
        {"pause": "1m"},
        {"analysis": {"baseline": True}, **marked},
        {"set_weight": 50},
    )
    assert plan.baseline and isinstance(plan.steps, tuple)
    assert [step.weight for step in plan.steps if step.baseline] == [20]
    assert not canary({"set_weight": 20}, {"analysis": {}}).baseline


def test_a_bake_is_a_wait_at_the_end_in_which_the_analysis_goes_on() -> None:
    rate = {"name": "rate", "success_condition": "result.new.error_rate < 0.01"}

    def baked(**given: t.Any) -> Plan:
        return parse(
            {
                "analysis": {"metrics": [{"name": "errors"}, rate], "interval": "10s", **given},
                "gates": {"post_rollout": [WEB]},
            }
        )

    plan = baked(bake="5m")
    assert [(gate.key, gate.driver) for gate in plan.post_rollout] == [
        ("bake", "pause"),
        ("post_rollout 1", "web"),
    ]
    assert plan.post_rollout[0].options == {"duration": 300.0}
    assert [(gate.key, gate.driver, gate.options["count"]) for gate in plan.background] == [
        ("analysis", "analysis", 0)
    ]
    # it is measured at least once
    assert baked(bake="3s").post_rollout[0].options == {"duration": 10.0}
    seldom = {**rate, "interval": "10m"}
    assert baked(bake="5m", metrics=[seldom]).post_rollout[0].options == {"duration": 600.0}
    assert len(baked().post_rollout) == 1


# Secrets, and changes
# -------------------------------------------------------------------------------------------------


def test_secrets_are_in_no_message_and_in_no_name() -> None:
    secret = "hunter2-hunter2"
    plan = canary(
        {"set_weight": 20},
        {"gate": {**WEB, "headers": {"Authorization": secret}, "secret": secret}},
    )
    assert secret not in repr(plan) and secret not in fingerprint(plan)
    for gate in (
        {**WEB, "secret": secret, "x": 1},
        [secret],
        secret,
        {"driver": "wbe", "secret": secret},
    ):
        with pytest.raises(InputError) as caught:
            canary({"set_weight": 20}, {"gate": gate})
        assert secret not in str(caught.value)


def test_a_fingerprint_tells_what_was_asked_for_apart() -> None:
    asked: list[dict[str, t.Any]] = [
        {},
        {"strategy": "blue_green"},
        {"strategy": "blue_green", "hold": "1m"},
        {"strategy": "canary", "steps": [{"set_weight": 20}]},
        {"strategy": "canary", "steps": [{"set_weight": 21}]},
        {"strategy": "canary", "steps": [{"set_weight": 20, "reversible": False}]},
        {"strategy": "canary", "steps": [{"set_replicas": 20}]},
        {"strategy": "canary", "steps": [{"set_replicas": "20%"}]},
        {"strategy": "canary", "steps": [{"set_weight": 20}, {"gate": WEB}]},
        {
            "strategy": "canary",
            "steps": [{"set_weight": 20}, {"gate": {**WEB, "url": "http://127.0.0.1:9/no"}}],
        },
        {"strategy": "canary", "steps": {"group_size": 20}},
        {"gates": {"rollback": [WEB]}},
    ]
    assert len({fingerprint(parse(args)) for args in asked}) == len(asked)
    # The same in every run, and however it is written.
    assert fingerprint(canary({"set_weight": "20"}, {"pause": "1m"})) == fingerprint(
        canary({"set_weight": 20}, {"pause": {"duration": 60}})
    )


HAPROXY = {"driver": "haproxy", "hosts": "lb", "socket": "/run/haproxy.sock", "backend": "shop"}
NGINX = {"driver": "nginx", "hosts": "lb"}


@pytest.mark.parametrize(
    ("given", "interval"),
    [
        ({"traffic": HAPROXY}, 10.0),
        ({"traffic": HAPROXY, "strategy": "canary", "steps": [{"set_weight": 9}]}, 10.0),
        ({"traffic": {**NGINX, "access_log": "/var/log/nginx/rollout.log"}}, 10.0),
        ({"traffic": HAPROXY, "analysis": {}}, None),
        ({"traffic": NGINX}, None),  # it counts nothing
        ({}, None),
        ({"traffic": HAPROXY, "strategy": "blue_green"}, None),  # nothing to compare with
        (
            {
                "traffic": HAPROXY,
                "strategy": "canary",
                "steps": [{"set_weight": 9}, {"analysis": {}}],
            },
            10.0,
        ),
        ({"traffic": HAPROXY, "gates": {"post_rollout": [{"driver": "analysis"}]}}, 10.0),
        (
            {
                "traffic": HAPROXY,
                "gates": {"post_rollout": [{"driver": "analysis", "dry_run": True}]},
            },
            10.0,
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_requests_are_compared_where_no_analysis_is_given(
    given: dict[str, t.Any], interval: float | None
) -> None:
    plan = settings.parse({"service": "shop", **given}, drivers=False).plan
    assert [gate.options["interval"] for gate in plan.background if gate.by_default] == (
        [interval] if interval else []
    )
    assert len(plan.background) == (interval is not None)
    logs = [
        metric["interval"]
        for gate in plan.background
        for metric in gate.options["metrics"]
        if metric.get("driver") == "access_log"
    ]
    assert set(logs) == ({20.0} if "access_log" in given.get("traffic", {}) else set())
    assert fingerprint(plan) == fingerprint(replace(plan, background=()))


@pytest.mark.parametrize(
    "given",
    [
        {"steps": [{"set_weight": 9}, {"analysis": {}}]},
        {"steps": [{"set_weight": 9}, {"analysis": {"metrics": [{"name": "errors"}]}}]},
        {"steps": [{"set_weight": 9}], "analysis": {"interval": "5s"}},
    ],
    ids=str,
)
def test_beside_an_analysis_a_revision_that_refuses_all_is_found(given: dict[str, t.Any]) -> None:
    """What was asked for does not compare 4xx; it has nearly all of the alarms that may be."""
    given = {"service": "shop", "strategy": "canary", "traffic": HAPROXY, **given}
    plan = settings.parse(given, drivers=False).plan
    gate = plan.background[-1]
    assert [metric["name"] for metric in gate.options["metrics"]] == ["4xx"]
    assert gate.by_default and gate.on_error == "ignore"
    assert gate.options["alpha"] <= 0.1 * spec.OPTIONS["alpha"].default


@pytest.mark.parametrize(("new", "stable"), [(1, 9), (1, 2), (2, 4), (3, 3)])
@pytest.mark.parametrize("each", [20, 1000], ids="{} requests a look".format)
def test_all_that_is_refused_beside_an_analysis_is_found_within_ten_looks(
    new: int, stable: int, each: int
) -> None:
    given = {"service": "shop", "strategy": "canary", "traffic": HAPROXY}
    steps = [{"set_weight": 20}, {"analysis": {}}]
    plan = settings.parse({**given, "steps": steps}, drivers=False).plan
    metric = spec.parse(plan.background[-1].options, "analysis", ()).metrics[0]
    state: judging.State = {}
    sides = {
        "new": {f"n{number}": {"requests": each, "errors": each} for number in range(new)},
        "stable": {f"s{number}": {"requests": each, "errors": 0} for number in range(stable)},
    }
    found = [judging.judge_result(metric, state, {"spans": [sides]}).phase for _look in range(10)]
    assert AnalysisPhase.FAILED in found


ENVOY = {"driver": "envoy", "listen": "0.0.0.0:80", "path": "/etc/envoy/shop"}


@pytest.mark.parametrize(
    "traffic, expected",
    [
        (HAPROXY, ["errors", "latency", "4xx"]),
        ({**HAPROXY, "access_log": "/var/log/haproxy.log"}, ["errors", "latency", "4xx", "size"]),
        (ENVOY, ["errors"]),
        ({**ENVOY, "access_log": "/var/log/envoy.log"}, ["errors", "latency", "4xx", "size"]),
    ],
)
def test_by_default_what_is_counted_is_compared(
    traffic: dict[str, t.Any], expected: list[str]
) -> None:
    plan = settings.parse({"service": "shop", "traffic": traffic}, drivers=False).plan
    (gate,) = plan.background
    assert [metric["name"] for metric in gate.options["metrics"]] == expected


def test_a_dry_run_of_an_analysis_takes_the_place_of_none_and_fails_nothing() -> None:
    given = {"service": "shop", "traffic": HAPROXY, "analysis": {"dry_run": True, "interval": "5s"}}
    plan = settings.parse(given, drivers=False).plan
    dry, usual = plan.background
    assert (dry.key, usual.key) == ("analysis", "default analysis")
    assert usual.by_default and not usual.options["dry_run"]
    assert (dry.on_error, dry.on_timeout) == ("ignore", "promote")
    assert usual.on_error == "ignore"
