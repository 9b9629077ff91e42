# SPDX-License-Identifier: GPL-3.0-or-later
"""A Slack channel, through an [incoming webhook](https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks/)."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ..interfaces.context import DriverContext
from ..interfaces.notifier import Notice, NotifierDriver
from . import _web

OPTIONS = _web.OPTIONS


class Driver(NotifierDriver):
    """Posts to Slack."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self.timeout = options["answer_within"]
        self._poster = _web.Poster(options, options["url"])

    def send(self, notice: Notice, text: str) -> None:
        if text:
            self._poster.post({"text": text})
            return
        fields = [
            {"title": title, "value": _escaped(value), "short": True}
            for title, value in _web.rows(notice).items()
        ]
        message = {
            "color": _web.COLORS[notice.event],
            "fallback": _escaped(notice.text),
            "text": _escaped(notice.text),
            "fields": fields,
            "footer": notice.id,
            "ts": int(notice.at),
        }
        self._poster.post({"attachments": [message]})


def _escaped(text: str) -> str:
    """Return a text without [markup](https://docs.slack.dev/messaging/formatting-message-text):
    `<!channel>` would call everybody.
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
