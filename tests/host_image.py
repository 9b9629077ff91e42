# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image that the tests' hosts are started from, made of Debian's packages in about a minute.

In it: systemd, sshd, sudo, Python, HAProxy, nginx, podman, docker, and below /opt/shop the demo's application, also as the
images `localhost/shop:1`, `:2`, `:3` and `:bad` (never ready), in an archive for `podman load` and `docker load`. What serves is
started by the tests only.

Called by mmdebstrap with the new system's directory, it does all that is not a package.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

APP = Path(__file__).parent.parent / "playbooks/files/app.py"
PACKAGES = """dbus docker.io haproxy iproute2 iptables nginx openssh-server podman procps python3 runc sudo systemd
    systemd-sysv""".split()
# Of no use here: documentation, and 70 MB of programs that belong to docker and containerd.
UNUSED = """/usr/share/doc/* /usr/share/man/* /usr/share/locale/* /usr/bin/containerd-shim /usr/bin/containerd-shim-runc-v1
    /usr/bin/ctr /usr/bin/dnet /usr/sbin/ovrouter""".split()
PASSWORD = "let me in"  # of the user `clerk`, for sudo

FILES = {
    # Where the machine has version 1 of cgroups: podman mounts the controllers read-only, and the whole machine's tree of systemd
    # over the host's own. There is nothing to do in version 2.
    "sbin/boot": """\
#!/bin/sh
if [ -d /sys/fs/cgroup/systemd ]; then
    umount /sys/fs/cgroup/systemd/release_agent /sys/fs/cgroup/systemd
    for tree in /sys/fs/cgroup/*/; do
        mount -o remount,bind,rw "$tree"
    done
fi
exec /lib/systemd/systemd
""",
    "etc/machine-id": "",  # each host makes its own
    "etc/ssh/sshd_config.d/tests.conf": """\
HostKey /etc/ssh/tests_key
AuthorizedKeysFile /etc/ssh/tests_users
PasswordAuthentication no
MaxStartups 100
MaxSessions 100
""",
    "etc/sudoers.d/tests": "deploy ALL=(ALL:ALL) NOPASSWD: ALL\nclerk ALL=(ALL:ALL) ALL\n",
    # A container may have no more than its host has, and asks for all there is unless told otherwise.
    "etc/containers/containers.conf": """\
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
""",
    "etc/docker/daemon.json": """\
{"default-ulimits": {"nofile": {"Name": "nofile", "Soft": 4096, "Hard": 4096}}}
""",
}
# No unit that changes the machine's kernel, that sshd would wait for, or that serves before it is asked to.
MASKED = """apt-daily.timer apt-daily-upgrade.timer dev-hugepages.mount e2scrub_reap.service modprobe@.service
    podman-auto-update.service podman-auto-update.timer sys-fs-fuse-connections.mount sys-kernel-config.mount
    sys-kernel-debug.mount sys-kernel-tracing.mount systemd-binfmt.service systemd-logind.service systemd-modules-load.service
    systemd-remount-fs.service systemd-sysctl.service""".split()
DISABLED = """containerd.service docker.service docker.socket haproxy.service nginx.service podman.service podman.socket
    podman-restart.service""".split()

# The application's image: these packages, without what only people read.
APP_PACKAGES = """libc6 libexpat1 zlib1g dash python3-minimal python3.11-minimal libpython3.11-minimal
    libpython3.11-stdlib""".split()
APP_CONFIG = {
    "Entrypoint": ["/usr/bin/python3", "-I", "-S", "/opt/shop/app.py"],
    "ExposedPorts": {"8080/tcp": {}},
}
APP_ENVIRONMENT = ["PATH=/usr/bin:/bin", "ADDRESS=0.0.0.0", "PORT=8080"]
REVISIONS: dict[str, list[str]] = {"1": [], "2": [], "3": [], "bad": ["HEALTH=fail"]}


def build(root: Path, key: Path, host_key: Path) -> None:
    """Make the directory `root`. Users log in with `key`, hosts answer with `host_key`; both have a `.pub` beside them."""
    unused = [f"--dpkgopt=path-exclude={path}" for path in UNUSED]
    command = [
        *("mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory", f"--include={','.join(PACKAGES)}"),
        *('--aptopt=Acquire::Languages "none"', "--dpkgopt=force-unsafe-io", *unused),
        f'--customize-hook="{sys.executable}" -I "{__file__}" "$1" "{key}.pub" "{host_key}"',
        *("bookworm", str(root), _mirror()),
    ]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, f"mmdebstrap ended with {done.returncode}: {done.stderr[-2000:]}"


def stamp(*keys: Path) -> str:
    """What the image depends on: another one is needed when this changes."""
    parts = [Path(__file__), APP, *keys]
    return hashlib.sha256(b"\0".join(part.read_bytes() for part in parts)).hexdigest()[:12]


def _mirror() -> str:
    """Where this machine gets Debian's packages from."""
    asked = ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", "Origin: Debian", "Label: Debian"]
    sites = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    return sites[0] if sites else "http://deb.debian.org/debian"


def customize(root: Path, key: Path, host_key: Path) -> None:
    """Finish the system below `root`."""
    root = root.resolve()
    for name, text in FILES.items():
        _write(root / name, text.encode(), 0o755 if name == "sbin/boot" else 0o644)
    _write(root / "etc/ssh/tests_users", key.read_bytes(), 0o644)
    _write(root / "etc/ssh/tests_key", host_key.read_bytes(), 0o600)
    for name in MASKED:
        (root / "etc/systemd/system" / name).unlink(missing_ok=True)
        (root / "etc/systemd/system" / name).symlink_to("/dev/null")
    (root / "etc/tmpfiles.d/systemd-nologin.conf").symlink_to("/dev/null")  # who can connect can log in, from the start
    _inside(root, "systemctl", "disable", *DISABLED)
    for user in ("deploy", "clerk"):
        _inside(root, "useradd", "--create-home", "--shell", "/bin/bash", user)
    subprocess.run(["chroot", root, "chpasswd"], input=f"clerk:{PASSWORD}\n", text=True, check=True)
    shop = root / "opt/shop"
    shop.mkdir()
    shutil.copyfile(APP, shop / "app.py")
    _save_images(root, shop / "images.tar")


def _write(path: Path, content: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def _inside(root: Path, *command: str) -> str:
    return subprocess.run(["chroot", root, *command], check=True, stdout=subprocess.PIPE, text=True).stdout


def _save_images(root: Path, archive: Path) -> None:
    """An archive of images that differ in the environment only, so that they know their revision."""
    layer = _layer(root)
    parts = {"layer.tar": layer}
    manifest = []
    for revision, environment in REVISIONS.items():
        config = {
            "architecture": _inside(root, "dpkg", "--print-architecture").strip(),
            "os": "linux",
            "created": "2000-01-01T00:00:00Z",
            "config": {**APP_CONFIG, "Env": [*APP_ENVIRONMENT, f"REVISION={revision}", *environment]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
        content = json.dumps(config).encode()
        name = f"{hashlib.sha256(content).hexdigest()}.json"
        parts[name] = content
        manifest.append({"Config": name, "RepoTags": [f"localhost/shop:{revision}"], "Layers": ["layer.tar"]})
    parts["manifest.json"] = json.dumps(manifest).encode()
    with tarfile.open(archive, "w") as tar:
        for name, content in parts.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def _layer(root: Path) -> bytes:
    """The files of the packages in APP_PACKAGES, and the application."""
    paths = {root / name for name in ("bin", "lib", "lib64", "opt", "opt/shop", "opt/shop/app.py")}
    for name in _inside(root, "dpkg", "--listfiles", *APP_PACKAGES).split():
        path = root / name.lstrip("/")
        if path != root and os.path.lexists(path):
            paths.add(path.parent.resolve() / path.name)  # packages say /lib, where that is a link to /usr/lib
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for path in sorted(paths):
            tar.add(path, arcname=str(path.relative_to(root)), recursive=False)
    return layer.getvalue()


if __name__ == "__main__":
    customize(*map(Path, sys.argv[1:]))
