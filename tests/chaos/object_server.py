"""An object server that can be slow or dead: the part of S3 that the service uses, over a folder.

An object's path in the folder is its key. Signatures are not checked. There are no multipart uploads.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

_OTHERS: Final = '<ETag>"any"</ETag><LastModified>2026-01-01T00:00:00.000Z</LastModified>'


class ObjectServer(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True  # keep-alive connections end with the process

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.delay_s = 0.0
        """Seconds before each response."""
        self.dead = False
        """True to close connections without a response."""
        self.closing = threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def settings(self) -> dict[str, Any]:
        """The section `objects` for a service."""
        options = {
            "endpoint": f"http://127.0.0.1:{self.server_port}",
            "region": "local",
            "access_key_id": "chaos",
            "secret_access_key": "chaos",
            "client_options": {"allow_http": True},
        }
        return {"url": "s3://results", "options": options}

    def object(self, url: str) -> Path:
        """Returns the file of an object's URL."""
        return self.folder / unquote(urlsplit(url).path).split("/", 2)[2]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores clients that are killed in the middle of a request."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ObjectServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_PUT(self) -> None:
        with self._handle() as body:
            path = self.server.object(self.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.server.folder.parent, delete=False) as file:
                file.write(body)
            Path(file.name).rename(path)  # atomically
            self._answer(200, ETag=_etag(body))

    def do_GET(self) -> None:
        with self._handle():
            query = parse_qs(urlsplit(self.path).query)
            if "list-type" in query:
                self._answer(200, self._listing(query.get("prefix", [""])[0]))
                return
            path = self.server.object(self.path)
            data, changed = path.read_bytes(), formatdate(path.stat().st_mtime, usegmt=True)
            self._answer(200, data, **{"ETag": _etag(data), "Last-Modified": changed})

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Deletes several objects."""
        with self._handle() as body:
            elements = ElementTree.fromstring(body).iter()
            keys = [element.text or "" for element in elements if element.tag.endswith("Key")]
            for key in keys:
                (self.server.folder / key).unlink(missing_ok=True)
            deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
            self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def do_DELETE(self) -> None:
        with self._handle():
            self.server.object(self.path).unlink(missing_ok=True)
            self._answer(204)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    @contextmanager
    def _handle(self) -> Iterator[bytes]:
        """Yields the request's body. Answers 404 for a missing object; a dead server closes the connection."""
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.closing.wait(self.server.delay_s)
        try:
            if self.server.dead:
                raise ConnectionError
            yield body
        except FileNotFoundError:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        except ConnectionError:
            self.close_connection = True

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _listing(self, prefix: str) -> bytes:
        contents = ""
        for path in sorted(path for path in self.server.folder.rglob("*") if path.is_file()):
            key = path.relative_to(self.server.folder).as_posix()
            with contextlib.suppress(FileNotFoundError):
                if key.startswith(prefix):
                    contents += (
                        f"<Contents><Key>{escape(key)}</Key><Size>{path.stat().st_size}</Size>{_OTHERS}</Contents>"
                    )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>".encode()


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


@contextmanager
def serving(folder: Path) -> Iterator[ObjectServer]:
    with ObjectServer(folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.closing.set()
            server.shutdown()
            thread.join()
