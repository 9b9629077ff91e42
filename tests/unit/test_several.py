# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts over hosts and a Deployment as parts of one platform, behind the same load balancer.

Hosts and load balancer are in memory, and the driver of Kubernetes has an API server in memory.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.action import plan
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    LeaseLost,
    PlatformError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import remembered
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.settings import parse
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.generations import (
    differences,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Process,
    Rotation,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.shares import (
    Target,
    share,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.options import Options
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.autoscaler import (
    Managed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.check import (
    HealthCheck,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.loader import (
    DriverChoice,
    DriverModule,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    NOWHERE,
    Endpoint,
    InstanceSettings,
    Labels,
    Limits,
    Machine,
    PlatformDriver,
    Report,
    of_part,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import (
    _pods,
    kubernetes,
    several,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms._last_seen import (
    LastSeen,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import ApiError
from ansible_collections.progressive.rollout.tests.support import kubernetes as api
from ansible_collections.progressive.rollout.tests.support.contexts import Knows, leased, tell
from ansible_collections.progressive.rollout.tests.support.memory import Service, World
from ansible_collections.progressive.rollout.tests.support.pages import SNIPPETS
from ansible_collections.progressive.rollout.tests.support.waiting import until
from ansible_collections.progressive.rollout.tests.unit.test_kubernetes import is_ordinary
from ansible_collections.progressive.rollout.tests.unit.test_kubernetes_clusters import (
    Cluster,
)

HOSTS = ("web1", "web2")
WAVES = [{"name": "first", "parts": ["vms"]}, {"name": "second", "parts": ["cloud"]}]


class Vms(PlatformDriver):
    """Instances on hosts that may be silent."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self.world: Both = options["world"]
        self.context, self._seen = context, LastSeen(context)
        self.away = self._seen.away

    def hosts(self) -> Sequence[str]:
        return HOSTS

    def capacity(self, among: Collection[str] | None = None) -> int:
        return self.world.capacity

    def check(self) -> None:
        if self.world.silent:
            raise PlatformError(f"{self.world.silent} does not answer", "PR-216")
        self.machines = dict.fromkeys(HOSTS, Machine(self.world.memory, self.world.memory, 0))

    def limits(self, kept: InstanceSettings | None = None) -> Limits:
        return Limits(memory=1)

    def place(
        self,
        count: int,
        taken: Collection[Labels],
        generation: int,
        among: Collection[str] | None = None,
    ) -> list[tuple[str, Endpoint, int]]:
        hosts = [host for host in HOSTS if host not in self.away]
        if not hosts:
            raise PlatformError("no host answers", "PR-219")
        first = self.world.ports
        self.world.ports += count  # each is used once
        numbers = range(first, first + count)
        return [(hosts[n % len(hosts)], Endpoint("10.0.0.1", n), n) for n in numbers]

    def sync(
        self, start: Sequence[Labels] = (), stop: Sequence[str] = (), forget: Sequence[str] = ()
    ) -> Sequence[Report]:
        assert all(labels.host in HOSTS for labels in start)
        world = self.world
        self._seen.restore(HOSTS)
        for host in HOSTS:
            mine = [labels for labels in start if labels.host == host]
            if host in world.silent:
                self._seen.lose(host, mine, clock.now())
                world.asked()
                continue
            for labels in mine:
                bad = labels.revision in world.bad
                process = Process.STARTING if bad else Process.RUNNING
                world.instances[labels.id] = Report(labels, process, clock.now())
            for name in stop:
                report = world.instances.get(name)
                if report and report.labels.host == host:
                    alive = report.process is Process.RUNNING
                    if alive and report.labels.endpoint in world.servers:
                        world.wrong.append(f"{name} was stopped with an entry")
                    world.instances[name] = replace(report, process=Process.STOPPED)
            for name in forget:
                if name in world.instances and world.instances[name].labels.host == host:
                    del world.instances[name]
            its = [r for r in world.instances.values() if r.labels.host == host]
            self._seen.take(host, its)
        world.check()
        world.shares.append(world.share("2"))
        return self._seen.reports(HOSTS)


@dataclass
class Both(World):
    """Hosts and a cluster behind one load balancer."""

    cloud: Cluster = field(default_factory=lambda: Cluster(2, "198.18.65"))
    silent: Collection[str] = ()  # hosts
    asked: Callable[[], None] = lambda: None  # while they are
    bad: Collection[str] = ()  # revisions that never start on hosts
    factors: Mapping[str, int] = field(default_factory=dict)
    seen: list[tuple[dict[str, int], dict[str, int]]] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)  # of the requests, for revision 2
    low: int = 99
    high: int = 0
    ports: int = 1  # the next one
    memory: int = 0  # instances that a host has memory for; 0: unknown

    def platform(self) -> several.Driver:
        assert self.context
        given = {"workload": "deployment/shop", "image": "local/shop:{revision}"}
        options = kubernetes.OPTIONS.parse(given, "rollout_platform.parts.cloud.")
        parts = {
            "vms": DriverChoice("vms", DriverModule(Vms, Options()), {"world": self}),
            "cloud": DriverChoice(
                "kubernetes", DriverModule(kubernetes.Driver, kubernetes.OPTIONS), options
            ),
        }
        found = {
            name: several.Part(t.cast(t.Any, one), Fraction(self.factors.get(name, 1)))
            for name, one in parts.items()
        }
        made = several.Driver({"parts": found}, leased(self.context))
        made._pods._members["cloud"].driver.__dict__["_cluster"] = self.cloud
        return made

    def vms(self) -> dict[str, int]:
        return dict(Counter(report.labels.revision for report in self.alive()))

    def share(self, revision: str) -> float:
        """The part of the requests that the load balancer sends to a revision."""
        weights: Counter[bool] = Counter()
        mine = {r.labels.endpoint for r in self.alive() if r.labels.revision == revision} | {
            Endpoint(str(pod["status"]["podIP"]), 8080)
            for pod in self.cloud.living()
            if pod["spec"]["containers"][0]["image"].endswith(f":{revision}")
        }
        for endpoint, server in self.servers.items():
            if server.rotation is Rotation.IN:
                weights[endpoint in mine] += server.weight
        return weights[True] / max(1, weights.total())

    def check(self) -> None:
        pods = {pod["status"].get("podIP") for pod in self.cloud.living()}
        alive = {report.labels.endpoint.address for report in self.alive()}
        serving = sum(
            server.rotation is Rotation.IN and endpoint.address in pods | alive
            for endpoint, server in self.servers.items()
        )
        self.low = min(self.low, serving)
        self.high = max(self.high, len(self.alive()) + len(self.cloud.living()))
        self.seen.append((self.vms(), self.cloud.counts()))


class Shop(Service):
    """The service `shop` on both, with revision 1 in place."""

    world: Both

    def __init__(self, replicas: int = 4, **given: t.Any) -> None:
        world = Both()
        super().__init__(world, replicas=replicas, **given)
        self.play(revision="1")
        assert world.vms() == {"1": replicas // 2}
        is_ordinary(world.cloud, "1", replicas // 2)
        self.begin_watch()

    def begin_watch(self) -> None:
        self.world.low, self.world.high = 99, 0
        self.world.seen.clear()
        self.world.shares.clear()


def test_one_walk_over_both() -> None:
    shop = Shop(8)
    assert shop.play(revision="2")["rollout"]["outcome"] == "promoted"
    assert shop.world.vms() == {"2": 4}
    is_ordinary(shop.world.cloud, "2", 4)
    assert (shop.world.low, shop.world.high, shop.world.wrong) == (8, 9, [])
    assert not shop.play(revision="2")["changed"]


def test_hosts_first_then_the_deployment() -> None:
    shop = Shop(targets=WAVES)
    shop.play(revision="2")
    first = next(number for number, (_vms, pods) in enumerate(shop.world.seen) if "2" in pods)
    assert shop.world.seen[first][0] == {"2": 2}, "the first wave was done"
    is_ordinary(shop.world.cloud, "2", 2)
    assert (shop.world.low, shop.world.high, shop.world.wrong) == (4, 5, [])
    record = shop.journal
    assert record.rollout and record.rollout.outcome == "promoted" and not record.away


def test_a_run_that_was_killed_in_the_second_part_is_continued() -> None:
    shop = Shop(targets=WAVES)

    def dies(call: str) -> Exception | None:
        begun = "2" in shop.world.cloud.counts()
        return LeaseLost("killed") if begun and call == "apply before" else None

    shop.world.fails = dies
    with pytest.raises(LeaseLost):
        shop.play(revision="2")
    killed = shop.journal.open
    shop.world.fails = lambda _call: None
    assert shop.play(revision="2")["rollout"]["outcome"] == "promoted"
    assert killed and shop.journal.rollout and shop.journal.rollout.id == killed.id
    assert shop.world.vms() == {"2": 2}
    is_ordinary(shop.world.cloud, "2", 2)
    assert (shop.world.low, shop.world.high, shop.world.wrong) == (4, 5, [])


def test_a_failure_in_the_second_takes_the_first_back() -> None:
    shop = Shop(targets=WAVES, progress_deadline="1s")
    shop.world.cloud.starts = lambda pod: not pod["spec"]["containers"][0]["image"].endswith("2")
    with pytest.raises(RolloutFailed):
        shop.play(revision="2")
    assert ({"2": 2}, {"1": 2}) in shop.world.seen, "the first wave was done"
    assert shop.journal.rollout and shop.journal.rollout.outcome == "rolled_back"
    assert shop.world.vms() == {"1": 2}
    is_ordinary(shop.world.cloud, "1", 2)
    assert (shop.world.low, shop.world.high, shop.world.wrong) == (4, 5, [])


def test_a_failure_on_the_hosts_takes_the_deployment_back() -> None:
    shop = Shop(targets=WAVES[::-1], progress_deadline="1s")
    shop.world.bad = ["2"]
    with pytest.raises(RolloutFailed):
        shop.play(revision="2")
    assert any("2" in pods for _vms, pods in shop.world.seen), "the first wave was begun"
    assert shop.world.vms() == {"1": 2}
    is_ordinary(shop.world.cloud, "1", 2)
    assert (shop.world.low, shop.world.high, shop.world.wrong) == (4, 5, [])


@pytest.mark.parametrize("factors", [{}, {"cloud": 2}, {"vms": 3}])
def test_weights_divide_the_requests_of_all_parts_together(factors: dict[str, int]) -> None:
    shop, number = Shop(8), 8
    if factors:
        shop.world.factors, number = factors, 4 + 4 * max(factors.values())
        shop.play(revision="1")
    steps = [{"set_weight": 10}, {"pause": "100ms"}, {"set_weight": 60}, {"pause": "100ms"}]
    shop.begin_watch()
    shop.play(revision="2", strategy="canary", steps=steps)
    shares = [round(share, 2) for share in shop.world.shares]
    assert {0.1, 0.6} <= set(shares), shares
    assert shares == sorted(shares), "no instance that is missing gives its part to the others"
    assert ({"1", "2"}, {"1", "2"}) in [(set(vms), set(pods)) for vms, pods in shop.world.seen]
    assert shop.world.vms() == {"2": 4 * factors.get("vms", 1)}
    is_ordinary(shop.world.cloud, "2", 4 * factors.get("cloud", 1))
    assert (shop.world.low, shop.world.wrong) == (number, [])


def test_weights_of_waves_need_load_balancers_of_each_part() -> None:
    shop = Shop(targets=WAVES)
    with pytest.raises(InputError, match="set_weight divides the requests of one target"):
        shop.play(revision="2", strategy="canary", steps=[{"set_weight": 10}])


def test_each_part_has_its_share() -> None:
    shop = Shop()
    shop.world.factors = {"cloud": 2}
    shop.play(revision="2", replicas=6)
    assert shop.world.vms() == {"2": 3}
    is_ordinary(shop.world.cloud, "2", 6)


@pytest.mark.parametrize("part", ["vms", "cloud"])
@pytest.mark.slow
def test_a_part_that_is_gone_holds_the_rollout_until_it_is_back(part: str) -> None:
    """Of the other part, the rollout goes on where the budget lets it."""
    shop = Shop(8, budget={"max_surge": 2, "max_unavailable": 4})
    world, seen = shop.world, list[dict[str, int]]()

    def asked() -> None:
        seen.append(world.cloud.counts() if part == "vms" else world.vms())
        if len(seen) > 40:
            world.silent, world.cloud.gone = (), False

    world.asked = world.cloud.asked = asked

    def go(change: str) -> None:
        if change == "patch shop-g2" and not seen:
            if part == "vms":
                world.silent = HOSTS
            else:
                world.cloud.gone = True

    world.cloud.fails = go
    shop.play(revision="2")
    assert len(seen) > 40 and seen[-1] == {"2": 4}, "the other part went on meanwhile"
    assert world.vms() == {"2": 4}
    is_ordinary(world.cloud, "2", 4)
    assert world.high <= 10 and world.low >= 4 and world.wrong == []
    silent = "web1" if part == "vms" else "cloud"
    assert any(f"{silent} does not answer" in line for line in shop.said)
    assert shop.journal.away == {}


# What the driver of several reports
# --------------------------------------------------------------------------------------------------


def both() -> tuple[Both, several.Driver]:
    shop = Shop()
    shop.world.context = DriverContext("shop", t.cast(t.Any, None), known=Knows(epoch=1))
    return shop.world, shop.world.platform()


def test_only_pods_have_the_name_of_their_part() -> None:
    _world, driver = both()
    found = driver.sync()
    assert {report.labels.host for report in found} == {"web1", "web2", "cloud/node1"}
    assert sum(report.labels.id.startswith("cloud/") for report in found) == 2
    assert driver.at({"web1"}).capabilities.has_hosts
    for pods in ("cloud", "cloud/node1"):
        assert driver.at({pods}).capabilities.names_instances


def test_a_part_whose_endpoints_could_never_be_known_is_refused() -> None:
    world, driver = both()
    assert driver.workloads == {"deployment/shop"}
    driver.check_endpoints()
    container = world.cloud.objects[api.SHOP]["spec"]["template"]["spec"]["containers"][0]
    del container["ports"]
    with pytest.raises(InputError, match="names no containerPort") as refused:
        driver.check_endpoints()
    assert refused.value.id == "PR-258"


def test_a_silent_cluster_is_remembered_while_hosts_answer() -> None:
    """Each part knows only its own: it must not forget what another has lost."""
    world, driver = both()
    driver.sync()
    world.cloud.gone, world.silent = True, ("web1",)
    driver.sync([Labels("", "shop", "2", 2, "cloud", NOWHERE, 0)])
    found = driver.sync()
    assert sorted(driver.away) == ["cloud", "web1"]
    tell(world, away=driver.away)
    lost = [r.labels for r in found if r.process is Process.UNREACHABLE]
    assert sum(labels.id.startswith("cloud/") for labels in lost) == 3, "with the one ordered"
    later = world.platform()  # of another run, with the same journal
    assert {r.labels.id for r in later.sync() if r.process is Process.UNREACHABLE} == {
        labels.id for labels in lost
    }
    assert sorted(later.away) == ["cloud", "web1"]
    world.cloud.gone, world.silent = False, ()
    until(lambda: later.sync() and not later.away)
    assert len(later.sync()) == 4


def test_what_no_part_has_any_more_is_forgotten() -> None:
    world, driver = both()
    tell(world, away={"web9": []})
    driver.sync()
    assert driver.away == {}


def test_a_newer_lease_in_the_cluster_ends_the_run() -> None:
    world, driver = both()
    driver.sync()
    world.cloud.objects[api.SHOP]["metadata"]["annotations"] = {_pods.EPOCH: "7"}
    with pytest.raises(LeaseLost, match=r"cluster cloud: .*epoch 7"):
        driver.sync()


def test_without_a_part_nothing_begins() -> None:
    shop = Shop()
    shop.world.cloud.gone = True
    with pytest.raises((ApiError, RolloutFailed), match="cluster cloud: the API server does not"):
        shop.play(revision="2", progress_deadline="1s")
    assert shop.world.vms() == {"1": 2}


@pytest.mark.parametrize(
    "given, message",
    [
        ({"autoscaler": Managed("hpa", "hold")}, "rollout_autoscaler: given"),
        ({"health": HealthCheck(from_host=True)}, r"rollout_health\.from: host"),
    ],
)
def test_what_parts_have_not_in_common_is_refused(given: dict[str, t.Any], message: str) -> None:
    _world, driver = both()
    driver.check()
    driver.context = replace(driver.context, **given)
    with pytest.raises(InputError, match=message) as told:
        driver.check()
    assert told.value.id == "PR-248"


def test_room_is_that_of_each_part() -> None:
    shop = Shop()
    shop.world.capacity = 2
    with pytest.raises(InputError, match="target vms: 2 hosts with room for 2 instances") as told:
        shop.play(revision="2")
    assert told.value.id == "PR-202"


def test_memory_is_that_of_each_part() -> None:
    shop = Shop()
    shop.world.memory = 4
    shop.step(plan, revision="2", replicas=12)  # 6 on hosts, with the surge 4 on one of them
    with pytest.raises(InputError, match=r"web1 has .*: 5 instances on a host") as told:
        shop.step(plan, revision="2", replicas=16)
    assert told.value.id == "PR-203"


# What is given
# --------------------------------------------------------------------------------------------------

ON_HOSTS = {"driver": "process", "hosts": "web", "command": ["/opt/shop"], "ports": "8100-8199"}
IN_CLOUD = {"driver": "kubernetes", "workload": "deployment/shop", "image": "shop:{revision}"}


def parsed(**parts: t.Any) -> dict[str, t.Any]:
    return several.OPTIONS.parse({"parts": parts}, "rollout_platform.")


@pytest.mark.parametrize(
    "parts, id, message",
    [
        ({"vms": ON_HOSTS}, "PR-248", "two parts at least"),
        ({"v/ms": ON_HOSTS, "cloud": IN_CLOUD}, "PR-120", "'v/ms' is not the name of a part"),
        ({"v.ms": ON_HOSTS, "cloud": IN_CLOUD}, "PR-120", "'v.ms' is not the name of a part"),
        ({"vms": {"hosts": "web"}, "cloud": IN_CLOUD}, "PR-108", r"parts\.vms\.driver: not given"),
        ({"vms": {**ON_HOSTS, "prots": 1}, "cloud": IN_CLOUD}, "PR-101", r"parts\.vms\.prots"),
        ({"vms": {**ON_HOSTS, "factor": 0}, "cloud": IN_CLOUD}, "PR-104", r"parts\.vms\.factor"),
        (
            {"vms": ON_HOSTS, "cloud": {**IN_CLOUD, "workload": "statefulset/db"}},
            "PR-248",
            r"parts\.cloud\.driver: kubernetes replaces pods at their places",
        ),
        (
            {"vms": ON_HOSTS, "cloud": {**IN_CLOUD, "clusters": [{"name": "eu"}]}},
            "PR-248",
            r"parts\.cloud\.driver: kubernetes has several clusters; make a part of each",
        ),
        (
            {"vms": {"driver": "static", "hosts": "web", "port": 80}, "cloud": IN_CLOUD},
            "PR-248",
            r"parts\.vms\.driver: static is deployed in place",
        ),
        (
            {
                "vms": {"driver": "swarm", "hosts": "all", "image": "shop:{revision}", "port": 80},
                "cloud": IN_CLOUD,
            },
            "PR-248",
            r"parts\.vms\.driver: swarm is an orchestrator that cannot be a part yet",
        ),
        (
            {
                "vms": ON_HOSTS,
                "more": {"driver": "several", "parts": {"a": ON_HOSTS, "b": IN_CLOUD}},
            },
            "PR-248",
            r"parts\.more\.driver: several has parts itself",
        ),
    ],
)
def test_what_cannot_be_a_part_is_refused(parts: dict[str, t.Any], id: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as told:
        parsed(**parts)
    assert told.value.id == id


# Settings of a generation
# --------------------------------------------------------------------------------------------------


def settings(**of_vms: t.Any) -> tuple[InstanceSettings, dict[str, t.Any]]:
    """The settings of a generation as the journal keeps them, and what hosts keep."""
    options = parsed(vms={**ON_HOSTS, **of_vms}, cloud=IN_CLOUD)
    found = several.Driver.shaping(options, several.OPTIONS)
    assert found
    names = {f"platform.{option}": sorted(its) for option, its in found[1].items()}
    return InstanceSettings("several", found[0], {}, names, "key"), {"platform": found[1]}


def test_each_part_has_its_own_settings() -> None:
    kept, hidden = settings(env={"TOKEN": "s3cret"})
    assert "s3cret" not in repr(kept)
    vms, cloud = kept.of_part("vms"), kept.of_part("cloud")
    assert (vms.driver, vms.platform["command"]) == ("process", ["/opt/shop"])
    assert "hosts" not in vms.platform and "ports" not in vms.platform
    assert vms.secret == {"platform.env": ["TOKEN"]}
    assert (cloud.driver, cloud.platform["image"]) == ("kubernetes", "shop:{revision}")
    assert cloud.secret == {} and "workload" not in cloud.platform
    assert of_part(hidden["platform"], "vms") == {"env": {"TOKEN": "s3cret"}}
    assert of_part(hidden["platform"], "cloud") == {}


def test_a_part_may_have_been_the_whole_platform() -> None:
    kept = InstanceSettings("process", {"command": ["/opt/shop"]}, {}, {"platform.env": ["A"]})
    assert kept.of_part("vms") == kept


def test_differences_name_the_part() -> None:
    old, was = settings(env={"A": "1"})
    new, now = settings(command=["/opt/new"], env={"A": "2"})
    assert differences(old, new, was, now) == [
        "rollout_platform.parts.vms.command: ['/opt/shop'] -> ['/opt/new']",
        "rollout_platform.parts.vms.env: A changed",
    ]


def test_the_journal_keeps_no_secret_of_a_part() -> None:
    parts = {"vms": {**ON_HOSTS, "env": {"TOKEN": "s3cret"}}, "cloud": IN_CLOUD}
    kept = remembered.of({"platform": {"driver": "several", "parts": parts}})
    assert "s3cret" not in repr(kept)
    assert kept["platform"]["parts"]["vms"] == {**ON_HOSTS, "env": remembered.SECRET}
    assert kept["platform"]["parts"]["cloud"] == IN_CLOUD


def test_the_page_is_accepted() -> None:
    snippets = SNIPPETS["docs/how-to/several-platforms.md"]
    given = yaml.safe_load(snippets["parts.yml"]) | yaml.safe_load(snippets["part_waves.yml"])
    found = parse(
        {"service": "shop"} | {name.removeprefix("rollout_"): its for name, its in given.items()}
    )
    assert [wave.targets for wave in found.plan.waves] == [("vms",), ("cloud",)]
    targets = [
        Target(name, frozenset({name}), part.factor)
        for name, part in found.platform.options["parts"].items()
    ]
    assert [share(8, 2, one.factor) for one in targets] == [4, 8], "as it says"
    (analysis,) = found.plan.background
    names = [one["name"] for one in analysis.options["metrics"]]
    assert "errors" in names and "latency" not in names, "platforms are not equally fast"
