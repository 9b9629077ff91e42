# SPDX-License-Identifier: GPL-3.0-or-later
"""The notifiers with real web servers, a real SMTP server and real commands."""

from __future__ import annotations

import hashlib
import hmac
import json
import shlex
import ssl
import typing as t
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    NotifyError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces import loader
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.notifier import (
    NotifierDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.transport import Transport
from ansible_collections.progressive.rollout.tests.drivers.notifier_contract import (
    NOTICE,
    NotifierContract,
)
from ansible_collections.progressive.rollout.tests.support.connect import connect
from ansible_collections.progressive.rollout.tests.support.mail import PASSWORD, USER, MailServer
from ansible_collections.progressive.rollout.tests.support.web import Server, certificate

TOKEN = "T00000000-XXXXXXXXXXXXXXXXXXXXXXXX"


def make(name: str, transport: Transport | None = None, **options: t.Any) -> NotifierDriver:
    module = loader.load(NotifierDriver, name, "notify")
    context = DriverContext("shop", t.cast(t.Any, transport))
    return module.driver(module.check(options, "notify"), context)


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.close()


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return certificate(tmp_path_factory.mktemp("tls"))


class Web:
    """A web server that gets a driver's messages."""

    def __init__(self, server: Server, driver: str, **options: t.Any) -> None:
        self.server, self.driver = server, driver
        self.options = {"url": f"{server.url}/services/{TOKEN}", **options}
        known = [options[name] for name in ("secret", "token") if name in options]
        self.secrets = [*known, *([] if "url" in options else [TOKEN])]

    def made(self) -> NotifierDriver:
        return make(self.driver, **self.options)

    def got(self) -> list[str]:
        return [request_text(one.body) for one in self.server.requests]

    def refuse(self, again: bool) -> None:
        said = "no thanks " + " ".join(self.secrets)
        self.server.replies = [(503 if again else 404, said)]

    @property
    def last(self) -> t.Any:
        return json.loads(self.server.requests[-1].body)


def request_text(body: bytes) -> str:
    try:
        return json.dumps(json.loads(body), ensure_ascii=False)
    except ValueError:
        return body.decode()


class TestSlack(NotifierContract):
    calls = ("<!channel>",)

    @pytest.fixture
    def receiver(self, server: Server) -> Web:
        return Web(server, "slack")

    def test_a_message_has_what_people_ask_first(self, receiver: Web) -> None:
        receiver.made().send(NOTICE, "")
        (message,) = receiver.last["attachments"]
        assert message["color"] == "#cf222e" and message["ts"] == 1767323045
        assert "&lt;!channel&gt;" in message["text"] and message["footer"] == NOTICE.id
        assert [one["value"] for one in message["fields"]] == [
            "shop",
            "2.4.2 → 2.4.3+b7",
            "ann on deploy1",
        ]
        assert receiver.server.requests[0].path == f"/services/{TOKEN}"


class TestMattermost(NotifierContract):
    calls = ("@all", "](http")

    @pytest.fixture
    def receiver(self, server: Server) -> Web:
        return Web(server, "mattermost")

    def test_what_a_phone_shows_has_no_markup(self, receiver: Web) -> None:
        receiver.made().send(NOTICE, "")
        assert receiver.last["attachments"][0]["fallback"] == "shop 2.4.3+b7: rolled back"


class TestTeams(NotifierContract):
    calls = ("[press](http://evil)",)

    @pytest.fixture
    def receiver(self, server: Server) -> Web:
        return Web(server, "teams")

    def test_a_message_is_an_adaptive_card(self, receiver: Web) -> None:
        receiver.made().send(NOTICE, "")
        (attachment,) = receiver.last["attachments"]
        assert receiver.last["type"] == "message"
        assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
        card = attachment["content"]
        assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
        assert card["body"][0]["color"] == "attention"
        assert card["body"][1]["facts"][0] == {"title": "Service", "value": "shop"}


class TestGrafana(NotifierContract):
    calls = ("<!channel>",)  # Grafana shows HTML

    @pytest.fixture
    def receiver(self, server: Server) -> Web:
        return Web(server, "grafana_annotation", url=server.url + "/grafana/", token="glsa_s3cret")

    def test_an_annotation_has_its_time_and_tags(self, server: Server) -> None:
        url = f"{server.url}/grafana/"
        options = {"url": url, "token": "glsa_s3cret", "dashboard_uid": "abc", "panel_id": 2}
        make("grafana_annotation", **options).send(NOTICE, "")
        (request,) = server.requests
        assert request.path == "/grafana/api/annotations"
        assert request.headers["Authorization"] == "Bearer glsa_s3cret"
        sent = json.loads(request.body)
        assert sent.pop("text").startswith("shop 2.4.3+b7")
        assert sent == {
            "dashboardUID": "abc",
            "panelId": 2,
            "time": 1767323045250,
            "tags": ["rollout", "service:shop", "event:rolled_back"],
        }


class TestWebhook(NotifierContract):
    @pytest.fixture
    def receiver(self, server: Server) -> Web:
        return Web(server, "webhook", secret="s3cret-of-the-hook")

    def test_it_sends_a_cdevent_in_a_cloudevent(self, receiver: Web) -> None:
        receiver.made().send(NOTICE, "")
        event, (request,) = receiver.last, receiver.server.requests
        assert request.headers["Content-Type"].startswith("application/cloudevents+json")
        assert request.headers["X-Rollout-Notice"] == NOTICE.id
        data = event.pop("data")
        assert event == {
            "specversion": "1.0",
            "id": NOTICE.id,
            "source": "/progressive.rollout/shop",
            "type": "dev.cdevents.service.rolledback.0.2.0",
            "subject": "shop",
            "time": "2026-01-02T03:04:05.250Z",
            "datacontenttype": "application/json",
        }
        assert data["context"] == {
            "version": "0.4.1",
            "id": event["id"],
            "source": event["source"],
            "type": event["type"],
            "timestamp": event["time"],
            "chainId": "shop-20260102T030405-1",
        }
        assert data["subject"] == {
            "id": "shop",
            "source": event["source"],
            "type": "service",
            "content": {
                "environment": {"id": "production"},
                "artifactId": "pkg:generic/shop@2.4.2",
            },
        }
        assert data["customData"]["reason"] == NOTICE.reason

    @pytest.mark.parametrize(
        ("event", "previous", "kind", "name"),
        [
            ("promoted", "", "rollout", "dev.cdevents.service.deployed.0.2.0"),
            ("promoted", "1", "rollout", "dev.cdevents.service.upgraded.0.2.0"),
            ("promoted", "3", "rollback", "dev.cdevents.service.rolledback.0.2.0"),
            ("aborted", "1", "rollout", "dev.cdevents.service.rolledback.0.2.0"),
            ("begun", "1", "rollout", "dev.cdeventsx.progressiverollout-rollout.begun.0.1.0"),
            ("failed", "", "rollout", "dev.cdeventsx.progressiverollout-rollout.failed.0.1.0"),
        ],
    )
    def test_what_happened_is_told_in_the_words_of_cdevents(
        self, receiver: Web, event: str, previous: str, kind: str, name: str
    ) -> None:
        receiver.made().send(replace(NOTICE, event=event, previous=previous, kind=kind), "")
        assert receiver.last["type"] == name
        subject = receiver.last["data"]["subject"]
        assert subject["type"] == name.split(".")[2]
        if event == "promoted":
            assert subject["content"]["artifactId"] == "pkg:generic/shop@2.4.3%2Bb7"

    def test_the_body_is_signed(self, receiver: Web) -> None:
        for text in ("", '{"mine": 1}'):
            receiver.made().send(NOTICE, text)
            request = receiver.server.requests[-1]
            digest = hmac.new(b"s3cret-of-the-hook", request.body, hashlib.sha256).hexdigest()
            assert request.headers["X-Rollout-Signature"] == f"sha256={digest}"

    def test_redirects_are_not_followed(self, receiver: Web) -> None:
        receiver.server.replies = [(302, "")]
        with pytest.raises(NotifyError, match="redirects are not followed") as refused:
            receiver.made().send(NOTICE, "")
        assert not refused.value.again and len(receiver.server.requests) == 1


class Mail:
    """A mail server."""

    secrets = (PASSWORD, USER)

    def __init__(self, server: MailServer, ca_path: Path) -> None:
        self.server = server
        self.options = {
            "host": "127.0.0.1",
            "port": server.port,
            "ca_path": str(ca_path),
            "username": USER,
            "password": PASSWORD,
            "sender": "rollouts@example.org",
            "to": ["ops@example.org", "ann@example.org"],
        }

    def made(self) -> NotifierDriver:
        return make("email", **self.options)

    def got(self) -> list[str]:
        return [f"{one['Subject']}\n{one.get_content()}" for one in self.server.mails]

    def refuse(self, again: bool) -> None:
        self.server.reply = f"{451 if again else 550} no thanks {USER} {PASSWORD}"


class TestEmail(NotifierContract):
    @pytest.fixture(params=["starttls", "tls"])
    def receiver(
        self, certified: tuple[Path, Path], request: pytest.FixtureRequest
    ) -> Iterator[Mail]:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*certified)
        server = MailServer(context, tls=request.param == "tls")
        mail = Mail(server, certified[0])
        mail.options["security"] = request.param
        yield mail
        server.close()

    def test_a_mail_has_all_that_a_mail_needs(self, receiver: Mail) -> None:
        for _again in range(2):
            receiver.made().send(NOTICE, "")
        first, second = receiver.server.mails
        assert first["Message-ID"] == second["Message-ID"] == f"<{NOTICE.id}@example.org>"
        assert first["Subject"] == "[rollout] shop 2.4.3+b7: rolled back"
        assert first["From"] == "rollouts@example.org"
        assert receiver.server.recipients[0] == ["ops@example.org", "ann@example.org"]
        assert first["Date"].datetime.timestamp() == 1767323045
        assert "Begun by: ann on deploy1" in first.get_content()
        assert receiver.server.logins == [True, True]

    def test_a_wrong_password_is_for_good_and_not_shown(self, receiver: Mail) -> None:
        receiver.options["password"] = "another-s3cret"
        with pytest.raises(NotifyError, match="535") as refused:
            receiver.made().send(NOTICE, "")
        assert not refused.value.again and "another-s3cret" not in str(refused.value)
        assert receiver.server.logins == [False] or set(receiver.server.logins) == {False}

    def test_a_certificate_that_nobody_knows_gets_no_password(self, receiver: Mail) -> None:
        del receiver.options["ca_path"]
        with pytest.raises(NotifyError, match="the SMTP server 127"):
            receiver.made().send(NOTICE, "")
        assert not receiver.server.logins and not receiver.server.mails


def test_mail_needs_no_login(certified: tuple[Path, Path]) -> None:
    server = MailServer(None)
    try:
        mail = Mail(server, certified[0])
        for name in ("username", "password", "ca_path"):
            del mail.options[name]
        make("email", **mail.options, security="none").send(NOTICE, "")
        assert len(server.mails) == 1
        with pytest.raises(NotifyError, match="STARTTLS"):
            make("email", **mail.options).send(NOTICE, "")
        assert len(server.mails) == 1
    finally:
        server.close()
    with pytest.raises(NotifyError, match="refused") as refused:
        make("email", **mail.options, security="none").send(NOTICE, "")
    assert refused.value.again


class Program:
    """A command that keeps what it gets."""

    secrets = ()

    def __init__(self, transport: Transport, folder: Path) -> None:
        self.transport, self.folder = transport, folder
        self.ending = ""

    def made(self) -> NotifierDriver:
        file = shlex.quote(str(self.folder / "got"))
        script = f"cat >> {file}; echo >> {file}; {self.ending}"
        return make("command", self.transport, command=["sh", "-c", script, "{event}", "{id}"])

    def got(self) -> list[str]:
        lines = (self.folder / "got").read_text().splitlines()
        return [json.dumps(json.loads(one), ensure_ascii=False) for one in lines]

    def refuse(self, again: bool) -> None:
        self.ending = "echo no thanks; exit 1"


class TestCommand(NotifierContract):
    for_good = False

    @pytest.fixture
    def receiver(self, tmp_path: Path) -> Iterator[Program]:
        transport = connect({"h1": {"ansible_connection": "local"}}, tmp_path / "inventory.json")
        yield Program(transport, tmp_path)
        transport.close()

    def test_a_template_replaces_the_message(self, receiver: Program) -> None:  # type: ignore[override]
        receiver.made().send(NOTICE, "my own words")
        (got,) = receiver.got()
        assert json.loads(got) == {**NOTICE.facts, "message": "my own words"}

    def test_each_argument_stays_one(self, receiver: Program, tmp_path: Path) -> None:
        file = tmp_path / "words"
        script = f'printf "%s\\n" "$@" > {shlex.quote(str(file))}'
        command = ["sh", "-c", script, "x", "{event} of {service}", "{revision}; rm -rf /"]
        make("command", receiver.transport, command=command).send(NOTICE, "")
        assert file.read_text() == "rolled_back of shop\n2.4.3+b7; rm -rf /\n"


@pytest.mark.parametrize("driver", ["slack", "mattermost", "teams", "webhook"])
def test_a_server_that_drips_ends_in_time(server: Server, driver: str) -> None:
    server.hangs.set()
    slow = make(driver, url=f"{server.url}/{TOKEN}", answer_within="0.3s")
    with pytest.raises(NotifyError, match=r"no answer in 0\.3 s") as refused:
        slow.send(NOTICE, "")
    assert refused.value.again and TOKEN not in str(refused.value)


@pytest.mark.parametrize(
    ("driver", "options", "words"),
    [
        ("slack", {"url": f"ftp://slack/{TOKEN}"}, "not a web URL"),
        ("slack", {"url": f"https://ann:{TOKEN}@slack"}, "name and password"),
        ("slack", {}, "url: not given"),
        ("webhook", {"url": "https://x", "headers": {"A": "b\nc"}}, "one line"),
        ("webhook", {"url": "https://x", "ca_path": "/nowhere"}, "ca_path"),
        ("email", {"host": "x y", "sender": "a@b", "to": "c@d"}, "host"),
        ("email", {"host": "x", "sender": "a@b\nBcc: z@z", "to": "c@d"}, "sender"),
        ("email", {"host": "x", "sender": "a@b", "to": []}, "to"),
        ("email", {"host": "x", "sender": "a@b", "to": "c@d", "password": TOKEN}, "username"),
        (
            "email",
            {
                "host": "x",
                "sender": "a@b",
                "to": "c@d",
                "username": "u",
                "password": TOKEN,
                "security": "none",
            },
            "encrypted",
        ),
        ("grafana_annotation", {"url": "https://x"}, "token"),
        ("command", {"command": ["x", "{reason}"]}, "unknown placeholder"),
    ],
)
def test_wrong_options_are_refused_without_their_secrets(
    driver: str, options: dict[str, t.Any], words: str
) -> None:
    with pytest.raises(InputError, match=words) as refused:
        make(driver, t.cast(t.Any, None), **options)
    assert TOKEN not in str(refused.value) and str(refused.value).startswith("notify")
