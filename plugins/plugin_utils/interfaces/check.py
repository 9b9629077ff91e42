# SPDX-License-Identifier: GPL-3.0-or-later
"""How an instance is asked whether it is ready: the base class of checks, and `rollout_health`,
parsed.
"""

from __future__ import annotations

import abc
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .driver import BaseDriver
from .platform import Endpoint


@dataclass(frozen=True)
class Probe:
    """The outcome of asking one instance once."""

    passed: bool
    detail: str = ""  # why not, in a few words: "503, expected 200", "connection refused"


@dataclass(frozen=True)
class HttpRequest:
    """A check in the terms of HTTP, for load balancers that check instances themselves."""

    path: str
    statuses: Sequence[range]  # that pass
    host: str = ""  # the Host header; empty: the instance's address
    headers: Mapping[str, str] = field(default_factory=dict)  # without Host
    body: str = ""  # what the body of the answer has to contain


class CheckDriver(BaseDriver):
    """How an instance is asked whether it is ready.

    Pure: the bytes to send, and what the bytes received mean. `health/monitor.py` connects.
    """

    kind = "check"
    folder = "checks"

    server_name: str = ""
    """The name that the certificate of an instance has to be for; empty: its address."""
    enough: bytes = b""
    """Bytes after which an agent on a host may stop reading; empty: it reads to the end."""
    http: HttpRequest | None = None
    """What is asked, if it is a request of HTTP."""

    @abc.abstractmethod
    def __init__(self, options: Mapping[str, t.Any]) -> None:
        """Take checked options, as every driver; a check has no context.

        Messages of an InputError begin with `health.`, whatever the variable is.
        """

    @abc.abstractmethod
    def payload(self, endpoint: Endpoint) -> bytes:
        """Return what to send once connected; empty to send nothing."""

    @abc.abstractmethod
    def judge(self, reply: bytes) -> Probe | None:
        """Return the verdict on the bytes received so far; None while more are needed.

        At the end of the stream it is called once more with all of them. None then is a failure.
        """


class Connect(CheckDriver):
    """Pass as soon as a connection is accepted."""

    def __init__(self, options: Mapping[str, t.Any]) -> None:
        """Take no options."""

    def payload(self, endpoint: Endpoint) -> bytes:
        return b""

    def judge(self, reply: bytes) -> Probe | None:
        return Probe(True)


CONNECT = Connect({})


@dataclass(frozen=True)
class HealthCheck:
    """`rollout_health`, parsed. Times in seconds."""

    # whether the rollout asks instances; if not, an instance that runs is ready
    enabled: bool = False
    check: CheckDriver = CONNECT
    interval: float = 0.5
    timeout: float = 2.0
    rise: int = 2  # passes in a row that make an instance ready
    fall: int = 3  # failures in a row that make it unhealthy
    deadline: float | None = None  # for a new instance to become ready; None: the progress deadline
    port: int = 0  # 0: the instance's own
    from_host: bool = False
    tls: bool = False
    validate_certs: bool = True

    def where(self, endpoint: Endpoint) -> Endpoint:
        """Return where an instance that listens there is checked."""
        return Endpoint(endpoint.address, self.port or endpoint.port)
