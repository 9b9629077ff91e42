# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every snippet of README.md and docs/ is used as it stands; only addresses, ports and paths are replaced."""

from __future__ import annotations

import ast
import doctest
import hmac
import http.server
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import typing as t
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis.spec import OF_JUDGE, SEQUENTIAL
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import GateError, InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import settings, strategy
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import gate_runner
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges import sequential
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.sequential import Counts, Ledger
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import RolloutTarget, stages
from ansible_collections.progressive.rollout.plugins.plugin_utils.gates import web
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.expressions import Expression
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import Context
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.gate import FAIL, PASS, WAIT, Answer, GateDriver
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic import haproxy
from ansible_collections.progressive.rollout.tests.simulations import verdict
from ansible_collections.progressive.rollout.tests.support.envoy import Envoy, free_port
from ansible_collections.progressive.rollout.tests.support.haproxy import HAProxy
from ansible_collections.progressive.rollout.tests.support.nginx import Nginx
from ansible_collections.progressive.rollout.tests.support.playbook import APP, ROOT, Playground

PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
EXAMPLES = [page for page in PAGES if page.startswith("docs/examples/")]
FENCE = re.compile(
    r"(?:<!-- test: (?P<name>\S+) -->\n)?^(?P<indent> *)```(?P<language>\S*)\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S
)
LINE = re.compile(  # of progress
    r"\S+ \S+ \[#*\.*\] (\d+/\d+ new ready(, \d+ (starting|not ready|failed))*, \d+ old left(, \d+ % of traffic to new)?, \d+ s"
    r"( of about \d+ s)?|promoted: \d+ instances? replaced(, \d+ starts? failed,)? in [\d.]+ s)"
)


def snippets(page: str) -> list[tuple[str, str]]:
    """Name and text of each snippet of a page."""
    return [(found["name"] or "", found["text"]) for found in FENCE.finditer((ROOT / page).read_text())]


SNIPPETS = {page: dict(snippets(page)) for page in PAGES}
USED = {
    **dict.fromkeys(EXAMPLES, {"setup", "rollout"}),
    "docs/analysis.md": {"start.yml", "verdicts", "places.yml", "metrics.yml", "kayenta.yml", "doubt", "little.yml", "probe.yml"},
    "README.md": {
        *("make", "picture", "install", "requirements.yml"),
        *("inventory.yml", "haproxy.cfg", "shop.yml", "rollout.yml", "run", "operate"),
        *("canary.yml", "blue-green.yml", "say"),
    },
    "docs/balancers.md": {
        "dynamic.cfg",
        "dynamic.yml",
        "match.yml",
        "match.cfg",
        "preview.yml",
        "envoy-files",
        "envoy.json",
        "envoy.yml",
        "nginx-files",
        "nginx.conf",
        "nginx.yml",
    },
    "docs/drivers.md": {"local.py", "upstreams.py", "tickets.py", "drivers.yml"},
    "docs/in_place.md": {"serial.yml", "site.yml", "deploy.yml", "shop.yml", "run", "haproxy.cfg"},
    "docs/idea.md": {"budget", "stages", "baseline"},
    "docs/operator.md": {
        *(
            "variables.yml",
            "play.yml",
            "prepare.yml",
            "systemd.yml",
            "containers.yml",
            "shop@.service",
            "look",
            "events",
            "again",
            "drain.yml",
            "drain",
            "promote.yml",
            "abort.yml",
            "receiver.py",
        ),
        *(
            "canary.yml",
            "within.yml",
            "replicas.yml",
            "groups.yml",
            "instances.yml",
            "in-place.yml",
            "marked.yml",
            "blue-green.yml",
            "gates.yml",
        ),
    },
}


@pytest.mark.parametrize("page", PAGES)
def test_every_snippet_is_used(page: str) -> None:
    named = [name for name, _text in snippets(page)]
    assert sorted(named) == sorted(USED.get(page, set())), "a snippet has no marker <!-- test: name -->, or nothing uses it"


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    for target, anchor in re.findall(r"\]\((?!https?://)([^)#]*)(?:#([^)]*))?\)", text):
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), f"{page}: {target}"
        headings = re.findall(r"^#+ (.*)$", path.read_text(), re.M) if path.suffix == ".md" else []
        slugs = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
        assert not anchor or anchor in slugs, f"{page}: {target}#{anchor}"


class Site:
    """The site that the pages tell of, on this machine: its addresses, ports and paths are replaced by free ones."""

    def __init__(self, playground: Playground) -> None:
        self.playground, self.home = playground, playground.home
        self.network = playground.addresses["web1"].rpartition(".")[0]
        self.port = free_port()
        self.replaced = {
            "10.0.0.": f"{self.network}.",
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
        (self.home / "group_vars/all.yml").write_text(yaml.safe_dump(local))
        for revision in ("2.4.0", "2.4.1", "2.4.2"):
            self.install(revision)

    def install(self, revision: str) -> None:
        """What a playbook of the users' own does."""
        program = self.home / "opt" / revision / "shop"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S {APP}\n")
        program.chmod(0o755)

    def text(self, page: str, name: str) -> str:
        """A snippet, with this site's addresses, ports and paths."""
        text = SNIPPETS[page][name]
        for old, new in self.replaced.items():
            text = text.replace(old, new)
        return text

    def write(self, page: str, *names: str) -> None:
        for name in names:
            (self.home / name).write_text(self.text(page, name))

    def shell(self, text: str, *, env: Mapping[str, str] | None = None, rc: int = 0) -> str:
        """What a shell snippet prints."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        result = subprocess.run(
            ["bash", "-euc", text],
            cwd=self.home,
            env={**self.playground._environment(), "RESULTS": os.devnull, "PATH": path, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert result.returncode == rc, result.stdout + result.stderr
        return result.stdout

    def served(self, **headers: str) -> set[str]:
        """The revisions that answer through the load balancer."""
        found = set()
        for _number in range(12):
            with urllib.request.urlopen(urllib.request.Request(self.url, headers=headers), timeout=10) as response:
                found.add(str(response.read().decode()).split()[0])
        return found


class Balancer(HAProxy):
    """A HAProxy with the configuration that a page gives."""

    def __init__(self, site: Site, page: str, name: str) -> None:
        self.directory, self.config = site.home, site.home / name
        self.config.write_text(site.text(page, name))
        self.socket = str(site.home / "admin.sock")
        self.api = self.socket
        self.process = None
        self.start()

    def ask(self, line: str) -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.socket)
            connection.sendall(line.encode() + b"\n")
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


@pytest.fixture
def site(playground: Playground) -> Site:
    return Site(playground)


@pytest.fixture
def balancer(site: Site) -> Iterator[Balancer]:
    balancer = Balancer(site, "README.md", "haproxy.cfg")
    yield balancer
    balancer.stop()


# README.md


def test_readme_commands_are_there() -> None:
    for line in SNIPPETS["README.md"]["make"].splitlines():
        result = subprocess.run(
            ["sh", "-c", line.replace("make", "make -n", 1)], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0 and "scripts/" in result.stdout, result.stderr


def test_readme_picture_shows_what_is_printed_today() -> None:
    picture, _blank, summary = SNIPPETS["README.md"]["picture"].partition("\n\n")
    for line in picture.splitlines():
        assert LINE.fullmatch(line) or re.fullmatch(r"demo 2 promoted: .*", line), line
    assert [line.split()[0] for line in summary.splitlines()] == ["6", "time", "requests", "requests"]


def test_readme_installation(site: Site) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    source = site.home / "source"
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    git = "git -c user.name=x -c user.email=x@example.org"
    site.shell(f"cd source && git init -q -b main && git add . && {git} commit -qm x")
    site.replaced["https://github.com/progressive-rollout/progressive.rollout.git"] = f"file://{source}"
    env = {
        "ANSIBLE_COLLECTIONS_PATH": str(site.home / "collections"),
        "PYTHONPATH": "",  # or it would be found there
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "protocol.file.allow",
        "GIT_CONFIG_VALUE_0": "always",
    }
    # The name that git clone makes of the real address.
    site.shell(site.text("README.md", "install").replace(f"file://{source}", f"file://{source} progressive.rollout"), env=env)
    installed = site.home / "collections/ansible_collections/progressive/rollout"
    assert (installed / "roles/rolling/tasks/main.yml").exists() and not (installed / ".git").exists()
    shutil.rmtree(installed)
    site.write("README.md", "requirements.yml")
    site.shell("ansible-galaxy collection install -r requirements.yml", env=env)
    assert (installed / "plugins/action/begin.py").exists()


def test_readme_service(site: Site, balancer: Balancer) -> None:
    site.write("README.md", "inventory.yml", "shop.yml", "rollout.yml")
    run = site.text("README.md", "run")
    assert "2.4.0 promoted" in site.shell(run.replace("2.4.1", "2.4.0"))
    assert site.served() == {"2.4.0"}
    printed = site.shell(run)
    assert "shop 2.4.1 promoted: 6 instances replaced" in printed and site.served() == {"2.4.1"}
    assert all(LINE.search(line) for line in printed.splitlines() if line.startswith("shop 2.4.1 ["))
    assert "changed=0" in site.shell(run)

    before = site.playground.records()
    balancer.stop()  # a restart forgets nothing
    balancer.start()
    assert site.served() == {"2.4.1"}
    status, rest = site.shell(site.text("README.md", "operate")).split("PLAY [Go back to the revision before]")
    back, restart = rest.split("PLAY [Replace every instance")
    assert "+shop 2.4.2: 6" in status and "-shop 2.4.1: 6" in status and ": shop 2.4.1 promoted: 6 " in status
    assert "shop 2.4.0 promoted: 6 instances replaced" in back and "shop 2.4.0 promoted: 6 instances replaced" in restart
    assert site.served() == {"2.4.0"} and site.playground.revisions() == ["2.4.0"] * 6
    assert not {record["id"] for record in before} & {record["id"] for record in site.playground.living()}


def test_operator_play_of_ones_own(site: Site, balancer: Balancer) -> None:
    site.write("README.md", "inventory.yml", "shop.yml")
    site.write("docs/operator.md", "play.yml")
    run = site.text("README.md", "run").replace("rollout.yml", "play.yml")
    assert "--limit leaves out web2, web3" in site.shell(f"{run.strip()} --limit web1", rc=2) and not site.playground.records()
    assert site.shell(run).count("shop 2.4.1 promoted") == 1 and site.served() == {"2.4.1"}


# docs/balancers.md


def roll(site: Site, variables: str) -> None:
    """The README's service, with other variables besides: deployed, and rolled out."""
    site.write("README.md", "inventory.yml", "shop.yml", "rollout.yml")
    (site.home / "shop.yml").write_text(f"{site.text('README.md', 'shop.yml')}\n{variables}")
    run = site.text("README.md", "run")
    site.shell(run.replace("2.4.1", "2.4.0"))
    assert site.served() == {"2.4.0"}
    assert "shop 2.4.1 promoted: 6 instances replaced" in site.shell(run)
    assert site.served() == {"2.4.1"}


def test_haproxy_with_servers_added_as_needed(site: Site) -> None:
    balancer = Balancer(site, "docs/balancers.md", "dynamic.cfg")
    try:
        roll(site, site.text("docs/balancers.md", "dynamic.yml"))
        balancer.stop()  # forgets them, as the page says; a run brings them back
        balancer.start()
        assert balancer.servers() == {}
        site.shell(site.text("README.md", "run"))
        assert site.served() == {"2.4.1"}
    finally:
        balancer.stop()


def test_haproxy_leads_a_header_to_the_new_ones(site: Site) -> None:
    balancer = Balancer(site, "docs/balancers.md", "match.cfg")
    try:
        look(site, site.text("docs/balancers.md", "preview.yml"))
        assert "shop-preview" not in balancer.ask("show stat shop-preview 4 -1")
    finally:
        balancer.stop()


def look(site: Site, variables: str) -> None:
    """The README's service, blue-green, looked at while it is dark, and promoted."""
    site.write("README.md", "inventory.yml", "shop.yml", "rollout.yml")
    more = "rollout_strategy: blue_green\nrollout_auto_promote: false\nrollout_wait: 0\nrollout_hold: 0\n"
    (site.home / "shop.yml").write_text(f"{site.text('README.md', 'shop.yml')}\n{variables}\n{more}")
    run = site.text("README.md", "run")
    site.shell(run.replace("2.4.1", "2.4.0"))
    always = {"X-Canary": "always"}
    assert site.served(**always) == {"2.4.0"}
    site.shell(run)
    assert (site.served(), site.served(**always)) == ({"2.4.0"}, {"2.4.1"})
    site.write("docs/operator.md", "promote.yml")
    site.shell("ansible-playbook -i inventory.yml promote.yml -e @shop.yml")
    assert site.served() == site.served(**always) == {"2.4.1"}


@pytest.fixture
def envoy(site: Site) -> Iterator[Envoy]:
    site.shell(site.text("docs/balancers.md", "envoy-files"))
    site.write("docs/balancers.md", "envoy.json")
    envoy = Envoy.__new__(Envoy)
    envoy.home, envoy.path, envoy.process = site.home, site.home / "rollout/envoy", None
    envoy.admin = int(site.replaced["9901"])
    (site.home / "bootstrap.json").write_text((site.home / "envoy.json").read_text())
    envoy.start()
    yield envoy
    envoy.stop()


def test_envoy(site: Site, envoy: Envoy) -> None:
    roll(site, site.text("docs/balancers.md", "envoy.yml"))


def test_envoy_sends_what_matches_to_the_new_ones(site: Site, envoy: Envoy) -> None:
    look(site, site.text("docs/balancers.md", "match.yml"))
    clusters = {
        one["name"]: one.get("host_statuses", []) for one in json.loads(envoy.get("/clusters?format=json"))["cluster_statuses"]
    }
    assert len(clusters["shop"]) == 6 and clusters["shop~preview"] == []


def test_nginx(site: Site) -> None:
    site.shell(site.text("docs/balancers.md", "nginx-files"))
    nginx = Nginx.__new__(Nginx)
    nginx.home, nginx.config, nginx.pid = site.home, site.home / "nginx/nginx.conf", site.home / "nginx.pid"
    nginx.front, nginx.process = (f"{site.network}.2", site.port), None
    nginx.config.write_text(site.text("docs/balancers.md", "nginx.conf"))
    nginx.start()
    try:
        roll(site, site.text("docs/balancers.md", "nginx.yml"))
        nginx.stop()  # forgets nothing, as the page says
        nginx.start()
        assert site.served() == {"2.4.1"}
    finally:
        nginx.stop()


# docs/operator.md


def test_operator_variables_are_accepted(site: Site, balancer: Balancer) -> None:
    site.write("README.md", "inventory.yml", "rollout.yml")
    variables = yaml.safe_load(site.text("README.md", "shop.yml")) | yaml.safe_load(
        site.text("docs/operator.md", "variables.yml")
    )
    (site.home / "shop.yml").write_text(yaml.safe_dump(variables))
    assert "2.4.1 promoted" in site.shell(site.text("README.md", "run"))


def test_operator_at_night(site: Site, balancer: Balancer) -> None:
    """A broken revision is held; it is looked at, gone on with once it is mended, and gone back from."""
    page = "docs/operator.md"
    site.write("README.md", "inventory.yml", "shop.yml", "rollout.yml")
    site.write(page, "drain.yml")
    run = site.text("README.md", "run")
    site.shell(run.replace("2.4.1", "2.4.0"))

    assert "changed=1" in site.shell(site.text(page, "drain"))
    assert "shop-1" not in {record["id"] for record in site.playground.living()}
    assert "2.4.0 scaled: 6 instances" in site.shell(run.replace("2.4.1", "2.4.0"))  # the number is back
    assert site.playground.revisions() == ["2.4.0"] * 6

    program = site.home / "opt/2.4.1/shop"
    good = program.read_text()
    program.write_text("#!/bin/sh\necho cannot find the database\nexit 3\n")
    failed = site.shell(f"{run.strip()} -e rollout_on_failure=hold", rc=2)
    assert "cannot find the database" in failed and "it is held as it is" in failed and "on web" in failed
    looked = site.shell(site.text(page, "look"))
    assert "shop 2.4.1: held at replace since " in looked
    assert "lease: nobody has it, so nobody is at work on the rollout; it waits for you" in looked
    last = site.shell(site.text(page, "events")).splitlines()[-1]
    assert json.loads(last)["phase"] == "held"
    assert site.served() == {"2.4.0"}

    program.write_text(good)
    on, back = site.shell(site.text(page, "again")).split("PLAY [Go back")
    assert "shop 2.4.1 promoted" in on and "shop 2.4.0 promoted" in back
    assert site.served() == {"2.4.0"}


LISTED = {  # the stages of six instances, and new and old ones of each
    "README.md": {
        "canary.yml": "step 1 1+6, step 4 3+6, promote 6+0",
        "blue-green.yml": "prepare 6+6, switch 6+6, hold 6+6, retire 6+0",
    },
    "docs/operator.md": {
        "canary.yml": "step 1 1+6, step 3 a fifth 2+6, step 5 3+6, promote 6+0",
        "within.yml": "replace 6+0, promote 6+0",
        "replicas.yml": "step 1 1+5, step 3 3+3, promote 6+0",
        "groups.yml": "group 1 2+4, group 2 4+2, group 3 6+0, promote 6+0",
        "instances.yml": "step 1 1+6, step 2 3+4, promote 6+0",
        "in-place.yml": "step 1 1+5, promote 6+0",
        "marked.yml": "step 1 1+5, step 2 advice 1+5, step 3 3+3, step 4 migration 3+3, promote 6+0",
        "blue-green.yml": "prepare 6+6, switch 6+6, hold 6+6, retire 6+0",
        "gates.yml": "confirm 0+6, replace 6+0, promote 6+0",
    },
}


@pytest.mark.parametrize(("page", "name"), [(page, name) for page in LISTED for name in LISTED[page]])
def test_strategies_are_what_the_pages_say(page: str, name: str) -> None:
    given = yaml.safe_load(SNIPPETS["README.md"]["shop.yml"]) | yaml.safe_load(SNIPPETS[page][name])
    parsed = settings.parse({variable.removeprefix("rollout_"): value for variable, value in given.items()})
    listed = stages(parsed.plan, RolloutTarget(2, 6, parsed.budget.resolve(6), before=6, stable=1))
    told = ", ".join(f"{stage.name} {stage.waypoint.new}+{stage.waypoint.old}" for stage in listed)
    assert told == LISTED[page][name]


def test_readme_words_have_playbooks() -> None:
    said = re.findall(r"progressive\.rollout\.(\w+)", SNIPPETS["README.md"]["say"])
    assert said and all((ROOT / f"playbooks/{word}.yml").exists() for word in said)


def test_operator_receiver_knows_a_genuine_question() -> None:
    names: dict[str, t.Any] = {}
    exec(SNIPPETS["docs/operator.md"]["receiver.py"], names)
    with Hook() as hook:
        answer = web.Driver({"url": hook.url, "secret": "swordfish"}, t.cast(t.Any, None)).ask({"id": "r1"}, 0.0)
    assert answer.verdict == "pass"
    assert names["genuine"](hook.body, hook.headers, b"swordfish")
    assert not names["genuine"](hook.body, hook.headers, b"tuna")
    assert not names["genuine"](hook.body + b" ", hook.headers, b"swordfish")
    old = json.dumps(json.loads(hook.body) | {"sent": 0}).encode()
    signed = {"X-Rollout-Signature": "sha256=" + hmac.new(b"swordfish", old, "sha256").hexdigest()}
    assert not names["genuine"](old, signed, b"swordfish")


class Hook:
    """A web service that answers one POST with 200, and keeps it."""

    body = b""
    headers: Mapping[str, str] = {}

    def __enter__(self) -> Hook:
        kept = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                kept.headers = dict(self.headers)
                kept.body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_args: t.Any) -> None:
                """Quiet."""

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.handle_request, daemon=True).start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.server.server_close()


def test_operator_parks_and_goes_on(site: Site, balancer: Balancer) -> None:
    """As in AWX: nobody waits, the rollout is parked, and promote.yml goes on with it."""
    page = "docs/operator.md"
    site.write("README.md", "inventory.yml", "rollout.yml")
    site.write(page, "promote.yml")
    assert site.text(page, "abort.yml") == site.text(page, "promote.yml").replace("promote", "abort")
    variables = yaml.safe_load(site.text("README.md", "shop.yml")) | {
        "rollout_replicas": 2,
        "rollout_min_ready": 0,
        "rollout_strategy": "canary",
        "rollout_steps": [{"set_weight": 50}, {"pause": {}}],
        "rollout_gates": {"rollback": [{"driver": "web", "url": "http://127.0.0.1:1/", "secret": "swordfish", "retries": 0}]},
        "rollout_wait": 0,
    }
    (site.home / "shop.yml").write_text(yaml.safe_dump(variables))
    run = site.text("README.md", "run")
    site.shell(run.replace("2.4.1", "2.4.0"))
    parked = site.shell(f"{run.strip()} -vvv")
    assert "parked: promote.yml lets it pass" in parked and site.served() == {"2.4.0", "2.4.1"}
    kept = "".join(path.read_text(errors="replace") for path in (site.home / "rollout").rglob("*") if path.is_file())
    assert "swordfish" not in parked + kept
    told = site.shell("ansible-playbook -i inventory.yml promote.yml -e @shop.yml")
    assert "shop 2.4.1 promoted" in told and site.served() == {"2.4.1"}


def texts(node: ast.AST) -> str:
    """A message in the code, with § for what is filled in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(texts(part) for part in node.values)
    if isinstance(node, ast.BinOp):
        return texts(node.left) + (texts(node.right) if isinstance(node.op, ast.Add) else "")
    return re.sub(r"%[srdg]", "§", node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else "§"


CODE = [
    node
    for folder in ("plugin_utils", "action", "lookup")
    for path in sorted((ROOT / "plugins" / folder).rglob("*.py"))
    for node in ast.walk(ast.parse(path.read_text()))
]


def spoken() -> list[str]:
    """Each message of the code, and the tasks of each role and playbook, which say some, too."""
    tasks = [path for folder in ("roles", "playbooks") for path in sorted((ROOT / folder).rglob("*.yml"))]
    of_tasks = [" ".join(re.sub(r"{{.*?}}", "§", path.read_text(), flags=re.S).split()) for path in tasks]
    return [*of_tasks, *(texts(node) for node in CODE if isinstance(node, (ast.Constant, ast.JoinedStr)))]


def documented() -> list[list[str]]:
    """The messages of the operator's guide, each as the parts that do not differ."""
    section = (ROOT / "docs/operator.md").read_text().partition("## Messages")[2].partition("## Limits")[0]
    first = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    messages = [text for column in first for text in re.findall(r"`(.+?)`(?=, `| $)", column)]
    return [[part.strip() for part in re.split(r"\.\.\.\??|VARIABLE:", text) if part.strip(" :")] for text in messages]


def test_documented_messages_are_those_of_the_code() -> None:
    said = spoken()
    assert not [parts for parts in documented() if not any(all(part in text for part in parts) for text in said)]


def test_every_message_of_the_code_is_documented_or_says_what_to_do() -> None:
    missing = []
    for node in CODE:
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            text = "".join(texts(argument) for argument in node.exc.args)
            kind = getattr(node.exc.func, "id", "")
            known = any(parts and all(part in text for part in parts) for parts in documented())
            ours = kind in ("Refused", "Stale", "Failed") or kind.endswith(("Error", "Held", "Lost", "Failed", "Interrupted"))
            helpful = kind == "InputError" and ";" in text
            if ours and kind not in ("OSError", "TypeError", "ModuleNotFoundError") and re.search("[a-z]{4}", text):
                missing += [] if known or helpful else [f"{kind}: {text}"]
    assert not missing


# docs/analysis.md

ANALYSIS = "docs/analysis.md"
ERRORS = re.compile(r"errors ([\d,]+) of ([\d,]+) against ([\d,]+) of ([\d,]+) on stable;[^\n]*?(?=\. |$)", re.M)
LATENCY = re.compile(r"latency median [\d.]+ to [\d.]+ \(\d+ samples\) against [\d.]+ to [\d.]+ on stable \(\d+ samples\)")


@pytest.mark.parametrize("name", [name for name in SNIPPETS[ANALYSIS] if name.endswith(".yml")])
def test_an_analysis_is_taken(name: str) -> None:
    """As when a rollout begins. What is then measured is tests/drivers/test_metrics.py's, and what comes of it tests/e2e/test_analysis.py's."""
    given = yaml.safe_load(SNIPPETS[ANALYSIS][name])
    if "rollout_steps" not in given:  # the inside of an analysis
        given = {"rollout_strategy": "canary", "rollout_steps": [{"set_weight": 10}, {"analysis": given}]}
    given = yaml.safe_load(SNIPPETS["README.md"]["shop.yml"]) | given
    plan = settings.parse({variable.removeprefix("rollout_"): value for variable, value in given.items()}).plan
    gate_runner.check(plan.gates, Context("shop", t.cast(t.Any, Hosts()), counted=haproxy.Driver.counts))


def test_the_conditions_of_an_analysis_hold() -> None:
    for metric in yaml.safe_load(SNIPPETS[ANALYSIS]["metrics.yml"])["metrics"]:
        for condition in {"success_condition", "failure_condition"} & metric.keys():
            assert Expression(metric[condition], condition).holds([1.0] if "[0]" in metric[condition] else 0.01)


def test_the_judges_say_what_the_page_says() -> None:
    """Of errors exactly, by the numbers in it. Of latency the page has no samples."""
    said = SNIPPETS[ANALYSIS]["verdicts"] + SNIPPETS[ANALYSIS]["doubt"]
    rules = OF_JUDGE[SEQUENTIAL]
    found = list(ERRORS.finditer(said))
    assert len(found) == 3 and len(LATENCY.findall(said)) == 2
    for line in found:
        failed, requests, others, all_others = (int(number.replace(",", "")) for number in line.groups())
        ledger = Ledger().counted("", Counts(requests, failed), Counts(all_others, others))
        assert sequential.errors(ledger, rules["alpha"], rules["tolerance"], rules["detect"]).sentence == line[0]
    assert "`shop-7: errors 9 of 300 against 2 of 2,700 on all others`" in (ROOT / ANALYSIS).read_text()
    apart = sequential.apart(
        {"shop-7": Counts(300, 9), "shop-8": Counts(300, 0)}, Counts(2400, 2), rules["alpha"], rules["tolerance"]
    )
    assert apart.sentence.startswith("shop-7: errors 9 of 300 against 2 of 2,700 on all others;")


def rows(marker: str) -> list[list[str]]:
    """The rows of the table after this marker, without its head."""
    table = (ROOT / ANALYSIS).read_text().partition(f"<!-- test: {marker} -->\n")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_so_many_requests_are_needed() -> None:
    head, _line, *body = rows("needed")
    rules = OF_JUDGE[SEQUENTIAL]
    for detect, row in zip((rules["detect"], 0.01), body, strict=True):
        for share, cell in zip(head[1:], row[1:], strict=True):
            ledger = Ledger().counted("", Counts(0.01, 0), Counts(1 / float(share.removesuffix(" %")) - 0.01, 0))
            assert sequential.errors(ledger, rules["alpha"], rules["tolerance"], detect).needs == int(cell.replace(",", ""))


def test_the_judges_are_as_good_as_the_page_says() -> None:
    """The whole table is printed by tests/simulations/verdict.py; this is some of it, since it takes its time."""
    head, _line, *body = rows("table")
    assert head[1:] == list(verdict.JUDGES)
    assert [row[0] for row in body] == [f"{stable} -> {new}" for stable, new in verdict.RATES]
    for row, (stable, new) in list(zip(body, verdict.RATES, strict=True))[1:6:2]:
        assert row[1:] == [str(verdict.found(judge, stable, new)) for judge in verdict.JUDGES.values()]


class Hosts:
    """As much of a transport as a driver needs that is made and not asked."""

    def hosts(self, pattern: str) -> list[str]:
        return [pattern]

    def apart(self) -> Hosts:
        return self


# docs/in_place.md

ROLE = """\
- ansible.builtin.raw: |
    ADDRESS={{{{ ansible_host }}}} PORT=8080 REVISION={{{{ shop_version }}}} setsid {python} -I -S {app} >/dev/null 2>&1 </dev/null &
    echo $! >{home}/{{{{ inventory_hostname }}}}.pid
"""


def test_in_place_instead_of_serial(site: Site) -> None:
    page = "docs/in_place.md"
    (before,) = yaml.safe_load(SNIPPETS[page]["serial.yml"])
    table = (ROOT / page).read_text().partition("| with `serial`")[2]
    assert (
        all(f"`{word}" in table for word in before.keys() & {"serial", "max_fail_percentage"})
        and before["roles"][0]["role"] == "shop"
    )
    site.write("README.md", "inventory.yml")
    site.write(page, "site.yml", "deploy.yml", "shop.yml")
    (site.home / "roles/shop/tasks").mkdir(parents=True)
    (site.home / "roles/shop/tasks/main.yml").write_text(ROLE.format(home=site.home, python=sys.executable, app=APP))
    balancer = Balancer(site, page, "haproxy.cfg")
    run, env = site.text(page, "run"), {"ANSIBLE_GATHERING": "explicit"}
    try:
        assert "3 instances replaced" in site.shell(run, env=env)
        assert site.served() == {"2.4.1"}
        assert "nothing to do" in site.shell(run, env=env)
        shown = site.shell(run.replace("2.4.1", "2.4.2").strip() + " --check --diff", env=env)
        assert "wave 1: web1, web2 to 2.4.2" in shown and site.served() == {"2.4.1"}
    finally:
        balancer.stop()
        for pid in site.home.glob("*.pid"):
            os.kill(int(pid.read_text()), signal.SIGKILL)


# docs/examples, which Molecule runs on hosts: extensions/molecule/shared/hosts


@pytest.mark.parametrize("page", EXAMPLES)
def test_an_example_has_what_its_page_names_and_nothing_else(page: str) -> None:
    named = set(re.findall(r"`(\w+\.\w+)`", (ROOT / page).read_text()))
    assert named == {path.name for path in (ROOT / page).parent.iterdir()} - {"README.md"}
    commands = [shlex.split(SNIPPETS[page][name]) for name in ("setup", "rollout")]
    operands = {word.removeprefix("@") for words in commands for word in words if not word.startswith("-")}
    assert operands <= named | {"ansible-playbook", "rollout_revision=2.4.1"}
    assert (ROOT / "extensions/molecule" / Path(page).parent.name / "molecule.yml").exists()


# docs/drivers.md


def test_the_drivers_of_the_example_work(site: Site) -> None:
    collection = site.home / "collections/ansible_collections/acme/shop/plugins/plugin_utils"
    for folder, name in (("platforms", "local.py"), ("traffic", "upstreams.py")):
        (collection / folder).mkdir(parents=True)
        (collection / folder / name).write_text(SNIPPETS["docs/drivers.md"][name])
    (site.home / "shop.yml").write_text(site.text("docs/drivers.md", "drivers.yml"))
    site.write("README.md", "inventory.yml", "rollout.yml")
    paths = f"{site.home}/collections:{os.environ.get('ANSIBLE_COLLECTIONS_PATH', ROOT / '.cache/collections')}"
    run = site.text("README.md", "run")
    folder = site.home / "rollout/local/shop"

    def records() -> list[dict[str, t.Any]]:
        return [json.loads(path.read_text()) for path in sorted(folder.iterdir())]

    try:
        for revision in ("2.4.0", "2.4.1"):
            site.shell(run.replace("2.4.1", revision), env={"ANSIBLE_COLLECTIONS_PATH": paths})
            assert [record["revision"] for record in records()] == [revision] * 3
            upstreams = json.loads((site.home / "rollout/upstreams.json").read_text())
            assert {(entry["name"], entry["rotation"]) for entry in upstreams} == {(record["id"], "in") for record in records()}
            for entry in upstreams:
                with urllib.request.urlopen(f"http://{entry['address']}:{entry['port']}/", timeout=10) as response:
                    assert response.headers["X-Revision"] == revision
    finally:
        for record in records():
            os.kill(record["pid"], signal.SIGKILL)


def test_the_gate_of_the_example_works(tmp_path: Path) -> None:
    names: dict[str, t.Any] = {}
    exec(SNIPPETS["docs/drivers.md"]["tickets.py"], names)
    assert not set(names["OPTIONS"]) & set(strategy.OF_GATES)
    gate: GateDriver = names["Driver"]({"folder": str(tmp_path)}, None)
    with pytest.raises(GateError, match=r"the ticket of 2\.4\.1: No such file"):
        gate.ask({"revision": "2.4.1"}, 0.0)
    for state, expected in (("open", WAIT), ("closed", PASS), ("refused", FAIL), ("lost", FAIL)):
        (tmp_path / "2.4.1").write_text(state)
        assert gate.ask({"revision": "2.4.1"}, 3.0) == Answer(expected, f"its ticket is {state}, for 3 s")
    with pytest.raises(InputError, match="not an absolute path"):
        names["Driver"]({"folder": "tickets"}, None)


# docs/operator.md, and hosts that are made ready


def test_the_tasks_of_the_example_make_hosts_ready(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1/shop").touch()
    with Playground(2) as playground:
        home = playground.home
        (home / "shop.conf.j2").write_text("revision {{ rollout_revision }} on {{ inventory_hostname }}\n")
        tasks = SNIPPETS["docs/operator.md"]["prepare.yml"].replace("/opt/shop", f"{home}/{{{{ inventory_hostname }}}}")
        (home / "prepare.yml").write_text(tasks.replace("/srv/releases", str(home)))
        subprocess.run(["tar", "-czf", home / "shop-1.tar.gz", "-C", tmp_path, "1"], check=True)
        for host in playground.hosts:
            (home / host).mkdir()
        outcome = playground.run("progressive.rollout.prepare", {"rollout_prepare_tasks": "prepare.yml"})
        assert outcome.rc == 0, outcome.output
        assert all((home / host / "1/shop").exists() for host in playground.hosts)
        assert (home / "web2/1/shop.conf").read_text() == "revision 1 on web2\n"


# docs/idea.md


@pytest.mark.parametrize("name", ["budget", "stages", "baseline"])
def test_the_arithmetic_is_right(name: str) -> None:
    test = doctest.DocTestParser().get_doctest(SNIPPETS["docs/idea.md"][name], {}, name, None, 0)
    assert doctest.DocTestRunner().run(test).failed == 0
