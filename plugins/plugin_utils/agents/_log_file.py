# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a log from where the last call ended (`mark`), also one that was rotated meanwhile.

Needs Python 3.8.
"""

from __future__ import annotations

import hashlib
import os

TYPE_CHECKING = False  # importing typing costs start-up time
if TYPE_CHECKING:
    import typing as t

    Mark = t.Dict[str, t.Any]
    Part = t.Tuple[t.BinaryIO, int, int, bool]

PRINT = 4096  # bytes before the mark, by which the file is known again


def opened(path: str) -> t.BinaryIO:
    """Open a log; what is not a regular file is refused, and not waited for."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not os.path.isfile(path):
        os.close(file)
        raise OSError(0, "it is not a regular file")
    return os.fdopen(file, "rb")


def unread(path: str, now: t.BinaryIO, mark: Mark | None, most: int) -> tuple[list[Part], int]:
    """Return what is to be read, and how many bytes before it are too many.

    A part is a file, from one offset to another, and whether it begins within a line. Without a
    mark, that is the end of the file.
    """
    parts = _parts(path, now, mark) if mark else [(now, 0, end_of_line(now))]
    skipped = max(0, sum(end - start for _file, start, end in parts) - most)
    unread, drop = [], skipped
    for file, start, end in parts:
        skip = min(drop, end - start)
        drop -= skip
        unread.append((file, start + skip, end, skip > 0))
    return unread, skipped


def mark_at(file: t.BinaryIO, offset: int) -> Mark:
    """Return the mark of an offset."""
    return {
        "inode": os.fstat(file.fileno()).st_ino,
        "offset": offset,
        "print": _print(file, offset),
    }


def end_of_line(file: t.BinaryIO) -> int:
    """Return where the last whole line ends."""
    end = os.fstat(file.fileno()).st_size
    start = max(0, end - (1 << 16))
    newline = os.pread(file.fileno(), end - start, start).rfind(b"\n")
    return start + newline + 1 if newline >= 0 else start


def _parts(path: str, now: t.BinaryIO, mark: Mark) -> list[tuple[t.BinaryIO, int, int]]:
    """Return what came since the mark: files, each from one offset to another."""
    end = end_of_line(now)
    if _is_marked(now, mark):
        return [(now, mark["offset"], end)]
    before = _rotated(path, mark)
    rest = [(before, mark["offset"], os.fstat(before.fileno()).st_size)] if before else []
    return [*rest, (now, 0, end)]


def _is_marked(file: t.BinaryIO, mark: Mark) -> bool:
    """Whether a file is the one that was read, and was not cut since."""
    return bool(os.fstat(file.fileno()).st_ino == mark["inode"]) and (
        _print(file, mark["offset"]) == mark["print"]
    )


def _rotated(path: str, mark: Mark) -> t.BinaryIO | None:
    """Return the file that was read, under the name that rotation gave it; None: it is gone."""
    folder, name = os.path.split(path)
    for entry in os.scandir(folder or "."):
        if entry.name.startswith(name) and entry.inode() == mark["inode"]:
            try:
                file = opened(entry.path)
            except OSError:
                continue
            if _is_marked(file, mark):
                return file
            file.close()
    return None


def _print(file: t.BinaryIO, offset: int) -> str:
    """Return what tells the bytes before an offset from others."""
    start = max(0, offset - PRINT)
    before = os.pread(file.fileno(), offset - start, start)
    return hashlib.sha256(before).hexdigest()[:16] if len(before) == offset - start else ""
