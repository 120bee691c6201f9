"""HTTP proxies: calls on this network are direct, calls outward go where the setting `network.proxy` says.

A process's environment carries the choice (`http_proxy`, `https_proxy`, `all_proxy`, `no_proxy`), since libraries such
as the model hub's read it there. Clients of this project ask `proxy_for` and read no environment themselves.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from ipaddress import ip_address, ip_network
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

_PROVIDERS: Final = {
    "s3": "amazonaws.com",
    "gs": "googleapis.com",
    "az": "core.windows.net",
    "azure": "core.windows.net",
}
"""The hosts of object stores that have no endpoint of their own, by the scheme of their URL."""

ENVIRONMENT: Final = "environment"
"""The proxies that the environment of each process names."""
NONE: Final = "none"
"""No proxy, whatever the environment says."""

_VARIABLES: Final = ("http_proxy", "https_proxy", "all_proxy")
_EVERY_ADDRESS: Final = "0.0.0.0/0,::/0"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_INTERNAL_SUFFIXES: Final = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".svc")
"""Ends of names that no public resolver knows: RFC 6761, 6762, 8375, ICANN's `.internal`, and Kubernetes' services."""


def apply_proxy(setting: str, environ: MutableMapping[str, str] = os.environ) -> None:
    """Makes a process's environment say what `setting` says: ENVIRONMENT, NONE or a proxy's URL. Idempotent.

    gRPC, by which replicas are called, uses no proxy in any case.
    """
    environ["no_grpc_proxy"] = _EVERY_ADDRESS
    if setting != ENVIRONMENT:
        for name in _VARIABLES:
            environ.pop(name, None)
            environ.pop(name.upper(), None)
        if setting == NONE:
            return
        environ.update(http_proxy=setting, https_proxy=setting)
    if not any(environ.get(name) or environ.get(name.upper()) for name in _VARIABLES):
        return
    excluded = [host for name in ("no_proxy", "NO_PROXY") for host in environ.get(name, "").split(",") if host]
    excluded += _LOOPBACK
    environ["no_proxy"] = environ["NO_PROXY"] = ",".join(dict.fromkeys(host.strip() for host in excluded))


def proxy_for(url: str) -> str | None:
    """The URL of the proxy for a call of `url`; None for a direct call, as to every host of this network.

    SOCKS proxies are left out: none of the clients speaks to them.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_internal(host) or _is_excluded(host, parts.port):
        return None
    proxies = getproxies_environment()
    for proxy in (proxies.get(parts.scheme), proxies.get("all")):
        if proxy and (address := proxy if "://" in proxy else f"http://{proxy}").startswith(("http://", "https://")):
            return address
    return None


def is_internal(host: str) -> bool:
    """Whether a host is on this machine or network by its name: a private address, or a name without public suffix."""
    try:
        return not ip_address(host.partition("%")[0]).is_global
    except ValueError:
        name = host.lower().rstrip(".")
        return "." not in name or name.endswith(_INTERNAL_SUFFIXES)


def object_store_options(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an object store with its proxy stated, since its client would read the environment by itself."""
    client_options = options.get("client_options") or {}
    if "proxy_url" in client_options or not getproxies_environment():
        return dict(options)
    own = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT") or url
    endpoints = (str(value) for name, value in options.items() if name.lower().endswith(("endpoint", "endpoint_url")))
    address = next(endpoints, own if own.startswith("http") else f"https://{_PROVIDERS.get(urlsplit(url).scheme, '')}")
    proxy = proxy_for(address)
    # No option says "no proxy": one that may not be used for this host says the same.
    stated = (
        {"proxy_url": proxy}
        if proxy
        else {"proxy_url": "http://127.0.0.1:9", "proxy_excludes": urlsplit(address).hostname}
    )
    return {**options, "client_options": {**client_options, **stated}}


def _is_excluded(host: str, port: int | None) -> bool:
    """Whether `no_proxy` names the host: by its name or the end of it, with its port, or by a network as in curl."""
    for entry in getproxies_environment().get("no", "").lower().split(","):
        name = entry.strip().removeprefix("*").removeprefix(".")
        if entry.strip() == "*" or (name and (host == name or host.endswith(f".{name}") or f"{host}:{port}" == name)):
            return True
        try:
            if ip_address(host) in ip_network(entry.strip(), strict=False):
                return True
        except ValueError:
            continue
    return False
