# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the errors among the lines of a log, and which of them are alike. Needs Python 3.8.

Errors are alike if they have the same template: the message without numbers, times, addresses,
paths, quoted texts and values, as Drain prepares messages
(https://jiemingzhu.github.io/pub/pjhe_icws2017.pdf). The lines of a stack trace belong to the error
before them. Nothing here is believed: lines are cut, templates counted up to a bound, and examples
have neither secrets nor what a terminal would obey.
"""

from __future__ import annotations

import hashlib
import re

TYPE_CHECKING = False  # importing typing costs start-up time
if TYPE_CHECKING:
    import typing as t

CUT = 2048  # bytes of a line that are looked at
CUT_JSON = 1 << 16  # the same of a line that is JSON, whose message may come last
MOST = 200  # templates of a log
CAUSES = 5  # further lines that tell what an error is about
SHOWN = 300  # characters of an example

# One of these is in each error, in lower case; looking for them is all that most lines cost. The
# numbers are levels of bunyan and pino.
HINT = re.compile(
    rb"err|exception|fatal|fault|panic|crit|traceback|severe|alert|emerg|dumped|out of mem"
    rb"|level\":[56]"
)
BAD = "error|err|fatal|critical|crit|alert|emerg(?:ency)?|panic|dpanic|severe"
FINE = "trace|debug|info(?:rmation)?|notice|warn(?:ing)?|verbose"
# a level by its key: level=error, "severity": "ERROR", "level":50
KEYED = re.compile(rb"(?i)\b(?:level|levelname|lvl|severity)[\"']?\s{0,2}[=:]\s{0,2}[\"']?(\w+)")
# in capitals, or between brackets
LEVEL = re.compile(
    (
        rf"(?<![\w/.=&?-])(?:({BAD.upper()})|(?:{FINE.upper()}))(?![\w/=-])"
        rf"|[\[<(|]\s{{0,2}}(?i:({BAD})|(?:{FINE}))\s{{0,2}}[\]>)|:]"
    ).encode()
)
GLOG = re.compile(rb"[EF]\d{4} \d\d:\d\d:\d\d")  # https://github.com/google/glog
WORDS = re.compile(
    rb"(?i)(?<![\w./=&?-])(?:[\w.$]*(?:error|exception)|fatal|panic|traceback|segfault"
    rb"|segmentation fault|core dumped|out of memory)(?![\w/=-])"
)
DENIED = re.compile(rb"(?i)\b(?:no|without|0)\s(?:\w+\s)?(?:error|exception)")
MESSAGE = re.compile(
    r'"(?:msg|message|error|err|exception|@m|@mt)"\s{0,2}:\s{0,2}"((?:[^"\\]|\\.){0,500})'
)
TRACE = re.compile(rb"Traceback \(most recent call last\)")
CAUSE = re.compile(rb"[\w$.]+(?:Error|Exception)\b")

COLOURS = re.compile(rb"\x1b\[[0-9;:?]*[ -/]*[@-~]")
MASK = re.compile(
    r'"[^"]*"'
    r"|(?<!\w)'[^']*'(?!\w)"
    r"|(?<==)[^\s,;)\]}]+"
    r"|\[[0-9a-fA-F:.]{2,50}\]:\d+"
    # a word with a digit, a path, an address: begun where it begins, so that none is tried twice
    r"|(?<![\w.:/@+%~-])[\w.:/@+%~-]*[\d/@][\w.:/@+%~-]*"
    r"|\b[a-fA-F]{8,}\b"
)
REPEATED = re.compile(r"\*(?:[\s,;]*\*)+")
SECRETS = (
    (re.compile(r"(://)\S{1,200}@"), r"\1***@"),
    (re.compile(r"(?i)((?:cookie|authorization)\\?[\"']?\s{0,3}[:=]\s{0,3}).*"), r"\1***"),
    (
        re.compile(
            r"(?i)((?:(?:pass(?:word|wd|phrase)|pwd|token|secret|session|"
            r"credential|(?:api|private|access)[ _-]?key)[\w-]{0,40}|(?:pass|auth)\b)"
            r"(?:\\?[\"'])?\s{0,3}(?:=>|[:=])\s{0,3})"
            r"(?:\\?\"(?:[^\"\\]|\\[^\"])*(?:\\?\"|$)|'[^']*(?:'|$)"
            r"|(?:(?:bearer|basic|digest|token)\s+)?[^\s,;&]+)"
        ),
        r"\1***",
    ),
    (re.compile(r"(?i)(-(?:password|passwd|token|secret|key)\s+)\S+"), r"\1***"),
    (re.compile(r"(?i)\b(bearer|basic|digest)\s+[\w.~+/=-]{4,}"), r"\1 ***"),
    (re.compile(r"\beyJ[\w-]+(?:\.[\w-]*)*"), "***"),  # a JSON Web Token
)
DIGIT = re.compile(r"\d")
LONG = re.compile(r"[A-Za-z0-9+/_=-]{20,}")


class Templates:
    """The errors of a log, by template."""

    def __init__(self, ignored: t.Sequence[str]) -> None:
        self.found: dict[str, dict[str, t.Any]] = {}
        self.left_out = 0  # errors beyond MOST templates
        self.begun = 0  # errors so far
        self.open = 0  # bytes of the last error, to which more lines may belong; 0: it is over
        self._ignored = [text.lower() for text in ignored]
        self._lines: list[str] = []  # of the last error
        self._traced = False  # whether its stack trace, which another line ends, has begun

    def take(self, line: bytes, certain: bool = False) -> None:
        """Take a line. `certain`: it has an error level, whatever its words."""
        size = len(line) + 1
        if self.open:
            if self._belongs(line[:CUT]):
                self.open += size
                return
            self.end()
        if certain or is_error(line):
            self.begun += 1
            self.open, self._lines = size, [message_of(line)]
            self._traced = bool(TRACE.search(line[:CUT]))

    def end(self) -> None:
        """Count the last error: no more lines belong to it."""
        if self.open:
            self.open = 0
            lines = self._lines
            if len(lines) > 1 and lines[0].startswith("Traceback "):
                del lines[0]
            self._count(" | ".join(lines)[:CUT])

    def drop(self) -> None:
        """Forget the last error, which is read again."""
        self.open = 0

    def _belongs(self, line: bytes) -> bool:
        """Whether a line belongs to the error before it; keep what says more about it."""
        if line[:1].isspace():
            return True
        traced, self._traced = self._traced, bool(TRACE.match(line))
        if self._traced:
            return True
        named = len(self._lines) > 1 or CAUSE.match(self._lines[0].encode())
        if traced or line.startswith(b"Caused by: ") or (CAUSE.match(line) and not named):
            if len(self._lines) <= CAUSES:
                self._lines.append(text_of(line))
            return True
        return False

    def _count(self, text: str) -> None:
        low = text.lower()
        if any(ignored in low for ignored in self._ignored):
            return
        key = hashlib.sha256(masked(text).encode()).hexdigest()[:12]
        known = self.found.get(key)
        if known:
            known["times"] += 1
        elif len(self.found) < MOST:
            self.found[key] = {"times": 1, "example": example(text)}
        else:
            self.left_out += 1


def is_error(line: bytes) -> bool:
    """Whether a line has an error level; where it has none, whether its words say so."""
    line = line[: CUT_JSON if line[:1] == b"{" else CUT]
    if not HINT.search(line.lower()):
        return line[:1] in (b"E", b"F") and bool(GLOG.match(line))
    line = COLOURS.sub(b"", line)
    keyed, is_json = KEYED.search(line), line[:1] == b"{"
    level = None if is_json else LEVEL.search(line, 0, 300)
    if keyed and not (level and level.start() < keyed.start()):
        return _is_bad(keyed.group(1), is_json)
    if level:
        return level.lastindex is not None
    return bool(GLOG.match(line) or (WORDS.search(line) and not DENIED.search(line)))


def _is_bad(level: bytes, is_json: bool) -> bool:
    """Whether a level is an error's, by its name or, in JSON, by its number."""
    if level.isdigit():
        return is_json and int(level[:4]) >= 50
    return bool(re.fullmatch(BAD, level.decode("ascii", "replace").lower()))


def message_of(line: bytes) -> str:
    """Return the message of a line: of JSON, its texts that tell what happened."""
    if line[:1] == b"{":
        messages = MESSAGE.findall(line[:CUT_JSON].decode("utf-8", "replace"))[:3]
        if messages:
            return text_of(" | ".join(dict.fromkeys(messages)).encode("utf-8", "replace"))
        return text_of(line).replace('"', " ")
    return text_of(line)


def text_of(line: bytes) -> str:
    """Return a line as text that may be shown: cut, and without what a terminal would obey."""
    text = COLOURS.sub(b"", line[:CUT]).decode("utf-8", "replace")
    return "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))


def masked(text: str) -> str:
    """Return the template of a message."""
    return REPEATED.sub("*", MASK.sub("*", text))


def example(text: str) -> str:
    """Return a message as an example: short, and its secrets masked."""
    for pattern, instead in SECRETS:
        text = pattern.sub(instead, text)
    text = LONG.sub(_unless_plain, text)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def _unless_plain(match: t.Match[str]) -> str:
    """Return a long word as it is if it is made of words or a path, and no key or digest."""
    word = match.group()
    mixed = word.lower() != word != word.upper()
    # what has a digit: of a path, in a long part of it
    secret = any(DIGIT.search(part) for part in word.split("/") if mixed or len(part) >= 20)
    return "***" if secret or len(word) >= 64 else word
