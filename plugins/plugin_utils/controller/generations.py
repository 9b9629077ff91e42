# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which settings the instances of each generation run with: given when it begins, kept while it can be gone back to.

The journal keeps what may be shown. Secrets are kept by the platform, on the hosts of the instances, and are here in memory only.
"""

from __future__ import annotations

import secrets
import typing as t
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import PlatformError, RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.checks import http
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.settings import Settings
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.health import monitor
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import InstanceSettings, key_of
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Outcome, Record, Rollout

Secrets = Mapping[str, Mapping[str, t.Any]]  # `platform` and `health`, each with its secret options
LONGEST = 200  # characters of a value that is shown


def given(settings: Settings) -> tuple[InstanceSettings, Secrets] | None:
    """What this run was given, without a key; None where the platform does not keep the settings of a generation."""
    chosen = settings.platform
    of_hosts = chosen.module.driver.host_options
    if of_hosts is None:
        return None
    shaping = {name: value for name, value in chosen.options.items() if name not in of_hosts}
    platform, hidden = values.parted(chosen.module.options, shaping)
    health, also_hidden = values.parted({**monitor.OPTIONS, **http.OPTIONS}, settings.health)
    found = {name: part for name, part in (("platform", hidden), ("health", also_hidden)) if part}
    names = {f"{part}.{option}": sorted(value) for part, mine in found.items() for option, value in mine.items()}
    return InstanceSettings(chosen.name, platform, health, names), found


def begin(run: Run, generation: int, source: int | None = None) -> None:
    """Give a generation its settings: those of the generation it repeats (`source`), or else what this run was given.

    What is secret of them is brought to the hosts, before the journal says that it is there.
    """
    kept, found = (run.record.settings.get(source), {}) if source is not None else given(run.settings) or (None, {})
    if kept and found:
        content = salted(found)
        kept = replace(kept, key=key_of(content))
        run.conductor.platform.keep(kept.key, content)
    if kept:
        run.record.settings[generation] = kept


def unlike(run: Run, generation: int) -> list[str]:
    """How the settings of a generation differ from what this run was given, one a line; none where they are not known."""
    kept, mine = run.record.settings.get(generation), given(run.settings)
    if kept is None or mine is None:
        return []
    return differences(kept, mine[0], _known(run, kept)[0], mine[1])


def replaced(run: Run, rollout: Rollout) -> bool:
    """Whether this run was given other settings than the rollout under way began with, as far as they may be shown."""
    kept, mine = run.record.settings.get(rollout.generation), given(run.settings)
    return bool(kept and mine and not alike(kept, mine[0]))


def go_on(run: Run, rollout: Rollout) -> None:
    """Go on with a rollout under way with what this run was given: what is secret may be another by now, the rest may not.
    Raises RolloutFailed."""
    kept = run.record.settings.get(rollout.generation)
    lost = kept is not None and _known(run, kept)[1]
    changed = unlike(run, rollout.generation) if rollout.kind.forward or lost else []
    if not (changed or lost) or run.by_word:  # who says a word need not know the settings
        return
    name, what = f"{run.settings.service} {rollout.revision}", "; ".join(changed) or "no host had them any more"
    if replaced(run, rollout):
        raise RolloutFailed(
            f"rollout_platform or rollout_health was changed while the rollout of {name} is under way ({what}); run it with the settings "
            "it began with, or begin it anew with these (rollout_supersede: true)"
        )
    run.say(f"{name}: instances started from now on have the settings given now ({what})")
    if not run.check_mode:
        begin(run, rollout.generation)


def _known(run: Run, kept: InstanceSettings) -> tuple[Secrets | None, bool]:
    """What is secret of settings, None where it is not known, and whether that is because no host has it any more."""
    try:
        found = run.conductor.platform.recall(kept.key) if kept.key else {}
    except PlatformError:  # those that have it do not answer
        return None, False
    return found, found is None


def salted(found: Secrets) -> dict[str, t.Any]:
    """As it is kept on the hosts: nobody who reads a key in the journal can find out whether a guess of the secret is right."""
    return {**found, "salt": secrets.token_hex(16)}


def alike(one: InstanceSettings, other: InstanceSettings) -> bool:
    """Whether two are the same as far as they may be shown."""
    return replace(one, key="") == replace(other, key="")


def last_of(record: Record, revision: str) -> int | None:
    """The generation whose settings a revision that was promoted once is started with again."""
    known = [one.generation for one in (record.stable, record.before) if one and one.revision == revision]
    known += [
        int(one["generation"])
        for one in reversed(record.history)
        if (one.get("outcome"), one.get("revision")) == (Outcome.PROMOTED, revision)
    ]
    return next((number for number in known if number in record.settings), None)


def prune(record: Record) -> None:
    """Forget the settings of generations that nothing goes back to any more."""
    there = [one.generation for one in (record.stable, record.before) if one]
    if rollout := record.open:
        there += [rollout.generation, rollout.baseline, *([rollout.previous.generation] if rollout.previous else [])]
    revisions = {one.get("revision") for one in record.history if one.get("outcome") == Outcome.PROMOTED}
    there += [number for revision in revisions if (number := last_of(record, str(revision))) is not None]
    record.settings = {number: kept for number, kept in record.settings.items() if number in there}


def differences(old: InstanceSettings, new: InstanceSettings, was: Secrets | None, now: Secrets | None) -> list[str]:
    """What differs, one setting a line: values of what may be shown, names of what is secret. Without the secrets of either
    (None) only their names are compared."""
    if old.driver != new.driver:
        return [f"rollout_platform.driver: {old.driver} -> {new.driver}"]
    lines = []
    for part in ("platform", "health"):
        before, after = getattr(old, part), getattr(new, part)
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                lines.append(f"rollout_{part}.{name}: {_shown(before.get(name))} -> {_shown(after.get(name))}")
    for option in sorted(old.secret.keys() | new.secret.keys()):
        names = set(old.secret.get(option, ())), set(new.secret.get(option, ()))
        lines += [f"rollout_{option}: {said}" for said in _of_secrets(names, _values(was, option), _values(now, option))]
    return lines


def _shown(value: t.Any) -> str:
    text = "not given" if value is None else repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _values(known: Secrets | None, option: str) -> Mapping[str, t.Any] | None:
    part, _dot, name = option.partition(".")
    return None if known is None else known.get(part, {}).get(name, {})


def _of_secrets(
    names: tuple[set[str], set[str]], was: Mapping[str, t.Any] | None, now: Mapping[str, t.Any] | None
) -> Iterator[str]:
    before, after = names
    changed = set() if was is None or now is None else {name for name in before & after if was.get(name) != now.get(name)}
    for what, which in (("added", after - before), ("removed", before - after), ("changed", changed)):
        if which:
            yield f"{', '.join(sorted(which))} {what}"
