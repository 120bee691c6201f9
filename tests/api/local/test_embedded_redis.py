"""The embedded server: its password, its lock, and its data after a kill of it or of its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
from redis.exceptions import AuthenticationError, ConnectionError
from support.clock import Clock

from serve_app.launcher import embedded_redis
from serve_app.launcher.embedded_redis import AlreadyRunning, EmbeddedRedis, RedisNotStarted, running_url


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    server = EmbeddedRedis(tmp_path / "redis")
    server.start()
    yield server
    server.stop()


def connect(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, decode_responses=True)


def test_server_has_a_private_password_and_never_evicts(server: EmbeddedRedis) -> None:
    with redis.Redis(port=server.port) as stranger, pytest.raises(AuthenticationError):
        stranger.ping()
    assert server.pid is not None
    password = (server.folder / "password").read_text()
    assert password not in " ".join(psutil.Process(server.pid).cmdline())
    for name in ("password", "server.conf", "url"):
        assert (server.folder / name).stat().st_mode & 0o077 == 0
    with connect(server.url) as client:
        config: Any = client.config_get("*")
    values = [config[name] for name in ("bind", "appendonly", "appendfsync", "maxmemory-policy")]
    assert values == ["127.0.0.1", "yes", "everysec", "noeviction"]


def test_killed_server_is_revived_with_data_and_address(server: EmbeddedRedis) -> None:
    url = server.url
    with connect(url) as client:
        for n in range(100):
            client.set(f"k{n}", n)
        assert not server.revive(), "it lives"
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        psutil.Process(server.pid).wait(60)
        assert server.revive()
        assert server.url == url
        assert client.dbsize() == 100


def test_second_server_of_a_folder_is_refused(server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    # A predecessor has some seconds to end.
    monkeypatch.setattr(embedded_redis, "time", Clock())
    with pytest.raises(AlreadyRunning, match="already runs"):
        EmbeddedRedis(server.folder)
    assert running_url(server.folder) == server.url


def test_stopped_server_frees_its_folder(tmp_path: Path) -> None:
    for n in range(2):
        server = EmbeddedRedis(tmp_path)
        server.start()
        with connect(server.url) as client:
            assert client.incr("starts") == n + 1
        server.stop()
        assert running_url(tmp_path) is None


def test_server_ends_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib; from serve_app.launcher.embedded_redis import EmbeddedRedis;"
        f"s = EmbeddedRedis(pathlib.Path({str(tmp_path)!r})); s.start(); print(s.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    with connect((tmp_path / "url").read_text()) as client:
        client.set("kept", "yes")
        parent.kill()
        parent.wait(60)
        parent.stdout.close()
        child.wait(60)
        with pytest.raises(ConnectionError):
            client.ping()
    successor = EmbeddedRedis(tmp_path)
    successor.start()
    with connect(successor.url) as client:
        assert client.get("kept") == "yes"
    successor.stop()


def test_failed_start_shows_the_log(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path)
    (tmp_path / "appendonlydir").write_text("in the way")
    try:
        with pytest.raises(RedisNotStarted, match=r"accepted tasks are kept\. .*server\.log ends:"):
            server.start()
    finally:
        server.stop()
