# SPDX-License-Identifier: GPL-3.0-or-later
"""A web service that gets each notice as a CDEvent, or as rendered by a template.

Without `template` the body is a [CDEvent](https://cdevents.dev) in a
[CloudEvent](https://cloudevents.io) of version 1.0, in structured JSON. With a `secret`, the header
`X-Rollout-Signature` has `sha256=` and the HMAC-SHA256 of the body, in hexadecimal.
`X-Rollout-Notice` has the id of the notice, which stays the same when it is sent again.
"""

from __future__ import annotations

import hmac
import json
import typing as t
from collections.abc import Mapping

from ..inputs.options import TEXT, Field, Kind, Options
from ..interfaces.context import DriverContext
from ..interfaces.notifier import Notice, NotifierDriver
from ..remote import http_client
from . import _web
from ._cdevents import cloud_event

OPTIONS = Options(
    *_web.OPTIONS.fields,
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
    Field(
        "environment",
        TEXT,
        "Name of the environment in CDEvents.",
        default="production",
    ),
)


class Driver(NotifierDriver):
    """Posts CDEvents."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self.timeout = options["answer_within"]
        self._secret, self._environment = options["secret"] or "", options["environment"]
        headers = options["headers"]
        hidden = [*headers.values(), self._secret]
        self._poster = _web.Poster(options, options["url"], headers, hidden)

    def send(self, notice: Notice, text: str) -> None:
        event = cloud_event(notice, self._environment)
        body = text.encode() if text else json.dumps(event).encode()
        headers = {"X-Rollout-Notice": notice.id}
        if not text:
            headers["Content-Type"] = "application/cloudevents+json; charset=utf-8"
        if self._secret:
            digest = hmac.new(self._secret.encode(), body, "sha256").hexdigest()
            headers["X-Rollout-Signature"] = f"sha256={digest}"
        self._poster.post(body, headers)
