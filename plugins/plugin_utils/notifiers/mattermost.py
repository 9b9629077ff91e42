# SPDX-License-Identifier: GPL-3.0-or-later
"""A Mattermost channel, through an [incoming webhook](https://developers.mattermost.com/integrate/webhooks/incoming/)."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping

from ..interfaces.context import DriverContext
from ..interfaces.notifier import Notice, NotifierDriver
from . import _web

OPTIONS = _web.OPTIONS


class Driver(NotifierDriver):
    """Posts to Mattermost."""

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
            "fallback": _web.title(notice),
            "text": _escaped(notice.text),
            "fields": fields,
            "footer": notice.id,
        }
        self._poster.post({"attachments": [message]})


def _escaped(text: str) -> str:
    """Return a text without Markdown, and without calls of people."""
    return re.sub(r"([\\`*_{}\[\]()#+!|<>~-])", r"\\\1", _web.quieted(text))
