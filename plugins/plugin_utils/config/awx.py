# SPDX-License-Identifier: GPL-3.0-or-later
"""What awx.yml is told in `rollout_awx`."""

from __future__ import annotations

import typing as t

from ..base.errors import InputError
from ..inputs import values
from ..inputs.options import MAPPING, TEXT, Field, Kind, Options, choice, group, whole

PLAYBOOKS = (
    *("rollout", "promote", "abort", "pause", "resume", "rollback", "restart", "status"),
    *("prepare", "report", "plan", "history", "watch"),
)


def _list_of(kind: Kind) -> Kind:
    """Return the kind of a list, which may be empty."""

    def parse(value: t.Any, variable: str) -> list[t.Any]:
        items = values.sequence(value, variable, "- ITEM")
        return [kind.parse(item, f"{variable}[{n}]") for n, item in enumerate(items)]

    return Kind("list", parse, elements=kind.type, fields=kind.fields)


NAMES = _list_of(TEXT)
PEOPLE = Options(
    Field("teams", NAMES, "Names of teams."),
    Field("users", NAMES, "Names of users."),
)
PROJECT = Options(
    Field("url", TEXT, "Its address, for Git.", required=True),
    Field("branch", TEXT, "Branch, tag or commit. The repository's default branch if not given."),
    Field("credential", TEXT, "Name of an AWX credential to read it with."),
)
NOTIFICATION = Options(
    Field("name", TEXT, "Its name. Without C(type), it must exist.", required=True),
    Field("type", TEXT, "Type of the AWX notification, such as V(slack) or V(webhook)."),
    Field(
        "configuration",
        MAPPING,
        "AWX's C(notification_configuration). AWX does not return the secrets in it, so each run"
        " changes them; refer to an existing template with secrets by its name instead.",
    ),
    Field(
        "on",
        _list_of(choice("started", "success", "error", "approvals")),
        "What it notifies about: V(started), V(success), V(error), V(approvals). The last two if"
        " not given.",
    ),
)
SCHEDULE = Options(
    Field("name", TEXT, "Its name.", required=True),
    Field("playbook", choice(*PLAYBOOKS), "The job template's playbook.", required=True),
    Field(
        "rrule",
        TEXT,
        "The times, an iCal recurrence rule such as V(DTSTART:20260101T030000Z"
        " RRULE:FREQ=DAILY;INTERVAL=1).",
        required=True,
    ),
    Field("variables", MAPPING, "Answers to the survey."),
)
AWX = Options(
    Field("organization", TEXT, "An AWX organization, which must exist. V(Default) if not given."),
    Field(
        "name",
        TEXT,
        "Name of the project, the inventory and the execution environment in AWX, for services that"
        " share them. The service's name if not given.",
    ),
    Field(
        "project",
        group(PROJECT),
        "The repository with the playbooks, the inventory and its C(group_vars).",
        required=True,
    ),
    Field(
        "inventory", TEXT, "Path of the inventory in the project. V(inventory.yml) if not given."
    ),
    Field(
        "image",
        TEXT,
        "Image of the execution environment. AWX's default environment is used if not given.",
    ),
    Field(
        "credentials",
        NAMES,
        "Names of AWX credentials that the jobs get, such as the key to log in to hosts. They must"
        " exist.",
    ),
    Field("approvers", group(PEOPLE), "Who may approve, and promote without the workflow."),
    Field("operators", group(PEOPLE), "Who may launch everything but C(promote)."),
    Field(
        "approval_timeout",
        whole(),
        "Seconds after which AWX takes a missing approval for a denial, which aborts the rollout."
        " V(0), the default, for never.",
    ),
    Field("notifications", _list_of(group(NOTIFICATION)), "Notification templates for the jobs."),
    Field("schedules", _list_of(group(SCHEDULE)), "When AWX launches job templates by itself."),
)
PREFIX = "rollout_awx"


def problem(given: t.Any) -> str:
    """Return what is wrong with `rollout_awx`, in a line; empty: nothing."""
    try:
        if given is None or given == "":
            raise InputError(f"{PREFIX}: not given, but required", "PR-102")
        AWX.parse(values.mapping(given, PREFIX), f"{PREFIX}.")
    except InputError as exc:
        return f"{exc} [{exc.id}]"
    return ""
