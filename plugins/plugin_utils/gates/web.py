# SPDX-License-Identifier: GPL-3.0-or-later
"""A webhook: a rollout passes when a web service answers 2xx.

POST sends JSON, `{"rollout": {...}, "waited": seconds, "sent": seconds since the epoch}`; GET sends
nothing. 409 and 425 are not yet, anything else fails. After a failed connection, a timeout or 5xx
the same request is repeated.

With a `secret`, the header `X-Rollout-Signature` has `sha256=` and the HMAC-SHA256 of the body, in
hexadecimal. The receiver computes it over the bytes received, compares, and refuses a body whose
`sent` is minutes old: since `sent` is signed, a recorded request cannot be replayed later.
`{service}`, `{revision}`, `{previous}` and `{id}` are placeholders in the URL.
"""

from __future__ import annotations

import hmac
import json
import typing as t
from collections.abc import Mapping

from ..base import clock
from ..base.errors import InputError
from ..inputs.options import FLAG, TEXT, Field, Kind, Options, choice, duration, whole
from ..inputs.placeholders import Template
from ..interfaces.context import DriverContext
from ..interfaces.gate import FAIL, PASS, WAIT, Answer, GateDriver
from ..remote import http_client

OPTIONS = Options(
    Field("url", Kind("str", http_client.url), "URL of the web service.", required=True),
    Field("method", choice("POST", "GET"), "HTTP method. V(GET) sends nothing.", default="POST"),
    Field(
        "headers",
        Kind("dict", http_client.headers),
        "Request headers.",
        default={},
        no_log=True,
    ),
    Field(
        "secret",
        TEXT,
        "Key that signs the body. The header C(X-Rollout-Signature) has C(sha256=) and its HMAC.",
        no_log=True,
    ),
    Field("answer_within", duration(0.01), "How long an answer may take.", default="10s"),
    Field(
        "retries",
        whole(0, 10),
        "How many times a request is repeated if it gets no answer, or 5xx.",
        default=http_client.RETRIES,
    ),
    Field("validate_certs", FLAG, "Whether the certificate must be valid.", default=True),
    Field(
        "ca_path",
        TEXT,
        "File on the controller with the CA certificates that the certificate is verified against.",
    ),
)

_NOT_YET = (409, 425)


class Driver(GateDriver):
    """Passes when a web service says so."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._url = Template(options["url"], "gate.url")
        self._method, self._secret = options["method"], options["secret"] or ""
        if self._secret and self._method == "GET":
            raise InputError(
                "gate.secret: GET sends nothing that could be signed; use method POST", "PR-107"
            )
        self._client = http_client.Client(
            timeout=options["answer_within"],
            retries=options["retries"],
            headers=options["headers"],
            secrets=[*options["headers"].values(), self._secret],
            verify=http_client.verify(options["validate_certs"], options["ca_path"], "gate"),
        )

    def ask(self, rollout: Mapping[str, t.Any], waited: float) -> Answer:
        address = self._url.render(rollout, quoted=True)
        body, headers = None, {}
        if self._method == "POST":
            body = json.dumps(
                {
                    "rollout": dict(rollout),
                    "waited": round(waited, 3),
                    "sent": round(clock.wall(), 3),
                }
            ).encode()
            headers["Content-Type"] = "application/json"
            if self._secret:
                headers["X-Rollout-Signature"] = (
                    "sha256=" + hmac.new(self._secret.encode(), body, "sha256").hexdigest()
                )
        reply = self._client.ask(self._method, address, body, headers)
        verdict = PASS if 200 <= reply.status < 300 else WAIT if reply.status in _NOT_YET else FAIL
        return Answer(verdict, str(reply))
