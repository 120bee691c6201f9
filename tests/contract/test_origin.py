"""The address that clients are told to come back to."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network

import pytest
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
    service = start_service(service=ServiceSettings(public_url=public_url, trusted_proxies=[IPv4Network("127.0.0.1")]))
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
@pytest.mark.parametrize(
    ("headers", "origin"),
    [
        (FORWARDED, "https://media.example.com"),
        ({"X-Forwarded-Host": "media.example.com:8443"}, "http://media.example.com:8443"),
        ({"X-Forwarded-Proto": "https", "Host": "media.test"}, "https://media.test"),
        # The first is what the client saw; the others are proxies on the way.
        (
            {"X-Forwarded-Proto": "https, http", "X-Forwarded-Host": "media.example.com, inner"},
            "https://media.example.com",
        ),
    ],
    ids=["both", "host", "proto", "several"],
)
def test_a_trusted_proxy_tells(start_service: StartService, network: str, headers: dict[str, str], origin: str) -> None:
    service = start_service(service=ServiceSettings(trusted_proxies=[ip_network(network)]))
    assert origins(service, headers) == {origin}
    assert origins(service, {}) == {service.base_url}
