"""An origin that is asked for a picture and does its worst: it sends for ever, in ways that are dear to read."""

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


@dataclass(frozen=True)
class Hostility:
    """What is sent once, and what then comes again and again, every `pause_s` seconds."""

    first: bytes
    again: bytes
    pause_s: float = 0.0


HOSTILITIES: Final = {
    "one-byte chunks": Hostility(_CHUNKED, b"1\r\nx\r\n" * 10_000),
    "one-byte segments": Hostility(_OK + b"\r\n", b"x"),
    "a trickled body": Hostility(_OK + b"content-length: 1000\r\n\r\n", b"x", pause_s=0.02),
    "a trickled head": Hostility(_OK, b"x-a: b\r\n", pause_s=0.02),
    "header lines": Hostility(_OK, b"a:b\r\n" * 10_000),
    "many headers": Hostility(_OK + b"a:b\r\n" * 12_000 + b"\r\n", b"x" * 1_000, pause_s=0.02),
    "one header": Hostility(_OK + b"x-a: ", b"b" * 60_000),
    "interim answers": Hostility(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 2_000),
    "a chunk's extension": Hostility(_CHUNKED + b"1;a=", b"b" * 60_000),
    "trailers": Hostility(_CHUNKED + b"1\r\nx\r\n0\r\n", b"a:b\r\n" * 10_000),
    "many trailers": Hostility(_CHUNKED + b"1\r\nx\r\n0\r\n" + b"a:b\r\n" * 12_000 + b"\r\n", b"x", pause_s=0.02),
}


@dataclass
class HostileOrigin:
    """Counts what it got rid of; a connection ends when the other side has dropped it."""

    hostility: Hostility
    port: int = 0
    connections: int = 0
    sent: list[int] = field(default_factory=list)
    """Bytes of each connection that has ended. What lies in the sockets' buffers counts, too."""
    all_dropped: threading.Event = field(default_factory=threading.Event)
    """Set while no connection is open, once there was one."""
    closing: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def serve(self, connection: socket.socket) -> None:
        with self._lock:
            self.connections += 1
            self.all_dropped.clear()
        sent = 0
        with connection, contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.recv(65536)
            part = self.hostility.first
            while not self.closing.wait(self.hostility.pause_s if sent else 0.0):
                connection.sendall(part)
                sent += len(part)
                part = self.hostility.again
        with self._lock:
            self.sent.append(sent)
            if len(self.sent) == self.connections:
                self.all_dropped.set()


@contextmanager
def hostile_origin(kind: str) -> Iterator[HostileOrigin]:
    origin = HostileOrigin(HOSTILITIES[kind])
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
