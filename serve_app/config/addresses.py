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


def reachable(host: str) -> str:
    """Where this machine reaches what listens on `host`: loopback, if that means all interfaces."""
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
