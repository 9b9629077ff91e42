# SPDX-License-Identifier: GPL-3.0-or-later
"""A real PostgreSQL (Debian's package `postgresql-15`) on a free loopback port, ended by its pid."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import typing as t
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psycopg
from ansible_collections.progressive.rollout.tests.support.waiting import until

from .ports import free_port

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
PASSWORD = "s3cret-of-postgresql"


class PostgreSQL:
    """One server, which can be killed and started again with what it has stored."""

    def __init__(
        self, *settings: str, tls: tuple[Path, Path] | None = None, clients: Path | None = None
    ) -> None:
        """`settings`: as `name=value`; `tls`: a certificate and its key; `clients`: who has signed
        the certificates of clients, with which the user `shop` logs in.
        """
        self.directory = Path(tempfile.mkdtemp(prefix="psql", dir="/tmp"))
        self.port = free_port()
        self.settings = list(settings)
        self.process: subprocess.Popen[bytes] | None = None
        self._give(self.directory)
        data = self.directory / "data"
        password = self.directory / "password"
        password.write_text(PASSWORD)
        self._give(password)
        argv = [str(PROGRAMS[-1] / "initdb"), "-D", str(data), "-U", "rollout", "--no-sync"]
        argv += [f"--pwfile={password}", "--auth=scram-sha-256", "--no-locale", "-E", "UTF8"]
        self._run(argv)
        if tls:
            for file, name in zip(tls, ("server.crt", "server.key"), strict=True):
                shutil.copy(file, data / name)
                (data / name).chmod(0o600)
                self._give(data / name)
            self.settings.append("ssl=on")
        if clients:
            shutil.copy(clients, data / "clients.crt")
            self._give(data / "clients.crt")
            self.settings.append("ssl_ca_file=clients.crt")
            rules = data / "pg_hba.conf"
            rules.write_text(f"hostssl all shop all cert\n{rules.read_text()}")
        self.start()
        self.sql("CREATE DATABASE rollout", database="postgres")

    def _give(self, path: Path) -> None:
        """PostgreSQL does not run as root."""
        if os.geteuid() == 0:
            shutil.chown(path, "postgres", "postgres")

    @staticmethod
    def _user() -> dict[str, t.Any]:
        if os.geteuid():
            return {}
        user = pwd.getpwnam("postgres")
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def _run(self, argv: Sequence[str]) -> None:
        done = subprocess.run(
            argv, capture_output=True, cwd=self.directory, check=False, **self._user()
        )
        assert done.returncode == 0, done.stderr.decode()

    def start(self, *settings: str) -> None:
        own = [f"port={self.port}", "listen_addresses=127.0.0.1", "fsync=off", "shared_buffers=8MB"]
        own += [f"unix_socket_directories={self.directory}", "max_connections=40"]
        argv = [str(PROGRAMS[-1] / "postgres"), "-D", str(self.directory / "data")]
        for setting in (*own, *self.settings, *settings):
            argv += ["-c", setting]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
                **self._user(),
            )
        until(self._answers, f"PostgreSQL answers: {self.directory / 'log'}")

    def _answers(self) -> bool:
        assert self.process and self.process.poll() is None, (self.directory / "log").read_text()
        try:
            self.sql("SELECT 1", database="postgres")
        except psycopg.OperationalError:
            return False
        return True

    def sql(self, statement: str, database: str = "rollout") -> list[tuple[t.Any, ...]]:
        known = {"host": "127.0.0.1", "port": self.port, "user": "rollout", "password": PASSWORD}
        known["options"] = "-c default_transaction_read_only=off"
        with psycopg.connect(**known, dbname=database, autocommit=True) as connection:  # type: ignore[arg-type]
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def confine(self, kibibytes: int) -> None:
        """Keep what is made from now on in a file system of this size."""
        small = self.directory / "small"
        small.mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k", "none", str(small)], check=True
        )
        self._give(small)
        self.sql(f"CREATE TABLESPACE small LOCATION '{small}'")
        self.sql("ALTER DATABASE rollout SET default_tablespace = small")

    def fill(self) -> None:
        """Use up the file system of `confine`."""
        self.sql("CREATE TABLE filler (row text)")
        for size in (20_000, 100):
            with suppress(psycopg.errors.DiskFull):
                for _turn in range(1000):
                    self.sql(
                        "INSERT INTO filler SELECT string_agg(md5(random()::text), '')"
                        f" FROM generate_series(1, {size // 32})"
                    )
                raise AssertionError("it does not become full")

    def free(self) -> None:
        self.sql("DROP TABLE filler")

    def kill(self) -> None:
        """As a crash: the server and its processes at once."""
        assert self.process
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        self.kill()
        if (small := self.directory / "small").is_mount():
            subprocess.run(["umount", "-l", str(small)], check=True)
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> PostgreSQL:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
