# SPDX-License-Identifier: GPL-3.0-or-later
"""The drivers of autoscalers, and the arithmetic of what they are set to."""

from __future__ import annotations

import json
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.autoscalers import (
    _objects,
    command,
    hpa,
    keda,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    AutoscalerError,
    AutoscalerGone,
    InputError,
    LeaseLost,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import autoscaler as config
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine import autoscaling
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Waypoint
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.autoscaler import (
    AutoscalerDriver,
    Managed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import (
    _kubernetes_rivals as rivals,
)
from ansible_collections.progressive.rollout.tests.drivers.autoscaler_contract import (
    AutoscalerContract,
)
from ansible_collections.progressive.rollout.tests.support import kubernetes as api
from ansible_collections.progressive.rollout.tests.support.connect import connect
from ansible_collections.progressive.rollout.tests.support.contexts import Knows
from hypothesis import given
from hypothesis import strategies as st

NOWHERE = {"name": "shop", "namespace": "web", "context": None, "kubeconfig": None}
HPAS = "/apis/autoscaling/v2beta2/namespaces/web/horizontalpodautoscalers"
SCALED = "/apis/keda.sh/v1alpha1/namespaces/web/scaledobjects"
TARGET = {"kind": "Deployment", "name": "shop"}
METRIC = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> api.Server:
    found = api.Server()
    found.objects["/apis/autoscaling"] = {"versions": [{"version": "v1"}, {"version": "v2beta2"}]}
    monkeypatch.setattr(_objects, "Cluster", lambda *_given: found)
    bounds = {"minReplicas": 2, "maxReplicas": 12, "metrics": [METRIC]}
    scaled = {"minReplicaCount": 2, "maxReplicaCount": 12}
    for path, spec in ((HPAS, bounds), (SCALED, scaled)):
        found.create(
            path, {"metadata": {"name": "shop"}, "spec": {"scaleTargetRef": TARGET, **spec}}
        )
    return found


def context(epoch: int = 1) -> DriverContext:
    return DriverContext("shop", t.cast(t.Any, None), known=Knows(epoch=epoch))


class TestHpa(AutoscalerContract):
    @pytest.fixture
    def scaler(self, server: api.Server) -> AutoscalerDriver:
        return hpa.Driver(NOWHERE, context())


class TestKeda(AutoscalerContract):
    @pytest.fixture
    def scaler(self, server: api.Server) -> AutoscalerDriver:
        return keda.Driver(NOWHERE, context())


SCALER = """
import json, sys
path = sys.argv[1]
if len(sys.argv) > 2:
    open(path, "w").write(json.dumps({"min": int(sys.argv[2]), "max": int(sys.argv[3])}))
print(open(path).read())
"""


def commands(path: Path, **given: t.Any) -> command.Driver:
    program = [sys.executable, "-I", "-S", "-c", SCALER, str(path)]
    least = {"get": program, "set": [*program, "{min}", "{max}"], **given}
    # the program has braces of its own
    escaped = SCALER.replace("{", "{{").replace("}", "}}")
    for name in ("get", "set"):
        least[name] = [escaped if word == SCALER else word for word in least[name]]
    options = command.OPTIONS.parse(least, "rollout_autoscaler.")
    transport = connect({"web": {}}, path.with_name("hosts.json"))
    return command.Driver(options, DriverContext("shop", transport, known=Knows(epoch=7)))


class TestCommand(AutoscalerContract):
    @pytest.fixture
    def scaler(self, tmp_path: Path) -> AutoscalerDriver:
        (tmp_path / "bounds").write_text('{"min": 2, "max": 12}')
        return commands(tmp_path / "bounds")


# Commands
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        *("", "4", "[]", '{"min": 4}', '{"min": 5, "max": 4}', '{"min": "4", "max": 5}'),
        *('{"min": true, "max": 5}', '{"min": -1, "max": 5}', '{"min": 1, "max": 1e9}'),
        *('{"min": 1, "max": 5, "desired": "many"}', '{"min": 1, "max": 99999999}'),
        *("[" * 9999, "x" * 99_999),
    ],
)
def test_answers_that_are_no_bounds_are_refused(tmp_path: Path, answer: str) -> None:
    (tmp_path / "bounds").write_text(answer)
    with pytest.raises(
        InputError, match=r"rollout_autoscaler.get: .* has to print JSON"
    ) as refused:
        commands(tmp_path / "bounds").check()
    assert refused.value.id == "PR-261" and len(str(refused.value)) < 2000


def test_an_answer_that_does_not_come_in_time_is_refused(tmp_path: Path) -> None:
    slow = [sys.executable, "-c", "import time; time.sleep(60)"]
    with pytest.raises(InputError, match=r"rollout_autoscaler\.get: .* on the controller"):
        commands(tmp_path / "bounds", get=slow, answer_within=0.2).check()


def test_a_set_is_told_the_epoch_of_the_lease_to_refuse_an_older_run(tmp_path: Path) -> None:
    (tmp_path / "bounds").write_text('{"min": 2, "max": 12}')
    kept = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    words = [sys.executable, "-c", kept, str(tmp_path / "input"), "{min}", "{max}"]
    driver = commands(tmp_path / "bounds", set=words)
    with pytest.raises(AutoscalerError, match="does not show what it was set to"):
        driver.write(driver.read(), {"min": 3, "max": 12})
    assert json.loads((tmp_path / "input").read_text()) == {"service": "shop", "epoch": 7}


def test_a_set_that_changes_nothing_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "bounds").write_text('{"min": 2, "max": 12}')
    driver = commands(tmp_path / "bounds", set=["/bin/true", "{min}", "{max}"])
    with pytest.raises(AutoscalerError, match="does not show what it was set to"):
        driver.write(driver.read(), {"min": 3, "max": 12})


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"driver": "xx"}, "there is no driver 'xx'; known: command, hpa, keda,"),
        ({"driver": "kedda"}, "there is no driver 'kedda'; did you mean keda?"),
        ({"mode": "pause"}, r"rollout_autoscaler\.mode"),
        ({"limit": "never"}, r"rollout_autoscaler\.limit"),
        ({"set": ["/bin/set", "{min}"]}, r"set: has no \{max\}, so it would always set the same"),
        ({"set": ["/bin/set", "{most}"]}, "unknown placeholder"),
        ({"get": []}, "the program, is empty"),
        ({"driver": "keda", "name": "a b", "get": None, "set": None}, "is not the name"),
        ({"driver": "hpa", "get": None, "set": None}, r"rollout_autoscaler\.name: not given"),
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, t.Any], why: str) -> None:
    right = {"driver": "command", "get": ["/bin/get"], "set": ["/bin/set", "{min}", "{max}"]}
    given_ = {name: value for name, value in {**right, **wrong}.items() if value is not None}
    with pytest.raises(InputError, match=why):
        config.parse(given_, "rollout_autoscaler")


def test_an_empty_mapping_is_no_autoscaler() -> None:
    """Roles pass one on where nothing is given."""
    assert config.parse({}, "rollout_autoscaler") is None


def test_one_that_cannot_say_what_it_wants_is_not_followed() -> None:
    with pytest.raises(InputError, match="keda cannot say what it wants while it is held"):
        config.parse({"driver": "keda", "name": "shop", "mode": "follow"}, "rollout_autoscaler")


# Kubernetes
# --------------------------------------------------------------------------------------------------


def test_one_that_is_not_there_is_refused(server: api.Server) -> None:
    for kind in (hpa, keda):
        driver = kind.Driver({**NOWHERE, "name": "other"}, context())
        with pytest.raises(InputError, match=r"rollout_autoscaler\.name: there is no"):
            driver.check()
        with pytest.raises(AutoscalerGone):
            driver.read()


def test_the_newest_api_that_the_server_has_is_used(server: api.Server) -> None:
    driver = hpa.Driver(NOWHERE, context())
    assert driver._path == f"{HPAS}/shop"
    server.objects["/apis/autoscaling"]["versions"].append({"version": "v2"})
    assert "/autoscaling/v2/" in hpa.Driver(NOWHERE, context())._path
    server.objects["/apis/autoscaling"]["versions"] = [{"version": "v1"}]
    with pytest.raises(InputError, match="hpa needs Kubernetes 1"):
        hpa.Driver(NOWHERE, context()).read()


def test_an_older_lease_changes_nothing(server: api.Server) -> None:
    new, old = hpa.Driver(NOWHERE, context(7)), hpa.Driver(NOWHERE, context(6))
    before = new.read()
    new.write(before, new.raised(before, 4))
    new.write(new.read(), before)
    with pytest.raises(LeaseLost, match="epoch 7, ours is 6"):
        old.write(before, old.held(before, 6))
    assert new.read() == before


def test_annotations_of_others_stay(server: api.Server) -> None:
    server.objects[f"{SCALED}/shop"]["metadata"]["annotations"] = {"team": "shop"}
    driver = keda.Driver(NOWHERE, context())
    before = driver.read()
    driver.write(before, driver.held(before, 6))
    notes = server.objects[f"{SCALED}/shop"]["metadata"]["annotations"]
    assert notes == {"team": "shop", keda.PAUSED: "true", "rollout.progressive/epoch": "1"}
    driver.write(driver.read(), before)
    notes = server.objects[f"{SCALED}/shop"]["metadata"]["annotations"]
    assert notes == {"team": "shop", "rollout.progressive/epoch": "1"}


def test_a_behavior_of_the_users_is_kept_but_for_its_policy(server: api.Server) -> None:
    mine = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}
    server.objects[f"{HPAS}/shop"]["spec"]["behavior"] = mine
    held = hpa.Driver(NOWHERE, context()).held(hpa.Driver(NOWHERE, context()).read(), 6)
    assert held["behavior"]["scaleUp"] == {**mine["scaleUp"], "selectPolicy": "Disabled"}
    assert held["min"] == 1, "a minimum binds in spite of the policy"


@pytest.mark.parametrize(
    ("used", "wanted"), [(50, 6), (54, 6), (46, 6), (100, 12), (75, 9), (25, 3), (None, None)]
)
def test_what_it_wants_follows_from_its_metrics(
    server: api.Server, used: int | None, wanted: int | None
) -> None:
    current = {"averageUtilization": used} if used is not None else {}
    metric = {"type": "Resource", "resource": {"name": "cpu", "current": current}}
    server.objects[f"{HPAS}/shop"]["status"] = {"currentReplicas": 6, "currentMetrics": [metric]}
    assert hpa.Driver(NOWHERE, context()).wanted(6, 6) == wanted


@pytest.mark.parametrize(
    ("text", "number"), [("500m", "1/2"), ("2", "2"), ("1.5k", "1500"), ("1Mi", "1048576")]
)
def test_quantities(text: str, number: str) -> None:
    assert str(hpa._quantity(text)) == number
    assert hpa._quantity("many") is None and hpa._quantity(None) is None


# One predicate for what scales a Deployment, over all kinds
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("listed", [(), ("hpa",), ("keda",), ("hpa", "keda")])
def test_what_scales_a_deployment(owned: bool, paused: bool, listed: tuple[str, ...]) -> None:
    server, spec = api.Server(), {"scaleTargetRef": TARGET}
    scaled = "/apis/keda.sh/v1/namespaces/web/scaledobjects"
    server.lists.add(scaled)
    server.groups.append({"name": "keda.sh", "preferredVersion": {"groupVersion": "keda.sh/v1"}})
    if "hpa" in listed:
        owners = [{"kind": "ScaledObject", "name": "shop"}] if owned else []
        metadata = {"name": "it", "ownerReferences": owners}
        server.objects[f"{api.AUTOSCALERS}/it"] = {"metadata": metadata, "spec": spec}
    if "keda" in listed:
        notes = {keda.PAUSED: "true"} if paused else {}
        metadata = {"name": "shop", "annotations": notes}
        server.objects[f"{scaled}/shop"] = {"metadata": metadata, "spec": spec}
    expected = set()
    if "hpa" in listed and not owned:
        expected.add("horizontalpodautoscalers/it")
    if ("keda" in listed and not paused) or ("keda" not in listed and "hpa" in listed and owned):
        expected.add("scaledobjects/shop")
    found, unknown = rivals.autoscalers(t.cast(t.Any, server), "web", "shop")
    assert set(found) == expected and not unknown
    for one in expected:
        for managed in (None, Managed("horizontalpodautoscalers/other", "hold")):
            with pytest.raises(InputError, match="have the rollout hold it"):
                rivals.refuse_autoscalers(t.cast(t.Any, server), "web", "shop", "it", managed)
        if len(expected) == 1:
            mine = Managed(one, "hold")
            assert rivals.refuse_autoscalers(t.cast(t.Any, server), "web", "shop", "it", mine) == []
            with pytest.raises(InputError, match="raise would undo each step"):
                rivals.refuse_autoscalers(
                    t.cast(t.Any, server), "web", "shop", "it", Managed(one, "raise")
                )


# Arithmetic
# --------------------------------------------------------------------------------------------------

numbers = st.integers(0, 200)


@given(new=numbers, old=numbers, least=numbers, most=st.integers(1, 200))
def test_the_minimum_is_what_the_strategy_allots_unless_the_maximum_binds(
    new: int, old: int, least: int, most: int
) -> None:
    found = autoscaling.minimum(Waypoint(2, new, old, new), min(least, most), most)
    assert found <= most
    assert found >= new + old or found == most


@given(load=st.integers(1, 500), least=numbers, most=st.integers(1, 200), new=numbers)
def test_an_autoscaler_at_its_target_feeds_on_nothing(
    load: int, least: int, most: int, new: int
) -> None:
    """50 times: what it asks for becomes its own minimum, and its number stays, up to the maximum."""
    least = min(least, most)
    waypoint, seen = Waypoint(2, new, 0, new), set()
    for _time in range(50):
        least = autoscaling.minimum(waypoint, least, most)
        seen.add(min(max(load, least), most))
    assert len(seen) == 1 and max(seen) <= most


states = st.fixed_dictionaries({"min": numbers, "max": numbers, "off": st.booleans()})


@given(original=states, ours=states, theirs=states)
def test_put_back_is_exact_and_keeps_what_others_changed(
    original: dict[str, t.Any], ours: dict[str, t.Any], theirs: dict[str, t.Any]
) -> None:
    for state in (original, ours):
        state["max"] = max(state["min"], state["max"])
    assert autoscaling.put_back(ours, original, (original, ours)) == original
    assert autoscaling.put_back(original, original, (original, ours)) == original
    foreign = autoscaling.foreign(theirs, original, (original, ours))
    after = autoscaling.put_back(theirs, original, (original, ours))
    if theirs["min"] <= theirs["max"]:
        assert after["min"] <= after["max"]
        assert all(after[name] == theirs[name] for name in foreign)
    assert after["off"] in (original["off"], theirs["off"])
    assert json.loads(json.dumps(after)) == after
