# SPDX-License-Identifier: GPL-3.0-or-later
"""A service that speaks TLS is rolled out under load, behind each load balancer, and its
certificate is verified by all.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindEnvoy,
    BehindHAProxy,
    BehindNginx,
    Front,
    Load,
    Shop,
    Watch,
    failures,
)
from ansible_collections.progressive.rollout.tests.support.web import certificate

HEALTH = {
    "http": "/healthz",
    "interval": "500ms",
    "rise": 1,
    "tls": True,
    "headers": {"Host": "shop"},
}


class TrustingHAProxy(BehindHAProxy):
    """It reads CA files from its configuration only."""

    def __init__(self, file: Path) -> None:
        self.file = file
        super().__init__(f"    server ca 127.0.0.1:1 disabled ssl verify required ca-file {file}\n")

    @property
    def traffic(self) -> dict[str, t.Any]:
        return {**super().traffic, "ca_path": str(self.file)}


class TrustingEnvoy(BehindEnvoy):
    def __init__(self, file: Path) -> None:
        self.file = file
        super().__init__()

    @property
    def traffic(self) -> dict[str, t.Any]:
        return {**super().traffic, "ca_path": str(self.file)}


class TrustingNginx(BehindNginx):
    """What it does with instances is in its user's configuration, as docs/how-to/nginx.md has
    it.
    """

    def __init__(self, file: Path) -> None:
        words = (
            "proxy_pass https://shop",
            "proxy_ssl_verify on",
            f"proxy_ssl_trusted_certificate {file}",
            "proxy_ssl_name shop",
        )
        super().__init__(proxy=" ".join(f"{one};" for one in words))


FRONTS: dict[str, Callable[[Path], Front]] = {
    "haproxy": TrustingHAProxy,
    "envoy": TrustingEnvoy,
    "nginx": TrustingNginx,
}


@pytest.fixture
def secured(tmp_path: Path) -> tuple[Path, Path]:
    """The service's certificate, and the same with its key."""
    home = tmp_path
    for folder in (home, *home.parents[:3]):  # balancers' workers are other users
        folder.chmod(0o755)
    public, key = certificate(home, "shop")
    whole = home / "shop.both"
    whole.write_text(public.read_text() + key.read_text())
    return public, whole


@pytest.fixture(params=sorted(FRONTS))
def front(request: pytest.FixtureRequest, secured: tuple[Path, Path]) -> Iterator[Front]:
    made = FRONTS[request.param](secured[0])
    yield made
    made.close()


def test_a_service_that_speaks_tls_is_rolled_out_under_load(
    front: Front, secured: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    # of the controller, which verifies as well
    monkeypatch.setenv("SSL_CERT_FILE", str(secured[0]))
    clients = [("GET", False)] if isinstance(front, BehindNginx) else Load.KINDS
    with Shop(front, env={"TLS_FILE": str(secured[1])}, rollout_health=HEALTH) as shop:
        shop.to("1")
        with Watch(shop, front) as watch, Load(front.url, clients, connections=2) as load:
            outcome = shop.to("2")
            assert outcome.rc == 0, outcome.output
            reports = load.stop()
        assert failures(reports) == []
        assert all(report["by_revision"].keys() == {"1", "2"} for report in reports)
        assert watch.wrong == [] and watch.fewest >= 6 and watch.looks > 0
