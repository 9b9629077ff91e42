# SPDX-License-Identifier: GPL-3.0-or-later
"""Bad input is refused before anything is touched, with the variable, its value and what to do
about it.

Rows of `CASES` are variables of the role, as a user's playbook has them; rows of `STEPS` are options
of single steps. What only a load balancer can refuse, the tests of its driver have.
"""

from __future__ import annotations

import copy
import typing as t
from collections.abc import Iterator, Mapping

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import store as store_agent
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import (
    TrafficDriver,
)
from ansible_collections.progressive.rollout.tests.support.memory import Service, Traffic, World
from ansible_collections.progressive.rollout.tests.support.playbook import Outcome
from ansible_collections.progressive.rollout.tests.support.tasks import Tasks

pytestmark = pytest.mark.usefixtures("virtual_time")
NOTHING_LISTENS = "127.0.0.1:1"
GONE: t.Any = object()  # this variable is not given

Changes = Mapping[str, t.Any]


def haproxy(**options: t.Any) -> dict[str, t.Any]:
    return {"driver": "haproxy", "socket": [NOTHING_LISTENS], "backend": "shop", **options}


def canary(*steps: Changes, **groups: t.Any) -> Changes:
    return {"rollout_strategy": "canary", "rollout_steps": groups or list(steps)}


def listed(*steps: t.Any) -> dict[str, t.Any]:
    """The options of a step for a canary."""
    return {"strategy": "canary", "steps": list(steps)}


def frozen(begin: str, end: str, **more: str) -> Changes:
    return {"begin": {"freeze": [{"from": begin, "to": end, **more}]}}


def gate(driver: str | None = None, **options: t.Any) -> Changes:
    """A step that begins a rollout which would ask this gate at its end."""
    return {"begin": {"gates": {"post_rollout": [{"driver": driver, **options}]}}}


def metric(name: t.Any = "m", **options: t.Any) -> Changes:
    """A gate that would measure this."""
    return gate("analysis", metrics=[{"name": name, **options}])


def asked(**options: t.Any) -> Changes:
    """A gate that would ask Prometheus."""
    return metric(driver="prometheus", address="http://h:9090", **options)


GATE = "rollout_gates.post_rollout[0]"
METRIC = f"{GATE}.metrics[0]"
ANALYSIS = "rollout_steps[1].analysis"
ONE = {"set_weight": 20}


# Name, what is changed (`rollout_budget.max_surge` is a key of that mapping), words the message
# must have.
CASES: list[tuple[str, Changes, tuple[str, ...]]] = [
    # unknown and misspelt names
    (
        "misspelt variable",
        {"rollout_replica": 3},
        ("rollout_replica:", "rollout_replicas?", "PR-101"),
    ),
    (
        "misspelt mapping",
        {"rollout_buget": {"max_surge": 1}},
        ("rollout_buget:", "rollout_budget?", "PR-101"),
    ),
    (
        "unknown variable",
        {"rollout_colour": "red"},
        ("rollout_colour:", "unknown variable", "known", "budget"),
    ),
    (
        "misspelt key of budget",
        {"rollout_budget": {"max_surg": 1}},
        ("rollout_budget.max_surg:", "rollout_budget.max_surge?"),
    ),
    (
        "misspelt key of platform",
        {"rollout_platform.comand": []},
        ("rollout_platform.comand:", "rollout_platform.command?"),
    ),
    (
        "misspelt key of traffic",
        {"rollout_traffic": haproxy(bakend="x")},
        ("rollout_traffic.bakend:", "rollout_traffic.backend?"),
    ),
    (
        "key of a driver without any",
        {"rollout_traffic": {"backend": "shop"}},
        ("rollout_traffic.backend:", "unknown option", "known: none"),
    ),
    (
        "misspelt key of health",
        {"rollout_health.intervall": "1s"},
        ("rollout_health.intervall:", "rollout_health.interval?"),
    ),
    ("method of health", {"rollout_health.method": "POST"}, ("rollout_health.method:", "PR-101")),
    (
        "misspelt key of store",
        {"rollout_store.pth": "/x"},
        ("rollout_store.pth:", "rollout_store.path?"),
    ),
    # missing
    ("no service", {"rollout_service": GONE}, ("rollout_service:", "PR-102")),
    ("no platform", {"rollout_platform": GONE}, ("rollout_platform.driver:", "PR-102")),
    ("no revision", {"rollout_revision": GONE}, ("rollout_revision:", "PR-102")),
    ("empty revision", {"rollout_revision": ""}, ("rollout_revision:", "PR-102")),
    ("no replicas", {"rollout_replicas": GONE}, ("rollout_replicas:", "PR-102")),
    (
        "no driver",
        {"rollout_platform.driver": GONE},
        ("rollout_platform.driver:", "process", "PR-102"),
    ),
    ("no command", {"rollout_platform.command": GONE}, ("rollout_platform", "command")),
    ("no ports", {"rollout_platform.ports": GONE}, ("rollout_platform", "ports")),
    ("no hosts", {"rollout_platform.hosts": GONE}, ("rollout_platform", "hosts")),
    ("no backend", {"rollout_traffic": {"driver": "haproxy"}}, ("rollout_traffic", "backend")),
    (
        "no place for epochs",
        {"rollout_traffic": haproxy(path="/etc/passwd/x")},
        ("rollout_traffic.path: /etc/passwd is not a directory", "load balancer 127.0.0.1"),
    ),
    (
        "a path that is relative",
        {"rollout_traffic": haproxy(path="x")},
        ("rollout_traffic.path: 'x'", "absolute"),
    ),
    # types
    ("budget is a number", {"rollout_budget": 3}, ("rollout_budget:", "int", "PR-118")),
    (
        "platform is text",
        {"rollout_platform": "process"},
        ("rollout_platform:", "str", "PR-118"),
    ),
    (
        "traffic is broken JSON in a text",
        {"rollout_traffic": '{"driver": "none"'},
        ("rollout_traffic:", "mapping", "PR-118"),
    ),
    ("health is a path", {"rollout_health": "/healthz"}, ("rollout_health:", "str", "PR-118")),
    ("store is a list", {"rollout_store": ["/x"]}, ("rollout_store:", "list", "PR-118")),
    ("driver is a number", {"rollout_traffic": {"driver": 7}}, ("rollout_traffic.driver: 7",)),
    ("service is a list", {"rollout_service": ["shop"]}, ("rollout_service", "['shop']")),
    ("revision is a float", {"rollout_revision": 1.1}, ("rollout_revision: 1.1", "quote")),
    ("revision is true", {"rollout_revision": True}, ("rollout_revision: True",)),
    (
        "revision is a mapping",
        {"rollout_revision": {"is": "2"}},
        ("rollout_revision", "{'is': '2'}"),
    ),
    ("strategy is a list", {"rollout_strategy": ["rolling"]}, ("rollout_strategy", "rolling")),
    ("restart is text", {"rollout_restart": "perhaps"}, ("rollout_restart", "perhaps")),
    # numbers and budgets
    ("replicas 0", {"rollout_replicas": 0}, ("rollout_replicas: 0", "at least 1")),
    ("replicas negative", {"rollout_replicas": -2}, ("rollout_replicas: -2", "at least 1")),
    (
        "replicas in words",
        {"rollout_replicas": "three"},
        ("rollout_replicas: 'three'", "whole number"),
    ),
    ("replicas a float", {"rollout_replicas": 2.5}, ("rollout_replicas: 2.5", "whole number")),
    ("replicas true", {"rollout_replicas": True}, ("rollout_replicas: True", "whole number")),
    ("replicas a list", {"rollout_replicas": [3]}, ("rollout_replicas: [3]", "whole number")),
    (
        "surge 0, unavailable 0",
        {"rollout_budget": {"max_surge": 0, "max_unavailable": 0}},
        ("rollout_budget: max_surge 0", "1"),
    ),
    (
        "surge 0 alone",
        {"rollout_budget": {"max_surge": 0}},
        ("rollout_budget: max_surge 0 with max_unavailable 0", "1"),
    ),
    (
        "0 % and 0 %",
        {"rollout_budget": {"max_surge": "0%", "max_unavailable": "0.0%"}},
        ("rollout_budget: max_surge 0", "1"),
    ),
    (
        "none may be missing in a zone",
        {"rollout_budget": {"max_unavailable_per_zone": 0}},
        ("rollout_budget.max_unavailable_per_zone: 0", "1"),
    ),
    (
        "a floor for zones that nobody knows",
        {"rollout_budget": {"max_unavailable_per_zone": 1}},
        ("rollout_budget.max_unavailable_per_zone", "rollout_platform.zone", "PR-107"),
    ),
    (
        "over 100 %",
        {"rollout_budget.max_surge": "101%"},
        ("rollout_budget.max_surge: '101%'", "100%"),
    ),
    (
        "under 0 %",
        {"rollout_budget.max_unavailable": "-1%"},
        ("rollout_budget.max_unavailable: '-1%'", "0%"),
    ),
    (
        "not a percentage",
        {"rollout_budget.max_surge": "some%"},
        ("rollout_budget.max_surge: 'some%'", "percentage"),
    ),
    (
        "infinite percentage",
        {"rollout_budget.max_surge": "Infinity%"},
        ("rollout_budget.max_surge: 'Infinity%'", "percentage"),
    ),
    (
        "surge a float",
        {"rollout_budget.max_surge": 0.25},
        ("rollout_budget.max_surge: 0.25", "25%"),
    ),
    (
        "surge negative",
        {"rollout_budget.max_surge": -1},
        ("rollout_budget.max_surge: -1", "at least 0"),
    ),
    (
        "surge true",
        {"rollout_budget.max_surge": True},
        ("rollout_budget.max_surge: True", "whole number"),
    ),
    (
        "surge a list",
        {"rollout_budget.max_surge": [1]},
        ("rollout_budget.max_surge: [1]", "whole number"),
    ),
    (
        "max_in_flight with max_surge",
        {"rollout_budget": {"max_in_flight": 2, "max_surge": 1}},
        ("rollout_budget: max_in_flight", "PR-107"),
    ),
    (
        "max_in_flight 0",
        {"rollout_budget": {"max_in_flight": 0}},
        ("rollout_budget.max_in_flight: 0", "at least 1"),
    ),
    ("failure_limit 0", {"rollout_failure_limit": 0}, ("rollout_failure_limit: 0", "at least 1")),
    (
        "failure_limit in words",
        {"rollout_failure_limit": "none"},
        ("rollout_failure_limit: 'none'", "whole number"),
    ),
    # names that end in paths and commands
    (
        "service with a command",
        {"rollout_service": "shop; rm -rf"},
        ("rollout_service: 'shop; rm -rf'", "lower-case"),
    ),
    (
        "service out of the path",
        {"rollout_service": "../shop"},
        ("rollout_service: '../shop'", "lower-case"),
    ),
    (
        "service with a substitution",
        {"rollout_service": "$(x)"},
        ("rollout_service: '$(x)'", "lower-case"),
    ),
    (
        "service with a newline",
        {"rollout_service": "shop\n"},
        ("rollout_service: 'shop\\n'", "lower-case"),
    ),
    ("service empty", {"rollout_service": ""}, ("rollout_service:", "PR-102")),
    ("service too long", {"rollout_service": "s" * 64}, ("rollout_service: 'ssss", "at most 63")),
    ("service in capitals", {"rollout_service": "Shop"}, ("rollout_service: 'Shop'", "lower-case")),
    (
        "revision with a command",
        {"rollout_revision": "2; rm -rf /"},
        ("rollout_revision: '2; rm -rf /'", "letters"),
    ),
    (
        "revision out of the path",
        {"rollout_revision": "../../etc"},
        ("rollout_revision: '../../etc'", "letters"),
    ),
    (
        "revision with a substitution",
        {"rollout_revision": "`id`"},
        ("rollout_revision: '`id`'", "letters"),
    ),
    (
        "revision with a newline",
        {"rollout_revision": "2\n3"},
        ("rollout_revision: '2\\n3'", "letters"),
    ),
    (
        "revision an option",
        {"rollout_revision": "--help"},
        ("rollout_revision: '--help'", "beginning with a letter"),
    ),
    (
        "revision too long",
        {"rollout_revision": "2" * 129},
        ("rollout_revision: '2222", "at most 128"),
    ),
    (
        "hosts with a command",
        {"rollout_platform.hosts": "$(reboot)"},
        ("rollout_platform.hosts: '$(reboot)'", "no host"),
    ),
    # hosts and ports
    (
        "host not in the inventory",
        {"rollout_platform.hosts": "mars"},
        ("rollout_platform.hosts: 'mars'", "no host"),
    ),
    (
        "group without hosts",
        {"rollout_platform.hosts": "nobody"},
        ("rollout_platform.hosts: 'nobody'", "no host"),
    ),
    ("unreachable host", {"rollout_platform.hosts": "web:far"}, ("rollout_platform.hosts", "far1")),
    (
        "too few ports",
        {"rollout_platform.ports": "8100-8100"},
        ("rollout_replicas 3", "surge of 1", "rollout_platform.ports"),
    ),
    (
        "ports reversed",
        {"rollout_platform.ports": "8199-8100"},
        ("rollout_platform.ports: '8199-8100'", "lower one first"),
    ),
    (
        "ports over 65535",
        {"rollout_platform.ports": "65000-65536"},
        ("rollout_platform.ports: '65000-65536'", "65535"),
    ),
    ("port 0", {"rollout_platform.ports": "0-9"}, ("rollout_platform.ports: '0-9'", "between 1")),
    (
        "ports in words",
        {"rollout_platform.ports": "some"},
        ("rollout_platform.ports: 'some'", "8100-8199"),
    ),
    (
        "ports a list",
        {"rollout_platform.ports": [8100, 8101]},
        ("rollout_platform.ports", "8100, 8101", "8100-8199"),
    ),
    # the platform's options
    (
        "unknown platform",
        {"rollout_platform.driver": "nomad"},
        ("rollout_platform.driver", "'nomad'", "static"),
    ),
    (
        "platform a module",
        {"rollout_platform.driver": "os.system"},
        ("rollout_platform.driver", "'os.system'"),
    ),
    ("platform a path", {"rollout_platform.driver": "../x"}, ("rollout_platform.driver", "'../x'")),
    (
        "platform of no collection",
        {"rollout_platform.driver": "acme.cloud.vm"},
        ("rollout_platform.driver", "'acme.cloud.vm'"),
    ),
    (
        "command as text",
        {"rollout_platform.command": "/bin/shop --port 1"},
        ("rollout_platform.command:", "list", "PR-118"),
    ),
    ("command empty", {"rollout_platform.command": []}, ("rollout_platform.command:", "PR-125")),
    (
        "command with no program",
        {"rollout_platform.command": ["", "x"]},
        ("rollout_platform.command", "empty"),
    ),
    (
        "command with a list",
        {"rollout_platform.command": ["/bin/true", ["x"]]},
        ("rollout_platform.command", "list"),
    ),
    (
        "unknown placeholder",
        {"rollout_platform.command": ["/bin/true", "{prot}"]},
        ("rollout_platform.command", "'{prot}'", "{port}"),
    ),
    (
        "program not there",
        {"rollout_platform.command": ["/no/such"]},
        ("rollout_platform.command", "/no/such", "web1"),
    ),
    (
        "program not a program",
        {"rollout_platform.command": ["/etc/passwd"]},
        ("rollout_platform.command", "/etc/passwd"),
    ),
    ("env a list", {"rollout_platform.env": ["A=1"]}, ("rollout_platform.env",)),
    (
        "env with a bad name",
        {"rollout_platform.env": {"A=B": "1"}},
        ("rollout_platform.env", "'A=B'"),
    ),
    (
        "env with a list",
        {"rollout_platform.env": {"A": ["1"]}},
        ("rollout_platform.env.A", "quotes"),
    ),
    (
        "env unknown placeholder",
        {"rollout_platform.env": {"A": "{x}"}},
        ("rollout_platform.env.A", "placeholder"),
    ),
    ("cwd relative", {"rollout_platform.cwd": "srv"}, ("rollout_platform.cwd: 'srv'", "/")),
    ("cwd not there", {"rollout_platform.cwd": "/no/such"}, ("rollout_platform.cwd", "/no/such")),
    ("path relative", {"rollout_platform.path": "lib"}, ("rollout_platform.path: 'lib'", "/")),
    (
        "path not writable",
        {"rollout_platform.path": "/etc/passwd/x"},
        ("rollout_platform.path", "/etc/passwd is not a directory"),
    ),
    (
        "stop signal",
        {"rollout_platform.stop_signal": "BOO"},
        ("rollout_platform.stop_signal: 'BOO'", "TERM"),
    ),
    (
        "stop timeout",
        {"rollout_platform.stop_timeout": "soon"},
        ("rollout_platform.stop_timeout: 'soon'", "10m"),
    ),
    # the load balancer
    ("unknown balancer", {"rollout_traffic": {"driver": "f5"}}, ("rollout_traffic.driver", "'f5'")),
    (
        "unreachable balancer",
        {"rollout_traffic": haproxy(socket=[NOTHING_LISTENS])},
        (NOTHING_LISTENS, "rollout_traffic.socket"),
    ),
    (
        "no such socket",
        {"rollout_traffic": haproxy(hosts="web1", socket=["/no/such.sock"])},
        ("/no/such.sock", "rollout_traffic.socket"),
    ),
    (
        "socket without hosts",
        {"rollout_traffic": haproxy(socket=["/no/such"])},
        ("rollout_traffic.socket: '/no/such'", "hosts"),
    ),
    (
        "socket not one",
        {"rollout_traffic": haproxy(socket=["admin"])},
        ("rollout_traffic.socket", "'admin'"),
    ),
    (
        "backend with a command",
        {"rollout_traffic": haproxy(backend="shop; show info")},
        ("rollout_traffic.backend", "show info"),
    ),
    (
        "balancers not in the inventory",
        {"rollout_traffic": haproxy(hosts="mars")},
        ("rollout_traffic.hosts: 'mars'", "no host"),
    ),
    (
        "drain timeout",
        {"rollout_traffic": haproxy(drain_timeout="-1s")},
        ("rollout_traffic.drain_timeout: '-1s'", "duration"),
    ),
    # health
    (
        "health path",
        {"rollout_health.http": "healthz"},
        ("rollout_health.http: 'healthz'", "begin it with /"),
    ),
    (
        "health path injects",
        {"rollout_health.http": "/x HTTP/1.1\r\nA: b"},
        ("rollout_health.http: '/x HTTP/1.1\\r\\nA: b'",),
    ),
    (
        "health path a number",
        {"rollout_health.http": 8080},
        ("rollout_health.http: 8080", "/healthz"),
    ),
    ("health status", {"rollout_health.status": 2000}, ("rollout_health.status: 2000", "200")),
    (
        "health status in words",
        {"rollout_health.status": "ok"},
        ("rollout_health.status: 'ok'", "200"),
    ),
    (
        "health header injects",
        {"rollout_health.headers": {"X": "1\r\nHost: evil"}},
        ("rollout_health.headers.X", "one line"),
    ),
    (
        "health header name",
        {"rollout_health.headers": {"X Y": "1"}},
        ("rollout_health.headers: 'X Y'",),
    ),
    (
        "health headers a list",
        {"rollout_health.headers": ["X: 1"]},
        ("rollout_health.headers: ['X: 1']", "mapping"),
    ),
    ("http and tcp", {"rollout_health.tcp": True}, ("rollout_health:", "PR-107")),
    (
        "http setting with tcp",
        {"rollout_health": {"tcp": True, "body": "ok"}},
        ("rollout_health.body", "http"),
    ),
    ("tcp neither", {"rollout_health": {"tcp": "perhaps"}}, ("rollout_health.tcp: 'perhaps'",)),
    ("rise 0", {"rollout_health.rise": 0}, ("rollout_health.rise: 0", "PR-104")),
    ("fall negative", {"rollout_health.fall": -3}, ("rollout_health.fall: -3", "PR-104")),
    ("interval 0", {"rollout_health.interval": 0}, ("rollout_health.interval: 0", "least")),
    ("timeout 0", {"rollout_health.timeout": "0s"}, ("rollout_health.timeout: '0s'", "least")),
    ("health port", {"rollout_health.port": 70000}, ("rollout_health.port: 70000", "65535")),
    (
        "health from nowhere",
        {"rollout_health.from": "moon"},
        ("rollout_health.from: 'moon'", "controller"),
    ),
    ("tls neither", {"rollout_health.tls": "maybe"}, ("rollout_health.tls: 'maybe'",)),
    (
        "health deadline",
        {"rollout_health.deadline": "2m"},
        ("rollout_health.deadline: 120 s", "rollout_progress_deadline (60 s)"),
    ),
    # times
    (
        "duration in words",
        {"rollout_progress_deadline": "10 minutes"},
        ("rollout_progress_deadline: '10 minutes'", '"10m"'),
    ),
    ("duration negative", {"rollout_min_ready": -1}, ("rollout_min_ready: -1", "duration")),
    ("duration nonsense", {"rollout_min_ready": "abc"}, ("rollout_min_ready: 'abc'", "duration")),
    ("duration true", {"rollout_min_ready": True}, ("rollout_min_ready: True", "duration")),
    ("duration a list", {"rollout_lease": [60]}, ("rollout_lease: [60]", "duration")),
    (
        "progress deadline 0",
        {"rollout_progress_deadline": 0},
        ("rollout_progress_deadline: 0", "at least 1"),
    ),
    (
        "min_ready too long",
        {"rollout_min_ready": "1m"},
        ("rollout_min_ready: 60 s", "rollout_progress_deadline (60 s)"),
    ),
    ("lease too short", {"rollout_lease": "1s"}, ("rollout_lease: '1s'", "at least 5 s")),
    # choices and the store
    (
        "unknown strategy",
        {"rollout_strategy": "yolo"},
        ("rollout_strategy: 'yolo'", "rolling", "PR-119"),
    ),
    (
        "unknown on_failure",
        {"rollout_on_failure": "explode"},
        ("rollout_on_failure: 'explode'", "rollback", "PR-119"),
    ),
    ("unknown store", {"rollout_store.driver": "redis"}, ("rollout_store.driver", "'redis'")),
    (
        "store path relative",
        {"rollout_store.path": "journal"},
        ("rollout_store.path: 'journal'", "begin it with /"),
    ),
    (
        "store not writable",
        {"rollout_store.path": "/etc/passwd/x"},
        ("rollout_store.path", "/etc/passwd/x"),
    ),
    (
        "store host not in the inventory",
        {"rollout_store.host": "mars"},
        ("rollout_store.host: 'mars'", "inventory"),
    ),
    ("store host a group", {"rollout_store.host": "web"}, ("rollout_store.host: 'web'", "3 hosts")),
    (
        "store host unreachable",
        {"rollout_store.host": "far1", "rollout_progress_deadline": "2s"},
        ("rollout_store.host", "far1", "cannot be reached", "correct rollout_store", "PR-511"),
    ),
    # canary, blue-green, gates and people
    (
        "canary without steps",
        {"rollout_strategy": "canary"},
        ("rollout_steps:", "set_weight", "PR-109"),
    ),
    (
        "steps of rolling",
        {"rollout_steps": [{"set_weight": 20}]},
        ("rollout_steps", "rollout_strategy", "PR-109"),
    ),
    (
        "steps that descend",
        canary({"set_weight": 40}, {"set_weight": 20}),
        ("rollout_steps", "weight 20 after 40", "higher"),
    ),
    (
        "more than the replicas",
        canary({"set_replicas": 9}),
        ("rollout_steps: step 1", "9", "3 replicas", "PR-109"),
    ),
    (
        "Singularity's group of none",
        canary(group_size=0),
        ("rollout_steps.group_size: 0", "at least 1"),
    ),
    (
        "Cloud Foundry's weights descend",
        canary({"instance_weight": 4}, {"instance_weight": 2}),
        ("instance_weight 2 after 4",),
    ),
    ("gates a list", {"rollout_gates": [{"driver": "web"}]}, ("rollout_gates:", "list", "PR-118")),
    (
        "gates of an unknown moment",
        {"rollout_gates": {"confirm": []}},
        ("rollout_gates.confirm:", "PR-101"),
    ),
    ("approval a time", {"rollout_approval": "1h"}, ("rollout_approval:", "str", "PR-118")),
    ("auto_promote neither", {"rollout_auto_promote": "later"}, ("rollout_auto_promote", "later")),
    ("supersede neither", {"rollout_supersede": "maybe"}, ("rollout_supersede", "maybe")),
    ("freeze a date", {"rollout_freeze": "2026-12-24"}, ("rollout_freeze:", "str", "PR-118")),
    (
        "an analysis of a list",
        {"rollout_analysis": ["errors"]},
        ("rollout_analysis:", "list", "PR-118"),
    ),
    (
        "an analysis of no step",
        {"rollout_analysis": {"starting_step": 2}},
        ("rollout_analysis.starting_step:", "no step 2"),
    ),
    (
        "blue-green without a balancer",
        {"rollout_strategy": "blue_green"},
        ("blue_green", "rollout_traffic", "rolling"),
    ),
    # what only this moment shows
    (
        "restart of nothing",
        {"rollout_restart": True, "rollout_revision": GONE},
        ("rollout_restart", "PR-609"),
    ),
]

# Of single steps: name, task, words.
STEPS: list[tuple[str, Changes, tuple[str, ...]]] = [
    ("budget a number", {"begin": {"budget": 3}}, ("rollout_budget:", "mapping", "PR-118")),
    ("budget a percentage", {"begin": {"budget": "25%"}}, ("rollout_budget:", "mapping", "PR-118")),
    (
        "platform a list",
        {"begin": {"platform": ["process"]}},
        ("rollout_platform:", "mapping", "PR-118"),
    ),
    (
        "traffic a name",
        {"begin": {"traffic": "haproxy"}},
        ("rollout_traffic:", "mapping", "PR-118"),
    ),
    ("health a path", {"begin": {"health": "/healthz"}}, ("rollout_health:", "mapping", "PR-118")),
    ("store a path", {"begin": {"store": "/var/lib"}}, ("rollout_store:", "mapping", "PR-118")),
    ("strategy of a step", {"plan": {"strategy": "yolo"}}, ("rollout_strategy: 'yolo'", "rolling")),
    (
        "on_failure of a step",
        {"plan": {"on_failure": "explode"}},
        ("rollout_on_failure: 'explode'", "rollback"),
    ),
    ("no instances to drain", {"drain": {}}, ("rollout_instances:", "PR-102")),
    (
        "instances as text",
        {"drain": {"instances": "shop-1"}},
        ("rollout_instances:", "list", "PR-118"),
    ),
    ("instances of nobody", {"drain": {"instances": []}}, ("rollout_instances:", "list", "PR-118")),
    (
        "instances as numbers",
        {"drain": {"instances": [1]}},
        ("rollout_instances:", "list", "[1]", "PR-118"),
    ),
    (
        "instance of another service",
        {"drain": {"instances": ["../x"]}},
        ("rollout_instances: '../x'", "shop"),
    ),
    (
        "instance of a service that begins alike",
        {"drain": {"instances": ["shop-api-1"]}},
        ("rollout_instances: 'shop-api-1'",),
    ),
    (
        "misspelt option of a step",
        {"scale": {"replica": 2}},
        ("rollout_replica:", "rollout_replicas?"),
    ),
    (
        "option of another step",
        {"scale": {"instances": ["shop-1"]}},
        ("rollout_instances:", "PR-101"),
    ),
    (
        "a gate of a fleet that is only thought of",
        {
            "plan": {
                "fleet": [],
                "gates": {"post_rollout": [{"driver": "web", "url": "file:///etc/passwd"}]},
            }
        },
        (f"{GATE}.url",),
    ),
    (
        "a fleet of too many",
        {"plan": {"fleet": [{"revision": "1", "state": "ready", "count": 999999999}]}},
        ("count", "10000"),
    ),
    (
        "replicas of too many",
        {"plan": {"fleet": [], "replicas": 999999999}},
        ("rollout_replicas: 999999999", "10000"),
    ),
    ("fleet as text", {"plan": {"fleet": "three"}}, ("rollout_fleet:", "list", "PR-118")),
    ("fleet of texts", {"plan": {"fleet": ["1"]}}, ("rollout_fleet[0]:", "mapping", "PR-118")),
    (
        "fleet with an unknown state",
        {"plan": {"fleet": [{"revision": "1", "state": "fine"}]}},
        ("rollout_fleet[0].state: 'fine'",),
    ),
    (
        "fleet with an unknown key",
        {"plan": {"fleet": [{"revison": "1"}]}},
        ("rollout_fleet[0].revison:", "revision?"),
    ),
    (
        "fleet without a revision",
        {"plan": {"fleet": [{"state": "ready"}]}},
        ("rollout_fleet[0].revision:", "PR-102"),
    ),
    # of canary and blue-green
    ("a step that is a number", {"begin": listed(20)}, ("rollout_steps[0]", "int", "mapping")),
    (
        "steps as text",
        {"begin": {"strategy": "canary", "steps": "20"}},
        ("rollout_steps", "str", "list"),
    ),
    (
        "a weight of 0",
        {"begin": listed({"set_weight": 0})},
        ("rollout_steps[0].set_weight: 0", "at least 1"),
    ),
    (
        "a weight with a sign",
        {"begin": listed({"set_weight": "20%"})},
        ("rollout_steps[0].set_weight: '20%'", "without the sign"),
    ),
    # of analyses, of which tests/unit/test_analysis.py has the others
    (
        "an analysis as text",
        {"begin": listed(ONE, {"analysis": "errors"})},
        (ANALYSIS, "mapping", "PR-118"),
    ),
    (
        "an analysis of nothing",
        {"begin": listed(ONE, {"analysis": {}})},
        (f"{ANALYSIS}.metrics[0].of:", "'errors'", "PR-310"),
    ),
    (
        "a background",
        {"begin": {"analysis": {"bake": "a while"}}},
        ("rollout_analysis.bake: 'a while'", "duration"),
    ),
    ("a gate that measures", gate("analysis", marginal=96), (f"{GATE}.marginal: 96", "lower one")),
    (
        "replicas of nothing",
        {"begin": listed({"set_replicas": "0%"})},
        ("rollout_steps[0].set_replicas: '0%'",),
    ),
    (
        "a pause in words",
        {"begin": listed(ONE, {"pause": "a while"})},
        ("rollout_steps[1].pause: 'a while'", "10m"),
    ),
    (
        "a step's consequence",
        {"begin": listed({**ONE, "on_failure": "cry"})},
        ("rollout_steps[0].on_failure: 'cry'", "hold"),
    ),
    (
        "a group in words",
        {"begin": {"strategy": "canary", "steps": {"cycles": "some"}}},
        ("rollout_steps.cycles: 'some'",),
    ),
    (
        "a wait for nothing",
        {"begin": {"strategy": "canary", "steps": {"wait": "1m"}}},
        ("rollout_steps.wait:", "timed", "PR-107"),
    ),
    (
        "a delay in words",
        {"begin": {"promote_delay": "later"}},
        ("rollout_promote_delay: 'later'", "duration"),
    ),
    ("a hold in words", {"begin": {"hold": "warm"}}, ("rollout_hold: 'warm'", "duration")),
    ("a wait in words", {"begin": {"wait": "lunch"}}, ("rollout_wait: 'lunch'", "duration")),
    (
        "an approval by nothing",
        {"begin": {"approval": {"flie": "/x"}}},
        ("rollout_approval.flie:", "rollout_approval.file?"),
    ),
    (
        "an approval that goes on",
        {"begin": {"approval": {"on_timeout": "go"}}},
        ("rollout_approval.on_timeout: 'go'", "promote"),
    ),
    (
        "a freeze of nobody",
        {"begin": {"freeze": ["xmas"]}},
        ("rollout_freeze[0]:", "from and to", "PR-118"),
    ),
    (
        "a freeze by half",
        {"begin": {"freeze": [{"from": "2026-12-24"}]}},
        ("rollout_freeze[0]", "from", "to"),
    ),
    (
        "a freeze that ends first",
        frozen("2026-12-24", "2026-12-20"),
        ("rollout_freeze[0].to: '2026-12-20'", "not after"),
    ),
    (
        "a freeze in no zone",
        frozen("2026-12-24", "2026-12-26", timezone="Mars"),
        ("rollout_freeze[0].timezone: 'Mars'",),
    ),
    # of gates, each refused when the rollout begins and not when it comes to them
    ("a gate without a driver", gate(url="http://h"), (f"{GATE}.driver:", "PR-102")),
    ("a gate of no driver", gate("prayer"), (f"{GATE}.driver", "'prayer'")),
    (
        "a gate's interval",
        gate("web", url="http://h", interval=0),
        (f"{GATE}.interval: 0", "least"),
    ),
    (
        "a gate's timeout",
        gate("web", url="http://h", timeout="never"),
        (f"{GATE}.timeout: 'never'", "duration"),
    ),
    (
        "a gate's error",
        gate("web", url="http://h", on_error="retry"),
        (f"{GATE}.on_error: 'retry'", "ignore"),
    ),
    ("a pause without end", gate("pause"), (GATE, "duration")),
    ("a pause that is none", gate("pause", duration="soon"), (f"{GATE}.duration: 'soon'", "10m")),
    (
        "an approval somewhere",
        gate("approval", file="ok"),
        (f"{GATE}.file: 'ok'", "begin it with /"),
    ),
    ("a hook nowhere", gate("web", url="shop/ok"), (f"{GATE}.url:", "https://host/path")),
    ("a hook of a password", gate("web", url="http://ann:pw@h"), (f"{GATE}.url:", "header")),
    (
        "a hook that is asked for ever",
        gate("web", url="http://h", retries=99),
        (f"{GATE}.retries: 99", "10"),
    ),
    # what is measured
    (
        "metrics that are none",
        gate("analysis", metrics="errors"),
        (f"{GATE}.metrics:", "list", "[{name: errors}]"),
    ),
    ("a metric without a name", metric(name=None), (f"{METRIC}.name", "PR-102")),
    ("a metric of no judge", metric(judge="me"), (f"{METRIC}.judge: 'me'", "kayenta")),
    ("a metric of no driver", metric(driver="stars"), (f"{METRIC}.driver", "'stars'")),
    ("a misspelt key of a metric", metric(interva="1s"), (f"{METRIC}.interva:", ".interval?")),
    (
        "a condition of another language",
        metric(success_condition="result > 1 && true"),
        (f"{METRIC}.success_condition:", "`and`"),
    ),
    (
        "Prometheus nowhere",
        metric(driver="prometheus", query="up"),
        (METRIC, "required", "address"),
    ),
    (
        "Prometheus without a question",
        asked(),
        (f"{METRIC}:", "no query", "errors and requests"),
    ),
    (
        "Prometheus asked half",
        asked(errors="up"),
        (f"{METRIC}:", "has errors", "errors and requests"),
    ),
    (
        "Prometheus by a misspelt word",
        asked(query='up{a="{revison}"}'),
        (f"{METRIC}.query:", "'{revison}'", "{revision}"),
    ),
    (
        "Prometheus by half a name",
        asked(query="up", username="ann"),
        (f"{METRIC}.username:", "password"),
    ),
    (
        "Prometheus known by nobody",
        asked(query="up", ca_path="/no/such"),
        (f"{METRIC}.ca_path: '/no/such'", "can be read"),
    ),
    (
        "a path of another language",
        metric(driver="web", url="http://h", path="$..x"),
        (f"{METRIC}.path: '$..x'", "data.items[0]"),
    ),
    (
        "a metric's command in a line",
        metric(driver="command", command="/bin/true now"),
        (f"{METRIC}.command", "list"),
    ),
    (
        "a hook's header",
        gate("web", url="http://h", headers={"X Y": "1"}),
        (f"{GATE}.headers: 'X Y'",),
    ),
    (
        "a hook signs nothing",
        gate("web", url="http://h", secret="k", method="GET"),
        (f"{GATE}.secret:", "POST"),
    ),
    (
        "a hook without authorities",
        gate("web", url="http://h", ca_path="/no/such"),
        (f"{GATE}.ca_path: '/no/such'",),
    ),
    ("a command as text", gate("command", command="/bin/true now"), (f"{GATE}.command:", "list")),
    (
        "a command of no port",
        gate("command", command=["true", "{port}"]),
        (f"{GATE}.command:", "'{port}'", "{revision}"),
    ),
    (
        "a command nowhere",
        gate("command", command=["true"], host="mars"),
        (f"{GATE}.host: 'mars'", "inventory"),
    ),
    (
        "a gate of a step",
        {"begin": listed(ONE, {"gate": {"driver": "command", "command": []}})},
        ("PR-125",),
    ),
    (
        "a person's file",
        {"begin": listed(ONE, {"pause": {}}) | {"approval": {"file": "ok"}}},
        ("rollout_approval.file: 'ok'", "begin it with /"),
    ),
    (
        "a gate that is only planned",
        {"plan": {"gates": {"rollback": [{"driver": "web", "url": "x"}]}}},
        ("rollout_gates.rollback[0].url:", "https://"),
    ),
    # of single steps and of the operator's word
    ("a gate as text", {"gate": {"gate": "web"}}, ("rollout_gate:", "str", "mapping")),
    ("no gate", {"gate": {}}, ("PR-102",)),
    (
        "a hook of a step",
        {"gate": {"gate": {"driver": "web", "url": "x"}}},
        ("rollout_gate.url:", "https://"),
    ),
    (
        "a label of two lines",
        {"gate": {"gate": {"driver": "pause", "duration": 1}, "label": "a\nb"}},
        ("rollout_label: 'a\\nb'",),
    ),
    ("a share of 0", {"traffic": {"share": 0}}, ("rollout_share: 0", "at least 1")),
    (
        "a share of more than all",
        {"traffic": {"share": 101}},
        ("rollout_share: 101", "at most 100"),
    ),
    ("back to nowhere", {"rollback": {"to": "../1"}}, ("rollout_to: '../1'", "letters")),
    ("no word", {"control": {}}, ("rollout_command:", "pause", "PR-102")),
    (
        "an unknown word",
        {"control": {"command": "stop"}},
        ("rollout_command: 'stop'", "pause", "hold"),
    ),
    (
        "a word as a list",
        {"control": {"command": ["abort"]}},
        ("rollout_command: ['abort']", "PR-119"),
    ),
    (
        "a word that is forced",
        {"control": {"command": "abort", "force": True}},
        ("rollout_force:", "only promote", "abort"),
    ),
    (
        "force neither",
        {"control": {"command": "promote", "force": "much"}},
        ("rollout_force: 'much'",),
    ),
    (
        "a reason as a list",
        {"control": {"command": "abort", "why": ["a"]}},
        ("rollout_why:", "PR-118"),
    ),
    (
        "a word to nobody",
        {"control": {"command": "abort"}},
        ("cannot abort: shop", "rollback.yml", "PR-700"),
    ),
    ("timeline neither", {"info": {"timeline": "perhaps"}}, ("rollout_timeline: 'perhaps'",)),
]

FAR = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}


@pytest.fixture
def shop() -> Iterator[Tasks]:
    with Tasks(inventory={"far": {"hosts": {"far1": FAR}}}) as made:
        made.variables["rollout_health"] = {"http": "/healthz", "interval": "100ms", "rise": 1}
        yield made


def changed(base: Mapping[str, t.Any], changes: Changes) -> dict[str, t.Any]:
    """Return the variables of a good service with the changes of a case."""
    result = copy.deepcopy(dict(base))
    for key, value in changes.items():
        name, _dot, inner = key.partition(".")
        place = result.setdefault(name, {}) if inner else result
        place[inner or name] = value
        if value is GONE:
            del place[inner or name]
    return result


def refused(shop: Tasks, outcome: Outcome, words: tuple[str, ...]) -> None:
    """Check that a task failed with these words in its message, and touched nothing."""
    assert outcome.rc != 0, "it was accepted"
    message = outcome.failed.msg
    for word in words:
        assert word in message
    assert "PR-900" not in message and "Traceback" not in message
    assert len(message) < 700
    assert shop.files() == set()


@pytest.mark.parametrize(
    ("changes", "words"), [pytest.param(changes, words, id=name) for name, changes, words in CASES]
)
def test_a_variable_is_refused_with_its_value(
    shop: Tasks, changes: Changes, words: tuple[str, ...]
) -> None:
    shop.variables = changed(shop.variables, changes)
    refused(shop, shop.rollout(), words)


@pytest.mark.parametrize(
    ("task", "words"), [pytest.param(task, words, id=name) for name, task, words in STEPS]
)
def test_an_option_is_refused_with_its_value(
    shop: Tasks, task: Changes, words: tuple[str, ...]
) -> None:
    refused(shop, shop.steps(task), words)


# What only shows beside a fleet that runs.


@pytest.fixture
def fleet() -> Iterator[Tasks]:
    with Tasks() as made:
        made.variables["rollout_replicas"] = 2
        assert made.rollout().rc == 0
        yield made


def undisturbed(fleet: Tasks, outcome: Outcome, *words: str) -> None:
    """It ended red, said why, and the fleet is as it was."""
    assert outcome.rc != 0
    for word in words:
        assert word in outcome.failed.msg
    assert fleet.revisions() == ["1", "1"]
    assert "Traceback" not in outcome.output


def test_a_revision_that_runs_already_is_no_error_but_nothing_to_do(fleet: Tasks) -> None:
    before = fleet.journal()
    outcome = fleet.rollout()
    assert outcome.rc == 0 and not any(task.changed for task in outcome.tasks)
    assert "shop 1 already runs with 2 instance(s); nothing to do" in outcome.output
    assert fleet.journal() == before


def test_a_lease_of_somebody_else_is_respected(fleet: Tasks) -> None:
    lease = {"token": "theirs", "holder": "ann@elsewhere pid 7", "ttl": 600, "details": {}}
    place = {"path": str(fleet.store), "service": "shop", "where": "the controller"}
    store_agent.main({**place, "op": "acquire", **lease})
    held = ("lease is held by ann@elsewhere pid 7", "since 20", "until ", "wait")
    undisturbed(fleet, fleet.rollout(rollout_revision="2"), "service shop", *held)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (
            {"health": {"revision": "9", "replicas": 2, "progress_deadline": "1s"}},
            ("0 of 2 instances of 9", "no others", "PR-616"),
        ),
        ({"scale": {"replicas": 1000}}, ("rollout_replicas 1000", "rollout_platform.ports")),
        ({"traffic": {"share": 20}}, ("rollout_share", "no rollout of shop", "PR-611")),
        (
            {"rollback": {"to": "7"}},
            ("rollout_to:", "'7'", "never promoted", "known revisions: 1", "PR-609"),
        ),
    ],
)
def test_what_does_not_fit_the_fleet_is_refused(
    fleet: Tasks, task: Changes, words: tuple[str, ...]
) -> None:
    undisturbed(fleet, fleet.steps(task), *words)


def test_a_damaged_journal_is_not_guessed_at(fleet: Tasks) -> None:
    path = fleet.store / "journal" / "shop.json"
    path.write_text(path.read_text()[:40])
    refused = fleet.rollout(rollout_revision="2")
    undisturbed(fleet, refused, str(path), "is damaged", "restore it")


def test_more_instances_than_a_load_balancer_has_room_for_are_refused() -> None:
    class Prepared(Traffic):
        def capacity(self) -> dict[str, int]:
            return {"lb1": 3}

    class Small(World):
        def traffic(self) -> TrafficDriver:
            return Prepared(self)

    shop = Service(Small(fewest=0), replicas=3)
    has, needs = "lb1 has servers for 3 instances", "rollout_replicas 3 with a surge of 1 needs 4"
    with pytest.raises(InputError, match=f"rollout_traffic: load balancer {has}, but {needs}"):
        shop.play(revision="1")
    assert not shop.running
