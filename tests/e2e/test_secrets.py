# SPDX-License-Identifier: GPL-3.0-or-later
"""What gates, checks and instances are told in confidence is told to nobody else, however much
is to be shown.
"""

from __future__ import annotations

import threading
import typing as t
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.tests.support.playbook import Playground

SECRETS = {
    name: f"hunter2-the-{name}"
    for name in ("token", "key", "path", "query", "approval", "check", "env")
}


class Hook(BaseHTTPRequestHandler):
    """Says no, and repeats all that it was told."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(403)
        self.end_headers()
        self.wfile.write(
            f"{self.headers['Authorization']} {self.path} {self.headers} ".encode() + body
        )

    def log_message(self, format: str, *args: t.Any) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/{SECRETS['path']}/rollout?key={SECRETS['query']}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_no_secret_is_seen_anywhere(playground: Playground, hook: str) -> None:
    """With -vvvv, in a rollout that fails at a hook, in what is then asked about it, and in what
    is kept of it.
    """
    web = {
        "driver": "web",
        "url": hook,
        "headers": {"Authorization": f"Bearer {SECRETS['token']}"},
        "secret": SECRETS["key"],
    }
    approval = {"driver": "approval", "url": f"{hook}&by={SECRETS['approval']}"}
    variables = playground.variables | {"rollout_replicas": 1}
    variables["rollout_gates"] = {
        "rollback": [web],
        "confirm_rollout": [web],
        "post_rollout": [approval],
    }
    variables["rollout_health"] = {
        **variables["rollout_health"],
        "headers": {"X-Key": SECRETS["check"]},
    }
    variables["rollout_platform"] = {
        **variables["rollout_platform"],
        "env": {"KEY": SECRETS["env"]},
    }
    role: dict[str, t.Any] = {"name": "progressive.rollout.rolling"}
    common = {name.removeprefix("rollout_"): f"{{{{ {name} }}}}" for name in variables}
    look = [
        {"ansible.builtin.include_role": {**role, "tasks_from": "status"}},
        {"progressive.rollout.info": {**common, "timeline": True}},
        {"progressive.rollout.plan": common},
    ]
    tasks = [{"block": [{"ansible.builtin.include_role": role}], "rescue": look}]
    run = playground.start(
        [{"hosts": "localhost", "gather_facts": False, "tasks": tasks}], variables, "-vvvv"
    )
    seen = run.shown(set(SECRETS.values()))
    outcome = run.wait()
    assert outcome.rc == 0, outcome.output
    assert "confirm_rollout 1 (web): 403: *** *** Host" in outcome.output
    kept = {
        str(path): path.read_text(errors="replace")
        for path in map(Path, playground.files())
        if path.is_file()
    }
    assert any(path.endswith(".jsonl") and "403" in text for path, text in kept.items())
    # what instances are started with again, for root alone
    own = {path for path in kept if Path(path).parent.name == "settings"}
    assert own and {Path(path).stat().st_mode & 0o777 for path in own} == {0o600}
    there = " ".join(kept.pop(path) for path in own)
    assert {name for name, word in SECRETS.items() if word in there} == {"env", "check"}
    everywhere = {**kept, "the output": outcome.output, "the processes": " ".join(seen)}
    assert {
        (where, name)
        for where, text in everywhere.items()
        for name, word in SECRETS.items()
        if word in text
    } == set()
