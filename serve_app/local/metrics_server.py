"""Serves the figures beside the service: in a thread of the process that started it."""

from __future__ import annotations

import socket
import threading
from typing import Self

import uvicorn
from starlette.types import ASGIApp


class MetricsServer:
    """Use as a context manager; it answers on `listener` meanwhile."""

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
