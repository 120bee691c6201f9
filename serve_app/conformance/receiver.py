"""A receiver of webhooks on this machine."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self

_LOOK_S: Final = 0.05
_LONGEST: Final = 1 << 20
"""Bytes of a body."""


@dataclass(frozen=True, slots=True)
class Delivery:
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


class Receiver:
    """Listens on all addresses, and tells of itself under `host`. Every hook is a path that nobody can guess."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._received: defaultdict[str, list[Delivery]] = defaultdict(list)
        self._answers: dict[str, list[int]] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1" if host == "127.0.0.1" else "", 0), self._handler())
        self._server.daemon_threads = True

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def hook(self, *answers: int) -> str:
        """A new URL. Its first calls are answered with `answers`, one each, all others with 204."""
        path = f"/{secrets.token_hex(8)}"
        self._answers[path] = list(answers)
        return f"http://{self._host}:{self._server.server_port}{path}"

    async def deliveries(self, url: str, count: int, within_s: float) -> list[Delivery]:
        """What came for a hook, once there are `count`, or after that time what there is."""
        path = "/" + url.rpartition("/")[2]
        give_up = time.monotonic() + within_s
        while True:
            with self._lock:
                found = list(self._received[path])
            if len(found) >= count or time.monotonic() > give_up:
                return found
            await asyncio.sleep(_LOOK_S)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = min(int(self.headers.get("content-length", 0)), _LONGEST)
                headers = {name.lower(): value for name, value in self.headers.items()}
                self.send_response(receiver._note(self.path, Delivery(headers, self.rfile.read(length))))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler

    def _note(self, path: str, delivery: Delivery) -> int:
        """Keeps a delivery. Returns the status to answer with: 404 for a path that was never handed out."""
        with self._lock:
            if path not in self._answers:
                return 404
            self._received[path].append(delivery)
            return self._answers[path].pop(0) if self._answers[path] else 204
