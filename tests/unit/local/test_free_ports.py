from __future__ import annotations

import socket
from pathlib import Path

import pytest

from serve_app.launcher import embedded_redis
from serve_app.launcher.embedded_redis import free_port


def test_ports_differ_and_can_be_bound() -> None:
    ports = embedded_redis.free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        with socket.socket() as server:
            server.bind(("127.0.0.1", port))


def test_no_outgoing_connection_can_take_them() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(10_000 <= free_port() < first for _ in range(50))


def test_one_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        drawn = iter([port, port, free_port()])
        monkeypatch.setattr(embedded_redis.SystemRandom, "randrange", lambda *_: next(drawn))
        assert free_port() != port


@pytest.mark.parametrize("said", ["", "nonsense", "1024 65535"])
def test_a_system_that_gives_all_or_says_nothing(said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_redis, "_OUTGOING", tmp_path / "range")
    (tmp_path / "range").write_text(said)
    assert 10_000 <= free_port() < 32_768


def test_where_there_are_none_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setattr(embedded_redis.SystemRandom, "randrange", lambda *_: port)
        with pytest.raises(OSError, match="no 1 free ports"):
            free_port()
