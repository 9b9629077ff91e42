# SPDX-License-Identifier: GPL-3.0-or-later
"""The image that the tests' hosts are started from, made of Debian's packages in about a minute,
and kept below .cache.

In it: systemd, sshd, sudo, Python, gunicorn, HAProxy, nginx, podman, docker, and below /opt/shop the
demo's application, also as the images `localhost/shop:1`, `:2`, `:3` and `:bad` (never ready), in an
archive for `podman load` and `docker load`. What serves is started by the tests only.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache/hosts"
KEY, HOST_KEY, KNOWN_HOSTS = CACHE / "key", CACHE / "host_key", CACHE / "known_hosts"
APP = Path(__file__).resolve().parents[2] / "playbooks/files/app.py"
PACKAGES = """dbus docker.io gunicorn haproxy iproute2 iptables nginx openssh-server podman procps python3 runc sudo systemd
    systemd-sysv""".split()
# Of no use here: documentation, and 70 MB of programs that belong to docker and containerd.
UNUSED = """/usr/share/doc/* /usr/share/man/* /usr/share/locale/* /usr/bin/containerd-shim /usr/bin/containerd-shim-runc-v1
    /usr/bin/ctr /usr/bin/dnet /usr/sbin/ovrouter""".split()
PASSWORD = "let me in"  # of the user `clerk`, for sudo

FILES = {
    # Where the machine has version 1 of cgroups: podman mounts the controllers read-only, and the
    # whole machine's tree of systemd over the host's own. There is nothing to do in version 2.
    "sbin/boot": (
        """\
#!/bin/sh
if [ -d /sys/fs/cgroup/systemd ]; then
    umount /sys/fs/cgroup/systemd/release_agent /sys/fs/cgroup/systemd
    for tree in /sys/fs/cgroup/*/; do
        mount -o remount,bind,rw "$tree"
    done
fi
exec /lib/systemd/systemd
"""
    ),
    "etc/machine-id": "",  # each host makes its own
    "etc/ssh/sshd_config.d/tests.conf": (
        """\
HostKey /etc/ssh/tests_key
AuthorizedKeysFile /etc/ssh/tests_users
PasswordAuthentication no
MaxStartups 100
MaxSessions 100
"""
    ),
    "etc/sudoers.d/tests": "deploy ALL=(ALL:ALL) NOPASSWD: ALL\nclerk ALL=(ALL:ALL) ALL\n",
    # A container may have no more than its host has, and asks for all there is unless told
    # otherwise.
    "etc/containers/containers.conf": (
        """\
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
"""
    ),
    # Where docker itself has to turn forwarding on, it drops what is forwarded for others: for the
    # containers of podman.
    "etc/systemd/system/docker.service.d/forward.conf": (
        """\
[Service]
ExecStartPre=/bin/sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
"""
    ),
    "etc/docker/daemon.json": (
        """\
{"default-ulimits": {"nofile": {"Name": "nofile", "Soft": 4096, "Hard": 4096}}}
"""
    ),
}
# No unit that changes the machine's kernel, that sshd would wait for, or that serves before it is
# asked to.
MASKED = """apt-daily.timer apt-daily-upgrade.timer dev-hugepages.mount e2scrub_reap.service modprobe@.service
    podman-auto-update.service podman-auto-update.timer sys-fs-fuse-connections.mount sys-kernel-config.mount
    sys-kernel-debug.mount sys-kernel-tracing.mount systemd-binfmt.service systemd-logind.service systemd-modules-load.service
    systemd-remount-fs.service systemd-sysctl.service""".split()
# The kernel has 128 inotify instances for all hosts; these would take two of each.
MASKED += ["systemd-ask-password-console.path", "systemd-ask-password-wall.path"]
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


def make() -> str:
    """The directories that make the image, as an overlay is told of its lower ones; what is
    missing of them is built.
    """
    assert os.geteuid() == 0, (
        "hosts are containers with their own networks and disks: only root can start them"
    )
    with locked(CACHE / "image"):
        for key in (KEY, HOST_KEY):
            if not key.exists():
                run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
        KNOWN_HOSTS.write_text(f"* {HOST_KEY.with_suffix('.pub').read_text()}")
        packages = _cached("packages", " ".join([*PACKAGES, *UNUSED]).encode(), _install)
        recipe = [Path(__file__), APP, KEY, HOST_KEY]
        ours = _cached(
            "ours",
            b"".join(part.read_bytes() for part in recipe),
            lambda new: _customize(packages, new),
        )
        return f"{ours}:{packages}"


def _cached(kind: str, recipe: bytes, build: Callable[[Path], None]) -> Path:
    """The directory that was built for the recipe; others of its kind are removed, unless hosts
    use them.
    """
    path = CACHE / f"{kind}-{hashlib.sha256(recipe).hexdigest()[:12]}"
    if not path.exists():
        mounts = Path("/proc/mounts").read_text()
        for old in CACHE.glob(f"{kind}-*"):
            if str(old) not in mounts:
                shutil.rmtree(old)
        new = CACHE / f"{kind}-new"
        build(new)
        new.rename(path)
    return path


def _install(new: Path) -> None:
    """Debian with our packages."""
    # The mirror is the one that this machine gets its packages from.
    asked = ["--format", "$(SITE)", "Created-By: Packages", "Origin: Debian", "Label: Debian"]
    mirror = [*run("apt-get", "indextargets", *asked).split(), "http://deb.debian.org/debian"][0]
    options = [
        "--mode=root",
        "--variant=minbase",
        "--format=directory",
        f"--include={','.join(PACKAGES)}",
    ]
    options += ['--aptopt=Acquire::Languages "none"', "--dpkgopt=force-unsafe-io"]
    options += [f"--dpkgopt=path-exclude={path}" for path in UNUSED]
    run("mmdebstrap", *options, "bookworm", str(new), mirror)


def _customize(packages: Path, new: Path) -> None:
    """What is different from `packages`, where all is that is not a package."""
    root, work = CACHE / "root", CACHE / "work"
    for directory in (root, work, new):  # one that was killed may have left them
        if directory.is_mount():
            run("umount", str(directory))
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
    overlay(root, str(packages), new, work)
    try:
        _write_files(root)
        _inside(root, "systemctl", "--quiet", "disable", *DISABLED)
        _inside(root, "systemctl", "--quiet", "mask", *MASKED)
        for user in ("deploy", "clerk"):
            _inside(root, "useradd", "--create-home", "--shell", "/bin/bash", user)
        _inside(root, "sh", "-c", f"echo 'clerk:{PASSWORD}' | chpasswd")
        _save_images(root, root / "opt/shop/images.tar")
    finally:
        run("umount", str(root))
        shutil.rmtree(work)
        root.rmdir()


def _write_files(root: Path) -> None:
    for name, text in FILES.items():
        _write(root / name, text.encode(), 0o755 if name == "sbin/boot" else 0o644)
    _write(root / "etc/ssh/tests_users", KEY.with_suffix(".pub").read_bytes(), 0o644)
    _write(root / "etc/ssh/tests_key", HOST_KEY.read_bytes(), 0o600)
    _write(root / "opt/shop/app.py", APP.read_bytes(), 0o644)
    # as soon as sshd accepts connections, logging in works
    (root / "etc/tmpfiles.d/systemd-nologin.conf").symlink_to("/dev/null")


def _write(path: Path, content: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def _inside(root: Path, *command: str) -> str:
    return run("chroot", str(root), *command)


def _save_images(root: Path, archive: Path) -> None:
    """An archive of images that differ in the environment only, so that they know their
    revision.
    """
    layer = _layer(root)
    parts = {"layer.tar": layer}
    manifest = []
    for revision, environment in REVISIONS.items():
        config = {
            "architecture": _inside(root, "dpkg", "--print-architecture").strip(),
            "os": "linux",
            "created": "2000-01-01T00:00:00Z",
            "config": {
                **APP_CONFIG,
                "Env": [*APP_ENVIRONMENT, f"REVISION={revision}", *environment],
            },
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"],
            },
        }
        content = json.dumps(config).encode()
        name = f"{hashlib.sha256(content).hexdigest()}.json"
        parts[name] = content
        manifest.append(
            {"Config": name, "RepoTags": [f"localhost/shop:{revision}"], "Layers": ["layer.tar"]}
        )
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
            # packages say /lib, where that is a link to /usr/lib
            paths.add(path.parent.resolve() / path.name)
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for path in sorted(paths):
            tar.add(path, arcname=str(path.relative_to(root)), recursive=False)
    return layer.getvalue()


# Also for those who use the image.


def run(*command: str) -> str:
    """What a command says; it must not fail."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (
        f"{' '.join(command)} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}"
    )
    return done.stdout


def overlay(root: Path, lower: str, upper: Path, work: Path) -> None:
    """Mount it at `root`."""
    run(
        "mount",
        "-t",
        "overlay",
        "-o",
        f"lowerdir={lower},upperdir={upper},workdir={work}",
        "overlay",
        str(root),
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Alone among all processes."""
    path.parent.mkdir(parents=True, exist_ok=True)  # several processes may try
    with open(f"{path}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
