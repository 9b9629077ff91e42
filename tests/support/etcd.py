# SPDX-License-Identifier: GPL-3.0-or-later
"""A real etcd (Debian's package `etcd-server`) on free loopback ports, ended by its pid."""

from __future__ import annotations

import base64
import shutil
import subprocess
import tempfile
import typing as t
from collections.abc import Mapping, Sequence
from pathlib import Path

import requests
from ansible_collections.progressive.rollout.tests.support.waiting import until

from .ports import free_port


class Etcd:
    """One member, which can be killed and started again with what it has stored."""

    def __init__(
        self,
        *options: str,
        tls: Mapping[str, str] | None = None,
        name: str = "",
        start: bool = True,
    ) -> None:
        """`tls`: its files, by etcd's option."""
        self.directory = Path(tempfile.mkdtemp(prefix="etcd", dir="/tmp"))
        self.port, self.peer = free_port(), free_port()
        self.options: Sequence[str] = options
        self.name = name or "default"
        self.members = f"{self.name}=http://127.0.0.1:{self.peer}"
        self.tls = dict(tls or {})
        self.url = f"http{'s' * bool(tls)}://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        if start:
            self.start()

    def start(self, *options: str) -> None:
        self.launch(*options)
        until(self.answers, f"etcd answers: {self.directory / 'log'}")

    def launch(self, *options: str) -> None:
        url, peer = self.url, f"http://127.0.0.1:{self.peer}"
        argv = ["etcd", "--data-dir", str(self.directory / "data"), "--log-level", "error"]
        argv += ["--unsafe-no-fsync", "--listen-client-urls", url, "--advertise-client-urls", url]
        argv += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        argv += ["--initial-cluster", self.members, "--name", self.name]
        argv += [*self.options, *options]
        for name, value in self.tls.items():
            argv += [f"--{name}", value]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def answers(self) -> bool:
        assert self.process and self.process.poll() is None, (self.directory / "log").read_text()
        listening = subprocess.run(
            ["ss", "-Hltn", f"sport = :{self.port}"], capture_output=True, check=True
        )
        if self.tls:
            return bool(listening.stdout)
        try:
            return "header" in self.post("kv/range", key=_coded("/"))
        except (requests.RequestException, ValueError):
            return False

    def post(self, what: str, **body: t.Any) -> dict[str, t.Any]:
        """Ask the gateway; only of one without TLS."""
        answer = requests.post(f"{self.url}/v3/{what}", json=body, timeout=10)
        return t.cast("dict[str, t.Any]", answer.json())

    def keys(self, prefix: str = "/") -> list[str]:
        found = self.post("kv/range", **_range(prefix), keys_only=True)
        return [base64.b64decode(one["key"]).decode() for one in found.get("kvs", ())]

    def get(self, key: str) -> str:
        found = self.post("kv/range", key=_coded(key))
        return base64.b64decode(found["kvs"][0]["value"]).decode()

    def put(self, key: str, value: str) -> None:
        self.post("kv/put", key=_coded(key), value=_coded(value))

    def clear(self) -> None:
        self.post("kv/deleterange", **_range("/"))

    def disarm(self) -> None:
        """End its alarms."""
        for alarm in self.post("maintenance/alarm", action="GET").get("alarms", ()):
            self.post("maintenance/alarm", action="DEACTIVATE", **alarm)

    def kill(self) -> None:
        assert self.process
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Etcd:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class EtcdCluster:
    """Three members, of which any may be killed and started again."""

    def __init__(self) -> None:
        self.members = [Etcd(name=f"m{number}", start=False) for number in range(3)]
        joined = ",".join(member.members for member in self.members)
        for member in self.members:
            member.members = joined
            member.launch()
        for member in self.members:
            until(member.answers, f"etcd answers: {member.directory / 'log'}")

    @property
    def urls(self) -> list[str]:
        return [member.url for member in self.members]

    def leader(self) -> Etcd:
        """The member that leads; asked of one that runs."""
        alive = [one for one in self.members if one.process and one.process.poll() is None]
        found: list[Etcd] = []

        def known() -> bool:
            states = {one.name: one.post("maintenance/status") for one in alive}
            found[:] = [
                one
                for one in alive
                if states[one.name].get("leader") == states[one.name]["header"]["member_id"]
            ]
            return len(found) == 1

        until(known, "there is one leader")
        return found[0]

    def close(self) -> None:
        for member in self.members:
            member.close()

    def __enter__(self) -> EtcdCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _range(prefix: str) -> dict[str, str]:
    return {"key": _coded(prefix), "range_end": _coded(prefix[:-1] + chr(ord(prefix[-1]) + 1))}
