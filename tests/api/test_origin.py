"""The address that clients are told to come back to."""

from __future__ import annotations

import socket
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

import httpx2
import pytest
from support.client import refusal
from support.http_service import Service, StartService
from support.pictures import picture
from support.promises import promise

from serve_app.config.settings import ServiceSettings

FORWARDED = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "media.example.com"}


def origins(service: Service, headers: dict[str, str]) -> set[str]:
    """Where the polling URL and, once there is one, the result's link lead."""
    with service.client(headers=headers) as client:
        submitted = client.submit().json()
        service.worker.deliver(submitted["id"], picture(form="JPEG"))
        sample = client.poll(submitted["id"]).json()["result"]["sample"]
    return {url.partition("/v1/")[0] for url in (submitted["polling_url"], sample)}


@promise("Decided: submission", "`public_base` is the configured public URL, else the origin of the request")
@pytest.mark.parametrize("public_url", ["https://media.test", "https://media.test/", "http://media.test:8443"])
def test_a_configured_address_wins(start_service: StartService, public_url: str) -> None:
    proxy: dict[str, Any] = {"trusted_proxies": ["127.0.0.1"], "allowed_hosts": [FORWARDED["X-Forwarded-Host"]]}
    service = start_service(service=ServiceSettings(public_url=public_url, **proxy))
    assert origins(service, FORWARDED) == {public_url.rstrip("/")}


@promise("Decided: submission", "Same origin as the client used")
def test_else_it_is_the_one_that_was_used(service: Service) -> None:
    assert origins(service, {}) == {service.base_url}
    assert origins(service, {"Host": "localhost:1234"}) == {"http://localhost:1234"}


@promise("Decided: submission", "honour `X-Forwarded-Proto/Host` only from configured trusted proxies")
def test_a_stranger_cannot_forward(service: Service) -> None:
    assert origins(service, FORWARDED) == {service.base_url}


@promise("Decided: submission", "honour `X-Forwarded-Proto/Host` only from configured trusted proxies")
def test_proxies_elsewhere_are_strangers(start_service: StartService) -> None:
    service = start_service(service=ServiceSettings(trusted_proxies=[IPv4Network("10.0.0.0/8"), IPv6Network("::1")]))
    assert origins(service, {**FORWARDED, "X-Forwarded-For": "10.0.0.1"}) == {service.base_url}


@promise("Decided: submission", "honour `X-Forwarded-Proto/Host` only from configured trusted proxies")
@pytest.mark.parametrize("network", ["127.0.0.1", "127.0.0.0/8"])
def test_a_trusted_proxy_tells(start_service: StartService, network: str) -> None:
    hosts = ["media.example.com", "media.test"]
    service = start_service(service=ServiceSettings(trusted_proxies=[ip_network(network)], allowed_hosts=hosts))
    assert origins(service, FORWARDED) == {"https://media.example.com"}
    assert origins(service, {"X-Forwarded-Host": "media.example.com:8443"}) == {"http://media.example.com:8443"}
    assert origins(service, {"X-Forwarded-Proto": "https", "Host": "media.test"}) == {"https://media.test"}
    # The first is what the client saw; the others are proxies on the way.
    several = {"X-Forwarded-Proto": "https, http", "X-Forwarded-Host": "media.example.com, inner"}
    assert origins(service, several) == {"https://media.example.com"}
    assert origins(service, {}) == {service.base_url}


# Hosts that are not the service's.

TASKS = "/v1/tasks"


def asked(service: Service, path: str = TASKS, **headers: str) -> httpx2.Response:
    with service.client(headers={name.replace("_", "-"): value for name, value in headers.items()}) as client:
        return client.get(path)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3:8000", "localhost", "LocalHost:99", "[::1]", "[::1]:8000"])
def test_loopback_is_always_known(service: Service, host: str) -> None:
    assert asked(service, Host=host).status_code == 200


FORGED = [
    "evil.test",
    "localhost.evil.test",
    "127.0.0.1.evil.test",
    "evil.test:80",
    "10.0.0.1",
    "localhost:80:80",
    'localhost:1"',
    'localhost"x',
    "[::1",
    "localhost:99999999",
    "a@localhost",
    "localhost, evil.test",
]


@pytest.mark.parametrize("host", FORGED)
def test_others_are_not(service: Service, host: str) -> None:
    assert "service.allowed_hosts" in refusal(asked(service, Host=host), 421)


def test_nor_does_a_trusted_proxy_make_them_known(start_service: StartService) -> None:
    proxy = ServiceSettings(trusted_proxies=[IPv4Network("127.0.0.1")], public_url="https://media.test")
    service = start_service(service=proxy)
    for host in FORGED:
        # Of several the first is what the client asked for.
        known = host.startswith("localhost,")
        assert asked(service, X_Forwarded_Host=host).status_code == (200 if known else 421), host
    assert asked(service, X_Forwarded_Host="media.test").status_code == 200
    assert asked(service, Host="media.test").status_code == 200


def test_without_a_host_there_is_no_origin(service: Service) -> None:
    with socket.create_connection(service.address) as wire:
        wire.sendall(b"GET /v1/get_result?id=x HTTP/1.0\r\n\r\n")
        assert wire.recv(100).startswith(b"HTTP/1.1 421 ")


@pytest.mark.parametrize(
    ("settings", "known", "unknown"),
    [
        (
            {"public_url": "https://Media.test:8443"},
            ["media.test", "media.test:8443", "MEDIA.TEST"],
            ["test", "other.test"],
        ),
        (
            {"allowed_hosts": ["a.test", "[fd00::1]"]},
            ["a.test", "A.test:1", "[fd00::1]:8000"],
            ["b.a.test", "[fd00::2]"],
        ),
        (
            {"region": "eu", "regions": {"eu": "https://eu.test", "us": "https://us.test"}},
            ["eu.test"],
            ["us.test"],
        ),
    ],
    ids=["public", "allowed", "region"],
)
def test_configured_ones_are_known(
    start_service: StartService, settings: dict[str, Any], known: list[str], unknown: list[str]
) -> None:
    service = start_service(service=ServiceSettings(**settings))
    assert [asked(service, Host=host).status_code for host in (*known, "localhost")] == [200] * (len(known) + 1)
    assert [asked(service, Host=host).status_code for host in unknown] == [421] * len(unknown)


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probes_may_call_it_anything(service: Service, path: str) -> None:
    assert asked(service, path, Host="10.1.2.3:8000").status_code == 200


def test_nothing_is_done_for_a_forged_host(service: Service) -> None:
    with service.client(headers={"Host": "evil.test"}) as client, service.unchanged():
        assert client.submit().status_code == 421
