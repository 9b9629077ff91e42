# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the files that an Envoy watches, and read back that it took them.

Runs on Python 3.8 and later. `main` returns {"entries": [...]} (and more for `check`), {"error":
"..."}, or {"stale": "..."} where a newer lease holder has acted here, or a run with another
journal; an entry is {address, port,
in, weight, name, apart} and, as Envoy shows it, also proven, active and requests. `OWNER.epoch` and
`OWNER.lock` in the directory fence what is done for a service, whose journal `OWNER.journal` names.
"""

from __future__ import annotations

import json
import os
import stat
import time

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _files, _talk

TYPE_CHECKING = False  # importing typing costs start-up time
if TYPE_CHECKING:
    import typing as t

    Request = t.Dict[str, t.Any]
    Entry = t.Dict[str, t.Any]
    Resource = t.Dict[str, t.Any]

ANSWER = 5.0  # seconds the admin interface may take
POLL = 0.004
# Envoy's worker threads follow the main thread, which is the one that answers, a moment later
GRACE = 0.02
TYPE = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
# clusters before listeners: a route to a cluster that Envoy does not have would be refused
SUBSCRIPTIONS = {"clusters": "cluster_manager.cds", "listeners": "listener_manager.lds"}
# the health flags of an entry that is not, or not yet, proven
DOUBTS = ("failed_", "pending_", "excluded_")


class Failed(Exception):
    """What Envoy refused or did not show, as text for the operator."""


def main(request: Request) -> dict[str, t.Any]:
    """Do `op`: check, observe or apply; see the functions of these names."""
    try:
        epoch = 0 if request["op"] == "check" else request["epoch"]
        stem = os.path.join(request["path"], request["owner"])
        with _files.Fenced(stem, epoch, mark(request), [endpoints(request)]):
            return {"check": check, "observe": observe, "apply": apply}[request["op"]](request)
    except _files.Stale as exc:
        return {"stale": str(exc)}
    except (Failed, _files.Refused, OSError) as exc:
        return {"error": str(exc)}
    except (ValueError, LookupError, TypeError, AttributeError) as exc:
        return {
            "error": (
                "its admin interface answers something else than an Envoy's does (%s: %s)"
                % (type(exc).__name__, _talk.shown(exc))
            )
        }


def mark(request: Request) -> _files.JournalMark:
    """Return which journal the service's entries belong to."""
    path = os.path.join(request["path"], request["owner"] + ".journal")
    return _files.JournalMark(path, "the entries of %s" % request["owner"], request["journal"])


# --- the admin interface ---


def get(request: Request, path: str) -> str:
    """Return the body of a GET at the admin interface."""
    question = "GET %s HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n" % path
    try:
        data = _talk.ask(request["admin"], question.encode(), ANSWER)
    except OSError as exc:
        raise Failed("its admin interface does not answer: %s" % exc) from None
    head, _blank, body = data.partition(b"\r\n\r\n")
    status = head.split(b"\r\n")[0].decode("latin-1")
    if " 200 " not in status + " ":
        raise Failed(
            "its admin interface answers %r to %s" % (_talk.shown(status) or "nothing", path)
        )
    if b"transfer-encoding: chunked" in head.lower():
        body = b"".join(chunks(body))
    return body.decode("utf-8", "replace")


def chunks(body: bytes) -> t.Iterator[bytes]:
    """Yield the parts of a chunked body."""
    start = 0
    while start < len(body):
        end = body.find(b"\r\n", start)
        try:
            length = int(body[start : max(end, start)].partition(b";")[0], 16)
        except ValueError:
            length = -1
        if length < 0:
            raise Failed("its admin interface answers with broken chunks")
        yield body[end + 2 : end + 2 + length]
        start = end + length + 4


def fetch(request: Request, path: str) -> dict[str, t.Any]:
    """Return the JSON document at a path of the admin interface."""
    body = get(request, path)
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise Failed(
            "its admin interface answers no JSON to %s: %s" % (path, _talk.shown(body[:80]))
        ) from None
    if not isinstance(content, dict):
        raise Failed(
            "its admin interface answers no JSON object to %s: %s" % (path, _talk.shown(body[:80]))
        )
    return content


def entries(request: Request) -> list[Entry] | None:
    """Return the entries of the service's cluster as Envoy has them; None without such a cluster.

    An Envoy that is starting shows none, with or without the cluster; believed, all would be taken
    out.
    """
    present = listed(request)
    if not present:
        state = fetch(request, "/server_info").get("state")
        if state not in ("LIVE", "DRAINING"):
            raise Failed("it is %s, not LIVE" % state)
        present = listed(request)  # it may have become LIVE in between
    return present


def listed(request: Request) -> list[Entry] | None:
    """Return the entries of the service's cluster, as the admin interface lists them now."""
    statuses = fetch(request, "/clusters?format=json&filter=^%s$" % request["service"]).get(
        "cluster_statuses", []
    )
    ours = [status for status in statuses if status["name"] == request["service"]]
    if not ours:
        return None
    apart = places_apart(request)
    return [entry(status, apart) for status in ours[0].get("host_statuses", [])]


def places_apart(request: Request) -> set[tuple[str, int]]:
    """Return the places of the entries whose side is apart; Envoy shows only those of its file."""
    listed = [
        endpoint
        for resource in resources(endpoints(request))
        for group in resource.get("endpoints", [])
        for endpoint in group.get("lb_endpoints", [])
        if endpoint.get("metadata") == side(True)
    ]
    addresses = [item["endpoint"]["address"]["socket_address"] for item in listed]
    return {(address["address"], address["port_value"]) for address in addresses}


def side(apart: bool) -> dict[str, t.Any]:
    """Return the metadata of an entry of a side, which routes refer to."""
    return {"filter_metadata": {"envoy.lb": {"side": "apart" if apart else "rest"}}}


def entry(status: dict[str, t.Any], apart: set[tuple[str, int]]) -> Entry:
    """Return an entry, of what Envoy shows (which leaves out what is zero or false)."""
    health = dict(status.get("health_status", {}))
    eds = health.pop("eds_health_status", "HEALTHY")
    stats = {stat["name"]: int(stat.get("value", 0)) for stat in status.get("stats", [])}
    where = status["address"]["socket_address"]
    unconnected = stats.get("cx_connect_fail", 0)  # errors of requests that were never sent
    return {
        "address": where["address"],
        "port": where["port_value"],
        "in": eds in ("HEALTHY", "UNKNOWN"),
        "weight": status.get("weight", 1),
        "name": status.get("hostname", ""),
        "proven": not any(value and flag.startswith(DOUBTS) for flag, value in health.items()),
        "apart": (where["address"], where["port_value"]) in apart,
        "active": stats.get("rq_active", 0) + stats.get("rq_pending_active", 0),
        "requests": stats.get("rq_total", 0) + unconnected,
        "errors": stats.get("rq_error", 0),
        "connect_failures": unconnected,
    }


def counters(request: Request, prefix: str) -> tuple[int, str]:
    """Return how many updates of a subscription Envoy refused so far, and the version it has."""
    stats = fetch(
        request,
        "/stats?format=json&filter=^%s.(update_rejected|update_failure|version_text)$" % prefix,
    )["stats"]
    numbers = {stat["name"].rpartition(".")[2]: stat["value"] for stat in stats if "name" in stat}
    return int(numbers.get("update_rejected", 0)) + int(
        numbers.get("update_failure", 0)
    ), numbers.get("version_text", "")


def dumped(request: Request, kind: str, name: str) -> dict[str, t.Any]:
    """Return what Envoy's dump shows of a listener or a cluster, {} if it has none."""
    dump = fetch(request, "/config_dump?resource=dynamic_%s&name_regex=^%s$" % (kind, name))
    configs: list[dict[str, t.Any]] = dump.get("configs", [])
    return configs[0] if configs else {}


def in_use(request: Request, kind: str, name: str) -> bool:
    """Return True if Envoy uses a listener or a cluster, and no newer one of it is warming up."""
    if kind == "listeners":
        listener = dumped(request, kind, name)
        return "active_state" in listener and "warming_state" not in listener
    return bool(dumped(request, "active_" + kind, name)) and not dumped(
        request, "warming_" + kind, name
    )


def refused(request: Request, kind: str, name: str, version: str) -> bool:
    """Return True if Envoy refused this listener or cluster of an update that it refused in part.

    It shows why it refused a listener, and only the version of a cluster.
    """
    if kind == "listeners":
        return "error_state" in dumped(request, kind, name)
    return dumped(request, "active_" + kind, name).get("version_info") != version


# --- the files ---


def read(name: str) -> str:
    """Return the text of a file, empty when there is none."""
    try:
        with open(name, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def write(name: str, text: str) -> None:
    """Replace a file in one step; remove it where there is no text.

    Envoy is often another user: as a member of the directory's group it reads what has headers of a
    health check, which may be passwords. Any user may read the rest.
    """
    if not text:
        os.unlink(name)
        return
    _files.write(
        name, text, 0o640 if secret(text) else 0o644, os.stat(os.path.dirname(name)).st_gid
    )


def secret(text: str) -> bool:
    """Return True if a document has headers that a health check sends."""
    checks = [
        check
        for resource in json.loads(text).get("resources", [])
        for check in resource.get("health_checks", [])
    ]
    return any(check.get("http_health_check", {}).get("request_headers_to_add") for check in checks)


def endpoints(request: Request) -> str:
    """Return the path of the file with the entries of the service's cluster."""
    return os.path.join(request["path"], "eds-%s.json" % request["service"])


def routes(request: Request) -> str:
    """Return the path of the file with the routes of a listener whose clients stay on a side."""
    return os.path.join(request["path"], "rds-%s.json" % request["service"])


def document(version: str, resources: list[Resource]) -> str:
    """Return a file of resources, as Envoy reads it."""
    return json.dumps({"version_info": version, "resources": resources}, indent=1, sort_keys=True)


def resources(name: str) -> list[Resource]:
    """Return the resources that a file holds."""
    text = read(name)
    try:
        return json.loads(text).get("resources", []) if text else []
    except (ValueError, AttributeError):
        raise Failed(
            "%s is not a JSON document of resources; restore it, or remove it and start again"
            % name
        ) from None


def version(name: str) -> str:
    """Return the version that a file of resources has."""
    return str(json.loads(read(name)).get("version_info"))


def publish(
    request: Request,
    name: str,
    content: list[Resource],
    prefix: str,
    taken: t.Callable[[str], bool],
) -> None:
    """Write resources to a file and wait until `taken(version)`.

    What is refused is put back as it was.
    """
    version = str(time.time_ns())
    before = read(name)
    complaints, _version = counters(request, prefix)
    write(name, document(version, content))
    until = time.monotonic() + request["patience"]
    reason = ""
    while not taken(version):
        complained, has = counters(request, prefix)
        if complained > complaints and has != version:
            reason = "it refused the update (%s.update_rejected or update_failure grew)" % prefix
        elif time.monotonic() > until:
            reason = "it did not show the update within %g s (it has version %r)" % (
                request["patience"],
                has,
            )
        if reason and not taken(version):
            kind = "listeners" if prefix.endswith("lds") else "active_clusters"
            error = dumped(request, kind, request["service"]).get("error_state", {})
            mode = stat.S_IMODE(os.stat(name).st_mode)
            write(name, before)
            details = _talk.shown(error.get("details", "")) or "Its log says why."
            if mode & 0o004 == 0:
                details += (
                    " Envoy has to belong to the directory's group: others may not read the headers"
                    " of health checks."
                )
            raise Failed("%s: %s; the file is as it was before. %s" % (name, reason, details))
        time.sleep(POLL)


# --- the requests ---


def check(request: Request) -> dict[str, t.Any]:
    """Raise Failed unless Envoy is live, watches the directory, and this user may write there.

    Its `field` is `admin`, `path` or `listen`.
    """
    path = request["path"]
    try:
        info = fetch(request, "/server_info")
    except Failed as exc:
        return {"error": str(exc), "field": "admin"}
    if info.get("state") != "LIVE":
        return {"error": "it is %s, not LIVE" % info.get("state"), "field": "admin"}
    if not os.path.isdir(path) or not os.access(path, os.W_OK | os.X_OK):
        return {"error": "it is not a directory that can be written to", "field": "path"}
    dynamic: dict[str, t.Any] = {}
    configs: list[dict[str, t.Any]] = fetch(request, "/config_dump").get("configs", [])
    for config in configs:
        dynamic = config.get("bootstrap", {}).get("dynamic_resources", dynamic)
    for kind in ("lds", "cds"):
        source = dynamic.get(kind + "_config", {}).get("path_config_source", {})
        watched = source.get("watched_directory", {}).get(
            "path", os.path.dirname(source.get("path", ""))
        )
        if not same(source.get("path", ""), os.path.join(path, kind + ".json")) or not same(
            watched, path
        ):
            text = (
                "Envoy reads its %s from %s; start it with the bootstrap that this driver documents"
            )
            return {"error": text % (kind, source.get("path") or "no file"), "field": "path"}
    other = neighbour(request)
    if other:
        return {
            "error": "service %s listens there; give each service its own port" % other,
            "field": "listen",
        }
    for field, text in (*static(request, configs), *by_hand(request)):
        return {"error": text, "field": field}
    return {"entries": [], "version": info.get("version", ""), **mark(request).shown()}


def neighbour(request: Request) -> str:
    """Return which other service listens where this one is to listen, "" if none does."""
    wanted = [listener["address"] for listener in request["listeners"]]
    for listener in resources(os.path.join(request["path"], "lds.json")):
        service = str(listener.get("name")).partition("~")[0]
        if service != request["owner"] and listener.get("address") in wanted:
            return service
    return ""


def static(request: Request, configs: list[dict[str, t.Any]]) -> t.Iterator[tuple[str, str]]:
    """Yield what Envoy's own configuration has that a rollout would add, with its option."""
    wanted = [listener["address"]["socket_address"] for listener in request["listeners"]]
    names = {cluster["name"] for cluster in request["clusters"]}
    text = (
        "its own configuration has a %s %s, which no rollout can change; rename it there, or give"
    )
    text += " the service another name"
    for config in configs:
        for item in config.get("static_clusters", []):
            name = item.get("cluster", {}).get("name")
            if name in names:
                yield "path", text % ("cluster", name)
        for item in config.get("static_listeners", []):
            listener = item.get("listener", {})
            name, address = listener.get("name"), listener.get("address", {})
            if name == request["service"]:
                yield "path", text % ("listener", name)
            if any(overlap(address.get("socket_address", {}), other) for other in wanted):
                yield (
                    "listen",
                    (
                        "its own configuration has a listener there (%s), and clients would get"
                        " errors while it is exchanged. Give `listen` a free port, roll out there"
                        " beside what runs, and then move the clients to it"
                    )
                    % (name or "without a name"),
                )


def overlap(address: dict[str, t.Any], other: dict[str, t.Any]) -> bool:
    """Return True if two listeners would get the same connections."""
    anywhere = {"0.0.0.0", "::"}
    hosts = {address.get("address"), other.get("address")}
    ports = {address.get("port_value"), other.get("port_value")}
    return len(ports) == 1 and (len(hosts) == 1 or bool(hosts & anywhere))


def by_hand(request: Request) -> t.Iterator[tuple[str, str]]:
    """Yield what others than rollouts have written of a name that the service needs into the files,
    with its option.
    """
    files = [os.path.join(request["path"], name) for name in ("cds.json", "lds.json")]
    clusters, listeners = ([item.get("name") for item in resources(name)] for name in files)
    made = [
        item.get("eds_cluster_config", {}).get("eds_config", {}).get("path_config_source", {})
        for item in resources(files[0])
        if item.get("name") == request["service"]
    ]
    text = "%s has a %s %s that no rollout made; rename it there, or give the service another name"
    if made and os.path.basename(made[0].get("path", "")) != os.path.basename(endpoints(request)):
        yield "path", text % (files[0], "cluster", request["service"])
    elif request["service"] in listeners and request["service"] not in clusters:
        yield "path", text % (files[1], "listener", request["service"])


def same(path: str, other: str) -> bool:
    """Return True if two paths lead to the same file."""
    return bool(path) and os.path.realpath(path) == os.path.realpath(other)


def observe(request: Request) -> dict[str, t.Any]:
    """Return every entry of the service's cluster."""
    return {"entries": entries(request) or []}


def apply(request: Request) -> dict[str, t.Any]:
    """Bring clusters, listener and entries to what is asked; return the entries Envoy then shows.

    With `dry`, only say what would be refused. Nothing is written where nothing differs.
    """
    if request["epoch"] <= 0:
        raise Failed("nothing is changed without a lease (epoch 0 only looks)")
    with _files.Locked(request["path"]):  # other services' rollouts share the files
        now = entries(request)
        refuse(request, now or [])
        if request.get("dry"):
            return {"entries": now or []}
        mark(request).claim()
        frame(request, now is None)
        direct(request)
        return {"entries": fill(request, now or [])}


def place(entry: Entry) -> tuple[str, int]:
    """Return what an entry is known by."""
    return entry["address"], entry["port"]


def refuse(request: Request, now: list[Entry]) -> None:
    """Raise for entries that would come into rotation although their check has not passed here."""
    fit = {place(entry) for entry in now if entry["in"] or entry["proven"]}
    names = {place(entry): entry["name"] for entry in now}
    for entry in request["entries"]:
        if entry["in"] and (place(entry) not in fit or names[place(entry)] != entry["name"]):
            text = (
                "%s:%s is not put in rotation: %s here; put it there out of rotation first, and"
                " wait until it is proven"
            )
            raise Failed(
                text
                % (
                    *place(entry),
                    (
                        "its health check has not passed"
                        if place(entry) in names
                        else "it has no entry"
                    ),
                )
            )


def frame(request: Request, new: bool) -> None:
    """Make the clusters and listeners exist as asked.

    A new cluster begins empty, so that it is warm at once.
    """
    path, members = request["path"], endpoints(request)
    if new or not os.path.exists(members):
        write(members, document("0", [assignment(request, [])]))
    for kind, prefix in SUBSCRIPTIONS.items():
        asked: list[Resource] = request[kind]
        name = os.path.join(path, prefix.rpartition(".")[2] + ".json")
        present = resources(name)
        names = [
            resource["name"]
            for resource in asked
            if resource not in present or not in_use(request, kind, resource["name"])
        ]
        if names:
            if kind == "listeners" and request["routes"] and not subscribed(request)[1]:
                write(routes(request), document(str(time.time_ns()), request["routes"]))
            ours = [resource["name"] for resource in asked]
            content = [
                *(resource for resource in present if resource.get("name") not in ours),
                *asked,
            ]
            publish(request, name, content, prefix, taken(request, kind, names))


def taken(request: Request, kind: str, names: list[str]) -> t.Callable[[str], bool]:
    """Return what tells whether Envoy uses what a version of a file has under these names.

    The version of the update tells, not that of each name, which stays the old one where Envoy
    changes a listener in place, and where other text means the same. An update that is refused
    for what is another service's is taken for ours.
    https://www.envoyproxy.io/docs/envoy/latest/configuration/listeners/lds
    """
    prefix = SUBSCRIPTIONS[kind]
    complaints, _version = counters(request, prefix)

    def whether(version: str) -> bool:
        complained, has = counters(request, prefix)
        if has != version and (
            complained == complaints or any(refused(request, kind, name, version) for name in names)
        ):
            return False
        return all(in_use(request, kind, name) for name in names)

    return whether


def subscribed(request: Request) -> tuple[int, str]:
    """Return how many updates of the routes Envoy refused so far, and the version it has."""
    return counters(request, "http.{0}.rds.{0}".format(request["service"]))


def direct(request: Request) -> None:
    """Bring the routes to those asked, before the entries.

    The entries show whether a change is complete.
    """
    name, wanted = routes(request), request["routes"]
    if not wanted or (resources(name) == wanted and version(name) == subscribed(request)[1]):
        return
    prefix = "http.{0}.rds.{0}".format(request["service"])
    publish(request, name, wanted, prefix, lambda new: subscribed(request)[1] == new)


def fill(request: Request, now: list[Entry]) -> list[Entry]:
    """Bring the entries of the service's cluster to those asked; return what Envoy shows."""
    name = endpoints(request)
    wanted = request["entries"]
    if differs(wanted, now) or resources(name) != [assignment(request, wanted)]:
        # another instance where one was before: its entry begins anew, or the old one's health
        # would speak for it
        names = {place(entry): entry["name"] for entry in now}
        kept = [
            entry for entry in wanted if names.get(place(entry), entry["name"]) == entry["name"]
        ]
        if len(kept) < len(wanted):
            members(request, name, kept)
        members(request, name, wanted)
        out = {place(entry) for entry in now if entry["in"]} - {
            place(entry) for entry in wanted if entry["in"]
        }
        time.sleep(GRACE if out else 0)
        now = entries(request) or []
    if differs(wanted, now):
        raise Failed(
            "it took the update but shows %s"
            % json.dumps([[*place(entry), entry["in"], entry["weight"]] for entry in now])
        )
    return now


def members(request: Request, name: str, wanted: list[Entry]) -> None:
    """Write the entries and wait until Envoy has them."""
    prefix = "cluster." + request["service"]
    content = [assignment(request, wanted)]
    publish(request, name, content, prefix, lambda version: counters(request, prefix)[1] == version)


def differs(wanted: list[Entry], now: list[Entry]) -> bool:
    """Return True if entries differ from those asked, in what can be asked."""
    keys = ("address", "port", "in", "weight", "name")
    return sorted([entry[key] for key in keys] for entry in wanted) != sorted(
        [entry[key] for key in keys] for entry in now
    )


def assignment(request: Request, wanted: list[Entry]) -> Resource:
    """Return the entries as the resource Envoy reads.

    Envoy does not use the `hostname` here; it carries the instance's name.
    """
    checked = (
        {"health_check_config": {"port_value": request["check_port"]}}
        if request.get("check_port")
        else {}
    )
    endpoints = [
        {
            "endpoint": {
                "address": {
                    "socket_address": {"address": entry["address"], "port_value": entry["port"]}
                },
                "hostname": entry["name"],
                **checked,
            },
            "health_status": "HEALTHY" if entry["in"] else "DRAINING",
            "load_balancing_weight": entry["weight"],
            **({"metadata": side(entry["apart"])} if request["routes"] else {}),
        }
        for entry in wanted
    ]
    # where requests may go on to another cluster (`match`), that is when no entry here is healthy,
    # not when few are
    policy = {"overprovisioning_factor": 100000}
    return {
        "@type": TYPE,
        "cluster_name": request["service"],
        "endpoints": [{"lb_endpoints": endpoints}],
        "policy": policy,
    }
