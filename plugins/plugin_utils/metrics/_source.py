# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A web service that measurements come from as JSON: asked once for each, since a later one follows anyway."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Collection, Mapping

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError, MetricError
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote import http

OPTIONS: dict[str, t.Any] = {
    "headers": {"type": "dict", "default": {}, "no_log": True},
    "answer_within": {"type": "str", "default": "10s"},
    "validate_certs": {"type": "bool", "default": True},
    "ca_path": {"type": "str"},
    "client_cert": {"type": "str"},
    "client_key": {"type": "str"},
}

_MOST = 1024 * 1024  # bytes of an answer


class Source:
    """Made of checked `OPTIONS`, and of headers beside those. No `secrets` and no headers are shown of an answer."""

    def __init__(
        self, options: Mapping[str, t.Any], more: Mapping[str, str] | None = None, secrets: Collection[str] = ()
    ) -> None:
        headers = {**http.headers(options.get("headers") or {}, "metric.headers"), **(more or {})}
        self.timeout = values.duration(options.get("answer_within") or "10s", "metric.answer_within", minimum=0.01)
        self.client = http.Client(
            timeout=self.timeout,
            retries=0,
            headers=headers,
            secrets=[*headers.values(), *secrets],
            verify=http.verify(options.get("validate_certs", True), options.get("ca_path"), "metric"),
            certificate=_certificate(options.get("client_cert"), options.get("client_key")),
            most=_MOST,
            variable="metric",
            error=MetricError,
        )

    def ask(self, method: str, address: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[t.Any, Mapping[str, str]]:
        """The answer, a JSON document, and the headers it came with. Raises MetricError."""
        reply = self.client.ask(method, address, body, headers)
        if not 200 <= reply.status < 300:
            raise MetricError(f"{http.origin(address)} said {reply}")
        if len(reply.body) > _MOST:
            raise MetricError(f"{http.origin(address)} gave more than 1 MiB; ask for less")
        try:
            return json.loads(reply.body), reply.headers
        except (ValueError, RecursionError):
            raise MetricError(f"{http.origin(address)} gave no JSON: {reply.text or 'nothing'}") from None


def _certificate(certificate: str | None, key: str | None) -> tuple[str, str] | None:
    """A client's certificate and its key, perhaps in the same file."""
    if key and not certificate:
        raise InputError(f"metric.client_key: {key!r} is of no use alone; give client_cert, too")
    if not certificate:
        return None
    http.file(certificate, "metric.client_cert")
    return certificate, http.file(key, "metric.client_key") if key else certificate
