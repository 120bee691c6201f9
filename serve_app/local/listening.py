"""Ports that this process listens on, with errors that name the setting to change."""

from __future__ import annotations

import errno
import socket


class PortInUse(RuntimeError):
    """Something else listens where the service should."""


def listen(host: str, port: int, setting: str) -> socket.socket:
    """Raises PortInUse, which names `setting` and the environment variable that sets it."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as problem:
        other = f"{setting} or GEN_{setting.upper().replace('.', '__')}"
        if problem.errno == errno.EADDRINUSE:
            raise PortInUse(f"{host}:{port} is in use; choose another with {other}") from None
        raise PortInUse(f"can't listen on {host}:{port}: {problem.strerror}; see {other}") from None
