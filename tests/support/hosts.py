# SPDX-License-Identifier: GPL-3.0-or-later
"""Real hosts, reached over SSH: containers with systemd and sshd, in their own network
(host_image.py: what is in them).

    with Hosts("web1", "web2", "lb1") as hosts:
        hosts.variables("web1")

Needs root. Hosts whose process is gone are removed by the next one. For people and Molecule there
is `scripts/hosts`:

* `up NAME...` starts hosts that stay until `down`;
* `down` removes them;
* `--list` is what Ansible asks for after `-i scripts/hosts`; groups are names without digits: web1
  is in `web`.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import socket
import subprocess
import sys
import typing as t
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from ansible_collections.progressive.rollout.tests.support import host_image
from ansible_collections.progressive.rollout.tests.support.host_image import (
    CACHE,
    KEY,
    KNOWN_HOSTS,
    locked,
    overlay,
    run,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

# Apart from all other containers of this machine.
PODMAN = [
    "podman",
    "--root",
    f"{CACHE}/podman/root",
    "--runroot",
    f"{CACHE}/podman/run",
    "--storage-driver",
    "vfs",
]
PODMAN += ["--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "none"]
# systemd and other containers run in a host, so it may do much; but it has no disks, and its
# cgroups are its own.
HOST = [
    "--systemd=always",
    "--stop-signal=SIGRTMIN+3",
    "--cgroupns=private",
    "--pids-limit=-1",
    "--cap-add=all",
]
HOST += [
    "--security-opt=unmask=ALL",
    "--security-opt=seccomp=unconfined",
    "--security-opt=apparmor=unconfined",
]
HOST += ["--device-cgroup-rule=c 5:1 rwm"]  # /dev/console: docker grants it to all containers
# podman has lowered its own, and would ask for more
HOST += ["--ulimit=nofile=16384:16384", "--ulimit=nproc=16384:16384"]
# Each has a share of the CPU of its own, as much as some processes. Below podman's usual parent, all
# hosts together had that of one, and starved beside the tests.
HOST += ["--cgroup-parent=/", "--cpu-shares=4096"]
# images cannot be unpacked on an overlay
HOST += ["--volume=/var/lib/containers", "--volume=/var/lib/docker"]


class Hosts:
    """As many hosts as names are given; `addresses` has where they are."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self._number = 0  # of the network: 1 to 511
        # the file that says so; locked while this process has the hosts
        self._lock: t.IO[str] | None = None

    def __enter__(self) -> Hosts:
        self.up()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.down()

    def up(self) -> None:
        image = host_image.make()
        with locked(CACHE / "sets"):
            _remove_abandoned()
            self._number, self._lock = _reserve()
        try:
            _sockets(self._number).mkdir(mode=0o700, exist_ok=True)
            with ThreadPoolExecutor(len(self.names)) as pool:
                list(pool.map(lambda name: self._create(name, image), self.names))
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        _remove(self._number)
        if self._lock:
            self._lock.close()

    def keep(self) -> None:
        """Let them outlive this process."""
        assert self._lock
        self._lock.write(" ".join(self.names))
        self._lock.close()

    @classmethod
    def kept(cls) -> Hosts | None:
        """The hosts of this checkout that a process has kept."""
        for path in CACHE.glob("*.set"):
            if names := path.read_text().split():
                hosts = cls(*names)
                hosts._number = int(path.stem)
                return hosts
        return None

    @property
    def addresses(self) -> dict[str, str]:
        return {
            name: f"{_subnet(self._number)}.{index}" for index, name in enumerate(self.names, 11)
        }

    def variables(self, name: str, user: str = "deploy") -> dict[str, t.Any]:
        """The inventory variables of a host. `deploy` needs no password for sudo, `clerk` does
        (and has it here).
        """
        known = (
            f"-F /dev/null -o UserKnownHostsFile={KNOWN_HOSTS} -o GlobalKnownHostsFile=/dev/null"
        )
        variables = {
            "ansible_connection": "ssh",
            "ansible_host": self.addresses[name],
            "ansible_user": user,
            "ansible_ssh_private_key_file": str(KEY),
            "ansible_ssh_common_args": known,
            "ansible_control_path_dir": str(_sockets(self._number)),
            "ansible_python_interpreter": "/usr/bin/python3",
        }
        return variables | (
            {"ansible_become_password": host_image.PASSWORD} if user == "clerk" else {}
        )

    def run(self, name: str, *command: str) -> str:
        """Return the output of a command that root runs on a host, without SSH."""
        return _podman("exec", self._container(name), *command)

    def start(self, name: str) -> None:
        """Switch a host on, and wait until one can log in."""
        _wire(self._number, self._container(name), self.addresses[name])
        _podman("start", self._container(name))
        try:
            until(lambda: _answers(self.addresses[name]), f"{name} has an sshd")
        except AssertionError as exc:
            failed = self.run(name, "systemctl", "list-units", "--failed")
            raise AssertionError(f"{exc}: {failed}") from None

    def stop(self, name: str) -> None:
        """Shut a host down in an orderly way: its services are stopped first."""
        _podman("stop", "--time=60", self._container(name))
        self.cut(name)

    def kill(self, name: str) -> None:
        """Switch a host off: nothing on it ends in order, and nothing answers at its address."""
        self.cut(name)
        _podman("kill", self._container(name))
        _podman("wait", self._container(name))

    def cut(self, name: str) -> None:
        """Pull the plug of its network; the host lives on."""
        run("ip", "link", "set", self._container(name), "down")

    def plug(self, name: str) -> None:
        """Put the plug of its network in again."""
        run("ip", "link", "set", self._container(name), "up")

    def _create(self, name: str, image: str) -> None:
        container = self._container(name)
        disk = CACHE / str(self._number) / container
        root, upper, work = disk / "root", disk / "upper", disk / "work"
        for directory in (root, upper, work):
            directory.mkdir(parents=True)
        overlay(root, image, upper, work)
        others = [f"--add-host={other}:{address}" for other, address in self.addresses.items()]
        run("ip", "netns", "add", container)
        network = f"--network=ns:/run/netns/{container}"
        _podman(
            "create",
            f"--name={container}",
            f"--hostname={name}",
            network,
            *others,
            *HOST,
            "--rootfs",
            str(root),
            "/sbin/boot",
        )
        self.start(name)

    def _container(self, name: str) -> str:
        """Also the name of its network namespace, and of this machine's end of its wire (at most
        15 characters).
        """
        return f"{_bridge(self._number)}-{self.names.index(name)}"


# A set of hosts is a number, which is in the names of all that belongs to it. The file `NUMBER.set`
# is locked while it is used.


def _bridge(number: int) -> str:
    return f"hosts{number}"


def _subnet(number: int) -> str:
    """Of 198.18.0.0/15, which is set aside for tests."""
    return f"198.{18 + number // 256}.{number % 256}"


def _sockets(number: int) -> Path:
    """Where ssh keeps its connections: the path must be short."""
    return Path(f"/run/{_bridge(number)}")


def _reserve() -> tuple[int, t.IO[str]]:
    """The number of a new set, with its bridge, and its locked file."""
    for number in range(1, 512):
        # Of this checkout or another one: only one of them can make the bridge.
        if not (CACHE / f"{number}.set").exists() and _made(
            "ip", "link", "add", _bridge(number), "type", "bridge"
        ):
            file = open(CACHE / f"{number}.set", "w")
            fcntl.flock(file, fcntl.LOCK_EX)
            run("ip", "address", "add", f"{_subnet(number)}.1/24", "dev", _bridge(number))
            run("ip", "link", "set", _bridge(number), "up")
            return number, file
    raise AssertionError("all networks for tests are in use, see `ip link show type bridge`")


def _remove_abandoned() -> None:
    """Remove the sets that are not kept and whose process is gone."""
    for path in CACHE.glob("*.set"):
        with suppress(FileNotFoundError, BlockingIOError), open(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and not file.read():  # otherwise its process removed it a moment ago
                _remove(int(path.stem))


def _remove(number: int) -> None:
    """Remove all that belongs to a set, as far as it is there."""
    prefix, disks = f"{_bridge(number)}-", CACHE / str(number)
    for control in _sockets(number).glob("*"):
        subprocess.run(["ssh", "-S", control, "-O", "exit", "x"], check=False, capture_output=True)
    shutil.rmtree(_sockets(number), ignore_errors=True)
    containers = _podman("ps", "--all", "--format={{.Names}}", f"--filter=name=^{prefix}").split()
    if containers:
        _podman("rm", "--force", "--time=0", "--volumes", *containers)
    for root in disks.glob("*/root"):
        if root.is_mount():
            run("umount", str(root))
    shutil.rmtree(disks, ignore_errors=True)
    for namespace in Path("/run/netns").glob(f"{prefix}*"):
        run("ip", "netns", "delete", namespace.name)
    _made("ip", "link", "delete", _bridge(number))
    (CACHE / f"{number}.set").unlink()


def _wire(number: int, container: str, address: str) -> None:
    """A network namespace as a host finds it that was switched on: nothing is left in it of what
    the last one did.
    """
    run("ip", "netns", "delete", container)
    _made("ip", "link", "delete", container)  # it goes with the namespace, but later
    run("ip", "netns", "add", container)
    # the same again: neighbours remember it
    mac = "02:00:" + ":".join(f"{int(part):02x}" for part in address.split("."))
    run(
        "ip",
        "link",
        "add",
        container,
        "type",
        "veth",
        "peer",
        "name",
        "eth0",
        "address",
        mac,
        "netns",
        container,
    )
    run("ip", "link", "set", container, "master", _bridge(number), "up")
    run("ip", "-n", container, "address", "add", f"{address}/24", "dev", "eth0")
    for interface in ("lo", "eth0"):
        run("ip", "-n", container, "link", "set", interface, "up")


def _answers(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=1) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _podman(*arguments: str) -> str:
    return run(*PODMAN, *arguments)


def _made(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def main(do: str = "", *names: str) -> None:
    kept = Hosts.kept()
    if do == "up" and names:
        if kept:
            sys.exit(
                f"hosts are up already: {' '.join(kept.names)}; remove them first: scripts/hosts"
                " down"
            )
        hosts = Hosts(*names)
        hosts.up()
        hosts.keep()
    elif do == "down" and not names:
        with locked(CACHE / "sets"):
            _remove_abandoned()
        if kept:
            kept.down()
    elif do == "--list":
        print(json.dumps(_inventory(kept or Hosts()), indent=4))
    else:
        sys.exit("usage: scripts/hosts up NAME... | down | --list")


def _inventory(hosts: Hosts) -> dict[str, t.Any]:
    """As Ansible takes it from a program."""
    groups: dict[str, t.Any] = {}
    for name in hosts.names:
        groups.setdefault(name.rstrip("0123456789"), {"hosts": []})["hosts"].append(name)
    return {**groups, "_meta": {"hostvars": {name: hosts.variables(name) for name in hosts.names}}}


if __name__ == "__main__":
    main(*sys.argv[1:])
