"""Ends requests whose bodies come too slowly: a byte a second would hold a place for days."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Final

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

GRACE_S: Final = 10.0
"""What every body has, however little of it comes."""
_CLOSE: Final = {"Connection": "close"}


class SlowBodies:
    """ASGI middleware: 408 once a body has been waited for longer than `GRACE_S` and a second for every `min_rate`
    bytes of it that came, or than `max_s` seconds in all. Only waiting counts: not what the app does in between.
    `uploads` are paths that have bounds of their own.
    """

    def __init__(
        self, app: ASGIApp, min_rate: int, max_s: float, grace_s: float = GRACE_S, uploads: Collection[str] = ()
    ) -> None:
        self.app = app
        self.min_rate = min_rate
        self.max_s = max_s
        self.grace_s = grace_s
        self.uploads = uploads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self.uploads:
            await self.app(scope, receive, send)
            return
        seen, waited_s, complete = 0, 0.0, False

        async def in_time() -> Message:
            nonlocal seen, waited_s, complete
            if complete:
                return await receive()  # only the end of the connection can still come
            allowed_s = min(self.grace_s + seen / self.min_rate, self.max_s)
            began = time.monotonic()
            try:
                async with asyncio.timeout(allowed_s - waited_s):
                    message = await receive()
            except TimeoutError:
                # What is left of the body stays unread, so the connection can't be used again.
                raise HTTPException(408, self._too_slow(waited_s + time.monotonic() - began), _CLOSE) from None
            waited_s += time.monotonic() - began
            seen += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            return message

        await self.app(scope, in_time, send)

    def _too_slow(self, waited_s: float) -> str:
        if waited_s >= self.max_s:
            return f"The body came too slowly: it has to be complete within {self.max_s:g} seconds"
        return f"The body came too slowly: at least {self.min_rate} bytes a second, after {self.grace_s:g} seconds"
