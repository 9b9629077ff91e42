# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of agents on a host: replaced in one step, locked, fenced by the lease's epoch, and marked
with the journal that they belong to.

Needs Python 3.8. What most calls do not need is imported where it is used.
"""

from __future__ import annotations

import fcntl
import os
import time

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _bootstrap

TYPE_CHECKING = False  # importing typing costs start-up time
if TYPE_CHECKING:
    import typing as t

LOCK_WAIT = 10.0  # seconds; who holds a lock for longer is stuck
LOCK_POLL = 0.002
DRAFT = ".tmp"  # ends the name of a file that is being written


class Stale(Exception):
    """A newer lease holder has acted here, or a run with another journal."""


class Refused(Exception):
    """The request cannot be done."""


class Locked:
    """Hold the lock of a file; raise Refused if that takes too long."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        if os.path.isdir(self.path):
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        self.file = os.open(self.path, flags, 0o640)
        deadline = time.monotonic() + LOCK_WAIT
        while True:
            try:
                fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(self.file)
                    raise Refused(
                        f"{self.path} has been locked for {LOCK_WAIT:g} s; `fuser -v {self.path}`"
                        " shows by which process"
                    ) from None
            except OSError:
                os.close(self.file)
                raise
            time.sleep(LOCK_POLL)

    def __exit__(self, *_exc: object) -> None:
        # explicitly: a child forked meanwhile shares the open file
        fcntl.flock(self.file, fcntl.LOCK_UN)
        os.close(self.file)


class Fenced(Locked):
    """Keep all but the newest lease holder out: `STEM.lock` is held, `STEM.epoch` is its epoch.

    Epoch 0, without a lease, which only looks, neither waits nor leaves anything behind. A run with
    another journal than that of the `mark` is kept out, too. A new holder removes the drafts that a
    killed one left of the files `written` under this lock.
    """

    def __init__(
        self, stem: str, epoch: int, mark: JournalMark | None = None, written: t.Iterable[str] = ()
    ) -> None:
        super().__init__(stem + ".lock")
        self.record, self.epoch, self.mark = stem + ".epoch", epoch, mark
        self.written = written

    def __enter__(self) -> None:
        if self.epoch > 0:
            os.makedirs(os.path.dirname(self.path), 0o750, exist_ok=True)
            super().__enter__()
            try:
                if self.mark:
                    self.mark.check()
                if newer(self.record, self.epoch):
                    for path in self.written:
                        discard(draft(path))
                    write(self.record, str(self.epoch))
            except BaseException:
                super().__exit__()
                raise

    def __exit__(self, *exc: object) -> None:
        if self.epoch > 0:
            super().__exit__(*exc)


class JournalMark:
    """The journal that something on this host belongs to, kept in a file.

    That is the journal of the last run that changed it. A journal that was lost is made anew in the
    same place; one that was moved keeps its id.
    """

    def __init__(
        self, path: str, what: str, mine: dict[str, str] | None = None, service: str = ""
    ) -> None:
        """Take what belongs to it, for people, and this run's journal, if it has one.

        `service` is kept as well, where the path does not name it.
        """
        self.path, self.what = path, what
        self.mine = dict(mine, service=service) if mine and service else mine

    def owner(self) -> dict[str, str] | None:
        """Return the journal; None: there is none, or none that can be read."""
        try:
            with open(self.path, encoding="utf-8") as file:
                owner_of_file = _bootstrap.load(file.read(4096))
        except (OSError, ValueError):
            return None
        names = ("id", "place")
        whole = isinstance(owner_of_file, dict) and all(
            isinstance(owner_of_file.get(name), str) for name in names
        )
        if not whole:
            return None
        service = owner_of_file.get("service")
        return {
            **{name: owner_of_file[name] for name in names},
            **({"service": service} if isinstance(service, str) else {}),
        }

    def shown(self) -> dict[str, t.Any]:
        """Return the journal as part of an answer."""
        owner = self.owner()
        return {"journal": owner} if owner else {}

    def check(self) -> None:
        """Refuse a run of another journal."""
        owner, mine = self.owner() if self.mine else None, self.mine
        if owner and mine and owner["id"] != mine["id"] and owner["place"] != mine["place"]:
            raise Stale(
                "%s here belong to the journal %s, and this run's is %s; correct rollout_store, or"
                " remove %s if that journal is lost"
                % (self.what, owner["place"], mine["place"], self.path)
            )

    def claim(self) -> None:
        """Note that this run changes it; call it with the lock held."""
        if self.mine and self.owner() != self.mine:
            write(self.path, _bootstrap.dump(self.mine))


def newer(path: str, epoch: int) -> bool:
    """Return whether an epoch is higher than the recorded one; raise Stale if it is lower.

    Call it with the lock held.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)) as file:
            stored = int(file.read(64))
    except FileNotFoundError:
        stored = 0
    except ValueError:
        raise Refused(f"{path} does not hold a number; remove it") from None
    if 0 < epoch < stored:
        raise Stale(
            f"a newer lease holder has acted here (epoch {stored}, ours is {epoch}); "
            f"if not, and the store was recreated, remove {path}"
        )
    return epoch > stored


def draft(path: str) -> str:
    """Return where a file is written before it takes its place.

    The name is its own, so that what a killed writer left is found.
    """
    folder, name = os.path.split(path)
    return os.path.join(folder, "." + name + DRAFT)


def stage(path: str, text: str, mode: int = 0o640, group: int = -1) -> str:
    """Write the draft of a file, made anew: no link of that name is followed. Returns its path.

    One writer at a time: the caller holds a lock. `mode` whatever the umask is; `group`: its id, -1
    for the writer's own, which it also gets where the writer is not a member.
    """
    name = draft(path)
    discard(name)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(name, flags, 0o600), "w", encoding="utf-8") as file:
            try:
                os.fchown(file.fileno(), -1, group)
            except PermissionError:
                pass
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as exc:  # as a full disk is told of, without a name
        discard(name)
        raise OSError(exc.errno, exc.strerror, path) from None
    return name


def write(path: str, text: str, mode: int = 0o640, group: int = -1) -> None:
    """Replace a file in one step; see `stage`."""
    os.replace(stage(path, text, mode, group), path)


def discard(path: str) -> None:
    """Remove a file, or a link, if there is one."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def unusable(folder: str) -> str:
    """Return why files cannot be kept in a directory, "" if they can.

    The directory may have to be made.
    """
    while not os.path.lexists(folder) and folder != "/":
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        return f"{folder} is not a directory"
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        return f"{folder} cannot be written by the user with the id {os.geteuid()}"
    space = os.statvfs(folder)
    if not (space.f_bavail if os.geteuid() else space.f_bfree) or (
        space.f_files and not space.f_ffree
    ):
        return f"the file system of {folder} is full; make room"
    return ""
