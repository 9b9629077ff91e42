# SPDX-License-Identifier: GPL-3.0-or-later
"""An image of this machine's Python, in place of one from a registry, for a podman of its own."""

from __future__ import annotations

import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

NAME = "docker.io/library/python:3-slim"
PYTHON = "/usr/bin/python3"
PATH = """\
import os, sys, sysconfig
print(os.path.realpath(sys.executable), sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
"""
# A container may have no more than this process has, and asks for all there is unless told so.
LIMITS = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
"""


def podman(folder: Path) -> dict[str, str]:
    """Write a `podman` into a folder, which has its storage there, too; return the environment it needs."""
    script = folder / "podman"
    options = f"--root {folder}/root --runroot {folder}/run --storage-driver vfs --runtime runc"
    options += " --cgroup-manager cgroupfs --events-backend none"
    script.write_text(f'#!/bin/sh\nexec /usr/bin/podman {options} "$@"\n')
    script.chmod(0o755)
    limits = folder / "containers.conf"
    limits.write_text(LIMITS)
    return {"CONTAINERS_CONF": str(limits), "BUILDAH_ISOLATION": "chroot"}


def load(podman: Path, env: dict[str, str]) -> None:
    """Make the image known to podman under the name that it has in the registry."""
    archive = podman.with_name("python.tar")
    with tarfile.open(archive, "w", dereference=True) as tar:
        for path in sorted(set(_files())):
            tar.add(path, filter=_plain)
    change = ["--change", "ENV PATH=/usr/bin"]
    subprocess.run([podman, "import", "--quiet", *change, archive, NAME], env=env, check=True)
    archive.unlink()


def _files() -> Iterator[str]:
    """Python, its library, and the shared libraries that they need."""
    told = subprocess.run([PYTHON, "-I", "-c", PATH], capture_output=True, text=True, check=True)
    program, *libraries = told.stdout.split()
    yield from (PYTHON, program, *libraries)
    needed = [program, *map(str, Path(libraries[-1], "lib-dynload").glob("*.so"))]
    text = subprocess.run(["ldd", *needed], capture_output=True, text=True, check=True).stdout
    yield from re.findall(r"(/[^ :]+\.so[^ :]*) \(0x", text)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    unused = re.search(
        r"/(__pycache__|test|tests|idlelib|ensurepip|dist-packages|config-[^/]*)$", entry.name
    )
    return None if unused else entry
