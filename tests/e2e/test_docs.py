# SPDX-License-Identifier: GPL-3.0-or-later
"""Snippets of README.md and docs/, run as they are; only addresses, ports and paths are replaced.

What needs no playbook is in tests/unit/test_pages.py, the tutorial in test_tutorial.py.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import typing as t
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from ansible_collections.progressive.rollout.tests.support.envoy import Envoy
from ansible_collections.progressive.rollout.tests.support.haproxy import HAProxy
from ansible_collections.progressive.rollout.tests.support.nginx import Nginx
from ansible_collections.progressive.rollout.tests.support.pages import EXAMPLE, ROOT, SNIPPETS
from ansible_collections.progressive.rollout.tests.support.playbook import APP, Playground
from ansible_collections.progressive.rollout.tests.support.ports import free_port
from ansible_collections.progressive.rollout.tests.support.shop import Load, failures
from ansible_collections.progressive.rollout.tests.support.waiting import LONG, until

HOW_TO = "docs/how-to"
RUN = "ansible-playbook -i inventory.yml {} -e rollout_revision={}"
SHOP = {
    "rollout_service": "shop",
    "rollout_replicas": 3,
    "rollout_budget": {"max_surge": "50%", "max_unavailable": 0},
    "rollout_platform": {
        "driver": "process",
        "hosts": "shop",
        "command": ["/opt/shop/{revision}/shop", "--port", "{port}"],
        "ports": "8100-8199",
        "path": "/var/lib/rollout",
    },
    "rollout_health": {"http": "/healthz", "interval": "200ms"},
    "rollout_store": {"driver": "file", "host": "lb1", "path": "/var/lib/rollout"},
}


class Site:
    """The site that the pages tell of, on this machine: its addresses, ports and paths are
    replaced by free ones.
    """

    def __init__(self, playground: Playground) -> None:
        self.playground, self.home = playground, playground.home
        self.network = playground.addresses["web1"].rpartition(".")[0]
        self.port = free_port()
        self.replaced = {
            "10.0.0.": f"{self.network}.",
            "  vars: {ansible_become: true}\n": "",
            ":80\n": f":{self.port}\n",
            ":80;": f":{self.port};",
            "9901": f"{free_port()}",
            "9180": f"{free_port()}",
            "/etc/nginx": f"{self.home}/nginx",
            "/run/nginx.pid": f"{self.home}/nginx.pid",
            "/var/log/nginx": f"{self.home}",
            "/run/haproxy/": f"{self.home}/",
            "/var/lib/rollout": f"{self.home}/rollout",
            "/opt/shop": f"{self.home}/opt",
        }
        self.url = f"http://{self.network}.2:{self.port}/"
        (self.home / "rollout").mkdir()
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        (self.home / "group_vars").mkdir()
        for group in ("shop", "load_balancers"):
            (self.home / f"group_vars/{group}.yml").write_text(yaml.safe_dump(local))
        for revision in ("2.4.0", "2.4.1", "2.4.2"):
            self.install(revision)

    def install(self, revision: str) -> None:
        """What a playbook of the users' own does."""
        program = self.home / "opt" / revision / "shop"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S {APP}\n")
        program.chmod(0o755)

    def replace(self, text: str) -> str:
        """The text with this site's addresses, ports and paths."""
        for old, new in self.replaced.items():
            text = text.replace(old, new)
        return text

    def text(self, page: str, name: str) -> str:
        return self.replace(SNIPPETS[page][name])

    def write(self, page: str, *names: str) -> None:
        for name in names:
            (self.home / name).write_text(self.text(page, name))

    def shell(self, text: str, *, env: Mapping[str, str] | None = None, rc: int = 0) -> str:
        """What a shell snippet prints."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        result = subprocess.run(
            ["bash", "-euc", text],
            cwd=self.home,
            env={
                **self.playground._environment(),
                "RESULTS": os.devnull,
                "PATH": path,
                **(env or {}),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONG,
            check=False,
        )
        assert result.returncode == rc, result.stdout + result.stderr
        return result.stdout

    def served(self, **headers: str) -> set[str]:
        """The revisions that answer through the load balancer."""
        found = set()
        for _number in range(12):
            with urllib.request.urlopen(
                urllib.request.Request(self.url, headers=headers), timeout=10
            ) as response:
                found.add(str(response.read().decode()).split()[0])
        return found


class Balancer(HAProxy):
    """A HAProxy with the configuration that a page gives."""

    def __init__(self, site: Site, page: str, name: str) -> None:
        self.directory, self.config = site.home, site.home / name
        self.config.write_text(site.text(page, name))
        self.api = str(site.home / "admin.sock")
        self.process = None
        self.start()


@pytest.fixture
def site(playground: Playground) -> Site:
    return Site(playground)


def deploy(
    site: Site, revision: str, *variables: str, playbook: str = "progressive.rollout.rollout"
) -> str:
    """Roll SHOP out behind the load balancer that these snippets of variables set up."""
    (site.home / "inventory.yml").write_text(site.replace((EXAMPLE / "inventory.yml").read_text()))
    (site.home / "group_vars/all.yml").write_text(
        "\n".join([site.replace(yaml.safe_dump(SHOP)), *variables])
    )
    return site.shell(RUN.format(playbook, revision))


# -- README.md -------------------------------------------------------------------------------------


@pytest.mark.essential
def test_readme_installation(site: Site) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    source = site.home / "source"
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    git = "git -c user.name=x -c user.email=x@example.org"
    site.shell(f"cd source && git init -q -b main && git add . && {git} commit -qm x")
    site.replaced["https://github.com/progressive-rollout/progressive.rollout.git"] = (
        f"file://{source}"
    )
    env = {
        "ANSIBLE_COLLECTIONS_PATH": str(site.home / "collections"),
        "PYTHONPATH": "",  # or it would be found there
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "protocol.file.allow",
        "GIT_CONFIG_VALUE_0": "always",
    }
    # The name that git clone makes of the real address.
    site.shell(
        site.text("README.md", "install").replace(
            f"file://{source}", f"file://{source} progressive.rollout"
        ),
        env=env,
    )
    installed = site.home / "collections/ansible_collections/progressive/rollout"
    assert (installed / "roles/rolling/tasks/main.yml").exists() and not (
        installed / ".git"
    ).exists()
    outcome = site.playground.run(variables={"rollout_replicas": 1}, env=env)
    assert outcome.rc == 0 and str(installed) in outcome.output, outcome.output
    assert site.playground.revisions() == ["1"]
    shutil.rmtree(installed)
    site.write(f"{HOW_TO}/awx.md", "requirements.yml")
    site.shell("ansible-galaxy collection install -r requirements.yml", env=env)
    assert (installed / "plugins/action/begin.py").exists()


# -- load balancers --------------------------------------------------------------------------------


def test_haproxy_with_prepared_servers_in_a_play_of_ones_own(site: Site) -> None:
    """The play of in-a-play.md rolls out; drain-an-instance.md takes one away; troubleshoot.md
    looks at it.
    """
    balancer = Balancer(site, f"{HOW_TO}/haproxy.md", "haproxy.cfg")
    site.write(f"{HOW_TO}/in-a-play.md", "play.yml")
    site.write(f"{HOW_TO}/drain-an-instance.md", "drain.yml")
    try:
        printed = deploy(
            site, "2.4.1", site.text(f"{HOW_TO}/haproxy.md", "slots.yml"), playbook="play.yml"
        )
        assert printed.count("shop 2.4.1 promoted") == 1  # once for all hosts of the play
        balancer.stop()  # forgets nothing
        balancer.start()
        assert site.served() == {"2.4.1"}
        assert "changed=1" in site.shell(site.text(f"{HOW_TO}/drain-an-instance.md", "drain"))
        assert "shop-1" not in {
            record["id"] for record in site.playground.living()
        } and site.served() == {"2.4.1"}
        assert "shop 2.4.1 promoted" in site.shell(site.text(f"{HOW_TO}/troubleshoot.md", "look"))
        events = [
            json.loads(line)
            for line in site.shell(site.text(f"{HOW_TO}/troubleshoot.md", "events")).splitlines()
        ]
        assert [event["outcome"] for event in events if event["kind"] == "end"] == ["promoted"]
    finally:
        balancer.stop()


@contextlib.contextmanager
def made_by_hand(site: Site) -> Iterator[list[subprocess.Popen[bytes]]]:
    """What runs on the three hosts before the first rollout."""
    programs = [
        subprocess.Popen(
            [sys.executable, "-I", "-S", str(APP)],
            env={
                "ADDRESS": f"{site.network}.1{number}",
                "PORT": "8080",
                "REVISION": "2.4.0",
                "INSTANCE": f"web{number}",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        for number in (1, 2, 3)
    ]
    (site.home / "inventory.yml").write_text(site.replace((EXAMPLE / "inventory.yml").read_text()))
    try:
        for number in (1, 2, 3):
            place = f"{site.network}.1{number}", 8080
            until(functools.partial(listens, place), f"{place} listens")
        yield programs
    finally:
        for program in programs:
            program.kill()
            program.wait()


def listens(place: tuple[str, int]) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(place, 5).close()
        return True
    return False


def test_a_service_behind_haproxy_is_adopted(site: Site) -> None:
    page = f"{HOW_TO}/adopt.md"
    site.replaced["/etc/haproxy/"] = f"{site.home}/"
    balancer = Balancer(site, page, "haproxy.cfg")
    (site.home / "group_vars/all.yml").write_text(
        site.replace(yaml.safe_dump(SHOP)) + site.text(page, "adopt.yml")
    )
    try:
        with made_by_hand(site) as programs:
            until(lambda: list(balancer.servers().values()).count("UP") == 3, "all are up")
            with Load(site.url, [("GET", True), ("POST", True)], connections=3, rate=100) as load:
                printed = site.shell(site.text(page, "run"))
                assert "shop: adopted as 2.4.0: web1, web2, web3" in printed
                assert "PR-349" in printed and site.served() == {"2.4.1"}
                servers = balancer.servers()
                assert [servers[f"web{number}"] for number in (1, 2, 3)] == ["MAINT"] * 3
                assert not failures(load.stop())
            site.shell(site.text(page, "delete"))
            assert "server web" not in balancer.config.read_text()
            balancer.stop()
            balancer.start()
            for program in programs:
                program.kill()
            assert site.served() == {"2.4.1"}
    finally:
        balancer.stop()


def test_a_service_behind_nginx_is_adopted(site: Site) -> None:
    page = f"{HOW_TO}/adopt.md"
    (site.home / "nginx/rollout").mkdir(parents=True)
    (site.home / "nginx/rollout/shop.conf").write_text(site.text(page, "shop.conf"))
    nginx = nginx_of(site, site.text(f"{HOW_TO}/nginx.md", "nginx.conf"))
    (site.home / "group_vars/all.yml").write_text(
        site.replace(yaml.safe_dump(SHOP)) + site.text(page, "nginx.yml")
    )
    try:
        with made_by_hand(site) as programs:
            with Load(site.url, [("GET", False), ("POST", False)], connections=3, rate=100) as load:
                printed = site.shell(site.text(page, "run"))
                assert "PR-349" in printed and "delete them" not in printed
                assert not failures(load.stop())
            for program in programs:
                program.kill()
            assert site.served() == {"2.4.1"}
    finally:
        nginx.stop()


def test_haproxy_keeps_clients_in_the_canary(site: Site) -> None:
    """tests/e2e/test_cohorts.py does the same under load."""
    page = f"{HOW_TO}/haproxy.md"
    site.replaced["/etc/haproxy/"] = f"{site.home}/"
    site.shell(site.text(page, "cohort-map"))
    balancer = Balancer(site, page, "cohort.cfg")
    try:
        with half_of_the_clients(site, page):
            assert balancer.ask(f"show map {site.home}/rollout.map").split()[2] == "5000"
    finally:
        balancer.stop()


def test_nginx_keeps_clients_in_the_canary(site: Site) -> None:
    page = f"{HOW_TO}/nginx.md"
    site.shell(site.text(page, "cohort-files"))
    nginx = nginx_of(site, site.text(page, "cohort.conf"))
    try:
        with half_of_the_clients(site, page):
            pass
    finally:
        nginx.stop()


@contextlib.contextmanager
def half_of_the_clients(site: Site, page: str) -> Iterator[None]:
    """A rollout with the cohort of a page, that stands at half of the clients, and is aborted."""
    half = yaml.safe_dump(HALF)
    deploy(site, "2.4.0", site.text(page, "cohort.yml"))
    assert "parked" in deploy(site, "2.4.1", site.text(page, "cohort.yml"), half)
    users = [site.served(Cookie=f"user={number}") for number in range(12)]
    assert {len(user) for user in users} == {1}
    assert {revision for user in users for revision in user} == {"2.4.0", "2.4.1"}
    assert site.served() == {"2.4.0", "2.4.1"}
    yield
    site.shell("ansible-playbook -i inventory.yml progressive.rollout.abort")
    assert {*site.served(), *site.served(Cookie="user=1")} == {"2.4.0"}


HALF = {
    "rollout_strategy": "canary",
    "rollout_steps": [{"set_weight": 50}, {"pause": {}}],
    "rollout_wait": 0,
}


def test_haproxy_leads_a_header_to_the_new_ones_while_the_rollout_is_parked_for_awx(
    site: Site,
) -> None:
    """Servers are added as needed here. No job waits: the rollout is parked, and promote.yml
    continues it.
    """
    page = f"{HOW_TO}/awx.md"
    balancer = Balancer(site, f"{HOW_TO}/load-balancers.md", "match.cfg")
    site.write(page, "promote.yml")
    assert site.text(page, "abort.yml") == site.text(page, "promote.yml").replace(
        "promote", "abort"
    )
    secret = yaml.safe_dump(
        {
            "rollout_gates": {
                "rollback": [
                    {
                        "driver": "web",
                        "url": "http://127.0.0.1:1/",
                        "secret": "swordfish",
                        "retries": 0,
                    }
                ]
            }
        }
    )
    try:
        parked = look(site, site.text(f"{HOW_TO}/load-balancers.md", "preview.yml"), secret)
        assert "parked" in parked
        site.shell("ansible-playbook -i inventory.yml promote.yml")
        assert site.served() == site.served(**ALWAYS) == {"2.4.1"}
        assert "shop-preview" not in balancer.ask("show stat shop-preview 4 -1")
        kept = "".join(
            path.read_text(errors="replace")
            for path in (site.home / "rollout").rglob("*")
            if path.is_file()
        )
        assert "swordfish" not in parked + kept
    finally:
        balancer.stop()


ALWAYS = {"X-Canary": "always"}


def look(site: Site, *variables: str) -> str:
    """Deploy, then a blue-green rollout that is parked while its new instances are idle, seen by
    a header alone.
    """
    more = (
        "rollout_strategy: blue_green\nrollout_auto_promote: false\nrollout_wait:"
        " 0\nrollout_hold: 0\n"
    )
    deploy(site, "2.4.0", *variables, more)
    assert site.served(**ALWAYS) == {"2.4.0"}
    printed = deploy(site, "2.4.1", *variables, more)
    assert (site.served(), site.served(**ALWAYS)) == ({"2.4.0"}, {"2.4.1"})
    return printed


@pytest.fixture
def envoy(site: Site) -> Iterator[Envoy]:
    site.shell(site.text(f"{HOW_TO}/envoy.md", "envoy-files"))
    site.write(f"{HOW_TO}/envoy.md", "envoy.json")
    envoy = Envoy.__new__(Envoy)
    envoy.home, envoy.path, envoy.process = site.home, site.home / "rollout/envoy", None
    envoy.admin = int(site.replaced["9901"])
    (site.home / "bootstrap.json").write_text((site.home / "envoy.json").read_text())
    envoy.start()
    yield envoy
    envoy.stop()


def test_envoy_sends_what_matches_to_the_new_ones(site: Site, envoy: Envoy) -> None:
    look(site, site.text(f"{HOW_TO}/load-balancers.md", "match.yml"))
    clusters = {
        one["name"]: one.get("host_statuses", [])
        for one in json.loads(envoy.get("/clusters?format=json"))["cluster_statuses"]
    }
    assert len(clusters["shop"]) == 6 and len(clusters["shop~preview"]) == 3


def test_envoy_keeps_clients_in_the_canary(site: Site, envoy: Envoy) -> None:
    with half_of_the_clients(site, f"{HOW_TO}/envoy.md"):
        assert "use_hash_policy" in envoy.get("/config_dump")


def nginx_of(site: Site, config: str) -> Nginx:
    """A running nginx with this configuration."""
    nginx = Nginx.__new__(Nginx)
    nginx.home = site.home
    nginx.config = site.home / "nginx/nginx.conf"
    nginx.pid = site.home / "nginx.pid"
    nginx.front, nginx.process = (f"{site.network}.2", site.port), None
    nginx.config.write_text(config)
    nginx.start()
    return nginx


def test_nginx(site: Site) -> None:
    page = f"{HOW_TO}/nginx.md"
    site.shell(site.text(page, "nginx-files"))
    nginx = nginx_of(site, site.text(page, "nginx.conf"))
    try:
        deploy(site, "2.4.1", site.text(page, "nginx.yml"))
        assert site.served() == {"2.4.1"}
        nginx.stop()  # forgets nothing, as the page says
        nginx.start()
        assert site.served() == {"2.4.1"}
    finally:
        nginx.stop()


# -- platforms, and drivers of others --------------------------------------------------------------


ROLE = """\
- ansible.builtin.raw: |
    ADDRESS={{{{ ansible_host }}}} PORT=8080 REVISION={{{{ shop_version }}}} setsid {python} -I -S {app} >/dev/null 2>&1 </dev/null &
    echo $! >{home}/{{{{ inventory_hostname }}}}.pid
"""


@pytest.mark.essential
def test_in_place_instead_of_serial(site: Site) -> None:
    page = f"{HOW_TO}/migrate-from-serial.md"
    (site.home / "inventory.yml").write_text(site.replace((EXAMPLE / "inventory.yml").read_text()))
    site.write(page, "site.yml", "deploy.yml", "group_vars/all.yml")
    (site.home / "roles/shop/tasks").mkdir(parents=True)
    (site.home / "roles/shop/tasks/main.yml").write_text(
        ROLE.format(home=site.home, python=sys.executable, app=APP)
    )
    balancer = Balancer(site, page, "haproxy.cfg")
    run, env = site.text(page, "run"), {"ANSIBLE_GATHERING": "explicit"}
    try:
        assert "3 instances replaced" in site.shell(run, env=env)
        assert site.served() == {"2.4.1"}
        shown = site.shell(run.replace("2.4.1", "2.4.2").strip() + " --check --diff", env=env)
        assert re.search(r"\b1: web1, web2 to 2\.4\.2", shown) and site.served() == {"2.4.1"}
    finally:
        balancer.stop()
        for pid in site.home.glob("*.pid"):
            os.kill(int(pid.read_text()), signal.SIGKILL)


def test_the_drivers_of_the_example_work(site: Site) -> None:
    collection = site.home / "collections/ansible_collections/acme/shop/plugins/plugin_utils"
    for folder, name in (("platforms", "local.py"), ("traffic", "upstreams.py")):
        (collection / folder).mkdir(parents=True)
        (collection / folder / name).write_text(SNIPPETS[f"{HOW_TO}/write-a-driver.md"][name])
    (site.home / "group_vars/all.yml").write_text(
        site.text(f"{HOW_TO}/write-a-driver.md", "drivers.yml")
    )
    (site.home / "inventory.yml").write_text(site.replace((EXAMPLE / "inventory.yml").read_text()))
    paths = f"{site.home}/collections:{os.environ.get('ANSIBLE_COLLECTIONS_PATH', ROOT / '.cache/collections')}"
    folder = site.home / "rollout/local/shop"

    def records() -> list[dict[str, t.Any]]:
        return [json.loads(path.read_text()) for path in sorted(folder.iterdir())]

    try:
        for revision in ("2.4.0", "2.4.1"):
            site.shell(
                RUN.format("progressive.rollout.rollout", revision),
                env={"ANSIBLE_COLLECTIONS_PATH": paths},
            )
            assert [record["revision"] for record in records()] == [revision] * 3
            upstreams = json.loads((site.home / "rollout/upstreams.json").read_text())
            assert {(entry["name"], entry["rotation"]) for entry in upstreams} == {
                (record["id"], "in") for record in records()
            }
            for entry in upstreams:
                with urllib.request.urlopen(
                    f"http://{entry['address']}:{entry['port']}/", timeout=10
                ) as response:
                    assert response.headers["X-Revision"] == revision
    finally:
        for record in records():
            os.kill(record["pid"], signal.SIGKILL)


def test_the_tasks_of_the_example_make_hosts_ready(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1/shop").touch()
    with Playground(2) as playground:
        home = playground.home
        (home / "shop.conf.j2").write_text(
            "revision {{ rollout_revision }} on {{ inventory_hostname }}\n"
        )
        tasks = SNIPPETS[f"{HOW_TO}/prepare-hosts.md"]["prepare.yml"].replace(
            "/opt/shop", f"{home}/{{{{ inventory_hostname }}}}"
        )
        (home / "prepare.yml").write_text(tasks.replace("/srv/releases", str(home)))
        subprocess.run(["tar", "-czf", home / "shop-1.tar.gz", "-C", tmp_path, "1"], check=True)
        for host in playground.hosts:
            (home / host).mkdir()
        outcome = playground.run(
            "progressive.rollout.prepare", {"rollout_prepare_tasks": "prepare.yml"}
        )
        assert outcome.rc == 0, outcome.output
        assert all((home / host / "1/shop").exists() for host in playground.hosts)
        assert (home / "web2/1/shop.conf").read_text() == "revision 1 on web2\n"
