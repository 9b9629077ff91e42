# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking instances from a host: the request to its agent `probe`, and what the answer means.
Pure.
"""

from __future__ import annotations

import binascii
import typing as t
from collections.abc import Mapping

from ..interfaces.check import CheckDriver, HealthCheck, Probe
from ..interfaces.platform import Endpoint

LIMIT = 65536  # bytes read of a reply
REACH = 10.0  # seconds a host may take to be reached, beyond the timeout of the checks


def request(health: HealthCheck, endpoints: Mapping[str, Endpoint]) -> dict[str, t.Any]:
    """Return the request that asks these instances, by name."""
    check, targets = health.check, {}
    for name, endpoint in endpoints.items():
        where = health.where(endpoint)
        targets[name] = [where.address, where.port, _encoded(check.payload(where))]
    return {
        "targets": targets,
        "timeout": health.timeout,
        "limit": LIMIT if check.judge(b"") is None else 0,  # being connected may be enough
        "tls": health.tls,
        "validate_certs": health.validate_certs,
        "server_name": check.server_name,
        "enough": _encoded(check.enough),
    }


def _encoded(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def probes(check: CheckDriver, value: Mapping[str, t.Any]) -> dict[str, Probe]:
    """Return the outcomes in the agent's answer, by name. It may have stopped reading early."""
    results = {}
    for name, (encoded, error) in value["replies"].items():
        reply = binascii.a2b_base64(encoded)
        probe = None if error and not reply else judged(check, reply)
        results[name] = probe or ended(len(reply), error)
    return results


def judged(check: CheckDriver, reply: bytes) -> Probe | None:
    """Return the check's verdict on the bytes received so far."""
    try:
        return check.judge(reply)
    # a defect of a driver: without an outcome the instance would stay pending
    except Exception as exc:
        return Probe(False, f"the check cannot read the reply: {type(exc).__name__}: {exc}")


def ended(received: int, error: str) -> Probe:
    """Return the outcome of a conversation that ended without a verdict."""
    if error and not received:
        return Probe(False, error)
    end = error or (
        f"the first {LIMIT // 1024} kB were read"
        if received >= LIMIT
        else "the connection was closed"
    )
    return Probe(False, f"{end}, {received} bytes received without what was expected")
