# SPDX-License-Identifier: GPL-3.0-or-later
"""A small Docker Swarm in memory: as much of the Engine API as the agent uses."""

from __future__ import annotations

import copy
import itertools
import json
import typing as t
import urllib.parse
from collections.abc import Callable, Mapping, Sequence

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _http
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import swarm as agent
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote import agents
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.agents import Answer

Object = dict[str, t.Any]
Said = tuple[int, t.Any]
SEQUENCE = {"message": "rpc error: code = Unknown desc = update out of sequence"}
STAMP = "2026-11-22T17:03:39.30710359{:d}Z"


class Server:
    """One swarm with three nodes; instances run as soon as their services exist."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Object]] = {"services": {}, "configs": {}, "secrets": {}}
        self.tasks: list[Object] = []
        self.nodes = {f"n{number}": node(number) for number in (1, 2, 3)}
        self.quicker = 0  # changes of others, each just before the next update
        self.images: dict[str, str] = {}  # digests that the registry knows
        self.oldest = "1.12"  # version of the API that it knows
        self.headers: list[Mapping[str, str]] = []
        self.starts: Callable[[Object], str] = lambda spec: "running"
        self._versions = itertools.count(1)

    def ask(
        self,
        address: str,
        method: str,
        path: str,
        body: t.Any = None,
        headers: Sequence[tuple[str, str]] = (),
        seconds: float = 10.0,
    ) -> Said:
        """In place of `_http.ask`."""
        self.headers.append(dict(headers))
        if path == "/version":
            return 200, {"MinAPIVersion": self.oldest}
        begin, _slash, rest_of_path = path[1:].partition("/")
        assert begin == ("v1.44" if self.oldest == "1.44" else "v1.40")
        where, _mark, query = rest_of_path.partition("?")
        kind, *rest = where.split("/")
        given = {key: value for key, (value, *_more) in urllib.parse.parse_qs(query).items()}
        found = self._answer(method, kind, rest, body, given)
        self._run()
        return json.loads(json.dumps(found))[0], json.loads(json.dumps(found[1]))

    def _answer(
        self, method: str, kind: str, rest: list[str], body: t.Any, query: Mapping[str, str]
    ) -> Said:
        if kind == "info":
            cluster = {"ID": "the swarm"}
            return 200, {"Swarm": {"ControlAvailable": True, "Cluster": cluster}}
        if kind == "nodes":
            return 200, list(self.nodes.values())
        if kind == "networks":
            return 200, [{"Name": "backend", "Id": "net1"}]
        if kind == "tasks":
            return 200, self._tasks(query)
        if kind == "distribution":
            digest = self.images.get("/".join(rest[:-1]))
            return (200, {"Descriptor": {"digest": digest}}) if digest else (500, {"message": "no"})
        return self._object(method, self.objects[kind], rest, body, query)

    def _object(
        self, method: str, there: dict[str, Object], rest: list[str], body: t.Any, query: t.Any
    ) -> Said:
        if not rest:
            (key, value), *_none = [*_filters(query).items(), ("", "")]
            return 200, [one for one in there.values() if not key or _labels(one).get(key) == value]
        if rest == ["create"]:
            if body["Name"] in there:
                return 409, {"message": f"{body['Name']} already exists"}
            there[body["Name"]] = self._made(body)
            return 201, {"ID": body["Name"]}
        one = next(
            (one for one in there.values() if rest[0] in (one["ID"], one["Spec"]["Name"])), None
        )
        if one is None:
            return 404, {"message": f"{rest[0]} not found"}
        if method == "GET":
            return 200, one
        if method == "DELETE":
            del there[one["Spec"]["Name"]]
            return 200, None
        if self.quicker:
            self.quicker -= 1
            one["Version"]["Index"] = next(self._versions)
        if int(query["version"]) != one["Version"]["Index"]:
            return 500, SEQUENCE
        one["Spec"], one["Version"]["Index"] = body, next(self._versions)
        return 200, None

    def _made(self, spec: Object) -> Object:
        number = next(self._versions)
        return {
            "ID": f"id{number}",
            "Version": {"Index": number},
            "CreatedAt": STAMP.format(number % 10),
            "Spec": copy.deepcopy(spec),
        }

    def _tasks(self, query: Mapping[str, str]) -> list[Object]:
        (key, value), *_none = _filters(query).items()
        mine = {
            one["ID"] for one in self.objects["services"].values() if _labels(one).get(key) == value
        }
        return [one for one in self.tasks if one["ServiceID"] in mine]

    def _run(self) -> None:
        """As the orchestrator does: each service has the tasks that it is to have."""
        services = {one["ID"]: one for one in self.objects["services"].values()}
        self.tasks = [
            one
            for one in self.tasks
            if one["ServiceID"] in services and _replicas(services[one["ServiceID"]])
        ]
        for name, one in services.items():
            if _replicas(one) and not any(task["ServiceID"] == name for task in self.tasks):
                self.task(name, self.starts(one["Spec"]))

    def task(self, service: str, state: str, desired: str = "running", **more: t.Any) -> Object:
        """Add a task of a service, the latest one."""
        number = next(self._versions)
        port = {"TargetPort": 8080, "PublishedPort": 32768 + number, "Protocol": "tcp"}
        status = {"State": state, "Timestamp": STAMP.format(number % 10)}
        if state == "running":
            status["PortStatus"] = {"Ports": [port]}  # type: ignore[assignment]
        made = {
            "ID": f"task{number}",
            "ServiceID": service,
            "CreatedAt": f"2026-11-22T17:04:{number % 60:02}.5Z",
            "Status": {**status, **more.pop("status", {})},
            "DesiredState": desired,
            "NodeID": f"n{1 + number % 3}",
            **more,
        }
        self.tasks.append(made)
        return made


def node(number: int) -> Object:
    """A manager, as the API shows it."""
    return {
        "ID": f"n{number}",
        "Description": {"Hostname": f"manager{number}"},
        "Status": {"State": "ready", "Addr": f"198.19.0.{number}"},
        "ManagerStatus": {"Addr": f"198.19.0.{number}:2377"},
    }


def _filters(query: Mapping[str, str]) -> dict[str, str]:
    labels = json.loads(query.get("filters", "{}")).get("label", [])
    return {key: value for key, _sign, value in (one.partition("=") for one in labels)}


def _labels(one: Object) -> Mapping[str, str]:
    found: Mapping[str, str] = one["Spec"].get("Labels") or {}
    return found


def _replicas(one: Object) -> int:
    return int(one["Spec"]["Mode"]["Replicated"]["Replicas"])


class Managers:
    """In place of a transport: hosts that are managers of one swarm, some of which do not answer."""

    def __init__(self, server: Server, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.names = names or ("m1", "m2", "m3")
        self.away: dict[str, Answer] = {}  # by host, what comes instead of an answer
        self.asked: list[str] = []
        self.said: list[str] = []
        self.print_line = self.said.append
        monkeypatch.setattr(_http, "ask", server.ask)

    def hosts(self, pattern: str) -> list[str]:
        return list(self.names)

    def ask(
        self,
        name: str,
        requests: Mapping[str, Mapping[str, t.Any]],
        timeout: float,
        wait_limits: Mapping[str, float] | None = None,
    ) -> dict[str, Answer]:
        assert name == "swarm"
        self.asked += requests
        return {
            host: self.away.get(host) or agents.run_here(agent, agents.plain(request))
            for host, request in requests.items()
        }
