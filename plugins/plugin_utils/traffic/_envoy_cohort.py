# SPDX-License-Identifier: GPL-3.0-or-later
"""Envoy's routes and cluster where clients stay on their side, rendered. Pure.

Each entry of the service's cluster belongs to a side, by its metadata. The routes give each side a
weight, and the hash of what identifies a client chooses by these: the side that is apart has the
lowest hashes, so that a share that rises moves clients there only. Where a side has no healthy
entry in rotation, its clients get the other one. So it is one update of the entries that moves
clients, whatever the routes say already.
"""

from __future__ import annotations

import typing as t

from ._cohorts import WHOLE

LEAST = (1, 36)  # the first Envoy whose weighted clusters use the hash
SUBSETS = {
    "lb_subset_config": {
        "fallback_policy": "ANY_ENDPOINT",
        "metadata_fallback_policy": "FALLBACK_LIST",
        "subset_selectors": [{"keys": ["side"]}],
    }
}
SIDES = ("apart", "rest")


def action(service: str, identity: tuple[str, str], share: int) -> dict[str, t.Any]:
    """Return the action of a route that gives the side that is apart a share of the clients."""
    kind, name = identity
    key = {"cookie": {"name": name}} if kind == "cookie" else {"header": {"header_name": name}}
    return {
        "weighted_clusters": {
            "clusters": [
                _side(service, SIDES, share),
                _side(service, SIDES[::-1], WHOLE - share),
            ],
            "use_hash_policy": True,
        },
        "hash_policy": [key],
    }


def _side(service: str, sides: tuple[str, ...], weight: int) -> dict[str, t.Any]:
    """Return the cluster of a side; the next one takes its requests while it cannot."""
    listed = {"fallback_list": [{"side": side} for side in sides]}
    return {
        "name": service,
        "weight": weight,
        "metadata_match": {"filter_metadata": {"envoy.lb": listed}},
    }
