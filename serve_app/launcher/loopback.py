"""Loopback binding of Ray Serve's ports that have no switch for it."""

from __future__ import annotations

from typing import Any

from ray._common import tls_utils


def bind() -> None:
    """Replicas take calls of other replicas on loopback. For a process in which Ray Serve is not imported yet."""
    add_port = tls_utils.add_port_to_grpc_server

    def on_loopback(server: Any, address: str) -> int:
        return add_port(server, address.replace("[::]", "127.0.0.1"))

    tls_utils.add_port_to_grpc_server = on_loopback
