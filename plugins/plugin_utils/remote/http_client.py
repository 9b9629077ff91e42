# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a web service: with retries, within bounds, and without a secret in any message."""

from __future__ import annotations

import os
import re
import socket
import time
import typing as t
import urllib.parse
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ..agents import probe
from ..base.errors import GateError, InputError, RolloutError
from ..base.trace import trace
from ..inputs import values
from ..inputs.placeholders import OF_GATES, Template
from .deadline import within

RETRIES = 2
PAUSE, LONGEST = 0.5, 5.0  # s before the first retry, doubled for each further one; at most
_READ = 4096  # bytes read of a body at once
_SHOWN = 200  # characters shown of it
_SECRET = 6  # characters of the shortest word that is taken for a secret
_TOKEN = 16  # likewise, of a part of a URL: many of those are plain words
_URL = re.compile(r"[!-~]+")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")


@dataclass(frozen=True)
class Reply:
    """A status, and the beginning of the body as one line, without secrets.

    `body` is what was read of it, as it came, and is not to be shown.
    """

    status: int
    text: str
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.status}: {self.text}" if self.text else str(self.status)


class Client:
    """Asks web services. Redirects are not followed: they would take the headers elsewhere.

    One `ask` ends within `timeout` * (`retries` + 1) seconds and the pauses between, of which none
    is longer than 5 s. `secrets` are texts that a reply shown to people must not have. Of a body
    its beginning is read, and what follows up to `most` bytes and a few. `certificate` is a
    client's, with its key. `variable` (gate.url) begins a message, and `id` is that of an
    `error`. `keep`: connections stay open for the next request.
    """

    def __init__(
        self,
        timeout: float,
        *,
        retries: int = RETRIES,
        headers: Mapping[str, str] | None = None,
        secrets: Collection[str] = (),
        verify: bool | str = True,
        certificate: tuple[str, str] | None = None,
        most: int = 0,
        variable: str = "gate.url",
        error: type[RolloutError] = GateError,
        id: str = "PR-400",
        keep: bool = False,
    ) -> None:
        requests = _requests(variable, quiet=verify is False)
        self._request_by = requests.Session().request if keep else requests.request
        self._timeout = timeout
        self._retries = retries
        self._headers = {"User-Agent": "progressive.rollout", **(headers or {})}
        self._secrets = {word for text in secrets for word in (text, *text.split())}
        self._verify = verify
        self._certificate = certificate
        self._most = most
        self._error, self._id = error, id

    def ask(
        self,
        method: str,
        address: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Return the reply, the last one if all were 5xx. Raises `error` if the last connection
        failed or took too long.
        """
        for attempt in range(self._retries + 1):
            if attempt:
                time.sleep(min(LONGEST, PAUSE * 2 ** (attempt - 1)))
            with trace(f"{method} {origin(address)}") as call:
                outcome = self._once(method, address, body, headers or {})
                call.outcome = (
                    str(outcome.status) if isinstance(outcome, Reply) else self._reason(outcome)
                )
            if isinstance(outcome, Reply) and outcome.status < 500:
                break
        if isinstance(outcome, Reply):
            return outcome
        times = f" (asked {self._retries + 1} times)" if self._retries else ""
        raise self._error(
            f"{origin(address)}: request failed: {self._reason(outcome)}{times}", self._id
        )

    def _once(
        self, method: str, address: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Reply | Exception:
        """Return the reply, or why there is none, within the timeout: that of `requests` is only
        of each read from the socket.
        """
        try:
            return within(self._timeout, lambda: self._request(method, address, body, headers))
        except Exception as exc:
            return exc

    def _request(
        self, method: str, address: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Reply:
        with self._request_by(
            method,
            address,
            data=body,
            headers={**self._headers, **headers},
            timeout=self._timeout,
            verify=self._verify,
            cert=self._certificate,
            allow_redirects=False,
            stream=True,
            # otherwise ~/.netrc would replace the Authorization header
            auth=lambda request: request,
        ) as response:
            if response.is_redirect:
                return Reply(
                    response.status_code,
                    "redirects are not followed; give the URL that it leads to",
                )
            chunks = response.iter_content(_READ)
            body = beginning = next(chunks, b"")
            while len(body) <= self._most and (more := next(chunks, b"")):
                body += more
            shown = self.shown(beginning.decode("utf-8", "replace"), address)
            return Reply(response.status_code, shown, body, response.headers)

    def shown(self, text: str, address: str) -> str:
        """Return the beginning of a text as one line, without the secrets and those of the
        address.
        """
        hidden = {word for word in self._secrets if len(word) >= _SECRET} | _tokens(address)
        for secret in sorted(hidden, key=len, reverse=True):
            text = text.replace(secret, "***")
        return "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))[
            :_SHOWN
        ]

    def _reason(self, exc: BaseException) -> str:
        """Return why a request failed, not in the words of the exception: they have the URL, and
        perhaps headers.
        """
        if isinstance(exc, (TimeoutError, _requests().Timeout)):
            return f"no answer in {self._timeout:g} s"
        while deeper := exc.__cause__ or exc.__context__:
            exc = deeper
        if isinstance(exc, socket.gaierror):
            return "its name does not resolve"
        if isinstance(exc, OSError) and not isinstance(exc, _requests().RequestException):
            return probe.reason(exc)
        return f"the connection failed ({type(exc).__name__})"


def url(value: t.Any, variable: str, names: Collection[str] = OF_GATES) -> str:
    """Return a URL of the web, perhaps with placeholders. Raises InputError."""
    text = str(value)
    try:
        parts = urllib.parse.urlsplit(Template(text, variable, names).render({}))
        known = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname or "{" in text)
            and parts.port != 0
        )
    except ValueError:
        known = False
    if not known or not _URL.fullmatch(text):
        raise InputError(
            f"{variable}: it is not a web URL; write https://host/path, other characters"
            " than ASCII as %XX",
            "PR-122",
        )
    if "@" in parts.netloc:
        raise InputError(
            f"{variable}: a name and password in a URL would be seen by many; send them in a"
            " header",
            "PR-127",
        )
    return text


def origin(address: str) -> str:
    """Return what may be shown of a URL: paths and queries often have secrets."""
    parts = urllib.parse.urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"


def headers(given: t.Any, variable: str) -> dict[str, str]:
    """Return headers as text; raise InputError. A message never has a value: it may be a secret."""
    known = {str(name): str(value) for name, value in values.mapping(given, variable).items()}
    for name, value in known.items():
        if not _HEADER.fullmatch(name) or name.lower() in ("content-length", "transfer-encoding"):
            raise InputError(
                f"{variable}: {name!r} is not the name of a header that can be set; use letters,"
                " digits and -",
                "PR-120",
            )
        if not _VALUE.fullmatch(value):
            raise InputError(
                f"{variable}.{name}: its value must be one line of ASCII, without blanks around it",
                "PR-127",
            )
    return known


def verify(validate_certs: bool, ca_path: str | None, variable: str) -> bool | str:
    """Return what the certificate is checked against: the usual authorities, those of a file, or
    nothing. Raises InputError.
    """
    if ca_path and not validate_certs:
        raise InputError(
            f"{variable}.ca_path: {ca_path!r} has no effect with validate_certs false; remove one"
            " of them",
            "PR-107",
        )
    if ca_path:
        file(ca_path, f"{variable}.ca_path")
    return ca_path or bool(validate_certs)


def file(path: str, variable: str) -> str:
    """Return the path of a file that can be read here. Raises InputError."""
    if not (path.startswith("/") and os.access(path, os.R_OK)):
        raise InputError(
            f"{variable}: {path!r} is not the absolute path of a file on the controller that can be"
            " read",
            "PR-113",
        )
    return path


def _tokens(address: str) -> set[str]:
    """Return what in a URL may be a secret: servers repeat it in what they answer."""
    parts = urllib.parse.urlsplit(address)
    words = {
        parts.query,
        *parts.path.split("/"),
        *(value for _name, value in urllib.parse.parse_qsl(parts.query)),
    }
    return {f"{parts.path}?{parts.query}", *(word for word in words if len(word) >= _TOKEN)}


def _requests(variable: str = "gate.url", quiet: bool = False) -> t.Any:
    """Return the package, imported when it is needed (`variable` needs it). `quiet`: without its
    warnings of unchecked certificates.
    """
    try:
        import requests
        import urllib3
    except ImportError:
        raise InputError(
            f"{variable}: it needs the Python package requests; install it alongside ansible-core"
            " (pip install requests)",
            "PR-117",
        ) from None
    if quiet:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    return requests
