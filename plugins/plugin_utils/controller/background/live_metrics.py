# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps the metrics of a service up to date: in a file for node_exporter, and at a Pushgateway."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping

from ...base.errors import MetricsError
from ...interfaces.store import StoreDriver
from ...remote import http_client
from ...report.openmetrics import exposition
from ...state.record import Record
from .beside import Beside
from .reports import replace_file

TIMEOUT = 2.0  # seconds; the end of a step may wait for two pushes
_TYPE = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}


class LiveMetrics(Beside):
    """Writes and pushes the metrics of a service while its rollout runs."""

    what = "rollout-metrics"
    failure = "the metrics are not up to date, the rollout continues: {} [PR-632]"

    def __init__(
        self,
        service: str,
        options: Mapping[str, t.Any],
        store: StoreDriver,
        report: Callable[[str], None],
    ) -> None:
        self._path, gateway = options["textfile"], options["pushgateway"]
        self._url = (
            f"{gateway.rstrip('/')}/metrics/job/rollout/service/{service}" if gateway else ""
        )
        self._client = http_client.Client(
            timeout=TIMEOUT,
            retries=0,
            variable="rollout_metrics.pushgateway",
            error=MetricsError,
            id="PR-632",
        )
        super().__init__(service, store, report)

    def work(self, record: Record) -> None:
        rollout = record.rollout
        timeline = self.store.timeline(rollout.id) if rollout else ()
        text = exposition(record, timeline, self.store.lease())
        if self._path:
            replace_file(self._path, text)
        if self._url:
            self._push(text)

    def _push(self, text: str) -> None:
        """Replace what the Pushgateway has of this service."""
        reply = self._client.ask("PUT", self._url, text.encode(), _TYPE)
        if not 200 <= reply.status < 300:
            raise MetricsError(f"{http_client.origin(self._url)} answered {reply}", "PR-632")
