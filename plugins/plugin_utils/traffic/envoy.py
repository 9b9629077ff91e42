# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Envoy, through files it watches (xDS) and its admin interface.

Each service gets a listener, a cluster and a file of endpoints; several services share one Envoy. An instance in
rotation is an endpoint HEALTHY, one out of rotation is DRAINING: health-checked, without new requests. An endpoint is
proven once Envoy's own health check has passed, the first time with the first check (`rise` counts after a failure).
What Envoy knows stands in the files, so a restarted Envoy comes back with the same table.

Start Envoy with a bootstrap like this one, where /var/lib/envoy is `path`, may be written to by the user that the
rollout becomes, and holds lds.json and cds.json with `{"resources": []}` in each before the first start:

    node: {id: edge, cluster: edge}
    admin: {address: {socket_address: {address: 127.0.0.1, port_value: 9901}}}
    dynamic_resources:
      lds_config:
        resource_api_version: V3
        path_config_source: {path: /var/lib/envoy/lds.json, watched_directory: {path: /var/lib/envoy}}
      cds_config:
        resource_api_version: V3
        path_config_source: {path: /var/lib/envoy/cds.json, watched_directory: {path: /var/lib/envoy}}
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError, TrafficError
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.options import (
    ADDRESS,
    LISTEN,
    PATH,
    TEXT,
    Field,
    Options,
    whole,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import Context
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import Endpoint
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import (
    Preview,
    Server,
    Table,
    Target,
    TrafficDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote import inventory
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.inventory import label
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic import _agents as agents
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic import _options as shared

OPTIONS = Options(
    Field("hosts", TEXT, "Inventory pattern of the Envoys' hosts. Without it Envoy is on the controller."),
    Field(
        "path",
        PATH,
        "Directory that Envoy watches. The rollout's user may write to it, and it belongs to the group that Envoy runs as.",
        required=True,
    ),
    Field("admin", ADDRESS, "Envoy's admin interface as seen from its host.", default="127.0.0.1:9901"),
    Field("listen", LISTEN, "Address and port that clients of the service connect to.", required=True),
    Field(
        "preview",
        LISTEN,
        "Another address and port, which lead only to the new instances of a rollout, from when they are ready to its end.",
    ),
    Field(
        "match",
        shared.MATCH,
        "Requests that carry this header or cookie go only to the new instances, from when they are ready to the end of the "
        "rollout, whatever the share. All others are divided as without it. While no new instance is healthy, they go where "
        "the others go.",
    ),
    Field(
        "mirror",
        shared.PERCENT,
        "Percentage of the requests that is sent to the new instances as well, as long as these get no other traffic. The "
        "answers are thrown away.",
    ),
    Field(
        "sticky",
        shared.STICKY,
        "Cookie that binds a client to its instance, as long as that is in rotation.",
    ),
    Field(
        "retry",
        whole(0, 10),
        "Number of other instances, one after the other, that a request is sent to when the first did not answer. Failed "
        "connections are retried for all requests, others only for C(GET) and C(HEAD).",
        default=3,
    ),
    shared.DRAIN_TIMEOUT,
)
PATIENCE = 5.0  # seconds an update may take to be shown; it takes milliseconds
TIMEOUT = 60.0  # seconds for one call of the agent; it gives up on Envoy long before
PLENTY = 1_000_000  # Envoy's default limits of 1024 requests and 3 retries at once would turn more of them away
UNSENT = "connect-failure,refused-stream,reset-before-request"  # when any request is sent again: no instance has seen it
UNANSWERED = f"{UNSENT},reset"  # when one that changes nothing is
HARMLESS = "GET|HEAD"  # the methods that change nothing
ENTRY = {**agents.ENTRY, "proven": bool, "requests": int, "errors": int}
EXTENSIONS = "type.googleapis.com/envoy.extensions.filters"


class Driver(TrafficDriver):
    """The Envoys of one service, kept in the same state."""

    counts = ("errors",)

    def __init__(self, options: Mapping[str, t.Any], context: Context, pool: str = "") -> None:
        """`pool`: which one of the service, if not the one of its clients."""
        self.options, self.context, self.transport = options, context, context.transport
        self.hosts = inventory.hosts_or_controller(self.transport, options["hosts"], "rollout_traffic.hosts")
        self.path, self.admin = options["path"], options["admin"]
        self.drain_timeout = options["drain_timeout"]
        self.preview, self.match, self.mirror = options["preview"], options["match"], options["mirror"] or 0
        listen = options["listen"]
        if self.preview == listen:
            raise InputError(
                f"rollout_traffic.preview: '{self.preview}' is where the service listens; give it an address or a port of its own"
            )
        service = context.service + pool
        clusters = [cluster(service, self.path, context.health)]
        if self.match:
            clusters.append(chain(f"{service}~match", [f"{service}~preview", service]))
        if self.mirror:
            clusters.append(chain(f"{service}~copies", [f"{service}~mirror"]))
        self.common = {
            "path": self.path,
            "admin": self.admin,
            "service": service,
            "owner": context.service,
            "clusters": clusters,
            "listeners": [
                listener(service, listen, routes(service, self.match, self.mirror, options["retry"]), options["sticky"] or "")
            ],
            "patience": PATIENCE + timeout(context.health),  # a cluster that changes is in use once checked
        }

    def previews(self) -> Sequence[Preview]:
        """Clusters of their own at the same Envoys: for `preview` and `match`, and for `mirror`.

        No service can have their names, as in `shop~preview`.
        """
        found = []
        if self.preview or self.match:
            found.append(Preview(self._apart("~preview", self.preview)))
        if self.mirror:
            found.append(Preview(self._apart("~mirror", None), idle_only=True))
        return found

    def _apart(self, pool: str, listen: values.SocketAddress | None) -> Driver:
        """The driver of a cluster of its own, and of a listener where it has an address."""
        nothing = dict.fromkeys(("preview", "match", "mirror", "sticky"))
        driver = Driver({**self.options, **nothing, "listen": listen or self.options["listen"]}, self.context, pool)
        if not listen:
            driver.common["listeners"] = []
        return driver

    def check(self) -> None:
        """Raise unless every Envoy is live and watches the directory, which we may write to. Touches nothing."""
        self._ask({host: {"op": "check"} for host in self.hosts})

    def observe(self) -> Table:
        """Every entry of the service, at every Envoy: one admin request each."""
        return table(self._ask({host: {"op": "observe"} for host in self.hosts}))

    def apply(self, targets: Mapping[str, Mapping[Endpoint, Target]]) -> Table:
        """Bring every Envoy that has targets to them: one call each, and one before where there are several, so that none
        is changed while another cannot be. The others are left alone: one can be put back while another does not answer."""
        asked: dict[str, dict[str, t.Any]] = {}
        for host in self.hosts:
            if label(host) in targets:
                mine = targets[label(host)]
                asked[host] = {"op": "apply", "entries": [entry(endpoint, mine[endpoint]) for endpoint in sorted(mine)]}
        if len(asked) > 1:
            self._ask({host: {**request, "dry": True} for host, request in asked.items()})
        return table(self._ask(asked))

    def _ask(self, requests: Mapping[str, Mapping[str, t.Any]]) -> dict[str, dict[str, t.Any]]:
        """What each Envoy's agent answers; raises for all that answer with an error."""
        common = {**self.common, "epoch": self.context.epoch}
        asked = {host: {**common, **request} for host, request in requests.items()}
        told = agents.read(self.transport.ask("envoy", asked, TIMEOUT), "Envoy", ENTRY)
        errors = []
        for host, value in told.items():
            if "error" in value:
                field = value.get("field")
                what = f"rollout_traffic.{field}: {str(self.path if field == 'path' else self.admin)!r}: " if field else ""
                errors.append(f"{what}Envoy on {label(host)} (admin {self.admin}): {value['error']}")
        if errors:
            raise TrafficError("; ".join(errors))
        return {label(host): value for host, value in told.items()}


def table(answers: Mapping[str, Mapping[str, t.Any]]) -> Table:
    """The agents' answers as the table of the contract."""
    return {
        host: {
            Endpoint(e["address"], e["port"]): Server(
                Rotation.IN if e["in"] else Rotation.OUT,
                e["proven"],
                e["active"],
                e["weight"],
                name=e["name"],
                requests=e["requests"],
                errors=e["errors"],
            )
            for e in answer["entries"]
        }
        for host, answer in answers.items()
    }


def entry(endpoint: Endpoint, target: Target) -> dict[str, t.Any]:
    """A target in the agent's words."""
    if target.weight < 1 and target.rotation is Rotation.IN:
        raise TrafficError(
            f"{endpoint} cannot be in rotation with weight {target.weight}: Envoy's least is 1; take it out instead"
        )
    return {
        "address": endpoint.address,
        "port": endpoint.port,
        "in": target.rotation is Rotation.IN,
        "weight": max(target.weight, 1),
        "name": target.name,
    }


def cluster(service: str, path: str, health: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The cluster: its members from the file of endpoints, checked as `rollout_health` says.

    A new or failing endpoint is checked every 100 ms. Endpoints that are taken out go at once although they are
    healthy; changes of health are passed on at once (Envoy would collect those of a second, while it shows them as
    done); all unhealthy means 503, not a try at any of them.
    """
    limits = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests", "max_retries"), PLENTY)
    return {
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": service,
        "type": "EDS",
        "connect_timeout": "2s",
        "eds_cluster_config": {
            "eds_config": {
                "resource_api_version": "V3",
                "path_config_source": {"path": f"{path}/eds-{service}.json", "watched_directory": {"path": path}},
            }
        },
        "ignore_health_on_host_removal": True,
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}, "update_merge_window": "0s"},
        "track_cluster_stats": {"per_endpoint_stats": True},
        "circuit_breakers": {"thresholds": [limits]},
        "health_checks": [health_check(health)],
    }


def chain(name: str, clusters: Sequence[str]) -> dict[str, t.Any]:
    """A cluster that is the first of these with anybody healthy. One that is not there, or not yet, has nobody."""
    return {
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": name,
        "connect_timeout": "2s",
        "lb_policy": "CLUSTER_PROVIDED",
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "cluster_type": {
            "name": "envoy.clusters.aggregate",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig",
                "clusters": list(clusters),
            },
        },
    }


def health_check(health: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """`rollout_health` in Envoy's words: HTTP where it says so, else that a connection is accepted."""
    interval = values.duration(health.get("interval") or "500ms", "rollout_health.interval", 0.01)
    quick = seconds(min(interval, 0.1))
    return {
        "interval": seconds(interval),
        "timeout": seconds(timeout(health)),
        "unhealthy_interval": quick,
        "no_traffic_interval": quick,
        "no_traffic_healthy_interval": seconds(interval),
        "healthy_threshold": int(health.get("rise") or 2),
        "unhealthy_threshold": int(health.get("fall") or 3),
        **({"http_health_check": http_check(health)} if health.get("http") else {"tcp_health_check": {}}),
    }


def timeout(health: Mapping[str, t.Any]) -> float:
    """How long a check may take, in seconds."""
    return values.duration(health.get("timeout") or "2s", "rollout_health.timeout", 0.01)


def http_check(health: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The GET that `rollout_health` asks for (a `body` cannot be compared here: the status decides)."""
    given = health.get("status") or "200-299"
    ranges = [str(item).split("-") for item in (given if isinstance(given, (list, tuple)) else [given])]
    headers = {str(name): str(text) for name, text in (health.get("headers") or {}).items()}
    host = [headers.pop(name) for name in list(headers) if name.lower() == "host"]
    return {
        "path": str(health["http"]),
        "host": host[0] if host else "",
        "expected_statuses": [{"start": int(one[0]), "end": int(one[-1]) + 1} for one in ranges],
        "request_headers_to_add": [
            {"header": {"key": name, "value": text}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
            for name, text in headers.items()
        ],
    }


def seconds(value: float) -> str:
    """A duration as Envoy writes it."""
    return f"{value:.3f}s"


def routes(service: str, match: shared.Match | None, mirror: int, retry: int) -> list[dict[str, t.Any]]:
    """Everything goes to the cluster, and takes as long as it takes; but for what shared. `mirror`: percent to be copied."""
    every: dict[str, t.Any] = {"cluster": service, "timeout": "0s"}
    if mirror:
        fraction = {"default_value": {"numerator": mirror, "denominator": "HUNDRED"}}
        every["request_mirror_policies"] = [{"cluster": f"{service}~copies", "runtime_fraction": fraction}]
    found = []
    if match is not None:
        text = {"safe_regex": {"regex": match.regex}} if match.cookie else {"exact": match.value}
        chosen = {"name": match.header, "string_match": text}
        found += repeated([chosen], {"cluster": f"{service}~match", "timeout": "0s"}, retry)
    return found + repeated([], every, retry)


def repeated(headers: Sequence[Mapping[str, t.Any]], action: Mapping[str, t.Any], retry: int) -> list[dict[str, t.Any]]:
    """The routes of requests with these headers, of which one that no instance answered is sent to another. A request that
    an instance may have seen is sent again only if its method changes nothing."""
    if not retry:
        return [{"match": {"prefix": "/", **({"headers": headers} if headers else {})}, "route": action}]
    harmless = {"name": ":method", "string_match": {"safe_regex": {"regex": HARMLESS}}}
    return [
        {
            "match": {"prefix": "/", **({"headers": wanted} if wanted else {})},
            "route": {**action, "retry_policy": retry_policy(condition, retry)},
        }
        for wanted, condition in (([*headers, harmless], UNANSWERED), ([*headers], UNSENT))
    ]


def retry_policy(condition: str, retry: int) -> dict[str, t.Any]:
    """So many further tries under this condition, at other instances than before."""
    kind = "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
    other = {"name": "envoy.retry_host_predicates.previous_hosts", "typed_config": {"@type": kind}}
    return {
        "retry_on": condition,
        "num_retries": retry,
        "retry_host_predicate": [other],
        "host_selection_retry_max_attempts": 5,  # looks for another one
    }


def binding(cookie: str) -> dict[str, t.Any]:
    """The filter that gives a client a cookie with its instance's address, and sends it there as long as that is in rotation."""
    state = {
        "@type": "type.googleapis.com/envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState",
        "cookie": {"name": cookie, "path": "/"},
    }
    session = {"name": "envoy.http.stateful_session.cookie", "typed_config": state}
    config = {"@type": f"{EXTENSIONS}.http.stateful_session.v3.StatefulSession", "session_state": session}
    return {"name": "envoy.filters.http.stateful_session", "typed_config": config}


def listener(service: str, listen: tuple[str, int], routes: Sequence[Mapping[str, t.Any]], cookie: str) -> dict[str, t.Any]:
    """The listener, with the routes of everything that comes in, and clients bound by a cookie if it has a name."""
    router = {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{EXTENSIONS}.http.router.v3.Router"}}
    manager = {
        "@type": f"{EXTENSIONS}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": service,
        "use_remote_address": True,
        "route_config": {
            "name": service,
            "validate_clusters": True,
            "virtual_hosts": [{"name": service, "domains": ["*"], "routes": routes}],
        },
        "http_filters": [binding(cookie), router] if cookie else [router],
    }
    return {
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": service,
        "address": {"socket_address": {"address": listen[0], "port_value": listen[1]}},
        "filter_chains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}],
    }
