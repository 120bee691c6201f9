"""The service's HTTP app on a plain uvicorn, without Ray: the yardstick for what Ray Serve and its proxies cost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Self

from fastapi import FastAPI

from benchmarks.processes import Role, cpu_by_role
from benchmarks.service import CONFIG, PROJECT, Service
from serve_app.cli.client import Client
from serve_app.config import catalog, settings
from serve_app.http.ingress import create_app
from serve_app.local import sealing_key
from serve_app.local.free_ports import free_port

_START_S = 60.0


class BareServer:
    """One uvicorn process on uvloop, over the Redis, the data and the keys of `service`. A context manager."""

    def __init__(self, service: Service) -> None:
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        self._service = service
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        how = f"--factory --loop uvloop --host 127.0.0.1 --port {self.port} --no-access-log --log-level warning"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", f"{__name__}:app", *how.split()],
            cwd=PROJECT,
            env=self._service.environment | {"GEN_REDIS__URL": self._service.redis_url},
        )
        give_up = time.monotonic() + _START_S
        with Client(self.base_url) as client:
            while not client.ready():
                if self._process.poll() is not None or time.monotonic() > give_up:
                    self.__exit__()
                    raise RuntimeError("the bare server did not start")
                time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(30)

    @property
    def key(self) -> str:
        return self._service.key

    def cpu(self) -> dict[Role, float]:
        """Its own, as `ingress`, and that of the Redis it shares with the service."""
        assert self._process is not None
        own = sum(cpu_by_role(self._process.pid).values())
        return {"ingress": own, "redis": self._service.cpu()["redis"]}


def app() -> FastAPI:
    """What uvicorn calls, in a process that has the service's environment."""
    assert "GEN_REDIS__URL" in os.environ
    chosen = sealing_key.with_key(settings.load(CONFIG))
    return create_app(chosen, catalog.load(chosen))
