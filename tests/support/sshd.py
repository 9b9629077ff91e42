# SPDX-License-Identifier: GPL-3.0-or-later
"""A real sshd on several loopback addresses, run by the tests' user and ended by its pid."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.progressive.rollout.tests.support.playbook import addresses
from ansible_collections.progressive.rollout.tests.support.ports import free_port
from ansible_collections.progressive.rollout.tests.support.waiting import until

CONFIG = """\
Port {port}
{listen}
HostKey {home}/host_key
AuthorizedKeysFile {home}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100
MaxSessions 100
LogLevel VERBOSE
SetEnv HOME={home} PATH={path}
"""


class Sshd:
    """`with Sshd(3) as sshd:` listens on three loopback addresses that are unlikely to be in use,
    so every other port there is free. `sshd.variables(address)` is what a host at one of them
    needs.
    """

    def __init__(self, count: int = 3) -> None:
        self.addresses = addresses(count)
        self.port = free_port(*self.addresses)
        self.home = Path(tempfile.mkdtemp(prefix="sshd-", dir="/tmp"))  # short: sockets live in it
        self.key = self.home / "user_key"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Sshd:
        program = shutil.which("sshd") or "/usr/sbin/sshd"
        for name in ("host_key", "user_key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.home / name], check=True
            )
        listen = "\n".join(f"ListenAddress {address}" for address in self.addresses)
        # and a home without the user's own start-up files
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        config = self.home / "sshd_config"
        config.write_text(CONFIG.format(port=self.port, listen=listen, home=self.home, path=path))
        if os.geteuid() == 0:
            # sshd of root does not start without it
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        with open(self.home / "log", "wb") as log:
            self._process = subprocess.Popen(
                [program, "-D", "-e", "-f", config], stdin=subprocess.DEVNULL, stderr=log
            )
        for address in self.addresses:
            self._wait(address)
        return self

    def __exit__(self, *_exc: object) -> None:
        for control in self.home.glob("cp/*"):
            subprocess.run(
                ["ssh", "-S", control, "-O", "exit", "x"], check=False, capture_output=True
            )
        if self._process:
            self._process.terminate()
            self._process.wait(10)
        shutil.rmtree(self.home)

    def variables(self, address: str, port: int = 0) -> dict[str, t.Any]:
        """The inventory variables of a host at this address (`port`: of something in front of
        the server).
        """
        known = self.home / "known_hosts"
        known.write_text("* " + (self.home / "host_key.pub").read_text())
        return {
            "ansible_connection": "ssh",
            "ansible_host": address,
            "ansible_port": port or self.port,
            "ansible_user": getpass.getuser(),
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_ssh_common_args": (
                f"-F /dev/null -o UserKnownHostsFile={known} -o GlobalKnownHostsFile=/dev/null"
            ),
            "ansible_control_path_dir": str(self.home / "cp"),
        }

    def commands(self) -> int:
        """How many commands it was asked to run so far."""
        return (self.home / "log").read_text().count("Starting session: command")

    def masters(self) -> list[int]:
        """The pids of the ssh processes that keep connections open for the next command.

        Such a process ends by itself, and its socket may be there a moment longer.
        """
        pids = []
        for control in self.home.glob("cp/*"):
            run = subprocess.run(
                ["ssh", "-S", control, "-O", "check", "x"],
                capture_output=True,
                text=True,
                check=False,
            )
            if run.returncode == 0:
                pids.append(int(run.stderr.partition("pid=")[2].partition(")")[0]))
        return pids

    def _wait(self, address: str) -> None:
        def listens() -> bool:
            assert self._process is not None and self._process.poll() is None, log.read_text()
            try:
                socket.create_connection((address, self.port), timeout=1).close()
            except OSError:
                return False
            return True

        log = self.home / "log"
        until(listens, f"sshd listens at {address}")
