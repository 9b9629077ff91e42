# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal and the lease in files, on the controller or on one inventory host.

`agents/store.py` does the work.
"""

from __future__ import annotations

import os
import typing as t
from collections.abc import Mapping, Sequence

from ..base.errors import LeaseHeld, LeaseLost, RolloutError, StoreAway, StoreError
from ..base.text import clean
from ..inputs.options import PATH, TEXT, Field, Options
from ..interfaces.context import DriverContext
from ..interfaces.store import Lease, StoreDriver
from ..remote.inventory import host_or_controller, label

OPTIONS = Options(
    Field("path", PATH, "Directory for the journals and leases.", default="/var/lib/rollout"),
    Field(
        "host",
        TEXT,
        "Inventory host that keeps them, the controller if not given. AWX needs one, since its"
        " controllers are ephemeral.",
    ),
)

TIMEOUT = 30.0  # seconds for one operation; it takes milliseconds and the way there
_REFUSALS: Mapping[str, tuple[type[RolloutError], str]] = {
    "held": (LeaseHeld, "PR-501"),
    "lost": (LeaseLost, "PR-503"),
    "store": (StoreError, "PR-500"),
    "damaged": (StoreError, "PR-506"),
    "newer": (StoreError, "PR-507"),
}


class Driver(StoreDriver):
    """The journal in a file, on the controller or on a host."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        path = options["path"]
        host = host_or_controller(context.transport, options["host"], "rollout_store.host")
        self._transport = context.transport
        self._host = host
        self._where = f"host {host}" if host else label(host)
        self._request = {"path": path, "service": context.service, "where": self._where}
        self.place = f"{path}/journal/{context.service}.json on {self._where}"  # of the record
        self.home = self.place if host else f"{self.place}, {os.uname().nodename}"

    def load(self) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", self._ask("load")["record"])

    def lease(self) -> Lease | None:
        lease = self._ask("lease")["lease"]
        return _lease(lease) if lease else None

    def acquire(
        self,
        token: str,
        holder: str,
        ttl: float,
        details: Mapping[str, t.Any],
        above: int = 0,
    ) -> Lease:
        """Take the lease, or renew it.

        `details["previous"]` of the answer is the expired lease that was taken over, if any.
        """
        return self._acquire(
            token=token, holder=holder, ttl=ttl, details=dict(details), above=above
        )

    def take_over(
        self, lease: Lease, token: str, holder: str, ttl: float, details: Mapping[str, t.Any]
    ) -> Lease:
        """Replace exactly this lease, expired or not, of a holder known to be gone.

        Raises LeaseHeld if it was renewed since.
        """
        instead = {"token": lease.token, "epoch": lease.epoch, "until": lease.until}
        return self._acquire(
            token=token, holder=holder, ttl=ttl, details=dict(details), instead=instead
        )

    def commit(
        self,
        token: str,
        ttl: float,
        record: Mapping[str, t.Any] | None = None,
        events: Sequence[Mapping[str, t.Any]] = (),
    ) -> None:
        """Write the record, and the events to the timeline of the rollout that it names.

        The stored record names it, if none is given.
        """
        whole = None if record is None else dict(record)
        self._ask(
            "commit", token=token, ttl=ttl, record=whole, events=[dict(event) for event in events]
        )

    def release(self, token: str) -> None:
        self._ask("release", token=token)

    def erase(self, token: str) -> None:
        self._ask("erase", token=token)

    def timeline(self, rollout: str) -> Sequence[dict[str, t.Any]]:
        return t.cast("list[dict[str, t.Any]]", self._ask("timeline", rollout=rollout)["events"])

    def post(self, command: Mapping[str, t.Any]) -> int:
        return t.cast(int, self._ask("post", command=dict(command))["number"])

    def commands(self, after: int) -> Sequence[dict[str, t.Any]]:
        entries = t.cast("list[dict[str, t.Any]]", self._ask("commands", after=after)["commands"])
        nobody = {"rollout": "", "word": "", "by": "somebody"}
        return [
            {
                **nobody,
                **{
                    key: clean(value) if isinstance(value, str) else value
                    for key, value in command.items()
                },
            }
            for command in entries
        ]

    def _acquire(self, **request: t.Any) -> Lease:
        answer = self._ask("acquire", **request)
        return _lease(answer["lease"], answer["previous"])

    def _ask(self, op: str, **request: t.Any) -> dict[str, t.Any]:
        answer = self._transport.ask(
            "store", {self._host: {**self._request, "op": op, **request}}, TIMEOUT
        )[self._host]
        if answer.unreachable:
            raise StoreAway(
                f"rollout_store.host: {self._where}, which keeps the journal, cannot be reached:"
                f" {answer.error}",
                "PR-508",
            )
        if answer.value is None:
            raise StoreError(
                f"rollout_store.host: the journal on {self._where} cannot be used: {answer.error}",
                "PR-500",
            )
        if "refused" in answer.value:
            error, id = _REFUSALS[answer.value["refused"]]
            raise error(answer.value["message"], id)
        return answer.value


def _lease(lease: Mapping[str, t.Any], previous: Mapping[str, t.Any] | None = None) -> Lease:
    details = dict(lease["details"], previous=dict(previous)) if previous else lease["details"]
    return Lease(
        lease["token"],
        clean(lease["holder"]),
        lease["since"],
        lease["until"],
        lease["epoch"],
        details,
    )
