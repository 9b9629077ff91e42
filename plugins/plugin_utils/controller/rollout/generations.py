# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of each generation's instances: given when it begins, kept while a rollback to it is
possible.

The journal keeps what may be shown. The platform keeps the secrets on the instances' hosts; here
they are in memory only.
"""

from __future__ import annotations

import secrets
import typing as t
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import takewhile

from ...base.errors import PlatformError, RolloutFailed
from ...config.settings import Settings
from ...health import spec
from ...interfaces.platform import InstanceSettings, key_of
from ...state.record import Record, Rollout
from ..step.context import StepPart

Secrets = Mapping[str, Mapping[str, t.Any]]  # `platform` and `health`, each with its secret options
LONGEST = 200  # characters of a value that is shown


class Generations(StepPart):
    """The settings of generations in the journal, and those that this run was given."""

    def begin(
        self, revision: str, generation: int, source: int | None = None, *, again: bool = False
    ) -> None:
        """Give a generation its settings: those of the generation it repeats (`source`), or else
        those of this run. `again`: its revision ran before.

        Secrets are brought to the hosts before the journal mentions them.
        """
        kept: InstanceSettings | None
        secret_options: Secrets
        if source is not None:
            kept, secret_options = self.record.settings.get(source), {}
        else:
            kept, secret_options = given(self.settings) or (None, {})
        if kept and secret_options:
            content = salted(secret_options)
            kept = replace(kept, key=key_of(content))
            self.loop.platform.keep(kept.key, content)
        if kept:
            self.record.settings[generation] = replace(kept, again=again)
            read = self.loop.platform.references(revision, generation) or {}
            self.record.settings[generation] = replace(kept, again=again, references=read)

    def unknown(self) -> str:
        """Return what a rollback would do because the settings of the stable revision are unknown;
        "" if they are known, or the platform keeps them itself.
        """
        stable = self.record.stable
        if (
            stable is None
            or self.record.is_adopted(stable.generation)
            or stable.generation in self.record.settings
            or given(self.settings) is None
            or self.loop.platform.capabilities.names_instances
        ):
            return ""
        return (
            f"the settings that {stable.revision} was rolled out with are unknown, since the"
            " journal does not have them: a rollback starts its instances with the current"
            " settings. If these are new, abort, and run restart.yml with the previous ones first,"
            " which keeps them"
        )

    def changed_references(self, revision: str, generation: int) -> list[str]:
        """Return what the instances of a generation read when they start that has changed since it
        was rolled out; empty where that is unknown.
        """
        kept = self.record.settings.get(generation)
        if kept is None or not kept.references:
            return []
        present = self.loop.platform.references(revision, generation) or kept.references
        names = sorted(kept.references.keys() & present.keys())
        return [
            f"{name} has changed since {revision} was rolled out"
            for name in names
            if kept.references[name] != present[name]
        ]

    def differences(self, revision: str, generation: int) -> list[str]:
        """Return how the settings of a generation differ from those of this run; empty where they
        are unknown.
        """
        kept, mine = self.record.settings.get(generation), given(self.settings)
        if kept is None or mine is None:
            return []
        return [
            *differences(kept, mine[0], self._recall(kept)[0], mine[1]),
            *self.changed_references(revision, generation),
        ]

    def replaced(self, rollout: Rollout) -> bool:
        """Return whether this run was given other settings than the rollout began with, secrets
        aside.
        """
        kept, mine = self.record.settings.get(rollout.generation), given(self.settings)
        return bool(kept and mine and not have_same_effect(kept, mine[0]))

    def resume(self, rollout: Rollout) -> None:
        """Resume a rollout with the settings of this run: secrets may have changed, others may not.

        Raises RolloutFailed where others have.
        """
        kept = self.record.settings.get(rollout.generation)
        lost = kept is not None and self._recall(kept)[1]
        changed = (
            self.differences(rollout.revision, rollout.generation)
            if rollout.kind.forward or lost
            else []
        )
        if not (changed or lost):
            return
        title = f"{self.settings.service} {rollout.revision}"
        what = "; ".join(changed) or "no host has them any more"
        if self.replaced(rollout):
            raise RolloutFailed(
                f"rollout_platform or rollout_health has changed since the rollout of {title} "
                f"began ({what}); rerun with the original "
                "settings, roll it back (rollback.yml), or start again with these"
                " (rollout_supersede: true)",
                "PR-603",
            )
        self.step.print_line(f"{title}: new instances get the current settings ({what})")
        if not self.step.check_mode:
            self.begin(rollout.revision, rollout.generation)

    def _recall(self, kept: InstanceSettings) -> tuple[Secrets | None, bool]:
        """Return the secrets of settings, None where unknown, and whether they are unknown because
        no host has them.
        """
        try:
            recalled = self.loop.platform.recall(kept.key) if kept.key else {}
        except PlatformError:  # the hosts that have them do not answer
            return None, False
        return recalled, recalled is None


def given(settings: Settings) -> tuple[InstanceSettings, Secrets] | None:
    """Return the settings of this run, without a key, and its secrets; None where the platform
    keeps no settings.
    """
    chosen = settings.platform
    shaping = chosen.driver.shaping(chosen.options, chosen.module.options)
    if shaping is None:
        return None
    platform, hidden = shaping
    health, also_hidden = spec.table(settings.health).parted(settings.health)
    secret_options = {
        name: part for name, part in (("platform", hidden), ("health", also_hidden)) if part
    }
    names = {
        f"{part}.{option}": sorted(value)
        for part, options in secret_options.items()
        for option, value in options.items()
    }
    return InstanceSettings(chosen.name, platform, health, names), secret_options


def salted(secret_options: Secrets) -> dict[str, t.Any]:
    """Return secrets as the hosts keep them: the key in the journal must not help to verify a
    guess.
    """
    return {**secret_options, "salt": secrets.token_hex(16)}


def have_same_effect(settings: InstanceSettings, other: InstanceSettings) -> bool:
    """Return whether two settings are the same, secrets aside."""
    return replace(settings, key="") == replace(other, key="")


def last_of(record: Record, revision: str) -> int | None:
    """Return the generation whose settings a promoted revision is started with again."""
    known = [
        known.generation
        for known in (record.stable, record.before)
        if known and known.revision == revision
    ]
    known += [
        int(known["generation"])
        for known in reversed(record.history)
        if (known.get("outcome"), known.get("revision")) == ("promoted", revision)
    ]
    return next((number for number in known if number in record.settings), None)


def prune(record: Record) -> None:
    """Forget the settings of generations that no rollback leads to, and that nothing runs of."""
    needed = [known.generation for known in (record.stable, record.before) if known]
    if rollout := record.open:
        needed += [
            rollout.generation,
            rollout.baseline,
            *([rollout.previous.generation] if rollout.previous else []),
        ]
    # a rollout that gave way to another leaves its instances, which are asked by their own check
    left = takewhile(lambda past: past.get("outcome") == "superseded", reversed(record.history))
    needed += [int(past["generation"]) for past in left]
    revisions = {
        past.get("revision") for past in record.history if past.get("outcome") == "promoted"
    }
    needed += [
        number for revision in revisions if (number := last_of(record, str(revision))) is not None
    ]
    record.settings = {number: kept for number, kept in record.settings.items() if number in needed}


def differences(
    old: InstanceSettings, new: InstanceSettings, was: Secrets | None, now: Secrets | None
) -> list[str]:
    """Return the differences, one setting a line: values, or for secrets their names.

    Without the secrets of either (None) only their names are compared.
    """
    if old.driver != new.driver:
        return [f"rollout_platform.driver: {old.driver} -> {new.driver}"]
    lines = []
    for part in ("platform", "health"):
        before, after = getattr(old, part), getattr(new, part)
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                lines.append(
                    f"rollout_{part}.{name}: {_shown(before.get(name))} ->"
                    f" {_shown(after.get(name))}"
                )
    for option in sorted(old.secret.keys() | new.secret.keys()):
        names = set(old.secret.get(option, ())), set(new.secret.get(option, ()))
        lines += [
            f"rollout_{option}: {text}"
            for text in _of_secrets(names, _values(was, option), _values(now, option))
        ]
    return lines


def _shown(value: t.Any) -> str:
    text = "not given" if value is None else repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _values(known: Secrets | None, option: str) -> Mapping[str, t.Any] | None:
    part, _dot, name = option.partition(".")
    return None if known is None else known.get(part, {}).get(name, {})


def _of_secrets(
    names: tuple[set[str], set[str]],
    was: Mapping[str, t.Any] | None,
    now: Mapping[str, t.Any] | None,
) -> Iterator[str]:
    before, after = names
    changed = (
        set()
        if was is None or now is None
        else {name for name in before & after if was.get(name) != now.get(name)}
    )
    for what, which in (
        ("added", after - before),
        ("removed", before - after),
        ("changed", changed),
    ):
        if which:
            yield f"{', '.join(sorted(which))} {what}"
