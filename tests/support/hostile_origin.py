"""An origin that answers a request for an image with endless data that is costly to read."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

_OK: Final = b"HTTP/1.1 200 OK\r\n"
_CHUNKED: Final = _OK + b"transfer-encoding: chunked\r\n\r\n"


HOSTILITIES: Final = {
    "one-byte chunks": (_CHUNKED, b"1\r\nx\r\n" * 10_000, 0),
    "a trickled body": (_OK + b"content-length: 1000\r\n\r\n", b"x", 0.02),
    "a trickled head": (_OK, b"x-a: b\r\n", 0.02),
    "one header": (_OK + b"x-a: ", b"b" * 60_000, 0),
    "interim answers": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 2_000, 0),
    "a chunk's extension": (_CHUNKED + b"1;a=", b"b" * 60_000, 0),
    "trailers": (_CHUNKED + b"1\r\nx\r\n0\r\n", b"a:b\r\n" * 10_000, 0),
}
"""For each attack: bytes sent once, bytes then repeated for ever, and seconds between the repetitions."""


@dataclass
class HostileOrigin:
    """Counts the bytes it sent. A connection ends when the client drops it."""

    kind: str
    port: int = 0
    connections: int = 0
    sent_bytes: list[int] = field(default_factory=list)
    """Bytes of each ended connection, including those still in the sockets' buffers."""
    all_dropped: threading.Event = field(default_factory=threading.Event)
    """Set while no connection is open, after the first one."""
    closing: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def serve(self, connection: socket.socket) -> None:
        with self._lock:
            self.connections += 1
            self.all_dropped.clear()
        size, (part, again, pause_s) = 0, HOSTILITIES[self.kind]
        with connection, contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.recv(65536)
            while not self.closing.wait(pause_s if size else 0.0):
                connection.sendall(part)
                size += len(part)
                part = again
        with self._lock:
            self.sent_bytes.append(size)
            if len(self.sent_bytes) == self.connections:
                self.all_dropped.set()


@contextmanager
def hostile_origin(kind: str) -> Iterator[HostileOrigin]:
    origin = HostileOrigin(kind)
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        origin.port = listener.getsockname()[1]

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=origin.serve, args=[connection], daemon=True).start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield origin
        finally:
            origin.closing.set()
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
