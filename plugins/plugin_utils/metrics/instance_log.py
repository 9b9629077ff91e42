# SPDX-License-Identifier: GPL-3.0-or-later
"""Error messages in the instances' own logs: those that only new instances log.

The logs are read where they are: files of the platform `process`, the journal of `systemd`, what
containers of `podman` and `docker` wrote. Messages are made alike there, without what varies in
them, and no line leaves the host but one example of each, with secrets masked.
"""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping

from ..analysis.spec import NEW_MESSAGES
from ..base.errors import InputError, MetricError
from ..base.text import clean
from ..inputs import values
from ..inputs.options import Field, Kind, Options
from ..interfaces.context import DriverContext
from ..interfaces.metric import MetricDriver, Question
from ..interfaces.traffic import Served
from ..remote import agents
from ..remote.inventory import label

TIMEOUT = 60.0  # seconds for one call of the agent
IGNORED = 50  # texts to ignore
LONGEST = 300  # characters of an example
KEPT = 500  # templates of an instance that are kept
NAMED = 10  # instances of a message that are named


def _ignored(given: t.Any, variable: str) -> tuple[str, ...]:
    """Return parts of messages; short ones would be in too many."""
    ignored = tuple(
        values.text(text, variable)
        for text in values.sequence(given, variable, "[connection reset]")
    )
    if len(ignored) > IGNORED or not all(3 <= len(text) <= 200 for text in ignored):
        raise InputError(
            f"{variable}: must be at most {IGNORED} texts, each of 3 to 200 characters", "PR-104"
        )
    return ignored


OPTIONS = Options(
    Field(
        "ignore",
        Kind("list", _ignored, elements="str"),
        "Messages that contain one of these texts (V([connection reset by peer])) are not counted,"
        " regardless of case.",
        default=[],
    ),
)


class _Message(t.TypedDict):
    times: int
    example: str


class _Log(t.TypedDict):
    """What the agent answers of one log."""

    mark: t.Any
    found: dict[str, _Message]
    left_out: int
    skipped: bool


class _Unread(t.TypedDict):
    """The same of one that cannot be read."""

    error: str


class _Answer(t.TypedDict):
    logs: dict[str, _Log | _Unread]


class Driver(MetricDriver):
    """Finds messages in the logs of the instances in rotation."""

    judge = NEW_MESSAGES

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._ignored, self._context = options["ignore"], context
        self._transport = context.transport.apart()
        self._platform = context.platform(self._transport)
        if not self._platform.log_source("instance", "host"):
            raise InputError(
                "metric.driver: instance_log cannot be used, since the platform does not say where"
                " its instances log; use it with process, systemd, podman or docker, or leave the"
                " metric out",
                "PR-434",
            )
        self._marks: dict[str, t.Any] = {}  # by instance
        self._found: dict[str, dict[str, _Message]] = {}  # by instance, all so far

    def measure(self, question: Question) -> t.Any:
        served = {
            name: instance
            for name, instance in self._context.counters.served.items()
            if instance.serving and name not in self._context.known().adopted
        }
        read = self._read(served)
        for name, log in read.items():
            self._add(name, log)
        of_new = question.rollout["generation"]
        new = {name for name, instance in served.items() if instance.generation == of_new}
        old = served.keys() - new
        return {
            "new": self._messages(new),
            "old": sorted({key for name in old for key in self._found[name]}),
            "compared": bool(old),
            "crowded": any(read[name]["left_out"] or self._full(name) for name in old),
            "skipped": any(log["skipped"] for log in read.values()),
        }

    def _read(self, served: Mapping[str, Served]) -> dict[str, _Log]:
        """Return what each instance has logged since the last look; raise MetricError for a log
        that cannot be read: what is in it would count as new, or not at all.
        """
        asked: dict[str, dict[str, t.Any]] = {}
        for name, instance in served.items():
            source = dict(self._platform.log_source(name, instance.host))
            wanted = asked.setdefault(instance.host, {"ignored": list(self._ignored), "logs": {}})
            wanted["logs"][name] = {"source": source, "mark": self._marks.get(name)}
        logs: dict[str, _Log] = {}
        for host, answer in self._transport.ask("instance_log", asked, TIMEOUT).items():
            answer = agents.shaped(answer, _Answer)
            if answer.value is None:
                raise MetricError(f"logs on {label(host)}: {answer.error}", answer.id)
            for name in asked[host]["logs"]:
                log = answer.value["logs"].get(name, {"error": "there is no answer"})
                if "error" in log:
                    why = clean(log["error"], LONGEST)
                    raise MetricError(f"the log of {name} on {label(host)}: {why}", "PR-434")
                logs[name] = t.cast(_Log, log)
        return logs

    def _add(self, name: str, log: _Log) -> None:
        """Add what came to what an instance has logged before."""
        self._marks[name] = log["mark"]
        known = self._found.setdefault(name, {})
        for key, message in log["found"].items():
            if key in known:
                known[key]["times"] += message["times"]
            elif not self._full(name) and len(key) <= LONGEST:
                known[key] = {
                    "times": message["times"],
                    "example": clean(message["example"], LONGEST),
                }

    def _full(self, name: str) -> bool:
        return len(self._found[name]) >= KEPT

    def _messages(self, names: Collection[str]) -> dict[str, dict[str, t.Any]]:
        """Return the messages of these instances, by template."""
        messages: dict[str, dict[str, t.Any]] = {}
        for name in sorted(names):
            for key, message in self._found[name].items():
                total = messages.setdefault(key, {**message, "times": 0, "instances": []})
                total["times"] += message["times"]
                if len(total["instances"]) < NAMED:
                    total["instances"].append(name)
        return messages
