# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A hook: lets a rollout pass when a web service answers 2xx.

It is sent, as JSON, `{"rollout": {...}, "waited": seconds, "sent": seconds since the epoch}`; by GET, nothing. 409 and 425 are
`not yet`, anything else is a no. A connection that fails, no answer in time and 5xx are tried again within the same question.

With a `secret`, the header `X-Rollout-Signature` has `sha256=` and the HMAC-SHA256 of the body as it was sent, in hexadecimal.
The receiver computes it over the bytes it got, compares, and refuses a body whose `sent` is minutes old: since that is a part
of what is signed, a question that somebody recorded cannot be asked again later. `{service}`, `{revision}`, `{previous}` and
`{id}` are filled in in the URL.
"""

from __future__ import annotations

import hmac
import json
import time
import typing as t
from collections.abc import Mapping

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.placeholders import fill
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import Context
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.gate import FAIL, PASS, WAIT, Answer, GateDriver
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote import http

OPTIONS: dict[str, t.Any] = {
    "url": {"type": "str", "required": True},
    "method": {"type": "str", "default": "POST", "choices": ["POST", "GET"]},
    "headers": {"type": "dict", "default": {}, "no_log": True},
    "secret": {"type": "str", "no_log": True},
    "answer_within": {"type": "str", "default": "10s"},
    "retries": {"type": "int", "default": http.RETRIES},
    "validate_certs": {"type": "bool", "default": True},
    "ca_path": {"type": "str"},
}

_NOT_YET = (409, 425)
_MOST = 10  # retries


class Driver(GateDriver):
    """A `drivers.GateDriver`."""

    def __init__(self, options: Mapping[str, t.Any], context: Context) -> None:
        self._url = http.url(options.get("url") or "", "gate.url")
        self._method = options.get("method") or "POST"
        self._secret = _secret(options.get("secret"), self._method)
        headers = http.headers(options.get("headers") or {}, "gate.headers")
        self._client = http.Client(
            timeout=values.duration(options.get("answer_within") or "10s", "gate.answer_within", minimum=0.01),
            retries=_retries(options.get("retries", http.RETRIES)),
            headers=headers,
            secrets=[*headers.values(), self._secret],
            verify=http.verify(options.get("validate_certs", True), options.get("ca_path"), "gate"),
        )

    def ask(self, rollout: Mapping[str, t.Any], waited: float) -> Answer:
        address = fill(self._url, "gate.url", rollout, quoted=True)
        body, headers = None, {}
        if self._method == "POST":
            body = json.dumps({"rollout": dict(rollout), "waited": round(waited, 3), "sent": round(time.time(), 3)}).encode()
            headers["Content-Type"] = "application/json"
            if self._secret:
                headers["X-Rollout-Signature"] = "sha256=" + hmac.new(self._secret.encode(), body, "sha256").hexdigest()
        reply = self._client.ask(self._method, address, body, headers)
        verdict = PASS if 200 <= reply.status < 300 else WAIT if reply.status in _NOT_YET else FAIL
        return Answer(verdict, str(reply))


def _secret(value: str | None, method: str) -> str:
    if value == "":
        raise InputError("gate.secret: it is empty, so nothing would be signed; set it, or leave it out")
    if value and method == "GET":
        raise InputError("gate.secret: a signature is of what is sent, which by GET is nothing; use method POST")
    return value or ""


def _retries(value: t.Any) -> int:
    try:
        return values.whole(value, "gate.retries", 0, maximum=_MOST)
    except InputError:
        raise InputError(f"gate.retries: {values.shown(value)} is not a whole number from 0 to {_MOST}") from None
