# SPDX-License-Identifier: GPL-3.0-or-later
"""Envoy, through files it watches (xDS) and its admin interface.

Each service gets a listener, a cluster and a file of endpoints; several services share one Envoy.
An instance in rotation is an endpoint HEALTHY, one out of rotation is DRAINING: health-checked,
without new requests. An endpoint is proven once Envoy's own health check has passed, the first time
with the first check (`rise` counts after a failure). What Envoy knows is in the files, so a
restarted Envoy comes back with the same table.

Start Envoy with a bootstrap like this one, where /var/lib/envoy is `path`, may be written to by the
user that the rollout becomes, and holds lds.json and cds.json with `{"resources": []}` in each
before the first start:

    node: {id: edge, cluster: edge}
    admin: {address: {socket_address: {address: 127.0.0.1, port_value: 9901}}}
    dynamic_resources:
      lds_config:
        resource_api_version: V3 path_config_source: {path: /var/lib/envoy/lds.json,
        watched_directory: {path: /var/lib/envoy}}
      cds_config:
        resource_api_version: V3 path_config_source: {path: /var/lib/envoy/cds.json,
        watched_directory: {path: /var/lib/envoy}}
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Collection, Mapping, Sequence

from ..base.errors import InputError, TrafficError
from ..engine.model import Rotation
from ..inputs import values
from ..inputs.options import ADDRESS, LISTEN, PATH, TEXT, Field, Options, whole
from ..interfaces.context import DriverContext
from ..interfaces.platform import Endpoint
from ..interfaces.traffic import Preview, Server, Table, Target, TrafficDriver
from ..remote import inventory
from ..remote.inventory import label
from . import _agents as agents
from . import _cohorts as cohorts
from . import _envoy_cohort as sides
from . import _envoy_config as config
from . import _options as shared

OPTIONS = Options(
    Field(
        "hosts",
        TEXT,
        "Inventory pattern of the Envoy hosts. Without it, Envoy is on the controller.",
    ),
    Field(
        "path",
        PATH,
        "Directory that Envoy watches. The rollout's user must be able to write to it, and it must"
        " belong to the group that Envoy runs as.",
        required=True,
    ),
    Field(
        "admin", ADDRESS, "Envoy's admin interface as seen from its host.", default="127.0.0.1:9901"
    ),
    Field(
        "listen", LISTEN, "Address and port that clients of the service connect to.", required=True
    ),
    Field(
        "preview",
        LISTEN,
        "Another address and port that lead only to the new instances of a rollout, from the time"
        " they are ready until the rollout ends.",
    ),
    Field(
        "match",
        shared.MATCH,
        "Requests that carry this header or cookie go only to the new instances, from the time they"
        " are ready until the rollout ends, whatever the share. All other requests are divided as"
        " they would be without it. While no new instance is healthy, matching requests go where"
        " the others go.",
    ),
    Field(
        "mirror",
        shared.PERCENT,
        "Percentage of requests that are also sent to the new instances, as long as these get no"
        " other traffic. The answers are discarded.",
    ),
    Field(
        "sticky",
        shared.STICKY,
        "Cookie that binds a client to its instance, as long as the instance is in rotation.",
    ),
    Field(
        "retry",
        whole(0, 10),
        "Number of other instances that a request is sent to, one after the other, if the first did"
        " not answer. Failed connections are retried for all requests, other failures only for"
        " C(GET) and C(HEAD).",
        default=3,
    ),
    Field(
        "ca_path",
        shared.PLAIN_PATH,
        "File on the Envoy hosts with the CA certificates that the instances' certificates are"
        " verified against (O(health.tls)).",
    ),
    shared.COHORT,
    shared.DRAIN_TIMEOUT,
    shared.ACCESS_LOG,
)
PATIENCE = 5.0  # seconds an update may take to be shown; it takes milliseconds
TIMEOUT = 60.0  # seconds for one call of the agent; it gives up on Envoy long before
# Its routes have no timeout, and retries and aborts are counted of a cluster alone.
COUNTED = ("errors", "connect_failures")
ENTRY = {
    **agents.ENTRY,
    "proven": bool,
    "apart": bool,
    "requests": int,
    **dict.fromkeys(COUNTED, int),
}


class Driver(TrafficDriver):
    """The Envoys of one service, kept in the same state."""

    counts = COUNTED
    shares_check = True

    def __init__(
        self, options: Mapping[str, t.Any], context: DriverContext, pool: str = ""
    ) -> None:
        """Take the options; `pool` names a pool of the service other than that of its clients."""
        self.options, self.context, self.transport = options, context, context.transport
        self.hosts = inventory.hosts_or_controller(
            self.transport, options["hosts"], "rollout_traffic.hosts"
        )
        self.path, self.admin = options["path"], options["admin"]
        self.drain_timeout = options["drain_timeout"]
        self.preview = options["preview"]
        self.match = options["match"] or ()
        self.mirror = options["mirror"] or 0
        self.listen = listen = options["listen"]
        if self.preview == listen:
            raise InputError(
                f"rollout_traffic.preview: '{self.preview}' is where the service listens; give it"
                " an address or a port of its own",
                "PR-126",
            )
        self.cohort = options["cohort"]
        if self.cohort and options["sticky"]:
            raise InputError(
                "rollout_traffic.sticky: binds clients to an instance, and rollout_traffic.cohort"
                " to a side; remove one of them",
                "PR-126",
            )
        self.instead_of_adopting = (
            "; give rollout_traffic.listen a port of its own, roll out there beside what runs, and"
            " move the clients to it"
        )
        self.service = service = context.service + pool
        self.pool_name = f"cluster {service}"
        cluster = config.cluster(service, self.path, context.health, self._ca_path())
        clusters = [{**cluster, **sides.SUBSETS} if self.cohort else cluster]
        if self.match:
            clusters.append(config.chain(f"{service}~match", [f"{service}~preview", service]))
        if self.mirror:
            clusters.append(config.chain(f"{service}~copies", [f"{service}~mirror"]))
        self.common = {
            "path": self.path,
            "admin": self.admin,
            "service": service,
            "owner": context.service,
            "clusters": clusters,
            "check_port": context.health.port,
            "routes": [],
            "listeners": [
                config.listener(
                    service,
                    listen,
                    {"rds": config.subscription(service, self.path)}
                    if self.cohort
                    else {"route_config": self._routes(0)},
                    options["sticky"] or "",
                    options["access_log"],
                )
            ],
            # a cluster that changes is in use once checked
            "patience": PATIENCE + context.health.timeout,
        }

    def _routes(self, share: int) -> dict[str, t.Any]:
        """Return the routes; `share`: the part of the clients whose side is apart."""
        target = (
            sides.action(self.service, self.cohort, share)
            if self.cohort
            else {"cluster": self.service}
        )
        retry = self.options["retry"]
        return config.routes(self.service, self.match, self.mirror, retry, target)

    def _ca_path(self) -> str:
        """Return the file with the CA of the instances, "" if they are not verified."""
        health, ca_path = self.context.health, self.options["ca_path"]
        if not (health.tls and health.validate_certs):
            return ""
        shared.certificate_name(health)
        if not ca_path:
            raise InputError(
                "rollout_traffic.ca_path: required to verify the certificates of instances"
                " (rollout_health.tls); name the file with their CA on the Envoys' hosts, or set"
                " rollout_health.validate_certs: false",
                "PR-102",
            )
        return str(ca_path)

    def previews(self) -> Sequence[Preview]:
        """Return other clusters at the same Envoys: for `preview` and `match`, and for `mirror`.

        No service can have their names, as in `shop~preview`.
        """
        pools = []
        if self.preview or self.match:
            pools.append(Preview(self._apart("~preview", self.preview)))
        if self.mirror:
            pools.append(Preview(self._apart("~mirror", None), idle_only=True))
        return pools

    def _apart(self, pool: str, listen: values.SocketAddress | None) -> Driver:
        """Return a driver for a separate cluster, with a listener where it has an address."""
        nothing = dict.fromkeys(("preview", "mirror", "sticky", "cohort"))
        driver = Driver(
            {**self.options, **nothing, "match": (), "listen": listen or self.options["listen"]},
            self.context,
            pool,
        )
        if not listen:
            driver.common["listeners"] = []
        return driver

    def check(self) -> None:
        """Raise unless every Envoy is live and watches the directory, which can be written to.

        Touch nothing.
        """
        answers = self._ask({host: {"op": "check"} for host in self.hosts})
        if self.cohort:
            _recent(answers)
        owners = {host: value.get("journal") for host, value in answers.items()}
        files = f"{self.path}/{self.context.service}.journal"
        self.context.known().journal.refuse_others(owners, "entries at Envoys", files)

    def leave(self, dry: bool) -> Sequence[str]:
        from ..remote import leaving  # a service is removed once

        stem = f"{self.path}/{self.context.service}"
        places = {host: [leaving.at_stem(stem, ())] for host in self.hosts}
        run = {**self.context.known().fencing, "dry": dry}
        return leaving.leave(self.transport, places, run, TrafficError)

    def observe(self) -> Table:
        """Return every entry of the service, at every Envoy: one admin request each."""
        return table(self._ask({host: {"op": "observe"} for host in self.hosts}))

    def apply(self, targets: Mapping[str, Mapping[Endpoint, Target]]) -> Table:
        """Bring every Envoy that has targets to them, with one call each.

        Where there are several, a call before tells whether each can be changed, so that none is
        changed while another cannot be, and with a cohort which side is apart. The others are left
        alone: an Envoy can be put back while another does not answer.
        """
        mine = {host: targets[label(host)] for host in self.hosts if label(host) in targets}
        asked = {host: _work(wanted, ()) for host, wanted in mine.items()}
        if len(asked) > 1 or self.cohort:
            seen = self._ask({host: {**work, "dry": True} for host, work in asked.items()})
        if self.cohort:
            asked = {host: self._divided(wanted, seen) for host, wanted in mine.items()}
        return table(self._ask(asked))

    def _divided(
        self, wanted: Mapping[Endpoint, Target], seen: Mapping[str, Mapping[str, t.Any]]
    ) -> dict[str, t.Any]:
        """Return what one Envoy is asked for; all of them have the same side apart."""
        apart = [item for answer in seen.values() for item in answer["entries"] if item["apart"]]
        known = {Endpoint(item["address"], item["port"]) for item in apart}
        serving = {Endpoint(item["address"], item["port"]) for item in apart if item["in"]}
        chosen = cohorts.apart(wanted, serving, known)
        routes = self._routes(cohorts.part(wanted, chosen))
        return {**_work(wanted, chosen), "routes": [{"@type": config.ROUTES, **routes}]}

    def _ask(self, requests: Mapping[str, Mapping[str, t.Any]]) -> dict[str, dict[str, t.Any]]:
        """Return what each Envoy's agent answers; raise for all that answer with an error."""
        common = {**self.common, **self.context.known().fencing}
        asked = {host: {**common, **request} for host, request in requests.items()}
        answers = agents.read(self.transport.ask("envoy", asked, TIMEOUT), "Envoy", ENTRY)
        errors = []
        for host, value in answers.items():
            if "error" in value:
                field = value.get("field")
                given = {"path": self.path, "admin": self.admin, "listen": self.listen}
                what = f"rollout_traffic.{field}: {str(given[field])!r}: " if field else ""
                errors.append(
                    f"{what}Envoy on {label(host)} (admin {self.admin}): {value['error']}"
                )
        if errors:
            raise TrafficError("; ".join(errors), agents.id_of(answers))
        return {label(host): value for host, value in answers.items()}


def _recent(answers: Mapping[str, Mapping[str, t.Any]]) -> None:
    """Raise for an Envoy that divides requests only."""
    for host, answer in answers.items():
        version = re.search(r"/(\d+)\.(\d+)\.", str(answer.get("version")))
        if version and (int(version[1]), int(version[2])) < sides.LEAST:
            least = ".".join(map(str, sides.LEAST))
            raise TrafficError(
                f"rollout_traffic.cohort: Envoy on {host} is {version[0].strip('/.')}, which"
                f" divides requests only; use {least} or newer, or remove the option",
                "PR-302",
            )


def _work(wanted: Mapping[Endpoint, Target], chosen: Collection[Endpoint]) -> dict[str, t.Any]:
    """Return a change of the entries; the chosen ones are apart."""
    entries = [
        {**entry(endpoint, wanted[endpoint]), "apart": endpoint in chosen}
        for endpoint in sorted(wanted)
    ]
    return {"op": "apply", "entries": entries}


def table(answers: Mapping[str, Mapping[str, t.Any]]) -> Table:
    """Return the agents' answers as the table of the contract."""
    return {
        host: {
            Endpoint(e["address"], e["port"]): Server(
                Rotation.IN if e["in"] else Rotation.OUT,
                e["proven"],
                e["active"],
                e["weight"],
                name=e["name"],
                requests=e["requests"],
                **{name: e[name] for name in COUNTED},
            )
            for e in answer["entries"]
        }
        for host, answer in answers.items()
    }


def entry(endpoint: Endpoint, target: Target) -> dict[str, t.Any]:
    """Return a target in the agent's terms."""
    if target.weight < 1 and target.rotation is Rotation.IN:
        raise TrafficError(
            f"{endpoint} cannot be in rotation with weight {target.weight}: Envoy's least is 1;"
            " take it out instead",
            "PR-310",
        )
    return {
        "address": endpoint.address,
        "port": endpoint.port,
        "in": target.rotation is Rotation.IN,
        "weight": max(target.weight, 1),
        "name": target.name,
    }
