# SPDX-License-Identifier: GPL-3.0-or-later
"""Grafana annotations, through its [HTTP API](https://grafana.com/docs/grafana/latest/developers/http_api/annotations/).

They are shown on one dashboard, or on each that asks for the tag `rollout`.
"""

from __future__ import annotations

import html
import typing as t
from collections.abc import Mapping

from ..inputs.options import TEXT, Field, Options, whole
from ..interfaces.context import DriverContext
from ..interfaces.notifier import Notice, NotifierDriver
from . import _web

OPTIONS = Options(
    Field("url", _web.URL, "URL of Grafana.", required=True),
    Field(
        "token",
        TEXT,
        "Token of a service account that may write annotations.",
        required=True,
        no_log=True,
    ),
    Field(
        "dashboard_uid",
        TEXT,
        "The dashboard. Without it, the annotation belongs to the organization.",
    ),
    Field("panel_id", whole(1), "The panel of the dashboard. Without it, all panels."),
    *_web.HTTP.fields,
)


class Driver(NotifierDriver):
    """Writes annotations of Grafana."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self.timeout = options["answer_within"]
        place = {"dashboardUID": options["dashboard_uid"], "panelId": options["panel_id"]}
        self._place = {name: value for name, value in place.items() if value is not None}
        headers = {"Authorization": f"Bearer {options['token']}"}
        url = f"{options['url'].rstrip('/')}/api/annotations"
        self._poster = _web.Poster(options, url, headers, [options["token"]])

    def send(self, notice: Notice, text: str) -> None:
        annotation = {
            **self._place,
            "time": int(notice.at * 1000),
            "tags": ["rollout", f"service:{notice.service}", f"event:{notice.event}"],
            "text": text or html.escape(notice.text),
        }
        self._poster.post(annotation)
