"""Where a whole service listens, and who is answered there."""

from __future__ import annotations

import socket
from ipaddress import ip_address

import httpx2
import psutil
import pytest
from support.local_service import LocalService


def listening(service: LocalService) -> dict[tuple[str, int], str]:
    """Process by address and port."""
    found: dict[tuple[str, int], str] = {}
    for process in service.processes():
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                found[connection.laddr.ip, connection.laddr.port] = process.name()
    return found


def test_nothing_listens_beyond_loopback(service: LocalService) -> None:
    found = listening(service)
    assert {service.port, service.metrics_port} <= {port for _, port in found}
    addresses = {(ip, port): ip_address(ip.removeprefix("::ffff:")) for ip, port in found}
    assert {found[key] for key, address in addresses.items() if not address.is_loopback} == set()


def test_figures_have_a_port_of_their_own(service: LocalService) -> None:
    figures = httpx2.get(f"http://127.0.0.1:{service.metrics_port}/metrics", trust_env=False, timeout=60)
    assert "gen_tasks_queued" in figures.text
    assert httpx2.get(f"{service.base_url}/metrics", trust_env=False, timeout=60).status_code == 404


def test_a_forged_host_is_told_from_the_real_one(service: LocalService) -> None:
    url = f"{service.base_url}/v1/get_result?id=x"
    assert httpx2.get(url, trust_env=False, timeout=60).status_code == 404
    forged = httpx2.get(url, headers={"Host": "evil.test"}, trust_env=False, timeout=60)
    assert forged.status_code == 421


def test_an_error_names_its_request(service: LocalService) -> None:
    refused = httpx2.get(f"{service.base_url}/v1/tasks", trust_env=False, timeout=60)
    assert refused.json()["request_id"] == refused.headers["x-request-id"]


@pytest.mark.slow
def test_a_body_in_part_keeps_nobody_waiting(service: LocalService) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as wire:
        wire.sendall(b"POST /v1/gen-3-image-klein HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        assert wire.recv(100).startswith(b"HTTP/1.1 408 ")
