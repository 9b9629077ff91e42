# SPDX-License-Identifier: GPL-3.0-or-later
"""A real SMTP server (aiosmtpd) on a free loopback port, that answers as it is told to."""

from __future__ import annotations

import email
import email.policy
import socket
import ssl
import typing as t
from email.message import EmailMessage

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

USER, PASSWORD = "rollouts", "s3cret-of-the-mail"


class _Controller(Controller):
    """Listens at a free port."""

    def __init__(self, handler: MailServer, **given: t.Any) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        port = self._socket.getsockname()[1]
        super().__init__(handler, hostname="127.0.0.1", port=port, **given)

    def _create_server(self) -> t.Any:
        return self.loop.create_server(
            self._factory_invoker, sock=self._socket, ssl=self.ssl_context
        )


class MailServer:
    """An SMTP server with STARTTLS, or TLS from the beginning, that keeps the mail it gets."""

    def __init__(self, context: ssl.SSLContext | None, tls: bool = False) -> None:
        self.mails: list[EmailMessage] = []
        self.recipients: list[list[str]] = []
        self.logins: list[bool] = []
        self.reply = "250 taken"
        self.controller = _Controller(
            self,
            ssl_context=context if tls else None,
            tls_context=None if tls else context,
            require_starttls=bool(context) and not tls,
            authenticator=self._login,
            auth_require_tls=not tls,
        )
        self.controller.start()
        self.port: int = self.controller.port

    def _login(self, _server: SMTP, _session: Session, _envelope: Envelope, _how: str, data: t.Any):  # type: ignore[no-untyped-def]
        right = isinstance(data, LoginPassword) and (
            data.login.decode(),
            data.password.decode(),
        ) == (USER, PASSWORD)
        self.logins.append(right)
        return AuthResult(success=right, handled=False)

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        self.mails.append(t.cast(EmailMessage, mail))
        self.recipients.append(list(envelope.rcpt_tos))
        return self.reply

    def close(self) -> None:
        self.controller.stop()
