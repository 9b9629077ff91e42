# SPDX-License-Identifier: GPL-3.0-or-later
"""What docs/how-to/adopt.md and migrate-from-serial.md show, on hosts with units that their operator
wrote: gunicorn behind HAProxy, under load, of which no request is lost.
"""

from __future__ import annotations

import io
import json
import tarfile
import typing as t
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml
from ansible_collections.progressive.rollout.tests.support.hosts import Hosts
from ansible_collections.progressive.rollout.tests.support.pages import SNIPPETS
from ansible_collections.progressive.rollout.tests.support.playbook import (
    ROLLOUT,
    ROOT,
    Outcome,
    Playground,
)
from ansible_collections.progressive.rollout.tests.support.shared import Shared
from ansible_collections.progressive.rollout.tests.support.shop import failures
from ansible_collections.progressive.rollout.tests.support.waiting import until

pytestmark = pytest.mark.long
HOW_TO = "docs/how-to"
PAGE, SERIAL = SNIPPETS[f"{HOW_TO}/adopt.md"], SNIPPETS[f"{HOW_TO}/migrate-from-serial.md"]
WEB = ("web1", "web2", "web3")
METHODS = ("GET", "POST")  # of clients that keep their connections
# It is slow at first: /healthz answers 200 once it is warm, and the rest is an error until then.
APP = """\
import os, threading

REVISION = os.path.basename(os.getcwd())
warm = threading.Event()
warming = threading.Timer(0.2, warm.set)

def app(environ, start_response):
    if environ["PATH_INFO"] == "/healthz" and not warming.ident:
        warming.start()
    environ["wsgi.input"].read()
    body = REVISION.encode()
    status = "200 OK" if warm.is_set() else "503 Service Unavailable"
    start_response(status, [("X-Revision", REVISION), ("Content-Length", str(len(body)))])
    return [body]
"""
# On the host of the database, no revision starts before its migrations.
SHOP = """\
#!/bin/sh
set -e
cd "$(dirname "$(readlink -f "$0")")"
[ ! -e /opt/shop/schema ] || grep -qx "$(basename "$PWD")" /opt/shop/schema
exec gunicorn --bind "0.0.0.0:$2" --worker-class gthread --threads 8 --keep-alive 60 shop:app
"""
MIGRATE = """\
#!/bin/sh
grep -qx "$1" /opt/shop/schema || echo "$1" >>/opt/shop/schema
"""
UNIT = """\
[Unit]
Description=The shop

[Service]
Type=notify
User=shop
ExecStart=/opt/shop/current/shop --port 8080

[Install]
WantedBy=multi-user.target
"""
ROLE = """\
- name: Unpack the release
  ansible.builtin.unarchive:
    src: "{home}/shop-{{{{ shop_version }}}}.tar.gz"
    dest: /opt/shop

- name: Migrate the database
  ansible.builtin.command: {{argv: [/usr/local/bin/migrate-shop, "{{{{ shop_version }}}}"]}}
  delegate_to: web1
  run_once: true

- name: Make it the current one
  ansible.builtin.file: {{src: "/opt/shop/{{{{ shop_version }}}}", path: /opt/shop/current, state: link}}

- name: Restart it
  ansible.builtin.systemd_service: {{name: shop, state: restarted}}

- name: Warm it up
  ansible.builtin.uri: {{url: "http://127.0.0.1:8080/healthz"}}
  register: warm
  until: warm is success
  retries: 20
  delay: 0.2
"""


class Site(Playground):
    """Three hosts with a unit that was made by hand, and one with HAProxy before them."""

    def __init__(self, hosts: Hosts) -> None:
        known = {name: {**hosts.variables(name), "ansible_become": True} for name in hosts.names}
        super().__init__(
            inventory={
                "shop": {"hosts": {name: known[name] for name in WEB}},
                "load_balancers": {"hosts": {"lb1": known["lb1"]}},
            }
        )
        self.machines = hosts
        files = {
            "/usr/local/bin/migrate-shop": MIGRATE,
            "/etc/systemd/system/shop.service": UNIT,
            "/opt/shop/2.4.0/shop": SHOP,
            "/opt/shop/2.4.0/shop.py": APP,
        }
        for name in WEB:
            self.sh(name, f"useradd --system shop; mkdir -p /opt/shop/2.4.0; {written(files)}")
        self.sh("lb1", written({"/opt/load.py": (ROOT / "playbooks/files/load.py").read_text()}))

    def _environment(self) -> dict[str, str]:
        faster = {"ANSIBLE_GATHERING": "explicit", "ANSIBLE_PIPELINING": "true"}
        return super()._environment() | faster

    def sh(self, name: str, script: str) -> str:
        return self.machines.run(name, "/bin/sh", "-ec", script)

    def release(self, revision: str, start: str = SHOP) -> None:
        """Build the archive of a release, on the controller."""
        with tarfile.open(self.home / f"shop-{revision}.tar.gz", "w:gz") as archive:
            for name, text in {"shop": start, "shop.py": APP}.items():
                file = tarfile.TarInfo(f"{revision}/{name}")
                file.size, file.mode = len(text), 0o755
                archive.addfile(file, io.BytesIO(text.encode()))

    def page(self, text: str) -> str:
        """A text of a page, with the addresses of these hosts and the directory of releases."""
        for name in WEB:
            text = text.replace(f"10.0.0.1{name[-1]}", self.machines.addresses[name])
        return text.replace("10.0.0.2:80", "*:80").replace("/srv/releases", str(self.home))

    def by_hand(self, configuration: str) -> None:
        """Leave nothing of a rollout; start revision 2.4.0 by hand, and HAProxy before it."""
        for name in WEB:
            self.sh(
                name,
                "systemctl stop 'shop@*'; rm -rf /var/lib/rollout; cd /opt/shop; echo 2.4.0 >schema"
                f"; [ {name} = web1 ] || rm schema; ln -sfn 2.4.0 current"
                "; systemctl enable --quiet shop; systemctl restart shop",
            )
        file = {"/etc/haproxy/haproxy.cfg": self.page(configuration)}
        self.sh(
            "lb1",
            "systemctl stop haproxy; rm -rf /var/lib/rollout; mkdir /var/lib/rollout\n"
            f"{written(file)}systemctl start haproxy",
        )
        until(lambda: list(self.servers().values()).count("UP") == len(WEB), "all are up")

    def servers(self) -> dict[str, str]:
        """The state of each server of HAProxy's configuration."""
        asked = (
            "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/run/haproxy/admin.sock')"
            "; s.sendall(b'show stat shop 4 -1\\n')"
            "; print(b''.join(iter(lambda: s.recv(65536), b'')).decode())"
        )
        rows = [
            line.split(",")
            for line in self.machines.run("lb1", "python3", "-c", asked).splitlines()
        ]
        return {row[1]: row[17] for row in rows if row[0] == "shop"}

    @contextmanager
    def load(self) -> Iterator[None]:
        """Clients of HAProxy at work, on its host; none of their requests is lost."""
        starts = (
            f"systemd-run --quiet --unit=load-{method} python3 /opt/load.py --keep-alive"
            f" --url http://127.0.0.1/ --method {method} --connections 8"
            f" --rate 60 --max-seconds 600 --report /run/{method}.json\n"
            for method in METHODS
        )
        self.sh("lb1", "".join(starts))
        yield
        ends = "".join(f"; cat /run/{method}.json; echo" for method in METHODS)
        lines = self.sh("lb1", f"systemctl stop 'load-*'{ends}").splitlines()
        self.reports = [json.loads(line) for line in lines]
        assert [report["ended_by"] for report in self.reports] == ["signal"] * len(METHODS)
        assert not failures(self.reports)

    def served(self) -> list[set[str]]:
        """The revisions that answered the clients, of each kind."""
        return [set(report["by_revision"]) for report in self.reports]

    def perform(self, playbook: str, revision: str = "", rc: int = 0) -> Outcome:
        outcome = self.run(playbook, {"rollout_revision": revision} if revision else {})
        assert outcome.rc == rc, outcome.output
        return outcome


def written(files: t.Mapping[str, str]) -> str:
    """A shell script that writes these programs."""
    return "".join(
        f"cat >{path} <<'END'\n{text}END\nchmod 755 {path}\n" for path, text in files.items()
    )


@contextmanager
def made_site() -> Iterator[Site]:
    with Hosts(*WEB, "lb1") as hosts, Site(hosts) as made:
        yield made


@pytest.fixture(scope="module")
def sites() -> Iterator[Shared[Site]]:
    with Shared(made_site) as sites:
        yield sites


@pytest.fixture
def site(sites: Shared[Site], request: pytest.FixtureRequest) -> Iterator[Site]:
    with sites.lend(request) as site:
        yield site


def test_units_made_by_hand_become_instances(site: Site) -> None:
    site.by_hand(PAGE["haproxy.cfg"])
    for revision in ("2.4.1", "2.4.2"):
        site.release(revision)
    tasks = site.home / "prepare.yml"
    first = yaml.safe_load(site.page(SNIPPETS[f"{HOW_TO}/prepare-hosts.md"]["prepare.yml"]))[:1]
    tasks.write_text(yaml.safe_dump(first))
    migrate = ["/usr/local/bin/migrate-shop", "{revision}"]
    site.variables = {
        **yaml.safe_load(PAGE["adopt.yml"]),
        **yaml.safe_load(SNIPPETS[f"{HOW_TO}/systemd.md"]["systemd.yml"]),
        "rollout_service": "shop",
        "rollout_replicas": 3,
        "rollout_budget": {"max_surge": 1, "max_unavailable": 0},
        "rollout_prepare_tasks": str(tasks),
        "rollout_gates": {
            "confirm_rollout": [{"driver": "command", "host": "web1", "command": migrate}]
        },
        "rollout_health": {"http": "/healthz", "interval": "200ms", "rise": 1},
        "rollout_store": {"driver": "file", "host": "lb1", "path": "/var/lib/rollout"},
    }
    with site.load():
        planned = site.perform("progressive.rollout.plan", "2.4.1")
        assert "web1, web2, web3, in this order" in planned.output, planned.output
        assert site.sh("web1", "cat /opt/shop/schema").split() == ["2.4.0"]
        outcome = site.perform(ROLLOUT, "2.4.1")
        assert "shop: adopted as 2.4.0: web1, web2, web3" in outcome.output
        assert "PR-349" in outcome.output
        states = site.servers()
        assert {states[name] for name in WEB} == {"MAINT"}
        site.sh("lb1", f"{PAGE['delete']}systemctl reload haproxy")
        for name in WEB:
            site.sh(name, "systemctl disable --now shop")
        del site.variables["rollout_adopt"]
        back = site.perform("progressive.rollout.rollback")
        assert back.rollout["revision"] == "2.4.0"
        site.perform(ROLLOUT, "2.4.2")
    assert site.served() == [{"2.4.0", "2.4.1", "2.4.2"}] * len(METHODS)
    assert site.sh("web1", "cat /opt/shop/schema").split() == ["2.4.0", "2.4.1", "2.4.2"]
    assert not set(WEB) & set(site.servers())
    for name in WEB:
        assert "shop@" in site.sh(name, "systemctl list-units --plain --no-legend 'shop@*'")


def test_units_made_by_hand_are_deployed_in_place(site: Site) -> None:
    site.by_hand(SERIAL["haproxy.cfg"])
    for revision in ("2.4.0", "2.4.1"):
        site.release(revision)
    site.release("2.4.2", start="#!/bin/sh\nexit 3\n")
    role = site.home / "roles/shop/tasks/main.yml"
    role.parent.mkdir(parents=True)
    role.write_text(ROLE.format(home=site.home))
    (site.home / "deploy.yml").write_text(SERIAL["deploy.yml"])
    (site.home / "site.yml").write_text(SERIAL["site.yml"])
    site.variables = {
        **yaml.safe_load(SERIAL["group_vars/all.yml"]),
        "rollout_adopt": {"revision": "2.4.0"},
        "rollout_deploy_tasks": str(site.home / "deploy.yml"),
    }
    deploy = str(site.home / "site.yml")
    with site.load():
        outcome = site.perform(deploy, "2.4.2", rc=2)
        assert outcome.rollout["outcome"] == "rolled_back", outcome.output
        assert outcome.rollout["stable"] == "2.4.0"
        assert "Still out of rotation" not in outcome.output
        site.perform(deploy, "2.4.1")
    assert site.served() == [{"2.4.0", "2.4.1"}] * len(METHODS)
    assert {site.servers()[name] for name in WEB} == {"UP"}
