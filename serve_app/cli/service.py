"""Which service a command speaks to over HTTP, and with which key."""

from __future__ import annotations

import os
from pathlib import Path

import httpx2

from serve_app.cli.client import Client
from serve_app.config.addresses import is_loopback
from serve_app.local.running import RunningService, running

DEFAULT_BASE_URL = "http://127.0.0.1:8000"


def connect(base_url: str | None, key: str) -> Client:
    """A client that holds a key. Raises ValueError as `address_and_key` does."""
    return Client(*address_and_key(base_url, key))


def connect_as_operator(base_url: str | None, key: str) -> Client:
    """A client that holds the key given, else the operator's key of this machine. Raises ValueError without either."""
    return Client(*address_and_key(base_url, key, "operator-key"))


def address_and_key(base_url: str | None, key: str, file: str = "key") -> tuple[str, str]:
    """Of a service: the key given, else the one in this file of its data. Raises ValueError when there is neither."""
    url, local = find(base_url)
    return url, key or _own_key(url, local, file)


def connect_without_key(base_url: str | None) -> Client:
    """For what anybody may ask."""
    return Client(find(base_url)[0])


def find(base_url: str | None) -> tuple[str, RunningService | None]:
    """The address, and the service of this user behind it, if it runs on this machine. Raises ValueError."""
    services = running()
    if base_url is not None:
        url = _checked(base_url)
        return base_url, next((service for service in services if _same(httpx2.URL(service.base_url), url)), None)
    if len(services) > 1:
        addresses = ", ".join(service.base_url for service in services)
        raise ValueError(f"several services run on this machine; choose one with --base-url: {addresses}")
    return (services[0].base_url, services[0]) if services else (DEFAULT_BASE_URL, None)


def _checked(base_url: str) -> httpx2.URL:
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL:
        url = httpx2.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"--base-url {base_url} is no address; like {DEFAULT_BASE_URL} or https://media.example.com")
    return url


def _same(one: httpx2.URL, other: httpx2.URL) -> bool:
    hosts = one.host == other.host or (is_loopback(one.host) and is_loopback(other.host))
    return hosts and (one.scheme, one.port) == (other.scheme, other.port)


def _own_key(base_url: str, service: RunningService | None, file: str) -> str:
    """A key of this machine is shown to a service of this machine only."""
    path = (service.data_dir if service else Path(os.environ.get("GEN_DATA_DIR", ".gen"))) / file
    if (service or is_loopback(httpx2.URL(base_url).host)) and path.is_file():
        return path.read_text().strip()
    raise ValueError(
        "no API key: pass --key or set GEN_KEY"
        + ("" if service else f" (no service of yours runs at {base_url}; gen-serve up starts one)")
    )
