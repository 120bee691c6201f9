"""Refuses bodies that are too large before they are read whole."""

from __future__ import annotations

from fastapi import HTTPException
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

KEYLESS_BYTES = 64 * 1024
"""No endpoint takes more from a client that shows no key."""

# What is left of the body stays unread, so the connection can't be used again.
_CLOSE = {"Connection": "close"}


class BodyLimit:
    """ASGI middleware: 413 by the declared length, else as soon as more than `max_bytes` have come."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self.app = app
        self.max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        keyless = not headers.get("x-key")
        limit = min(self.max_bytes, KEYLESS_BYTES) if keyless else self.max_bytes
        detail = f"Request body too large: at most {limit} bytes" + (" without an x-key header" if keyless else "")

        declared = headers.get("content-length", "")
        if declared.isdigit() and int(declared) > limit:
            await JSONResponse({"detail": detail}, status_code=413, headers=_CLOSE)(scope, receive, send)
            return

        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise HTTPException(413, detail, _CLOSE)
            return message

        await self.app(scope, counted, send)
