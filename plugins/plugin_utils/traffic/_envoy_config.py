# SPDX-License-Identifier: GPL-3.0-or-later
"""Envoy's clusters, listeners and health checks, rendered. Pure.

https://www.envoyproxy.io/docs/envoy/latest/api-v3/api
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ..interfaces.check import HealthCheck, HttpRequest
from . import _options as shared

# Envoy's default limits of 1024 requests and 3 retries at once would turn more of them away
PLENTY = 1_000_000
# any request is retried: no instance has seen it
UNSENT = "connect-failure,refused-stream,reset-before-request"
UNANSWERED = f"{UNSENT},reset"  # safe requests are retried
HARMLESS = "GET|HEAD"  # the safe methods
EXTENSIONS = "type.googleapis.com/envoy.extensions"
FILTERS = f"{EXTENSIONS}.filters"
ROUTES = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
CHECKS = {"checks": True}  # what marks the connections of health checks
BODY = 65536  # bytes of an answer that are searched for a text


def watched(path: str, file: str) -> dict[str, t.Any]:
    """Return the source of what is in a file of the directory."""
    return {
        "resource_api_version": "V3",
        "path_config_source": {"path": f"{path}/{file}", "watched_directory": {"path": path}},
    }


def cluster(service: str, path: str, health: HealthCheck, ca_path: str) -> dict[str, t.Any]:
    """Return the cluster: its members from the file of endpoints, checked as `rollout_health` says.

    A new or failing endpoint is checked every 100 ms. Endpoints that are taken out leave at once
    although they are healthy. Changes of health take effect at once: Envoy would collect those of
    a second, while it shows them as done. If all are unhealthy, requests get a 503 instead of any
    of them. With a `port` of its own only the check speaks TLS, not the connections of clients.
    """
    limits = dict.fromkeys(
        ("max_connections", "max_pending_requests", "max_requests", "max_retries"), PLENTY
    )
    return {
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": service,
        "type": "EDS",
        "connect_timeout": "2s",
        "eds_cluster_config": {"eds_config": watched(path, f"eds-{service}.json")},
        "ignore_health_on_host_removal": True,
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}, "update_merge_window": "0s"},
        "track_cluster_stats": {"per_endpoint_stats": True},
        "circuit_breakers": {"thresholds": [limits]},
        "health_checks": [health_check(health)],
        **_transport(health, ca_path),
    }


def _transport(health: HealthCheck, ca_path: str) -> dict[str, t.Any]:
    if not health.tls:
        return {}
    socket = tls_socket(health, ca_path)
    if not health.port:
        return {"transport_socket": socket}
    return {
        "transport_socket_matches": [
            {"name": "checks", "match": CHECKS, "transport_socket": socket}
        ]
    }


def chain(name: str, clusters: Sequence[str]) -> dict[str, t.Any]:
    """Return an aggregate cluster: requests go to its first cluster with a healthy member.

    A missing cluster has no members.
    """
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


def tls_socket(health: HealthCheck, ca_path: str) -> dict[str, t.Any]:
    """Return how Envoy connects to instances that speak TLS."""
    name, context = health.check.server_name, {}
    if health.validate_certs:
        names = [{"san_type": kind, "matcher": {"exact": name}} for kind in ("DNS", "IP_ADDRESS")]
        context = {
            "validation_context": {
                "trusted_ca": {"filename": ca_path},
                "match_typed_subject_alt_names": names,
            }
        }
    config = {
        "@type": f"{EXTENSIONS}.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": context,
        **({"sni": name} if name else {}),
    }
    return {"name": "envoy.transport_sockets.tls", "typed_config": config}


def health_check(health: HealthCheck) -> dict[str, t.Any]:
    """Return `rollout_health` in Envoy's terms: HTTP, or else that a connection is accepted."""
    quick = seconds(min(health.interval, 0.1))
    request = health.check.http
    return {
        "interval": seconds(health.interval),
        "timeout": seconds(health.timeout),
        "unhealthy_interval": quick,
        "no_traffic_interval": quick,
        "no_traffic_healthy_interval": seconds(health.interval),
        "healthy_threshold": health.rise,
        "unhealthy_threshold": health.fall,
        **({"transport_socket_match_criteria": CHECKS} if health.tls and health.port else {}),
        **({"http_health_check": http_check(request)} if request else {"tcp_health_check": {}}),
    }


def http_check(request: HttpRequest) -> dict[str, t.Any]:
    """Return the request and the answers that pass.

    A text is searched in the first 64 KiB of the body.
    """
    body = (
        {"receive": [{"text": request.body.encode().hex()}], "response_buffer_size": BODY}
        if request.body
        else {}
    )
    return {
        "path": request.path,
        "host": request.host,
        "expected_statuses": [
            {"start": codes.start, "end": codes.stop} for codes in request.statuses
        ],
        "request_headers_to_add": [
            {"header": {"key": name, "value": text}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
            for name, text in request.headers.items()
        ],
        **body,
    }


def seconds(value: float) -> str:
    """Return a duration as Envoy writes it."""
    return f"{value:.3f}s"


def routes(
    service: str,
    matches: Sequence[shared.Match],
    mirror: int,
    retry: int,
    target: Mapping[str, t.Any],
) -> dict[str, t.Any]:
    """Return the routes: to the target, without a timeout; what matches goes to the new instances.

    `mirror`: percentage of requests to copy.
    """
    every: dict[str, t.Any] = {**target, "timeout": "0s"}
    if mirror:
        fraction = {"default_value": {"numerator": mirror, "denominator": "HUNDRED"}}
        every["request_mirror_policies"] = [
            {"cluster": f"{service}~copies", "runtime_fraction": fraction}
        ]
    listed = []
    for match in matches:
        text = {"safe_regex": {"regex": match.regex}} if match.regex else {"exact": match.value}
        chosen = {"name": match.header, "string_match": text}
        listed += repeated([chosen], {"cluster": f"{service}~match", "timeout": "0s"}, retry)
    listed += repeated([], every, retry)
    return {
        "name": service,
        "validate_clusters": True,
        "virtual_hosts": [{"name": service, "domains": ["*"], "routes": listed}],
    }


def subscription(service: str, path: str) -> dict[str, t.Any]:
    """Return where the routes of a service are that change while its listener stays."""
    return {
        "route_config_name": service,
        "config_source": watched(path, f"rds-{service}.json"),
    }


def repeated(
    headers: Sequence[Mapping[str, t.Any]], action: Mapping[str, t.Any], retry: int
) -> list[dict[str, t.Any]]:
    """Return the routes of requests with these headers, with retries.

    Unanswered requests are sent to another instance; one that an instance may have seen, only if
    its method is safe.
    """
    if not retry:
        return [
            {"match": {"prefix": "/", **({"headers": headers} if headers else {})}, "route": action}
        ]
    harmless = {"name": ":method", "string_match": {"safe_regex": {"regex": HARMLESS}}}
    return [
        {
            "match": {"prefix": "/", **({"headers": wanted} if wanted else {})},
            "route": {**action, "retry_policy": retry_policy(condition, retry)},
        }
        for wanted, condition in (([*headers, harmless], UNANSWERED), ([*headers], UNSENT))
    ]


def retry_policy(condition: str, retry: int) -> dict[str, t.Any]:
    """Return the policy of so many retries under this condition, at other instances than before."""
    kind = (
        "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
    )
    other = {"name": "envoy.retry_host_predicates.previous_hosts", "typed_config": {"@type": kind}}
    return {
        "retry_on": condition,
        "num_retries": retry,
        "retry_host_predicate": [other],
        "host_selection_retry_max_attempts": 5,  # looks for another one
    }


def binding(cookie: str) -> dict[str, t.Any]:
    """Return the filter that binds clients to an instance by a cookie while it is in rotation."""
    state = {
        "@type": (
            "type.googleapis.com/envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState"
        ),
        "cookie": {"name": cookie, "path": "/"},
    }
    session = {"name": "envoy.http.stateful_session.cookie", "typed_config": state}
    config = {
        "@type": f"{FILTERS}.http.stateful_session.v3.StatefulSession",
        "session_state": session,
    }
    return {"name": "envoy.filters.http.stateful_session", "typed_config": config}


def access_log(file: str) -> dict[str, t.Any]:
    """Return an access log in the format that `agents/access_log.py` reads."""
    line = (
        "rollout-envoy|%UPSTREAM_HOST%|%RESPONSE_CODE%|%RESPONSE_DURATION%|%DURATION%"
        "|%RESPONSE_FLAGS% %BYTES_SENT%|%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%\n"
    )
    config = {
        "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
        "path": file,
        "log_format": {"text_format_source": {"inline_string": line}},
    }
    return {"name": "envoy.access_loggers.file", "typed_config": config}


def listener(
    service: str,
    listen: tuple[str, int],
    routes: Mapping[str, t.Any],
    cookie: str,
    log: str | None,
) -> dict[str, t.Any]:
    """Return the listener; clients are bound by the cookie, if one is named.

    `routes` are its own, or say where they are; `log` is the file of its access log, None for none.
    """
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": f"{FILTERS}.http.router.v3.Router"},
    }
    manager = {
        "@type": f"{FILTERS}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": service,
        "use_remote_address": True,
        **({"access_log": [access_log(log)]} if log else {}),
        **routes,
        "http_filters": [binding(cookie), router] if cookie else [router],
    }
    return {
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": service,
        "address": {"socket_address": {"address": listen[0], "port_value": listen[1]}},
        "filter_chains": [
            {
                "filters": [
                    {
                        "name": "envoy.filters.network.http_connection_manager",
                        "typed_config": manager,
                    }
                ]
            }
        ],
    }
