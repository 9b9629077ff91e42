# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say an operator's word to the rollout under way. Writes it into the journal, without the lease; whoever has that obeys."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping, Sequence

from ansible import context
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError, RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Bounds
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Phase
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.store import Lease
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import commands, identity, remembered
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Record, Rollout

# A reason without quotes, up to the next assignment, and what comes after it.
_WHY = re.compile(r"(?:^|\s)rollout_why=((?!['\"])\S+(?:\s+[^\s=]+(?=\s|$))*)(.*)", re.DOTALL)


class ActionModule(StepAction):
    own = ("command", "why", "force", "withdraw")

    def drives(self, own: Mapping[str, t.Any]) -> bool:
        return False  # it has to be quick, and to work where balancers and hosts do not

    def step(self, run: Run) -> Result:
        if "withdraw" in run.own:
            return withdraw(run, values.whole(run.own["withdraw"], "rollout_withdraw", 1))
        said = asked(run.own, run.settings.replicas)
        word, record, store, me = said["word"], run.session.read(), run.session.store, run.session.identity
        pending = [
            one for one in commands.standing(store.words(record.obeyed)) if record.open and one["rollout"] == record.open.id
        ]
        last = pending[-1] if pending else None
        lease, running = at_work(run)
        if host := next((one["host"] for one in store.words(0) if me.repeats(one.get("request"), one.get("host"))), ""):
            return run.left_to(host, running=running)
        told = (
            f"the run of {lease.holder} obeys it in a moment"
            if lease and running
            else "nobody runs it now: it obeys when it is next run"
        )
        if last and same(last, said):
            return answer(
                run, False, last["number"], running, f"{word} was said by {last['by']} before and is not obeyed yet; {told}"
            )
        rollout = sensible(record, word, last["word"] if last else "", bool(said.get("force")))
        if run.check_mode:
            return answer(run, True, None, running, f"{word} would be said; {told}")
        said |= {"rollout": rollout.id, "by": me.holder, "at": round(clock.now(), 3), "request": me.request, "host": me.host}
        return answer(run, True, store.post(said), running, f"{word} is said; {told}")


def at_work(run: Run) -> tuple[Lease | None, bool]:
    """The lease, and whether its run is at work: a lease may outlive its run for a while."""
    lease = run.session.store.lease()
    return lease, lease is not None and identity.gone(lease.details) is not True


def withdraw(run: Run, number: int) -> Result:
    """Take back a word, unless it was obeyed: what ends red must not act later."""
    record = run.session.read()
    known = {"number": number, "running": at_work(run)[1]}
    if number <= record.obeyed or record.open is None:
        return run.report(False, **known)
    if not run.check_mode:
        by, at = run.session.identity.holder, round(clock.now(), 3)
        run.session.store.post({"word": commands.WITHDRAW, "of": number, "rollout": record.open.id, "by": by, "at": at})
    return run.report(True, msg=f"{record.service} {record.open.revision}: the word was not obeyed, and is taken back", **known)


def asked(own: Mapping[str, t.Any], replicas: int | Bounds | None = None) -> dict[str, t.Any]:
    """The word, why, whether it is forced, and to how many replicas; raises InputError."""
    word = own.get("command")
    if word not in commands.WORDS:
        raise InputError(f"rollout_command: {word!r} must be one of {', '.join(commands.WORDS)}; say one of them")
    force = values.boolean(own.get("force", False), "rollout_force")
    if force and word != "promote":
        raise InputError(f"rollout_force: {word} cannot be forced, only promote can; leave it out")
    why = whole(values.line(own.get("why"), "rollout_why"), context.CLIARGS.get("extra_vars") or ())
    number = {}
    if word == "scale":
        if not isinstance(replicas, int):
            raise InputError(
                f"rollout_replicas: {replicas or 'not given'}; scale needs a whole number: say how many there shall be"
            )
        number = {"replicas": replicas}
    return {"word": word, "why": why} | ({"force": True} if force else {}) | number


def whole(why: str, given: Sequence[str]) -> str:
    """The reason as it was `given` on the command line: of `-e rollout_why='wrong prices shown'` Ansible passes on the first word.

    Raises InputError where it cannot be told where the reason ends.
    """
    for text in reversed(given):
        found = _WHY.search(text)
        if not found or text[:1] in "@{[" or found[1].split()[0] != why:
            continue
        if any("=" not in word for word in found[2].split()):
            raise InputError(
                f'rollout_why: Ansible takes {why!r} alone of {text!r}; write -e \'{{"rollout_why": "..."}}\', or -e "rollout_why=\'...\'"'
            )
        return " ".join(found[1].split())
    return why


def same(one: Mapping[str, t.Any], other: Mapping[str, t.Any]) -> bool:
    """Whether two words ask for the same."""
    return all(one.get(key) == other.get(key) for key in ("word", "force", "replicas"))


def sensible(record: Record, word: str, before: str, force: bool) -> Rollout:
    """The rollout the word is for; `before` was said to it and is not obeyed yet. Raises RolloutFailed where it makes no sense."""
    rollout = record.open
    phase = rollout.phase if rollout else Phase.FINISHED
    phase = commands.ahead(phase, before) if before else phase
    reason = commands.refusal(phase, word, force)
    if rollout is None or reason:
        last = record.rollout
        standing = f"{record.service} {last.revision} is {phase.replace('_', ' ')}" if last else record.service
        raise RolloutFailed(f"{standing}: {word} makes no sense now: {reason}")
    return rollout


def answer(run: Run, changed: bool, number: int | None, running: bool, told: str) -> Result:
    """The result; `told` is about the rollout under way."""
    rollout = run.record.open
    title = f"{run.record.service} {rollout.revision}" if rollout else run.record.service
    known = remembered.told(run.record) if rollout else {}
    walker = run.session.identity.host
    return run.report(changed, number=number, running=running, settings=known, walker=walker, msg=f"{title}: {told}")
