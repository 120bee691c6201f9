"""The whole service as a user runs it: `gen-serve up` in its own process, on its own data."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import yaml

from serve_app.cli.service import Client
from serve_app.launcher.embedded_redis import free_port
from support import timing

_START_S, _STOP_S = 120, 60


class LocalService:
    def __init__(
        self, folder: Path, repository: Path, environment: Mapping[str, str] | None = None, **overrides: Any
    ) -> None:
        """`overrides` are merged deeply into `configs/local.yaml`, `environment` into that of this process."""
        self.folder = folder
        self._environment = {"XDG_STATE_HOME": str(folder / "state"), **(environment or {})}
        self.repository = repository
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.metrics_port = free_port()
        self.config = folder / "config.yaml"
        self.config.write_text(yaml.safe_dump(self._settings(overrides)))
        self.log = folder / "service.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_up(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Returns once the service takes requests."""
        offset = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(Path(sys.executable).parent / "gen-serve"), "up", "--config", str(self.config)],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # All processes of the service inherit it: `processes` finds them by it.
                env=os.environ | self._environment | {"GEN_CONFIG": str(self.config)},
            )
        deadline = time.monotonic() + _START_S
        while b"ready after" not in self.log.read_bytes()[offset:]:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the service did not start:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Sends Ctrl-C and waits for the end."""
        assert self._process is not None
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                timing.service_cpu_s.append(sum(process.cpu_times()[:2]))
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(_STOP_S) == 0
        self._process = None

    def kill(self) -> None:
        """Kills the launcher with `kill -9`; all other processes must end by themselves."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(_STOP_S)
        self._process = None

    def close(self) -> None:
        if self._process is not None:
            self.stop()

    @property
    def key(self) -> str:
        """The default project's key, which the first start creates."""
        return (self.folder / "data" / "key").read_text().strip()

    @property
    def operator_key(self) -> str:
        """The operator's key, which the first start creates."""
        return (self.folder / "data" / "operator-key").read_text().strip()

    def client(self) -> Client:
        return Client(self.base_url, self.key)

    def processes(self, name: str = "") -> list[psutil.Process]:
        """Returns the service's processes whose title or command contains `name` as whole words."""
        pattern = re.compile(re.escape(name) + r"(?![\w-])" if name[-1:].isalnum() else re.escape(name))
        processes: list[psutil.Process] = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, OSError):
                alive = process.status() != psutil.STATUS_ZOMBIE
                if alive and self._owns(process) and pattern.search(" ".join(process.cmdline())):
                    processes.append(process)
        return processes

    def kill_one(self, name: str) -> int:
        """Kills one process, found by its title, with `kill -9`. Returns its pid."""
        victim = self.processes(name)[0]
        os.kill(victim.pid, signal.SIGKILL)
        return victim.pid

    def _owns(self, process: psutil.Process) -> bool:
        # The Redis server overwrites its environment but not its working folder; inference servers get no GEN_CONFIG.
        marks = {f"GEN_CONFIG={self.config}", f"XDG_STATE_HOME={self._environment['XDG_STATE_HOME']}"}
        return process.cwd().startswith(str(self.folder)) or not marks.isdisjoint(read_environment(process))

    def _settings(self, overrides: dict[str, Any]) -> dict[str, Any]:
        shipped = yaml.safe_load((self.repository / "configs" / "local.yaml").read_text())
        own = {"data_dir": str(self.folder / "data"), "catalog": str(self.repository / shipped["catalog"])}
        ports = {"service": {"port": self.port}, "metrics": {"port": self.metrics_port}}
        return merge(merge(shipped, own | ports), overrides)


def read_environment(process: psutil.Process) -> list[str]:
    """Returns NAME=VALUE strings. psutil fails when a process has overwritten the beginning with its title."""
    return Path(f"/proc/{process.pid}/environ").read_bytes().decode(errors="replace").split("\0")


def merge(settings: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Merges overrides deeply into settings."""
    merged = dict(settings)
    for name, value in overrides.items():
        old = merged.get(name)
        merged[name] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
