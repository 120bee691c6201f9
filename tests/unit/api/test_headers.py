"""Header values: the client's address from `x-forwarded-for`, and quoted strings."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from starlette.requests import Request

from serve_app.api.auth import quote_string
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
def test_client_address_is_the_first_untrusted_one(peer: str, forwarded: str, expected: str) -> None:
    headers = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
    request = Request({"type": "http", "headers": headers, "client": (peer, 1)})
    assert client_address(request, SETTINGS) == expected


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("it has expired", '"it has expired"'),
        ("https://media.test/x", '"https://media.test/x"'),
        ('a", evil="b', r'"a\", evil=\"b"'),
        ("a\\b", r'"a\\b"'),
        ("two\r\nlines", '"two??lines"'),
        ("caf\xe9 \N{CAT FACE}", '"caf? ?"'),
    ],
)
def test_quoted_string_ends_only_at_its_end(text: str, quoted: str) -> None:
    assert quote_string(text) == quoted
