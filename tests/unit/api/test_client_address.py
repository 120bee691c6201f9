"""Whose attempts are counted together."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from starlette.requests import Request

from serve_app.api.hosts import client_address
from serve_app.config.settings import ServiceSettings

SETTINGS = ServiceSettings(trusted_proxies=[ip_network("10.0.0.0/8")])


@pytest.mark.parametrize(
    ("peer", "forwarded", "expected"),
    [
        ("203.0.113.7", "", "203.0.113.7"),
        ("127.0.0.1", "::ffff:203.0.113.7", "203.0.113.7"),
        ("::ffff:10.1.2.3", "203.0.113.7", "203.0.113.7"),
        ("10.1.2.3", "198.51.100.1, 203.0.113.7", "203.0.113.7"),
        ("203.0.113.7", "198.51.100.1", "203.0.113.7"),
        ("2001:db8::1:2:3:4", "", "2001:db8::/64"),
        ("127.0.0.1", "", ""),
    ],
)
def test_an_address_is_one_customers(peer: str, forwarded: str, expected: str) -> None:
    headers = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
    request = Request({"type": "http", "headers": headers, "client": (peer, 1)})
    assert client_address(request, SETTINGS) == expected
