# SPDX-License-Identifier: GPL-3.0-or-later
"""Notices as CDEvents in CloudEvents, so that other tools understand them. Pure.

[CDEvents](https://github.com/cdevents/spec/blob/v0.4.1/continuous-deployment.md) has events of
services that are deployed, upgraded and rolled back. All other notices are
[custom events](https://github.com/cdevents/spec/blob/v0.4.1/custom/README.md). The binding is
[structured JSON](https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md).
"""

from __future__ import annotations

import typing as t
import urllib.parse
from datetime import UTC, datetime

from ..interfaces.notifier import Notice

_VERSION = "0.4.1"  # of CDEvents
_SERVICE, _CUSTOM = "0.2.0", "0.1.0"  # of its events, and of ours
_TOOL = "progressiverollout-rollout"


def cloud_event(notice: Notice, environment: str) -> dict[str, t.Any]:
    """Return the CloudEvent of a notice, with a CDEvent as its data."""
    source = f"/progressive.rollout/{notice.service}"
    moment = datetime.fromtimestamp(notice.at, UTC).isoformat(timespec="milliseconds")
    rollout = notice.rollout or notice.id
    time, predicate = moment.replace("+00:00", "Z"), _predicate(notice)
    if predicate:
        kind, subject_type = f"dev.cdevents.service.{predicate}.{_SERVICE}", "service"
        content: dict[str, t.Any] = {
            "environment": {"id": environment},
            "artifactId": _package(notice.service, _serving(notice)),
        }
        subject = notice.service
    else:
        name = notice.event.replace("_", "")
        kind, subject_type = f"dev.cdeventsx.{_TOOL}.{name}.{_CUSTOM}", _TOOL
        content, subject = notice.facts, rollout
    context = {
        "version": _VERSION,
        "id": notice.id,
        "source": source,
        "type": kind,
        "timestamp": time,
        "chainId": rollout,
    }
    data: dict[str, t.Any] = {
        "context": context,
        "subject": {"id": subject, "source": source, "type": subject_type, "content": content},
        "customData": notice.facts,
        "customDataContentType": "application/json",
    }
    return {
        "specversion": "1.0",
        "id": notice.id,
        "source": source,
        "type": kind,
        "subject": subject,
        "time": time,
        "datacontenttype": "application/json",
        "data": data,
    }


def _predicate(notice: Notice) -> str:
    """Return what happened to the service, in the words of CDEvents; empty: nothing yet."""
    if notice.event == "promoted":
        if notice.kind == "rollback":
            return "rolledback"
        return "upgraded" if notice.previous else "deployed"
    return "rolledback" if notice.event in ("rolled_back", "aborted") and notice.previous else ""


def _serving(notice: Notice) -> str:
    return notice.revision if notice.event == "promoted" else notice.previous


def _package(service: str, revision: str) -> str:
    """Return a revision as a [package URL](https://github.com/package-url/purl-spec)."""
    return f"pkg:generic/{service}@{urllib.parse.quote(revision, safe='.-_')}"
