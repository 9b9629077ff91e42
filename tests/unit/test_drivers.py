# SPDX-License-Identifier: GPL-3.0-or-later
"""Every driver, and each example of docs/how-to/write-a-driver.md, is what its base class
promises.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import typing as t
from collections.abc import Mapping
from types import ModuleType

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis import spec as analysis
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import gates, notify
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.release import Passage
from ansible_collections.progressive.rollout.plugins.plugin_utils.health import spec as health
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces import loader
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.autoscaler import (
    AutoscalerDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.check import (
    CheckDriver,
    Probe,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.driver import (
    BaseDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.gate import (
    PASS,
    GateDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.loader import (
    DriverModule,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.metric import (
    MetricDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.notifier import (
    NotifierDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    PlatformDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.store import (
    StoreDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import (
    TrafficDriver,
)
from ansible_collections.progressive.rollout.tests.support.pages import ROOT, SNIPPETS

Kind = type[BaseDriver]
KINDS: tuple[Kind, ...] = (
    PlatformDriver,
    TrafficDriver,
    AutoscalerDriver,
    GateDriver,
    MetricDriver,
    StoreDriver,
    CheckDriver,
    NotifierDriver,
)
EXAMPLES: tuple[tuple[Kind, str], ...] = (
    (PlatformDriver, "local"),
    (TrafficDriver, "upstreams"),
    (GateDriver, "tickets"),
    (CheckDriver, "greeting"),
)
FOLDER = ROOT / "plugins/plugin_utils"
DRIVERS = [
    *(
        (kind, path.stem)
        for kind in KINDS
        for path in sorted((FOLDER / kind.folder).glob("[a-z]*.py"))
    ),
    *((kind, f"acme.shop.{name}") for kind, name in EXAMPLES),
]
PROCESS = {"hosts": "web", "ports": "8100-8199", "command": ["/bin/shop"]}
KUBERNETES = {"workload": "deployment/shop", "image": "shop:{revision}"}
CONTAINER = {**PROCESS, "image": "shop:{revision}", "container_port": 80}
COMMAND = {"command": ["/bin/true"]}
LEAST: Mapping[str, Mapping[str, t.Any]] = {  # that a driver can be made with
    "platforms/docker": CONTAINER,
    "platforms/kubernetes": KUBERNETES,
    "platforms/podman": CONTAINER,
    "platforms/process": PROCESS,
    "platforms/several": {
        "parts": {
            "vms": {"driver": "process", **PROCESS},
            "cloud": {"driver": "kubernetes", **KUBERNETES},
        }
    },
    "platforms/static": {"hosts": "web", "port": 80},
    "platforms/swarm": {"hosts": "web", "image": "shop:{revision}", "port": 80},
    "platforms/systemd": PROCESS,
    "platforms/acme.shop.local": {"command": "/bin/shop", "path": "/run/shop"},
    "traffic/envoy": {"path": "/run/envoy", "listen": "127.0.0.1:80"},
    "traffic/gateway_api": {"route": "httproute/shop", "service": "shop"},
    "traffic/haproxy": {"hosts": "web", "backend": "shop"},
    "traffic/acme.shop.upstreams": {"path": "/run/upstreams"},
    "traffic/kubernetes_service": {"service": "shop"},
    "gates/analysis": {
        "metrics": [
            {"name": "m", "driver": "command", "success_condition": "result < 1", **COMMAND}
        ]
    },
    "gates/command": COMMAND,
    "gates/pause": {"duration": "1m"},
    "gates/release": {"point": "begin"},
    "gates/web": {"url": "http://gate"},
    "gates/acme.shop.tickets": {"folder": "/srv/tickets"},
    "autoscalers/command": {"get": ["/bin/get"], "set": ["/bin/set", "{min}", "{max}"]},
    "autoscalers/hpa": {"name": "shop"},
    "autoscalers/keda": {"name": "shop"},
    "stores/etcd": {"endpoints": "http://etcd:2379"},
    "stores/postgresql": {"servers": "db1"},
    "metrics/access_log": {"file": "/var/log/rollout.log"},
    "metrics/command": COMMAND,
    "metrics/prometheus": {"address": "http://prometheus", "query": "up"},
    "metrics/web": {"url": "http://metrics"},
    "notifiers/command": COMMAND,
    "notifiers/email": {"host": "mail", "sender": "a@example.org", "to": "b@example.org"},
    "notifiers/grafana_annotation": {"url": "http://grafana", "token": "t"},
    "notifiers/mattermost": {"url": "http://mattermost"},
    "notifiers/slack": {"url": "http://slack"},
    "notifiers/teams": {"url": "http://teams"},
    "notifiers/webhook": {"url": "http://hook"},
    "checks/http": {"http": "/healthz"},
    "checks/tcp": {"tcp": True},
}
# What is read of the same mapping before a driver sees its options.
RESERVED: Mapping[str, t.Collection[str]] = {
    "gates": gates.GATE,
    "metrics": {
        *analysis.METRIC,
        *(rule for rules in analysis.OF_JUDGE.values() for rule in rules),
    },
    "checks": health.OPTIONS,
    "notifiers": notify.NOTIFY,
}
WRONG = (
    True,
    -1,
    10**30,
    1.5,
    "",
    "\0",
    "a b\nc",
    "{nothing}",
    [],
    [[]],
    [None],
    {"a": []},
    object(),
)


class Inventory:
    """As much of a transport as a driver may use before it is asked for anything."""

    def hosts(self, pattern: str) -> list[str]:
        return [pattern] if pattern == "web" else []

    def address(self, host: str) -> str:
        return "10.0.0.1"

    def variable(self, host: str, name: str) -> None:
        return None

    def apart(self) -> Inventory:
        return self

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the examples importable, as drivers of another collection."""
    for kind, name in EXAMPLES:
        path = f"ansible_collections.acme.shop.plugins.plugin_utils.{kind.folder}.{name}"
        for count in range(1, path.count(".")):
            monkeypatch.setitem(sys.modules, path.rsplit(".", count)[0], ModuleType("package"))
        module = ModuleType(path)
        exec(SNIPPETS["docs/how-to/write-a-driver.md"][f"{name}.py"], vars(module))
        monkeypatch.setitem(sys.modules, path, module)


def every(test: t.Callable[..., None]) -> t.Callable[..., None]:
    names = [f"{kind.folder}/{name}" for kind, name in DRIVERS]
    return pytest.mark.parametrize(("kind", "name"), DRIVERS, ids=names)(test)


def variable(kind: Kind) -> str:
    """What messages of a driver of this kind call its options."""
    names = {
        "gates": "gate",
        "metrics": "metric",
        "checks": "health",
        "notifiers": "notify",
        "platforms": "rollout_platform",
        "autoscalers": "rollout_autoscaler",
        "stores": "rollout_store",
    }
    return names.get(kind.folder, "rollout_traffic")


def make(kind: Kind, module: DriverModule[t.Any], given: Mapping[str, t.Any]) -> BaseDriver:
    options = module.check(given, variable(kind))
    if issubclass(module.driver, CheckDriver):
        return module.driver(options)
    process = loader.load(PlatformDriver, "process", "rollout_platform")
    context = DriverContext(
        "shop",
        t.cast(t.Any, Inventory()),
        platform=lambda _transport: process.driver(
            process.check(PROCESS, "rollout_platform"),
            DriverContext("shop", t.cast(t.Any, Inventory())),
        ),
        counted=("errors", "latency"),
        release=lambda _point, _step: Passage(True, "it is the first"),
    )
    return t.cast("BaseDriver", module.driver(options, context))


def members(cls: type) -> dict[str, t.Any]:
    """The public members of a class, but for those of every class."""
    return {name: getattr(cls, name) for name in dir(cls) if not name.startswith("_")}


def test_every_kind_of_driver_has_some() -> None:
    assert {kind for kind, _name in DRIVERS} == set(KINDS)


@every
def test_it_is_found_and_can_be_made(kind: Kind, name: str) -> None:
    module, place = loader.load(kind, name, "rollout_x"), f"{kind.folder}/{name}"
    required = {option for option, field in module.options.items() if field.required}
    missing = sorted(required - LEAST.get(place, {}).keys())
    assert not missing, f"LEAST in this file: give {place} a line with {', '.join(missing)}"
    assert not inspect.isabstract(module.driver)
    assert isinstance(make(kind, module, LEAST.get(place, {})), kind)


@every
def test_its_methods_can_be_called_as_those_of_its_base_class(kind: Kind, name: str) -> None:
    driver = loader.load(kind, name, "rollout_x").driver
    for member, declared in members(kind).items():
        mine = getattr(driver, member)
        if not inspect.isfunction(declared):
            assert callable(mine) == callable(declared), member
            continue
        wanted = inspect.signature(declared).parameters.values()
        found = inspect.signature(mine).parameters
        assert [one.name for one in wanted] == list(found)[: len(wanted)], member
        assert all(one.default is not one.empty for one in list(found.values())[len(wanted) :]), (
            member
        )
        assert all(found[one.name].default == one.default for one in wanted), member


@every
def test_it_declares_nothing_that_its_base_class_does_not_know(kind: Kind, name: str) -> None:
    """A misspelt `blocking` or `settle_time` would have no effect, and nobody would be told."""
    driver = loader.load(kind, name, "rollout_x").driver
    assert not members(driver).keys() - members(kind).keys()


@every
def test_its_options_are_well_formed(kind: Kind, name: str) -> None:
    module = loader.load(kind, name, "rollout_x")
    taken = module.options.keys() & {"driver", *RESERVED.get(kind.folder, ())}
    assert not taken or (name == "analysis" and taken == {"interval"})  # of its metrics
    assert not module.options.keys() & module.driver.unsupported.keys()
    for option, field in module.options.items():
        assert option == field.name and field.text.endswith("."), option
        assert not (field.required and field.default is not None), option
        if field.default is not None:
            field.parse(None, option)


@every
def test_options_are_refused_by_their_names(kind: Kind, name: str) -> None:
    module, where = loader.load(kind, name, "rollout_x"), variable(kind)
    least = LEAST.get(f"{kind.folder}/{name}", {})
    with pytest.raises(InputError, match=rf"^{where}\.nonsense: "):
        module.check({**least, "nonsense": 1}, where)
    for option in [option for option, field in module.options.items() if field.required]:
        with pytest.raises(InputError, match=rf"^{where}\.{option}: "):
            module.check({key: value for key, value in least.items() if key != option}, where)
    for option, why in module.driver.unsupported.items():
        with pytest.raises(InputError) as refused:
            module.check({**least, option: "wanted"}, where)
        assert (str(refused.value), refused.value.id) == (f"{where}.{option}: {why}", "PR-310")
        module.check({**least, option: ""}, where)  # as a role gives what is not set


@every
def test_a_wrong_value_is_refused_by_the_name_of_its_option_or_taken(kind: Kind, name: str) -> None:
    module, where = loader.load(kind, name, "rollout_x"), variable(kind)
    least = LEAST.get(f"{kind.folder}/{name}", {})
    for option in module.options:
        for value in WRONG:
            try:
                make(kind, module, {**least, option: value})
            except InputError as exc:
                assert str(exc).startswith((f"{where}.", f"{where}: ")), (option, value, exc)


def test_a_gate_that_prepares_passes_where_there_is_nothing_to_prepare() -> None:
    static = make(
        PlatformDriver,
        loader.load(PlatformDriver, "static", "rollout_platform"),
        LEAST["platforms/static"],
    )
    context = DriverContext(
        "shop",
        t.cast(t.Any, Inventory()),
        platform=lambda _transport: t.cast(PlatformDriver, static),
    )
    module = loader.load(GateDriver, "prepare", "gate")
    gate = module.driver(module.options.parse({}, "gate."), context)
    assert gate.ask({"revision": "1", "generation": 1}, 0.0).verdict == PASS


def test_the_check_of_the_example_is_asked_for_by_its_name() -> None:
    given = yaml.safe_load(SNIPPETS["docs/how-to/write-a-driver.md"]["greeting.yml"])[
        "rollout_health"
    ]
    found = health.parse(given)
    assert found.enabled and found.interval == 1.0 and found.check.http is None
    assert [
        found.check.judge(reply) for reply in (b"220 rea", b"220 ready\r\n", b"421 no\r\n")
    ] == [
        None,
        Probe(True, "greets with b'220 ready\\r'"),
        Probe(False, "greets with b'421 no\\r'"),
    ]
    assert health.table(given).keys() == {*health.OPTIONS, "greeting"}
    for wrong, words in (
        ({"greting": "x"}, "did you mean rollout_health.greeting"),
        ({"http": "/"}, "driver and http"),
    ):
        with pytest.raises(InputError, match=words):
            health.parse({**given, **wrong})


def test_a_driver_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    upstreams = importlib.import_module(
        "ansible_collections.acme.shop.plugins.plugin_utils.traffic.upstreams"
    )
    for change, value in (
        ("Driver", object),
        ("Driver", PlatformDriver),
        ("OPTIONS", {}),
        ("OPTIONS", None),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(upstreams, change, value)
            with pytest.raises(
                InputError,
                match=r"^rollout_traffic\.driver: .* class Driver derived from TrafficDriver",
            ) as refused:
                loader.load(TrafficDriver, "acme.shop.upstreams", "rollout_traffic")
            assert refused.value.id == "PR-108"
    for name in ("nothing", "acme.shop.nothing", "a.b.c.d", "../x", ""):
        with pytest.raises(InputError, match=r"^rollout_traffic\.driver: ") as refused:
            loader.load(TrafficDriver, name, "rollout_traffic")
        assert refused.value.id == "PR-108"


def test_no_driver_is_asked_for_what_its_base_class_does_not_declare() -> None:
    """Lookups by name would hide what a driver needs to have."""
    words = re.compile(r"hasattr\(|getattr\([^)]*(driver|platform|traffic|store|gate|metric|check)")
    paths = [
        path
        for path in sorted(FOLDER.rglob("*.py"))
        if path.parent.name not in ("agents", "inputs", "remote", "state")
    ]
    assert len(paths) > 60
    assert not [str(path) for path in paths if words.search(path.read_text())]
