# SPDX-License-Identifier: GPL-3.0-or-later
"""`rollout_health` at real load balancers: TLS to instances, certificates, another port, a text in
the answer.

A whole rollout of a service that speaks TLS is in tests/e2e/test_tls.py.
"""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import typing as t
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import envoy as envoy_agent
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import (
    haproxy as haproxy_agent,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    TrafficError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.health.spec import parse
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces import loader
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import (
    Target,
    TrafficDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.agents import Answer
from ansible_collections.progressive.rollout.tests.support.contexts import Knows
from ansible_collections.progressive.rollout.tests.support.ports import free_port
from ansible_collections.progressive.rollout.tests.support.shop import BehindEnvoy, BehindHAProxy
from ansible_collections.progressive.rollout.tests.support.waiting import until
from ansible_collections.progressive.rollout.tests.support.web import certificate

IN, OUT = Rotation.IN, Rotation.OUT
# HAProxy gives a check's connection, TLS included, the time between two checks, and a busy machine
# may need more than a few milliseconds.
CHECK = {"http": "/healthz", "interval": "250ms", "fall": 5}
TLS = {**CHECK, "tls": True, "headers": {"Host": "shop"}}
AGENTS = {"haproxy": haproxy_agent, "envoy": envoy_agent}
Given = Mapping[str, t.Any]


class Here:
    """A transport whose only host is the controller."""

    def hosts(self, pattern: str) -> list[str]:
        return []

    def ask(
        self, name: str, requests: Mapping[str, Mapping[str, t.Any]], timeout: float
    ) -> dict[str, Answer]:
        return {
            host: Answer(AGENTS[name].main(dict(request))) for host, request in requests.items()
        }


def both(paths: tuple[Path, Path], file: Path) -> str:
    """A certificate and its key in one file."""
    file.write_text("".join(path.read_text() for path in paths))
    return str(file)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of the service, and of something else; each is its own CA."""
    home = tmp_path_factory.mktemp("certificates")
    home.chmod(0o755)
    return {
        name: both(certificate(home, name), home / f"{name}.both") for name in ("shop", "other")
    }


@pytest.fixture
def start() -> Iterator[Callable[..., Endpoint]]:
    running: list[subprocess.Popen[bytes]] = []

    def begin(tls: str = "", endpoint: Endpoint | None = None) -> Endpoint:
        endpoint = endpoint or Endpoint("127.0.0.1", free_port())
        argv = [sys.executable, "-I", "-S", str(Path(__file__).with_name("backend.py"))]
        argv += [endpoint.address, str(endpoint.port), "a", *([tls] if tls else [])]
        running.append(subprocess.Popen(argv))
        until(lambda: listens(endpoint))
        return endpoint

    yield begin
    for one in running:
        one.kill()
        one.wait()


def listens(endpoint: Endpoint) -> bool:
    try:
        socket.create_connection((endpoint.address, endpoint.port), 5).close()
    except OSError:
        return False
    return True


class Plane:
    """A load balancer, with both CAs in its reach."""

    def __init__(self, name: str, certificates: Mapping[str, str]) -> None:
        self.name, self.certificates = name, certificates
        known = "".join(
            f"    server ca{n} 127.0.0.1:1 disabled ssl verify required ca-file {path}\n"
            for n, path in enumerate(certificates.values())
        )
        self.front = BehindHAProxy(known) if name == "haproxy" else BehindEnvoy()

    def driver(self, health: Given, **options: t.Any) -> TrafficDriver:
        given = {
            name: value
            for name, value in {**self.front.traffic, **options}.items()
            if name != "driver"
        }
        module = loader.load(TrafficDriver, self.name, "rollout_traffic")
        return module.driver(
            module.check(given, "rollout_traffic"),
            DriverContext("shop", t.cast(t.Any, Here()), parse(health), known=Knows(epoch=1)),
        )

    def add(self, driver: TrafficDriver, endpoint: Endpoint) -> None:
        driver.check()
        driver.apply(dict.fromkeys(driver.observe(), {endpoint: Target(OUT, name="shop-1")}))

    def healthy(self, driver: TrafficDriver, endpoint: Endpoint) -> bool:
        return all(servers[endpoint].lb_healthy for servers in driver.observe().values())

    def failed(self) -> bool:
        """Whether the balancer's own check of the only instance has failed by now."""
        if isinstance(self.front, BehindHAProxy):
            return any(
                row in self.front.ask("show stat shop 4 -1")
                for row in (",L4CON,", ",L6RSP,", ",L6TOUT,", ",L7RSP,")
            )
        stats = json.loads(
            self.front.get("/stats?format=json&filter=^cluster.shop.health_check.failure$")
        )["stats"]
        return sum(int(one.get("value", 0)) for one in stats) > 0

    def admit(self, driver: TrafficDriver, endpoint: Endpoint) -> None:
        until(lambda: self.healthy(driver, endpoint))
        driver.apply(dict.fromkeys(driver.observe(), {endpoint: Target(IN, name="shop-1")}))

    def answers(self) -> tuple[int, str]:
        host, _colon, port = self.front.url.removeprefix("http://").rstrip("/").rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=10)
        try:
            connection.request("GET", "/")
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


@pytest.fixture(params=sorted(AGENTS))
def plane(request: pytest.FixtureRequest, certificates: Mapping[str, str]) -> Iterator[Plane]:
    made = Plane(request.param, certificates)
    yield made
    made.front.close()


def test_instances_that_speak_tls_are_checked_and_get_requests(
    plane: Plane, certificates: Mapping[str, str], start: Callable[..., Endpoint]
) -> None:
    a = start(certificates["shop"])
    driver = plane.driver(TLS, ca_path=certificates["shop"])
    plane.add(driver, a)
    plane.admit(driver, a)
    assert [plane.answers() for _request in range(20)] == [(200, "a")] * 20


def test_a_certificate_need_not_be_valid(
    plane: Plane, certificates: Mapping[str, str], start: Callable[..., Endpoint]
) -> None:
    a = start(certificates["other"])
    driver = plane.driver({**CHECK, "tls": True, "validate_certs": False})
    plane.add(driver, a)
    plane.admit(driver, a)
    assert plane.answers() == (200, "a")


@pytest.mark.parametrize("wrong", ["ca", "name", "plain"])
def test_what_is_not_the_service_is_not_healthy(
    plane: Plane, certificates: Mapping[str, str], start: Callable[..., Endpoint], wrong: str
) -> None:
    a = start({"ca": certificates["other"], "name": certificates["shop"], "plain": ""}[wrong])
    host = "cart" if wrong == "name" else "shop"
    driver = plane.driver({**TLS, "headers": {"Host": host}}, ca_path=certificates["shop"])
    plane.add(driver, a)
    until(plane.failed)
    assert not plane.healthy(driver, a)
    with pytest.raises(TrafficError):
        driver.apply(dict.fromkeys(driver.observe(), {a: Target(IN, name="shop-1")}))


def test_another_port_is_checked_with_tls_and_requests_go_to_the_own_one_without(
    plane: Plane, certificates: Mapping[str, str], start: Callable[..., Endpoint]
) -> None:
    a, health = start(), start(certificates["shop"])
    driver = plane.driver({**TLS, "port": health.port}, ca_path=certificates["shop"])
    plane.add(driver, a)
    plane.admit(driver, a)
    assert plane.answers() == (200, "a")


def test_another_port_is_checked_without_tls(plane: Plane, start: Callable[..., Endpoint]) -> None:
    a, health = start(), start()
    driver = plane.driver({**CHECK, "port": health.port})
    plane.add(driver, a)
    plane.admit(driver, a)
    assert plane.answers() == (200, "a")


@pytest.mark.parametrize(("text", "healthy"), [("a", True), ("b", False)])
def test_envoy_looks_for_a_text(
    certificates: Mapping[str, str], start: Callable[..., Endpoint], text: str, healthy: bool
) -> None:
    plane = Plane("envoy", certificates)
    try:
        a = start()
        driver = plane.driver({**CHECK, "body": text})
        plane.add(driver, a)
        if healthy:
            plane.admit(driver, a)
        else:
            until(plane.failed)
            assert not plane.healthy(driver, a)
    finally:
        plane.front.close()


@pytest.mark.parametrize(
    ("health", "words", "id"),
    [
        ({"tcp": True, "tls": True}, "rollout_health.validate_certs: ", "PR-310"),
        ({**CHECK, "tls": True}, "rollout_health.validate_certs: ", "PR-310"),
        ({**TLS, "headers": {"Host": "a;b c"}}, "rollout_health.headers.Host: 'a;b c'", "PR-310"),
    ],
)
def test_a_certificate_without_a_name_is_refused(
    plane: Plane, health: Given, words: str, id: str
) -> None:
    with pytest.raises(InputError) as refused:
        plane.driver(health, ca_path=plane.certificates["shop"])
    assert str(refused.value).startswith(words) and refused.value.id == id


def test_envoy_needs_a_ca(certificates: Mapping[str, str]) -> None:
    plane = Plane("envoy", certificates)
    try:
        with pytest.raises(InputError, match=r"^rollout_traffic\.ca_path: ") as refused:
            plane.driver(TLS)
        assert refused.value.id == "PR-102"
    finally:
        plane.front.close()
