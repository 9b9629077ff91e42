# SPDX-License-Identifier: GPL-3.0-or-later
"""One release of members on Kubernetes, on Docker Swarm and on hosts."""

from __future__ import annotations

import typing as t
from collections import Counter
from contextlib import nullcontext, suppress

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.action import info, release
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.settings import parse
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.release import (
    Member,
    Place,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.options import Options
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import (
    kubernetes,
    swarm,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.releases import (
    JOURNAL,
    Releases,
)
from ansible_collections.progressive.rollout.tests.simulations.world.machine import Machine
from ansible_collections.progressive.rollout.tests.simulations.world.store import MemoryStore
from ansible_collections.progressive.rollout.tests.support import kubernetes as api_server
from ansible_collections.progressive.rollout.tests.support import swarm as engine
from ansible_collections.progressive.rollout.tests.support.memory import Service, World
from ansible_collections.progressive.rollout.tests.support.pages import SNIPPETS

pytestmark = pytest.mark.usefixtures("virtual_time")

EXAMPLE = yaml.safe_load(SNIPPETS["docs/how-to/release.md"]["platforms.yml"])
MEMBERS: dict[str, t.Any] = EXAMPLE["rollout_release"]["members"]


def options(table: Options, member: str, **local: t.Any) -> dict[str, t.Any]:
    """Return the options of a member's platform, as the page has them but for what is `local`."""
    given = {**EXAMPLE["rollout_members"][member]["rollout_platform"], **local}
    del given["driver"]
    return table.parse(given, "rollout_platform.")


class Pods(World):
    """The API: the pods of a Deployment."""

    def __init__(self) -> None:
        super().__init__(fewest=0)
        self.server = api_server.Server()
        self.server.create(api_server.DEPLOYMENTS, api_server.deployment("1", 3))

    def platform(self) -> t.Any:
        local = {"workload": "deployment/shop", "image": "local/shop:{revision}"}
        given = options(kubernetes.OPTIONS, "api", **local)
        transport = t.cast(t.Any, self.context).transport
        made = kubernetes.Driver(given, DriverContext("api", transport, known=self.known))
        made.__dict__["_cluster"] = self.server
        return made


class Tasks(World):
    """The mailer: services of a swarm."""

    def __init__(self, managers: engine.Managers) -> None:
        super().__init__(fewest=0)
        self.managers = managers

    def platform(self) -> t.Any:
        given = options(swarm.OPTIONS, "mail")
        context = DriverContext("mail", t.cast(t.Any, self.managers), known=self.known)
        return swarm.Driver(given, context)


class Rollouts:
    """The services of a release."""

    def __init__(self, managers: engine.Managers, server: engine.Server) -> None:
        tasks, self.pods, self.swarm = Tasks(managers), Pods(), server
        self.hosts = World(most=3, fewest=0)
        tasks.journals = self.pods.journals = self.hosts.journals
        self.services = {
            "api": Service(self.pods, service="api", replicas=3),
            "mail": Service(tasks, service="mail", replicas=2),
            "worker": Service(self.hosts, service="worker", replicas=2),
        }

    def play(self, name: str, release: str, revision: str) -> str:
        """Run a member as far as it comes, and return its phase and its outcome."""
        given = {"name": release, "member": name, "members": MEMBERS}
        with suppress(RolloutFailed):
            self.services[name].play(revision=revision, release=given, failure_limit=1)
        rollout = self.services[name].journal.rollout
        assert rollout
        return str(rollout.outcome or rollout.phase)

    @property
    def running(self) -> dict[str, dict[str, int]]:
        """How many instances of each revision each member has."""
        images = [
            one["Spec"]["TaskTemplate"]["ContainerSpec"]["Image"].rpartition(":")[2]
            for one in self.swarm.objects["services"].values()
        ]
        return {
            "api": self.pods.server.counts(),
            "mail": dict(Counter(images)),
            "worker": self.services["worker"].running,
        }

    def members(self, release: str) -> t.Mapping[str, Member]:
        store = MemoryStore(JOURNAL, self.hosts.journals[JOURNAL])
        return Releases(store, "test", "test").read()[release].members

    def since(self, release: str, name: str) -> float:
        return self.members(release)[name].since


@pytest.fixture
def rollouts(monkeypatch: pytest.MonkeyPatch) -> Rollouts:
    server = engine.Server()
    return Rollouts(engine.Managers(server, monkeypatch), server)


def test_members_are_promoted_in_order_or_taken_back_in_the_opposite_order(
    rollouts: Rollouts,
) -> None:
    play = rollouts.play
    assert (play("worker", "1", "2"), play("mail", "1", "2")) == ("paused", "paused")
    assert rollouts.running == {"api": {"1": 3}, "mail": {}, "worker": {}}
    assert (play("api", "1", "2"), play("worker", "1", "2")) == ("holding", "paused")
    assert rollouts.running == {"api": {"2": 3}, "mail": {}, "worker": {}}
    assert play("mail", "1", "2") == "holding"
    promoted, started = rollouts.since("1", "mail"), rollouts.hosts.instances
    assert started == {} and play("worker", "1", "2") == "promoted"
    assert min(one.created for one in started.values()) >= promoted + 600, "it has soaked"
    assert (play("mail", "1", "2"), play("api", "1", "2")) == ("promoted", "promoted")
    everywhere = {"api": {"2": 3}, "mail": {"2": 2}, "worker": {"2": 2}}
    assert rollouts.running == everywhere

    rollouts.hosts.crashes = lambda labels: labels.revision == "3"
    assert (play("api", "2", "3"), play("mail", "2", "3")) == ("holding", "holding")
    assert play("worker", "2", "3") == "rolled_back"
    assert play("api", "2", "3") == "holding", "those that come after it go back first"
    assert rollouts.running == {**everywhere, "api": {"3": 3}, "mail": {"3": 2}}
    lines = rollouts.services["mail"].step(info, revision="3")["lines"]
    shown = {row[0]: row[3:5] for row in map(str.split, lines) if row and row[0] in MEMBERS}
    assert [shown[name][0] for name in MEMBERS] == ["promoted", "promoted", "back"], lines
    assert play("mail", "2", "3") == "aborted"
    assert rollouts.running == {**everywhere, "api": {"3": 3}}
    assert play("api", "2", "3") == "aborted"
    assert rollouts.running == everywhere
    assert {member.place for member in rollouts.members("2").values()} == {Place.BACK}


@pytest.mark.parametrize("of_release", [True, False], ids=["of the release", "of the member"])
def test_an_abort_while_a_member_soaks_takes_it_back(
    rollouts: Rollouts, virtual_time: Machine, of_release: bool
) -> None:
    """The service of the swarm is watched for ten minutes before the hosts' turn."""
    for name in (*MEMBERS, "mail", "api"):
        rollouts.play(name, "1", "2")
    before = {"api": {"2": 3}, "mail": {"2": 2}, "worker": {"2": 2}}
    assert rollouts.running == before
    assert rollouts.play("api", "2", "3") == "holding"
    aborted = virtual_time.time + 60

    def abort() -> None:
        assert rollouts.running == {**before, "api": {"3": 3}, "mail": {"3": 2}}
        if of_release:
            given = {"name": "2", "member": "mail", "members": MEMBERS}
            rollouts.services["mail"].step(release, {"command": "abort"}, release=given)
        else:
            rollouts.services["mail"].say("abort")

    virtual_time.at(aborted, abort)
    ends = [rollouts.play(name, "2", "3") for name in ("mail", "api")]
    assert ends == ["aborted"] * 2
    assert virtual_time.time < aborted + 30, "the soak ends with the abort"
    assert rollouts.running == before


@pytest.mark.parametrize("member", MEMBERS)
def test_the_variables_of_the_page_are_accepted(member: str) -> None:
    release = {**EXAMPLE["rollout_release"], "member": member}
    given = {"service": member, "release": release}
    for name, value in EXAMPLE["rollout_members"][member].items():
        given[name.removeprefix("rollout_")] = value
    settings = parse(given)
    assert settings.release and settings.release.member == member


@pytest.mark.parametrize("held", [True, False], ids=["held", "waits"])
def test_a_member_that_cannot_go_back_is_not_continued_in_a_release_that_was_taken_back(
    held: bool,
) -> None:
    world = World(most=3, fewest=0)
    schema = Service(world, service="schema", replicas=2, failure_limit=1)
    schema.play(revision="1")
    members = {"schema": {"reversible": False}, "api": {"after": ["schema"]}}
    given = {"revision": "2", "release": {"name": "2", "member": "schema", "members": members}}
    canary = {"strategy": "canary", "steps": [{"set_replicas": 1}, {"pause": {}}]}
    world.crashes = lambda labels: held and labels.revision == "2"
    with pytest.raises(RolloutFailed, match="held") if held else nullcontext():
        schema.play(**given, **canary)
    schema.step(release, {"command": "abort"}, **given)
    world.crashes = lambda _labels: False
    before = schema.running

    with pytest.raises(RolloutFailed, match=r"release 2 was taken back .*abort") as refused:
        schema.play(**given, **canary)
    assert (refused.value.id, schema.running) == ("PR-637", before)
    schema.say("abort")
    with pytest.raises(RolloutFailed, match="back to 1"):
        schema.play(**given, **canary)
    assert schema.running == {"1": 2}
    schema.play(revision="2", release={**given["release"], "name": "3"})
    assert schema.running == {"2": 2}
