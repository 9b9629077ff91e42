# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the images that the tests' cluster runs: kubernetes_images.py BUSYBOX DIRECTORY

`local/pause:1` holds a pod's namespaces. `local/shop:REVISION` answers requests on port 8080 with
its revision, START seconds after its begin, and its check at /healthz; `broken` ends at once.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

REVISIONS = ("1", "2", "3", "broken")
# Asked to stop, it fails its check for LAMEDUCK seconds, answers what was sent before, and ends.
SHOP = """#!/bin/sh
trap 'rm -f /www/healthz; sleep "${LAMEDUCK:-0}"; kill $!; exit 0' TERM
[ "$(cat /www/index.html)" != broken ] || exit 1
sleep "${START:-0}"
httpd -p 8080 -h /www
while :; do sleep 3600 & wait $!; done
"""


def main(busybox: Path, where: Path) -> None:
    """Write an archive for each image."""
    where.mkdir(parents=True, exist_ok=True)
    program = busybox.read_bytes()
    tools = {
        f"bin/{name}": "busybox" for name in ("sh", "cat", "sleep", "httpd", "kill", "rm", "wget")
    }
    pause = {"bin/busybox": program}
    write(where / "pause.tar", "local/pause:1", pause, tools, ["/bin/sleep", "2000000000"])
    for revision in REVISIONS:
        files = {**pause, "shop": SHOP.encode(), "www/index.html": revision.encode()}
        files["www/healthz"] = b"ok"
        name = f"local/shop:{revision}"
        write(where / f"shop-{revision}.tar", name, files, tools, ["/bin/sh", "/shop"])


def write(
    path: Path, name: str, files: dict[str, bytes], links: dict[str, str], command: list[str]
) -> None:
    """Write an image with one layer."""
    layer = archive(files, links)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": command, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [f"docker.io/{name}"], "Layers": ["layer"]}]
    parts = {
        "config.json": json.dumps(config).encode(),
        "layer": layer,
        "manifest.json": json.dumps(manifest).encode(),
    }
    path.write_bytes(archive(parts, {}))


def archive(files: dict[str, bytes], links: dict[str, str]) -> bytes:
    """Return a tar archive, the same for the same content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            tar.addfile(member, io.BytesIO(content))
        for name, target in links.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return buffer.getvalue()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
