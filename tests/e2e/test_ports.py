"""Ports of a whole service."""

from __future__ import annotations

import socket
from ipaddress import ip_address

import httpx2
import psutil
import pytest
from support.local_service import LocalService


def test_nothing_listens_beyond_loopback(service: LocalService) -> None:
    listeners: dict[tuple[str, int], str] = {}
    for process in service.processes():
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                listeners[connection.laddr.ip, connection.laddr.port] = process.name()
    assert {service.port, service.metrics_port} <= {port for _, port in listeners}
    exposed = [name for (ip, _), name in listeners.items() if not ip_address(ip.removeprefix("::ffff:")).is_loopback]
    assert exposed == []


def test_forged_host_and_metrics_are_rejected(service: LocalService) -> None:
    for path, headers, status in (
        ("/v1/get_result?id=x", {}, 404),
        ("/v1/get_result?id=x", {"Host": "evil.test"}, 421),
        ("/metrics", {}, 404),
    ):
        answer = httpx2.get(f"{service.base_url}{path}", headers=headers, trust_env=False, timeout=60)
        assert answer.status_code == status


@pytest.mark.slow
def test_incomplete_body_times_out(service: LocalService) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as wire:
        wire.sendall(b"POST /v1/gen-3-image-klein HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        assert wire.recv(100).startswith(b"HTTP/1.1 408 ")
