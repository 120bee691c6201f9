"""What pages load is compressed: the description of the interface is ten times smaller so.

Answers to programs are not: they are small, or pictures.
"""

from __future__ import annotations

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

_LEAST_BYTES = 1000
_LEVEL = 6


class Compressed:
    """ASGI middleware for answers under these paths."""

    def __init__(self, app: ASGIApp, paths: tuple[str, ...]) -> None:
        self._plain = app
        self._compressed = GZipMiddleware(app, minimum_size=_LEAST_BYTES, compresslevel=_LEVEL)
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        compressed = scope["type"] == "http" and scope["path"].startswith(self._paths)
        await (self._compressed if compressed else self._plain)(scope, receive, send)
