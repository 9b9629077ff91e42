# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports that other programs have on every host, before anything is touched."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _service
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.tests.drivers.platform_contract import order, started
from ansible_collections.progressive.rollout.tests.drivers.test_process import (
    ADDRESS,
    SLEEP,
    Bench,
    bench,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

__all__ = ["bench"]
OTHER = ADDRESS.rpartition(".")[0] + ".255"  # of a second host


@contextmanager
def listening(*ports: int, addresses: tuple[str, ...] = (ADDRESS,)) -> Iterator[None]:
    """Have another program listen at these ports."""
    with ExitStack() as stack:
        for address in addresses:
            for port in ports:
                stack.enter_context(socket.create_server((address, port)))
        yield


def test_a_port_that_is_taken_on_every_host_is_refused(bench: Bench) -> None:
    driver = bench.driver(SLEEP, ports="20100")
    with listening(20100), pytest.raises(InputError) as refused:
        driver.check()
    assert refused.value.id == "PR-227"
    message = str(refused.value)
    assert message.startswith("rollout_platform.ports: 20100: taken by another program on each of")
    assert "web1, web2" in message and "ss -ltnp" in message
    assert bench.records() == []
    driver.check()  # once it is free


def test_a_range_with_one_free_port_is_accepted(bench: Bench) -> None:
    with listening(20100, 20101):
        bench.driver(SLEEP, ports="20100-20102").check()
        with pytest.raises(InputError, match="20100-20101: all taken by other programs"):
            bench.driver(SLEEP, ports="20100-20101").check()


def test_a_port_that_is_free_on_one_host_is_accepted(bench: Bench) -> None:
    bench.transport.addresses["web2"] = OTHER
    with listening(20100):
        bench.driver(SLEEP, ports="20100").check()
    with listening(20100, addresses=(ADDRESS, OTHER)), pytest.raises(InputError, match="web2"):
        bench.driver(SLEEP, ports="20100").check()


def test_a_port_of_the_instances_of_the_service_is_accepted(bench: Bench, tmp_path: Path) -> None:
    """They give it back, one after the other."""
    server = tmp_path / "server.py"
    server.write_text(
        "import os, socket, time\n"
        "server = socket.create_server((os.environ['ADDRESS'], int(os.environ['PORT'])))\n"
        "time.sleep(1000)\n"
    )
    driver = bench.driver(["python3", str(server)], ports="20100")
    started(driver, order(driver, 1))
    until(lambda: _service.taken(ADDRESS, 20100), "it listens")
    bench.driver(SLEEP, ports="20100").check()
