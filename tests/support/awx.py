# SPDX-License-Identifier: GPL-3.0-or-later
"""AWX's API as far as the modules of awx.awx need it: objects by name, lists of what belongs to
them, and a record of the requests that write.
"""

from __future__ import annotations

import itertools
import json
import threading
import typing as t
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

TOKEN = "swordfish-of-awx"
ROOT = "/api/v2/"
LAUNCHED = {"job_templates": "job_template", "workflow_job_templates": "workflow_job_template"}
ROLES = ("execute", "approval", "admin")
Object = dict[str, t.Any]


class Awx:
    """A server on loopback with an organization, and what is referred to by name."""

    def __init__(self, playbooks: t.Collection[str] = ()) -> None:
        """`playbooks` are those in the repository of every project."""
        self.repository = set(playbooks)
        self.unreadable = False  # so that a project's update fails
        self.objects: dict[str, dict[int, Object]] = {}
        self.lists: dict[str, list[int]] = {}  # ids, by the path of a list of an object
        self.surveys: dict[str, Object] = {}
        self.written: list[tuple[str, str, Object]] = []
        self._numbers = itertools.count(1)
        self.create("organizations", {"name": "Default"})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    # Objects ----------------------------------------------------------------------------------

    def create(self, kind: str, fields: Object) -> Object:
        number = next(self._numbers)
        url = f"{ROOT}{kind}/{number}/"
        roles = {f"{role}_role": {"id": next(self._numbers)} for role in ROLES}
        made = {
            "type": kind.removesuffix("s"),
            "scm_revision": "",
            **fields,
            "id": number,
            "url": url,
            "related": {"survey_spec": f"{url}survey_spec/", "update": f"{url}update/"},
            "summary_fields": {"object_roles": roles},
        }
        self.objects.setdefault(kind, {})[number] = made
        return made

    def named(self, kind: str, name: str) -> Object:
        """The object with a name, or with an identifier."""
        (found,) = (
            one
            for one in self.objects[kind].values()
            if name in (one.get("name"), one.get("identifier"))
        )
        return found

    def names(self, kind: str) -> list[str]:
        return sorted(
            one.get("identifier") or one["name"] for one in self.objects.get(kind, {}).values()
        )

    def of(self, one: Object, listed: str) -> list[str]:
        """The names of what is in a list of an object."""
        every = {number: it for kind in self.objects.values() for number, it in kind.items()}
        numbers = self.lists.get(f"{one['url']}{listed}/", [])
        return sorted(every[n].get("identifier") or every[n]["name"] for n in numbers)

    def survey(self, one: Object) -> list[Object]:
        return t.cast("list[Object]", self.surveys[f"{one['url']}survey_spec/"]["spec"])

    def may(self, one: Object, role: str, who: str) -> list[str]:
        """The names of those who have a role of an object; `who` is users or teams."""
        number = one["summary_fields"]["object_roles"][f"{role}_role"]["id"]
        return self.of({"url": f"{ROOT}roles/{number}/"}, who)

    def _all(self, kind: str) -> list[Object]:
        if kind == "unified_job_templates":
            return [one for name in LAUNCHED for one in self._all(name)]
        return list(self.objects.get(kind, {}).values())

    def _fits(self, one: Object, query: Object) -> bool:
        either = [key for key in query if key.startswith("or__")]
        return all(self._is(one, key, query[key]) for key in query if key not in either) and (
            not either or any(self._is(one, key[4:], query[key]) for key in either)
        )

    def _is(self, one: Object, key: str, wanted: str) -> bool:
        """Whether a field is as asked for; `a__b` is the field b of the object that a names."""
        field, _mark, rest = key.partition("__")
        if not rest:
            return str(one.get(field)) == wanted
        other = self.objects[f"{field}s"].get(one.get(field, 0))
        return other is not None and self._is(other, rest, wanted)

    # Requests ---------------------------------------------------------------------------------

    def get(self, path: str, query: Object) -> tuple[int, Object]:
        kind, *rest = path.removeprefix(ROOT).strip("/").split("/")
        if not rest:
            return 200, _page([one for one in self._all(kind) if self._fits(one, query)])
        if len(rest) == 1:
            found = self.objects.get(kind, {}).get(int(rest[0]))
            return (200, found) if found else (404, {})
        if rest[1] == "survey_spec":
            return 200, self.surveys.get(path, {})
        every = {number: one for made in self.objects.values() for number, one in made.items()}
        return 200, _page([every[number] for number in self.lists.get(path, [])])

    def post(self, path: str, body: Object) -> tuple[int, Object]:
        kind, *rest = path.removeprefix(ROOT).strip("/").split("/")
        if not rest:
            return self._refused(kind, body) or (201, self.create(kind, body))
        if rest[1] == "update":
            return 202, self._update(self.objects[kind][int(rest[0])])
        if rest[1] == "survey_spec":
            self.surveys[path] = body
            return 200, {}
        if rest[1] == "create_approval_template":
            made = self.create("workflow_approval_templates", body)
            node = self.objects[kind][int(rest[0])]
            node["related"]["unified_job_template"] = made["url"]
            return 201, made
        listed = self.lists.setdefault(path, [])
        listed.remove(body["id"]) if body.get("disassociate") else listed.append(body["id"])
        return 204, {}

    def _update(self, project: Object) -> Object:
        """Update a project from its repository, as AWX does in a job."""
        update = {"finished": "2026-01-05T06:00:00Z", "failed": self.unreadable}
        if not self.unreadable:
            project["playbooks"] = sorted(self.repository)
            project["scm_revision"] = str(hash(tuple(project["playbooks"])))
        status = "failed" if self.unreadable else "successful"
        return self.create(
            "project_updates", {**update, "status": status, "scm_revision": project["scm_revision"]}
        )

    def _refused(self, kind: str, body: Object) -> tuple[int, Object] | None:
        """Return the answer to an object that AWX refuses."""
        if kind == "job_templates" and "playbook" in body:
            project = self.objects["projects"][int(body["project"])]
            if body["playbook"] not in project.get("playbooks", ()):
                return 400, {"playbook": ["Playbook not found for project."]}
        if kind == "notification_templates" and body.get("notification_type") == "webhook":
            missing = {"url", "http_method", "headers"} - body["notification_configuration"].keys()
            if missing:
                why = "Missing required fields for Notification Configuration"
                return 400, {"notification_configuration": [f"{why}: {sorted(missing)}."]}
        return None

    def patch(self, path: str, body: Object) -> tuple[int, Object]:
        kind, number = path.removeprefix(ROOT).strip("/").split("/")
        if refused := self._refused(kind, {**self.objects[kind][int(number)], **body}):
            return refused
        self.objects[kind][int(number)] |= body
        return 200, self.objects[kind][int(number)]

    def delete(self, path: str) -> tuple[int, Object]:
        kind, number = path.removeprefix(ROOT).strip("/").split("/")
        del self.objects[kind][int(number)]
        for listed in self.lists.values():
            if int(number) in listed:
                listed.remove(int(number))
        return 204, {}

    def answer(self, method: str, target: str, body: Object) -> tuple[int, Object]:
        parts = urlsplit(target)
        if method == "GET":
            return self.get(parts.path, dict(parse_qsl(parts.query)))
        self.written.append((method, parts.path, body))
        if method == "DELETE":
            return self.delete(parts.path)
        return (self.post if method == "POST" else self.patch)(parts.path, body)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        awx = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}") if length else {}
                status, found = (401, {"detail": "no token"})
                if self.headers["Authorization"] == f"Bearer {TOKEN}":
                    status, found = awx.answer(self.command, self.path, body)
                text = b"" if status == 204 else json.dumps(found).encode()
                self.send_response(status)
                self.send_header("X-API-Product-Name", "AWX")
                self.send_header("X-API-Product-Version", "24.6.1")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PATCH = do_DELETE = _serve

            def log_message(self, format: str, *args: t.Any) -> None:
                pass

        return Handler


def _page(found: list[Object]) -> Object:
    return {"count": len(found), "next": None, "previous": None, "results": found}
