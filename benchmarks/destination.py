"""A destination of webhooks that answers at once, and notes when which task's came."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

_ARRIVES_S: Final = 30.0


class Destination:
    def __init__(self) -> None:
        self.came: dict[str, float] = {}
        self._news = threading.Condition()

    def note(self, task_id: str) -> None:
        with self._news:
            self.came[task_id] = time.time()
            self._news.notify_all()

    def wait(self, task_id: str) -> float:
        """Epoch seconds. Raises RuntimeError for one that does not come."""
        with self._news:
            if not self._news.wait_for(lambda: task_id in self.came, _ARRIVES_S):
                raise RuntimeError(f"the webhook of {task_id} did not arrive")
            return self.came[task_id]

    @contextmanager
    def listening(self) -> Iterator[str]:
        """Its URL."""
        destination = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                destination.note(json.loads(self.rfile.read(int(self.headers["content-length"])))["id"])
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: a line per call would be part of what is measured."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
