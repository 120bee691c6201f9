"""Serves the figures: beside the service, in a thread of the process that started it, or in a process of their own."""

from __future__ import annotations

import socket
import threading
from typing import Self

import uvicorn
from starlette.types import ASGIApp


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
