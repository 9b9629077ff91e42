# SPDX-License-Identifier: GPL-3.0-or-later
"""The tests' hosts are what other tests take them for."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.tests.support import hosts as hosts_module
from ansible_collections.progressive.rollout.tests.support.hosts import PODMAN, Hosts
from ansible_collections.progressive.rollout.tests.support.waiting import until


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts("web1", "web2") as made:
        yield made


def get(url: str) -> str | None:
    """What is answered, if anything."""
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return str(answer.read().decode())
    except OSError:
        return None


def serve(hosts: Hosts, name: str, revision: str) -> None:
    """Start the application as a unit, on port 8100."""
    environment = [
        f"--setenv={pair}" for pair in ("ADDRESS=0.0.0.0", "PORT=8100", f"REVISION={revision}")
    ]
    hosts.run(
        name,
        "systemd-run",
        "--unit=shop",
        *environment,
        "/usr/bin/python3",
        "-I",
        "-S",
        "/opt/shop/app.py",
    )


def test_ansible_gets_in_and_becomes_root_with_and_without_a_password(
    hosts: Hosts, tmp_path: Path
) -> None:
    inventory = tmp_path / "hosts.json"
    known = {"web1": hosts.variables("web1"), "web2": hosts.variables("web2", "clerk")}
    inventory.write_text(json.dumps({"all": {"hosts": known}}))
    command = ["ansible", "-i", inventory, "all", "--become", "-m", "ansible.builtin.shell", "-a"]
    done = subprocess.run(
        [*command, "whoami; systemctl is-system-running --wait"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if ">>" not in line] == [
        "root",
        "running",
    ] * 2


def test_a_host_that_is_switched_off_is_silent_and_comes_back_with_its_disk(hosts: Hosts) -> None:
    serve(hosts, "web1", "7")
    url = f"http://{hosts.addresses['web1']}:8100/"
    until(lambda: (get(url) or "").startswith("7 "), "the unit answers")
    hosts.run("web1", "cp", "/etc/hostname", "/var/lib/kept")
    hosts.kill("web1")
    assert get(url) is None
    hosts.start("web1")
    assert hosts.run("web1", "cat", "/var/lib/kept") == "web1"
    assert "shop" not in hosts.run("web1", "systemctl", "list-units", "--all", "shop.service")
    hosts.stop("web1")
    hosts.start("web1")
    assert hosts.run("web1", "cat", "/var/lib/kept") == "web1"


def test_a_host_without_network_lives_on(hosts: Hosts) -> None:
    serve(hosts, "web2", "7")
    url = f"http://{hosts.addresses['web2']}:8100/"
    until(lambda: get(url) is not None, "the unit answers")
    before = hosts.run("web2", "systemctl", "show", "--property=MainPID", "shop")
    hosts.cut("web2")
    assert get(url) is None
    hosts.plug("web2")
    until(lambda: get(url) is not None, "the unit answers again")
    assert hosts.run("web2", "systemctl", "show", "--property=MainPID", "shop") == before


@pytest.mark.parametrize(("engine", "port"), [("podman", 8101), ("docker", 8102)])
def test_containers_run_in_a_host_and_are_reached_from_outside(
    hosts: Hosts, engine: str, port: int
) -> None:
    if engine == "docker":
        hosts.run("web1", "systemctl", "start", "docker")
    hosts.run("web1", engine, "load", "--input", "/opt/shop/images.tar")
    hosts.run(
        "web1",
        engine,
        "run",
        "--detach",
        "--name=shop",
        f"--publish={port}:8080",
        "localhost/shop:2",
    )
    url = f"http://{hosts.addresses['web1']}:{port}/"
    until(lambda: (get(url) or "").startswith("2 "), "the container answers")
    hosts.run("web1", engine, "stop", "shop")
    assert (
        hosts.run(
            "web1", engine, "inspect", "--format={{.State.Status}} {{.State.ExitCode}}", "shop"
        )
        == "exited 0\n"
    )


def test_a_host_can_be_a_load_balancer(hosts: Hosts) -> None:
    hosts.run("web2", "systemctl", "start", "haproxy", "nginx")
    assert get(f"http://{hosts.addresses['web2']}/") is not None


def test_what_a_killed_process_has_left_is_removed_by_the_next_one() -> None:
    def containers() -> list[str]:
        command = [*PODMAN, "ps", "--all", "--format={{.Names}}"]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()

    program = (
        f"from {Hosts.__module__} import Hosts; h = Hosts('lost'); h.up();"
        " print(h._container('lost')); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-uc", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        lost = process.stdout.readline().strip()
        process.kill()
    assert lost
    with Hosts("next") as hosts:
        number = hosts._container("next")
        assert number in containers() and (lost == number or lost not in containers())


def test_where_hosts_never_were_there_are_none_to_remove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts_module, "CACHE", tmp_path / "new checkout/hosts")
    hosts_module.main("down")
