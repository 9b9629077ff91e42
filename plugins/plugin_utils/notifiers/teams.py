# SPDX-License-Identifier: GPL-3.0-or-later
"""A Microsoft Teams channel, through a workflow that posts the adaptive card it gets.

The template "Post to a channel when a webhook request is received" makes such a
[workflow](https://support.microsoft.com/office/8ae491c7-0394-4861-ba59-055e33f75498).
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping

from ..interfaces.context import DriverContext
from ..interfaces.notifier import Notice, NotifierDriver
from . import _web

OPTIONS = _web.OPTIONS
_STYLES = {"begun": "accent", "waiting": "warning", "promoted": "good"}


class Driver(NotifierDriver):
    """Posts an [adaptive card](https://adaptivecards.io/explorer/AdaptiveCard.html) to Teams."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self.timeout = options["answer_within"]
        self._poster = _web.Poster(options, options["url"])

    def send(self, notice: Notice, text: str) -> None:
        facts = [
            {"title": title, "value": _escaped(value)} for title, value in _web.rows(notice).items()
        ]
        title = {
            "type": "TextBlock",
            "text": text or _escaped(notice.text),
            "wrap": True,
            "weight": "bolder",
            "color": _STYLES.get(notice.event, "attention"),
        }
        about = {"type": "TextBlock", "text": notice.id, "size": "small", "isSubtle": True}
        body = [title] if text else [title, {"type": "FactSet", "facts": facts}, about]
        card = {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard",
            "version": "1.4",
            "body": body,
        }
        attachment = {
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": None,
            "content": card,
        }
        self._poster.post({"type": "message", "attachments": [attachment]})


def _escaped(text: str) -> str:
    """Return a text without the Markdown that cards know: a link could say another address."""
    return re.sub(r"([\\*_\[\]()])", r"\\\1", text)
