"""What an address to listen on means."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it: `localhost`, 127.0.0.0/8, `::1`."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_unspecified(host: str) -> bool:
    """Whether it means all interfaces."""
    return host in ("0.0.0.0", "::")


def reachable(host: str) -> str:
    """The host of a URL by which this machine reaches what listens on `host`."""
    if is_unspecified(host):
        return "[::1]" if ":" in host else "127.0.0.1"
    return f"[{host}]" if ":" in host else host
