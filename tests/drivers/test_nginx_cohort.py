# SPDX-License-Identifier: GPL-3.0-or-later
"""nginx with clients that stay on their side."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterator, Mapping, Sequence

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _nginx_config
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import TrafficError
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic.nginx import Driver
from ansible_collections.progressive.rollout.tests.drivers import test_nginx
from ansible_collections.progressive.rollout.tests.drivers.cohort_contract import (
    CohortContract,
    Sides,
    sides,
)
from ansible_collections.progressive.rollout.tests.drivers.traffic_contract import (
    Backends,
    Client,
    TrafficContract,
    apply,
)
from ansible_collections.progressive.rollout.tests.support import nginx as lab

USER: Mapping[str, t.Any] = {"cookie": "user"}


class Plane(test_nginx.Plane):
    added = lab.COHORT_PLACEHOLDER  # as the guide says

    def driver(self, *args: t.Any, **options: t.Any) -> Driver:
        cohort = {} if options.get("upstream") == "cart" else {"cohort": USER}
        return super().driver(*args, **(cohort | options))

    def wrong(self) -> Sequence[tuple[Mapping[str, t.Any], str]]:
        return [
            ({"cohort": {"cookie": "user", "header": "x"}}, "is not one cookie or header"),
            ({"cohort": {"query": "user"}}, "is not one cookie or header"),
            ({"cohort": {"cookie": "a;b"}}, "rollout_traffic.cohort.cookie: 'a;b'"),
            ({"cohort": {"cookie": "a-b"}}, "rollout_traffic.cohort.cookie: 'a-b': nginx has no"),
        ]


@pytest.fixture
def plane() -> Iterator[Plane]:
    nginxes: list[t.Any] = []
    try:
        nginxes.extend(
            lab.Nginx(proxy=lab.COHORT_PROXY, more=lab.COHORT_PLACEHOLDER) for _n in range(2)
        )
        yield Plane(nginxes)
    finally:
        for nginx in nginxes:
            nginx.close()


class TestContract(TrafficContract):
    pool_of_shop: t.ClassVar = {"upstream": "shop"}
    counts = False
    # it has no preview
    test_a_dark_set_can_be_looked_at = test_an_older_lease_is_refused_at_the_preview_as_well = None

    @pytest.fixture
    def plane(self, plane: Plane) -> Plane:
        return plane


class TestCohorts(CohortContract):
    pass


def test_clients_of_a_side_that_is_gone_get_the_other(plane: Plane, backends: Backends) -> None:
    for nginx in plane.nginxes.values():
        nginx.config.write_text(nginx.config.read_text().replace("proxy_next_upstream off;", ""))
    fleet = Sides(plane, backends)
    apply(fleet.driver, fleet.targets(1, 1))
    for endpoint in fleet.new:
        backends.kill(endpoint)
    clients = [Client(plane.fronts[0], f"user={n}") for n in range(40)]
    assert set(sides(clients)) == {"old"}


def test_a_header_can_identify_a_client(plane: Plane, backends: Backends) -> None:
    fleet = Sides(plane, backends)
    apply(plane.driver(cohort={"header": "X-User"}), fleet.targets(1, 1))
    assert "$http_x_user" in (plane.nginxes["edge1"].path / "shop.conf").read_text()


def test_a_configuration_that_does_not_use_the_variable_is_refused() -> None:
    nginxes = [lab.Nginx() for _n in range(2)]
    try:
        with pytest.raises(Exception, match=r"write `proxy_pass http://\$rollout_shop;`"):
            Plane(nginxes).driver().check()
    finally:
        for nginx in nginxes:
            nginx.close()


def test_two_upstreams_with_one_variable_are_refused(plane: Plane) -> None:
    """nginx would send all clients of one to the other, and does not even warn."""
    down = "{ server 127.0.0.1:9 down; }\n# http://$rollout_my_shop\n"
    for nginx in plane.nginxes.values():
        (nginx.path / "my-shop.conf").write_text(f"upstream my-shop {down}")
    driver = plane.driver(upstream="my-shop")
    driver.check()
    other = plane.nginxes["edge1"].path / "my_shop.conf"
    other.write_text(f'upstream my_shop {down}split_clients "" $rollout_my_shop {{ * my_shop; }}\n')
    with pytest.raises(TrafficError, match="upstream my_shop has the same variable") as refused:
        driver.check()
    assert refused.value.id == "PR-304"
    other.write_text(f"upstream my_shop {down}")
    driver.check()


def test_no_upstream_has_a_variable_of_another_kind() -> None:
    cohort = {"key": "cookie_user", "share": 5000}
    for upstream, other in (("shop", "shop_client"), ("0", "1"), ("client_shop", "shop")):
        request = {"upstream": upstream, "cohort": cohort, "status": ("127.0.0.1", 1), "fall": 1}
        text = _nginx_config.render(request, [])
        made = set(re.findall(r"(?:map \S+|split_clients \S+|set) (\$\w+)", text))
        assert f"${_nginx_config.variable(upstream)}" in made
        assert f"${_nginx_config.variable(other)}" not in made
