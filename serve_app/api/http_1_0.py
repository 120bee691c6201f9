"""Responses of unknown length to HTTP/1.0 clients, which do not support chunks (RFC 9112, 6.1).

uvicorn sends them in chunks, and HAProxy forwards the chunk headers as content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent


class CloseDelimitedCycle(RequestResponseCycle):
    """A request whose HTTP/1.0 response ends with the connection, unless a header has its length."""

    _is_close_delimited = False

    async def send(self, message: ASGISendEvent) -> None:
        if message["type"] == "http.response.start" and self.scope["http_version"] == "1.0":
            names = {name.lower() for name, _ in message.get("headers", ())}
            if b"content-length" not in names:
                self._is_close_delimited, self.chunked_encoding = True, False
        elif message["type"] == "http.response.body" and self._is_close_delimited:
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


def install() -> None:
    """Patches all uvicorn servers of this process, since Ray Serve has no option for the protocol class."""
    httptools_impl.RequestResponseCycle = CloseDelimitedCycle
