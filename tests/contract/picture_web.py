"""A web site with pictures, and the pictures."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from PIL import Image
from running_service import PICTURE_HOST

ORIENTATION_TAG = 0x0112


def picture(
    width: int = 96, height: int = 64, form: str = "PNG", mode: str = "RGB", orientation: int | None = None
) -> bytes:
    """A picture file; noise-free, so also a large one is a small file."""
    exif = Image.Exif()
    if orientation is not None:
        exif[ORIENTATION_TAG] = orientation
    buffer = io.BytesIO()
    Image.new(mode, (width, height)).save(buffer, form, exif=exif)
    return buffer.getvalue()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


class PictureWeb:
    """Serves `pages` by path and notes every path it was asked for."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[str] = []
        self.port = 0

    def url(self, path: str, host: str = PICTURE_HOST) -> str:
        return f"http://{host}:{self.port}{path}"

    def put(self, path: str, body: bytes = b"", status: int = 200, **headers: str) -> str:
        """Serves `body` at `path`; returns the URL the service may fetch it by."""
        self.pages[path] = (status, headers, body)
        return self.url(path)


@contextmanager
def serving() -> Iterator[PictureWeb]:
    web = PictureWeb()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            web.asked.append(self.path)
            status, headers, body = web.pages.get(self.path, (404, {}, b""))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        web.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield web
        finally:
            server.shutdown()
            thread.join()
