# SPDX-License-Identifier: GPL-3.0-or-later
"""The two files of an upstream that nginx balances, as text. Pure; needs Python 3.8.

NAME.conf is what nginx reads: the entries that are in, and a tiny server whose response lists them,
so that a worker says itself what it serves. Where clients stay on their side (`cohort`), entries
that are `apart` are in an upstream of their own while requests are divided, and a variable names
the upstream of a client. NAME.json is what nginx need not know: all entries,
those that are out with `since`, the kernel's clock when they went out. Workers begun before know
them as in.
"""

from __future__ import annotations

import json
import os
import re

TYPE_CHECKING = False  # importing typing costs start-up time
if TYPE_CHECKING:
    import typing as t

    Request = t.Dict[str, t.Any]
    Entry = t.Dict[str, t.Any]
    Key = t.Tuple[str, int]

TOKEN = 3000  # bytes; the longest text in a configuration is 4096
MARK = "# Written by progressive.rollout"
# a comment, a text in quotes, the end of a directive, or a word, which may have a ${variable}
TOKEN_OF = re.compile(
    r"#[^\n]*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|[{};]|(?:\$\{\w+\}|[^\s{};])+"
)
ZERO = re.compile(r"0+(?:ms|s|m|h|d)?")
USUAL_IDLE = "75s"  # nginx's own keepalive_timeout
KEYS = ("address", "port", "weight", "name", "since")
PLACE = re.compile(r"(?:([\d.]+)|\[([0-9A-Fa-f:.]+)\])(?::(\d{1,5}))?")  # of a server
KEPT = {"weight", "max_fails", "fail_timeout"}  # options of a server


def paths(request: Request) -> tuple[str, str]:
    """Return the paths of NAME.conf and NAME.json."""
    stem = os.path.join(request["path"], request["upstream"])
    return stem + ".conf", stem + ".json"


def key(entry: Entry) -> Key:
    """Return what an entry is known by."""
    return entry["address"], entry["port"]


def ordered(entries: dict[Key, Entry]) -> list[Entry]:
    """Return entries, always in the same order."""
    return [entries[known] for known in sorted(entries)]


def render(request: Request, entries: list[Entry]) -> str:
    """Return the text of NAME.conf.

    Without an entry that is in rotation there is a server that is down: nginx wants one.
    """
    upstream, cohort = request["upstream"], request.get("cohort")
    divided = bool(cohort and cohort["share"])
    texts = status_texts(entries)
    lines = [
        "%s. Do not change it." % MARK,
        *_upstream(request, upstream, entries, False if divided else None),
        *(_upstream(request, apart(upstream), entries, True) if divided else ()),
        *(_division(upstream, cohort) if cohort else ()),
        "server {",
        "    listen %s;" % _listen(dict(zip(("address", "port"), request["status"]))),
        "    server_name %s;" % upstream,
        "    access_log off;",
        *("    set $rollout__%d '%s';" % (number, text) for number, text in enumerate(texts)),
        "    return 200 'rollout %s;%s';"
        % (upstream, "".join("$rollout__%d" % number for number in range(len(texts)))),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _upstream(
    request: Request, name: str, entries: list[Entry], side: bool | None
) -> t.Iterator[str]:
    """Yield the lines of an upstream of one side, with the other for when no entry of it answers;
    None: of both.
    """
    serving = [entry for entry in entries if entry["in"]]
    yield "upstream %s {" % name
    yield "    zone rollout_%s %dk;" % (name, 64 + len(serving))
    for entry in serving:
        backup = "" if side in (None, entry["apart"]) else " backup"
        options = _listen(entry), entry["weight"], request["fall"], backup
        yield "    server %s weight=%d max_fails=%d%s;" % options
    if not serving:
        yield "    server 127.0.0.1:9 down;"
    yield "}"


def apart(upstream: str) -> str:
    """Return the upstream's name of entries that are apart; no service can have it."""
    return upstream + "~new"


def variable(upstream: str) -> str:
    """Return the name of the variable that has the upstream of a client.

    Other variables have two underscores after `rollout`, so that no upstream's is called like them.
    """
    return "rollout_" + "".join(char if char.isalnum() else "_" for char in upstream)


def _division(upstream: str, cohort: dict[str, t.Any]) -> t.Iterator[str]:
    """Yield the lines that set the variable: by a hash, or at random where there is no key."""
    name, key, share = variable(upstream), cohort["key"], cohort["share"]
    client = name.replace("rollout_", "rollout__client_", 1)
    yield 'map $%s $%s { "" $request_id; default $%s; }' % (key, client, key)
    yield 'split_clients "$%s" $%s {' % (client, name)
    if share:
        yield "    %d.%02d%% %s;" % (share // 100, share % 100, apart(upstream))
    yield "    * %s;" % upstream
    yield "}"


def status_texts(entries: list[Entry]) -> list[str]:
    """Return what a worker's status response says of the entries that are in, in short texts."""
    texts: list[str] = []
    for entry in entries:
        if entry["in"]:
            line = "%(address)s %(port)d %(weight)d %(name)s" % entry
            line += " apart;" if entry["apart"] else ";"
            if texts and len(texts[-1]) + len(line) <= TOKEN:
                texts[-1] += line
            else:
                texts.append(line)
    return texts


def status_entries(text: str) -> t.Iterator[Entry]:
    """Yield the entries that a status response lists; raises ValueError with what is none."""
    for line in filter(None, text.split(";")):
        try:
            address, port, weight, name, *side = line.split(" ")
            if side not in ([], ["apart"]):
                raise ValueError(line)
            yield {
                "address": address,
                "port": int(port),
                "in": True,
                "weight": int(weight),
                "name": name,
                "since": 0,
                "apart": bool(side),
            }
        except ValueError:
            raise ValueError(line) from None


def _listen(entry: Entry) -> str:
    """Return an address and a port as nginx reads them."""
    return ("[%s]:%d" if ":" in entry["address"] else "%s:%d") % (entry["address"], entry["port"])


def listens(text: str) -> tuple[str, int] | None:
    """Return the status address that a NAME.conf has."""
    for line in text.splitlines():
        word, _space, place = line.strip(" ;").partition(" ")
        address, _colon, port = place.rpartition(":")
        if word == "listen" and port.isdigit():
            return address.strip("[]"), int(port)
    return None


def dump(entries: list[Entry]) -> str:
    """Return the text of NAME.json."""
    kept = [
        {name: entry[name] for name in (*KEYS, *(["apart"] if entry["apart"] else []))}
        for entry in entries
    ]
    return json.dumps(kept, indent=1) + "\n"


def load(text: str) -> dict[Key, Entry]:
    """Return the entries of NAME.json, by key.

    Raises ValueError, TypeError or KeyError for any other text.
    """
    return {key(entry): dict({"apart": False}, **entry) for entry in json.loads(text or "[]")}


def idle(text: str, upstream: str) -> str:
    """Return how long nginx keeps idle connections of the clients of an upstream, as it is written
    in its configuration; "" if it keeps none, or that cannot be told.

    `nginx -T` shows an included file by itself, so a server in it has what `http` says.
    """
    values: dict[str, dict[tuple[str, ...], str]] = {}
    used = []
    for path, words in _directives(text):
        if words[0] in ("keepalive_timeout", "keepalive_min_timeout") and len(words) > 1:
            within = () if path == ("http",) else path
            if not any(block.startswith("upstream ") for block in path):
                values.setdefault(words[0], {})[within] = words[1]
        elif words[0] == "proxy_pass" and _names(words[-1], upstream):
            used.append(path)
    for path in used:
        kept = _at(values.get("keepalive_timeout", {}), path, USUAL_IDLE)
        least = _at(values.get("keepalive_min_timeout", {}), path, "0")
        if not ZERO.fullmatch(kept) and ZERO.fullmatch(least):
            return kept
    return ""


def _names(target: str, upstream: str) -> bool:
    """Return whether the target of a proxy_pass is an upstream, or the variable that names it."""
    place = target.partition("://")[2].partition("/")[0]
    return place in (upstream, "$" + variable(upstream))


def _at(values: dict[tuple[str, ...], str], path: tuple[str, ...], usual: str) -> str:
    """Return the value that holds in a block: its own, or that of the nearest around it."""
    known = [path[:length] for length in range(len(path), -1, -1) if path[:length] in values]
    return values[known[0]] if known else usual


def _directives(text: str) -> t.Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield the directives, each with the blocks that it is in; each block has a number."""
    path: tuple[str, ...] = ()
    words: list[str] = []
    for number, token in enumerate(TOKEN_OF.findall(text)):
        if token.startswith("#"):
            continue
        if token == "{":
            name = " ".join(words)
            path, words = (*path, name if name == "http" else "%s %d" % (name, number)), []
        elif token == "}":
            path, words = path[:-1], []
        elif token == ";":
            if words:
                yield path, words
            words = []
        else:
            words.append(token)


class Unlike(Exception):
    """What an upstream that no rollout wrote has that a rollout would not keep."""


def by_hand(text: str, upstream: str) -> dict[Key, Entry]:
    """Return the servers of an upstream that no rollout wrote, by key.

    Each is named by its address and port. Raises Unlike for what a rollout would not keep.
    """
    if text.startswith(MARK):
        return {}
    block = "upstream " + upstream
    servers = [words for path, words in _directives(text) if path and _block(path[-1]) == block]
    entries = map(_server, servers)
    return {key(entry): entry for entry in entries if entry}


def _block(numbered: str) -> str:
    """Return the words that begin a block of `_directives`."""
    return numbered.rpartition(" ")[0]


def _server(words: list[str]) -> Entry | None:
    """Return the entry of a directive of an upstream; None if it has none."""
    if words[0] == "zone" or words[-1] == "down":
        return None
    place = PLACE.fullmatch(words[1]) if words[0] == "server" and len(words) > 1 else None
    options = dict(word.partition("=")[::2] for word in words[2:])
    weight = options.get("weight", "1")
    if not place or options.keys() - KEPT or not weight.isdigit():
        raise Unlike(" ".join(words))
    address, port = place[1] or place[2], int(place[3] or 80)
    entry = {"address": address, "port": port, "in": True, "weight": int(weight), "since": 0}
    return dict(entry, name=_listen(entry), apart=False)


def is_by_hand(entry: Entry) -> bool:
    """Return True if an entry is one of `by_hand`: no instance has such a name."""
    return bool(entry["name"] == _listen(entry))
