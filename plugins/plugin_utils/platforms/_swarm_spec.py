# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of a Swarm service, and the service that an instance is. Pure.

The names are those of the Engine API: https://docs.docker.com/reference/api/engine/version/v1.40/#tag/Service
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping
from dataclasses import replace

from ..base.errors import InputError
from ..inputs import values
from ..inputs.options import FLAG, PATH, PORT, TEXT, Field, Kind, Options, choice, group
from ..inputs.placeholders import Template
from ..interfaces.platform import Labels
from . import _containers, _options
from ._containers import OURS

PLACEHOLDERS = ("revision", "service", "instance", "port")
NANO = 1_000_000_000
NAME = r"[a-zA-Z0-9]+(?:[a-zA-Z0-9-_]*[a-zA-Z0-9])?"  # of a service
PERIODS = {"interval": "Interval", "timeout": "Timeout", "start_period": "StartPeriod"}


def fill(text: str, variable: str, known: Mapping[str, str]) -> str:
    """Fill in the placeholders of a text; refuse others than are known of a Swarm's instance."""
    return Template(text, variable, PLACEHOLDERS).render(known)


def _template(value: t.Any, variable: str) -> str:
    text = _options.plain(value, variable)
    fill(text, variable, {})
    return text


def _image(value: t.Any, variable: str) -> str:
    image = _template(value, variable)
    names = Template(image, variable, PLACEHOLDERS).names
    if "revision" not in names or not names <= {"revision", "service"} or re.search(r"\s", image):
        raise InputError(
            f"{variable}: {image!r} does not name the image of a revision; write"
            ' "registry.example.com/shop:{revision}"',
            "PR-120",
        )
    return image


def _environment(given: t.Any, variable: str) -> dict[str, str]:
    """Return environment variables. Their values may be secrets: no message shows one."""
    variables = _options.environment(given, variable)
    for name, text in variables.items():
        if not Template(text, variable, _options.PLACEHOLDERS).names <= set(PLACEHOLDERS):
            names = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
            raise InputError(
                f"{variable}.{name}: Swarm finds the place of an instance, so its value may have"
                f" {names}",
                "PR-112",
            )
    return variables


def _listed(example: str, check: t.Callable[[str, str], t.Any] | None = None) -> Kind:
    """Return the kind of a list of texts with placeholders."""

    def parse(given: t.Any, variable: str) -> list[str]:
        words = [_template(word, variable) for word in values.sequence(given, variable, example)]
        for word in words:
            if not word or (check and check(word, variable) is None):
                raise InputError(f"{variable}: {word!r} is not valid; write {example}", "PR-118")
        return words

    return Kind("list", parse, elements="str")


def _reference(text: str, _variable: str = "") -> tuple[str, str] | None:
    """Return the name of a secret or config and the path it is mounted at; "" for the usual one."""
    match = re.fullmatch(r"([^:/\s]+)(?::(\S+))?", text)
    return (match[1], match[2] or "") if match else None


def _volume(text: str, _variable: str = "") -> tuple[str, str, bool] | None:
    """Return source, target and whether it is read only."""
    match = re.fullmatch(r"([^:\s]+):(/[^:\s]*)(:ro)?", text)
    return (match[1], match[2], bool(match[3])) if match else None


def _constraint(text: str, _variable: str = "") -> t.Any:
    return re.fullmatch(r"(node|engine)\.[\w.-]+\s*(==|!=)\s*\S.*", text)


SIZE = _containers._formed(r"\d+[bkmgBKMG]?", "bytes, or a number with k, m or g (512m)")
PROCESSORS = _containers._formed(r"\d+(\.\d+)?", "a number (1.5)")
RESERVED = Options(
    Field("memory", SIZE, "Memory (V(256m))."),
    Field("cpus", PROCESSORS, "Processors (V(0.5))."),
)
_OF_CONTAINERS = _containers.OPTIONS
OPTIONS = Options(
    Field("hosts", TEXT, "Inventory pattern of the swarm's managers; name several.", required=True),
    Field(
        "socket",
        PATH,
        "Path of the Docker socket on each manager, for a user with access to it (C(become));"
        " V({host}) is the manager's name in the inventory.",
        default="/var/run/docker.sock",
    ),
    Field(
        "image",
        Kind("str", _image),
        "The image, V(registry.example.com/shop:{revision}). The tag is resolved once per"
        " generation, so that all nodes run the same image.",
        required=True,
    ),
    Field(
        "port",
        PORT,
        "Port that the container listens on. It is published on the node where Swarm places the"
        " instance (C(mode=host)), on a free port or one of C(ports).",
        required=True,
    ),
    Field(
        "ports",
        Kind("str", values.ports, "A port, or a range (V(8100-8199))."),
        "Ports that instances are published on, each once per node. If not given, Swarm picks any"
        " free port.",
    ),
    Field(
        "command",
        _listed('["--verbose"]'),
        "Arguments after the image name. Without it, the image determines what runs.",
    ),
    Field(
        "env",
        Kind("dict", _environment),
        "Environment variables. C(SERVICE), C(REVISION), C(INSTANCE) and C(PORT) are always set."
        " Anyone with access to the Docker API can read them; pass secrets in C(secrets).",
        default={},
        no_log=True,
    ),
    Field(
        "secrets",
        _listed('["token", "key-{revision}:/etc/shop/key"]', _reference),
        "Swarm secrets by name, each optionally with the path of its file; the default is"
        " /run/secrets/NAME.",
    ),
    Field(
        "configs",
        _listed('["shop-{revision}:/etc/shop.conf"]', _reference),
        "Swarm configs by name, each optionally with the path of its file; the default is /NAME.",
    ),
    Field(
        "constraints",
        _listed('["node.labels.zone == east"]', _constraint),
        "Which nodes may run instances, as C(--constraint) takes them.",
    ),
    Field(
        "networks",
        _listed('["backend"]', _reference),
        "Swarm networks that instances are attached to.",
    ),
    Field(
        "volumes",
        _listed('["data:/data", "/srv/shop:/shop:ro"]', _volume),
        "Volumes, or directories on the node, each with a path in the container, and optionally"
        " C(:ro).",
    ),
    replace(
        _OF_CONTAINERS["labels"],
        text="Labels for the services, in addition to those of the rollout.",
    ),
    _OF_CONTAINERS["memory"],
    _OF_CONTAINERS["cpus"],
    Field("reserve", group(RESERVED), "What a node must have free to get an instance.", default={}),
    _OF_CONTAINERS["user"],
    _OF_CONTAINERS["healthcheck"],
    Field(
        "restart",
        choice("any", "on-failure", "none"),
        "When Swarm restarts an instance that has ended.",
        default="any",
    ),
    _OF_CONTAINERS["stop_signal"],
    _OF_CONTAINERS["stop_timeout"],
    Field(
        "registry_auth",
        FLAG,
        "Whether nodes get the credentials for the image's registry that C(docker login) has stored"
        " for the managers' user.",
        default=False,
    ),
)
HOST_OPTIONS = ("hosts", "socket", "ports", "registry_auth")


def check_name(service: str) -> None:
    """Refuse a service that Swarm's names cannot begin with."""
    if not re.fullmatch(NAME, service) or len(service) > 50:
        raise InputError(
            f"rollout_service: {service!r} cannot begin the name of a service of Swarm; use at"
            " most 50 letters, digits, - and _",
            "PR-120",
        )


def service(options: Mapping[str, t.Any], labels: Labels, published: int) -> dict[str, t.Any]:
    """Return the service of an instance, as the API takes it; `published` 0: at any free port."""
    known = {
        "revision": labels.revision,
        "service": labels.service,
        "instance": labels.id,
        "port": str(options["port"]),
    }
    ours = {
        "service": labels.service,
        "revision": labels.revision,
        "generation": str(labels.generation),
        "port": str(options["port"]),
        "published": str(published),
        "image": fill(options["image"], "rollout_platform.image", known),
    }
    given = {name: _text(options, "labels", text, known) for name, text in _map(options, "labels")}
    port: dict[str, t.Any] = {
        "Protocol": "tcp",
        "TargetPort": options["port"],
        "PublishMode": "host",
    }
    return {
        "Name": labels.id,
        "Labels": {**given, **{f"{OURS}{name}": text for name, text in ours.items()}},
        "TaskTemplate": {
            "ContainerSpec": _container(options, known),
            "Resources": _resources(options),
            "RestartPolicy": {"Condition": options["restart"]},
            "Placement": {"Constraints": _texts(options, "constraints", known)},
            "Networks": [{"Target": name} for name in _texts(options, "networks", known)],
        },
        "Mode": {"Replicated": {"Replicas": 1}},
        # Without a virtual address of its own: requests come through load balancers outside.
        "EndpointSpec": {
            "Mode": "dnsrr",
            "Ports": [{**port, **({"PublishedPort": published} if published else {})}],
        },
    }


def references(options: Mapping[str, t.Any], revision: str, service: str) -> dict[str, list[str]]:
    """Return by option the names of what Swarm has to have, as far as known without an instance."""
    known = {"revision": revision, "service": service, "port": str(options["port"])}
    names: dict[str, list[str]] = {}
    for name in ("secrets", "configs", "networks"):
        plain = [text for text in options[name] or () if "{instance}" not in text]
        filled = [fill(text, f"rollout_platform.{name}", known) for text in plain]
        names[name] = [word.partition(":")[0] for word in filled]
    return names


def _container(options: Mapping[str, t.Any], known: Mapping[str, str]) -> dict[str, t.Any]:
    env = {name: _text(options, f"env.{name}", text, known) for name, text in _map(options, "env")}
    env |= {name.upper(): text for name, text in known.items()}
    body: dict[str, t.Any] = {
        "Image": _text(options, "image", options["image"], known),
        "Env": [f"{name}={text}" for name, text in sorted(env.items())],
        "StopGracePeriod": round(options["stop_timeout"] * NANO),
        "StopSignal": f"SIG{options['stop_signal']}",
        "Mounts": [_mount(text) for text in _texts(options, "volumes", known)],
        "Secrets": [_file(text, "Secret") for text in _texts(options, "secrets", known)],
        "Configs": [_file(text, "Config") for text in _texts(options, "configs", known)],
    }
    if options["command"] is not None:
        body["Args"] = _texts(options, "command", known)
    if options["user"]:
        body["User"] = _text(options, "user", options["user"], known)
    if options["healthcheck"]:
        body["Healthcheck"] = _healthcheck(options["healthcheck"], known)
    return body


def _text(_options: Mapping[str, t.Any], name: str, text: str, known: Mapping[str, str]) -> str:
    return fill(text, f"rollout_platform.{name}", known)


def _texts(options: Mapping[str, t.Any], name: str, known: Mapping[str, str]) -> list[str]:
    return [fill(text, f"rollout_platform.{name}", known) for text in options[name] or ()]


def _map(options: Mapping[str, t.Any], name: str) -> t.Iterable[tuple[str, str]]:
    return (options[name] or {}).items()


def _file(text: str, kind: str) -> dict[str, t.Any]:
    """Return the reference of a secret or a config; the agent adds its id."""
    name, path = _reference(text) or ("", "")
    usual = name if kind == "Secret" else f"/{name}"
    return {
        f"{kind}Name": name,
        "File": {"Name": path or usual, "UID": "0", "GID": "0", "Mode": 0o444},
    }


def _mount(text: str) -> dict[str, t.Any]:
    source, target, read_only = _volume(text) or ("", "", False)
    kind = "bind" if source.startswith("/") else "volume"
    return {"Type": kind, "Source": source, "Target": target, "ReadOnly": read_only}


def _healthcheck(check: Mapping[str, t.Any] | str, known: Mapping[str, str]) -> dict[str, t.Any]:
    if isinstance(check, str):
        return {"Test": ["NONE"]}
    command = fill(check["command"], "rollout_platform.healthcheck.command", known)
    healthcheck: dict[str, t.Any] = {"Test": ["CMD-SHELL", command]}
    for name, theirs in PERIODS.items():
        if check[name] is not None:
            healthcheck[theirs] = round(check[name] * NANO)
    if check["retries"] is not None:
        healthcheck["Retries"] = check["retries"]
    return healthcheck


def _resources(options: Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {"Limits": _amounts(options), "Reservations": _amounts(options["reserve"])}


def _amounts(given: Mapping[str, t.Any]) -> dict[str, int]:
    limits = {}
    if given.get("memory"):
        limits["MemoryBytes"] = _containers._bytes(given["memory"])
    if given.get("cpus"):
        limits["NanoCPUs"] = round(float(given["cpus"]) * NANO)
    return limits
