"""Ports that this process listens on, with errors that name the setting to change."""

from __future__ import annotations

import errno
import socket
import threading
from typing import Self

import uvicorn
from starlette.types import ASGIApp


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


class MetricsServer:
    """Use as a context manager; it answers on `listener` meanwhile, or `until_stopped`."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        self._server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_keep_alive=30))
        self._listener = listener
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="metrics", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()

    def until_stopped(self) -> None:
        """Answers in this thread, the main one, until SIGTERM or Ctrl-C."""
        with self._listener:
            self._server.run([self._listener])
