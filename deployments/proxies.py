"""HTTP proxies: calls within this network are direct, calls outward follow the setting `network.proxy`.

The environment of a process holds the proxies (`http_proxy`, `https_proxy`, `all_proxy`, `no_proxy`), as libraries such
as the model hub's read them there. Clients of this project call `proxy_for` and don't read the environment themselves.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from ipaddress import ip_address, ip_network
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

ENVIRONMENT: Final = "environment"
"""Use the proxies in the environment of each process."""
NONE: Final = "none"
"""Use no proxy, whatever the environment names."""

_VARIABLES: Final = ("http_proxy", "https_proxy", "all_proxy")
_EVERY_ADDRESS: Final = "0.0.0.0/0,::/0"
_PORTS: Final = {"http": 80, "https": 443}
_INTERNAL_SUFFIXES: Final = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".svc")
"""Suffixes that no public resolver knows: RFC 6761, 6762, 8375, ICANN's `.internal`, and Kubernetes' services."""
_INTERNAL: Final = (
    *("localhost", "127.0.0.0/8", "::1", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fc00::/7"),
    # Some libraries compare addresses with networks, others only with addresses.
    *("127.0.0.1", "169.254.169.254"),
    *_INTERNAL_SUFFIXES,
)
"""Hosts that libraries call directly, in the format of `no_proxy`."""


def apply_proxy(setting: str, environ: MutableMapping[str, str] = os.environ) -> None:
    """Writes `setting` (ENVIRONMENT, NONE or a proxy's URL) to a process's environment. Idempotent.

    gRPC, which calls replicas, never uses a proxy.
    """
    environ["no_grpc_proxy"] = _EVERY_ADDRESS
    if setting != ENVIRONMENT:
        for name in _VARIABLES:
            environ.pop(name, None)
            environ.pop(name.upper(), None)
        if setting == NONE:
            return
        environ.update(http_proxy=setting, https_proxy=setting)
    excluded = [host.strip() for name in ("no_proxy", "NO_PROXY") for host in environ.get(name, "").split(",")]
    environ["no_proxy"] = environ["NO_PROXY"] = ",".join(dict.fromkeys(filter(None, (*excluded, *_INTERNAL))))


def proxy_for(url: str) -> str | None:
    """Returns the URL of the proxy for a call of `url`; None for a direct call, as to every internal host.

    Ignores SOCKS proxies, which none of the clients supports.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    if is_internal(host) or _is_excluded(host, parts.port or _PORTS.get(parts.scheme)):
        return None
    return _environment_proxy(parts.scheme)


def _environment_proxy(scheme: str) -> str | None:
    proxies = getproxies_environment()
    for proxy in (proxies.get(scheme), proxies.get("all")):
        if proxy and (address := proxy if "://" in proxy else f"http://{proxy}").startswith(("http://", "https://")):
            return address
    return None


def is_internal(host: str) -> bool:
    """Returns whether a host is on this machine or network: by a private address, or a name that is not public."""
    try:
        return not ip_address(host.partition("%")[0]).is_global
    except ValueError:
        name = host.lower().rstrip(".")
        return "." not in name or name.endswith(_INTERNAL_SUFFIXES)


def object_store_options(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of an object store, with an internal endpoint excluded from the proxy.

    The store's client reads the environment itself, and `no_proxy` can't express that names without a dot are internal.
    """
    own = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT") if url.startswith("s3") else None
    endpoints = (str(value) for name, value in options.items() if name.lower().endswith(("endpoint", "endpoint_url")))
    endpoint = urlsplit(next(endpoints, own or ""))
    proxy, client_options = _environment_proxy(endpoint.scheme), options.get("client_options") or {}
    if proxy is None or not endpoint.hostname or not is_internal(endpoint.hostname) or "proxy_url" in client_options:
        return dict(options)
    excluded = ",".join((endpoint.hostname, getproxies_environment().get("no", "")))
    return {**options, "client_options": {**client_options, "proxy_url": proxy, "proxy_excludes": excluded}}


def _is_excluded(host: str, port: int | None) -> bool:
    """Returns whether `no_proxy` has the host: by name, suffix, name with port, or network."""
    for entry in getproxies_environment().get("no", "").lower().split(","):
        name = entry.strip().removeprefix("*").strip(".[]")
        if entry.strip() == "*" or (name and (host == name or host.endswith(f".{name}") or f"{host}:{port}" == name)):
            return True
        try:
            if ip_address(host) in ip_network(name, strict=False):
                return True
        except ValueError:
            continue
    return False
