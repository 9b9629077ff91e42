# SPDX-License-Identifier: GPL-3.0-or-later
"""Email, through an SMTP server, with STARTTLS unless configured otherwise.

`Message-ID` is made of the notice's id, so that a mail that is sent again is known as the same.
"""

from __future__ import annotations

import re
import smtplib
import socket
import ssl
import typing as t
from collections.abc import Mapping
from email.message import EmailMessage
from email.utils import formatdate

from ..agents import probe
from ..base.errors import InputError, NotifyError
from ..base.text import clean
from ..inputs.options import PORT, TEXT, Field, Kind, Options, choice, one_or_more
from ..interfaces.context import DriverContext
from ..interfaces.notifier import Notice, NotifierDriver
from ..remote import http_client
from . import _web

_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,190}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?")
_PORTS = {"starttls": 587, "tls": 465, "none": 25}


def _address(value: t.Any, variable: str) -> str:
    if not (isinstance(value, str) and _ADDRESS.fullmatch(value)):
        raise InputError(
            f"{variable}: it is not the address of a mailbox; write name@example.org", "PR-122"
        )
    return value


def _host(value: t.Any, variable: str) -> str:
    if not (isinstance(value, str) and _HOST.fullmatch(value)):
        raise InputError(f"{variable}: it is not the name of a host; use its DNS name", "PR-122")
    return value


OPTIONS = Options(
    Field("host", Kind("str", _host), "The SMTP server.", required=True),
    Field("port", PORT, "Its port. V(587) with STARTTLS, V(465) with TLS, V(25) without either."),
    Field(
        "security",
        choice(
            starttls="The connection is upgraded to TLS before a message is sent.",
            tls="It is encrypted from the start.",
            none="It is not encrypted. No password is sent.",
        ),
        "How the connection is encrypted.",
        default="starttls",
    ),
    Field("username", TEXT, "Name to log in with."),
    Field("password", TEXT, "Password to log in with.", no_log=True),
    Field("sender", Kind("str", _address), "Address that mail is sent from.", required=True),
    Field(
        "to", one_or_more(Kind("str", _address)), "Addresses that mail is sent to.", required=True
    ),
    *_web.HTTP.fields[:2],
    *_web.COMMON.fields,
)


class Driver(NotifierDriver):
    """Sends mail."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._options = options
        self.timeout = options["answer_within"]
        self._login = (options["username"], options["password"])
        self._security = options["security"]
        if any(self._login) and (not all(self._login) or self._security == "none"):
            raise InputError(
                "notify.password: a login needs username, password and an encrypted connection;"
                " set all of them, or none",
                "PR-107",
            )
        http_client.verify(options["validate_certs"], options["ca_path"], "notify")

    def send(self, notice: Notice, text: str) -> None:
        message = self._message(notice, text)
        try:
            with self._connect() as server:
                if all(self._login):
                    server.login(*self._login)
                server.send_message(message)
        except smtplib.SMTPRecipientsRefused as exc:
            code, reply = next(iter(exc.recipients.values()))
            raise self._refused(code, reply) from None
        except smtplib.SMTPResponseException as exc:
            raise self._refused(exc.smtp_code, exc.smtp_error) from None
        except (smtplib.SMTPException, ssl.SSLError) as exc:
            raise NotifyError(f"{self._where}: {self._shown(exc)}", "PR-631") from None
        except OSError as exc:
            raise NotifyError(f"{self._where}: {probe.reason(exc)}", "PR-631") from None

    @property
    def _where(self) -> str:
        return f"the SMTP server {self._options['host']}"

    def _connect(self) -> smtplib.SMTP:
        options, context = self._options, self._context()
        place = options["host"], options["port"] or _PORTS[self._security]
        me = socket.gethostname()  # not its full name, which DNS would be asked for
        if self._security == "tls":
            return smtplib.SMTP_SSL(*place, me, timeout=self.timeout, context=context)
        server = smtplib.SMTP(*place, me, timeout=self.timeout)
        try:
            if self._security == "starttls":
                server.starttls(context=context)
        except BaseException:
            server.close()
            raise
        return server

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._options["ca_path"])
        if not self._options["validate_certs"]:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def _message(self, notice: Notice, text: str) -> EmailMessage:
        message, (name, _at, domain) = EmailMessage(), self._options["sender"].partition("@")
        message["From"] = f"{name}@{domain}"
        message["To"] = ", ".join(self._options["to"])
        message["Subject"] = f"[rollout] {_web.title(notice)}"
        message["Date"] = formatdate(notice.at)
        message["Message-ID"] = f"<{notice.id}@{domain}>"
        message["Auto-Submitted"] = "auto-generated"  # nobody's out-of-office answers
        rows = "\n".join(f"{title}: {value}" for title, value in _web.rows(notice).items())
        message.set_content(text or f"{notice.text}\n\n{rows}\nRollout: {notice.rollout}\n")
        return message

    def _refused(self, code: int, reply: t.Any) -> NotifyError:
        """Return the error of an answer of the server; 5xx is for good."""
        words = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply
        message = f"{self._where} answered {code}: {self._shown(words)}"
        return NotifyError(message, "PR-631", again=code < 500)

    def _shown(self, text: t.Any) -> str:
        shown = str(text)
        for secret in filter(None, self._login):
            shown = shown.replace(secret, "***")
        return clean(shown, 200)
