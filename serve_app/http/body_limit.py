"""Refuses bodies that are too large before they are read whole, large ones of strangers, and too many at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from fastapi import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.http.auth import has_credentials
from serve_app.http.errors import SHORTLY
from serve_app.http.inflight_bodies import InflightBodies, NoRoom
from serve_app.media.holding import hold

KEYLESS_BYTES = 64 * 1024
"""What is read of anybody; more only of clients whose key is valid, and while there is room."""

# What is left of the body stays unread, so the connection can't be used again.
_CLOSE = {"Connection": "close"}
_NO_ROOM = "Too many large requests at a time, nothing was accepted or charged; try again shortly"


class BodyLimit:
    """ASGI middleware: 413 by the declared length, else as soon as more than `max_bytes` have come.

    503 where all bodies together, and what is fetched for them, from their first byte to the end of the answer,
    would be more than `max_inflight_bytes`; a declared length counts from the beginning. `uploads` names paths with
    a limit of their own, whose bodies go to disk as they come and count for nothing here; those of `small` take
    `KEYLESS_BYTES` of anybody.

    `check` raises the HTTPException that a client with wrong credentials is to see; it is asked only when a body is, or
    may become, larger than `KEYLESS_BYTES`.
    """

    def __init__(
        self,
        app: ASGIApp,
        max_bytes: int,
        max_inflight_bytes: int,
        check: Callable[[HTTPConnection], Awaitable[None]],
        uploads: Mapping[str, int],
        small: Collection[str] = (),
    ) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self.inflight = InflightBodies(max_inflight_bytes, small_bytes=KEYLESS_BYTES)
        self.check = check
        self.uploads = uploads
        self.small = frozenset(small)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        held_in_memory = scope["path"] not in self.uploads
        most = KEYLESS_BYTES if scope["path"] in self.small else self.uploads.get(scope["path"], self.max_bytes)
        limit: int | None = None
        seen = 0

        with self.inflight.one_more() as body, self.inflight.one_more() as fetched:

            def grow_to(size: int) -> None:
                try:
                    if held_in_memory:
                        body.grow_to(size)
                except NoRoom:
                    raise HTTPException(503, _NO_ROOM, SHORTLY | _CLOSE) from None

            def fetch(size: int) -> None:
                try:
                    fetched.add(size)
                except NoRoom:
                    raise HTTPException(503, _NO_ROOM, SHORTLY) from None

            # Inside the app, where the exceptions become answers: it asks for the body before anything else.
            async def limited() -> Message:
                nonlocal limit, seen
                if limit is None:
                    request = HTTPConnection(scope)
                    limit = await self._limit(request, most)
                    grow_to(_declared(request) or 0)
                message = await receive()
                seen += len(message.get("body", b""))
                if seen > limit:
                    raise _too_large(limit, keyless=limit < most)
                grow_to(seen)
                return message

            bounded = hold.set(fetch)
            try:
                await self.app(scope, limited, send)
            finally:
                hold.reset(bounded)

    async def _limit(self, request: HTTPConnection, most: int) -> int:
        """How much of this body to read. Raises HTTPException when its declared length says enough."""
        headers = request.headers
        known, declared = has_credentials(headers), _declared(request)
        limit = most if known else min(most, KEYLESS_BYTES)
        if declared is not None and declared > limit:
            raise _too_large(limit, keyless=limit < most)
        chunked = declared is None and "transfer-encoding" in headers
        if known and (chunked or (declared or 0) > KEYLESS_BYTES):
            await self.check(request)
        return limit


def _declared(request: HTTPConnection) -> int | None:
    length = request.headers.get("content-length", "")
    return int(length) if length.isdigit() else None


def _too_large(limit: int, *, keyless: bool) -> HTTPException:
    detail = f"Request body too large: at most {limit} bytes" + (" without an x-key header" if keyless else "")
    return HTTPException(413, detail, _CLOSE)
