"""Refuses bodies that are too large before they are read whole, and large ones of strangers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from fastapi import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.http.auth import has_credentials

KEYLESS_BYTES = 64 * 1024
"""What is read of anybody; more only of clients whose key is valid."""

# What is left of the body stays unread, so the connection can't be used again.
_CLOSE = {"Connection": "close"}


class BodyLimit:
    """ASGI middleware: 413 by the declared length, else as soon as more than `max_bytes` have come.

    `uploads` names paths with a limit of their own.

    `check` raises the HTTPException that a client with wrong credentials is to see; it is asked only when a body is, or
    may become, larger than `KEYLESS_BYTES`.
    """

    def __init__(
        self,
        app: ASGIApp,
        max_bytes: int,
        check: Callable[[HTTPConnection], Awaitable[None]],
        uploads: Mapping[str, int] | None = None,
    ) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self.check = check
        self.uploads = uploads or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most = self.uploads.get(scope["path"], self.max_bytes)
        limit: int | None = None
        seen = 0

        # Inside the app, where the exceptions become answers: it asks for the body before anything else.
        async def limited() -> Message:
            nonlocal limit, seen
            if limit is None:
                limit = await self._limit(HTTPConnection(scope), most)
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise _too_large(limit, keyless=limit < most)
            return message

        await self.app(scope, limited, send)

    async def _limit(self, request: HTTPConnection, most: int) -> int:
        """How much of this body to read. Raises HTTPException when its declared length says enough."""
        headers = request.headers
        known, length = has_credentials(headers), headers.get("content-length", "")
        declared = int(length) if length.isdigit() else None
        limit = most if known else min(most, KEYLESS_BYTES)
        if declared is not None and declared > limit:
            raise _too_large(limit, keyless=not known)
        chunked = declared is None and "transfer-encoding" in headers
        if known and (chunked or (declared or 0) > KEYLESS_BYTES):
            await self.check(request)
        return limit


def _too_large(limit: int, *, keyless: bool) -> HTTPException:
    detail = f"Request body too large: at most {limit} bytes" + (" without an x-key header" if keyless else "")
    return HTTPException(413, detail, _CLOSE)
