# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of a configuration that nginx shows (`nginx -T`)."""

from __future__ import annotations

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
