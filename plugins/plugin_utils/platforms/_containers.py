# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of the platforms `podman` and `docker`.

`agents/container.py` does the work.
"""

from __future__ import annotations

import functools
import re
import typing as t
from collections.abc import Mapping
from dataclasses import replace

from ..base.errors import InputError, PlatformError
from ..inputs import values
from ..inputs.options import DURATION, PORT, Field, Kind, Options, choice, whole
from ..interfaces.context import DriverContext
from ..interfaces.platform import Capabilities, InstanceSettings, Labels, Limits
from . import _options
from ._hosts import Hosts

# placeholders that are known when images are pulled
AT_PREPARE = ("revision", "service", "host", "address")
FLAGS = {
    "network": "network",
    "memory": "memory",
    "cpus": "cpus",
    "pids": "pids-limit",
    "user": "user",
    "runtime": "runtime",
}
LISTS = {"volumes": "volume", "env_files": "env-file", "secrets": "secret"}
UNITS = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30}
OURS = "progressive.rollout."  # labels
REFUSED = {
    "--name": "containers are named by their instances",
    "--rm": "a container that is gone cannot say why it failed",
    "--restart": "use rollout_platform.restart",
}


def _image(value: t.Any, variable: str) -> str:
    image = _options.template(value, variable)
    if not image or image.startswith("-") or re.search(r"\s", image):
        raise InputError(
            f"{variable}: {image!r} is not an image; write"
            ' "registry.example.com/shop:{revision}"',
            "PR-120",
        )
    if not _options.fill_known(image, dict.fromkeys(AT_PREPARE, "x")):
        names = ", ".join(f"{{{name}}}" for name in AT_PREPARE)
        raise InputError(
            f"{variable}: {image!r} has to be known before instances are; it may have {names}",
            "PR-112",
        )
    return image


def _environment(given: t.Any, variable: str) -> dict[str, str]:
    """Return environment variables. Their values may be secrets: no message shows one."""
    env = _options.environment(given, variable)
    for name, value in env.items():
        if re.search(r"\s", name) or name.startswith("#"):
            raise InputError(
                f"{variable}: {name!r} cannot be the name of an environment variable", "PR-120"
            )
        if "\n" in value or "\r" in value:
            raise InputError(
                f"{variable}.{name}: a container's variable has one line; give it as a file"
                " (volumes)",
                "PR-127",
            )
    return env


def _formed(pattern: str, hint: str) -> Kind:
    """Return the kind of a text of a form, with placeholders."""

    def parse(value: t.Any, variable: str) -> str:
        text = str(value) if isinstance(value, float) else _options.template(value, variable)
        if not re.fullmatch(pattern, text):
            raise InputError(f"{variable}: {value!r} is not valid; write {hint}", "PR-118")
        return text

    return Kind("raw", parse)


def _restart(value: t.Any, variable: str) -> str:
    """Return the restart policy. YAML 1.1 reads `no` as false."""
    policy = _formed(
        r"no|always|unless-stopped|on-failure(:\d+)?",
        "no, on-failure, on-failure:3, unless-stopped or always",
    )
    return str(policy.parse("no" if value is False else value, variable))


def _args(given: t.Any, variable: str) -> list[str]:
    words = _options.words(given, variable)
    for word in words:
        if why := REFUSED.get(word.partition("=")[0]):
            raise InputError(f"{variable}: {word!r} cannot be given: {why}", "PR-127")
    return words


def _named(given: t.Any, variable: str, value: Kind) -> dict[str, str]:
    mapping = values.mapping(given, variable, "a mapping of names to values")
    for key in mapping:
        if not isinstance(key, str) or not re.fullmatch(r"[^\s=]+", key):
            raise InputError(
                f"{variable}: {key!r} is not a name; write a mapping of names to values", "PR-120"
            )
    return {key: value.parse(text, f"{variable}.{key}") for key, text in mapping.items()}


def _labels(given: t.Any, variable: str) -> dict[str, str]:
    labels = _named(given, variable, Kind("str", _options.template))
    if taken := [key for key in labels if key.startswith(OURS)]:
        raise InputError(
            f"{variable}: {taken[0]!r} cannot be given: labels that begin with {OURS} are reserved",
            "PR-127",
        )
    return labels


def _ulimits(given: t.Any, variable: str) -> dict[str, str]:
    return _named(given, variable, _formed(r"-1|\d+(:\d+)?", "a number, or two (soft:hard)"))


_CHECK = Options(
    Field(
        "command",
        Kind("str", _options.template),
        "A command, run by the image's shell.",
        required=True,
    ),
    Field("interval", DURATION, "How often it runs."),
    Field("timeout", DURATION, "How long it may take."),
    Field("start_period", DURATION, "How long after the start failures do not count."),
    Field("retries", whole(1), "How many failures in a row make the container unhealthy."),
)


def _healthcheck(given: t.Any, variable: str) -> dict[str, t.Any] | t.Literal["none"]:
    if given is False or given == "none":
        return "none"
    if not isinstance(given, Mapping):
        raise InputError(
            f"{variable}: {given!r} is neither none nor a mapping with a command", "PR-118"
        )
    return _CHECK.parse(given, f"{variable}.")


def _check_words(check: Mapping[str, t.Any] | str | None) -> list[str]:
    """Return the words of a health check for the program's `run`."""
    if check is None:
        return []
    if isinstance(check, str):
        return ["--no-healthcheck"]
    words, retries = [f"--health-cmd={check['command']}"], check["retries"]
    spans = {
        name: check[name]
        for name in ("interval", "timeout", "start_period")
        if check[name] is not None
    }
    words += [
        f"--health-{name.replace('_', '-')}={round(seconds * 1000)}ms"
        for name, seconds in spans.items()
    ]
    return words if retries is None else [*words, f"--health-retries={retries}"]


def _words(example: str) -> Kind:
    return Kind("list", functools.partial(_options.words, example=example), elements="str")


_NAME = _formed(r"\S+", "a name")
OPTIONS = Options(
    *_options.OPTIONS.fields,
    replace(_options.OPTIONS["env"], kind=Kind("dict", _environment)),
    Field(
        "image",
        Kind("str", _image),
        "The image, V(registry.example.com/shop:{revision}) or"
        " V(registry.example.com/shop@sha256:{revision}). It is pulled on every host before"
        " anything is touched, and must be the same everywhere.",
        required=True,
    ),
    Field(
        "pull", choice("missing", "always", "never"), "When the image is pulled.", default="missing"
    ),
    Field(
        "command",
        _words('["--verbose"]'),
        "Arguments after the image name. Without it, the image determines what runs.",
    ),
    Field(
        "container_port",
        PORT,
        "Port that the container listens on. It is published at the instance's address and port,"
        " and C(ADDRESS) and C(PORT) tell the program where to listen. Required unless"
        " C(network=host).",
    ),
    Field("network", _NAME, "The network, V(host) for the host's own."),
    Field("volumes", _words('["/srv/shop:/data:ro"]'), "Volumes, as C(--volume) takes them."),
    Field(
        "env_files",
        _words('["/etc/shop/{revision}.env"]'),
        "Files on the host, as C(--env-file) takes them.",
    ),
    Field("secrets", _words('["token"]'), "Secrets, as C(--secret) takes them."),
    Field("labels", Kind("dict", _labels), "Labels, as C(--label) takes them."),
    Field(
        "memory",
        _formed(r"\d+[bkmgBKMG]?", "bytes, or a number with k, m or g (512m)"),
        "Memory limit (V(512m)).",
    ),
    Field("cpus", _formed(r"\d+(\.\d+)?", "a number (1.5)"), "CPU limit (V(1.5))."),
    Field("pids", _formed(r"\d+", "a whole number"), "Limit on the number of processes."),
    Field("ulimits", Kind("dict", _ulimits), "Limits, as C(--ulimit) takes them."),
    Field("user", _NAME, "User, as C(--user) takes it."),
    Field("runtime", _NAME, "Runtime, as C(--runtime) takes it."),
    Field(
        "healthcheck",
        Kind("raw", _healthcheck, fields=_CHECK),
        "A check that the container engine itself runs, or V(none) to disable even the image's own."
        " The instance is not ready until it has passed.",
    ),
    Field(
        "restart",
        Kind("str", _restart),
        "What the container engine does with a container that has ended, V(no), V(on-failure),"
        " V(on-failure:3), V(unless-stopped) or V(always).",
        default="no",
    ),
    Field("stop_signal", _options.SIGNAL, "Signal that asks an instance to stop.", default="TERM"),
    Field(
        "keep_revisions",
        whole(0),
        "For how many revisions that no longer run each host keeps a stopped container, and with it"
        " the image. V(1) if not given, or V(0) with C(restart=always), which would start them"
        " again when the host boots.",
    ),
    Field(
        "args",
        Kind("list", _args, elements="str"),
        "Additional arguments for the container engine's C(run).",
    ),
)


class Containers(Hosts):
    """A service's containers on the hosts of `rollout_platform.hosts`."""

    _agent = "container"
    capabilities = Capabilities(host_options=(*_options.HOST_OPTIONS, "pull", "keep_revisions"))
    _program: str

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._image, self._pull = options["image"], options["pull"]
        self._command, self._network = options["command"] or [], options["network"] or ""
        self._port = _port(options["container_port"], options["network"])
        self._keep = _keep(options["keep_revisions"], options["restart"])
        self._flags = _flags(options)
        super().__init__(options, context)

    def log_source(self, id: str, host: str) -> Mapping[str, str]:
        return {"program": self._program, "container": id}

    def limits(self, kept: InstanceSettings | None = None) -> Limits:
        given = kept.of_part(self.context.part).platform if kept else self._options
        return Limits(_bytes(given.get("memory") or "0"), float(given.get("cpus") or 0))

    def _as_kept(self, kept: InstanceSettings) -> dict[str, t.Any]:
        """Return the options as they were kept, without `keep_revisions`.

        It is given beside the present `restart`, and may not fit the kept one.
        """
        return {**super()._as_kept(kept), "keep_revisions": None}

    def _common(self) -> dict[str, t.Any]:
        return {"program": self._program, "keep_revisions": self._keep}

    def _wanted(self, labels: Labels) -> dict[str, t.Any]:
        """Return what the agent needs to start a container.

        In its own network a container listens everywhere, at its own port; the endpoint is where
        others reach it.
        """
        wanted = super()._wanted(labels)
        if self._port:
            everywhere = "::" if ":" in labels.endpoint.address else "0.0.0.0"
            wanted["env"].update(ADDRESS=everywhere, PORT=str(self._port))
        return wanted

    def _order(self, labels: Labels, known: Mapping[str, str]) -> dict[str, t.Any]:
        return {
            "image": _options.fill(self._image, "rollout_platform.image", known),
            "options": [_options.fill(word, variable, known) for variable, word in self._flags],
            "command": [
                _options.fill(word, "rollout_platform.command", known) for word in self._command
            ],
            "container_port": self._port,
        }

    def _needs(self) -> dict[str, t.Any]:
        return {"program": self._program, "network": _options.fill_known(self._network, {})}

    def _artefacts(self, known: Mapping[str, str]) -> dict[str, t.Any]:
        filled = {
            name: [_options.fill_known(text, known) for text in self._options.get(name) or ()]
            for name in ("env_files", "secrets")  # docker has no secrets
        }
        return {
            "program": self._program,
            "image": _options.fill_known(self._image, known),
            "pull": self._pull,
            "env_files": [path for path in filled["env_files"] if path],
            "secrets": [secret.partition(",")[0] for secret in filled["secrets"] if secret],
            # so that the host itself can say that it was too long
            "timeout": max(1.0, self._prepare_timeout - 2),
        }

    def _prepare(self, revision: str) -> dict[str, dict[str, t.Any]]:
        """Refuse hosts that have different images by the same name: tags may move between pulls."""
        answers = super()._prepare(revision)
        images = {host: answer["image"] for host, answer in answers.items()}
        by_id: dict[str, list[str]] = {}
        for host, image in images.items():
            by_id.setdefault(image["id"], []).append(host)
        shared_digests = set.intersection(*(set(image["digests"]) for image in images.values()))
        if len(by_id) > 1 and not shared_digests:
            shown = "; ".join(f"{name[:12]} on {', '.join(hosts)}" for name, hosts in by_id.items())
            raise PlatformError(
                f"rollout_platform.image: {self._image!r} of {revision} is not the same image"
                f" everywhere ({shown}): its tag was moved between pulls; set rollout_platform.pull"
                " to always once, or name the image by its digest",
                "PR-206",
            )
        return answers


def _keep(value: int | None, restart: str) -> int:
    """Return of how many revisions a stopped container is kept.

    With `restart: always` it would be started again with its host.
    """
    always = restart == "always"
    if value and always:
        raise InputError(
            f"rollout_platform.keep_revisions: {value} stopped container(s) cannot be kept with"
            " restart: always, which starts them again with their host; leave keep_revisions out,"
            " or set rollout_platform.restart to no, on-failure or unless-stopped",
            "PR-107",
        )
    return int(not always) if value is None else value


def _bytes(memory: str) -> int:
    """Return the bytes of a size as the programs take it: 512m."""
    return int(memory.rstrip("bkmgBKMG")) * UNITS.get(memory[-1].lower(), 1)


def _port(port: int | None, network: str | None) -> int:
    """Return the port in the container; 0 with the host's network, where it is the instance's."""
    if network == "host" and port is not None:
        raise InputError(
            "rollout_platform.container_port: with network: host, instances listen at their own"
            " ports; leave it out",
            "PR-107",
        )
    if network != "host" and port is None:
        raise InputError(
            "rollout_platform.container_port: not given; give the port in the container, or set"
            " network: host",
            "PR-102",
        )
    return port or 0


def _flags(given: Mapping[str, t.Any]) -> list[tuple[str, str]]:
    """Return the words for the program's `run`, each with the variable that it comes from."""
    words = [("args", word) for word in given["args"] or ()]
    words += [
        (name, f"--{flag}={given[name]}") for name, flag in FLAGS.items() if given[name] is not None
    ]
    words += [
        (name, f"--{flag}={word}") for name, flag in LISTS.items() for word in given.get(name) or ()
    ]
    for name, flag in (("labels", "label"), ("ulimits", "ulimit")):
        words += [(name, f"--{flag}={key}={value}") for key, value in (given[name] or {}).items()]
    words += [("healthcheck", word) for word in _check_words(given["healthcheck"])]
    # of one that was removed since
    words.append(("pull", f"--pull={'never' if given['pull'] == 'never' else 'missing'}"))
    words += [
        ("restart", f"--restart={given['restart']}"),
        ("stop_signal", f"--stop-signal={given['stop_signal']}"),
    ]
    return [(f"rollout_platform.{name}", word) for name, word in words]
