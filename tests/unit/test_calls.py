# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a platform waits for hosts that do not answer."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms._calls import (
    AGAIN,
    HOST_TIMEOUT,
    Calls,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.agents import Answer

WELL = Answer({"instances": []}, took=0.1)
GONE = Answer(error="connection refused", unreachable=True)


class Found(t.TypedDict):
    """What the agent answers."""

    instances: list[str]


def hung(later: Callable[[], Answer | None]) -> Answer:
    """The answer of a host whose call goes on."""
    return Answer(error="no answer in 5 s", unreachable=True, later=later)


class Hosts:
    """A transport: each host answers as it is told to, and how long it was waited for is kept."""

    def __init__(self) -> None:
        self.answers = {"web1": WELL, "web2": WELL}
        self.wait_limits: dict[str, float] = {}
        self.local: set[str] = set()

    def is_here(self, host: str) -> bool:
        return host in self.local

    def ask(
        self,
        _agent: str,
        requests: Mapping[str, t.Any],
        _timeout: float,
        wait_limits: Mapping[str, float],
    ) -> dict[str, Answer]:
        self.wait_limits = dict(wait_limits)
        return {host: self.answers[host] for host in requests}


@pytest.fixture
def hosts() -> Hosts:
    return Hosts()


@pytest.fixture
def calls(hosts: Hosts) -> Calls:
    return Calls(t.cast(t.Any, hosts), "process", Found)


def look(calls: Calls) -> dict[str, bool]:
    """Which hosts do not answer."""
    answers = calls.ask({"web1": {}, "web2": {}}, False, ["web1", "web2"])
    return {host: answer.unreachable for host, answer in answers.items()}


def test_a_silent_host_is_not_waited_for_until_it_is_retried(hosts: Hosts, calls: Calls) -> None:
    look(calls)
    hosts.answers["web2"] = GONE
    assert look(calls) == {"web1": False, "web2": True}
    assert look(calls) == {"web1": False, "web2": True}
    assert hosts.wait_limits == {"web1": HOST_TIMEOUT, "web2": 0.0}
    calls.retry_silent()
    look(calls)
    assert hosts.wait_limits == {"web1": HOST_TIMEOUT, "web2": AGAIN}


def test_a_retried_host_that_answers_is_trusted_again(hosts: Hosts, calls: Calls) -> None:
    hosts.answers["web2"] = GONE
    look(calls)
    calls.retry_silent()
    hosts.answers["web2"] = WELL
    assert look(calls) == {"web1": False, "web2": False}
    look(calls)
    assert hosts.wait_limits == {"web1": HOST_TIMEOUT, "web2": HOST_TIMEOUT}


def test_a_host_whose_call_goes_on_stays_silent_until_it_answers(
    hosts: Hosts, calls: Calls
) -> None:
    """Without its call it would count as at work, or be given another command."""
    late: list[Answer] = []
    hosts.answers["web2"] = hung(lambda: late.pop() if late else None)
    look(calls)
    calls.retry_silent()
    assert look(calls) == {"web1": False, "web2": True}
    assert "web2" not in hosts.wait_limits, "it is not asked while its call goes on"
    late.append(WELL)
    assert look(calls) == {"web1": False, "web2": False}


def test_few_hosts_wait_for_the_end_of_instances_so_that_the_others_can_work(
    hosts: Hosts, calls: Calls
) -> None:
    names = [f"web{number}" for number in range(1, 4)]
    assert calls.free_to_wait(names, 12) == [], "nothing is known of them yet"
    hosts.answers["web3"] = WELL
    calls.ask(dict.fromkeys(names, {}), False, names)
    assert calls.free_to_wait(names, 12) == names
    assert calls.free_to_wait(names, 8) == names[:2]
    assert calls.free_to_wait(names, 3) == []
    hosts.local = {"web1"}
    assert calls.free_to_wait(names, 12) == names[1:], "here, asking again is cheaper"
    hosts.answers["web2"] = GONE
    look(calls)
    assert calls.free_to_wait(names, 12) == names[2:]
    hosts.answers["web3"] = hung(lambda: None)
    answers = calls.ask({"web3": {"wait": 0.5}}, True, names)
    assert hosts.wait_limits["web3"] < 0, "nobody waits for it"
    assert "web3" not in answers and calls.at_work == {"web3"}
    assert calls.free_to_wait(names, 4) == []
    assert not calls.answered_late
