# SPDX-License-Identifier: GPL-3.0-or-later
"""The reports of a service's rollouts: made of the journal, and written to files."""

from __future__ import annotations

import os
import re
import secrets
import typing as t
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from ...base import clock
from ...base.errors import InputError
from ...base.text import printable
from ...interfaces.store import StoreDriver
from ...pages import junit, render
from ...pages.report_model import ReportModel, from_timeline
from ...state.record import Record
from .beside import Beside

FORMS = ("html", "md", "xml")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")


class Reports:
    """The reports of a service, as its journal is now."""

    def __init__(self, record: Record, store: StoreDriver) -> None:
        dumped = record.dump()
        self.service, self._store = record.service, store
        # the newest first; the last one is in the history once it has ended
        known = [dumped["rollout"] or {}, *reversed(dumped["history"])]
        self.rollouts: dict[str, Mapping[str, t.Any]] = {}
        for rollout in known:
            if _ID.fullmatch(str(rollout.get("id", ""))):  # files are named by it
                self.rollouts.setdefault(rollout["id"], rollout)

    def known(self, id: str | None) -> str:
        """Return the id of a rollout in the journal, of the last one if none is given."""
        id = id or next(iter(self.rollouts))
        if id not in self.rollouts:
            raise InputError(
                f"rollout_id: the journal of {self.service} has no rollout {printable(id)!r}; it"
                f" has {', '.join(self.rollouts)}",
                "PR-130",
            )
        return id

    def markdown(self, id: str) -> str:
        """Return the report of a rollout as Markdown."""
        return render.markdown(self._report_of(id)[0])

    def files(self, id: str, path: str) -> dict[str, str]:
        """Return the files of a rollout's report, with their content.

        A path that ends with a slash is a directory: of the service's reports in every form, and
        their index.
        """
        report, events = self._report_of(id)
        if not path.endswith("/"):
            return {path: _written(report, events, path.rpartition(".")[2])}
        folder = os.path.join(path, self.service)
        files = {
            os.path.join(folder, f"{id}.{form}"): _written(report, events, form) for form in FORMS
        }
        pages = {
            rollout: f"{rollout}.html"
            for rollout in self.rollouts
            if rollout == id or os.path.exists(os.path.join(folder, f"{rollout}.html"))
        }
        index = render.index(self.service, list(self.rollouts.values()), pages, _moment(report))
        return {**files, os.path.join(folder, "index.html"): index}

    def write(self, files: Mapping[str, str], path: str, check: bool = False) -> list[str]:
        """Write files of a report, made for this path; return those that changed. Raises OSError.

        With `check` nothing is written.
        """
        if check:
            return [name for name, text in files.items() if differs(name, text)]
        if path.endswith("/"):
            with suppress(FileExistsError):
                os.mkdir(os.path.join(path, self.service))
        return [name for name, text in files.items() if replace_file(name, text)]

    def _report_of(self, id: str) -> tuple[ReportModel, list[dict[str, t.Any]]]:
        # a page is no shorter for results that only a judge can read
        events = [event for event in self._store.timeline(id) if event.get("kind") != "look"]
        return from_timeline(self.service, self.rollouts[id], events), events


def _written(report: ReportModel, events: Sequence[Mapping[str, t.Any]], form: str) -> str:
    """Return a report in one of FORMS."""
    if form == "md":
        return render.markdown(report)
    return junit.xml(report) if form == "xml" else render.html(report, events, _moment(report))


def _moment(report: ReportModel) -> float:
    """Return when a report is made: one of a rollout that is over always is the same."""
    return report.start + report.length if report.outcome else clock.wall()


def replace_file(path: str, text: str) -> bool:
    """Replace a file in one step, unless it has this text already; return whether it changed.

    Raises OSError that names the file, not its draft.
    """
    if not differs(path, text):
        return False
    folder, name = os.path.split(path)
    draft = os.path.join(folder, f".{name}.{secrets.token_hex(8)}.tmp")
    try:
        _write_new(draft, text)
        os.replace(draft, path)
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror, path) from None
    finally:
        with suppress(OSError):
            os.unlink(draft)
    return True


def _write_new(path: str, text: str) -> None:
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    with os.fdopen(target, "wb") as stream:
        stream.write(_encoded(text))


def differs(path: str, text: str) -> bool:
    """Return whether a file has another text, or is not there."""
    data = _encoded(text)
    try:
        with open(path, "rb") as stream:
            return stream.read(len(data) + 1) != data
    except OSError:
        return True


def _encoded(text: str) -> bytes:
    return text.encode(errors="replace")


class LiveReport(Beside):
    """Keeps the report of the rollout in progress up to date."""

    what = "rollout-report"
    failure = "the report is not written, the rollout continues: {} [PR-630]"

    def __init__(
        self, service: str, path: str, store: StoreDriver, report: Callable[[str], None]
    ) -> None:
        self._path = path
        super().__init__(service, store, report)

    def work(self, record: Record) -> None:
        reports = Reports(record, self.store)
        if record.rollout and record.rollout.id in reports.rollouts:
            reports.write(reports.files(record.rollout.id, self._path), self._path)
