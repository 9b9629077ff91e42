# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start, stop and report services of a Docker Swarm, by the Engine API of a manager on this host.

An instance is one service with one replica, which has its name; its labels are the instance's. The
request has socket, service and epoch, and either `check`, `prepare`, `recall`, or work: `start`
(specs of services), `stop` and `forget` (names), `keep` (by key, settings to keep) and `retain`
(keys to keep). Runs on Python 3.8 and later.

The answer is what Swarm has of the service, {"error": why} where it refuses something, {"away":
why} where another manager may do better, or {"stale": why} where a newer lease holder has acted.
What fences is a config of Swarm, whose label has the highest epoch seen: any manager shows the same
one, and of two that change it at once, one is refused.
"""

from __future__ import annotations

import time

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import (
    _bootstrap,
    _http,
    _talk,
)

TYPE_CHECKING = False  # importing typing costs start-up time
if TYPE_CHECKING:
    import typing as t

    Request = t.Dict[str, t.Any]
    Object = t.Dict[str, t.Any]

OURS = "progressive.rollout."  # begins the labels of what is ours
VERSION = 1, 40  # of the API: Docker 19.03; a later one where a manager has forgotten it
TRIES = 20  # of a change that others are quicker with
# what a manager says that has lost the others, or whose leader is being elected
LEADERLESS = ("does not have a leader", "context deadline exceeded", "Unavailable", "no leader")
ENDED = ("complete", "shutdown", "failed", "rejected", "remove", "orphaned")
REGISTRY = 10.0  # seconds it has to say which image a tag is


class Refused(Exception):
    """Swarm does not do this, as text for the operator."""


class Away(Exception):
    """This manager cannot do anything now."""


class Stale(Exception):
    """A newer lease holder has acted here."""


def main(request: Request) -> dict[str, t.Any]:
    """Answer a request."""
    api = Api(request["socket"])
    try:
        if "check" in request:
            return check(api)
        if "prepare" in request:
            return {"problems": missing(api, request["prepare"])}
        if "recall" in request:
            return {"settings": recalled(api, request["recall"])}
        if "leave" in request:
            return {"removed": left(api, request)}
        return work(api, request)
    except Stale as exc:
        return {"stale": str(exc)}
    except Away as exc:
        return {"away": str(exc)}
    except Refused as exc:
        return {"error": str(exc)}


class Api:
    """The Engine API of one manager."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._version = ""

    def ask(
        self,
        method: str,
        path: str,
        body: t.Any = None,
        headers: t.Sequence[tuple[str, str]] = (),
        seconds: float = 30.0,
    ) -> tuple[int, t.Any]:
        """Return the status and the data of an answer; raises Away without a useful one."""
        if not self._version:
            self._version = self._oldest()
        return self._ask(method, self._version + path, body, headers, seconds)

    def _oldest(self) -> str:
        """Return the beginning of paths, for the oldest version that this manager knows."""
        _status, data = self._ask("GET", "/version", None, (), 30.0)
        least = (data.get("MinAPIVersion") or "") if isinstance(data, dict) else ""
        major, _dot, minor = least.partition(".")
        known = (int(major), int(minor)) if major.isdigit() and minor.isdigit() else VERSION
        return "/v%d.%d" % max(VERSION, known)

    def _ask(
        self,
        method: str,
        path: str,
        body: t.Any,
        headers: t.Sequence[tuple[str, str]],
        seconds: float,
    ) -> tuple[int, t.Any]:
        try:
            status, data = _http.ask(self._socket, method, path, body, headers, seconds)
        except OSError as exc:
            why = exc.strerror or str(exc) or type(exc).__name__
            raise Away("%s: %s" % (self._socket, why)) from None
        if status == 503 or (status >= 500 and any(text in said(data) for text in LEADERLESS)):
            raise Away(said(data))
        return status, data

    def get(self, path: str, **filters: t.Any) -> t.Any:
        """Return what is at a path, filtered; raises Refused."""
        query = "?filters=" + _http.quote(_bootstrap.dump(filters)) if filters else ""
        status, data = self.ask("GET", path + query)
        if status != 200:
            raise Refused(said(data))
        return data

    def find(self, path: str) -> t.Any:
        """Return one object, None where there is none."""
        status, data = self.ask("GET", path)
        if status not in (200, 404):
            raise Refused(said(data))
        return data if status == 200 else None

    def create(self, kind: str, spec: Object, headers: t.Sequence[tuple[str, str]] = ()) -> bool:
        """Return whether an object was made; not if there is one of this name."""
        status, data = self.ask("POST", "/%s/create" % kind, spec, headers)
        if status not in (200, 201, 409):
            raise Refused(said(data))
        return status != 409

    def change(self, kind: str, name: str, edit: t.Callable[[Object], bool | None]) -> None:
        """Change an object by a function of its spec, again where another was quicker.

        Nothing is done where it is not there, or where the function returns False.
        """
        for _try in range(TRIES):
            current = self.find("/%s/%s" % (kind, name))
            if current is None or edit(current["Spec"]) is False:
                return
            path = "/%s/%s/update?version=%d" % (kind, current["ID"], current["Version"]["Index"])
            status, data = self.ask("POST", path, current["Spec"])
            if status == 200:
                return
            if "out of sequence" not in said(data):
                raise Refused(said(data))
        raise Refused("%s keeps being changed by something else" % name)

    def delete(self, kind: str, name: str) -> None:
        """Delete an object, if it is there."""
        status, data = self.ask("DELETE", "/%s/%s" % (kind, name))
        if status not in (200, 204, 404):
            raise Refused(said(data))


def said(data: t.Any) -> str:
    """Return what the API says of an error, without the words of the layer below."""
    text = data.get("message", "") if isinstance(data, dict) else str(data)
    return _talk.shown(text.rpartition(" desc = ")[2] or text)


# --- before anything is touched ---


def check(api: Api) -> dict[str, t.Any]:
    """Return the swarm's id, or what is wrong with this manager."""
    info = api.get("/info")
    swarm = info.get("Swarm") or {}
    if swarm.get("ControlAvailable") is not True:
        why = "is %s, and not a swarm manager" % (
            "a worker" if swarm.get("LocalNodeState") == "active" else "in no swarm"
        )
        return {"problems": {"hosts": why}}
    api.get("/nodes")  # answered by the leader alone
    return {"swarm": str((swarm.get("Cluster") or {}).get("ID"))}


def missing(api: Api, wanted: dict[str, t.Sequence[str]]) -> dict[str, str]:
    """Return by option the secrets, configs and networks that Swarm does not have."""
    problems = {}
    for kind in ("secrets", "configs", "networks"):
        present = {
            name
            for obj in api.get("/%s" % kind)
            for name in ((obj.get("Spec") or obj).get("Name"), obj.get("ID") or obj.get("Id"))
        }
        lacking = [name for name in wanted[kind] if name not in present]
        if lacking:
            problems[kind] = "Swarm has no %s" % ", ".join(lacking)
    return problems


# --- the epoch, and settings that are kept ---


def fence(api: Api, service: str, epoch: int) -> None:
    """Note the epoch of a lease; raises Stale where a newer one is."""
    if not epoch:
        return
    name = "rollout.%s" % service
    if api.find("/configs/" + name) is None:
        api.create(
            "configs", {"Name": name, "Labels": {OURS + "epoch": "0"}, "Data": "cm9sbG91dA=="}
        )

    def raised(spec: Object) -> bool:
        noted = str((spec.get("Labels") or {}).get(OURS + "epoch"))
        seen = int(noted) if noted.isdigit() else 0
        if seen > epoch:
            text = "a newer lease holder has acted here (epoch %d, ours is %d)"
            raise Stale(text % (seen, epoch))
        spec["Labels"] = {OURS + "epoch": str(epoch)}
        return seen < epoch

    api.change("configs", name, raised)


def keep(api: Api, service: str, wanted: dict[str, t.Any], retain: t.Sequence[str]) -> None:
    """Keep settings in configs of Swarm, and delete those that are not needed any more."""
    import binascii

    for key, content in wanted.items():
        data = binascii.b2a_base64(_bootstrap.dump(content).encode("ascii"), newline=False).decode(
            "ascii"
        )
        labels = {OURS + "settings": service}
        api.create("configs", {"Name": "rollout-" + key, "Labels": labels, "Data": data})
    configs = api.get("/configs", label=["%ssettings=%s" % (OURS, service)])
    names = [config["Spec"]["Name"] for config in configs]
    needed = ["rollout-" + key for key in (*wanted, *retain)]
    for name in names:
        if name not in needed:
            api.delete("configs", name)


def recalled(api: Api, key: str) -> t.Any:
    """Return the settings that are kept under a key; None without any."""
    import binascii

    config = api.find("/configs/rollout-" + key)
    return _bootstrap.load(binascii.a2b_base64(config["Spec"]["Data"])) if config else None


def left(api: Api, request: Request) -> list[str]:
    """Remove the labels of services that run, then the settings and the epoch; return them.

    Tasks stay as they are: the labels are those of the service, not of its containers. With `dry`,
    nothing is removed.
    """
    service, dry = request["leave"]["service"], request["leave"]["dry"]
    services = api.get("/services", label=["%sservice=%s" % (OURS, service)])
    names = [other["Spec"]["Name"] for other in services]
    settings = api.get("/configs", label=["%ssettings=%s" % (OURS, service)])
    configs = sorted(config["Spec"]["Name"] for config in settings)
    if api.find("/configs/rollout." + service) is not None:
        configs.append("rollout." + service)
    if dry or not (names or configs):
        return removals(names, configs)
    if request["leave"]["epoch"] <= 0:
        raise Refused("nothing is removed without a lease (epoch 0 only looks)")
    fence(api, service, request["leave"]["epoch"])
    for name in names:
        api.change("services", name, unlabelled)
    for name in [*configs, "rollout." + service]:
        api.delete("configs", name)
    return removals(names, configs)


def removals(services: t.Sequence[str], configs: t.Sequence[str]) -> list[str]:
    """Return what is removed, as it is told."""
    return ["labels of service %s" % name for name in services] + [
        "config %s" % name for name in configs
    ]


def unlabelled(spec: Object) -> bool:
    """Remove our labels of a service."""
    spec["Labels"] = {
        name: value
        for name, value in (spec.get("Labels") or {}).items()
        if not name.startswith(OURS)
    }
    return True


# --- services ---


def work(api: Api, request: Request) -> dict[str, t.Any]:
    """Do the work given, and return what there is."""
    if request["epoch"] <= 0 and any(request[what] for what in ("start", "stop", "forget", "keep")):
        raise Refused("nothing is changed without a lease (epoch 0 only looks)")
    fence(api, request["service"], request["epoch"])
    if request["keep"]:
        keep(api, request["service"], request["keep"], request["retain"])
    for name in request["stop"]:
        api.change("services", name, lambda spec: stopped(spec, request["service"]))
    if request["forget"]:
        forget(api, request)
    if request["start"]:
        start(api, request)
    return seen(api, request["service"])


def stopped(spec: Object, service: str) -> bool:
    """Have a service run nothing, and return whether that changes it."""
    replicated = spec["Mode"].get("Replicated") or {}
    labels = spec.get("Labels") or {}
    if labels.get(OURS + "service") != service or not replicated.get("Replicas"):
        return False
    replicated["Replicas"] = 0
    return True


def forget(api: Api, request: Request) -> None:
    """Delete services that run nothing."""
    services = {service["name"]: service for service in seen(api, request["service"])["services"]}
    for name in request["forget"]:
        service = services.get(name)
        if service is None:
            continue
        if service["replicas"] and any(wanted(task) for task in service["tasks"]):
            raise Refused("instance %s is running; stop it first" % name)
        api.delete("services", name)


def wanted(task: Object) -> bool:
    """Return whether Swarm has a task run, or is going to."""
    return task["desired"] in ("running", "ready", "accepted") and task["state"] not in ENDED


def start(api: Api, request: Request) -> None:
    """Create services, those of one generation with the very same image."""
    services = api.get("/services", label=["%sservice=%s" % (OURS, request["service"])])
    images = {}
    for service in services:
        labels = service["Spec"]["Labels"]
        image = service["Spec"]["TaskTemplate"]["ContainerSpec"]["Image"]
        images[labels.get(OURS + "generation"), image.partition("@")[0]] = image
    for spec in request["start"]:
        container = spec["TaskTemplate"]["ContainerSpec"]
        login = credentials(container["Image"]) if request["registry_auth"] else ""
        headers = [("X-Registry-Auth", login)] if login else []
        same = spec["Labels"][OURS + "generation"], container["Image"].partition("@")[0]
        if same not in images:
            images[same] = pinned(api, container["Image"], headers)
        container["Image"] = images[same]
        with_ids(api, container)
        if not api.create("services", spec, headers):
            refuse_foreign(api, spec)


def refuse_foreign(api: Api, spec: Object) -> None:
    """Raise Refused where the service of this name is not this instance."""
    current = api.find("/services/" + spec["Name"]) or {"Spec": spec}
    labels = current["Spec"].get("Labels") or {}
    if any(
        labels.get(OURS + name) != spec["Labels"][OURS + name] for name in ("service", "generation")
    ):
        text = "Swarm has a service %s already, which is not an instance of this rollout; remove it"
        raise Refused(text % spec["Name"])


def pinned(api: Api, image: str, headers: t.Sequence[tuple[str, str]]) -> str:
    """Return the image with its digest, so that every node runs the same; as it is if no registry
    says which that is.
    """
    if "@" in image:
        return image
    try:
        status, data = api.ask("GET", "/distribution/%s/json" % image, None, headers, REGISTRY)
    except Away:
        return image
    digest = (data.get("Descriptor") or {}).get("digest") if status == 200 else None
    return "%s@%s" % (image, digest) if digest else image


def with_ids(api: Api, container: Object) -> None:
    """Add the ids of secrets and configs, which Swarm wants beside their names."""
    for kind, word in (("Secrets", "Secret"), ("Configs", "Config")):
        for reference in container.get(kind) or ():
            name = reference[word + "Name"]
            obj = api.find("/%s/%s" % (kind.lower(), name))
            if obj is None:
                raise Refused("Swarm has no %s %s" % (word.lower(), name))
            reference[word + "ID"], reference[word + "Name"] = obj["ID"], obj["Spec"]["Name"]


def credentials(image: str) -> str:
    """Return what `docker login` has left for the registry of an image, as the API wants it."""
    import binascii
    import os

    registry, slash, _rest = image.partition("/")
    known = slash and ("." in registry or ":" in registry or registry == "localhost")
    registry = registry if known and registry != "docker.io" else "https://index.docker.io/v1/"
    folder = os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")
    path = os.path.join(folder, "config.json")
    try:
        with open(path, "rb") as file:
            config = _bootstrap.load(file.read())
    except FileNotFoundError:
        raise Refused("registry_auth: there is no %s; log in first (docker login)" % path) from None
    helper = (config.get("credHelpers") or {}).get(registry) or config.get("credsStore")
    stored = (config.get("auths") or {}).get(registry) or {}
    if helper:
        entry = helped(helper, registry)
    elif stored.get("auth"):
        user, _colon, password = binascii.a2b_base64(stored["auth"]).decode().partition(":")
        entry = {"username": user, "password": password.rstrip("\0")}
    else:
        text = "registry_auth: %s has no login for %s; log in first (docker login)"
        raise Refused(text % (path, registry))
    login = _bootstrap.dump({**entry, "serveraddress": registry}).encode("ascii")
    return binascii.b2a_base64(login, newline=False).decode().replace("+", "-").replace("/", "_")


def helped(helper: str, registry: str) -> dict[str, str]:
    """Return a login from a credential helper of Docker."""
    import subprocess

    program = "docker-credential-" + helper
    try:
        done = subprocess.run(
            [program, "get"],
            input=registry.encode(),
            capture_output=True,
            timeout=10,
            check=False,
        )
        login = _bootstrap.load(done.stdout)
        user, secret = login["Username"], login["Secret"]
    except (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError) as exc:
        raise Refused(
            "registry_auth: %s gives no login (%s)" % (program, type(exc).__name__)
        ) from None
    if user == "<token>":
        return {"identitytoken": secret}
    return {"username": user, "password": secret}


# --- what there is ---


def seen(api: Api, service: str) -> dict[str, t.Any]:
    """Return the services of the rollout's service with their tasks, and the nodes."""
    label = ["%sservice=%s" % (OURS, service)]
    services = api.get("/services", label=label)
    tasks: dict[str, list[Object]] = {}
    for task in api.get("/tasks", label=label):
        tasks.setdefault(task["ServiceID"], []).append(shown_task(task))
    return {
        "services": [
            {
                "name": service["Spec"]["Name"],
                "created": service["CreatedAt"],
                "labels": {
                    name[len(OURS) :]: text
                    for name, text in service["Spec"]["Labels"].items()
                    if name.startswith(OURS)
                },
                "image": (service["Spec"]["TaskTemplate"].get("ContainerSpec") or {}).get("Image")
                or "",
                "replicas": (service["Spec"]["Mode"].get("Replicated") or {}).get("Replicas") or 0,
                "restart": (service["Spec"]["TaskTemplate"].get("RestartPolicy") or {}).get(
                    "Condition"
                )
                or "any",
                "tasks": tasks.get(service["ID"], []),
            }
            for service in services
        ],
        "nodes": {node["ID"]: shown_node(node) for node in api.get("/nodes")},
        "now": time.time(),
    }


def shown_task(task: Object) -> Object:
    """Return what matters of a task."""
    status = task["Status"]
    ports = (status.get("PortStatus") or {}).get("Ports") or ()
    return {
        "id": task["ID"],
        "created": task["CreatedAt"],
        "at": status.get("Timestamp") or task["CreatedAt"],
        "state": status["State"],
        "desired": task["DesiredState"],
        "why": str(status.get("Err") or ""),
        "node": task.get("NodeID") or "",
        "ports": {str(port["TargetPort"]): port.get("PublishedPort") or 0 for port in ports},
    }


def shown_node(node: Object) -> Object:
    """Return what matters of a node."""
    status = node.get("Status") or {}
    address = status.get("Addr") or ""
    if address in ("", "0.0.0.0", "127.0.0.1"):  # a manager may not say its own
        address = (
            ((node.get("ManagerStatus") or {}).get("Addr") or "").rpartition(":")[0].strip("[]")
        )
    return {
        "name": (node.get("Description") or {}).get("Hostname") or node["ID"],
        "address": address,
        "state": status.get("State") or "unknown",
    }
