# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of a configuration that nginx shows (`nginx -T`)."""

from __future__ import annotations

import re

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _nginx_config

MAIN = """\
# configuration file /etc/nginx/nginx.conf:
events {{ worker_connections 512; }}
http {{
    log_format main '{{"at": "$time_iso8601"; }}' "a \\" b";
    {http}
    include /etc/nginx/sites/*;
}}
# configuration file /etc/nginx/sites/shop:
{site}
"""
SHOP = "server { %s location / { proxy_set_header Host ${host}x; proxy_pass http://shop; } }"


@pytest.mark.parametrize(
    ("http", "site", "idle"),
    [
        ("keepalive_timeout 0;", SHOP % "", ""),
        ("keepalive_timeout 70;", SHOP % "", "70"),
        ("", SHOP % "", "75s"),
        ("# keepalive_timeout 0;", SHOP % "", "75s"),
        ("keepalive_timeout 70;", SHOP % "keepalive_timeout 0s;", ""),
        ("keepalive_timeout 0;", SHOP % "keepalive_timeout 5s 10s;", "5s"),
        ("keepalive_timeout 0;", SHOP % "" + " server { keepalive_timeout 9; }", ""),
        ("keepalive_timeout 70; keepalive_min_timeout 10s;", SHOP % "", ""),
        ("keepalive_timeout 0;", "upstream shop { keepalive_timeout 60s; }" + SHOP % "", ""),
        ("keepalive_timeout 7;", (SHOP % "").replace("http://shop", "http://$rollout_shop"), "7"),
        ("keepalive_timeout 7;", (SHOP % "").replace("http://shop", "http://shop2/a"), ""),
        ("keepalive_timeout 7; server { location / { proxy_pass http://shop/a; } }", "", "7"),
        ("keepalive_timeout 7;", "}}}} server {", ""),
    ],
)
def test_idle_connections_that_nginx_keeps_are_named(http: str, site: str, idle: str) -> None:
    assert _nginx_config.idle(MAIN.format(http=http, site=site), "shop") == idle


@pytest.mark.parametrize(
    ("block", "servers"),
    [
        ("upstream shop{server 10.0.0.1:80;}", {"10.0.0.1:80": 1}),
        (
            "upstream  shop  {\n  # } server 10.0.0.9:80;\n  zone shop 64k;\n"
            "  server 10.0.0.1:80 weight=3;  # the large one\n  server 10.0.0.2 max_fails=2;\n}",
            {"10.0.0.1:80": 3, "10.0.0.2:80": 1},
        ),
        ("upstream shop { server [::1]:81; server 10.0.0.1:80 down; }", {"[::1]:81": 1}),
        ("upstream shop2 { server 10.0.0.2:80; }", {}),
        ("# upstream shop { server 10.0.0.2:80; }", {}),
        (_nginx_config.MARK + "\nupstream shop { server 10.0.0.2:80; }", {}),
    ],
)
def test_servers_of_an_upstream_by_hand_are_read(block: str, servers: dict[str, int]) -> None:
    others = "upstream api { server 10.0.0.7:80; }\n"
    entries = _nginx_config.by_hand(block + "\n" + others, "shop").values()
    assert {entry["name"]: entry["weight"] for entry in entries} == servers


@pytest.mark.parametrize(
    "line",
    [
        "least_conn",
        "ip_hash",
        "hash $request_uri consistent",
        "keepalive 32",
        "include /etc/nginx/servers",
        "server app1.example.com:8080 resolve",
        "server unix:/run/shop.sock",
        "server 10.0.0.1:80 backup",
        "server 10.0.0.1:80 max_conns=9",
        "server 10.0.0.1:80 weight=x",
    ],
)
def test_what_a_rollout_would_not_keep_is_named(line: str) -> None:
    with pytest.raises(_nginx_config.Unlike, match=re.escape(line)):
        _nginx_config.by_hand("upstream shop { server 10.0.0.2:80; %s; }" % line, "shop")
