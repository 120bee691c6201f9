"""A webhook destination that answers at once and records when each task's webhook arrived."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

_TIMEOUT_S: Final = 30.0


class Destination:
    def __init__(self) -> None:
        self._arrivals: dict[str, float] = {}
        self._arrived = threading.Condition()

    def record(self, task_id: str) -> None:
        with self._arrived:
            self._arrivals[task_id] = time.time()
            self._arrived.notify_all()

    def wait(self, task_id: str) -> float:
        """Waits for the task's webhook. Returns its time in epoch seconds, or raises RuntimeError on timeout."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: task_id in self._arrivals, _TIMEOUT_S):
                raise RuntimeError(f"the webhook of {task_id} did not arrive")
            return self._arrivals[task_id]

    @contextmanager
    def listening(self) -> Iterator[str]:
        """Serves the destination and yields its URL."""
        destination = self

        class WebhookHandler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                destination.record(json.loads(self.rfile.read(int(self.headers["content-length"])))["id"])
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Logs nothing: writing a line per call would be part of the measurement."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), WebhookHandler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
