# SPDX-License-Identifier: GPL-3.0-or-later
"""What users write of containers becomes arguments, or is refused with the variable's name;
nobody is asked.
"""

from __future__ import annotations

import typing as t

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import container
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces import loader
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    InstanceSettings,
    Labels,
    PlatformDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import docker, podman
from ansible_collections.progressive.rollout.tests.support.contexts import Knows, tell
from ansible_collections.progressive.rollout.tests.support.pages import SNIPPETS

LEAST = {"hosts": "all", "ports": "8100", "image": "shop:{revision}", "container_port": 80}


class Inventory:
    """A transport that knows two hosts and asks nobody."""

    def hosts(self, _pattern: str) -> list[str]:
        return ["web1", "web2"]

    def address(self, _host: str) -> str:
        return "10.0.0.1"


def driver(module: t.Any = podman, part: str = "", **options: t.Any) -> t.Any:
    return module.Driver(
        module.OPTIONS.parse({**LEAST, **options}, "rollout_platform."),
        DriverContext("shop", t.cast(t.Any, Inventory()), part=part, known=Knows()),
    )


def order(**options: t.Any) -> dict[str, t.Any]:
    """What the agent would be sent to start an instance."""
    return t.cast(
        "dict[str, t.Any]",
        driver(**options)._wanted(
            Labels("shop-3", "shop", "1.2", 7, "web1", Endpoint("10.0.0.1", 8100), 4)
        ),
    )


def test_the_guides_example() -> None:
    options = yaml.safe_load(SNIPPETS["docs/how-to/containers.md"]["containers.yml"])[
        "rollout_platform"
    ]
    assert options.pop("driver") == "podman"
    assert driver(**options).capacity() == 100


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"args": ["--init", "--dns={address}"]}, ["--init", "--dns=10.0.0.1"]),
        ({"network": "blue", "runtime": "runc"}, ["--network=blue", "--runtime=runc"]),
        (
            {"memory": "512m", "cpus": 1.5, "pids": 100},
            ["--memory=512m", "--cpus=1.5", "--pids-limit=100"],
        ),
        ({"user": 1000}, ["--user=1000"]),
        ({"volumes": ["/srv/{slot}:/data", "a:/b"]}, ["--volume=/srv/4:/data", "--volume=a:/b"]),
        ({"env_files": ["/etc/{revision}.env"]}, ["--env-file=/etc/1.2.env"]),
        ({"secrets": ["token,uid=1"]}, ["--secret=token,uid=1"]),
        ({"labels": {"team": "{service}"}}, ["--label=team=shop"]),
        (
            {"ulimits": {"nofile": "10:20", "core": -1}},
            ["--ulimit=nofile=10:20", "--ulimit=core=-1"],
        ),
        ({"healthcheck": False}, ["--no-healthcheck"]),
        ({"healthcheck": "none"}, ["--no-healthcheck"]),
        (
            {
                "healthcheck": {
                    "command": "curl :{port}",
                    "interval": "1.5s",
                    "start_period": 0,
                    "retries": 2,
                }
            },
            [
                "--health-cmd=curl :8100",
                "--health-interval=1500ms",
                "--health-start-period=0ms",
                "--health-retries=2",
            ],
        ),
    ],
)
def test_options_become_arguments(options: dict[str, t.Any], words: list[str]) -> None:
    always = ["--pull=missing", "--restart=no", "--stop-signal=TERM"]
    assert order(**options)["options"] == [*words, *always]


def test_pulling_restarts_and_signals() -> None:
    given = order(pull="never", restart="on-failure:3", stop_signal="sigint")
    assert given["options"] == ["--pull=never", "--restart=on-failure:3", "--stop-signal=INT"]


def test_where_an_instance_is_to_listen() -> None:
    inside = order(env={"WHERE": "{address}:{port}", "PORT": "1"}, command=["--slot", "{slot}"])
    assert inside["image"] == "shop:1.2"
    assert inside["command"] == ["--slot", "4"]
    assert (
        inside["env"].items()
        >= {
            "WHERE": "10.0.0.1:8100",
            "ADDRESS": "0.0.0.0",
            "PORT": "80",
            "REVISION": "1.2",
        }.items()
    )
    on_host = order(network="host", container_port=None)
    assert on_host["container_port"] == 0
    assert on_host["env"].items() >= {"ADDRESS": "10.0.0.1", "PORT": "8100"}.items()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image": ""}, "image: not given, but required"),
        ({"image": "shop 1"}, "image: 'shop 1' is not an image"),
        ({"image": "--privileged"}, "image: '--privileged' is not an image"),
        (
            {"image": "shop:{slot}"},
            (
                r"image: 'shop:\{slot\}' has to be known before instances are; it may have"
                r" \{revision\}"
            ),
        ),
        ({"image": "shop:{version}"}, "image: unknown placeholder"),
        ({"pull": "newer"}, "pull: 'newer' must be one of missing, always, never"),
        ({"command": "run"}, "command: expected a list, got str"),
        ({"command": [["run"]]}, "command: expected a string, got list"),
        ({"container_port": None}, "container_port: not given"),
        ({"container_port": "http"}, "container_port: 'http' is not a port"),
        ({"network": "host"}, "container_port: with network: host, .*leave it out"),
        (
            {"volumes": "/a:/b"},
            r"volumes: expected a list, got str; write \[\"/srv/shop:/data:ro\"\]",
        ),
        (
            {"memory": "lots"},
            "memory: 'lots' is not valid; write bytes, or a number with k, m or g",
        ),
        ({"cpus": "-1"}, "cpus: '-1' is not valid"),
        ({"pids": True}, "pids: expected a string, got bool"),
        ({"user": "shop run"}, "user: 'shop run' is not valid; write a name"),
        ({"labels": ["a=b"]}, r"labels: expected a mapping, got list"),
        ({"labels": {"a b": "c"}}, "labels: .* is not a name"),
        (
            {"labels": {"progressive.rollout.id": "x"}},
            "labels: 'progressive.rollout.id' cannot be given",
        ),
        (
            {"ulimits": {"nofile": "many"}},
            "ulimits.nofile: 'many' is not valid; write a number, or two",
        ),
        (
            {"healthcheck": "curl"},
            "healthcheck: 'curl' is neither none nor a mapping with a command",
        ),
        ({"healthcheck": {"command": "x", "every": 1}}, "healthcheck.every: unknown option"),
        (
            {"healthcheck": {"command": "x", "interval": "often"}},
            "healthcheck.interval: 'often' is not a duration",
        ),
        ({"restart": "sometimes"}, "restart: 'sometimes' is not valid; write no, on-failure"),
        ({"keep_revisions": "some"}, "keep_revisions: 'some'"),
        (
            {"keep_revisions": 2, "restart": "always"},
            "keep_revisions: 2 .*always.*; leave keep_revisions out, or set .*restart to no",
        ),
        ({"stop_signal": "NICE"}, "stop_signal: 'NICE' is not a signal"),
        (
            {"args": ["--name=shop"]},
            "args: '--name=shop' cannot be given: containers are named by their instances",
        ),
        (
            {"args": ["--rm"]},
            "args: '--rm' cannot be given: a container that is gone cannot say why it failed",
        ),
        ({"env": {"A B": "x"}}, "env: 'A B' cannot be the name of an environment variable"),
        (
            {"env": {"KEY": "s3cret\nline"}},
            "env.KEY: a container's variable has one line; give it as a file",
        ),
    ],
)
def test_what_is_wrong_is_refused(options: dict[str, t.Any], message: str) -> None:
    with pytest.raises(InputError, match=rf"^rollout_platform\.{message}") as caught:
        driver(**options)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, 1),
        ({"keep_revisions": 3, "restart": "unless-stopped"}, 3),
        ({"restart": "always"}, 0),
        ({"restart": "always", "keep_revisions": 0}, 0),
    ],
)
def test_of_how_many_revisions_a_stopped_container_is_kept(
    options: dict[str, t.Any], kept: int
) -> None:
    assert driver(**options)._common()["keep_revisions"] == kept


def test_a_part_of_a_platform_takes_its_own_of_the_settings_that_were_kept() -> None:
    of_hosts = podman.Driver.capabilities.host_options or ()
    before = {name: value for name, value in LEAST.items() if name not in of_hosts}
    mine = {
        f"parts.vms.{name}": its
        for name, its in {**before, "memory": "1g", "driver": "podman"}.items()
    }
    kept = InstanceSettings("several", {**mine, "parts.cloud.memory": "8g"}, {}, key="salted")
    part = driver(part="vms", memory="2g")
    assert (part.limits().memory, part.limits(kept).memory) == (2 * 2**30, 2**30)
    hidden = {"platform": {"parts.vms.env": {"A": "1"}, "parts.cloud.env": {"A": "2"}}}
    part.context.secrets["salted"] = hidden
    tell(part, settings={7: kept})
    assert part._starter(7)._env == {"A": "1"} and part._starter(7).limits().memory == 2**30


def test_a_revision_that_ran_with_restart_always_starts_beside_a_keep_revisions_given_since() -> (
    None
):
    present = driver(restart="no", keep_revisions=2)
    of_hosts = present.capabilities.host_options or ()
    before = {name: value for name, value in LEAST.items() if name not in of_hosts}
    tell(present, settings={7: InstanceSettings("podman", {**before, "restart": "always"}, {})})
    wanted = present._starter(7)._wanted(
        Labels("shop-3", "shop", "1.2", 7, "web1", Endpoint("10.0.0.1", 8100), 4)
    )
    assert "--restart=always" in wanted["options"]
    assert present._common()["keep_revisions"] == 2


def test_docker_has_no_secrets() -> None:
    driver(docker)
    with pytest.raises(
        InputError, match=r"^rollout_platform\.secrets: docker has secrets only in a swarm"
    ):
        loader.load(PlatformDriver, "docker", "rollout_platform").check(
            {**LEAST, "secrets": ["token"]}, "rollout_platform"
        )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-21T16:33:05.310290597Z", 1795278785.310290597),
        ("2026-11-21T17:33:05+01:00", 1795278785),
        ("2026-11-21T12:03:05.5-04:30", 1795278785.5),
        ("", 0),
    ],
)
def test_times_as_the_programs_write_them(text: str, seconds: float) -> None:
    assert container._seconds(text) == pytest.approx(seconds, abs=1e-5)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("Error: localhost/shop:9: image not known\n", "localhost/shop:9: image not known"),
        (
            (
                "docker: Error response from daemon: No such image: shop:9.\nSee 'docker run"
                " --help'.\n"
            ),
            "No such image: shop:9.",
        ),
        ("", "it said nothing"),
    ],
)
def test_what_a_program_said_last(said: str, why: str) -> None:
    assert container._why(said) == why


@pytest.mark.parametrize(
    ("state", "signal", "killed"),
    [
        ({"ExitCode": 137, "OOMKilled": False}, "SIGTERM", True),
        ({"ExitCode": 137}, 15, True),  # as podman 4 has it
        ({"ExitCode": 137, "OOMKilled": True}, "SIGTERM", False),
        ({"ExitCode": 143}, "SIGTERM", False),
        ({"ExitCode": 137}, "SIGKILL", False),
        ({"ExitCode": 137}, 9, False),
    ],
)
def test_whether_the_programs_stop_has_killed_it(
    state: dict[str, t.Any], signal: str | int, killed: bool
) -> None:
    """Under load, before the next call can."""
    assert container._killed({"State": state, "Config": {"StopSignal": signal}}) is killed
    assert not container._killed(None)
