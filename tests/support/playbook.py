# SPDX-License-Identifier: GPL-3.0-or-later
"""Run ansible-playbook on a service in a temporary directory, with an inventory of local hosts and
free ports.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.progressive.rollout.tests.support import prefork, processes
from ansible_collections.progressive.rollout.tests.support.waiting import LONG, until

ROOT = Path(__file__).resolve().parents[2]
APP = ROOT / "playbooks" / "files" / "app.py"
ROLLOUT = "progressive.rollout.rollout"
# Where the artefact is installed, if it is what playbooks run (`make release`), and not the checkout.
ARTEFACT = os.environ.get("ARTEFACT_COLLECTIONS", "")
Variables = Mapping[str, t.Any]


@dataclass(frozen=True)
class Task:
    """The result of one task (of one item, in a loop: see `result["results"]`)."""

    task: str
    action: str
    status: str  # ok | failed | skipped | unreachable
    result: dict[str, t.Any]
    at: float  # when it was over, in seconds since the epoch

    @property
    def changed(self) -> bool:
        return bool(self.result.get("changed"))

    @property
    def msg(self) -> str:
        return str(self.result.get("msg", ""))


@dataclass(frozen=True)
class Outcome:
    """The result of a run of ansible-playbook."""

    rc: int
    output: str  # what it printed, errors too
    tasks: list[Task]

    def of(self, name: str) -> list[Task]:
        """The tasks that are called `name`, or whose action is; a step's short name will do."""
        return [
            task
            for task in self.tasks
            if name in (task.task, task.action, task.action.rpartition(".")[2])
        ]

    def one(self, name: str) -> Task:
        (task,) = self.of(name)
        return task

    @property
    def failed(self) -> Task:
        """The last task that failed."""
        return [task for task in self.tasks if task.status in ("failed", "unreachable")][-1]

    @property
    def rollout(self) -> dict[str, t.Any]:
        """The last `rollout` mapping that a step returned."""
        return t.cast(
            "dict[str, t.Any]",
            [task.result["rollout"] for task in self.tasks if "rollout" in task.result][-1],
        )


class Run:
    """An ansible-playbook in progress."""

    def __init__(
        self,
        argv: Sequence[str],
        home: Path,
        number: int,
        environment: Mapping[str, str],
        forked: bool,
    ) -> None:
        self._output, self._results = home / f"{number}.output", home / f"{number}.results"
        for file in (self._output, self._results):
            file.touch()
        env = {**environment, "RESULTS": str(self._results)}
        self.process: prefork.Forked | subprocess.Popen[bytes]
        if forked:
            self.process = prefork.start(argv, cwd=home, env=env, output=self._output)
            return
        with open(self._output, "wb") as out:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=home,
                env=env,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def wait(self, timeout: float = LONG) -> Outcome:
        try:
            rc = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not over within {timeout:g} s:\n{self.output}") from None
        return Outcome(
            rc,
            self.output,
            [Task(**json.loads(line)) for line in self._results.read_text().splitlines()],
        )

    def kill(self) -> None:
        """SIGKILL for ansible-playbook alone, not for its workers, and wait for the workers to
        end by themselves.
        """
        self.process.kill()
        self.process.wait()
        until(lambda: not self.left(), "workers end with their parent")

    def left(self) -> list[int]:
        """Return the processes of the run's session. Instances have their own sessions."""
        found = {int(entry): _stat(int(entry)) for entry in os.listdir("/proc") if entry.isdigit()}
        return [
            pid
            for pid, stat in found.items()
            if stat and stat[0] != "Z" and int(stat[3]) == self.process.pid
        ]

    def shown(self, words: set[str]) -> set[str]:
        """Those that were in the command of a process of the run, for everybody to see, until it
        was over.
        """
        found = set()
        while self.process.poll() is None:
            for pid in self.left():
                try:
                    command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
                except OSError:
                    continue
                found |= {word for word in words if word in command}
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pid in self.left():
            _kill(pid)


class Playground:
    """A service `shop` on `hosts` hosts, all of them this machine; `variables` are what its users
    would write.

    Each host has its own loopback address, so every port is free. Use it as a context manager:
    at its end all instances are ended, by the pids in their records, and all files removed.
    """

    def __init__(
        self, hosts: int = 3, variables: Variables | None = None, inventory: Variables | None = None
    ) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
        self.hosts = [f"web{number}" for number in range(1, hosts + 1)]
        self.addresses = dict(zip(self.hosts, addresses(hosts), strict=True))
        self.store = self.home / "store"
        self.platform = self.home / "platform"
        self.variables: dict[str, t.Any] = {
            "rollout_service": "shop",
            "rollout_revision": "1",
            "rollout_replicas": 3,
            "rollout_budget": {"max_surge": 1, "max_unavailable": 0},
            "rollout_platform": {
                "driver": "process",
                "hosts": "web",
                "command": [sys.executable, "-I", "-S", str(APP)],
                "ports": "8100-8199",
                "path": str(self.platform),
                "stop_timeout": "5s",
            },
            "rollout_health": {"http": "/healthz", "interval": "100ms", "rise": 1},
            "rollout_progress_deadline": "60s",
            "rollout_store": {"driver": "file", "path": str(self.store)},
            **(variables or {}),
        }
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        web = {
            "hosts": {
                name: {"ansible_host": address, **local} for name, address in self.addresses.items()
            }
        }
        children = {"web": web, "nobody": {}, **(inventory or {})}
        (self.home / "hosts.json").write_text(json.dumps({"all": {"children": children}}))
        self._runs: list[Run] = []
        self._numbers = itertools.count()

    def start(
        self,
        playbook: str | Sequence[Variables] = ROLLOUT,
        variables: Variables | None = None,
        *options: str,
        env: Mapping[str, str] | None = None,
        forked: bool = False,
        machine: str = "",
        reader: str = "",
    ) -> Run:
        """Begin ansible-playbook: a playbook of the collection, one by its path, or plays as
        data. `variables` are added to the playground's own (None takes one away); `options` are
        ansible-playbook's own, as `--check`. `machine`: the name of the controller, another one.
        `reader`: a shell command that its output is piped to, and that itself succeeds.
        """
        number = next(self._numbers)
        if not isinstance(playbook, str):
            path = self.home / f"{number}.yml"
            path.write_text(json.dumps(playbook))  # JSON is YAML
            playbook = str(path)
        given = {
            key: value
            for key, value in {**self.variables, **(variables or {})}.items()
            if value is not None
        }
        (self.home / f"{number}.json").write_text(json.dumps(given))
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        renamed = 'hostname "$0" && exec "$@"'
        piped = f'set -o pipefail; "$@" | {reader}'
        argv = [
            *(("bash", "-c", piped, "bash") if reader else ()),
            *(("unshare", "--uts", "sh", "-c", renamed, machine) if machine else ()),
            program,
            "-i",
            str(self.home / "hosts.json"),
            "-e",
            f"@{self.home / f'{number}.json'}",
            *options,
            playbook,
        ]
        run = Run(argv, self.home, number, {**self._environment(), **(env or {})}, forked)
        self._runs.append(run)
        return run

    def run(
        self,
        playbook: str | Sequence[Variables] = ROLLOUT,
        variables: Variables | None = None,
        *options: str,
        env: Mapping[str, str] | None = None,
        timeout: float = LONG,
    ) -> Outcome:
        """As `start`, to its end; forked where nothing can tell it from a started program."""
        usual = not env and not ARTEFACT and not (self.home / "ansible.cfg").exists()
        return self.start(playbook, variables, *options, env=env, forked=usual).wait(timeout)

    def steps(
        self, *tasks: Variables, variables: Variables | None = None, options: Sequence[str] = ()
    ) -> Outcome:
        """Run single steps, as `{"scale": {"replicas": 2}}`; what every step takes comes from
        the variables.
        """
        names = {
            key.removeprefix("rollout_"): f"{{{{ {key} }}}}"
            for key in {**self.variables, **(variables or {})}
        }
        listed = [
            {f"progressive.rollout.{k}" if k in STEPS else k: v for k, v in task.items()}
            for task in tasks
        ]
        play = {
            "hosts": "localhost",
            "gather_facts": False,
            "module_defaults": {"group/progressive.rollout.steps": names},
            "tasks": listed,
        }
        return self.run([play], variables, *options)

    def _environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
        if ARTEFACT:
            kept["PYTHONPATH"] = ""  # or the checkout would be found there
        collections = ARTEFACT or os.environ.get(
            "ANSIBLE_COLLECTIONS_PATH", str(ROOT / ".cache" / "collections")
        )
        return kept | {
            "ANSIBLE_HOME": str(self.home / "ansible"),
            "ANSIBLE_COLLECTIONS_PATH": collections,
            "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "tests" / "e2e" / "callback_plugins"),
            "ANSIBLE_CALLBACKS_ENABLED": "results",
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
            "ANSIBLE_RETRY_FILES_ENABLED": "false",
            "ANSIBLE_NOCOLOR": "true",
        }

    def records(self) -> list[dict[str, t.Any]]:
        """What the platform wrote down of each instance (id, revision, pid, address, port, ...)."""
        found = []
        for path in sorted(self.home.glob("**/instances/*.json")):
            try:
                found.append(json.loads(path.read_text()))
            except FileNotFoundError:
                pass
        return found

    def living(self) -> list[dict[str, t.Any]]:
        """The records of the instances whose process is there."""
        return [
            record
            for record in self.records()
            if record.get("pid") and _is(record["pid"], record["ticks"])
        ]

    def revisions(self) -> list[str]:
        """The revision of each living instance, sorted."""
        return sorted(record["revision"] for record in self.living())

    def journal(self, service: str = "shop") -> dict[str, t.Any]:
        """The service's record in the journal."""
        return t.cast(
            "dict[str, t.Any]", json.loads((self.store / "journal" / f"{service}.json").read_text())
        )

    def timeline(self, rollout: str, service: str = "shop") -> list[dict[str, t.Any]]:
        """The events of a rollout, oldest first; one that is being written is not there yet."""
        text = (self.store / "journal" / service / f"{rollout}.jsonl").read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def files(self) -> set[str]:
        """What there is below the store and the platform's directory."""
        return {str(path) for folder in (self.store, self.platform) for path in folder.glob("**/*")}

    def close(self) -> None:
        for run in self._runs:
            run.close()
        while living := self.living():  # a host's agent may have been at work still
            for record in living:
                _kill(record["pid"])
            time.sleep(0.05)
        shutil.rmtree(self.home)

    def __enter__(self) -> Playground:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


STEPS = tuple(path.stem for path in (ROOT / "plugins" / "action").glob("*.py"))


def addresses(count: int) -> list[str]:
    """Return loopback addresses that are unlikely to be in use."""
    second, third = (1 + byte % 254 for byte in os.urandom(2))
    return [f"127.{second}.{third}.{number}" for number in range(1, count + 1)]


def suspend(pid: int) -> None:
    """Suspend a process while it holds no lock of a file.

    The controller that goes on from here would wait for such a lock, since both run on this
    machine. Controllers on machines of their own have none in common.
    """

    def suspended() -> bool:
        processes.stop(pid)
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        if not any("FLOCK" in lock and str(pid) in lock for lock in locks):
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    until(suspended, f"process {pid} holds no lock")


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the state on; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _is(pid: int, ticks: int) -> bool:
    stat = _stat(pid)
    return bool(stat) and stat[0] not in "ZX" and int(stat[19]) == ticks


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
