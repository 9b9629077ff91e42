# SPDX-License-Identifier: GPL-3.0-or-later
"""What all notifiers have in common that post JSON to a web service."""

from __future__ import annotations

import json
import re
import typing as t
from collections.abc import Mapping

from ..base.errors import NotifyError
from ..inputs.options import FLAG, TEXT, Field, Kind, Options, duration
from ..interfaces.notifier import Notice
from ..remote import http_client

_AGAIN = (408, 425, 429)  # and 5xx: the receiver may take the same request later

COMMON = Options(
    Field("answer_within", duration(0.01), "How long an attempt may take.", default="10s"),
)
HTTP = Options(
    Field("validate_certs", FLAG, "Whether the certificate must be valid.", default=True),
    Field(
        "ca_path",
        TEXT,
        "File on the controller with the CA certificates that the certificate is verified against.",
    ),
    *COMMON.fields,
)


def _url(value: t.Any, variable: str) -> str:
    return http_client.url(value, variable, ())


URL = Kind("str", _url)
OPTIONS = Options(
    Field("url", URL, "URL of the webhook. It is a secret.", required=True, no_log=True),
    *HTTP.fields,
)


class Poster:
    """Posts to one URL, once; what is repeated is decided by the caller."""

    def __init__(
        self,
        options: Mapping[str, t.Any],
        url: str,
        headers: Mapping[str, str] | None = None,
        secrets: t.Collection[str] = (),
    ) -> None:
        self.url = url
        self._client = http_client.Client(
            timeout=options["answer_within"],
            retries=0,
            headers=headers,
            secrets=secrets,
            verify=http_client.verify(options["validate_certs"], options["ca_path"], "notify"),
            variable="notify.url",
            error=NotifyError,
            id="PR-631",
        )

    def post(self, body: t.Any, headers: Mapping[str, str] | None = None) -> None:
        """Post data as JSON, or bytes as they are. Raises NotifyError unless it is taken."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        known = {"Content-Type": "application/json", **(headers or {})}
        reply = self._client.ask("POST", self.url, data, known)
        if not 200 <= reply.status < 300:
            again = reply.status >= 500 or reply.status in _AGAIN
            where = http_client.origin(self.url)
            raise NotifyError(f"{where} answered {reply}", "PR-631", again=again)


COLORS = {
    "begun": "#1f6feb",
    "waiting": "#bf8700",
    "promoted": "#1a7f37",
    "rolled_back": "#cf222e",
    "aborted": "#cf222e",
    "held": "#cf222e",
    "failed": "#cf222e",
    "refused": "#cf222e",
    "rejected": "#cf222e",
}


def title(notice: Notice) -> str:
    """Return what happened in a few words, without a text from elsewhere."""
    return f"{notice.service} {notice.revision}: {notice.event.replace('_', ' ')}"


def rows(notice: Notice) -> dict[str, str]:
    """Return what a message shows below its sentence, by title."""
    change = f"{notice.previous} → {notice.revision}" if notice.previous else notice.revision
    return {"Service": notice.service, "Revision": change, "Begun by": notice.by}


def quieted(text: str) -> str:
    """Return a text in which no `@name` calls a person or a channel."""
    return re.sub("@(?=\\w)", "@\u200b", text)
