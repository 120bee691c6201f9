"""A service for one benchmark: `gen-serve up` on a free port, over a temporary folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from benchmarks.processes import Role, cpu_by_role, memory_by_role, stop
from serve_app.cli.service import Client
from serve_app.launcher.embedded_redis import free_port

PROJECT = Path(__file__).parents[1]
CONFIG = PROJECT / "configs" / "local.yaml"
MODEL = "flux3-klein"
ENDPOINT = "gen-3-image-klein"

_COMMAND = str(Path(sys.executable).with_name("gen-serve"))
_START_S = 180.0
_STOP_S = 90.0

UNLIMITED = {
    "GEN_TASKS__MAX_ACTIVE": "10000000",
    "GEN_TASKS__MAX_QUEUED": "10000000",
    "GEN_TASKS__REQUESTS_PER_S": "1000000",
    "GEN_TASKS__BURST": "1000000",
}
"""Settings without limits, for benchmarks that do not measure rejections."""


class Service:
    """Context manager; inside it the service is ready and its model loaded.

    `environment` overrides settings (`GEN_…`) and Ray's variables. The caller's own ones don't reach the service, so
    that a measurement never depends on them.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.ready_s = 0.0
        """Seconds from the start of the process until it was ready and its model loaded."""
        self._overrides = dict(environment or {})
        self._stack = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path()

    def __enter__(self) -> Self:
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gen-bench-")))
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def key(self) -> str:
        return (self._folder / "data" / "key").read_text().strip()

    @property
    def redis_url(self) -> str:
        return (self._folder / "data" / "redis" / "url").read_text().strip()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def client(self) -> Client:
        return Client(self.base_url, self.key)

    def cpu(self) -> dict[Role, float]:
        return cpu_by_role(self.pid)

    def memory(self) -> dict[Role, float]:
        return memory_by_role(self.pid)

    def _start(self) -> None:
        started_at = time.monotonic()
        environment = without_settings(os.environ) | {
            "GEN_SERVICE__PORT": str(self.port),
            "GEN_METRICS__PORT": str(free_port()),
            "GEN_DATA_DIR": str(self._folder / "data"),
            "XDG_STATE_HOME": str(self._folder / "state"),  # else the user's commands would find this service
            **self._overrides,
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [_COMMAND, "up", "--config", str(CONFIG)],
                cwd=PROJECT,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._stack.callback(stop, [self._process], _STOP_S)
        with Client(self.base_url) as client:
            # The port answers before the model has loaded; the line is logged after.
            while not (b"ready after" in self._log.read_bytes() and client.ready()):
                if self._process.poll() is not None or time.monotonic() - started_at > _START_S:
                    raise RuntimeError(f"the service did not start:\n{self._log.read_text(errors='replace')[-2000:]}")
                time.sleep(0.05)
        self.ready_s = time.monotonic() - started_at

    @property
    def _log(self) -> Path:
        return self._folder / "service.log"


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment without the variables of the service and of Ray."""
    return {name: value for name, value in environment.items() if not name.startswith(("GEN_", "RAY_"))}
