# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carries lines to HAProxy's Runtime API on the host it runs on. Decides nothing; needs Python 3.8."""

from __future__ import annotations

import os
import socket


def main(request: dict) -> dict:
    """`{sockets: {address: {lines, save}}, timeout}` -> `{address: {texts}}` or `{address: {error}}`.

    HAProxy closes the connection after a line, so there is one connection a line. `save` is `{path, line}`:
    the text of one more line, kept in a file.
    """
    answers: dict = {}
    for address, work in request["sockets"].items():
        try:
            texts = [_ask(address, line, request["timeout"]) for line in work["lines"]]
            if work.get("save"):
                _save(work["save"]["path"], _ask(address, work["save"]["line"], request["timeout"]))
            answers[address] = {"texts": texts}
        except OSError as exc:
            why = exc.strerror or str(exc) or type(exc).__name__
            hint = "does HAProxy run, and may the user that Ansible logs in as use this socket?"
            answers[address] = {"error": f"{exc.filename}: {why}" if exc.filename else f"{why}; {hint}"}
    return answers


def _ask(address, line, timeout):
    with _connect(address, timeout) as connection:
        connection.sendall(line.encode() + b"\n")
        chunks = []
        while True:
            chunk = connection.recv(1 << 18)
            if not chunk:
                return b"".join(chunks).decode("utf-8", "replace")
            chunks.append(chunk)


def _connect(address, timeout):
    if not address.startswith("/"):
        host, _colon, port = address.rpartition(":")
        return socket.create_connection((host.strip("[]"), int(port)), timeout)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(timeout)
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def _save(path, text):
    """Replace the file as a whole: HAProxy may read it at any moment."""
    temporary = path + ".rollout.tmp"
    with open(temporary, "w") as stream:
        stream.write(text.rstrip() + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)
