# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the platforms `podman` and `docker` have in common, which is all but their names. `agents/container.py` does the work."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError, PlatformError
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import Context
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import InstanceSettings, Labels, Limits
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import _hosts

OPTIONS: dict[str, t.Any] = {
    **_hosts.OPTIONS,
    "image": {"type": "str", "required": True},
    "pull": {"type": "str", "default": "missing"},
    "command": {"type": "raw"},  # lists: Ansible would make one of a text with commas
    "container_port": {"type": "raw"},
    "network": {"type": "str"},
    "volumes": {"type": "raw"},
    "env_files": {"type": "raw"},
    "secrets": {"type": "raw"},
    "labels": {"type": "raw"},
    "memory": {"type": "raw"},
    "cpus": {"type": "raw"},
    "pids": {"type": "raw"},
    "ulimits": {"type": "raw"},
    "user": {"type": "raw"},
    "runtime": {"type": "str"},
    "healthcheck": {"type": "raw"},
    "restart": {"type": "str", "default": "no"},
    "stop_signal": {"type": "str", "default": "TERM"},
    "keep_revisions": {"type": "raw"},
    "args": {"type": "raw"},
}
PULL = ("missing", "always", "never")
AT_PREPARE = ("revision", "service", "host", "address")  # placeholders that are known when images are pulled
FLAGS = {"network": "network", "memory": "memory", "cpus": "cpus", "pids": "pids-limit", "user": "user", "runtime": "runtime"}
LISTS = {"volumes": "volume", "env_files": "env-file", "secrets": "secret"}
CHECK = ("command", "interval", "timeout", "start_period", "retries")
FORMS = {
    "memory": (re.compile(r"\d+[bkmgBKMG]?"), "bytes, or a number with k, m or g (512m)"),
    "cpus": (re.compile(r"\d+(\.\d+)?"), "a number (1.5)"),
    "pids": (re.compile(r"\d+"), "a whole number"),
    "restart": (
        re.compile(r"no|always|unless-stopped|on-failure(:\d+)?"),
        "no, on-failure, on-failure:3, unless-stopped or always",
    ),
    "ulimits": (re.compile(r"-1|\d+(:\d+)?"), "a number, or two: soft:hard"),
}
UNITS = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30}
OURS = "progressive.rollout."  # labels
REFUSED = {
    "--name": "containers are named by their instances",
    "--rm": "a container that is gone cannot say why it failed",
    "--restart": "use rollout_platform.restart",
}


class Containers(_hosts.Hosts):
    """A service's containers on the hosts of `rollout_platform.hosts`."""

    agent = "container"
    host_options = (*_hosts.HOST_OPTIONS, "pull", "keep_revisions")
    program: str

    def __init__(self, options: Mapping[str, t.Any], context: Context) -> None:
        given = {name: options.get(name, spec.get("default")) for name, spec in OPTIONS.items()}
        self._image = _image(given["image"])
        self._pull = _choice(given["pull"], "rollout_platform.pull", PULL)
        self._command = _words(given, "command")
        self._network = str(given["network"] or "")
        self._port = _port(given["container_port"], self._network)
        self._lists = {name: _words(given, name) for name in LISTS}
        self._keep = _keep(given["keep_revisions"], given["restart"])
        self._flags = _flags(given, self._lists, _hosts.stop_signal(given["stop_signal"]))
        super().__init__(given, context)
        _lines(self._env)

    def limits(self, kept: InstanceSettings | None = None) -> Limits:
        given = kept.platform if kept else self._options
        return Limits(_bytes(str(given.get("memory") or 0)), float(given.get("cpus") or 0))

    def _as_kept(self, kept: InstanceSettings) -> dict[str, t.Any]:
        """`keep_revisions` is given beside the present `restart`, and may not fit the one that is kept."""
        return {**super()._as_kept(kept), "keep_revisions": None}

    def _common(self) -> dict[str, t.Any]:
        return {"program": self.program, "keep_revisions": self._keep}

    def _wanted(self, labels: Labels) -> dict[str, t.Any]:
        """In its own network a container listens everywhere, at its own port; the endpoint is where others reach it."""
        wanted = super()._wanted(labels)
        if self._port:
            everywhere = "::" if ":" in labels.endpoint.address else "0.0.0.0"
            wanted["env"].update(ADDRESS=everywhere, PORT=str(self._port))
        return wanted

    def _order(self, labels: Labels, known: Mapping[str, str]) -> dict[str, t.Any]:
        return {
            "image": _hosts.fill(self._image, "rollout_platform.image", known),
            "options": [_hosts.fill(word, variable, known) for variable, word in self._flags],
            "command": [_hosts.fill(word, "rollout_platform.command", known) for word in self._command],
            "container_port": self._port,
        }

    def _needs(self) -> dict[str, t.Any]:
        return {"program": self.program, "network": _hosts.fill_known(self._network, {})}

    def _artefacts(self, known: Mapping[str, str]) -> dict[str, t.Any]:
        filled = {name: [_hosts.fill_known(text, known) for text in self._lists[name]] for name in ("env_files", "secrets")}
        return {
            "program": self.program,
            "image": _hosts.fill_known(self._image, known),
            "pull": self._pull,
            "env_files": [path for path in filled["env_files"] if path],
            "secrets": [secret.partition(",")[0] for secret in filled["secrets"] if secret],
            "timeout": max(1.0, self._prepare_timeout - 2),  # so that the host itself can say that it was too long
        }

    def _prepare(self, revision: str) -> dict[str, dict[str, t.Any]]:
        """Refused where hosts have different images by the same name: a tag may move between two pulls."""
        answers = super()._prepare(revision)
        images = {host: answer["image"] for host, answer in answers.items()}
        by_id: dict[str, list[str]] = {}
        for host, image in images.items():
            by_id.setdefault(image["id"], []).append(host)
        alike = set.intersection(*(set(image["digests"]) for image in images.values()))
        if len(by_id) > 1 and not alike:
            shown = "; ".join(f"{name[:12]} on {', '.join(hosts)}" for name, hosts in by_id.items())
            raise PlatformError(
                f"rollout_platform.image: {self._image!r} of {revision} is not the same image everywhere ({shown}): its tag was "
                "moved between pulls; set rollout_platform.pull to always once, or name the image by its digest"
            )
        return answers


def _words(given: Mapping[str, t.Any], name: str) -> list[str]:
    examples = {"secrets": '["token"]', "volumes": '["/srv/shop:/data:ro"]', "env_files": '["/etc/shop/{revision}.env"]'}
    value = given[name]
    return [] if value is None else _hosts.words(value, f"rollout_platform.{name}", examples.get(name, '["--verbose"]'))


def _choice(value: t.Any, variable: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise InputError(f"{variable}: {value!r} must be one of {', '.join(choices)}")
    return str(value)


def _keep(value: t.Any, restart: t.Any) -> int:
    """Of how many revisions a stopped container is kept. With `restart: always` it would be started again with its host."""
    always = restart == "always"
    usual = 0 if always else 1
    keep = usual if value is None else values.whole(value, "rollout_platform.keep_revisions", 0)
    if keep and always:
        raise InputError(
            f"rollout_platform.keep_revisions: {keep} stopped container(s) cannot be kept with restart: always, which starts them again "
            "with their host; leave keep_revisions out, or set rollout_platform.restart to no, on-failure or unless-stopped"
        )
    return keep


def _bytes(memory: str) -> int:
    """Of a size as the programs take it: 512m."""
    return int(memory.rstrip("bkmgBKMG")) * UNITS.get(memory[-1].lower(), 1)


def _image(value: t.Any) -> str:
    image = _hosts.text(value, "rollout_platform.image")
    _hosts.fill(image, "rollout_platform.image")
    if not image or image.startswith("-") or re.search(r"\s", image):
        raise InputError(f'rollout_platform.image: {image!r} is not an image; write "registry.example.com/shop:{{revision}}"')
    if not _hosts.fill_known(image, dict.fromkeys(AT_PREPARE, "x")):
        names = ", ".join(f"{{{name}}}" for name in AT_PREPARE)
        raise InputError(f"rollout_platform.image: {image!r} has to be known before instances are; it may have {names}")
    return image


def _port(value: t.Any, network: str) -> int:
    """The port in the container; 0 with the host's network, where it is the instance's own."""
    if network == "host" and value is not None:
        raise InputError("rollout_platform.container_port: with network: host, instances listen at their own ports; leave it out")
    if network != "host" and value is None:
        raise InputError("rollout_platform.container_port: not given; say where the container listens, or set network: host")
    return 0 if value is None else values.port(value, "rollout_platform.container_port")


def _lines(env: Mapping[str, str]) -> None:
    """Values may be secrets: no message may show one."""
    for name, value in env.items():
        if re.search(r"\s", name) or name.startswith("#"):
            raise InputError(f"rollout_platform.env: {name!r} cannot be the name of an environment variable")
        if "\n" in value or "\r" in value:
            raise InputError(f"rollout_platform.env.{name}: a container's variable has one line; give it as a file (volumes)")


def _flags(given: Mapping[str, t.Any], lists: Mapping[str, list[str]], stop_signal: str) -> list[tuple[str, str]]:
    """The words for the program's `run`, each with the variable that it comes from."""
    words = [("args", word) for word in _args(given)]
    words += [(name, f"--{flag}={_form(given[name], name)}") for name, flag in FLAGS.items() if given[name] is not None]
    words += [(name, f"--{flag}={word}") for name, flag in LISTS.items() for word in lists[name]]
    for name, flag in (("labels", "label"), ("ulimits", "ulimit")):
        words += [(name, f"--{flag}={key}={value}") for key, value in _mapping(given, name).items()]
    words += [("healthcheck", word) for word in _healthcheck(given["healthcheck"])]
    words.append(("pull", f"--pull={'never' if given['pull'] == 'never' else 'missing'}"))  # of one that was removed since
    words += [("restart", f"--restart={_form(given['restart'], 'restart')}"), ("stop_signal", f"--stop-signal={stop_signal}")]
    found = [(f"rollout_platform.{name}", word) for name, word in words]
    for variable, word in found:
        _hosts.fill(word, variable)
    return found


def _args(given: Mapping[str, t.Any]) -> list[str]:
    words = _words(given, "args")
    for word in words:
        why = REFUSED.get(word.partition("=")[0])
        if why:
            raise InputError(f"rollout_platform.args: {word!r} cannot be given: {why}")
    return words


def _form(value: t.Any, name: str) -> str:
    """A value's text, which has to look as its setting wants it."""
    text = str(value) if isinstance(value, float) else _hosts.text(value, f"rollout_platform.{name}")
    pattern, hint = FORMS.get(name, (re.compile(r"\S+"), "a name"))
    if not pattern.fullmatch(text):
        raise InputError(f"rollout_platform.{name}: {value!r} is not what it should be; write {hint}")
    return text


def _mapping(given: Mapping[str, t.Any], name: str) -> dict[str, str]:
    found = given[name] if given[name] is not None else {}
    variable = f"rollout_platform.{name}"
    if not isinstance(found, Mapping) or not all(isinstance(key, str) and re.fullmatch(r"[^\s=]+", key) for key in found):
        raise InputError(f"{variable}: {found!r} is not a mapping of names to values")
    taken = [key for key in found if name == "labels" and key.startswith(OURS)]
    if taken:
        raise InputError(f"{variable}: {taken[0]!r} cannot be given: labels that begin with {OURS} are ours")
    check = _form if name == "ulimits" else _hosts.text
    return {key: check(value, name if name == "ulimits" else f"{variable}.{key}") for key, value in found.items()}


def _healthcheck(given: t.Any) -> list[str]:
    if given is None:
        return []
    variable = "rollout_platform.healthcheck"
    if given is False or given == "none":
        return ["--no-healthcheck"]
    if not isinstance(given, Mapping) or "command" not in given:
        raise InputError(f"{variable}: {given!r} is neither none nor a mapping with a command")
    values.refuse_unknown(given, CHECK, f"{variable}.")
    words = [f"--health-cmd={_hosts.text(given['command'], f'{variable}.command')}"]
    for name in ("interval", "timeout", "start_period"):
        if name in given:
            seconds = values.duration(given[name], f"{variable}.{name}")
            words.append(f"--health-{name.replace('_', '-')}={round(seconds * 1000)}ms")
    if "retries" in given:
        words.append(f"--health-retries={values.whole(given['retries'], f'{variable}.retries', 1)}")
    return words
