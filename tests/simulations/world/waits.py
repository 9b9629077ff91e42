# SPDX-License-Identifier: GPL-3.0-or-later
"""What operators rely on while a rollout waits: what dies is started again, a command that was sent
is obeyed, and a hold lasts as long as asked.
"""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping
from functools import partial

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Phase,
    Rotation,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.commands import (
    CHANGING,
    WITHDRAW,
)

if t.TYPE_CHECKING:
    from .world import Instance, World

# Checks fail three times, a look, and a start, with what else a run does meanwhile.
REPAIRED = 8.0
AFTER = 10.0  # seconds after a fault in which a run may still be behind
READ = 5.0  # seconds in which a run reads commands,
ANSWERED = 0.2  # and at its end
ROUNDING = 0.1
# For so long the controller may not know of an instance that was lost: checks fail three times,
# and the platform is observed at least every thirty seconds.
UNSEEN = 35.0
ASKED = 5.0  # in which a run gives up asking a host
REMOVAL = 60.0 - ROUNDING  # seconds that the end of a rollout waits for hosts that remove
ABORTED = (Phase.ROLLING_BACK, Phase.HELD, Phase.FINISHED)
ENDS_HOLD = ("skip", "promote_full", "scale")
Moment = tuple[t.Any, ...]


class Waits:
    """The promises to those who wait."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.disturbed = 0.0  # until when a run may be kept from what it does
        self.robust = False  # whether no instance crashes by itself, or hangs
        self.in_place = False  # commands are read between batches
        self.hold = 0.0  # seconds that old instances are kept after a switch; 0: none
        self._obeyed = 0  # the last command that a run had read, as last written
        self._deaths: list[tuple[float, int]] = []  # when, and of which generation
        self._sent: list[Mapping[str, t.Any]] = []  # commands, each with when it was sent
        self.retried: set[str] = set()  # rollouts that were held, and may be tried again
        # by rollout, since when it is holding, and how far the wall clock was ahead then
        self._held: dict[str, tuple[float, float]] = {}
        self._drains: dict[str, float] = {}  # by instance, since when the journal has its drain
        self._ended: set[str] = set()  # rollouts

    def disturb(self, span: float = 0.0) -> None:
        """Something befalls the world for so long, or the controllers."""
        self.disturbed = max(self.disturbed, self._world.now + span + AFTER)

    # -- what dies ---------------------------------------------------------------------------------

    def lost(self, instance: Instance) -> None:
        """An instance is about to die: while the rollout waits, its run starts another one."""
        if instance.labels.service != "shop":
            return
        world, rollout = self._world, self._rollout()
        stable = world.recorded("stable") or {}
        generation = instance.labels.generation
        self._deaths.append((world.now, generation))
        if instance.labels.revision != "1" and not self.robust:
            return  # it may crash again and again
        of = [known for known in (stable, rollout) if known.get("generation") == generation]
        most = max((known["replicas"] for known in of), default=0)
        wanted = min(self._living(generation), most)
        waits = rollout.get("phase") in (Phase.PAUSED, Phase.AWAITING_PROMOTION, Phase.HOLDING)
        if waits and wanted and not self._is_leaving(instance):
            before, since = self._moment(), world.now
            check = partial(self._repaired, since, before, generation, wanted)
            world.machine.at(since + REPAIRED, check)

    def _repaired(self, since: float, before: Moment, generation: int, wanted: int) -> None:
        if self._moment() != before or self.disturbed >= since:
            return
        later = sum(of == generation and time > since for time, of in self._deaths)
        if (living := self._living(generation)) < wanted - later:
            self._world.broken(
                f"{living} instances of generation {generation}, {wanted} before one died in a wait"
            )

    def _living(self, generation: int) -> int:
        return sum(
            one.labels.generation == generation and not self._is_leaving(one)
            for one in self._world.alive()
        )

    def _is_leaving(self, instance: Instance) -> bool:
        name, leaving = instance.labels.id, self._world.recorded("draining") or {}
        out = self._rollout().get("excluded", ())
        draining = name in leaving
        return instance.told is not None or draining or instance.labels.host in out

    def _moment(self) -> Moment:
        """Return what stays the same while a rollout waits for the same in the same run."""
        world, rollout = self._world, self._rollout()
        run = next((one for one in world.machine.processes if one.pid == world.holder), None)
        alive = run and run.alive and not run.interrupted
        return (
            rollout.get("id"),
            rollout.get("phase"),
            rollout.get("entered"),
            rollout.get("replicas"),
            world.holder if alive else object(),
            world.recorded("obeyed"),
        )

    # -- what is sent ------------------------------------------------------------------------------

    def sent(self, text: str) -> None:
        """The journal has other commands: a run reads them soon."""
        world, known = self._world, {one["number"] for one in self._sent}
        for command in map(json.loads, text.splitlines()):
            if "word" in command and command["number"] not in known:
                sent = {**command, "sent": world.now, "holder": world.holder}
                self._sent.append(sent)
                world.machine.at(world.now + READ, partial(self._check_obeyed, sent))

    def _check_obeyed(self, command: Mapping[str, t.Any]) -> None:
        world, rollout, since = self._world, self._rollout(), command["sent"]
        if self.in_place or not self.works(since):
            return
        if (world.holder, rollout.get("id")) != (command["holder"], command["rollout"]):
            return
        if rollout["phase"] == Phase.FINISHED:
            return
        name = command["word"]
        if name == WITHDRAW:
            return  # nobody has to read it where what it withdraws was read before
        if (world.recorded("obeyed") or 0) < command["number"]:
            world.broken(f"{name} was sent {READ:g} s ago, and the run has not read it")
        elif name == "abort" and rollout["phase"] not in ABORTED and rollout["step"] != "finish":
            world.broken(f"abort was sent {READ:g} s ago, and the rollout is {rollout['phase']}")
        elif name == "include" and command["place"] in rollout["excluded"]:
            world.broken(f"include was sent {READ:g} s ago, and {command['place']} is left out")

    def _check_aborted(self, rollout: Mapping[str, t.Any], before: int) -> None:
        """A run has read an abort: it goes back, unless something has befallen the world, so that
        a way back may fail, too.
        """
        words = {one["word"] for one in self._sent if before < one["number"] <= self._obeyed}
        calm = self.robust and not (self.in_place or self._deaths or self.disturbed)
        if calm and "abort" in words and "hold" not in words and rollout["phase"] == Phase.HELD:
            self._world.broken("abort was sent, and the rollout is held")

    def works(self, since: float) -> bool:
        """Return whether the run that has the lease has worked since then, and nothing befell it."""
        world = self._world
        run = next((one for one in world.machine.processes if one.pid == world.holder), None)
        if run is None or not run.alive:
            return False
        if max(self.disturbed, world.held_since) > since:
            return False
        return world.hampered.get(run.pid, 0.0) < since

    def _unread(self, rollout: Mapping[str, t.Any], obeyed: int, since: float) -> list[str]:
        """Return the commands that were sent to a rollout `since` seconds before its end, and of
        which no run had read more than `obeyed`.
        """
        withdrawn = {one.get("of") for one in self._sent}
        return [
            one["word"]
            for one in self._sent
            if one["rollout"] == rollout["id"]
            and one["word"] in CHANGING
            and one["number"] > obeyed
            and one["number"] not in withdrawn
            and self.disturbed < one["sent"] < self._world.now - since
        ]

    def _drained(self, name: str) -> float:
        """Return since when an instance drains, of which the journal says so now: always, where its
        host does not answer, since another one is started for it.
        """
        instance, now = self._world.born.get(name), self._world.now
        if instance and self._world.hosts[instance.labels.host].away > now - ASKED:
            return float("-inf")
        return now

    # -- what is written ---------------------------------------------------------------------------

    def written(self) -> None:
        """The record was written."""
        rollout, draining = self._rollout(), self._world.recorded("draining") or {}
        self._drains = {one: self._drains.get(one, self._drained(one)) for one in draining}
        if not rollout:
            return
        name = rollout["id"]
        if rollout["phase"] == Phase.HELD:
            self.retried.add(name)
        if rollout["phase"] == Phase.HOLDING:
            # its run may be frozen before it writes that
            now, ahead = self._world.now, self._world.machine.jump
            self._held.setdefault(name, (min(now, rollout["entered"] - ahead), ahead))
        before, self._obeyed = self._obeyed, self._world.recorded("obeyed") or 0
        self._check_aborted(rollout, before)
        if not rollout.get("outcome") or "superseded" in rollout["reason"]:
            return
        if name not in self._ended:
            # afterwards nobody looks: its run may still be waiting for receivers of notices when a
            # host that was lost comes back
            self._ended.add(name)
            self._check_removed(rollout)
            self._check_ended()
        if rollout["outcome"] == "promoted" and "abort" in self._unread(rollout, before, READ):
            self._world.broken(f"{rollout['revision']} is promoted, and abort was sent")
        for name in self._unread(rollout, self._obeyed, ANSWERED):
            self._world.broken(f"{name} was sent before the end of the rollout, and not answered")

    def _check_removed(self, rollout: Mapping[str, t.Any]) -> None:
        """A rollout ends: nothing is left of dead instances, as far as the run can know and reach
        them, also on a host that takes its time.
        """
        world = self._world
        since = world.now - UNSEEN - world.late.get(world.machine.current.process.run, 0.0)
        pool = (*world.balancers.values(), *world.previews.values())
        if any(balancer.away > since for balancer in pool):
            return  # it may still have any of them
        entries = {entry.name for balancer in pool for entry in balancer.entries.values()}
        # of such an endpoint, nobody knows for which of the instances that ended there it is left
        left = {at for balancer in pool for at in balancer.entries if world.at(at) is None}
        for host in world.hosts.values():
            slow = host.locked > world.now > host.begun + REMOVAL
            if slow or max(host.left, host.away, host.back) > since:
                continue
            for one in host.instances.values():
                known = one.told is not None or (one.lost is not None and one.lost < since)
                mine = one.labels.service == "shop" and one.labels.generation
                kept = one.labels.id in entries or one.labels.endpoint in left
                if mine and one.gone and known and not kept:
                    world.broken(f"the rollout ends, and {one.labels.id} was not removed")
                left_out = host.name in rollout.get("excluded", ())
                if mine and left_out and not one.gone and one.told is None:
                    world.broken(f"the rollout ends, and {one.labels.id} stays on {host.name}")

    def _check_ended(self) -> None:
        """A rollout ends, and nothing befell it in its last moments: what is stable gets requests,
        with the same weight each, and nothing else does.
        """
        world, stable, rollout = self._world, self._world.recorded("stable"), self._rollout()
        if self.in_place or not stable or self.disturbed > world.now or world.lost_unseen():
            return
        if rollout["kind"] == "scale" and rollout["generation"] != stable["generation"]:
            return  # one revision is scaled, and the others stay as they are
        excluded = rollout.get("excluded", ())
        for balancer in world.balancers.values():
            weights = set()
            for at, entry in balancer.entries.items():
                instance = world.at(at)
                if instance is None or not world.answers(at):
                    continue
                if instance.labels.host in excluded and entry.rotation is not Rotation.IN:
                    continue
                good = (
                    instance.labels.host not in excluded
                    and (instance.labels.generation or stable["generation"]) == stable["generation"]
                )
                if good is not (entry.rotation is Rotation.IN):
                    gets = "no requests" if good else "requests"
                    world.broken(
                        f"the rollout ends, and {instance.labels.id} gets {gets} from {balancer.name}"
                    )
                weights |= {entry.weight} if good else set()
            if len(weights) > 1:
                world.broken(f"the rollout ends, and {balancer.name} has the weights {weights}")

    def check_hold(self, instance: Instance) -> None:
        """An instance is told to stop: one of the old set has been kept as long as asked."""
        world, rollout = self._world, self._rollout()
        previous, name = rollout.get("previous") or {}, rollout.get("id", "")
        is_old = instance.labels.generation == previous.get("generation")
        if not (self.hold and is_old and rollout["phase"] in (Phase.HOLDING, Phase.PROMOTING)):
            return
        since, ahead = self._held.get(name, (world.now, world.machine.jump))
        leaves = self._drains.get(instance.labels.id, since) < since
        out = instance.labels.host in rollout.get("excluded", ())
        if leaves or out or not instance.well(world.now):
            return
        old = [i for i in world.alive() if i.labels.generation != rollout["generation"]]
        if sum(i is not instance and not self._is_leaving(i) for i in old) >= previous["replicas"]:
            return  # another one was started while its host did not answer
        if any(one["word"] in ENDS_HOLD and one["rollout"] == name for one in self._sent):
            return
        until = since + self.hold
        if world.now < until - ROUNDING and world.machine.jump == ahead:
            left = until - world.now
            world.broken(
                f"{instance.labels.id} is told to stop {left:.1f} s before the hold is over"
            )

    def _rollout(self) -> Mapping[str, t.Any]:
        return self._world.recorded("rollout") or {}
