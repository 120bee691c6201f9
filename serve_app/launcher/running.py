"""Services of this user on this machine: each leaves a note that commands find; and ports to listen on.

A note is locked by the process that left it, so one that a crash left behind is told from one that counts.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import uvicorn
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.types import ASGIApp

logger = logging.getLogger(__name__)


class RunningService(BaseModel):
    """Where one is, and what it runs on. All paths are absolute."""

    model_config = ConfigDict(frozen=True)

    base_url: str
    metrics_url: str | None
    """None: it has no figures."""
    key_file: Path
    config: Path
    data_dir: Path
    catalog: Path


def folder() -> Path:
    """Where the notes are: in `$XDG_STATE_HOME`, which counts only if it is absolute, else in `~/.local/state`."""
    chosen = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (chosen if chosen.is_absolute() else Path.home() / ".local" / "state") / "gen-serve"


@contextmanager
def announce(service: RunningService) -> Iterator[None]:
    """Leaves the note, and takes it away at the end. Where none can be left, the service runs all the same."""
    try:
        path, handle = _write_note(service)
    except (OSError, RuntimeError) as problem:
        logger.warning("no note of this service can be left, so commands need --base-url and --config: %s", problem)
        yield
        return
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def running() -> list[RunningService]:
    """Those that run now, in a steady order."""
    services = []
    for path in sorted(folder().glob("*.json")):
        with suppress(OSError, ValidationError):
            if _is_locked(path):
                services.append(RunningService.model_validate_json(path.read_text()))
    return services


def _write_note(service: RunningService) -> tuple[Path, int]:
    """The note, and what holds its lock, which ends with this process."""
    path = folder() / f"{os.getpid()}.json"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.ftruncate(handle, 0)  # of an earlier process with this number
    os.write(handle, service.model_dump_json().encode())
    return path, handle


def _is_locked(path: Path) -> bool:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


class PortInUse(RuntimeError):
    """Something else listens where the service should."""


def listen(host: str, port: int, setting: str) -> socket.socket:
    """Raises PortInUse, which names `setting` and the environment variable that sets it."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as problem:
        other = f"{setting} or GEN_{setting.upper().replace('.', '__')}"
        if problem.errno == errno.EADDRINUSE:
            raise PortInUse(f"{host}:{port} is in use; choose another with {other}") from None
        raise PortInUse(f"can't listen on {host}:{port}: {problem.strerror}; see {other}") from None


KEEP_ALIVE_S = 75
"""Longer than the usual interval between two scrapes, at which a request would meet the end of its connection."""


class MetricsServer:
    """Use as a context manager; it answers on `listener` meanwhile, or in `run`."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        self._server = uvicorn.Server(
            uvicorn.Config(app, log_config=None, access_log=False, timeout_keep_alive=KEEP_ALIVE_S)
        )
        self._listener = listener
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="metrics", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()

    def run(self) -> None:
        """Answers in this thread, the main one, until SIGTERM or Ctrl-C."""
        with self._listener:
            self._server.run([self._listener])
