"""Run ansible-test sanity with the ansible-core of the current environment.

What is linted is what is shipped: the artefact, unpacked. ansible-test wants it in a real
directory .../ansible_collections/NAMESPACE/NAME, writes into its home, and fetches a pip installer
from its own server. So: a home below .cache, and an installer made of the pip that every Python
brings along.
"""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

GET_PIP = '''\
"""Stands in for get-pip.py: installs the pip that came with this Python."""
import ensurepip
import subprocess
import sys

ensurepip.bootstrap()
packages = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", "-qq", *packages]))
'''


def unpack_artefact(target: Path) -> None:
    """Make `target` hold exactly the files of the artefact that this checkout builds."""
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=ROOT / ".cache" / "tmp") as built:
        command = ["ansible-galaxy", "collection", "build", "--output-path", built]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        (artefact,) = Path(built).glob("*.tar.gz")
        with tarfile.open(artefact) as archive:
            archive.extractall(target, filter="data")
    # A separate repository: ansible-test asks git for the files, and the checkout's ignores all
    # of .cache.
    subprocess.run(["git", "init", "--quiet", "--template=", target], check=True)


def prepare_home(home: Path, ansible_test: Path) -> None:
    """Give ansible-test its pip installer, and the pip inside the settings of the one outside:
    it passes no PIP_* on.
    """
    cache = home / ".ansible" / "test" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    for version in re.findall(
        r"pip='([\d.]+)'", (ansible_test / "_internal/python_requirements.py").read_text()
    ):
        (cache / f"get_pip_{version.replace('.', '_')}.py").write_text(GET_PIP)
    settings = configparser.RawConfigParser()
    settings.read([Path.home() / ".pip/pip.conf", Path.home() / ".config/pip/pip.conf"])
    if not settings.has_section("global"):
        settings.add_section("global")
    for name, value in os.environ.items():
        if name.startswith("PIP_") and name != "PIP_CONFIG_FILE":
            settings.set("global", name.removeprefix("PIP_").lower().replace("_", "-"), value)
    settings.set("global", "quiet", "2")
    config = home / ".config" / "pip" / "pip.conf"
    config.parent.mkdir(parents=True, exist_ok=True)
    with config.open("w") as stream:
        settings.write(stream)


def main(arguments: list[str]) -> int:
    import ansible.release
    import ansible_test

    core = ".".join(ansible.release.__version__.split(".")[:2])
    base = ROOT / ".cache" / "sanity" / core
    target = base / "ansible_collections" / "progressive" / "rollout"
    home = ROOT / ".cache" / "sanity" / "home"
    unpack_artefact(target)
    prepare_home(home, Path(ansible_test.__file__).parent)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ANSIBLE_", "PIP_", "PYTHON"))
    }
    environment.update(HOME=str(home), ANSIBLE_HOME=str(home / ".ansible"))
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    command = [
        f"{os.environ['VIRTUAL_ENV']}/bin/ansible-test",
        "sanity",
        "--requirements",
        "--python",
        python,
        "--color",
        "no",
    ]
    return subprocess.call([*command, *arguments], cwd=target, env=environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
