"""Loopback binding of the ports of Ray Serve that no flag binds."""

from __future__ import annotations

from typing import Any

from ray._common import tls_utils


def bind() -> None:
    """Binds the gRPC servers of replicas to loopback. Runs in a worker before Ray Serve is imported."""
    add_port = tls_utils.add_port_to_grpc_server

    def on_loopback(server: Any, address: str) -> int:
        return add_port(server, address.replace("[::]", "127.0.0.1"))

    tls_utils.add_port_to_grpc_server = on_loopback
