# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages of the documentation, as far as no playbook has to run; tests/e2e/test_docs.py and
test_tutorial.py run the others.
"""

from __future__ import annotations

import contextlib
import doctest
import hmac
import itertools
import json
import re
import shlex
import subprocess
import typing as t
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.action import move
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _journal, _service
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis import judging
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis.needs import needs
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    GateError,
    InputError,
    StoreAway,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import (
    gates,
    notify,
    settings,
    step_options,
    variables,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop import (
    gate_runner,
    timing,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges import errors
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.counts import (
    Counts,
    Span,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.latency import (
    Histogram,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.messages import (
    Look,
    Message,
    Messages,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.tails import (
    Tails,
    Times,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Phase, State
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    RolloutTarget,
    Stage,
    Waypoint,
    stages,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.gates import web
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.expressions import (
    Expression,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    AccessLog,
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.gate import (
    FAIL,
    PASS,
    WAIT,
    Answer,
    GateDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote import kubernetes_rights
from ansible_collections.progressive.rollout.plugins.plugin_utils.report.plan import needed
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import store_retry
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Outcome
from ansible_collections.progressive.rollout.plugins.plugin_utils.stores import (
    _config_maps,
    etcd,
    kubernetes,
    postgresql,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic import haproxy
from ansible_collections.progressive.rollout.tests.simulations import models, verdict
from ansible_collections.progressive.rollout.tests.support import haproxy as haproxy_support
from ansible_collections.progressive.rollout.tests.support import nginx as nginx_support
from ansible_collections.progressive.rollout.tests.support.pages import (
    EXAMPLE,
    EXAMPLES,
    PAGES,
    ROOT,
    SNIPPETS,
    read,
    snippets,
    table,
)
from ansible_collections.progressive.rollout.tests.support.web import Server

HOW_TO, TUTORIAL = "docs/how-to", "docs/tutorial"
# here, in tests/e2e/test_docs.py, test_tutorial.py and test_systemd.py,
# tests/unit/test_containers.py
USED = {
    **dict.fromkeys(EXAMPLES, {"setup", "rollout"}),
    "README.md": {"make", "picture", "install", "group_vars/all.yml", "run", "canary.yml"},
    f"{TUTORIAL}/first-rollout.md": {
        *(
            "install",
            "releases",
            "haproxy.cfg",
            "haproxy",
            "inventory.yml",
            "group_vars/all.yml",
            "deploy",
            "user",
            "rollout",
            "own.yml",
        ),
    },
    f"{TUTORIAL}/first-canary.md": {"canary.yml", "start", "promote", "analysis.yml"},
    f"{TUTORIAL}/rollback-in-anger.md": {
        "missing",
        "broken",
        "abort",
        "rollback",
        "killed",
        "resume",
        "clean",
    },
    f"{HOW_TO}/analysis.md": {
        *(
            "start.yml",
            "verdicts",
            "places.yml",
            "metrics.yml",
            "past.yml",
            "kayenta.yml",
            "doubt",
            "messages.yml",
            "new-message",
            "little.yml",
            "dry-run.yml",
            "dry-run",
            "judge",
            "replayed",
            "plan",
            "probe.yml",
            "log.yml",
            "log-haproxy.cfg",
            "log-nginx.conf",
            "log-metrics.yml",
            "saturation.yml",
            "slow",
        ),
    },
    f"{HOW_TO}/awx.md": {
        *("rollout.yml", "requirements.yml", "promote.yml", "abort.yml", "release.yml"),
    },
    f"{HOW_TO}/blue-green.md": {"blue-green.yml"},
    f"{HOW_TO}/report.md": {"report.yml", "report", "history"},
    f"{HOW_TO}/notify.md": {"notify.yml", "template.yml"},
    f"{HOW_TO}/metrics.md": {"metrics.yml", "rulebook"},
    f"{HOW_TO}/canary.md": {
        "canary.yml",
        "ramp.yml",
        "linear.yml",
        "hold.yml",
        "known_good.yml",
        "replicas.yml",
        "groups.yml",
        "instances.yml",
        "in-place.yml",
        "marked.yml",
    },
    f"{HOW_TO}/containers.md": {"containers.yml"},
    f"{HOW_TO}/control.md": {"control", "back_in_steps", "set_target", "exclude", "follow"},
    f"{HOW_TO}/leave.md": {"remove", "units"},
    "docs/examples/kubernetes/README.md": {"setup", "rollout", "patch", "in_git"},
    f"{HOW_TO}/drain-an-instance.md": {"drain.yml", "drain"},
    f"{HOW_TO}/envoy.md": {"envoy-files", "envoy.json", "envoy.yml", "cohort.yml"},
    f"{HOW_TO}/freeze.md": {"freeze.yml", "window.yml"},
    f"{HOW_TO}/molecule.md": {"default", "containers"},
    f"{HOW_TO}/autoscalers.md": {"autoscaler.yml", "command.yml"},
    f"{HOW_TO}/regions.md": {"regions.yml"},
    f"{HOW_TO}/release.md": {"release.yml", "run", "platforms.yml", "abort"},
    f"{HOW_TO}/many-services.md": {
        *("shared.yml", "api.yml", "run", "groups.yml", "vault", "several", "all", "release"),
        *("shop.yml", "awx"),
    },
    f"{HOW_TO}/several-platforms.md": {"parts.yml", "part_waves.yml"},
    f"{HOW_TO}/gates-and-hooks.md": {"gates.yml", "receiver.py"},
    f"{HOW_TO}/haproxy.md": {
        "haproxy.cfg",
        "slots.yml",
        "dynamic.cfg",
        "dynamic.yml",
        "cohort.cfg",
        "cohort-map",
        "cohort.yml",
    },
    f"{HOW_TO}/in-a-play.md": {"play.yml"},
    f"{HOW_TO}/load-balancers.md": {"match.yml", "match.cfg", "preview.yml"},
    f"{HOW_TO}/adopt.md": {"haproxy.cfg", "adopt.yml", "run", "delete", "shop.conf", "nginx.yml"},
    f"{HOW_TO}/migrate-from-serial.md": {
        "serial.yml",
        "site.yml",
        "deploy.yml",
        "group_vars/all.yml",
        "run",
        "haproxy.cfg",
    },
    f"{HOW_TO}/nginx.md": {
        "nginx-files",
        "nginx.conf",
        "nginx.yml",
        "cohort-files",
        "cohort.conf",
        "cohort.yml",
    },
    f"{HOW_TO}/prepare-hosts.md": {"prepare.yml"},
    f"{HOW_TO}/scale-and-rebalance.md": {"within.yml", "zones.yml", "per_host.yml"},
    f"{HOW_TO}/kubernetes.md": {
        *("kubernetes.yml", "service.yml", "gateway.yml", "prestop", "clusters.yml", "waves.yml"),
        *("template.yml", "paused"),
    },
    f"{HOW_TO}/swarm.md": {"swarm.yml"},
    f"{HOW_TO}/kubernetes-in-place.md": {"statefulset.yml", "daemonset.yml", "strategy"},
    f"{HOW_TO}/stores.md": {
        *("etcd.yml", "etcd-user", "postgresql.yml", "psycopg", "away", "new.yml", "move"),
        *("kubernetes.yml", "kubectl", "role.yml"),
    },
    f"{HOW_TO}/systemd.md": {"systemd.yml", "shop@.service"},
    f"{HOW_TO}/troubleshoot.md": {"look", "events", "again", "failed"},
    f"{HOW_TO}/write-a-driver.md": {
        "local.py",
        "upstreams.py",
        "fold",
        "tickets.py",
        "greeting.py",
        "greeting.yml",
        "drivers.yml",
    },
    "docs/reference/quick-reference.md": {"line"},
    "docs/reference/variables.md": {"variables.yml"},
    # the first is a picture of folders
    "docs/explanation/idea.md": {"", "budget", "stages", "baseline"},
}
MANY = ROOT / "docs/examples/many-services"
SHOP = yaml.safe_load(SNIPPETS["README.md"]["group_vars/all.yml"])
FLEET = RolloutTarget(
    2, 6, settings.parse({"service": "shop"}, drivers=False).budget.resolve(6), before=6, stable=1
)


def parsed(**given: t.Any) -> settings.Settings:
    """README.md's service, with other variables besides."""
    return settings.parse(
        {variable.removeprefix("rollout_"): value for variable, value in (SHOP | given).items()}
    )


# -- every page ------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_every_snippet_is_used(page: str) -> None:
    named = [name for name, _text in snippets(page)]
    assert sorted(named) == sorted(USED.get(page, set())), (
        "a snippet has no marker <!-- test: name -->, or nothing uses it"
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    for target, anchor in re.findall(r"\]\((?!https?://)([^)#]*)(?:#([^)]*))?\)", read(page)):
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), f"{page}: {target}"
        headings = re.findall(r"^#+ (.*)$", path.read_text(), re.M) if path.suffix == ".md" else []
        slugs = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
        assert not anchor or anchor in slugs, f"{page}: {target}#{anchor}"


def test_a_paragraph_has_one_sentence_a_line() -> None:
    crowded = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        for line in re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL).splitlines()
        # neither lists and what belongs to them, nor tables, headings, quotes and comments
        if re.match(r"[\[`*A-Za-z]", line) and not line.startswith("* ")
        if re.search(r"[a-z)`][.!?] [A-Z]", re.sub(r"`[^`]*`", "`x`", line))
        if path.name != "CHANGELOG.md" and "<!-- Generated" not in path.read_text()[:400]
    ]
    assert not crowded


def test_every_page_is_in_the_index() -> None:
    listed = {
        str((ROOT / index).parent.joinpath(target).resolve().relative_to(ROOT))
        for index in ("docs/index.md", "docs/explanation/decisions/index.md")
        for target in re.findall(r"\]\(([^)#]+\.md)\)", read(index))
    }
    assert listed | {"README.md", "docs/index.md"} == set(PAGES)


def test_every_variable_is_on_the_page_of_variables() -> None:
    page = read("docs/reference/variables.md")
    assert [name for name in variables.COMMON if f"`rollout_{name}`" not in page] == []


def test_limits_are_what_the_page_says() -> None:
    page = read("docs/reference/limits.md")
    rows = (
        f"| instances of a service | {values.MOST:,} |",
        f"| any duration | {values.LONGEST / 86400:g} days |",
        f"| receivers in `rollout_notify` | {notify.MOST} |",
        f"| {_config_maps.LARGEST >> 20} MiB compressed; {_config_maps.MOST >> 20} MiB of any",
        f"| journal in etcd | {etcd.MOST >> 20} MiB",
        f"| timelines and reports of rollouts | the last {_journal.KEEP} ",
        f"| the last {_service.KEEP_LOGS} of a service on each host |",
        f"each {timing.PLATFORM[1]:g} seconds at least",
        f"each {timing.AUTOSCALER:g} seconds",
    )
    assert [row for row in rows if row not in page] == []


def commands() -> list[t.Any]:
    """Each `ansible-playbook` of a shell snippet, as its page and its words."""
    found = [
        (page, shlex.split(line.rstrip("& "), comments=True))
        for page in PAGES
        for text in SNIPPETS[page].values()
        for line in text.splitlines()
        if line.startswith("ansible-playbook ")
    ]
    return [pytest.param(page, words, id=f"{page}: {' '.join(words)}") for page, words in found]


@pytest.mark.parametrize(("page", "words"), commands())
def test_every_command_names_a_playbook_files_and_variables_that_exist(
    page: str, words: list[str]
) -> None:
    known = {*variables.COMMON, *step_options.OF_STEPS, *step_options.OF_ROLES}
    files = {name for texts in SNIPPETS.values() for name in texts} | {
        "setup.yml",
        "canary.yml",
        "patch.yml",
        "db.yml",
        *(path.name for path in MANY.glob("*.yml")),
    }
    for option, value in itertools.pairwise(words):
        if option == "-i":
            assert value == "inventory.yml" or (MANY / value).is_dir()
        elif option == "-e" and value.startswith("@"):
            assert value[1:] in files
        elif option == "-e" and value != "instance=shop-1":
            name = (
                next(iter(json.loads(value))) if value.startswith("{") else value.partition("=")[0]
            )
            assert name.removeprefix("rollout_") in known
    playbooks = [
        word
        for word, before in zip(words[1:], words, strict=False)
        if before not in ("-i", "-e") and not word.startswith("-")
    ]
    for name in playbooks:
        assert (
            name in files
            or (ROOT / f"playbooks/{name.removeprefix('progressive.rollout.')}.yml").exists()
        ), name
    assert len(playbooks) == 1


@pytest.mark.parametrize(
    ("snippet", "file"),
    [
        ("shared.yml", "inventory/group_vars/all/shared.yml"),
        ("api.yml", "services/api.yml"),
        ("groups.yml", "inventory/20_groups.yml"),
        ("shop.yml", "shop.yml"),
    ],
)
def test_the_page_of_many_services_shows_its_example(snippet: str, file: str) -> None:
    text = SNIPPETS[f"{HOW_TO}/many-services.md"][snippet]
    assert text and text in (MANY / file).read_text()


# -- README.md -------------------------------------------------------------------------------------

COUNTS = (  # of a line of progress
    r"  new \d+/\d+ ready( \((\d+ (starting|not ready|failed)(, )?)+\))?  old \d+"
    r"(  traffic \d+ %)?  \d\d:\d\d(, about \d+ s left)?(, longer than expected by \d+ s)?"
)
LINE = re.compile(
    rf"demo (1 -> 2{COUNTS}"
    r"|2 promoted: \d+ instances? replaced(, \d+ starts? failed,)? in [\d.]+ s( \([\d.]+ s of work, [\d.]+ s waiting\))?)"
)


def test_readme_fits_two_screens() -> None:
    assert len(read("README.md").splitlines()) <= 125


# what each load balancer and platform is called by people; `none` and `static` are neither
CALLED = {
    "traffic": {
        "envoy": "Envoy",
        "gateway_api": "Gateway API",
        "haproxy": "HAProxy",
        "kubernetes_service": "Kubernetes Service",
        "nginx": "nginx",
    },
    "platforms": {
        "docker": "docker",
        "kubernetes": "Kubernetes Deployments",
        "podman": "podman",
        "process": "processes",
        "several": "several",
        "swarm": "Swarm",
        "systemd": "systemd",
    },
}


@pytest.mark.parametrize("folder", CALLED)
def test_readme_names_every_platform_and_load_balancer(folder: str) -> None:
    drivers = {path.stem for path in (ROOT / "plugins/plugin_utils" / folder).glob("[!_]*.py")}
    assert drivers - {"none", "static"} == set(CALLED[folder]), (
        "CALLED in this file says how README.md names each driver, before its first heading"
    )
    for name in CALLED[folder].values():
        assert name in read("README.md").partition("## Description")[0]


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/how-to/")])
def test_a_guide_says_at_its_top_what_it_needs(page: str) -> None:
    top = read(page).partition("\n## ")[0]
    listed = top.partition("\nYou need first:\n\n- ")[2]
    assert listed, f"{page}: a list below 'You need first:', before the first heading"


def test_readme_commands_are_there() -> None:
    for line in SNIPPETS["README.md"]["make"].splitlines():
        command = ["sh", "-c", line.replace("make", "make -n", 1)]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert result.returncode == 0 and "scripts/" in result.stdout, result.stderr


def test_readme_picture_shows_what_is_printed_today() -> None:
    picture, _blank, summary = SNIPPETS["README.md"]["picture"].partition("\n\n")
    for line in picture.splitlines():
        assert LINE.fullmatch(line) or re.fullmatch(r"demo 2 promoted: .*", line), line
    assert [line.split()[0] for line in summary.splitlines()] == [
        "6",
        "time",
        "requests",
        "requests",
    ]


def test_the_quick_reference_has_a_line_as_it_is_printed_and_every_playbook() -> None:
    page = "docs/reference/quick-reference.md"
    heading = r"shop 2\.4\.2 -> 2\.4\.3  step 3/4 50 %"
    assert re.fullmatch(heading + COUNTS, SNIPPETS[page]["line"].strip())
    playbooks = {path.stem for path in (ROOT / "playbooks").glob("*.yml")}
    named = set(re.findall(r"`(\w+)`", read(page).partition("## A progress line")[0]))
    assert playbooks - named == {"demo", "everything", "in_place"}


def test_readme_shows_the_example_that_molecule_runs() -> None:
    example = yaml.safe_load((EXAMPLE / "group_vars/all.yml").read_text())
    for name, value in SHOP.items():
        same = (
            {key: example[name][key] for key in value} if isinstance(value, dict) else example[name]
        )
        assert value == same, name
    assert (
        yaml.safe_load(SNIPPETS[f"{HOW_TO}/awx.md"]["rollout.yml"])[0].items()
        <= yaml.safe_load((EXAMPLE / "rollout.yml").read_text())[0].items()
    )
    assert parsed().service == "shop"


# -- strategies, gates, freezes, variables ---------------------------------------------------------

LISTED = {  # the stages of six instances, and new and old ones of each
    "README.md": {"canary.yml": "step 1 1+6, promote 6+0"},
    f"{TUTORIAL}/first-canary.md": {
        "canary.yml": "step 1 2+6, promote 6+0",
        "analysis.yml": "step 1 2+6, promote 6+0",
    },
    f"{HOW_TO}/canary.md": {
        "canary.yml": "step 1 1+6, step 3 a fifth 2+6, step 5 3+6, promote 6+0",
        "ramp.yml": (
            "step 1 1+6, step 1 ahead 2+6, step 2 2+6, step 2 ahead 3+6, step 3 3+6,"
            " step 3 ahead 5+4, step 4 5+4, step 4 ahead 6+3, promote 6+0"
        ),
        "linear.yml": "step 1 2+6, step 2 3+6, promote 6+0",
        "hold.yml": "step 1 2+6, prepare 6+6, promote 6+6, hold 6+6, retire 6+0",
        "known_good.yml": "step 1 2+6, promote 6+0",
        "replicas.yml": "step 1 1+5, step 3 3+3, promote 6+0",
        "groups.yml": "group 1 2+4, group 2 4+2, group 3 6+0, promote 6+0",
        "instances.yml": "step 1 1+6, step 2 3+4, promote 6+0",
        "in-place.yml": "step 1 1+5, promote 6+0",
        "marked.yml": (
            "step 1 1+5, step 2 advice 1+5, step 3 3+3, step 4 migration 3+3, promote 6+0"
        ),
    },
    f"{HOW_TO}/blue-green.md": {"blue-green.yml": "prepare 6+6, switch 6+6, hold 6+6, retire 6+0"},
    f"{HOW_TO}/gates-and-hooks.md": {"gates.yml": "confirm 0+6, replace 6+0, promote 6+0"},
    f"{HOW_TO}/scale-and-rebalance.md": {
        "within.yml": "replace 6+0, promote 6+0",
        "zones.yml": "replace 6+0, promote 6+0",
        "per_host.yml": "step 1 1+5, step 3 3+3, promote 6+0",
    },
    f"{HOW_TO}/freeze.md": {
        "freeze.yml": "replace 6+0, promote 6+0",
        "window.yml": "replace 6+0, promote 6+0",
    },
    "docs/reference/variables.md": {"variables.yml": "replace 6+0, promote 6+0"},
}


@pytest.mark.parametrize(
    ("page", "name"), [(page, name) for page in LISTED for name in LISTED[page]]
)
def test_strategies_are_what_the_pages_say(page: str, name: str) -> None:
    given = parsed(**yaml.safe_load(SNIPPETS[page][name]))
    listed = stages(given.plan, RolloutTarget(2, 6, given.budget.resolve(6), before=6, stable=1))
    told = ", ".join(f"{stage.name} {stage.waypoint.new}+{stage.waypoint.old}" for stage in listed)
    assert told == LISTED[page][name]


def test_the_stores_are_as_the_page_says() -> None:
    page = SNIPPETS[f"{HOW_TO}/stores.md"]
    for name in ("etcd", "postgresql"):
        store = parsed(**yaml.safe_load(page[f"{name}.yml"])).store
        assert store.name == name and store.options["password"]
        assert store.module.options["password"].no_log
    new = yaml.safe_load(page["new.yml"])["rollout_to_store"]
    assert move.ActionModule.options["to_store"].parse(new, "rollout_to_store").name == "etcd"
    assert f"readwrite {etcd.OPTIONS['prefix'].default}/" in page["etcd-user"]
    cluster = parsed(**yaml.safe_load(page["kubernetes.yml"])).store
    needed = kubernetes_rights.role(
        kubernetes.ROLE, cluster.options["namespace"], kubernetes.NEEDED
    )
    assert yaml.safe_load(page["role.yml"]) == needed
    assert f"-l {kubernetes.SERVICE}=shop" in page["kubectl"]
    options = postgresql.OPTIONS
    assert f"CREATE ROLE {options['user'].default} " in page["psycopg"]
    assert f"CREATE DATABASE {options['database'].default} " in page["psycopg"]


def test_the_page_of_stores_shows_what_is_said_of_one_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = iter([0.0, 41.0])
    monkeypatch.setattr(store_retry.clock, "now", lambda: next(times))
    monkeypatch.setattr(store_retry, "PAUSE", 0)
    said: list[str] = []
    trouble = StoreAway(
        "rollout_store.servers: database rollout at db1.example:5432: connection refused", "PR-508"
    )
    outcomes = iter([trouble, None])

    def work() -> None:
        if outcome := next(outcomes):
            raise outcome

    deadline = parsed().rules.progress_deadline
    store_retry.StoreRetry(deadline, said.append, lambda: None).call(work)
    shown = SNIPPETS[f"{HOW_TO}/stores.md"]["away"].splitlines()
    assert [f"shop: {line}" for line in said] == shown


def test_the_freeze_windows_are_those_the_page_tells_of() -> None:
    ranged, recurring = parsed(
        **yaml.safe_load(SNIPPETS[f"{HOW_TO}/freeze.md"]["freeze.yml"])
    ).freeze
    assert (ranged.reason, recurring.reason) == ("end of the year", "weekend")


def test_the_autoscalers_of_the_page_are_accepted() -> None:
    page = SNIPPETS[f"{HOW_TO}/autoscalers.md"]
    held, raised = (
        parsed(**yaml.safe_load(page[name])).autoscaler
        for name in ("autoscaler.yml", "command.yml")
    )
    assert held and raised
    assert (held.chosen.name, held.mode, held.limit) == ("hpa", "hold", 3600)
    assert (raised.chosen.name, raised.mode) == ("command", "raise")


def test_the_tutorials_own_service_is_accepted() -> None:
    shop = yaml.safe_load(SNIPPETS[f"{TUTORIAL}/first-rollout.md"]["group_vars/all.yml"])
    assert parsed(**shop).platform.name == "process"
    options = yaml.safe_load(SNIPPETS[f"{TUTORIAL}/first-rollout.md"]["own.yml"])
    assert parsed(**(shop | options)).platform.options["env"] == {"DATABASE": "postgres://db/shop"}


def test_the_webhook_receiver_knows_a_genuine_question() -> None:
    names: dict[str, t.Any] = {}
    exec(SNIPPETS[f"{HOW_TO}/gates-and-hooks.md"]["receiver.py"], names)
    with contextlib.closing(Server()) as hook:
        answer = web.Driver(
            web.OPTIONS.parse({"url": hook.url, "secret": "swordfish"}, "gate."),
            t.cast(t.Any, None),
        ).ask({"id": "r1"}, 0.0)
    (asked,) = hook.requests
    assert answer.verdict == "pass"
    assert names["genuine"](asked.body, asked.headers, b"swordfish")
    assert not names["genuine"](asked.body, asked.headers, b"tuna")
    assert not names["genuine"](asked.body + b" ", asked.headers, b"swordfish")
    old = json.dumps(json.loads(asked.body) | {"sent": 0}).encode()
    signed = {"X-Rollout-Signature": "sha256=" + hmac.new(b"swordfish", old, "sha256").hexdigest()}
    assert not names["genuine"](old, signed, b"swordfish")


# -- load balancers: what the playbooks of tests/e2e/test_docs.py do not run, since it is part of what they run ------


def test_the_smaller_snippets_of_load_balancers_are_parts_of_those_that_are_run() -> None:
    def traffic(page: str, name: str) -> dict[str, t.Any]:
        return t.cast(
            "dict[str, t.Any]",
            yaml.safe_load(SNIPPETS[f"{HOW_TO}/{page}.md"][name])["rollout_traffic"],
        )

    def without(given: dict[str, t.Any], *keys: str) -> dict[str, t.Any]:
        return {key: value for key, value in given.items() if key not in keys}

    drain = {"drain_timeout": "30s"}
    assert (
        traffic("envoy", "envoy.yml")
        == without(traffic("load-balancers", "match.yml"), "match") | drain
    )
    assert (
        traffic("haproxy", "dynamic.yml")
        == without(traffic("load-balancers", "preview.yml"), "preview") | drain
    )
    match = SNIPPETS[f"{HOW_TO}/load-balancers.md"]["match.cfg"]
    lines = [
        line
        for line in match.partition("\nbackend shop-preview")[0].splitlines()
        if "use_backend" not in line
    ]
    assert lines == SNIPPETS[f"{HOW_TO}/haproxy.md"]["dynamic.cfg"].splitlines()
    assert parsed(rollout_traffic=traffic("haproxy", "slots.yml")).traffic.name == "haproxy"


# -- examples, which Molecule runs on hosts: extensions/molecule/shared/hosts ----------------------


@pytest.mark.parametrize("page", EXAMPLES)
def test_an_example_has_what_its_page_names_and_nothing_else(page: str) -> None:
    named, folder = set(re.findall(r"`([\w/]+\.\w+)`", read(page))), (ROOT / page).parent
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert named == files - {"README.md"}
    words = [shlex.split(SNIPPETS[page][name]) for name in ("setup", "rollout")]
    operands = {
        word.removeprefix("@") for line in words for word in line if not word.startswith("-")
    }
    given = {w for w in operands if w.startswith(("rollout_revision=", "rollout_service="))}
    folders = {path.name for path in folder.iterdir() if path.is_dir()}
    assert operands <= named | given | folders | {"ansible-playbook", "kubectl", "apply"}
    name = Path(page).parent.name
    engine = name.partition("-")[0]
    run_by = [f"extensions/molecule/{name}/molecule.yml"]
    run_by += [f"tests/{kind}/test_{engine}.py" for kind in ("engines", "e2e")]
    run_by.append(f"tests/e2e/test_{name.replace('-', '_')}.py")
    assert any((ROOT / path).exists() for path in run_by)


def test_the_members_of_a_release_are_accepted() -> None:
    given = yaml.safe_load(SNIPPETS[f"{HOW_TO}/release.md"]["release.yml"])
    for name, options in given["rollout_members"].items():
        of_member = parsed(
            rollout_service=name, rollout_release=given["rollout_release"], **options
        ).release
        assert of_member is not None and of_member.member == name
        assert [member.name for member in of_member.members] == ["schema", "api", "worker"]


# -- analysis --------------------------------------------------------------------------------------

ANALYSIS, TESTING = f"{HOW_TO}/analysis.md", "docs/explanation/sequential-testing.md"
ERRORS = re.compile(
    r"errors ([\d,]+) of ([\d,]+)(?: \([\d.]+ %\))? against ([\d,]+) of ([\d,]+) on stable;"
    r"[^\n]*?(?=, about |\. |$)",
    re.M,
)
LATENCY = re.compile(
    r"latency median [\d.]+ to [\d.]+ s \(\d+ samples\) against [\d.]+ to [\d.]+ s on stable \(\d+"
    r" samples\)"
)


@pytest.mark.parametrize("name", [name for name in SNIPPETS[ANALYSIS] if name.endswith(".yml")])
def test_an_analysis_is_accepted(name: str) -> None:
    """As when a rollout begins. tests/drivers/test_metrics.py has what is measured,
    tests/e2e/test_analysis.py what follows.
    """
    given = yaml.safe_load(SNIPPETS[ANALYSIS][name])
    if "rollout_traffic" in given:
        given = {
            "rollout_strategy": "canary",
            "rollout_steps": [{"set_weight": 10}, {"analysis": {}}],
            **given,
        }
    elif "rollout_steps" not in given:  # the inside of an analysis
        given = {
            "rollout_strategy": "canary",
            "rollout_steps": [{"set_weight": 10}, {"analysis": given}],
        }
    settings = parsed(**given)
    logs = name.startswith("log")
    context = DriverContext(
        "shop",
        t.cast(t.Any, Hosts()),
        platform=lambda transport: settings.platform.make(DriverContext("shop", transport)),
        counted=settings.traffic.module.driver.counts if logs else haproxy.Driver.counts,
        access_log=AccessLog("/var/log/rollout.log", "load_balancers") if logs else None,
    )
    gate_runner.check(settings.plan.gates, context)


def test_the_formats_of_logs_are_those_that_the_tests_use() -> None:
    """tests/e2e/test_access_log.py has rollouts with them."""
    supports = (("log-haproxy.cfg", haproxy_support), ("log-nginx.conf", nginx_support))
    for name, config in supports:
        shown = " ".join(SNIPPETS[ANALYSIS][name].split())
        (formats,) = re.findall(r"log[-_]format [^;]*?\|%HU\"|log_format [^;]*;", config.CONFIG)
        assert " ".join(formats.split()) in shown


def test_the_judge_says_what_is_slow_as_the_page_says() -> None:
    """Two new instances answer one request in 25 slowly, two stable ones one in 50."""
    fast, slow = Histogram({-160: 98, -140: 2}), Histogram({-160: 96, -80: 4})
    tails = Tails().after(Times({}, {"shop-1": fast, "shop-2": fast}), 0.01, 1.2)
    while not tails.verdict(0.01, 0.05)[0].worse:
        look = Times({"shop-7": slow, "shop-8": slow}, {"shop-1": fast, "shop-2": fast})
        tails = tails.after(look, 0.01, 1.2)
    verdict, _remark = tails.verdict(0.01, 0.05)
    assert f"latency {verdict.sentence}" == SNIPPETS[ANALYSIS]["slow"].strip()


def test_new_messages_are_told_as_the_page_says() -> None:
    text = "ERROR cart: cannot load item 4711 | KeyError: 'price'"
    new = {
        "a": Message(14, text, ("shop-7", "shop-8", "shop-9")),
        "b": Message(1, "ERROR b", ("shop-7",)),
    }
    found = Messages().after(Look(new, frozenset(), compared=True))
    assert f"new-errors {found.sentence}" == SNIPPETS[ANALYSIS]["new-message"].strip()


def test_the_conditions_of_an_analysis_hold() -> None:
    for metric in yaml.safe_load(SNIPPETS[ANALYSIS]["metrics.yml"])["metrics"]:
        for condition in {"success_condition", "failure_condition"} & metric.keys():
            assert Expression(metric[condition], condition).holds(
                [1.0] if "[0]" in metric[condition] else 0.01
            )


def test_the_judges_say_what_the_page_says() -> None:
    """Of errors that come evenly, by the numbers in it. Of latency the page has no samples."""
    said = "".join(SNIPPETS[ANALYSIS][name] for name in ("verdicts", "doubt", "dry-run"))
    found = list(ERRORS.finditer(said))
    assert len(found) == 4 and len(LATENCY.findall(said)) == 2
    rules, alpha = models.ERRORS.rules, judging.SIDES * models.ERRORS.rules["alpha"]
    for line in found:
        failed, requests, others, all_others = (
            int(number.replace(",", "")) for number in line.groups()
        )
        looks = max(1, failed)
        span = Span.of_sides(
            Counts(requests / looks, failed / looks), Counts(all_others / looks, others / looks)
        )
        history = errors.ErrorHistory()
        for _look in range(looks):
            history = history.after([span], alpha, rules["tolerance"])
        judged = errors.compare_errors(history, alpha, rules["tolerance"], rules["detect"])
        assert judged.sentence == line[0]


def test_so_many_requests_are_needed() -> None:
    head, *body = table(ANALYSIS, "needed")
    rules, alpha = models.ERRORS.rules, judging.SIDES * models.ERRORS.rules["alpha"]
    for detect, row in zip((rules["detect"], 0.01), body, strict=True):
        for share, cell in zip(head[1:], row[1:], strict=True):
            others = 1 / (float(share.removesuffix(" %")) / 100) - 1
            span = Span.of_sides(Counts(0.01, 0), Counts(0.01 * others, 0))
            history = errors.ErrorHistory().after([span], alpha, rules["tolerance"])
            judged = errors.compare_errors(history, alpha, rules["tolerance"], detect)
            assert judged.missing == int(cell.replace(",", ""))
            part = 1 / (1 + others)
            planned = errors.requests_for(part, alpha, rules["tolerance"], detect)
            assert planned == judged.missing


def test_the_plan_says_what_an_analysis_needs_as_the_page_says() -> None:
    """Of three requests a second."""
    gate = gates.of_driver({"driver": "analysis"}, "step 3 analysis", "gate", gates.Person())
    stage = Stage("step 1", Waypoint(2, 1, 9, 10, 10), (gate,))
    usual = [{"name": "errors"}, {"name": "latency", "of": "latency"}]
    (need,) = needs([stage], usual, 3.0)
    assert f"requests    {needed(need)}" == SNIPPETS[ANALYSIS]["plan"].strip()


@pytest.mark.slow
@pytest.mark.long
def test_the_judge_is_as_robust_as_the_page_says() -> None:
    """The whole table is printed by tests/simulations/models.py; this is some of it."""
    _head, *body = table(TESTING, "models")
    known = models.GOOD | models.BAD
    assert [row[0] for row in body] == list(known)
    good = len(models.GOOD)
    assert all(float(row[2].removesuffix(" %")) <= 3 for row in body[:good])
    for row in (row for row in body if row[0] in ("1 -> 2 %", "requests: half as slow again")):
        assert models.row(row[0], int(row[1])) == f"| {' | '.join(row)} |"


@pytest.mark.slow
def test_the_judges_are_as_good_as_the_page_says() -> None:
    """The whole table is printed by tests/simulations/verdict.py; this is some of it, since it
    takes its time.
    """
    head, *body = table(TESTING, "table")
    assert head[1:] == list(verdict.JUDGES)
    assert [row[0] for row in body] == [f"{stable} -> {new}" for stable, new in verdict.RATES]
    for row, (stable, new) in list(zip(body, verdict.RATES, strict=True))[1:6:2]:
        assert row[1:] == [
            str(verdict.found(judge, stable, new)) for judge in verdict.JUDGES.values()
        ]


class Hosts:
    """As much of a transport as a driver needs that is made and not asked."""

    def hosts(self, pattern: str) -> list[str]:
        return [pattern]

    def address(self, host: str) -> str:
        return "10.0.0.1"

    def apart(self) -> Hosts:
        return self


# -- deploying in place, drivers, the idea, reference ----------------------------------------------


def test_everything_of_serial_has_a_row() -> None:
    page = f"{HOW_TO}/migrate-from-serial.md"
    (before,) = yaml.safe_load(SNIPPETS[page]["serial.yml"])
    rows = read(page).partition("| with `serial`")[2]
    assert all(f"`{word}" in rows for word in before.keys() & {"serial", "max_fail_percentage"})
    assert before["roles"][0]["role"] == "shop"


def test_the_gate_of_the_example_works(tmp_path: Path) -> None:
    names: dict[str, t.Any] = {}
    exec(SNIPPETS[f"{HOW_TO}/write-a-driver.md"]["tickets.py"], names)
    assert not set(names["OPTIONS"]) & set(gates.GATE)
    gate: GateDriver = names["Driver"](
        names["OPTIONS"].parse({"folder": str(tmp_path)}, "gate."), None
    )
    with pytest.raises(GateError, match=r"the ticket of 2\.4\.1: No such file"):
        gate.ask({"revision": "2.4.1"}, 0.0)
    for state, expected in (("open", WAIT), ("closed", PASS), ("refused", FAIL), ("lost", FAIL)):
        (tmp_path / "2.4.1").write_text(state)
        assert gate.ask({"revision": "2.4.1"}, 3.0) == Answer(
            expected, f"its ticket is {state}, for 3 s"
        )
    with pytest.raises(InputError, match="not an absolute path"):
        names["OPTIONS"].parse({"folder": "tickets"}, "gate.")


IDEA = "docs/explanation/idea.md"


@pytest.mark.parametrize(
    ("page", "name"),
    [
        (IDEA, "budget"),
        (IDEA, "stages"),
        (IDEA, "baseline"),
        (f"{HOW_TO}/write-a-driver.md", "fold"),
    ],
)
def test_what_a_page_calculates_is_right(page: str, name: str) -> None:
    test = doctest.DocTestParser().get_doctest(SNIPPETS[page][name], {}, name, None, 0)
    assert doctest.DocTestRunner().run(test).failed == 0


def test_the_page_of_steps_has_every_step() -> None:
    assert named("docs/reference/steps.md") == {
        path.stem for path in (ROOT / "plugins/action").glob("*.py")
    }


@pytest.mark.parametrize(
    ("section", "kind"), [("Phases", Phase), ("Outcomes", Outcome), ("States of instances", State)]
)
def test_the_page_of_states_has_every_one(
    section: str, kind: type[Phase | Outcome | State]
) -> None:
    assert named("docs/reference/states-and-phases.md", section) == {
        member.value for member in kind
    } - {""}


def named(page: str, section: str = "") -> set[str]:
    """What the first cells of a table name."""
    text = read(page).partition(f"## {section}\n" if section else "\n")[2].partition("\n## ")[0]
    return {
        name
        for line in text.splitlines()
        for name in re.findall(r"`(\w+)`", line.split("|")[1] if line[:1] == "|" else "")
    }


# -- pictures --------------------------------------------------------------------------------------

PICTURES = sorted((ROOT / "docs").rglob("*.svg"))


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_needs_nothing_else_and_is_in_light_and_dark(path: Path) -> None:
    text = path.read_text()
    picture = ElementTree.fromstring(text)
    assert picture.find("{http://www.w3.org/2000/svg}title") is not None
    assert "prefers-color-scheme" in text and len(text) < 50_000
    assert not re.search(r"<script|<image|@import|@font-face|url\([^#]", text)
    assert re.findall(r"https?://(?!127\.0\.0\.1)[^\s<\"]+", text) == ["http://www.w3.org/2000/svg"]


@pytest.mark.parametrize("page", PAGES)
def test_every_picture_of_a_page_has_a_text_for_who_does_not_see_it(page: str) -> None:
    shown = re.findall(r"!\[([^\]]*)\]\((\S+?)\)", read(page))
    for text, path in shown:
        assert len(text) > 20, path
        assert path.startswith("http") or ((ROOT / page).parent / path).is_file(), path


def test_every_picture_is_on_a_page() -> None:
    pages = "\n".join(read(page) for page in PAGES)
    assert PICTURES and all(f"{path.name})" in pages for path in PICTURES)
