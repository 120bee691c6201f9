"""A website on the loopback interface that serves a test's pages and records its requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PUBLIC_HOST = "images.test"
"""Resolves to loopback and is on the allow-list of `http_service`; loopback itself is not."""


@dataclass(frozen=True)
class Gate:
    """Holds a response back until a test opens it."""

    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Page:
    body: bytes = b""
    status: int = 404
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    delay_s: float = 0.0
    """Seconds between head and body."""
    gate: Gate | None = None


class Website(ThreadingHTTPServer):
    """Serves `pages` by path, and 404 at any other."""

    def __init__(self, host: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.host = host
        self.port = self.server_port
        self.pages: dict[str, Page] = {}
        self.paths: list[str] = []
        """Paths of all requests, in order."""
        self.agents: list[str | None] = []
        """User agents of all requests, in order."""
        self.received: list[tuple[dict[str, str], bytes]] = []
        """Headers, with names in lower case, and body of each POST, in order."""
        self.closing = threading.Event()

    def url(self, path: str = "/", host: str | None = None) -> str:
        return f"http://{host or self.host}:{self.port}{path}"

    def set_page(
        self,
        path: str,
        body: bytes = b"",
        status: int = 200,
        delay_s: float = 0.0,
        gate: Gate | None = None,
        **headers: str,
    ) -> str:
        """Serves `body` at `path`. Returns its URL. Names of headers are in lower case, `_` for `-`."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        self.pages[path] = Page(body, status, fields, delay_s, gate)
        return self.url(path)


class _Handler(BaseHTTPRequestHandler):
    server: Website  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.received.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.do_GET()

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        self.server.agents.append(self.headers["user-agent"])
        page = self.server.pages.get(self.path, Page())
        if page.gate is not None:
            page.gate.reached.set()
            page.gate.opened.wait(30)
        self.send_response(page.status)
        for name, value in {"content-length": str(len(page.body)), **page.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.server.closing.wait(page.delay_s)
        self.wfile.write(page.body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving(host: str = "127.0.0.1") -> Iterator[Website]:
    """Runs a website with URLs of `host`; it listens on 127.0.0.1."""
    with Website(host) as site:
        thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            site.closing.set()
            site.shutdown()
            thread.join()
