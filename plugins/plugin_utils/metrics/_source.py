# SPDX-License-Identifier: GPL-3.0-or-later
"""A web service that answers with JSON.

It is asked once for each measurement, since another follows anyway.
"""

from __future__ import annotations

import json
import typing as t
from collections.abc import Collection, Mapping

from ..base.errors import InputError, MetricError
from ..inputs.options import FLAG, TEXT, Field, Kind, Options, duration
from ..remote import http_client

OPTIONS = Options(
    Field(
        "headers",
        Kind("dict", http_client.headers),
        "Request headers.",
        default={},
        no_log=True,
    ),
    Field("answer_within", duration(0.01), "How long an answer may take.", default="10s"),
    Field("validate_certs", FLAG, "Whether the certificate must be valid.", default=True),
    Field(
        "ca_path",
        TEXT,
        "File on the controller with the CA certificates that the certificate is verified against.",
    ),
    Field("client_cert", TEXT, "File on the controller with a client certificate."),
    Field(
        "client_key",
        TEXT,
        "File on the controller with its key, unless C(client_cert) contains it.",
    ),
)

_MOST = 1024 * 1024  # bytes of an answer


class Source:
    """Asks a web service. Of its answers neither `secrets` nor the values of headers are shown."""

    def __init__(
        self,
        options: Mapping[str, t.Any],
        more: Mapping[str, str] | None = None,
        secrets: Collection[str] = (),
    ) -> None:
        headers = {**options["headers"], **(more or {})}
        self.timeout = options["answer_within"]
        self.client = http_client.Client(
            timeout=self.timeout,
            retries=0,
            headers=headers,
            secrets=[*headers.values(), *secrets],
            verify=http_client.verify(options["validate_certs"], options["ca_path"], "metric"),
            certificate=_certificate(options["client_cert"], options["client_key"]),
            most=_MOST,
            variable="metric.url",
            error=MetricError,
            id="PR-425",
        )

    def ask(
        self, method: str, address: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[t.Any, Mapping[str, str]]:
        """Return the answer, a JSON document, and its headers. Raises MetricError."""
        reply = self.client.ask(method, address, body, headers)
        if not 200 <= reply.status < 300:
            raise MetricError(f"{method} {http_client.origin(address)} returned {reply}", "PR-425")
        if len(reply.body) > _MOST:
            raise MetricError(f"{http_client.origin(address)}: response exceeds 1 MiB", "PR-425")
        try:
            return json.loads(reply.body), reply.headers
        except (ValueError, RecursionError):
            raise MetricError(
                f"{http_client.origin(address)}: response is not JSON: {reply.text or 'empty'}",
                "PR-425",
            ) from None


def _certificate(certificate: str | None, key: str | None) -> tuple[str, str] | None:
    """Return the files of a client certificate and its key, which may be the same."""
    if key and not certificate:
        raise InputError(f"metric.client_key: {key!r} needs client_cert as well", "PR-107")
    if not certificate:
        return None
    http_client.file(certificate, "metric.client_cert")
    return certificate, http_client.file(key, "metric.client_key") if key else certificate
