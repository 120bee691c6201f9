"""Services of this user on this machine, which commands find by their notes; and their listening ports.

The process of a service locks its note, so the note of a crashed service is ignored.
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
    """Addresses and files of a running service. All paths are absolute."""

    model_config = ConfigDict(frozen=True)

    base_url: str
    metrics_url: str | None
    """URL of the metrics; None if they are off."""
    key_file: Path
    config: Path
    data_dir: Path
    catalog: Path


def folder() -> Path:
    """Returns the folder of notes, in `$XDG_STATE_HOME` if that is an absolute path, else in `~/.local/state`."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (state if state.is_absolute() else Path.home() / ".local" / "state") / "gen-serve"


@contextmanager
def announce(service: RunningService) -> Iterator[None]:
    """Writes the note, and removes it at the end. The service also runs if the note can't be written."""
    try:
        path, handle = _write_note(service)
    except (OSError, RuntimeError) as problem:
        logger.warning(
            "the note of this service can't be written, so commands need --base-url and --config: %s", problem
        )
        yield
        return
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def running() -> list[RunningService]:
    """Returns the services that run now, in a stable order."""
    services = []
    for path in sorted(folder().glob("*.json")):
        with suppress(OSError, ValidationError):
            if _is_locked(path):
                services.append(RunningService.model_validate_json(path.read_text()))
    return services


def _write_note(service: RunningService) -> tuple[Path, int]:
    """Returns the note and the descriptor that holds its lock until this process ends."""
    path = folder() / f"{os.getpid()}.json"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.ftruncate(handle, 0)  # an earlier process may have had this pid
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
    """Another process listens on the port, or it can't be bound."""


def listen(host: str, port: int, setting: str) -> socket.socket:
    """Returns a listening socket. Raises PortInUse, which names `setting` and its environment variable."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as problem:
        other = f"{setting} or GEN_{setting.upper().replace('.', '__')}"
        if problem.errno == errno.EADDRINUSE:
            raise PortInUse(f"{host}:{port} is in use; choose another with {other}") from None
        raise PortInUse(f"can't listen on {host}:{port}: {problem.strerror}; see {other}") from None


KEEP_ALIVE_S = 75
"""Longer than usual scrape intervals, so that no scrape meets a closing connection."""


class MetricsServer:
    """HTTP server of the metrics. As a context manager it serves in a thread; `run` serves in this one."""

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
        """Serves in the main thread until SIGTERM or Ctrl-C."""
        with self._listener:
            self._server.run([self._listener])
